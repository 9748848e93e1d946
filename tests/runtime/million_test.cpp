// A million goroutines parked at once, on dense stacks, and many with default settings, under the system's default
// limit of mappings.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class Million : public support::runtime_test {};

std::size_t status_kib(const std::string& field) {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.rfind(field + ":", 0) == 0) return std::stoul(line.substr(field.size() + 1));
    }
    return 0;
}

std::size_t first_number_in(const char* path) {
    std::ifstream file(path);
    std::size_t n = 0;
    file >> n;
    return n;
}

std::size_t mappings() {
    std::ifstream maps("/proc/self/maps");
    std::size_t n = 0;
    for (std::string line; std::getline(maps, line);) ++n;
    return n;
}

// Memory that the process could still get, as far as the kernel and the cgroup say.
std::size_t available_bytes() {
    std::ifstream info("/proc/meminfo");
    for (std::string line; std::getline(info, line);) {
        if (line.rfind("MemAvailable:", 0) == 0) return std::stoul(line.substr(13)) * 1024;
    }
    return 0;
}

// Nothing makes the monitor look meanwhile: nothing at all happens. The first here, because the memory of the others'
// million goroutines goes back too.
TEST_F(Million, TheMemoryOfAPeakGoesBackThoughTheProcessIsIdle) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer keeps shadow memory for each stack";
    allow(120s);
    static constexpr std::size_t n = 20'000;
    dunlin::run([] {
        const std::size_t before = status_kib("VmRSS");
        {
            dunlin::wait_group gate, ended;
            gate.add(1);
            for (std::size_t i = 0; i < n; ++i) ended.go([gate] { gate.wait(); });
            support::eventually([] { return dunlin::runtime::stats().waiting == n; });
            gate.done();
            ended.wait();
        }
        const std::size_t peak = status_kib("VmRSS");
        ASSERT_GT(peak, before + n * 4);  // a page each at least
        std::size_t now = peak;
        for (int i = 0; i < 10 && now > before + (peak - before) / 2; ++i) {
            dunlin::sleep_for(3s);
            now = status_kib("VmRSS");
        }
        std::printf("%zu KiB before, %zu at the peak, %zu later\n", before, peak, now);
        EXPECT_LE(now, before + (peak - before) / 2);
    });
}

// Starts so many, and says what each takes when all are parked.
double bytes_of_each_parked(std::size_t n) {
    const std::size_t before = status_kib("VmRSS") + status_kib("VmPTE");
    dunlin::wait_group gate, ended;
    gate.add(1);
    std::atomic<std::size_t> begun{0}, woken{0};
    for (std::size_t i = 0; i < n; ++i) {
        ended.go([&begun, &woken, gate] {
            begun.fetch_add(1, std::memory_order_relaxed);
            gate.wait();
            woken.fetch_add(1, std::memory_order_relaxed);
        });
    }
    support::eventually([&] { return begun.load() == n; });
    support::eventually([&] { return dunlin::runtime::stats().waiting == n; });
    const std::size_t after = status_kib("VmRSS") + status_kib("VmPTE");
    const double each = static_cast<double>(after - std::min(before, after)) * 1024 / static_cast<double>(n);
    std::printf("%.0f bytes each, %zu mappings\n", each, mappings());
    EXPECT_LE(mappings(), first_number_in("/proc/sys/vm/max_map_count"));
    EXPECT_EQ(dunlin::runtime::num_goroutines(), n + 1);
    gate.done();
    ended.wait();
    EXPECT_EQ(woken.load(), n);
    return each;
}

TEST_F(Million, GoroutinesWithTheStackOfAThreadTakeAtMost8600BytesEach) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer keeps shadow memory for each stack";
    allow(120s);
    dunlin::run([] { EXPECT_LE(bytes_of_each_parked(100'000), 8600); });
    EXPECT_EQ(dunlin::runtime::num_goroutines(), 0u);
}

TEST_F(Million, GoroutinesParkedAtOnceOnDenseStacksTakeAtMost4900BytesEach) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer keeps shadow memory for each stack";
    if (available_bytes() < std::size_t{7} << 30) GTEST_SKIP() << "needs 7 GiB of memory";
    allow(300s);
    static constexpr std::size_t n = 1'000'000;
    for (int round = 0; round < 2; ++round) {  // the second takes what the first gave back
        dunlin::run({.stack_size = dunlin::dense_stack_size}, [] { EXPECT_LE(bytes_of_each_parked(n), 4900); });
        EXPECT_EQ(dunlin::runtime::num_goroutines(), 0u);
    }
}

}  // namespace
