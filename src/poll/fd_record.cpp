#include "poll/fd_record.h"

#include <dunlin/detail/atomic.hpp>

#include <cerrno>
#include <mutex>
#include <new>
#include <unistd.h>
#include <utility>

#include "platform/clock.h"
#include "platform/memory.h"
#include "platform/syscall.h"
#include "poll/backend.h"
#include "poll/netpoll.h"
#include "poll/simulated.h"
#include "sched/data/wait_reason.h"
#include "stack/sanitizer.h"
#include "timer/timers.h"
#include "sched/machines/event_notice.h"

namespace dunlin::inline v0_1::netpoll {

void close_number(int fd) noexcept {
    if (fd < 0) return;
    if (is_simulated(fd)) [[unlikely]] {
        on_simulated([=](simulated_sockets& s) -> long { return s.close(fd), 0; });
        return;
    }
    if constexpr (stack::thread_sanitizing) {
        ::close(fd);
    } else {
        platform::raw_syscall(SYS_close, fd);
    }
}

// ---- records --------------------------------------------------------------------------------------------------------

struct record_store {
    static constexpr unsigned per_slab = 64;
    struct slab {
        fd_record records[per_slab];
        slab* next = nullptr;
    };
    platform::ranked_lock<platform::lock_rank::descriptors> lock;
    slab* slabs = nullptr;        // lock; `next` is constant
    fd_record* free = nullptr;   // lock

