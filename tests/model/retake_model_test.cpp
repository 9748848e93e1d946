// retake_model_test.cpp - the handshake of sched/machines/handshake.h by which a processor is taken from a machine, and
// a world stop with it (sched/machines/processor.cpp, enter_slow() in sched/goroutines/goroutine.cpp), in every
// interleaving.
#include "model/explorer.h"

namespace {

using namespace model;

// ---- H1: a processor is touched by one thread at a time -------------------------------------------------------------

struct config {
    unsigned calls = 2;   // that the goroutine makes into the runtime
    unsigned takers = 1;  // each takes once, and gives back
    memory mem = memory::tso;
    bool symmetric = false;      // no membarrier: E2 is a fence, T2 one in the taker only
    bool word_is_p = false;      // the handshake asks m->p itself
    bool patient = false;        // the takers wait for the machine to come out
    bool late_q3 = false;        // Q3 after the retake lock is free again
    bool relaxed_leave = false;  // L1 does not release
    bool relaxed_give_back = false;
    std::vector<const char*> without = {};
};

constexpr const char* both_inside = "the machine and a taker both have the processor";
constexpr const char* null_inside = "the machine is inside the runtime and has no processor";
constexpr const char* lost_update = "one did not see what the other had written";

// One machine, whose goroutine calls into the runtime, and thieves that want the goroutine in run_next.
class handshake_model {
public:
    explicit handshake_model(const config& c) : c_(c), model(c.mem) {
        p_ = model.make("m->p", 1);
        taken_ = model.make("taken");
        in_runtime_ = model.make("in_runtime");
        retake_ = model.make("retake");
        inside_ = model.make("(who has it)");
        data_ = model.make("what p guards");
        sections_ = model.make("(sections)");
        program machine = machine_steps();
        program taker = taker_steps();
        for (const char* label : c.without)
            (label[0] == 'T' ? taker : machine) = (label[0] == 'T' ? taker : machine).without(label);
        model.thread("machine", machine);
        for (unsigned i = 0; i < c.takers; ++i) model.thread("taker " + std::to_string(i), taker);
        model.at_rest([this](const view& v) {
            return v[data_] != v[sections_] ? lost_update : v[retake_] != 0 ? "the retake lock is held for ever" : "";
        });
    }

private:
    const config c_;
    cell p_, taken_, in_runtime_, retake_, inside_, data_, sections_;

public:
    protocol model;

private:
    enum { calls_made, seen };

    void begin_section(turn& t) {
        if (t.guarded(inside_)++ != 0) t.fail(both_inside);
        ++t.guarded(sections_);
    }
    void end_section(turn& t) { --t.guarded(inside_); }

    program machine_steps() {
        const cell asked = c_.word_is_p ? p_ : taken_;
        const auto was_taken = [this](value v) { return c_.word_is_p ? v == 0 : v != 0; };
        program p = {
            {"call", "the goroutine calls", [](turn&) {}},
            {"E1", "in_runtime = 1", [this](turn& t) { t.store(in_runtime_, 1); }},
        };
        if (c_.symmetric) p += {{"E2", "fence", [](turn& t) { t.fence(); }}};
        p += {
            {"E3", "taken?", [=, this](turn& t) {
                if (was_taken(t.load(asked))) return t.go("slow");
                begin_section(t);
                t.go("in");
            }},
            {"slow", "in_runtime = 0 (Q1)", [this](turn& t) { t.store_release(in_runtime_, 0); }},
            {"Q2", "lock retake", [this](turn& t) { t.lock(retake_); }},
        };
        const step inside = {"Q3", "in_runtime = 1", [this](turn& t) { t.store(in_runtime_, 1); }};
        if (!c_.late_q3) p.push_back(inside);
        p += {
            {"Q3", "m->p?", [this](turn& t) {
                if (t.load(p_) == 0) return t.fail("a thief has kept the processor");
                begin_section(t);
            }},
            {"", "unlock retake", [this](turn& t) { t.unlock(retake_); }},
        };
        if (c_.late_q3) p.push_back(inside);
        p += {
            {"in", "processor_of(m)", [this](turn& t) {
                if (t.load(p_) == 0) t.fail(null_inside);
            }},
            {"", "use its queues: read", [this](turn& t) { t.local(seen) = t.load(data_); }},
            {"", "use its queues: write", [this](turn& t) {
                t.store(data_, static_cast<value>(t.local(seen) + 1));
                t.local(seen) = 0;
            }},
            {"L1", "in_runtime = 0 (release)", [this](turn& t) {
                end_section(t);
                c_.relaxed_leave ? t.store(in_runtime_, 0) : t.store_release(in_runtime_, 0);
                if (++t.local(calls_made) < c_.calls) t.go("call");
                else t.end();
            }},
        };
        return p;
    }

