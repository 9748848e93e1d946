// biased_lock_test.cpp - the lock that one processor takes with plain stores: which processor gets the bias, what it
// takes to lose it, and that there is one owner at a time while it comes and goes. A lock loses its bias a few times in
// its life at most, since it is given later each time: a test that wants many changes needs many locks.
#include "park/biased_lock.h"

#include <array>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "park/waiter.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

using dunlin::park::biased_lock;
using dunlin::park::runtime_section;
using dunlin::sched::machine;
using dunlin::sched::max_sections;
using dunlin::sched::processor;
using dunlin::sched::processor_of;

constexpr std::uint32_t first_bias_after = biased_lock::first_bias_after;

// Inside the runtime, or on a plain thread.
void lock_and_unlock(biased_lock& lock, machine* m, std::uint32_t times = 1) {
    for (; times != 0; --times) {
        lock.lock(m);
        lock.unlock(m);
    }
}

// Until the processor has the bias; how many times it took. In one section: no other processor comes between.
std::uint32_t take_until_biased(biased_lock& lock) {
    runtime_section inside;
    std::uint32_t times = 0;
    while (lock.bias() != processor_of(inside.machine())) {
        lock_and_unlock(lock, inside.machine());
        ++times;
    }
    return times;
}

// The locks whose sections some processor is in.
std::vector<const void*> sections_now() {
    std::vector<const void*> all;
    const auto& s = dunlin::sched::the_scheduler;
    for (std::uint32_t i = 0; i < s.procs_made.load(std::memory_order_acquire); ++i) {
        for (const auto& section : s.processor_at(i)->sections) {
            if (const void* lock = section.load(std::memory_order_acquire)) all.push_back(lock);
        }
    }
    return all;
}

void spin(unsigned steps) {
    for (; steps != 0; --steps) dunlin::platform::pause();
}

class BiasedLock : public support::runtime_test {};

TEST_F(BiasedLock, IsConstantInitialisedAndWithoutBias) {
    static constinit biased_lock lock;
    EXPECT_EQ(lock.bias(), nullptr);
}

TEST_F(BiasedLock, AThreadNeverGetsTheBias) {
    biased_lock lock;
    lock_and_unlock(lock, nullptr, 10 * first_bias_after);
    EXPECT_EQ(lock.bias(), nullptr);
}

TEST_F(BiasedLock, IsALockableForTheStandard) {
    biased_lock lock;
    int count = 0;
    const auto body = [&] {
        for (std::uint32_t i = 0; i < 2 * first_bias_after; ++i) {
            runtime_section inside;
            const std::scoped_lock guard(lock);
            ++count;
        }
    };
    body();
    dunlin::run(body);
    EXPECT_EQ(count, static_cast<int>(4 * first_bias_after));
}

class BiasedLockP : public support::each_p {};
EACH_P(BiasedLockP);

TEST_P(BiasedLockP, AProcessorThatComesOnEndGetsTheBias) {
    run([] {
        biased_lock lock;
        runtime_section inside;
        machine* m = inside.machine();
        lock_and_unlock(lock, m, first_bias_after);
        EXPECT_EQ(lock.bias(), nullptr);
        lock_and_unlock(lock, m);
        EXPECT_EQ(lock.bias(), processor_of(m));

        lock.lock(m, 3);
        EXPECT_EQ(processor_of(m)->sections[3].load(), &lock);
        lock.unlock(m, 3);
        EXPECT_EQ(processor_of(m)->sections[3].load(), nullptr);
        EXPECT_EQ(lock.bias(), processor_of(m));
    });
}

TEST_P(BiasedLockP, AThreadInBetweenLetsTheCountBeginAgain) {
    run([] {
        biased_lock lock;
        runtime_section inside;
        for (int i = 0; i < 3; ++i) {
            lock_and_unlock(lock, inside.machine(), first_bias_after);
            EXPECT_EQ(lock.bias(), nullptr);
            lock_and_unlock(lock, nullptr);  // as a thread
        }
        lock_and_unlock(lock, inside.machine(), first_bias_after + 1);
        EXPECT_EQ(lock.bias(), processor_of(inside.machine()));
    });
}

TEST_P(BiasedLockP, AThreadTakesTheBiasAwayAndItIsGivenLaterEachTime) {
    run([] {
        biased_lock lock;
        std::uint32_t before = 0;
        for (int i = 0; i < 3; ++i) {
            const std::uint32_t times = take_until_biased(lock);
            EXPECT_GT(times, 4 * before);
            before = times;
            std::thread([&] {
                lock.lock(nullptr);
                EXPECT_EQ(lock.bias(), nullptr);
                lock.unlock(nullptr);
            }).join();
            EXPECT_EQ(lock.bias(), nullptr);
        }
    });
}

