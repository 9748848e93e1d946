// watcher.h - one thread that waits for events that no goroutine waits for: signals, and the ends of child processes.
//
// Problem    Both go on whatever becomes of goroutines: a child must be reaped although it is not waited for and its
//            handle is gone; and a goroutine that served signals would be frozen at the end of its run(), while plain
//            threads, or the next run(), still want them.
// Data       an epoll instance; in it an eventfd, the bell, which a signal handler may ring, and the pidfd of each
//            child. Both are made at the first use and never closed. users: the children that live, and one as long as
//            there are channels of signals.
// Protocol   There is a thread while users > 0. The user that makes it 1 starts one if none runs; the user that makes
//            it 0 rings, and the thread ends. Both happen under one lock, which the thread takes in each round: so it
//            either sees a new user or has noted that it does not run.
// Deadlocks  A thread that is not the scheduler's forbids the conclusion that all are asleep for ever
//            (sched/machines/deadlock.cpp), which is right as long as a signal or the end of a child may come. It is
//            gone when there are neither.
// Rejected   A goroutine for each child, or for the signals: counted among the program's, and frozen with a run().
//            SIGCHLD: belongs to the program.
// Tests      tests/fs/process_test.cpp, tests/fs/signal_test.cpp
#pragma once

namespace dunlin::inline v0_1::fs {

struct watched {
    // Called on the watcher's thread when the descriptor can be read. Before this returns the descriptor must have been
    // read, or be watched no more.
    virtual void happened() noexcept = 0;

protected:
    ~watched() = default;
};

// One user more or less. 0, or errno. Any thread or goroutine, outside the runtime.
int begin_watching() noexcept;
void end_watching() noexcept;

// 0, or errno. By a user.
int watch_descriptor(int fd, watched* w) noexcept;
// On the watcher's thread, before `fd` is closed. (A close alone does not do: a child that is just being started holds
// a copy until its exec, and for that long the kernel would go on telling.)
void unwatch_descriptor(int fd) noexcept;

// Makes the thread call deliver_signals(). Async-signal-safe; after the first begin_watching().
void ring() noexcept;

// signal.cpp
void deliver_signals() noexcept;

}  // namespace dunlin::fs