    program taker_steps() {
        return {
            {"", "lock retake", [this](turn& t) { t.lock(retake_); }},
            {"", "is it inside? (a look ahead)", [this](turn& t) {
                if (!c_.patient && t.load(in_runtime_) != 0) t.go("end");
            }},
            {"T1", "taken = 1", [this](turn& t) { c_.word_is_p ? t.store(p_, 0) : t.store(taken_, 1); }},
            {"T2", "heavy barrier", [this](turn& t) { c_.symmetric ? t.fence() : t.heavy_barrier(); }},
            {"T3", "is it inside?", [this](turn& t) {
                if (t.load(in_runtime_) != 0) return t.go(c_.patient && t.way(2) == 1 ? "T3" : "give up");
                begin_section(t);
            }},
            {"T4", "m->p = null", [this](turn& t) { t.store(p_, 0); }},
            {"", "use its queues: read", [this](turn& t) { t.local(seen) = t.load(data_); }},
            {"", "use its queues: write", [this](turn& t) {
                t.store(data_, static_cast<value>(t.local(seen) + 1));
                t.local(seen) = 0;
                end_section(t);
            }},
            {"", "give back: m->p = p", [this](turn& t) { t.store(p_, 1); }},
            {"give up", "taken = 0", [this](turn& t) {
                if (c_.word_is_p) return t.store(p_, 1);
                c_.relaxed_give_back ? t.store(taken_, 0) : t.store_release(taken_, 0);
            }},
            {"end", "unlock retake", [this](turn& t) { t.unlock(retake_); }},
        };
    }
};

testing::AssertionResult keeps_h1(const config& c) { return holds(handshake_model(c).model); }
testing::AssertionResult breaks_h1(const config& c, const char* how) { return breaks(handshake_model(c).model, how); }

TEST(RetakeModel, AMachineAndThievesNeverHaveAProcessorTogether) {
    for (const memory mem : {memory::sequential, memory::tso, memory::weak}) {
        EXPECT_TRUE(keeps_h1({.calls = 3, .takers = 1, .mem = mem}));
        EXPECT_TRUE(keeps_h1({.calls = 2, .takers = 2, .mem = mem}));
        EXPECT_TRUE(keeps_h1({.calls = 2, .takers = 2, .mem = mem, .symmetric = true}));
        EXPECT_TRUE(keeps_h1({.calls = 3, .takers = 1, .mem = mem, .patient = true}));
        EXPECT_TRUE(keeps_h1({.calls = 2, .takers = 2, .mem = mem, .patient = true}));
    }
}

TEST(RetakeModel, WithoutTheHeavyBarrierT2BothGoIn) {
    EXPECT_TRUE(breaks_h1({.without = {"T2"}}, both_inside));
    EXPECT_TRUE(breaks_h1({.symmetric = true, .without = {"T2"}}, both_inside));
    EXPECT_TRUE(keeps_h1({.mem = memory::sequential, .without = {"T2"}}));
}

TEST(RetakeModel, AMachineThatDoesNotSayThatItIsInsideE1IsNotSeen) {
    EXPECT_TRUE(breaks_h1({.without = {"E1"}}, both_inside));
}

TEST(RetakeModel, WithoutMembarrierTheFenceE2IsNeeded) {
    EXPECT_TRUE(keeps_h1({.symmetric = true}));
    EXPECT_TRUE(breaks_h1({.symmetric = true, .without = {"E2"}}, both_inside));
}

// While a taker asks, a machine that is inside already would read null, and use it.
TEST(RetakeModel, TheHandshakeWordMustNotBeTheMachinesProcessorPointer) {
    EXPECT_TRUE(breaks_h1({.mem = memory::sequential, .word_is_p = true}, null_inside));
}

// Between the unlock and Q3 the machine thinks that it is inside, and the next taker that it is not.
TEST(RetakeModel, AMachineSaysThatItIsInsideQ3BeforeItFreesTheLock) {
    EXPECT_TRUE(breaks_h1({.takers = 2, .mem = memory::sequential, .late_q3 = true}, both_inside));
}

TEST(RetakeModel, LeavingAndGivingBackRelease) {
    EXPECT_TRUE(breaks_h1({.mem = memory::weak, .relaxed_leave = true}, lost_update));
    EXPECT_TRUE(breaks_h1({.mem = memory::weak, .relaxed_give_back = true}, null_inside));
    EXPECT_TRUE(keeps_h1({.mem = memory::tso, .relaxed_leave = true, .relaxed_give_back = true}));
}

// ---- a world stop ---------------------------------------------------------------------------------------------------

struct world_config {
    unsigned calls = 2;
    unsigned stops = 1;
    bool thief = false;
    bool other_computes = false;  // processor 1 is not idle, but has a machine that computes for ever
    bool shrinks = false;         // the first stop may take processor 0 out of service
    memory mem = memory::tso;
    bool second_look = true;      // enter_slow() asks again under the scheduler lock
    bool patient = true;          // the thread that stops the world waits for the machine to come out
    bool asks_taken = false;      // enter_slow() asks for `taken` instead of m->p
};

constexpr const char* two_processors = "one machine has two processors";

// Machine 0 with processor 0, whose goroutine calls into the runtime; processor 1; a thread that stops and starts the
// world; a thief. In the end the goroutine computes for ever, or its machine retires.
class world_model {
public:
    explicit world_model(const world_config& c) : c_(c), model(c.mem) {
        lock_ = model.make("lock");
        stopping_ = model.make("stopping");
        world_word_ = model.make("world_word");
        last_p_ = model.make("m0->last_p", 1);
        queued_ = model.make("m0's goroutine is queued");
        for (unsigned i = 0; i < 2; ++i) {
            const std::string p = "p" + std::to_string(i), m = "m" + std::to_string(i);
            const bool has = i == 0 || c.other_computes;
            p_[i].retake = model.make(p + "->retake");
            p_[i].owner = model.make(p + "->owner", has ? static_cast<value>(i + 1) : 0);
            p_[i].state = model.make(p + "->state", has ? running : idle);
            p_[i].stopped_from = model.make(p + "->stopped_from");
            m_[i].p = model.make(m + "->p", has ? static_cast<value>(i + 1) : 0);
            m_[i].taken = model.make(m + "->taken");
            m_[i].in_runtime = model.make(m + "->in_runtime");
        }
        model.thread("machine 0", machine_steps());
        model.thread("world", world_steps());
        if (c.thief) model.thread("thief", thief_steps());
        model.at_rest([this](const view& v) { return wrong_at_rest(v); });
    }

private:
    enum : value { idle, running, stopped, dead };
    enum { calls_made, p_index, world_seen };         // locals of the machine
    enum { target, victim, state_seen, stops_made };  // of those that take: a processor, its machine + 1
    struct processor_cells {
        cell retake, owner, state, stopped_from;  // owner: guarded by retake, the machine + 1
    };
    struct machine_cells {
        cell p, taken, in_runtime;
    };

