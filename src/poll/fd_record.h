// fd_record.h - an open file or socket: its users, its readiness, and the waiters for it.
//
// Lifetime   Records are never freed, only reused: an event under way may still name one. The tag contains a number
//            that changes with each use of the record, and is compared under the lock. A handle (net::stream and the
//            like) holds its record until its own end; the operations under way hold the open descriptor (fd_mutex.h).
//            close() wakes all waiters, and waits until the last user has closed the descriptor, two seconds at
//            most.
// Readiness  edges[d]: the number of events for direction d; the poller increments it. drained[d]: the value of
//            edges[d] at which an attempt last found nothing left.
//              operation                                   poller
//              1  seen = edges                             1  lock
//              2  seen == drained: nothing there, go to 5  2  edges += 1
//              3  try it                                   3  take all waiters off the queue, unlock, wake them
//              4  EAGAIN: drained = seen
//              5  lock; edges != seen: from 1 again
//              6  onto the queue, unlock, wait; from 1 again
//            No edge is lost: the attempt follows the read of `seen`, so it covers every edge before that read; after
//            any later edge, edges != seen.
//            A slow operation may write `drained` late: the number is then too old, which costs one more attempt.
//            Short read: on a stream socket it also proves that nothing is left, and saves the call that would return
//            EAGAIN (a sixth of an echo's system calls) - unless the peer has closed or sent urgent data, which no
//            further edge would report.
// Deadlines  are stored here; only a waiter puts one into the heap of timers (io/operation.cpp). A new deadline wakes
//            the waiters, which look again.
// End of run A frozen goroutine never comes back, wherever in a call it stands: forget_frozen() takes it off the
//            queues, leaves the fd mutex in its place (side::holder), and ends what close() it has begun (closer_). It
//            holds no other use: such a use begins and ends inside the runtime, or in a section where nothing stops it.
//            Except for calls on files, which may block (src/fs/file.cpp): their descriptor then stays open.
// Source     Go 1.24 runtime/netpoll.go, internal/poll/fd_poll_runtime.go. Differs: counts instead of a state word, so
//            that several may wait (select), and nothing has to be reset before an attempt.
// Tests      tests/poll/, tests/go/net_*.cpp
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "park/wait_queue.h"
#include "platform/cpu.h"
#include "platform/lock.h"
#include "platform/wrap.h"
#include "poll/fd_mutex.h"
#include "sched/data/event_source.h"
#include "sched/machines/machine.h"

namespace dunlin::inline v0_1::netpoll {

inline constexpr std::int64_t no_deadline_ns = INT64_MAX;

// close(2); does nothing for a negative number. Under ThreadSanitizer it calls libc's function, so that the sanitizer
// sees that the next owner of the number is unrelated to this one.
void close_number(int fd) noexcept;

// A waiter's place in one of a descriptor's queues. `several` is set before the node is queued if its waiter has other
// nodes, or a deadline.
struct poll_node : park::wait_node {
    bool granted = false;     // written by the waker: this waiter is in. False: the descriptor was closed

    using park::wait_node::wait_node;
};

enum class queued : std::uint8_t {
    yes,       // the node is queued; wait
    go_on,     // no need to wait: there is an edge, or the caller may enter
    closed,
};

// The name of a descriptor in messages, even after it is closed. The layers above derive from this and define its
// content.
struct descriptor_name {
    virtual ~descriptor_name() = default;
};

class alignas(platform::cache_line) fd_record {
public:
    // Takes over `fd`, which is non-blocking; a regular file, or anything else that epoll refuses, becomes a blocking
    // descriptor. Null: `error` says why (errno), and the caller still owns `fd`. The record belongs to the caller
    // until release().
    static fd_record* open(int fd, int& error) noexcept;
    // The same for a descriptor that is never watched: every call on it may block its thread.
    static fd_record* open_blocking(int fd) noexcept;

    // Undoes open(): gives the record back, and the caller owns `fd` again. No other thread knows the record yet.
    void give_back_fd() noexcept;

    // Wakes all waiters. True for the first call. Returns when the descriptor has been closed, or after two
    // seconds; for a blocking one at once, since a call on it may last long.
    bool close() noexcept;
    // As close(), without waiting. Called by a thread that does not own the handle, when a simulated host is switched
    // off.
    void close_under_owner() noexcept;
    // Closes the descriptor and gives the record back.
    void release() noexcept;

    bool pollable() const noexcept { return pollable_; }
    bool is_closed() const noexcept { return mutex_.closed(); }
    // valid while the caller is in the fd mutex or is a user
    int fd() const noexcept { return fd_.load(std::memory_order_relaxed); }

