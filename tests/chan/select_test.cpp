// select(): every kind of case, what happens to values and handlers. Many against each other: select_crowd_test.cpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/runtime_test.h"

using namespace std::chrono_literals;
using dunlin::channel_status, dunlin::on_recv, dunlin::on_send, dunlin::on_timeout, dunlin::otherwise, dunlin::select,
    dunlin::select_case;

namespace {

class Select : public support::each_p {};
EACH_P(Select);

using owner = std::unique_ptr<int>;

void until_parked(std::size_t n) {
    support::eventually([n] { return dunlin::runtime::stats().waiting == n; });
}

template <class T>
dunlin::chan<T> closed_channel() {
    dunlin::chan<T> c;
    c.close();
    return c;
}

dunlin::chan<int> channel_with(int value) {
    dunlin::chan<int> c(1);
    c.send(value);
    return c;
}

// ---- cases and handlers ---------------------------------------------------------------------------------------------

TEST_P(Select, ReturnsTheIndexOfTheCaseAfterItsHandler) {
    run([] {
        const dunlin::chan<int> never, c = channel_with(1);
        std::string order;
        const std::size_t taken = select(on_recv(never, [&] { order += "never "; }),
            on_recv(c, [&](std::optional<int> v) { order += "got " + std::to_string(*v); }),
            on_timeout(1h, [&] { order += "timeout "; }), otherwise([&] { order += "otherwise "; }));
        EXPECT_EQ(taken, 1u);
        EXPECT_EQ(order, "got 1");
    });
}

TEST_P(Select, HandlersMayBeLeftOut) {
    run([] {
        const dunlin::chan<int> never, room(1);
        EXPECT_EQ(select(on_recv(never), on_recv(channel_with(1))), 1u);
        EXPECT_EQ(select(on_recv(never), on_send(room, 5)), 1u);
        EXPECT_EQ(select(on_recv(never), on_timeout(1ms)), 1u);
        EXPECT_EQ(select(on_recv(never), otherwise()), 1u);
        EXPECT_EQ(select(on_recv(closed_channel<int>()), on_recv(never)), 0u);
        EXPECT_EQ(room.recv(), 5);
    });
}

int function_result = 0;
void receive_function(std::optional<int> v) { function_result = v.value_or(-1); }
void plain_function() { function_result = 99; }

struct move_only_handler {
    owner result;
    void operator()(std::optional<owner> v) { *result = **v; }
};

TEST_P(Select, HandlersMayBeAnythingThatCanBeCalled) {
    run([] {
        select(on_recv(channel_with(4), receive_function));
        EXPECT_EQ(function_result, 4);
        select(on_recv(channel_with(4), plain_function));
        EXPECT_EQ(function_result, 99);
        auto result = std::make_unique<int>(0);
        const int* const address = result.get();
        dunlin::chan<owner> c(2);
        c.send(std::make_unique<int>(6));
        c.send(std::make_unique<int>(7));
        std::vector<select_case> list;
        list.push_back(on_recv(c, move_only_handler{std::move(result)}));
        select(list);
        EXPECT_EQ(*address, 6);
        // By value, by rvalue reference, and the element itself moved out.
        owner mine;
        select(on_recv(c, [&](std::optional<owner>&& v) { mine = std::move(*v); }));
        EXPECT_EQ(*mine, 7);
    });
}

TEST_P(Select, ViewsAndConstHandlesAreChannelsToo) {
    run([] {
        dunlin::chan<int> c(1);
        const dunlin::sender<int> in = c;
        dunlin::receiver<int> out = c;
        EXPECT_EQ(select(on_send(in, 1), on_recv(dunlin::chan<int>::nil())), 0u);
        EXPECT_EQ(select(on_recv(out), on_recv(dunlin::receiver<int>())), 0u);
        EXPECT_EQ(select(on_send(dunlin::sender<int>(c), 2), on_send(dunlin::sender<int>(), 3)), 0u);
        EXPECT_EQ(select(on_recv(dunlin::receiver<int>(c), [](std::optional<int> v) { EXPECT_EQ(v, 2); })), 0u);
    });
}

TEST_P(Select, ClosedAndDrainedIsReady) {
    run([] {
        dunlin::chan<int> c(2);
        c.send(1);
        c.close();
        std::vector<std::optional<int>> got;
        for (int i = 0; i < 3; ++i)
            select(on_recv(c, [&](std::optional<int> v) { got.push_back(v); }), otherwise([] { ADD_FAILURE(); }));
        EXPECT_EQ(got, (std::vector<std::optional<int>>{1, std::nullopt, std::nullopt}));
    });
}

TEST_P(Select, NilCasesAreNeverTaken) {
    run([] {
        const auto nil = dunlin::chan<int>::nil();
        for (int i = 0; i < 100; ++i) {
            EXPECT_EQ(select(on_recv(nil), on_send(nil, 1), on_recv(channel_with(1))), 2u);
            EXPECT_EQ(select(on_recv(nil), on_send(nil, 1), otherwise()), 2u);
        }
        EXPECT_EQ(select(on_recv(nil), on_send(nil, 1), on_timeout(1ms)), 2u);
    });
}

TEST_P(Select, TakesTheSoonestTimeout) {
    run([] {
        const dunlin::chan<int> never;
        const auto begin = dunlin::clock::now();
        EXPECT_EQ(select(on_timeout(1h), on_recv(never), on_timeout(3ms), on_timeout(std::chrono::hours::max())), 2u);
        EXPECT_GE(dunlin::clock::now() - begin, 3ms);
        EXPECT_EQ(select(on_timeout(3ms)), 0u);
        // Nothing to wait for: as otherwise().
        for (const auto d : {0ns, -1ns, std::chrono::nanoseconds::min()}) {
            EXPECT_EQ(select(on_recv(never), on_timeout(d)), 1u);
            EXPECT_EQ(select(on_recv(channel_with(1)), on_timeout(d)), 0u);
        }
        EXPECT_EQ(select(on_timeout(1h), on_recv(channel_with(1))), 1u);
    });
}

TEST_P(Select, ATimeoutBeginsWithTheCall) {
    run([] {
        const dunlin::chan<int> never;
        std::vector<select_case> list;
        list.push_back(on_recv(never));
        list.push_back(on_timeout(5ms));
        dunlin::sleep_for(10ms);
        for (int i = 0; i < 3; ++i) {
            const auto begin = dunlin::clock::now();
            EXPECT_EQ(select(list), 1u);
            EXPECT_GE(dunlin::clock::now() - begin, 5ms);
        }
    });
}

TEST_P(Select, SaysWhatIsWrongWithItsCases) {
    run([] {
        const dunlin::chan<int> c = channel_with(1);
        try {
            select(otherwise(), on_recv(c), otherwise());
            ADD_FAILURE() << "nothing was thrown";
        } catch (const std::invalid_argument& error) {
            EXPECT_STREQ(error.what(), "dunlin::select: more than one otherwise()");
        }
        EXPECT_EQ(c.len(), 1u);
    });
}

TEST_P(Select, AHandlerMayThrow) {
    run([] {
        const dunlin::chan<int> c = channel_with(1), room(1);
        EXPECT_THROW(select(on_recv(c, [] { throw std::runtime_error("x"); })), std::runtime_error);
        EXPECT_EQ(c.len(), 0u);  // it was taken
        EXPECT_THROW(select(on_send(room, 1, [] { throw 5; })), int);
        EXPECT_EQ(room.len(), 1u);
        EXPECT_THROW(select(otherwise([] { throw 5; })), int);
        EXPECT_THROW(select(on_timeout(1us, [] { throw 5; })), int);
        std::vector<select_case> list;
        list.push_back(on_recv(room, [] { throw 5; }));
        EXPECT_THROW(select(list), int);
        EXPECT_EQ(room.len(), 0u);
        EXPECT_EQ(room.try_recv().status(), channel_status::would_block);
    });
}

TEST_P(Select, AHandlerMaySelectAndSendOnTheSameChannels) {
    run([] {
        const dunlin::chan<int> c(2);
        c.send(1);
        int got = 0;
        select(on_recv(c, [&](std::optional<int> v) {
            c.send(*v + 1);
            select(on_recv(c, [&](std::optional<int> w) { got = *w; }));
        }));
        EXPECT_EQ(got, 2);
    });
}

// The handle that the case was made of is the only one.
TEST_P(Select, AHandlerMayAssignToItsChannelVariable) {
    run([] {
        for (int i = 0; i < 100; ++i) {
            dunlin::chan<owner> c(2), quit;
            c.send(std::make_unique<int>(1));
            c.send(std::make_unique<int>(2));
            select(on_recv(c, [&](std::optional<owner> v) {
                c = dunlin::chan<owner>::nil();
                EXPECT_EQ(**v, 1);
            }), on_recv(quit));
            EXPECT_TRUE(c.is_nil());
            dunlin::chan<int> room(1);
            select(on_send(room, 5, [&] { room = dunlin::chan<int>(); }), on_recv(quit));
            EXPECT_EQ(room.cap(), 0u);
            // After a wait too.
            dunlin::chan<int> waited;
            dunlin::go([waited] { waited.send(1); });
            select(on_recv(waited, [&] { waited = dunlin::chan<int>::nil(); }), on_recv(quit));
            EXPECT_TRUE(waited.is_nil());
        }
    });
}

TEST_P(Select, ChannelsMayBeTemporaries) {
    run([] {
        const dunlin::chan<int> never;
        EXPECT_EQ(select(on_recv(never), on_recv(dunlin::after(1ms))), 1u);
        EXPECT_EQ(select(on_recv(dunlin::after(1h)), on_recv(dunlin::after(1ms)), on_recv(dunlin::chan<int>())), 1u);
        std::vector<select_case> list;
        list.push_back(on_recv(dunlin::after(1ms),
            [](std::optional<dunlin::clock::time_point> t) { EXPECT_LE(*t, dunlin::clock::now()); }));
        list.push_back(on_recv(dunlin::after(1h)));
        list.push_back(on_send(dunlin::chan<int>(), 1));
        EXPECT_EQ(select(list), 0u);
        // Its time has been received.
        list.push_back(otherwise());
        EXPECT_EQ(select(list), 3u);
        auto kept = on_recv(dunlin::after(1ms));
        auto moved = std::move(kept);
        EXPECT_EQ(select(moved), 0u);
    });
}

TEST_P(Select, AListKeepsItsChannelsAlive) {
    run([] {
        std::vector<select_case> list;
        {
            dunlin::chan<int> c(1);
            c.send(5);
            list.push_back(on_recv(c, [](std::optional<int> v) { EXPECT_EQ(v, 5); }));
        }
        EXPECT_EQ(select(list), 0u);
    });
}

TEST_P(Select, AListIsUsedAgain) {
    run([] {
        const int rounds = support::rounds(3000);
        dunlin::chan<int> a, b(1), quit;
        std::int64_t sum = 0, sent = 0;
        bool more = true;
        std::vector<select_case> list;
        list.push_back(on_recv(a, [&](std::optional<int> v) { sum += *v; }));
        list.push_back(on_send(b, 7, [&] { ++sent; }));
        list.push_back(on_recv(quit, [&] { more = false; }));
        dunlin::wait_group others;
        others.go([&] {
            for (int i = 0; i < rounds; ++i) a.send(i);
        });
        others.go([&] {
            for (int i = 0; i < rounds; ++i) EXPECT_EQ(b.recv(), 7);
        });
        dunlin::go([=] {
            others.wait();
            quit.close();
        });
        while (more) select(list);
        EXPECT_EQ(sum, static_cast<std::int64_t>(rounds) * (rounds - 1) / 2);
        EXPECT_EQ(sent, rounds + static_cast<int>(b.len()));
    });
}

// ---- values that are sent -------------------------------------------------------------------------------------------

TEST_P(Select, AnRvalueThatIsNotSentStaysWhereItIs) {
    run([] {
        const dunlin::chan<owner> full, room(1);
        const dunlin::chan<int> c = channel_with(1);
        owner a = std::make_unique<int>(1), b = std::make_unique<int>(2);
        EXPECT_EQ(
            select(on_send(full, std::move(a)), on_recv(c), on_send(dunlin::chan<owner>::nil(), std::move(b))), 1u);
        EXPECT_EQ(select(on_send(full, std::move(a)), otherwise()), 1u);
        EXPECT_EQ(select(on_send(full, std::move(a)), on_timeout(1ms)), 1u);
        EXPECT_THROW(select(on_send(closed_channel<owner>(), std::move(a))), dunlin::channel_closed);
        ASSERT_TRUE(a && b);
        EXPECT_EQ(*a, 1);
        EXPECT_EQ(*b, 2);
        EXPECT_EQ(select(on_send(full, std::move(a)), on_send(room, std::move(b))), 1u);
        EXPECT_TRUE(a);
        EXPECT_FALSE(b);
        EXPECT_EQ(**room.recv(), 2);
    });
}

TEST_P(Select, ASendThatWaitedMovesOnlyTheValueTaken) {
    run([] {
        for (int i = 0; i < support::rounds(1000); ++i) {
            const dunlin::chan<owner> c, d;
            dunlin::wait_group receiver;
            receiver.go([&] { EXPECT_EQ(**(i % 2 == 0 ? c : d).recv(), 10 + i % 2); });
            owner a = std::make_unique<int>(10), b = std::make_unique<int>(11);
            EXPECT_EQ(select(on_send(c, std::move(a)), on_send(d, std::move(b))), static_cast<std::size_t>(i % 2));
            EXPECT_EQ(a == nullptr, i % 2 == 0);
            EXPECT_EQ(b == nullptr, i % 2 == 1);
            receiver.wait();
        }
    });
}

TEST_P(Select, AnLvalueIsCopiedWhenTheCaseIsMade) {
    run([] {
        const dunlin::chan<std::string> c(2);
        std::string text(50, 'a');
        select_case later = on_send(c, text);
        text.assign(50, 'b');
        EXPECT_EQ(select(on_send(c, text)), 0u);
        EXPECT_EQ(text, std::string(50, 'b'));
        EXPECT_EQ(c.recv(), text);
        select(std::span(&later, 1));
        EXPECT_EQ(c.recv(), std::string(50, 'a'));
        // Converted.
        EXPECT_EQ(select(on_send(c, "a literal")), 0u);
        EXPECT_EQ(c.recv(), "a literal");
    });
}

TEST_P(Select, ACaseThatWasMovedFromIsNamed) {
    run([] {
        const dunlin::chan<int> c(1);
        std::vector<select_case> list;
        for (int i = 0; i < 3; ++i) list.push_back(on_send(c, i));
        const select_case elsewhere = std::move(list[1]);
        try {
            select(std::span(list));
            ADD_FAILURE() << "it was taken for a case";
        } catch (const std::invalid_argument& e) {
            EXPECT_STREQ(e.what(), "dunlin::select: case 1 was moved from");
        }
        EXPECT_EQ(c.len(), 0u);
    });
}

TEST_P(Select, AListOwnsItsValueUntilItIsSent) {
    run([] {
        const dunlin::chan<owner> c(1);
        const dunlin::chan<int> other(1);
        std::vector<select_case> list;
        list.push_back(on_send(c, std::make_unique<int>(3)));
        list.push_back(on_recv(other));
        c.send(nullptr);
        for (int i = 0; i < 10; ++i) {
            other.send(i);
            EXPECT_EQ(select(list), 1u);
        }
        static_cast<void>(c.recv());
        EXPECT_EQ(select(list), 0u);
        EXPECT_EQ(**c.recv(), 3);
    });
}

TEST_P(Select, SendOnClosedThrowsAlsoAfterAWait) {
    run([] {
        const dunlin::chan<owner> c;
        const dunlin::chan<int> never;
        dunlin::task<int> sender = dunlin::spawn([=] {
            owner v = std::make_unique<int>(9);
            try {
                select(on_recv(never), on_send(c, std::move(v), [] { ADD_FAILURE() << "sent"; }));
                ADD_FAILURE() << "nothing was thrown";
            } catch (const dunlin::channel_closed& error) {
                EXPECT_STREQ(error.what(), "send on closed channel");
            }
            return v ? *v : 0;
        });
        until_parked(1);
        c.close();
        EXPECT_EQ(sender.get(), 9);
    });
}

// ---- the same channel several times, and fairness -------------------------------------------------------------------

TEST_P(Select, TheSameChannelMayStandInSeveralCases) {
    run([] {
        const dunlin::chan<int> c, d;
        dunlin::task<std::size_t> first =
            dunlin::spawn([=] { return select(on_recv(c), on_recv(c), on_send(c, 5), on_recv(d), on_recv(d)); });
        until_parked(1);
        // Behind all places of the first one in the queue, which go away at once.
        dunlin::task<std::optional<int>> second = dunlin::spawn([=] { return c.recv(); });
        EXPECT_EQ(first.get(), 2u);
        EXPECT_EQ(second.get(), 5);
        first = dunlin::task<std::size_t>(dunlin::spawn([=] { return select(on_recv(c), on_recv(d), on_recv(c)); }));
        until_parked(1);
        second = dunlin::task<std::optional<int>>(dunlin::spawn([=] { return c.recv(); }));
        until_parked(2);
        d.send(6);
        EXPECT_EQ(first.get(), 1u);
        c.send(7);
        EXPECT_EQ(second.get(), 7);
        EXPECT_EQ(c.try_recv().status(), channel_status::would_block);
        EXPECT_EQ(c.try_send(1), channel_status::would_block);
        EXPECT_EQ(d.try_send(1), channel_status::would_block);
    });
}

// Six standard deviations: once in 500 million times by chance.
template <std::size_t N>
void expect_uniform(const std::array<int, N>& times, const char* what) {
    int total = 0;
    for (const int t : times) total += t;
    const double mean = static_cast<double>(total) / N, deviation = std::sqrt(mean * (1 - 1.0 / N));
    for (std::size_t i = 0; i < N; ++i) EXPECT_NEAR(times[i], mean, 6 * deviation) << what << ", case " << i;
}

void draw_ready_cases() {
    const int rounds = support::rounds(20'000);
    const dunlin::chan<int> a = closed_channel<int>(), b = closed_channel<int>(), room(rounds);
    std::array<int, 4> times{};
    for (int i = 0; i < rounds; ++i) ++times[select(on_recv(a), on_recv(b), on_send(room, 1), on_recv(a))];
    expect_uniform(times, "of a few");
    // One that is not ready between them has no part in it.
    std::array<int, 2> two{};
    for (int i = 0; i < rounds; ++i)
        ++two[select(on_recv(a), on_recv(dunlin::chan<int>::nil()), on_recv(dunlin::chan<int>()), on_recv(b)) / 3];
    expect_uniform(two, "of two");
    // More than are kept on the stack.
    std::vector<select_case> list;
    for (int i = 0; i < 40; ++i) list.push_back(on_recv(i % 2 == 0 ? a : b));
    std::array<int, 40> many{};
    for (int i = 0; i < rounds; ++i) ++many[select(list)];
    expect_uniform(many, "of many");
}

TEST_P(Select, EachReadyCaseIsAsLikelyAsTheOthers) {
    run([] { draw_ready_cases(); });
}

// A later party finds a select in the queue of its channel, in two places: either may be served.
TEST_P(Select, EachOfSeveralCasesOnOneChannelIsAsLikelyWhenItWaited) {
    run([] {
        const int rounds = support::rounds(10'000);
        const dunlin::chan<int> c;
        std::array<int, 3> receives{}, sends{};
        for (int i = 0; i < rounds; ++i) {
            dunlin::go([c] { c.send(1); });
            ++receives[select(on_recv(c), on_recv(c), on_recv(c))];
            dunlin::go([c] { static_cast<void>(c.recv()); });
            ++sends[select(on_send(c, 0), on_send(c, 1), on_send(c, 2))];
        }
        expect_uniform(receives, "receive");
        expect_uniform(sends, "send");
    });
}

// ---- threads --------------------------------------------------------------------------------------------------------

class SelectOnThread : public support::runtime_test {};

TEST_F(SelectOnThread, EachReadyCaseIsAsLikelyAsTheOthers) { draw_ready_cases(); }

TEST_F(SelectOnThread, WorksWithoutAnyGoroutine) {
    const dunlin::chan<int> c, d, quit;
    std::thread sender([=] {
        for (int i = 0; i < support::rounds(5000); ++i) select(on_send(c, 1), on_send(d, 2));
        quit.close();
    });
    int count = 0;
    std::int64_t sum = 0;
    const auto add = [&](std::optional<int> v) {
        ++count;
        sum += *v;
    };
    for (bool more = true; more;) select(on_recv(c, add), on_recv(d, add), on_recv(quit, [&] { more = false; }));
    sender.join();
    EXPECT_EQ(count, support::rounds(5000));
    EXPECT_GT(sum, count);
    EXPECT_LT(sum, 2 * count);
    EXPECT_EQ(select(on_recv(c), on_timeout(2ms)), 1u);
    EXPECT_EQ(select(on_recv(c), otherwise()), 1u);
    EXPECT_THROW(select(on_send(quit, 1)), dunlin::channel_closed);
    EXPECT_EQ(select(on_recv(c), on_recv(dunlin::after(1ms))), 1u);
}

// ---- at rest --------------------------------------------------------------------------------------------------------

std::chrono::nanoseconds cpu_time() {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

TEST_P(Select, AnIdleSelectUsesNoCpu) {
    run([] {
        const dunlin::chan<int> a, b, quit;
        const auto wait = [=] {
            select(on_recv(a), on_send(b, 1), on_recv(quit), on_timeout(1h), on_recv(dunlin::after(1h)));
        };
        dunlin::wait_group goroutines;
        for (int i = 0; i < 100; ++i) goroutines.go(wait);
        std::thread thread(wait);
        until_parked(100);
        dunlin::sleep_for(20ms);
        const auto before = cpu_time();
        EXPECT_EQ(select(on_recv(a), on_timeout(300ms)), 1u);
        EXPECT_LT(cpu_time() - before, 30ms);
        quit.close();
        goroutines.wait();
        dunlin::blocking([&] { thread.join(); });
    });
}

}  // namespace
