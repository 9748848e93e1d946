// wake_model_test.cpp - the park/wake protocol of sched/machines/wake.h, step by step with its labels, in every
// interleaving.
//
// Submitters come in two kinds. A goroutine publishes in run_next of its own processor with a plain store and then
// computes for ever: another machine must run what it published. A plain thread pushes to the global queue under the
// scheduler lock. Machines contend for the processors that are not the submitters'. What they find ends, or computes
// for ever and keeps the processor: both are tried.
// A machine that sleeps stands for a thread that does not exist yet as well: the steps to it are the same.
// The light barrier S2 is no step where membarrier works; what it forbids is that the compiler lets the submitter ask
// first.
#include <bit>

#include "model/explorer.h"
#include "support/build.h"

namespace {

using namespace model;

struct config {
    unsigned goroutines = 0;  // submitters with a processor of their own
    unsigned threads = 0;     // submitters without
    unsigned machines = 2;
    unsigned procs = 1;       // for the machines
    memory mem = memory::tso;
    bool symmetric = false;   // no membarrier: S2 is a fence, R2 one in the retiring thread only
    bool defers = false;        // the goroutines leave their wakes to the monitor, if it is attentive
    bool attentive = false;   // and it is, in the beginning
    unsigned rounds_of_attention = 10;
    bool rescan_before_retiring = false;
    bool give_back_after_unlock = false;  // the decrement of W2 outside the lock
    unsigned others_not_counted = 0;      // R1 takes the machines' last processor but so many for the last of all
    bool forgets_joiners = false;      // a machine that finds nothing at R3 does not look whether another has left
                                          // R2 and R3 to it
    std::vector<const char*> without = {};
};

constexpr value one_idle = 256;
constexpr unsigned idle(value word) { return word >> 8; }
constexpr unsigned spinning(value word) { return word & 255; }

// A machine's locals; a submitter has the last two only.
enum { processor, is_spinning, found, taken, woken, last };

class wake_model {
public:
    explicit wake_model(const config& c) : c_(c), model(c.mem) {
        word_ = model.make(
            "idle|spinning", static_cast<value>((c.procs > c.machines ? c.procs - c.machines : 0) * one_idle));
        lock_ = model.make("lock");
        global_ = model.make("global queue");
        global_size_ = model.make("global_size");
        idle_list_ = model.make("idle processors", 0);
        sleepers_ = model.make("sleeping machines");
        attentive_ = model.make("monitor_attentive", c.attentive);
        deferred_ = model.make("wakes_deferred");
        retirers_ = model.make("retirers");
        for (unsigned i = 0; i < c.goroutines; ++i) run_next_.push_back(model.make("run_next" + std::to_string(i)));
        for (unsigned i = 0; i < c.goroutines; ++i) outside_.push_back(model.make("outside" + std::to_string(i)));
        for (unsigned i = 0; i < c.procs; ++i) queue_.push_back(model.make("queue" + std::to_string(i)));
        for (unsigned i = 0; i < c.machines; ++i) handed_.push_back(model.make("handed" + std::to_string(i)));

        for (unsigned i = 0; i < c.goroutines; ++i) add("goroutine " + std::to_string(i), goroutine(i));
        for (unsigned i = 0; i < c.threads; ++i) add("thread " + std::to_string(i), plain_thread());
        for (unsigned i = 0; i < c.machines; ++i) add("machine " + std::to_string(i), machine(i));
        if (c.defers) add("monitor", monitor());
        model.at_rest([this](const view& v) { return wrong_at_rest(v); });
    }

private:
    const config c_;
    cell word_, lock_, global_, global_size_, idle_list_, sleepers_, attentive_, deferred_, retirers_;
    std::vector<cell> run_next_, outside_, queue_, handed_;

public:
    protocol model;

private:
    void add(const std::string& name, program steps) {
        for (const char* label : c_.without) {
            if (std::any_of(
                    steps.begin(), steps.end(), [&](const step& s) { return std::string_view(label) == s.label; }))
                steps = steps.without(label);
        }
        model.thread(name, steps);
    }

