// main.cpp - the tour of dunlin: every mechanism of the scheduler does real work on this machine, says what it showed,
// and checks it.
//
//   dunlin_tour                all parts; exit status 0 when every claim was true, else 1
//   dunlin_tour --part 4       only the fourth (may be repeated)
//   dunlin_tour --quick        a tenth of the work
//   dunlin_tour --list         the parts
//
// A part is one function in the table below. It starts the runtime by dunlin::run(), as a program of yours would,
// works, and makes claims (report.h).
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "parts.h"

namespace {

struct part {
    const char* title;
    const char* where_to_look;
    void (*show)(const tour::options&);
    tour::claims claims = {};
    double seconds = 0;
    bool wanted = true;
};

part parts[] = {
    {"Who we are", "dunlin/runtime.hpp", tour::who_we_are},
    {"Stealing: who took work from whom", "dunlin/runtime.hpp; src/sched/work/find_work.cpp", tour::stealing},
    {"The LIFO slot: started last, runs first", "src/sched/work/submit.h", tour::lifo_slot},
    {"Fairness: the global queue and the 61st tick", "src/sched/work/local_work.cpp", tour::fairness},
    {"Overflow: when 257 goroutines wait and one more comes", "src/sched/data/run_queue.h", tour::overflow},
    // From here on stats() takes milliseconds: it counts the structs that a million goroutines have left. Before,
    // slices are looked at.
    {"A million goroutines in one program", "dunlin/go.hpp, dunlin/wait_group.hpp", tour::a_million_goroutines},
    {"Parallel work over real files", "dunlin/wait_group.hpp", tour::files},
    {"Joins in place: waiting by doing the work", "dunlin/task.hpp", tour::joins_in_place},
    {"Sleeping precisely", "dunlin/go.hpp, dunlin/clock.hpp", tour::sleeping},
    {"Channels, select, locks, contexts", "dunlin/chan.hpp, select.hpp, mutex.hpp, context.hpp", tour::channels},
    {"An echo server with thousands of connections", "dunlin/net.hpp; src/poll/fd_record.h", tour::network},
    {"Hogs: goroutines that compute are preempted", "src/sched/preempt/preempt.h, src/sched/monitor/retake.cpp",
        tour::hogs},
    {"A thousand blocking calls", "dunlin/blocking.hpp", tour::blocking_calls},
    {"A library that blocks without a word", "src/sched/monitor/retake.cpp", tour::unannounced},
    {"What can go wrong is reported", "dunlin/go.hpp", tour::failures},
    {"Sight: faults that end no program are found", "docs/debugging.md", tour::sight},
    {"What fails once in thousands of runs, found and replayed", "dunlin/sim.hpp, docs/sim-for-users.md", tour::replay},
};
constexpr int part_count = static_cast<int>(std::size(parts));

constexpr unsigned hanging_after_s = 120;

void usage(std::FILE* out) {
    std::fprintf(out, "usage: dunlin_tour [--part N]... [--quick] [--list]\n"
                      "  --part N   only this part (may be repeated)\n"
                      "  --quick    a tenth of the work\n"
                      "  --list     the parts\n"
                      "Exit status: 0 every claim was true, 1 a claim failed, 2 this text was asked for by mistake.\n");
}

void list() {
    for (int i = 0; i < part_count; ++i) std::printf("%3d  %-56s %s\n", i + 1, parts[i].title, parts[i].where_to_look);
}

// Nothing here takes minutes. If it does, goroutines were lost, and the user should know rather than wait.
void watch_for_hangs() {
    struct sigaction action {};
    action.sa_handler = [](int) {
        constexpr char words[] = "\ndunlin_tour: this part does not come to an end: FAILED\n";
        static_cast<void>(!write(STDERR_FILENO, words, sizeof words - 1));
        _exit(1);
    };
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGALRM, &action, nullptr);
}

