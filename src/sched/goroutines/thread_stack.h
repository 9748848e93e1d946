// thread_stack.h - a function runs on the stack that its thread was made with, while its goroutine waits.
//
// Problem    Some libraries ask the system where the stack of their thread is (pthread_getattr_np) and rely on it: a
//            JVM, a collector that scans stacks, an interpreter that guards against recursion. A goroutine's stack is
//            not that one.
// Protocol   The scheduler's part of each thread stands on the thread's own stack, and uses little of it. The
//            goroutine, inside blocking(), leaves the function in its machine's record and switches there;
//            machine_main() calls the function and switches back. The goroutine is running all the while, and nothing
//            else runs on this thread.
//            While the function runs, the thread is a plain one to all of this library (current_machine() is null): it
//            may wait, and blocks the thread when it does; its processor is handed on as in blocking(). No signal is
//            sent to it, neither by the monitor nor by the end of run(): it may hold any lock of this library, as a
//            plain thread may, and goes on. If its run() has returned, its goroutine is lost when the function returns.
//            What still asks for the machine (own_machine): the report of a fault, and fork().
// Tests      tests/runtime/thread_stack_test.cpp
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// Calls entry(argument) on the thread's own stack; entry lets no exception out. A plain thread is on its own stack
// already: there it is an ordinary call. The caller is in blocking().
void call_on_thread_stack(void (*entry)(void*), void* argument) noexcept;

// The part of machine_main(): makes the call that the goroutine has left in m.
void make_thread_call(machine* m) noexcept;

// The machine whose thread is in such a call; null: this thread is not.
machine* lent_machine() noexcept;
// In the child of a fork(): the thread stays a plain one when the call returns.
void forget_lent_machine() noexcept;
// The machine of this thread, whatever it is doing.
machine* own_machine() noexcept;

}  // namespace dunlin::sched
