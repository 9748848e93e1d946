// costs.h - what things cost in a simulation of scale (timed.h), in nanoseconds: one table, with a source for each
// figure.
//
// There are two machines: the one that the table is checked on, whose figures are measured, and a server of two or more
// sockets, whose figures are published ones or derived from them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace dunlin::inline v0_1::explorer {

enum class cost : std::uint8_t {
    plain_ps,           // the instructions up to the next switch point, in picoseconds
    locked,             // an operation with a lock prefix on a line that is owned
    fence,              // a full one, without the stores that it waits for
    line_near,          // getting a line that another CPU of the socket has written, or has
    line_far,           // the same from another socket
    line_shared,        // how long a copy for a reader delays the next reader or writer of the line
    line_kept,          // how long a CPU that writes a line keeps it, however many others wait
    cpus_in_socket,     // a number, no time
    pause,              // one pause of a loop that waits
    clock,              // a look at the clock
    call,               // a system call that does nothing
    futex_wake_none,    // no thread sleeps there
    futex_wake,         // waking one sleeping thread, for the waker
    sleep,              // from the call until the CPU is idle
    wake_soon,          // from the waker's call until the thread runs: its CPU has been idle for less than 20 us
    wake_later,         // less than 500 us
    wake_late,          // longer
    thread_switch,      // a CPU changes from one thread to another
    thread_start,       // for the thread that starts it
    look_at_thread,     // in /proc
    barrier,            // membarrier, if no other CPU runs the program
    barrier_per_cpu,    // more for each that does
    interrupt,          // what such a CPU loses
    poll,               // epoll_wait that finds nothing and does not sleep
    poll_event,         // more for each event
    poll_lock,          // the part of these during which epoll's own lock is held
    poll_add,           // epoll_ctl
    event_write,        // a write to an eventfd, without the wake
    send,               // 64 bytes to a local socket, without the wake
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
    // False: there is no cost of this name.
    bool set(std::string_view name, std::int64_t ns) noexcept;

private:
    std::int64_t ns_[static_cast<std::size_t>(cost::count)] = {};
};

}  // namespace dunlin::explorer
