// mutex_model_test.cpp - the mutex of sync/mutex.cpp, whose unlock is a plain store and whose queue is in the parking
// lot, in every interleaving. Spinning (L2) is left out: it is time that passes before L3. Whether a waiter is
// starving, which is first in the queue, and whether `watched` is cleared when no waiter is found: each way is taken.
#include <bit>

#include "model/explorer.h"

namespace {

using namespace model;

struct config {
    unsigned threads = 2;
    unsigned rounds = 1;  // of lock and unlock, each
    memory mem = memory::tso;
    bool symmetric = false;       // no membarrier: U3 is a fence, and L4 one in the waiter only
    bool clears = true;           // watched may be cleared
    bool clears_always = false;   // also while there is a queue
    bool relaxed_unlock = false;  // U2 does not release
    bool looks_after = true;      // U4
    bool plain_u6 = false;        // sees that a waiter is woken, and then stores
    std::vector<const char*> without = {};
};

constexpr const char* two_owners = "two threads own the mutex";
constexpr const char* forgotten = "a thread waits for ever";
constexpr const char* lost_update = "an owner did not see what the last one had written";

constexpr value locked = 1, woken = 2;

class mutex_model {
public:
    explicit mutex_model(const config& c) : c_(c), model(c.mem) {
        word_ = model.make("word");
        watched_ = model.make("watched");
        bucket_ = model.make("bucket.lock");
        queue_ = model.make("(queue)");
        asleep_ = model.make("(asleep)");
        granted_ = model.make("(granted)");
        owners_ = model.make("(owners)");
        data_ = model.make("data");
        for (unsigned i = 0; i < c.threads; ++i) {
            program steps = lock_steps(i);
            steps += unlock_steps();
            for (const char* label : c.without) steps = steps.without(label);
            model.thread("thread " + std::to_string(i), steps);
        }
        model.at_rest([this](const view& v) {
            if (v[asleep_] != 0) return forgotten;
            if (v[data_] != c_.threads * c_.rounds) return lost_update;
            return (v[word_] & locked) != 0 || v[queue_] != 0 ? "the mutex is not free in the end" : "";
        });
    }

private:
    enum { round, seen, was_woken, chosen };

    void get_in(turn& t) {
        if (t.guarded(owners_)++ != 0) t.fail(two_owners);
        t.local(was_woken) = 0;
    }

    // CAS, sets locked. A woken waiter clears woken: only if it takes the mutex, or in either case.
    bool take(turn& t, bool as_woken, bool give_up) {
        bool taken = false;
        t.update(word_, [&](value old) -> std::optional<value> {
            taken = (old & locked) == 0;
            if (taken) return as_woken ? locked : static_cast<value>(old | locked);
            if (as_woken && give_up) return static_cast<value>(old & ~woken);
            return std::nullopt;
        });
        return taken;
    }

    // Off the queue: any one.
    value pop(turn& t, unsigned skip) {
        value& queue = t.guarded(queue_);
        value rest = queue;
        for (; skip != 0; --skip) rest &= static_cast<value>(rest - 1);
        const auto first = static_cast<value>(rest & -rest);
        queue &= static_cast<value>(~first);
        return first;
    }

