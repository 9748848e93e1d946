// Records of descriptors: the waiters, and what wakes them.
#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <dunlin/fs.hpp>
#include <dunlin/net.hpp>

#include "net/pairs.h"
#include "park/wait_queue.h"
#include "poll/backend.h"
#include "poll/fd_record.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

namespace net = dunlin::net;
using dunlin::netpoll::fd_record;
using dunlin::netpoll::direction;
using support::connected;
using support::has_timed_out;
using support::is_closed;
using support::waiters;

class Descriptor : public support::each_p {
protected:
    void TearDown() override {
        support::each_p::TearDown();
        EXPECT_EQ(waiters(), 0);
    }
};
EACH_P(Descriptor);
class DescriptorOnce : public support::runtime_test {};

// ---- stale events ---------------------------------------------------------------------------------------------------

// Events as they may come late: with the record's address and each number of use. The number of those that it takes for
// its own, and the last one.
std::pair<int, std::uint64_t> deliver_with_each_number(fd_record* d) {
    std::pair<int, std::uint64_t> result{0, 0};
    for (std::uint64_t number = 0; number < 65536; ++number) {
        const std::uint64_t tag = reinterpret_cast<std::uintptr_t>(d) | number << 48;
        EXPECT_EQ(fd_record::of_tag(tag), d);
        const std::uint32_t before = d->edges(direction::read);
        dunlin::park::wait_node* woken = nullptr;
        dunlin::park::wait_node** end = &woken;
        d->edge({tag, dunlin::netpoll::readable}, end);
        if (d->edges(direction::read) != before) result = {result.first + 1, tag};
    }
    return result;
}

TEST_F(DescriptorOnce, AnEventOfAnEarlierUseIsIgnored) {
    fd_record* record = nullptr;
    std::uint64_t earlier = 0;
    int reused = 0;
    for (int i = 0; i < 20; ++i) {
        auto [a, b] = net::stream_pair();
        fd_record* d = dunlin::io_access::of(a);
        const auto [count, tag] = deliver_with_each_number(d);
        EXPECT_EQ(count, 1);
        if (d == record) {
            ++reused;
            EXPECT_NE(tag, earlier);
        }
        record = d;
        earlier = tag;
        a.close();
        EXPECT_EQ(deliver_with_each_number(d).first, 0) << "closed";
    }
    EXPECT_GT(reused, 0) << "no record was used again, so nothing was tested";
}

// Numbers of descriptors and records are used again at once, while others still read from those of before: none reads
// what is another's.
TEST_P(Descriptor, NoReaderGetsWhatIsAnothers) {
    allow(60s);
    run([] {
        dunlin::wait_group wg;
        for (int g = 0; g < 8; ++g) {
            wg.go([g] {
                std::minstd_rand random(static_cast<unsigned>(g + 1));
                for (int i = 0; i < support::rounds(400); ++i) {
                    auto [a, b] = net::stream_pair();
                    const char mine = static_cast<char>('a' + g);
                    dunlin::wait_group readers;
                    for (int r = 0; r < 2; ++r) {
                        readers.go([&a = a, mine] {
                            char c[64];
                            std::error_code ec;
                            for (std::size_t n; (n = a.read_some(c, ec)) != 0;) {
                                for (std::size_t k = 0; k < n; ++k) ASSERT_EQ(c[k], mine);
                            }
                            EXPECT_TRUE(!ec || ec == is_closed) << ec.message();
                        });
                    }
                    for (unsigned k = random() % 4; k > 0; --k) b.write_all(std::string(random() % 20 + 1, mine));
                    for (unsigned k = random() % 4; k > 0; --k) dunlin::yield();
                    (random() % 2 ? a : b).close();
                    readers.wait();
                }
            });
        }
        wg.wait();
    });
}

// ---- the number of waiters
// --------------------------------------------------------------------------------------------------------

TEST_P(Descriptor, NoWaiterIsCountedAfterMessagesDeadlinesAndCloses) {
    run([] {
        auto [a, b] = net::stream_pair();
        dunlin::wait_group wg;
        wg.go([&b = b] {
            std::array<char, 10> got;
            b.read_exactly(got);
        });
        for (int i = 0; i < 10; ++i) {
            dunlin::sleep_for(1ms);
            a.write_all("x");
        }
        wg.wait();
        EXPECT_EQ(waiters(), 0);

        for (int i = 0; i < support::rounds(1000); ++i) {
            b.set_read_deadline(i % 10 == 0 ? std::chrono::nanoseconds(1ms) : std::chrono::nanoseconds(i));
            std::error_code ec;
            char c;
            b.read_some(&c, 1, ec);
            ASSERT_EQ(ec, has_timed_out);
            ASSERT_EQ(waiters(), 0);
        }
        for (int i = 0; i < support::rounds(1000); ++i) {
            auto [c, d] = net::stream_pair();
            wg.go([&c = c] {
                char x;
                EXPECT_EQ(support::code_of([&] { c.read_some(&x, 1); }), is_closed);
            });
            if (i % 2) support::eventually([] { return waiters() == 1; });
            c.close();
            wg.wait();
            ASSERT_EQ(waiters(), 0);
        }
    });
}

