// hooks.h - what the scheduler asks of the layers above it, wired by runtime.cpp before anything runs (see also
// event_source.h).
#pragma once

#include <cstdint>

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

struct upward_hooks {
    // g has ended, and goroutine::join said `waiter`. Inside the runtime; g belongs to its joiner already.
    void (*wake_joiner)(goroutine* g, std::uintptr_t waiter) noexcept = nullptr;
    // The main goroutine of run() has ended, by returning or by exit_goroutine(). Inside the runtime.
    void (*main_ended)(goroutine* g) noexcept = nullptr;
    // These report, and do not return.
    void (*illegal_transition)(const goroutine* g, goroutine_state expected, goroutine_state wanted) noexcept = nullptr;
    bool (*outlives_run)(const goroutine*) noexcept = nullptr;  // it belongs to no run(), but to a plain thread's timer
    void (*deadlock)() noexcept = nullptr;  // under the scheduler lock
    // A report has been written, and the process is about to end. In a signal handler.
    void (*process_dies)() noexcept = nullptr;
    void (*started)() noexcept = nullptr;   // null, or when the runtime has started for the first time
    // On each machine's thread: true when it begins, false when it ends in peace.
    void (*machine_thread)(bool begins) noexcept = nullptr;
};

DUNLIN_HIDDEN extern upward_hooks hooks;  // types.cpp

}  // namespace dunlin::sched
