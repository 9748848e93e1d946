// Channels: what Go's tests do not ask, since Go has neither moves nor exceptions nor plain threads.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/runtime_test.h"

using namespace std::chrono_literals;
using dunlin::channel_status;

namespace {

class Chan : public support::each_p {};
EACH_P(Chan);

using owner = std::unique_ptr<int>;

void until_parked(std::size_t n) {
    support::eventually([n] { return dunlin::runtime::stats().waiting == n; });
}

// Counts its moves. Cannot be assigned, nor copied.
class moved {
public:
    explicit moved(int n) noexcept : number_(n) { ++alive; }
    moved(moved&& other) noexcept : number_(std::exchange(other.number_, -1)) {
        ++alive;
        ++moves;
    }
    ~moved() { --alive; }
    int number() const noexcept { return number_; }

    static inline std::atomic<int> alive{0}, moves{0};

private:
    int number_;
};

static_assert(!std::is_copy_constructible_v<moved> && !std::is_move_assignable_v<moved>);

// ---- values ---------------------------------------------------------------------------------------------------------

TEST_P(Chan, MovesOnlyElements) {
    run([] {
        for (const std::ptrdiff_t capacity : {0, 1, 3}) {
            dunlin::chan<owner> c(capacity);
            dunlin::go([c] {
                for (int i = 0; i < 100; ++i) c.send(std::make_unique<int>(i));
                c.close();
            });
            int expected = 0;
            for (owner v : c) EXPECT_EQ(*v, expected++);
            EXPECT_EQ(expected, 100);
        }
    });
}

TEST_P(Chan, RangeForMayStopEarlyAndGoOn) {
    run([] {
        dunlin::chan<owner> c(5);
        for (int i = 0; i < 5; ++i) c.send(std::make_unique<int>(i));
        for (owner v : c) {
            if (*v == 1) break;
        }
        // Nothing was taken ahead.
        EXPECT_EQ(c.len(), 3u);
        c.close();
        std::vector<int> rest;
        for (const owner& v : c) rest.push_back(*v);
        EXPECT_EQ(rest, (std::vector{2, 3, 4}));
        for (owner v : dunlin::receiver<owner>(c)) ADD_FAILURE() << *v << " out of a closed channel";
    });
}

TEST_P(Chan, ViewsReceiveNoMoreThanIsAskedFor) {
    run([] {
        dunlin::chan<int> c(5);
        for (int i = 0; i < 5; ++i) c.send(i);
        int sum = 0;
        for (const int v : c | std::views::take(3)) sum += v;
        EXPECT_EQ(sum, 0 + 1 + 2);
        auto i = c.begin();
        i++;  // leaves a value that was not looked at
        EXPECT_EQ(*i, 4);
        EXPECT_EQ(c.len(), 0u);
        EXPECT_EQ(decltype(i)(), std::default_sentinel);
    });
}

TEST_P(Chan, ALoopUntilAContextIsDoneEndsThereOrAtTheEnd) {
    run([] {
        dunlin::chan<owner> c(3);
        auto [ctx, cancel] = dunlin::with_cancel(dunlin::context::background());
        std::vector<int> seen;
        auto loop = dunlin::spawn([&, ctx = ctx] {
            for (owner v : c.until(ctx)) seen.push_back(*v);
        });
        c.send(std::make_unique<int>(1));
        c.send(std::make_unique<int>(2));
        while (c.len() != 0) dunlin::yield();
        cancel();
        loop.get();
        EXPECT_EQ(seen, (std::vector{1, 2}));
        EXPECT_FALSE(c.closed());
        c.send(std::make_unique<int>(3));
        // What is there is received even if the context is done already.
        for (owner v : dunlin::receiver<owner>(c).until(ctx)) seen.push_back(*v);
        EXPECT_EQ(seen.back(), 3);
        c.send(std::make_unique<int>(4));
        c.close();
        for (owner v : c.until(dunlin::context::background())) seen.push_back(*v);
        EXPECT_EQ(seen, (std::vector{1, 2, 3, 4}));
        for (owner v : c.until(ctx) | std::views::take(1)) ADD_FAILURE() << *v << " out of a closed channel";
    });
}

TEST_P(Chan, ACancelledWaitNamesTheCauseThatWasGiven) {
    run([] {
        const dunlin::chan<int> c;
        const auto text_of = [&](const dunlin::context& ctx) {
            try {
                c.recv(ctx);
            } catch (const dunlin::context_cancelled& e) {
                return std::string(e.what()) + (e.cause() != nullptr ? ", with a cause" : "");
            }
            return std::string("received");
        };
        auto [late, cancel_late] = dunlin::with_timeout(dunlin::context::background(), 1ms);
        EXPECT_EQ(text_of(late), "chan receive: context deadline exceeded");
        auto [ctx, cancel] = dunlin::with_cancel(dunlin::context::background());
        cancel(std::make_exception_ptr(std::runtime_error("out of patience")));
        EXPECT_EQ(text_of(dunlin::with_cancel(ctx)), "chan receive: context canceled: out of patience, with a cause");
        auto [other, cancel_other] = dunlin::with_cancel(dunlin::context::background());
        cancel_other(std::make_exception_ptr(1));
        EXPECT_EQ(text_of(other), "chan receive: context canceled, with a cause");
    });
}

TEST_P(Chan, SendThatThrowsLeavesItsValue) {
    run([] {
        dunlin::chan<owner> c(1);
        c.close();
        owner v = std::make_unique<int>(1);
        EXPECT_THROW(c.send(std::move(v)), dunlin::channel_closed);
        EXPECT_THROW(c.send_for(std::move(v), 1h), dunlin::channel_closed);
        EXPECT_THROW(c.send_until(std::move(v), dunlin::clock::now() + 1h), dunlin::channel_closed);
        EXPECT_EQ(c.try_send(std::move(v)), channel_status::closed);
        ASSERT_TRUE(v);
        EXPECT_EQ(*v, 1);
    });
}

TEST_P(Chan, SendThatWaitsWhenTheChannelIsClosedLeavesItsValue) {
    run([] {
        dunlin::chan<owner> c;
        dunlin::task<int> sender = dunlin::spawn([c] {
            owner v = std::make_unique<int>(7);
            EXPECT_THROW(c.send(std::move(v)), dunlin::channel_closed);
            return v ? *v : 0;
        });
        until_parked(1);
        c.close();
        EXPECT_EQ(sender.get(), 7);
    });
}

TEST_P(Chan, SendThatIsNotPossibleInTimeLeavesItsValue) {
    run([] {
        const auto nil = dunlin::chan<owner>::nil();
        for (const dunlin::chan<owner>& c : {dunlin::chan<owner>(), nil}) {
            owner v = std::make_unique<int>(1);
            EXPECT_EQ(c.try_send(std::move(v)), channel_status::would_block);
            EXPECT_FALSE(c.send_for(std::move(v), 1ms));
            EXPECT_FALSE(c.send_for(std::move(v), 0ms));
            EXPECT_FALSE(c.send_for(std::move(v), -1h));
            EXPECT_FALSE(c.send_until(std::move(v), std::chrono::steady_clock::now() + 1ms));
            EXPECT_FALSE(c.send_until(std::move(v), dunlin::clock::time_point::min()));
            ASSERT_TRUE(v);
            EXPECT_EQ(*v, 1);
        }
    });
}

TEST_P(Chan, MovesAsOftenAsItMust) {
    run([] {
        const auto moves_of = [](auto act) {
            const int before = moved::moves;
            act();
            return moved::moves - before;
        };
        dunlin::chan<moved> direct, buffered(1);
        // Into the receiver's slot, and out of it into the optional.
        EXPECT_LE(moves_of([&] {
            dunlin::task<void> receiver = dunlin::spawn([&] { EXPECT_EQ(direct.recv()->number(), 1); });
            until_parked(1);
            direct.send(moved(1));
            receiver.get();
        }), 2);
        // Through the buffer: one more.
        EXPECT_LE(moves_of([&] {
            buffered.send(moved(2));
            EXPECT_EQ(buffered.recv()->number(), 2);
        }), 3);
        // One that is not sent: none.
        buffered.send(moved(3));
        EXPECT_EQ(moves_of([&] {
            moved v(4);
            EXPECT_EQ(buffered.try_send(std::move(v)), channel_status::would_block);
            EXPECT_FALSE(buffered.send_for(std::move(v), 1us));
            EXPECT_EQ(v.number(), 4);
        }), 0);
        EXPECT_EQ(buffered.try_recv()->number(), 3);
    });
    EXPECT_EQ(moved::alive, 0);
}

TEST_P(Chan, DestroysWhatIsLeftInItsBuffer) {
    run([] {
        {
            dunlin::chan<moved> c(10);
            for (int i = 0; i < 7; ++i) c.send(moved(i));
            for (int i = 0; i < 5; ++i) static_cast<void>(c.recv());
            for (int i = 0; i < 6; ++i) c.send(moved(i));  // around its end
            c.close();
            EXPECT_EQ(moved::alive, 8);
        }
        EXPECT_EQ(moved::alive, 0);
    });
}

TEST_P(Chan, CopiesAnLvalue) {
    run([] {
        dunlin::chan<std::string> c(3);
        const std::string text(100, 'x');
        c.send(text);
        EXPECT_EQ(c.try_send(text), channel_status::ok);
        EXPECT_TRUE(c.send_for(text, 1h));
        EXPECT_EQ(text.size(), 100u);
        for (int i = 0; i < 3; ++i) EXPECT_EQ(c.recv(), text);
    });
}

struct alignas(64) over_aligned {
    std::uint64_t number;
};
struct large {
    std::array<std::uint64_t, 512> words;
};
static_assert(sizeof(large) == 4096);

TEST_P(Chan, KeepsTheAlignmentOfItsElements) {
    run([] {
        for (const std::ptrdiff_t capacity : {0, 1, 5}) {
            dunlin::chan<over_aligned> c(capacity);
            dunlin::go([c] {
                for (std::uint64_t i = 0; i < 100; ++i) c.send(over_aligned{i});
                c.close();
            });
            std::uint64_t expected = 0;
            for (const over_aligned& v : c) {
                EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&v) % 64, 0u);
                EXPECT_EQ(v.number, expected++);
            }
            EXPECT_EQ(expected, 100u);
        }
    });
}