    const world_config c_;
    cell lock_, stopping_, world_word_, last_p_, queued_;
    processor_cells p_[2];
    machine_cells m_[2];

public:
    protocol model;

private:
    std::string wrong_at_rest(const view& v) const {
        if (v[lock_] != 0 || v[p_[0].retake] != 0 || v[p_[1].retake] != 0) return "a lock is held for ever";
        if (v[stopping_] != 0) return "the world has stopped for ever";
        for (const processor_cells& p : p_) {
            if ((v[p.state] == running) != (v[p.owner] != 0))
                return "a processor runs without a machine, or has one and does not run";
            if (v[p.state] == stopped) return "a processor is stopped for ever";
            if (v[p.state] == idle && v[queued_] != 0)
                return "the goroutine waits in a queue while a processor is idle";
        }
        return "";
    }

    void own(turn& t, unsigned p, unsigned machine) {
        t.guarded(p_[p].owner) = static_cast<value>(machine + 1);
        if (t.guarded(p_[0].owner) == t.guarded(p_[1].owner)) t.fail(two_processors);
    }

    processor_cells& target_of(turn& t) { return p_[t.local(target)]; }
    machine_cells& victim_of(turn& t) { return m_[t.local(victim) - 1u]; }

    // take_locked(), the retake lock being held.
    program take_steps(bool patient, const char* then, const char* missed) {
        program p = {
            {"T0", "has it a machine?", [this, missed](turn& t) {
                t.local(victim) = t.guarded(target_of(t).owner);
                if (t.local(victim) == 0) t.go(missed);
            }},
        };
        if (!patient) {
            p += {{"T0", "is the machine inside? (a look ahead)", [this, missed](turn& t) {
                if (t.load(victim_of(t).in_runtime) != 0) t.go(missed);
            }}};
        }
        p += {
            {"T1", "taken = 1", [this](turn& t) { t.store(victim_of(t).taken, 1); }},
            {"T2", "heavy barrier", [](turn& t) { t.heavy_barrier(); }},
            {"T3", "is it inside?", [this, patient](turn& t) {
                if (t.load(victim_of(t).in_runtime) == 0) return t.go("T4");
                if (patient && t.way(2) == 1) t.go("T3");
            }},
            {"T3", "yes: taken = 0", [this, missed](turn& t) {
                t.store(victim_of(t).taken, 0);
                t.go(missed);
            }},
            {"T4", "m->p = null, owner = null", [this, then](turn& t) {
                t.guarded(target_of(t).owner) = 0;
                t.store(victim_of(t).p, 0);
                t.go(then);
            }},
        };
        return p;
    }

