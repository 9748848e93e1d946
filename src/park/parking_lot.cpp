// parking_lot.cpp - see parking_lot.h.
#include "park/parking_lot.h"

#include "park/wait_queue.h"
#include "sched/preempt/crash.h"

namespace dunlin::inline v0_1::park {

constinit lot_bucket the_lot[1u << lot_bits];

static_assert(sizeof(lot_bucket) == 64);

lot_node* lot_bucket::find(const void* address) const noexcept {
    lot_node* n = first_;
    while (n != nullptr && n->address != address) n = n->next_address;
    return n;
}

void lot_bucket::link_address(lot_node* n) noexcept {
    n->prev_address = nullptr;
    n->next_address = first_;
    if (first_ != nullptr) first_->prev_address = n;
    first_ = n;
}

void lot_bucket::unlink_address(lot_node* n) noexcept {
    (n->prev_address ? n->prev_address->next_address : first_) = n->next_address;
    if (n->next_address != nullptr) n->next_address->prev_address = n->prev_address;
}

void lot_bucket::replace_front(lot_node* old_front, lot_node* new_front) noexcept {
    new_front->prev_address = old_front->prev_address;
    new_front->next_address = old_front->next_address;
    new_front->last = old_front->last;
    (new_front->prev_address ? new_front->prev_address->next_address : first_) = new_front;
    if (new_front->next_address != nullptr) new_front->next_address->prev_address = new_front;
}

void lot_bucket::push_back(lot_node* n) noexcept {
    lock.assert_held();
    n->linked = true;
    n->next = nullptr;
    lot_node* const f = find(n->address);
    if (f == nullptr) {
        n->prev = nullptr;
        n->last = n;
        link_address(n);
        return;
    }
    n->prev = f->last;
    f->last->next = n;
    f->last = n;
}

void lot_bucket::push_front(lot_node* n) noexcept {
    lock.assert_held();
    lot_node* const f = find(n->address);
    if (f == nullptr) return push_back(n);
    n->linked = true;
    n->prev = nullptr;
    n->next = f;
    f->prev = n;
    replace_front(f, n);
}

void lot_bucket::remove(lot_node* n) noexcept {
    lock.assert_held();
    if (n->prev != nullptr) {
        n->prev->next = n->next;
        if (n->next != nullptr) {
            n->next->prev = n->prev;
        } else {
            find(n->address)->last = static_cast<lot_node*>(n->prev);
        }
    } else if (n->next != nullptr) {
        n->next->prev = nullptr;
        replace_front(n, n->after());
    } else {
        unlink_address(n);
    }
    n->next = n->prev = nullptr;
    n->linked = false;
    retract();
}

lot_node* lot_bucket::front(const void* address) noexcept {
    lock.assert_held();
    lot_node* n = find(address);
    while (n != nullptr && n->owner->is_frozen()) [[unlikely]] {
        lot_node* const next = n->after();
        remove(n);
        n = next;
    }
    return n;
}

bool lot_bucket::any(const void* address) noexcept { return front(address) != nullptr; }

bool lot_bucket::any(lot_kind kind) const noexcept {
    lock.assert_held();
    for (const lot_node* n = first_; n != nullptr; n = n->next_address) {
        if (n->kind == kind) return true;
    }
    return false;
}

const lot_node* lot_bucket::find(const sched::goroutine* g) const noexcept {
    for (const lot_node* f = first_; f != nullptr; f = f->next_address) {
        for (const lot_node* n = f; n != nullptr; n = n->after()) {
            if (n->owner->goroutine() == g) return n;
        }
    }
    return nullptr;
}

const void* object_waited_for(const sched::goroutine* g) noexcept {
    for (lot_bucket& b : the_lot) {
        if (b.waiting.load(std::memory_order_relaxed) == 0) continue;
        b.lock.lock();
        const lot_node* n = b.find(g);
        const void* object = n != nullptr ? n->address : nullptr;
        b.lock.unlock();
        if (object != nullptr) return object;
    }
    return nullptr;
}

lot_node* lot_bucket::pop_claimed(const void* address) noexcept {
    lock.assert_held();
    for (lot_node* n = find(address); n != nullptr;) {
        lot_node* const next = n->after();
        remove(n);
        if (n->claim()) return n;
        n = next;
    }
    return nullptr;
}

wait_node* lot_bucket::take_all(const void* address) noexcept {
    lock.assert_held();
    wake_chain chain;
    while (lot_node* n = pop_claimed(address)) chain.add(n);
    return chain.first();
}

namespace {

// The object is alive as long as one that is not frozen waits for it.
lot_node* first_that_lives(lot_node* n) noexcept {
    while (n != nullptr && n->owner->is_frozen()) n = n->after();
    return n;
}

}  // namespace

wait_node* lot_bucket::pass_over_frozen() noexcept {
    lock.assert_held();
    wait_node* woken = nullptr;
    wait_node** end = &woken;
    for (lot_node *front = first_, *next_front; front != nullptr; front = next_front) {
        next_front = front->next_address;
        // Those before it may have waited for another object, which was here before.
        lot_node* const lives = first_that_lives(front);
        if (lives == nullptr || lives->serve == nullptr) continue;
        for (lot_node *n = front, *next; n != nullptr; n = next) {
            next = n->after();
            if (n->owner->is_frozen()) remove(n);
        }
        *end = lives->serve(*this, lives->address);
        while (*end != nullptr) end = &(*end)->next;
    }
    return woken;
}

void pass_over_frozen() noexcept {
    runtime_section inside;
    for (lot_bucket& b : the_lot) {
        if (b.waiting.load(std::memory_order_relaxed) == 0) continue;
        b.lock.lock();
        wait_node* const woken = b.pass_over_frozen();
        b.lock.unlock();
        wake_all(woken);
    }
}

void check_no_waiters(const void* address, const char* report) noexcept {
    lot_bucket& b = bucket_of(address);
    if (b.waiting.load(std::memory_order_relaxed) == 0) return;
    // A static object of a copy of the library that does not work (platform/usable.h).
    if (platform::not_in_this_process.load(std::memory_order_relaxed) != nullptr) return;
    bool waited;
    {
        runtime_section inside;
        b.lock.lock();
        waited = b.any(address);
        b.lock.unlock();
    }
    if (waited) sched::report_misuse(report);
}

}  // namespace dunlin::park
