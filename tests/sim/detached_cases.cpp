// A machine that comes back without its processor (sched/goroutines/reenter.cpp), while it is given one, and
// that is taken again: each step of the real files alone, with a scheduler that has one more processor to give.
#include "sched/goroutines/goroutine.h"
#include "sched/machines/processor.h"
#include "sim/cases.h"
#include "sim/processor_machine.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;
using sched::the_scheduler;

struct touched {
    explorer::variable<int> of[3] = {
        {0, "processor 0's queues"}, {0, "processor 1's queues"}, {0, "processor 2's queues"}};
};

// The machine has had processor 0; processor 1 is what it may be given; 2 is idle, so that it never has to queue.
struct parts {
    running had;
    processor others[2];
    sched::goroutine g;

    parts() {
        sched::scheduler& s = the_scheduler;
        std::construct_at(&s.lock);
        s.stopping.store(false);
        s.idle_processors = nullptr;
        s.idle_and_spinning.store(0);
        had.p.owner.store(nullptr);
        had.m.p.store(nullptr);
        had.m.taken.store(1);
        had.m.in_runtime.store(0);
        had.m.detached.store(true);
        had.m.current.store(&g);
        g.state.store(sched::goroutine_state::running);
        for (processor& p : others) p.state.store(sched::processor_state::running);
        s.max_procs.store(1);  // no clock is kept of idle ones; those here all have the number 0
        s.lock.lock();
        sched::put_idle_processor(&others[1], false);
        s.lock.unlock();
    }

    unsigned number_of(const processor* p) const noexcept { return p == &had.p ? 0 : p == others ? 1 : 2; }
    // What the machine has is its own, and nothing else says that it is.
    void check_that_none_is_lost() {
        processor* const has = had.m.p.load();
        for (processor* p : {&had.p, &others[0], &others[1]}) {
            explorer::require((p->owner.load() == &had.m) == (p == has),
                "a processor is lost: its machine has another");
        }
    }
};

parts& make_parts(explorer::scenario& s) {
    auto& all = s.make<parts>("parts");
    s.name(&all.had.m.p, 8, "m.p");
    s.name(&all.had.m.taken, 4, "m.taken");
    s.name(&all.had.m.in_runtime, 4, "m.in_runtime");
    s.name(&all.had.m.last_p, 8, "m.last_p");
    s.name(&all.had.m.detached, 1, "m.detached");
    for (unsigned i = 0; i < 2; ++i) {
        s.name(&all.others[i].retake, 8, "p" + std::to_string(i + 1) + ".retake");
        s.name(&all.others[i].owner, 8, "p" + std::to_string(i + 1) + ".owner");
    }
    s.name(&the_scheduler.lock, sizeof the_scheduler.lock, "scheduler.lock");
    s.name(&the_scheduler.idle_and_spinning, 4, "idle_and_spinning");
    return all;
}

// As give_back() in detached.cpp: under the lock, if it is detached still.
void give_back(parts& all) {
    sched::scheduler& s = the_scheduler;
    s.lock.lock();
    if (all.had.m.detached.load(std::memory_order_relaxed)) {
        all.had.m.detached.store(false, std::memory_order_relaxed);
        sched::give(&all.others[0], &all.had.m);
    }
    s.lock.unlock();
}

explorer::case_function comes_back(bool is_taken_again) {
    return [=](explorer::scenario& s) {
        auto& all = make_parts(s);
        auto& queues = s.make<touched>("queues");
        s.thread("machine", [&all, &queues] {
            sched::set_current_machine(&all.had.m);
            machine* const m = sched::enter(&all.had.m);
            processor* const p = m->p.load(std::memory_order_relaxed);
            explorer::require(p != nullptr, "inside without a processor");
            queues.of[all.number_of(p)].set(1);
            explorer::require(m->p.load(std::memory_order_relaxed) == p, "its processor is taken while it is inside");
            sched::leave(m);
        });
        s.thread("monitor", [&all] { give_back(all); });
        if (is_taken_again) {
            s.thread("taker", [&all, &queues] {
                processor* const p = &all.others[0];
                if (sched::try_take(p)) queues.of[all.number_of(p)].set(2);
            });
        }
        s.at_end([&all] { all.check_that_none_is_lost(); });
    };
}

const add given{"detached/given_back", at_random(6'000), comes_back(false)};
const add given_and_taken{"detached/given_back_and_taken", at_random(12'000), comes_back(true)};

}  // namespace
