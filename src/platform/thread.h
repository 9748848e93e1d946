// thread.h - OS threads for the runtime, and what the kernel tells about ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sys/types.h>

namespace dunlin::platform {

// Starts a detached thread that runs main(argument). Returns 0 or the error of pthread_create (EAGAIN: no more threads).
// The thread has the signal mask that the process had at remember_signal_mask(), not that of whichever thread creates it.
int start_thread(void (*main)(void*), void* argument, const char* name) noexcept;

// Notes the calling thread's signal mask as the one for all threads to come.
void remember_signal_mask() noexcept;

pid_t thread_id() noexcept;
int current_cpu() noexcept;  // a hint: it may be on another one by now
bool is_main_thread() noexcept;

// Threads of this process, from /proc/self/status; 0 when it cannot be told.
unsigned count_threads() noexcept;

// Does the thread of this process execute, or wait for a CPU? False: it sleeps in the kernel, or is gone. 6 us.
bool thread_is_running(pid_t tid) noexcept;

// CPU time that a thread of this process has used, in nanoseconds; 0 if it is gone. 0.3 to 0.7 us.
std::int64_t thread_cpu_ns(pid_t tid) noexcept;

// How often a thread of this process has gone to sleep in the kernel by itself; 0 when it cannot be told. 10 us.
std::uint64_t thread_sleeps(pid_t tid) noexcept;

// The same two of the calling thread; safe in signal handlers.
struct thread_use {
    std::int64_t cpu_ns;
    std::uint64_t sleeps;
};
thread_use this_thread_use() noexcept;

// Sleeps of this thread end within a microsecond of their time instead of within fifty.
void use_exact_timers() noexcept;

// The calling thread runs in short turns and, in return, soon after it is woken: 0.1 ms instead of some 3 ms (Linux 6.12 and later; elsewhere
// nothing). Its share of the CPU stays the same.
void use_short_turns() noexcept;

// Takes both back from construction to destruction, if the calling thread is one of the runtime's (`ours`): a process that is started meanwhile has neither.
class ordinary_thread {
public:
    explicit ordinary_thread(bool ours) noexcept;
    ~ordinary_thread();
    ordinary_thread(const ordinary_thread&) = delete;
    ordinary_thread& operator=(const ordinary_thread&) = delete;

private:
    bool ours_;
};

// The calling thread's stack as it was created.
struct stack_bounds {
    void* low;
    std::size_t size;
};
stack_bounds thread_stack() noexcept;

// Gives the calling thread an alternate signal stack, so that a handler can report that the ordinary one is full. An existing one stays.
void use_signal_stack() noexcept;
// Before such a thread ends. One that somebody else gave it stays.
void drop_signal_stack() noexcept;

}  // namespace dunlin::platform
