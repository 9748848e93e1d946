// biased_lock_model_test.cpp - the lock of park/biased_lock.h, which is taken with plain stores by the processor that
// it is biased to, in every interleaving. The lock below it is a lock here (lock_model_test.cpp looks into that one).
// After how many times on end a bias is given is the start's to say: one or two here. That it takes longer after each
// time it was taken away is left out: it is time.
#include "model/explorer.h"

namespace {

using namespace model;

constexpr unsigned plain = 0;  // a thread without processor
constexpr value sometimes = 2;

// One thread. Two with the same processor are two machines that have it in turn.
struct party {
    unsigned processor = plain;
    unsigned rounds = 1;
    // it takes locks first .. last, in this order, each in the place of that number, and is in all of them at the end
    unsigned first = 0, last = 0;
    value without_place = 0;       // 1: as one whose places are all in use; sometimes: now so, now so
};

struct config {
    std::vector<party> parties = {{.processor = 1, .rounds = 3}, {.processor = 2, .rounds = 2}};
    memory mem = memory::tso;
    unsigned bias_after = 1;         // as often as this after the first time
    unsigned biased_to = 0;          // from the start: every lock
    bool symmetric = false;          // no membarrier: B2 is a fence, and R3 one in the taker only
    bool second_look = true;         // B3
    bool late_section = false;       // B1 after B3
    bool late_bias_end = false;      // R2 after R4
    bool first_place_only = false;   // R4 looks at one section
    bool shared_place = false;       // all sections of a processor in one place
    bool relaxed_leave = false;      // the end of a section does not release
    std::vector<const char*> without = {};
};

constexpr const char* two_owners = "two threads own the lock";
constexpr const char* lost_update = "an owner did not see what the last one had written";
constexpr const char* forgotten = "a thread waits for ever";
constexpr const char* still_inside = "a processor is in a section in the end";

class biased_model {
public:
    explicit biased_model(const config& c) : c_(c), model(c.mem) {
        ended_ = model.make("(ended)");
        processors_ = c.biased_to;
        for (const party& p : c.parties)
            locks_ = std::max(locks_, p.last + 1), processors_ = std::max(processors_, p.processor);
        for (unsigned i = 0; i < locks_; ++i) {
            const std::string n = locks_ == 1 ? "" : std::string(1, static_cast<char>('A' + i)) + ".";
            l_.push_back({model.make(n + "bias", static_cast<value>(c.biased_to)), model.make(n + "lock"),
                model.make(n + "last"), model.make(n + "on_end"), model.make("(owners of " + n + ")"),
                model.make(n + "data"), model.make("(sections of " + n + ")")});
        }
        for (unsigned p = 1; p <= processors_; ++p) {
            const std::string n = "P" + std::to_string(p);
            for (unsigned i = 0; i < locks_; ++i) sections_.push_back(model.make(n + " section " + std::to_string(i)));
            taken_.push_back(model.make(n + " has a machine"));
        }
        for (unsigned i = 0; i < c.parties.size(); ++i) {
            const unsigned p = c.parties[i].processor;
            program steps = thread_steps(c.parties[i]);
            for (const char* label : c.without) {
                // Plain threads have no B.
                if (label[0] != 'B' || p != plain) steps = steps.without(label);
            }
            model.thread((p == plain ? "thread " : "P" + std::to_string(p) + " machine ") + std::to_string(i), steps);
        }
        model.at_rest([this](const view& v) {
            if (v[ended_] != c_.parties.size()) return forgotten;
            for (const lock_cells& l : l_) {
                if (v[l.data] != v[l.count]) return lost_update;
                if (v[l.below] != 0) return "the lock below is held in the end";
            }
            for (const cell s : sections_) {
                if (v[s] != 0) return still_inside;
            }
            return "";
        });
    }

private:
    struct lock_cells {
        cell bias, below;   // the protocol's
        cell last, on_end;  // guarded by `below`
        cell owners, data, count;
    };
    enum { round, which, from, place, seen };

