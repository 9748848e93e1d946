// carried.h - threads that do not run by themselves: stacks, of which one runs at a time, each with its own values of
// the runtime's thread-local variables. A simulation decides when each goes on (world.h, timed.h).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "stack/context.h"

namespace dunlin::inline v0_1::explorer {

// A thread-local variable of which each virtual thread has its own value, zero at first.
struct thread_variable {
    void* (*address)() noexcept;
    std::size_t size;
};
void add_thread_variable(thread_variable variable);

struct carried {
    std::string name;
    std::function<void()> run;
    std::byte* stack = nullptr;
    stack::context context;
    std::vector<std::byte> variables;
};

std::byte* make_stack() noexcept;
void free_stack(std::byte* stack) noexcept;

// Makes t begin in `entry`, which never returns, on t's stack.
void begin_at(carried& t, void (*entry)());

// Stops `from`, which is the caller, and goes on with `to`. Returns when `from` goes on.
void change_over(carried& from, carried& to) noexcept;
// The same, but `from` never goes on.
[[noreturn]] void leave_for(carried& from, carried& to) noexcept;

}  // namespace dunlin::explorer