    fd_record* take() noexcept {
        park::runtime_section inside;
        std::scoped_lock guard(lock);
        if (free == nullptr && !add_slab()) return nullptr;
        fd_record* d = free;
        free = d->next_free_;
        return d;
    }
    void put(fd_record* d) noexcept {
        park::runtime_section inside;
        std::scoped_lock guard(lock);
        d->next_free_ = free;
        free = d;
    }
    bool add_slab() noexcept {
        // Mapped memory: a holder of this lock must not wait for malloc's locks.
        void* memory = platform::reserve(sizeof(slab), alignof(slab));
        if (memory == nullptr) return false;
        // names are reachable through these records only
        if constexpr (stack::sanitizing) stack::count_as_reachable(memory, sizeof(slab));
        slab* s = new (memory) slab;
        s->next = slabs;
        slabs = s;
        for (unsigned i = per_slab; i-- > 0;) {
            s->records[i].next_free_ = free;
            free = &s->records[i];
        }
        return true;
    }
};

namespace {

constinit record_store records;

// The low 6 bits of a record's address are zero, and so are the high 16 on the machines that we run on.
constexpr unsigned address_bits = 48;

}  // namespace

std::uint64_t fd_record::tag() const noexcept {
    return reinterpret_cast<std::uintptr_t>(this) | std::uint64_t{use_number_}
    << address_bits;
}

fd_record* fd_record::of_tag(std::uint64_t tag) noexcept {
    return reinterpret_cast<fd_record*>(static_cast<std::uintptr_t>(tag & ((std::uint64_t{1} << address_bits) - 1)));
}

fd_record* fd_record::take_record(int fd, bool pollable) noexcept {
    fd_record* d = records.take();
    if (d == nullptr) return nullptr;
    park::runtime_section inside;
    std::scoped_lock guard(d->lock_);
    ++d->use_number_;
    for (side& s : d->side_) {
        s.edges.store(first_edge + 1, std::memory_order_relaxed);
        s.drained.store(first_edge, std::memory_order_relaxed);
        s.deadline_ns.store(no_deadline_ns, std::memory_order_relaxed);
    }
    d->peer_closed_.store(false, std::memory_order_relaxed);
    d->short_read_drains_ = false;
    d->pollable_ = pollable;
    d->fd_closed_ = false;
    d->closer_.store(nullptr, std::memory_order_relaxed);
    d->kind = 0;
    d->holds_.store(2, std::memory_order_relaxed);
    d->fd_.store(fd, std::memory_order_relaxed);
    d->mutex_.reopen();
    open_descriptors.fetch_add(1, std::memory_order_relaxed);
    return d;
}

namespace {

// The kernel's answers do not come from the seed.
void tell_simulation(int fd) noexcept {
    sched::steering* s = sched::steered();
    if (s != nullptr && !is_simulated(fd) && sched::current_machine() != nullptr)
        s->outside("a file, pipe or process of the kernel's");
}

}  // namespace

fd_record* fd_record::open_blocking(int fd) noexcept {
    tell_simulation(fd);
    return take_record(fd, false);
}

fd_record* fd_record::open(int fd, int& error) noexcept {
    tell_simulation(fd);
    error = start_polling();
    if (error != 0) return nullptr;
    fd_record* d = take_record(fd, true);
    if (d == nullptr) {
        error = ENOMEM;
        return nullptr;
    }
    error = add_fd(fd, d->tag());
    if (error == EPERM) {
        d->pollable_ = false;
        error = 0;
    }
    if (error == 0) return d;
    d->pollable_ = false;
    d->give_back_fd();
    return nullptr;
}

void fd_record::give_back_fd() noexcept {
    if (pollable_) remove_fd(fd());
    mutex_.close();
    fd_.store(-1, std::memory_order_relaxed);
    open_descriptors.fetch_sub(1, std::memory_order_relaxed);
    give_back_record();
}

void fd_record::give_back_record() noexcept {
    delete std::exchange(name, nullptr);
    records.put(this);
}

void fd_record::drop_hold() noexcept {
    // Acquire-release: the thread that gives the record back sees the other holder's last use.
    if (holds_.fetch_sub(1, std::memory_order_acq_rel) == 1) give_back_record();
}

// ---- the way into the fd mutex --------------------------------------------------------------------------------------

// Lets a waiter in, in the caller's place. False: the caller is still in. Once the fd mutex is closed, no waiter is let
// in: close() has closed it, but may not have taken the lock yet; so the waiters are woken here as close() wakes them.
bool fd_record::let_next_in(direction d) noexcept {
    park::runtime_section inside;
    park::wait_node* woken = nullptr;
    park::wait_node** end = &woken;
    poll_node* next = nullptr;
    lock_.lock();
    side& s = side_[index(d)];
    if (mutex_.closed()) {
        take_entering(s, end);
    } else {
        next = static_cast<poll_node*>(s.entering.pop_claimed());
    }
    if (s.entering.empty()) mutex_.clear_waiting(d);
    if (next != nullptr) {
        next->granted = true;  // it inherits our place in the fd mutex
        s.holder.store(next->owner->goroutine(), std::memory_order_relaxed);
    }
    *end = nullptr;
    lock_.unlock();
    park::wake_all(woken);
    if (next != nullptr) next->owner->wake();
    return next != nullptr;
}

void fd_record::take_entering(side& s, park::wait_node**& end) noexcept {
    while (park::wait_node* n = s.entering.pop_claimed()) {
        *end = n;
        end = &n->next;
    }
}

queued fd_record::queue_to_enter(direction d, poll_node* n) noexcept {
    std::scoped_lock guard(lock_);
    switch (mutex_.announce(d)) {
    case fd_mutex::entry::closed: return queued::closed;
    case fd_mutex::entry::in: return queued::go_on;
    case fd_mutex::entry::busy: break;
    }
    side_[index(d)].entering.push_back(n);
    return queued::yes;
}

void fd_record::forget_entering(direction d, poll_node* n) noexcept {
    park::runtime_section inside;
    std::scoped_lock guard(lock_);
    side& s = side_[index(d)];
    if (n->linked) s.entering.remove(n);
    if (s.entering.empty()) mutex_.clear_waiting(d);
}

// ---- how many wait --------------------------------------------------------------------------------------------------

namespace {

// Plain threads, the monitor, and machines without a processor count here. Others count on their processor, without a
// locked instruction.
platform::atomic<std::uint64_t> waits_elsewhere{0}, wakes_elsewhere{0};

sched::processor* processor_here() noexcept {
    sched::machine* m = sched::current_machine();
    return m != nullptr ? sched::processor_of(m) : nullptr;
}

void count_wait() noexcept {
    if (sched::processor* p = processor_here()) {
        p->counts.io_waits.add();
    } else {
        waits_elsewhere.fetch_add(1, std::memory_order_seq_cst);  // before the barrier of waiter_added()
    }
}

// Release pairs with the acquire loads in waiter_count(): the wait that this wake ends was counted earlier, under the
// descriptor's lock, so a thread that sees the wake sees the wait.
void count_wake() noexcept {
    if (sched::processor* p = processor_here()) {
        p->counts.io_wakes.add_last();
    } else {
        wakes_elsewhere.fetch_add(1, std::memory_order_release);
    }
}

}  // namespace

std::int64_t fd_record::waiter_count() noexcept {
    const sched::scheduler& s = sched::the_scheduler;
    const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
    // All wakes are read before all waits, wherever they were counted: otherwise the wake of a wait that begins and
    // ends in between would hide another wait that goes on.
    std::uint64_t wakes = wakes_elsewhere.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < made; ++i) wakes += s.processor_at(i)->counts.io_wakes.get_first();
    // This load comes after the heavy barrier of the machine that goes to sleep.
    std::uint64_t waits = waits_elsewhere.load(std::memory_order_seq_cst);
    for (std::uint32_t i = 0; i < made; ++i) waits += s.processor_at(i)->counts.io_waits.get();
    return static_cast<std::int64_t>(waits - wakes);
}