    const lock_cells& at(turn& t) const { return l_[t.local(which)]; }
    cell section_of(unsigned processor, unsigned i) const {
        return sections_[(processor - 1) * locks_ + (c_.shared_place ? 0 : i)];
    }
    static value name_of_lock(turn& t) { return static_cast<value>(t.local(which) + 1); }

    void get_in(turn& t) {
        if (t.guarded(at(t).owners)++ != 0) t.fail(two_owners);
        ++t.guarded(at(t).count);
        t.go("in");
    }

    // Does this processor have several machines?
    bool in_turn(unsigned processor) const {
        return processor != plain && std::count_if(c_.parties.begin(), c_.parties.end(),
                                         [=](const party& p) { return p.processor == processor; }) > 1;
    }

    program thread_steps(const party& me) {
        const unsigned p = me.processor;
        program all;
        if (in_turn(p)) all += {{"", "gets the processor (acquire)", [=, this](turn& t) { t.lock(taken_[p - 1]); }}};
        all += {{"lock", "", [=](turn& t) {
            if (p == plain) return t.go("R1");
            const bool no_place = me.without_place == sometimes ? t.way(2) == 1 : me.without_place != 0;
            if (no_place) t.go("R1");
        }}};
        if (p != plain) all += enter_steps(p);
        all += slow_steps(p);
        all += inside_steps(me);
        all += {{"next", "again?", [=](turn& t) {
            t.local(seen) = 0;
            t.local(which) = static_cast<value>(me.first);
            if (++t.local(round) < me.rounds) return t.go("lock");
            t.go("end");
        }}};
        all += {{"end", "", [=, this](turn& t) {
            if (in_turn(p)) t.unlock(taken_[p - 1]);
            ++t.guarded(ended_);
            t.end();
        }}};
        if (me.first != 0) {
            all.insert(all.begin(), {"", "", [=](turn& t) { t.local(which) = static_cast<value>(me.first); }});
        }
        return all;
    }

    program enter_steps(unsigned p) {
        const auto in_section = [=, this](turn& t) { t.store(section_of(p, t.local(which)), name_of_lock(t)); };
        program look = {{"", "bias is this processor? (first look)", [=, this](turn& t) {
            if (t.load(at(t).bias) != p) t.go("R1");
        }}};
        if (c_.late_section) {
            return look += {
                {"B3", "bias is this processor?", [=, this](turn& t) {
                    if (t.load(at(t).bias) != p) t.go("R1");
                }},
                {"B1", "section = this", [=, this](turn& t) {
                    in_section(t);
                    get_in(t);
                }},
            };
        }
        look += {{"B1", "section = this", in_section}};
        if (c_.symmetric) look += {{"B2", "fence", [](turn& t) { t.fence(); }}};
        return look += {
            {"B3", "bias is this processor?", [=, this](turn& t) {
                if (!c_.second_look || t.load(at(t).bias) == p) get_in(t);
            }},
            {"", "section = null", [=, this](turn& t) { t.store(section_of(p, t.local(which)), 0); }},
        };
    }

