// run_queue_model_test.cpp - the word of sched/data/run_queue.h with two or four slots instead of 256: an owner that
// does everything an owner can, in any order, against thieves, in every interleaving. Each goroutine is taken exactly
// once.
#include "model/explorer.h"

namespace {

using namespace model;

struct config {
    unsigned capacity = 2;
    unsigned operations = 4;  // of the owner: each one is a push, a pop, a pop of the youngest, or a rotation
    unsigned thieves = 1;
    unsigned thefts = 1;      // of each thief
    memory mem = memory::tso;
    bool version = true;
    bool slot_after_word = false;      // push: the word first, then the slot
    bool read_after_claim = false;     // take_half: the word first, then the slots
};

constexpr const char* twice = "a goroutine was taken twice";
constexpr const char* nothing = "an empty slot was taken";

class run_queue_model {
public:
    explicit run_queue_model(const config& c) : c_(c), model(c.mem) {
        word_ = model.make("word");
        for (unsigned i = 0; i < c.capacity; ++i) slots_.push_back(model.make("slot" + std::to_string(i)));
        pushed_ = model.make("(pushed)");
        taken_ = model.make("(taken)");
        model.thread("owner", owner_steps());
        for (unsigned i = 0; i < c.thieves; ++i) model.thread("thief " + std::to_string(i), thief_steps());
        model.at_rest([this](const view& v) {
            unsigned there = v[taken_];
            for (unsigned i = 0; i < size(v[word_]); ++i) there |= 1u << v[slots_[(head(v[word_]) + i) % c_.capacity]];
            return there == (2u << v[pushed_]) - 2 ? "" : "a goroutine was lost";
        });
    }

private:
    // version:10 | size:3 | head:3
    static unsigned head(value w) { return w & 7; }
    static unsigned size(value w) { return w >> 3 & 7; }
    value changed(value w, int heads, int sizes, bool taken) const {
        const unsigned version = static_cast<unsigned>(w >> 6) + (taken && c_.version ? 1 : 0);
        return static_cast<value>(version << 6 | (size(w) + static_cast<unsigned>(sizes)) << 3 |
                                  (head(w) + static_cast<unsigned>(heads)) % c_.capacity);
    }
    value with_one_more(value w) const { return changed(w, 0, 1, false); }
    value without_oldest(value w, unsigned n) const {
        return changed(w, static_cast<int>(n), -static_cast<int>(n), true);
    }
    value without_youngest(value w) const { return changed(w, 0, -1, true); }

    // compare_exchange on the word as the code has it: on failure `local(i)` is what is there.
    bool swing(turn& t, unsigned i, value next) {
        const value expected = t.local(i);
        return t.update(word_, [&](value now) {
            t.local(i) = now;
            return now == expected ? std::optional<value>(next) : std::nullopt;
        });
    }

    void take(turn& t, value g) {
        if (g == 0) t.fail(nothing);
        if (t.guarded(taken_) >> g & 1) t.fail(twice);
        t.guarded(taken_) |= static_cast<value>(1u << g);
    }

    enum { word, operations, first, second, index };

    cell tail(value w) const { return slots_[(head(w) + size(w)) % c_.capacity]; }

    program owner_steps() {
        program p = {
            {"next", "chooses what to do", [this](turn& t) {
                t.local(word) = t.local(first) = 0;
                if (t.local(operations)++ == c_.operations) return t.end();
                constexpr const char* what[] = {"push", "pop", "last", "turn"};
                t.go(what[t.way(4)]);
            }},
            {"push", "read the word", [this](turn& t) {
                t.local(word) = t.load(word_);
                t.local(first) = static_cast<value>(t.guarded(pushed_) + 1);
                if (size(t.local(word)) == c_.capacity) t.go("next");
            }},
        };
        const step slot = {"slot", "write the slot", [this](turn& t) { t.store(tail(t.local(word)), t.local(first)); }};
        // The word has changed by a CAS: the slot of the one before.
        const step late = {"", "write the slot", [this](turn& t) {
            t.store(tail(t.local(word)), t.local(first));
            t.go("next");
        }};
        const step swing_in = {"", "CAS the word: one more", [this](turn& t) {
            if (!swing(t, word, with_one_more(t.local(word)))) return t.go("slot");
            ++t.guarded(pushed_);
            if (!c_.slot_after_word) t.go("next");
        }};
        if (c_.slot_after_word) {
            p += {{"slot", "", [](turn&) {}}, swing_in, late};
        } else {
            p += {slot, swing_in};
        }
        p += {
            {"pop", "read the word", [this](turn& t) { t.local(word) = t.load(word_); }},
            {"pop2", "read the oldest slot", [this](turn& t) {
                if (size(t.local(word)) == 0) return t.go("next");
                t.local(first) = t.load(slots_[head(t.local(word))]);
            }},
            {"", "CAS the word: without the oldest", [this](turn& t) {
                if (!swing(t, word, without_oldest(t.local(word), 1))) return t.go("pop2");
                take(t, t.local(first));
                t.go("next");
            }},
            {"last", "read the word", [this](turn& t) { t.local(word) = t.load(word_); }},
            {"last2", "read the youngest slot", [this](turn& t) {
                const value w = t.local(word);
                if (size(w) == 0) return t.go("next");
                t.local(first) = t.load(slots_[(head(w) + size(w) - 1) % c_.capacity]);
            }},
            {"", "CAS the word: without the youngest", [this](turn& t) {
                if (!swing(t, word, without_youngest(t.local(word)))) return t.go("last2");
                take(t, t.local(first));
                t.go("next");
            }},
            {"turn", "read the word", [this](turn& t) { t.local(word) = t.load(word_); }},
            {"turn2", "read the oldest slot", [this](turn& t) {
                const value w = t.local(word);
                if (size(w) == 0 || size(w) == c_.capacity) return t.go("next");
                t.local(first) = t.load(slots_[head(w)]);
            }},
            {"", "write the slot behind the youngest", [this](turn& t) {
                t.store(tail(t.local(word)), static_cast<value>(t.guarded(pushed_) + 1));
            }},
            {"", "CAS the word: without the oldest, one more", [this](turn& t) {
                if (!swing(t, word, changed(t.local(word), 1, 0, true))) return t.go("turn2");
                ++t.guarded(pushed_);
                take(t, t.local(first));
                t.go("next");
            }},
        };
        return p;
    }

