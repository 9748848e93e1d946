// Block and mutex profiles: who waited where how long, and who made others wait.
#include <atomic>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "observe/contention.h"
#include "park/contention.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

struct sample {
    std::int64_t delay_ns = 0;
    std::uint64_t count = 0;
    std::string labels;
    std::vector<std::string> frames;  // innermost first
};

std::vector<sample> samples_of(const std::string& text) {
    std::vector<sample> result;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (line.find(" @") != line.npos && line[0] != '#') {
            result.emplace_back();
            std::istringstream(line) >> result.back().delay_ns >> result.back().count;
        } else if (line.rfind("# labels: ", 0) == 0) {
            result.back().labels = line;
        } else if (line.rfind("#\t", 0) == 0) {
            result.back().frames.push_back(line);
        }
    }
    return result;
}

std::vector<sample> blocked() {
    std::ostringstream text;
    dunlin::runtime::block_profile(text, dunlin::runtime::profile_format::text);
    return samples_of(text.str());
}

std::vector<sample> unlocked() {
    std::ostringstream text;
    dunlin::runtime::mutex_profile(text, dunlin::runtime::profile_format::text);
    return samples_of(text.str());
}

// All samples together whose innermost frame is that function.
sample sum_of(const std::vector<sample>& all, const std::string& function) {
    sample sum;
    for (const sample& s : all) {
        if (s.frames.empty() || s.frames[0].find(function) == std::string::npos) continue;
        sum.delay_ns += s.delay_ns;
        sum.count += s.count;
        sum.labels = s.labels;
    }
    return sum;
}

class counting_waits {
public:
    explicit counting_waits(std::chrono::nanoseconds rate = 1ns) { dunlin::runtime::set_block_profile_rate(rate); }
    ~counting_waits() { dunlin::runtime::set_block_profile_rate(0ns); }
};

class counting_unlocks {
public:
    explicit counting_unlocks(unsigned one_in = 1) { dunlin::runtime::set_mutex_profile_fraction(one_in); }
    ~counting_unlocks() { dunlin::runtime::set_mutex_profile_fraction(0); }
};

// Each wait stands in a function of its own, which the profile is asked for. It does not end with the wait.
#define WAITING_FUNCTION(name, parameter, wait) \
    [[gnu::noinline]] void name(parameter) {    \
        wait;                                   \
        asm volatile("" ::: "memory");          \
    }

WAITING_FUNCTION(waits_to_receive, const dunlin::chan<int>& c, c.recv())
WAITING_FUNCTION(waits_to_send, const dunlin::chan<int>& c, c.send(1))
WAITING_FUNCTION(waits_to_receive_limited, const dunlin::chan<int>& c, c.recv_for(1h))
WAITING_FUNCTION(waits_in_select, const dunlin::chan<int>& c, dunlin::select(dunlin::on_recv(c, [] {})))
WAITING_FUNCTION(waits_for_mutex, dunlin::mutex& m, std::lock_guard guard(m))
WAITING_FUNCTION(waits_to_write, dunlin::shared_mutex& m, std::lock_guard guard(m))
WAITING_FUNCTION(waits_to_read, dunlin::shared_mutex& m, std::shared_lock guard(m))
WAITING_FUNCTION(waits_for_group, dunlin::wait_group& g, g.wait())
WAITING_FUNCTION(waits_for_permit, dunlin::counting_semaphore<>& s, s.acquire())
WAITING_FUNCTION(waits_for_latch, dunlin::latch& l, l.wait())
WAITING_FUNCTION(waits_for_task, dunlin::task<void>& t, t.get())
WAITING_FUNCTION(sleeps, std::chrono::nanoseconds d, dunlin::sleep_for(d))
WAITING_FUNCTION(waits_by_name, const dunlin::chan<int>& c, c.recv())
WAITING_FUNCTION(waits_while_off, const dunlin::chan<int>& c, c.recv())
WAITING_FUNCTION(waits_all_the_time, const dunlin::chan<int>& c, c.recv())

[[gnu::noinline]] void waits_for_condition(dunlin::condition_variable& c, dunlin::mutex& m) {
    std::unique_lock lock(m);
    c.wait(lock);
}

