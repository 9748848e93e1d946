// What run() promises: results, exceptions, once at a time and again and again.
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class Run : public support::each_p {};
EACH_P(Run);

TEST_P(Run, ReturnsTheValueOfItsFunction) {
    EXPECT_EQ(run([] { return 42; }), 42);
    EXPECT_EQ(run([] { return std::string(1000, 'x'); }), std::string(1000, 'x'));
}

TEST_P(Run, ReturnsNothingForAFunctionThatReturnsNothing) {
    bool ran = false;
    static_assert(std::is_void_v<decltype(run([&] { ran = true; }))>);
    run([&] { ran = true; });
    EXPECT_TRUE(ran);
}

TEST_P(Run, ReturnsAReferenceToTheSameObject) {
    int object = 0;
    int& result = run([&]() -> int& { return object; });
    EXPECT_EQ(&result, &object);
    const int& constant = run([&]() -> const int& { return object; });
    EXPECT_EQ(&constant, &object);
}

TEST_P(Run, ReturnsAValueThatCanOnlyBeMoved) {
    std::unique_ptr<int> result = run([] { return std::make_unique<int>(7); });
    ASSERT_TRUE(result);
    EXPECT_EQ(*result, 7);
}

TEST_P(Run, RethrowsWhatItsFunctionThrows) {
    EXPECT_THROW(run([] { throw std::runtime_error("boom"); }), std::runtime_error);
    EXPECT_THROW(run([]() -> int { throw 5; }), int);
    try {
        run([]() -> std::string { throw std::out_of_range("the text stays"); });
        FAIL();
    } catch (const std::out_of_range& e) {
        EXPECT_STREQ(e.what(), "the text stays");
    }
    EXPECT_EQ(std::uncaught_exceptions(), 0);
}

TEST_P(Run, CallsAFunctionThatCanNeitherBeCopiedNorMoved) {
    struct pinned {
        int calls = 0;
        pinned() = default;
        pinned(const pinned&) = delete;
        int operator()() { return ++calls; }
    } f;
    EXPECT_EQ(run(f), 1);
    EXPECT_EQ(run(f), 2);
    EXPECT_EQ(f.calls, 2);
}

TEST_P(Run, CanBeCalledAgainAThousandTimes) {
    const int rounds = support::rounds(1000);
    for (int i = 0; i < rounds; ++i) {
        const int sum = run([i] {
            dunlin::task<int> child = dunlin::spawn([i] { return i; });
            return child.get() + 1;
        });
        ASSERT_EQ(sum, i + 1);
    }
}

TEST_P(Run, CanBeCalledAgainAfterItsFunctionLeftParkedGoroutinesBehind) {
    const int rounds = support::rounds(300);
    for (int i = 0; i < rounds; ++i) {
        run([] {
            for (int k = 0; k < 10; ++k) dunlin::go([] { dunlin::sleep_for(1h); });
            dunlin::yield();
        });
        ASSERT_EQ(dunlin::runtime::num_goroutines(), 0u);
    }
    // And everything still works.
    EXPECT_EQ(run([] { return dunlin::spawn([] { dunlin::sleep_for(1ms); return 3; }).get(); }), 3);
}

TEST_P(Run, CanBeCalledAgainAfterItsFunctionLeftQueuedGoroutinesBehind) {
    static std::atomic<int> ran;
    const int rounds = support::rounds(300);
    for (int i = 0; i < rounds; ++i) {
        run([] {
            for (int k = 0; k < 400; ++k) dunlin::go([] { ran.fetch_add(1); });
        });
        // Frozen means that not one of them runs any more.
        const int before = ran.load();
        dunlin::runtime::num_goroutines();
        ASSERT_EQ(ran.load(), before);
    }
}