std::int64_t fd_record::waiters_of(std::uint64_t tag) noexcept {
    fd_record* d = of_tag(tag);
    std::scoped_lock guard(d->lock_);
    std::int64_t count = 0;
    if (d->tag() != tag || d->mutex_.closed()) return count;
    for (const side& s : d->side_) {
        for (const park::wait_node* n = s.waiting.front(); n != nullptr; n = n->next) ++count;
    }
    return count;
}

// ---- edges ----------------------------------------------------------------------------------------------------------

queued fd_record::queue_for_edge(direction d, std::uint32_t seen, std::int64_t deadline_ns, poll_node* n) noexcept {
    side& s = side_[index(d)];
    {
        std::scoped_lock guard(lock_);
        if (mutex_.closed()) return queued::closed;
        if (s.edges.load(std::memory_order_relaxed) != seen ||
            s.deadline_ns.load(std::memory_order_relaxed) != deadline_ns) {
            return queued::go_on;
        }
        s.waiting.push_back(n);
        count_wait();
    }
    // Not needed for a goroutine: its machine comes to the poller by itself, or, if it is wired, sends another
    // (retired_for_another() of sched/machines/event_notice.h).
    if (n->owner->goroutine() == nullptr) sched::waiter_added();
    return queued::yes;
}

void fd_record::forget_edge(direction d, poll_node* n) noexcept {
    park::runtime_section inside;
    std::scoped_lock guard(lock_);
    if (!n->linked) return;
    side_[index(d)].waiting.remove(n);
    count_wake();
}

queued fd_record::queue_to_pause(std::int64_t deadline_ns, poll_node* n) noexcept {
    std::scoped_lock guard(lock_);
    if (mutex_.closed()) return queued::closed;
    if (side_[index(direction::write)].deadline_ns.load(std::memory_order_relaxed) != deadline_ns) return queued::go_on;
    pausing_.push_back(n);
    count_wait();
    return queued::yes;
}

void fd_record::forget_pause(poll_node* n) noexcept {
    park::runtime_section inside;
    std::scoped_lock guard(lock_);
    if (!n->linked) return;
    pausing_.remove(n);
    count_wake();
}

// Under the lock: appends all waiters of a queue, claimed, to a chain.
void fd_record::take_waiting(park::wait_queue& q, park::wait_node**& end) noexcept {
    while (park::wait_node* n = q.pop_front()) {
        count_wake();
        if (!n->claim()) continue;
        *end = n;
        end = &n->next;
    }
}

void fd_record::edge(const sched::polled_event& event, park::wait_node**& end) noexcept {
    std::scoped_lock guard(lock_);
    if (tag() != event.tag || mutex_.closed()) return;
    if (event.what & peer_closed) peer_closed_.store(true, std::memory_order_relaxed);
    for (const direction d : {direction::read, direction::write}) {
        if (!(event.what & (d == direction::read ? readable : writable))) continue;
        side& s = side_[index(d)];
        // Release publishes peer_closed_.
        s.edges.store(s.edges.load(std::memory_order_relaxed) + 1, std::memory_order_release);
        take_waiting(s.waiting, end);
    }
}

void fd_record::set_deadline(direction d, std::int64_t deadline_ns) noexcept {
    park::runtime_section inside;
    side& s = side_[index(d)];
    park::wait_node* woken = nullptr;
    park::wait_node** end = &woken;
    lock_.lock();
    s.deadline_ns.store(deadline_ns, std::memory_order_relaxed);
    take_waiting(s.waiting, end);
    if (d == direction::write) take_waiting(pausing_, end);
    *end = nullptr;
    lock_.unlock();
    park::wake_all(woken);
}

// ---- the end --------------------------------------------------------------------------------------------------------

bool fd_record::begin_to_close() noexcept {
    bool last;
    {
        const park::runtime_section inside;  // no goroutine is lost with a close that has only begun
        if (!mutex_.close()) return false;
        wake_all_waiters();
        last = count_use_ended();
    }
    if (last) close_now();
    return true;
}

