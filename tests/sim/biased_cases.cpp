// The biased lock (park/biased_lock.h).
#include "park/biased_lock.h"
#include "sim/cases.h"
#include "sim/processor_machine.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;

// A lock with a bias to the first machine's processor, and what it guards.
struct guarded {
    park::biased_lock lock;
    explorer::variable<int> count{0, "what the biased lock guards"};
};

guarded& make_biased(explorer::scenario& s, running& to) {
    auto& g = s.make<guarded>("biased lock");
    for (unsigned i = 0; i <= park::biased_lock::first_bias_after; ++i) {
        g.lock.lock(&to.m);
        g.lock.unlock(&to.m);
    }
    if (g.lock.bias() != &to.p) throw std::logic_error("a biased lock has no bias");
    return g;
}

// Enters the runtime, as a taker of such a lock must have.
explorer::case_function biased(int times, int others) {
    return [=](explorer::scenario& s) {
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
        s.at_end([&g, times, others] { explorer::require(g.count.get() == times + others, "an increment is lost"); });
    };
}

const add biased_two{"biased/owner_and_other", exhaustively(3, 2), biased(1, 1)};
const add biased_again{"biased/owner_twice_and_other", exhaustively(2, 2), biased(2, 1)};
const add biased_three{"biased/owner_and_two_others", at_random(2'000), biased(3, 2)};

}  // namespace
