// sight.cpp - part 16: four faults that end no program, each found by the tool that is meant for it.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <unistd.h>
#include <vector>

#include <dunlin/testing.hpp>
#include <dunlin/trace.hpp>

#include "parts.h"
#include "system.h"

namespace tour {

namespace {

using namespace std::chrono_literals;

void show_lines(const std::string& words, int most) {
    std::istringstream lines(words);
    int shown = 0;
    for (std::string line; std::getline(lines, line) && shown < most;) {
        if (line.find_first_not_of(" \t") == line.npos) continue;
        say("  %s", dim("| " + line.substr(0, 140)).c_str());
        ++shown;
    }
}

bool has(const std::string& words, const std::string& part) { return words.find(part) != words.npos; }

// ---- faults in processes of their own: what the runtime says goes to stderr -----------------------------------------

// What is written to stderr, until it has `words` so often. All of it is passed on.
class stderr_watch {
public:
    stderr_watch() : before_(dup(2)) {
        if (before_ < 0 || pipe(ends_) != 0 || dup2(ends_[1], 2) < 0) std::abort();
    }
    void wait_for(const std::string& words, int times) {
        const auto found = [&](const std::string& in) {
            int n = 0;
            for (std::size_t at = in.find(words); at != in.npos; at = in.find(words, at + 1)) ++n;
            return n;
        };
        std::string seen;
        char piece[4096];
        while (found(seen) < times) {
            const ssize_t n = dunlin::blocking([&] { return read(ends_[0], piece, sizeof piece); });
            if (n <= 0) return;
            seen.append(piece, static_cast<std::size_t>(n));
        }
        static_cast<void>(!write(before_, seen.data(), seen.size()));
    }

private:
    int before_, ends_[2] = {};
};

// Two goroutines take two locks in two orders; a third goes on.
void wait_in_a_circle() {
    stderr_watch errors;
    dunlin::mutex accounts, journal;
    dunlin::latch both(2);
    const auto takes = [&](dunlin::mutex& first, dunlin::mutex& second) {
        const std::lock_guard guard(first);
        both.arrive_and_wait();
        const std::lock_guard other(second);
    };
    dunlin::go({.name = "transfer"}, [&] { takes(accounts, journal); });
    dunlin::go({.name = "statement"}, [&] { takes(journal, accounts); });
    dunlin::go({.name = "all is well"}, [] {
        for (;;) dunlin::sleep_for(10ms);
    });
    errors.wait_for("created at", 2);
    std::_Exit(0);
}

[[gnu::noinline]] void compute(std::chrono::milliseconds how_long) {
    const stopwatch watch;
    volatile unsigned x = 1;
    while (watch.elapsed() < how_long) x = x * 1664525u + 1013904223u;
}

// A request waits for a helper, which waits for a lock, which a backup holds while it computes.
void answer_slowly(const std::string& file) {
    stderr_watch errors;
    dunlin::trace::start_recorder({.file = file});
    dunlin::mutex database;
    dunlin::latch locked(1);
    dunlin::go({.name = "backup"}, [&] {
        const std::lock_guard guard(database);
        locked.count_down();
        for (std::ostringstream out; !has(out.str(), "\"helper\" [sync.Mutex.Lock"); dunlin::sleep_for(1ms)) {
            out.str("");
            dunlin::runtime::dump(out);
        }
        compute(40ms);
    });
    locked.wait();
    {
        const dunlin::trace::task request("GET /report");
        const dunlin::trace::region answer("answer", 20ms);
        const dunlin::go_options named{.name = "helper"};
        dunlin::spawn(named, [&] { const std::lock_guard guard(database); }).get();
    }
    errors.wait_for("the flight recorder is in", 1);
    std::_Exit(0);
}

std::string own_path() {
    std::error_code failed;
    const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", failed);
    return failed ? "/proc/self/exe" : path.string();
}

// ---- the four -------------------------------------------------------------------------------------------------------

void show_circle() {
    say("%s", bold("Two goroutines wait for each other, the rest of the program goes on: told after a second").c_str());
    const outcome o = run_program({own_path(), "--fault=circle"}, "", listen_to::err);
    std::istringstream lines(o.text);
    std::string without_stacks;
    for (std::string line; std::getline(lines, line);) {
        if (!has(line, "    #")) without_stacks += line + '\n';
    }
    show_lines(without_stacks, 8);
    claim(has(o.text, "in a circle") && has(o.text, "\"transfer\"") && has(o.text, "\"statement\""),
        "the report names both, \"transfer\" and \"statement\"");
    claim(!has(o.text, "all is well"), "and not the one that is well");
}

void show_leak() {
    say("%s",
        bold("A goroutine waits for an answer that is never sent: testing::no_leaks, runtime::leaks()").c_str());
    std::string report;
    std::vector<dunlin::runtime::leak> lost;
    dunlin::run([&] {
        dunlin::chan<int> answers;
        const auto nil = dunlin::chan<int>::nil();
        dunlin::wait_group group;
        dunlin::testing::no_leaks guard({.grace = 50ms});
        group.go({.name = "forgotten"}, [answers] { answers.recv(); });
        dunlin::go({.name = "lost for good"}, [nil] { nil.recv(); });
        const stopwatch watch;
        while (dunlin::runtime::stats().waiting < 2 && watch.elapsed() < 20s) dunlin::yield();
        report = guard.check();
        lost = dunlin::runtime::leaks();
        answers.close();
        group.wait();
    });
    show_lines(report, 6);
    claim(has(report, "\"forgotten\"") && has(report, "sight.cpp"),
        "the guard names the goroutine, where it waits and where it was made");
    claim(lost.size() == 1 && lost[0].name == "lost for good", "leaks() knows of one for certain: %s",
        lost.empty() ? "none" : (lost[0].name + ", " + lost[0].why).c_str());
}

struct counter {
    dunlin::mutex lock;
    std::atomic<std::uint64_t> value{0};
};

// What comes behind the unlock keeps it from being a jump, after which the function would not be on the stack.
[[gnu::noinline]] std::uint64_t update_the_index(counter& c) {
    {
        const std::lock_guard guard(c.lock);
        dunlin::sleep_for(200us);
        ++c.value;
    }
    asm volatile("" ::: "memory");
    return c.value;
}

[[gnu::noinline]] std::uint64_t update_the_cache(counter& c) {
    {
        const std::lock_guard guard(c.lock);
        ++c.value;
    }
    asm volatile("" ::: "memory");
    return c.value;
}

void show_hot_lock(const options& o) {
    say("%s", bold("All wait for one lock: runtime::mutex_profile(), here as text; `go tool pprof` reads it too")
                  .c_str());
    std::ostringstream profile;
    dunlin::run([&] {
        const unsigned before = dunlin::runtime::set_mutex_profile_fraction(1);
        counter index, cache;
        dunlin::wait_group group;
        for (int i = 0; i < 8; ++i) {
            group.go([&] {
                for (int k = 0; k < (o.quick ? 10 : 50); ++k) update_the_index(index), update_the_cache(cache);
            });
        }
        group.wait();
        dunlin::runtime::mutex_profile(profile, dunlin::runtime::profile_format::text);
        dunlin::runtime::set_mutex_profile_fraction(before);
    });
    // "DELAY COUNT @ addresses", and the stack, innermost first, up to an empty line.
    std::istringstream lines(profile.str());
    std::uint64_t all = 0, index = 0, delay = 0;
    bool of_index = false;
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::uint64_t first = 0, count = 0;
        std::string at;
        if (words >> first >> count >> at && at == "@") {
            all += delay = first;
            of_index = false;
        } else if (has(line, "update_the_index") && !of_index) {
            index += delay;
            of_index = true;
        }
    }
    const double share = all == 0 ? 0 : static_cast<double>(index) / static_cast<double>(all);
    say("waited because of update_the_index  %s %3.0f %% of %s", bar(share, 30).c_str(), 100 * share,
        readable(std::chrono::nanoseconds(all)).c_str());
    claim(share > 0.5, "the profile charges the function that holds the hot lock with more than half of all waiting");
}

void show_slow_request() {
    say("%s",
        bold(
            "One request was slow: the flight recorder is written by itself, and `dunlin-trace why` says who made it wait")
            .c_str());
    std::error_code ignored;
    const std::filesystem::path file =
        std::filesystem::temp_directory_path(ignored) / ("dunlin_tour_trace." + std::to_string(getpid()));
    const outcome child = run_program({own_path(), "--fault=slow=" + file.string()}, "", listen_to::err);
    claim(has(child.text, "a region was too slow"), "the region of 20 ms that took longer had the recorder written");
    const outcome why =
        run_program({"python3", DUNLIN_TRACE_TOOL, "why", file.string(), "GET /report"}, "", listen_to::out);
    if (!why.started || why.status == 127) {
        say("there is no python3 here, which dunlin-trace is written in: not shown");
    } else {
        show_lines(why.text, 12);
        claim(why.status == 0 && has(why.text, "\"helper\"") && has(why.text, "\"backup\": running"),
            "the critical path leads from the request over its helper to \"backup\", which holds the lock");
    }
    std::filesystem::remove(file, ignored);
}

}  // namespace

int fault(std::string_view which) {
    alarm(60);
    constexpr std::string_view slow = "slow=";
    if (which == "circle") dunlin::run(wait_in_a_circle);
    if (which.substr(0, slow.size()) == slow)
        dunlin::run([&] { answer_slowly(std::string(which.substr(slow.size()))); });
    return 1;
}

void sight(const options& o) {
    explain(
        "A deadlock of a few, a leak, a hot lock, a slow request: the program goes on, and nothing is seen from outside. What each\n"
        "of them is found with; docs/debugging.md has these and ten more, debuggers and the live page among them.");
    show_circle();
    show_leak();
    show_hot_lock(o);
    show_slow_request();
}

}  // namespace tour
