// dunlin::sim: what it draws, what it finds, what it refuses, and that it leaves nothing behind.
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <dunlin/dunlin.hpp>
#include <dunlin/sim.hpp>

#include "support/runtime_test.h"

namespace {

using namespace std::chrono_literals;
namespace sim = dunlin::sim;
using kind = sim::failure_kind;

class sim_check : public support::runtime_test {
protected:
    void SetUp() override {
        runtime_test::SetUp();
        allow(240s);
    }
};

// As many as a sanitizer's build can do in the time of a test.
constexpr std::uint64_t some(std::uint64_t seeds) { return support::sanitized ? seeds / 10 : seeds; }

// Channels, a select, a lock, timers, contexts, blocking calls, joins, a semaphore, yields.
void a_bit_of_everything() {
    dunlin::chan<int> values(1);
    dunlin::mutex lock;
    dunlin::counting_semaphore<2> two(2);
    int sum = 0, got = 0;
    dunlin::task_group group;
    for (int i = 0; i < 3; ++i) {
        group.go([&, i] {
            two.acquire();
            for (int k = 0; k < 3; ++k) {
                std::lock_guard held(lock);
                ++sum;
            }
            two.release();
            dunlin::blocking([] {});
            dunlin::sleep_for(1h * i);
            values.send(i);
        });
    }
    auto [ctx, cancel] = dunlin::with_timeout(dunlin::context::background(), 90min);
    while (got != 3) {
        dunlin::select(
            dunlin::on_recv(values, [&](std::optional<int>) { ++got; }), dunlin::on_timeout(10min, [] {}),
            dunlin::on_recv(dunlin::after(7min), [](auto&&) { dunlin::yield(); }));
    }
    auto last = dunlin::spawn([&] { return sum; });
    sim::require(last.get() == 9);
    group.wait();
}

TEST_F(sim_check, TheSameSeedsMakeTheSameChoices) {
    for (const sim::search_strategy strategy : {sim::random, sim::search_strategy(sim::pct(3))}) {
        const sim::options all{.seeds = some(3000), .strategy = strategy};
        const sim::result first = sim::check(all, a_bit_of_everything);
        const sim::result second = sim::check(all, a_bit_of_everything);
        EXPECT_EQ(first.hash, second.hash);
        EXPECT_EQ(first.steps, second.steps);
        EXPECT_EQ(first.executions, all.seeds);
    }
}

TEST_F(sim_check, ASeedMakesTheSameChoicesAloneAsAmongOthers) {
    std::vector<std::uint64_t> alone;
    std::uint64_t one_by_one = 0, together = 0;
    for (std::uint64_t seed = 1; seed <= some(200); ++seed) {
        one_by_one += sim::check({.seeds = 1, .first_seed = seed}, a_bit_of_everything).steps;
    }
    together = sim::check({.seeds = some(200)}, a_bit_of_everything).steps;
    EXPECT_EQ(one_by_one, together);
}

TEST_F(sim_check, OtherSeedsMakeOtherChoices) {
    const auto hash = [](std::uint64_t seed) {
        return sim::check({.seeds = 1, .first_seed = seed}, a_bit_of_everything).hash;
    };
    EXPECT_NE(hash(1), hash(2));
}

TEST_F(sim_check, AnHourOfSleepTakesNoTime) {
    const auto before = std::chrono::steady_clock::now();
    sim::check({.seeds = 100}, [] {
        const auto begin = dunlin::clock::now();
        dunlin::sleep_for(1000h);
        sim::require(dunlin::clock::now() - begin >= 1000h);
        sim::require(dunlin::clock::now() - begin < 1001h);
    });
    EXPECT_LT(std::chrono::steady_clock::now() - before, 1h);
}

TEST_F(sim_check, EachOrderOfTwoIsSeen) {
    bool first = false, second = false;
    sim::check({.seeds = 100}, [&] {
        int last = 0;
        dunlin::task_group both;
        both.go([&] { last = 1; });
        both.go([&] { last = 2; });
        both.wait();
        (last == 1 ? first : second) = true;
    });
    EXPECT_TRUE(first && second);
}

TEST_F(sim_check, EachReadyCaseOfASelectIsTaken) {
    int taken[2] = {};
    sim::check({.seeds = 100}, [&] {
        dunlin::chan<int> a(1), b(1);
        a.send(0);
        b.send(0);
        dunlin::select(dunlin::on_recv(a, [&](std::optional<int>) { ++taken[0]; }),
            dunlin::on_recv(b, [&](std::optional<int>) { ++taken[1]; }));
    });
    EXPECT_GT(taken[0], 10);
    EXPECT_GT(taken[1], 10);
}

void expect_failure(kind what, const std::string& text, const std::function<void()>& f, sim::options o = {}) {
    const sim::result r = sim::explore(o, f);
    EXPECT_EQ(r.kind, what) << r.report;
    EXPECT_NE(r.report.find(text), std::string::npos) << r.report;
    EXPECT_NE(r.report.find("DUNLIN_SIM_SEED=" + std::to_string(r.seed)), std::string::npos) << r.report;
    if (what != kind::never_ends && what != kind::assertion && what != kind::outside_thread &&
        what != kind::outside_wait) {
        EXPECT_TRUE(r.replayed) << r.report;
        const sim::result again = sim::explore({.seeds = 1, .first_seed = r.seed, .strategy = o.strategy}, f);
        EXPECT_EQ(again.kind, what);
        EXPECT_EQ(again.hash, r.hash);
    }
}

TEST_F(sim_check, ALostUpdateBetweenTwoLocksIsFound) {
    const auto program = [] {
        dunlin::mutex lock;
        int n = 0;
        const auto add = [&] {
            int read;
            {
                std::lock_guard held(lock);
                read = n;
            }
            std::lock_guard held(lock);
            n = read + 1;
        };
        auto other = dunlin::spawn(add);
        add();
        other.get();
        sim::require(n == 2, "both count");
    };
    expect_failure(kind::requirement, "both count", program);
    expect_failure(kind::requirement, "both count", program, {.strategy = sim::pct(2)});
}

TEST_F(sim_check, LocksTakenInTwoOrdersAreADeadlock) {
    expect_failure(kind::deadlock, "sync.Mutex.Lock", [] {
        dunlin::mutex a, b;
        auto other = dunlin::spawn([&] {
            std::scoped_lock first(a);
            std::scoped_lock second(b);
        });
        {
            std::scoped_lock first(b);
            std::scoped_lock second(a);
        }
        other.get();
    });
}

// take(x) returns what gives x back at the end of the scope.
template <class T, class Take>
void in_two_orders(T& a, T& b, Take take) {
    auto other = dunlin::spawn([&] {
        auto first = take(a);
        auto second = take(b);
    });
    {
        auto first = take(b);
        auto second = take(a);
    }
    other.get();
}

struct permit {
    dunlin::binary_semaphore& of;
    explicit permit(dunlin::binary_semaphore& s) : of(s) { of.acquire(); }
    permit(dunlin::binary_semaphore& s, std::chrono::hours d) : of(s) {
        if (!of.try_acquire_for(d)) sim::require(false, "timed out");
    }
    ~permit() { of.release(); }
    permit(const permit&) = delete;
    permit& operator=(const permit&) = delete;
};

TEST_F(sim_check, WhateverIsTakenInTwoOrdersIsADeadlock) {
    expect_failure(kind::deadlock, "semacquire", [] {
        dunlin::binary_semaphore a(1), b(1);
        in_two_orders(a, b, [](auto& s) { return permit(s); });
    });
    expect_failure(kind::requirement, "timed out", [] {
        dunlin::binary_semaphore a(1), b(1);
        in_two_orders(a, b, [](auto& s) { return permit(s, 1h); });
    });
    expect_failure(kind::deadlock, "", [] {
        dunlin::shared_mutex a, b;
        in_two_orders(a, b, [](auto& m) { return std::unique_lock(m); });
    });
    expect_failure(kind::requirement, "timed out", [] {
        dunlin::timed_mutex a, b;
        in_two_orders(a, b, [](auto& m) {
            std::unique_lock held(m, std::defer_lock);
            sim::require(held.try_lock_for(1h), "timed out");
            return held;
        });
    });
    expect_failure(kind::deadlock, "", [] {
        dunlin::shared_mutex a, b;
        auto other = dunlin::spawn([&] {
            std::shared_lock first(a);
            std::unique_lock second(b);
        });
        {
            std::shared_lock first(b);
            std::unique_lock second(a);
        }
        other.get();
    });
}

TEST_F(sim_check, CallOnceInsideOfCallOnceInTwoOrdersIsADeadlock) {
    expect_failure(kind::deadlock, "", [] {
        dunlin::once_flag a, b;
        auto other = dunlin::spawn([&] { dunlin::call_once(a, [&] { dunlin::call_once(b, [] {}); }); });
        dunlin::call_once(b, [&] { dunlin::call_once(a, [] {}); });
        other.get();
    });
}

TEST_F(sim_check, AnExceptionOfAGoroutineIsAFailure) {
    expect_failure(kind::exception, "std::runtime_error: out of luck", [] {
        dunlin::wait_group one;
        one.go([] { throw std::runtime_error("out of luck"); });
        one.wait();
    });
    expect_failure(kind::exception, "int", [] { throw 7; });
}

TEST_F(sim_check, GoroutinesLeftBehindAreAFailure) {
    expect_failure(kind::leak, "chan receive", [] {
        dunlin::chan<int> never;
        dunlin::go([never]() mutable { never.recv(); });
    });
    // What ends by itself is none.
    sim::check({.seeds = 20}, [] { dunlin::go([] { dunlin::sleep_for(10s); }); });
}

// Its timer is forgotten with it: in real time it may be due at once, and wake it; or never, and be in the way.
TEST_F(sim_check, WhatIsLeftWaitingForATimerStandsWhereItStood) {
    for (const auto d : {1000h, 2h}) {
        expect_failure(kind::leak, "chan receive", [d] { dunlin::go([d] { dunlin::after(d).recv(); }); });
        sim::check({.seeds = 1}, [] {});
    }
    std::atomic<int> ticks = 0;
    for (int i = 0; i < 5; ++i) {
        expect_failure(kind::leak, "chan receive", [&] {
            ticks = 0;
            dunlin::go([&] {
                for (const dunlin::ticker t(1s);; ++ticks) t.channel().recv();
            });
        }, {.longest_delay = 0ns});
        EXPECT_EQ(ticks, 59);  // within the minute of grace, which began earlier
    }
}

TEST_F(sim_check, MisuseIsAFailure) {
    expect_failure(kind::misuse, "unlock of unlocked mutex", [] {
        dunlin::mutex lock;
        lock.unlock();
    });
}

TEST_F(sim_check, TooManyChoicesAreAFailure) {
    expect_failure(
        kind::never_ends, "max_steps",
        [] {
            dunlin::chan<int> ball(1);
            for (;;) {
                ball.send(1);
                ball.recv();
            }
        },
        {.seeds = 1, .max_steps = 1000});
}

TEST_F(sim_check, AGoroutineThatComputesForEverIsAFailure) {
    static std::atomic<bool> never;
    never = false;
    const sim::result r = sim::explore({.seeds = 1, .patience = 100ms}, [] {
        while (!never.exchange(false)) {
        }
    });
    static_cast<void>(never.load());  // what the goroutine has read on this stack is read before it is written again
    EXPECT_EQ(r.kind, kind::never_ends) << r.report;
    EXPECT_NE(r.report.find("does not end"), std::string::npos) << r.report;
}

TEST_F(sim_check, PatienceMayBeEndless) {
    // Longer than several looks at whether the execution goes on.
    const sim::result r = sim::explore({.seeds = 1, .patience = std::chrono::hours::max()},
        [] { std::this_thread::sleep_for(300ms); });
    EXPECT_EQ(r.kind, kind::none) << r.report;
}

// The next one is not refused because a timer is armed.
TEST_F(sim_check, AnExecutionThatIsGivenUpLeavesNoTimer) {
    static std::atomic<bool> never;
    never = false;
    const sim::result r = sim::explore({.seeds = 1, .patience = 100ms}, [&] {
        dunlin::go([] {
            for (const dunlin::ticker t(1000h);;) t.channel().recv();
        });
        sim::wait();
        while (!never.exchange(false)) {
        }
    });
    static_cast<void>(never.load());
    EXPECT_EQ(r.kind, kind::never_ends) << r.report;
    EXPECT_NO_THROW(sim::check({.seeds = 1}, [] { dunlin::sleep_for(1h); }));
}

TEST_F(sim_check, AnAssertionOfTheTestFrameworkIsAFailure) {
    bool failed = false;
    const sim::result r = sim::explore({.failed = [&] { return failed; }}, [&] { failed = sim::seed() == 5; });
    EXPECT_EQ(r.kind, kind::assertion);
    EXPECT_EQ(r.seed, 5u);
    EXPECT_NE(r.report.find("the last choices"), std::string::npos) << r.report;
}

TEST_F(sim_check, APlainThreadThatUsesTheRuntimeIsAFailure) {
    expect_failure(kind::outside_thread, "a plain thread", [] {
        std::thread([] { dunlin::go([] {}); }).join();
        dunlin::yield();
        dunlin::sleep_for(1s);
    });
}

TEST_F(sim_check, AWaitForTheKernelIsAFailure) {
    expect_failure(kind::outside_wait, "descriptor", [] {
        auto ends = dunlin::fs::pipe();
        char byte[1];
        ends.read_end.read_some(byte);
    });
}

TEST_F(sim_check, WhatIsOutsideIsToldOnceOrRefused) {
    const auto program = [] { dunlin::fs::pipe(); };
    testing::internal::CaptureStderr();
    EXPECT_TRUE(sim::explore({.seeds = 5}, program).ok());
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(said, "dunlin::sim: seed 1 uses a file, pipe or process of the kernel's: what that says has no seed "
                    "(said once; options::strict makes it a failure)\n");
    expect_failure(kind::outside_wait, "options::strict", program, {.seeds = 1, .strict = true});
    // Sockets are the simulation's own.
    sim::check({.seeds = 1, .strict = true}, [] { dunlin::net::listen("tcp", ":80"); });
}

TEST_F(sim_check, MemoryThatGrowsIsAFailure) {
    std::vector<std::vector<char>> kept;
    const auto grow = [&] { kept.emplace_back(256 << 10, 'x'); };
    const auto expect_it = [&](const std::function<void()>& f) {
        const sim::result r = sim::explore({.seeds = 100'000, .max_memory = 100 << 20}, f);
        EXPECT_EQ(r.kind, kind::memory) << r.report;
        EXPECT_NE(r.report.find("max_memory"), std::string::npos) << r.report;
        EXPECT_LT(kept.size(), 20'000u);
    };
    expect_it([&] {
        for (;; dunlin::yield()) grow();
    });
    expect_it(grow);  // what each execution leaves behind
    kept.clear();
}

TEST_F(sim_check, CheckThrowsWhatExploreReturns) {
    try {
        sim::check({.seeds = 3}, [] { sim::require(sim::seed() != 2, "not two"); });
        FAIL();
    } catch (const sim::failure& e) {
        EXPECT_EQ(e.of().seed, 2u);
        EXPECT_NE(std::string(e.what()).find("seed 2: not two"), std::string::npos) << e.what();
    }
}

TEST_F(sim_check, APolledConditionSeesTimeGoOn) {
    sim::check({.seeds = 50}, [] {
        bool done = false;
        dunlin::go([&] {
            dunlin::sleep_for(1h);
            done = true;
        });
        while (!done) dunlin::yield();
        const auto until = dunlin::clock::now() + 10us;
        while (dunlin::clock::now() < until) {
        }
    });
}

TEST_F(sim_check, TheRuntimeIsAsBeforeAfterwards) {
    dunlin::runtime::set_max_procs(2);
    sim::check({.seeds = 20}, a_bit_of_everything);
    EXPECT_FALSE(sim::explore({.seeds = 1}, [] { sim::require(false); }).ok());
    EXPECT_EQ(dunlin::runtime::max_procs(), 2u);
    const auto before = std::chrono::steady_clock::now();
    dunlin::run([] {
        std::atomic<int> ended{0};
        dunlin::wait_group group;
        for (int i = 0; i < 500; ++i) {
            group.go([&] {
                dunlin::sleep_for(1ms);
                ++ended;
            });
        }
        group.wait();
        EXPECT_EQ(ended, 500);
        dunlin::mutex lock;
        for (int i = 0; i < 5000; ++i) std::lock_guard held(lock);
        EXPECT_EQ(sim::seed(), 0u);
        sim::point();
        EXPECT_THROW(sim::draw(2), std::logic_error);
        EXPECT_THROW(sim::require(false), std::logic_error);
    });
    EXPECT_GE(std::chrono::steady_clock::now() - before, 1ms);
}

// The text of the exception that f throws.
template <class E, class F>
std::string refusal(F f) {
    try {
        f();
    } catch (const E& e) {
        return e.what();
    }
    return "nothing was thrown";
}

TEST_F(sim_check, BadInputIsRefusedInWords) {
    const auto nothing = [] {};
    EXPECT_NE(refusal<std::invalid_argument>([&] { sim::check({.seeds = 0}, nothing); }).find("seeds is 0"),
        std::string::npos);
    EXPECT_NE(refusal<std::invalid_argument>([&] { sim::check({.max_memory = 0}, nothing); }).find("max_memory is 0"),
        std::string::npos);
    EXPECT_NE(refusal<std::invalid_argument>([&] { sim::check({.max_steps = 0}, nothing); }).find("max_steps is 0"),
        std::string::npos);
    EXPECT_NE(refusal<std::invalid_argument>([&] {
        sim::check({.strategy = sim::exhaustive, .longest_delay = std::chrono::hours::max()}, nothing);
    }).find("longest_delay is more than an hour"), std::string::npos);
    EXPECT_NE(refusal<std::invalid_argument>([&] { sim::check({.strategy = sim::pct(0)}, nothing); }).find("depth"),
        std::string::npos);
    EXPECT_NE(
        refusal<std::invalid_argument>([] { sim::search_strategy("sideways"); }).find("unknown strategy \"sideways\""),
        std::string::npos);
    EXPECT_NE(refusal<std::invalid_argument>([] { sim::search_strategy("pct:65"); }).find("unknown strategy"),
        std::string::npos);
    EXPECT_EQ(sim::search_strategy("pct:4").depth(), 4u);
    EXPECT_NE(refusal<std::logic_error>([&] { dunlin::run([&] { sim::check(nothing); }); }).find("in a goroutine"),
        std::string::npos);
    std::string nested;
    sim::check({.seeds = 1}, [&] { nested = refusal<std::logic_error>([&] { sim::check(nothing); }); });
    EXPECT_NE(nested.find("inside of check()"), std::string::npos) << nested;
    std::string procs;
    sim::check({.seeds = 1}, [&] { procs = refusal<std::logic_error>([] { dunlin::runtime::set_max_procs(2); }); });
    EXPECT_NE(procs.find("one processor"), std::string::npos) << procs;
}

TEST_F(sim_check, TheEnvironmentNamesASeed) {
    const auto run = [] {
        std::vector<std::uint64_t> seeds;
        sim::check({.seeds = 3}, [&] { seeds.push_back(sim::seed()); });
        return seeds;
    };
    setenv("DUNLIN_SIM_SEED", "8123", 1);
    EXPECT_EQ(run(), std::vector<std::uint64_t>{8123});
    setenv("DUNLIN_SIM_SEED", "soon", 1);
    EXPECT_NE(refusal<std::invalid_argument>(run).find("DUNLIN_SIM_SEED=soon is not a number"), std::string::npos);
    unsetenv("DUNLIN_SIM_SEED");
    setenv("DUNLIN_SIM_STRATEGY", "sideways", 1);
    EXPECT_NE(refusal<std::invalid_argument>(run).find("DUNLIN_SIM_STRATEGY"), std::string::npos);
    unsetenv("DUNLIN_SIM_STRATEGY");
    EXPECT_EQ(run(), (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST_F(sim_check, WhatIsAliveAlreadyIsRefused) {
    dunlin::chan<int> end;
    dunlin::go([end]() mutable { end.recv(); });
    const std::string said = refusal<std::logic_error>([] { sim::check({.seeds = 1}, [] {}); });
    EXPECT_NE(said.find("1 goroutine exists already"), std::string::npos) << said;
    end.close();
}

}  // namespace