    program give_back_steps() {
        return {
            {"", "owner = m, m->p = p", [this](turn& t) {
                own(t, t.local(target), t.local(victim) - 1u);
                t.store(victim_of(t).p, static_cast<value>(t.local(target) + 1));
            }},
            {"", "taken = 0 (release)", [this](turn& t) { t.store_release(victim_of(t).taken, 0); }},
        };
    }

    program world_steps() {
        program p = {
            {"stop", "lock", [this](turn& t) { t.lock(lock_); }},
            {"", "stopping = true; the idle processors are stopped", [this](turn& t) {
                for (const processor_cells& i : p_) {
                    if (t.guarded(i.state) == idle) t.guarded(i.state) = stopped;
                }
                t.store(stopping_, 1);
            }},
            {"", "unlock", [this](turn& t) { t.unlock(lock_); }},
            {"each", "is it running?", [this](turn& t) {
                if (t.load(target_of(t).state) != running) t.go("next");
            }},
            {"", "lock its retake", [this](turn& t) { t.lock(target_of(t).retake); }},
        };
        p += take_steps(c_.patient, "took", "again");
        p += {
            {"took", "it is stopped", [this](turn& t) {
                t.guarded(target_of(t).stopped_from) = t.local(victim);
                t.store_release(target_of(t).state, stopped);
            }},
            {"again", "unlock its retake; look again", [this](turn& t) {
                t.local(victim) = 0;
                t.unlock(target_of(t).retake);
                t.go("each");
            }},
            {"next", "the next processor", [](turn& t) {
                t.local(target) ^= 1;
                if (t.local(target) != 0) t.go("each");
            }},
            // start_world()
            {"", "lock", [this](turn& t) { t.lock(lock_); }},
            {"", "stopping = false", [this](turn& t) { t.store(stopping_, 0); }},
            {"start", "look at its state", [this](turn& t) {
                if (t.load(target_of(t).state) != stopped) t.go("done");
            }},
            {"", "it goes out of service, back to its machine, or is idle", [this](turn& t) {
                const processor_cells& p = target_of(t);
                const bool dies = c_.shrinks && t.local(target) == 0 && t.local(stops_made) == 0 && t.way(2) == 1;
                t.local(victim) = std::exchange(t.guarded(p.stopped_from), value{0});
                if (!dies && t.local(victim) != 0) return;
                t.local(victim) = 0;
                t.store(p.state, dies ? dead : idle);
                t.go("done");
            }},
            {"", "lock its retake", [this](turn& t) { t.lock(target_of(t).retake); }},
            {"", "it is running", [this](turn& t) { t.store(target_of(t).state, running); }},
        };
        p += give_back_steps();
        p += {
            {"", "unlock its retake", [this](turn& t) {
                t.local(victim) = 0;
                t.unlock(target_of(t).retake);
            }},
            {"done", "the next processor", [](turn& t) {
                t.local(target) ^= 1;
                if (t.local(target) != 0) t.go("start");
            }},
            {"", "world_word += 1", [this](turn& t) { t.add(world_word_, 1); }},
            {"", "unlock; wake who waits for it", [this](turn& t) {
                t.unlock(lock_);
                if (++t.local(stops_made) < c_.stops) t.go("stop");
                else t.end();
            }},
        };
        return p;
    }

