// whole.h - whole programs as cases: the real run() on virtual threads (docs/decisions/048-whole-programs.md).
#pragma once

#include <functional>

#include <dunlin/dunlin.hpp>

#include "sched/hooks.h"
#include "sched/lifetime.h"
#include "sched/machine.h"
#include "sched/wake.h"
#include "sim/cases.h"

namespace dunlin::sim_cases {

// Drawn orders, so many of each, sequential and TSO.
std::vector<sim::options> whole(std::size_t executions, std::size_t max_steps = 60'000);

// W1 of wake.h, when nobody can do anything any more: no goroutine is runnable while a processor is idle, but for those whose wake
// is left to the monitor.
std::string nobody_is_forgotten();

// run(main) with so many processors, after another run() that has made threads.
sim::case_function program(unsigned max_procs, std::function<void()> main);

}  // namespace dunlin::sim_cases
