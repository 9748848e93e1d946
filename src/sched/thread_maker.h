// thread_maker.h - a thread that makes threads, for those who cannot.
//
// Two cannot: the monitor, because creating a thread allocates, and whoever waits for the allocator waits for a goroutine that may itself
// be waiting for the monitor; and a thread that is wired to a goroutine (os_thread.h), because a new thread copies its creator's affinity, name and
// namespaces. This thread is as clean as the process was when the runtime started, and nobody waits for it who must not.
#pragma once

#include "sched/types.h"

namespace dunlin::sched {

// Once, at the start; false if there is no thread for it.
bool start_thread_maker() noexcept;

// Starts a thread that runs main(argument), and waits until it has; 0 or an error number. For wired threads.
int make_thread_elsewhere(void (*main)(void*), void* argument) noexcept;

// Asks for one more idle machine, and does not wait: the monitor. Nothing if one is being made, or could not be made lately.
void want_spare_machine(std::int64_t now_ns) noexcept;

// 0 or 1, for the deadlock check.
unsigned thread_maker_threads() noexcept;

}  // namespace dunlin::sched
