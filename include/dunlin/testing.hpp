// testing.hpp - for tests of programs that use dunlin.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>
#include <vector>

namespace dunlin::inline v0_1::testing {

/// What no_leaks does.
struct no_leaks_options {
    /// How long goroutines that are about to end may take. If all that are left can never go on (runtime::leaks(),
    /// which is asked after a few milliseconds), they are not waited for.
    detail::duration_option grace = std::chrono::seconds(2);
    /// Called by the destructor, with a report, if some are left; must not throw. Empty: the report is printed on
    /// stderr, and the process aborts.
    std::function<void(const std::string& report)> on_leak = nullptr;
};

/// Checks that a test leaves no goroutine behind. The destructor finds the goroutines that were started since the
/// constructor, by goroutines and threads alike, and have not ended. It reports each with its name, where it was
/// created, what it waits for and since when, and its stack. Make it first, so that it is destroyed last:
/// `dunlin::testing::no_leaks guard({.on_leak =
/// [](const std::string& report) { ADD_FAILURE() << report; }});` In a goroutine, or on a plain thread outside of
/// run(). Goroutines that the end of a run() inside its scope has stopped are gone:
/// `run_options{.report_leaks = true}` reports those.
/// Blocks    The destructor, as sleep_for(), until they have ended, for `grace` at most. Stops the world while it
///           looks.
class no_leaks {
public:
    /// Throws std::bad_alloc.
    DUNLIN_API explicit no_leaks(no_leaks_options options = {},
        std::source_location where = std::source_location::current());
    DUNLIN_API ~no_leaks();
    no_leaks(const no_leaks&) = delete;
    no_leaks& operator=(const no_leaks&) = delete;

    /// Looks now, with the same patience, and returns the report, empty if nothing is left. The destructor then reports
    /// nothing.
    DUNLIN_API std::string check();

private:
    const no_leaks_options options_;
    const std::source_location where_;
    std::vector<std::uint64_t> before_;  // goroutines alive at the beginning, sorted
    bool checked_ = false;
};

}  // namespace dunlin::testing