    std::string wrong_at_rest(const view& v) const {
        bool queued = v[global_] != 0;
        for (const cell c : run_next_) queued |= v[c] != 0;
        for (const cell c : queue_) queued |= v[c] != 0;
        if (queued && v[idle_list_] != 0) return "a goroutine is runnable, a processor is idle, and nobody comes";
        if (spinning(v[word_]) != 0) return "a machine is counted that does not spin";
        if (idle(v[word_]) != static_cast<unsigned>(std::popcount(v[idle_list_])))
            return "the count of idle processors is wrong";
        if (v[lock_] != 0) return "the lock is held for ever";
        if (v[retirers_] != 0) return "somebody is at R2 for ever";
        return "";
    }

    // -- idle processors: under the lock, together with the word

    // Leaves the processor + 1, or 0, in `where`.
    void take_idle(turn& t, unsigned where) {
        value& list = t.guarded(idle_list_);
        if (list == 0) {
            t.local(where) = 0;
            return;
        }
        const unsigned p = static_cast<unsigned>(std::countr_zero(list));
        list &= static_cast<value>(list - 1);
        t.local(where) = static_cast<value>(p + 1);
        t.add(word_, -one_idle);
    }

    // -- submit's S3, and wake one; called

    program wake_steps() {
        program p = {
            {"S3", "read the word",
                [this](turn& t) {
                    const value w = t.load(word_);
                    if (idle(w) == 0 || spinning(w) != 0) t.back();
                }},
            {"W1", "CAS spinning 0 -> 1",
                [this](turn& t) {
                    const bool mine = t.update(word_, [](value w) {
                        return idle(w) != 0 && spinning(w) == 0 ? std::optional<value>(static_cast<value>(w + 1))
                                                                : std::nullopt;
                    });
                    if (!mine) t.back();
                }},
            {"W2", "lock", [this](turn& t) { t.lock(lock_); }},
            {"W2", "take an idle processor; none: spinning -= 1",
                [this](turn& t) {
                    take_idle(t, taken);
                    if (t.local(taken) == 0 && !c_.give_back_after_unlock) t.add(word_, -1);
                }},
            {"W2", "unlock",
                [this](turn& t) {
                    t.unlock(lock_);
                    if (t.local(taken) == 0 && !c_.give_back_after_unlock) t.back();
                }},
        };
        if (c_.give_back_after_unlock) {
            p += {{"W2", "none: spinning -= 1", [this](turn& t) {
                if (t.local(taken) != 0) return;
                t.add(word_, -1);
                t.back();
            }}};
        }
        p += {
            // With every machine on its way a thread would be made; here the next one that sleeps is waited for.
            {"W3", "lock, for a machine that sleeps", [this](turn& t) {
                if (t.guarded(sleepers_) == 0) return t.block();
                t.lock(lock_);
            }},
            {"W3", "take one; unlock", [this](turn& t) {
                value& list = t.guarded(sleepers_);
                t.local(woken) = static_cast<value>(std::countr_zero(list));
                list &= static_cast<value>(list - 1);
                t.unlock(lock_);
            }},
            {"W3", "hand it the processor; it spins", [this](turn& t) {
                t.store_release(handed_[t.local(woken)], t.local(taken));
                t.local(woken) = t.local(taken) = 0;
                t.back();
            }},
        };
        return p;
    }

    // -- submitters

    bool lacks(std::string_view label) const {
        return std::any_of(c_.without.begin(), c_.without.end(), [=](const char* l) { return label == l; });
    }