constexpr auto some_time = 5ms;

class Contention : public support::each_p {};
EACH_P(Contention);

void expect_one(const std::string& function, const std::string& reason, const sample& before) {
    const sample now = sum_of(blocked(), function);
    EXPECT_EQ(now.count - before.count, 1u) << function;
    EXPECT_GE(now.delay_ns - before.delay_ns, std::chrono::nanoseconds(some_time).count() / 2) << function;
    EXPECT_NE(now.labels.find('"' + reason + '"'), std::string::npos) << function << ' ' << now.labels;
}

constexpr auto nothing = [] {};

// `prepare`, then `wait` in a goroutine or a thread; `let_go` when that has waited for some time, and again and again
// if it could come too early.
template <class Prepare, class Wait, class LetGo>
void one_wait(const std::string& function, const std::string& reason, Prepare prepare, Wait wait, LetGo let_go,
              bool again = false) {
    for (const bool on_thread : {false, true}) {
        const sample before = sum_of(blocked(), function);
        std::atomic<bool> begun{false}, ended{false};
        const auto begin = [&] { begun.store(true), wait(), ended.store(true); };
        std::thread thread;
        dunlin::task<void> t;
        prepare();
        if (on_thread) {
            thread = std::thread(begin);
        } else {
            t = dunlin::spawn(begin);
        }
        support::eventually([&] { return begun.load(); });
        dunlin::sleep_for(4 * some_time);
        let_go();
        while (again && !ended.load()) dunlin::sleep_for(4 * some_time), let_go();
        if (on_thread) {
            dunlin::blocking([&] { thread.join(); });
        } else {
            t.get();
        }
        expect_one(function, reason, before);
    }
}

TEST_P(Contention, EachKindOfWaitIsCountedWithItsPlaceAndItsReason) {
    run([] {
        const counting_waits on;
        const dunlin::chan<int> c;
        const auto give = [&] { c.send(1); };
        one_wait("waits_to_receive", "chan receive", nothing, [&] { waits_to_receive(c); }, give);
        one_wait("waits_to_receive_limited", "chan receive", nothing, [&] { waits_to_receive_limited(c); }, give);
        one_wait("waits_to_send", "chan send", nothing, [&] { waits_to_send(c); }, [&] { c.recv(); });
        one_wait("waits_in_select", "select", nothing, [&] { waits_in_select(c); }, give);
        dunlin::mutex m;
        one_wait("waits_for_mutex", "sync.Mutex.Lock", [&] { m.lock(); }, [&] { waits_for_mutex(m); },
            [&] { m.unlock(); });
        dunlin::shared_mutex s;
        one_wait("waits_to_write", "sync.RWMutex.Lock", [&] { s.lock(); }, [&] { waits_to_write(s); },
            [&] { s.unlock(); });
        one_wait("waits_to_read", "sync.RWMutex.RLock", [&] { s.lock(); }, [&] { waits_to_read(s); },
            [&] { s.unlock(); });
        dunlin::wait_group g;
        one_wait("waits_for_group", "sync.WaitGroup.Wait", [&] { g.add(1); }, [&] { waits_for_group(g); },
            [&] { g.done(); });
        dunlin::counting_semaphore<> permits(0);
        one_wait("waits_for_permit", "semacquire", nothing, [&] { waits_for_permit(permits); },
            [&] { permits.release(); });
        dunlin::latch latches[2] = {dunlin::latch(1), dunlin::latch(1)};
        std::atomic<int> waited{0}, counted{0};
        one_wait("waits_for_latch", "latch wait", nothing, [&] { waits_for_latch(latches[waited++]); },
            [&] { latches[counted++].count_down(); });
        dunlin::condition_variable condition;
        one_wait("waits_for_condition", "sync.Cond.Wait", nothing, [&] { waits_for_condition(condition, m); },
            [&] { condition.notify_all(); }, true);
    });
}

