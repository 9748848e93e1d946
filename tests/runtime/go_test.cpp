// go(): what is called, with what, from where, and what is refused.
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

std::atomic<int> called;

void free_function() { called.fetch_add(1); }
void free_function_with(int a, const std::string& b) { called.fetch_add(a + static_cast<int>(b.size())); }

struct counter {
    int value = 0;
    void add(int n) { value += n; }
    void increment() { ++value; }
};

struct throws_when_copied {
    throws_when_copied() = default;
    throws_when_copied(const throws_when_copied&) { throw std::runtime_error("copied"); }
    throws_when_copied(throws_when_copied&&) { throw std::runtime_error("moved"); }
    void operator()() const { called.fetch_add(1000); }
};

// Runs body, waits for what it started through wg, and checks that nothing is left.
class Go : public support::each_p {};
EACH_P(Go);

TEST_P(Go, CallsFreeFunctionsWithAndWithoutArguments) {
    called = 0;
    run([] {
        dunlin::go(free_function);
        dunlin::go(&free_function);
        dunlin::go(free_function_with, 3, "four");
        support::eventually([] { return called.load() == 9; });
    });
}

TEST_P(Go, CallsMemberFunctions) {
    run([] {
        counter c;
        auto shared = std::make_shared<counter>();
        dunlin::wait_group wg;
        dunlin::spawn(&counter::add, &c, 5).get();
        dunlin::spawn(&counter::increment, std::ref(c)).get();
        dunlin::spawn(&counter::add, shared, 7).get();
        wg.go(&counter::add, shared, 1);
        wg.wait();
        EXPECT_EQ(c.value, 6);
        EXPECT_EQ(shared->value, 8);
        EXPECT_EQ(dunlin::spawn(&counter::value, std::ref(c)).get(), 6);
    });
}

TEST_P(Go, MovesACallableThatCannotBeCopied) {
    run([] {
        dunlin::wait_group wg;
        wg.add(2);
        int seen = 0;
        auto value = std::make_unique<int>(11);
        dunlin::go([v = std::move(value), &seen, wg]() mutable {
            seen = *v;
            wg.done();
        });
        EXPECT_FALSE(value);
        auto argument = std::make_unique<int>(22);
        dunlin::go([wg](std::unique_ptr<int> v) mutable {
            EXPECT_EQ(*v, 22);
            wg.done();
        }, std::move(argument));
        wg.wait();
        EXPECT_EQ(seen, 11);
    });
}

TEST_P(Go, DecayCopiesItsArguments) {
    run([] {
        char text[] = "before";
        int number = 1;
        dunlin::task<std::string> t = dunlin::spawn([](const char* s, int n, int& r) {
            r += 10;
            return std::string(s) + std::to_string(n);
        }, text, number, std::ref(number));
        EXPECT_EQ(t.get(), "before1");
        EXPECT_EQ(number, 11);
        static_assert(
            std::is_same_v<decltype(dunlin::spawn([](std::string s) { return s; }, "x")), dunlin::task<std::string>>);
        // The copy was made at the call: changing the original changes nothing.
        std::string original = "original";
        auto copy = dunlin::spawn([](const std::string& s) { return s; }, original);
        original = "changed";
        EXPECT_EQ(copy.get(), "original");
    });
}

