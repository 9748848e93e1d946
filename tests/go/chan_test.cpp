// Ports of Go's own tests of channels, under Go's names. The long ones are in chan_stress_test.cpp and
// chan_powser_test.cpp.
#include <algorithm>
#include <any>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "support/runtime_test.h"

using namespace std::chrono_literals;
using dunlin::channel_status;

namespace {

class GoChan : public support::each_p {};
EACH_P(GoChan);

// Until so many goroutines wait. Waiters on a channel stand in its queue then, for the next one that locks it.
void until_parked(std::size_t n) {
    support::eventually([n] { return dunlin::runtime::stats().waiting == n; });
}

// An element of so many bytes, whose bytes follow from its number.
template <std::size_t N>
struct bytes_of {
    std::array<unsigned char, N> content;
};
struct empty {};

template <class T>
struct element {
    static T make(int n) { return static_cast<T>(n); }
    static int number(const T& v) { return static_cast<int>(v); }
};
template <>
struct element<std::unique_ptr<int>> {
    static std::unique_ptr<int> make(int n) { return std::make_unique<int>(n); }
    static int number(const std::unique_ptr<int>& v) { return v ? *v : -1; }
};
template <std::size_t N>
struct element<bytes_of<N>> {
    static bytes_of<N> make(int n) {
        bytes_of<N> v;
        for (std::size_t i = 0; i < N; ++i)
            v.content[i] = static_cast<unsigned char>(static_cast<std::size_t>(n) * 31 + i);
        std::memcpy(v.content.data(), &n, sizeof n);
        return v;
    }
    // -1: the bytes are not those of one number.
    static int number(const bytes_of<N>& v) {
        int n;
        std::memcpy(&n, v.content.data(), sizeof n);
        return make(n).content == v.content ? n : -1;
    }
};
template <>
struct element<empty> {
    static empty make(int) { return {}; }
    static int number(const empty&) { return 0; }
};

// ---- CHN-01 ---------------------------------------------------------------------------------------------------------

template <class T>
struct test_chan {
    using e = element<T>;

    static void empty_receive_blocks(std::ptrdiff_t capacity) {
        dunlin::chan<T> c(capacity);
        std::atomic<int> received{0};
        dunlin::wait_group receivers;
        receivers.go([&] {
            static_cast<void>(c.recv());
            ++received;
        });
        receivers.go([&] {
            for ([[maybe_unused]] T v : c) {
                ++received;
                break;
            }
        });
        until_parked(2);
        EXPECT_EQ(received, 0);
        EXPECT_EQ(c.try_recv().status(), channel_status::would_block);
        EXPECT_EQ(dunlin::select(dunlin::on_recv(c), dunlin::otherwise()), 1u);
        c.send(e::make(0));
        c.send(e::make(0));
        receivers.wait();
        EXPECT_EQ(received, 2);
    }

    static void full_send_blocks(std::ptrdiff_t capacity) {
        dunlin::chan<T> c(capacity);
        for (int i = 0; i < capacity; ++i) c.send(e::make(i));
        std::atomic<bool> sent{false};
        dunlin::wait_group sender;
        sender.go([&] {
            c.send(e::make(static_cast<int>(capacity)));
            sent = true;
        });
        until_parked(1);
        EXPECT_FALSE(sent);
        EXPECT_EQ(c.try_send(e::make(0)), channel_status::would_block);
        EXPECT_EQ(dunlin::select(dunlin::on_send(c, e::make(0)), dunlin::otherwise()), 1u);
        for (int i = 0; i <= capacity; ++i) EXPECT_EQ(e::number(*c.recv()), i);
        sender.wait();
        EXPECT_TRUE(sent);
    }

    static void drained_after_close(std::ptrdiff_t capacity) {
        dunlin::chan<T> c(capacity);
        for (int i = 0; i < capacity; ++i) c.send(e::make(i));
        c.close();
        for (int i = 0; i < capacity; ++i) {
            std::optional<T> v = c.recv();
            ASSERT_TRUE(v.has_value());
            EXPECT_EQ(e::number(*v), i);
        }
        EXPECT_FALSE(c.recv().has_value());
        EXPECT_FALSE(c.recv().has_value());
        EXPECT_EQ(c.try_recv().status(), channel_status::closed);
    }

    static void close_unblocks(std::ptrdiff_t capacity) {
        dunlin::chan<T> c(capacity);
        dunlin::chan<bool> done;
        dunlin::go([c, done] { done.send(!c.recv().has_value()); });
        until_parked(1);
        c.close();
        EXPECT_TRUE(*done.recv());
    }

