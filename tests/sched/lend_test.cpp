// A processor that a goroutine computes on is lent to those that a descriptor makes ready, and comes back to it without
// a signal (sched/monitor/retake.cpp, Lending).
#include <algorithm>
#include <arpa/inet.h>
#include <cstdint>
#include <netinet/in.h>
#include <random>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <dunlin/net.hpp>

#include "platform/clock.h"
#include "sched/data/bells.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

// A plain thread's connection to 127.0.0.1.
int connect_to(int port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return fd;
}

std::uint64_t step(std::uint64_t x) { return x * 6364136223846793005u + 1442695040888963407u; }

class Lend : public support::each_p {
protected:
    void SetUp() override { allow(support::sanitized ? 300s : 60s); }

    // One goroutine for each processor computes; `threads` plain threads send `messages` each, some time apart, and
    // check every answer. How long each took, ns.
    std::vector<std::int64_t> answer_beside_hogs(int threads, int messages, int longest_gap_us) {
        const dunlin::runtime::hand_off_stats before = dunlin::runtime::stats().hand_offs;
        const std::uint32_t calls_before = dunlin::sched::monitor_bell.call_word;
        std::vector<std::vector<std::int64_t>> took(static_cast<std::size_t>(threads));
        run([&] {
            dunlin::net::listener listener = dunlin::net::listen("tcp", "127.0.0.1:0");
            std::atomic<bool> stop{false};
            dunlin::wait_group hogs, servers;
            std::atomic<unsigned> faults{0};
            for (unsigned i = 0; i < procs(); ++i) {
                hogs.go([&stop, &faults, i] {
                    for (std::uint64_t x = i, again = i; !stop.load(std::memory_order_relaxed);) {
                        for (int k = 0; k < 1000; ++k) x = step(x), again = step(again);
                        if (x != again) faults.fetch_add(1);
                    }
                });
            }
            std::vector<std::thread> clients;
            for (int c = 0; c < threads; ++c) {
                clients.emplace_back([&took, &listener, c, messages, longest_gap_us] {
                    const int fd = connect_to(listener.local_address().port());
                    std::mt19937 random(static_cast<unsigned>(c));
                    for (std::int64_t i = 0; i < messages; ++i) {
                        usleep(random() % static_cast<unsigned>(longest_gap_us));
                        const std::int64_t start = platform_now();
                        EXPECT_EQ(write(fd, &i, sizeof i), static_cast<ssize_t>(sizeof i));
                        std::int64_t answer = 0;
                        EXPECT_EQ(recv(fd, &answer, sizeof answer, MSG_WAITALL), static_cast<ssize_t>(sizeof answer));
                        EXPECT_EQ(answer, i + 1);
                        took[static_cast<std::size_t>(c)].push_back(platform_now() - start);
                    }
                    close(fd);
                });
            }
            for (int c = 0; c < threads; ++c) {
                servers.go([connection = listener.accept()]() mutable {
                    std::error_code ec;
                    for (std::int64_t i; connection.read_exactly(&i, sizeof i, ec) == sizeof i;) {
                        ++i;
                        connection.write_all(&i, sizeof i);
                    }
                });
            }
            servers.wait();
            stop = true;
            hogs.wait();
            for (std::thread& t : clients) t.join();
            EXPECT_EQ(faults.load(), 0u);
        });
        const dunlin::runtime::hand_off_stats after = dunlin::runtime::stats().hand_offs;
        given_back_ = after.given_back - before.given_back;
        signals_ = after.signals - before.signals;
        calls_ = dunlin::sched::monitor_bell.call_word - calls_before;
        RecordProperty("given_back", std::to_string(given_back_));
        RecordProperty("signals", std::to_string(signals_));
        std::vector<std::int64_t> all;
        for (const auto& part : took) all.insert(all.end(), part.begin(), part.end());
        std::sort(all.begin(), all.end());
        return all;
    }

    static std::int64_t platform_now() { return dunlin::platform::now_ns(); }

    std::uint64_t given_back_ = 0, signals_ = 0, calls_ = 0;
};

EACH_P(Lend);

TEST_P(Lend, EveryMessageIsAnsweredAndEveryGoroutineComputesWhatItShould) {
    const auto took = answer_beside_hogs(4, support::sanitized ? 300 : 1000, 1500);
    EXPECT_EQ(took.size(), support::sanitized ? 1200u : 4000u);
    // With more processors than CPUs one of them may always be idle for a moment, and nothing need be lent.
    if (procs() == 1) {
        EXPECT_GT(given_back_, took.size() / 20);
    }
}

// Without the loan every other answer waits for the monitor's next round, a millisecond later, and stops a thread by a
// signal.
TEST_P(Lend, AnAnswerDoesNotWaitForTheMonitorsNextRound) {
    if (procs() != 1 || support::sanitized) GTEST_SKIP() << "its time is measured with one processor";
    const auto took = answer_beside_hogs(1, 600, 4000);
    EXPECT_LT(took[took.size() / 2], 800'000) << "ns, the median";
    EXPECT_GT(given_back_, took.size() / 2);
    EXPECT_LT(signals_, took.size() / 2);
    EXPECT_GE(calls_, given_back_ * 9 / 10) << "the monitor is called to watch the descriptors again";
}

}  // namespace