TEST_P(Chan, CarriesLargeElements) {
    run([] {
        for (const std::ptrdiff_t capacity : {0, 1, 5}) {
            dunlin::chan<large> c(capacity);
            dunlin::go([c] {
                for (std::uint64_t i = 0; i < 100; ++i) {
                    large v;
                    v.words.fill(i);
                    c.send(v);
                }
                c.close();
            });
            std::uint64_t expected = 0;
            for (const large& v : c) {
                EXPECT_EQ(std::count(v.words.begin(), v.words.end(), expected), 512);
                ++expected;
            }
            EXPECT_EQ(expected, 100u);
        }
    });
}

// ---- statuses -------------------------------------------------------------------------------------------------------

TEST_P(Chan, TimedReceiveSaysWhyItIsEmpty) {
    run([] {
        dunlin::chan<int> c(2);
        const auto begin = dunlin::clock::now();
        dunlin::received<int> r = c.recv_for(2ms);
        EXPECT_GE(dunlin::clock::now() - begin, 2ms);
        EXPECT_FALSE(r.has_value());
        EXPECT_EQ(r.status(), channel_status::would_block);
        EXPECT_EQ(c.recv_until(dunlin::clock::now() - 1h).status(), channel_status::would_block);
        EXPECT_EQ(c.recv_until(std::chrono::system_clock::now() + 1ms).status(), channel_status::would_block);
        EXPECT_EQ(c.recv_for(std::chrono::nanoseconds::min()).status(), channel_status::would_block);
        EXPECT_EQ(dunlin::chan<int>::nil().recv_for(1ms).status(), channel_status::would_block);
        for (int i = 1; i <= 2; ++i) c.send(i);
        // What is there is received, however late it is.
        r = c.recv_for(-1s);
        EXPECT_EQ(r.status(), channel_status::ok);
        EXPECT_EQ(r, 1);
        c.close();
        EXPECT_EQ(c.recv_for(1h), 2);
        EXPECT_EQ(c.recv_for(1h).status(), channel_status::closed);
        EXPECT_EQ(c.recv_for(0s).status(), channel_status::closed);
    });
}

