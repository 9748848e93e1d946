// forked.h - executions of whole programs, each a child of one process that has prepared everything.
//
// Problem    The scheduler is constant-initialised, never destroyed, and made once for a process: so are the stacks,
//            the lot, the descriptors, the allocator below them. Nothing could be trusted to put all that back as it
//            was.
// So         a process of its own prepares the program, on virtual threads, up to prepared(). It has one thread of the
//            kernel's, so a forked child has everything, virtual threads included, and goes on from there; it says how
//            that ended, and is gone. The kernel copies what it changes: 0.1 to 0.3 ms for each. By the system call:
//            the runtime's own handler of forks (platform/usable.h) has no say, and addresses are what they were.
// Orders     are drawn in the parent before each child, and nothing that the child's strategy learns comes back but the
//            number of steps. So there is no exhaustive order.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/explore.h"

namespace dunlin::inline v0_1::sim {

class forked_explorer {
public:
    static constexpr std::size_t shrinking_executions = 1500;

    // Prepares the case. Throws std::runtime_error if that fails.
    forked_explorer(const options& o, const case_function& build);

    world::outcome once(strategy& s, std::string* story);

private:
    scenario parts_;
    world world_;
};

// Calls f in a child and returns its result, or a failure that says how the child ended.
result in_process_of_its_own(const std::function<result()>& f);

// The checks of a case at its end. explore.cpp.
void check_at_end(const std::vector<std::function<void()>>& checks, world::outcome& outcome, std::string* story);

}  // namespace dunlin::sim
