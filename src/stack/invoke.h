// invoke.h - run a goroutine's function so that its frames have an end: for exceptions, for exit_goroutine(), for
// unwinders.
#pragma once

#include <exception>

namespace dunlin::inline v0_1::stack {

extern "C" {
// entry_<cpu>.S: calls entry(frame).
void dunlin_invoke(void (*entry)(void*), void* frame);
// What the runtime does when an exception finds no handler in the goroutine. Called with the goroutine's stack intact;
// does not return.
[[noreturn]] void dunlin_uncaught_exception();
}

// Where the unwinder keeps its state meanwhile. Not on the goroutine's stack: the clean-ups that run there reuse what
// lies beneath the frames.
struct exit_request {
    // If the exit would leave a noexcept function, clang's code has begun to catch the request, and a terminate handler
    // that asks for the exception's type takes this for the head of a C++ exception. Zeros say that it has no type.
    alignas(16) unsigned char head[128] = {};
    alignas(16) unsigned char storage[64];
};

// Runs the destructors of every frame up to the innermost dunlin_invoke(), which then returns as if entry() had.
// catch (...) blocks on the way run, and cannot stop it. `request` must live until dunlin_invoke() has returned.
[[noreturn]] void unwind_to_invoke(exit_request& request);

}  // namespace dunlin::stack
