// parking_lot.h - where waiters for a mutex, a semaphore, a latch ... stand in line: outside the objects, keyed by the
// objects' addresses.
//
// Problem    It must be legal to destroy an object as soon as one's own lock(), acquire() or wait() has returned, while
//            the other party is still inside its unlock() or release(). So a waker must not touch the object after it
//            has let another go on, not even to look whether there is a sleeper.
// Data       A table of buckets; an object's address chooses one. A bucket has a lock and a queue for each address that
//            is waited for, first come first served. The front node of a queue is also a node of the bucket's list of
//            addresses, so finding a queue is linear in the number of addresses waited for in the bucket, and
//            everything else is O(1). A node stands on the stack of its waiter.
// Alive      While a node of an address is linked, and the bucket's lock held, the object is alive: its waiter has not
//            returned, and must take this lock before it does, or be woken by the waker that takes the node off. So a
//            waker that has found a node may look at the object, if the node's kind says what it is: there may be
//            another object at the address since the waker released its own.
// Protocol   wake                                              wait
//            A1  change the object's word (seq_cst)            B1  lock the bucket
//            A2  bucket.waiting == 0 (seq_cst): done           B2  announce(): waiting += 1 (seq_cst)
//            A3  lock the bucket, take nodes, unlock, wake     B3  the word says that there is nothing to wait for:
//                                                                  retract(), out
//                                                              B4  push, unlock, wait
// Proof      A1, A2, B2 and B3 are in one total order. A2 before B2: A1 is before B3, which sees it. B2 before A2: A3
//            follows, and takes the lock after B4. A primitive whose word has a bit for "there are waiters", changed
//            under the bucket's lock only, needs no A2 (group_counter, shared_mutex); the mutex, which has no locked
//            instruction in its unlock, has `watched` instead (sync/mutex.cpp).
// Frozen     Nodes of goroutines whose run() has returned stay linked. They are taken off when they are met at the
//            front of a queue; and at the end of their run(), if one that is not frozen waits in the same queue, and
//            its kind can go on without them (lot_node::serve).
// Source     WebKit's ParkingLot (Pizlo, "Locking in WebKit"); Go's semaTable, runtime/sema.go.
// Tests      tests/sync/, tests/model/mutex_model_test.cpp
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstdint>

#include "park/waiter.h"
#include "platform/cpu.h"
#include "platform/lock.h"
#include "platform/simulated.h"

namespace dunlin::inline v0_1::park {

enum class lot_kind : std::uint8_t { mutex, reader, writer, condition, semaphore, group, barrier, event, weighted };

class lot_bucket;

struct lot_node : wait_node {
    lot_node(waiter* w, const void* object, lot_kind k, bool limited) noexcept : wait_node(w), address(object),
        kind(k) {
        several = limited;
        if (w->goroutine() != nullptr) w->goroutine()->set_waits_for(object);
    }

    lot_node* after() const noexcept { return static_cast<lot_node*>(next); }

    const void* const address;
    const lot_kind kind;
    bool granted = false;                // set by the waker: the waiter has what it waits for
    bool starving = false;               // mutex: it has waited so long that the next unlock hands over to it
    platform::atomic<std::uint8_t> state{0};  // condition variable: see there
    // Constant while linked; null: nothing to do. When goroutines have been frozen, those that wait behind them may be
    // able to go on: called under the bucket's lock, when frozen waiters have been taken off the queue and this one is
    // left. Returns a chain of those to be woken.
    wait_node* (*serve)(lot_bucket& b, const void* object) noexcept = nullptr;
    std::uint64_t value = 0;             // mutex: the waiter's mark as an owner; barrier: the phase it waits for

    // Valid in the front of a queue, under the bucket's lock.
    lot_node* next_address = nullptr;
    lot_node* prev_address = nullptr;
    lot_node* last = nullptr;
};

// A waiter for a mutex, or for a shared_mutex as reader or writer.
struct lock_node : lot_node {
    using lot_node::lot_node;
    std::int64_t queued_ns = 0;  // constant while linked; 0: not known
};

class alignas(64) lot_bucket {
public:
    constexpr lot_bucket() noexcept = default;