void show(int number, part& p, const tour::options& o) {
    tour::heading(number, part_count, p.title, p.where_to_look);
    const tour::claims before = tour::count_claims();
    const tour::stopwatch watch;
    alarm(hanging_after_s);
    try {
        p.show(o);
    } catch (const std::exception& e) {
        tour::claim(false, "the part was ended by an exception: %s", e.what());
    }
    alarm(0);
    p.seconds = watch.seconds();
    p.claims = {tour::count_claims().good - before.good, tour::count_claims().failed - before.failed};
}

int summary(double seconds) {
    double longest = 0.001;
    for (const part& p : parts) longest = std::max(longest, p.seconds);
    std::printf("\n%s\n", tour::bold("What you saw").c_str());
    for (int i = 0; i < part_count; ++i) {
        const part& p = parts[i];
        if (!p.wanted) continue;
        std::printf("   %2d  %-56s %2d %-9s %5.1f s %s\n", i + 1, p.title, p.claims.good + p.claims.failed,
            p.claims.failed ? "NOT TRUE" : "true", p.seconds, tour::bar(p.seconds / longest, 12).c_str());
    }
    const tour::claims all = tour::count_claims();
    std::printf("\n   %d claims checked, %d true, %d failed, in %.1f s.\n", all.good + all.failed, all.good, all.failed,
        seconds);
    if (all.failed) {
        std::printf("\nThese were not true:\n%s", tour::failed_claims().c_str());
        return 1;
    }
    std::printf("   Next: README.md for a first program, include/dunlin/go.hpp for what a goroutine can do,\n"
                "   ARCHITECTURE.md for how it works, ./dev test for the tests.\n");
    return 0;
}

bool read_options(int argc, char** argv, tour::options& o) {
    std::vector<int> chosen;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word == "--quick") {
            o.quick = true;
        } else if (word == "--part" && i + 1 < argc) {
            const int n = std::atoi(argv[++i]);
            if (n < 1 || n > part_count) {
                std::fprintf(stderr, "dunlin_tour: there is no part '%s'; --list shows them\n", argv[i]);
                return false;
            }
            chosen.push_back(n);
        } else {
            std::fprintf(stderr, "dunlin_tour: what is '%s'?\n", argv[i]);
            usage(stderr);
            return false;
        }
    }
    for (int i = 0; i < part_count && !chosen.empty(); ++i) {
        parts[i].wanted = std::find(chosen.begin(), chosen.end(), i + 1) != chosen.end();
    }
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    constexpr std::string_view die = "--die=", client = "--echo-client=", weigh = "--weigh-connections=",
                               fault = "--fault=";  // how parts 15, 11 and 16 start us
    const std::string_view first = argc > 1 ? argv[1] : "";
    if (first.substr(0, die.size()) == die) return tour::die(first.substr(die.size()));
    if (first.substr(0, client.size()) == client) return tour::echo_client(first.substr(client.size()));
    if (first.substr(0, weigh.size()) == weigh) return tour::weigh_connections(first.substr(weigh.size()));
    if (first.substr(0, fault.size()) == fault) return tour::fault(first.substr(fault.size()));
    if (first == "--list") return list(), 0;
    if (first == "--help" || first == "-h") return usage(stdout), 0;
    tour::options o;
    if (!read_options(argc, argv, o)) return 2;

    const tour::stopwatch watch;
    watch_for_hangs();
    std::printf("%s\n", tour::bold("The tour of dunlin: Go's scheduler as a C++ library").c_str());
    std::printf(
        "   Goroutines are functions that run concurrently and cost almost nothing: dunlin::go(f) starts one. The\n"
        "   scheduler runs them on few threads. Each part below puts one of its mechanisms to work on this machine,\n"
        "   shows live figures, and checks what it says: [ok] or [FAILED].\n");
    for (int i = 0; i < part_count; ++i) {
        if (parts[i].wanted) show(i + 1, parts[i], o);
    }
    return summary(watch.seconds());
}