TEST_P(Chan, TimedReceiveIsServedByALaterSend) {
    run([] {
        dunlin::chan<owner> c;
        dunlin::task<int> receiver = dunlin::spawn([c] {
            dunlin::received<owner> r = c.recv_for(1h);
            EXPECT_EQ(r.status(), channel_status::ok);
            return **r;
        });
        until_parked(1);
        EXPECT_EQ(c.try_send(std::make_unique<int>(5)), channel_status::ok);
        EXPECT_EQ(receiver.get(), 5);
    });
}

TEST_P(Chan, TimedSendSaysWhetherItWasSent) {
    run([] {
        dunlin::chan<int> c(1);
        const dunlin::sent first = c.send_for(1, 1h);
        EXPECT_TRUE(first);
        EXPECT_TRUE(first == channel_status::ok);
        const auto begin = dunlin::clock::now();
        const dunlin::sent second = c.send_for(2, 2ms);
        EXPECT_GE(dunlin::clock::now() - begin, 2ms);
        EXPECT_FALSE(second);
        EXPECT_TRUE(second == channel_status::would_block);
        EXPECT_EQ(second.status(), channel_status::would_block);
        EXPECT_EQ(c.recv(), 1);
        EXPECT_EQ(c.try_recv().status(), channel_status::would_block);

        dunlin::task<bool> sender =
            dunlin::spawn([c] { return c.send_for(3, 1h) && c.send_until(4, std::chrono::steady_clock::now() + 1h); });
        EXPECT_EQ(c.recv(), 3);
        EXPECT_EQ(c.recv(), 4);
        EXPECT_TRUE(sender.get());
    });
}

