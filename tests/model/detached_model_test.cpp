// detached_model_test.cpp - a goroutine goes on without its processor: taken by the monitor, it meets the handler of
// the preemption signal, a processor that is given to it, and its own next call into the runtime
// (sched/monitor/detached.cpp, preempt.cpp, reenter.cpp), in every interleaving.
//
// m0        runs the goroutine: it computes, where the signal's handler may run at any moment, and calls into the
//           runtime.
// m1        another machine: is handed processors, uses them, and then does what find_work() does: takes what is
//           queued, hands its processor to a preempted machine, or retires.
// monitor   takes m0's processor, hands it on, gives an idle one back, asks m0 to stop: in any order, at any moment.
// thief     takes whatever processor m0 has, for a moment, and gives it back: steal_run_next().
// Not here  World stops (retake_model_test.cpp) and the end of run(); the count of spinning machines
//           (wake_model_test.cpp): the one that looks again acts.
#include "model/explorer.h"

namespace {

using namespace model;

struct config {
    unsigned calls = 2;  // that the goroutine makes into the runtime, before it computes for ever
    unsigned takes = 2;  // by the monitor
    unsigned signals = 1;
    bool thief = false;
    bool m1_runs = false;  // it has p1, which otherwise is idle
    bool p1_away = false;  // or a goroutine computes with it for ever
    memory mem = memory::tso;
    // As the protocol is.
    // enter_slow() compares last_p with the processor whose lock it holds: when it finds a processor,
    bool knows_whose_lock = true;
    bool compares_null = true;       // and when it finds none
    bool last_p_first = true;        // give() writes last_p before p
    bool detached_under_lock = true;    // take() marks the machine before the retake lock is free,
    bool detached_releases = true;      // and after m->p is null
    bool handler_asks_again = true;  // for `detached`, under the scheduler lock
    bool handler_looks_for_idle = true;
    bool handler_inside = true;  // it says in_runtime
    bool second_look = true;     // enter_slow() looks at m->p again under the scheduler lock
    bool detached_cleared = true;   // and clears `detached`
    bool hand_on_looks = true;   // R3 after a processor was put onto the idle list by the monitor
    bool retire_looks = true;    // m1's R1
    bool rescans = true;         // m1's R3
};

constexpr const char* both_inside = "two threads use a processor";
constexpr const char* null_inside = "the machine is inside the runtime and has no processor";
constexpr const char* two_processors = "a machine that has a processor gets another one";
constexpr const char* taken_twice = "a processor is given away that somebody has";
constexpr const char* preempted_owner = "a machine is preempted and has a processor";
constexpr const char* queued_twice = "a machine is preempted twice";
constexpr const char* lost = "a processor is lost";
constexpr const char* detached_owner = "a machine that has a processor is still detached";
constexpr const char* stands_still = "a machine stands still while a processor is idle";

class detached_model {
public:
    explicit detached_model(const config& c) : c_(c), model(c.mem) {
        lock_ = model.make("lock");
        idle_ = model.make("idle list", c.m1_runs || c.p1_away ? 0 : 2);
        preempted_ = model.make("preempted");
        queued_ = model.make("m0's goroutine is queued");
        p_ = model.make("m0->p", 1);
        last_p_ = model.make("m0->last_p", 1);
        taken_ = model.make("m0->taken");
        in_runtime_ = model.make("m0->in_runtime");
        detached_ = model.make("m0->detached");
        asked_ = model.make("m0->preempt_asked");
        resume_word_ = model.make("m0->resume_word");
        handed_ = model.make("m0->handed_p");
        m1_idle_ = model.make("m1 is idle", c.m1_runs ? 0 : 1);
        wake_word_ = model.make("m1->wake_word", c.m1_runs ? 2 : 0);
        for (unsigned i = 0; i < 2; ++i) {
            const std::string p = "p" + std::to_string(i);
            retake_[i] = model.make(p + "->retake");
            owner_[i] = model.make(p + "->owner", i == 0 ? m0 : c.p1_away ? m2
                                                                          : nobody);
            used_[i] = model.make("(who uses " + p + ")");
        }
        model.thread("m0", m0_steps());
        model.thread("monitor", monitor_steps());
        model.thread("m1", m1_steps());
        if (c.thief) model.thread("thief", thief_steps());
        model.at_rest([this](const view& v) { return wrong_at_rest(v); });
    }

private:
    enum : value { nobody,
        m0,
        m1,
        m2 };
    enum { calls_made,
        mine,
        had };  // locals of m0; processors are numbered from 1 in mine, had, and memory
    enum { target,
        takes_made,
        signals_sent };  // of the monitor, the thief, and m1: processor 0 or 1