TEST_P(BiasedLockP, AnotherProcessorTakesTheBiasAway) {
    if (procs() == 1) return;
    run([] {
        biased_lock lock;
        take_until_biased(lock);
        const processor* first = lock.bias();
        std::atomic<bool> taken{false};
        const auto take_if_on_another = [&] {
            runtime_section inside;
            machine* m = inside.machine();
            const bool another = processor_of(m) != first;
            lock.lock(m);
            EXPECT_TRUE(!another || lock.bias() == nullptr);
            lock.unlock(m);
            if (another) taken = true;
        };
        // Two that compute run on two processors, and either may be the one with the bias: a goroutine that is
        // preempted may go on elsewhere.
        dunlin::task<void> other = dunlin::spawn([&] {
            while (!taken) {
                take_if_on_another();
                dunlin::yield();
            }
        });
        while (!taken) {
            take_if_on_another();
            spin(1);
        }
        other.get();
        EXPECT_EQ(lock.bias(), nullptr);
    });
}

TEST_P(BiasedLockP, TheTakerOfTheBiasWaitsForTheEndOfTheSection) {
    run([] {
        for (const unsigned place : {0u, 1u, max_sections - 1}) {
            biased_lock lock;
            int count = 0;
            std::atomic<bool> may_come{false}, is_in{false};
            std::thread thread([&] {
                support::eventually_on_thread([&] { return may_come.load(); });
                lock.lock(nullptr);
                is_in = true;
                ++count;
                lock.unlock(nullptr);
            });
            take_until_biased(lock);
            {
                runtime_section inside;
                machine* m = inside.machine();
                lock_and_unlock(lock, m, 20 * first_bias_after);  // it may be another processor than a moment ago
                lock.lock(m, place);
                EXPECT_EQ(processor_of(m)->sections[place].load(), &lock);
                may_come = true;
                while (lock.bias() != nullptr) sched_yield();     // R2
                const auto end = std::chrono::steady_clock::now() + 1ms;
                while (std::chrono::steady_clock::now() < end) EXPECT_FALSE(is_in);
                ++count;
                lock.unlock(m, place);
            }
            thread.join();
            EXPECT_EQ(count, 2);
        }
    });
}

// The first machine blocks, and its processor goes on with another one.
TEST_P(BiasedLockP, TheBiasStaysWithTheProcessorWhenItsMachineChanges) {
    if (procs() != 1) return;
    run([] {
        biased_lock lock;
        int count = 0;
        take_until_biased(lock);
        const processor* p = lock.bias();
        const machine* first = dunlin::sched::current_machine();
        std::atomic<bool> done{false};
        dunlin::task<void> other = dunlin::spawn([&] {
            {
                runtime_section inside;
                machine* m = inside.machine();
                EXPECT_NE(m, first);
                EXPECT_EQ(processor_of(m), p);
                lock.lock(m);
                ++count;
                EXPECT_EQ(processor_of(m)->sections[0].load(), &lock);
                lock.unlock(m);
            }
            done = true;
        });
        dunlin::blocking([&] { support::eventually_on_thread([&] { return done.load(); }); });
        other.get();
        runtime_section inside;
        lock.lock(inside.machine());
        ++count;
        lock.unlock(inside.machine());
        EXPECT_EQ(count, 2);
        EXPECT_EQ(lock.bias(), p);
    });
}

TEST_P(BiasedLockP, AMachineWithoutAFreePlaceTakesTheLockBelow) {
    run([] {
        biased_lock lock;
        std::atomic<bool> may_come{false}, is_in{false};
        std::thread thread([&] {
            support::eventually_on_thread([&] { return may_come.load(); });
            lock.lock(nullptr);
            is_in = true;
            lock.unlock(nullptr);
        });
        {
            runtime_section inside;
            machine* m = inside.machine();
            lock_and_unlock(lock, m, first_bias_after + 1);
            lock.lock(m, max_sections);
            EXPECT_EQ(lock.bias(), processor_of(m));
            EXPECT_EQ(sections_now(), std::vector<const void*>());
            may_come = true;
            const auto end = std::chrono::steady_clock::now() + 2ms;
            while (std::chrono::steady_clock::now() < end) EXPECT_FALSE(is_in);
            lock.unlock(m, max_sections);
        }
        thread.join();
        EXPECT_EQ(lock.bias(), nullptr);
    });
}

