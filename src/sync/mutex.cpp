// mutex.cpp - a lock whose unlock is a plain store, and whose queue is not in the object.
//
// Problem    An uncontended lock and unlock should cost one locked instruction, not two; and after the store that frees
//            it, unlock() must not touch the mutex, which may be gone. Drepper's state "locked, with sleepers" in the
//            same word needs an exchange in unlock(); a second word beside it needs a look at the object afterwards. So
//            what unlock() looks at stands in the parking lot: bucket.watched, shared by all mutexes of a bucket.
// Data       word_    locked | woken: a waiter was taken off the queue and told to try; until it has, no other
//                     need be woken
//            watched  1: each unlock of a mutex of this bucket takes the bucket's lock. Sticky: cleared after
//                     `patience` unlocks that found no waiter for a mutex there
// Protocol   lock                                              unlock
//            L1  CAS, sets locked: have it                     U1  watched: U6
//            L2  spin a while                                  U2  owner = 0, word = 0 (release, a plain store)
//            L3  lock the bucket                               U3  light barrier (platform/membarrier.h)
//            L4  watched is 0: = 1, heavy barrier              U4  not watched: done
//            L5  CAS, sets locked: unlock the bucket, have it  U5  lock the bucket; a waiter of a mutex queues at this
//                (a woken waiter clears woken in either case)      address: the mutex is alive; CAS word 0 -> woken:
//            L6  queue (back, or front if it was woken),           take the first off; unlock; wake it
//                unlock the bucket, sleep                      U6  woken: owner = 0, CAS locked|woken -> woken
//            L7  granted: have it; else CAS as in L5; L3           (release): done
//                                                              U7  lock the bucket. The first is starving: it is the
//                                                                  owner now. Else take the first off, word = woken, or
//                                                                  there is none, word = 0; unlock; wake
// Proof      (that each queued waiter is woken) Let U be the unlock that ends the ownership that makes L5 fail. When L5
//            runs, watched has been 1 without a break since some L4, whose heavy barrier is complete: it was a fence in
//            U's thread. The fence falls before U's last look at watched (U1 or U4), which then sees 1, or after U4:
//            then U2 came before the fence and is visible to L5, which would not find this ownership.
//            So U comes to U5, U6 or U7; U5 and U7 are under the bucket's lock and so after L6 (L4 to L6 are in one
//            section). There U wakes the first waiter. Or it finds, in one step with its release, that a woken waiter
//            is on its way: then that waiter's L5 is still to come, and finds the mutex free, or locked by another
//            holder, whose unlock comes to U5, U6 or U7 as well. Or U5 finds the mutex locked or woken by then, and the
//            same holds. `watched` is cleared under the bucket's lock and only while no mutex has a queue, so never
//            between an L4 or L5 and the wake.
//            (that U2 overwrites nothing) Only an unlock that releases the mutex (U7), or finds it free (U5), sets
//            woken. U2 may wipe woken out if `watched` was cleared since: then one waiter more than necessary may be
//            woken.
// Frozen     A woken waiter whose run() has returned never tries. woken_in_ says in which run it was woken, and at the
//            end of a run() the first of those that still wait is woken in its place (lot_node::serve).
// Fairness   Normally, callers that are awake may pass waiters. A waiter that loses the race after a wake goes to the
//            front; if it has waited for a millisecond by then, it is starving, and the next unlock hands over to it.
// Lifetime   The stores of U2 and U7, and the CAS of U6, are the last accesses to the object by an unlock that has not
//            found a waiter. A waiter that was found, under the bucket's lock, keeps the object alive.
// Without    membarrier both barriers are real fences, and the pair costs two locked instructions.
// Rejected   One word with the flag (exchange in unlock): 4.3 ns more. Direct hand-over always: a switch for each lock
//            under contention.
// Source     Go 1.24 sync/mutex.go for the modes; platform/lock.h for the barriers.
// Tests      tests/sync/mutex_test.cpp, tests/model/mutex_model_test.cpp
#include <dunlin/mutex.hpp>

