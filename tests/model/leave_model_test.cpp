// leave_model_test.cpp - how a goroutine leaves its machine (sched/goroutines/goroutine.cpp, "Leaving"), in every
// interleaving: it is found by others before its registers are saved, so the taker looks at `saved`, and waits for it
// only on its thread's own stack.
//
// Each machine runs a goroutine, puts it into the queue, takes one out of it, which may be the same, and switches to
// it; a few times.
#include "model/explorer.h"

namespace {

using namespace model;

enum class unsaved {
    from_own_stack,  // switch to the thread's stack first, then wait
    where_it_stands,
    not_at_all,      // execute it as it is
};

struct config {
    unsigned machines = 2;
    unsigned goroutines = 2;   // those above the number of machines are in the queue at first
    unsigned departures = 2;   // of each machine
    memory mem = memory::tso;
    unsaved wait = unsaved::from_own_stack;
    bool relaxed_commit = false;       // saved = 1 does not release
    bool clear_after_publishing = false;  // saved = 0 when others can find it already
};

constexpr const char* too_early = "a goroutine is executed whose registers are not saved";
constexpr const char* deadlock = "machines wait for goroutines that cannot leave";

class leave_model {
public:
    explicit leave_model(const config& c) : c_(c), model(c.mem) {
        value waiting = 0;
        for (unsigned i = c.goroutines; i > c.machines; --i) waiting = static_cast<value>(waiting << 3 | i);
        lock_ = model.make("lock");
        queue_ = model.make("queue", waiting);
        waits_ = model.make("(waits)");
        for (unsigned g = 0; g < c.goroutines; ++g) {
            const std::string name = "g" + std::to_string(g + 1);
            // A goroutine that has not run yet counts as one that has left once.
            const value left = g >= c.machines;
            saved_.push_back(model.make(name + "->saved", left));
            context_.push_back(model.make(name + "->context", left));
            departures_.push_back(model.make("(departures of " + name + ")", left));
        }
        for (unsigned i = 0; i < c.machines; ++i) model.thread("machine " + std::to_string(i), steps(i));
        model.at_rest([this](const view& v) {
            if (v[waits_] != 0) return deadlock;
            return v[lock_] != 0 ? "the lock is held for ever" : "";
        });
    }

private:
    enum { self, next, done };

    // Goroutines are 1, 2 ..; the queue is a number in base 8, its oldest in the last digit.
    static value pop(value& queue) {
        const value oldest = queue & 7;
        queue = static_cast<value>(queue >> 3);
        return oldest;
    }
    static void push(value& queue, value g) {
        unsigned shift = 0;
        while (queue >> shift != 0) shift += 3;
        queue = static_cast<value>(queue | g << shift);
    }
    cell of(const std::vector<cell>& cells, value g) const { return cells[g - 1u]; }

    // The switch loads next's registers, which must be those of its latest departure.
    void load_context(turn& t) {
        const value g = t.local(next);
        if (t.load(of(context_, g)) != t.guarded(of(departures_, g))) t.fail(too_early);
    }

