// hooks.h - what the scheduler calls in the layers above it, wired by runtime.cpp before anything runs (see also
// event_source.h).
#pragma once

#include <cstdint>

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

struct upward_hooks {
    // g has ended, and goroutine::join held `waiter`, which was not `alive`. Inside the runtime. g already belongs to
    // its joiner; if its holder has let it go, to the callee, which puts it back.
    void (*wake_joiner)(goroutine* g, std::uintptr_t waiter) noexcept = nullptr;
    // The main goroutine of run() has ended, by returning or by exit_goroutine(). Inside the runtime.
    void (*main_ended)(goroutine* g) noexcept = nullptr;
    // illegal_transition and deadlock report, and do not return.
    void (*illegal_transition)(const goroutine* g, goroutine_state expected, goroutine_state wanted) noexcept = nullptr;
    void (*deadlock)() noexcept = nullptr;  // under the scheduler lock
    // A report has been written, and the process is about to end. In a signal handler.
    void (*process_dies)() noexcept = nullptr;
    void (*started)() noexcept = nullptr;   // called when the runtime has started for the first time; may be null
    // Called on a machine's thread as it begins; may wait for a lock that a goroutine holds. May be null.
    void (*register_thread)() noexcept = nullptr;
    // Called on each machine's thread: true when it begins, false when it ends normally.
    void (*machine_thread)(bool begins) noexcept = nullptr;
};

DUNLIN_HIDDEN extern upward_hooks hooks;  // types.cpp

}  // namespace dunlin::sched