TEST_P(Chan, TheLongestDurationIsForEver) {
    run([] {
        dunlin::chan<int> c;
        dunlin::task<dunlin::received<int>> receiver =
            dunlin::spawn([c] { return c.recv_for(std::chrono::hours::max()); });
        until_parked(1);
        dunlin::sleep_for(5ms);
        EXPECT_TRUE(c.send_for(1, std::chrono::nanoseconds::max()));
        EXPECT_EQ(receiver.get(), 1);
    });
}

TEST_P(Chan, TryReceiveAssignsOnlyWhatItReceives) {
    run([] {
        dunlin::chan<owner> c(1);
        owner v = std::make_unique<int>(1);
        EXPECT_EQ(c.try_recv(v), channel_status::would_block);
        EXPECT_EQ(dunlin::chan<owner>::nil().try_recv(v), channel_status::would_block);
        EXPECT_EQ(*v, 1);
        c.send(std::make_unique<int>(2));
        c.close();
        EXPECT_EQ(c.try_recv(v), channel_status::ok);
        EXPECT_EQ(*v, 2);
        EXPECT_EQ(c.try_recv(v), channel_status::closed);
        EXPECT_EQ(*v, 2);
    });
}

void busy_for(std::chrono::nanoseconds d) {
    const auto until = dunlin::clock::now() + d;
    while (dunlin::clock::now() < until) {}
}

// A receiver comes just when the time is over: the value is received or still the sender's, never lost.
TEST_P(Chan, TimeoutsLoseNoValue) {
    run([] {
        const int rounds = support::rounds(3000);
        dunlin::chan<owner> c;
        std::atomic<int> sent{0}, received{0}, too_late{0};
        dunlin::wait_group senders, receivers;
        for (int s = 0; s < 4; ++s) {
            senders.go([&, s] {
                for (int i = 0; i < rounds; ++i) {
                    owner v = std::make_unique<int>(i);
                    if (c.send_for(std::move(v), std::chrono::microseconds((i + s) % 20))) {
                        EXPECT_FALSE(v);
                        ++sent;
                    } else {
                        EXPECT_TRUE(v) << "not sent, and gone";
                        ++too_late;
                    }
                }
            });
        }
        for (int r = 0; r < 2; ++r) {
            receivers.go([&] {
                for (int i = 0;; ++i) {
                    busy_for(std::chrono::microseconds(i % 10));
                    const dunlin::received<owner> v = c.recv_for(std::chrono::microseconds(i * 7 % 20));
                    if (v.status() == channel_status::closed) break;
                    if (v) ++received;
                    dunlin::yield();
                }
            });
        }
        senders.wait();
        c.close();
        receivers.wait();
        EXPECT_EQ(sent, received);
        EXPECT_EQ(sent + too_late, 4 * rounds);
        EXPECT_GT(sent, 0);
        EXPECT_GT(too_late, 0);
    });
}

// ---- handles --------------------------------------------------------------------------------------------------------

