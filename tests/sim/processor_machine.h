// processor_machine.h - a machine that runs with a processor, for the cases of what hangs on one.
#pragma once

#include <string>

#include "sched/machines/handshake.h"
#include "sim/cases.h"

namespace dunlin::inline v0_1::sim_cases {

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

inline running& make_running(explorer::scenario& s, const std::string& number) {
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

}  // namespace dunlin::sim_cases