TEST_P(BiasedLockP, AMachineMayBeInEightAtOnce) {
    run([] {
        std::array<biased_lock, max_sections + 1> locks;
        runtime_section inside;
        machine* m = inside.machine();
        for (biased_lock& lock : locks) lock_and_unlock(lock, m, first_bias_after + 1);
        const auto& sections = processor_of(m)->sections;
        for (unsigned i = 0; i < locks.size(); ++i) locks[i].lock(m, i);
        for (unsigned i = 0; i < max_sections; ++i) EXPECT_EQ(sections[i].load(), &locks[i]);
        // In any order.
        for (unsigned i = 0; i < locks.size(); i += 2) locks[i].unlock(m, i);
        for (unsigned i = 0; i < max_sections; ++i) EXPECT_EQ(sections[i].load(), i % 2 == 0 ? nullptr : &locks[i]);
        for (unsigned i = 1; i < locks.size(); i += 2) locks[i].unlock(m, i);
        EXPECT_EQ(sections_now(), std::vector<const void*>());
    });
}

// ---- many locks, whose bias is given and taken away -----------------------------------------------------------------

// Two locks, in address order, and what they guard.
struct pair {
    biased_lock locks[2];
    long counts[2] = {};               // plain: only the locks make them right, and ThreadSanitizer would tell
    std::atomic<long> expected[2] = {};
    std::atomic<unsigned> gained{0};   // bits: this lock has had a bias
    std::atomic<unsigned> visits{0};   // of others than the one that comes on end
};

enum : unsigned { only_first = 1, only_second = 2, nested = 3 };

// One visit, by a caller inside the runtime on `m`, or by a thread. `place`: of the only one, or of the first.
void visit(pair& it, unsigned which, machine* m, unsigned place, bool look_at_bias = false) {
    const auto look = [&](const biased_lock& lock) {
        const processor* biased = look_at_bias ? lock.bias() : nullptr;
        EXPECT_TRUE(biased == nullptr || (m != nullptr && biased == processor_of(m))) << "somebody else has the bias";
    };
    for (unsigned i = 0; i < 2; ++i) {
        if ((which & (1u << i)) == 0) continue;
        it.locks[i].lock(m, which == nested ? place + i : place);
        ++it.counts[i];
        look(it.locks[i]);
    }
    for (unsigned i = 2; i-- > 0;) {
        if (which & (1u << i)) it.locks[i].unlock(m, which == nested ? place + i : place);
    }
}

class BiasedLockStress : public support::each_p {
protected:
    static constexpr unsigned visits_each = 3;

    // Goroutines come on end to one pair after the other, in turn; threads, and the goroutine whose turn it is not,
    // come to it when both locks have had a bias. `on_end`: which locks those on end take.
    void many_pairs(int rounds, bool nest) {
        std::deque<pair> pairs(static_cast<std::size_t>(rounds));
        const unsigned threads = 2;
        const unsigned goroutines = procs() > 1 ? 2 : 1;
        const unsigned visits = visits_each * (threads + goroutines - 1);
        const unsigned all = nest ? nested : only_first;
        run([&] {
            std::vector<std::jthread> others;
            for (unsigned i = 0; i < threads; ++i) {
                others.emplace_back([&, i] {
                    std::minstd_rand random(i + 1);
                    for (pair& it : pairs) {
                        // not yield(): it would have a processor all the time
                        while (it.gained != all) std::this_thread::sleep_for(20us);
                        come_from_outside(it, all, random);
                    }
                });
            }
            dunlin::wait_group group;
            for (unsigned i = 0; i < goroutines; ++i) {
                group.go([&, i] {
                    std::minstd_rand random(i + 11);
                    for (std::size_t n = 0; n < pairs.size(); ++n) {
                        if (n % goroutines == i) {
                            come_on_end(pairs[n], all, visits, random);
                        } else {
                            while (pairs[n].gained != all) dunlin::sleep_for(20us);
                            come_from_outside(pairs[n], all, random);
                        }
                    }
                });
            }
            group.wait();
            others.clear();
        });
        for (const pair& it : pairs) {
            EXPECT_EQ(it.counts[0], it.expected[0]);
            EXPECT_EQ(it.counts[1], it.expected[1]);
        }
        EXPECT_EQ(sections_now(), std::vector<const void*>());
    }

private:
    static void expect(pair& it, const long (&n)[4]) {
        it.expected[0] += n[only_first] + n[nested];
        it.expected[1] += n[only_second] + n[nested];
    }
    static unsigned some_of(unsigned all, std::minstd_rand& random) { return all == nested ? random() % 3 + 1 : all; }

