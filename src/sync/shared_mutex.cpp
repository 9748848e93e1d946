// shared_mutex.cpp - many readers or one writer.
//
// Data       word_ = a writer has it | there are waiters | readers. Readers and writers wait in one queue of the
//            parking lot, in the order in which they came.
// Invariant  The bit "waits" is set exactly while the queue has a node; both change under the bucket's lock only.
// Frozen     The nodes of goroutines whose run() has returned count as nodes until a caller that the bit keeps out
//            finds no others: it takes them off, and the bit is gone for it. They cannot be taken off earlier, since
//            the object may be gone by the end of the run.
// Protocol   A caller that can take the mutex with the bit clear does so by one CAS. Otherwise: lock the bucket; CAS
//            again, which takes the mutex or sets the bit; queue. An unlock that leaves it free with the bit set locks
//            the bucket first, chooses which waiters get it next, and stores the word for them: a woken waiter has it.
//            After a writer: all readers that wait, else the first writer. After the last reader: the first writer,
//            else all readers. A writer that gives up lets in the readers that waited behind it, up to the next writer.
// Proof      (no waiter is forgotten) The bit and the count are one word: a CAS that frees the mutex has seen the bit
//            clear, so no waiter was queued. A caller that comes to queue after this CAS sees the mutex free. (no
//            starvation) Readers that come while a writer waits queue behind the bit; they get in after that writer,
//            and before the next, because a writer's unlock takes the readers first.
// Lifetime   The store of the word is the last access to the object; the unlock of the bucket comes after it, but the
//            bucket is not the object's.
// Source     Go 1.24 sync/rwmutex.go for the rules. Differs: hands over under a lock instead of by counting departures.
// Tests      tests/sync/shared_mutex_test.cpp
#include <dunlin/shared_mutex.hpp>

#include "platform/clock.h"
#include "sched/preempt/crash.h"
#include "sync/lot_wait.h"

namespace dunlin::inline v0_1 {

using detail::wait_outcome;
using park::lot_kind;
using park::lot_node;

// The queue of one shared_mutex, with its bucket locked.
struct shared_mutex::queue {
    shared_mutex& object;
    park::lot_bucket& bucket;

    // Takes off all readers that can still be claimed, or only those before the first writer that a wake would still
    // reach. Returns how many.
    std::uint32_t admit_readers(park::wake_chain& chain, bool up_to_a_writer = false) noexcept {
        std::uint32_t count = 0;
        for (lot_node* n = bucket.front(&object); n != nullptr;) {
            lot_node* const next = n->after();
            if (up_to_a_writer && n->kind == lot_kind::writer && !n->owner->is_frozen()) break;
            if (n->kind == lot_kind::reader) {
                bucket.remove(n);
                if (n->claim()) {
                    chain.add(n);
                    ++count;
                }
            }
            n = next;
        }
        return count;
    }

    bool admit_writer(park::wake_chain& chain) noexcept {
        for (lot_node* n = bucket.front(&object); n != nullptr;) {
            lot_node* const next = n->after();
            if (n->kind == lot_kind::writer) {
                bucket.remove(n);
                if (n->claim()) {
                    chain.add(n);
                    return true;
                }
            }
            n = next;
        }
        return false;
    }

    // No holder is left. Release: for later callers; the waiters in the chain are woken.
    park::wait_node* pass_on(role from) noexcept {
        park::wake_chain chain;
        std::uint32_t word = 0;
        if (from == writer) word = admit_readers(chain);
        if (word == 0 && admit_writer(chain)) word = written;
        if (word == 0) word = admit_readers(chain);
        if (bucket.any(&object)) word |= waited;
        // Acquire: the next holder sees what all readers before this one did.
        object.word_.exchange(word, std::memory_order_acq_rel);
        return chain.first();
    }

    // What is set in the word although no waiter is left. Takes frozen waiters off, if there are no others.
    std::uint32_t stale() noexcept { return bucket.any(&object) ? 0 : waited; }