    static void first_in_first_out(std::ptrdiff_t capacity) {
        dunlin::chan<T> c(capacity);
        const auto send_100 = [c] {
            for (int i = 0; i < 100; ++i) c.send(e::make(i));
        };
        dunlin::wait_group senders;
        senders.go(send_100);
        for (int i = 0; i < 100; ++i) ASSERT_EQ(e::number(*c.recv()), i);
        senders.go(send_100);
        int expected = 0;
        for (T v : c) {
            ASSERT_EQ(e::number(v), expected);
            if (++expected == 100) break;
        }
        senders.wait();
    }

    static void what_is_sent_is_received(std::ptrdiff_t capacity) {
        constexpr int pairs = 4;
        constexpr int each = support::rounds(1000);
        dunlin::chan<T> c(capacity);
        dunlin::chan<std::map<int, int>> done;
        for (int p = 0; p < pairs; ++p) {
            dunlin::go([c] {
                for (int i = 0; i < each; ++i) c.send(e::make(i));
            });
            dunlin::go([c, done] {
                std::map<int, int> times;
                for (int i = 0; i < each; ++i) ++times[e::number(*c.recv())];
                done.send(std::move(times));
            });
        }
        std::map<int, int> times;
        for (int p = 0; p < pairs; ++p) {
            const auto some = done.recv();
            for (const auto& [number, n] : *some) times[number] += n;
        }
        EXPECT_EQ(times.size(), static_cast<std::size_t>(each));
        for (const auto& [number, n] : times) EXPECT_EQ(n, pairs) << "of number " << number;
    }

    static void length_and_capacity(std::ptrdiff_t capacity) {
        dunlin::chan<T> c(capacity);
        EXPECT_EQ(c.len(), 0u);
        EXPECT_EQ(c.cap(), static_cast<std::size_t>(capacity));
        for (int i = 0; i < capacity; ++i) c.send(e::make(i));
        EXPECT_EQ(c.len(), static_cast<std::size_t>(capacity));
        EXPECT_EQ(c.cap(), static_cast<std::size_t>(capacity));
    }

    // None may be left before the next part counts waiters.
    static void all(std::ptrdiff_t capacity) {
        for (const auto part : {empty_receive_blocks, full_send_blocks, drained_after_close, close_unblocks,
                 first_in_first_out, what_is_sent_is_received, length_and_capacity}) {
            part(capacity);
            support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });
        }
    }
};

// CHN-01, go1.24 src/runtime/chan_test.go TestChan
TEST_P(GoChan, TestChan) {
    allow(120s);
    run([] {
        std::vector<std::ptrdiff_t> capacities = {63, 64, 65, 199};
        if (support::sanitized) capacities = {64, 199};
        for (std::ptrdiff_t c = 0; c <= 32; c += support::sanitized && c > 3 ? 7 : 1) capacities.push_back(c);
        for (const std::ptrdiff_t c : capacities) {
            test_chan<int>::all(c);
            test_chan<std::unique_ptr<int>>::all(c);
            test_chan<bytes_of<4096>>::all(c);
            ASSERT_FALSE(HasFailure()) << "capacity " << c;
        }
    });
}

// ---- CHN-03 ---------------------------------------------------------------------------------------------------------

// CHN-03, go1.24 test/chan/fifo.go AsynchFifo
TEST_P(GoChan, AsynchFifo) {
    run([] {
        constexpr int n = 10;
        dunlin::chan<int> c(n);
        for (int i = 0; i < n; ++i) c.send(i);
        for (int i = 0; i < n; ++i) EXPECT_EQ(c.recv(), i);
    });
}

// CHN-03, go1.24 test/chan/fifo.go SynchFifo: goroutine i gets value i, because its predecessor lets it go only when it
// has its own.
TEST_P(GoChan, SynchFifo) {
    run([] {
        constexpr int n = 10;
        dunlin::chan<int> values;
        dunlin::chan<int> first;
        dunlin::chan<int> in = first;
        for (int i = 0; i < n; ++i) {
            dunlin::chan<int> out;
            dunlin::go([=] {
                static_cast<void>(in.recv());
                EXPECT_EQ(values.recv(), i);
                out.send(1);
            });
            in = out;
        }
        first.send(0);
        for (int i = 0; i < n; ++i) values.send(i);
        EXPECT_EQ(in.recv(), 1);
    });
}

// ---- CHN-04 ---------------------------------------------------------------------------------------------------------

