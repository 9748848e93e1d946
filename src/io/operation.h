// operation.h - one call on a descriptor: its way in, its attempts, its waits, its end. Every read, write, accept and
// connect is built from this.
//
// Protocol   enter (poll/fd_mutex.h); then, until an attempt succeeds or fails: closed? deadline past? attempt;
//            if nothing is there: context done? wait for an edge (poll/fd_record.h). An edge, a close, a new deadline,
//            its own deadline or its context wakes the waiter, which looks again from the top.
// Errors     System errors are in std::generic_category(), so that they compare equal to std::errc, as codes too. The
//            exception is ETIMEDOUT, which becomes errc::peer_silent: the code std::errc::timed_out means a deadline of
//            the caller's.
#pragma once

#include <cerrno>
#include <source_location>
#include <system_error>

#include <dunlin/detail/wait.hpp>
#include <dunlin/error.hpp>

#include "poll/fd_record.h"

namespace dunlin::inline v0_1::io {

using detail::wait_limit;
using netpoll::brief_use;
using netpoll::fd_record;
using netpoll::direction;

enum class kind : std::uint8_t { other, file, pipe, tcp, udp, unix_stream, unix_packet };
inline kind kind_of(const fd_record* d) noexcept { return static_cast<kind>(d->kind); }
inline bool is_socket(const fd_record* d) noexcept { return kind_of(d) >= kind::tcp; }

// 0 is success, and equal to std::error_code().
inline std::error_code system_error_code(long error) noexcept {
    if (error == ETIMEDOUT) return errc::peer_silent;
    return error != 0 ? std::error_code(static_cast<int>(error), std::generic_category()) : std::error_code();
}

// False, with `ec`: the call must end, because the descriptor is closed or the deadline has passed. Reads the clock
// only if there is a deadline.
bool may_go_on(const fd_record* d, direction dir, const wait_limit* limit, std::error_code& ec) noexcept;

bool is_cancelled(const wait_limit* limit) noexcept;
// False, with `ec`: the context is done, and the call must not wait. A context ends only waits: a call still takes what
// is there.
bool may_wait(const wait_limit* limit, std::error_code& ec) noexcept;

// Returns after an edge, or when the caller must ask may_go_on() again. Throws std::bad_alloc.
void wait_for_edge(
    fd_record* d, direction dir, std::uint32_t seen, const wait_limit* limit, const std::source_location& where);

// Waits for `ns`, whatever edges there are: for an attempt that no edge says when to repeat, because it waits for room
// elsewhere. (Attempts may cause edges themselves.) False, with `ec`: the call must end. Need not be in the fd mutex.
// Throws std::bad_alloc.
bool pause_writer(fd_record* d, std::int64_t ns, const wait_limit* limit, const std::source_location& where,
    std::error_code& ec);

// In the fd mutex from construction to destruction; the constructor waits if another operation of this direction is in.
// False: `ec` says why. A null descriptor is a closed one.
class fd_guard {
public:
    fd_guard(fd_record* d, direction dir, const wait_limit* limit, const std::source_location& where,
        std::error_code& ec)
        : d_(d), direction_(dir) {
        ec.clear();
        if (d == nullptr) {
            ec = errc::closed;
            return;
        }
        const netpoll::fd_mutex::entry entry = d->enter(dir);
        in_ = entry == netpoll::fd_mutex::entry::in || enter_slow(entry, limit, where, ec);
    }
    ~fd_guard() {
        if (in_) d_->leave(direction_);
    }
    fd_guard(const fd_guard&) = delete;
    fd_guard& operator=(const fd_guard&) = delete;
    explicit operator bool() const noexcept { return in_; }

private:
    bool enter_slow(netpoll::fd_mutex::entry entry, const wait_limit* limit, const std::source_location& where,
        std::error_code& ec);

    fd_record* d_;
    direction direction_;
    bool in_ = false;
};

// A use of the descriptor from construction to destruction: for calls that neither read nor write. A goroutine that is
// frozen meanwhile never ends it (fd_record.h, End of run): see brief_use; or it is constructed inside the runtime.
class use {
public:
    explicit use(fd_record* d) noexcept : d_(d != nullptr && d->use() ? d : nullptr) {}
    ~use() {
        if (d_ != nullptr) d_->end_use();
    }
    use(const use&) = delete;
    use& operator=(const use&) = delete;
    explicit operator bool() const noexcept { return d_ != nullptr; }

private:
    fd_record* d_;
};

// The caller is in the fd mutex. `attempt(fd)` makes the system call and returns its result, or -errno. Returns the
// result of the first attempt that succeeds, or -1 with `ec`. `seen`: the count of edges before that attempt.
template <class Attempt>
long perform(fd_record* d, direction dir, const wait_limit* limit, const std::source_location& where,
    std::error_code& ec, std::uint32_t& seen, Attempt attempt) {
    for (;;) {
        if (!may_go_on(d, dir, limit, ec)) return -1;
        seen = d->edges(dir);
        // There may be data whose edge has not been delivered yet. If the call may wait, that edge ends its wait; if it
        // may not, the kernel is asked here.
        if (!d->is_drained(dir, seen) || is_cancelled(limit)) {
            const long n = attempt(d->fd());
            if (n >= 0) return n;
            if (n == -EINTR) continue;
            if (n != -EAGAIN) {
                ec = system_error_code(-n);
                return -1;
            }
            d->note_drained(dir, seen);
        }
        if (!may_wait(limit, ec)) return -1;
        wait_for_edge(d, dir, seen, limit, where);
    }
}

// For calls that do not learn from a short result that nothing is left (fd_record::note_drained()).
template <class Attempt>
long perform(fd_record* d, direction dir, const wait_limit* limit, const std::source_location& where,
    std::error_code& ec, Attempt attempt) {
    std::uint32_t seen;
    return perform(d, dir, limit, where, ec, seen, attempt);
}

}  // namespace dunlin::io
