// mortal_lock_model_test.cpp - the lock of platform/mortal_lock.h in every interleaving, and that nobody touches it after its end: each thread has it so many
// times, and whoever sees that all have had it destroys it. L1 and L2 are one step here: try, and go on waiting.
#include <bit>

#include "model/explorer.h"

namespace {

using namespace model;

struct config {
    unsigned threads = 2;
    unsigned rounds = 1;  // of lock and unlock, each
    memory mem = memory::tso;
    bool keep_mark = false;   // L4 and L5 leave "on the way" as it is
    bool look_after = false;  // U2 gives the lock away, and looks for sleepers in a later step
    std::vector<const char*> without = {};
};

constexpr const char* two_owners = "two threads own the lock";
constexpr const char* forgotten = "a thread sleeps for ever";
constexpr const char* lost_update = "an owner did not see what the last one had written";
constexpr const char* touched = "the lock was touched after its end";

class mortal_lock_model {
public:
    explicit mortal_lock_model(const config& c) : c_(c), model(c.mem) {
        word_ = model.make("word");
        owners_ = model.make("(owners)");
        asleep_ = model.make("(asleep)");
        ended_ = model.make("(ended)");
        data_ = model.make("data");
        for (unsigned i = 0; i < c.threads; ++i) {
            program steps = thread_steps(i);
            for (const char* label : c.without) steps = steps.without(label);
            model.thread("thread " + std::to_string(i), steps);
        }
        model.at_rest([this](const view& v) {
            if (v[asleep_] != 0) return forgotten;
            if (v[data_] != c_.threads * c_.rounds) return lost_update;
            return v[word_] != 0 ? "the lock is not free in the end" : "";
        });
    }

private:
    enum { round, seen, wakes };

    static constexpr value held = 1, on_the_way = 2, one_waiter = 4;

    // Any access to the lock.
    void touch(turn& t) {
        if (t.guarded(ended_) != 0) t.fail(touched);
    }

    // A read-modify-write of the word, or only a load.
    template <class Change>
    bool change(turn& t, Change f) {
        touch(t);
        return t.update(word_, f);
    }

    void get_in(turn& t) {
        if (t.guarded(owners_)++ != 0) t.fail(two_owners);
    }

    program thread_steps(unsigned me) {
        const value my_bit = static_cast<value>(1u << me);
        program p = {
            {"L1", "CAS -> held", [this](turn& t) {
                const bool mine = change(t, [](value old) { return (old & held) == 0 ? std::optional<value>(static_cast<value>(old | held)) : std::nullopt; });
                if (!mine) return;
                get_in(t);
                t.go("in");
            }},
            {"L3", "count += 1", [this](turn& t) { change(t, [](value old) { return std::optional<value>(static_cast<value>(old + one_waiter)); }); }},
            {"L4", "not held: have it; held: mark -> 0", [this](turn& t) {
                bool mine = false;
                change(t, [&](value old) {
                    mine = (old & held) == 0;
                    const value unwants_a_wake = static_cast<value>(c_.keep_mark ? old : old & ~on_the_way);
                    t.local(seen) = static_cast<value>(mine ? (unwants_a_wake | held) - one_waiter : unwants_a_wake);
                    return std::optional<value>(t.local(seen));
                });
                if (!mine) return;
                get_in(t);
                t.go("in");
            }},
            {"L5", "the word is as remembered: sleep", [=, this](turn& t) {
                touch(t);
                if (t.load_in_kernel(word_) != t.local(seen)) return t.go("L4");
                t.guarded(asleep_) |= my_bit;
            }},
            {"L5'", "woken", [=, this](turn& t) {
                if (t.guarded(asleep_) & my_bit) return t.block();
                t.go("L4");
            }},
            {"in", "read what it guards", [this](turn& t) { t.local(seen) = t.load(data_); }},
            {"", "and write", [this](turn& t) {
                t.store(data_, static_cast<value>(t.local(seen) + 1));
                t.local(wakes) = t.local(seen) + 1u == c_.threads * c_.rounds ? 2 : 0;  // 2: the last one
                t.local(seen) = 0;
            }},
        };
        p += give_away();
        p += {
            {"U3", "wake one", [this](turn& t) {
                if ((t.local(wakes) & 1) == 0) return t.go("next");
                value& list = t.guarded(asleep_);
                if (list == 0) return;
                value rest = list;
                for (unsigned skip = t.way(static_cast<unsigned>(std::popcount(list))); skip != 0; --skip) rest &= static_cast<value>(rest - 1);
                list &= static_cast<value>(~(rest & -rest));
            }},
            {"next", "again? all had it: destroy", [this](turn& t) {
                if (t.local(wakes) & 2) t.guarded(ended_) = 1;
                t.local(wakes) = 0;
                ++t.local(round) < c_.rounds ? t.go("L1") : t.end();
            }},
        };
        return p;
    }

    program give_away() {
        const auto wants_a_wake = [](value old) { return (old & on_the_way) == 0 && old >= one_waiter; };
        if (c_.look_after) {
            return {
                {"U2", "not held", [this](turn& t) {
                    --t.guarded(owners_);
                    change(t, [](value old) { return std::optional<value>(static_cast<value>(old & ~held)); });
                }},
                {"U2'", "somebody to wake?", [=, this](turn& t) {
                    const bool wake = change(t, [=](value old) {
                        return wants_a_wake(old) ? std::optional<value>(static_cast<value>(old | on_the_way)) : std::nullopt;
                    });
                    t.local(wakes) = static_cast<value>((t.local(wakes) & 2) | wake);
                }},
            };
        }
        return {{"U2", "not held, perhaps on the way = 1", [=, this](turn& t) {
            --t.guarded(owners_);
            change(t, [&](value old) {
                t.local(wakes) = static_cast<value>((t.local(wakes) & 2) | wants_a_wake(old));
                return std::optional<value>(static_cast<value>((old & ~held) | (wants_a_wake(old) ? on_the_way : 0)));
            });
        }}};
    }

    const config c_;
    cell word_, owners_, asleep_, ended_, data_;

public:
    protocol model;
};

testing::AssertionResult is_a_lock(const config& c) { return holds(mortal_lock_model(c).model); }
testing::AssertionResult fails(const config& c, const char* how) { return breaks(mortal_lock_model(c).model, how); }

TEST(MortalLockModel, OneOwnerAtATimeNoSleeperIsForgottenAndNobodyComesAfterItsEnd) {
    for (const memory mem : {memory::sequential, memory::tso, memory::weak}) {
        EXPECT_TRUE(is_a_lock({.threads = 2, .rounds = 3, .mem = mem}));
        EXPECT_TRUE(is_a_lock({.threads = 3, .rounds = 2, .mem = mem}));
    }
    EXPECT_TRUE(is_a_lock({.threads = 4, .mem = memory::sequential}));
}

TEST(MortalLockModel, ASleeperThatDoesNotCountItselfL3IsForgotten) { EXPECT_TRUE(fails({.without = {"L3"}}, forgotten)); }

TEST(MortalLockModel, TheMarkMustBeClearedL4) { EXPECT_TRUE(fails({.threads = 3, .rounds = 2, .keep_mark = true}, forgotten)); }

TEST(MortalLockModel, WhoeverLooksForSleepersAfterwardsTouchesADestroyedLockU2) {
    EXPECT_TRUE(fails({.look_after = true}, touched));
    EXPECT_TRUE(fails({.mem = memory::sequential, .look_after = true}, touched));
}

TEST(MortalLockModel, EveryStepHappens) { EXPECT_EQ(never_made(mortal_lock_model({.threads = 3}).model), std::set<std::string>()); }

}  // namespace
