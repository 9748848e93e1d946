// heap.h - timers: one 4-ary heap per processor, exact to the nanosecond, with true removal.
//
// Caller     A goroutine must be inside the runtime.
// Data       entries {when, timer*} in one array, the index of each kept in its timer; 16 bytes an entry, four children
//            in one cache line. Guarded by a lock; `earliest` is readable without it.
// Why        A deadline is mostly set and then removed: 6 to 8 ns here, the same as a timing wheel, which would round
//            to its tick. Lazy deletion (Go) costs 12 to 82 ns and hides a deadlock until the dead entry is cleaned
//            away.
// Firing     has two steps. `claim` runs under the heap's lock and says whether there is anything to fire; it acquires
//            what `fire` will need (a reference, the right to wake a waiter). `fire` runs inside the runtime, with no
//            lock held, and must not block.
// Lifetime   A timer belongs to its user, which cancels it before it goes away. After cancel() has returned, whatever
//            the result, `claim` has been called or never will be, and the entry is touched again only by a fire()
//            whose claim said true.
// Tests      tests/timer/heap_test.cpp
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstdint>
#include <vector>

#include "park/biased_lock.h"

namespace dunlin::inline v0_1::timers {

class timer_heap;

// What is due earlier is due then, long ago: 0 stands for "no timer" wherever a deadline is passed on, and the time
// that is left until a negative one might not fit.
inline constexpr std::int64_t first_moment = 1;

struct timer_entry {
    std::int64_t when_ns = 0;            // constant while in a heap, and not before first_moment
    bool (*claim)(timer_entry*) noexcept = nullptr;  // constant; null: always true
    void (*fire)(timer_entry*) noexcept = nullptr;   // constant
    platform::atomic<timer_heap*> heap{nullptr};  // written under the heap's lock, or both when it moves
    std::uint32_t index = 0;             // heap lock
    platform::atomic<bool> armed{false};      // written under the heap's lock
    // set under the heap's lock, cleared by the owner: it was armed when run() returned, and will not fire
    platform::atomic<bool> forgotten{false};
    // constant while in a heap: forgotten when run() returns, as the goroutines are
    bool ends_with_run = true;
};

// Takes t out of its heap. True if it was in one, that is, if it has not been claimed. Any thread, inside the runtime.
bool cancel(timer_entry* t) noexcept;

class timer_heap {
public:
    // Throws std::bad_alloc, and then nothing has changed. True if it is the earliest now.
    bool insert(timer_entry* t);

    enum class removal : std::uint8_t { removed, not_armed, elsewhere };
    removal remove(timer_entry* t) noexcept;

    // Moves everything into `other`, whose processor stays. If there is no memory for that, nothing changes.
    void move_all_to(timer_heap& other) noexcept;

    // Takes out the earliest timer that is due, and claims it; null: there is none. The caller fires it, without the
    // lock.
    timer_entry* take_due(std::int64_t now_ns) noexcept;

    // 0: none. Seq_cst pairs with the store in publish_earliest(): the thread that adds a timer stores, then looks for
    // a sleeper (timer_added()), and the sleeper announces itself, then loads (sleep_for_events()).
    std::int64_t earliest() const noexcept { return earliest_.load(std::memory_order_seq_cst); }

    std::size_t size() const noexcept;
    // Drops the timers that end with run(). Their owners do not exist any more, or will find them `forgotten`.
    void forget() noexcept;
    // Drops all of them.
    void forget_everything() noexcept;

    // For tests: parents before children, indexes right.
    bool valid() const;

private:
    void forget(bool everything) noexcept;
    struct entry {
        std::int64_t when = 0;
        timer_entry* timer = nullptr;
    };

    // By value: the argument may refer into the array that they rearrange.
    void place(std::size_t at, entry e) noexcept;
    void sift_up(std::size_t at, entry e) noexcept;
    void sift_down(std::size_t at, entry e) noexcept;
    void take_out(std::size_t at) noexcept;
    void shrink(std::size_t size) noexcept;
    // Makes room for `size` entries, more than there is room for.
    [[gnu::noinline, gnu::cold]] void make_room_for(std::size_t size);
    void publish_earliest() noexcept;

    // Mostly taken by its own processor.
    mutable park::biased_lock lock_;
    std::vector<entry> entries_;
    platform::atomic<std::int64_t> earliest_{0};
};

}  // namespace dunlin::timers
