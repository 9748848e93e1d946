// Steps of the lock's protocol (platform/lock.h) that only a rare moment needs, each in that moment, which the test
// makes by hand. tests/model/lock_model_test.cpp proves the protocol; these fail when the code leaves the step out.
#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "platform/futex.h"
#include "platform/lock.h"
#include "support/barrier_trap.h"
#include "support/comes_true.h"

namespace {

using namespace std::chrono_literals;
using dunlin::platform::futex_lock;
using support::comes_true;

// The two words of a lock, for those that act in the place of an owner or of a waker.
struct lock_words {
    std::atomic<std::uint32_t> held, waiters;
};
static_assert(sizeof(lock_words) == sizeof(futex_lock));
lock_words& words_of(futex_lock& lock) { return reinterpret_cast<lock_words&>(lock); }

constexpr std::uint32_t on_the_way = 1u << 15, one_woken = 1u << 16, waiting = on_the_way - 1;

// L4. A waiter that was woken finds the lock taken by a newcomer and sleeps again. If its mark stays, every unlock
// believes that one is on its way, and wakes none any more.
TEST(LockSteps, AWaiterThatComesTooLateClearsItsMarkBeforeItSleepsAgain) {
    futex_lock lock;
    lock_words& words = words_of(lock);
    lock.lock();
    std::jthread waiter([&] {
        lock.lock();
        lock.unlock();
    });
    EXPECT_TRUE(comes_true([&] { return (words.waiters.load() & waiting) == 1; }));
    // What the unlock of an owner does (U4), after which a newcomer, this thread, has the lock at once.
    words.waiters.store((words.waiters.load() | on_the_way) + one_woken);
    dunlin::platform::futex_wake(words.waiters, 1);
    const bool cleared = comes_true([&] { return (words.waiters.load() & on_the_way) == 0; });
    EXPECT_TRUE(cleared) << "the mark of the waiter that came too late stands for ever";
    if (!cleared) words.waiters.fetch_and(~on_the_way);
    lock.unlock();
}

// L5. The owner has looked for waiters (U3) and seen none, but its CPU still has U1 in its buffer: no unlock will wake
// the waiter that sleeps now. Only a barrier brings U1 out, and then L6 finds the lock free.
TEST(LockSteps, AWaiterThatIsGoingToSleepForGoodMakesAnUnlockVisibleThatDidNotSeeIt) {
    if (!support::barriers_can_be_trapped()) GTEST_SKIP() << "membarrier or seccomp is not available";
    futex_lock lock;
    lock_words& words = words_of(lock);
    lock.lock();
    std::atomic<bool> has_it{false};
    std::jthread waiter([&] {
        if (!support::trap_barriers([&] { words.held.store(0, std::memory_order_release); })) return;
        lock.lock();
        has_it = true;
    });
    EXPECT_TRUE(comes_true([&] { return has_it.load(); })) << "it sleeps for good, and no barrier was made";
    lock.unlock();
}

}  // namespace