template <class T>
void nonblock(std::ptrdiff_t capacity) {
    using e = element<T>;
    dunlin::chan<T> c(capacity);
    EXPECT_EQ(c.try_recv().status(), channel_status::would_block);
    for (int i = 0; i < capacity; ++i) EXPECT_EQ(c.try_send(e::make(i)), channel_status::ok);
    EXPECT_EQ(c.try_send(e::make(0)), channel_status::would_block);
    for (int i = 0; i < capacity; ++i) EXPECT_EQ(e::number(c.try_recv().value()), e::number(e::make(i)));
    EXPECT_EQ(c.try_recv().status(), channel_status::would_block);

    // There is a waiter: the first try goes through.
    dunlin::wait_group peer;
    peer.go([&] { EXPECT_EQ(e::number(*c.recv()), e::number(e::make(77))); });
    until_parked(1);
    EXPECT_EQ(c.try_send(e::make(77)), channel_status::ok);
    peer.wait();
    for (int i = 0; i < capacity; ++i) c.send(e::make(i));
    peer.go([&] { c.send(e::make(78)); });
    until_parked(1);
    for (int i = 0; i < capacity; ++i) EXPECT_EQ(e::number(c.try_recv().value()), e::number(e::make(i)));
    EXPECT_EQ(e::number(c.try_recv().value()), e::number(e::make(78)));
    peer.wait();
    EXPECT_EQ(c.try_recv().status(), channel_status::would_block);
}

// CHN-04, go1.24 test/chan/nonblock.go
TEST_P(GoChan, nonblock) {
    run([] {
        for (const std::ptrdiff_t capacity : {0, 1, 10}) {
            for (int round = 0; round < support::rounds(100); ++round) {
                nonblock<empty>(capacity);
                nonblock<unsigned char>(capacity);
                nonblock<std::int64_t>(capacity);
                nonblock<bytes_of<64>>(capacity);
                nonblock<bytes_of<4096>>(capacity);
            }
        }
    });
}

// ---- CHN-05 ---------------------------------------------------------------------------------------------------------

struct receive_form {
    const char* name;
    std::optional<int> (*receive)(const dunlin::chan<int>&);
};

std::optional<int> receive_by_select(const dunlin::chan<int>& c, bool with_otherwise) {
    std::optional<int> result;
    const auto take = [&](std::optional<int> v) { result = v; };
    if (with_otherwise) {
        EXPECT_EQ(dunlin::select(dunlin::on_recv(c, take), dunlin::otherwise()), 0u);
    } else {
        EXPECT_EQ(dunlin::select(dunlin::on_recv(c, take)), 0u);
    }
    return result;
}

const receive_form receive_forms[] = {
    {"recv", [](const dunlin::chan<int>& c) { return c.recv(); }},
    {"view", [](const dunlin::chan<int>& c) { return dunlin::receiver<int>(c).recv(); }},
    {"range", [](const dunlin::chan<int>& c) -> std::optional<int> {
         for (int v : c) return v;
         return std::nullopt;
     }},
    {"recv_for", [](const dunlin::chan<int>& c) {
         dunlin::received<int> r = c.recv_for(1h);
         EXPECT_EQ(r.status(), r ? channel_status::ok : channel_status::closed);
         return std::optional<int>(r);
     }},
    {"recv_until", [](const dunlin::chan<int>& c) {
         dunlin::received<int> r = c.recv_until(std::chrono::system_clock::now() + 1h);
         EXPECT_EQ(r.status(), r ? channel_status::ok : channel_status::closed);
         return std::optional<int>(r);
     }},
    {"try_recv", [](const dunlin::chan<int>& c) {
         dunlin::received<int> r = c.try_recv();
         EXPECT_EQ(r.status(), r ? channel_status::ok : channel_status::closed);
         return std::optional<int>(r);
     }},
    {"try_recv(v)", [](const dunlin::chan<int>& c) {
         int v = -5;
         const channel_status status = c.try_recv(v);
         if (status == channel_status::ok) return std::optional<int>(v);
         EXPECT_EQ(status, channel_status::closed);
         EXPECT_EQ(v, -5);
         return std::optional<int>();
     }},
    {"select", [](const dunlin::chan<int>& c) { return receive_by_select(c, false); }},
    {"select with otherwise", [](const dunlin::chan<int>& c) { return receive_by_select(c, true); }},
};

struct send_form {
    const char* name;
    void (*send)(const dunlin::chan<int>&);
};

const send_form send_forms[] = {
    {"send", [](const dunlin::chan<int>& c) { c.send(1); }},
    {"view", [](const dunlin::chan<int>& c) { dunlin::sender<int>(c).send(1); }},
    {"send_for", [](const dunlin::chan<int>& c) { c.send_for(1, 1h); }},
    {"send_until", [](const dunlin::chan<int>& c) { c.send_until(1, dunlin::clock::now() + 1h); }},
    {"send_until, past", [](const dunlin::chan<int>& c) { c.send_until(1, dunlin::clock::now() - 1h); }},
    {"select", [](const dunlin::chan<int>& c) { dunlin::select(dunlin::on_send(c, 1)); }},
    {"select with otherwise",
        [](const dunlin::chan<int>& c) { dunlin::select(dunlin::on_send(c, 1), dunlin::otherwise()); }},
};

