// Whole programs, small ones: what goroutines do with each other.
#include "sim/whole.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;

// Two senders and a receiver. What is sent says where more is to be found.
template <bool prepares = false>
void over_a_channel() {
    chan<own_value*> c;
    own_value mine, sent[6];
    if (prepares) explorer::prepared();
    for (int k = 0; k < 2; ++k) {
        go([c, &sent, k] {
            own_value own;
            for (int i = 0; i < 3; ++i) {
                own.touch();
                sent[3 * k + i].touch();
                c.send(&sent[3 * k + i]);
            }
            own.touch();
        });
    }
    for (int i = 0; i < 6; ++i) {
        mine.touch();
        own_value* const value = *c.recv();
        value->touch();
        explorer::require(value->touched() == 2, "a value is doubled");
    }
    explorer::require(mine.touched() == 6, "what a goroutine had on its stack is lost");
}
const add channels{"program/channel", drawn(1'000), whole({.prepares_itself = true, .main = over_a_channel<true>})};
const add first{"program/first_run", drawn(500), whole({.has_threads = false, .main = over_a_channel<>})};
const add one_processor{"program/one_processor", drawn(300),
    whole({.max_procs = 1, .prepares_itself = true, .main = over_a_channel<true>})};

// Each adds, under a lock of the runtime's.
const add mutexes{"program/mutex", drawn(500), whole({.prepares_itself = true, .main = [] {
    explorer::prepared();
    mutex m;
    explorer::variable<int> count{0, "what the mutex guards"};
    task_group g;
    for (int k = 0; k < 3; ++k) {
        g.go([&] {
            for (int i = 0; i < 2; ++i) {
                m.lock();
                count.set(count.get() + 1);
                m.unlock();
                if (i == 0) explorer::compute(3 * us);
            }
        });
    }
    g.wait();
    explorer::require(count.get() == 6, "an increment is lost");
}})};

// Each of two selects has both channels; each value arrives once.
const add selects{"program/select", drawn(500), whole({.prepares_itself = true, .main = [] {
    explorer::prepared();
    chan<int> a, b, done;
    for (int k = 0; k < 2; ++k) {
        go([=] {
            int sum = 0;
            for (int i = 0; i < 2; ++i) {
                select(on_recv(a, [&](std::optional<int> v) { sum += *v; }),
                    on_recv(b, [&](std::optional<int> v) { sum += *v; }));
            }
            done.send(sum);
        });
    }
    for (const int value : {1, 10}) {
        go([=] { a.send(value); });
        go([=] { b.send(100 * value); });
    }
    explorer::require(*done.recv() + *done.recv() == 1111, "a value is lost or doubled");
}})};

}  // namespace
