// What every backend of the netpoller must do (poll/backend.h), tried on epoll with and without epoll_pwait2.
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "platform/clock.h"
#include "poll/epoll.h"
#include "support/build.h"
#include "support/runtime_test.h"

namespace {

using dunlin::platform::now_ns;
using dunlin::netpoll::backend;
using dunlin::netpoll::epoll_backend;
using dunlin::netpoll::peer_closed;
using dunlin::netpoll::readable;
using dunlin::netpoll::writable;
using dunlin::sched::polled_event;

constexpr std::int64_t ms = 1'000'000;

struct socket_pair {
    int fd[2];
    socket_pair() {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd) != 0) std::abort();
    }
    ~socket_pair() {
        for (const int f : fd) {
            if (f >= 0) ::close(f);
        }
    }
    void close(int end) { ::close(std::exchange(fd[end], -1)); }
};

void write_byte(int fd) {
    const char c = 'x';
    ASSERT_EQ(write(fd, &c, 1), 1);
}

class Epoll : public support::runtime_test, public testing::WithParamInterface<bool> {
protected:
    Epoll() {
        if (GetParam()) b.forget_pwait2();
    }
    // The events of this tag until `deadline`, all in one.
    std::uint32_t what(std::uint64_t tag, std::int64_t deadline_ns = backend::do_not_wait) {
        polled_event events[16];
        const unsigned n = b.wait(events, 16, deadline_ns);
        std::uint32_t all = 0;
        for (unsigned i = 0; i < n; ++i) {
            if (events[i].tag == tag) all |= events[i].what;
        }
        return all;
    }
    epoll_backend b;
};
INSTANTIATE_TEST_SUITE_P(
    By, Epoll, testing::Values(false, true), [](const auto& info) { return info.param ? "Ppoll" : "Pwait2"; });

TEST_P(Epoll, TellsWhatItIsWhenAddedAndThenChangesOnly) {
    socket_pair s;
    ASSERT_EQ(b.add(s.fd[0], 7), 0);
    EXPECT_EQ(what(7), writable);
    EXPECT_EQ(what(7), 0u) << "no change";
    write_byte(s.fd[1]);
    EXPECT_TRUE(what(7) & readable);
    EXPECT_EQ(what(7), 0u) << "it is readable still, which is no change";
    write_byte(s.fd[1]);
    EXPECT_TRUE(what(7) & readable) << "more";
    b.remove(s.fd[0]);
    write_byte(s.fd[1]);
    EXPECT_EQ(what(7), 0u);
    ASSERT_EQ(b.add(s.fd[0], 8), 0);
    EXPECT_EQ(what(8), readable | writable) << "what it is at the moment of add()";
    EXPECT_EQ(b.add(s.fd[0], 9), EEXIST);
    EXPECT_EQ(b.add(-1, 9), EBADF);
}

TEST_P(Epoll, TellsTheEndOfThePeer) {
    socket_pair half, whole;
    ASSERT_EQ(b.add(half.fd[0], 1), 0);
    ASSERT_EQ(b.add(whole.fd[0], 2), 0);
    what(1);
    shutdown(half.fd[1], SHUT_WR);
    EXPECT_TRUE((what(1) & (readable | peer_closed)) == (readable | peer_closed));
    whole.close(1);
    EXPECT_EQ(what(2), readable | writable | peer_closed);
}

TEST_P(Epoll, DoesNotWatchARegularFile) {
    const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(b.add(fd, 1), EPERM);
    close(fd);
}

TEST_P(Epoll, ManyEventsComeInPartsAndNoneIsLost) {
    std::vector<socket_pair> all(40);
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(b.add(all[i].fd[0], i), 0);
    std::vector<int> told(all.size());
    polled_event events[7];
    while (const unsigned n = b.wait(events, 7, backend::do_not_wait)) {
        ASSERT_LE(n, 7u);
        for (unsigned i = 0; i < n; ++i) ++told[events[i].tag];
    }
    EXPECT_EQ(told, std::vector<int>(all.size(), 1));
}

TEST_P(Epoll, ADeadlineIsNeverEarly) {
    for (const std::int64_t sleep_ns :
        {std::int64_t{1}, std::int64_t{1000}, std::int64_t{50'000}, ms - 1, ms, ms + 1, 3 * ms, 20 * ms, 600 * ms}) {
        const std::int64_t deadline_ns = now_ns() + sleep_ns;
        polled_event events[4];
        EXPECT_EQ(b.wait(events, 4, deadline_ns), 0u);
        EXPECT_GE(now_ns(), deadline_ns) << sleep_ns;
    }
    EXPECT_EQ(what(0, now_ns() - 1), 0u) << "one that is past";
    EXPECT_EQ(what(0, 1), 0u);
}

TEST_P(Epoll, AnEventEndsASleep) {
    socket_pair s;
    ASSERT_EQ(b.add(s.fd[0], 7), 0);
    what(7);
    for (const std::int64_t deadline_ns : {backend::for_ever, now_ns() + 20'000 * ms}) {
        std::thread later([&] {
            usleep(2000);
            write_byte(s.fd[1]);
        });
        EXPECT_TRUE(what(7, deadline_ns) & readable);
        later.join();
    }
}

TEST_P(Epoll, AnInterruptEndsTheNextWaitIfNoneIsUnderWay) {
    b.interrupt();
    b.interrupt();
    EXPECT_EQ(what(0, backend::for_ever), 0u);
    const std::int64_t deadline_ns = now_ns() + 2 * ms;
    EXPECT_EQ(what(0, deadline_ns), 0u);
    EXPECT_GE(now_ns(), deadline_ns) << "both were used up by one wait";
}

TEST_P(Epoll, ACallThatDoesNotWaitLeavesInterruptsAlone) {
    b.interrupt();
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(what(0), 0u);
    EXPECT_EQ(what(0, backend::for_ever), 0u);
}

// Each interrupt ends a wait that sees what was written before it, while others poll without waiting and there are
// events.
TEST_P(Epoll, NoInterruptIsLost) {
    socket_pair s;
    ASSERT_EQ(b.add(s.fd[0], 7), 0);
    std::atomic<int> said{0}, seen{0};
    std::atomic<bool> stop{false};
    const int rounds = support::rounds(20'000);
    std::thread sleeper([&] {
        while (seen != rounds) {
            what(7, seen % 3 == 0 ? now_ns() + 20'000 * ms : backend::for_ever);
            seen = said.load(std::memory_order_relaxed);
        }
    });
    std::thread poller([&] {
        while (!stop) what(7);
    });
    for (int i = 1; i <= rounds; ++i) {
        if (i % 100 == 0) write_byte(s.fd[1]);
        said.store(i, std::memory_order_relaxed);
        b.interrupt();
        if (i % 4 == 0) support::eventually_on_thread([&] { return seen >= i; });
    }
    sleeper.join();
    stop = true;
    poller.join();
}

}  // namespace
