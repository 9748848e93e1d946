// With more connections than a local queue has room for, each has its turn: what a poll finds does not pass by what
// waits in the global queue (ready_polled() in sched/goroutines/goroutine.cpp).
#include <algorithm>
#include <deque>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class Crowd : public support::runtime_test {};

// Each connection has one message under way, or its answer is among the `held` latest: were each byte answered as soon
// as it comes, then one goroutine could talk with the client for a whole slice without a wait, and the counts would say
// how often that happened.
class client {
public:
    explicit client(std::vector<int> ends) : ends_(std::move(ends)), served_(ends_.size()), epoll_(epoll_create1(0)) {
        for (std::size_t i = 0; i < ends_.size(); ++i) {
            fcntl(ends_[i], F_SETFL, O_NONBLOCK);
            epoll_event wanted{EPOLLIN, {.u64 = i}};
            epoll_ctl(epoll_, EPOLL_CTL_ADD, ends_[i], &wanted);
        }
    }
    ~client() {
        close(epoll_);
        for (const int fd : ends_) close(fd);
    }
    void run(long messages) {
        for (const int fd : ends_) (void)!write(fd, "x", 1);
        while (messages > 0) {
            epoll_event ready[64];
            const int n = epoll_wait(epoll_, ready, 64, -1);
            for (int k = 0; k < n; ++k) {
                char byte;
                if (read(ends_[ready[k].data.u64], &byte, 1) != 1) continue;
                ++served_[ready[k].data.u64];
                --messages;
                answers_.push_back(ready[k].data.u64);
                if (answers_.size() <= held) continue;
                (void)!write(ends_[answers_.front()], "x", 1);
                answers_.pop_front();
            }
        }
        for (const int fd : ends_) shutdown(fd, SHUT_RDWR);
    }
    long least() const { return *std::min_element(served_.begin(), served_.end()); }

private:
    static constexpr std::size_t held = 50;
    std::vector<int> ends_;
    std::vector<long> served_;
    std::deque<std::size_t> answers_;
    int epoll_;
};

TEST_F(Crowd, EachOfAThousandConnectionsHasItsTurn) {
    constexpr std::size_t connections = 1000;
    constexpr long each = 100;  // not fewer in slow builds: the first rounds are as the client has begun
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = std::min<rlim_t>(files.rlim_max, 4096);
    setrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < 2 * connections + 100) GTEST_SKIP() << "fewer descriptors than it needs";
    std::vector<int> far;
    std::vector<dunlin::net::stream> near;
    for (std::size_t i = 0; i < connections; ++i) {
        int ends[2];
        ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        far.push_back(ends[0]);
        near.push_back(dunlin::net::stream::adopt(ends[1]));
    }
    client c(std::move(far));
    dunlin::run({.max_procs = 1}, [&] {
        dunlin::wait_group all;
        for (dunlin::net::stream& s : near) {
            all.go([&s] {
                char buffer[16];
                std::error_code ec;
                while (const std::size_t n = s.read_some(buffer, ec)) {
                    // some work, so that a poll finds less than there is time for until the next one
                    const auto until = std::chrono::steady_clock::now() + 5us;
                    while (std::chrono::steady_clock::now() < until) {}
                    s.write_all(std::span(buffer, n), ec);
                    if (ec) return;
                }
            });
        }
        std::thread load([&] { c.run(each * static_cast<long>(connections)); });
        all.wait();
        dunlin::blocking([&] { load.join(); });
    });
    EXPECT_GE(c.least(), each / 3);
}

}  // namespace
