// system.cpp - see system.h.
#include "system.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <limits>
#include <spawn.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report.h"

extern char** environ;

namespace tour {

namespace {

// "Name:   1234 kB" of a file in /proc, in bytes; 0 if it is not there.
std::size_t field(const char* file, const std::string& name) {
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
        if (line.compare(0, name.size() + 1, name + ":") == 0)
            return std::strtoull(line.c_str() + name.size() + 1, nullptr, 10) * 1024;
    }
    return 0;
}

// A number in a file of the cgroup; `otherwise` if there is none ("max").
std::size_t cgroup_number(const char* file, std::size_t otherwise) {
    std::ifstream in(file);
    std::size_t n = 0;
    return in >> n ? n : otherwise;
}

// The cgroup's page cache, which the kernel drops when memory is wanted.
std::size_t cgroup_cache() {
    std::ifstream in("/sys/fs/cgroup/memory.stat");
    std::size_t cache = 0, n = 0;
    for (std::string name; in >> name >> n;) {
        if (name == "inactive_file" || name == "active_file") cache += n;
    }
    return cache;
}

std::string read_all(int fd) {
    std::string all;
    char buffer[16 * 1024];
    for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) all.append(buffer, static_cast<std::size_t>(n));
    return all;
}

}  // namespace

memory memory_now() { return {field("/proc/self/status", "VmRSS"), field("/proc/self/status", "VmPTE")}; }

std::size_t memory_left() {
    constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();
    const std::size_t limit = cgroup_number("/sys/fs/cgroup/memory.max", no_limit);
    const std::size_t machine = field("/proc/meminfo", "MemAvailable");
    if (limit == no_limit) return machine;
    const std::size_t current = cgroup_number("/sys/fs/cgroup/memory.current", 0);
    const std::size_t used = current - std::min(current, cgroup_cache());
    return std::min(machine, limit - std::min(limit, used));
}

std::string kernel() {
    utsname names{};
    uname(&names);
    return std::string(names.sysname) + " " + names.release + " " + names.machine;
}

unsigned processors_online() { return static_cast<unsigned>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))); }

outcome run_program(const std::vector<std::string>& command, const std::string& input, listen_to which) {
    outcome result;
    const stopwatch watch;
    // The input stands in a file: with two pipes, both sides could wait for each other.
    std::FILE* file = std::tmpfile();
    int ends[2];
    if (file == nullptr) return result;
    if (std::fwrite(input.data(), 1, input.size(), file) != input.size() || std::fflush(file) != 0 ||
        pipe2(ends, O_CLOEXEC) != 0) {
        std::fclose(file);
        return result;
    }
    std::rewind(file);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fileno(file), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], which == listen_to::out ? STDOUT_FILENO : STDERR_FILENO);
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    pid_t child = 0;
    result.started = posix_spawnp(&child, words[0], &actions, nullptr, words.data(), environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (result.started) {
        result.text = read_all(ends[0]);
        int status = 0;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
        result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    close(ends[0]);
    std::fclose(file);
    result.took = watch.elapsed();
    return result;
}

}  // namespace tour
