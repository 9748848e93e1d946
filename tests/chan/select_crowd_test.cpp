// select(): many of them against each other, and against threads and timeouts.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "support/runtime_test.h"

using namespace std::chrono_literals;
using dunlin::on_recv, dunlin::on_send, dunlin::on_timeout, dunlin::otherwise, dunlin::select;

namespace {

class SelectCrowd : public support::each_p {};
EACH_P(SelectCrowd);

using owner = std::unique_ptr<int>;

// Senders and receivers, all of them through selects over the same channels: the number, the sum, and the owner of each
// value.
class crowd {
public:
    crowd(int each, std::array<std::ptrdiff_t, 3> capacities) : each_(each) {
        for (std::size_t i = 0; i < 3; ++i) channels_[i] = dunlin::chan<owner>(capacities[i]);
    }

    void send(int seed) {
        for (int i = 0; i < each_; ++i) {
            std::array<owner, 3> v;
            for (std::size_t k = 0; k < 3; ++k) v[k] = std::make_unique<int>(1 + static_cast<int>(k));
            std::size_t taken = 3;
            // In another order each time, so that locks would be taken in another order if they were not sorted.
            switch ((i + seed) % 4) {
            case 0:
                taken = select(on_send(channels_[0], std::move(v[0])), on_send(channels_[1], std::move(v[1])),
                    on_send(channels_[2], std::move(v[2])));
                break;
            case 1:
                taken = 2 - select(on_send(channels_[2], std::move(v[2])), on_send(channels_[1], std::move(v[1])),
                                on_send(channels_[0], std::move(v[0])));
                break;
            case 2:
                while (taken == 3)
                    taken = select(on_send(channels_[0], std::move(v[0])), on_send(channels_[1], std::move(v[1])),
                        on_send(channels_[2], std::move(v[2])), on_timeout(std::chrono::microseconds(i % 30)));
                break;
            default:
                taken = 1;
                channels_[1].send(std::move(v[1]));
            }
            sum_ += 1 + static_cast<int>(taken);
            for (std::size_t k = 0; k < 3; ++k) EXPECT_EQ(v[k] == nullptr, k == taken);
        }
    }

    void receive(int seed) {
        bool more = true;
        const auto take = [&](std::size_t k, std::optional<owner> v) {
            EXPECT_EQ(**v, 1 + static_cast<int>(k));
            sum_ -= **v;
            ++received_;
        };
        const auto receive_from = [&](std::size_t k) {
            return on_recv(channels_[k], [&take, k](std::optional<owner> v) { take(k, std::move(v)); });
        };
        const auto quit = [&] { return on_recv(quit_, [&] { more = false; }); };
        for (int i = seed; more; ++i) {
            switch (i % 4) {
            case 0: select(receive_from(0), receive_from(1), receive_from(2), quit()); break;
            case 1: select(quit(), receive_from(2), receive_from(0), receive_from(1)); break;
            case 2:
                select(receive_from(1), on_timeout(std::chrono::microseconds(i % 30)), receive_from(1), receive_from(0),
                    quit());
                break;
            default: select(receive_from(2), otherwise(), quit());
            }
        }
    }

    void finish(int senders) {
        quit_.close();
        left_.wait();
        int in_buffers = 0;
        for (const auto& c : channels_) {
            c.close();
            for (owner v : c) {
                ++in_buffers;
                sum_ -= *v;
            }
        }
        EXPECT_EQ(received_ + in_buffers, senders * each_);
        EXPECT_EQ(sum_, 0);
    }

    dunlin::wait_group left_;

private:
    const int each_;
    std::array<dunlin::chan<owner>, 3> channels_;
    dunlin::chan<int> quit_;
    std::atomic<int> received_{0};
    std::atomic<std::int64_t> sum_{0};
};

void crowd_of(int goroutines, int threads, int each, std::array<std::ptrdiff_t, 3> capacities) {
    crowd all(each, capacities);
    dunlin::wait_group senders;
    std::vector<std::thread> os_threads;
    for (int i = 0; i < goroutines; ++i) {
        senders.go([&all, i] { all.send(i); });
        all.left_.go([&all, i] { all.receive(i); });
    }
    for (int i = 0; i < threads; ++i) {
        senders.add();
        os_threads.emplace_back([&all, i, senders]() mutable {
            all.send(i);
            senders.done();
        });
        all.left_.add();
        os_threads.emplace_back([&all, i] {
            all.receive(i);
            all.left_.done();
        });
    }
    senders.wait();
    all.finish(goroutines + threads);
    for (auto& t : os_threads) dunlin::blocking([&t] { t.join(); });
}

TEST_P(SelectCrowd, ManySendersMeetManyReceivers) {
    allow(120s);
    run([] {
        for (int round = 0; round < support::rounds(50); ++round) {
            crowd_of(4, 0, 200, {0, 0, 0});
            crowd_of(4, 0, 200, {0, 1, 10});
            ASSERT_FALSE(HasFailure()) << "round " << round;
        }
        crowd_of(8, 0, support::rounds(10'000), {0, 0, 2});
    });
}

TEST_P(SelectCrowd, ThreadsAndGoroutinesMeet) {
    allow(120s);
    run([] {
        for (int round = 0; round < support::rounds(50); ++round) {
            crowd_of(2, 2, 100, {0, 0, 0});
            crowd_of(2, 2, 100, {0, 1, 10});
            ASSERT_FALSE(HasFailure()) << "round " << round;
        }
    });
}

// Two selects that each offer what the other wants, crosswise: exactly one pair of cases matches.
TEST_P(SelectCrowd, CrossedSelectsAgree) {
    run([] {
        const int rounds = support::rounds(20'000);
        const dunlin::chan<int> a, b;
        std::vector<std::size_t> first, second;
        dunlin::wait_group both;
        both.go([&] {
            for (int i = 0; i < rounds; ++i)
                first.push_back(select(on_send(a, i), on_recv(b, [i](std::optional<int> v) { EXPECT_EQ(v, i); })));
        });
        both.go([&] {
            for (int i = 0; i < rounds; ++i)
                second.push_back(select(on_recv(a, [i](std::optional<int> v) { EXPECT_EQ(v, i); }), on_send(b, i)));
        });
        both.wait();
        EXPECT_EQ(first, second);
    });
}

// The timeout, a value and a close come at about the same moment.
TEST_P(SelectCrowd, OfATimeoutAndAValueOneWins) {
    run([] {
        const int rounds = support::rounds(3000);
        int by_value = 0, by_time = 0;
        for (int i = 0; i < rounds; ++i) {
            const dunlin::chan<owner> c;
            std::atomic<int> sent{-1};
            dunlin::wait_group sender;
            sender.go(
                [&, c] { sent = c.send_for(std::make_unique<int>(i), std::chrono::microseconds(i % 40)) ? 1 : 0; });
            int received = 0;
            select(on_recv(c, [&](std::optional<owner> v) { received += **v == i; }),
                on_timeout(std::chrono::microseconds(i * 3 % 40)));
            sender.wait();
            ASSERT_EQ(sent, received) << "round " << i;
            ++(received != 0 ? by_value : by_time);
        }
        EXPECT_EQ(by_value + by_time, rounds);
    });
}

}  // namespace
