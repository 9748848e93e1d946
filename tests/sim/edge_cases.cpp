// Edges by which a thread that goes on sees what another has left, where nothing else in a program orders the two: the
// real functions of each side, around a variable of the case's.
#include "sched/goroutines/switch.h"
#include "sched/machines/machine.h"
#include "sched/machines/processor.h"
#include "sim/cases.h"
#include "sim/processor_machine.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;
using sched::the_scheduler;

struct left {
    explorer::variable<int> by_it{0, "what it has left"};
};

// A goroutine leaves its machine (switch.h), and another one takes it over.
const add leaves{"edge/leaves", exhaustively(), [](explorer::scenario& s) {
    auto& g = s.make<sched::goroutine>("goroutine");
    auto& m = s.make<machine>("machine");
    auto& context = s.make<left>("context");
    m.leaving = &g;
    g.saved.store(0);
    s.name(&g.saved, 1, "saved");
    s.thread("leaver", [&] {
        context.by_it.set(1);  // as the switch saves its registers
        sched::commit_departure(&m);
    });
    s.thread("taker", [&] {
        if (sched::can_switch_to(&g)) explorer::require(context.by_it.get() == 1,
            "it is taken over before it has left");
    });
}};

// A machine that sleeps on the idle list is handed a processor.
const add handed{"edge/handed", exhaustively(3, 3), [](explorer::scenario& s) {
    auto& one = s.make<running>("machine and processor");
    auto& queues = s.make<left>("queues");
    sched::scheduler& all = the_scheduler;
    std::construct_at(&all.lock);
    std::construct_at(&all.idle_machines);
    all.idle_machine_count = 0;
    all.idle_processors = nullptr;
    all.stopping.store(false);
    one.p.owner.store(nullptr);
    one.m.p.store(nullptr);
    one.m.in_runtime.store(1);
    s.name(&one.m.wake_word, 4, "m.wake_word");
    s.name(&all.lock, sizeof all.lock, "scheduler.lock");
    s.thread("machine", [&] {
        sched::set_current_machine(&one.m);
        sched::sleep_until_handed_a_processor(&one.m);
        explorer::require(queues.by_it.get() == 1, "what the processor's last owner has done is lost");
    });
    s.thread("waker", [&] {
        queues.by_it.set(1);
        while (all.idle_machine_count == 0) platform::pause();
        explorer::require(sched::start_idle_machine(&one.p, false, sched::wake_place::anywhere), "no machine is idle");
    });
}};

}  // namespace