    platform::ranked_lock<platform::lock_rank::parking_lot> lock;
    platform::atomic<std::uint32_t> waiting{0};  // lock to write; wakers look. Counts announced nodes
    platform::atomic<std::uint32_t> watched{0};  // lock to write. 1: unlocks of mutexes take it (sync/mutex.cpp)
    std::uint32_t idle_looks = 0;           // lock: how many of them in a row found no waiter

    std::int64_t charged_ns = 0;            // lock: of the last unlock here that was charged (contention.h)
    const void* charged_address = nullptr;  // lock: and of what

    // All under the lock. ---------------------------------------------------------------------------------------------

    void announce() noexcept { waiting.fetch_add(1, std::memory_order_seq_cst); }
    // writers have the lock
    void retract() noexcept { waiting.store(waiting.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed); }

    // The waiter that has waited longest for `address`; null: none.
    lot_node* front(const void* address) noexcept;
    // Is there a waiter that a wake would still reach?
    bool any(const void* address) noexcept;
    bool any(lot_kind kind) const noexcept;

    // n was announced.
    void push_back(lot_node* n) noexcept;
    void push_front(lot_node* n) noexcept;
    // n is linked. Takes back its announcement.
    void remove(lot_node* n) noexcept;

    // Takes off and claims the first node that no other waker has claimed. The caller wakes it after the unlock.
    lot_node* pop_claimed(const void* address) noexcept;
    // The node of g in this bucket; null: none.
    const lot_node* find(const sched::goroutine* g) const noexcept;
    // f(node) for each node in this bucket.
    template <class F>
    void for_each(F f) const noexcept {
        for (const lot_node* first = first_; first != nullptr; first = first->next_address) {
            for (const lot_node* n = first; n != nullptr; n = n->after()) f(*n);
        }
    }
    // contention.h: what an unlock is charged with. The waiters for `address` are lock_nodes.
    std::int64_t charge(const void* address, std::int64_t now_ns) noexcept;
    // All such nodes, in order, for wake_all().
    wait_node* take_all(const void* address) noexcept;
    // See Frozen. Returns a chain for wake_all().
    wait_node* pass_over_frozen() noexcept;

private:
    lot_node* find(const void* address) const noexcept;
    void link_address(lot_node* n) noexcept;
    void unlink_address(lot_node* n) noexcept;
    void replace_front(lot_node* old_front, lot_node* new_front) noexcept;

    lot_node* first_ = nullptr;  // lock
};

// On virtual threads each look at a bucket is a step: few, for the calls that look through the whole lot.
inline constexpr unsigned lot_bits = platform::may_be_simulated ? 6 : 14;
// Constant-initialised, never destroyed. A page that no address has fallen into costs nothing.
DUNLIN_HIDDEN extern lot_bucket the_lot[1u << lot_bits];

inline lot_bucket& bucket_of(const void* address) noexcept {
    return the_lot[(reinterpret_cast<std::uintptr_t>(address) * 0x9E3779B97F4A7C15u) >> (64 - lot_bits)];
}

// For the destructor of an object: reports misuse if there is a waiter for it.
void check_no_waiters(const void* address, const char* report) noexcept;

// Called when a run() has ended and has left goroutines: others that wait behind them go on, if they can.
void pass_over_frozen() noexcept;

// What g waits for in the parking lot; null: nothing. For reports: looks through the whole lot, which takes tens of
// microseconds.
const void* object_waited_for(const sched::goroutine* g) noexcept;

// For reports: f(node) for each node in the parking lot, under its bucket's lock.
template <class F>
void for_each_in_lot(F f) noexcept {
    for (lot_bucket& b : the_lot) {
        if (b.waiting.load(std::memory_order_relaxed) == 0) continue;
        b.lock.lock();
        b.for_each(f);
        b.lock.unlock();
    }
}

// To build a chain for wake_all().
class wake_chain {
public:
    void add(wait_node* n) noexcept {
        n->next = nullptr;
        *end_ = n;
        end_ = &n->next;
    }
    wait_node* first() const noexcept { return first_; }

private:
    wait_node* first_ = nullptr;
    wait_node** end_ = &first_;
};

}  // namespace dunlin::park
