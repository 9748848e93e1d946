// thread.h - OS threads for the runtime, and what the kernel says about the process's threads.
#pragma once

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <span>
#include <sys/types.h>

#include "platform/simulated.h"

namespace dunlin::inline v0_1::platform {

struct thread_kind {
    void (*main)(void*);
    const char* name;
    bool runs_the_program = false;  // its functions are called there
};

namespace detail {
int start_thread(void* (*entry)(void*), void* argument) noexcept;
void begin_thread(const thread_kind& kind) noexcept;
}  // namespace detail

// Starts a detached thread that runs kind.main(argument). Returns 0 or the error of pthread_create (EAGAIN: no more
// threads). A thread that runs the program has the signal mask that the process had at remember_signal_mask(), not that
// of the thread that creates it. The others take no signals but those of faults: a handler of the program that the
// kernel let run on the monitor's thread could wait there for what only the monitor brings about.
template <const thread_kind& kind>
int start_thread(void* argument) noexcept {
    constexpr auto entry = [](void* a) -> void* {
        detail::begin_thread(kind);
        kind.main(a);
        return nullptr;
    };
    return detail::start_thread(entry, argument);
}

// The calling thread is about to end: what the program's thread_local objects and pthread keys do then is not done yet.
void begin_thread_end() noexcept;
// Called once before, since a key takes memory if the program has made many.
void prepare_thread_ends() noexcept;
// How many threads have begun to end and have not yet destroyed those. What the others did happens before the return.
std::uint32_t ending_thread_count() noexcept;

// Notes the calling thread's signal mask, without `unblocked`, as the one for all threads to come.
void remember_signal_mask(std::span<const int> unblocked) noexcept;
// Whether the mask blocks a signal that the noted one does not.
bool blocks_more_than_usual(const sigset_t& mask) noexcept;

pid_t thread_id() noexcept;
// A number that no other thread has or has had. (An address of the thread's would come back with another thread, and
// what the first one has left locked would be that one's.)
std::uintptr_t new_thread_mark() noexcept;
inline std::uintptr_t thread_mark() noexcept {
    if (simulation* s = simulation_here()) return static_cast<std::uintptr_t>(s->thread_id());
    static thread_local std::uintptr_t mark = 0;
    if (mark == 0) [[unlikely]] mark = new_thread_mark();
    return mark;
}

// The calling thread goes behind the threads that wait for its CPU.
void give_cpu_away() noexcept;
int current_cpu() noexcept;  // a hint: it may be on another one by now
bool is_main_thread() noexcept;

// False: there is no such thread in this process.
bool send_signal(pid_t tid, int signal) noexcept;

// A request is a signal that the library sends to a thread of its own process, marked in its siginfo_t, so that its
// handler tells it from the same signal sent by the program.
bool send_request(pid_t tid, int signal) noexcept;  // false: as above
siginfo_t request_info(int signal) noexcept;        // what arrives with it
enum class signal_source : std::uint8_t {
    request,
    program,
    unknown,  // the kernel has no room for siginfo_t (RLIMIT_SIGPENDING), or a filter refuses rt_tgsigqueueinfo
};
signal_source source_of(const siginfo_t& info) noexcept;

// Threads of this process, from /proc/self/status; 0: not known.
unsigned count_threads() noexcept;

// Whether a thread of this process executes, or waits for a CPU. False: it sleeps in the kernel, or is gone. 6 us.
bool thread_is_running(pid_t tid) noexcept;

// A system call in which a thread of this process sleeps: the address behind the instruction, null if it does not sleep
// or that is not known; what call it is, null if it is none of the usual ones; and the stack pointer.
struct sleeping_call {
    const void* at = nullptr;
    const char* name = nullptr;
    void* sp = nullptr;
};
sleeping_call thread_sleeps_in(pid_t tid) noexcept;

// The thread waits in the kernel for a time to come: nanosleep(), clock_nanosleep().
bool thread_waits_for_time(pid_t tid) noexcept;

// The threads of this process, one after the other, without memory. Those that begin meanwhile may be left out.
class thread_ids {
public:
    thread_ids() noexcept;
    ~thread_ids();
    thread_ids(const thread_ids&) = delete;
    thread_ids& operator=(const thread_ids&) = delete;
    pid_t next() noexcept;  // 0: there are no more, or /proc cannot be read

private:
    int fd_ = -1;
    std::size_t at_ = 0, size_ = 0;
    alignas(std::uint64_t) std::array<char, 2048> entries_;
};

// The lock of libc for which a thread of this process sleeps in the kernel, and the threads that may hold it: the
// numbers that stand where a mutex keeps its owner and a read-write lock its writer. A null lock: the thread does not
// sleep for one, or that is not known (libc is not glibc; the kernel does not say).
struct lock_wait {
    const void* lock = nullptr;
    std::array<pid_t, 3> owners{};
    // Set where nothing notes which thread holds it: what the thread does that this one waits for, as in "the thread
    // waits for the one that ...".
    const char* unnamed = nullptr;
    std::uintptr_t code = 0;  // where the thread sleeps: the address behind the call
    bool may_be_held_by(pid_t tid) const noexcept { return tid > 0 && std::ranges::find(owners, tid) != owners.end(); }
};
lock_wait lock_waited_for(pid_t tid) noexcept;

// From here on `second` runs on the CPU where `first`, which sleeps, went to sleep, and `first` comes before it there
// when it wakes, as far as the kernel allows that. `second` stays that way. `first` is not changed: what it starts when
// it wakes would inherit the change.
void give_right_of_way(pid_t first, pid_t second) noexcept;
// Only the place: `second` runs where `first` ran last. Again after each wake of `first` that came too late, since the
// kernel may have moved `first` to another CPU, and prefers that one from then on.
void place_beside(pid_t first, pid_t second) noexcept;
// From here on the thread gets only the CPU time that no other thread of the machine wants, and every thread that wakes
// comes before it. It stays that way.
void use_leftover_time(pid_t tid) noexcept;

// CPU time that a thread of this process has used, in nanoseconds; 0 if it is gone. 0.3 to 0.7 us.
std::int64_t thread_cpu_ns(pid_t tid) noexcept;

// How often a thread of this process has gone to sleep in the kernel of its own accord; 0: not known. 10 us.
std::uint64_t thread_sleeps(pid_t tid) noexcept;

// The same two values of the calling thread; safe in signal handlers.
struct thread_use {
    std::int64_t cpu_ns;
    std::uint64_t sleeps;
};
thread_use this_thread_use() noexcept;

// Sleeps of this thread end within a microsecond of their time instead of within fifty. Only for threads that sleep for
// the program's timers: of a hundred threads that sleep in the program's own calls the kernel wakes those together that
// are due within the fifty.
void use_exact_timers() noexcept;

// The calling thread runs in short time slices and, in return, soon after it is woken: 0.1 ms instead of some 3 ms
// (Linux 6.12 and later; elsewhere it has no effect). Its share of the CPU stays the same. Threads that it starts have
// them from the beginning.
void use_short_slices() noexcept;

// Undoes both from construction to destruction, if the calling thread belongs to the runtime (`ours`): a process that
// is started meanwhile inherits neither.
class ordinary_thread {
public:
    explicit ordinary_thread(bool ours) noexcept;
    ~ordinary_thread();
    ordinary_thread(const ordinary_thread&) = delete;
    ordinary_thread& operator=(const ordinary_thread&) = delete;

private:
    bool ours_;
    long timer_slack_ns_ = 0;
};

// The calling thread's stack as it was created. Allocates.
struct stack_bounds {
    void* low;
    std::size_t size;
};
stack_bounds thread_stack() noexcept;

// An alternate signal stack for the calling thread while this lives, so that a handler can report that the ordinary one
// is full. A signal stack that other code gave the thread stays. Handlers of the program may run on it (SA_ONSTACK),
// and without it they would have a thread's stack: so it is large, and ends in a guard. Its pages come with the first
// signal. If there is no memory for it, handlers run on the ordinary stack.
class signal_stack {
public:
    signal_stack() noexcept;
    ~signal_stack();
    signal_stack(const signal_stack&) = delete;
    signal_stack& operator=(const signal_stack&) = delete;

private:
    void* memory_ = nullptr;  // the guard comes first
    std::size_t size_ = 0;
};

}  // namespace dunlin::platform
