// Waits that end with a context, nothing lost in the race between the two, and how long contexts and their timers live.
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "context/inside.h"
#include "context/race.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;
using dunlin::cancellable;
using dunlin::context;
using dunlin::context_cancelled;
using dunlin::errc;
using support::opponent;

namespace {

class ContextWait : public support::each_p {};
EACH_P(ContextWait);

// Waits until so many goroutines are parked.
void until_parked(std::size_t n) {
    support::eventually([n] { return dunlin::runtime::stats().waiting == n; });
}

// How the call ended: "" or the exception's code and the beginning of its text.
template <class Call>
std::string end_of(Call call) {
    try {
        call();
    } catch (const context_cancelled& e) {
        const std::string text = e.what();
        const std::string operation = text.substr(0, text.find(':'));
        return (e.code() == errc::cancelled              ? "cancelled, "
                   : e.code() == errc::deadline_exceeded ? "deadline_exceeded, "
                                                         : "other, ") +
               operation;
    }
    return "";
}

// ---- send and receive -----------------------------------------------------------------------------------------------

TEST_P(ContextWait, EndsASendAndAReceive) {
    run([] {
        const cancellable c = dunlin::with_cancel({});
        dunlin::chan<std::unique_ptr<int>> one(1), none = dunlin::chan<std::unique_ptr<int>>::nil();
        one.send(std::make_unique<int>(1), c);
        auto value = std::make_unique<int>(2);

        // Cancelled while it waits.
        dunlin::task_group group;
        group.go([&] { EXPECT_EQ(end_of([&] { one.send(std::move(value), c); }), "cancelled, chan send"); });
        auto nil_value = std::make_unique<int>(3);
        group.go([&] { EXPECT_EQ(end_of([&] { none.send(std::move(nil_value), c); }), "cancelled, chan send"); });
        group.go([&] { EXPECT_EQ(end_of([&] { none.recv(c.with_value("k", 1)); }), "cancelled, chan receive"); });
        dunlin::chan<int> empty;
        group.go([&] { EXPECT_EQ(end_of([&] { empty.recv(c); }), "cancelled, chan receive"); });
        group.go([&] { EXPECT_EQ(end_of([&] { dunlin::receiver<int>(empty).recv(c); }), "cancelled, chan receive"); });
        until_parked(5);
        c.cancel();
        group.wait();
        ASSERT_TRUE(value && nil_value) << "moved from, although it was not sent";
        EXPECT_EQ(*value, 2);

        // Done already: it ends waits only.
        EXPECT_EQ(end_of([&] { one.send(std::move(value), c); }), "cancelled, chan send") << "full";
        ASSERT_TRUE(value);
        EXPECT_EQ(**one.recv(c), 1);
        one.send(std::move(value), c);
        EXPECT_EQ(**one.recv(c), 2);
        EXPECT_EQ(end_of([&] { one.recv(c); }), "cancelled, chan receive") << "empty";

        // Closed, and by a deadline.
        one.close();
        EXPECT_EQ(one.recv(dunlin::with_timeout({}, 1h)), std::nullopt);
        EXPECT_THROW(one.send(nullptr, dunlin::with_timeout({}, 1h)), dunlin::channel_closed);
        const auto begin = dunlin::clock::now();
        EXPECT_EQ(end_of([&] { empty.recv(dunlin::with_timeout({}, 5ms)); }), "deadline_exceeded, chan receive");
        EXPECT_EQ(end_of([&] { empty.send(1, dunlin::with_timeout({}, 5ms)); }), "deadline_exceeded, chan send");
        EXPECT_GE(dunlin::clock::now() - begin, 10ms);
        EXPECT_EQ(inside::timers(), 0u);
    });
}

TEST_P(ContextWait, ACloseWhileItWaits) {
    run([] {
        const cancellable c = dunlin::with_cancel({});
        dunlin::chan<int> to, from;
        dunlin::task_group group;
        group.go([&] { EXPECT_THROW(to.send(1, c), dunlin::channel_closed); });
        group.go([&] { EXPECT_EQ(from.recv(c), std::nullopt); });
        until_parked(2);
        to.close();
        from.close();
        group.wait();
        EXPECT_FALSE(c.is_done());
    });
}

// Every value is received, or is still where it was.
TEST_P(ContextWait, ASendMayMeetACancel) {
    allow(60s);
    run([this] {
        for (const auto who : {opponent::goroutine, opponent::thread}) {
            dunlin::chan<std::unique_ptr<int>> c;
            std::uint64_t received = 0, sent = 0, cancelled = 0;
            dunlin::task_group receiver;
            receiver.go([&] {
                for (std::unique_ptr<int>&& v : c) received += static_cast<std::uint64_t>(*v);
            });
            cancellable ctx;
            std::unique_ptr<int> value;
            support::race(
                support::rounds(who == opponent::thread ? 5000 : procs() == 8 ? 20'000 : 100'000), who,
                [&](int i) {
                    ctx = dunlin::with_cancel({});
                    value = std::make_unique<int>(i + 1);
                },
                [&](int i) {
                    try {
                        c.send(std::move(value), ctx);
                        sent += static_cast<std::uint64_t>(i) + 1;
                        ASSERT_FALSE(value);
                    } catch (const context_cancelled&) {
                        ++cancelled;
                        ASSERT_TRUE(value) << "neither sent nor kept";
                        ASSERT_EQ(*value, i + 1);
                    }
                },
                [&](int) { ctx.cancel(); }, [](int) {});
            c.close();
            receiver.wait();
            EXPECT_EQ(received, sent);
        }
    });
}

TEST_P(ContextWait, AReceiveMayMeetACancel) {
    run([this] {
        for (const auto who : {opponent::goroutine, opponent::thread}) {
            dunlin::chan<int> c;
            std::atomic<std::uint64_t> sent{0};
            dunlin::task_group sender;
            sender.go([&] {
                for (int i = 1;; ++i) {
                    try {
                        c.send(i);
                    } catch (const dunlin::channel_closed&) {
                        return;
                    }
                    sent += static_cast<std::uint64_t>(i);
                }
            });
            cancellable ctx;
            std::uint64_t received = 0;
            int last = 0;
            support::race(
                support::rounds(who == opponent::thread ? 5000
                                : procs() == 8          ? 10'000
                                                        : 50'000),
                who, [&](int) { ctx = dunlin::with_cancel({}); },
                [&](int) {
                    try {
                        const int v = c.recv(ctx).value();
                        ASSERT_EQ(v, last + 1) << "one was lost";
                        last = v;
                        received += static_cast<std::uint64_t>(v);
                    } catch (const context_cancelled&) {}
                },
                [&](int) { ctx.cancel(); }, [](int) {});
            c.close();
            sender.wait();
            EXPECT_EQ(received, sent);
        }
    });
}

// Many senders and receivers under contexts with short deadlines.
TEST_P(ContextWait, SendersAndReceiversWithDeadlinesLoseNothing) {
    run([] {
        dunlin::chan<std::unique_ptr<int>> c(2);
        std::atomic<std::int64_t> balance{0};
        dunlin::task_group senders, receivers;
        const int rounds = support::rounds(2000);
        for (int g = 0; g < 8; ++g) {
            senders.go([&, g] {
                for (int i = 0; i < rounds; ++i) {
                    auto value = std::make_unique<int>(i);
                    try {
                        c.send(std::move(value), dunlin::with_timeout({}, std::chrono::microseconds((i * 7 + g) % 50)));
                        balance += i;
                    } catch (const context_cancelled&) {
                        ASSERT_EQ(*value, i);
                    }
                }
            });
            receivers.go([&, g] {
                for (int i = 0;; ++i) {
                    try {
                        const auto value =
                            c.recv(dunlin::with_timeout({}, std::chrono::microseconds((i * 11 + g) % 50)));
                        if (!value) return;
                        balance -= **value;
                    } catch (const context_cancelled&) {
                    }
                }
            });
        }
        senders.wait();
        c.close();
        receivers.wait();
        EXPECT_EQ(balance, 0);
        support::eventually([] { return inside::timers() == 0; });
    });
}

// ---- sleeping and select --------------------------------------------------------------------------------------------

TEST_P(ContextWait, EndsASleep) {
    run([] {
        const cancellable c = dunlin::with_cancel({});
        auto begin = dunlin::clock::now();
        dunlin::sleep_for(5ms, c);
        dunlin::sleep_until(dunlin::clock::now() + 5ms, c);
        dunlin::sleep_for(1ms, context());
        dunlin::sleep_for(-1ms, c);
        EXPECT_GE(dunlin::clock::now() - begin, 11ms);

        dunlin::task_group group;
        group.go([&] { EXPECT_EQ(end_of([&] { dunlin::sleep_for(1h, c); }), "cancelled, sleep"); });
        group.go(
            [&] { EXPECT_EQ(end_of([&] { dunlin::sleep_for(std::chrono::hours::max(), c); }), "cancelled, sleep"); });
        group.go([&] {
            EXPECT_EQ(end_of([&] { dunlin::sleep_until(std::chrono::steady_clock::now() + 1h, c.with_value(1, 1)); }),
                "cancelled, sleep");
        });
        until_parked(3);
        c.cancel();
        group.wait();
        EXPECT_EQ(inside::timers(), 0u);
        EXPECT_EQ(end_of([&] { dunlin::sleep_for(0s, c); }), "") << "no wait";
        EXPECT_EQ(end_of([&] { dunlin::sleep_for(1ms, c); }), "cancelled, sleep");

        begin = dunlin::clock::now();
        EXPECT_EQ(end_of([&] { dunlin::sleep_for(1h, dunlin::with_timeout({}, 5ms)); }), "deadline_exceeded, sleep");
        EXPECT_GE(dunlin::clock::now() - begin, 5ms);
        EXPECT_EQ(end_of([&] { dunlin::sleep_for(1ms, dunlin::with_timeout({}, 1h)); }), "");
        EXPECT_EQ(inside::timers(), 0u);
    });
}

TEST_P(ContextWait, EndsASelect) {
    run([] {
        const cancellable c = dunlin::with_cancel({}), other = dunlin::with_cancel({});
        dunlin::chan<int> values(1);
        const auto wait = [&] {
            return dunlin::select(
                dunlin::on_recv(values), dunlin::on_done(c), dunlin::on_done(other.with_value("k", 1)));
        };
        values.send(1);
        EXPECT_EQ(wait(), 0u);
        EXPECT_EQ(dunlin::select(dunlin::on_done(c), dunlin::on_done(context()), dunlin::otherwise()), 2u)
            << "the background is never done";
        dunlin::task_group group;
        group.go([&] { EXPECT_EQ(wait(), 2u); });
        until_parked(1);
        other.cancel();
        group.wait();
        int handled = 0;
        EXPECT_EQ(dunlin::select(dunlin::on_done(c), dunlin::on_done(other, [&] { ++handled; })), 1u);
        EXPECT_EQ(handled, 1);
        // By a deadline, of a context that has no other holder.
        EXPECT_EQ(dunlin::select(dunlin::on_recv(values), dunlin::on_done(dunlin::with_timeout({}, 5ms))), 1u);
        EXPECT_EQ(inside::timers(), 0u);
    });
}

// ---- lifetime -------------------------------------------------------------------------------------------------------

TEST_P(ContextWait, DroppingTheHandlesFreesTheNodeAndItsTimer) {
    run([] {
        const auto alive = std::make_shared<int>(1);
        const cancellable parent = dunlin::with_cancel({});
        {
            auto [ctx, cancel] = parent.with_timeout(1h);
            ctx.after_func([alive] { ADD_FAILURE(); });
            EXPECT_EQ(inside::timers(), 1u);
            EXPECT_EQ(inside::children(parent), 1u);
            ctx = {};
            EXPECT_EQ(alive.use_count(), 2) << "the cancel function is a handle";
            dunlin::receiver<std::monostate> done;
            {
                const cancellable child = parent.with_timeout(2h);
                child.after_func([alive] { ADD_FAILURE(); });
                done = child.done();
            }
            EXPECT_EQ(alive.use_count(), 3) << "done() is one as well";
            EXPECT_EQ(inside::timers(), 2u);
            EXPECT_EQ(inside::children(parent), 2u);
        }
        EXPECT_EQ(inside::timers(), 0u);
        EXPECT_EQ(inside::children(parent), 0u);
        EXPECT_EQ(alive.use_count(), 1);

        std::vector<context> many;
        for (int i = 0; i < 1000; ++i) many.push_back(parent.with_timeout(1h).with_value(i, alive));
        EXPECT_EQ(inside::timers(), 1000u);
        EXPECT_EQ(inside::children(parent), 1000u);
        many.clear();
        EXPECT_EQ(inside::timers(), 0u);
        EXPECT_EQ(inside::children(parent), 0u);
        EXPECT_EQ(alive.use_count(), 1);
    });
}

// Cancels, and goes back, when it is looked at.
struct watched_clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<watched_clock>;
    [[maybe_unused]] static constexpr bool is_steady = false;
    static inline std::atomic<std::int64_t> ticks{0};
    static inline std::atomic<const cancellable*> to_cancel{nullptr};
    static time_point now() {
        if (const cancellable* c = to_cancel.exchange(nullptr)) {
            c->cancel();
            ticks = 0;
        }
        return time_point(duration(ticks.load()));
    }
};

// The deadline's goroutine looks at the clock, which says that it is too early, and the context is cancelled meanwhile.
TEST_P(ContextWait, ADeadlineIsNotSetAgainOnceItsContextIsDone) {
    run([] {
        for (int round = 0; round < support::rounds(100); ++round) {
            constexpr std::int64_t hour = std::chrono::nanoseconds(1h).count();
            watched_clock::ticks = hour - 1'000'000;
            const cancellable c =
                dunlin::with_deadline({}, watched_clock::time_point(std::chrono::nanoseconds(hour)));
            watched_clock::to_cancel = &c;
            c.done().recv();
            support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });
            EXPECT_EQ(c.err(), errc::cancelled);
            EXPECT_EQ(inside::timers(), 0u);
        }
    });
}

