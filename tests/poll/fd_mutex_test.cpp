// Which operations may use a descriptor: the fd mutex by itself, and with the queues of operations that wait for their
// turn. Ports of Go's internal/poll/fd_mutex_test.go, under Go's names (NET-15, NET-16 of the conformance list), and
// what is different here: the one that leaves lets the next one in.
#include <array>
#include <atomic>
#include <random>
#include <source_location>
#include <string>
#include <thread>
#include <vector>

#include <dunlin/net.hpp>

#include "io/operation.h"
#include "net/pairs.h"
#include "poll/fd_mutex.h"
#include "support/runtime_test.h"

namespace {

using namespace std::chrono_literals;

using dunlin::io::fd_guard;
using dunlin::io::use;
using dunlin::netpoll::fd_record;
using dunlin::netpoll::direction;
using dunlin::netpoll::fd_mutex;
using support::is_closed;

constexpr direction both[] = {direction::read, direction::write};

class FdMutex : public support::runtime_test {
protected:
    // An fd mutex that ends the process must not find our watchdog's thread in the copy of the process.
    void SetUp() override {
        GTEST_FLAG_SET(death_test_style, "threadsafe");
        support::runtime_test::SetUp();
    }
};
class FdMutexOfDescriptor : public support::each_p {};
EACH_P(FdMutexOfDescriptor);

bool enter(fd_record* d, direction dir, std::error_code& ec) {
    return static_cast<bool>(fd_guard(d, dir, nullptr, std::source_location::current(), ec));
}

// ---- the word -------------------------------------------------------------------------------------------------------

// NET-15
TEST_F(FdMutex, TestMutexClose) {
    fd_mutex g;
    EXPECT_FALSE(g.closed());
    EXPECT_TRUE(g.close());
    EXPECT_TRUE(g.closed());
    EXPECT_FALSE(g.close()) << "the second";
    EXPECT_FALSE(g.use());
    for (const direction d : both) {
        EXPECT_EQ(g.enter(d), fd_mutex::entry::closed);
        EXPECT_EQ(g.announce(d), fd_mutex::entry::closed);
    }
    EXPECT_TRUE(g.end_use()) << "nobody else uses it";
    g.reopen();
    EXPECT_EQ(g.enter(direction::read), fd_mutex::entry::in);
}

TEST_F(FdMutex, LetsInOneOfEachKindAndAnyNumberOfOthers) {
    fd_mutex g;
    for (const direction d : both) {
        EXPECT_EQ(g.enter(d), fd_mutex::entry::in);
        EXPECT_EQ(g.enter(d), fd_mutex::entry::busy);
    }
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(g.use());
    for (int i = 0; i < 1000; ++i) EXPECT_FALSE(g.end_use());
    for (const direction d : both) {
        bool last = true;
        EXPECT_TRUE(g.leave(d, last));
        EXPECT_FALSE(last) << "it is open";
        EXPECT_EQ(g.enter(d), fd_mutex::entry::in);
    }
}

TEST_F(FdMutex, TheLastOneAfterCloseClosesTheDescriptor) {
    fd_mutex g;
    EXPECT_EQ(g.enter(direction::read), fd_mutex::entry::in);
    EXPECT_TRUE(g.use());
    EXPECT_TRUE(g.close());
    EXPECT_FALSE(g.end_use()) << "the one for being open";
    EXPECT_FALSE(g.end_use());
    bool last = false;
    EXPECT_TRUE(g.leave(direction::read, last));
    EXPECT_TRUE(last);
}

TEST_F(FdMutex, IsNotLeftWhileOthersWaitForATurn) {
    fd_mutex g;
    EXPECT_EQ(g.announce(direction::read), fd_mutex::entry::in) << "nobody is in";
    EXPECT_EQ(g.enter(direction::read), fd_mutex::entry::in);
    EXPECT_EQ(g.announce(direction::read), fd_mutex::entry::busy);
    bool last = false;
    EXPECT_FALSE(g.leave(direction::read, last));
    g.clear_waiting(direction::read);
    EXPECT_TRUE(g.leave(direction::read, last));
}

// NET-15
TEST_F(FdMutex, TestMutexPanic) {
    EXPECT_DEATH(
        {
            fd_mutex g;
            bool last;
            g.leave(direction::read, last);
        },
        "left by one that is not in");
    EXPECT_DEATH(
        {
            fd_mutex g;
            bool last;
            g.enter(direction::read);
            g.leave(direction::write, last);
        },
        "left by one that is not in");
    EXPECT_DEATH(
        {
            fd_mutex g;
            g.end_use();
            g.end_use();
        },
        "one that does not use it");
}

// NET-15. So many uses cannot be made in the time of a test: they are written into the word.
TEST_F(FdMutex, TestMutexOverflowPanic) {
    static_assert(sizeof(fd_mutex) == sizeof(std::atomic<std::uint32_t>));
    constexpr std::uint32_t all_but_one = (std::uint32_t{1} << 27) - 2;
    fd_mutex g;
    reinterpret_cast<std::atomic<std::uint32_t>&>(g).store(all_but_one * 32);
    EXPECT_TRUE(g.use());
    EXPECT_DEATH(g.use(), "too many concurrent operations on a single file or socket");
    EXPECT_DEATH(g.enter(direction::read), "too many concurrent operations on a single file or socket");
}

// ---- entering -------------------------------------------------------------------------------------------------------

// NET-15: those that wait to enter are woken by close, goroutines and threads.
TEST_P(FdMutexOfDescriptor, TestMutexCloseUnblock) {
    run([] {
        for (const direction dir : both) {
            auto [a, b] = dunlin::net::stream_pair();
            fd_record* d = dunlin::io_access::of(a);
            ASSERT_EQ(d->enter(dir), fd_mutex::entry::in);
            std::atomic<int> came{0};
            dunlin::wait_group goroutines;
            std::vector<std::thread> threads;
            const auto wait_to_enter = [&came, d, dir] {
                ++came;
                std::error_code ec;
                EXPECT_FALSE(enter(d, dir, ec));
                EXPECT_EQ(ec, is_closed);
            };
            for (int i = 0; i < 4; ++i) goroutines.go(wait_to_enter);
            for (int i = 0; i < 2; ++i) threads.emplace_back(wait_to_enter);
            support::eventually([&] { return came == 6; });
            dunlin::sleep_for(1ms);
            dunlin::wait_group closer;
            closer.go([&a = a] { a.close(); });
            goroutines.wait();
            for (std::thread& t : threads) t.join();
            EXPECT_GE(d->fd(), 0) << "somebody is in still";
            d->leave(dir);
            closer.wait();
            EXPECT_EQ(d->fd(), -1);
        }
    });
}

TEST_P(FdMutexOfDescriptor, ATurnIsHandedToTheOldestWaiter) {
    run([] {
        auto [a, b] = dunlin::net::stream_pair();
        fd_record* d = dunlin::io_access::of(a);
        ASSERT_EQ(d->enter(direction::read), fd_mutex::entry::in);
        std::vector<int> order;  // the turn
        dunlin::wait_group wg;
        for (int i = 0; i < 5; ++i) {
            std::atomic<bool> waits{false};
            wg.go([&, d, i] {
                waits = true;
                std::error_code ec;
                const fd_guard mine(d, direction::read, nullptr, std::source_location::current(), ec);
                order.push_back(i);
            });
            support::eventually([&] { return waits.load(); });
            // until it is queued; if it is not, the order may be another, so that is not asserted below
            dunlin::sleep_for(2ms);
        }
        d->leave(direction::read);
        wg.wait();
        EXPECT_EQ(order.size(), 5u);
    });
}

TEST_P(FdMutexOfDescriptor, AWaiterThatGivesUpIsNotLetIn) {
    run([] {
        auto [a, b] = dunlin::net::stream_pair();
        fd_record* d = dunlin::io_access::of(a);
        for (int i = 0; i < support::rounds(200); ++i) {
            ASSERT_EQ(d->enter(direction::write), fd_mutex::entry::in);
            auto ctx = dunlin::with_cancel(dunlin::context::background());
            std::atomic<int> in{0}, out{0};
            dunlin::wait_group wg;
            for (int k = 0; k < 4; ++k) {
                wg.go([&, d, k] {
                    std::error_code ec;
                    const dunlin::detail::io_limit limit(k % 2 ? dunlin::context(ctx) : dunlin::context::background());
                    ++(fd_guard(d, direction::write, limit.get(), std::source_location::current(), ec) ? in : out);
                    EXPECT_TRUE(!ec || ec == dunlin::errc::cancelled) << ec.message();
                });
            }
            for (int k = 0; k < i % 20; ++k) dunlin::yield();
            ctx.cancel();
            d->leave(direction::write);
            wg.wait();
            EXPECT_EQ(in + out, 4);
            EXPECT_GE(in, 2);
        }
    });
}

// With one processor those that the context has let go are still in the queue when the close comes to it.
TEST_P(FdMutexOfDescriptor, AWaiterThatGivesUpIsNotWokenByACloseToo) {
    run([] {
        for (int i = 0; i < support::rounds(100); ++i) {
            auto [a, b] = dunlin::net::stream_pair();
            fd_record* d = dunlin::io_access::of(a);
            ASSERT_EQ(d->enter(direction::write), fd_mutex::entry::in);
            auto ctx = dunlin::with_cancel(dunlin::context::background());
            dunlin::wait_group wg;
            for (int k = 0; k < 4; ++k) {
                wg.go([&, d, k] {
                    std::error_code ec;
                    const dunlin::detail::io_limit limit(k % 2 ? dunlin::context(ctx) : dunlin::context::background());
                    EXPECT_FALSE(fd_guard(d, direction::write, limit.get(), std::source_location::current(), ec));
                    EXPECT_TRUE(ec == is_closed || (k % 2 && ec == dunlin::errc::cancelled)) << ec.message();
                });
            }
            wg.go([&, d] {  // close() returns when the last one is out
                support::eventually([d] { return d->is_closed(); });
                d->leave(direction::write);
            });
            for (int k = 0; k < 20; ++k) dunlin::yield();
            ctx.cancel();
            a.close();
            wg.wait();
        }
    });
}

// NET-16: one reader and one writer at a time, each of which sees what the one before did. The numbers are plain ones,
// so that ThreadSanitizer looks at the order too.
void mix(fd_record* d, std::array<std::uint64_t, 2>* state, int rounds, unsigned seed) {
    std::minstd_rand random(seed);
    for (int i = 0; i < rounds; ++i) {
        const unsigned kind = static_cast<unsigned>(random()) % 3;
        if (kind == 2) {
            const use mine(d);
            ASSERT_TRUE(static_cast<bool>(mine));
            continue;
        }
        std::error_code ec;
        const fd_guard mine(d, both[kind], nullptr, std::source_location::current(), ec);
        ASSERT_TRUE(static_cast<bool>(mine)) << ec.message();
        ASSERT_EQ(state[kind][0], state[kind][1]);
        ++state[kind][0];
        ++state[kind][1];
    }
}

TEST_F(FdMutex, TestMutexStress) {
    allow(120s);
    constexpr int goroutines = 16, threads = 4;
    const int each = support::rounds(1'000'000) / (goroutines + threads);
    dunlin::run({.max_procs = 8}, [&] {
        auto [a, b] = dunlin::net::stream_pair();
        fd_record* d = dunlin::io_access::of(a);
        std::array<std::uint64_t, 2> state[2] = {};
        std::vector<std::thread> outside;
        for (unsigned t = 0; t < threads; ++t) outside.emplace_back([&, d, t] { mix(d, state, each, 100 + t); });
        dunlin::wait_group wg;
        for (unsigned g = 0; g < goroutines; ++g) wg.go([&, d, g] { mix(d, state, each, g + 1); });
        wg.wait();
        for (std::thread& t : outside) t.join();
        EXPECT_GT(state[0][0], 0u);
        EXPECT_GT(state[1][0], 0u);
        a.close();
        EXPECT_EQ(d->fd(), -1);
        EXPECT_FALSE(d->use());
    });
}

}  // namespace