#include "platform/membarrier.h"
#include "platform/simulated.h"
#include "platform/thread.h"
#include "platform/usable.h"
#include "sched/data/all_goroutines.h"
#include "sched/data/steering.h"
#include "sched/machines/handshake.h"
#include "sched/preempt/crash.h"
#include "sync/lot_wait.h"
#include "sync/mutex_holder.h"

namespace dunlin::inline v0_1 {

namespace {

using detail::wait_outcome;
using park::lot_bucket;
using park::lot_node;

constexpr std::int64_t starving_ns = 1'000'000;
constexpr std::uint32_t patience = 1000;
// Each look takes the word out of the cache of the CPU that works with the lock. Thirty looks a pause apart made eight
// goroutines on two processors three times as slow as three looks, or none.
constexpr platform::looks looks(3);
constexpr platform::looks pauses_between(40);

// The caller: a goroutine's number; a plain thread's mark has the highest bit, which no number reaches.
[[gnu::noinline]] std::uint64_t calling_thread() noexcept {
    platform::check_alone();
    return platform::thread_mark() | (std::uint64_t{1} << 63);
}
inline std::uint64_t caller() noexcept {
    const sched::goroutine* g = sched::current_goroutine();
    return g != nullptr ? g->id : calling_thread();
}

// In a simulation for users another goroutine may get the mutex before this one wants it again.
struct steered_point {
    steered_point() noexcept = default;
    ~steered_point() {
        if (sched::steered() != nullptr) sched::pass_point();
    }
    steered_point(const steered_point&) = delete;
    steered_point& operator=(const steered_point&) = delete;
};

// L4. The bucket is locked.
inline void look_at_unlocks(lot_bucket& b) noexcept {
    b.idle_looks = 0;
    if (b.watched.load(std::memory_order_relaxed) != 0) return;
    b.watched.store(1, std::memory_order_relaxed);
    platform::heavy_barrier();
}

// The bucket is locked, and an unlock has found no waiter.
inline void found_no_waiter(lot_bucket& b) noexcept {
    if (sched::steered() != nullptr) return;  // all stay watched (sched/data/steering.h)
    if (++b.idle_looks < patience) return;
    b.idle_looks = 0;
    if (!b.any(park::lot_kind::mutex)) b.watched.store(0, std::memory_order_relaxed);
}

}  // namespace

inline void mutex::note_owner(std::uint64_t owner) noexcept {
    owner_.store(owner, std::memory_order_relaxed);
    since_ns_.store(sched::the_scheduler.coarse_now_ns.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

// A new number for each run that has left goroutines behind.
inline std::uint32_t run_number() noexcept {
    return static_cast<std::uint32_t>(sched::the_scheduler.forgotten.load(std::memory_order_relaxed));
}

inline bool mutex::waiter_is_woken(std::uint32_t word) const noexcept {
    return (word & woken) != 0 && woken_in_.load(std::memory_order_relaxed) == run_number();
}

// L5 and L7 of a woken waiter.
bool mutex::take_as_woken(bool give_up) noexcept {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    for (;;) {
        const bool free = (word & locked) == 0;
        if (!free && !give_up) return false;
        const std::uint32_t next = free ? locked : word & ~woken;
        if (word_.compare_exchange_weak(word, next, std::memory_order_acquire, std::memory_order_relaxed)) return free;
    }
}

bool mutex::is_held_by_caller() const noexcept { return owner_.load(std::memory_order_relaxed) == caller(); }

// L1. Fails in a simulation, which is asked on the slow path: between two locks there is no other call of the runtime.
inline bool mutex::take_if_free() noexcept {
    std::uint32_t word = sched::word_of_free_mutex();
    // Acquire: as in take().
    if (word_.compare_exchange_strong(word, locked, std::memory_order_acquire, std::memory_order_acquire)) return true;
    // A woken waiter is on its way, and may be passed.
    while (word == woken && sched::word_of_free_mutex() == 0) {
        if (word_.compare_exchange_weak(word, woken | locked, std::memory_order_acquire, std::memory_order_acquire)) {
            return true;
        }
    }
    return false;
}

bool mutex::lock_if_free() noexcept {
    if (!take_if_free()) return false;
    note_owner(caller());
    return true;
}

void mutex::lock(std::source_location where) {
    if (DUNLIN_LIKELY(take_if_free())) {
        note_owner(caller());
    } else {
        lock_slow(nullptr, where);
    }
}

bool mutex::try_lock() noexcept {
    if (!take()) return false;
    note_owner(caller());
    return true;
}

wait_outcome mutex::lock_limited(const detail::wait_limit& limit, const std::source_location& where) {
    detail::pass_simulation();
    if (try_lock()) return wait_outcome::ok;
    if (detail::cancelled_already(&limit)) return wait_outcome::cancelled;
    return lock_slow(&limit, where);
}

void mutex::unlock() {
    if (DUNLIN_UNLIKELY((word_.load(std::memory_order_relaxed) & locked) == 0)) {
        sched::report_misuse("unlock of unlocked mutex");
    }
    const lot_bucket& b = park::bucket_of(this);
    if (DUNLIN_UNLIKELY(b.watched.load(std::memory_order_relaxed) != 0)) return unlock_watched();  // U1
    owner_.store(0, std::memory_order_relaxed);
    word_.store(0, std::memory_order_release);                                                    // U2, see take()
    platform::light_barrier();                                                                    // U3
    if (DUNLIN_UNLIKELY(b.watched.load(std::memory_order_relaxed) != 0)) look_for_waiters(this);   // U4
}

[[gnu::noinline]] void mutex::unlock_watched() noexcept {
    const steered_point when_it_is_free;
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    if (waiter_is_woken(word)) {
        owner_.store(0, std::memory_order_relaxed);
        // U6
        if (word_.compare_exchange_strong(word, woken, std::memory_order_release, std::memory_order_relaxed)) return;
    }
    park::unlock_charge charge;
    park::runtime_section inside;
    lot_bucket& b = park::bucket_of(this);
    b.lock.lock();  // U7
    lot_node* n = b.front(this);
    if (n == nullptr) {
        found_no_waiter(b);
    } else {
        b.idle_looks = 0;
        charge.add(b, this);
        const bool hand_over = n->starving;
        n = b.pop_claimed(this);
        if (n != nullptr && hand_over) {
            n->granted = true;
            note_owner(n->value);
            b.lock.unlock();
            n->owner->wake();
            return;
        }
    }
    if (n != nullptr) woken_in_.store(run_number(), std::memory_order_relaxed);
    owner_.store(0, std::memory_order_relaxed);
    word_.store(n != nullptr ? woken : 0, std::memory_order_release);
    b.lock.unlock();
    if (n != nullptr) n->owner->wake();
}

// U5. By now there may be another object at this address, or none.
[[gnu::noinline, gnu::cold]] void mutex::look_for_waiters(const void* address) noexcept {
    park::unlock_charge charge;
    park::runtime_section inside;
    lot_bucket& b = park::bucket_of(address);
    b.lock.lock();
    lot_node* n = b.front(address);
    if (n == nullptr || n->kind != park::lot_kind::mutex) {
        n = nullptr;
        found_no_waiter(b);
    } else {
        charge.add(b, address);
        n = static_cast<mutex*>(const_cast<void*>(address))->wake_first(b);
    }
    b.lock.unlock();
    if (n != nullptr) n->owner->wake();
}

// The bucket is locked and there is a queue. Null: no waiter need be woken.
lot_node* mutex::wake_first(lot_bucket& b) noexcept {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    if ((word & locked) != 0 || waiter_is_woken(word)) return nullptr;
    // A holder that takes the mutex meanwhile comes here in its unlock: `watched` is set.
    if (!word_.compare_exchange_strong(word, woken, std::memory_order_relaxed)) return nullptr;
    woken_in_.store(run_number(), std::memory_order_relaxed);
    lot_node* const n = b.pop_claimed(this);
    // All waiters have given up. The mutex is alive, since each of them must still take the bucket's lock.
    if (n == nullptr) word_.fetch_and(~woken, std::memory_order_relaxed);
    return n;
}

// L2. It pays only while the holder can be running.
bool mutex::spin() noexcept {
    const sched::scheduler& s = sched::the_scheduler;
    if (s.cpus.load(std::memory_order_relaxed) < 2) return false;
    if (sched::current_machine() != nullptr && s.max_procs.load(std::memory_order_relaxed) == 1) return false;
    for (int look = 0; look < looks; ++look) {
        for (int i = 0; i < pauses_between; ++i) platform::pause();
        if ((word_.load(std::memory_order_relaxed) & locked) == 0 && take()) return true;
    }
    return false;
}

// A plain thread has waited for long. True, and reported: the mutex is held by a goroutine that was left behind by its
// run(), and goes no further.
bool mutex::report_lost_holder() const noexcept {
    const std::uint64_t owner = detail::mutex_holder::goroutine(this);
    const sched::goroutine* lost = nullptr;
    if (owner != 0) {
        sched::for_each_goroutine([&](const sched::goroutine& g) {
            // Acquire pairs with the release in freeze_goroutine() and freeze_here(): nothing of g changes after it.
            if (g.state.load(std::memory_order_acquire) == sched::goroutine_state::frozen && g.id == owner) lost = &g;
        });
    }
    if (lost == nullptr) return false;
    platform::text_writer out(2);
    out << "dunlin: a thread waits for the mutex at " << static_cast<const void*>(this) << ", which ";
    sched::print_identity(out, lost);
    out << " held when its run() returned\n    created at ";
    sched::print_where(out, lost->created_at);
    out << "\n    it stays locked. What to do: have run() wait for what is left (run_options::at_end), or end goroutines "
           "before main returns\n";
    return true;
}

// The plain thread's half of wait_in_lot(), without a limit.
void mutex::wait_on_thread(park::waiter& w) const noexcept {
    if (platform::simulation_here() != nullptr) return w.wait();  // there every wait with a limit may end at any moment
    std::int64_t patience_ns = 1'000'000'000;
    do {
        if (w.wait_on_thread_until(platform::now_ns() + patience_ns)) return;
        patience_ns *= 2;
    } while (!report_lost_holder());
    w.wait();
}

[[gnu::noinline]] wait_outcome mutex::lock_slow(const detail::wait_limit* limit, const std::source_location& where) {
    if (limit == nullptr) detail::pass_simulation();  // lock_limited() has called it
    const std::uint64_t me = caller();
    if (limit == nullptr && owner_.load(std::memory_order_relaxed) == me) report_recursion();
    // In a simulation L1 does not take a free mutex.
    if (((word_.load(std::memory_order_relaxed) & locked) == 0 && take()) || spin()) {
        note_owner(me);
        return wait_outcome::ok;
    }
    lot_bucket& b = park::bucket_of(this);
    std::int64_t since_ns = 0;
    for (bool was_woken = false;; was_woken = true) {
        park::waiter w;
        park::lock_node n(&w, this, park::lot_kind::mutex, limit != nullptr);
        n.value = me;
        n.serve = [](lot_bucket& bucket, const void* object) noexcept -> park::wait_node* {
            return static_cast<mutex*>(const_cast<void*>(object))->wake_first(bucket);
        };
        const std::int64_t now_ns = platform::now_ns();
        n.queued_ns = now_ns;
        if (since_ns == 0) since_ns = now_ns;
        n.starving = now_ns - since_ns > starving_ns;
        w.enter_if_it_waits([limit, now_ns] { return limit == nullptr || limit->deadline_ns > now_ns; });
        b.lock.lock();                                             // L3
        look_at_unlocks(b);                                         // L4
        const bool taken = was_woken ? take_as_woken(true) : take();  // L5
        if (taken || (limit != nullptr && limit->deadline_ns <= now_ns)) {
            b.lock.unlock();
            w.leave();
            if (taken) note_owner(me);
            return taken ? wait_outcome::ok : wait_outcome::timed_out;
        }
        b.announce();
        w.prepare(sched::wait_reason::mutex_lock, where);
        was_woken ? b.push_front(&n) : b.push_back(&n);            // L6
        b.lock.unlock();
        wait_outcome outcome = wait_outcome::ok;
        if (limit == nullptr && w.goroutine() == nullptr) {
            wait_on_thread(w);
        } else {
            outcome = detail::wait_in_lot(b, n, w, limit);
        }
        if (outcome != wait_outcome::ok || n.granted) return outcome;  // L7
        if (take_as_woken(false)) {
            note_owner(me);
            return wait_outcome::ok;
        }
    }
}

void mutex::print_holder(platform::text_writer& out) const noexcept {
    const std::uint64_t owner = owner_.load(std::memory_order_relaxed);
    if (owner == 0) return;
    const std::int64_t now_ns = platform::real_now_ns(), since_ns = since_ns_.load(std::memory_order_relaxed);
    out << ", which ";
    if (owner >> 63 != 0) {
        out << "a thread";
    } else {
        out << "goroutine " << owner;
    }
    out << " has held for ";
    out.duration(since_ns != 0 && since_ns < now_ns ? now_ns - since_ns : 0);
}

void detail::mutex_holder::print(platform::text_writer& out, const void* mutex_address) noexcept {
    static_cast<const mutex*>(mutex_address)->print_holder(out);
}

std::uint64_t detail::mutex_holder::goroutine(const void* mutex_address) noexcept {
    const std::uint64_t owner = static_cast<const mutex*>(mutex_address)->owner_.load(std::memory_order_relaxed);
    return owner >> 63 != 0 ? 0 : owner;
}

const void* detail::mutex_holder::owner_of(const void* mutex_address) noexcept {
    return &static_cast<const mutex*>(mutex_address)->owner_;
}

void mutex::report_recursion() const noexcept {
    platform::text_writer text(-1);
    text << "recursive lock of a mutex by its own holder: ";
    if (const sched::goroutine* g = sched::current_goroutine()) {
        text << "goroutine " << g->id;
    } else {
        text << "this thread";
    }
    text << " has held it for ";
    const std::int64_t now_ns = platform::real_now_ns(), since_ns = since_ns_.load(std::memory_order_relaxed);
    text.duration(since_ns != 0 && since_ns < now_ns ? now_ns - since_ns : 0);
    sched::report_misuse(text.view());
}

mutex::~mutex() {
    if (DUNLIN_UNLIKELY((word_.load(std::memory_order_relaxed) & locked) != 0)) {
        // If a frozen goroutine holds it, or a static object is destroyed at the end of the process, there is no
        // report.
        const bool by_goroutine = sched::current_goroutine() != nullptr;
        if (by_goroutine || is_held_by_caller()) sched::report_misuse("a mutex is destroyed while it is locked");
    }
    // A waiter that was woken and has not tried yet stands in no queue.
    park::check_no_waiters(this, "a mutex is destroyed while goroutines wait for it");
}

void recursive_mutex::unlock() {
    if (DUNLIN_UNLIKELY(!mutex_.is_held_by_caller())) {
        const bool held = (mutex_.word_.load(std::memory_order_relaxed) & mutex::locked) != 0;
        sched::report_misuse(held ? "unlock of a recursive_mutex that another goroutine or thread holds"
            : "unlock of unlocked mutex (recursive_mutex)");
    }
    if (--depth_ == 0) mutex_.unlock();
}

}  // namespace dunlin
