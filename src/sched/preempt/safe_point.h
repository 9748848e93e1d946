// safe_point.h - where may a thread be stopped from outside?
//
// Not in libc, the loader, the unwinder, an allocator: for moments they hold locks that the whole process needs. Locks
// that the program's own code holds are its own affair, as with a thread that the kernel preempts.
#pragma once

#include <cstdint>

namespace dunlin::inline v0_1::sched {

// Notes where those libraries are. Called once, at the start.
void note_unsafe_points() noexcept;

bool may_stop_at(std::uintptr_t pc) noexcept;

// True if the code at `pc` seems to wait in a loop: for a spin lock, with the CPU's spin hint nearby, or in
// sched_yield(). A guess from the instructions; a wrong guess costs a shorter turn.
bool spins_at(std::uintptr_t pc) noexcept;

// True if `pc` is in a library that unwinds stacks: it may hold a lock of its own. False if that library is linked
// statically.
bool is_in_unwinder(std::uintptr_t pc) noexcept;

}  // namespace dunlin::sched