    program thief_steps() {
        program p = {
            {"", "chooses a victim", [](turn& t) { t.local(target) = static_cast<value>(t.way(2)); }},
            {"", "try_lock its retake", [this](turn& t) {
                if (!t.try_lock(target_of(t).retake)) t.end();
            }},
        };
        p += take_steps(false, "took", "end");
        p += {{"took", "takes run_next", [](turn&) {}}};
        p += give_back_steps();
        p += {{"end", "unlock its retake", [this](turn& t) { t.unlock(target_of(t).retake); }}};
        return p;
    }

    cell retake_of_mine(turn& t) { return p_[t.guarded(last_p_) - 1u].retake; }

    bool has_it(turn& t) { return c_.asks_taken ? t.load(m_[0].taken) == 0 : t.load(m_[0].p) != 0; }

    program machine_steps() {
        const machine_cells m = m_[0];
        return {
            {"E1", "in_runtime = 1", [=](turn& t) { t.store(m.in_runtime, 1); }},
            {"E3", "taken?", [=](turn& t) { t.go(t.load(m.taken) == 0 ? "in" : "slow"); }},
            // enter_slow()
            {"slow", "in_runtime = 0 (Q1)", [=](turn& t) { t.store_release(m.in_runtime, 0); }},
            {"Q2", "lock last_p->retake", [=, this](turn& t) { t.lock(retake_of_mine(t)); }},
            {"Q3", "in_runtime = 1", [=](turn& t) { t.store(m.in_runtime, 1); }},
            {"Q3", "m->p?", [=, this](turn& t) { t.local(p_index) = has_it(t); }},
            {"", "unlock last_p->retake", [=, this](turn& t) {
                t.unlock(retake_of_mine(t));
                if (t.local(p_index) != 0) t.go("in");
            }},
            {"", "lock", [=, this](turn& t) {
                t.local(p_index) = 0;
                t.lock(lock_);
            }},
            {"", "m->p? (the second look)", [=, this](turn& t) {
                if (c_.second_look && has_it(t)) t.go("mine");
            }},
            {"", "read world_word", [=, this](turn& t) { t.local(world_seen) = t.load(world_word_); }},
            {"", "stopping?", [=, this](turn& t) {
                if (t.load(stopping_) == 0) t.go("take");
            }},
            {"", "unlock", [=, this](turn& t) { t.unlock(lock_); }},
            {"", "sleep until world_word changes", [=, this](turn& t) {
                if (t.load_in_kernel(world_word_) == t.local(world_seen)) return t.block();
                t.local(world_seen) = 0;
                t.go("slow");
            }},
            {"mine", "unlock", [=, this](turn& t) {
                t.unlock(lock_);
                t.go("in");
            }},
            {"take", "an idle processor?", [=, this](turn& t) {
                t.local(world_seen) = 0;
                for (unsigned i = 0; i < 2; ++i) {
                    if (t.guarded(p_[i].state) != idle) continue;
                    t.local(p_index) = static_cast<value>(i + 1);
                    return t.store(p_[i].state, running);
                }
                t.guarded(queued_) = 1;
            }},
            {"", "unlock; none: the goroutine is queued", [=, this](turn& t) {
                t.unlock(lock_);
                if (t.local(p_index) == 0) t.end();
            }},
            // give()
            {"", "last_p = p, lock its retake", [=, this](turn& t) {
                t.guarded(last_p_) = t.local(p_index);
                t.lock(retake_of_mine(t));
            }},
            {"", "owner = m, m->p = p", [=, this](turn& t) {
                own(t, t.local(p_index) - 1u, 0);
                t.store(m.p, t.local(p_index));
            }},
            {"", "taken = 0 (release)", [=](turn& t) { t.store_release(m.taken, 0); }},
            {"", "unlock its retake", [=, this](turn& t) {
                t.local(p_index) = 0;
                t.unlock(retake_of_mine(t));
            }},
            {"in", "processor_of(m)", [=](turn& t) {
                if (t.load(m.p) == 0) t.fail(null_inside);
            }},
            {"L1", "in_runtime = 0 (release): call again, or compute for ever; or retire", [=, this](turn& t) {
                if (++t.local(calls_made) > c_.calls) return t.go("quit");
                t.store_release(m.in_runtime, 0);
                t.way(2) == 0 ? t.go("E1") : t.end();
            }},
            // retire()
            {"quit", "lock", [=, this](turn& t) { t.lock(lock_); }},
            {"", "lock p->retake", [=, this](turn& t) { t.lock(retake_of_mine(t)); }},
            {"", "m->p = null, owner = null", [=, this](turn& t) {
                t.guarded(p_[t.guarded(last_p_) - 1u].owner) = 0;
                t.store(m.p, 0);
            }},
            {"", "unlock p->retake", [=, this](turn& t) { t.unlock(retake_of_mine(t)); }},
            {"", "stopping?", [=, this](turn& t) { t.local(world_seen) = t.load(stopping_); }},
            {"", "the processor is idle, or stopped", [=, this](turn& t) {
                t.store(p_[t.guarded(last_p_) - 1u].state, t.local(world_seen) != 0 ? stopped : idle);
            }},
            {"", "unlock", [=, this](turn& t) {
                t.unlock(lock_);
                t.end();
            }},
        };
    }
};

TEST(WorldStopModel, AfterwardsEveryProcessorIsIdleOrHasItsMachine) {
    for (const memory mem : {memory::sequential, memory::tso, memory::weak}) {
        EXPECT_TRUE(holds(world_model({.stops = 2, .shrinks = true, .mem = mem}).model));
        EXPECT_TRUE(holds(world_model({.stops = 2, .other_computes = true, .shrinks = true, .mem = mem}).model));
        EXPECT_TRUE(holds(world_model({.stops = 1, .thief = true, .shrinks = true, .mem = mem}).model));
    }
}

// The machine sees that its processor is taken; the world starts and gives it back; then the machine finds another one
// idle.
TEST(WorldStopModel, WithoutTheSecondLookUnderTheLockAMachineGetsTwoProcessors) {
    EXPECT_TRUE(breaks(world_model({.mem = memory::sequential, .second_look = false}).model, two_processors));
    EXPECT_TRUE(breaks(world_model({.mem = memory::tso, .second_look = false}).model, two_processors));
}

// The next thread that stops the world begins with `taken`, before it knows whether it gets the processor. A machine
// that believes it sleeps, inside the runtime and with its processor, until the world starts: the stop waits for the
// machine, and the machine for the stop.
TEST(WorldStopModel, AMachineThatAsksForTakenInsteadOfItsProcessorHoldsUpTheNextStop) {
    EXPECT_TRUE(
        breaks(world_model({.stops = 2, .mem = memory::sequential, .asks_taken = true}).model, "it goes on for ever"));
}

TEST(WorldStopModel, EveryStepHappens) {
    const world_model with_thief({.stops = 2, .thief = true, .shrinks = true}),
        busy({.stops = 2, .other_computes = true, .shrinks = true});
    EXPECT_EQ(never_made(with_thief.model, busy.model), std::set<std::string>());
    EXPECT_EQ(never_made(handshake_model({}).model), std::set<std::string>());
}

}  // namespace
