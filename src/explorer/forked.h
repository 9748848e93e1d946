// forked.h - executions of whole programs, each a child of one process that has prepared everything.
//
// Problem    The scheduler is constant-initialised, never destroyed, and made once for a process: so are the stacks,
//            the parking lot, the descriptors, the allocator below them. Nothing could be trusted to put all that back
//            as it was.
// So         A process of its own prepares the program, on virtual threads, up to prepared(). It has one kernel thread,
//            so a forked child has everything, virtual threads included. The child goes on from there, reports how that
//            ended, and exits. The kernel copies what the child changes: 0.1 to 0.3 ms for each child. The fork is a
//            raw system call: the runtime's own fork handler (platform/usable.h) is not called, and addresses stay the
//            same.
// Orders     The parent calls the strategy's begin() before each child, and of what the child's strategy learns only
//            the number of steps comes back. So there is no exhaustive order.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "explorer/explore.h"

namespace dunlin::inline v0_1::explorer {

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

// Runs the checks of a case at its end (explore.cpp).
void check_at_end(const std::vector<std::function<void()>>& checks, world::outcome& outcome, std::string* story);

}  // namespace dunlin::explorer
