// worlds.h - the same case from plain threads, from goroutines at P = 1, 2, 8, and from both together.
//
// each_world         TEST_P: once for each world (EACH_WORLD(name) makes the instances)
// inside(body)       runs body in the world: on this thread, or as the main goroutine
// start(f)           a worker that runs f: a thread, a goroutine, or each in turn; its destructor waits for it
// until(condition)   waits, on the watchdog's time; a_while() gives what must not happen a chance to happen
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/runtime_test.h"

namespace worlds {

using namespace std::chrono_literals;

enum class world : unsigned { threads = 0, one = 1, two = 2, eight = 8, mixed = 100 };

template <class Condition>
void until(Condition condition) {
    while (!condition()) dunlin::sleep_for(20us);
}
inline void a_while() { dunlin::sleep_for(2ms); }

class worker {
public:
    worker(bool as_thread, std::function<void()> f) {
        if (as_thread) {
            thread_.emplace(std::move(f));
        } else {
            task_.emplace(dunlin::spawn(std::move(f)));
        }
    }
    worker(worker&&) = default;
    worker& operator=(worker&&) = delete;
    ~worker() { join(); }

    void join() {
        if (thread_ && thread_->joinable()) dunlin::blocking([this] { thread_->join(); });
        if (task_ && task_->valid()) task_->get();
    }

private:
    std::optional<std::thread> thread_;
    std::optional<dunlin::task<void>> task_;
};

class each_world : public support::runtime_test, public testing::WithParamInterface<world> {
protected:
    template <class Body>
    void inside(Body&& body) {
        if (GetParam() == world::threads) {
            body();
        } else {
            const unsigned procs = GetParam() == world::mixed ? 2 : static_cast<unsigned>(GetParam());
            dunlin::run({.max_procs = procs}, std::forward<Body>(body));
        }
    }
    worker start(std::function<void()> f) {
        const bool as_thread =
            GetParam() == world::threads || (GetParam() == world::mixed && started_.fetch_add(1) % 2 == 0);
        return worker(as_thread, std::move(f));
    }
    std::vector<worker> start(int n, const std::function<void(int)>& f) {
        std::vector<worker> all;
        for (int i = 0; i < n; ++i) all.push_back(start([f, i] { f(i); }));
        return all;
    }

private:
    std::atomic<unsigned> started_{0};
};

inline std::string world_name(const testing::TestParamInfo<world>& info) {
    switch (info.param) {
    case world::threads: return "threads";
    case world::mixed: return "mixed";
    default: return "P" + std::to_string(static_cast<unsigned>(info.param));
    }
}

template <class E, class F>
void expect_code(E code, F f) {
    try {
        f();
        ADD_FAILURE() << "nothing was thrown";
    } catch (const std::system_error& e) {
        EXPECT_EQ(e.code(), make_error_code(code)) << e.what();
    } catch (const std::future_error& e) {
        EXPECT_EQ(e.code(), make_error_code(code)) << e.what();
    }
}

// What may stand where the standard wants something that is contextually convertible to bool, and nothing more.
struct truth {
    bool value;
    explicit operator bool() const { return value; }
};

}  // namespace worlds

#define EACH_WORLD(fixture)                                                                                   \
    INSTANTIATE_TEST_SUITE_P(W, fixture,                                                                      \
        testing::Values(worlds::world::threads, worlds::world::one, worlds::world::two, worlds::world::eight, \
            worlds::world::mixed),                                                                            \
        worlds::world_name)
