// runtime_test.h - the fixture of every test that runs goroutines: P = 1, 2, 8, under a watchdog, and no goroutine left
// afterwards.
//
// runtime_test       one test, whatever the number of processors
// each_p             TEST_P: once for each of P = 1, 2, 8 (EACH_P(name) makes the instances); run(body) is dunlin::run
//                    with that many
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include <dunlin/dunlin.hpp>
#include <gtest/gtest.h>

#include "support/build.h"
#include "support/watchdog.h"

namespace support {

using namespace std::chrono_literals;

inline std::string test_name() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    return std::string(info->test_suite_name()) + '.' + info->name();
}

// Lets others run until `condition` holds. The watchdog ends it when it never does.
template <class Condition>
void eventually(Condition condition) {
    while (!condition()) dunlin::yield();
}

// The same on a plain thread, where yield() would keep the processor.
template <class Condition>
void eventually_on_thread(Condition condition) {
    while (!condition()) std::this_thread::sleep_for(50us);
}

class runtime_test : public testing::Test {
protected:
    // A test that needs longer says so at its beginning.
    void allow(std::chrono::seconds limit) {
        dog_.reset();
        dog_ = std::make_unique<watchdog>(test_name(), limit);
    }

    void SetUp() override { allow(30s); }

    void TearDown() override {
        // A detached goroutine says that it is done a moment before it has ended.
        eventually_on_thread([] { return dunlin::runtime::num_goroutines() == 0; });
        dog_.reset();
    }

private:
    std::unique_ptr<watchdog> dog_;
};

class each_p : public runtime_test, public testing::WithParamInterface<unsigned> {
protected:
    unsigned procs() const { return GetParam(); }

    // dunlin::run with this test's number of processors. What is left when it returns is frozen and does not count; a
    // goroutine in which the library works for a plain thread belongs to no run() and ends by itself.
    template <class Body>
    decltype(auto) run(Body&& body) {
        struct counts {
            ~counts() { eventually_on_thread([] { return dunlin::runtime::num_goroutines() == 0; }); }
        } guard;
        return dunlin::run({.max_procs = procs()}, std::forward<Body>(body));
    }
};

inline std::string p_name(const testing::TestParamInfo<unsigned>& info) { return "P" + std::to_string(info.param); }

}  // namespace support

#define EACH_P(fixture) INSTANTIATE_TEST_SUITE_P(P, fixture, testing::Values(1u, 2u, 8u), support::p_name)
