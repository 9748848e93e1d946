// metrics.h - what stats() says, in the text format that Prometheus reads.
#pragma once

#include <string>

namespace dunlin::debug {

std::string metrics();

}  // namespace dunlin::debug
