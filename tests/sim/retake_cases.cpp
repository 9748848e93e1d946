// The retake handshake (sched/machines/handshake.h).
#include "sched/machines/handshake.h"
#include "sim/cases.h"
#include "sim/processor_machine.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;

struct queues {
    explorer::variable<int> touched{0, "the processor's queues"};
    explorer::variable<int> by_takers{0, "how often it was taken"};
};

// A machine that goes in and out, and takers that take its processor, use it and give it back, under the scheduler lock
// as all of those do that give one back.
explorer::case_function retake(int takers, int entries, bool patient) {
    return [=](explorer::scenario& s) {
        auto& one = make_running(s, "1");
        auto& q = s.make<queues>("queues");
        std::construct_at(&sched::the_scheduler.lock);
        s.name(&sched::the_scheduler.lock, sizeof sched::the_scheduler.lock, "scheduler.lock");
        s.thread("machine", [&one, &q, entries] {
            sched::set_current_machine(&one.m);
            for (int i = 0; i < entries; ++i) {
                machine* const m = sched::enter(&one.m);
                explorer::require(m == &one.m && sched::processor_of(m) == &one.p, "inside without its processor");
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
            explorer::require(q.touched.get() == entries + q.by_takers.get(), "a touch is lost");
            explorer::require(one.m.taken.load() == 0, "`taken` stands although nobody has taken it");
            explorer::require(one.m.p.load() == &one.p, "the processor is lost");
        });
    };
}

const add retake_one{"retake/one_taker", exhaustively(2, 2), retake(1, 1, false)};
const add retake_twice{"retake/one_taker_two_entries", exhaustively(1, 1) + at_random(5'000), retake(1, 2, false)};
const add retake_patient{"retake/a_patient_taker", exhaustively(2, 2), retake(1, 1, true)};
const add retake_two{"retake/two_takers", at_random(10'000), retake(2, 3, false)};

// A thief takes and keeps it, by try_take(); the machine, once in, does not come to harm by it.
const add retake_kept{"retake/taken_for_good", exhaustively(), [](explorer::scenario& s) {
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

}  // namespace
