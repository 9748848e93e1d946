// wait_queue.h - the waiters for one thing, first come first served. Intrusive; every operation is O(1); guarded by the
// thing's lock.
#pragma once

#include "park/waiter.h"
#include "sched/queues/global_queue.h"

namespace dunlin::inline v0_1::park {

class wait_queue {
public:
    bool empty() const noexcept { return head_ == nullptr; }
    wait_node* front() const noexcept { return head_; }
    // Without the lock: a node that may have been the first, for a prefetch.
    const wait_node* peek() const noexcept { return head_; }

    void push_back(wait_node* w) noexcept {
        wait_node* const before = tail_;
        w->linked = true;
        w->next = nullptr;
        w->prev = before;
        if (before != nullptr) {
            before->next = w;
        } else {
            head_ = w;
        }
        tail_ = w;
    }

    void push_front(wait_node* w) noexcept {
        w->linked = true;
        w->prev = nullptr;
        w->next = head_;
        wait_node* second = head_;
        (second ? second->prev : tail_) = w;
        head_ = w;
    }

    wait_node* pop_front() noexcept {
        wait_node* w = head_;
        if (w == nullptr) return nullptr;
        wait_node* second = w->next;
        head_ = second;
        (second ? second->prev : tail_) = nullptr;
        w->next = nullptr;  // w->prev is null: it was the first
        w->linked = false;
        return w;
    }

    // w is on this queue.
    void remove(wait_node* w) noexcept {
        wait_node* const before = w->prev;
        wait_node* const after = w->next;
        if (before != nullptr) {
            before->next = after;
        } else {
            head_ = after;
        }
        (after ? after->prev : tail_) = before;
        w->next = w->prev = nullptr;
        w->linked = false;
    }

    // Takes off and claims the first node that no other waker has claimed; null: there is none. The caller wakes it,
    // after it has unlocked.
    wait_node* pop_claimed() noexcept {
        while (wait_node* w = pop_front()) {
            if (w->claim()) return w;
        }
        return nullptr;
    }

    // Takes off and claims all nodes that no other waker has claimed, in order, as a chain through `next`. The queue is
    // empty then.
    wait_node* take_all() noexcept {
        wait_node* first = nullptr;
        wait_node** end = &first;
        while (wait_node* w = pop_claimed()) {
            *end = w;
            end = &w->next;
        }
        return first;
    }

private:
    sched::owned<wait_node*> head_;  // under the thing's lock, except for peek()
    wait_node* tail_ = nullptr;
};

// Wakes a chain from take_all(). Makes its goroutines ready, and then wakes as many threads as are of use; a long chain
// in parts: the first can run while the waker fetches the others, whose nodes lie on stacks that nothing has touched
// for long, and the scheduler lock is not held for long.
inline void wake_all(wait_node* chain) noexcept {
    constexpr std::size_t part = 256;
    sched::goroutine_list ready;
    while (chain != nullptr) {
        if (ready.size == part) sched::ready_all(ready);
        wait_node* next = chain->next;  // before the wake: afterwards the waiter is gone
        if (next == nullptr && ready.size == 0) {
            chain->owner->wake();
        } else if (sched::goroutine* g = chain->owner->goroutine()) {
            ready.push_back(g);
        } else {
            chain->owner->wake();
        }
        chain = next;
    }
    if (ready.size != 0) sched::ready_all(ready);
}

}  // namespace dunlin::park
