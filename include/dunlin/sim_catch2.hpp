// sim_catch2.hpp - dunlin::sim::check() in tests with Catch2 (2 or 3): an execution in which a CHECK fails is a
// failure. Include it instead of Catch2's own header.
#pragma once

#include <dunlin/config.hpp>

#if __has_include(<catch2/catch_all.hpp>)
#    include <catch2/catch_test_macros.hpp>
#    include <catch2/reporters/catch_reporter_event_listener.hpp>
#    include <catch2/reporters/catch_reporter_registrars.hpp>
#else
#    ifndef CATCH_CONFIG_EXTERNAL_INTERFACES
#        define CATCH_CONFIG_EXTERNAL_INTERFACES
#    endif
#    include <catch2/catch.hpp>
#endif

#include <atomic>

#include <dunlin/sim.hpp>

namespace dunlin::inline v0_1::sim {

namespace detail {

inline std::atomic<bool> catch2_has_failed{false};

#if __has_include(<catch2/catch_all.hpp>)
struct catch2_listener final : Catch::EventListenerBase {
    using EventListenerBase::EventListenerBase;
    void testCaseStarting(const Catch::TestCaseInfo&) override { catch2_has_failed = false; }
    void assertionEnded(const Catch::AssertionStats& a) override {
        if (!a.assertionResult.isOk()) catch2_has_failed = true;
    }
};
#else
struct catch2_listener final : Catch::TestEventListenerBase {
    using TestEventListenerBase::TestEventListenerBase;
    void testCaseStarting(const Catch::TestCaseInfo&) override { catch2_has_failed = false; }
    bool assertionEnded(const Catch::AssertionStats& a) override {
        if (!a.assertionResult.isOk()) catch2_has_failed = true;
        return true;
    }
};
#endif

}  // namespace detail

/// Has an assertion of the current test case failed? For options::failed.
inline bool catch2_failed() { return detail::catch2_has_failed; }

}  // namespace dunlin::sim

namespace {
using dunlin_sim_listener = dunlin::sim::detail::catch2_listener;
CATCH_REGISTER_LISTENER(dunlin_sim_listener)
}