    // take_half(): one or two slots.
    program thief_steps() {
        const step read_word = {"half", "read the word", [this](turn& t) { t.local(word) = t.load(word_); }};
        const step read_slot = {"slot", "read a slot", [this](turn& t) {
            const value w = t.local(word);
            const unsigned count = size(w) - size(w) / 2;
            if (count == 0) return t.go("next");
            t.local(first + t.local(index)) = t.load(slots_[(head(w) + t.local(index)) % c_.capacity]);
            if (++t.local(index) < count) t.go("slot");
        }};
        const step claim = {"", "CAS the word: without the older half", [this](turn& t) {
            const value before = t.local(word);
            const unsigned count = size(before) - size(before) / 2;
            t.local(index) = 0;
            if (c_.read_after_claim && count == 0) return t.go("next");
            if (!swing(t, word, without_oldest(before, count))) {
                t.local(first) = t.local(second) = 0;
                return t.go(c_.read_after_claim ? "half" : "slot");
            }
            if (c_.read_after_claim) return void(t.local(word) = before);
            for (unsigned i = 0; i < count; ++i) take(t, t.local(first + i));
        }};
        const step take_all = {"", "take them", [this](turn& t) {
            for (unsigned i = 0; i < t.local(index); ++i) take(t, t.local(first + i));
        }};
        program p = {read_word};
        if (c_.read_after_claim) {
            p += {claim, read_slot, take_all};
        } else {
            p += {read_slot, claim};
        }
        p += {{"next", "again?", [this](turn& t) {
            t.local(word) = t.local(first) = t.local(second) = t.local(index) = 0;
            if (++t.local(operations) < c_.thefts) t.go("half");
        }}};
        return p;
    }

    const config c_;
    cell word_, pushed_, taken_;
    std::vector<cell> slots_;

public:
    protocol model;
};

testing::AssertionResult takes_each_once(const config& c) { return holds(run_queue_model(c).model); }

TEST(RunQueueModel, EachGoroutineIsTakenOnceWithOneThief) {
    for (const memory mem : {memory::sequential, memory::tso, memory::weak}) {
        EXPECT_TRUE(takes_each_once({.capacity = 2, .operations = 6, .thieves = 1, .thefts = 2, .mem = mem}));
        EXPECT_TRUE(takes_each_once({.capacity = 4, .operations = 6, .thieves = 1, .thefts = 2, .mem = mem}));
    }
}

TEST(RunQueueModel, EachGoroutineIsTakenOnceWithTwoThieves) {
    EXPECT_TRUE(takes_each_once({.capacity = 2, .operations = 6, .thieves = 2}));
    EXPECT_TRUE(takes_each_once({.capacity = 4, .operations = 6, .thieves = 2}));
}

// The owner takes the youngest back and pushes another one: same head, same size, another goroutine. A thief that has
// read the old one must not get it.
TEST(RunQueueModel, WithoutTheVersionAThiefTakesWhatTheOwnerHasTakenBack) {
    EXPECT_TRUE(breaks(run_queue_model({.version = false}).model, twice));
    EXPECT_TRUE(breaks(run_queue_model({.mem = memory::sequential, .version = false}).model, twice));
}

TEST(RunQueueModel, ASlotIsWrittenBeforeTheWordSaysSo) {
    EXPECT_TRUE(breaks(run_queue_model({.slot_after_word = true}).model, nothing));
}

// Once it is claimed the owner may write over it.
TEST(RunQueueModel, ASlotIsReadBeforeItIsClaimed) {
    EXPECT_TRUE(breaks(run_queue_model({.operations = 5, .read_after_claim = true}).model, twice));
}

TEST(RunQueueModel, EveryStepHappens) {
    EXPECT_EQ(never_made(run_queue_model({.operations = 5}).model), std::set<std::string>());
}

}  // namespace