    static void come_on_end(pair& it, unsigned all, unsigned visits, std::minstd_rand& random) {
        long done[4] = {};
        while (it.visits != visits || it.gained != all) {
            runtime_section inside;
            machine* m = inside.machine();
            const unsigned which = it.gained == all ? some_of(all, random) : all;
            visit(it, which, m, random() % (max_sections - 1));
            ++done[which];
            for (unsigned i = 0; i < 2; ++i) {
                if (it.gained != all && it.locks[i].bias() != nullptr) it.gained |= 1u << i;
            }
        }
        expect(it, done);
    }

    static void come_from_outside(pair& it, unsigned all, std::minstd_rand& random) {
        long done[4] = {};
        for (unsigned i = 0; i < visits_each; ++i) {
            spin(random() % 512);
            const unsigned which = some_of(all, random);
            {
                runtime_section inside;
                visit(it, which, inside.machine(), 0, true);
            }
            ++done[which];
        }
        expect(it, done);
        it.visits += visits_each;
    }
};

EACH_P(BiasedLockStress);

TEST_P(BiasedLockStress, OneOwnerAtATimeWhileTheBiasComesAndGoes) {
    allow(60s);
    many_pairs(support::rounds(600), false);
}

TEST_P(BiasedLockStress, TwoMayBeNestedInAddressOrder) {
    allow(60s);
    many_pairs(support::rounds(300), true);
}

TEST_P(BiasedLockStress, WhileTheNumberOfProcessorsChanges) {
    allow(60s);
    std::jthread changer([this](const std::stop_token& stop) {
        for (unsigned i = 0; !stop.stop_requested(); ++i) {
            dunlin::runtime::set_max_procs(procs() + i % 3);
            std::this_thread::sleep_for(100us);
        }
    });
    many_pairs(support::rounds(200), true);
}

// Goroutines and threads come in bursts that are long enough for a bias, to one lock.
TEST_P(BiasedLockStress, GoroutinesAndThreadsComeInBurstsToOneLock) {
    allow(60s);
    biased_lock lock;
    long count = 0;
    constexpr std::uint32_t burst = 2 * first_bias_after;
    constexpr int goroutines = 4, threads = 2;
    const int bursts = support::rounds(50);
    const auto come = [&] {
        for (std::uint32_t n = 0; n < burst; ++n) {
            runtime_section inside;
            lock.lock(inside.machine());
            ++count;
            lock.unlock(inside.machine());
        }
    };
    run([&] {
        std::vector<std::jthread> others;
        for (int i = 0; i < threads; ++i) {
            others.emplace_back([&] {
                for (int b = 0; b < bursts; ++b) {
                    come();
                    std::this_thread::sleep_for(100us);
                }
            });
        }
        dunlin::wait_group group;
        for (int i = 0; i < goroutines; ++i) {
            group.go([&] {
                for (int b = 0; b < bursts; ++b) {
                    come();
                    dunlin::yield();
                }
            });
        }
        group.wait();
        others.clear();
    });
    EXPECT_EQ(count, static_cast<long>(burst) * bursts * (goroutines + threads));
    EXPECT_EQ(sections_now(), std::vector<const void*>());
}

// The last test: biases of birth are given no more afterwards, in this process.
class BiasedLockZ : public support::runtime_test {};

TEST_F(BiasedLockZ, BornWithTheBiasOfItsMakerUntilTooManyWereTakenAway) {
    dunlin::run({.max_procs = 1}, [] {
        const biased_lock ours{biased_lock::at_birth()};
        EXPECT_EQ(ours.bias(), dunlin::sched::the_scheduler.processor_at(0));
        for (std::uint32_t i = 0, taken_away = 0; taken_away < biased_lock::births_taken_away_max && i < 10'000; ++i) {
            dunlin::yield();  // the processor may have been handed on while the last thread was joined
            biased_lock lock{biased_lock::at_birth()};
            if (lock.bias() == nullptr) continue;
            ++taken_away;
            std::thread([&] { lock_and_unlock(lock, nullptr); }).join();
            EXPECT_EQ(lock.bias(), nullptr);
        }
        const biased_lock late{biased_lock::at_birth()};
        EXPECT_EQ(late.bias(), nullptr);
        EXPECT_GE(take_until_biased(*std::make_unique<biased_lock>()), first_bias_after) << "the ordinary way is open";
    });
    const biased_lock of_a_thread{biased_lock::at_birth()};
    EXPECT_EQ(of_a_thread.bias(), nullptr);
}

}  // namespace