    program goroutine(unsigned i) {
        const step publish = {
            "S1", "run_next = g (plain store)", [this, i](turn& t) { t.store_release(run_next_[i], 1); }};
        const step ask = {"", "is a wake-up needed?", [this](turn& t) { t.call(c_.defers ? "O1" : "S3"); }};
        program p;
        if (c_.symmetric) {
            p += {publish, {"S2", "full fence", [](turn& t) { t.fence(); }}, ask};
        } else if (lacks("S2")) {
            p += {ask, publish};
        } else {
            p += {publish, ask};
        }
        p += {{"L1", "leave the runtime, compute", [this, i](turn& t) {
            t.guarded(outside_[i]) = 1;
            t.end();
        }}};
        if (c_.defers) p += defer_steps();
        p += wake_steps();
        return p;
    }

    // wake_for_run_next() and defer_wake().
    program defer_steps() {
        return {
            {"O1", "read the word", [this](turn& t) {
                const value w = t.load(word_);
                if (idle(w) == 0 || spinning(w) != 0) t.back();
            }},
            {"O2", "is the monitor attentive?", [this](turn& t) {
                if (t.load(attentive_) != 0) t.go("O4");
            }},
            {"O3", "no: wakes_deferred = true, wake one", [this](turn& t) {
                t.store(deferred_, 1);
                t.go("W1");
            }},
            {"O4", "yes: does it know?", [this](turn& t) {
                if (t.load(deferred_) != 0) t.back();
            }},
            {"O5", "no: wakes_deferred = true", [this](turn& t) { t.store(deferred_, 1); }},
            {"", "done", [](turn& t) { t.back(); }},
        };
    }

    // Its rounds are a millisecond apart: every store has become visible meanwhile. Rounds in which it would do nothing
    // are left out.
    program monitor() {
        enum { without_deferring, seen };  // and its locals for waking: taken, woken
        program p = {
            {"", "begins",
                [this](turn& t) {
                    t.local(without_deferring) = static_cast<value>(c_.attentive ? 0 : c_.rounds_of_attention);
                }},
            {"M0", "a millisecond later",
                [this](turn& t) {
                    const bool attentive = t.local(without_deferring) < c_.rounds_of_attention;
                    if (!attentive && t.guarded(deferred_) == 0) return t.block();
                    t.heavy_barrier();
                }},
            {"M1", "wakes_deferred = false",
                [this](turn& t) {
                    const bool deferred = t.exchange(deferred_, 0) != 0;
                    const auto rounds = std::min(t.local(without_deferring) + 1u, c_.rounds_of_attention);
                    t.local(without_deferring) = static_cast<value>(deferred ? 0 : rounds);
                }},
            {"M2", "attentive?",
                [this](turn& t) {
                    const bool attentive = t.local(without_deferring) < c_.rounds_of_attention;
                    t.store(attentive_, attentive);
                    if (!attentive) t.go("M0");
                }},
        };
        for (unsigned i = 0; i < c_.goroutines; ++i) {
            p += {{"M3", "the same in run_next " + std::to_string(i) + " as in the last round?", [this, i](turn& t) {
                const value bit = static_cast<value>(1u << i);
                const bool before = t.local(seen) & bit, now = t.load(run_next_[i]) != 0;
                t.local(seen) = static_cast<value>(now ? t.local(seen) | bit : t.local(seen) & ~bit);
                if (before && now) t.call("S3");
            }}};
        }
        p += {{"M4", "sleep", [](turn& t) { t.go("M0"); }}};
        p += wake_steps();
        return p;
    }

    program plain_thread() {
        program p = {
            {"G1", "lock", [this](turn& t) { t.lock(lock_); }},
            {"G2", "push g to the global queue", [this](turn& t) { t.store(global_size_, ++t.guarded(global_)); }},
            {"G3", "unlock", [this](turn& t) { t.unlock(lock_); }},
            {"", "is a wake-up needed?", [](turn& t) { t.call("S3"); }},
            {"", "done", [](turn& t) { t.end(); }},
        };
        p += wake_steps();
        return p;
    }

    // -- machines

