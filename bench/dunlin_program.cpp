// dunlin_program.cpp - what main.cpp has to know of dunlin.

#include <cstdlib>
#include <string>

#include <dunlin/dunlin.hpp>
#include <dunlin/trace.hpp>

#ifdef DUNLIN_BENCH_HAS_PAGE
#include <dunlin/debug.hpp>
#endif

#include "registry.h"

namespace bench {
namespace {

std::string version() {
    return "dunlin " + std::to_string(DUNLIN_VERSION_MAJOR) + "." + std::to_string(DUNLIN_VERSION_MINOR) + "." +
           std::to_string(DUNLIN_VERSION_PATCH);
}

// By the environment and not by set_max_procs(): the runtime then starts with this number.
void use_procs(int procs) { setenv("DUNLIN_MAXPROCS", std::to_string(procs).c_str(), 1); }

int procs() { return static_cast<int>(dunlin::runtime::max_procs()); }

// Until the process ends.
void watch(const std::string& how) {
    if (how == "recorder") return dunlin::trace::start_recorder();
    if (how == "profile") return dunlin::runtime::start_cpu_profile(100);
#ifdef DUNLIN_BENCH_HAS_PAGE
    const std::string prefix = "page=";
    if (how.compare(0, prefix.size(), prefix) == 0) {
        // For good: its goroutines have ended with the run before a static object is destroyed.
        static auto& page = *new dunlin::debug::server;
        page = dunlin::debug::serve(how.substr(prefix.size()));
        return;
    }
#endif
    fail("there is no --watched " + how);
}

}  // namespace

const program this_program = {"dunlin", version, use_procs, procs, watch};

}  // namespace bench
