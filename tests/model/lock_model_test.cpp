// lock_model_test.cpp - the futex lock of platform/lock.h, whose unlock is a plain store, in every interleaving.
// Spinning (L2) is left out: it is time that passes before L3, and every step takes any time here.
#include <bit>

#include "model/explorer.h"

namespace {

using namespace model;

struct config {
    unsigned threads = 2;
    unsigned rounds = 1;  // of lock and unlock, each
    unsigned more_rounds = 0;  // of the last thread
    memory mem = memory::tso;
    bool symmetric = false;          // no membarrier: U2 is a fence, and L4 one in the sleeper only
    bool count_after_sleep = false;  // L3 after L7
    bool relaxed_unlock = false;     // U1 does not release
    bool limited_first = false;      // a sleep with an end and without L5 before the one for good
    bool keep_mark = false;          // L4 and L8 leave "on the way" as it is
    bool remember_after = false;     // L4 clears, and remembers the word in a later step, after L5
    std::vector<const char*> without = {};
};

constexpr const char* two_owners = "two threads own the lock";
constexpr const char* forgotten = "a thread sleeps for ever";
constexpr const char* lost_update = "an owner did not see what the last one had written";

class lock_model {
public:
    explicit lock_model(const config& c) : c_(c), model(c.mem) {
        held_ = model.make("held");
        waiters_ = model.make("waiters");
        owners_ = model.make("(owners)");
        asleep_ = model.make("(asleep)");
        data_ = model.make("data");
        for (unsigned i = 0; i < c.threads; ++i) {
            program steps = thread_steps(i);
            for (const char* label : c.without) steps = steps.without(label);
            model.thread("thread " + std::to_string(i), steps);
        }
        model.at_rest([this](const view& v) {
            if (v[asleep_] != 0) return forgotten;
            if (v[data_] != c_.threads * c_.rounds + c_.more_rounds) return lost_update;
            return v[held_] != 0 || (v[waiters_] & count_mask) != 0 ? "the lock is not free in the end" : "";
        });
    }

private:
    enum { round, seen, remembered };

    // waiters_: count, whether one is on its way, how many have been woken.
    static constexpr value count_mask = 7, on_the_way = 8, one_woken = 16;
    static bool wants_a_wake(value word) { return (word & count_mask) != 0 && (word & on_the_way) == 0; }

    unsigned rounds_of(unsigned thread) const { return c_.rounds + (thread + 1 == c_.threads ? c_.more_rounds : 0); }

    void get_in(turn& t) {
        if (t.guarded(owners_)++ != 0) t.fail(two_owners);
    }

    program thread_steps(unsigned me) {
        const value my_bit = static_cast<value>(1u << me);
        const step count = {"L3", "count += 1", [this](turn& t) { t.add(waiters_, 1); }};
        const auto try_to_get_in = [this](turn& t) {
            if (!t.try_lock(held_)) return;
            get_in(t);
            t.go("L8");
        };
        program p = {
            {"L1", "CAS held 0 -> 1", [this](turn& t) {
                if (!t.try_lock(held_)) return;
                get_in(t);
                t.go("in");
            }},
        };
        if (!c_.count_after_sleep) p += {count};
        if (c_.limited_first) {
            p += {
                {"F4", "on the way = 0, remember",
                    [this](turn& t) {
                        t.update(waiters_, [&](value old) {
                            t.local(remembered) = static_cast<value>(old & ~on_the_way);
                            return std::optional<value>(t.local(remembered));
                        });
                    }},
                {"F6", "CAS held 0 -> 1", try_to_get_in},
                {"F7", "the word is as remembered: sleep",
                    [=, this](turn& t) {
                        if (t.load_in_kernel(waiters_) == t.local(remembered)) t.guarded(asleep_) |= my_bit;
                    }},
                {"F7'", "woken, or it has lasted",
                    [=, this](turn& t) { t.guarded(asleep_) &= static_cast<value>(~my_bit); }},
                {"F7'", "CAS held 0 -> 1", try_to_get_in},
                {"F7'", "once more, or for good",
                    [](turn& t) {
                        if (t.way(2) == 1) t.go("F4");
                    }},
            };
        }
        p += {{"L4", "on the way = 0, remember", [this](turn& t) {
            t.update(waiters_, [&](value old) {
                t.local(remembered) = static_cast<value>(c_.keep_mark ? old : old & ~on_the_way);
                return std::optional<value>(t.local(remembered));
            });
        }}};
        if (c_.remember_after) p += {{"L4'", "remember", [this](turn& t) { t.local(remembered) = t.load(waiters_); }}};
        p += {
            {"L5", "heavy barrier", [this](turn& t) { c_.symmetric ? t.fence() : t.heavy_barrier(); }},
            {"L6", "CAS held 0 -> 1", try_to_get_in},
            {"L7", "the word is as remembered: sleep", [=, this](turn& t) {
                if (t.load_in_kernel(waiters_) != t.local(remembered)) return;
                t.guarded(asleep_) |= my_bit;
            }},
        };
        if (c_.count_after_sleep) p += {count};
        p += {
            {"L7'", "woken",
                [=, this](turn& t) {
                    if (t.guarded(asleep_) & my_bit) t.block();
                }},
            {"L7'", "CAS held 0 -> 1", try_to_get_in},
            {"L7'", "again", [](turn& t) { t.go("L4"); }},
            {"L8", "on the way = 0, count -= 1",
                [this](turn& t) {
                    t.update(waiters_, [this](value old) {
                        return std::optional<value>(static_cast<value>((c_.keep_mark ? old : old & ~on_the_way) - 1));
                    });
                }},
            {"in", "read what it guards", [this](turn& t) { t.local(seen) = t.load(data_); }},
            {"", "and write", [this](turn& t) { t.store(data_, static_cast<value>(t.local(seen) + 1)); }},
            {"U1", "held = 0 (release)",
                [this](turn& t) {
                    t.local(seen) = 0;
                    --t.guarded(owners_);
                    c_.relaxed_unlock ? t.store(held_, 0) : t.store_release(held_, 0);
                }},
        };
        if (c_.symmetric) p += {{"U2", "fence", [](turn& t) { t.fence(); }}};
        p += {
            {"U3", "somebody to wake?",
                [this](turn& t) {
                    if (!wants_a_wake(t.load(waiters_))) t.go("next");
                }},
            {"U4", "on the way = 1, woken += 1",
                [this](turn& t) {
                    const bool done = t.update(waiters_, [](value old) {
                        return wants_a_wake(old)
                                   ? std::optional<value>(static_cast<value>((old | on_the_way) + one_woken))
                                   : std::nullopt;
                    });
                    if (!done) t.go("next");
                }},
            {"U4", "wake one",
                [this](turn& t) {
                    // FUTEX_WAKE chooses. U4's CAS was a fence, so the unlock is visible before it looks for sleepers.
                    value& list = t.guarded(asleep_);
                    if (list == 0) return;
                    value rest = list;
                    for (unsigned skip = t.way(static_cast<unsigned>(std::popcount(list))); skip != 0; --skip)
                        rest &= static_cast<value>(rest - 1);
                    list &= static_cast<value>(~(rest & -rest));
                }},
            {"next", "again?", [=, this](turn& t) { ++t.local(round) < rounds_of(me) ? t.go("L1") : t.end(); }},
        };
        return p;
    }

