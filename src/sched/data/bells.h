// bells.h - the words with which every room calls the monitor and the thread maker, which are above all of them.
//
// The threads themselves are in src/sched/monitor: they sleep on these words and answer. Here is how other threads call
// them: nothing here waits or takes a lock, and most of it may be called inside a signal handler.
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstdint>

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// ---- the monitor ----------------------------------------------------------------------------------------------------

struct monitor_words {
    platform::atomic<unsigned> threads{0};
    platform::atomic<std::uint32_t> call_word{0};    // raised by call_monitor(): the monitor sleeps on it between two
                                                     // rounds
    platform::atomic<bool> in_poller{false};         // the monitor sleeps in the poller instead
    platform::atomic<std::uint32_t> looks{0};        // raised as a round's looks begin, and as they end: odd meanwhile
    platform::atomic<bool> lost_late{false};         // set by a goroutine's thread when its state is "frozen"
    platform::atomic<bool> dump_called_for{false};   // set by a signal handler
    // Of the thread that has stopped all processors; 0: not all are stopped yet. Relaxed: with an old one the preempted
    // goroutines are let go sooner than need be.
    platform::atomic<pid_t> stopper{0};
};
DUNLIN_HIDDEN extern monitor_words monitor_bell;

// The longest sleep of the monitor while a processor runs: it sees a deadline that is further away than this in time.
inline constexpr std::int64_t monitor_sleeps_at_most_ns = 10'000'000;

// 0 or 1, for the thread count of the deadlock check.
unsigned monitor_threads() noexcept;

// A processor is no longer idle: the monitor must not go on sleeping. Always stores and makes a system call.
void wake_monitor() noexcept;
DUNLIN_HIDDEN extern platform::atomic<std::uint32_t> monitor_asleep;
// The same. Costs one load when the monitor is awake.
inline void wake_monitor_if_asleep() noexcept {
    if (DUNLIN_UNLIKELY(monitor_asleep.load(std::memory_order_seq_cst) != 0)) wake_monitor();
}

// Work was brought from outside: if no processor has come to the scheduler lately, the monitor looks at once.
void call_monitor() noexcept;
inline void call_monitor_if_all_stuck() noexcept {
    if (DUNLIN_UNLIKELY(the_scheduler.all_stuck.load(std::memory_order_relaxed)) &&
        !the_scheduler.urgent.load(std::memory_order_relaxed)) {
        call_monitor();
    }
}

// The monitor's next round begins at once, unless the monitor sleeps because all processors are idle: it then sleeps
// on, until wake_monitor().
void hurry_monitor() noexcept;

// A goroutine was lost after the end of its run(): its state says so, and others may wait for what it held. May be
// called in a signal handler.
void call_monitor_for_lost() noexcept;

// Asks for a dump. May be called in a signal handler: errno stays as it is.
void call_monitor_to_dump() noexcept;

// ---- threads that only watch ----------------------------------------------------------------------------------------

// Threads of the runtime that bring no work (the writer of traces, the watch for lost goroutines): the deadlock check
// counts them as the runtime's own. Each counts itself as it begins: counted before, it would stand in for the plain
// thread that starts it.
DUNLIN_HIDDEN extern platform::atomic<unsigned> watching_threads;

// ---- the thread maker -----------------------------------------------------------------------------------------------

struct wish {
    enum bits : std::uint32_t {
        a_thread = 1,        // at least one
        lost_forgotten = 2,  // event_source::forget_lost()
        printed = 4,         // maker_words::print
        lock_holder_let_go = 8,  // let_lock_holder_go()
        coming_watched = 16,  // threads that another thread has made: watch_coming_threads()
    };
};

struct maker_words {
    platform::atomic<std::uint32_t> wanted{0};         // bits of `wish`; the maker sleeps on this word
    platform::atomic<std::int64_t> not_before_ns{0};   // after a failure; 0: none
    platform::atomic<bool> failed{false};              // the last attempt
    platform::atomic<void (*)()> print{nullptr};
    platform::atomic<unsigned> threads{0};
    platform::atomic<pid_t> tid{0};                    // of its thread; published by `makings`
    // raised by it when it begins to make threads, and when it has done so: odd meanwhile. Release pairs with the
    // acquire in look_at_maker(), which would else ask for thread 0
    platform::atomic<std::uint32_t> makings{0};
};
DUNLIN_HIDDEN extern maker_words maker_bell;

// For what is written on the maker's thread: no thread can be made while it waits for the reader of stderr.
inline constexpr int maker_waits_for_stderr_ms = 1'000;

// Asks for one more machine, or for several if many goroutines wait; does not wait itself. The new machine looks for a
// processor and for work before it sleeps. Requests that arrive before the maker begins the last one count as one; so
// do those that are served by a machine which has yet to look.
void want_spare_machine() noexcept;

// After a failure no thread is made for a tenth of a second. Returns true once, when that time is over: the monitor
// then looks whether a thread is wanted.
bool spare_is_overdue(std::int64_t now_ns) noexcept;
// True: that time is not over yet, and the monitor must not go to sleep. Seq_cst, after the monitor's store
// monitor_asleep = 1; pairs with the store in maker_main(), which is followed by a look whether the monitor
// sleeps. With a weaker order, at a failure each could miss the store of the other, and whatever needs the thread would
// wait for ever.
bool in_pause_after_failure() noexcept;

// True: the last attempt to make a thread failed, perhaps long ago. Relaxed: a caller that misses the maker's
// store puts its processor aside, and the monitor looks again when the time after the failure is over
// (spare_is_overdue()).
bool last_thread_failed() noexcept;

// For the monitor: makes the maker call event_source::forget_lost(), which closes descriptors and frees memory.
void want_lost_forgotten() noexcept;
// For the monitor: makes the maker call let_lock_holder_go() of frozen.h.
void want_lock_holder_let_go() noexcept;
// For the monitor: makes the maker call `print`, since a write to stderr may wait (a pipe may be full). `print` is
// always the same.
void want_printed(void (*print)()) noexcept;

// For a thread other than the maker that has made machines.
void want_coming_watched() noexcept;

// 0 or 1, for the deadlock check.
unsigned thread_maker_threads() noexcept;

}  // namespace dunlin::sched
