// dunlin_program.cpp - what main.cpp has to know of dunlin.

#include <cstdlib>
#include <string>

#include <dunlin/dunlin.hpp>

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

}  // namespace

const program this_program = {"dunlin", version, use_procs, procs};

}  // namespace bench
