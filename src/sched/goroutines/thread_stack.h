// thread_stack.h - runs a function on the stack that the thread was made with, while its goroutine waits.
//
// Problem    Some libraries ask the system where the stack of their thread is (pthread_getattr_np) and rely on the
//            answer: a JVM, a collector that scans stacks, an interpreter that guards against recursion. A goroutine's
//            stack is a different one.
// Protocol   The scheduler's part of each thread is on the thread's own stack, and uses little of it. The goroutine,
//            inside blocking(), leaves the function in its machine's record and switches to that stack; machine_main()
//            calls the function and switches back. The goroutine is running all the while, and nothing else runs on
//            this thread.
//            While the function runs, the whole library takes the thread for a plain one (current_machine() is null):
//            the function may wait, and then blocks the thread; the processor is handed on as in blocking(). No signal
//            is sent to the thread, neither by the monitor nor by the end of run(): it may hold any lock of this
//            library, as a plain thread may, and goes on. If its run() has returned, its goroutine is lost when the
//            function returns. Only the report of a fault and fork() still ask for the machine (own_machine).
// Tests      tests/runtime/thread_stack_test.cpp
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// Calls entry(argument) on the thread's own stack; entry must not throw. A plain thread is on its own stack already:
// there it is an ordinary call, through which pthread_exit() may pass. The caller is in blocking().
void call_on_thread_stack(void (*entry)(void*), void* argument);

// Called by machine_main(): makes the call that the goroutine has left in m.
void make_thread_call(machine* m) noexcept;

// The machine of this thread, if the thread is in such a call; else null.
machine* machine_behind() noexcept;
// Called in the child of a fork(): the thread remains a plain one when the call returns.
void forget_machine_behind() noexcept;
// The machine of this thread, whatever it is doing.
machine* own_machine() noexcept;

}  // namespace dunlin::sched