    const config c_;
    cell held_, waiters_, owners_, asleep_, data_;

public:
    protocol model;
};

testing::AssertionResult is_a_lock(const config& c) { return holds(lock_model(c).model); }
testing::AssertionResult fails(const config& c, const char* how) { return breaks(lock_model(c).model, how); }

TEST(LockModel, OneOwnerAtATimeAndNoSleeperIsForgotten) {
    for (const memory mem : {memory::sequential, memory::tso, memory::weak}) {
        for (const bool symmetric : {false, true}) {
            EXPECT_TRUE(is_a_lock({.threads = 2, .rounds = 3, .mem = mem, .symmetric = symmetric}));
        }
    }
    EXPECT_TRUE(is_a_lock({.threads = 3, .mem = memory::sequential}));
    EXPECT_TRUE(is_a_lock({.threads = 3, .mem = memory::tso}));
}

TEST(LockModel, ASleepWithAnEndNeedsNoBarrierAndNoOtherSleeperIsForgottenForIt) {
    for (const memory mem : {memory::sequential, memory::tso, memory::weak}) {
        for (const bool symmetric : {false, true}) {
            EXPECT_TRUE(
                is_a_lock({.threads = 2, .rounds = 2, .mem = mem, .symmetric = symmetric, .limited_first = true}));
        }
    }
    EXPECT_TRUE(is_a_lock({.threads = 3, .mem = memory::sequential, .limited_first = true}));
    EXPECT_TRUE(is_a_lock({.threads = 3, .mem = memory::tso, .limited_first = true}));
    // A thread that takes it while the woken one is on its way, and then while that one sleeps with an end again.
    EXPECT_TRUE(is_a_lock({.threads = 3, .more_rounds = 1, .mem = memory::tso, .limited_first = true}));
    EXPECT_TRUE(fails({.limited_first = true, .without = {"L5"}}, forgotten));
}

// The unlock is still in its thread's buffer, and that thread has already seen that none sleeps.
TEST(LockModel, WithoutTheHeavyBarrierL5ASleeperIsForgotten) {
    EXPECT_TRUE(fails({.without = {"L5"}}, forgotten));
    EXPECT_TRUE(is_a_lock({.mem = memory::sequential, .without = {"L5"}}));
}

TEST(LockModel, ASleeperThatCountsItselfAfterTheSleepIsForgotten) {
    EXPECT_TRUE(fails({.count_after_sleep = true}, forgotten));
    EXPECT_TRUE(fails({.mem = memory::sequential, .count_after_sleep = true}, forgotten));
}

TEST(LockModel, ASleeperThatDoesNotCountItselfL3IsForgotten) { EXPECT_TRUE(fails({.without = {"L3"}}, forgotten)); }

TEST(LockModel, WithoutMembarrierTheFenceU2IsNeeded) {
    EXPECT_TRUE(fails({.symmetric = true, .without = {"U2"}}, forgotten));
}

// The woken one got nothing, and sleeps again; it is not woken because one is on its way: itself.
TEST(LockModel, TheMarkMustBeClearedBeforeTheNextSleepL4) {
    EXPECT_TRUE(fails({.threads = 3, .keep_mark = true}, forgotten));
}

TEST(LockModel, TheWordIsRememberedInTheStepThatClearsTheMark) {
    EXPECT_TRUE(fails({.threads = 3, .remember_after = true}, forgotten));
}

TEST(LockModel, TheUnlockReleases) {
    EXPECT_TRUE(fails({.mem = memory::weak, .relaxed_unlock = true}, lost_update));
    EXPECT_TRUE(is_a_lock({.mem = memory::tso, .relaxed_unlock = true}));
}

TEST(LockModel, EveryStepHappens) {
    EXPECT_EQ(never_made(lock_model({.threads = 3}).model), std::set<std::string>());
    EXPECT_EQ(never_made(lock_model({.threads = 3, .limited_first = true}).model), std::set<std::string>());
}

}  // namespace
