// Descriptors after the end of a run(): what goroutines that were frozen or lost had of them is taken back.
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <dunlin/net.hpp>

#include "net/pairs.h"
#include "poll/fd_record.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

namespace net = dunlin::net;
using dunlin::netpoll::direction;
using support::has_timed_out;
using support::is_closed;
using support::waiters;

class LeftDescriptor : public support::each_p {
protected:
    void TearDown() override {
        support::each_p::TearDown();
        EXPECT_EQ(waiters(), 0);
    }
};
EACH_P(LeftDescriptor);

// What frozen goroutines were doing on a stream must hinder neither close() nor later users.
void use_again(net::stream& a, net::stream& b, unsigned procs) {
    EXPECT_EQ(waiters(), 0);
    dunlin::run({.max_procs = procs}, [&] {
        b.write_all("hello");
        std::array<char, 5> got;
        a.read_exactly(got);
        EXPECT_EQ(std::string(got.data(), 5), "hello");
        a.write_all("world");
        b.read_exactly(got);
        EXPECT_EQ(std::string(got.data(), 5), "world");
    });
}

// The kernel's number of the socket; 0: `fd` is closed, or something else by now (the monitor opens files of /proc).
ino_t socket_of(int fd) {
    struct stat s {};
    return fstat(fd, &s) == 0 && S_ISSOCK(s.st_mode) ? s.st_ino : 0;
}

void close_quickly(net::stream& a, net::stream& b) {
    const int number = a.native_handle();
    const ino_t socket = socket_of(number);
    const auto begin = dunlin::clock::now();
    a.close();
    // The patience of close() with a user that does not come back is 2 s.
    EXPECT_LT(dunlin::clock::now() - begin, 1500ms);
    EXPECT_FALSE(a.is_open());
    EXPECT_NE(socket_of(number), socket);
    char c;
    EXPECT_EQ(b.read_some(&c, 1), 0u) << "the peer sees it";
}

TEST_P(LeftDescriptor, AReadThatWasFrozenHindersNoOtherCall) {
    for (const bool again : {true, false}) {
        auto [a, b] = net::stream_pair();
        run([&a = a] {
            dunlin::go([&a] {
                char c;
                a.read_some(&c, 1);
                ADD_FAILURE() << "it was frozen";
            });
            support::eventually([] { return waiters() == 1; });
        });
        if (again) use_again(a, b, procs());
        close_quickly(a, b);
    }
}

// It has been woken, has the turn, and does not get to run: main returns at once.
TEST_P(LeftDescriptor, AReadThatWasWokenAndThenFrozenHindersNoOtherCall) {
    const int rounds = support::rounds(30);
    for (int i = 0; i < rounds; ++i) {
        auto [a, b] = net::stream_pair();
        run([&a = a, &b = b, by_deadline = i % 2 == 0] {
            dunlin::go([&a] {
                char c;
                while (a.read_some(&c, 1) != 0) {
                }
            });
            support::eventually([] { return waiters() == 1; });
            if (by_deadline) {
                a.set_read_deadline(1h);
            } else {
                b.write_all("x");
            }
        });
        a.clear_deadline();
        if (i % 2 != 0) {
            // The frozen one may have left it.
            char c;
            a.set_read_deadline(5ms);
            std::error_code ec;
            a.read_some(&c, 1, ec);
        }
        a.clear_deadline();
        if (i % 3 == 0) use_again(a, b, procs());
        close_quickly(a, b);
    }
}

TEST_P(LeftDescriptor, WaitersForATurnAndInSelectAreForgottenToo) {
    for (const bool again : {true, false}) {
        auto [a, b] = net::stream_pair();
        a.set_read_deadline(1h);
        run([&a = a] {
            for (int i = 0; i < 3; ++i) {
                dunlin::go([&a] {
                    char c;
                    a.read_some(&c, 1);
                    ADD_FAILURE() << "it was frozen";
                });
                dunlin::go([&a] {
                    dunlin::select(dunlin::on_readable(a), dunlin::on_timeout(1h));
                    ADD_FAILURE() << "it was frozen";
                });
            }
            // One reader, the others wait for their turn; and three selects.
            support::eventually([] { return waiters() == 4; });
            dunlin::sleep_for(2ms);
        });
        a.clear_deadline();
        if (again) use_again(a, b, procs());
        close_quickly(a, b);
    }
}

