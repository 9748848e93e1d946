#include "poll/netpoll.h"

#include <dunlin/detail/atomic.hpp>

#include <cerrno>
#include <mutex>
#include <new>
#include <system_error>
#include <utility>

#include "park/parking_lot.h"
#include "park/wait_queue.h"
#include "platform/lock.h"
#include "poll/fd_record.h"
#include "poll/epoll.h"
#include "poll/simulated.h"
#include "sched/preempt/lifetime.h"
#include "sched/goroutines/goroutine.h"

namespace dunlin::inline v0_1::netpoll {

namespace {

platform::atomic<backend*> the_backend{nullptr};  // release/acquire publishes it; set once
platform::ranked_lock<platform::lock_rank::registry> making;
platform::atomic<void (*)() noexcept> also_forget{nullptr};

constexpr unsigned waiters_ahead = 4;

}  // namespace

int start_polling() noexcept {
    if (the_backend.load(std::memory_order_acquire) != nullptr) return 0;
    try {
        sched::start_runtime();
        park::runtime_section inside;
        std::unique_lock guard(making);
        if (the_backend.load(std::memory_order_relaxed) != nullptr) return 0;
        the_backend.store(new epoll_backend, std::memory_order_seq_cst);
    } catch (const std::system_error& e) {
        return e.code().value();
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
    // A machine that sleeps in the poller, until now on a futex, must sleep in the backend from now on. It reads the
    // pointer before it sleeps: either it has seen this backend, or it gets the interrupt.
    static_cast<poller*>(sched::the_scheduler.events)->interrupt();
    return 0;
}

void at_end_of_run(void (*forget)() noexcept) noexcept { also_forget.store(forget, std::memory_order_relaxed); }

constinit platform::atomic<int> adds_refused{0};

int add_fd(int fd, std::uint64_t tag) noexcept {
    if (is_simulated(fd)) [[unlikely]] {
        return static_cast<int>(-on_simulated([=](simulated_sockets& s) -> long { return s.add_fd(fd, tag), 0; }));
    }
    if (adds_refused.load(std::memory_order_relaxed) > 0) [[unlikely]] {
        const int left = adds_refused.fetch_sub(1, std::memory_order_relaxed);
        if (left > 0) return left % 2 != 0 ? ENOSPC : ENOMEM;
    }
    return the_backend.load(std::memory_order_acquire)->add(fd, tag);
}
void remove_fd(int fd) noexcept {
    if (is_simulated(fd)) return;  // its later events carry a tag that no open descriptor has
    the_backend.load(std::memory_order_acquire)->remove(fd);
}

bool poller::has_waiters() const noexcept { return fd_record::has_waiters(); }

unsigned poller::poll() noexcept {
    backend* b = the_backend.load(std::memory_order_acquire);
    if (b == nullptr) return 0;
    sched::event_batch found;
    found.count = b->wait(found.events, sched::event_batch::capacity, backend::do_not_wait);
    auto& polls = sched::the_scheduler.polls;  // a hint: two at once may count as one
    polls.store(polls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return found.count != 0 ? deliver(found) : 0;
}

void poller::wait(std::int64_t deadline_ns, sched::event_batch& found) noexcept {
    backend* b = the_backend.load(std::memory_order_seq_cst);
    if (b == nullptr) return timers_.wait(deadline_ns);
    found.count = b->wait(found.events, sched::event_batch::capacity, deadline_ns != 0 ? deadline_ns
        : backend::for_ever);
}

unsigned poller::deliver(const sched::event_batch& found) noexcept {
    park::wait_node* woken = nullptr;
    park::wait_node** end = &woken;
    // Each event needs three objects, each of which is found through the one before; with many descriptors none is in
    // the cache. So they are prefetched early.
    for (unsigned i = 0; i < found.count; ++i) fd_record::of_tag(found.events[i].tag)->prefetch();
    for (unsigned i = 0; i < found.count; ++i) {
        if (i + waiters_ahead < found.count) fd_record::of_tag(found.events[i + waiters_ahead].tag)->prefetch_waiter();
        fd_record::of_tag(found.events[i].tag)->edge(found.events[i], end);
    }
    *end = nullptr;
    for (const park::wait_node* n = woken; n != nullptr; n = n->next) {
        if (const sched::goroutine* g = n->owner->goroutine()) platform::prefetch(g);  // claimed: no other wakes it
    }
    sched::goroutine_list ready;
    unsigned count = 0;
    while (woken != nullptr) {
        park::wait_node* next = woken->next;  // before the wake: afterwards the waiter is gone
        if (sched::goroutine* g = woken->owner->goroutine()) {
            ready.push_back(g);
        } else {
            woken->owner->wake();
        }
        woken = next;
        ++count;
    }
    if (ready.size != 0) sched::ready_polled(ready);
    return count;
}

void poller::interrupt() noexcept {
    // Both: the machine that sleeps now may have gone to sleep before there was a backend.
    timers_.interrupt();
    if (backend* b = the_backend.load(std::memory_order_seq_cst)) b->interrupt();
}

void poller::forget_all() noexcept {
    timers_.forget_all();
    fd_record::forget_frozen();
    // It looks through the whole lot: not if no goroutine was left.
    const auto frozen = sched::the_scheduler.forgotten.load(std::memory_order_relaxed);
    if (std::exchange(frozen_before_, frozen) != frozen) park::pass_over_frozen();
    if (auto* forget = also_forget.load(std::memory_order_relaxed)) forget();
}

void poller::forget_lost() noexcept { fd_record::forget_frozen(); }

}  // namespace dunlin::netpoll
