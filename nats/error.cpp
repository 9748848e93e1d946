// error.cpp - the codes and their texts; translates libnats' and JetStream's errors.
#include <cstdlib>
#include <new>

#include "failure.h"
#include "text.h"

namespace dunlin::inline v0_1::nats {

namespace {

const char* text_of(errc e) noexcept {
    switch (e) {
    case errc::no_server: return "no server";
    case errc::credentials: return "the server does not accept the credentials";
    case errc::not_permitted: return "not permitted";
    case errc::tls: return "TLS failed";
    case errc::no_jetstream: return "no JetStream";
    case errc::stream_missing: return "the stream or its consumer is not there";
    case errc::other_settings: return "it has other settings";
    case errc::too_few_servers: return "too few servers";
    case errc::payload_too_large: return "the payload is too large";
    case errc::no_majority: return "no majority of the replicas";
    case errc::limits_reached: return "limits reached";
    case errc::connection_lost: return "the connection is lost";
    case errc::not_confirmed: return "no answer in time";
    case errc::no_responders: return "no service answers this subject";
    case errc::undecodable: return "does not decode";
    case errc::slow_consumer: return "the reader is too slow";
    case errc::wrong_revision: return "wrong revision";
    case errc::busy: return "the server is busy";
    case errc::handler_failed: return "the handler has failed";
    case errc::closed: return "closed";
    case errc::refused: return "refused";
    }
    return "unknown error";
}

class category final : public std::error_category {
public:
    const char* name() const noexcept override { return "dunlin.nats"; }
    std::string message(int value) const override { return text_of(static_cast<errc>(value)); }
    std::error_condition default_error_condition(int value) const noexcept override {
        if (value == static_cast<int>(errc::not_confirmed)) return std::errc::timed_out;
        return {value, *this};
    }
};

std::string sentence(errc e, const std::string& call, const std::string& subject, const std::string& words) {
    std::string text = "nats " + call;
    if (!subject.empty()) text += ' ' + subject;
    text += std::string(": ") + text_of(e);
    if (!words.empty()) text += " (" + words + ")";
    return text;
}

}  // namespace

const std::error_category& error_category() noexcept {
    // Never destroyed: codes that still exist at the end of the program refer to it. Nor allocated, which may fail.
    alignas(category) static unsigned char place[sizeof(category)];
    static const category& c = *::new (place) category;
    return c;
}

// std::system_error would append the code's text, so what() returns a text of its own, which contains it once.
error::error(errc e, const std::string& call, std::string subject, std::string words)
    : std::system_error(make_error_code(e)),
      subject_(std::move(subject)),
      words_(std::move(words)),
      text_(sentence(e, call, subject_, words_)) {}
error::~error() = default;

namespace detail {

failure failure_of(natsStatus s) {
    if (s == NATS_OK) return {};
    natsStatus last = NATS_OK;
    const char* said = nats_GetLastError(&last);
    std::string words = said != nullptr && last == s && *said != '\0' ? said : natsStatus_GetText(s);
    switch (s) {
    case NATS_NO_SERVER: return {errc::no_server, words};
    case NATS_CONNECTION_AUTH_FAILED: return {errc::credentials, words};
    case NATS_NOT_PERMITTED: return {errc::not_permitted, words};
    case NATS_SSL_ERROR:
    case NATS_SECURE_CONNECTION_WANTED:
    case NATS_SECURE_CONNECTION_REQUIRED: return {errc::tls, words};
    case NATS_MAX_PAYLOAD: return {errc::payload_too_large, words};
    case NATS_CONNECTION_CLOSED:
    case NATS_DRAINING: return {errc::closed, words};
    case NATS_TIMEOUT: return {errc::not_confirmed, words};
    case NATS_NO_RESPONDERS: return {errc::no_responders, words};
    case NATS_SLOW_CONSUMER: return {errc::slow_consumer, words};
    case NATS_STALE_CONNECTION:
    case NATS_CONNECTION_DISCONNECTED:
    case NATS_INSUFFICIENT_BUFFER:
    case NATS_IO_ERROR: return {errc::connection_lost, words};
    default: return {errc::refused, words};
    }
}

errc code_of(int number, std::string_view words) noexcept {
    switch (number) {
    case JSStreamNotFoundErr:
    case JSConsumerNotFoundErr: return errc::stream_missing;
    case JSStreamNameExistErr:
    case JSConsumerNameExistErr: return errc::other_settings;
    case JSNotEnabledErr:
    case JSNotEnabledForAccountErr:
    case JSNoAccountErr: return errc::no_jetstream;
    case JSStreamMessageExceedsMaximumErr: return errc::payload_too_large;
    case JSStreamWrongLastSequenceErr: return errc::wrong_revision;
    case JSStreamReplicasNotSupportedErr:
    case JSClusterNoPeersErr: return errc::too_few_servers;
    case JSClusterNotAvailErr:
    case JSClusterNotLeaderErr:
    case JSClusterNotActiveErr:
    case JSStreamOfflineErr:
    case JSConsumerOfflineErr: return errc::no_majority;
    case JSAccountResourcesExceededErr:
    case JSInsufficientResourcesErr:
    case JSMaximumConsumersLimitErr:
    case JSMaximumStreamsLimitErr:
    case JSMemoryResourcesExceededErr:
    case JSStorageResourcesExceededErr:
    case JSStreamLimitsErr:
    case JSStreamMaxStreamBytesExceededErr:
    case JSNoLimitsErr: return errc::limits_reached;
    default: break;
    }
    if (words.find("maximum messages") != words.npos || words.find("maximum bytes") != words.npos)
        return errc::limits_reached;
    if (words.find("no suitable peers") != words.npos) return errc::too_few_servers;
    return errc::refused;
}

failure failure_of_answer(std::string_view json) {
    if (json.find("\"error\"") == json.npos) return {};
    const auto number = json_number(json, {"error", "err_code"});
    const auto code = json_number(json, {"error", "code"});
    if (!number && !code) return {};
    const std::string words = json_text(json, {"error", "description"}).value_or("");
    return {code_of(static_cast<int>(number.value_or(0)), words),
        words + " (" + std::to_string(number.value_or(code.value_or(0))) + ")"};
}

}  // namespace detail

}  // namespace dunlin::nats