    const config c_;
    cell lock_, idle_, preempted_, queued_, p_, last_p_, taken_, in_runtime_, detached_, asked_, resume_word_, handed_,
        m1_idle_, wake_word_;
    cell retake_[2], owner_[2], used_[2];  // idle_: one bit each

public:
    protocol model;

private:
    std::string wrong_at_rest(const view& v) const {
        if (v[lock_] != 0 || v[retake_[0]] != 0 || v[retake_[1]] != 0) return "a lock is held for ever";
        for (unsigned i = 0; i < 2; ++i) {
            if ((v[owner_[i]] == m0) != (v[p_] == i + 1)) return "a processor and its machine disagree";
            if ((v[owner_[i]] != nobody) == ((v[idle_] >> i & 1) != 0)) return lost;
        }
        if (v[detached_] != 0 && v[p_] != 0) return detached_owner;
        if (v[preempted_] != 0) return v[idle_] != 0 ? stands_still : preempted_owner;
        if (v[queued_] != 0) return "the goroutine waits in a queue for ever";
        return "";
    }

    void use(turn& t, unsigned p) {
        if (t.guarded(used_[p])++ != 0) t.fail(both_inside);
    }
    void end_use(turn& t, unsigned p) { --t.guarded(used_[p]); }

    void own(turn& t, unsigned p, value machine) {
        if (t.guarded(owner_[p]) != nobody || (t.guarded(idle_) >> p & 1) != 0) t.fail(taken_twice);
        t.guarded(owner_[p]) = machine;
        if (t.guarded(owner_[0]) == t.guarded(owner_[1])) t.fail(two_processors);
    }

    // 0, or the number of the processor, from 1. Either one, if both are there: so that the order of the list does not
    // matter.
    value take_idle(turn& t) {
        value& idle = t.guarded(idle_);
        if (idle == 0) return 0;
        const value p = idle == 3 ? static_cast<value>(t.way(2)) : idle == 2;
        idle = static_cast<value>(idle & ~(1u << p));
        return static_cast<value>(p + 1);
    }
    void put_idle(turn& t, unsigned p) {
        if (t.guarded(owner_[p]) != nobody) t.fail(taken_twice);
        t.guarded(idle_) = static_cast<value>(t.guarded(idle_) | 1u << p);
    }

    // resume()
    void resume(turn& t, unsigned p) {
        t.guarded(handed_) = static_cast<value>(p + 1);
        t.store_release(resume_word_, 1);
    }

    // give(p, m0). `p` says which, from 1.
    template <class Which>
    program give_steps(const char* label, Which p, const std::function<void(turn&)>& then) {
        const step last_p = {"", "last_p = p", [=, this](turn& t) { t.store(last_p_, p(t)); }};
        program steps = {{label, "give()", [](turn&) {}}};
        if (c_.last_p_first) steps.push_back(last_p);
        steps += {
            {"", "lock p->retake", [=, this](turn& t) { t.lock(retake_[p(t) - 1]); }},
            {"", "owner = m0, m0->p = p", [=, this](turn& t) {
                 own(t, p(t) - 1u, m0);
                 t.store(p_, p(t));
             }},
            {"", "taken = 0 (release)", [=, this](turn& t) { t.store_release(taken_, 0); }},
            {"", "unlock p->retake", [=, this](turn& t) {
                 t.unlock(retake_[p(t) - 1]);
                 if (c_.last_p_first) then(t);
             }},
        };
        if (!c_.last_p_first) {
            steps += {{"", "last_p = p", [=, this](turn& t) {
                           t.store(last_p_, p(t));
                           then(t);
                       }}};
        }
        return steps;
    }

