// soak.cpp - everything at once, for as long as one likes: goroutines that compute in every way of support/hogs.h, that
// sleep, yield, spawn, block their threads with and without blocking(), and stop the world.
//
//   soak SECONDS PROCS
//
// Prints a line every 10 s. Exit status: 0, 1 after a wrong result, 2 if a goroutine has not got on for 20 s (after a
// dump), 64 if called wrongly. With SOAK_PAUSE in the environment it waits for a debugger instead of dumping.
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <iostream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "support/hogs.h"

using namespace std::chrono_literals;
namespace hogs = support::hogs;

namespace {

using steady = std::chrono::steady_clock;

constexpr std::int64_t stall_limit_ns = 20'000'000'000;
constexpr auto report_interval = 10s;

std::int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(steady::now().time_since_epoch()).count();
}

std::atomic<bool> stop{false};
std::atomic<int> faults{0};

// ---- what is done besides computing ---------------------------------------------------------------------------------

hogs::result sleeps(unsigned) {
    const auto before = steady::now();
    dunlin::sleep_for(1ms);
    return steady::now() - before >= 1ms ? "" : "sleep_for(1ms) was early";
}

hogs::result yields(unsigned) {
    for (int i = 0; i < 100 && !stop; ++i) dunlin::yield();
    return "";
}

hogs::result spawns(unsigned seed) {
    std::atomic<unsigned> sum{0};
    dunlin::wait_group children;
    for (unsigned i = 0; i < 100; ++i) {
        children.go([&sum, i] {
            if (i % 10 == 0) dunlin::yield();
            sum += i;
        });
        if (i == seed % 100) dunlin::yield();
    }
    children.wait();
    return sum == 4950 ? "" : hogs::unequal("the sum of the children", sum.load(), 4950);
}

hogs::result blocks_announced(unsigned) {
    const int error = dunlin::blocking([] { return usleep(2000) == 0 ? 0 : errno; });
    return error == 0 ? "" : hogs::unequal("usleep's errno in blocking()", error, 0);
}

hogs::result blocks_unannounced(unsigned) { return usleep(3000) == 0 ? "" : hogs::unequal("usleep's errno", errno, 0); }

// Two goroutines that wait for each other in read().
struct pipes {
    int there[2], back[2];
    pipes() {
        if (pipe2(there, O_CLOEXEC) != 0 || pipe2(back, O_CLOEXEC) != 0) std::abort();
    }
};
pipes& the_pipes() {
    static pipes both;
    return both;
}

hogs::result asks(unsigned seed) {
    for (unsigned i = 0; i < 20; ++i) {
        unsigned question = seed + i, answer = 0;
        if (write(the_pipes().there[1], &question, sizeof question) != sizeof question)
            return std::string("write: ") + std::strerror(errno);
        if (read(the_pipes().back[0], &answer, sizeof answer) != sizeof answer)
            return std::string("read: ") + std::strerror(errno);
        if (answer != ~question) return hogs::unequal("the answer", answer, ~question);
    }
    return "";
}
void asks_no_more() { close(the_pipes().there[1]); }

// False: it will not be asked for any more.
bool answer_one(hogs::result& fault) {
    unsigned question = 0;
    const ssize_t n = read(the_pipes().there[0], &question, sizeof question);
    if (n == 0) return false;
    if (n != sizeof question) fault = std::string("read: ") + std::strerror(errno);
    question = ~question;
    if (write(the_pipes().back[1], &question, sizeof question) != sizeof question)
        fault = std::string("write: ") + std::strerror(errno);
    return fault.empty();
}
hogs::result answers(unsigned) {
    hogs::result fault;
    for (int i = 0; i < 20 && answer_one(fault); ++i) {}
    return fault;
}
void answers_the_last() {
    hogs::result ignored;
    while (answer_one(ignored)) {}
}

hogs::result dumps(unsigned) {
    std::ostringstream text;
    dunlin::runtime::dump(text);
    if (text.str().find("goroutine") == std::string::npos) return "an empty dump";
    dunlin::sleep_for(200ms);
    return "";
}

hogs::result changes_processors(unsigned seed) {
    const unsigned procs = dunlin::runtime::max_procs();
    static_cast<void>(dunlin::runtime::set_max_procs(procs + 1));
    dunlin::sleep_for(std::chrono::microseconds(seed % 1000));
    static_cast<void>(dunlin::runtime::set_max_procs(procs));
    dunlin::sleep_for(150ms);
    return "";
}

constexpr hogs::kind others[] = {
    {"sleep", sleeps},
    {"yield", yields},
    {"spawn", spawns},
    {"blocking()", blocks_announced},
    {"usleep", blocks_unannounced},
    {"ask", asks},
    {"answer", answers},
    {"dump", dumps},
    {"set_max_procs", changes_processors},
};

// ---- who does it ----------------------------------------------------------------------------------------------------

// One goroutine's account. Written by itself, read by the watch.
struct worker {
    hogs::kind kind{};
    std::atomic<std::uint64_t> rounds{0};
    std::atomic<std::int64_t> last_ns{0};     // when it last got on; 0: it has ended
    std::atomic<std::int64_t> longest_ns{0};  // the longest time between, since the last report
    unsigned number = 0;

    void work() {
        for (unsigned seed = number; !stop; seed += 17) {
            if (const hogs::result fault = kind.round(seed); !fault.empty()) {
                ++faults;
                std::fprintf(stderr, "soak: %s, goroutine %u: %s\n", kind.name, number, fault.c_str());
            }
            got_on();
            // Every other one never calls the runtime.
            if (number % 2 == 0) dunlin::yield();
        }
        if (kind.round == asks) asks_no_more();
        if (kind.round == answers) answers_the_last();
        last_ns = 0;
    }