TEST_P(LeftDescriptor, AWriteThatWasFrozenHindersNoOtherCall) {
    auto [a, b] = net::stream_pair();
    run([&a = a] {
        support::fill(a);
        dunlin::go([&a] {
            a.write_all(std::string(1 << 20, 'x'));
            ADD_FAILURE() << "it was frozen";
        });
        support::eventually([] { return waiters() == 1; });
    });
    EXPECT_EQ(waiters(), 0);
    b.set_read_deadline(20ms);
    std::string all(1 << 16, '\0');
    std::error_code ec;
    while (!ec) b.read_some(all, ec);
    EXPECT_EQ(ec, has_timed_out);
    b.clear_deadline();
    use_again(a, b, procs());
}

// A goroutine that does nothing but enter and leave is frozen in one or the other most of the time.
TEST_P(LeftDescriptor, NoGoroutineIsFrozenBetweenTakingATurnAndSayingSo) {
    auto [a, b] = net::stream_pair();
    const int rounds = support::rounds(20);
    for (int i = 0; i < rounds; ++i) {
        std::atomic<int> begun{0};
        run([&begun, &a = a] {
            for (const bool reads : {true, false}) {
                dunlin::go([&begun, &a, reads] {
                    ++begun;
                    for (std::error_code ec;;) reads ? a.read_some(nullptr, 0, ec) : a.write_some(nullptr, 0, ec);
                });
            }
            support::eventually([&] { return begun > 0; });
        });
        dunlin::run({.max_procs = procs()}, [&a = a] {
            const auto limit = dunlin::with_timeout(dunlin::context::background(), 5s);
            std::error_code ec;
            a.read_some(nullptr, 0, limit, ec);
            ASSERT_FALSE(ec) << "the reader's turn is lost: " << ec.message();
            a.write_some(nullptr, 0, limit, ec);
            ASSERT_FALSE(ec) << "the writer's turn is lost: " << ec.message();
        });
    }
    close_quickly(a, b);
}

// Never destroyed: what is left of a run may have read it a moment ago, and nothing orders that.
template <class T>
T& kept(T value) {
    static std::deque<T>& all = *new std::deque<T>;
    return all.emplace_back(std::move(value));
}

// A goroutine that does nothing else is lost in such a call.
TEST_P(LeftDescriptor, NoUseIsLostWithAGoroutineThatSetsDeadlinesOrLooks) {
    for (int i = 0; i < support::rounds(12); ++i) {
        auto& [a, b] = kept(net::stream_pair());
        std::atomic<bool> begun{false};
        run([&begun, &a = a, i] {
            dunlin::go([&begun, &a, i] {
                begun = true;
                for (std::error_code ec;;) {
                    switch (i % 4) {
                    case 0: a.set_read_deadline(1h, ec); break;
                    case 1: a.set_linger({}, ec); break;
                    case 2: static_cast<void>(a.local_address()); break;
                    default: dunlin::select(dunlin::on_readable(a), dunlin::otherwise());
                    }
                }
            });
            support::eventually([&] { return begun.load(); });
        });
        close_quickly(a, b);
    }
}

// It blocks in the kernel when run() returns, and is lost at its next call of the library: as if it had never made it.
TEST_P(LeftDescriptor, ACloseThatIsLostHindersNoOther) {
    for (int i = 0; i < support::rounds(10); ++i) {
        auto& [a, b] = kept(net::stream_pair());
        int ends[2];
        ASSERT_EQ(pipe(ends), 0);
        std::atomic<bool> begun{false}, came_back{false};
        run([&, &a = a] {
            dunlin::go([&] {
                begun = true;
                char c;
                ASSERT_EQ(read(ends[0], &c, 1), 1);
                came_back = true;
                a.close();
                ADD_FAILURE() << "it was lost";
            });
            support::eventually([&] { return begun.load(); });
            dunlin::sleep_for(1ms);  // let it block
        });
        std::thread reader([&a = a] {
            char c;
            std::error_code ec;
            EXPECT_EQ(a.read_some(&c, 1, ec), 0u);
            EXPECT_EQ(ec, is_closed);
        });
        ASSERT_EQ(write(ends[1], "x", 1), 1);
        support::eventually_on_thread([&] { return came_back.load(); });
        std::this_thread::sleep_for(std::chrono::milliseconds(i % 3));
        close_quickly(a, b);
        reader.join();
        close(ends[0]);
        close(ends[1]);
    }
}

