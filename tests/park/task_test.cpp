// task<T>: the result of a goroutine, as its waiter gets it.
#include <array>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <ucontext.h>
#include <vector>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class Task : public support::each_p {};
EACH_P(Task);

TEST_P(Task, GetReturnsTheResultOfEveryKind) {
    run([] {
        int object = 0;
        EXPECT_EQ(dunlin::spawn([] { return 5; }).get(), 5);
        dunlin::spawn([&] { object = 1; }).get();
        EXPECT_EQ(object, 1);
        int& reference = dunlin::spawn([&]() -> int& { return object; }).get();
        EXPECT_EQ(&reference, &object);
        EXPECT_EQ(*dunlin::spawn([] { return std::make_unique<int>(3); }).get(), 3);
        EXPECT_EQ(dunlin::spawn([] { return std::string(10'000, 'a'); }).get().size(), 10'000u);
        struct alignas(32) wide {
            std::array<char, 200> bytes{};
        };
        EXPECT_EQ(dunlin::spawn([] { return wide{}; }).get().bytes[199], 0);
    });
}

TEST_P(Task, GetRethrowsTheExceptionOnce) {
    run([] {
        dunlin::task<int> t = dunlin::spawn([]() -> int { throw std::out_of_range("here"); });
        try {
            t.get();
            FAIL();
        } catch (const std::out_of_range& e) {
            EXPECT_STREQ(e.what(), "here");
        }
        EXPECT_FALSE(t.valid());
        EXPECT_THROW(t.get(), std::logic_error);
    });
}

TEST_P(Task, AnEmptyOneRefusesEverythingButItsEnd) {
    dunlin::task<int> none;
    EXPECT_FALSE(none.valid());
    EXPECT_FALSE(none.joinable());
    EXPECT_EQ(none.id(), 0u);
    EXPECT_THROW(none.get(), std::logic_error);
    EXPECT_THROW(none.wait(), std::logic_error);
    EXPECT_THROW((void)none.done(), std::logic_error);
    run([] {
        dunlin::task<int> a = dunlin::spawn([] { return 1; });
        dunlin::task<int> b = std::move(a);
        EXPECT_FALSE(a.valid());
        EXPECT_THROW(a.get(), std::logic_error);
        EXPECT_EQ(b.get(), 1);
    });
}

TEST_P(Task, DestructorWaitsForTheGoroutine) {
    run([] {
        for (int i = 0; i < support::rounds(2000); ++i) {
            std::atomic<bool> ended{false};
            {
                dunlin::task<void> t = dunlin::spawn([&] {
                    dunlin::yield();
                    ended = true;
                });
            }
            ASSERT_TRUE(ended.load());
        }
    });
}

TEST_P(Task, DestructorDropsAnExceptionThatNoJoinerTook) {
    run([] {
        { dunlin::task<void> t = dunlin::spawn([] { throw 1; }); }
        {
            dunlin::task<void> t = dunlin::spawn([] { throw 1; });
            t.wait();
            EXPECT_TRUE(t.done());
        }
    });
}

TEST_P(Task, DestructorWaitsWhileAnExceptionUnwindsTheParent) {
    run([] {
        for (int i = 0; i < support::rounds(2000); ++i) {
            std::atomic<bool> ended{false};
            try {
                dunlin::task<void> t = dunlin::spawn([&] {
                    dunlin::yield();
                    ended = true;
                });
                throw std::runtime_error("parent");
            } catch (const std::runtime_error&) {
                ASSERT_TRUE(ended.load());
            }
        }
    });
}

TEST_P(Task, AssignmentWaitsForTheOneItReplaces) {
    run([] {
        std::atomic<int> ended{0};
        const auto work = [&ended] {
            for (int i = 0; i < 5; ++i) dunlin::yield();
            ended.fetch_add(1);
        };
        dunlin::task<void> t = dunlin::spawn(work);
        t = dunlin::spawn(work);
        EXPECT_GE(ended.load(), 1);
        t = dunlin::task<void>();
        EXPECT_EQ(ended.load(), 2);
        EXPECT_FALSE(t.valid());
    });
}

TEST_P(Task, ResultsThatNoJoinerTookAreDestroyed) {
    run([] {
        std::weak_ptr<int> watch;
        {
            dunlin::task<std::shared_ptr<int>> t = dunlin::spawn([] { return std::make_shared<int>(1); });
            t.wait();
            std::shared_ptr<int> value = t.get();
            watch = value;
            EXPECT_EQ(value.use_count(), 1);
        }
        EXPECT_TRUE(watch.expired());
        auto counted = std::make_shared<int>(0);
        for (int i = 0; i < 100; ++i)
            dunlin::task<std::shared_ptr<int>> dropped = dunlin::spawn([counted] { return counted; });
        EXPECT_EQ(counted.use_count(), 1);
    });
}

TEST_P(Task, WaitLeavesTheResultAndDoneSaysWhetherItIsThere) {
    run([] {
        std::atomic<bool> go_on{false};
        dunlin::task<int> t = dunlin::spawn([&] {
            support::eventually([&] { return go_on.load(); });
            return 8;
        });
        EXPECT_FALSE(t.done());
        go_on = true;
        t.wait();
        t.wait();
        EXPECT_TRUE(t.done());
        EXPECT_EQ(t.get(), 8);
    });
}

TEST_P(Task, CanBeJoinedByAnotherThanItsParent) {
    run([] {
        for (int i = 0; i < support::rounds(5000); ++i) {
            dunlin::task<int> child = dunlin::spawn([i] { return i; });
            dunlin::task<int> other = dunlin::spawn([c = std::move(child)]() mutable { return c.get(); });
            ASSERT_EQ(other.get(), i);
        }
    });
}

TEST_P(Task, CanBeJoinedByAPlainThread) {
    run([] {
        std::vector<dunlin::task<int>> tasks;
        for (int i = 0; i < support::rounds(2000); ++i) {
            tasks.push_back(dunlin::spawn([i] {
                if (i % 3 == 0) dunlin::yield();
                return i;
            }));
        }
        std::atomic<bool> ended{false};
        std::thread thread([&] {
            for (std::size_t i = 0; i < tasks.size(); ++i) EXPECT_EQ(tasks[i].get(), static_cast<int>(i));
            ended = true;
        });
        support::eventually([&] { return ended.load(); });
        thread.join();
    });
}

long fib(int n) {
    if (n < 2) return n;
    dunlin::task<long> left = dunlin::spawn(fib, n - 1);
    const long right = fib(n - 2);
    return left.get() + right;
}

TEST_P(Task, FibonacciWithASpawnPerCall) {
    EXPECT_EQ(run([] { return fib(support::sanitized ? 16 : 24); }), support::sanitized ? 987 : 46368);
}

// Half of the children run in place, the others were stolen or had begun: whichever it is, the result is right.
TEST_P(Task, JoinsInEveryOrderGiveEveryResult) {
    run([] {
        for (int round = 0; round < (support::sanitized ? 10 : 300); ++round) {
            std::vector<dunlin::task<int>> tasks;
            for (int i = 0; i < 300; ++i) {
                tasks.push_back(dunlin::spawn([i] {
                    for (int k = 0; k < i % 4; ++k) dunlin::yield();
                    return i;
                }));
            }
            int sum = 0;
            if (round % 2 == 0) {
                for (auto& t : tasks) sum += t.get();
            } else {
                for (auto t = tasks.rbegin(); t != tasks.rend(); ++t) sum += t->get();
            }
            ASSERT_EQ(sum, 300 * 299 / 2);
        }
    });
}

int deep(int levels) { return levels == 0 ? 0 : dunlin::spawn(deep, levels - 1).get() + 1; }

TEST_P(Task, RecursionOfSpawnAndGetToADepthOf100000DoesNotOverflow) {
    allow(120s);
    const int levels = support::sanitized ? 2000 : 100'000;
    EXPECT_EQ(run([=] { return deep(levels); }), levels);
}

TEST_P(Task, RecursionOfJoinsWithBigFramesDoesNotOverflow) {
    struct big {
        static int down(int levels) {
            volatile char room[20'000];
            room[0] = 1;
            room[19'999] = 2;
            return levels == 0 ? 0 : dunlin::spawn(down, levels - 1).get() + room[0];
        }
    };
    const int levels = support::sanitized ? 100 : 2000;
    EXPECT_EQ(run([=] { return dunlin::spawn([=] { return big::down(levels); }).get(); }), levels);
}

// A child with a third of a default stack's frames, started when the parent has used half of its own.
TEST_P(Task, AChildNearTheEndOfItsParentsStackHasAStackOfItsOwn) {
    if (support::sanitized) GTEST_SKIP() << "frames are several times as large";
    struct frames {
        [[gnu::noinline]] static int fill(int kib) {
            volatile char room[1024];
            room[0] = 1;
            room[1023] = 1;
            return kib <= 1 ? room[0] : fill(kib - 1) + room[1023];
        }
        [[gnu::noinline]] static int parent(int used_kib) {
            volatile char room[1024];
            room[0] = 1;
            if (used_kib <= 1) return dunlin::spawn([] { return fill(150); }).get();
            return parent(used_kib - 1) * room[0];
        }
    };
    run([] {
        for (int used = 1; used < 200; used += 3)
            ASSERT_EQ(dunlin::spawn([=] { return frames::parent(used); }).get(), 150);
    });
}

TEST_P(Task, ChildrenOfGoroutinesWithSmallStacksHaveDefaultStacks) {
    if (support::sanitized) GTEST_SKIP() << "frames are several times as large";
    struct frames {
        [[gnu::noinline]] static int fill(int kib) {
            volatile char room[1024];
            room[0] = 1;
            return kib <= 1 ? room[0] : fill(kib - 1) + room[0];
        }
    };
    run([] {
        for (int i = 0; i < 100; ++i) {
            const int got = dunlin::spawn({.stack_size = dunlin::min_stack_size}, [] {
                return dunlin::spawn([] { return frames::fill(200); }).get();
            }).get();
            ASSERT_EQ(got, 200);
        }
    });
}

// A generator of the program's own, as Boost.Context makes them: its stack is no place for a child.
TEST_P(Task, AChildIsNotRunOnAStackThatTheProgramHasMade) {
    if (support::sanitized || support::emulated) GTEST_SKIP() << "they do not know of the program's stack";
    run([] {
        struct generator {
            ucontext_t inside{}, outside{};
            std::vector<std::byte> stack = std::vector<std::byte>(std::size_t{64} << 10);
            bool child_elsewhere = false;
        };
        const auto g = std::make_unique<generator>();
        static generator* here;
        here = g.get();
        getcontext(&g->inside);
        g->inside.uc_stack.ss_sp = g->stack.data();
        g->inside.uc_stack.ss_size = g->stack.size();
        g->inside.uc_link = &g->outside;
        makecontext(
            &g->inside,
            [] {
                generator* me = here;
                const auto* child = dunlin::spawn([] {
                    return static_cast<const std::byte*>(__builtin_frame_address(0));
                }).get();
                me->child_elsewhere = child < me->stack.data() || child >= me->stack.data() + me->stack.size();
            },
            0);
        swapcontext(&g->outside, &g->inside);
        EXPECT_TRUE(g->child_elsewhere);
    });
}

TEST_P(Task, AGoroutineThatExitedHasNoResult) {
    run([] {
        dunlin::task<int> t = dunlin::spawn([]() -> int { dunlin::exit_goroutine(); });
        EXPECT_THROW(t.get(), dunlin::goroutine_exited);
        dunlin::task<void> nothing = dunlin::spawn([] { dunlin::exit_goroutine(); });
        nothing.get();  // no result is what it promised
        int object = 0;
        dunlin::task<int&> reference = dunlin::spawn([&]() -> int& {
            dunlin::exit_goroutine();
            return object;
        });
        EXPECT_THROW(reference.get(), dunlin::goroutine_exited);
    });
}

// A child that has begun and stands in this processor's queue again is not started a second time.
TEST_P(Task, AChildThatHasBegunIsNotBegunAgainByItsJoiner) {
    run([] {
        for (int i = 0; i < support::rounds(5000); ++i) {
            std::atomic<int> begun{0};
            dunlin::wait_group gate;
            gate.add(1);
            dunlin::task<void> child = dunlin::spawn([&, gate] {
                begun.fetch_add(1);
                gate.wait();
                if (i % 2 == 0) dunlin::yield();
            });
            support::eventually([&] { return begun.load() > 0; });
            gate.done();  // readies it into this processor's slot
            if (i % 3 == 0) dunlin::yield();
            child.get();
            ASSERT_EQ(begun.load(), 1);
        }
    });
}

TEST_P(Task, AJoinerWithALimitIsWokenByTheEndAndNotByItsLimit) {
    run([] {
        dunlin::chan<int> gate;
        auto child = dunlin::spawn([&] { gate.recv(); });
        dunlin::go([&] {
            dunlin::sleep_for(20ms);  // the joiner waits
            gate.send(1);
        });
        EXPECT_TRUE(child.wait_for(1h));
    });
}

TEST_P(Task, TheParentSeesWhatTheChildWrote) {
    run([] {
        for (int i = 0; i < support::rounds(20'000); ++i) {
            int plain = 0;  // not atomic: TSan and the optimiser may say so if the join does not order it
            dunlin::task<void> t = dunlin::spawn([&plain, i] { plain = i; });
            if (i % 2 == 0) dunlin::yield();
            t.wait();
            ASSERT_EQ(plain, i);
        }
    });
}

}  // namespace
