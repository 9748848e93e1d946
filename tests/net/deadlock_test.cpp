// A goroutine that waits for a socket is no deadlock, since a process outside may write; but when it has gone, what
// remains may be one.
//
// Each case is a process of its own, without the watchdog of the other tests: where there are threads besides the
// runtime's nothing is concluded.
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <sys/socket.h>
#include <unistd.h>

#include <dunlin/dunlin.hpp>
#include <dunlin/net.hpp>
#include <gtest/gtest.h>

using namespace std::chrono_literals;

namespace {

namespace net = dunlin::net;

constexpr const char* report = "^fatal: all goroutines are asleep - deadlock!";

class NetDeadlock : public testing::Test {
protected:
    void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

[[noreturn]] void never() {
    dunlin::wait_group wg;
    wg.add(1);
    wg.wait();
    std::_Exit(3);
}

template <class Body>
[[noreturn]] void in_run(Body body) {
    alarm(20);
    dunlin::run(body);
    std::_Exit(0);
}

// Nothing happens for a while; then a child process, unknown to the runtime, writes.
TEST_F(NetDeadlock, IsNotConcludedWhileAGoroutineWaitsForASocket) {
    EXPECT_EXIT(in_run([] {
        int fd[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) != 0) std::_Exit(4);
        if (fork() == 0) {
            usleep(300'000);
            _exit(write(fd[1], "x", 1) == 1 ? 0 : 1);
        }
        net::stream s = net::stream::adopt(fd[0]);
        char c;
        if (s.read_some(&c, 1) != 1) std::_Exit(5);
    }), testing::ExitedWithCode(0), "");
}

TEST_F(NetDeadlock, IsNotConcludedWhileAGoroutineSelects) {
    EXPECT_EXIT(in_run([] {
        int fd[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) != 0) std::_Exit(4);
        if (fork() == 0) {
            usleep(300'000);
            _exit(write(fd[1], "x", 1) == 1 ? 0 : 1);
        }
        net::stream s = net::stream::adopt(fd[0]);
        if (dunlin::select(dunlin::on_recv(dunlin::chan<int>()), dunlin::on_readable(s)) != 1) std::_Exit(5);
    }), testing::ExitedWithCode(0), "");
}

TEST_F(NetDeadlock, IsNotConcludedWhileAGoroutineAccepts) {
    EXPECT_EXIT(in_run([] {
        net::listener l = net::listen("tcp", "127.0.0.1:0");
        if (fork() == 0) {
            usleep(300'000);
            const int fd = socket(AF_INET, SOCK_STREAM, 0);
            const net::address to = l.local_address();
            _exit(connect(fd, static_cast<const sockaddr*>(to.native()), to.native_size()) == 0 ? 0 : 1);
        }
        l.accept();
    }), testing::ExitedWithCode(0), "");
}

TEST_F(NetDeadlock, IsReportedAfterTheLastReaderHasGone) {
    EXPECT_EXIT(in_run([] {
        auto [a, b] = net::stream_pair();
        dunlin::wait_group wg;
        wg.go([&a = a] {
            char c;
            a.read_some(&c, 1);
        });
        dunlin::sleep_for(10ms);
        b.write_all("x");
        wg.wait();
        never();
    }), testing::ExitedWithCode(2), report);
}

TEST_F(NetDeadlock, IsReportedAfterADeadlineACloseAndASelect) {
    EXPECT_EXIT(in_run([] {
        auto [a, b] = net::stream_pair();
        std::error_code ec;
        char c;
        a.set_read_deadline(5ms);
        a.read_some(&c, 1, ec);
        a.clear_deadline();
        dunlin::select(dunlin::on_readable(a), dunlin::on_readable(b), dunlin::on_timeout(5ms));
        dunlin::wait_group wg;
        for (int i = 0; i < 3; ++i) {
            wg.go([&a = a] {
                std::error_code closed;
                char x;
                a.read_some(&x, 1, closed);
            });
        }
        dunlin::sleep_for(5ms);
        a.close();
        wg.wait();
        never();
    }), testing::ExitedWithCode(2), report);
}

TEST_F(NetDeadlock, IsReportedInALaterRunThoughAnEarlierOneLeftReaders) {
    EXPECT_EXIT(
        {
            alarm(20);
            auto pair = net::stream_pair();
            dunlin::run([&] {
                dunlin::go([&] {
                    char c;
                    pair.first.read_some(&c, 1);
                });
                dunlin::sleep_for(5ms);
            });
            dunlin::run([] { never(); });
        },
        testing::ExitedWithCode(2), report);
}

}  // namespace