TEST_P(Run, FreezesGoroutinesThatCompute) {
    static std::atomic<std::uint64_t> turns;
    if (support::under_thread)
        GTEST_SKIP() << "TSan delays signals, so nobody who computes can be stopped (freeze.cpp)";
    for (int i = 0; i < 20; ++i) {
        std::atomic<bool> started{false};
        run([&] {
            dunlin::go([&started] {
                started = true;
                for (;;) turns.store(turns.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
            });
            // P = 1 has to wait for the other to run, and only gets back what preemption gives back; so only look where
            // another P is.
            if (GetParam() > 1) support::eventually([&] { return started.load(); });
        });
        const std::uint64_t then = turns.load();
        std::this_thread::sleep_for(2ms);
        ASSERT_EQ(turns.load(), then) << "a goroutine of an ended run() goes on";
    }
}

TEST_P(Run, DoesNotRunDestructorsOfWhatItLeavesBehind) {
    static std::atomic<int> destroyed;
    destroyed = 0;
    struct object {
        ~object() { destroyed.fetch_add(1); }
    };
    run([] {
        dunlin::wait_group started;
        started.add(1);
        dunlin::go([started]() mutable {
            object here;
            started.done();
            dunlin::sleep_for(1h);
        });
        started.wait();
    });
    EXPECT_EQ(destroyed.load(), 0);
}

TEST_P(Run, InsideAGoroutineIsALogicError) {
    run([] {
        EXPECT_THROW(dunlin::run([] {}), std::logic_error);
        EXPECT_THROW(dunlin::spawn([] { dunlin::run([] { return 1; }); }).get(), std::logic_error);
    });
}

TEST_P(Run, WhileAnotherThreadIsInsideIsALogicErrorAndTheOtherGoesOn) {
    const int rounds = support::rounds(200);
    for (int i = 0; i < rounds; ++i) {
        std::atomic<bool> inside{false}, tried{false};
        std::thread other([&] {
            support::eventually_on_thread([&] { return inside.load(); });
            EXPECT_THROW(dunlin::run([] {}), std::logic_error);
            tried = true;
        });
        const int result = run([&] {
            inside = true;
            support::eventually([&] { return tried.load(); });
            return 9;
        });
        EXPECT_EQ(result, 9);
        other.join();
    }
}

TEST_P(Run, FromTwoThreadsAtOnceSucceedsForOneOfThemAtATime) {
    const int rounds = support::rounds(2000);
    std::atomic<int> inside{0}, succeeded{0}, refused{0};
    const auto loop = [&] {
        for (int i = 0; i < rounds; ++i) {
            try {
                dunlin::run({.max_procs = GetParam()}, [&] {
                    EXPECT_EQ(inside.fetch_add(1), 0);
                    dunlin::yield();
                    inside.fetch_sub(1);
                });
                succeeded.fetch_add(1);
            } catch (const std::logic_error&) {
                refused.fetch_add(1);
            }
        }
    };
    std::thread a(loop), b(loop);
    a.join();
    b.join();
    EXPECT_EQ(succeeded + refused, 2 * rounds);
    EXPECT_GT(succeeded.load(), 0);
}

TEST_P(Run, SetsTheNumberOfProcessors) {
    EXPECT_EQ(run([] { return dunlin::runtime::max_procs(); }), procs());
    EXPECT_EQ(dunlin::runtime::max_procs(), procs());
}

TEST_P(Run, GivesTheMainGoroutineEightMebibytesOfStack) {
    // Recursion through 4 MiB.
    struct deep {
        static int down(int levels) {
            volatile char room[4096];
            room[0] = static_cast<char>(levels);
            return levels == 0 ? room[0] : down(levels - 1) + (room[0] != 0 ? 1 : 0);
        }
    };
    if (support::sanitized) GTEST_SKIP() << "frames are several times as large";
    EXPECT_GT(run([] { return deep::down(1000); }), 0);
}

struct i_am_an_error {};

// Types whose & is not what one expects.
struct without_address {
    int v;
    const without_address* operator&() const { return nullptr; }
    bool operator==(const without_address&) const = default;
};

TEST_P(Run, AnOverloadedAddressOperatorIsNotAsked) {
    without_address x{7};
    EXPECT_EQ(run([&]() -> without_address& { return x; }).v, 7);
    EXPECT_EQ(run([&]() -> without_address&& { return std::move(x); }).v, 7);
    const auto ctx = dunlin::with_value(dunlin::context::background(), without_address{1}, 42);
    EXPECT_EQ(*ctx.value<int>(without_address{1}), 42);
}

class RunOptions : public support::runtime_test {};

TEST_F(RunOptions, TooManyProcessorsAreAnInvalidArgument) {
    EXPECT_THROW(dunlin::run({.max_procs = 1025}, [] {}), std::invalid_argument);
    EXPECT_THROW(dunlin::run({.max_procs = ~0u}, [] {}), std::invalid_argument);
    EXPECT_EQ(dunlin::run({.max_procs = 1024}, [] { return 1; }), 1);
    EXPECT_EQ(dunlin::run({.max_procs = 2}, [] { return 1; }), 1);
}

TEST_F(RunOptions, AbsurdStackSizesAreAnInvalidArgument) {
    EXPECT_THROW(dunlin::run({.stack_size = 1}, [] {}), std::invalid_argument);
    EXPECT_THROW(dunlin::run({.stack_size = dunlin::min_stack_size - 1}, [] {}), std::invalid_argument);
    EXPECT_THROW(dunlin::run({.stack_size = ~std::size_t{0}}, [] {}), std::invalid_argument);
    EXPECT_THROW(dunlin::run({.main_stack_size = 5}, [] {}), std::invalid_argument);
    EXPECT_THROW(dunlin::run({.main_stack_size = std::size_t{1} << 40}, [] {}), std::invalid_argument);
    EXPECT_EQ(dunlin::run({.stack_size = 512 << 10, .main_stack_size = 64 << 10},
                  [] { return dunlin::spawn([] { return 2; }).get(); }),
        2);
    EXPECT_EQ(dunlin::run({.stack_size = 240 << 10}, [] { return 1; }), 1);
}

TEST_F(RunOptions, ANullFunctionIsAnInvalidArgument) {
    EXPECT_THROW(dunlin::run(static_cast<int (*)()>(nullptr)), std::invalid_argument);
    EXPECT_THROW(dunlin::run(std::function<void()>()), std::invalid_argument);
}

TEST_F(RunOptions, AfterAnExceptionTheNextRunWorks) {
    for (int i = 0; i < support::rounds(1000); ++i) {
        EXPECT_THROW(dunlin::run([] { throw i_am_an_error(); }), i_am_an_error);
        ASSERT_EQ(dunlin::run([] { return 1; }), 1);
    }
}

}  // namespace