    program m0_steps() {
        program p = {
            {"user", "computes; calls, or a signal comes", [this](turn& t) {
                 if (t.way(2) == 0) return t.local(calls_made) == c_.calls ? t.block() : t.go("E1");
                 if (t.exchange(asked_, 0) == 0) return t.block();
                 t.go("H1");
             }},
            {"E1", "in_runtime = 1", [this](turn& t) { t.store(in_runtime_, 1); }},
            {"E3", "taken?", [this](turn& t) { t.go(t.load(taken_) == 0 ? "in" : "slow"); }},
            // enter_slow(). The signal is not heeded here: unstoppable_section
            {"slow", "had = last_p", [this](turn& t) { t.local(had) = t.load(last_p_); }},
            {"Q1", "in_runtime = 0", [this](turn& t) { t.store_release(in_runtime_, 0); }},
            {"Q2", "lock had->retake", [this](turn& t) { t.lock(retake_[t.local(had) - 1]); }},
            {"Q3", "in_runtime = 1", [this](turn& t) { t.store(in_runtime_, 1); }},
            {"Q3", "m0->p?", [this](turn& t) { t.local(mine) = t.load(p_); }},
            {"Q3", "none, but is this its lock?", [this](turn& t) {
                 if (!c_.compares_null || t.local(mine) != 0) return;
                 if (t.load(last_p_) != t.local(had)) t.go("again");
             }},
            {"", "unlock had->retake", [this](turn& t) {
                 t.unlock(retake_[t.local(had) - 1]);
                 const value now = std::exchange(t.local(mine), value{0}),
                             before = std::exchange(t.local(had), value{0});
                 if (now == 0) return t.go("none");
                 t.go(now == before || !c_.knows_whose_lock ? "in" : "slow");
             }},
            {"again", "unlock had->retake", [this](turn& t) {
                 t.unlock(retake_[t.local(had) - 1]);
                 t.local(had) = 0;
                 t.go("slow");
             }},
            {"none", "lock", [this](turn& t) { t.lock(lock_); }},
            {"", "m0->p? (the second look)", [this](turn& t) {
                 if (c_.second_look && t.load(p_) != 0) t.go("mine");
             }},
            {"", "detached = false", [this](turn& t) {
                 if (c_.detached_cleared) t.store(detached_, 0);
             }},
            {"", "an idle processor? unlock", [this](turn& t) {
                 t.local(mine) = take_idle(t);
                 t.unlock(lock_);
                 if (t.local(mine) != 0) return t.go("give");
                 t.guarded(queued_) = 1;
                 t.end();
             }},
            {"mine", "unlock", [this](turn& t) {
                 t.unlock(lock_);
                 t.go("in");
             }},
            {"in", "processor_of(m0): uses it", [this](turn& t) {
                 t.local(mine) = t.load(p_);
                 if (t.local(mine) == 0) return t.fail(null_inside);
                 use(t, t.local(mine) - 1u);
             }},
            {"L1", "in_runtime = 0 (release)", [this](turn& t) {
                 end_use(t, t.local(mine) - 1u);
                 t.local(mine) = 0;
                 if (t.local(calls_made) < c_.calls) ++t.local(calls_made);
                 t.store_release(in_runtime_, 0);
                 t.go("user");
             }},
            // stop_if_asked()
            {"H1", "detached?", [this](turn& t) {
                 if (t.load(detached_) == 0) t.go("user");
             }},
            {"H2", "in_runtime = 1", [this](turn& t) {
                 if (c_.handler_inside) t.store(in_runtime_, 1);
             }},
            {"H3", "lock", [this](turn& t) { t.lock(lock_); }},
            {"H4", "still detached?", [this](turn& t) {
                 if (c_.handler_asks_again && t.load(detached_) == 0) t.go("go on");
             }},
            {"H5", "an idle processor? detached = false", [this](turn& t) {
                 if (c_.handler_looks_for_idle) t.local(mine) = take_idle(t);
                 t.store(detached_, 0);
             }},
            {"H6", "no: queue", [this](turn& t) {
                 if (t.local(mine) != 0) return;
                 if (t.guarded(owner_[0]) == m0 || t.guarded(owner_[1]) == m0) t.fail(preempted_owner);
                 if (t.load(preempted_) != 0) t.fail(queued_twice);
             }},
            {"", "no: resume_word = 0", [this](turn& t) {
                 if (t.local(mine) == 0) t.store_release(resume_word_, 0);
             }},
            {"", "no: it is preempted", [this](turn& t) {
                 if (t.local(mine) == 0) t.store(preempted_, 1);
             }},
            {"", "unlock", [this](turn& t) {
                 t.unlock(lock_);
                 if (t.local(mine) != 0) t.go("give");
             }},
            {"H7", "sleep on resume_word", [this](turn& t) {
                 if (t.load(resume_word_) == 0) return t.block();
                 t.local(mine) = std::exchange(t.guarded(handed_), value{0});
                 t.go("give");
             }},
            {"go on", "unlock", [this](turn& t) { t.unlock(lock_); }},
            {"H8", "in_runtime = 0 (release)", [this](turn& t) {
                 t.store_release(in_runtime_, 0);
                 t.go("user");
             }},
        };
        // From enter_slow() and from the handler, after which nothing is used: entering and leaving once more is the
        // same.
        p += give_steps(
            "give", [](turn& t) { return t.local(mine); }, [](turn& t) {
            t.local(mine) = 0;
            t.go("in"); });
        return p;
    }

