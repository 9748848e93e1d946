// watch_credit.h - whether a machine that finds no work watches for some before it sleeps, while goroutines wait for
// descriptors (find_work.cpp, step 7).
//
// A watch that finds work saves a sleep and a wake, and the goroutine that was found the time until a thread runs. One
// that finds none has used the CPU for nothing. Which it will be is predicted from the last watches: where requests
// come in bursts most find something; where they arrive one at a time, each by way of the poller, hardly any does.
// Source     The figures: docs/decisions/006-spinning.md.
// Tests      tests/sched/watch_credit_test.cpp
#pragma once

#include <algorithm>
#include <cstdint>

namespace dunlin::inline v0_1::sched {

// Of a processor, used by its owner.
class watch_credit {
public:
    // Without credit one in probe_every is tried all the same, since the program may have changed.
    bool worth_it() noexcept { return credit_ != 0 || ++left_out_ % probe_every == 0; }
    void note(bool found) noexcept {
        if (found) {
            credit_ = std::min(credit_ + per_find, most);
        } else if (credit_ != 0) {
            --credit_;
        }
    }

private:
    static constexpr unsigned most = 16, per_find = 4, probe_every = 16;
    unsigned credit_ = most;
    unsigned left_out_ = 0;
};

}  // namespace dunlin::sched
