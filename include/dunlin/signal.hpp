// signal.hpp - signals as messages, and as the end of a context.
#pragma once

#include <dunlin/config.hpp>

#include <concepts>
#include <csignal>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <dunlin/chan.hpp>
#include <dunlin/context.hpp>

namespace dunlin::inline v0_1 {

/// A channel that receives each of these signals when it reaches the process (Go's signal.Notify):
/// `for (int s : signal_channel({SIGINT, SIGTERM}))`, or in a select.
///
/// From the call on, these signals lose their previous action (to end the program, say). If there are several channels
/// for a signal, each receives it. The channel has room for `capacity` signals; those that come while it is full are
/// lost. When all handles of the channel are gone, it receives nothing more. When the last channel for a signal is
/// gone, the signal has its previous action again (unless another handler has been installed since).
/// Threads   Any; before, in and after run(). While there is such a channel, a thread of the library waits for its
///           signals; so a goroutine that waits for a signal is no deadlock. The kernel chooses the thread that a
///           signal interrupts; a signal that all threads block is never delivered.
/// Throws    std::invalid_argument for a signal that cannot be caught (SIGKILL, SIGSTOP), for signals of faults,
///           SIGABRT, and the one that preempts goroutines; io_error; std::bad_alloc.
/// Cost      The delivery of a signal takes two wakes (some tens of microseconds).
/// Source    Go's signal.Notify. Differs: a signal that comes several times before it is delivered is delivered several
///           times.
DUNLIN_API receiver<int> signal_channel(std::span<const int> signals, std::size_t capacity = 16);
inline receiver<int> signal_channel(std::initializer_list<int> signals, std::size_t capacity = 16) {
    return signal_channel(std::span(signals.begin(), signals.size()), capacity);
}
/// The same without braces: signal_channel(SIGINT, SIGTERM). All numbers are signals.
template <std::same_as<int>... Signals>
    requires(sizeof...(Signals) != 0)
receiver<int> signal_channel(Signals... signals) {
    return signal_channel({signals...});
}
/// After an error (std::errc::invalid_argument for a signal that may not be asked for) the channel is nil. Throws
/// std::bad_alloc.
DUNLIN_API receiver<int> signal_channel(std::span<const int> signals, std::size_t capacity, std::error_code& ec);
inline receiver<int> signal_channel(std::span<const int> signals, std::error_code& ec) {
    return signal_channel(signals, 16, ec);
}
inline receiver<int> signal_channel(std::initializer_list<int> signals, std::size_t capacity, std::error_code& ec) {
    return signal_channel(std::span(signals.begin(), signals.size()), capacity, ec);
}
inline receiver<int> signal_channel(std::initializer_list<int> signals, std::error_code& ec) {
    return signal_channel(signals, 16, ec);
}

/// The cause() of a context that a signal has cancelled: "signal 15 (SIGTERM)".
class DUNLIN_API signal_received : public std::runtime_error {
public:
    explicit signal_received(int signal);
    ~signal_received() override;
    int signal() const noexcept { return signal_; }

private:
    int signal_;
};

/// A context that is cancelled when one of these signals reaches the process, or with its parent, or by cancel() (Go's
/// signal.NotifyContext):
///     dunlin::signal_context ctx({SIGINT, SIGTERM});
///     serve(ctx);
/// err() is errc::cancelled then, and cause() a signal_received. From its construction on, these signals lose their
/// previous action. stop(), or the destructor, gives them back: each has its previous action again, unless another
/// signal_context or signal_channel wants it, or another handler has been installed since. If stop() is called after
/// the first Ctrl-C, the second one ends the program.
///
/// One thread or goroutine at a time may use the object; any may use the contexts derived from it, and copies of it as
/// a context. Its end cancels it, and with it the contexts derived from it.
/// Threads   As signal_channel(). The context is cancelled on the library's own thread, whatever goroutines do.
/// Throws    As signal_channel().
class DUNLIN_API signal_context : public cancellable {
public:
    explicit signal_context(std::span<const int> signals) : signal_context(context(), signals) {}
    signal_context(const context& parent, std::span<const int> signals);
    explicit signal_context(std::initializer_list<int> signals) : signal_context(context(), signals) {}
    signal_context(const context& parent, std::initializer_list<int> signals)
        : signal_context(parent, std::span(signals.begin(), signals.size())) {}
    /// The same without braces: signal_context ctx(SIGINT, SIGTERM).
    template <std::same_as<int>... More>
    explicit signal_context(int signal, More... more) : signal_context({signal, more...}) {}
    template <std::same_as<int>... More>
    signal_context(const context& parent, int signal, More... more) : signal_context(parent, {signal, more...}) {}
    /// A moved-from object is a context that never ends.
    signal_context(signal_context&& other) noexcept
        : cancellable(static_cast<const cancellable&>(other)), signals_(std::move(other.signals_)) {
        static_cast<context&>(other) = context();
    }
    signal_context& operator=(signal_context&& other) noexcept {
        signal_context mine(std::move(other));
        std::swap(static_cast<cancellable&>(*this), static_cast<cancellable&>(mine));
        std::swap(signals_, mine.signals_);
        return *this;
    }
    ~signal_context() { stop(); }

    /// Gives the signals back, and cancels the context if no signal has. Calling it again does nothing.
    void stop() noexcept;

private:
    receiver<int> signals_;  // the end of its last handle gives the signals back
};

}  // namespace dunlin
