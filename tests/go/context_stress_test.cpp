// Ports of Go's own tests of contexts that race or take long, under Go's names. The others are in context_test.cpp.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "context/inside.h"
#include "context/race.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;
using dunlin::cancel_function;
using dunlin::cancellable;
using dunlin::context;
using dunlin::errc;

namespace {

class GoContextStress : public support::each_p {};
EACH_P(GoContextStress);

// CTX-03
TEST_P(GoContextStress, TestSimultaneousCancels) {
    allow(60s);
    run([] {
        for (int seed = 0; seed < support::rounds(100); ++seed) {
            std::minstd_rand random(static_cast<unsigned>(seed) + 1);
            const cancellable root = dunlin::with_cancel({});
            std::vector<cancellable> all{root};
            // A tree in which each has four children, and then a chain of values under some.
            for (std::size_t i = 0; all.size() < 100; ++i) {
                for (int k = 0; k < 4; ++k) {
                    const context parent = random() % 3 == 0 ? all[i].with_value(k, i) : context(all[i]);
                    all.push_back(parent.with_cancel());
                }
            }
            std::vector<cancellable> shuffled = all;
            std::shuffle(shuffled.begin(), shuffled.end(), random);
            dunlin::task_group group;
            for (const cancellable& c : shuffled) group.go([&c] { c.cancel(); });
            group.wait();
            for (const cancellable& c : all) {
                ASSERT_EQ(c.done().recv(), std::nullopt);
                ASSERT_EQ(c.err(), errc::cancelled);
                ASSERT_EQ(inside::children(c), 0u);
            }
        }
    });
}

// CTX-03, with the handles dropped while others cancel: the nodes go away in any order.
TEST_P(GoContextStress, SimultaneousCancelsAndDrops) {
    run([] {
        for (int seed = 0; seed < support::rounds(300); ++seed) {
            std::minstd_rand random(static_cast<unsigned>(seed) + 1);
            const cancellable root = dunlin::with_cancel({});
            std::vector<cancellable> all{root};
            while (all.size() < 60) all.push_back(all[random() % all.size()].with_timeout(1h));
            std::shuffle(all.begin(), all.end(), random);
            dunlin::task_group group;
            for (cancellable& c : all) {
                group.go([mine = std::move(c), cancels = random() % 2 == 0] {
                    if (cancels) mine.cancel();
                });
            }
            all.clear();
            if (seed % 2 == 0) root.cancel();
            group.wait();
            ASSERT_EQ(inside::children(root), 0u);
        }
        EXPECT_EQ(inside::timers(), 0u);
    });
}

// CTX-04: a child is cancelled by a goroutine that the parent's cancel woke, while that goes on.
TEST_P(GoContextStress, TestInterlockedCancels) {
    run([] {
        for (int i = 0; i < support::rounds(10'000); ++i) {
            const auto [parent, cancel_parent] = dunlin::with_cancel({});
            const auto [child, cancel_child] = dunlin::with_cancel(parent);
            dunlin::go([done = parent.done(), cancel_child = cancel_child] {
                done.recv();
                cancel_child();
            });
            if (i % 2 == 0) dunlin::yield();
            cancel_parent();
            child.done().recv();
            ASSERT_EQ(child.err(), errc::cancelled);
        }
    });
}

// CTX-05
struct layers {
    context ctx;
    std::vector<std::pair<int, int>> values;  // key, value
    std::vector<cancellable> cancels;
    int timers = 0;

    layers(std::minstd_rand& random, std::chrono::milliseconds timeout) {
        constexpr int min_layers = 30;
        for (int i = 0; i < min_layers || timers == 0 || cancels.empty() || values.empty(); ++i) {
            switch (random() % 3) {
            case 0:
                values.emplace_back(static_cast<int>(values.size()), i);
                ctx = ctx.with_value(values.back().first, values.back().second);
                break;
            case 1:
                cancels.push_back(ctx.with_cancel());
                ctx = cancels.back();
                break;
            default:
                cancels.push_back(ctx.with_timeout(timeout));
                ctx = cancels.back();
                ++timers;
                break;
            }
        }
    }

    void check_values(const char* when) const {
        for (const auto& [key, value] : values) {
            const int* found = ctx.value<int>(key);
            ASSERT_NE(found, nullptr) << when << ", key " << key;
            ASSERT_EQ(*found, value) << when << ", key " << key;
        }
        ASSERT_EQ(ctx.value<int>(static_cast<int>(values.size())), nullptr) << when;
        ASSERT_EQ(ctx.value<long>(0), nullptr) << when;
    }

    void check_nothing_is_left() const {
        for (const cancellable& c : cancels) {
            c.cancel();
            ASSERT_TRUE(c.is_done());
            ASSERT_EQ(inside::children(c), 0u);
        }
    }
};

TEST_P(GoContextStress, TestLayersCancel) {
    run([] {
        for (int seed = 0; seed < 50; ++seed) {
            std::minstd_rand random(static_cast<unsigned>(seed) + 1);
            const layers l(random, 1h);
            l.check_values("before");
            ASSERT_FALSE(l.ctx.is_done());
            ASSERT_LT(l.ctx.deadline().value(), dunlin::clock::now() + 1h);
            l.cancels[random() % l.cancels.size()].cancel();
            l.ctx.done().recv();
            ASSERT_EQ(l.ctx.err(), errc::cancelled);
            l.check_values("after");
            l.check_nothing_is_left();
            ASSERT_EQ(inside::timers(), 0u);
        }
    });
}

TEST_P(GoContextStress, TestLayersTimeout) {
    run([] {
        dunlin::task_group group;
        for (int seed = 0; seed < 50; ++seed) {
            group.go([seed] {
                std::minstd_rand random(static_cast<unsigned>(seed) + 1);
                const layers l(random, 200ms);
                l.check_values("before");
                const bool done = l.ctx.is_done();
                if (dunlin::clock::now() < *l.ctx.deadline()) {
                    ASSERT_FALSE(done);
                }
                l.ctx.done().recv();
                ASSERT_GE(dunlin::clock::now(), *l.ctx.deadline());
                ASSERT_EQ(l.ctx.err(), errc::deadline_exceeded);
                l.check_values("after");
                l.check_nothing_is_left();
            });
        }
        group.wait();
        // A timer that a deadline's goroutine is about to stop.
        support::eventually([] { return inside::timers() == 0; });
    });
}

// CTX-07
TEST_P(GoContextStress, TestWithCancelSimultaneouslyCanceledParent) {
    run([] {
        const auto cause = std::make_exception_ptr(std::runtime_error("Because!"));
        for (const auto who : {support::opponent::goroutine, support::opponent::thread}) {
            cancellable parent, child;
            support::race(
                support::rounds(10'000), who, [&](int) { parent = dunlin::with_cancel({}); },
                [&](int i) {
                    child =
                        i % 2 == 0 ? dunlin::with_cancel(parent) : dunlin::with_timeout(parent.with_value("k", i), 1h);
                },
                [&](int) { parent.cancel(cause); },
                [&](int) {
                    ASSERT_EQ(child.err(), errc::cancelled) << "both have returned";
                    ASSERT_EQ(child.done().recv(), std::nullopt);
                    ASSERT_EQ(child.cause(), cause);
                    ASSERT_EQ(inside::children(parent), 0u);
                });
            EXPECT_EQ(inside::timers(), 0u);
        }
    });
}

// CTX-08: a reader that sees a cause sees all of it, and always the same.
TEST_P(GoContextStress, TestCauseRace) {
    run([] {
        for (int i = 0; i < support::rounds(2000); ++i) {
            const auto [ctx, cancel] = dunlin::with_cancel({});
            dunlin::task_group group;
            for (int k = 0; k < 3; ++k) {
                group.go([k, cancel = cancel] { cancel(std::runtime_error("cause " + std::to_string(k))); });
            }
            std::exception_ptr seen;
            support::eventually([&, &ctx = ctx] { return (seen = ctx.cause()) != nullptr; });
            ASSERT_EQ(ctx.err(), errc::cancelled);
            try {
                std::rethrow_exception(seen);
            } catch (const std::runtime_error& e) {
                ASSERT_EQ(std::string(e.what()).substr(0, 6), "cause ");
            }
            group.wait();
            ASSERT_EQ(ctx.cause(), seen) << "the first cause stays";
        }
    });
}

// CTX-09: the function runs once if stop() says false, and never if it says true.
TEST_P(GoContextStress, AfterFuncStopAgainstCancel) {
    run([] {
        const int rounds = support::rounds(10'000);
        for (const auto who : {support::opponent::goroutine, support::opponent::thread}) {
            std::vector<std::atomic<int>> calls(static_cast<std::size_t>(rounds));
            std::vector<char> expected(calls.size());
            cancellable ctx;
            std::optional<dunlin::stop_function> stop;
            support::race(
                rounds, who,
                [&](int i) {
                    ctx = dunlin::with_cancel({});
                    stop = ctx.after_func([&calls, i] { ++calls[static_cast<std::size_t>(i)]; });
                },
                [&](int i) { expected[static_cast<std::size_t>(i)] = !(*stop)(); }, [&](int) { ctx.cancel(); },
                [&](int) { ASSERT_FALSE((*stop)()) << "nothing is left to stop"; });
            for (std::size_t i = 0; i < calls.size(); ++i) {
                if (expected[i] == 1) support::eventually([&] { return calls[i] == 1; });
            }
            dunlin::sleep_for(10ms);
            for (std::size_t i = 0; i < calls.size(); ++i) ASSERT_EQ(calls[i], expected[i]) << "round " << i;
        }
    });
}

// CTX-09: several that stop, at most one of which hears true.
TEST_P(GoContextStress, AfterFuncSeveralStops) {
    run([] {
        for (int i = 0; i < support::rounds(2000); ++i) {
            const auto [ctx, cancel] = dunlin::with_cancel({});
            const auto calls = std::make_shared<std::atomic<int>>(0);
            const auto stop = ctx.after_func([calls] { ++*calls; });
            std::atomic<int> truths{0};
            dunlin::task_group group;
            for (int k = 0; k < 3; ++k) group.go([&] { truths += stop(); });
            group.go([cancel = cancel] { cancel(); });
            group.wait();
            ASSERT_LE(truths, 1);
            if (truths == 0) support::eventually([&] { return *calls == 1; });
            ASSERT_EQ(*calls + truths, 1);
        }
    });
}

// CTX-12
TEST_P(GoContextStress, Lifetime) {
    run([] {
        const int rounds = support::rounds(100'000);
        const cancellable parent = dunlin::with_cancel({});
        std::vector<cancellable> kept;
        std::minstd_rand random(1);
        const auto alive = std::make_shared<int>(0);
        for (int i = 0; i < rounds; ++i) {
            const context from = i % 3 == 0 ? parent.with_value("alive", alive) : context(parent);
            cancellable c = i % 5 == 0 ? from.with_timeout(1h) : from.with_cancel();
            if (i % 2 == 0) c.cancel();
            if (i % 7 == 0) kept.push_back(std::move(c));
            if (kept.size() > 1000) {
                std::swap(kept[random() % kept.size()], kept.back());
                kept.pop_back();
            }
        }
        std::size_t not_done = 0;
        for (const cancellable& c : kept) not_done += !c.is_done();
        EXPECT_EQ(inside::children(parent), not_done);
        kept.resize(kept.size() / 2, parent);
        parent.cancel();
        EXPECT_EQ(inside::children(parent), 0u);
        EXPECT_EQ(inside::timers(), 0u);
        kept.clear();
        EXPECT_EQ(alive.use_count(), 1) << "a node has not been freed";
    });
}

// CTX-12: the handle of the parent goes first; the children keep its node.
TEST_P(GoContextStress, LifetimeParentFirst) {
    run([] {
        for (int i = 0; i < support::rounds(10'000); ++i) {
            const auto alive = std::make_shared<int>(i);
            std::vector<cancellable> children;
            {
                const cancellable parent = context().with_value("alive", alive).with_cancel();
                for (int k = 0; k < 4; ++k) children.push_back(parent.with_cancel());
                if (i % 2 == 0) parent.cancel();
            }
            ASSERT_EQ(alive.use_count(), 2);
            ASSERT_EQ(**children[1].value<std::shared_ptr<int>>("alive"), i);
            ASSERT_EQ(children[2].is_done(), i % 2 == 0);
            children.clear();
            ASSERT_EQ(alive.use_count(), 1);
        }
    });
}

}  // namespace