// A goroutine that does nothing but close is frozen in it most of the time.
TEST_P(LeftDescriptor, NoCloseIsLostWithAGoroutine) {
    constexpr int many = 100;
    for (int round = 0; round < support::rounds(50); ++round) {
        auto& pairs = kept(std::vector<net::stream>());
        std::atomic<int>& closed = *kept(std::make_unique<std::atomic<int>>(0));
        std::vector<net::stream> peers;
        for (int i = 0; i < many; ++i) {
            auto [a, b] = net::stream_pair();
            pairs.push_back(std::move(a));
            peers.push_back(std::move(b));
        }
        run([&] {
            dunlin::go([&] {
                for (net::stream& s : pairs) {
                    s.close();
                    ++closed;
                }
            });
            support::eventually([&] { return closed > many / 4; });
        });
        const auto begin = dunlin::clock::now();
        for (net::stream& s : pairs) s.close();
        EXPECT_LT(dunlin::clock::now() - begin, 1500ms);
        char c;
        for (net::stream& s : peers) {
            s.set_read_deadline(1s);
            EXPECT_EQ(s.read_some(&c, 1), 0u);
        }
    }
}

// A plain thread that reads stays, and one that waits for its turn behind a goroutine that was frozen gets it.
TEST_P(LeftDescriptor, AThreadGetsTheTurnOfAFrozenReader) {
    auto [a, b] = net::stream_pair();
    std::optional<std::thread> thread;
    std::atomic<int> got{0};
    run([&, &a = a] {
        dunlin::go([&a] {
            char c;
            a.read_some(&c, 1);
            ADD_FAILURE() << "it was frozen";
        });
        support::eventually([] { return waiters() == 1; });
        thread.emplace([&] {
            char c;
            got = static_cast<int>(a.read_some(&c, 1));
        });
        dunlin::sleep_for(2ms);
    });
    b.write_all("x");
    thread->join();
    EXPECT_EQ(got, 1);
}

// It blocks in the kernel when run() returns and is lost when it comes out, while others already wait for its turn.
TEST_P(LeftDescriptor, ATurnThatIsLostOnlyLaterIsHandedOn) {
    for (int i = 0; i < support::rounds(10); ++i) {
        auto [a, b] = net::stream_pair();
        int ends[2];
        ASSERT_EQ(pipe(ends), 0);
        std::atomic<bool> begun{false}, lost{true};
        run([&, &a = a] {
            dunlin::go([&] {
                ASSERT_EQ(dunlin::io_access::of(a)->enter(direction::read), dunlin::netpoll::fd_mutex::entry::in);
                begun = true;
                char c;
                ASSERT_EQ(read(ends[0], &c, 1), 1);
                dunlin::yield();
                lost = false;
            });
            support::eventually([&] { return begun.load(); });
            dunlin::sleep_for(1ms);  // let it block
        });
        dunlin::run({.max_procs = procs()}, [&, &a = a, &b = b] {
            dunlin::task<std::size_t> reader = dunlin::spawn([&a] {
                char c;
                return a.read_some(&c, 1);
            });
            b.write_all("x");
            dunlin::sleep_for(i % 2 == 0 ? 1ms : 30ms);  // the monitor may be asleep by then
            ASSERT_EQ(write(ends[1], "x", 1), 1);
            EXPECT_EQ(reader.get(), 1u);
        });
        EXPECT_TRUE(lost);
        close(ends[0]);
        close(ends[1]);
        close_quickly(a, b);
    }
}

}  // namespace