    program machine(unsigned me) {
        program p = {
            {"", "begins", [this, me](turn& t) {
                if (me >= c_.procs) return t.go("Z1");
                t.local(processor) = static_cast<value>(me + 1);
            }},
        };
        p += find_steps();
        p += found_steps();
        if (c_.rescan_before_retiring) {
            p += rescan_steps();
            p += retire_steps();
        } else {
            p += retire_steps();
            p += rescan_steps();
        }
        p += sleep_steps(me);
        p += wake_steps();
        return p;
    }

    program find_steps() {
        program p = {
            {"A1", "own queue", [this](turn& t) {
                if (take_one(t, queue_[t.local(processor) - 1u])) t.go("F1");
            }},
            {"A2", "global_size?", [this](turn& t) {
                if (t.load(global_size_) != 0) t.go("B1");
            }},
            {"A3", "may it spin?", [this](turn& t) {
                const value w = t.load(word_);
                if (t.local(is_spinning) != 0) return;
                if (2 * spinning(w) >= c_.procs + c_.goroutines - idle(w)) t.go(retire());
            }},
            {"A4", "spinning += 1", [this](turn& t) {
                if (t.local(is_spinning) != 0) return;
                t.local(is_spinning) = 1;
                t.add(word_, 1);
            }},
        };
        for (unsigned i = 0; i < c_.procs; ++i) {
            p += {{"A5", "steal from queue " + std::to_string(i), [this, i](turn& t) {
                if (t.local(processor) != i + 1 && take_one(t, queue_[i])) t.go("F1");
            }}};
        }
        for (unsigned i = 0; i < c_.goroutines; ++i) {
            // The handshake of handshake.h, which has a model of its own: it succeeds when the victim is outside the
            // runtime.
            p += {{"A6", "steal run_next " + std::to_string(i), [this, i](turn& t) {
                if (t.guarded(outside_[i]) != 0 && take_one(t, run_next_[i])) t.go("F1");
            }}};
        }
        p += {{"A7", "found nothing", [this](turn& t) { t.go(retire()); }}};
        return p;
    }

    const char* retire() const { return c_.rescan_before_retiring ? "R3" : "R1"; }

    bool take_one(turn& t, cell queue) {
        return t.update(
            queue, [](value n) { return n != 0 ? std::optional<value>(static_cast<value>(n - 1)) : std::nullopt; });
    }

    // A batch of the global queue, as in take_global(); then F1, F2 and the goroutine.
    program found_steps() {
        return {
            {"B1", "lock the global queue", [this](turn& t) { t.lock(lock_); }},
            {"B2", "take a batch", [this](turn& t) {
                value& size = t.guarded(global_);
                const unsigned batch = std::min<unsigned>(size, size / (c_.procs + c_.goroutines) + 1);
                size = static_cast<value>(size - batch);
                t.store(global_size_, size);
                t.local(found) = static_cast<value>(batch);
            }},
            {"B3", "unlock", [this](turn& t) {
                t.unlock(lock_);
                if (t.local(found) == 0) t.go("A3");
                if (t.local(found) == 1) t.go("F1");
            }},
            {"B4", "the rest into its own queue", [this](turn& t) {
                const value rest = static_cast<value>(t.local(found) - 1);
                t.update(queue_[t.local(processor) - 1u],
                    [=](value n) { return std::optional<value>(static_cast<value>(n + rest)); });
                t.call("S3");
            }},
            {"F1", "spinning -= 1", [this](turn& t) {
                t.local(found) = 0;
                if (t.local(is_spinning) == 0) return t.go("F3");
                t.local(is_spinning) = 0;
                t.add(word_, -1);
            }},
            {"F2", "is a wake-up needed?", [](turn& t) { t.call("S3"); }},
            {"F3", "run g: it ends, or computes for ever", [](turn& t) { t.way(2) == 0 ? t.end() : t.go("A1"); }},
        };
    }