TEST_P(Go, ThrowsWhatCopyingTheCallableThrowsAndStartsNothing) {
    run([] {
        called = 0;
        const throws_when_copied bad;
        const auto before = dunlin::runtime::num_goroutines();
        dunlin::wait_group wg;
        dunlin::task_group group;
        for (int i = 0; i < support::rounds(10'000); ++i) {
            EXPECT_THROW(dunlin::go(bad), std::runtime_error);
            EXPECT_THROW((void)dunlin::spawn(bad), std::runtime_error);
            EXPECT_THROW(dunlin::go([](const throws_when_copied&) { called.fetch_add(1); }, bad), std::runtime_error);
            EXPECT_THROW(wg.go(bad), std::runtime_error);
            EXPECT_THROW(group.go(bad), std::runtime_error);
            EXPECT_THROW(
                dunlin::go({.name = "x", .stack_size = 64 << 10, .labels = {{"a", "b"}}}, bad), std::runtime_error);
        }
        wg.wait();
        group.wait();
        EXPECT_EQ(dunlin::runtime::num_goroutines(), before);
        EXPECT_EQ(called.load(), 0);
    });
}

template <std::size_t N>
void call_with_bytes() {
    std::array<unsigned char, N> bytes;
    for (std::size_t i = 0; i < N; ++i) bytes[i] = static_cast<unsigned char>(i * 7 + 1);
    dunlin::task<bool> t = dunlin::spawn([bytes, marker = std::make_shared<int>(3)] {
        for (std::size_t i = 0; i < N; ++i) {
            if (bytes[i] != static_cast<unsigned char>(i * 7 + 1)) return false;
        }
        return *marker == 3;
    });
    EXPECT_TRUE(t.get()) << N;
    dunlin::wait_group wg;
    wg.go([bytes] { EXPECT_EQ(bytes[N - 1], static_cast<unsigned char>((N - 1) * 7 + 1)); });
    dunlin::task_group group;
    group.go([bytes] { EXPECT_EQ(bytes[N - 1], static_cast<unsigned char>((N - 1) * 7 + 1)); });
    wg.wait();
    group.wait();
}

TEST_P(Go, CarriesClosuresOfEverySize) {
    run([] {
        call_with_bytes<1>();
        call_with_bytes<39>();
        call_with_bytes<40>();
        call_with_bytes<47>();
        call_with_bytes<48>();
        call_with_bytes<63>();
        call_with_bytes<64>();
        call_with_bytes<65>();
        call_with_bytes<4096>();
        call_with_bytes<100'000>();
    });
}

TEST_P(Go, KeepsTheAlignmentOfItsCallable) {
    struct alignas(32) wide {
        double values[4] = {1, 2, 3, 4};
    };
    struct alignas(64) wider {
        double values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    };
    run([] {
        for (int i = 0; i < 1000; ++i) {
            wide a;
            wider b;
            ASSERT_TRUE(dunlin::spawn([a] {
                return reinterpret_cast<std::uintptr_t>(&a) % 32 == 0 && a.values[3] == 4;
            }).get());
            ASSERT_TRUE(dunlin::spawn([b] {
                return reinterpret_cast<std::uintptr_t>(&b) % 64 == 0 && b.values[7] == 8;
            }).get());
            ASSERT_TRUE(
                dunlin::spawn([](const wider& w) { return reinterpret_cast<std::uintptr_t>(&w) % 64 == 0; }, b).get());
        }
    });
}

TEST_P(Go, AlignsTheStackForVectorInstructions) {
    run([] {
        for (int i = 0; i < 100; ++i) {
            ASSERT_TRUE(dunlin::spawn([] {
                alignas(16) volatile float lane[4] = {};
                alignas(64) volatile float line[16] = {};
                return reinterpret_cast<std::uintptr_t>(&lane) % 16 == 0 &&
                       reinterpret_cast<std::uintptr_t>(&line) % 64 == 0;
            }).get());
        }
    });
}

TEST_P(Go, DestroysTheCallableOnTheGoroutineBeforeItIsDone) {
    run([] {
        for (int i = 0; i < support::rounds(5000); ++i) {
            auto alive = std::make_shared<int>(1);
            std::weak_ptr<int> watch = alive;
            dunlin::spawn([a = std::move(alive)] { return *a; }).wait();
            ASSERT_TRUE(watch.expired());
        }
    });
}

TEST_P(Go, RefusesNullFunctions) {
    run([] {
        void (*none)() = nullptr;
        int (counter::*member)() = nullptr;
        counter c;
        std::function<void()> empty;
        dunlin::wait_group wg;
        dunlin::task_group group;
        EXPECT_THROW(dunlin::go(none), std::invalid_argument);
        EXPECT_THROW(dunlin::go(empty), std::invalid_argument);
        EXPECT_THROW(dunlin::go(member, &c), std::invalid_argument);
        EXPECT_THROW(dunlin::go({.name = "n"}, none), std::invalid_argument);
        EXPECT_THROW((void)dunlin::spawn(none), std::invalid_argument);
        EXPECT_THROW((void)dunlin::spawn(empty), std::invalid_argument);
        EXPECT_THROW(wg.go(none), std::invalid_argument);
        EXPECT_THROW(wg.go(empty), std::invalid_argument);
        EXPECT_THROW(group.go(none), std::invalid_argument);
        EXPECT_THROW(group.go(empty), std::invalid_argument);
        wg.wait();
        group.wait();
        EXPECT_EQ(dunlin::runtime::num_goroutines(), 1u);
    });
}

TEST_P(Go, RefusesStackSizesBelowTheMinimumAndAboveTheMaximum) {
    run([] {
        for (const std::size_t bytes :
            {std::size_t{1}, dunlin::min_stack_size - 1, std::size_t{1} << 40, ~std::size_t{0}}) {
            try {
                dunlin::go({.stack_size = bytes}, [] {});
                FAIL() << bytes;
            } catch (const std::invalid_argument& e) {
                EXPECT_NE(std::string(e.what()).find(std::to_string(bytes)), std::string::npos) << e.what();
            }
        }
        EXPECT_EQ(dunlin::runtime::num_goroutines(), 1u);
        EXPECT_EQ(dunlin::spawn({.stack_size = dunlin::min_stack_size}, [] { return 1; }).get(), 1);
    });
}

// Uses that much stack, and says whether every byte of it kept what was written.
[[gnu::noinline]] bool use_stack(std::size_t bytes) {
    volatile unsigned char block[1024];
    for (std::size_t i = 0; i < sizeof block; ++i) block[i] = static_cast<unsigned char>(i ^ bytes);
    const bool below = bytes <= 2048 || use_stack(bytes - 1024 - 256);
    for (std::size_t i = 0; i < sizeof block; ++i) {
        if (block[i] != static_cast<unsigned char>(i ^ bytes)) return false;
    }
    return below;
}

TEST_P(Go, GivesAtLeastTheStackThatWasAskedFor) {
    if (support::sanitized) GTEST_SKIP() << "red zones make frames larger than they say";
    run([] {
        for (const std::size_t bytes : {16u << 10, 64u << 10, 240u << 10, 512u << 10, 4u << 20, 64u << 20}) {
            dunlin::task<bool> t = dunlin::spawn({.stack_size = bytes}, [bytes] { return use_stack(bytes - 6144); });
            EXPECT_TRUE(t.get()) << bytes;
        }
        EXPECT_TRUE(dunlin::spawn([] { return use_stack(230 << 10); }).get());
    });
}

TEST_P(Go, GivesEachGoroutineANumberOfItsOwnAndTheMainOneTheFirst) {
    run([] {
        constexpr int count = 5000;
        std::vector<std::uint64_t> ids(count);
        dunlin::wait_group wg;
        for (int i = 0; i < count; ++i)
            wg.go([&ids, i] { ids[static_cast<std::size_t>(i)] = dunlin::this_goroutine::id(); });
        wg.wait();
        ids.push_back(dunlin::this_goroutine::id());
        std::sort(ids.begin(), ids.end());
        EXPECT_NE(ids.front(), 0u);
        EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
    });
    EXPECT_EQ(dunlin::this_goroutine::id(), 0u) << "a plain thread has none";
}

TEST_P(Go, NamesAreCopiedAndCanBeChanged) {
    run([] {
        std::string name = "first name";
        dunlin::wait_group wg;
        wg.go({.name = name}, [] {
            EXPECT_EQ(dunlin::this_goroutine::name(), "first name");
            dunlin::this_goroutine::set_name("second");
            dunlin::yield();
            EXPECT_EQ(dunlin::this_goroutine::name(), "second");
        });
        name = "overwritten";
        wg.wait();
        EXPECT_EQ(dunlin::spawn([] { return dunlin::this_goroutine::name(); }).get(), "");
    });
    dunlin::this_goroutine::set_name("ignored");
    EXPECT_EQ(dunlin::this_goroutine::name(), "");
}

TEST_P(Go, TasksKnowTheNumberOfTheirGoroutine) {
    run([] {
        dunlin::task<std::uint64_t> t = dunlin::spawn([] { return dunlin::this_goroutine::id(); });
        const std::uint64_t id = t.id();
        EXPECT_EQ(t.get(), id);
        EXPECT_EQ(t.id(), 0u);
    });
}

// ---- from plain threads, without run() ------------------------------------------------------------------------------

class GoFromThread : public support::runtime_test {};

TEST_F(GoFromThread, RunsGoroutinesWithoutRun) {
    called = 0;
    for (int i = 0; i < 1000; ++i) dunlin::go(free_function);
    support::eventually_on_thread([] { return called.load() == 1000; });
}

TEST_F(GoFromThread, ManyThreadsStartAndAwaitAtOnce) {
    std::atomic<int> sum{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
        threads.emplace_back([&sum] {
            for (int i = 0; i < support::rounds(2000); ++i) {
                dunlin::wait_group wg;
                wg.go([&sum] { sum.fetch_add(1); });
                wg.go([&sum] { sum.fetch_add(dunlin::spawn([] { return 1; }).get()); });
                EXPECT_EQ(dunlin::spawn([i] { return i; }).get(), i);
                wg.wait();
            }
        });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(sum.load(), 8 * 2 * support::rounds(2000));
}

TEST_F(GoFromThread, ExceptionsComeToTheThreadThatGets) {
    for (int i = 0; i < support::rounds(2000); ++i) {
        EXPECT_THROW(dunlin::spawn([]() -> int { throw std::out_of_range("x"); }).get(), std::out_of_range);
    }
}

TEST_F(GoFromThread, YieldAndSleepWorkOnAPlainThread) {
    dunlin::yield();
    const auto begin = dunlin::clock::now();
    dunlin::sleep_for(2ms);
    EXPECT_GE(dunlin::clock::now() - begin, 2ms);
}

TEST_F(GoFromThread, ExitGoroutineOnAPlainThreadIsALogicError) {
    EXPECT_THROW(dunlin::exit_goroutine(), std::logic_error);
}

}  // namespace