TEST_P(Contention, ATaskThatIsWaitedForIsCounted) {
    run([] {
        const counting_waits on;
        const sample before = sum_of(blocked(), "waits_for_task");
        std::atomic<bool> begun{false}, waited_for{false};
        dunlin::task<void> slow = dunlin::spawn([&] {
            begun = true;
            support::eventually([&] { return waited_for.load(); });
            dunlin::sleep_for(4 * some_time);
        });
        support::eventually([&] { return begun.load(); });  // so it is not run in place
        waited_for = true;
        waits_for_task(slow);
        expect_one("waits_for_task", "task join", before);
    });
}

TEST_P(Contention, SleepingIsNotContention) {
    run([] {
        const counting_waits on;
        dunlin::task<void> t = dunlin::spawn([] { sleeps(1ms); });
        dunlin::sleep_for(some_time);
        t.get();
        sleeps(1ms);
        std::thread thread([] { sleeps(1ms); });
        dunlin::blocking([&] { thread.join(); });
        EXPECT_EQ(sum_of(blocked(), "sleeps").count, 0u);
    });
}

TEST_P(Contention, GoroutinesHaveTheirNamesAndLabels) {
    run([] {
        const counting_waits on;
        const dunlin::chan<int> c;
        const auto wait = [c] { waits_by_name(c); };
        dunlin::task<void> anna = dunlin::spawn({.name = "anna", .labels = {{"request", "12"}}}, wait);
        dunlin::task<void> bert = dunlin::spawn({.name = "bert"}, wait);
        dunlin::sleep_for(1ms);
        c.send(1), c.send(2);
        anna.get(), bert.get();
        std::map<std::string, std::uint64_t> counts;
        for (const sample& s : blocked()) {
            if (s.frames.empty() || s.frames[0].find("waits_by_name") == std::string::npos) continue;
            counts[s.labels] += s.count;
        }
        ASSERT_EQ(counts.size(), 2u);
        EXPECT_TRUE(counts.contains(R"(# labels: {"request":"12", "name":"anna", "reason":"chan receive"})"));
        EXPECT_TRUE(counts.contains(R"(# labels: {"name":"bert", "reason":"chan receive"})"));
    });
}

TEST_P(Contention, OffNothingIsCounted) {
    run([] {
        { const counting_waits on_and_off; }
        EXPECT_EQ(dunlin::runtime::set_mutex_profile_fraction(7), 0u);
        EXPECT_EQ(dunlin::runtime::set_mutex_profile_fraction(0), 7u);
        const std::size_t before = unlocked().size();
        const dunlin::chan<int> c;
        dunlin::mutex m;
        dunlin::task<void> t = dunlin::spawn([&] { waits_while_off(c), waits_for_mutex(m); });
        m.lock();
        c.send(1);
        dunlin::sleep_for(1ms);
        m.unlock();
        t.get();
        EXPECT_EQ(sum_of(blocked(), "waits_while_off").count, 0u);
        EXPECT_EQ(unlocked().size(), before);
    });
}

[[gnu::noinline]] void waits_shortly(std::int64_t ns, int times) {
    for (int i = 0; i < times; ++i) dunlin::park::waits_counter.load()->waited(dunlin::sched::wait_reason::select, ns);
}

