// The run queue. What is queued are plain variables, which the owner has written before: each comes out once, as
// written.
#include <array>

#include "sched/data/run_queue.h"
#include "sched/queues/run_queue_prefetch.h"
#include "sim/cases.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;

struct queue_state {
    sched::run_queue queue;
    std::array<explorer::variable<int>, 6> items;
    std::array<int, 6> taken{};

    sched::goroutine* item(unsigned i) {
        items[i].set(1);
        return reinterpret_cast<sched::goroutine*>(&items[i]);
    }
    void push(unsigned i) { explorer::require(queue.push(item(i)), "a queue with room refuses"); }
    void take(const sched::goroutine* g) {
        if (g == nullptr) return;
        const auto* v = reinterpret_cast<const explorer::variable<int>*>(g);
        explorer::require(v->get() == 1, "what is taken is not as it was queued");
        ++taken[static_cast<std::size_t>(v - items.data())];
    }
    void steal() {
        std::array<sched::goroutine*, sched::run_queue::capacity / 2> out{};
        const std::uint32_t n = queue.take_half(out.data());
        for (std::uint32_t i = 0; i < n; ++i) take(out[i]);
    }
    void end(unsigned pushed) {
        while (const sched::goroutine* g = queue.pop()) take(g);
        for (unsigned i = 0; i < pushed; ++i) explorer::require(taken[i] == 1, "one is taken twice, or lost");
    }
};

const add owner_and_thief{"queue/owner_and_thief", exhaustively(), [](explorer::scenario& s) {
    auto& q = s.make<queue_state>("queue");
    s.thread("owner", [&q] {
        q.push(0);
        q.push(1);
        q.take(q.queue.pop());
    });
    s.thread("thief", [&q] { q.steal(); });
    s.at_end([&q] { q.end(2); });
}};

// The owner takes its youngest back and queues another in its place, while a thief is between its look and its claim.
const add youngest{"queue/youngest_and_thief", exhaustively(), [](explorer::scenario& s) {
    auto& q = s.make<queue_state>("queue");
    s.thread("owner", [&q] {
        q.push(0);
        q.take(q.queue.pop_youngest_if([](const sched::goroutine*) { return true; }));
        q.push(1);
    });
    s.thread("thief", [&q] { q.take(q.queue.pop()); });
    s.at_end([&q] { q.end(2); });
}};

const add rotation{"queue/rotation_and_thief", exhaustively(), [](explorer::scenario& s) {
    auto& q = s.make<queue_state>("queue");
    s.thread("owner", [&q] {
        q.push(0);
        sched::goroutine* const second = q.item(1);
        if (const sched::goroutine* oldest = q.queue.rotate(second)) {
            q.take(oldest);
        } else {
            q.take(second);
        }
        q.take(q.queue.pop_and_prefetch());
    });
    s.thread("thief", [&q] { q.take(q.queue.pop()); });
    s.at_end([&q] { q.end(2); });
}};

// As long as a ring: the slots of what thieves have taken are written again.
const add round{"queue/two_thieves_and_all_calls", exhaustively(2, 1) + at_random(3'000), [](explorer::scenario& s) {
    auto& q = s.make<queue_state>("queue");
    s.thread("owner", [&q] {
        std::array<sched::goroutine*, 2> first{q.item(0), q.item(1)};
        q.queue.push_all(first.data(), 2);
        q.push(2);
        q.take(q.queue.pop_youngest_if([](const sched::goroutine*) { return true; }));
        q.push(3);
        q.take(q.queue.pop());
    });
    s.thread("thief", [&q] {
        q.take(q.queue.pop());
        q.steal();
    });
    s.thread("other", [&q] { q.steal(); });
    s.at_end([&q] { q.end(4); });
}};

}  // namespace