    // take_locked(), the lock being held.
    program take_steps(const char* taken, const char* given_up, bool patient) {
        return {
            {"T0", "is it m0's?", [=, this](turn& t) {
                 if (t.guarded(owner_[t.local(target)]) != m0 || t.load(p_) != t.local(target) + 1u) t.go(given_up);
             }},
            {"T1", "taken = 1", [this](turn& t) { t.store(taken_, 1); }},
            {"T2", "heavy barrier", [](turn& t) { t.heavy_barrier(); }},
            {"T3", "is it inside?", [=, this](turn& t) {
                 if (t.load(in_runtime_) == 0) return use(t, t.local(target)), t.go("T4");
                 if (patient && t.way(2) == 1) t.go("T3");
             }},
            {"T3", "yes: taken = 0", [=, this](turn& t) {
                 t.store(taken_, 0);
                 t.go(given_up);
             }},
            {"T4", "m0->p = null, owner = null", [=, this](turn& t) {
                 t.guarded(owner_[t.local(target)]) = nobody;
                 t.store(p_, 0);
                 t.go(taken);
             }},
        };
    }

    program monitor_steps() {
        program p = {
            {"round", "takes p0, or p1; gives back; or asks m0 to stop", [this](turn& t) {
                 t.local(target) = 0;
                 const unsigned way = t.way(4);
                 if (way < 2) {
                     if (t.local(takes_made) == c_.takes || t.guarded(owner_[way]) != m0) return t.block();
                     t.local(target) = static_cast<value>(way);
                     return t.go("take");
                 }
                 if (t.load(detached_) == 0) return t.block();
                 if (way == 2) return t.guarded(idle_) == 0 ? t.block() : t.go("back");
                 if (t.local(signals_sent) == c_.signals) return t.block();
                 ++t.local(signals_sent);
                 t.go("ask");
             }},
            {"ask", "preempt_asked = true (release); the signal", [this](turn& t) {
                 t.store_release(asked_, 1);
                 t.go("round");
             }},
            // give_back()
            {"back", "lock", [this](turn& t) { t.lock(lock_); }},
            {"", "detached?", [this](turn& t) {
                 if (t.load(detached_) == 0) t.go("no");
             }},
            {"", "an idle processor and no other who wants it? detached = false", [this](turn& t) {
                 const value found = t.guarded(queued_) != 0 ? value{0} : take_idle(t);
                 if (found == 0) return t.go("no");
                 t.local(target) = static_cast<value>(found - 1);
                 t.store(detached_, 0);
                 t.go("give");
             }},
            {"no", "unlock", [this](turn& t) {
                 t.unlock(lock_);
                 t.go("round");
             }},
        };
        p += give_steps("give", which_of, [](turn& t) { t.go("no"); });
        // take()
        p += {{"take", "lock its retake", [this](turn& t) { t.lock(retake_[t.local(target)]); }}};
        p += take_steps("took", "missed", true);
        const step mark = {"took", "detached = true (release)",
            [this](turn& t) { c_.detached_releases ? t.store_release(detached_, 1) : t.store(detached_, 1); }};
        const step unlock = {c_.detached_under_lock ? "" : "took", "unlock its retake", [this](turn& t) {
                                 ++t.local(takes_made);
                                 t.unlock(retake_[t.local(target)]);
                                 if (c_.detached_under_lock) t.go("hand");
                             }};
        if (c_.detached_under_lock) p.push_back(mark);
        p.push_back(unlock);
        if (!c_.detached_under_lock) {
            p += {{"", "detached = true, too late", [this](turn& t) {
                       t.store(detached_, 1);
                       t.go("hand");
                   }}};
        }
        p += {
            {"missed", "unlock its retake", [this](turn& t) {
                 t.unlock(retake_[t.local(target)]);
                 t.go("round");
             }},
            // hand_on()
            {"hand", "is p wanted? lock", [this](turn& t) { t.way(2) == 0 ? t.lock(lock_) : t.go("turn"); }},
            {"", "an idle machine? unlock", [this](turn& t) {
                 t.unlock(lock_);
                 if (std::exchange(t.guarded(m1_idle_), value{0}) == 0) t.go("turn");
             }},
            {"", "hand p to m1: wake_word (release)", [this](turn& t) {
                 end_use(t, t.local(target));
                 t.store_release(wake_word_, which_of(t));
                 t.go("round");
             }},
            {"turn", "lock", [this](turn& t) { t.lock(lock_); }},
            {"", "is one preempted?", [this](turn& t) {
                 if (t.load(preempted_) == 0) t.go("none");
             }},
            {"", "takes it off the list", [this](turn& t) { t.store(preempted_, 0); }},
            {"", "unlock", [this](turn& t) { t.unlock(lock_); }},
            {"", "resume it with p", [this](turn& t) {
                 end_use(t, t.local(target));
                 resume(t, t.local(target));
                 t.go("round");
             }},
            {"none", "unlock", [this](turn& t) { t.unlock(lock_); }},
            {"put", "lock", [this](turn& t) { t.lock(lock_); }},
            {"", "p is idle, unlock", [this](turn& t) {
                 end_use(t, t.local(target));
                 put_idle(t, t.local(target));
                 t.local(target) = 0;
                 t.unlock(lock_);
                 if (!c_.hand_on_looks) t.go("round");
             }},
            {"R2", "heavy barrier", [](turn& t) { t.heavy_barrier(); }},
            {"R3", "does somebody wait?", [this](turn& t) {
                 if (t.load(preempted_) == 0 && t.guarded(queued_) == 0) t.go("round");
             }},
            {"W2", "lock", [this](turn& t) { t.lock(lock_); }},
            {"", "an idle processor? unlock", [this](turn& t) {
                 const value found = take_idle(t);
                 t.unlock(lock_);
                 if (found == 0) return t.go("round");
                 t.local(target) = static_cast<value>(found - 1);
                 use(t, t.local(target));
                 t.go("hand");
             }},
        };
        return p;
    }