    // lock_slow(), revoke() and consider_bias().
    program slow_steps(unsigned p) {
        const step end_bias = {"R2", "bias = null", [this](turn& t) { t.store(at(t).bias, 0); }};
        program all = {
            {"R1", "lock the lock below", [this](turn& t) { t.lock(at(t).below); }},
            {"", "bias?", [=, this](turn& t) {
                const value biased = t.load(at(t).bias);
                if (biased == 0) return t.go("give");
                if (biased == p) return get_in(t);
                t.local(from) = biased;
            }},
        };
        if (!c_.late_bias_end) all += {end_bias};
        all += {
            {"R3", "heavy barrier", [this](turn& t) { c_.symmetric ? t.fence() : t.heavy_barrier(); }},
            {"R4", "one of its sections is this one?", [this](turn& t) {
                if (t.load(section_of(t.local(from), t.local(place))) == name_of_lock(t)) return t.go("R4");
                if (++t.local(place) < locks_ && !c_.first_place_only) t.go("R4");
            }},
        };
        if (c_.late_bias_end) all += {end_bias};
        return all += {
            {"", "last = null, on_end = 0", [this](turn& t) {
                t.local(from) = t.local(place) = 0;
                t.guarded(at(t).last) = t.guarded(at(t).on_end) = 0;
                get_in(t);
            }},
            {"give", "so many times on end: bias = this processor", [=, this](turn& t) {
                get_in(t);
                if (t.guarded(at(t).last) != p) {
                    t.guarded(at(t).last) = static_cast<value>(p);
                    t.guarded(at(t).on_end) = 0;
                } else if (p != plain && ++t.guarded(at(t).on_end) >= c_.bias_after) {
                    t.guarded(at(t).on_end) = 0;
                    t.store(at(t).bias, static_cast<value>(p));
                }
            }},
        };
    }

    program inside_steps(const party& me) {
        const unsigned p = me.processor;
        program all = {
            {"in", "read what it guards", [this](turn& t) { t.local(seen) = t.load(at(t).data); }},
            {"", "and write", [=, this](turn& t) {
                t.store(at(t).data, static_cast<value>(t.local(seen) + 1));
                t.local(seen) = 0;
                if (t.local(which) == me.last) return;
                ++t.local(which);  // and the next one inside it
                t.go("lock");
            }},
        };
        if (p != plain) {
            all += {
                {"leave", "section is this one?", [=, this](turn& t) {
                    if (t.load(section_of(p, t.local(which))) != name_of_lock(t)) t.go("unlock");
                }},
                {"", "section = null (release)", [=, this](turn& t) {
                    --t.guarded(at(t).owners);
                    const cell s = section_of(p, t.local(which));
                    c_.relaxed_leave ? t.store(s, 0) : t.store_release(s, 0);
                    outwards(t, me);
                }},
            };
        } else {
            all += {{"leave", "", [](turn&) {}}};
        }
        all += {{"unlock", "unlock the lock below", [=, this](turn& t) {
            --t.guarded(at(t).owners);
            t.unlock(at(t).below);
            outwards(t, me);
        }}};
        return all;
    }

    static void outwards(turn& t, const party& me) {
        if (t.local(which) == me.first) return t.go("next");
        --t.local(which);
        t.go("leave");
    }

