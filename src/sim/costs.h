// costs.h - what things cost in a simulation of scale (timed.h), in nanoseconds: one table, a source for each figure.
//
// Two machines: the one that the table is checked on, whose figures are measured, and a server of two sockets and more,
// whose figures are published ones or derived from them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace dunlin::inline v0_1::sim {

enum class cost : std::uint8_t {
    plain_ps,           // the instructions up to the next switch point, in picoseconds
    locked,             // an operation with a lock prefix on a line that is owned
    fence,              // a full one, beside the stores that it waits for
    line_near,          // a line that another CPU of the socket has written, or has
    line_far,           // the same of another socket
    line_shared,        // the next reader of a line that is on its way to others, or the next writer of it
    line_kept,          // by a CPU that has come to write it, however many others wait
    cpus_in_socket,     // a number
    pause,              // one, of a loop that waits
    clock,              // a look at the clock
    call,               // of the kernel that does nothing
    futex_wake_none,    // no thread sleeps there
    futex_wake,         // of one thread that sleeps, for the waker
    sleep,              // from the call to an idle CPU
    wake_soon,          // of a thread, from the waker's call until it runs: its CPU has been idle for less than 20 us
    wake_later,         // less than 500 us
    wake_late,          // longer
    thread_switch,      // of one CPU from a thread to another
    thread_start,       // for the thread that starts it
    look_at_thread,     // in /proc
    barrier,            // membarrier, if no other CPU runs the program
    barrier_per_cpu,    // more for each that does
    interrupt,          // what such a CPU loses
    poll,               // epoll_wait that finds nothing and does not sleep
    poll_event,         // more for each event
    poll_lock,          // for which epoll's own lock is held; part of these
    poll_add,           // epoll_ctl
    event_write,        // of an eventfd, beside the wake
    send,               // 64 bytes to a local socket, beside the wake
    receive,
    receive_moved,      // more, if another CPU has sent it
    receive_nothing,    // EAGAIN
    count
};

struct cost_row {
    cost what;
    std::string_view name;
    std::int64_t here, server;
    std::string_view source;
};

std::span<const cost_row> cost_table() noexcept;

class costs {
public:
    enum class machine : std::uint8_t { here, server };
    explicit costs(machine m) noexcept;

    std::int64_t operator[](cost c) const noexcept { return ns_[static_cast<std::size_t>(c)]; }
    // False: there is none of this name.
    bool set(std::string_view name, std::int64_t ns) noexcept;

private:
    std::int64_t ns_[static_cast<std::size_t>(cost::count)] = {};
};

}  // namespace dunlin::sim
