// nats/error.hpp - the errors between machines, with the subject and the server's own words.
#pragma once

#include <dunlin/config.hpp>

#include <string>
#include <system_error>
#include <utility>

namespace dunlin::inline v0_1::nats {

/// A std::error_code enum, in the category "dunlin.nats".
enum class errc {
    no_server = 1,      ///< none of the given addresses leads to a server
    credentials,        ///< the server refuses the credentials, now or after a while: the connection is closed for good
    not_permitted,      ///< the credentials do not permit this subject
    tls,                ///< TLS cannot be set up, or the certificate does not verify
    no_jetstream,       ///< the server, or the account, has no JetStream
    stream_missing,     ///< the stream or its consumer is not there, or has been deleted meanwhile
    other_settings,     ///< it exists with settings other than those asked for
    too_few_servers,    ///< fewer servers than the replicas asked for
    payload_too_large,  ///< larger than the server, or the stream, accepts
    no_majority,        ///< the available servers cannot decide: too few of a stream's replicas answer
    limits_reached,     ///< the stream is full, or the account has used up what it may
    connection_lost,    ///< no connection for longer than connect_options::patience
    not_confirmed,      ///< no answer in time: the request may have been carried out or not
    no_responders,      ///< no server for this subject
    undecodable,        ///< the codec cannot read the bytes
    slow_consumer,      ///< the reader was too slow, and the subscription's policy is to fail
    wrong_revision,     ///< the key has changed meanwhile
    busy,               ///< the server has as many requests as it accepts
    handler_failed,     ///< the server's handler has thrown; the words are the exception's ("exception" if it has none)
    closed,             ///< the cluster, or what belongs to it, was closed here
    refused,            ///< anything else that the server refuses; its words say why
};

/// The category of these codes, "dunlin.nats". errc::not_confirmed is equivalent to std::errc::timed_out.
DUNLIN_API const std::error_category& error_category() noexcept;
inline std::error_code make_error_code(errc e) noexcept { return {static_cast<int>(e), error_category()}; }

/// Thrown by all calls of this library, except that context_cancelled is thrown where a context has ended the wait.
/// what() consists of the call, the subject, the meaning of the code and the server's words.
class DUNLIN_API error : public std::system_error {
public:
    error(errc e, const std::string& call, std::string subject, std::string words);
    ~error() override;
    const char* what() const noexcept override { return text_.c_str(); }
    /// The subject, stream or address that it is about.
    const std::string& subject() const noexcept { return subject_; }
    /// What the server said; empty if it said nothing.
    const std::string& words() const noexcept { return words_; }

private:
    std::string subject_, words_, text_;
};

}  // namespace dunlin::nats

template <>
struct std::is_error_code_enum<dunlin::nats::errc> : std::true_type {};
