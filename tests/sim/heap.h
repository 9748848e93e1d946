// heap.h - an allocator with one lock, as libc's has one for each arena, on virtual threads.
//
// A thread that waits for the lock sleeps in the kernel, unannounced, and a signal finds it in libc. While a heap is
// there, what the runtime allocates with `new` comes to it, too: in the middle of whatever it is doing then.
#pragma once

#include <cstdint>

namespace dunlin::inline v0_1::sim_cases {

// From here on, to the end of the execution.
void lock_the_heap();
// A call of malloc() or free() that takes so long, with the lock held.
void allocate(std::int64_t ns);

}  // namespace dunlin::sim_cases
