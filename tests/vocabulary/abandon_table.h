// abandon_table.h - the scenarios of abandon.h for a table of subjects: the fixture's part of it.
#pragma once

#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "support/runtime_test.h"
#include "vocabulary/abandon.h"

namespace abandon {

struct row {
    const char* name;
    std::unique_ptr<subject> (*make)();
    traits what;
};

inline std::ostream& operator<<(std::ostream& out, const row& r) { return out << r.name; }

template <class S>
std::unique_ptr<subject> make() {
    return std::make_unique<S>();
}

inline constexpr way all_ways[] = {way::success, way::cancel, way::deadline, way::time_out, way::close, way::destroyed,
    way::cancel_race, way::time_race};

inline bool applies(way w, const traits& t) {
    switch (w) {
    case way::success: return true;
    case way::close: return t.closes;
    case way::destroyed: return t.quits && t.destroys;
    case way::time_out: return t.quits && t.timed;
    default: return t.quits;
    }
}

// Every scenario of one subject, in a run() of its own. What went wrong.
// The twelve drivers of one way run at the same time: most of it is waiting.
inline std::vector<std::string> play_all(const row& line, unsigned procs) {
    constexpr unsigned races = support::sanitized ? 2 : 6;
    return dunlin::run({.max_procs = procs}, [&line, procs] {
        std::mutex m;
        std::vector<std::string> faults;
        const auto drive = [&](scenario s) {
            const std::string fault = play(line.make(), line.what, s).run();
            if (fault.empty()) return;
            const std::scoped_lock lock(m);
            faults.push_back(name(s, line.name) + ": " + fault);
        };
        for (const way w : all_ways) {
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
        return faults;
    });
}

// Of testing::Combine(testing::ValuesIn(table), testing::Values(1u, 2u, 8u)).
class each_row : public support::runtime_test, public testing::WithParamInterface<std::tuple<row, unsigned>> {
protected:
    void expect_nothing_lost() {
        const auto& [line, procs] = GetParam();
        for (const std::string& fault : play_all(line, procs)) ADD_FAILURE() << fault;
    }
};

inline std::string row_name(const testing::TestParamInfo<std::tuple<row, unsigned>>& i) {
    return std::string(std::get<0>(i.param).name) + "_P" + std::to_string(std::get<1>(i.param));
}

}  // namespace abandon
