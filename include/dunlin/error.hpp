// error.hpp - dunlin's own error codes, and the exceptions that channels and contexts throw.
#pragma once

#include <dunlin/config.hpp>

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>

namespace dunlin::inline v0_1 {

/// What can end a wait, other than what was waited for. A std::error_code enum, in the category "dunlin".
enum class errc {
    closed = 1,         ///< the object that was waited on has been closed
    channel_closed,     ///< send on a closed channel, or close of one
    cancelled,          ///< Go: context.Canceled
    deadline_exceeded,  ///< Go: context.DeadlineExceeded
    end_of_file,        ///< the stream has ended before everything needed was read
    no_deadlines,       ///< a file that cannot be polled has no deadlines
    host_not_found,     ///< a name that no server knows
    bad_address,        ///< an address or network that cannot be parsed
    /// the kernel has given up (ETIMEDOUT): the peer does not answer. A deadline set on the call gives
    /// std::errc::timed_out instead
    peer_silent,
};

/// The category of dunlin::errc. errc::cancelled is equivalent to std::errc::operation_canceled,
/// errc::deadline_exceeded and errc::peer_silent to std::errc::timed_out.
DUNLIN_API const std::error_category& error_category() noexcept;

inline std::error_code make_error_code(errc e) noexcept { return {static_cast<int>(e), error_category()}; }

/// Thrown by a send on a closed channel and by the second close of one. The text is Go's: "send on closed channel",
/// "close of closed channel", "close of nil channel".
class DUNLIN_API channel_closed : public std::system_error {
public:
    explicit channel_closed(const char* what) : std::system_error(make_error_code(errc::channel_closed)), what_(what) {}
    ~channel_closed() override;
    /// Go's text, without the category's.
    const char* what() const noexcept override { return what_; }

private:
    const char* what_;  // a literal
};

/// Thrown by waits that a context has ended. code() is errc::cancelled or errc::deadline_exceeded. what() begins with
/// the name of the call, or of the one that it is made of ("condition_variable wait" for task_set::next()), and ends
/// with the what() of the context's cause, if one was given: "chan receive: context canceled: signal 15 (SIGTERM)"
/// (but not for calls that read, write, connect or open).
class DUNLIN_API context_cancelled : public std::system_error {
public:
    using std::system_error::system_error;
    context_cancelled(std::error_code code, const char* operation, std::exception_ptr cause);
    ~context_cancelled() override;
    const char* what() const noexcept override { return text_ != nullptr ? text_->c_str() : std::system_error::what(); }
    /// What was given to the context as its cause(); null if nothing was, and for calls that read, write, connect or
    /// open.
    const std::exception_ptr& cause() const noexcept { return cause_; }

private:
    std::exception_ptr cause_;
    std::shared_ptr<const std::string> text_;  // null: that of the base
};

}  // namespace dunlin

template <>
struct std::is_error_code_enum<dunlin::errc> : std::true_type {};
