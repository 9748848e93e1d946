// Everything that can be waited for, and one waiter that gives up: abandon.h says what must hold.
// A new primitive: a subject (abandon_chan.h, abandon_sync.h, abandon_io.h) and a line in the table.
#include <iostream>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "support/runtime_test.h"
#include "vocabulary/abandon.h"
#include "vocabulary/abandon_chan.h"
#include "vocabulary/abandon_io.h"
#include "vocabulary/abandon_sync.h"

namespace {

using namespace abandon;

struct row {
    const char* name;
    std::unique_ptr<subject> (*make)();
    traits what;
};

std::ostream& operator<<(std::ostream& out, const row& r) { return out << r.name; }

template <class S>
std::unique_ptr<subject> make() {
    return std::make_unique<S>();
}

const row table[] = {
    {"chan_recv", make<chan_recv<0>>, {.timed = true, .closes = true, .destroys = true}},
    {"chan_recv_buffered", make<chan_recv<2>>, {.timed = true, .closes = true, .destroys = true}},
    {"chan_send", make<chan_send<0>>, {.timed = true, .closes = true, .destroys = true}},
    {"chan_send_buffered", make<chan_send<2>>, {.timed = true, .closes = true, .destroys = true}},
    {"select_recv", make<select_recv>, {.timed = true, .closes = true}},
    {"select_send", make<select_send>, {.timed = true, .closes = true}},
    {"select_readable", make<select_readable>, {.timed = true, .closes = true, .for_all = true}},
    {"timer", make<timer_channel>, {.timed = true}},
    {"context_done", make<context_done>, {.timed = true, .for_all = true}},
    {"sleep", make<sleeping>, {.for_all = true}},
    {"mutex", make<mutex_lock>, {.timed = true, .destroys = true}},
    {"mutex_with_passers_by", make<passed_by_mutex_lock>, {.timed = true}},
    {"recursive_mutex", make<recursive_lock>, {.timed = true, .for_all = true}},
    {"shared_mutex_lock", make<shared_lock_write>, {.timed = true, .destroys = true}},
    {"shared_mutex_lock_shared", make<shared_lock_read>, {.timed = true, .for_all = true, .destroys = true}},
    {"shared_mutex_readers_behind_a_writer", make<readers_behind_a_writer>,
        {.timed = true, .for_all = true, .freed_by_leaver = true}},
    {"condition_variable", make<condition_wait<dunlin::condition_variable>>, {.timed = true}},
    {"condition_variable_any", make<condition_wait<dunlin::condition_variable_any>>, {.timed = true}},
    {"condition_variable_bare", make<bare_condition_wait>, {.timed = true, .destroys = true}},
    {"condition_variable_stop_token", make<condition_with_stop_token>, {.timed = true}},
    {"semaphore", make<semaphore_acquire>, {.timed = true, .destroys = true}},
    {"latch", make<latch_wait>, {.timed = true, .for_all = true, .destroys = true}},
    {"barrier", make<barrier_wait>, {.for_all = true}},
    {"wait_group", make<wait_group_wait>, {.timed = true, .for_all = true, .destroys = true}},
    {"future", make<future_get>, {.timed = true, .closes = true, .for_all = true, .waiters = 1}},
    {"task", make<task_get>, {.timed = true, .for_all = true, .waiters = 1}},
    {"task_group", make<task_group_wait>, {.for_all = true, .destroys = true, .waiters = 1}},
    {"call_once", make<once_call>, {.for_all = true, .quits = false}},
    {"pipe_read", make<stream_read<pipe_ends>>, {.closes = true, .destroys = true}},
    {"tcp_read", make<stream_read<tcp_ends>>, {.closes = true}},
    {"stream_write", make<stream_write>, {.closes = true, .for_all = true}},
    {"accept", make<accepting>, {.closes = true}},
    {"packet_read", make<packet_read>, {.closes = true}},
    {"process", make<process_wait>, {.for_all = true}},
};

constexpr unsigned races = support::sanitized ? 2 : 6;

bool applies(way w, const traits& t) {
    switch (w) {
    case way::success: return true;
    case way::close: return t.closes;
    case way::destroyed: return t.quits && t.destroys;
    case way::time_out: return t.quits && t.timed;
    default: return t.quits;
    }
}

class AbandonedWait : public support::runtime_test, public testing::WithParamInterface<std::tuple<row, unsigned>> {};

// The twelve drivers of one way run at the same time: most of it is waiting.
TEST_P(AbandonedWait, LosesNothing) {
    const auto& [line, procs] = GetParam();
    dunlin::run({.max_procs = procs}, [&line = line, procs = procs] {
        std::mutex m;
        std::vector<std::string> faults;
        const auto drive = [&](scenario s) {
            const std::string fault = play(line.make(), line.what, s).run();
            if (fault.empty()) return;
            const std::scoped_lock lock(m);
            faults.push_back(name(s, line.name) + ": " + fault);
        };
        constexpr way ways[] = {way::success, way::cancel, way::deadline, way::time_out, way::close, way::destroyed,
            way::cancel_race, way::time_race};
        for (const way w : ways) {
            if (!applies(w, line.what)) continue;
            dunlin::task_group drivers;
            for (int i = 0; i < 12; ++i) {
                scenario s{w, i % 3, i / 3 % 2 == 0 ? kind::goroutine : kind::thread,
                    i / 6 == 0 ? kind::goroutine : kind::thread};
                if (line.what.waiters == 1 && s.place != 0) continue;
                // Threads are slow to make under a sanitizer: there each number of processors has one place.
                const int the_place = procs == 1 ? 0 : procs == 2 ? 1 : 2;
                if (support::sanitized && line.what.waiters > 1 && s.place != the_place) continue;
                drivers.go({.name = name(s, line.name)}, [&drive, s]() mutable {
                    const bool race = s.how == way::cancel_race || s.how == way::time_race;
                    for (unsigned round = 0; round < (race ? races : 1u); ++round) {
                        s.jitter = s.how == way::time_race ? round * 20 : round;
                        drive(s);
                    }
                });
            }
            drivers.wait();
        }
        for (const std::string& fault : faults) ADD_FAILURE() << fault;
    });
}

INSTANTIATE_TEST_SUITE_P(Each, AbandonedWait, testing::Combine(testing::ValuesIn(table), testing::Values(1u, 2u, 8u)),
    [](const auto& i) { return std::string(std::get<0>(i.param).name) + "_P" + std::to_string(std::get<1>(i.param)); });

// ---- what would not keep to it is noticed -------------------------------------------------------------------------

enum class mistake { permit_too_many, another_end, too_early, closed_as_cancelled };

class mistaken : public semaphore_acquire {
public:
    explicit mistaken(mistake m) : mistake_(m) {}
    outcome wait(const limit& l, bool quitter) override {
        if (mistake_ == mistake::too_early && l.how == limit::time) return outcome::timed_out;
        if (mistake_ == mistake::closed_as_cancelled) return closed_.recv() ? outcome::got : outcome::cancelled;
        const outcome o = semaphore_acquire::wait(l, quitter);
        return mistake_ == mistake::another_end && o == outcome::cancelled ? outcome::timed_out : o;
    }
    void serve() override {
        semaphore_acquire::serve();
        if (mistake_ == mistake::permit_too_many && ++served_ == 2) semaphore_acquire::serve();
    }
    void close() override { closed_.close(); }

private:
    const mistake mistake_;
    int served_ = 0;
    dunlin::chan<int> closed_;
};

class AbandonedWaitItself : public support::runtime_test {
protected:
    static std::string fault(mistake m, way w) {
        constexpr traits what{.timed = true, .closes = true, .waiters = 3};
        const scenario s{w, 1, kind::goroutine, kind::thread};
        return dunlin::run({.max_procs = 2}, [&] { return play(std::make_unique<mistaken>(m), what, s).run(); });
    }
};

TEST_F(AbandonedWaitItself, NoticesWhatIsNotAsItShouldBe) {
    EXPECT_EQ(fault(mistake::permit_too_many, way::cancel), "a permit is left");
    EXPECT_EQ(fault(mistake::another_end, way::cancel), "the quitter: timed out");
    EXPECT_EQ(fault(mistake::too_early, way::time_out), "the quitter, too early,: timed out");
    EXPECT_EQ(fault(mistake::closed_as_cancelled, way::close), "a wait ended by close(): cancelled");
}

}  // namespace