    // ---- the fd mutex. A goroutine may call these outside the runtime; leaving may close the descriptor.
    fd_mutex::entry enter(direction d) noexcept {
        // a goroutine frozen between these two steps would be in for ever
        const sched::unstoppable_section section;
        const fd_mutex::entry entry = mutex_.enter(d);
        if (entry == fd_mutex::entry::in)
            side_[index(d)].holder.store(section.goroutine_here(), std::memory_order_relaxed);
        return entry;
    }
    void leave(direction d) noexcept {
        bool last = false;
        while (!try_leave(d, last)) {
            if (let_next_in(d)) return;
        }
        if (last) close_now();
    }
    // Between these a goroutine must neither enter the runtime nor be stopped, or the use may be lost with it.
    bool use() noexcept { return mutex_.use(); }
    void end_use() noexcept {
        if (count_use_ended()) close_now();
    }
    // The two halves of end_use(): true: the caller must call close_now(), which enters the runtime.
    bool count_use_ended() noexcept {
        const sched::unstoppable_section section;  // as in enter()
        const bool last = mutex_.end_use();
        if (last) closer_.store(section.goroutine_here(), std::memory_order_relaxed);
        return last;
    }
    void close_now() noexcept;
    // Queues n until it may enter. Called inside the runtime, after prepare(). go_on: call enter() again.
    queued queue_to_enter(direction d, poll_node* n) noexcept;
    void forget_entering(direction d, poll_node* n) noexcept;

    // ---- readiness
    std::uint32_t edges(direction d) const noexcept { return side_[index(d)].edges.load(std::memory_order_acquire); }
    bool is_drained(direction d, std::uint32_t seen) const noexcept {
        return side_[index(d)].drained.load(std::memory_order_relaxed) == seen;
    }
    void note_drained(direction d, std::uint32_t seen) noexcept {
        side_[index(d)].drained.store(seen, std::memory_order_relaxed);
    }
    // After a short read: is it certain that nothing is left? Relaxed suffices: a thread that has seen the edge sees
    // peer_closed_ too, because edges() acquires what the poller wrote before the edge.
    bool short_read_drains() const noexcept {
        return short_read_drains_ && !peer_closed_.load(std::memory_order_relaxed);
    }
    bool is_plain_stream() const noexcept { return short_read_drains_; }  // whose short reads drain
    void set_short_reads_drain() noexcept { short_read_drains_ = true; }  // before any other thread knows it

    // Queues n for an edge other than `seen`. Called inside the runtime, after prepare(). go_on: there is such an edge,
    // or the deadline is no longer `deadline_ns`.
    queued queue_for_edge(direction d, std::uint32_t seen, std::int64_t deadline_ns, poll_node* n) noexcept;
    void forget_edge(direction d, poll_node* n) noexcept;
    // Queues n, of a writer, until the descriptor is closed or has another deadline for writes than `deadline_ns`: for
    // a wait that edges do not end. Called inside the runtime, after prepare().
    queued queue_to_pause(std::int64_t deadline_ns, poll_node* n) noexcept;
    void forget_pause(poll_node* n) noexcept;
    // Called by the poller: appends the waiters that it must wake to a chain.
    void edge(const sched::polled_event& event, park::wait_node**& end) noexcept;
    // Prefetch the memory that edge() will touch: the record, then, once that is in the cache, its first waiter. A
    // guess, since the lock is not held.
    void prefetch() const noexcept {
        for (std::size_t at = 0; at < sizeof *this; at += platform::cache_line) {
            platform::prefetch(reinterpret_cast<const std::byte*>(this) + at);
        }
    }
    void prefetch_waiter() const noexcept {
        if (const park::wait_node* n = side_[index(direction::read)].waiting.peek()) platform::prefetch(n);
    }

    // ---- deadlines, in ns of the monotonic clock
    std::int64_t deadline_ns(direction d) const noexcept {
        return side_[index(d)].deadline_ns.load(std::memory_order_relaxed);
    }
    void set_deadline(direction d, std::int64_t deadline_ns) noexcept;

    // The number of waiters for an edge, on all descriptors. Never too small; exact while no waiter comes or goes.
    static std::int64_t waiter_count() noexcept;
    static bool has_waiters() noexcept { return waiter_count() > 0; }
    static fd_record* of_tag(std::uint64_t tag) noexcept;
    // The number of waiters for an edge on the descriptor with this tag; 0 if it is closed. Called inside the runtime.
    static std::int64_t waiters_of(std::uint64_t tag) noexcept;
    // Takes frozen goroutines off the queues, and leaves the fd mutex for those that are in it. Other threads may run
    // or stand still. Called by a thread without a machine.
    static void forget_frozen() noexcept;
    static std::size_t open_count() noexcept { return open_descriptors.load(std::memory_order_relaxed); }