template <class F>
void expect_channel_closed(const char* text, F f) {
    try {
        f();
        ADD_FAILURE() << "nothing was thrown, expected: " << text;
    } catch (const dunlin::channel_closed& error) {
        EXPECT_STREQ(error.what(), text);
        EXPECT_EQ(error.code(), dunlin::errc::channel_closed);
    }
}

// CHN-05, go1.24 test/closedchan.go
TEST_P(GoChan, closedchan) {
    run([] {
        for (const int capacity : {0, 1, 10}) {
            for (const receive_form& form : receive_forms) {
                dunlin::chan<int> c(capacity);
                for (int i = 0; i < capacity; ++i) c.send(i);
                EXPECT_FALSE(c.closed());
                c.close();
                EXPECT_TRUE(c.closed());
                for (int i = 0; i < capacity; ++i) EXPECT_EQ(form.receive(c), i);
                for (int i = 0; i < 3; ++i) EXPECT_EQ(form.receive(c), std::nullopt);
                ASSERT_FALSE(HasFailure()) << form.name << ", capacity " << capacity;
            }
            for (const send_form& form : send_forms) {
                dunlin::chan<int> c(capacity);
                c.close();
                for (int i = 0; i < 2; ++i) expect_channel_closed("send on closed channel", [&] { form.send(c); });
                expect_channel_closed("close of closed channel", [&] { c.close(); });
                EXPECT_EQ(c.try_send(1), channel_status::closed);
                EXPECT_EQ(c.recv(), std::nullopt);
                ASSERT_FALSE(HasFailure()) << form.name << ", capacity " << capacity;
            }
        }
        expect_channel_closed("close of nil channel", [] { dunlin::chan<int>::nil().close(); });
        expect_channel_closed("close of nil channel", [] { dunlin::sender<int>().close(); });
    });
}

// ---- CHN-06 ---------------------------------------------------------------------------------------------------------

// CHN-06, go1.24 src/runtime/chan.go closechan
TEST_P(GoChan, CloseWakesEveryReceiver) {
    run([] {
        for (int round = 0; round < support::rounds(100); ++round) {
            constexpr int n = 100;
            dunlin::chan<std::unique_ptr<int>> c(round % 2);
            std::atomic<int> woken{0};
            dunlin::wait_group receivers;
            for (int i = 0; i < n; ++i) {
                receivers.go([&, i] {
                    if (i % 3 == 0) {
                        EXPECT_EQ(c.recv_for(1h).status(), channel_status::closed);
                    } else if (i % 3 == 1) {
                        dunlin::select(dunlin::on_recv(c,
                                           [](std::optional<std::unique_ptr<int>> v) { EXPECT_FALSE(v.has_value()); }),
                            dunlin::on_recv(dunlin::chan<int>::nil()), dunlin::on_timeout(1h));
                    } else {
                        EXPECT_FALSE(c.recv().has_value());
                    }
                    ++woken;
                });
            }
            until_parked(n);
            EXPECT_EQ(woken, 0);
            c.close();
            receivers.wait();
            EXPECT_EQ(woken, n);
            support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });
        }
    });
}

// CHN-06, go1.24 src/runtime/chan.go closechan
TEST_P(GoChan, CloseWakesEverySenderAndEachKeepsItsValue) {
    run([] {
        for (int round = 0; round < support::rounds(100); ++round) {
            constexpr int n = 100;
            dunlin::chan<std::unique_ptr<int>> c(round % 2);
            if (round % 2 == 1) c.send(std::make_unique<int>(-1));
            std::atomic<int> woken{0};
            dunlin::wait_group senders;
            for (int i = 0; i < n; ++i) {
                senders.go([&, i] {
                    auto value = std::make_unique<int>(i);
                    const int* const address = value.get();
                    expect_channel_closed("send on closed channel", [&] {
                        if (i % 3 == 0) {
                            c.send_for(std::move(value), 1h);
                        } else if (i % 3 == 1) {
                            dunlin::select(dunlin::on_send(c, std::move(value), [] { ADD_FAILURE() << "sent"; }),
                                dunlin::on_timeout(1h));
                        } else {
                            c.send(std::move(value));
                        }
                    });
                    EXPECT_EQ(value.get(), address);
                    EXPECT_EQ(*value, i);
                    ++woken;
                });
            }
            until_parked(n);
            EXPECT_EQ(woken, 0);
            c.close();
            senders.wait();
            EXPECT_EQ(woken, n);
            // What was in the buffer stays; of the waiting senders nothing came.
            if (round % 2 == 1) {
                EXPECT_EQ(**c.recv(), -1);
            }
            EXPECT_FALSE(c.recv().has_value());
            support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });
        }
    });
}

