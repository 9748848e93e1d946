// lock_model_test.cpp - the futex lock of platform/lock.h, whose unlock is a plain store, in every interleaving. Spinning (L2) is left out: it is time that
// passes before L3, and every step takes any time here.
#include <bit>

#include "model/explorer.h"

namespace {

using namespace model;

struct config {
    unsigned threads = 2;
    unsigned rounds = 1;  // of lock and unlock, each
    memory mem = memory::tso;
    bool symmetric = false;          // no membarrier: U2 is a fence, and L4 one in the sleeper only
    bool count_after_sleep = false;  // L3 after L5
    bool relaxed_unlock = false;     // U1 does not release
    bool fence_in_wake = true;       // of the system call
    std::vector<const char*> without = {};
};

constexpr const char* two_owners = "two threads own the lock";
constexpr const char* forgotten = "a thread sleeps for ever";
constexpr const char* lost_update = "an owner did not see what the last one had written";

class lock_model {
public:
    explicit lock_model(const config& c) : c_(c), model(c.mem) {
        held_ = model.make("held");
        sleepers_ = model.make("sleepers");
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
            if (v[data_] != c_.threads * c_.rounds) return lost_update;
            return v[held_] != 0 || v[sleepers_] != 0 ? "the lock is not free in the end" : "";
        });
    }

private:
    enum { round, seen };

    void get_in(turn& t) {
        if (t.guarded(owners_)++ != 0) t.fail(two_owners);
    }

    program thread_steps(unsigned me) {
        const value my_bit = static_cast<value>(1u << me);
        const step count = {"L3", "sleepers += 1", [this](turn& t) { t.add(sleepers_, 1); }};
        program p = {
            {"L1", "CAS held 0 -> 1", [this](turn& t) {
                if (!t.try_lock(held_)) return;
                get_in(t);
                t.go("in");
            }},
        };
        if (!c_.count_after_sleep) p += {count};
        p += {
            {"L1'", "CAS held 0 -> 1", [this](turn& t) {
                if (!t.try_lock(held_)) return;
                get_in(t);
                t.go("L6");
            }},
            {"L4", "heavy barrier", [this](turn& t) { c_.symmetric ? t.fence() : t.heavy_barrier(); }},
            {"L5", "held is 1: sleep", [=, this](turn& t) {
                if (t.load_in_kernel(held_) != 1) return;
                t.guarded(asleep_) |= my_bit;
            }},
        };
        if (c_.count_after_sleep) p += {count};
        p += {
            {"L5", "woken", [=, this](turn& t) {
                if (t.guarded(asleep_) & my_bit) return t.block();
                t.go("L1'");
            }},
            {"L6", "sleepers -= 1", [this](turn& t) { t.add(sleepers_, -1); }},
            {"in", "read what it guards", [this](turn& t) { t.local(seen) = t.load(data_); }},
            {"", "and write", [this](turn& t) { t.store(data_, static_cast<value>(t.local(seen) + 1)); }},
            {"U1", "held = 0 (release)", [this](turn& t) {
                t.local(seen) = 0;
                --t.guarded(owners_);
                c_.relaxed_unlock ? t.store(held_, 0) : t.store_release(held_, 0);
            }},
        };
        if (c_.symmetric) p += {{"U2", "fence", [](turn& t) { t.fence(); }}};
        p += {
            {"U3", "sleepers?", [this](turn& t) {
                if (t.load(sleepers_) == 0) t.go("next");
            }},
            {"U3", "wake one", [this](turn& t) {
                // FUTEX_WAKE is a full fence before it looks for sleepers, and chooses.
                if (c_.fence_in_wake) t.fence();
                value& list = t.guarded(asleep_);
                if (list == 0) return;
                value rest = list;
                for (unsigned skip = t.way(static_cast<unsigned>(std::popcount(list))); skip != 0; --skip) rest &= static_cast<value>(rest - 1);
                list &= static_cast<value>(~(rest & -rest));
            }},
            {"next", "again?", [this](turn& t) { ++t.local(round) < c_.rounds ? t.go("L1") : t.end(); }},
        };
        return p;
    }

    const config c_;
    cell held_, sleepers_, owners_, asleep_, data_;

public:
    protocol model;
};

testing::AssertionResult is_a_lock(const config& c) { return holds(lock_model(c).model); }
testing::AssertionResult fails(const config& c, const char* how) { return breaks(lock_model(c).model, how); }

TEST(LockModel, OneOwnerAtATimeAndNoSleeperIsForgotten) {
    for (const memory mem : {memory::sequential, memory::tso, memory::weak}) {
        for (const bool symmetric : {false, true}) {
            EXPECT_TRUE(is_a_lock({.threads = 2, .rounds = 3, .mem = mem, .symmetric = symmetric}));
            EXPECT_TRUE(is_a_lock({.threads = 3, .rounds = 1, .mem = mem, .symmetric = symmetric}));
        }
    }
    EXPECT_TRUE(is_a_lock({.threads = 3, .rounds = 2}));
}

// The unlock is still in its thread's buffer, and that thread has already seen that nobody sleeps.
TEST(LockModel, WithoutTheHeavyBarrierL4ASleeperIsForgotten) {
    EXPECT_TRUE(fails({.without = {"L4"}}, forgotten));
    EXPECT_TRUE(is_a_lock({.mem = memory::sequential, .without = {"L4"}}));
}

TEST(LockModel, ASleeperThatCountsItselfAfterTheSleepIsForgotten) {
    EXPECT_TRUE(fails({.count_after_sleep = true}, forgotten));
    EXPECT_TRUE(fails({.mem = memory::sequential, .count_after_sleep = true}, forgotten));
}

TEST(LockModel, ASleeperThatDoesNotCountItselfL3IsForgotten) { EXPECT_TRUE(fails({.without = {"L3"}}, forgotten)); }

TEST(LockModel, WithoutMembarrierTheFenceU2IsNeeded) { EXPECT_TRUE(fails({.symmetric = true, .without = {"U2"}}, forgotten)); }

// L4 came before U1, so the owner does see a sleeper and wakes; but it must not look for him before U1 is visible. Linux: hb_waiters_pending(), barrier B.
TEST(LockModel, TheWakeMakesTheUnlockVisibleBeforeItLooksForSleepers) { EXPECT_TRUE(fails({.fence_in_wake = false}, forgotten)); }

TEST(LockModel, TheUnlockReleases) {
    EXPECT_TRUE(fails({.mem = memory::weak, .relaxed_unlock = true}, lost_update));
    EXPECT_TRUE(is_a_lock({.mem = memory::tso, .relaxed_unlock = true}));
}

TEST(LockModel, EveryStepHappens) { EXPECT_EQ(never_made(lock_model({}).model), std::set<std::string>()); }

}  // namespace