    const config c_;
    unsigned locks_ = 0, processors_ = 0;
    cell ended_;
    std::vector<lock_cells> l_;
    std::vector<cell> sections_;
    std::vector<cell> taken_;

public:
    protocol model;
};

constexpr memory every_memory[] = {memory::sequential, memory::tso, memory::weak};

testing::AssertionResult is_a_lock(const config& c) { return holds(biased_model(c).model); }
testing::AssertionResult fails(const config& c, const char* how) { return breaks(biased_model(c).model, how); }

// One that has the bias, and one that takes it away.
const std::vector<party> two = {{.processor = 1, .rounds = 2}, {.processor = 2, .rounds = 1}};
const std::vector<party> with_thread = {{.processor = 1, .rounds = 2}, {.rounds = 1}};

TEST(BiasedLockModel, OneOwnerAtATimeAndNoThreadWaitsForEver) {
    for (const memory mem : every_memory) {
        for (const bool symmetric : {false, true}) {
            EXPECT_TRUE(is_a_lock({.parties = {{.processor = 1, .rounds = 5}, {.processor = 2, .rounds = 5}},
                .mem = mem,
                .symmetric = symmetric}));
            EXPECT_TRUE(is_a_lock(
                {.parties = {{.processor = 1, .rounds = 5}, {.rounds = 3}}, .mem = mem, .symmetric = symmetric}));
            EXPECT_TRUE(is_a_lock({.parties = {{.processor = 1, .rounds = 3}, {.processor = 2, .rounds = 2}, {}},
                .mem = mem,
                .symmetric = symmetric}));
        }
    }
    EXPECT_TRUE(
        is_a_lock({.parties = {{.processor = 1, .rounds = 4}, {.processor = 2, .rounds = 4}}, .bias_after = 2}));
    EXPECT_TRUE(is_a_lock({.parties = {{.processor = 1, .rounds = 3}, {.processor = 2, .rounds = 3}, {.rounds = 2}}}));
    EXPECT_TRUE(is_a_lock(
        {.parties = {{.processor = 1, .rounds = 2}, {.processor = 2, .rounds = 2}, {.processor = 3, .rounds = 2}, {}},
            .biased_to = 1}));
}

// The bias is the processor's, not the machine's.
TEST(BiasedLockModel, TheProcessorMayGoToAnotherMachineBetweenTwoSections) {
    for (const memory mem : every_memory) {
        EXPECT_TRUE(is_a_lock(
            {.parties = {{.processor = 1, .rounds = 3}, {.processor = 1, .rounds = 3}, {.processor = 2, .rounds = 2}},
                .mem = mem}));
        EXPECT_TRUE(is_a_lock(
            {.parties = {{.processor = 1}, {.processor = 1}, {.processor = 2}, {}}, .mem = mem, .biased_to = 1}));
    }
}

TEST(BiasedLockModel, SeveralAtOnceInTheOrderInWhichEveryThreadTakesThem) {
    const party both = {.processor = 1, .rounds = 3, .first = 0, .last = 1};
    for (const memory mem : every_memory) {
        for (const unsigned biased_to : {0u, 1u, 2u}) {
            EXPECT_TRUE(is_a_lock({.parties = {both, {.processor = 2, .rounds = 3, .first = 0, .last = 1}},
                .mem = mem,
                .biased_to = biased_to}));
            EXPECT_TRUE(is_a_lock({.parties = {both, {.processor = 2, .rounds = 2, .first = 1, .last = 1}},
                .mem = mem,
                .biased_to = biased_to}));
            EXPECT_TRUE(is_a_lock({.parties = {both, {.processor = 2, .rounds = 2, .first = 0, .last = 0}},
                .mem = mem,
                .biased_to = biased_to}));
            EXPECT_TRUE(is_a_lock(
                {.parties = {both, {.rounds = 1, .first = 0, .last = 1}}, .mem = mem, .biased_to = biased_to}));
        }
    }
}

// A machine all of whose places are in use takes the lock below, its processor's bias or not.
TEST(BiasedLockModel, AMachineWithoutAFreePlaceTakesTheLockBelow) {
    for (const memory mem : every_memory) {
        EXPECT_TRUE(is_a_lock(
            {.parties = {{.processor = 1, .rounds = 4, .without_place = sometimes}, {.processor = 2, .rounds = 2}},
                .mem = mem}));
        EXPECT_TRUE(is_a_lock({.parties = {{.processor = 1, .rounds = 3, .without_place = sometimes}, {.rounds = 2}},
            .mem = mem,
            .biased_to = 1}));
    }
}

// The section is still in its machine's buffer when R4 looks for it.
TEST(BiasedLockModel, WithoutTheHeavyBarrierR3BothGoIn) {
    for (const auto& parties : {two, with_thread}) {
        EXPECT_TRUE(fails({.parties = parties, .biased_to = 1, .without = {"R3"}}, two_owners));
        EXPECT_TRUE(fails({.parties = parties, .mem = memory::weak, .biased_to = 1, .without = {"R3"}}, two_owners));
        EXPECT_TRUE(fails({.parties = parties, .biased_to = 1, .symmetric = true, .without = {"R3"}}, two_owners));
        EXPECT_TRUE(is_a_lock({.parties = parties, .mem = memory::sequential, .biased_to = 1, .without = {"R3"}}));
    }
    EXPECT_TRUE(fails({.without = {"R3"}}, two_owners));
}

// The bias was taken away between the first look and B1.
TEST(BiasedLockModel, WithoutTheSecondLookB3BothGoIn) {
    for (const auto& parties : {two, with_thread}) {
        EXPECT_TRUE(
            fails({.parties = parties, .mem = memory::sequential, .biased_to = 1, .second_look = false}, two_owners));
        EXPECT_TRUE(fails({.parties = parties, .biased_to = 1, .second_look = false}, two_owners));
    }
}

TEST(BiasedLockModel, ATakerThatDoesNotWaitR4ForTheEndOfTheSectionGoesIntoIt) {
    for (const auto& parties : {two, with_thread}) {
        EXPECT_TRUE(
            fails({.parties = parties, .mem = memory::sequential, .biased_to = 1, .without = {"R4"}}, two_owners));
        EXPECT_TRUE(fails({.parties = parties, .biased_to = 1, .without = {"R4"}}, two_owners));
    }
}

TEST(BiasedLockModel, AMachineThatLooksB3BeforeItSaysThatItIsInsideB1IsNotSeen) {
    for (const auto& parties : {two, with_thread}) {
        EXPECT_TRUE(
            fails({.parties = parties, .mem = memory::sequential, .biased_to = 1, .late_section = true}, two_owners));
        EXPECT_TRUE(fails({.parties = parties, .biased_to = 1, .late_section = true}, two_owners));
    }
}

TEST(BiasedLockModel, AMachineThatDoesNotSayB1ThatItIsInsideIsNotSeen) {
    EXPECT_TRUE(fails({.parties = two, .mem = memory::sequential, .biased_to = 1, .without = {"B1"}}, two_owners));
}

TEST(BiasedLockModel, TheBiasEndsR2BeforeTheTakerLooksForTheSection) {
    EXPECT_TRUE(fails({.parties = two, .mem = memory::sequential, .biased_to = 1, .without = {"R2"}}, two_owners));
    EXPECT_TRUE(fails({.parties = two, .mem = memory::sequential, .biased_to = 1, .late_bias_end = true}, two_owners));
    EXPECT_TRUE(fails({.parties = two, .biased_to = 1, .late_bias_end = true}, two_owners));
}

TEST(BiasedLockModel, EveryPlaceIsLookedAt) {
    const std::vector<party> inner = {
        {.processor = 1, .rounds = 1, .first = 0, .last = 1}, {.processor = 2, .rounds = 1, .first = 1, .last = 1}};
    EXPECT_TRUE(
        fails({.parties = inner, .mem = memory::sequential, .biased_to = 1, .first_place_only = true}, two_owners));
}

// The end of the inner one would be the end of the outer one.
TEST(BiasedLockModel, EachNeedsAPlaceOfItsOwn) {
    const std::vector<party> outer = {
        {.processor = 1, .rounds = 1, .first = 0, .last = 1}, {.processor = 2, .rounds = 1, .first = 0, .last = 0}};
    EXPECT_TRUE(fails({.parties = outer, .mem = memory::sequential, .biased_to = 1, .shared_place = true}, two_owners));
}

TEST(BiasedLockModel, WithoutMembarrierTheFenceB2IsNeeded) {
    EXPECT_TRUE(fails({.parties = two, .biased_to = 1, .symmetric = true, .without = {"B2"}}, two_owners));
    EXPECT_TRUE(
        is_a_lock({.parties = two, .mem = memory::sequential, .biased_to = 1, .symmetric = true, .without = {"B2"}}));
}

TEST(BiasedLockModel, TheEndOfASectionReleases) {
    EXPECT_TRUE(fails({.parties = two, .mem = memory::weak, .biased_to = 1, .relaxed_leave = true}, lost_update));
    EXPECT_TRUE(is_a_lock({.parties = two, .mem = memory::tso, .biased_to = 1, .relaxed_leave = true}));
}

TEST(BiasedLockModel, EveryStepHappens) {
    EXPECT_EQ(never_made(biased_model({}).model, biased_model({.parties = with_thread, .biased_to = 1}).model),
        std::set<std::string>());
}

}  // namespace
