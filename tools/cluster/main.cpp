// main.cpp - ./dev cluster: three NATS servers and four workers on this machine, and what happens to them.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "job.h"
#include "servers.h"

namespace {

void usage() {
    std::puts(
        "dunlin_cluster [--jobs N] [--seed N] [--brief] [--purge]\n"
        "                                       three servers, four workers, N jobs (100000), and faults; --brief: only those\n"
        "                                       that take a second or two; --purge: jobs that are stored are deleted, too\n"
        "dunlin_cluster --around COMMAND...     COMMAND with NATS_URL set, for which there is a server meanwhile (NATS_SERVER_PID)");
}

// 77: there is no nats-server, which ctest takes for a test that was skipped.
constexpr int left_out = 77;

int around(int argc, char** argv) {
    const fleet::nats_servers servers;
    setenv("NATS_URL", servers.urls().c_str(), 1);
    setenv("NATS_SERVER_PID", std::to_string(servers.all.front()->pid()).c_str(), 1);
    const pid_t child = fleet::start_process(std::vector<std::string>(argv, argv + argc));
    servers.kept_by().add(child);
    siginfo_t ended{};
    while (waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
    }
    servers.kept_by().remove(child);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) std::fprintf(stderr, "%s: signal %d\n", argv[0], WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

int main(int argc, char** argv) try {
    const auto is = [&](int i, const char* word) { return i < argc && std::strcmp(argv[i], word) == 0; };
    const auto number = [&](int i) {
        return static_cast<std::uint32_t>(std::strtoul(i < argc ? argv[i] : "", nullptr, 10));
    };
    if (is(1, "--worker") && argc == 8) {
        return fleet::work(
            argv[2], argv[3], number(4), number(5), {static_cast<fleet::crash::moment>(number(6)), number(7)});
    }
    if (fleet::nats_server_path().empty()) {
        std::puts("nats-server is not installed: left out");
        return left_out;
    }
    if (is(1, "--around") && argc > 2) return around(argc - 2, argv + 2);
    fleet::show_options o;
    for (int i = 1; i < argc; ++i) {
        if (is(i, "--jobs") && number(i + 1) > 0) {
            o.jobs = number(++i);
        } else if (is(i, "--seed") && i + 1 < argc) {
            o.seed = number(++i);
        } else if (is(i, "--brief")) {
            o.brief = true;
        } else if (is(i, "--purge")) {
            o.purge = true;
        } else {
            usage();
            return is(i, "--help") ? 0 : 2;
        }
    }
    return fleet::show(o);
} catch (const std::exception& e) {
    std::fprintf(stderr, "dunlin_cluster: %s\n", e.what());
    return 1;
}
