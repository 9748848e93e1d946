// run_context.h - the context of the run() that is under way (run_context() of <dunlin/context.hpp>).
#pragma once

namespace dunlin::inline v0_1 {

// The main goroutine has ended: cancels what run_context() has given to goroutines. On a plain thread.
void cancel_run_context();
// run() is about to return: the next one has a context of its own.
void forget_run_context() noexcept;

}  // namespace dunlin