// ---- CHN-08, CHN-10 -------------------------------------------------------------------------------------------------

// CHN-08, go1.24 src/runtime/chan_test.go TestPseudoRandomSend
TEST_P(GoChan, TestPseudoRandomSend) {
    run([] {
        constexpr int n = 1000;
        for (const int capacity : {0, 100}) {
            dunlin::chan<int> c(capacity);
            std::vector<int> values(n);
            dunlin::wait_group receiver;
            receiver.go([&] {
                for (int& v : values) {
                    dunlin::yield();
                    v = *c.recv();
                }
            });
            for (int i = 0; i < n; ++i) dunlin::select(dunlin::on_send(c, 1), dunlin::on_send(c, 0));
            receiver.wait();
            const auto ones = std::count(values.begin(), values.end(), 1);
            EXPECT_GT(ones, n / 10) << "capacity " << capacity;
            EXPECT_LT(ones, n - n / 10) << "capacity " << capacity;
        }
    });
}

// CHN-10, go1.24 src/runtime/chan_test.go TestChanSendInterface
TEST_P(GoChan, TestChanSendInterface) {
    run([] {
        dunlin::chan<std::any> c(1);
        const std::any pointer = std::make_shared<int>(1);
        c.send(pointer);
        EXPECT_EQ(dunlin::select(dunlin::on_send(c, pointer), dunlin::otherwise()), 1u);
        EXPECT_EQ(
            dunlin::select(dunlin::on_send(c, pointer), dunlin::on_send(c, std::any(2)), dunlin::otherwise()), 2u);
        EXPECT_EQ(*std::any_cast<std::shared_ptr<int>>(*c.recv()), 1);

        dunlin::chan<std::variant<int, std::string, std::unique_ptr<int>>> odd(3);
        odd.send(1);
        odd.send(std::string("a text that does not fit into the string itself"));
        odd.send(std::make_unique<int>(3));
        odd.close();
        EXPECT_EQ(std::get<int>(*odd.recv()), 1);
        EXPECT_EQ(std::get<std::string>(*odd.recv()).size(), 47u);
        EXPECT_EQ(*std::get<std::unique_ptr<int>>(*odd.recv()), 3);
        EXPECT_FALSE(odd.recv().has_value());

        dunlin::chan<std::function<int()>> functions;
        dunlin::go([functions] { functions.send([n = 5] { return n + 1; }); });
        EXPECT_EQ((*functions.recv())(), 6);
    });
}

// CHN-10, go1.24 test/chan/zerosize.go
TEST_P(GoChan, zerosize) {
    run([] {
        for (const std::ptrdiff_t capacity : {0, 1, 100}) {
            dunlin::chan<empty> c(capacity);
            dunlin::go([c] {
                for (int i = 0; i < 1000; ++i) c.send(empty());
                c.close();
            });
            int n = 0;
            for ([[maybe_unused]] empty e : c) ++n;
            EXPECT_EQ(n, 1000);
        }
    });
}

template <class T>
void expect_size_out_of_range(std::ptrdiff_t capacity) {
    try {
        dunlin::chan<T> c(capacity);
        ADD_FAILURE() << "a channel of " << capacity;
    } catch (const std::length_error& error) {
        EXPECT_STREQ(error.what(), "makechan: size out of range");
    }
}

// CHN-10, go1.24 test/chancap.go
TEST_P(GoChan, chancap) {
    run([] {
        constexpr std::ptrdiff_t most = std::numeric_limits<std::ptrdiff_t>::max();
        for (const std::ptrdiff_t capacity : {std::ptrdiff_t{-1}, -most - 1, most, most / 8 + 1}) {
            expect_size_out_of_range<std::int64_t>(capacity);
            expect_size_out_of_range<bytes_of<4096>>(capacity);
        }
        expect_size_out_of_range<empty>(-1);
        expect_size_out_of_range<empty>(most);
        EXPECT_EQ(dunlin::chan<int>(10).cap(), 10u);
        EXPECT_EQ(dunlin::chan<int>(0).cap(), 0u);
        EXPECT_EQ(dunlin::chan<int>().cap(), 0u);
    });
}

}  // namespace