    // A waiter has given up.
    park::wait_node* given_up() noexcept {
        park::wake_chain chain;
        std::uint32_t more = 0;
        if ((object.word_.load(std::memory_order_relaxed) & written) == 0) more = admit_readers(chain, true);
        const bool empty = !bucket.any(&object);
        // Readers may leave meanwhile, but not the last one as long as the bit is set; the bit is cleared in the same
        // step in which the new readers are counted.
        std::uint32_t word = object.word_.load(std::memory_order_relaxed), next;
        do {
            next = (word + more) & ~(empty ? waited : 0u);
        } while (!object.word_.compare_exchange_weak(word, next, std::memory_order_acq_rel, std::memory_order_relaxed));
        return chain.first();
    }
};

wait_outcome shared_mutex::wait(role r, const detail::wait_limit* limit, const std::source_location& where) {
    detail::pass_simulation();
    if (r == writer ? try_lock() : try_lock_shared()) return wait_outcome::ok;
    if (detail::cancelled_already(limit)) return wait_outcome::cancelled;
    if (detail::is_past(limit)) return wait_outcome::timed_out;
    park::waiter w;
    park::lock_node n(&w, this, r == writer ? lot_kind::writer : lot_kind::reader, limit != nullptr);
    n.serve = [](park::lot_bucket& bucket, const void* object) noexcept {
        return queue{*const_cast<shared_mutex*>(static_cast<const shared_mutex*>(object)), bucket}.given_up();
    };
    if (park::counts_unlocks()) n.queued_ns = platform::now_ns();
    park::lot_bucket& b = park::bucket_of(this);
    w.enter();
    b.lock.lock();
    const std::uint32_t stale = queue{*this, b}.stale();
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    for (;;) {
        const std::uint32_t holders = word & ~stale;
        const bool free = r == writer ? holders == 0 : holders < most_readers;
        const std::uint32_t next = !free ? word | waited : r == writer ? written : holders + 1;
        if (!word_.compare_exchange_weak(word, next, std::memory_order_acq_rel, std::memory_order_relaxed)) continue;
        if (!free) break;
        b.lock.unlock();
        w.leave();
        return wait_outcome::ok;
    }
    b.announce();
    w.prepare(r == writer ? sched::wait_reason::rwmutex_lock : sched::wait_reason::rwmutex_rlock, where);
    b.push_back(&n);
    b.lock.unlock();
    return detail::wait_in_lot(b, n, w, limit, [this, &b]() noexcept { return queue{*this, b}.given_up(); });
}

// If those that wait are all frozen, a reader passes no writer.
bool shared_mutex::take_share_beside_leftovers() noexcept {
    const std::uint32_t seen = word_.load(std::memory_order_relaxed);
    if ((seen & written) != 0 || (seen & waited) == 0) return false;
    // In a simulation always: what an execution has left must not change the number of decisions in the next.
    const bool some_left = sched::the_scheduler.forgotten.load(std::memory_order_relaxed) != 0;
    if (!some_left && sched::steered() == nullptr) return false;
    park::runtime_section inside;
    park::lot_bucket& b = park::bucket_of(this);
    b.lock.lock();
    const std::uint32_t stale = queue{*this, b}.stale();
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    bool taken = false;
    while (!taken && (word & ~stale) < most_readers) {
        taken = word_.compare_exchange_weak(
            word, (word & ~stale) + 1, std::memory_order_acquire, std::memory_order_relaxed);
    }
    b.lock.unlock();
    return taken;
}

void shared_mutex::unlock_slow() {
    if ((word_.load(std::memory_order_relaxed) & written) == 0) sched::report_misuse("unlock of unlocked shared_mutex");
    park::unlock_charge charge;
    park::runtime_section inside;
    park::lot_bucket& b = park::bucket_of(this);
    b.lock.lock();
    charge.add(b, this);
    park::wait_node* const chain = queue{*this, b}.pass_on(writer);
    b.lock.unlock();
    park::wake_all(chain);
}

void shared_mutex::unlock_shared_slow() {
    const std::uint32_t seen = word_.load(std::memory_order_relaxed);
    if ((seen & written) != 0 || (seen & readers) == 0) sched::report_misuse("unlock_shared of unlocked shared_mutex");
    park::unlock_charge charge;
    park::runtime_section inside;
    park::lot_bucket& b = park::bucket_of(this);
    park::wait_node* chain = nullptr;
    b.lock.lock();
    // Meanwhile others may have come (after the waiter has given up) or gone.
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    for (;;) {
        if ((word & waited) != 0 && (word & readers) == 1) {
            charge.add(b, this);
            chain = queue{*this, b}.pass_on(reader);
            break;
        }
        if (word_.compare_exchange_weak(word, word - 1, std::memory_order_release, std::memory_order_relaxed)) break;
    }
    b.lock.unlock();
    park::wake_all(chain);
}

shared_mutex::~shared_mutex() {
    if (DUNLIN_UNLIKELY(word_.load(std::memory_order_relaxed) != 0)) {
        park::check_no_waiters(this, "a shared_mutex is destroyed while goroutines wait for it");
        // On a plain thread it may be a static object at the end of the process, whose holder is frozen.
        if (sched::current_goroutine() != nullptr) {
            sched::report_misuse("a shared_mutex is destroyed while it is locked");
        }
    }
}

}  // namespace dunlin
