#include "platform/mortal_lock.h"

#include "platform/check.h"
#include "platform/cpu.h"
#include "platform/futex.h"

namespace dunlin::platform {

namespace {

constexpr int spin_rounds = 100;  // as the futex_lock's (lock.cpp)

}  // namespace

[[gnu::noinline, gnu::cold]] void mortal_lock::lock_slow() noexcept {
    std::uint32_t word;
    for (int round = 0; round < spin_rounds; ++round) {  // L2
        word = word_.load(std::memory_order_relaxed);
        if ((word & held) == 0 && word_.compare_exchange_weak(word, word | held, std::memory_order_acquire, std::memory_order_relaxed)) return;
        pause();
    }
    word = word_.fetch_add(one_waiter, std::memory_order_relaxed) + one_waiter;  // L3
    for (;;) {
        if ((word & held) == 0) {  // L4
            const std::uint32_t mine = ((word & ~on_the_way) | held) - one_waiter;
            if (word_.compare_exchange_weak(word, mine, std::memory_order_acquire, std::memory_order_relaxed)) return;
            continue;
        }
        const std::uint32_t seen = word & ~on_the_way;  // L5
        if (word != seen && !word_.compare_exchange_weak(word, seen, std::memory_order_relaxed)) continue;
        futex_wait(word_, seen);
        word = word_.load(std::memory_order_relaxed);
    }
}

[[gnu::noinline, gnu::cold]] void mortal_lock::unlock_slow(std::uint32_t word) noexcept {
    bool wakes;
    std::uint32_t next;
    do {  // U2
        if ((word & held) == 0) fatal("a lock of the runtime was unlocked while nobody held it");
        wakes = word >= one_waiter && (word & on_the_way) == 0;
        next = (word & ~held) | (wakes ? on_the_way : 0);
    } while (!word_.compare_exchange_weak(word, next, std::memory_order_release, std::memory_order_relaxed));
    if (wakes) futex_wake(word_, 1);  // U3
}

}  // namespace dunlin::platform
