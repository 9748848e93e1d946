// signal.cpp - signals as messages, and as the end of a context.
//
// Problem    A handler may do almost nothing: it may take no locks and allocate no memory. And a signal comes whatever
//            goroutines do.
// Data       arrived[s]: how often signal s has come since the watcher's last look. Under the registry's lock: the
//            channels, with their sets of signals; for each signal, how many channels want it, and its action before
//            the first of them.
// Protocol   handler: arrived[s] += 1, then ring (watcher.h). Watcher: reads the bell's count, then for each s takes
//            arrived[s], and sends s that often to each channel that wants it. The handler counts before it rings, and
//            the watcher looks after it has read the bell, so nothing is missed.
// Contexts   A signal_context has a channel without room, listed like the others, with the context that a signal
//            cancels. Under the lock the watcher notes which signal was the first; it cancels afterwards, without the
//            lock, because that may run the program's code: what drops the last reference to a cause or a value. It
//            then holds the context, not the channel, so a signal_context that ends meanwhile does not wait for the
//            watcher. The causes are made with the context, because the watcher has no caller to tell that memory
//            fails. Stop callbacks run on a thread of their own: a slow one holds up no other signal and no child.
// Lifetime   The list does not own its channels; only handles count. After the last handle the channel's end takes it
//            off the list under the lock. Sends happen under the same lock, so every listed channel exists. A signal
//            sent to a channel without handles is lost with it.
// Handler    runs with every signal blocked: otherwise the preemption signal would find the alternate stack in use.
// Order      There is none between different signals: the kernel has none either.
// Source     Go 1.24 runtime/sigqueue.go, os/signal/signal.go. Differs: no goroutine receives; repeated signals are
//            counted, not merged.
// Tests      tests/fs/signal_test.cpp
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>

#include <dunlin/io.hpp>
#include <dunlin/signal.hpp>

#include "chan/core.h"
#include "context/context_node.h"
#include "fs/watcher.h"
#include "io/error.h"
#include "io/operation.h"
#include "platform/cpu.h"
#include "sched/preempt/preempt.h"
#include "stack/sanitizer.h"

// ThreadSanitizer's sigaction holds a signal back until its thread calls a function that the sanitizer knows; our
// threads sleep in system calls that it does not know.
extern "C" int __sigaction(int signal, const struct sigaction* wanted, struct sigaction* before) noexcept;

namespace dunlin::inline v0_1 {

namespace {

using detail::chan_core;

constexpr int most_signals = 64;
constexpr std::uint64_t bit_of(int signal) noexcept { return std::uint64_t{1} << (signal - 1); }

std::uint32_t arrived[most_signals + 1];  // accessed with builtins, because of the handler (see ring())

class signal_core final : public chan_core {
public:
    signal_core(std::uint64_t wanted, std::unique_ptr<int[]> buffer, std::size_t capacity) noexcept
        : chan_core(detail::element_type_of<int>, capacity, reinterpret_cast<std::byte*>(buffer.get()), end),
          signals(wanted),
          buffer_(std::move(buffer)) {}

    // Its place in a list of the wanted signals.
    std::size_t index_of(int signal) const noexcept {
        return static_cast<std::size_t>(std::popcount(signals & (bit_of(signal) - 1)));
    }

    const std::uint64_t signals;
    std::unique_ptr<std::exception_ptr[]> causes;  // by index_of(); constant. Of a signal_context, else null
    signal_core* next = nullptr;  // registry's lock
    detail::chan_handle context;  // registry's lock once it is listed: what the first signal cancels; null after that
    int first_signal = 0;         // registry's lock: the signal that cancels it

private:
    static void end(chan_core* c) noexcept;

    const std::unique_ptr<int[]> buffer_;
};

// ---- the handler ----------------------------------------------------------------------------------------------------

DUNLIN_NOT_INSTRUMENTED void on_signal(int signal) noexcept {
    // pairs with the exchange in send_signals(), for order only
    __atomic_fetch_add(&arrived[signal], 1, __ATOMIC_RELEASE);
    fs::ring();
}

// Not inlined: it reads errno.
[[gnu::noinline]] int change_action(int signal, const struct sigaction* wanted, struct sigaction* before) noexcept {
    const int result =
        stack::thread_sanitizing ? __sigaction(signal, wanted, before) : sigaction(signal, wanted, before);
    return result == 0 ? 0 : errno;
}

// ---- wanted signals -------------------------------------------------------------------------------------------------

struct wish {
    unsigned channels = 0;
    struct sigaction before {};
};

struct registry {
    platform::ranked_lock<platform::lock_rank::registry> lock;
    signal_core* first = nullptr;
    wish wishes[most_signals + 1];

