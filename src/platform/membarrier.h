// membarrier.h - a Dekker handshake whose barriers only the rare side pays for.
//
// A machine raises a flag with a plain store each time it enters the runtime. A taker of its P calls heavy_barrier(),
// which makes every thread of the process execute a full barrier; after it, either the machine sees the P gone or the
// taker sees the flag. Likewise: a submitter and a machine that retires (sched/machines/wake.h), a thread that adds a
// timer and the machine that is about to sleep for it (sleep_for_events()), the processor that has the bias of a lock
// and the thread that takes it away (park/biased_lock.h), an unlock that is a plain store and a thread that begins to
// wait (platform/lock.h, sync/mutex.cpp). Cost: 0.3 us while no other thread runs, 7 to 11 us when one does (measured
// in a VM; an IPI). Where the kernel refuses (gVisor, old seccomp filters) light_barrier() becomes a real fence: 5 ns
// on each entry.
#pragma once

#include <dunlin/config.hpp>

#include <atomic>
#include <source_location>

#include "platform/cpu.h"
#include "platform/simulated.h"

namespace dunlin::inline v0_1::platform {

// True when the kernel does the work. Set before the first constructor of the program that can call the library, chosen
// once more when the runtime starts, and constant from then on: a plain bool, one instruction less in each
// light_barrier() than an atomic one.
DUNLIN_HIDDEN extern bool asymmetric_barriers;

// Registers the process. Called automatically when the program (or the library) is loaded; `allow` is false if
// DUNLIN_BARRIERS=symmetric. For tests: `false` forces the symmetric form; no other thread may use the library then.
void init_barriers(bool allow = true) noexcept;

// Called when the runtime starts: a program that limits itself may have installed a seccomp filter since it was loaded.
// (So may one whose threads use locks of this library before that, or without it: where one of them is in the midst of
// a lock when another one is refused first, a wake-up may be missed.)
void choose_barriers() noexcept;

// Stands after the flag's store and before the load that must not pass it.
inline void light_barrier(const std::source_location& where = std::source_location::current()) noexcept {
    if (simulation* s = simulation_here()) {
        return asymmetric_barriers ? s->light_barrier(where) : s->fence(std::memory_order_seq_cst, where);
    }
    if (__builtin_expect(asymmetric_barriers, 1)) {
        std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
#if !DUNLIN_THREAD_SANITIZER
        std::atomic_thread_fence(std::memory_order_seq_cst);
#else
        __sync_synchronize();
#endif
    }
}

// heavy_barrier() where no simulation runs.
void make_heavy_barrier() noexcept;

inline void heavy_barrier(const std::source_location& where = std::source_location::current()) noexcept {
    if (simulation* s = simulation_here()) {
        return asymmetric_barriers ? s->heavy_barrier(where) : s->fence(std::memory_order_seq_cst, where);
    }
    make_heavy_barrier();
}

}  // namespace dunlin::platform
