// program_handler.h - has a signal of ours interrupted another signal handler, the program's or a sanitizer's?
//
// Rule       A thread is not stopped there: what the handler has interrupted may hold a lock that others want, malloc's
//            for instance, and at the end of run() a thread that is stopped stays so.
// Where      On the alternate stack a handler is known by its stack pointer. On the goroutine's own stack (a handler
//            without SA_ONSTACK) it is known by two marks, since each alone misleads. The code that is interrupted has
//            signals blocked that threads of the runtime do not block; so has a goroutine that blocks signals itself.
//            And the address to which handlers return stands on the stack, above the stack pointer; a frame that was
//            left may still be found in memory that a later one has not written.
//            Of a stack that the program has made the first 64 KiB above the stack pointer are searched. They may reach
//            into another thread's signal stack: the kernel's frame tells.
// Limits     A handler with SA_NODEFER and an empty mask, on the goroutine's own stack, is taken for ordinary code, and
//            so is one on a stack of the program's own that is deeper than those 64 KiB. If
//            stacks of the program's lie side by side, a handler on the next one is taken for one on this; on aarch64,
//            where the frame is not looked at, one on a signal stack as well. ThreadSanitizer blocks all signals in
//            handlers: there is nothing to find.
// Tests      tests/go/preempt_test.cpp
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// Called by our handler: the address to which it returns.
void note_handler_return(const void* address) noexcept;

// m is the calling thread's machine, `context` what our handler was given.
bool interrupts_program_handler(const machine* m, const void* context) noexcept;

}  // namespace dunlin::sched
