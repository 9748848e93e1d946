// Ports of Go's stress tests of connections (net/tcpsock_test.go, net/server_test.go), under Go's names, and of the
// rule that a goroutine that only computes does not keep a socket waiting. In the comments: the numbers of the
// conformance list.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "net/pairs.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

namespace net = dunlin::net;
using dunlin::clock;
using support::is_closed;

class GoNetStress : public support::each_p {
protected:
    void TearDown() override {
        support::each_p::TearDown();
        EXPECT_EQ(support::waiters(), 0);
    }
};
EACH_P(GoNetStress);

// NET-22. Messages of any size there and back, and every byte is looked at.
TEST_P(GoNetStress, TestTCPStress) {
    allow(60s);
    run([] {
        constexpr int conns = 10;
        const int messages = support::rounds(1000);
        constexpr std::size_t longest = 3000;
        net::listener l = net::listen("tcp", "127.0.0.1:0");
        dunlin::wait_group wg;
        wg.go([&] {
            for (int i = 0; i < conns; ++i) {
                wg.go([&, s = std::make_shared<net::stream>(l.accept())] {
                    std::string buffer(longest, ' ');
                    while (const std::size_t n = s->read_some(buffer)) s->write_all(buffer.data(), n);
                });
            }
        });
        for (unsigned i = 0; i < conns; ++i) {
            wg.go([&, i] {
                net::stream s = net::dial("tcp", l.local_address());
                std::minstd_rand random(i + 1);
                std::string out(longest, ' '), in(longest, ' ');
                for (char& c : out) c = static_cast<char>(random());
                for (int m = 0; m < messages; ++m) {
                    const std::size_t size = random() % longest + 1;
                    out[0] = static_cast<char>(m);
                    s.write_all(out.data(), size);
                    s.read_exactly(in.data(), size);
                    ASSERT_EQ(in.compare(0, size, out, 0, size), 0) << m;
                }
            });
        }
        wg.wait();
    });
}

// NET-22. Each connection is accepted once.
TEST_P(GoNetStress, TestTCPConcurrentAccept) {
    run([] {
        constexpr int acceptors = 10;
        const int conns = support::rounds(500);
        net::listener l = net::listen("tcp", "127.0.0.1:0");
        dunlin::mutex mutex;
        std::multiset<std::string> accepted, dialled;
        dunlin::wait_group wg, dialers;
        for (int i = 0; i < acceptors; ++i) {
            wg.go([&] {
                for (;;) {
                    std::error_code ec;
                    const net::stream s = l.accept(ec);
                    if (ec) {
                        EXPECT_EQ(ec, is_closed);
                        return;
                    }
                    const std::lock_guard guard(mutex);
                    accepted.insert(s.remote_address().to_string());
                }
            });
        }
        for (int i = 0; i < acceptors; ++i) {
            dialers.go([&] {
                for (int k = 0; k < conns / acceptors; ++k) {
                    net::stream s = net::dial("tcp", l.local_address());
                    {
                        const std::lock_guard guard(mutex);
                        dialled.insert(s.local_address().to_string());
                    }
                    char c;
                    EXPECT_EQ(s.read_some(&c, 1), 0u) << "until it was accepted, and closed";
                }
            });
        }
        dialers.wait();
        l.close();
        wg.wait();
        EXPECT_EQ(accepted, dialled);
    });
}

// NET-22. Several listeners, a goroutine per connection, clients that come and go.
TEST_P(GoNetStress, TestTCPServer) {
    run([] {
        constexpr int listeners = 5;
        const int rounds = support::rounds(50);
        std::vector<net::listener> all;
        for (int i = 0; i < listeners; ++i) all.push_back(net::listen("tcp", "127.0.0.1:0"));
        dunlin::wait_group servers, clients;
        for (net::listener& l : all) {
            servers.go([&] {
                for (;;) {
                    std::error_code ec;
                    auto s = std::make_shared<net::stream>(l.accept(ec));
                    if (ec) return;
                    servers.go([s] {
                        std::array<char, 256> buffer;
                        s->set_deadline(20s);
                        const std::size_t n = s->read_some(buffer);
                        s->write_all(buffer.data(), n);
                    });
                }
            });
        }
        for (net::listener& l : all) {
            for (int c = 0; c < 4; ++c) {
                clients.go([&] {
                    for (int i = 0; i < rounds; ++i) {
                        net::stream s = net::dial("tcp", l.local_address(), 20s);
                        s.set_deadline(20s);
                        s.write_all("SENT BY THE CLIENT");
                        std::string got(18, ' ');
                        s.read_exactly(got);
                        ASSERT_EQ(got, "SENT BY THE CLIENT");
                    }
                });
            }
        }
        clients.wait();
        for (net::listener& l : all) l.close();
        servers.wait();
    });
}

