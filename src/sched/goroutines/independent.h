// independent.h - goroutines that belong to no run().
//
// Problem    Some calls need a goroutine of the library's own: a dial to several addresses, an open() that a context
//            may end, a function that is called when a context is done. The end of a run() stops goroutines. A plain
//            thread knows nothing of that run(), and would wait for ever for what the goroutine was to do.
// Rule       What the library does in a goroutine for a plain thread, it does in an independent one, and what that
//            starts is independent too. The end of a run() leaves it alone, wherever it is, and everything that it
//            waits for: its timers do not end with the run (heap.h, ends_with_run), and contexts that it makes belong
//            to none. It ends by itself; no run() waits for it. At the exit of the process it goes on as the program's
//            threads do. (What the program itself starts from a plain thread belongs to the run() of that moment, but
//            for a jthread and async(): an object waits for their end, which may be a static one.)
//            So code that decides what ends with a run() asks ends_with_run(), not whether it runs in a goroutine.
// Data       goroutine_extra::independent, constant after the start. A goroutine makes its extra part inside the
//            runtime, so that the thread that has stopped the world may look at it.
#pragma once

#include "sched/goroutines/goroutine.h"

namespace dunlin::inline v0_1::sched {

// This code runs in a goroutine that the end of a run() stops. False: in an independent one, or on a plain thread.
inline bool ends_with_run() noexcept {
    const goroutine* g = current_goroutine();
    return g != nullptr && !g->independent();
}

// Starts a goroutine, independent or not, whatever the caller is: entry(frame), where the frame is the pointer
// `argument`. Throws std::bad_alloc.
void start_detached(void (*entry)(void*), void* argument, bool independent, creation_place where);
// An independent one, on a machine that is inside the runtime. False: there is no memory for it.
bool start_independent_inside_runtime(void (*entry)(void*), void* argument, creation_place where = {}) noexcept;

}  // namespace dunlin::sched