    static value which_of(turn& t) { return static_cast<value>(t.local(target) + 1); }

    program m1_steps() {
        return {
            {"sleep", "wake_word?", [this](turn& t) {
                 const value w = t.load(wake_word_);
                 if (w == 0) return t.block();
                 t.local(target) = static_cast<value>(w - 1);
             }},
            {"", "wake_word = 0; p is m1's", [this](turn& t) {
                 own(t, t.local(target), m1);
                 use(t, t.local(target));
                 t.store(wake_word_, 0);
             }},
            // find_work()
            {"find", "is one preempted?", [this](turn& t) {
                 if (t.load(preempted_) == 0) t.go("R1");
             }},
            {"", "lock", [this](turn& t) { t.lock(lock_); }},
            {"", "is one preempted? unlock if not", [this](turn& t) {
                 if (t.load(preempted_) == 0) t.go("R1 locked");
             }},
            {"", "takes it off the list", [this](turn& t) { t.store(preempted_, 0); }},
            {"", "unlock", [this](turn& t) { t.unlock(lock_); }},
            {"", "lets p go, resumes it with p", [this](turn& t) {
                 const unsigned p = t.local(target);
                 t.guarded(owner_[p]) = nobody;
                 end_use(t, p);
                 t.local(target) = 0;
                 resume(t, p);
                 t.go("to sleep");
             }},
            {"R1", "lock", [this](turn& t) { t.lock(lock_); }},
            {"R1 locked", "does somebody wait?", [this](turn& t) {
                 if (t.guarded(queued_) != 0) {
                     t.guarded(queued_) = 0;  // runs it
                     return t.go("unlock");
                 }
                 if (c_.retire_looks && t.load(preempted_) != 0) t.go("unlock");
             }},
            {"", "no: p is idle, unlock", [this](turn& t) {
                 const unsigned p = t.local(target);
                 t.guarded(owner_[p]) = nobody;
                 end_use(t, p);
                 put_idle(t, p);
                 t.local(target) = 0;
                 t.unlock(lock_);
                 if (!c_.rescans) t.go("to sleep");
             }},
            {"R2", "heavy barrier", [](turn& t) { t.heavy_barrier(); }},
            {"R3", "does somebody wait?", [this](turn& t) {
                 if (t.load(preempted_) == 0 && t.guarded(queued_) == 0) t.go("to sleep");
             }},
            {"", "lock", [this](turn& t) { t.lock(lock_); }},
            {"", "an idle processor? unlock", [this](turn& t) {
                 const value p = take_idle(t);
                 t.unlock(lock_);
                 if (p == 0) return t.go("to sleep");
                 t.local(target) = static_cast<value>(p - 1);
                 own(t, t.local(target), m1);
                 use(t, t.local(target));
                 t.go("find");
             }},
            {"unlock", "unlock", [this](turn& t) {
                 t.unlock(lock_);
                 t.go("find");
             }},
            {"to sleep", "lock", [this](turn& t) { t.lock(lock_); }},
            {"", "m1 is idle, unlock", [this](turn& t) {
                 t.guarded(m1_idle_) = 1;
                 t.unlock(lock_);
                 t.go("sleep");
             }},
        };
    }

