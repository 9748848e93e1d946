// What hangs on a processor: the retake handshake (sched/machine.h) and the biased lock (park/biased_lock.h).
#include "park/biased_lock.h"
#include "sched/machine.h"
#include "sim/cases.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;
using sched::machine;
using sched::processor;

struct running {
    processor p;
    machine m;

    running() {
        p.owner.store(&m);
        p.state.store(sched::processor_state::running);
        m.p.store(&p);
        m.last_p = &p;
        m.in_runtime.store(0);
    }
};

running& make_running(sim::scenario& s, const std::string& number) {
    auto& one = s.make<running>("machine and processor " + number);
    s.name(&one.m.p, 8, "m" + number + ".p");
    s.name(&one.m.taken, 4, "m" + number + ".taken");
    s.name(&one.m.in_runtime, 4, "m" + number + ".in_runtime");
    s.name(&one.p.owner, 8, "p" + number + ".owner");
    s.name(&one.p.retake, 8, "p" + number + ".retake");
    s.name(&one.p.sections, sizeof one.p.sections, "p" + number + ".sections");
    s.name(&one.p, 1, "p" + number);
    s.name(&one.m, 1, "m" + number);
    return one;
}

// ---- retake --------------------------------------------------------------------------------------------------------

struct queues {
    sim::variable<int> touched{0, "the processor's queues"};
    sim::variable<int> by_takers{0, "how often it was taken"};
};

// A machine that goes in and out, and takers that take its processor, use it and give it back, under the scheduler lock
// as all of those do that give one back.
sim::case_function retake(int takers, int entries, bool patient) {
    return [=](sim::scenario& s) {
        auto& one = make_running(s, "1");
        auto& q = s.make<queues>("queues");
        std::construct_at(&sched::the_scheduler.lock);
        s.name(&sched::the_scheduler.lock, sizeof sched::the_scheduler.lock, "scheduler.lock");
        s.thread("machine", [&one, &q, entries] {
            sched::set_current_machine(&one.m);
            for (int i = 0; i < entries; ++i) {
                machine* const m = sched::enter(&one.m);
                sim::require(m == &one.m && sched::processor_of(m) == &one.p, "inside without its processor");
                q.touched.set(q.touched.get() + 1);
                sched::leave(m);
            }
        });
        for (int i = 0; i < takers; ++i) {
            s.thread("taker " + std::to_string(i + 1), [&one, &q, patient] {
                sched::scheduler& all = sched::the_scheduler;
                all.lock.lock();
                one.p.retake.lock();
                const bool taken = sched::take_locked(&one.p, patient);
                one.p.retake.unlock();
                if (taken) {
                    q.touched.set(q.touched.get() + 1);
                    q.by_takers.set(q.by_takers.get() + 1);
                    sched::give(&one.p, &one.m);
                }
                all.lock.unlock();
            });
        }
        s.at_end([&one, &q, entries] {
            sim::require(q.touched.get() == entries + q.by_takers.get(), "a touch is lost");
            sim::require(one.m.taken.load() == 0, "`taken` stands although nobody has taken it");
            sim::require(one.m.p.load() == &one.p, "the processor is lost");
        });
    };
}

const add retake_one{"retake/one_taker", exhaustively(2, 2), retake(1, 1, false)};
const add retake_twice{"retake/one_taker_two_entries", exhaustively(1, 1) + at_random(5'000), retake(1, 2, false)};
const add retake_patient{"retake/a_patient_taker", exhaustively(2, 2), retake(1, 1, true)};
const add retake_two{"retake/two_takers", at_random(10'000), retake(2, 3, false)};

// A thief takes and keeps it, by try_take(); the machine, once in, does not come to harm by it.
const add retake_kept{"retake/taken_for_good", exhaustively(), [](sim::scenario& s) {
    auto& one = make_running(s, "1");
    auto& q = s.make<queues>("queues");
    s.thread("machine", [&one, &q] {
        one.m.in_runtime.store(1, std::memory_order_relaxed);
        platform::light_barrier();
        // As enter(), without what follows for one that has lost it.
        if (one.m.taken.load(std::memory_order_acquire) == 0) q.touched.set(q.touched.get() + 1);
        sched::leave(&one.m);
    });
    s.thread("thief", [&one, &q] {
        if (sched::try_take(&one.p)) q.touched.set(q.touched.get() + 1);
    });
}};

// ---- the biased lock -----------------------------------------------------------------------------------------------

// A lock with a bias to the first machine's processor, and what it guards.
struct guarded {
    park::biased_lock lock;
    sim::variable<int> count{0, "what the biased lock guards"};
};

guarded& make_biased(sim::scenario& s, running& to) {
    auto& g = s.make<guarded>("biased lock");
    for (unsigned i = 0; i <= park::biased_lock::first_bias_after; ++i) {
        g.lock.lock(&to.m);
        g.lock.unlock(&to.m);
    }
    if (g.lock.bias() != &to.p) throw std::logic_error("a biased lock has no bias");
    return g;
}

// Enters the runtime, as a taker of such a lock must have.
sim::case_function biased(int times, int others) {
    return [=](sim::scenario& s) {
        auto& first = make_running(s, "1");
        auto& g = make_biased(s, first);
        s.thread("owner", [&first, &g, times] {
            for (int i = 0; i < times; ++i) {
                g.lock.lock(&first.m);
                g.count.set(g.count.get() + 1);
                g.lock.unlock(&first.m);
            }
        });
        for (int k = 0; k < others; ++k) {
            auto& other = make_running(s, std::to_string(k + 2));
            s.thread("other " + std::to_string(k + 1), [&other, &g, k] {
                machine* const m = k == 0 ? &other.m : nullptr;  // a machine, and plain threads
                g.lock.lock(m);
                g.count.set(g.count.get() + 1);
                g.lock.unlock(m);
            });
        }
        s.at_end([&g, times, others] { sim::require(g.count.get() == times + others, "an increment is lost"); });
    };
}

const add biased_two{"biased/owner_and_other", exhaustively(3, 2), biased(1, 1)};
const add biased_again{"biased/owner_twice_and_other", exhaustively(2, 2), biased(2, 1)};
const add biased_three{"biased/owner_and_two_others", at_random(2'000), biased(3, 2)};

}  // namespace
