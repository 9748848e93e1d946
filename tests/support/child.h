// child.h - runs a program of tests/crash and says how it ended.
#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <ostream>
#include <poll.h>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace support {

struct child_result {
    int status = -1;  // exit status; -1 if a signal ended it
    int signal = 0;   // the signal that ended it
    bool timed_out = false;
    std::string out, err;
    std::chrono::nanoseconds elapsed{};
    std::chrono::nanoseconds cpu{};

    double milliseconds() const { return std::chrono::duration<double, std::milli>(elapsed).count(); }
};

inline std::ostream& operator<<(std::ostream& stream, const child_result& r) {
    stream << (r.timed_out ? "timed out, " : "") << "status " << r.status << ", signal " << r.signal << ", "
           << r.milliseconds() << " ms\n";
    const auto text = [&](const char* name, const std::string& s) {
        if (!s.empty())
            stream << "--- " << name << " ---\n" << (s.size() > 6000 ? s.substr(0, 6000) + "\n..." : s) << '\n';
    };
    text("stdout", r.out);
    text("stderr", r.err);
    return stream;
}

struct child_options {
    std::vector<std::pair<std::string, std::string>> environment = {};  // on top of ours
    std::function<void()> before_exec = {};                             // in the child: limits and the like
    std::chrono::milliseconds timeout = std::chrono::seconds(30);
};

namespace detail {

struct pipe_pair {
    int read_end, write_end;
    pipe_pair() {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
        read_end = ends[0];
        write_end = ends[1];
    }
};

// Runtime settings in the environment of the tests must not reach the child.
inline std::vector<std::string> environment_for(const child_options& options) {
    std::vector<std::string> result;
    for (char** entry = environ; *entry; ++entry) {
        const std::string_view text = *entry;
        if (text.rfind("DUNLIN_", 0) != 0 && text.rfind("GOMAXPROCS=", 0) != 0) result.emplace_back(text);
    }
    for (const auto& [key, value] : options.environment) result.push_back(key + "=" + value);
    return result;
}

[[noreturn]] inline void become(const std::vector<std::string>& words, const std::vector<std::string>& variables,
    const pipe_pair& out, const pipe_pair& err, const std::function<void()>& before) {
    std::vector<char*> arguments, environment;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    for (const std::string& variable : variables) environment.push_back(const_cast<char*>(variable.c_str()));
    arguments.push_back(nullptr);
    environment.push_back(nullptr);
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(out.write_end, STDOUT_FILENO);
    dup2(err.write_end, STDERR_FILENO);
    if (before) before();
    execve(arguments[0], arguments.data(), environment.data());
    _exit(127);
}

}  // namespace detail

// Runs the program at `path` with these arguments until it ends, or kills it when its time is over.
inline child_result run_program(
    const std::string& path, const std::vector<std::string>& arguments, const child_options& options = {}) {
    std::vector<std::string> words{path};
    words.insert(words.end(), arguments.begin(), arguments.end());
    const std::vector<std::string> variables = detail::environment_for(options);
    const detail::pipe_pair out, err;
    const auto begin = std::chrono::steady_clock::now();
    const pid_t pid = fork();
    if (pid == 0) detail::become(words, variables, out, err, options.before_exec);
    close(out.write_end);
    close(err.write_end);

    child_result result;
    std::array<pollfd, 2> ends{{{out.read_end, POLLIN, 0}, {err.read_end, POLLIN, 0}}};
    for (int open_ends = 2; open_ends > 0;) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            options.timeout - (std::chrono::steady_clock::now() - begin))
                              .count();
        if (!result.timed_out && left <= 0) {
            result.timed_out = true;
            kill(pid, SIGKILL);
        }
        if (poll(ends.data(), ends.size(), result.timed_out ? 1000 : static_cast<int>(left) + 1) <= 0) {
            if (result.timed_out) break;
            continue;
        }
        for (std::size_t i = 0; i < ends.size(); ++i) {
            if (ends[i].revents == 0) continue;
            char buffer[16384];
            const ssize_t n = read(ends[i].fd, buffer, sizeof buffer);
            if (n > 0) {
                (i == 0 ? result.out : result.err).append(buffer, static_cast<std::size_t>(n));
            } else if (n == 0 || errno != EINTR) {
                ends[i].fd = -1;
                --open_ends;
            }
        }
    }
    close(out.read_end);
    close(err.read_end);

    // It may have closed its output and go on.
    int status = 0;
    rusage usage{};
    while (wait4(pid, &status, result.timed_out ? 0 : WNOHANG, &usage) == 0) {
        if (std::chrono::steady_clock::now() - begin > options.timeout) {
            result.timed_out = true;
            kill(pid, SIGKILL);
        } else {
            usleep(200);
        }
    }
    result.elapsed = std::chrono::steady_clock::now() - begin;
    result.cpu = std::chrono::seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec)
        + std::chrono::microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
    return result;
}

// The same of tests/crash/<program>.cpp.
inline child_result run_child(
    const std::string& program, const std::vector<std::string>& arguments, const child_options& options = {}) {
    return run_program(std::string(DUNLIN_CRASH_DIR) + "/crash_" + program, arguments, options);
}

}  // namespace support
