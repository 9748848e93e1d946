// nats/message.hpp - a message as it came, and the headers of a message to send.
#pragma once

#include <dunlin/config.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

struct __natsMsg;  // libnats' natsMsg

namespace dunlin::inline v0_1::nats {

/// Names and values. A name may occur several times: its values keep their order.
///
/// Names     Made of visible ASCII characters without ':'. Those that begin with "Dunlin-" or "Nats-" are reserved.
/// Values    Line ends arrive as blanks; blanks at the beginning and at the end do not arrive. To send a value with a
///           zero byte is refused (errc::refused), and so is one that is empty or consists of blanks: a receiver with
///           libnats before 3.11 would read the next header in its place. Leave the header out instead.
using headers = std::vector<std::pair<std::string, std::string>>;

namespace detail {
struct DUNLIN_API message_deleter {
    void operator()(__natsMsg* m) const noexcept;
};
}  // namespace detail

/// A received message. Movable; default-constructed or moved from, it is empty: no subject, no data.
/// Threads   One at a time: headers are read when they are first asked for.
/// Cost      The bytes stay where libnats has put them, and are not copied again.
class DUNLIN_API message {
public:
    message() noexcept = default;
    explicit operator bool() const noexcept { return m_ != nullptr; }

    std::string_view subject() const noexcept;
    /// The subject for the answer; empty if none is wanted.
    std::string_view reply() const noexcept;
    std::string_view data() const noexcept;
    /// The first value of this name (case matters). Where another client has sent a header with an empty value, libnats
    /// before 3.11 reads the next header in its place.
    std::optional<std::string> header(const std::string& name) const;
    /// All of them.
    nats::headers all_headers() const;

    /// Takes over a message that libnats has made.
    explicit message(__natsMsg* m) noexcept : m_(m) {}
    __natsMsg* native_handle() const noexcept { return m_.get(); }

private:
    std::unique_ptr<__natsMsg, detail::message_deleter> m_;
};

}  // namespace dunlin::nats