    // For the layers above: the kind of file, and its name (or null). Constant once other threads know the record; the
    // name lives as long as this use of the record.
    std::uint8_t kind = 0;
    descriptor_name* name = nullptr;

private:
    friend struct record_store;
    static constexpr std::uint32_t first_edge = platform::counter_start<std::uint32_t>();
    struct side {
        platform::atomic<std::uint32_t> edges{first_edge + 1};  // written under the lock
        platform::atomic<std::uint32_t> drained{first_edge};    // written by the operation that has tried
        platform::atomic<std::int64_t> deadline_ns{no_deadline_ns};
        // The goroutine that is in: written by itself, or by the one that left and let it in. Null: a thread is in,
        // or nothing is. Relaxed: other threads use it only for frozen goroutines, which have
        // stored it before they were frozen.
        platform::atomic<sched::goroutine*> holder{nullptr};
        park::wait_queue waiting;               // lock: waiters for an edge
        park::wait_queue entering;              // lock: those that wait until they may enter
    };
    static constexpr unsigned index(direction d) noexcept { return static_cast<unsigned>(d); }
    static fd_record* take_record(int fd, bool pollable) noexcept;
    std::uint64_t tag() const noexcept;
    // False: others wait; the caller is still in, and must call let_next_in().
    bool try_leave(direction d, bool& last) noexcept {
        const sched::unstoppable_section section;  // as in enter()
        side_[index(d)].holder.store(nullptr, std::memory_order_relaxed);
        if (mutex_.leave(d, last)) [[likely]] {
            if (last) closer_.store(section.goroutine_here(), std::memory_order_relaxed);
            return true;
        }
        // this goroutine may be frozen after this, while it is in
        side_[index(d)].holder.store(section.goroutine_here(), std::memory_order_relaxed);
        return false;
    }
    bool let_next_in(direction d) noexcept;
    static void take_waiting(park::wait_queue& q, park::wait_node**& end) noexcept;
    static void forget_frozen_in(park::wait_queue& q) noexcept;
    static void take_entering(side& s, park::wait_node**& end) noexcept;
    bool begin_to_close() noexcept;
    void wake_all_waiters() noexcept;
    void finish_close_of_frozen() noexcept;
    void wait_until_closed() noexcept;
    void drop_hold() noexcept;
    void give_back_record() noexcept;
    void forget_frozen_here() noexcept;

    inline static platform::atomic<std::size_t> open_descriptors{0};

    fd_mutex mutex_;
    platform::atomic<int> fd_{-1};
    side side_[2];
    platform::ranked_lock<platform::lock_rank::descriptor> lock_;
    platform::atomic<bool> peer_closed_{false};  // written by the poller, before it counts the edge
    bool short_read_drains_ = false;         // constant while open
    bool pollable_ = false;                 // constant while open
    bool fd_closed_ = false;                // lock
    // Lock: how often the record has been used, for the tag.
    std::uint16_t use_number_ = platform::counter_start<std::uint16_t>();
    // the handle and the open descriptor each hold the record; the last to let go gives it back
    platform::atomic<std::uint8_t> holds_{0};
    park::wait_queue closers_;              // lock: waiters in close()
    // The goroutine that has ended the last use, and closes the descriptor. Null: none, or a thread. Relaxed, as
    // side::holder.
    platform::atomic<sched::goroutine*> closer_{nullptr};
    park::wait_queue pausing_;              // lock: writers that edges do not wake
    fd_record* next_free_ = nullptr;       // the store's
};

// A use of the descriptor from construction to destruction, for a few system calls that do not wait. It is not lost
// with a goroutine: nothing stops the goroutine meanwhile, and it must not enter the runtime. If its run() has ended,
// it goes no further than the end of this.
class brief_use {
public:
    explicit brief_use(fd_record* d) noexcept : section_(std::in_place), d_(d != nullptr && d->use() ? d : nullptr) {}
    ~brief_use() {
        const bool last = d_ != nullptr && d_->count_use_ended();
        section_.reset();
        if (last) d_->close_now();
        const park::runtime_section inside;
    }
    brief_use(const brief_use&) = delete;
    brief_use& operator=(const brief_use&) = delete;
    explicit operator bool() const noexcept { return d_ != nullptr; }

private:
    std::optional<sched::unstoppable_section> section_;
    fd_record* d_;
};

}  // namespace dunlin::netpoll
