// Ports of Go's own tests of channels that run long or count what is left, under Go's names.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "park/parking_lot.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;
using dunlin::channel_status;

// Objects on the heap, for CHN-13.
namespace {
std::atomic<std::int64_t> live_objects{0};

void* allocate(std::size_t size, std::size_t align) {
    // aligned_alloc() wants a multiple of the alignment.
    void* p = std::aligned_alloc(align, (std::max<std::size_t>(size, 1) + align - 1) / align * align);
    if (p == nullptr) throw std::bad_alloc();
    live_objects.fetch_add(1, std::memory_order_relaxed);
    return p;
}

void free_object(void* p) noexcept {
    if (p != nullptr) live_objects.fetch_sub(1, std::memory_order_relaxed);
    std::free(p);
}
}  // namespace

void* operator new(std::size_t size) { return allocate(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t align) { return allocate(size, static_cast<std::size_t>(align)); }
// A sanitizer has one of its own, which GoogleTest calls from 1.16 on.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    try {
        return operator new(size);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}
void operator delete(void* p) noexcept { free_object(p); }
void operator delete(void* p, std::size_t) noexcept { free_object(p); }
void operator delete(void* p, std::align_val_t) noexcept { free_object(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { free_object(p); }

namespace {

class GoChanStress : public support::each_p {};
EACH_P(GoChanStress);

// Nodes of waiters for a lock or a condition; they are on stacks, where counting objects does not see them.
std::size_t waiting_in_the_lot() {
    std::size_t count = 0;
    for (const dunlin::park::lot_bucket& b : dunlin::park::the_lot) count += b.waiting.load();
    return count;
}

void until_parked(std::size_t n) {
    support::eventually([n] { return dunlin::runtime::stats().waiting == n; });
}

// ---- CHN-07, CHN-09 -------------------------------------------------------------------------------------------------

// CHN-07, go1.24 src/runtime/chan_test.go TestMultiConsumer
TEST_P(GoChanStress, TestMultiConsumer) {
    run([] {
        constexpr std::size_t workers = 23;
        const int items = support::rounds(271'828);
        constexpr std::array numbers = {2, 3, 7, 11, 13, 17, 19, 23, 27, 31};
        dunlin::chan<int> questions(workers * 3), results(workers * 3);
        dunlin::wait_group busy;
        for (std::size_t w = 0; w < workers; ++w) {
            busy.go([=] {
                for (int v : questions) {
                    if (numbers[w % numbers.size()] == v) dunlin::yield();
                    results.send(v);
                }
            });
        }
        std::int64_t expected = 0;  // of the feeder, until it closes the results
        dunlin::go([&, busy, questions, results] {
            for (int i = 0; i < items; ++i) {
                const int v = numbers[static_cast<std::size_t>(i) % numbers.size()];
                expected += v;
                questions.send(v);
            }
            questions.close();
            busy.wait();
            results.close();
        });
        int count = 0;
        std::int64_t sum = 0;
        for (int v : results) {
            ++count;
            sum += v;
        }
        EXPECT_EQ(count, items);
        EXPECT_EQ(sum, expected);
    });
}

// Of all threads: other programs on the machine do not count.
std::chrono::nanoseconds cpu_time() {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

// n goroutines stand in the queue of a common channel, and a hundred of them are woken again and again by their own:
// what that costs.
std::chrono::nanoseconds wake_a_hundred_of(std::size_t n) {
    constexpr std::size_t hundred = 100;
    constexpr int messages = support::sanitized ? 10 : 100;
    const std::size_t apart = n / hundred;
    dunlin::chan<bool> common;
    std::vector<dunlin::chan<bool>> own(n);
    dunlin::wait_group members;
    for (std::size_t i = 0; i < n; ++i) {
        members.go([common, mine = own[i], times = i % apart == 0 ? messages : 1] {
            for (int k = 0; k < times; ++k) dunlin::select(dunlin::on_recv(common), dunlin::on_recv(mine));
        });
    }
    until_parked(n);
    const auto begin = cpu_time();
    for (int k = 0; k < messages; ++k) {
        for (std::size_t i = 0; i < n; i += apart) own[i].send(true);
    }
    const auto took = cpu_time() - begin;
    for (std::size_t i = 0; i < n; ++i) {
        if (i % apart != 0) own[i].send(true);
    }
    members.wait();
    return took;
}

// CHN-09, go1.24 test/chanlinear.go: a waiter in a queue is found without a search. Go wakes all, and twice as many
// must take less than three times as long; but then another cache may be needed, which costs 3.7 times by itself. So
// the same hundred here, among eight times as many: a search takes eight times as long. With several processors one run
// may cost three times the other, as many or as few threads meet at the lock, so the sums of several count.
TEST_P(GoChanStress, chanlinear) {
    allow(120s);
    run([] {
        const auto n = static_cast<std::size_t>(support::rounds(2000));
        std::chrono::nanoseconds few{0}, many{0};
        for (int attempt = 0; attempt < 20; ++attempt) {
            few += wake_a_hundred_of(n);
            many += wake_a_hundred_of(8 * n);
            if (attempt >= (support::sanitized ? 0 : 4) && many < 3 * few) return;
        }
        ADD_FAILURE() << "of " << n << " goroutines: " << few.count() << " ns, of eight times as many: " << many.count()
                      << " ns";
    });
}

// ---- CHN-11 ---------------------------------------------------------------------------------------------------------

void first_primes(std::size_t count, std::ptrdiff_t capacity) {
    dunlin::chan<int> numbers(capacity);
    dunlin::go([numbers] {
        for (int i = 2;; ++i) numbers.send(i);
    });
    std::vector<int> found;
    while (found.size() < count) {
        const int prime = *numbers.recv();
        // By trial, since a sieve should not be checked with itself.
        ASSERT_TRUE(std::none_of(found.begin(), found.end(), [prime](int p) { return prime % p == 0; })) << prime;
        found.push_back(prime);
        dunlin::chan<int> left(capacity);
        dunlin::go([=] {
            for (;;) {
                const int i = *numbers.recv();
                if (i % prime != 0) left.send(i);
            }
        });
        numbers = left;
    }
    if (count == 1000) {
        EXPECT_EQ(found.back(), 7919);
    }
    if (count == 100) {
        EXPECT_EQ(found.back(), 541);
    }
}

// CHN-11, go1.24 test/chan/sieve1.go
TEST_P(GoChanStress, sieve1) {
    run([] { first_primes(static_cast<std::size_t>(support::rounds(1000)), 0); });
}

// CHN-11, go1.24 test/chan/sieve2.go: there the channels have buffers.
TEST_P(GoChanStress, sieve2) {
    run([] { first_primes(static_cast<std::size_t>(support::rounds(1000)), 16); });
}

// ---- CHN-13 ---------------------------------------------------------------------------------------------------------

// CHN-13, go1.24 test/chan/select2.go
TEST_P(GoChanStress, select2) {
    run([] {
        dunlin::chan<int> c, never;
        std::atomic<std::int64_t> received{0};
        const auto rounds = [&](int n) {
            dunlin::wait_group both;
            both.go([&] {
                for (int i = 0; i < n; ++i) {
                    dunlin::select(
                        dunlin::on_recv(c, [&](std::optional<int> v) { received += *v; }), dunlin::on_recv(never));
                }
            });
            both.go([&] {
                for (int i = 0; i < n; ++i) dunlin::select(dunlin::on_recv(never), dunlin::on_send(c, 1));
            });
            both.wait();
            support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });
        };
        rounds(1000);
        const std::int64_t before = live_objects;
        rounds(support::rounds(100'000));
        EXPECT_EQ(received, 1000 + support::rounds(100'000));
        EXPECT_LT(live_objects - before, 20);
    });
}

// CHN-13, go1.24 test/fixedbugs/issue9110.go: a select that ends by a close leaves nodes for the waits on a condition
// that come after it.
TEST_P(GoChanStress, issue9110) {
    run([] {
        std::int64_t before = 0;
        for (int i = 0; i < 20; ++i) {
            if (i == 10) before = live_objects;
            dunlin::chan<int> c;
            for (int k = 0; k < 10; ++k)
                dunlin::go([c] { dunlin::select(dunlin::on_recv(c), dunlin::on_recv(c), dunlin::on_recv(c)); });
            until_parked(10);
            c.close();
            support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });

            dunlin::mutex m;
            dunlin::condition_variable changed;
            dunlin::wait_group woken;
            for (int k = 0; k < 10; ++k) {
                woken.go([&] {
                    std::unique_lock lock(m);
                    changed.wait(lock);
                });
            }
            until_parked(10);
            EXPECT_EQ(waiting_in_the_lot(), 10u);
            // One by one, and the rest together.
            for (int k = 0; k < 5; ++k) changed.notify_one();
            {
                const std::scoped_lock lock(m);
                changed.notify_all();
            }
            woken.wait();
            EXPECT_EQ(waiting_in_the_lot(), 0u);
        }
        EXPECT_LT(live_objects - before, 20);
    });
}

// ---- CHN-14 ---------------------------------------------------------------------------------------------------------

struct guarded {
    std::uint64_t front, value, back;

    explicit guarded(std::uint64_t v = 0) noexcept : front(~v), value(v), back(v * 0x9E3779B97F4A7C15u) {}
    bool intact() const noexcept { return front == ~value && back == value * 0x9E3779B97F4A7C15u; }
};

[[gnu::noinline]] std::uint64_t use_stack(int depth, std::uint64_t seed) {
    volatile std::uint64_t frame[32];
    for (std::size_t i = 0; i < 32; ++i) frame[i] = seed + i;
    const std::uint64_t below = depth == 0 ? 0 : use_stack(depth - 1, seed + 1);
    return below + frame[seed % 32];
}

// Receives with words around the frame that must stay as they are.
[[gnu::noinline]] std::optional<guarded> receive_between_canaries(const dunlin::chan<guarded>& c, std::uint64_t seed) {
    volatile std::uint64_t below[8];
    std::optional<guarded> v;
    volatile std::uint64_t above[8];
    for (std::size_t i = 0; i < 8; ++i) {
        below[i] = seed ^ i;
        above[i] = seed ^ i;
    }
    v = c.recv();
    for (std::size_t i = 0; i < 8; ++i) {
        if (below[i] != (seed ^ i) || above[i] != (seed ^ i))
            ADD_FAILURE() << "a word beside the received value was overwritten";
    }
    return v;
}

// CHN-14, go1.24 src/runtime/chan_test.go TestShrinkStackDuringBlockedSend: here the receiver is the one that waits.
TEST_P(GoChanStress, TestShrinkStackDuringBlockedSend) {
    run([] {
        const auto n = static_cast<std::uint64_t>(support::rounds(10'000));
        for (const std::ptrdiff_t capacity : {0, 3}) {
            dunlin::chan<guarded> c(capacity);
            dunlin::wait_group receiver;
            receiver.go([&] {
                for (std::uint64_t i = 0; i < n; ++i) {
                    const std::optional<guarded> v = receive_between_canaries(c, i * 77);
                    ASSERT_TRUE(v.has_value());
                    ASSERT_TRUE(v->intact());
                    ASSERT_EQ(v->value, i);
                    static_cast<void>(use_stack(static_cast<int>(i % 60), i));
                }
            });
            for (std::uint64_t i = 0; i < n; ++i) {
                // Mostly the receiver is parked already; now and then the sender comes first.
                if (i % 8 != 0) dunlin::yield();
                c.send(guarded(i));
                static_cast<void>(use_stack(static_cast<int>(i % 40), i));
            }
            receiver.wait();
        }
    });
}

// CHN-14, go1.24 src/runtime/chan_test.go TestNoShrinkStackWhileParking: many stacks, dumps (which stop the world)
// while they park.
TEST_P(GoChanStress, TestNoShrinkStackWhileParking) {
    run([this] {
        constexpr std::size_t pairs = 8;
        const auto n = static_cast<std::uint64_t>(support::rounds(2000));
        std::atomic<std::size_t> left{2 * pairs};
        dunlin::wait_group all;
        for (std::size_t p = 0; p < pairs; ++p) {
            dunlin::chan<guarded> there, back;
            all.go([=, &left] {
                for (std::uint64_t i = 0; i < n; ++i) {
                    there.send(guarded(i));
                    const std::optional<guarded> v = receive_between_canaries(back, i);
                    if (!v || !v->intact() || v->value != i + static_cast<std::uint64_t>(p))
                        ADD_FAILURE() << "wrong value";
                    static_cast<void>(use_stack(static_cast<int>(i % 50), i));
                }
                --left;
            });
            all.go([=, &left] {
                for (std::uint64_t i = 0; i < n; ++i) {
                    static_cast<void>(use_stack(static_cast<int>(i % 30), i));
                    const std::optional<guarded> v = receive_between_canaries(there, i);
                    back.send(guarded(v->value + static_cast<std::uint64_t>(p)));
                }
                --left;
            });
        }
        while (left != 0) {
            dunlin::runtime::set_max_procs(procs() % 3 + 1);
            dunlin::yield();
            dunlin::runtime::set_max_procs(procs());
            dunlin::yield();
        }
        all.wait();
    });
}

// ---- CHN-15 ---------------------------------------------------------------------------------------------------------

// Owns something, and counts.
class counted {
public:
    explicit counted(int n) noexcept : number_(n) {
        ++constructed;
        ++sources;
    }
    counted(counted&& other) noexcept : number_(std::exchange(other.number_, 0)) { ++constructed; }
    counted& operator=(counted&& other) noexcept {
        number_ = std::exchange(other.number_, 0);
        return *this;
    }
    ~counted() {
        ++destroyed;
        if (number_ != 0) ++sinks;
        number_ = -1;
    }
    int number() const noexcept { return number_; }

    static inline std::atomic<std::int64_t> constructed{0}, destroyed{0};
    static inline std::atomic<std::int64_t> sources{0}, sinks{0};  // values made, and values that ended, wherever

private:
    int number_;  // 0: moved from
};

void random_operation(const std::vector<dunlin::chan<counted>>& channels, std::minstd_rand& random) {
    const auto any = [&]() -> const dunlin::chan<counted>& { return channels[random() % channels.size()]; };
    counted value(1 + static_cast<int>(random() % 1000)), other(2000);
    const int number = value.number();
    bool sent = false;
    const auto check_other = [&] {
        EXPECT_EQ(other.number(), 2000) << "a send that was not chosen has moved its value";
    };
    try {
        switch (random() % 9) {
        case 0:
            any().send(std::move(value));
            sent = true;
            break;
        case 1: sent = any().try_send(std::move(value)) == channel_status::ok; break;
        case 2: sent = any().send_for(std::move(value), std::chrono::microseconds(random() % 50)); break;
        case 3: static_cast<void>(any().recv()); break;
        case 4: static_cast<void>(any().try_recv()); break;
        case 5: static_cast<void>(any().recv_for(std::chrono::microseconds(random() % 50))); break;
        case 6: sent = dunlin::select(dunlin::on_send(any(), std::move(value)), dunlin::on_recv(any())) == 0; break;
        case 7: {
            const std::size_t taken = dunlin::select(dunlin::on_send(any(), std::move(value)),
                dunlin::on_recv(any(), [](std::optional<counted>) {}), dunlin::on_send(any(), std::move(other)),
                dunlin::on_timeout(std::chrono::microseconds(random() % 50)));
            sent = taken == 0;
            if (taken != 2) check_other();
            break;
        }
        case 8:
            if (random() % 40 == 0) {
                any().close();
            } else {
                sent = dunlin::select(
                           dunlin::on_recv(any()), dunlin::on_send(any(), std::move(value)), dunlin::otherwise()) == 1;
            }
            break;
        }
    } catch (const dunlin::channel_closed&) {}
    EXPECT_EQ(value.number(), sent ? 0 : number);
}

// CHN-15. No equivalent in Go: elements have destructors.
TEST_P(GoChanStress, EveryElementIsDestroyedOnce) {
    allow(120s);
    run([] {
        const int rounds = support::rounds(200);
        for (int round = 0; round < rounds; ++round) {
            std::vector<dunlin::chan<counted>> channels;
            for (const std::ptrdiff_t capacity : {0, 1, 4}) channels.emplace_back(capacity);
            dunlin::wait_group players;
            std::atomic<int> left{500};
            for (unsigned p = 0; p < 6; ++p) {
                players.go([&, seed = static_cast<unsigned>(round) * 8 + p + 1] {
                    std::minstd_rand random(seed);
                    while (left-- > 0) random_operation(channels, random);
                });
            }
            // They may all come to wait for each other.
            const auto limit = dunlin::clock::now() + 20ms;
            support::eventually([&] { return left <= 0 || dunlin::clock::now() > limit; });
            for (const auto& c : channels) {
                try {
                    c.close();
                } catch (const dunlin::channel_closed&) {}
            }
            players.wait();
        }
    });
    EXPECT_EQ(counted::constructed, counted::destroyed);
    EXPECT_EQ(counted::sources, counted::sinks);
}

// No equivalent in Go: a channel ends with its last handle, here while its user's thread is still on its way out of it.
TEST_P(GoChanStress, AChannelMayEndAsSoonAsItsLastValueIsThere) {
    run([] {
        for (int i = 0; i < support::rounds(20'000) / (support::under_thread ? 4 : 1); ++i) {
            const std::ptrdiff_t capacity = i % 2;
            dunlin::chan<int> asked, done(capacity);
            dunlin::go([&] { done.send(asked.recv().value()); });
            asked.send(i);
            // Not parked: a woken goroutine knows that the other is through.
            std::optional<int> got;
            while (!(got = done.try_recv())) dunlin::yield();
            ASSERT_EQ(got, i);
        }
    });
}

// The same for a goroutine that has seen that it is closed, and for a select that sends.
TEST_P(GoChanStress, AChannelMayEndAsSoonAsItIsSeenClosed) {
    run([] {
        for (int i = 0; i < support::rounds(20'000) / (support::under_thread ? 4 : 1); ++i) {
            dunlin::chan<int> asked, first(1), second;
            dunlin::go([&] {
                asked.recv();
                dunlin::select(dunlin::on_send(first, 1), dunlin::on_recv(second));
            });
            dunlin::chan<int> gone;
            dunlin::go([&] { gone.close(); });
            asked.send(i);
            while (!first.try_recv()) dunlin::yield();
            while (!gone.closed()) dunlin::yield();
        }
    });
}

}  // namespace