TEST_P(Chan, NilIsNeverReady) {
    run([] {
        const auto nil = dunlin::chan<int>::nil();
        EXPECT_TRUE(nil.is_nil());
        EXPECT_FALSE(nil);
        EXPECT_EQ(nil.len(), 0u);
        EXPECT_EQ(nil.cap(), 0u);
        EXPECT_FALSE(nil.closed());
        EXPECT_EQ(nil.try_recv().status(), channel_status::would_block);
        EXPECT_EQ(nil.try_send(1), channel_status::would_block);
        EXPECT_THROW(nil.close(), dunlin::channel_closed);
        dunlin::go([nil] { nil.send(1); });
        dunlin::go([nil] { static_cast<void>(nil.recv()); });
        dunlin::go([nil] {
            for ([[maybe_unused]] int v : nil) ADD_FAILURE();
        });
        until_parked(3);
        dunlin::sleep_for(5ms);
        EXPECT_EQ(dunlin::runtime::stats().waiting, 3u);
    });
}

TEST_P(Chan, CopiesAreTheSameChannel) {
    run([] {
        dunlin::chan<int> a(2), b(2), copy = a;
        EXPECT_TRUE(a == copy);
        EXPECT_FALSE(a == b);
        EXPECT_TRUE(a != b);
        EXPECT_TRUE(dunlin::chan<int>::nil() == dunlin::chan<int>::nil());
        EXPECT_FALSE(a == dunlin::chan<int>::nil());
        copy.send(1);
        EXPECT_EQ(a.len(), 1u);
        b = std::move(copy);
        EXPECT_TRUE(a == b);
        EXPECT_TRUE(copy.is_nil());
        EXPECT_EQ(b.recv(), 1);
        b.close();
        EXPECT_TRUE(a.closed());
    });
}

template <class C>
concept can_send = requires(C c) { c.send(1); };
template <class C>
concept can_receive = requires(C c) { c.recv(); };
template <class C>
concept can_close = requires(C c) { c.close(); };

TEST_P(Chan, ViewsHaveOneSide) {
    static_assert(can_send<dunlin::sender<int>> && can_close<dunlin::sender<int>> && !can_receive<dunlin::sender<int>>);
    static_assert(
        can_receive<dunlin::receiver<int>> && !can_send<dunlin::receiver<int>> && !can_close<dunlin::receiver<int>>);
    static_assert(!std::is_constructible_v<dunlin::chan<int>, dunlin::sender<int>> &&
                  !std::is_constructible_v<dunlin::sender<int>, dunlin::receiver<int>>);
    run([] {
        dunlin::chan<int> c(3);
        const dunlin::sender<int> in = c;
        const dunlin::receiver<int> out = c;
        EXPECT_TRUE(in == dunlin::sender<int>(c));
        EXPECT_TRUE(out == dunlin::receiver<int>(c));
        EXPECT_TRUE(dunlin::sender<int>().is_nil());
        EXPECT_TRUE(dunlin::receiver<int>().is_nil());
        in.send(1);
        EXPECT_EQ(in.try_send(2), channel_status::ok);
        EXPECT_TRUE(in.send_for(3, 1s));
        EXPECT_EQ(in.len(), 3u);
        EXPECT_EQ(out.cap(), 3u);
        EXPECT_EQ(out.recv(), 1);
        EXPECT_EQ(out.try_recv(), 2);
        EXPECT_EQ(out.recv_for(1s), 3);
        in.close();
        EXPECT_TRUE(out.closed());
        EXPECT_EQ(out.recv(), std::nullopt);
    });
}

TEST_P(Chan, AViewKeepsTheChannelAlive) {
    run([] {
        dunlin::receiver<moved> out;
        {
            dunlin::chan<moved> c(2);
            c.send(moved(1));
            c.send(moved(2));
            out = std::move(c);
            EXPECT_TRUE(c.is_nil());
        }
        EXPECT_EQ(out.recv()->number(), 1);
        out = dunlin::receiver<moved>();
        EXPECT_EQ(moved::alive, 0);
    });
}

TEST_P(Chan, ClosedSaysSoBeforeItIsDrained) {
    run([] {
        dunlin::chan<int> c(2);
        c.send(1);
        EXPECT_FALSE(c.closed());
        c.close();
        EXPECT_TRUE(c.closed());
        EXPECT_EQ(c.len(), 1u);
        EXPECT_EQ(c.recv(), 1);
        EXPECT_EQ(c.len(), 0u);
        EXPECT_TRUE(c.closed());
    });
}

// ---- threads --------------------------------------------------------------------------------------------------------

