// watcher.h - one thread that waits for events for which no goroutine waits: signals, and the ends of child processes.
//
// Problem    Both happen independently of goroutines: a child must be reaped even if no caller waits for it and its
//            handle is gone; and a goroutine that served signals would be frozen at the end of its run(), while plain
//            threads, or the next run(), still want them.
// Data       an epoll instance; in it an eventfd, the bell, which a signal handler may ring, and the pidfd of each
//            child. The epoll instance and the bell are made at the first use and never closed. users: one for each
//            child that lives, and one for each channel of signals.
// Protocol   There is a thread while users > 0. The user that raises it to 1 starts the thread if none runs; the user
//            that lowers it to 0 rings, and the thread ends. Both happen under one lock, which the thread takes in each
//            round: so it either sees a new user or has noted, before that user looks, that no thread runs.
// Deadlocks  While a thread exists that is not the scheduler's, the scheduler may not conclude that all are asleep for
//            ever (sched/machines/deadlock.cpp). That is right as long as a signal or the end of a child may come;
//            without children and channels the thread is gone.
// Rejected   A goroutine for each child, or for the signals: it would count among the program's, and be frozen at the
//            end of a run(). SIGCHLD: it belongs to the program.
// Tests      tests/fs/process_test.cpp, tests/fs/signal_test.cpp
#pragma once

namespace dunlin::inline v0_1::fs {

struct watched {
    // Called on the watcher's thread when the descriptor can be read. Before it returns it must read the descriptor, or
    // end the watch. It must not wait, for others rely on this thread, nor run the program's callbacks.
    virtual void happened() noexcept = 0;

protected:
    ~watched() = default;
};

// Add or remove a user. 0, or errno. Called by any thread or goroutine, outside the runtime.
int begin_watching() noexcept;
void end_watching() noexcept;

// 0, or errno. Called by a user.
int watch_descriptor(int fd, watched* w) noexcept;
// Called before `fd` is closed, on the watcher's thread or by a user that the watcher has been told to forget. (A close
// alone is not enough: a child that is just being started holds a copy until its exec, and until then the kernel would
// go on reporting events.)
void unwatch_descriptor(int fd) noexcept;

// Makes the thread call deliver_signals(). Async-signal-safe; after the first begin_watching().
void ring() noexcept;

// For who sees that the program has closed what the thread needs.
[[noreturn]] void die_of_closed_descriptors() noexcept;

// signal.cpp
void deliver_signals() noexcept;

}  // namespace dunlin::fs
