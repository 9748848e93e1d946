// dunlin::sim: a simulation does not begin while a round of the monitor may still take its processor.
#include <pthread.h>

#include <atomic>
#include <string_view>
#include <thread>

#include <dunlin/dunlin.hpp>
#include <dunlin/sim.hpp>

#include "poll/netpoll.h"
#include "sched/data/event_source.h"
#include "sched/data/steering.h"
#include "sched/data/types.h"
#include "support/runtime_test.h"

namespace {

using namespace std::chrono_literals;
namespace sched = dunlin::sched;
namespace sim = dunlin::sim;

// Holds the monitor up in the middle of a round, where it asks for a deadline.
struct slow_poller final : dunlin::netpoll::poller {
    std::atomic<bool> holds{false};
    mutable std::atomic<bool> held{false};

    std::int64_t next_deadline(const sched::processor* p) const noexcept override {
        while (holds.load() && is_monitor()) {
            held.store(true);
            std::this_thread::sleep_for(100us);
        }
        return poller::next_deadline(p);
    }

private:
    static bool is_monitor() noexcept {
        char name[16] = {};
        pthread_getname_np(pthread_self(), name, sizeof name);
        return std::string_view(name) == "dunlin-monitor";
    }
};

class SimulationBegins : public support::runtime_test {
protected:
    static void SetUpTestSuite() {
        ASSERT_EQ(sched::the_scheduler.events, nullptr) << "the runtime has started already";
        sched::the_scheduler.events = source;
    }
    static inline slow_poller* const source = new slow_poller;  // never destroyed: the monitor goes on
};

TEST_F(SimulationBegins, AfterTheRoundOfTheMonitorThatIsInProgress) {
    std::atomic<bool> begun{false}, ended{false};
    std::thread simulates([&] {
        dunlin::run({.max_procs = 1}, [&] {
            // The monitor makes rounds while a goroutine computes.
            source->holds.store(true);
            while (!source->held.load()) {}
        });
        EXPECT_TRUE(sim::explore({.seeds = 1}, [&] { begun.store(true); }).ok());
        ended.store(true);
    });
    support::eventually_on_thread([] { return source->held.load() && sched::steered() != nullptr; });
    std::this_thread::sleep_for(100ms);
    EXPECT_FALSE(begun.load());
    source->holds.store(false);
    support::eventually_on_thread([&] { return ended.load(); });
    EXPECT_TRUE(begun.load());
    simulates.join();
}

}  // namespace