TEST_P(Descriptor, AWaiterInASelectIsCountedForEachCaseAndNoLongerThanItWaits) {
    run([] {
        auto [a, b] = net::stream_pair();
        for (int i = 0; i < support::rounds(300); ++i) {
            dunlin::chan<int> c(1);
            dunlin::wait_group wg;
            wg.go([&] {
                dunlin::select(dunlin::on_readable(a), dunlin::on_readable(b), dunlin::on_recv(c),
                    dunlin::on_timeout(i % 3 == 0 ? 100us : 1h));
            });
            if (i % 3 == 1) support::eventually([] { return waiters() == 2; });
            c.send(1);
            wg.wait();
            ASSERT_EQ(waiters(), 0);
        }
    });
}

// ---- deadlines ------------------------------------------------------------------------------------------------------

TEST_P(Descriptor, ANewDeadlineIsForThoseUnderWayToo) {
    run([] {
        auto [a, b] = net::stream_pair();
        for (int i = 0; i < support::rounds(200); ++i) {
            a.clear_deadline();
            dunlin::wait_group wg;
            for (int k = 0; k < 2; ++k) {
                wg.go([&a = a] {
                    char c;
                    std::error_code ec;
                    a.read_some(&c, 1, ec);
                    EXPECT_EQ(ec, has_timed_out);
                });
            }
            if (i % 2) support::eventually([] { return waiters() == 1; });
            if (i % 3 == 0) a.set_deadline(1h);
            if (i % 5 == 0) a.set_read_deadline(-1s);
            a.set_read_deadline(1us);
            wg.wait();
        }
    });
}

TEST_P(Descriptor, ADeadlineThatIsMovedOnDoesNotExpire) {
    run([] {
        auto [a, b] = net::stream_pair();
        a.set_read_deadline(5s);
        dunlin::task<std::size_t> reader = dunlin::spawn([&a = a] {
            char c;
            return a.read_some(&c, 1);
        });
        for (int i = 0; i < support::rounds(500); ++i) {
            a.set_read_deadline(5s + std::chrono::microseconds(i));
            if (i % 10 == 0) dunlin::sleep_for(50us);
        }
        a.clear_deadline();
        b.write_all("x");
        EXPECT_EQ(reader.get(), 1u);
    });
}

// ---- short reads ----------------------------------------------------------------------------------------------------

std::string read_all(net::stream& s) {
    std::string all;
    char part[512];
    while (const std::size_t n = s.read_some(part)) all.append(part, n);
    return all;
}

TEST_P(Descriptor, AShortReadDoesNotHideTheEndOfThePeer) {
    run([] {
        for (const char* network : {"tcp", "unix"}) {
            const net::listener l = net::listen(network, support::any_address(network));
            for (int i = 0; i < support::rounds(300); ++i) {
                support::ends e = support::connect(l, network);
                dunlin::wait_group wg;
                wg.go([&] { EXPECT_EQ(read_all(e.server), "abcdef"); });
                for (int k = 0; k < i % 5; ++k) dunlin::yield();
                e.client.write_all("abc");
                for (int k = 0; k < i % 3; ++k) dunlin::yield();
                e.client.write_all("def");
                i % 2 ? e.client.close() : e.client.close_write();
                wg.wait();
            }
        }
    });
}

TEST_P(Descriptor, AShortReadDoesNotHideAReset) {
    run([] {
        const net::listener l = net::listen("tcp", "127.0.0.1:0");
        for (int i = 0; i < support::rounds(300); ++i) {
            support::ends e = support::connect(l, "tcp");
            dunlin::wait_group wg;
            wg.go([&] {
                std::error_code ec;
                char part[64];
                while (e.server.read_some(part, ec) != 0) {
                }
                EXPECT_EQ(ec, std::errc::connection_reset) << ec.message();
            });
            e.client.write_all("abc");
            for (int k = 0; k < i % 5; ++k) dunlin::yield();
            e.client.set_linger(0s);
            e.client.close();
            wg.wait();
        }
    });
}

