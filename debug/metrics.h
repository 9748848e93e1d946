// metrics.h - what stats() returns, in the text format that Prometheus reads.
#pragma once

#include <string>

namespace dunlin::inline v0_1::debug {

std::string metrics();

}  // namespace dunlin::debug