// The fd mutex is closed. Inside the runtime.
void fd_record::wake_all_waiters() noexcept {
    park::wait_node* woken = nullptr;
    park::wait_node** end = &woken;
    lock_.lock();
    for (side& s : side_) {
        take_waiting(s.waiting, end);
        take_entering(s, end);
    }
    take_waiting(pausing_, end);
    mutex_.clear_waiting(direction::read);
    mutex_.clear_waiting(direction::write);
    *end = nullptr;
    lock_.unlock();
    if (pollable_) remove_fd(fd());
    park::wake_all(woken);
}

bool fd_record::close() noexcept {
    if (!begin_to_close()) return false;
    if (pollable_) wait_until_closed();
    return true;
}

void fd_record::close_under_owner() noexcept { begin_to_close(); }

void fd_record::release() noexcept {
    if (!close() && pollable_) wait_until_closed();
    drop_hold();
}

// May run twice: the second time by the thread that takes the place of a goroutine that was frozen in it. That
// goroutine may go on for a while (let_lock_holder_go() of sched/preempt/frozen.cpp): it touches nothing, and is lost
// below.
void fd_record::close_now() noexcept {
    {
        const sched::unstoppable_section section;
        const sched::goroutine* g = section.goroutine_here();
        const bool replaced = g != nullptr && closer_.load(std::memory_order_relaxed) != g;
        const int fd = replaced ? -1 : fd_.exchange(-1, std::memory_order_relaxed);
        if (fd >= 0) {
            close_number(fd);
            open_descriptors.fetch_sub(1, std::memory_order_relaxed);
        }
    }
    {
        park::runtime_section inside;
        lock_.lock();
        fd_closed_ = true;
        closer_.store(nullptr, std::memory_order_relaxed);
        park::wait_node* woken = closers_.take_all();
        lock_.unlock();
        park::wake_all(woken);
    }
    drop_hold();
}

// A call under way is short, since it does not block; but its goroutine may have been frozen in the middle of it. So
// this wait has a limit.
void fd_record::wait_until_closed() noexcept {
    constexpr std::int64_t patience_ns = 2'000'000'000;
    park::waiter w;
    w.enter();
    lock_.lock();
    if (fd_closed_) {
        lock_.unlock();
        w.leave();
        return;
    }
    park::wait_node n(&w);
    n.several = true;
    closers_.push_back(&n);
    w.prepare(sched::wait_reason::io_close, std::source_location::current());
    lock_.unlock();
    timers::wait_until(w, platform::now_ns() + patience_ns);
    park::runtime_section inside;
    std::scoped_lock guard(lock_);
    if (n.linked) closers_.remove(&n);
}

void fd_record::forget_frozen_in(park::wait_queue& q) noexcept {
    park::wait_queue kept;
    while (park::wait_node* n = q.pop_front()) {
        if (n->owner->is_frozen()) {
            count_wake();
        } else {
            kept.push_back(n);
        }
    }
    q = kept;
}

namespace {

// `field` is read again: the first value may be from an earlier call of this goroutine. The acquire load of `state`
// pairs with the release in freeze_goroutine().
bool is_frozen_in(const platform::atomic<sched::goroutine*>& field) noexcept {
    const sched::goroutine* g = field.load(std::memory_order_relaxed);
    return g != nullptr && g->state.load(std::memory_order_acquire) == sched::goroutine_state::frozen &&
        field.load(std::memory_order_relaxed) == g;
}

}  // namespace

void fd_record::finish_close_of_frozen() noexcept {
    if (is_frozen_in(closer_)) close_now();
}

void fd_record::forget_frozen_here() noexcept {
    for (const direction d : {direction::read, direction::write}) {
        side& s = side_[index(d)];
        bool holder_is_frozen = false;
        {
            std::scoped_lock guard(lock_);
            forget_frozen_in(s.waiting);
            if (d == direction::write) forget_frozen_in(pausing_);
            holder_is_frozen = is_frozen_in(s.holder);
        }
        if (holder_is_frozen) leave(d);
    }
    finish_close_of_frozen();
}

void fd_record::forget_frozen() noexcept {
    // or two callers would leave for one holder
    static platform::ranked_lock<platform::lock_rank::registry> one_at_a_time;
    std::scoped_lock guard(one_at_a_time);
    // Only plain threads use the records of slabs that are added from now on.
    records.lock.lock();
    record_store::slab* s = records.slabs;
    records.lock.unlock();
    for (; s != nullptr; s = s->next) {
        for (fd_record& d : s->records) {
            if (d.fd() >= 0 || d.closer_.load(std::memory_order_relaxed) != nullptr) d.forget_frozen_here();
        }
    }
}

}  // namespace dunlin::netpoll
