// interrupted_call.h - what a signal of ours has done to a system call, and how that is undone.
//
// Problem    No signal is sent to a thread that sleeps in the kernel, but to one that computes there, copying megabytes
//            to a socket for instance, or that has begun a call since the monitor looked. The kernel then ends some
//            calls with EINTR, whatever SA_RESTART says, and others with a part of their bytes. Programs that install
//            no handler need not expect either.
// EINTR      Nothing has happened yet, so the call is made again when the handler returns.
// A part     write(), send() and recv(MSG_WAITALL) of a connection that blocks go on with the rest: the handler returns
//            to code of ours (rest_of_call_x86_64.S), which moves it, and then returns to libc with the sum. Other
//            reasons for a part are respected: datagrams, other flags, a time-out or low-water mark of the socket,
//            urgent data, an error of the connection (which is left to the program's next call), the end, a signal of
//            the program's; and a goroutine that is to stop for good does not go on.
// Limits     If the program's own signal has cut the call short, and one of ours comes while its handler returns, the
//            call goes on all the same. A descriptor that is closed and used anew meanwhile is another one. Where a
//            socket has an error queue that is not empty (SO_TIMESTAMPING), a part is returned. A recv() on a Unix
//            socket reads on across descriptors that were sent, where it would have stopped.
// Where      The number of the call is gone from the frame. It stands before the syscall instruction in libc, until
//            glibc 2.40. On CPUs other than x86-64 the first argument is gone too. Where the number or the argument is
//            gone, nothing can be done; nor are calls with several buffers repeated (writev, sendmsg), whose lists
//            would have to be copied.
// Tests      tests/go/unannounced_test.cpp, tests/go/cut_short_test.cpp
#pragma once

namespace dunlin::inline v0_1::stack {

// Called once, before any handler is installed.
void note_what_calls_leave() noexcept;

// Before anything else, as both look at the frame as the kernel has made it.
void repeat_interrupted_call(void* handler_context) noexcept;

// The signal has ended a sleep of libc's nanosleep or clock_nanosleep (usleep() and std::this_thread::sleep_for() call
// them), in which libc holds no lock. To be asked before repeat_interrupted_call(). `seen_asleep`: the thread was in
// such a sleep just before the signal was sent. From glibc 2.41 on (and with musl) that is all that is known on x86-64:
// its calls share one syscall instruction, before which stands no number.
bool interrupts_sleep_of_libc(const void* handler_context, bool seen_asleep) noexcept;

// Last: the handler returns elsewhere then.
void go_on_with_call(void* handler_context) noexcept;

// True: the thread is in the code that goes on with a call, called by libc as it were.
bool goes_on_with_call(const void* code) noexcept;

}  // namespace dunlin::stack
