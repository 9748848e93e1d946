// lock_check.h - the order of the runtime's locks as data, and a check in debug and sanitizer builds that it is kept.
//
// Rules      K1  A thread takes locks in the order of their ranks: each one above all that it holds. Ranks marked
//                `several` may follow themselves; the protocol of such a lock says in which order.
//            K2  No lock of the runtime is taken where the monitor may stop the thread: the caller is inside the
//                runtime (in_runtime) or in an unstoppable_section, or its thread is not a machine's. Otherwise a
//                goroutine could stand still for seconds while it holds the lock.
//            K3  The rescuer's rule: a thread that holds a lock that the monitor waits for must not wait for anything
//                that a stopped goroutine may hold. malloc's locks are such things, so no memory is allocated or freed
//                there; the monitor itself never allocates or frees.
//            K4  The monitor takes only the locks of K3.
// Why        The monitor hands processors to goroutines that stand still while they hold a lock. If it waited for one
//            of them, itself or through the owner of a lock, no thread would be left to make them go on: the process
//            would hang for good.
// Checked    by every lock() in checking builds (K1, K2, K4), and for K3 by a hook in the sanitizers' malloc
//            (watch_allocations). In other builds all of this is empty.
// Tests      tests/platform/lock_check_test.cpp, tests/soak/rescue.cpp
#pragma once

#include <cstdint>

#include "platform/check.h"

namespace dunlin::inline v0_1::platform {

// Outermost first. "The monitor": it takes this lock. What each lock guards stands at its declaration; docs/locks.md
// lists holders and waiters.
enum class lock_rank : std::uint8_t {
    start,        // api/run.h: the start of the runtime, the beginning of run()
    world,        // the scheduler: the thread that stops the world
    registry,     // signals, child processes, the watcher, the resolver, the netpoller's start; several
    object,       // contexts, timed calls, watches and broadcasts; several: a parent before its child
    channel,      // biased locks and pools: channels (select takes several, by address), heaps of timers; several
    descriptors,  // the list of descriptors' records
    descriptor,   // one descriptor: its waiters. The monitor, when it polls
    parking_lot,  // one of its buckets
    scheduler,    // the scheduler lock. The monitor
    retake,       // one processor's ownership. The monitor
    store,        // goroutine structs that no processor keeps
    trim,         // the arena: the one trim that runs. The monitor
    arena,        // the arena. The monitor
    trace,        // the chunks of a trace. The monitor
    leaf,         // under it no other is taken
};

// K3, K4.
constexpr bool monitor_waits_for(lock_rank rank) noexcept {
    switch (rank) {
    case lock_rank::descriptor:
    case lock_rank::scheduler:
    case lock_rank::retake:
    case lock_rank::trim:
    case lock_rank::arena:
    case lock_rank::trace: return true;
    default: return false;
    }
}

constexpr bool several(lock_rank rank) noexcept {
    return rank == lock_rank::registry || rank == lock_rank::object || rank == lock_rank::channel;
}

#if DUNLIN_CHECKING

// Notes that the calling thread has taken a lock, or is about to give it back.
void note_locked(const void* lock, lock_rank rank) noexcept;
void note_unlocked(const void* lock) noexcept;

// May the monitor stop the calling thread here? Set once, by the scheduler, before it makes its first thread.
void set_stoppable(bool (*stoppable)()) noexcept;

// Says that the calling thread is the monitor's.
void act_as_rescuer() noexcept;

// Says that the calling thread is about to end the process with a report, which may do anything.
void end_lock_checks() noexcept;

// Fatal if the calling thread does not hold this lock.
void assert_held(const void* lock, lock_rank rank) noexcept;
// Fatal if the calling thread holds a lock of the runtime: it is about to leave its stack.
void assert_no_locks() noexcept;
// Fatal where the monitor may stop the thread.
void assert_unstoppable() noexcept;

// K3: makes the sanitizer's malloc call back. Without a sanitizer nothing is watched.
void watch_allocations() noexcept;

#else

inline void note_locked(const void*, lock_rank) noexcept {}
inline void note_unlocked(const void*) noexcept {}

inline void set_stoppable(bool (*)()) noexcept {}
inline void act_as_rescuer() noexcept {}
inline void end_lock_checks() noexcept {}
inline void assert_held(const void*, lock_rank) noexcept {}
inline void assert_no_locks() noexcept {}
inline void assert_unstoppable() noexcept {}
inline void watch_allocations() noexcept {}

#endif

}  // namespace dunlin::platform