TEST_P(ContextWait, ADropMayMeetItsDeadline) {
    run([] {
        std::vector<cancellable> some;
        for (int i = 0; i < support::rounds(20'000); ++i) {
            some.push_back(dunlin::with_timeout(
                i % 3 == 0 && !some.empty() ? context(some.front()) : context(), std::chrono::microseconds(i % 40)));
            if (some.size() == 20) some.clear();
        }
        some.clear();
        support::eventually([] { return inside::timers() == 0; });
        support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });
    });
}

TEST_P(ContextWait, DropAgainstCancelOfTheParent) {
    run([] {
        for (const auto who : {opponent::goroutine, opponent::thread}) {
            cancellable parent;
            std::vector<context> children;
            support::race(
                support::rounds(5000), who,
                [&](int) {
                    parent = dunlin::with_cancel({});
                    for (int i = 0; i < 4; ++i) children.push_back(parent.with_timeout(1h).with_cancel());
                },
                [&](int) { children.clear(); }, [&](int) { parent.cancel(); },
                [&](int) { ASSERT_EQ(inside::children(parent), 0u); });
            EXPECT_EQ(inside::timers(), 0u);
        }
    });
}

TEST_P(ContextWait, CancelsAWideTree) {
    run([] {
        const cancellable root = dunlin::with_cancel({});
        std::vector<cancellable> all;
        for (int i = 0; i < 10'000; ++i) all.push_back(root.with_cancel());
        root.cancel();
        for (const cancellable& c : all) ASSERT_TRUE(c.is_done());
    });
}

// A chain is cancelled in a loop. It must also be dropped in a loop: a goroutine's stack would not be enough.
TEST_P(ContextWait, CancelsAndDropsALongChain) {
    run([] {
        const auto chain = [](bool values) {
            const cancellable root = dunlin::with_cancel({});
            context end = root;
            for (int i = 0; i < 10'000; ++i) end = values ? end.with_value(i, i) : context(end.with_cancel());
            EXPECT_FALSE(end.is_done());
            root.cancel();
            EXPECT_TRUE(end.is_done());
            end = {};
        };
        dunlin::task_group group;
        group.go([&] { chain(false); });
        group.go([&] { chain(true); });
        dunlin::yield();  // so that they do not run on the waiter's stack
        group.wait();
    });
}

// ---- goroutines and threads -----------------------------------------------------------------------------------------

TEST_P(ContextWait, EndsWaitsOfGoroutinesAndThreads) {
    run([] {
        for (int round = 0; round < support::rounds(50); ++round) {
            const cancellable ctx = dunlin::with_timeout({}, 1h);
            dunlin::chan<int> c;
            std::atomic<int> waiting{0}, ended{0}, called{0};
            const auto wait = [&](int how) {
                ++waiting;
                switch (how) {
                case 0: EXPECT_EQ(end_of([&] { c.recv(ctx); }), "cancelled, chan receive"); break;
                case 1: EXPECT_EQ(ctx.done().recv(), std::nullopt); break;
                case 2:
                    EXPECT_EQ(end_of([&] { dunlin::this_goroutine::sleep_for(1h, ctx); }), "cancelled, sleep");
                    break;
                case 3: EXPECT_EQ(dunlin::select(dunlin::on_recv(c), dunlin::on_done(ctx)), 1u); break;
                default:
                    EXPECT_EQ(
                        end_of([&] { dunlin::chan<int>::nil().send(1, ctx.with_cancel()); }), "cancelled, chan send");
                    break;
                }
                ++ended;
            };
            dunlin::task_group group;
            std::vector<std::thread> threads;
            for (int how = 0; how < 5; ++how) {
                group.go([&wait, how] { wait(how); });
                threads.emplace_back(wait, how);
            }
            ctx.after_func([&] { ++called; });
            support::eventually([&] { return waiting == 10; });
            if (round % 2 == 0) {
                ctx.cancel();
            } else {
                std::thread([&] { ctx.cancel(); }).join();
            }
            dunlin::blocking([&] {
                for (std::thread& t : threads) t.join();
            });
            group.wait();
            EXPECT_EQ(ended, 10);
            support::eventually([&] { return called == 1; });
        }
        EXPECT_EQ(inside::timers(), 0u);
    });
}

// A goroutine's deadline that is pending when run() returns is forgotten: it does not pass any more, everything else
// works.
TEST_P(ContextWait, OutlivesRun) {
    cancellable ctx, past, waited;
    run([&] {
        ctx = dunlin::with_timeout({}, 1h);
        waited = dunlin::with_timeout({}, 20ms);
        past = dunlin::with_timeout({}, 1ms);
        past.done().recv();
    });
    EXPECT_EQ(inside::timers(), 0u);
    EXPECT_EQ(past.err(), errc::deadline_exceeded);
    EXPECT_FALSE(ctx.is_done());
    const context child = ctx.with_value("k", 1).with_cancel();
    run([&] {
        EXPECT_FALSE(child.is_done());
        dunlin::task_group group;
        group.go([&] { EXPECT_EQ(end_of([&] { dunlin::sleep_for(1h, child); }), "cancelled, sleep"); });
        until_parked(1);
        ctx.cancel();
        group.wait();
    });
    EXPECT_EQ(child.err(), errc::cancelled);
    std::this_thread::sleep_for(30ms);
    RecordProperty("deadline_after_run", waited.is_done() ? "passed" : "forgotten");
    waited = {};
    ctx = {};
}

// A plain thread does not end with run(), and neither do its deadlines. (On a busy machine this one passes before run()
// returns.)
TEST_P(ContextWait, DeadlinesOfAThreadPassWhateverRuns) {
    const cancellable ctx = dunlin::with_timeout({}, 30ms);
    const context child = ctx.with_cancel();
    std::atomic<int> called{0};
    ctx.after_func([&] { ++called; });
    run([&] {
        dunlin::go([child] {
            try {
                dunlin::chan<int>().recv(child);
            } catch (const context_cancelled&) {
            }
        });
        support::eventually([&] { return dunlin::runtime::stats().waiting == 1 || child.is_done(); });
    });
    EXPECT_EQ(end_of([&] { dunlin::chan<int>().recv(child); }), "deadline_exceeded, chan receive");
    EXPECT_EQ(ctx.err(), errc::deadline_exceeded);
    support::eventually_on_thread([&] { return called == 1; });
}

// The main goroutine goes on when the context is done, before most of the functions have begun, and run() returns.
TEST_P(ContextWait, FunctionsOfAThreadAreCalledAlthoughRunReturns) {
    constexpr int functions = 200;
    for (int i = 0; i < 60; ++i) {
        const cancellable ctx = dunlin::with_timeout({}, 1ms);
        const auto called = std::make_shared<std::atomic<int>>(0);
        for (int k = 0; k < functions; ++k) ctx.after_func([called] { ++*called; });
        run([&] { EXPECT_EQ(end_of([&] { dunlin::chan<int>().recv(ctx); }), "deadline_exceeded, chan receive"); });
        support::eventually_on_thread([&] { return *called == functions; });
    }
}

// What a goroutine of a run() that is over wanted to be called may use what is gone.
TEST_P(ContextWait, FunctionsOfGoroutinesEndWithTheirRun) {
    const cancellable ctx = dunlin::with_cancel({});
    std::atomic<int> of_thread{0}, of_goroutine{0};
    const auto alive = std::make_shared<int>(1);
    ctx.after_func([&] { ++of_thread; });
    std::optional<dunlin::stop_function> stop;
    run([&] { stop = ctx.after_func([&of_goroutine, alive] { ++of_goroutine; }); });
    EXPECT_EQ(alive.use_count(), 2);
    ctx.cancel();
    EXPECT_EQ(alive.use_count(), 1);
    support::eventually_on_thread([&] { return of_thread == 1; });
    EXPECT_EQ(of_goroutine, 0);
    EXPECT_TRUE((*stop)()) << "it was not started and never will be";
    run([&] {
        ctx.after_func([&] { ++of_thread; });
        support::eventually([&] { return of_thread == 2; });
    });
}

// Contexts with deadlines that outlive their run() leave nothing behind.
TEST_P(ContextWait, AForgottenDeadlineIsFreedWithItsContext) {
    const auto alive = std::make_shared<int>(1);
    cancellable ctx;
    run([&] {
        ctx = dunlin::with_timeout({}, 1h, std::make_exception_ptr(alive));
        EXPECT_EQ(inside::timers(), 1u);
    });
    EXPECT_EQ(inside::timers(), 0u);
    EXPECT_EQ(alive.use_count(), 2);
    const std::weak_ptr<int> weak = alive;
    dunlin::detail::timed_call* const call = inside::deadline(ctx);
    ASSERT_NE(call, nullptr);
    EXPECT_EQ(inside::references(call), 2u);
    call->reference();
    ctx = {};
    EXPECT_EQ(inside::references(call), 1u) << "its own and the pending one are given back";
    call->release();
    EXPECT_EQ(alive.use_count(), 1);
}

TEST_P(ContextWait, ADeadlineEndsWaitsOfThreadsWithoutRun) {
    const cancellable ctx = dunlin::with_timeout({}, 5ms);
    dunlin::chan<int> c;
    EXPECT_EQ(end_of([&] { c.recv(ctx); }), "deadline_exceeded, chan receive");
    EXPECT_EQ(ctx.err(), errc::deadline_exceeded);
    EXPECT_EQ(end_of([&] { dunlin::sleep_for(1h, dunlin::with_timeout({}, 2ms)); }), "deadline_exceeded, sleep");
}

}  // namespace
