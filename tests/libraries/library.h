// library.h - what the programs of tests/libraries share: the same work in many goroutines with 1, 2 and 8 processors,
// computing goroutines beside it, and the count of what was wrong.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <stdlib.h>
#include <string>
#include <thread>

#include <dunlin/dunlin.hpp>

#include "support/watchdog.h"

namespace libraries {

inline std::atomic<int> faults{0};

/// Counts what is not `good`, and prints the first few.
[[gnu::format(printf, 2, 3)]] inline bool expect(bool good, const char* format, ...) {
    if (good) return true;
    if (faults.fetch_add(1) < 8) {
        char text[512];
        va_list arguments;
        va_start(arguments, format);
        std::vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        std::fprintf(stderr, "  wrong: %s\n", text);
    }
    return false;
}

/// A folder of its own that goes away with it.
class folder {
public:
    folder() {
        char name[] = "/tmp/dunlin-library-XXXXXX";
        if (!mkdtemp(name)) throw std::runtime_error("mkdtemp");
        path = name;
    }
    ~folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
    folder(const folder&) = delete;
    folder& operator=(const folder&) = delete;

    std::string path;
};

struct plan {
    int goroutines = 200;
    int rounds = 3;         // of each goroutine
    int hogs_for_each = 1;  // computing goroutines for each processor
};

// One computation after another, no call of the runtime, until it is told to end.
inline void hog(const std::atomic<bool>& stop) {
    std::uint64_t state = 1;
    while (!stop.load(std::memory_order_relaxed)) {
        for (int i = 0; i < 1000; ++i) state = state * 6364136223846793005u + 1442695040888963407u;
        asm volatile("" : "+r"(state));
    }
}

/// Calls body(goroutine, round) in goroutines with default settings, with 1, 2 and 8 processors. An exception that
/// leaves it is a fault.
template <class F>
void in_goroutines(const plan& p, F&& body) {
    for (const unsigned processors : {1u, 2u, 8u}) {
        const auto begin = std::chrono::steady_clock::now();
        const int before = faults;
        std::atomic<long> calls{0};
        dunlin::run({.max_procs = processors}, [&] {
            std::atomic<bool> stop{false};
            dunlin::wait_group hogs, workers;
            for (int i = 0; i < p.hogs_for_each * static_cast<int>(processors); ++i) hogs.go([&] { hog(stop); });
            for (int i = 0; i < p.goroutines; ++i) {
                workers.go([&, i] {
                    for (int round = 0; round < p.rounds; ++round) {
                        try {
                            body(i, round);
                        } catch (const std::exception& error) {
                            expect(false, "goroutine %d: %s", i, error.what());
                        }
                        ++calls;
                        dunlin::yield();
                    }
                });
            }
            workers.wait();
            stop = true;
            hogs.wait();
        });
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        std::printf("  P = %u: %ld calls in %d goroutines, %.2f s%s\n", processors, calls.load(), p.goroutines, seconds,
            faults == before ? "" : ", WRONG");
        std::fflush(stdout);
        expect(calls == static_cast<long>(p.goroutines) * p.rounds, "%ld calls have ended", calls.load());
    }
}

/// Begins a program: its name and version, and the watchdog.
class program {
public:
    explicit program(const std::string& what, std::chrono::seconds limit = std::chrono::seconds(120))
        : watchdog_(what, limit) {
        std::printf("%s\n", what.c_str());
        std::fflush(stdout);
    }
    /// The exit status.
    int result() const { return faults == 0 ? 0 : 1; }

private:
    support::watchdog watchdog_;
};

}  // namespace libraries