    program steps(unsigned me) {
        const value my_bit = static_cast<value>(1u << me);
        const step clear = {"", "saved = 0", [this](turn& t) { t.store(of(saved_, t.local(self)), 0); }};
        program p = {
            {"run", "the goroutine runs, and leaves", [=, this](turn& t) {
                if (t.local(self) == 0) t.local(self) = static_cast<value>(me + 1);
                if (t.local(done)++ == c_.departures) return t.end();
                ++t.guarded(of(departures_, t.local(self)));
            }},
        };
        if (!c_.clear_after_publishing) p.push_back(clear);
        p += {
            {"", "lock", [this](turn& t) { t.lock(lock_); }},
            {"", "push it to the queue; unlock", [this](turn& t) {
                push(t.guarded(queue_), t.local(self));
                t.unlock(lock_);
            }},
        };
        if (c_.clear_after_publishing) p.push_back(clear);
        p += {
            {"", "lock", [this](turn& t) { t.lock(lock_); }},
            {"", "take the oldest; unlock", [this](turn& t) {
                t.local(next) = pop(t.guarded(queue_));
                t.unlock(lock_);
            }},
            {"", "itself? may the other be executed?", [this](turn& t) {
                // The taker has put one in before, so there is one.
                if (t.local(next) == t.local(self)) {
                    --t.guarded(of(departures_, t.local(self)));  // it never left
                    t.local(next) = 0;
                    return t.go("run");
                }
            }},
            {"look", "is it saved?", [=, this](turn& t) {
                if (c_.wait == unsaved::not_at_all || t.load(of(saved_, t.local(next))) != 0) return t.go("save");
                if (c_.wait == unsaved::from_own_stack) return t.go("own");
                t.guarded(waits_) |= my_bit;
            }},
        };
        if (c_.wait == unsaved::where_it_stands) {
            p += {{"", "wait where it stands", [=, this](turn& t) {
                if (t.load(of(saved_, t.local(next))) == 0) return t.block();
                t.guarded(waits_) &= static_cast<value>(~my_bit);
            }}};
        }
        p += {
            // From goroutine to goroutine.
            {"save", "save the registers", [this](turn& t) {
                t.store(of(context_, t.local(self)), t.guarded(of(departures_, t.local(self))));
            }},
            {"", "load the other's", [this](turn& t) { load_context(t); }},
            {"", "saved = 1 (release)", [this](turn& t) {
                commit(t);
                t.local(self) = std::exchange(t.local(next), value{0});
                t.go("run");
            }},
            // To the thread's own stack.
            {"own", "save the registers", [this](turn& t) {
                t.store(of(context_, t.local(self)), t.guarded(of(departures_, t.local(self))));
            }},
            {"", "on the own stack: saved = 1 (release)", [this](turn& t) {
                commit(t);
                t.local(self) = 0;
            }},
            {"", "begins to wait until it is saved", [=, this](turn& t) { t.guarded(waits_) |= my_bit; }},
            {"", "it is saved", [=, this](turn& t) {
                if (t.load(of(saved_, t.local(next))) == 0) return t.block();
                t.guarded(waits_) &= static_cast<value>(~my_bit);
            }},
            {"", "load its registers", [this](turn& t) {
                load_context(t);
                t.local(self) = std::exchange(t.local(next), value{0});
                t.go("run");
            }},
        };
        return p;
    }

    void commit(turn& t) {
        const cell saved = of(saved_, t.local(self));
        c_.relaxed_commit ? t.store(saved, 1) : t.store_release(saved, 1);
    }

    const config c_;
    cell lock_, queue_, waits_;
    std::vector<cell> saved_, context_, departures_;

public:
    protocol model;
};

testing::AssertionResult leaves_safely(const config& c) { return holds(leave_model(c).model); }
testing::AssertionResult fails(const config& c, const char* how) { return breaks(leave_model(c).model, how); }

TEST(LeaveModel, NoGoroutineIsExecutedBeforeItIsSavedAndNoMachineWaitsForEver) {
    for (const memory mem : {memory::sequential, memory::tso, memory::weak}) {
        EXPECT_TRUE(leaves_safely({.goroutines = 2, .departures = 3, .mem = mem}));
        EXPECT_TRUE(leaves_safely({.goroutines = 3, .departures = 2, .mem = mem}));
    }
    EXPECT_TRUE(leaves_safely({.machines = 3, .goroutines = 3, .departures = 1}));
}

// Each has taken the other's goroutine and waits for it, with its own not yet saved.
TEST(LeaveModel, ALeaverThatWaitsWhereItStandsDeadlocks) {
    EXPECT_TRUE(fails({.mem = memory::sequential, .wait = unsaved::where_it_stands}, deadlock));
    EXPECT_TRUE(fails({.wait = unsaved::where_it_stands}, deadlock));
}

TEST(LeaveModel, ALeaverThatDoesNotLookAtSavedExecutesAGoroutineTooEarly) {
    EXPECT_TRUE(fails({.wait = unsaved::not_at_all}, too_early));
}

TEST(LeaveModel, SavedIsClearedBeforeOthersCanFindTheGoroutine) {
    EXPECT_TRUE(fails({.goroutines = 3, .mem = memory::sequential, .clear_after_publishing = true}, too_early));
}

TEST(LeaveModel, TheCommitReleasesTheRegisters) {
    EXPECT_TRUE(fails({.mem = memory::weak, .relaxed_commit = true}, too_early));
    EXPECT_TRUE(leaves_safely({.mem = memory::tso, .relaxed_commit = true}));
}

TEST(LeaveModel, EveryStepHappens) {
    EXPECT_EQ(never_made(leave_model({.goroutines = 3}).model), std::set<std::string>());
}

}  // namespace
