// Ports of Go's own tests of select that run long, under Go's names.
#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/runtime_test.h"

using namespace std::chrono_literals;
using dunlin::on_recv, dunlin::on_send, dunlin::otherwise;

namespace {

class GoSelectStress : public support::each_p {};
EACH_P(GoSelectStress);

void until_parked(std::size_t n) {
    support::eventually([n] { return dunlin::runtime::stats().waiting == n; });
}

// SEL-02, go1.24 src/runtime/chan_test.go TestNonblockSelectRace2. At every moment one of the two is ready, so
// `otherwise` is never taken.
TEST_P(GoSelectStress, TestNonblockSelectRace2) {
    run([] {
        dunlin::chan<bool> done(1);
        for (int i = 0; i < support::rounds(100'000); ++i) {
            dunlin::chan<int> c1(1), c2;
            c1.send(1);
            dunlin::go([c1, c2, done] { done.send(dunlin::select(on_recv(c1), on_recv(c2), otherwise()) != 2); });
            c2.close();
            dunlin::select(on_recv(c1), otherwise());
            ASSERT_TRUE(*done.recv()) << "round " << i;
        }
    });
}

// SEL-07, go1.24 src/runtime/chan_test.go TestSelfSelect
TEST_P(GoSelectStress, TestSelfSelect) {
    run([] {
        const int rounds = support::rounds(10'000);
        for (const std::ptrdiff_t capacity : {0, 10}) {
            dunlin::chan<int> c(capacity);
            dunlin::wait_group both;
            for (int p = 0; p < 2; ++p) {
                both.go([=] {
                    const auto received = [=](std::optional<int> v) {
                        EXPECT_TRUE(capacity != 0 || v != p) << "received from itself";
                    };
                    for (int i = 0; i < rounds; ++i) {
                        if (p == 0 || i % 2 == 0) {
                            dunlin::select(on_send(c, p), on_recv(c, received));
                        } else {
                            dunlin::select(on_recv(c, received), on_send(c, p));
                        }
                    }
                });
            }
            both.wait();
            EXPECT_LE(c.len(), static_cast<std::size_t>(capacity));
        }
    });
}

// ---- SEL-12 ---------------------------------------------------------------------------------------------------------

// Four channels; the values on each are its first number, then the following ones to the 76th.
class ken_chan {
public:
    static constexpr std::size_t channels = 4;
    static constexpr int each = 76;

    explicit ken_chan(std::ptrdiff_t capacity) {
        for (auto& c : channels_) c = dunlin::chan<int>(capacity);
    }

    void send_plain(std::size_t k) {
        everybody_.go([this, k] {
            std::minstd_rand random(static_cast<unsigned>(k) + 1);
            for (int i = 0; i < each; ++i) {
                yields(random);
                channels_[k].send(value(k, i));
                ++sent_;
            }
        });
    }
    void receive_plain(std::size_t k) {
        everybody_.go([this, k] {
            std::minstd_rand random(static_cast<unsigned>(k) + 11);
            for (int i = 0; i < each; ++i) {
                yields(random);
                EXPECT_EQ(channels_[k].recv(), value(k, i));
                ++received_;
            }
        });
    }

    // All of [first, first + N), each through a select over those that are left.
    template <std::size_t N>
    void send_selecting(std::size_t first) {
        everybody_.go([this, first] { send_by_select(first, std::make_index_sequence<N>()); });
    }
    template <std::size_t N>
    void receive_selecting(std::size_t first) {
        everybody_.go([this, first] { receive_by_select(first, std::make_index_sequence<N>()); });
    }

    void finish() {
        everybody_.wait();
        EXPECT_EQ(sent_, static_cast<int>(channels) * each);
        EXPECT_EQ(received_, static_cast<int>(channels) * each);
        for (const auto& c : channels_) EXPECT_EQ(c.len(), 0u);
    }

private:
    static int value(std::size_t k, int i) { return 100 * (static_cast<int>(k) + 1) + i; }
    static void yields(std::minstd_rand& random) {
        for (auto n = random() % 5; n != 0; --n) dunlin::yield();
    }

    template <std::size_t... I>
    void send_by_select(std::size_t first, std::index_sequence<I...>) {
        std::minstd_rand random(31);
        std::array<dunlin::chan<int>, sizeof...(I)> mine{channels_[first + I]...};
        std::array<int, sizeof...(I)> next{};
        std::size_t left = sizeof...(I);
        while (left != 0) {
            yields(random);
            const auto advance = [&](std::size_t i) {
                ++sent_;
                if (++next[i] < each) return;
                mine[i] = dunlin::chan<int>::nil();
                --left;
            };
            dunlin::select(on_send(mine[I], value(first + I, next[I]), [&] { advance(I); })...);
        }
    }
    template <std::size_t... I>
    void receive_by_select(std::size_t first, std::index_sequence<I...>) {
        std::minstd_rand random(41);
        std::array<int, sizeof...(I)> next{};
        for (int left = static_cast<int>(sizeof...(I)) * each; left != 0; --left) {
            yields(random);
            const auto check = [&](std::size_t i, std::optional<int> v) {
                EXPECT_EQ(v, value(first + i, next[i]++));
                ++received_;
            };
            dunlin::select(on_recv(channels_[first + I], [&](std::optional<int> v) { check(I, v); })...);
        }
    }

    std::array<dunlin::chan<int>, channels> channels_;
    dunlin::wait_group everybody_;
    std::atomic<int> sent_{0}, received_{0};
};

// How the four channels are served at one end: by plain calls, or by selects over one, two or four of them.
enum class service { plain, select_1, select_2, select_4, services };

void serve_senders(ken_chan& t, service s) {
    for (std::size_t k = 0; k < ken_chan::channels; ++k) {
        if (s == service::plain) t.send_plain(k);
        if (s == service::select_1) t.send_selecting<1>(k);
        if (s == service::select_2 && k % 2 == 0) t.send_selecting<2>(k);
    }
    if (s == service::select_4) t.send_selecting<4>(0);
}

void serve_receivers(ken_chan& t, service s) {
    for (std::size_t k = 0; k < ken_chan::channels; ++k) {
        if (s == service::plain) t.receive_plain(k);
        if (s == service::select_1) t.receive_selecting<1>(k);
        if (s == service::select_2 && k % 2 == 0) t.receive_selecting<2>(k);
    }
    if (s == service::select_4) t.receive_selecting<4>(0);
}

// SEL-12, go1.24 test/ken/chan.go
TEST_P(GoSelectStress, ken_chan) {
    run([] {
        for (int round = 0; round < support::rounds(10); ++round) {
            for (const std::ptrdiff_t capacity : {0, 1, 10, 100}) {
                for (int s = 0; s < static_cast<int>(service::services); ++s) {
                    for (int r = 0; r < static_cast<int>(service::services); ++r) {
                        ken_chan t(capacity);
                        serve_senders(t, static_cast<service>(s));
                        serve_receivers(t, static_cast<service>(r));
                        t.finish();
                        ASSERT_FALSE(HasFailure())
                            << "senders " << s << ", receivers " << r << ", capacity " << capacity;
                    }
                }
            }
        }
    });
}

// SEL-12, go1.24 test/ken/chan1.go: each number is sent and then received, once.
TEST_P(GoSelectStress, ken_chan1) {
    run([] {
        constexpr std::size_t numbers = 1000, receivers = 10;
        for (int round = 0; round < support::rounds(20); ++round) {
            dunlin::chan<std::size_t> c(2);
            std::array<std::atomic<int>, numbers> seen{};
            dunlin::wait_group all;
            for (std::size_t m = 0; m < receivers; ++m) {
                all.go([&, c] {
                    for (bool more = true; more;) {
                        dunlin::select(on_recv(c, [&](std::optional<std::size_t> v) {
                            more = v.has_value();
                            if (!more) return;
                            EXPECT_EQ(seen[*v].exchange(2), 1) << "number " << *v;
                        }));
                    }
                });
            }
            for (std::size_t n = 0; n < numbers; ++n) {
                EXPECT_EQ(seen[n].exchange(1), 0);
                c.send(n);
            }
            c.close();
            all.wait();
            for (const auto& s : seen) ASSERT_EQ(s, 2);
        }
    });
}

// ---- SEL-14 ---------------------------------------------------------------------------------------------------------

// SEL-14: 1000 cases over 500 channels, each channel in two of them.
class wide_select {
public:
    static constexpr std::size_t channels = 500;

    wide_select() {
        channels_.reserve(channels);
        for (std::size_t i = 0; i < channels; ++i) channels_.emplace_back(1);
        for (std::size_t i = 0; i < 2 * channels; ++i) {
            list_.push_back(on_recv(channels_[i % channels], [this, i](std::optional<int> v) {
                EXPECT_FALSE(taken_.has_value());
                taken_ = i;
                value_ = v;
            }));
        }
    }

    // Some channels have a value; one of them gives it.
    void some_ready(std::minstd_rand& random, int round) {
        std::array<bool, channels> ready{};
        for (auto n = 1 + random() % 3; n != 0; --n) {
            const std::size_t k = random() % channels;
            if (!ready[k]) channels_[k].send(round);
            ready[k] = true;
        }
        const std::size_t k = take(round);
        EXPECT_TRUE(ready[k]);
        for (std::size_t i = 0; i < channels; ++i)
            ASSERT_EQ(channels_[i].try_recv().has_value(), ready[i] && i != k) << "channel " << i;
    }

    // None is ready: it waits in all queues, until another sends.
    void none_ready(std::minstd_rand& random, int round) {
        const std::size_t k = random() % channels;
        dunlin::wait_group sender;
        sender.go([this, k, round] { channels_[k].send(round); });
        EXPECT_EQ(take(round), k);
        sender.wait();
        for (const auto& c : channels_) ASSERT_EQ(c.try_recv().status(), dunlin::channel_status::would_block);
    }

private:
    // The channel of the case taken.
    std::size_t take(int round) {
        taken_.reset();
        const std::size_t index = dunlin::select(list_);
        EXPECT_EQ(taken_, index);
        EXPECT_EQ(value_, round);
        return index % channels;
    }

    std::vector<dunlin::chan<int>> channels_;
    std::vector<dunlin::select_case> list_;
    std::optional<std::size_t> taken_;
    std::optional<int> value_;
};

TEST_P(GoSelectStress, WideSelect) {
    allow(120s);
    run([this] {
        wide_select wide;
        std::minstd_rand random(procs());
        for (int round = 0; round < support::rounds(10'000) / (support::under_thread ? 3 : 1); ++round) {
            round % 4 == 0 ? wide.none_ready(random, round) : wide.some_ready(random, round);
            ASSERT_FALSE(HasFailure()) << "round " << round;
        }
    });
}

// SEL-14
TEST_P(GoSelectStress, MoreThan65536CasesAreRefused) {
    run([] {
        dunlin::chan<int> c(1), other;
        std::vector<dunlin::select_case> list;
        for (int i = 0; i < 65'535; ++i) list.push_back(on_recv(i % 2 == 0 ? c : other));
        list.push_back(otherwise());
        EXPECT_EQ(dunlin::select(list), 65'535u);
        c.send(1);
        const std::size_t taken = dunlin::select(list);
        EXPECT_LT(taken, 65'535u);
        EXPECT_EQ(taken % 2, 0u);

        // Waits in a queue 32768 times.
        list.back() = on_recv(other);
        dunlin::wait_group sender;
        sender.go([other] {
            until_parked(1);
            other.send(2);
        });
        EXPECT_EQ(dunlin::select(list) % 2, 1u);
        sender.wait();

        list.push_back(otherwise());
        c.send(3);
        try {
            dunlin::select(list);
            ADD_FAILURE() << "nothing was thrown";
        } catch (const std::invalid_argument& error) {
            EXPECT_NE(std::string(error.what()).find("65537"), std::string::npos) << error.what();
        }
        EXPECT_EQ(c.recv(), 3);
    });
}

}  // namespace