    program lock_steps(unsigned me) {
        const value my_bit = static_cast<value>(1u << me);
        return {
            {"L1", "CAS, sets locked", [this](turn& t) {
                if (!take(t, false, false)) return;
                get_in(t);
                t.go("in");
            }},
            {"L3", "lock the bucket", [this](turn& t) { t.lock(bucket_); }},
            {"L4", "watched?", [this](turn& t) {
                if (t.load(watched_) != 0) t.go("L5");
            }},
            {"L4w", "watched = 1", [this](turn& t) { t.store(watched_, 1); }},
            {"L4b", "heavy barrier", [this](turn& t) { c_.symmetric ? t.fence() : t.heavy_barrier(); }},
            {"L5", "CAS, sets locked", [this](turn& t) {
                if (!take(t, t.local(was_woken) != 0, true)) return t.go("L6");
                get_in(t);
            }},
            {"L5u", "unlock the bucket", [this](turn& t) {
                t.unlock(bucket_);
                t.go("in");
            }},
            {"L6", "queue, unlock the bucket", [=, this](turn& t) {
                t.guarded(queue_) |= my_bit;
                t.guarded(asleep_) |= my_bit;
                t.unlock(bucket_);
            }},
            {"L7", "woken", [=, this](turn& t) {
                if (t.guarded(asleep_) & my_bit) return t.block();
                if ((t.guarded(granted_) & my_bit) == 0) return;
                t.guarded(granted_) &= static_cast<value>(~my_bit);
                get_in(t);
                t.go("in");
            }},
            {"L7c", "CAS, sets locked", [this](turn& t) {
                t.local(was_woken) = 1;
                if (!take(t, true, false)) return t.go("L3");
                get_in(t);
            }},
            {"in", "read what it guards", [this](turn& t) { t.local(seen) = t.load(data_); }},
            {"inw", "and write", [this](turn& t) {
                t.store(data_, static_cast<value>(t.local(seen) + 1));
                t.local(seen) = 0;
            }},
        };
    }

    // In the same step as an access that is made with the bucket locked: found no waiter.
    void maybe_clear(turn& t, const char* then) {
        if (c_.clears && (t.guarded(queue_) == 0 || c_.clears_always) && t.way(2) == 1) return t.go("clear");
        t.go(then);
    }

    program unlock_steps() {
        program p = {
            {"U1", "watched?", [this](turn& t) {
                if (t.load(watched_) != 0) t.go("U6");
            }},
            {"U2", "word = 0 (release)", [this](turn& t) {
                --t.guarded(owners_);
                c_.relaxed_unlock ? t.store(word_, 0) : t.store_release(word_, 0);
            }},
        };
        if (c_.symmetric) p += {{"U3", "fence", [](turn& t) { t.fence(); }}};
        p += {
            {"U4", "watched?",
                [this](turn& t) {
                    if (t.load(watched_) == 0 || !c_.looks_after) t.go("next");
                }},
            {"U5", "lock the bucket", [this](turn& t) { t.lock(bucket_); }},
            {"U5q", "anybody?",
                [this](turn& t) {
                    if (t.guarded(queue_) == 0 || c_.clears_always)
                        maybe_clear(t, t.guarded(queue_) == 0 ? "unlock" : "U5c");
                }},
            {"U5c", "CAS 0 -> woken, take one off",
                [this](turn& t) {
                    if (!t.cas(word_, 0, woken)) return t.go("unlock");
                    t.local(chosen) = pop(t, t.way(static_cast<unsigned>(std::popcount(t.guarded(queue_)))));
                    t.go("wake");
                }},
            {"U6", "CAS locked|woken -> woken (release)",
                [this](turn& t) {
                    if (c_.plain_u6 ? t.load(word_) != (locked | woken) : !t.cas(word_, locked | woken, woken))
                        return t.go("U7");
                    if (c_.plain_u6) return;
                    --t.guarded(owners_);
                    t.go("next");
                }},
            {"U6s", "word = woken (release)",
                [this](turn& t) {
                    --t.guarded(owners_);
                    t.store_release(word_, woken);
                    t.go("next");
                }},
            {"U7", "lock the bucket", [this](turn& t) { t.lock(bucket_); }},
            {"U7q", "anybody? starving?",
                [this](turn& t) {
                    if (t.guarded(queue_) == 0) return t.go("U7n");
                    if (t.way(2) == 0) return;
                    t.go("U7h");
                }},
            {"U7w", "take one off, word = woken (release)",
                [this](turn& t) {
                    t.local(chosen) = pop(t, t.way(static_cast<unsigned>(std::popcount(t.guarded(queue_)))));
                    --t.guarded(owners_);
                    t.store_release(word_, woken);
                    t.go("wake");
                }},
            {"U7h", "take one off, who owns it now",
                [this](turn& t) {
                    t.local(chosen) = pop(t, t.way(static_cast<unsigned>(std::popcount(t.guarded(queue_)))));
                    --t.guarded(owners_);
                    t.guarded(granted_) |= t.local(chosen);
                    t.go("wake");
                }},
            {"U7n", "word = 0 (release)",
                [this](turn& t) {
                    --t.guarded(owners_);
                    t.store_release(word_, 0);
                }},
            {"U7m", "clear?", [this](turn& t) { maybe_clear(t, "unlock"); }},
            {"clear", "watched = 0", [this](turn& t) { t.store(watched_, 0); }},
            {"unlock", "unlock the bucket",
                [this](turn& t) {
                    t.unlock(bucket_);
                    t.go("next");
                }},
            {"wake", "unlock the bucket", [this](turn& t) { t.unlock(bucket_); }},
            {"wakeup", "wake",
                [this](turn& t) {
                    t.fence();
                    t.guarded(asleep_) &= static_cast<value>(~t.local(chosen));
                    t.local(chosen) = 0;
                }},
            {"next", "again?", [this](turn& t) { ++t.local(round) < c_.rounds ? t.go("L1") : t.end(); }},
        };
        return p;
    }