// A read ends at the mark of urgent data, short, though more is there.
TEST_P(Descriptor, AShortReadDoesNotHideWhatFollowsUrgentData) {
    run([] {
        const net::listener l = net::listen("tcp", "127.0.0.1:0");
        for (int i = 0; i < support::rounds(300); ++i) {
            support::ends e = support::connect(l, "tcp");
            const int in_line = i % 2;
            setsockopt(e.server.native_handle(), SOL_SOCKET, SO_OOBINLINE, &in_line, sizeof in_line);
            dunlin::wait_group wg;
            std::string all;
            wg.go([&] {
                char part[512];
                while (all.size() < (in_line ? 10u : 8u)) all.append(part, e.server.read_some(part));
            });
            auto pause = [i, k = 0]() mutable {
                for (int n = i / (1 + k++) % 4; n > 0; --n) dunlin::yield();
            };
            e.client.write_all("abc");
            pause();
            ASSERT_EQ(send(e.client.native_handle(), "1", 1, MSG_OOB), 1);
            pause();
            e.client.write_all("de");
            pause();
            ASSERT_EQ(send(e.client.native_handle(), "2", 1, MSG_OOB), 1);
            e.client.write_all("fgh");
            wg.wait();
            // The first urgent byte becomes an ordinary one where the second takes its place before it was passed.
            std::erase_if(all, [](char c) { return c == '1' || c == '2'; });
            if (in_line) {
                EXPECT_EQ(all, "abcdefgh");
            } else {
                EXPECT_EQ(all, std::string("abcdefgh").substr(0, all.size()));
                EXPECT_GE(all.size(), 7u);
            }
        }
    });
}

// Small pieces with pauses of any length between them: an edge that were lost would end in a hang.
TEST_P(Descriptor, NoEdgeIsLostBetweenReads) {
    run([] {
        for (const char* network : {"tcp", "unix"}) {
            support::ends e = connected(network);
            const int rounds = support::rounds(5000);
            dunlin::wait_group wg;
            wg.go([&] {
                char part[64];
                for (int got = 0; got < rounds;) got += static_cast<int>(e.server.read_some(part));
            });
            std::minstd_rand random(1);
            for (int i = 0; i < rounds; ++i) {
                e.client.write_all("x");
                for (unsigned k = random() % 4; k > 0; --k) dunlin::yield();
            }
            wg.wait();
        }
    });
}

// A processor that always has something to run is not found by a machine that polls when there is nothing: it comes to
// poll itself, every millisecond. The monitor would after ten. Counted in CPU time, which passes only while the
// processor has a CPU; a round of all that yield may come before the reader's turn.
struct polling {
    std::chrono::nanoseconds median_delay, round;
};

std::chrono::nanoseconds cpu_time() {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

polling poll_among(int yielding) {
    std::vector<std::chrono::nanoseconds> late;
    std::chrono::nanoseconds whole{};
    std::atomic<long> yields{0};
    dunlin::run({.max_procs = 1}, [&] {
        auto [reader, writer] = dunlin::fs::pipe();
        std::atomic<bool> stop{false};
        dunlin::task_group group;
        const auto began = cpu_time();
        for (int i = 0; i < yielding; ++i) {
            group.go([&] {
                for (; !stop; yields.fetch_add(1, std::memory_order_relaxed)) dunlin::yield();
            });
        }
        // Another thread writes the time.
        std::jthread outside([&] {
            for (int i = 0; i < 40; ++i) {
                std::this_thread::sleep_for(5ms);
                const auto now = cpu_time().count();
                EXPECT_EQ(::write(writer.native_handle(), &now, sizeof now), static_cast<ssize_t>(sizeof now));
            }
        });
        for (int i = 0; i < 40; ++i) {
            std::chrono::nanoseconds::rep sent = 0;
            EXPECT_EQ(reader.read_some(std::as_writable_bytes(std::span(&sent, 1))), sizeof sent);
            late.push_back(cpu_time() - std::chrono::nanoseconds(sent));
        }
        stop = true;
        whole = cpu_time() - began;
        group.wait();
    });
    std::nth_element(late.begin(), late.begin() + 20, late.end());
    return {late[20], whole * yielding / yields.load()};
}

TEST_F(DescriptorOnce, AProcessorThatIsNeverOutOfWorkPolls) {
    // 2.5 ms on two CPUs, since all threads of the process count; the monitor's 10 ms are beyond that.
    for (const int yielding : {3, 600}) {  // 600: more than a local queue holds
        // A round of them takes as long there as the monitor is patient: what it does could not be told from a poll.
        if (yielding == 600 && support::sanitized) continue;
        const polling p = poll_among(yielding);
        EXPECT_LT(p.median_delay, 5000us + 2 * p.round)
            << yielding << " goroutines, " << p.round.count() << " ns for a round of them";
    }
}

}  // namespace
