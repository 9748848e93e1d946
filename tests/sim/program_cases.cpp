// Whole programs, small ones: what goroutines do with each other.
#include "sim/whole.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;

// Two senders and a receiver.
const add channels{"program/channel", whole(1'000), program(2, [] {
    chan<int> c;
    for (int k = 0; k < 2; ++k) {
        go([c]() mutable {
            for (int i = 0; i < 3; ++i) c.send(1);
        });
    }
    int sum = 0;
    for (int i = 0; i < 6; ++i) sum += c.recv().value_or(100);
    sim::require(sum == 6, "a value is lost or doubled");
})};

}  // namespace
