// descriptor_case.h - on_readable and on_writable as select() sees them: cases with a descriptor instead of a channel.
//
// Problem    Descriptors cannot be locked together with channels, and only the kernel knows whether one is ready.
// Protocol   look    note the last edge; ready if the kernel says so. The kernel is asked only if there has been an
//                    edge since an attempt, or a look for reading, last found nothing
//            queue   fails if there has been an edge since the look: then select() begins again. So no edge is lost.
//            forget  off the queue, whether an edge has come or not
// Place      The node lies in the case, as a channel's does.
#pragma once

#include <new>
#include <poll.h>

#include <dunlin/select.hpp>

#include "platform/syscall.h"
#include "poll/fd_record.h"
#include "poll/simulated.h"

namespace dunlin::inline v0_1::detail {

static_assert(sizeof(netpoll::poll_node) <= sizeof(case_base::node) && alignof(netpoll::poll_node) <= 8);

inline bool has_descriptor(const case_base& c) noexcept {
    return c.kind == case_kind::readable || c.kind == case_kind::writable;
}
inline netpoll::fd_record* descriptor_of(const case_base& c) noexcept {
    return static_cast<netpoll::fd_record*>(c.slot);
}
inline netpoll::direction direction_of(const case_base& c) noexcept {
    return c.kind == case_kind::readable ? netpoll::direction::read : netpoll::direction::write;
}
inline netpoll::poll_node& poll_node_of(case_base& c) noexcept {
    return *std::launder(reinterpret_cast<netpoll::poll_node*>(c.node));
}

// Does the kernel, or the simulation whose socket it is, say that it is ready, or broken? Does not wait.
inline bool is_ready(int fd, netpoll::direction dir) noexcept {
    if (netpoll::is_simulated(fd)) [[unlikely]] {
        return netpoll::on_simulated([=](netpoll::simulated_sockets& s) -> long {
            return s.is_ready(fd, dir == netpoll::direction::write);
        }) != 0;
    }
    pollfd p{fd, static_cast<short>(dir == netpoll::direction::read ? POLLIN | POLLRDHUP : POLLOUT), 0};
    const timespec at_once{0, 0};
    return platform::raw_syscall(SYS_ppoll, platform::syscall_arg(&p), 1, platform::syscall_arg(&at_once), 0, 0) > 0;
}

// c.ok: ready now, or closed, or of a kind that is always ready. Outside the runtime.
inline void look_at_descriptor(case_base& c) noexcept {
    netpoll::fd_record* d = descriptor_of(c);
    c.ok = true;
    if (d == nullptr || !d->pollable()) return;
    const netpoll::brief_use mine(d);
    if (!mine) return;
    const netpoll::direction dir = direction_of(c);
    c.edge = d->edges(dir);
    c.ok = false;
    if (!d->is_drained(dir, c.edge)) {
        c.ok = is_ready(d->fd(), dir);
        // For writes this does not mean EAGAIN: a socket or a pipe with some room left is not "writable", and takes a
        // write all the same.
        if (!c.ok && dir == netpoll::direction::read) d->note_drained(dir, c.edge);
    }
}

inline void prepare_descriptor(case_base& c, park::waiter& w) noexcept {
    auto* n = ::new (c.node) netpoll::poll_node(&w);
    n->several = true;
}

// After prepare_descriptor() of all cases. False: the descriptor has become ready meanwhile.
inline bool queue_for_descriptor(case_base& c) noexcept {
    netpoll::fd_record* d = descriptor_of(c);
    const netpoll::direction dir = direction_of(c);
    return d->queue_for_edge(dir, c.edge, d->deadline_ns(dir), &poll_node_of(c)) == netpoll::queued::yes;
}

inline void forget_descriptor(case_base& c) noexcept {
    descriptor_of(c)->forget_edge(direction_of(c), &poll_node_of(c));
}

}  // namespace dunlin::detail