    const config c_;
    cell word_, watched_, bucket_, queue_, asleep_, granted_, owners_, data_;

public:
    protocol model;
};

testing::AssertionResult is_a_mutex(const config& c) { return holds(mutex_model(c).model); }
testing::AssertionResult fails(const config& c, const char* how) { return breaks(mutex_model(c).model, how); }

TEST(MutexModel, OneOwnerAtATimeAndNoWaiterIsForgotten) {
    for (const memory mem : {memory::sequential, memory::tso, memory::weak}) {
        for (const bool symmetric : {false, true}) {
            EXPECT_TRUE(is_a_mutex({.threads = 2, .rounds = 2, .mem = mem, .symmetric = symmetric}));
        }
    }
}

TEST(MutexModel, ThreeThreadsExcludeEachOther) {
    EXPECT_TRUE(is_a_mutex({.threads = 3, .rounds = 2, .mem = memory::sequential}));
    EXPECT_TRUE(is_a_mutex({.threads = 3, .rounds = 1, .mem = memory::weak}));
    EXPECT_TRUE(is_a_mutex({.threads = 3, .rounds = 2}));
}

// The unlock is still in its thread's buffer, and that thread has already seen that `watched` is 0.
TEST(MutexModel, WithoutTheHeavyBarrierL4AWaiterIsForgotten) { EXPECT_TRUE(fails({.without = {"L4b"}}, forgotten)); }

TEST(MutexModel, WithoutTheLookAfterTheUnlockU4AWaiterIsForgotten) {
    EXPECT_TRUE(fails({.looks_after = false}, forgotten));
}

// The woken waiter may have looked for the last time in between.
TEST(MutexModel, ThatAWaiterIsWokenMustBeTrueInTheSameStepAsTheReleaseU6) {
    EXPECT_TRUE(fails({.threads = 3, .rounds = 2, .plain_u6 = true}, forgotten));
}

TEST(MutexModel, WatchedIsNotClearedWhileAWaiterQueues) {
    EXPECT_TRUE(fails({.threads = 3, .rounds = 2, .clears_always = true}, forgotten));
}

TEST(MutexModel, WithoutMembarrierTheFenceU3IsNeeded) {
    EXPECT_TRUE(fails({.symmetric = true, .without = {"U3"}}, forgotten));
}

TEST(MutexModel, TheUnlockReleases) { EXPECT_TRUE(fails({.mem = memory::weak, .relaxed_unlock = true}, lost_update)); }

}  // namespace