// With a rate far above the waits few are kept; what they stand for is what there was.
TEST_P(Contention, ASampleStandsForAllWaits) {
    run([] {
        const counting_waits on(50us);
        const sample before = sum_of(blocked(), "waits_shortly");
        waits_shortly(1'000, 20'000);  // some 400 are kept, of all 20 ms
        const sample few = sum_of(blocked(), "waits_shortly");
        EXPECT_NEAR(static_cast<double>(few.delay_ns - before.delay_ns), 20e6, 6e6);
        EXPECT_NEAR(static_cast<double>(few.count - before.count), 20'000, 6'000);
        waits_shortly(40'000, 2'000);  // most of them: 80 ms
        const sample most = sum_of(blocked(), "waits_shortly");
        EXPECT_NEAR(static_cast<double>(most.delay_ns - few.delay_ns), 80e6, 8e6);
        waits_shortly(70'000, 10);  // each
        EXPECT_EQ(sum_of(blocked(), "waits_shortly").delay_ns - most.delay_ns, 700'000);
    });
}

// ---- who makes others wait

[[gnu::noinline]] void holds_for_long(dunlin::mutex& m) {
    const std::lock_guard guard(m);
    dunlin::sleep_for(2ms);
}
[[gnu::noinline]] void holds_shortly(dunlin::mutex& m) {
    const std::lock_guard guard(m);
    asm volatile("" ::: "memory");
}
[[gnu::noinline]] void holds_alone(dunlin::mutex& m) {
    const std::lock_guard guard(m);
    dunlin::sleep_for(1ms);
}
// Until so many wait, and then for some time.
void hold_before(std::size_t waiters, std::chrono::milliseconds some) {
    while (dunlin::runtime::stats().waiting < waiters) dunlin::sleep_for(1ms);
    dunlin::sleep_for(some);
}
template <class Lock>
[[gnu::noinline]] void holds_before_a_crowd(Lock& m, std::atomic<bool>& held, std::size_t waiters) {
    const std::lock_guard guard(m);
    held.store(true);
    hold_before(waiters, 20ms);
}
[[gnu::noinline]] void reads_before_a_writer(dunlin::shared_mutex& m, std::atomic<bool>& held) {
    const std::shared_lock guard(m);
    held.store(true);
    hold_before(1, 5ms);
}

TEST_P(Contention, TheHolderDuringAWaitIsChargedAndNotTheWaker) {
    run([] {
        const counting_unlocks on;
        const sample long_before = sum_of(unlocked(), "holds_for_long");
        const sample short_before = sum_of(unlocked(), "holds_shortly");
        dunlin::mutex hot, cold;
        const auto began = std::chrono::steady_clock::now();
        dunlin::wait_group all;
        for (int i = 0; i < 2; ++i) all.go([&] { for (int k = 0; k < 10; ++k) holds_for_long(hot); });
        for (int i = 0; i < 4; ++i) all.go([&] { for (int k = 0; k < 10; ++k) holds_shortly(hot), dunlin::yield(); });
        all.go([&] { for (int k = 0; k < 10; ++k) holds_alone(cold); });
        all.wait();
        const std::int64_t took_ns = (std::chrono::steady_clock::now() - began) / 1ns;
        const std::vector<sample> now = unlocked();
        const std::int64_t long_ns = sum_of(now, "holds_for_long").delay_ns - long_before.delay_ns;
        const std::int64_t short_ns = sum_of(now, "holds_shortly").delay_ns - short_before.delay_ns;
        EXPECT_GT(long_ns, 20'000'000);  // one at least always waits for the twenty times 2 ms
        EXPECT_LT(long_ns + short_ns, 5 * took_ns * 11 / 10);  // five wait at most
        EXPECT_GT(long_ns, 4 * short_ns);
        EXPECT_EQ(sum_of(now, "holds_alone").count, 0u);
        EXPECT_NE(now.at(0).frames.at(0).find("holds_"), std::string::npos);
    });
}

template <class Lock>
void a_crowd_waits(const std::string& function) {
    constexpr int waiters = 500;
    const sample before = sum_of(unlocked(), function);
    Lock m;
    dunlin::wait_group all;
    const auto began = std::chrono::steady_clock::now();
    std::atomic<bool> held{false};
    dunlin::task<void> holder = dunlin::spawn([&] { holds_before_a_crowd(m, held, waiters + 1); });  // and who joins it
    support::eventually([&] { return held.load(); });
    for (int i = 0; i < waiters; ++i) all.go([&] { const std::lock_guard guard(m); });
    holder.get();
    const std::int64_t took_ns = (std::chrono::steady_clock::now() - began) / 1ns;
    all.wait();
    const sample now = sum_of(unlocked(), function);
    EXPECT_GE(now.delay_ns - before.delay_ns, waiters * std::int64_t{20'000'000});
    EXPECT_LE(now.delay_ns - before.delay_ns, waiters * took_ns * 5 / 4);
    EXPECT_EQ(now.count - before.count, 1u);
}

TEST_P(Contention, EveryWaiterCountsAlsoInALongQueue) {
    run([] {
        const counting_unlocks on;
        a_crowd_waits<dunlin::mutex>("holds_before_a_crowd<dunlin::mutex>");
        a_crowd_waits<dunlin::shared_mutex>("holds_before_a_crowd<dunlin::shared_mutex>");
    });
}

TEST_P(Contention, AReaderThatAWriterWaitsForIsCharged) {
    run([] {
        const counting_unlocks on;
        const sample before = sum_of(unlocked(), "reads_before_a_writer");
        dunlin::shared_mutex m;
        std::atomic<bool> held{false};
        dunlin::task<void> reader = dunlin::spawn([&] { reads_before_a_writer(m, held); });
        support::eventually([&] { return held.load(); });
        waits_to_write(m);
        reader.get();
        const sample now = sum_of(unlocked(), "reads_before_a_writer");
        EXPECT_EQ(now.count - before.count, 1u);
        EXPECT_GE(now.delay_ns - before.delay_ns, 4'000'000);
    });
}

[[gnu::noinline]] void makes_others_wait(std::int64_t ns, int times) {
    for (int i = 0; i < times; ++i) dunlin::park::unlocks_counter.load()->made_wait(ns);
}

TEST_P(Contention, OneInSomeStandsForAllUnlocks) {
    run([] {
        const counting_unlocks on(50);
        const sample before = sum_of(unlocked(), "makes_others_wait");
        makes_others_wait(1'000, 20'000);  // some 400 are kept
        const sample now = sum_of(unlocked(), "makes_others_wait");
        EXPECT_NEAR(static_cast<double>(now.delay_ns - before.delay_ns), 20e6, 6e6);
        EXPECT_NEAR(static_cast<double>(now.count - before.count), 20'000, 6'000);
        EXPECT_EQ((now.count - before.count) % 50, 0u);
    });
}

// ---- at any time

TEST_P(Contention, CanBeSwitchedAndReadWhileOthersWait) {
    run([] {
        std::atomic<bool> enough{false};
        const dunlin::chan<int> c;
        dunlin::mutex m;
        dunlin::wait_group all;
        for (int i = 0; i < 4; ++i) {
            all.go([&] {
                while (!enough.load()) holds_shortly(m), c.send(1);
            });
            all.go([&] {
                while (!enough.load()) waits_all_the_time(c), holds_shortly(m);
            });
        }
        std::thread outside([&] {
            while (!enough.load()) holds_shortly(m);
        });
        constexpr int rounds = support::sanitized ? 12 : 50;  // each rate with each fraction
        for (int i = 0; i < rounds; ++i) {
            dunlin::runtime::set_block_profile_rate(std::chrono::nanoseconds(i % 3));
            dunlin::runtime::set_mutex_profile_fraction(static_cast<unsigned>(i % 4));
            dunlin::sleep_for(1ms);
            blocked(), unlocked();
        }
        dunlin::runtime::set_block_profile_rate(0ns);
        dunlin::runtime::set_mutex_profile_fraction(0);
        enough.store(true);
        dunlin::blocking([&] { outside.join(); });
        // A sender whose receiver has gone already is let go, and so is a receiver.
        while (!all.wait_for(1ms)) c.try_send(1), c.try_recv();
        EXPECT_GT(sum_of(blocked(), "waits_all_the_time").count, 0u);
    });
}

TEST(ContentionTable, WhatHasNoPlaceAnyMoreCountsTogether) {
    dunlin::run([] {
        static dunlin::observe::contention_table table;
        EXPECT_TRUE(table.all().empty());
        table.prepare();
        dunlin::stack::trace t;
        t.size = 1;
        constexpr int stacks = 5000;
        for (int round = 0; round < 2; ++round) {
            for (std::uintptr_t i = 0; i < stacks; ++i) {
                t.pc[0] = reinterpret_cast<void*>(0x1000 + 16 * i);
                table.add(t, dunlin::sched::wait_reason::select, nullptr, 1, 10);
            }
        }
        double count = 0, delay = 0, in_all = 0;
        const auto records = table.all();
        for (const auto& r : records) {
            count += r.count, delay += r.delay_ns;
            if (r.frames.size == 0) in_all = r.count;
        }
        EXPECT_EQ(records.size(), 4097u);
        EXPECT_EQ(count, 2.0 * stacks);
        EXPECT_EQ(delay, 20.0 * stacks);
        EXPECT_EQ(in_all, 2.0 * (stacks - 4096));
    });
}

}  // namespace