    // All of these under the lock. 0, or errno.
    int add(int signal) noexcept {
        lock.assert_held();
        wish& w = wishes[signal];
        if (w.channels == 0) {
            struct sigaction ours {};
            ours.sa_handler = on_signal;
            ours.sa_flags = SA_RESTART | SA_ONSTACK;
            sigfillset(&ours.sa_mask);
            __atomic_store_n(&arrived[signal], 0, __ATOMIC_RELAXED);  // drop what came too late for the last channel
            if (const int error = change_action(signal, &ours, &w.before)) return error;
        }
        ++w.channels;
        return 0;
    }
    void remove(int signal) noexcept {
        lock.assert_held();
        wish& w = wishes[signal];
        if (--w.channels != 0) return;
        struct sigaction now;
        const bool ours =
            change_action(signal, nullptr, &now) == 0 && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == on_signal;
        if (ours) change_action(signal, &w.before, nullptr);
    }
    // Adds all signals of `all`. If one fails, those added before are removed again; returns its number, with `error`;
    // 0: none has failed.
    int add_all(std::uint64_t all, int& error) noexcept {
        for (std::uint64_t left = all; left != 0; left &= left - 1) {
            const int signal = std::countr_zero(left) + 1;
            error = add(signal);
            if (error == 0) continue;
            remove_all(all & (bit_of(signal) - 1));
            return signal;
        }
        return 0;
    }
    void remove_all(std::uint64_t all) noexcept {
        for (; all != 0; all &= all - 1) remove(std::countr_zero(all) + 1);
    }
    void unlink(const signal_core* c) noexcept {
        signal_core** at = &first;
        while (*at != c) at = &(*at)->next;
        *at = c->next;
    }
};

constinit registry the_registry;

void signal_core::end(chan_core* c) noexcept {
    auto* self = static_cast<signal_core*>(c);
    {
        park::runtime_section inside;
        std::scoped_lock guard(the_registry.lock);
        the_registry.unlink(self);
        the_registry.remove_all(self->signals);
    }
    delete self;
    fs::end_watching();
}

// ---- what may be asked for ------------------------------------------------------------------------------------------

const char* why_not(int signal) noexcept {
    switch (signal) {
    case SIGKILL:
    case SIGSTOP: return "no program can catch it";
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGTRAP: return "a fault belongs to the instruction that made it, which would make it again after the handler";
    case SIGABRT: return "abort() does not go on after it";
    default: break;
    }
    if (signal == sched::preemption_signal)
        return "it preempts goroutines (DUNLIN_PREEMPTION_SIGNAL chooses another one)";
    return signal < 1 || signal > most_signals ? "there is no such signal" : nullptr;
}

std::string signal_text(int signal) {
    const char* name = sigabbrev_np(signal);
    return "signal " + std::to_string(signal) + (name != nullptr ? " (SIG" + std::string(name) + ")" : "");
}

// `name`: of the function or class that was asked for the signals.
[[noreturn]] void refuse(const char* name, int signal, const char* why) {
    throw std::invalid_argument(std::string(name) + ": " + signal_text(signal) + ": " + why);
}

std::uint64_t check(const char* name, std::span<const int> signals) {
    std::uint64_t set = 0;
    for (const int s : signals) {
        if (const char* why = why_not(s)) refuse(name, s, why);
        set |= bit_of(s);
    }
    return set;
}

}  // namespace

namespace {

// A cause for each signal that core wants.
std::unique_ptr<std::exception_ptr[]> causes_of(const signal_core& core) {
    auto causes = std::make_unique<std::exception_ptr[]>(static_cast<std::size_t>(std::popcount(core.signals)));
    for (std::uint64_t left = core.signals; left != 0; left &= left - 1) {
        const int signal = std::countr_zero(left) + 1;
        causes[core.index_of(signal)] = std::make_exception_ptr(signal_received(signal));
    }
    return causes;
}

// `context`: what the first signal cancels, or null.
receiver<int> list_channel(const char* name, std::span<const int> signals, std::size_t capacity,
                           detail::chan_handle context) {
    // First: the runtime reads when it starts which signal preempts goroutines.
    if (const int error = fs::begin_watching()) {
        const std::error_code ec = io::system_error_code(error);
        throw io_error(ec, std::string(name) + ": " + detail::cause_text(ec));
    }
    std::uint64_t set = 0;
    std::unique_ptr<signal_core> core;
    try {
        set = check(name, signals);
        core = std::make_unique<signal_core>(set, std::make_unique<int[]>(capacity), capacity);
        if (context.core() != nullptr) core->causes = causes_of(*core);
    } catch (...) {
        fs::end_watching();
        throw;
    }
    core->context = std::move(context);
    int error = 0, failed;
    {
        park::runtime_section inside;
        std::scoped_lock guard(the_registry.lock);
        failed = the_registry.add_all(set, error);
        if (failed == 0) {
            core->next = the_registry.first;
            the_registry.first = core.get();
        }
    }
    if (failed == 0) return detail::handle_access::make_receiver<int>(detail::chan_handle(core.release()));
    core.reset();
    fs::end_watching();
    refuse(name, failed, error == EINVAL ? "the C library keeps it for itself" : "it cannot be caught");
}

// Gives access to the handle of a context's node.
struct node_of : context {
    explicit node_of(const context& c) : context(c) {}
    const detail::chan_handle& handle() const noexcept { return node_; }
};

}  // namespace

receiver<int> signal_channel(std::span<const int> signals, std::size_t capacity) {
    return list_channel("signal_channel", signals, capacity, {});
}

signal_received::signal_received(int signal) : std::runtime_error(signal_text(signal)), signal_(signal) {}
signal_received::~signal_received() = default;

signal_context::signal_context(const context& parent, std::span<const int> signals)
    : cancellable(with_cancel(parent)),
      signals_(list_channel("signal_context", signals, 0, node_of(*this).handle())) {}

void signal_context::stop() noexcept {
    signals_ = {};
    cancel();
}

receiver<int> signal_channel(std::span<const int> signals, std::size_t capacity, std::error_code& ec) {
    ec.clear();
    try {
        return signal_channel(signals, capacity);
    } catch (const io_error& e) {
        ec = e.code();
    } catch (const std::invalid_argument&) {
        ec = std::make_error_code(std::errc::invalid_argument);
    }
    return {};
}

// ---- the watcher's part ---------------------------------------------------------------------------------------------

namespace {

// Under the lock: sends the signals that have come since the last look to the channels that want them.
void send_signals() noexcept {
    the_registry.lock.assert_held();
    for (int signal = 1; signal <= most_signals; ++signal) {
        for (std::uint32_t count = __atomic_exchange_n(&arrived[signal], 0, __ATOMIC_ACQUIRE); count != 0; --count) {
            for (signal_core* c = the_registry.first; c != nullptr; c = c->next) {
                int value = signal;
                if ((c->signals & bit_of(signal)) == 0) continue;
                if (c->context.core() != nullptr && c->first_signal == 0) c->first_signal = signal;
                detail::channel_try_send(c, &value);
            }
        }
    }
}

// Under the lock: takes a context that a signal is to cancel; the caller owns it from here on. Null: there is none.
detail::chan_handle take_context(std::exception_ptr& cause) noexcept {
    the_registry.lock.assert_held();
    for (signal_core* c = the_registry.first; c != nullptr; c = c->next) {
        if (c->first_signal == 0 || c->context.core() == nullptr) continue;
        cause = c->causes[c->index_of(c->first_signal)];
        return std::move(c->context);
    }
    return {};
}

}  // namespace

void fs::deliver_signals() noexcept {
    {
        const std::scoped_lock guard(the_registry.lock);
        send_signals();
    }
    for (;;) {
        std::exception_ptr cause;
        detail::chan_handle context;
        {
            const std::scoped_lock guard(the_registry.lock);
            context = take_context(cause);
        }
        if (context.core() == nullptr) return;
        detail::cancel_node_from_watcher(context.core(), std::move(cause));
    }
}

}  // namespace dunlin