    program retire_steps() {
        return {
            {"R1", "lock", [this](turn& t) { t.lock(lock_); }},
            {"R1", "processor onto the idle list, spinning -= 1", [this](turn& t) {
                if (t.guarded(global_) != 0) return;
                t.guarded(idle_list_) |= static_cast<value>(1u << (t.local(processor) - 1));
                t.add(word_, one_idle - t.local(is_spinning));
                t.local(processor) = t.local(is_spinning) = 0;
            }},
            {"R1", "is every processor idle?", [this](turn& t) {
                t.local(last) = idle(t.load(word_)) >= c_.procs + c_.goroutines - c_.others_not_counted;
            }},
            {"R1", "unlock; the global queue has something: take it", [this](turn& t) {
                t.unlock(lock_);
                if (t.local(processor) != 0) t.go("B1");
            }},
        };
    }

    // search_again(), or, if all processors are idle, R3 alone.
    program barrier_steps() {
        return {
            {"J1", "all are idle: search at once; somebody is at R2: once more for me; else it is me", [this](turn& t) {
                if (t.local(last) != 0) return t.go("R3");
                value others = 0;
                t.update(retirers_,
                    [&](value n) { return others = n, std::optional<value>(static_cast<value>(n == 0 ? 1 : 2)); });
                if (others != 0) t.go("Z1");
            }},
            {"R2", "heavy barrier", [this](turn& t) { c_.symmetric ? t.fence() : t.heavy_barrier(); }},
        };
    }

    program come_back_steps() {
        return {
            {"J2", "nothing there; has somebody joined meanwhile?", [this](turn& t) {
                if (t.local(last) != 0) return t.go("Z1");
                value before = 0;
                t.update(retirers_, [&](value n) {
                    return before = n, std::optional<value>(static_cast<value>(c_.forgets_joiners ? 0 : n - 1));
                });
                t.go(before == 1 || c_.forgets_joiners ? "Z1" : lacks("R2") ? "R3" : "R2");
            }},
            {"J3", "something there", [this](turn& t) {
                if (t.local(last) == 0) t.exchange(retirers_, 0);
            }},
            {"C1", "come back: lock", [this](turn& t) { t.lock(lock_); }},
            {"C2", "take an idle processor", [this](turn& t) { take_idle(t, processor); }},
            {"C3", "unlock", [this](turn& t) {
                t.unlock(lock_);
                if (t.local(processor) == 0) t.go("Z1");
            }},
            {"C4", "spinning += 1, search again", [this](turn& t) {
                t.local(is_spinning) = 1;
                t.add(word_, 1);
                t.go("A1");
            }},
        };
    }

    program rescan_steps() {
        program p;
        if (!c_.rescan_before_retiring) p += barrier_steps();
        const char* something = c_.rescan_before_retiring ? "A1" : "J3";
        p += {{"R3", "re-scan: global_size", [this, something](turn& t) {
            if (t.load(global_size_) != 0) t.go(something);
        }}};
        for (const std::vector<cell>* cells : {&queue_, &run_next_}) {
            for (const cell c : *cells) {
                p += {{"R3", "re-scan: " + model.cell_names[c.index], [c, something](turn& t) {
                    if (t.load(c) != 0) t.go(something);
                }}};
            }
        }
        if (!c_.rescan_before_retiring) p += come_back_steps();
        return p;
    }

