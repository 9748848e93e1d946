// Programs that start with one setting or another in their environment.
#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <span>
#include <stdexcept>
#include <sys/mman.h>

#include <dunlin/dunlin.hpp>

#include "support/scenarios.h"

using namespace std::chrono_literals;

namespace {

int many_goroutines() {
    int sum = 0;
    dunlin::run([&] {
        std::printf("max_procs %u\n", dunlin::runtime::max_procs());
        std::atomic<int> count{0};
        dunlin::wait_group wg;
        for (int i = 0; i < 5000; ++i) wg.go([&count] { count.fetch_add(1); });
        wg.wait();
        sum = count.load();
    });
    std::printf("sum %d\n", sum);
    return 0;
}

// What the settings came to.
int show() {
    dunlin::run([] {
        dunlin::spawn([] {}).get();
        const auto s = dunlin::runtime::stats();
        std::printf("max_procs %u\nguards %s\n", s.max_procs, s.stack_guards.c_str());
    });
    return 0;
}

// What is asked for before the runtime runs: the signal that preempts goroutines is refused, and another one is not.
int signals_before_the_start() {
    for (const int signal : {SIGURG, SIGUSR1}) {
        try {
            const auto channel = dunlin::signal_channel(signal);
            std::printf("%d\n", signal);
        } catch (const std::invalid_argument&) {
            std::printf("not %d\n", signal);
        }
    }
    return 0;
}

int busy_for_a_second() {
    dunlin::run([] {
        const auto until = dunlin::clock::now() + 1050ms;
        dunlin::wait_group wg;
        for (int i = 0; i < 8; ++i) {
            wg.go([until] {
                while (dunlin::clock::now() < until) dunlin::yield();
            });
        }
        wg.wait();
    });
    return 0;
}

int idle_for_a_second() {
    dunlin::run([] { dunlin::sleep_for(1050ms); });
    return 0;
}

// Prints how much of a CPU the process used in two seconds, in per cent; and how much it is to read, in that time, as
// much memory as the goroutines' structs have: memory that was not touched for seconds may have to be fetched by the
// host of a virtual machine, which takes up to 60 us a page.
int idle_with_ten_thousand() {
    dunlin::run([] {
        constexpr std::size_t bytes = 10'000 * 192;
        void* const room = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (room == MAP_FAILED) std::abort();
        madvise(room, bytes, MADV_NOHUGEPAGE);
        const std::span memory(static_cast<char*>(room), bytes);
        std::ranges::fill(memory, 1);
        dunlin::wait_group gate;
        gate.add(1);
        for (int i = 0; i < 10'000; ++i) dunlin::go([gate] { gate.wait(); });
        while (dunlin::runtime::stats().waiting < 10'000) dunlin::yield();
        dunlin::sleep_for(1500ms);  // what is due after work is done: threads and stacks are given back for a second
        const auto used = [] {
            timespec t;
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
            return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
        };
        const auto percent_since = [&](double before) { return (used() - before) / 2e9 * 100; };
        const auto read = [&] {
            const double before = used();
            volatile char sum = 0;
            for (std::size_t i = 0; i < memory.size(); i += 64) sum = static_cast<char>(sum + memory[i]);
            return percent_since(before);
        };
        // The least of some: on a busy machine what is given back may be given back late.
        double least = 100, reading = 0;
        for (int i = 0; i < 4 && least >= 0.1; ++i) {
            const double before = used();
            dunlin::sleep_for(2s);
            least = std::min(least, percent_since(before));
            reading = std::max(reading, read());
        }
        std::printf("%.4f %.4f\n", least, reading);
    });
    return 0;
}

constexpr support::scenario all[] = {
    {"many_goroutines", many_goroutines},
    {"show", show},
    {"signals_before_the_start", signals_before_the_start},
    {"busy_for_a_second", busy_for_a_second},
    {"idle_for_a_second", idle_for_a_second},
    {"idle_with_ten_thousand", idle_with_ten_thousand},
};

}  // namespace

int main(int argc, char** argv) { return support::choose(argc, argv, all); }
