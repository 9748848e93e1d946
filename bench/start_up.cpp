#include "start_up.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "measure.h"

namespace bench {
namespace {

double run_us(const std::string& program) {
    std::string name = program;
    char* const arguments[] = {name.data(), nullptr};
    const auto start = steady::now();
    pid_t child = 0;
    int status = 0;
    if (posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ) != 0)
        fail("start-up: there is no " + program);
    if (waitpid(child, &status, 0) != child || status != 0) fail("start-up: " + program + " has failed");
    return ns_between(start, steady::now()) / 1e3;
}

}  // namespace

void measure_start_up(const settings& s, results& r, std::string_view program) {
    const std::filesystem::path path = std::filesystem::canonical("/proc/self/exe").parent_path() / program;
    if (access(path.c_str(), X_OK) != 0) fail("start-up: there is no " + path.string());
    run_us(path);  // from now on the file is in memory
    std::vector<double> lives_us(static_cast<std::size_t>(s.scaled(300)));
    for (double& life_us : lives_us) life_us = run_us(path);
    r.add("time", percentile(lives_us, 0.5), "us");
    r.add("size", static_cast<double>(std::filesystem::file_size(path)) / 1e3, "kB");
}

}  // namespace bench
