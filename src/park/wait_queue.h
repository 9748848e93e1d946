// wait_queue.h - those who wait for one thing, first come first served. Intrusive; every operation is O(1); guarded by the thing's lock.
#pragma once

#include "park/waiter.h"
#include "sched/global_queue.h"

namespace dunlin::park {

class wait_queue {
public:
    bool empty() const noexcept { return head_ == nullptr; }

    void push_back(waiter* w) noexcept {
        w->next = nullptr;
        w->prev = tail_;
        (tail_ ? tail_->next : head_) = w;
        tail_ = w;
    }

    void push_front(waiter* w) noexcept {
        w->prev = nullptr;
        w->next = head_;
        (head_ ? head_->prev : tail_) = w;
        head_ = w;
    }

    waiter* pop_front() noexcept {
        waiter* w = head_;
        if (w != nullptr) remove(w);
        return w;
    }

    // w is on this queue.
    void remove(waiter* w) noexcept {
        (w->prev ? w->prev->next : head_) = w->next;
        (w->next ? w->next->prev : tail_) = w->prev;
        w->next = w->prev = nullptr;
    }

    // Everybody, in order, as a chain through `next`; the queue is empty then.
    waiter* take_all() noexcept {
        waiter* all = head_;
        head_ = tail_ = nullptr;
        return all;
    }

private:
    waiter* head_ = nullptr;
    waiter* tail_ = nullptr;
};

// Wakes a chain from take_all(). Goroutines are made ready together, and then as many threads woken as there is use for.
inline void wake_all(waiter* chain) noexcept {
    sched::goroutine_list ready;
    while (chain != nullptr) {
        waiter* next = chain->next;  // before the wake: afterwards the waiter is gone
        if (next == nullptr && ready.size == 0) {
            chain->wake();
        } else if (sched::goroutine* g = chain->goroutine()) {
            ready.push_back(g);
        } else {
            chain->wake();
        }
        chain = next;
    }
    sched::ready_all(ready);
}

}  // namespace dunlin::park