// NET-12, the race of close with everything: reads, writes, deadlines, selects, from goroutines and threads.
TEST_P(GoNetStress, CloseRacesWithEverything) {
    allow(60s);
    run([] {
        for (const char* network : {"tcp", "unix"}) {
            const net::listener l = net::listen(network, support::any_address(network));
            std::minstd_rand random(1);
            for (int i = 0; i < support::rounds(500); ++i) {
                auto e = support::connect(l, network);
                std::atomic<bool> stop{false};
                dunlin::wait_group wg;
                const auto read = [&] {
                    char c[64];
                    std::error_code ec;
                    while (!ec || ec == std::errc::timed_out) {
                        if (e.client.read_some(c, ec) == 0 && !ec) break;
                    }
                };
                wg.go(read);
                wg.go([&] {
                    std::error_code ec;
                    while (!ec || ec == std::errc::timed_out) {
                        e.client.write_all("0123456789", ec);
                        dunlin::yield();
                    }
                });
                wg.go([&] {
                    while (!stop) {
                        if (support::code_of([&] { e.client.set_deadline(std::chrono::microseconds(200)); })) break;
                        dunlin::yield();
                    }
                });
                wg.go([&] {
                    while (e.client.is_open()) dunlin::select(dunlin::on_readable(e.client), dunlin::on_timeout(100us));
                });
                wg.go([&] {
                    char c[64];
                    std::error_code ec;
                    while (e.server.read_some(c, ec) != 0) e.server.write_some("x", ec);
                });
                std::thread thread;
                if (i % 20 == 0) thread = std::thread(read);
                for (unsigned k = random() % 50; k > 0; --k) dunlin::yield();
                e.client.close();
                stop = true;
                wg.wait();
                if (thread.joinable()) thread.join();
            }
        }
    });
}

// ---- fairness -------------------------------------------------------------------------------------------------------

[[gnu::noinline]] void compute(const std::atomic<bool>& stop) {
    volatile unsigned long n = 0;
    while (!stop.load(std::memory_order_relaxed)) n = n + 1;
}

// NET-26. Every processor computes, and a socket that becomes readable is served: the monitor polls, and preempts. The
// peer is a plain thread with plain calls.
TEST_P(GoNetStress, ASocketIsServedThoughEveryProcessorComputes) {
    allow(60s);
    run([this] {
        constexpr int messages = 50;
        auto e = support::connected("tcp");
        std::atomic<bool> stop{false};
        dunlin::wait_group wg;
        wg.go([&] {
            char c;
            while (e.server.read_some(&c, 1) == 1) e.server.write_all(&c, 1);
        });
        std::vector<clock::duration> took;
        std::thread peer([&, fd = dup(e.client.native_handle())] {
            for (int i = 0; i < messages; ++i) {
                const auto begin = clock::now();
                char c = 'x';
                ASSERT_EQ(write(fd, &c, 1), 1);
                while (read(fd, &c, 1) != 1) std::this_thread::sleep_for(200us);  // it does not block
                took.push_back(clock::now() - begin);
                std::this_thread::sleep_for(1ms);
            }
            shutdown(fd, SHUT_WR);
            close(fd);
            stop = true;
        });
        for (unsigned i = 0; i < procs(); ++i) wg.go([&] { compute(stop); });
        wg.wait();
        peer.join();
        ASSERT_EQ(took.size(), static_cast<std::size_t>(messages));
        // A machine that is busy with other things as well adds time slices of the kernel's, now and then many.
        std::sort(took.begin(), took.end());
        EXPECT_LT(took[messages / 2], support::sanitized ? 1s : 200ms);
        EXPECT_LT(took.back(), 5s);
    });
}

}  // namespace
