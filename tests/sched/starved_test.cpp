// Goroutines for whose stacks there is no memory get those that other processors keep (sched/machines/starved.h).
#include <atomic>
#include <chrono>
#include <fstream>
#include <malloc.h>
#include <mutex>
#include <sys/resource.h>

#include <dunlin/dunlin.hpp>
#include <gtest/gtest.h>

#include "sched/machines/handshake.h"
#include "sched/machines/starved.h"
#include "stack/arena.h"
#include "support/build.h"
#include "support/runtime_test.h"

namespace {

// So many bytes more may be mapped than are, while it lives.
class address_space_limit {
public:
    explicit address_space_limit(std::size_t more) {
        mallopt(M_ARENA_MAX, 1);
        std::ifstream status("/proc/self/statm");
        std::size_t pages = 0;
        status >> pages;
        getrlimit(RLIMIT_AS, &before_);
        const rlimit now{pages * 4096 + more, before_.rlim_max};
        setrlimit(RLIMIT_AS, &now);
    }
    ~address_space_limit() { setrlimit(RLIMIT_AS, &before_); }

private:
    rlimit before_{};
};

class Starved : public support::runtime_test {
protected:
    void SetUp() override {
        support::runtime_test::SetUp();
        if (support::sanitized) GTEST_SKIP() << "sanitizers need address space without limits";
    }
};

void wait_at_once(int count) {
    dunlin::latch all(count);
    dunlin::wait_group ended;
    for (int i = 0; i < count; ++i) ended.go([&all] { all.arrive_and_wait(); });
    ended.wait();
}

// Goroutines that wait at once until there is memory for no more stack; how many.
int as_many_as_there_is_memory_for() {
    const dunlin::chan<int> all;
    dunlin::wait_group ended;
    std::atomic<int> begun{0};
    int count = 0;
    for (; dunlin::sched::memory_for_a_stack(); ++count) {
        ended.go([all, &begun] {
            begun.fetch_add(1);
            all.recv();
        });
        while (begun.load() <= count) dunlin::yield();
    }
    all.close();
    ended.wait();
    return count;
}

// A processor may have taken a few, and the stack of a thread comes from the same memory.
constexpr int spare = 16;

// Every free stack goes to the idle processor that is the last to be wanted. False: none is idle.
bool give_all_stacks_to_an_idle_processor() {
    using namespace dunlin::sched;
    scheduler& s = the_scheduler;
    const unstoppable_section section;
    const std::scoped_lock guard(s.lock);
    processor* last = s.idle_processors;
    if (last == nullptr) return false;
    while (last->idle_next != nullptr) last = last->idle_next;
    for (std::uint32_t i = 0; i < s.procs_made.load(); ++i) {
        processor* p = s.processor_at(i);
        if (p->state.load() == processor_state::idle || p == processor_of(current_machine()))
            give_stacks_to_arena(p, 0);
    }
    dunlin::stack::slot* all = nullptr;
    last->free_stack_count = static_cast<std::uint32_t>(
        dunlin::stack::stacks.allocate(s.default_stack_class.load(), &all, 1'000'000));
    last->free_stacks.store(all);
    return all != nullptr;
}

TEST_F(Starved, StacksThatIdleProcessorsKeepAreFound) {
    dunlin::run({.max_procs = 8}, [] {
        const address_space_limit limit(std::size_t{1} << 30);
        as_many_as_there_is_memory_for();
        for (int round = 0; round < 100; ++round) {
            while (!give_all_stacks_to_an_idle_processor()) dunlin::sleep_for(std::chrono::microseconds(100));
            const dunlin::chan<int> c;
            dunlin::go([c] { c.send(7); });
            EXPECT_EQ(c.recv(), 7);
        }
    });
}

TEST_F(Starved, StacksOfProcessorsThatGoAwayAreFound) {
    dunlin::run({.max_procs = 8}, [] {
        const address_space_limit limit(std::size_t{1} << 30);
        const int count = as_many_as_there_is_memory_for() - spare;
        ASSERT_GT(count, 64);
        for (int round = 0; round < 20; ++round) {
            dunlin::runtime::set_max_procs(8);
            wait_at_once(count);
            dunlin::runtime::set_max_procs(1);
            wait_at_once(count);
        }
    });
}

}  // namespace
