// notify, watch and broadcast: what happens is told to one, to all, or as the latest value.
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "support/runtime_test.h"

namespace {

using namespace std::chrono_literals;
using dunlin::channel_status;
using dunlin::context;
using dunlin::context_cancelled;
using dunlin::on_recv;
using dunlin::otherwise;
using dunlin::select;

class Notify : public support::each_p {};
EACH_P(Notify);
class Watch : public support::each_p {};
EACH_P(Watch);
class Broadcast : public support::each_p {};
EACH_P(Broadcast);

dunlin::cancellable done_context() {
    auto ctx = dunlin::with_cancel({});
    ctx.cancel();
    return ctx;
}

// ---- notify -----------------------------------------------------------------------------------------------------

TEST_P(Notify, OnePermitIsStoredHoweverManyAreGiven) {
    run([] {
        const dunlin::notify n;
        EXPECT_FALSE(n.try_wait());
        n.notify_one();
        n.notify_one();
        n.wait();
        EXPECT_FALSE(n.try_wait());
        EXPECT_FALSE(n.wait_for(1ms));
        EXPECT_FALSE(n.wait_until(std::chrono::system_clock::now() + 1ms));
        n.notify_one();
        EXPECT_TRUE(n.wait_for(-1s)) << "a permit that is there is taken, though the time be past";
        n.notify_one();
        n.wait(done_context());
        EXPECT_THROW(n.wait(done_context()), context_cancelled);
        const dunlin::notify copy = n;
        EXPECT_EQ(copy, n);
        copy.notify_one();
        EXPECT_EQ(select(on_recv(n.channel()), otherwise()), 0u);
        EXPECT_EQ(select(on_recv(n.channel()), otherwise()), 1u);
    });
}

TEST_P(Notify, OneThatWasMovedFromWakesNothing) {
    run([] {
        dunlin::notify n;
        const dunlin::notify other = std::move(n);
        n.notify_one();
        n.notify_waiters();
        dunlin::watch<int> w(1);
        const auto w2 = std::move(w);
        EXPECT_THROW(w.send(2), std::logic_error);
        EXPECT_THROW(w.subscribe(), std::logic_error);
        dunlin::broadcast<int> b(1);
        const auto b2 = std::move(b);
        EXPECT_THROW(b.send(2), std::logic_error);
        EXPECT_THROW(b.subscribe(), std::logic_error);
        auto stop = dunlin::context::background().after_func([] {});
        const auto stop2 = std::move(stop);
        EXPECT_FALSE(stop());
    });
}

TEST_P(Notify, AllThatWaitAreWokenAndNothingIsStored) {
    run([] {
        const dunlin::notify n;
        n.notify_waiters();
        EXPECT_FALSE(n.try_wait());
        const dunlin::chan<int> waiting(100);
        std::vector<std::thread> threads;
        dunlin::task_group group;
        std::atomic<int> woken{0};
        const auto body = [&] {
            waiting.send(1);
            n.wait();
            ++woken;
        };
        for (int i = 0; i < 8; ++i) group.go(body);
        group.go([&] { EXPECT_EQ(select(on_recv(n.channel(), [&] { ++woken; }), dunlin::on_timeout(1h)), 0u); });
        for (int i = 0; i < 2; ++i) threads.emplace_back(body);
        for (int i = 0; i < 10; ++i) static_cast<void>(waiting.recv());
        while (woken != 11) {
            n.notify_waiters();
            dunlin::yield();
        }
        group.wait();
        for (std::thread& t : threads) dunlin::blocking([&] { t.join(); });
        EXPECT_FALSE(n.try_wait());
    });
}

// Each item is found by a waiter: the state first, then the notify.
TEST_P(Notify, NoChangeIsMissed) {
    run([] {
        const dunlin::notify n;
        std::atomic<int> items{0}, taken{0};
        const int total = support::rounds(4000);
        dunlin::task_group group;
        for (int w = 0; w < 3; ++w) {
            group.go([&, w] {
                while (taken < total) {
                    int have = items;
                    while (have > 0 && !items.compare_exchange_weak(have, have - 1)) {}
                    if (have > 0) {
                        if (++taken == total) n.notify_one();  // the next one may go home
                        if (have > 1) n.notify_one();
                        continue;
                    }
                    if (w == 0) {
                        static_cast<void>(n.wait_for(1h));
                    } else {
                        n.wait();
                    }
                }
                n.notify_one();
            });
        }
        for (int i = 0; i < total; ++i) {
            ++items;
            n.notify_one();
            if (i % 64 == 0) dunlin::yield();
        }
        group.wait();
        EXPECT_EQ(taken, total);
    });
}

// A waiter that gives up at the same moment leaves the permit to another, or to the store.
TEST_P(Notify, APermitIsNotLostWithAWaiterThatGivesUp) {
    run([] {
        for (int round = 0; round < support::rounds(400); ++round) {
            const dunlin::notify n;
            auto ctx = dunlin::with_cancel({});
            auto waiter = dunlin::spawn([&] {
                try {
                    n.wait(ctx);
                    return 1;
                } catch (const context_cancelled&) {
                    return 0;
                }
            });
            auto timed = dunlin::spawn([&] { return n.wait_for(std::chrono::microseconds(round % 60)) ? 1 : 0; });
            if (round % 2) dunlin::yield();
            n.notify_one();
            ctx.cancel();
            ASSERT_EQ(waiter.get() + timed.get() + (n.try_wait() ? 1 : 0), 1);
        }
    });
}

// ---- watch ------------------------------------------------------------------------------------------------------

TEST_P(Watch, AReceiverGetsTheLatestValueOnce) {
    run([] {
        const dunlin::watch<std::string> w("first");
        auto rx = w.subscribe();
        EXPECT_EQ(rx.get(), "first");
        EXPECT_FALSE(rx.has_changed());
        EXPECT_EQ(rx.try_recv().status(), channel_status::would_block);
        w.send("second");
        w.send("third");
        EXPECT_TRUE(rx.has_changed());
        auto copy = rx;
        EXPECT_EQ(rx.recv(), "third");
        EXPECT_FALSE(rx.has_changed());
        EXPECT_TRUE(copy.has_changed()) << "a copy has seen what the original had";
        EXPECT_EQ(*copy.try_recv(), "third");
        EXPECT_FALSE(rx.recv_for(1ms));
        EXPECT_FALSE(rx.recv_until(std::chrono::system_clock::now() + 1ms));
        EXPECT_THROW(rx.recv(done_context()), context_cancelled);
        w.send("fourth");
        EXPECT_EQ(rx.recv(done_context()), "fourth");
        const auto before = w.snapshot();
        EXPECT_TRUE(w.modify([](std::string& s) { s += "+"; }));
        EXPECT_EQ(*before, "fourth");
        EXPECT_EQ(rx.recv_for(-1s), "fourth+");
        EXPECT_FALSE(w.modify([](std::string&) { return false; }));
        EXPECT_THROW(w.modify([](std::string& s) { s += "?"; throw 1; }), int);
        EXPECT_EQ(w.get(), "fourth+");
        EXPECT_FALSE(rx.has_changed());
        EXPECT_EQ(w.receiver_count(), 2u);
        copy = std::move(rx);
        EXPECT_EQ(w.receiver_count(), 1u);
        EXPECT_THROW(rx.recv(), std::logic_error);
    });
}

TEST_P(Watch, TheLastValueComesBeforeTheEnd) {
    run([] {
        auto w = std::make_unique<dunlin::watch<int>>(1);
        auto seen = w->subscribe(), unseen = seen;
        w->send(2);
        EXPECT_EQ(seen.recv(), 2);
        auto waiter = dunlin::spawn([rx = seen]() mutable { return rx.recv(); });
        dunlin::yield();
        w.reset();
        EXPECT_EQ(waiter.get(), std::nullopt);
        EXPECT_EQ(seen.recv(), std::nullopt);
        EXPECT_TRUE(seen.closed());
        EXPECT_EQ(unseen.recv_for(0s), 2);
        EXPECT_EQ(unseen.try_recv().status(), channel_status::closed);
        EXPECT_EQ(unseen.recv_for(1h).status(), channel_status::closed);
        EXPECT_EQ(unseen.get(), 2);
        const dunlin::watch<int> again(1);
        again.close();
        EXPECT_THROW(again.close(), dunlin::channel_closed);
        EXPECT_THROW(again.send(2), dunlin::channel_closed);
        EXPECT_THROW(again.modify([](int& v) { ++v; }), dunlin::channel_closed);
        EXPECT_EQ(again.subscribe().recv(), std::nullopt);
    });
}

TEST_P(Watch, StandsInSelectLikeAChannel) {
    run([] {
        const dunlin::watch<int> w(0);
        auto rx = w.subscribe();
        EXPECT_EQ(select(on_recv(rx), otherwise()), 1u);
        w.send(1);
        w.send(2);
        int got = 0;
        EXPECT_EQ(select(on_recv(rx, [&](int v) { got = v; }), otherwise()), 0u);
        EXPECT_EQ(got, 2);
        EXPECT_EQ(select(on_recv(rx), otherwise()), 1u) << "received is received";
        w.send(3);
        EXPECT_EQ(rx.recv(), 3);
        EXPECT_EQ(select(on_recv(rx), otherwise()), 1u) << "by whichever way";
        auto sender = dunlin::spawn([&] { w.send(4); });
        std::vector<dunlin::select_case> list;
        list.emplace_back(on_recv(rx, [&](std::optional<int> v) { got = *v; }));
        EXPECT_EQ(select(list), 0u);
        EXPECT_EQ(got, 4);
        sender.get();
        w.close();
        EXPECT_EQ(select(on_recv(rx, [&](std::optional<int> v) { got = v ? 1 : 0; }), otherwise()), 0u);
        EXPECT_EQ(got, 0);
        EXPECT_THROW(select(on_recv(rx, [](int) {})), dunlin::channel_closed);
    });
}

// A send that comes first does not make it begin again, however many there are: it counts as made before the send.
TEST_P(Watch, AModifyBesideSendersCallsItsFunctionOnce) {
    run([] {
        const dunlin::watch<int> w(0);
        auto rx = w.subscribe();
        int calls = 0;
        EXPECT_TRUE(w.modify([&](int& v) {
            v = -1;
            w.send(10 + calls++);
        }));
        EXPECT_EQ(calls, 1);
        EXPECT_EQ(w.get(), 10);
        EXPECT_EQ(rx.recv(), 10);
        EXPECT_FALSE(rx.has_changed());

        calls = 0;
        EXPECT_TRUE(w.modify([&](int& v) {
            if (++calls == 1) w.modify([](int& other) { other += 100; });
            ++v;
        }));
        EXPECT_EQ(calls, 2) << "another modify() must not be lost";
        EXPECT_EQ(w.get(), 111);

        // Of two that began from the same value, one must see what the other has done.
        w.send(0);
        calls = 0;
        const auto claim = [](int& v) { return v == 0 ? (v = 1, true) : false; };
        EXPECT_FALSE(w.modify([&](int& v) {
            if (++calls == 1) {
                EXPECT_TRUE(w.modify([&](int& other) {
                    w.send(7);
                    return claim(other);
                }));
            }
            return claim(v);
        }));
        EXPECT_EQ(calls, 2);
        EXPECT_EQ(w.get(), 7);
        EXPECT_THROW(w.modify([&](int&) { w.close(); }), dunlin::channel_closed);
    });
}

TEST_P(Watch, ALoopReceivesUntilTheEnd) {
    run([] {
        auto w = std::make_optional<dunlin::watch<std::string>>("zero");
        auto r = w->subscribe();
        auto seen = dunlin::spawn([r]() mutable {
            std::vector<std::string> texts;
            for (std::string text : r) texts.push_back(std::move(text));
            return texts;
        });
        w->send("one");
        while (r.recv() != "one") {}
        w->send("last");
        w.reset();
        const auto texts = seen.get();
        ASSERT_FALSE(texts.empty());
        EXPECT_EQ(texts.back(), "last");
        EXPECT_EQ(r.recv(), "last") << "the copy has a place of its own";
        for (const std::string& text : r) ADD_FAILURE() << text;
    });
}

// Values only grow, the last one arrives at each, and modify() loses none.
TEST_P(Watch, ManySendAndReceive) {
    run([] {
        const dunlin::watch<long> w(0);
        const long each = support::rounds(1000);
        dunlin::task_group group;
        std::vector<std::thread> threads;
        const auto follow = [&](dunlin::watch_receiver<long> rx) {
            long last = 0;
            while (last < 3 * each) {
                const auto v = rx.recv();
                ASSERT_TRUE(v);
                ASSERT_GT(*v, last);
                last = *v;
            }
        };
        for (int i = 0; i < 4; ++i) group.go(follow, w.subscribe());
        group.go([&, rx = w.subscribe()]() mutable {
            for (long last = 0; last < 3 * each;)
                select(on_recv(rx, [&](long v) { last = v; }), dunlin::on_timeout(1h));
        });
        threads.emplace_back(follow, w.subscribe());
        for (int i = 0; i < 3; ++i) {
            group.go([&] {
                for (long k = 0; k < each; ++k) w.modify([](long& v) { ++v; });
            });
        }
        group.wait();
        for (std::thread& t : threads) dunlin::blocking([&] { t.join(); });
        EXPECT_EQ(w.get(), 3 * each);
        EXPECT_EQ(w.receiver_count(), 0u);
    });
}

// ---- broadcast --------------------------------------------------------------------------------------------------

TEST_P(Broadcast, EachReceiverGetsEachValueInOrder) {
    run([] {
        const dunlin::broadcast<std::string> b(4);
        EXPECT_EQ(b.send("nobody"), 0u);
        auto one = b.subscribe();
        EXPECT_EQ(b.send("a"), 1u);
        auto two = b.subscribe();
        EXPECT_EQ(b.send("b"), 2u);
        EXPECT_EQ(one.len(), 2u);
        EXPECT_EQ(one.recv(), "a");
        auto copy = one;
        EXPECT_EQ(one.recv(done_context()), "b");
        EXPECT_EQ(two.recv_for(-1s), "b");
        EXPECT_EQ(copy.try_recv(), "b");
        EXPECT_THROW(one.recv(done_context()), context_cancelled);
        EXPECT_EQ(two.recv_for(1ms).status(), channel_status::would_block);
        EXPECT_EQ(two.recv_until(std::chrono::system_clock::now() + 1ms).status(), channel_status::would_block);
        EXPECT_EQ(b.send("c"), 3u);
        b.close();
        EXPECT_THROW(b.send("d"), dunlin::channel_closed);
        EXPECT_THROW(b.close(), dunlin::channel_closed);
        EXPECT_EQ(one.recv(), "c");
        EXPECT_EQ(one.recv(), std::nullopt);
        EXPECT_EQ(one.try_recv().status(), channel_status::closed);
        int seen = 0;
        select(on_recv(two, [&](const std::string& s) { seen += s == "c"; }));
        select(on_recv(two, [&](const std::optional<std::string>& s) { seen += !s; }));
        EXPECT_EQ(seen, 2);
        EXPECT_THROW(dunlin::broadcast<int>(0), std::invalid_argument);
        EXPECT_EQ(b.subscribe().recv(), std::nullopt);
    });
}

TEST_P(Broadcast, ALoopUntilAContextIsDoneGoesOnLater) {
    run([] {
        const dunlin::broadcast<int> b(4);
        auto r = b.subscribe();
        auto [ctx, cancel] = dunlin::with_cancel(dunlin::context::background());
        auto sum = dunlin::spawn([&r, ctx = ctx] {
            int total = 0;
            for (const int i : r.until(ctx)) total += i;
            return total;
        });
        b.send(1);
        b.send(2);
        while (r.len() != 0) dunlin::yield();
        cancel();
        EXPECT_EQ(sum.get(), 3);
        b.send(3);
        EXPECT_EQ(r.recv(), 3) << "nothing is lost";
    });
}

TEST_P(Broadcast, ALoopReceivesAllUntilTheEnd) {
    run([] {
        const dunlin::broadcast<int> b(4);
        auto r = b.subscribe();
        auto late = b.subscribe();
        for (int i = 0; i < 4; ++i) b.send(i);
        auto sum = dunlin::spawn([r]() mutable {
            int total = 0;
            for (const int i : r) total += i;
            return total;
        });
        b.send(4);
        b.send(5);
        b.close();
        const auto all = [&] {
            for (const int i : late) EXPECT_GE(i, 2);
        };
        EXPECT_THROW(all(), dunlin::broadcast_lagged);
        all();
        try {
            EXPECT_EQ(sum.get(), 15);
        } catch (const dunlin::broadcast_lagged&) {  // the sender was faster
        }
    });
}

TEST_P(Broadcast, OneThatIsTooSlowIsToldHowManyItHasMissed) {
    run([] {
        const dunlin::broadcast<int> b(3);
        auto slow = b.subscribe(), fast = slow;
        for (int i = 0; i < 10; ++i) {
            b.send(i);
            EXPECT_EQ(fast.recv(), i);
        }
        try {
            slow.recv();
            ADD_FAILURE();
        } catch (const dunlin::broadcast_lagged& e) {
            EXPECT_EQ(e.missed(), 7u);
            EXPECT_STREQ(e.what(), "dunlin::broadcast: the receiver was too slow and has missed 7 values");
        }
        EXPECT_EQ(slow.recv(), 7);
        for (int i = 10; i < 14; ++i) b.send(i);
        EXPECT_THROW(select(on_recv(slow)), dunlin::broadcast_lagged);
        int next = 11;
        while (select(on_recv(slow, [&](int v) { EXPECT_EQ(v, next++); }), otherwise()) == 0) {}
        EXPECT_EQ(next, 14);
    });
}

// A sender that is always quicker leaves it every other receive.
TEST_P(Broadcast, WhatFollowsALagIsNotLostToo) {
    run([] {
        const dunlin::broadcast<int> b(1);
        auto slow = b.subscribe();
        int sent = 0;
        b.send(sent++);
        for (int i = 0; i < 5; ++i) {
            b.send(sent++);
            EXPECT_THROW(slow.recv(), dunlin::broadcast_lagged);
            const int expected = sent - 1;
            auto copy = slow;
            b.send(sent++);
            b.send(sent++);
            EXPECT_EQ(copy.len(), 3u);
            EXPECT_EQ(slow.recv(), expected);
            EXPECT_EQ(copy.recv(), expected);
            EXPECT_EQ(slow.len(), 2u);
            try {
                copy.recv();
                ADD_FAILURE();
            } catch (const dunlin::broadcast_lagged& e) {
                EXPECT_EQ(e.missed(), 1u);
            }
        }
        b.close();
        EXPECT_THROW(slow.recv(), dunlin::broadcast_lagged);
        EXPECT_EQ(slow.recv(), sent - 1);
        EXPECT_EQ(slow.recv(), std::nullopt);
    });
}

struct throws_when_copied {
    int v;
    inline static std::atomic<int> throws{0};
    explicit throws_when_copied(int x) : v(x) {}
    throws_when_copied(const throws_when_copied& o) : v(o.v) {
        if (throws > 0 && throws-- > 0) throw std::runtime_error("copy");
    }
};

TEST_P(Broadcast, AValueThatCannotBeCopiedNowIsReceivedLater) {
    run([] {
        const dunlin::broadcast<throws_when_copied> b(2);
        auto rx = b.subscribe();
        b.send(throws_when_copied(1));
        b.send(throws_when_copied(2));
        throws_when_copied::throws = 1;
        EXPECT_THROW(rx.recv(), std::runtime_error);
        EXPECT_EQ(select(on_recv(rx, [](const throws_when_copied& x) { EXPECT_EQ(x.v, 1); }), otherwise()), 0u);
        EXPECT_EQ(rx.recv()->v, 2);
        const dunlin::watch<throws_when_copied> w(throws_when_copied(3));
        auto follower = w.subscribe();
        w.send(throws_when_copied(4));
        throws_when_copied::throws = 1;
        EXPECT_THROW(follower.recv(), std::runtime_error);
        EXPECT_TRUE(follower.has_changed());
        EXPECT_EQ(select(on_recv(follower, [](const throws_when_copied& x) { EXPECT_EQ(x.v, 4); }), otherwise()), 0u);
        throws_when_copied::throws = 0;
    });
}

// What was sent is received or missed, in order, each once, by goroutines and threads, recv() and select() in turn.
TEST_P(Broadcast, NothingIsLostWithoutAWord) {
    run([] {
        const dunlin::broadcast<int> b(16);
        const int total = support::rounds(5000);
        const auto follow = [](dunlin::broadcast_receiver<int> rx) {
            std::uint64_t received = 0, missed = 0;
            int last = -1;
            const auto take = [&](int v) {
                ASSERT_GT(v, last);
                last = v;
                ++received;
            };
            for (int i = 0;; ++i) {
                try {
                    bool ended = false;
                    if (i % 2) {
                        select(on_recv(rx, [&](std::optional<int> v) { v ? take(*v) : void(ended = true); }),
                               dunlin::on_timeout(1h));
                    } else {
                        const auto v = rx.recv();
                        v ? take(*v) : void(ended = true);
                    }
                    if (ended) break;
                } catch (const dunlin::broadcast_lagged& e) {
                    missed += e.missed();
                }
            }
            EXPECT_EQ(received + missed, static_cast<std::uint64_t>(total));
        };
        dunlin::task_group group;
        std::vector<std::thread> threads;
        for (int i = 0; i < 3; ++i) group.go(follow, b.subscribe());
        for (int i = 0; i < 2; ++i) threads.emplace_back(follow, b.subscribe());
        for (int i = 0; i < total; ++i) {
            b.send(i);
            if (i % 8 == 0) dunlin::yield();
        }
        b.close();
        group.wait();
        for (std::thread& t : threads) dunlin::blocking([&] { t.join(); });
        EXPECT_EQ(b.receiver_count(), 0u);
    });
}

// The first of these that is destroyed calls `end`.
struct ends_its_publisher {
    static inline int alive = 0;
    static inline std::function<void()> end;
    ends_its_publisher() { ++alive; }
    ends_its_publisher(const ends_its_publisher&) { ++alive; }
    ~ends_its_publisher() {
        if (const auto f = std::exchange(end, nullptr)) f();
        --alive;
    }
};

// A receiver may destroy the last handle as soon as it has the value, while the send is on its way out of the lock.
// Seen in a call between that and the send's return, which is the destructor of the value that was there before.
template <class Make, class Change>
void keeps_its_state(Make make, Change change) {
    auto publisher = std::make_unique<decltype(make())>(make());
    auto followed = std::make_optional(publisher->subscribe());
    publisher->send({});
    ends_its_publisher::end = [&] {
        const int before = ends_its_publisher::alive;
        publisher.reset();
        followed.reset();
        EXPECT_EQ(ends_its_publisher::alive, before) << "the new value is gone, and the lock with it";
    };
    change(*publisher);
    EXPECT_EQ(publisher, nullptr);
    EXPECT_EQ(ends_its_publisher::alive, 0);
}

TEST_P(Watch, MayEndAsSoonAsItsValueIsThere) {
    run([] {
        using watch = dunlin::watch<ends_its_publisher>;
        const auto make = [] { return watch({}); };
        keeps_its_state(make, [](const watch& w) { w.send({}); });
        keeps_its_state(make, [](const watch& w) { w.modify([](ends_its_publisher&) {}); });
    });
}

TEST_P(Broadcast, MayEndAsSoonAsItsValueIsThere) {
    run([] {
        using broadcast = dunlin::broadcast<ends_its_publisher>;
        keeps_its_state([] { return broadcast(1); }, [](const broadcast& b) { b.send({}); });
    });
}

}  // namespace
