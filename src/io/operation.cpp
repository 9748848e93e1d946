#include "io/operation.h"

#include <algorithm>
#include <new>

#include <dunlin/context.hpp>

#include "chan/limited_wait.h"
#include "platform/clock.h"

namespace dunlin::inline v0_1::io {

bool may_go_on(const fd_record* d, direction dir, const wait_limit* limit, std::error_code& ec) noexcept {
    if (d->is_closed()) {
        ec = errc::closed;
        return false;
    }
    const std::int64_t deadline_ns = d->deadline_ns(dir);
    const bool past = deadline_ns != netpoll::no_deadline_ns && deadline_ns <= platform::now_ns();
    if (past || detail::is_past(limit)) {
        ec = std::make_error_code(std::errc::timed_out);
        return false;
    }
    return true;
}

bool is_cancelled(const wait_limit* limit) noexcept { return detail::cancelled_already(limit); }

bool may_wait(const wait_limit* limit, std::error_code& ec) noexcept {
    if (!is_cancelled(limit)) return true;
    ec = detail::error_of_node(limit->done);
    return false;
}

namespace {

using detail::end_of_wait;

// Waits for the node, which is queued. After any result but `served` the caller must take it off its queue.
end_of_wait wait_for_node(park::waiter& w, std::int64_t deadline_ns, const wait_limit* limit) noexcept {
    if (deadline_ns == netpoll::no_deadline_ns && limit == nullptr) {
        w.wait();
        return end_of_wait::served;
    }
    wait_limit all{deadline_ns, nullptr};
    if (limit != nullptr) all = {limit->deadline_ns < deadline_ns ? limit->deadline_ns : deadline_ns, limit->done};
    return detail::wait_limited(w, all);
}

// Queues a node, and waits until it is served, or the caller must ask may_go_on() again. `deadline_ns`: the
// descriptor's deadline, which `queue` compares; a later change wakes this waiter.
template <class Queue, class Forget>
void wait_queued(const wait_limit* limit, std::int64_t deadline_ns, const std::source_location& where, Queue queue,
    Forget forget) {
    park::waiter w;
    netpoll::poll_node n(&w);
    n.several = limit != nullptr || deadline_ns != netpoll::no_deadline_ns;
    w.enter();
    w.prepare(sched::wait_reason::io_wait, where);
    if (queue(&n) != netpoll::queued::yes) {
        w.withdraw();
        w.leave();
        return;
    }
    const end_of_wait end = wait_for_node(w, deadline_ns, limit);
    if (end == end_of_wait::served) return;
    forget(&n);
    if (end == end_of_wait::no_memory) throw std::bad_alloc();
}

}  // namespace

void wait_for_edge(
    fd_record* d, direction dir, std::uint32_t seen, const wait_limit* limit, const std::source_location& where) {
    const std::int64_t deadline_ns = d->deadline_ns(dir);
    wait_queued(limit, deadline_ns, where,
        [&](netpoll::poll_node* n) { return d->queue_for_edge(dir, seen, deadline_ns, n); },
        [&](netpoll::poll_node* n) { d->forget_edge(dir, n); });
}

bool pause_writer(fd_record* d, std::int64_t ns, const wait_limit* limit, const std::source_location& where,
    std::error_code& ec) {
    wait_limit until = limit != nullptr ? *limit : wait_limit{};
    const std::int64_t end_ns = platform::deadline_after(platform::now_ns(), ns);
    until.deadline_ns = std::min(until.deadline_ns, end_ns);
    while (may_go_on(d, direction::write, limit, ec) && may_wait(limit, ec)) {
        if (platform::now_ns() >= end_ns) return true;
        const std::int64_t deadline_ns = d->deadline_ns(direction::write);
        wait_queued(&until, deadline_ns, where,
            [&](netpoll::poll_node* n) { return d->queue_to_pause(deadline_ns, n); },
            [&](netpoll::poll_node* n) { d->forget_pause(n); });
    }
    return false;
}

bool fd_guard::enter_slow(
    netpoll::fd_mutex::entry entry, const wait_limit* limit, const std::source_location& where, std::error_code& ec) {
    while (entry == netpoll::fd_mutex::entry::busy) {
        park::waiter w;
        netpoll::poll_node n(&w);
        n.several = true;
        w.enter();
        w.prepare(sched::wait_reason::io_in_use, where);
        if (d_->queue_to_enter(direction_, &n) == netpoll::queued::yes) {
            const end_of_wait end = wait_for_node(w, netpoll::no_deadline_ns, limit);
            if (end == end_of_wait::served) {
                if (n.granted) return true;
            } else {
                d_->forget_entering(direction_, &n);
                if (end == end_of_wait::no_memory) throw std::bad_alloc();
                if (!may_go_on(d_, direction_, limit, ec) || !may_wait(limit, ec)) return false;
            }
        } else {
            w.withdraw();
            w.leave();
        }
        entry = d_->enter(direction_);
    }
    if (entry == netpoll::fd_mutex::entry::closed) ec = errc::closed;
    return entry == netpoll::fd_mutex::entry::in;
}

}  // namespace dunlin::io