    program thief_steps() {
        program p = {
            {"", "chooses a victim, try_lock its retake", [this](turn& t) {
                 t.local(target) = static_cast<value>(t.way(2));
                 if (!t.try_lock(retake_[t.local(target)])) t.end();
             }},
        };
        p += take_steps("took", "end", false);
        p += {
            {"took", "takes run_next; owner = m0, m0->p = p", [this](turn& t) {
                 end_use(t, t.local(target));
                 own(t, t.local(target), m0);
                 t.store(p_, which_of(t));
             }},
            {"", "taken = 0 (release)", [this](turn& t) { t.store_release(taken_, 0); }},
            {"end", "unlock its retake", [this](turn& t) {
                 t.unlock(retake_[t.local(target)]);
                 t.end();
             }},
        };
        return p;
    }
};

testing::AssertionResult keeps(const config& c) { return holds(detached_model(c).model); }
testing::AssertionResult breaks_with(const config& c, const char* how) { return breaks(detached_model(c).model, how); }

TEST(StrayModel, EveryProcessorIsUsedByOneThreadAndNoMachineStandsStillWithoutNeed) {
    for (const memory mem : {memory::sequential, memory::tso, memory::weak}) {
        EXPECT_TRUE(keeps({.mem = mem}));
        EXPECT_TRUE(keeps({.calls = 1, .signals = 2, .mem = mem}));
        EXPECT_TRUE(keeps({.m1_runs = true, .mem = mem}));
        EXPECT_TRUE(keeps({.p1_away = true, .mem = mem}));
        EXPECT_TRUE(keeps({.takes = 1, .thief = true, .mem = mem}));
    }
    EXPECT_TRUE(keeps({.thief = true, .mem = memory::sequential}));
    EXPECT_TRUE(keeps({.calls = 1, .takes = 3, .mem = memory::sequential}));
}

// m0 holds the lock of p0 and finds that it has p1: the holder of the lock of that may be about to take it.
TEST(StrayModel, AMachineThatFindsAProcessorMustHoldTheLockOfThatOne) {
    EXPECT_TRUE(breaks_with({.mem = memory::sequential, .knows_whose_lock = false}, both_inside));
    EXPECT_TRUE(
        breaks_with({.takes = 1, .thief = true, .mem = memory::sequential, .knows_whose_lock = false}, both_inside));
}

// The same a moment later: m0 holds the lock of p0 and finds none, because a holder of the lock of p1 has just taken
// that. A thief gives it back, to a machine that has found another one meanwhile; the monitor marks such a machine as a
// detached machine.
TEST(StrayModel, AMachineThatFindsNoneMustHoldTheLockOfTheOneItWasGivenLast) {
    EXPECT_TRUE(
        breaks_with({.takes = 1, .thief = true, .mem = memory::sequential, .compares_null = false}, two_processors));
    EXPECT_TRUE(breaks_with({.mem = memory::sequential, .compares_null = false}, preempted_owner));
}

TEST(StrayModel, TheGiverOfAProcessorSaysWhichBeforeAThiefCanTakeIt) {
    EXPECT_TRUE(
        breaks_with({.takes = 1, .thief = true, .mem = memory::sequential, .last_p_first = false}, two_processors));
}

TEST(StrayModel, AStrayIsMarkedBeforeTheLockIsFree) {
    EXPECT_TRUE(breaks_with({.mem = memory::sequential, .detached_under_lock = false}, preempted_owner));
}

// The handler sees the mark and gives itself a processor; then the null of the taker arrives, and overwrites it.
TEST(StrayModel, MarkingAStrayReleases) {
    EXPECT_TRUE(breaks_with({.mem = memory::weak, .detached_releases = false}, null_inside));
}

TEST(StrayModel, AStrayThatHasAProcessorIsNoneAnyMore) {
    EXPECT_TRUE(breaks_with({.mem = memory::sequential, .detached_cleared = false}, preempted_owner));
}

TEST(StrayModel, TheHandlerAsksAgainUnderTheLock) {
    EXPECT_TRUE(breaks_with({.mem = memory::sequential, .handler_asks_again = false}, preempted_owner));
}

TEST(StrayModel, TheHandlerLooksForAnIdleProcessor) {
    EXPECT_TRUE(breaks_with({.mem = memory::sequential, .handler_looks_for_idle = false}, stands_still));
}

TEST(StrayModel, TheHandlerIsInsideTheRuntime) {
    EXPECT_TRUE(breaks_with({.mem = memory::sequential, .handler_inside = false}, both_inside));
}

TEST(StrayModel, WithoutTheSecondLookUnderTheLockAMachineGetsTwoProcessors) {
    EXPECT_TRUE(breaks_with({.mem = memory::sequential, .second_look = false}, two_processors));
}

// A goroutine is preempted after one has looked for that, and before its processor is idle.
TEST(StrayModel, TheThreadThatMakesAProcessorIdleLooksForThePreempted) {
    EXPECT_TRUE(
        breaks_with({.calls = 0, .p1_away = true, .mem = memory::sequential, .hand_on_looks = false}, stands_still));
    EXPECT_TRUE(
        breaks_with({.calls = 0, .p1_away = true, .mem = memory::sequential, .retire_looks = false, .rescans = false},
            stands_still));
    // Either is enough: a machine is queued as preempted under the scheduler lock.
    EXPECT_TRUE(keeps({.p1_away = true, .mem = memory::sequential, .retire_looks = false}));
    EXPECT_TRUE(keeps({.p1_away = true, .mem = memory::sequential, .rescans = false}));
}

TEST(StrayModel, EveryStepHappens) {
    const detached_model two({.m1_runs = true, .mem = memory::sequential}),
        robbed({.takes = 1, .thief = true, .mem = memory::sequential}),
        one({.p1_away = true, .mem = memory::sequential});
    EXPECT_EQ(never_made(two.model, robbed.model, one.model), std::set<std::string>());
}

}  // namespace
