// How something new that waits is written: a door, which is opened once. CONTRIBUTING.md walks through it.
#include <dunlin/dunlin.hpp>

#include <atomic>
#include <source_location>
#include <thread>

#include <gtest/gtest.h>

#include "sync/lot_wait.h"

namespace {

using namespace std::chrono_literals;
namespace detail = dunlin::detail;

// Protocol   wait   w1  announce (seq_cst), under the bucket's lock     open   o1  open_ = true (seq_cst)
//                   w2  open_: out; else queue, unlock, wait              o2  is a waiter announced? wake all that wait
// Proof      In the order of the seq_cst steps w1 is before o2, which then finds the waiter, or o1 is before w2, which
//            then finds the door open. Whichever it is, it wakes or does not sleep.
class door {
public:
    ~door() { dunlin::park::check_no_waiters(this, "a door is destroyed while goroutines wait for it"); }

    void open() noexcept {
        open_.store(true, std::memory_order_seq_cst);                                                             // o1
        // o2
        detail::wake_arrived(this, dunlin::park::lot_kind::event, [](const dunlin::park::lot_node&) { return true; });
    }

    void wait(std::source_location where = std::source_location::current()) { wait_limited(nullptr, where); }
    void wait(const dunlin::context& ctx, std::source_location where = std::source_location::current()) {
        const detail::wait_limit limit{detail::wait_limit::never, detail::done_channel(ctx)};
        if (wait_limited(&limit, where) == detail::wait_outcome::cancelled) detail::throw_cancelled(ctx, "door wait");
    }
    template <class Rep, class Period>
    bool wait_for(
        const std::chrono::duration<Rep, Period>& d, std::source_location where = std::source_location::current()) {
        const detail::wait_limit limit{detail::deadline_in(d), nullptr};
        return wait_limited(&limit, where) == detail::wait_outcome::ok;
    }

private:
    detail::wait_outcome wait_limited(const detail::wait_limit* limit, const std::source_location& where) {
        // w1, w2
        return detail::wait_until_arrived(this, dunlin::park::lot_kind::event, 0,
            dunlin::sched::wait_reason::semacquire, limit, where,
            [this]() noexcept { return open_.load(std::memory_order_seq_cst); });
    }

    std::atomic<bool> open_{false};
};

TEST(NewWait, GoroutinesAndThreadsPassWhenTheDoorIsOpened) {
    dunlin::run([] {
        door d;
        std::atomic<int> passed{0};
        dunlin::wait_group group;
        for (int i = 0; i < 8; ++i) {
            group.go([&] {
                d.wait();
                ++passed;
            });
        }
        std::jthread thread([&] {
            d.wait();
            ++passed;
        });
        dunlin::yield();
        EXPECT_EQ(passed, 0);
        d.open();
        group.wait();
        dunlin::blocking([&] { thread.join(); });
        EXPECT_EQ(passed, 9);
        d.wait();  // it stays open
        return 0;
    });
}

TEST(NewWait, AWaiterThatGivesUpLeavesTheOthersAlone) {
    dunlin::run([] {
        door d;
        auto other = dunlin::spawn([&] { d.wait(); });
        EXPECT_FALSE(d.wait_for(1ms));
        const auto ctx = dunlin::with_cancel({});
        auto cancelled = dunlin::spawn([&] { EXPECT_THROW(d.wait(ctx), dunlin::context_cancelled); });
        ctx.cancel();
        cancelled.get();
        d.open();
        other.get();
        return 0;
    });
}

}  // namespace