TEST(ChanThread, WorksWithoutAnyGoroutine) {
    const support::watchdog dog(support::test_name());
    dunlin::chan<owner> c(2);
    std::thread sender([c] {
        for (int i = 0; i < support::rounds(10'000); ++i) c.send(std::make_unique<int>(i));
        c.close();
    });
    int expected = 0;
    for (owner v : c) EXPECT_EQ(*v, expected++);
    EXPECT_EQ(expected, support::rounds(10'000));
    sender.join();
    EXPECT_EQ(c.recv_for(1h).status(), channel_status::closed);
    EXPECT_EQ(dunlin::chan<int>().recv_for(1ms).status(), channel_status::would_block);
    EXPECT_FALSE(dunlin::chan<int>().send_for(1, 1ms));
    EXPECT_EQ(dunlin::chan<int>::nil().recv_for(1ms).status(), channel_status::would_block);
    EXPECT_THROW(c.send(nullptr), dunlin::channel_closed);
}

TEST(ChanThread, CloseWakesThreads) {
    const support::watchdog dog(support::test_name());
    for (int round = 0; round < support::rounds(100); ++round) {
        dunlin::chan<int> c;
        std::vector<std::thread> threads;
        std::atomic<int> woken{0};
        for (int i = 0; i < 4; ++i) {
            threads.emplace_back([&, i] {
                if (i % 2 == 0) {
                    EXPECT_EQ(c.recv(), std::nullopt);
                } else {
                    EXPECT_EQ(c.recv_for(1h).status(), channel_status::closed);
                }
                ++woken;
            });
        }
        if (round % 2 == 0) std::this_thread::sleep_for(200us);
        c.close();
        for (auto& t : threads) t.join();
        EXPECT_EQ(woken, 4);
    }
}

// What `senders` goroutines and threads send, `receivers` of both kinds receive: the sum, the number, and for each
// sender the order.
void mixed_round(std::ptrdiff_t capacity, int each) {
    constexpr int of_a_kind = 3, senders = 2 * of_a_kind;
    struct message {
        int from, number;
        owner content;
    };
    dunlin::chan<message> c(capacity);
    std::atomic<std::int64_t> sum{0}, count{0};
    const auto send = [c, each](int from) {
        for (int i = 0; i < each; ++i) c.send({from, i, std::make_unique<int>(from * 1000 + i)});
    };
    const auto receive = [&, c] {
        std::array<int, senders> last;
        last.fill(-1);
        for (message m : c) {
            EXPECT_GT(m.number, last[static_cast<std::size_t>(m.from)]);
            last[static_cast<std::size_t>(m.from)] = m.number;
            EXPECT_EQ(*m.content, m.from * 1000 + m.number);
            sum += *m.content;
            ++count;
        }
    };
    dunlin::wait_group sending, receiving;
    std::vector<std::thread> threads;
    for (int i = 0; i < of_a_kind; ++i) {
        receiving.go(receive);
        threads.emplace_back(receive);
        sending.go([=] { send(i); });
        sending.add();
        threads.emplace_back([=, &sending] {
            send(of_a_kind + i);
            sending.done();
        });
    }
    sending.wait();
    c.close();
    receiving.wait();
    for (auto& t : threads) dunlin::blocking([&t] { t.join(); });
    std::int64_t expected = 0;
    for (int from = 0; from < senders; ++from) {
        for (int i = 0; i < each; ++i) expected += from * 1000 + i;
    }
    EXPECT_EQ(count, senders * each);
    EXPECT_EQ(sum, expected);
}

TEST_P(Chan, ConnectsThreadsAndGoroutines) {
    allow(120s);
    run([] {
        for (int round = 0; round < support::rounds(100); ++round) {
            for (const std::ptrdiff_t capacity : {0, 1, 16}) {
                mixed_round(capacity, 100);
                ASSERT_FALSE(HasFailure()) << "round " << round << ", capacity " << capacity;
            }
        }
    });
}

TEST_P(Chan, PingPongBetweenAThreadAndAGoroutine) {
    run([] {
        dunlin::chan<int> there, back;
        const int rounds = support::rounds(5000);
        std::thread thread([=] {
            for (int v : there) back.send(v + 1);
            back.close();
        });
        for (int i = 0; i < rounds; ++i) {
            there.send(i);
            ASSERT_EQ(back.recv(), i + 1);
        }
        there.close();
        EXPECT_EQ(back.recv(), std::nullopt);
        dunlin::blocking([&] { thread.join(); });
    });
}

}  // namespace
