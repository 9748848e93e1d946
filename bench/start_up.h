// start_up.h - how long a process lives that does nothing. Twin: startUp in peers/go/start_up.go.

#pragma once

#include <string_view>

#include "registry.h"

namespace bench {

/// Starts the program of that name, which lies beside this one, again and again: the time until it has ended, and its
/// size.
void measure_start_up(const settings& s, results& r, std::string_view program);

}  // namespace bench
