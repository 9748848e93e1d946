#include "under_load.h"

#include <array>
#include <cstdio>
#include <cstdlib>

namespace bench {

void run_load(results& r, const std::string& kind, int port, pid_t server, const std::vector<std::string>& words) {
    const char* named = std::getenv("DUNLIN_BENCH_LOAD");
    std::string command = named != nullptr ? named : "build/bench-peers/net_load";
    command += " " + kind + " " + std::to_string(port) + " --server " + std::to_string(server);
    for (const std::string& word : words) command += " " + word;
    std::FILE* lines = popen(("exec " + command).c_str(), "re");
    if (lines == nullptr) fail("no process for " + command);
    std::array<char, 32> metric, unit;
    double value = 0;
    while (std::fscanf(lines, "%31s %lf %31s", metric.data(), &value, unit.data()) == 3)
        r.add(metric.data(), value, unit.data());
    if (pclose(lines) != 0) fail("the load has failed: " + command);
}

}  // namespace bench