    program sleep_steps(unsigned me) {
        return {
            {"Z1", "lock", [this](turn& t) { t.lock(lock_); }},
            {"Z2", "onto the list of sleepers; unlock", [this, me](turn& t) {
                t.guarded(sleepers_) |= static_cast<value>(1u << me);
                t.unlock(lock_);
            }},
            {"Z3", "woken with a processor, spinning", [this, me](turn& t) {
                const value p = t.exchange(handed_[me], 0);
                if (p == 0) return t.block();
                t.local(processor) = p;
                t.local(is_spinning) = 1;
                t.go("A1");
            }},
        };
    }
};

testing::AssertionResult keeps_w1(const config& c) { return holds(wake_model(c).model); }

testing::AssertionResult loses_a_wake_up(const config& c) {
    return breaks(wake_model(c).model, "a goroutine is runnable, a processor is idle, and nobody comes");
}

TEST(WakeModel, OneSubmitterAndTwoMachinesLoseNoWake) {
    for (const memory mem : {memory::sequential, memory::tso, memory::weak}) {
        for (const unsigned procs : {1u, 2u}) {
            EXPECT_TRUE(keeps_w1({.goroutines = 1, .procs = procs, .mem = mem}));
            EXPECT_TRUE(keeps_w1({.threads = 1, .procs = procs, .mem = mem}));
            EXPECT_TRUE(keeps_w1({.goroutines = 1, .procs = procs, .mem = mem, .symmetric = true}));
        }
    }
}

TEST(WakeModel, TwoSubmittersAndTwoMachinesWithOneProcessor) {
    for (const memory mem : {memory::tso, memory::weak}) {
        EXPECT_TRUE(keeps_w1({.goroutines = 2, .procs = 1, .mem = mem}));
        EXPECT_TRUE(keeps_w1({.threads = 2, .procs = 1, .mem = mem}));
        EXPECT_TRUE(keeps_w1({.goroutines = 1, .threads = 1, .procs = 1, .mem = mem}));
    }
    EXPECT_TRUE(keeps_w1({.goroutines = 2, .procs = 1, .symmetric = true}));
}

TEST(WakeModel, TwoSubmittersAndTwoMachinesWithTwoProcessors) {
    if (support::sanitized)
        GTEST_SKIP() << "two million states, and nothing in the explorer that the other tests do not reach";
    EXPECT_TRUE(keeps_w1({.goroutines = 2, .procs = 2}));
    EXPECT_TRUE(keeps_w1({.threads = 2, .procs = 2}));
    EXPECT_TRUE(keeps_w1({.goroutines = 1, .threads = 1, .procs = 2}));
}

TEST(WakeModel, AThirdMachineMayBeWokenWhileTwoAreOnTheirWayToSleep) {
    EXPECT_TRUE(keeps_w1({.goroutines = 1, .machines = 3, .procs = 2}));
    EXPECT_TRUE(keeps_w1({.threads = 2, .machines = 3, .procs = 1}));
}

// Three rounds of attention instead of ten, for fewer states.
TEST(WakeModel, AWakeThatIsOwedIsPaidByTheMonitor) {
    if (support::sanitized) GTEST_SKIP() << "as above";
    EXPECT_TRUE(keeps_w1({.goroutines = 1, .procs = 2, .defers = true, .attentive = false, .rounds_of_attention = 3}));
    EXPECT_TRUE(keeps_w1({.goroutines = 1, .procs = 1, .defers = true, .attentive = true, .rounds_of_attention = 3}));
    EXPECT_TRUE(keeps_w1({.goroutines = 1,
        .procs = 1,
        .mem = memory::weak,
        .defers = true,
        .attentive = true,
        .rounds_of_attention = 3}));
}

// It sees in one round what is in run_next and in the next that it has not moved.
TEST(WakeModel, AMonitorThatLooksOnceAfterAnOwedWakeDoesNotPay) {
    EXPECT_TRUE(loses_a_wake_up({.goroutines = 1, .defers = true, .attentive = true, .rounds_of_attention = 1}));
}

// Its attention may have ended since the submitter asked.
TEST(WakeModel, AnOwedWakeOfWhichTheMonitorIsNotToldIsNotPaid) {
    EXPECT_TRUE(loses_a_wake_up(
        {.goroutines = 1, .defers = true, .attentive = true, .rounds_of_attention = 3, .without = {"O5"}}));
}

// A submitter that reads the word before its store is visible sees no idle processor, while the machine that retires
// sees no work.
TEST(WakeModel, WithoutTheBarrierS2AWakeUpIsLost) {
    EXPECT_TRUE(loses_a_wake_up({.goroutines = 1, .without = {"S2"}}));
    EXPECT_TRUE(loses_a_wake_up({.goroutines = 1, .symmetric = true, .without = {"S2"}}));
    EXPECT_TRUE(keeps_w1({.goroutines = 1, .mem = memory::sequential, .symmetric = true, .without = {"S2"}}));
}

TEST(WakeModel, WithoutTheHeavyBarrierR2AWakeUpIsLost) {
    EXPECT_TRUE(loses_a_wake_up({.goroutines = 1, .without = {"R2"}}));
    EXPECT_TRUE(keeps_w1({.goroutines = 1, .mem = memory::sequential, .without = {"R2"}}));
}

// Without membarrier R2 is not needed: J1 waits for R1, and nothing after it is read before it.
TEST(WakeModel, WithoutMembarrierJoiningIsFenceEnough) {
    for (const memory mem : {memory::tso, memory::weak})
        EXPECT_TRUE(keeps_w1({.goroutines = 1, .mem = mem, .symmetric = true, .without = {"R2"}}));
}

// The submitter's processor is in use, its store not yet visible.
TEST(WakeModel, ARetirerThatLeavesTheBarrierOutAlthoughAProcessorIsInUseLosesAWakeUp) {
    EXPECT_TRUE(loses_a_wake_up({.goroutines = 1, .others_not_counted = 1}));
    EXPECT_TRUE(keeps_w1({.goroutines = 1, .mem = memory::sequential, .others_not_counted = 1}));
}

// The first one's barrier had begun before the second's processor was idle.
TEST(WakeModel, ABarrierAndASearchThatOthersHaveJoinedAreRepeated) {
    EXPECT_TRUE(keeps_w1({.goroutines = 1, .machines = 3, .procs = 2, .mem = memory::weak}));
    EXPECT_TRUE(loses_a_wake_up({.goroutines = 1, .procs = 2, .forgets_joiners = true}));
}

TEST(WakeModel, ARescanBeforeTheProcessorIsIdleComesTooEarly) {
    EXPECT_TRUE(loses_a_wake_up({.goroutines = 1, .rescan_before_retiring = true}));
    EXPECT_TRUE(loses_a_wake_up({.goroutines = 1, .mem = memory::sequential, .rescan_before_retiring = true}));
}

// Two submitters: one makes the count 1 and finds no processor; one gets idle, and the other submitter believes the
// count.
TEST(WakeModel, AFailedWakeThatGivesItsCountBackAfterTheUnlockHidesASubmission) {
    EXPECT_TRUE(loses_a_wake_up({.threads = 2, .mem = memory::sequential, .give_back_after_unlock = true}));
    EXPECT_TRUE(loses_a_wake_up({.goroutines = 1, .threads = 1, .mem = memory::tso, .give_back_after_unlock = true}));
}

// The second submitter saw a machine search. That one has found the work of the first, and computes for ever.
TEST(WakeModel, ASearcherThatFindsWorkAndWakesNoMachineLeavesTheSecondSubmissionAlone) {
    EXPECT_TRUE(loses_a_wake_up({.goroutines = 2, .procs = 2, .without = {"F2"}}));
}

// A model in which a step never happens says nothing about that step.
TEST(WakeModel, EveryStepHappens) {
    if (support::sanitized) GTEST_SKIP() << "as above";
    const wake_model deferring({.goroutines = 1, .defers = true, .attentive = true, .rounds_of_attention = 3});
    const wake_model at_once({.goroutines = 1, .defers = true, .rounds_of_attention = 3});
    EXPECT_EQ(never_made(deferring.model, at_once.model, wake_model({.threads = 2}).model,
                  wake_model({.threads = 1, .procs = 2}).model),
        std::set<std::string>());
}

}  // namespace
