// under_load.h - bench/load's program, which sends requests to a server in this process. Twin: runLoad in
// peers/go/net.go.

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "registry.h"

namespace bench {

/// Runs the load with these words behind its kind and port, and passes its metrics on. Blocks the thread: not for
/// goroutines.
void run_load(results& r, const std::string& kind, int port, pid_t server, const std::vector<std::string>& words);

}  // namespace bench