    void got_on() {
        const std::int64_t now = now_ns(), taken = now - last_ns.exchange(now);
        rounds.fetch_add(1, std::memory_order_relaxed);
        if (taken > longest_ns.load(std::memory_order_relaxed)) longest_ns.store(taken, std::memory_order_relaxed);
    }
};

struct team {
    std::vector<std::unique_ptr<worker>> workers;

    void add(const hogs::kind& kind) {
        workers.push_back(std::make_unique<worker>());
        workers.back()->kind = kind;
        workers.back()->number = static_cast<unsigned>(workers.size());
        workers.back()->last_ns = now_ns();
    }
    void start() {
        for (const auto& w : workers) dunlin::go({.name = w->kind.name}, [self = w.get()] { self->work(); });
    }
    bool ended() const {
        for (const auto& w : workers) {
            if (w->last_ns != 0) return false;
        }
        return true;
    }
};

// ---- the watch: a plain thread, so that it does not depend on what it watches ---------------------------------------

void end_if_stalled(const team& all) {
    const std::int64_t now = now_ns();
    for (const auto& w : all.workers) {
        const std::int64_t last = w->last_ns;
        if (last == 0 || now - last < stall_limit_ns) continue;
        char text[160];
        const int length = std::snprintf(text, sizeof text, "soak: %s, goroutine %u, has not got on for %lld ms\n",
            w->kind.name, w->number, static_cast<long long>((now - last) / 1'000'000));
        if (write(STDERR_FILENO, text, static_cast<std::size_t>(length)) < 0) _exit(2);
        if (std::getenv("SOAK_PAUSE")) pause();
        // The dump needs a runtime that works. If it does not come, the alarm does.
        std::signal(SIGALRM, [](int) { _exit(2); });
        alarm(10);
        dunlin::runtime::dump(std::cerr);
        std::cerr.flush();
        _exit(2);
    }
}

void report(const team& all, double seconds) {
    static dunlin::runtime::hand_off_stats before;
    const dunlin::runtime::hand_off_stats now = dunlin::runtime::stats().hand_offs;
    std::string line;
    char text[160];
    std::int64_t longest = 0;
    const char* longest_name = "";
    for (std::size_t i = 0; i < all.workers.size();) {
        const char* name = all.workers[i]->kind.name;
        std::uint64_t rounds = 0;
        for (; i < all.workers.size() && all.workers[i]->kind.name == name; ++i) {
            worker& w = *all.workers[i];
            const std::int64_t last = w.last_ns, waits = last == 0 ? 0 : now_ns() - last;
            const std::int64_t its_longest = std::max(w.longest_ns.exchange(0), waits);
            if (its_longest > longest) {
                longest = its_longest;
                longest_name = name;
            }
            rounds += w.rounds;
        }
        line += std::string(" ") + name + ' ' + std::to_string(rounds);
    }
    const auto taken = [](const dunlin::runtime::hand_off_stats& s) {
        return s.at_once + s.from_blocking + s.from_blocked + s.from_hogs;
    };
    std::snprintf(text, sizeof text,
        "%6.0f s  longest stall %6.1f ms (%s)  preemptions +%llu  hand-offs +%llu  thaws +%llu  faults %d |", seconds,
        static_cast<double>(longest) / 1e6, longest_name,
        static_cast<unsigned long long>(now.preemptions - before.preemptions),
        static_cast<unsigned long long>(taken(now) - taken(before)),
        static_cast<unsigned long long>(now.thaws - before.thaws), faults.load());
    before = now;
    std::puts((text + line).c_str());
    std::fflush(stdout);
}

// Allocates nothing and locks nothing until it has found something: the allocator may be what all wait for.
void watch(const team& all, std::chrono::seconds limit, const std::atomic<bool>& over) {
    for (const auto end = steady::now() + limit; !over; std::this_thread::sleep_for(100ms)) {
        end_if_stalled(all);
        if (steady::now() >= end) stop = true;
    }
}

void report_all_the_time(const team& all, const std::atomic<bool>& over) {
    const auto begin = steady::now();
    const auto seconds = [&] { return std::chrono::duration<double>(steady::now() - begin).count(); };
    for (auto next = begin + report_interval; !over; std::this_thread::sleep_for(100ms)) {
        if (steady::now() < next) continue;
        report(all, seconds());
        next += report_interval;
    }
    report(all, seconds());
}

int soak(std::chrono::seconds limit, unsigned procs) {
    hogs::prepare();
    static_cast<void>(the_pipes());
    team all;
    for (const hogs::kind& kind : hogs::all) {
        all.add(kind);
        all.add(kind);
    }
    for (const hogs::kind& kind : others) all.add(kind);
    std::atomic<bool> over{false};
    std::jthread watcher([&] { watch(all, limit, over); }), reporter([&] { report_all_the_time(all, over); });
    dunlin::run({.max_procs = procs}, [&] {
        all.start();
        while (!all.ended()) dunlin::sleep_for(1ms);
    });
    over = true;
    watcher.join();
    reporter.join();
    if (faults != 0) std::fprintf(stderr, "soak: %d wrong results\n", faults.load());
    return faults == 0 ? 0 : 1;
}

template <class Number>
bool read_number(const char* text, Number& number) {
    const char* end = text + std::strlen(text);
    return std::from_chars(text, end, number).ptr == end && number > 0;
}

}  // namespace

int main(int argc, char** argv) {
    unsigned seconds = 0, procs = 0;
    if (argc != 3 || !read_number(argv[1], seconds) || !read_number(argv[2], procs) || procs > 1024) {
        std::fprintf(stderr, "usage: %s SECONDS PROCS\n", argv[0]);
        return 64;
    }
    return soak(std::chrono::seconds(seconds), procs);
}
