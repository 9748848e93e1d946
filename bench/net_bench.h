// net_bench.h - the echo server of net_bench.cpp, which growth_bench.cpp loads too.

#pragma once

#include <string>
#include <vector>

#include "registry.h"

namespace bench {

/// Accepts connections and sends back what comes in, a goroutine for each, while bench/load's program runs with these
/// words.
void echo_under(results& r, const std::string& kind, const std::vector<std::string>& words);

}  // namespace bench
