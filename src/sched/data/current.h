// current.h - which machine is this thread? Null on threads that do not belong to the runtime.
//
// The answer may change at every switch, and compilers keep thread-local addresses in registers across calls. So the
// variable is read by an instruction that the compiler can neither move nor merge: one load of its offset (which the
// linker turns into a constant in an executable) and one load of the value.
#pragma once

#include "sched/data/types.h"
#include "stack/thread_variable.h"

extern "C" {
[[gnu::tls_model("initial-exec"),
    gnu::visibility("hidden")]] extern thread_local constinit dunlin::sched::machine* dunlin_current_machine;
}

namespace dunlin::inline v0_1::sched {

[[gnu::always_inline]] inline machine* current_machine() noexcept {
    machine* m;
    stack::load_thread_pointer_variable(m);
    return m;
}

// Called when the thread becomes a machine, and with null when it is one no longer or acts as a plain thread for a
// while.
void set_current_machine(machine* m) noexcept;

}  // namespace dunlin::sched
