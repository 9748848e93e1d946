// standstill.h - makes all threads of the process but the caller's stand still, so that their registers can be read.
//
// Problem    Which memory refers to which can be found out only while nothing changes, and a reference may be in a
//            register and nowhere else. Threads of the program do not stop when they are asked, and a signal would end
//            their system calls.
// How        As a debugger or LeakSanitizer does it: a helper, which is a process of its own in the same memory,
//            attaches to each thread (PTRACE_SEIZE, PTRACE_INTERRUPT), until the list of threads has no new one. A call
//            that sleeps in the kernel goes on afterwards with the rest of its time; but these return EINTR, as after
//            any stop (signal(7)): epoll_wait(), semop(), sigwaitinfo(), sigtimedwait(), calls on a socket with
//            SO_RCVTIMEO or SO_SNDTIMEO, io_getevents(). To repeat them on the program's behalf would lose a signal
//            that ends epoll_pwait(), and would restart a time limit with each search.
// Protocol   caller                                        helper
//            1  makes the helper, allows it to trace,      1  waits for `go`
//               go = stop; waits for `state`               2  attaches, reads registers; state = stands or refused
//            2  looks                                      3  waits for `go`
//            3  go = on; waits for the helper's end        4  detaches, ends
//            If the helper is killed the kernel detaches. If the caller's thread ends the helper is killed.
// Rule       Meanwhile the caller takes no lock that another thread may hold, malloc's among them.
// Tests      tests/platform/standstill_test.cpp
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <sys/types.h>

#include "platform/memory.h"

namespace dunlin::inline v0_1::platform {

struct standing_thread {
    pid_t tid;
    bool gone;                     // it has ended meanwhile
    int signal;                    // the helper's: delivered when the thread goes on
    std::uintptr_t stack_pointer;
    std::uintptr_t thread_pointer; // where libc's data of the thread is; 0: not known
    std::uintptr_t general[40];    // as the kernel gives them; 0 behind the last
    std::uint64_t vectors[336];    // the same; copies of structs may be in them

    std::span<const std::uintptr_t> registers() const noexcept { return general; }
    std::span<const std::uint64_t> vector_registers() const noexcept { return vectors; }
};

class standstill {
public:
    // Waits until all threads stand still, but not longer than a second for those that do not.
    standstill() noexcept;
    ~standstill();
    standstill(const standstill&) = delete;
    standstill& operator=(const standstill&) = delete;

    // Null: all stand still. Otherwise why not; then nothing has changed.
    const char* refused() const noexcept { return refused_; }
    std::span<const standing_thread> threads() const noexcept;

private:
    friend struct standstill_access;
    struct control;
    bool begin() noexcept;
    void end() noexcept;

    control* control_ = nullptr;
    memory_range range_;
    const char* refused_ = nullptr;
    pid_t helper_ = 0;
};

}  // namespace dunlin::platform
