// blocking_bench.cpp - goroutines whose threads sleep in the kernel, announced by blocking() and not. Twins:
// peers/go/blocking.go, blocking_cgo.go.

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "measure.h"
#include "registry.h"

namespace bench {
namespace {

using namespace std::chrono_literals;

void sleep_in_kernel(std::chrono::nanoseconds length) {
    const timespec t{0, length.count()};
    nanosleep(&t, nullptr);
}

/// What blocking() adds to the shortest system call. Short batches with and without by turns, so that both meet the
/// same machine.
void blocking_trivial(const settings& s, results& r) {
    const long pairs = s.scaled(1500);
    constexpr long calls = 2000;
    const auto ns_per_call = [](auto&& call) {
        const auto start = steady::now();
        for (long i = 0; i < calls; ++i) call();
        return ns_between(start, steady::now()) / static_cast<double>(calls);
    };
    const auto raw = [] { return syscall(SYS_getppid); };
    const auto announced = [] { return dunlin::blocking([] { return syscall(SYS_getppid); }); };
    dunlin::run([&] {
        ns_per_call(raw);
        ns_per_call(announced);
        std::vector<double> raw_ns, overhead_ns;
        for (long pair = 0; pair < pairs; ++pair) {
            raw_ns.push_back(ns_per_call(raw));
            overhead_ns.push_back(ns_per_call(announced) - raw_ns.back());
        }
        r.add("overhead", percentile(overhead_ns, 0.5), "ns");
        r.add("raw", percentile(raw_ns, 0.5), "ns");
    });
}

/// A thousand goroutines block for 1 ms. The first time in the process the threads have to be made; then twenty times
/// more.
void blocking_1ms(const settings& s, results& r) {
    const long goroutines = s.scaled(1000);
    const auto once_ms = [goroutines] {
        dunlin::wait_group wg;
        const auto start = steady::now();
        for (long i = 0; i < goroutines; ++i) {
            wg.go([] { dunlin::blocking([] { sleep_in_kernel(1ms); }); });
        }
        wg.wait();
        return ns_between(start, steady::now()) / 1e6;
    };
    dunlin::run([&] {
        r.add("time", once_ms(), "ms");
        std::vector<double> again_ms(20);
        for (double& took : again_ms) took = once_ms();
        r.add("again", percentile(again_ms, 0.5), "ms");
        const auto stats = dunlin::runtime::stats();
        r.add("threads", static_cast<double>(stats.threads + stats.hand_offs.threads_ended), "threads");
    });
}

/// Calls `start(wg, stop)`, which starts what blocks threads until `stop`, and sleeps for 1 ms again and again: how
/// much longer that takes.
template <class Start>
void ticks_beside(const settings& s, results& r, Start&& start) {
    const auto length = std::chrono::milliseconds(s.scaled(2000));
    std::vector<double> beyond_ms;
    dunlin::run([&] {
        std::atomic<bool> stop = false;
        dunlin::wait_group wg;
        start(wg, stop);
        auto last = steady::now();
        for (const auto end = last + length; last < end;) {
            dunlin::sleep_for(1ms);
            const auto now = steady::now();
            beyond_ms.push_back(ns_between(last + 1ms, now) / 1e6);
            last = now;
        }
        stop = true;
        wg.wait();
    });
    r.add("p50", percentile(beyond_ms, 0.50), "ms");
    r.add("p99", percentile(beyond_ms, 0.99), "ms");
    r.add("max", percentile(beyond_ms, 1), "ms");
}

/// Two goroutines for each processor sleep in the kernel.
void unannotated_sleep(const settings& s, results& r) {
    ticks_beside(s, r, [](dunlin::wait_group& wg, std::atomic<bool>& stop) {
        for (unsigned i = 0; i < 2 * dunlin::runtime::max_procs(); ++i) {
            wg.go([&stop] {
                while (!stop) sleep_in_kernel(5ms);
            });
        }
    });
}

/// A pair of goroutines for each processor: a byte goes to and fro through two pipes.
void unannotated_pipe(const settings& s, results& r) {
    using ends = std::array<int, 2>;
    ticks_beside(s, r, [](dunlin::wait_group& wg, std::atomic<bool>& stop) {
        for (unsigned pair = 0; pair < dunlin::runtime::max_procs(); ++pair) {
            ends there, back;
            if (pipe(there.data()) != 0 || pipe(back.data()) != 0) fail("unannotated-pipe: no pipe");
            wg.go([there, back, &stop] {
                char byte = 0;
                while (!stop) {
                    if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
                        fail("unannotated-pipe: a byte is lost");
                }
                close(there[1]);
            });
            wg.go([there, back] {
                char byte = 0;
                while (read(there[0], &byte, 1) == 1) {
                    if (write(back[1], &byte, 1) != 1) fail("unannotated-pipe: a byte is lost");
                }
            });
        }
    });
}

/// Two goroutines for each processor want one std::mutex, and the one that has it sleeps in the kernel.
void unannotated_mutex(const settings& s, results& r) {
    std::mutex mutex;
    ticks_beside(s, r, [&mutex](dunlin::wait_group& wg, std::atomic<bool>& stop) {
        for (unsigned i = 0; i < 2 * dunlin::runtime::max_procs(); ++i) {
            wg.go([&mutex, &stop] {
                while (!stop) {
                    const std::lock_guard lock(mutex);
                    sleep_in_kernel(1ms);
                }
            });
        }
    });
}

const registered all[] = {
    registered({"blocking-trivial", "what blocking() adds to the shortest system call", blocking_trivial}),
    registered({"blocking-1ms", "a thousand goroutines block for 1 ms", blocking_1ms}),
    registered({"unannotated-sleep", "a ticker beside goroutines that sleep in the kernel without blocking()",
        unannotated_sleep}),
    registered(
        {"unannotated-pipe", "a ticker beside goroutines that read from pipes without blocking()", unannotated_pipe}),
    registered({"unannotated-mutex", "a ticker beside goroutines that lock a std::mutex without blocking()",
        unannotated_mutex}),
};

}  // namespace
}  // namespace bench
