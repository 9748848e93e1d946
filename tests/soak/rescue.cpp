// rescue SECONDS PROCS: goroutines stand still with the locks of libc in their hands, all the time, and no other hangs.
//
// Meant for DUNLIN_PREEMPTION=anywhere, which stops goroutines in libraries too, with one malloc arena
// (MALLOC_ARENA_MAX=1) or another allocator (LD_PRELOAD, or linked statically: rescue_jemalloc and its like): the lock
// of the allocator is then held by a goroutine that stands still, as often as not, while the scheduler, bursts of go(),
// threads that are made and stacks that go back want memory. ./dev rescue runs it with each.
//
// A plain thread watches that each kind of work gets on. It allocates nothing itself.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <dlfcn.h>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <dunlin/dunlin.hpp>

using namespace std::chrono_literals;

namespace {

enum work { allocations, bursts, own_stacks, peaks, throws, prints, texts, plain_threads, sleeps, machines, works };
constexpr const char* names[works] = {"allocations", "bursts of go()", "stacks of their own",
    "peaks of parked goroutines", "exceptions", "printing", "string streams", "go() by plain threads", "sleeps",
    "changes of max_procs"};
std::array<std::atomic<long>, works> done;
std::atomic<bool> stop{false};

void count(work w) { done[w].fetch_add(1, std::memory_order_relaxed); }
bool go_on() { return !stop.load(std::memory_order_relaxed); }

void say(const char* text) { [[maybe_unused]] const auto n = write(2, text, std::strlen(text)); }

double cpu_seconds() {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

// Where others want the CPUs, a work that stands still may only not have had its turn: so the time is that in which
// this process has had a CPU. One whose threads all sleep uses none: for that there is the second limit.
constexpr double patience_cpu_seconds = 20;
constexpr int patience_seconds = 180;

void watch(unsigned procs) {
    const double patience = patience_cpu_seconds * std::min(procs, std::thread::hardware_concurrency());
    std::array<long, works> before{};
    std::array<double, works> since{};
    std::array<int, works> still{};
    while (go_on()) {
        const timespec second{1, 0};
        nanosleep(&second, nullptr);
        const double used = cpu_seconds();
        for (int w = 0; w < works; ++w) {
            const long now = done[w].load(std::memory_order_relaxed);
            if (now != before[w]) since[w] = used, still[w] = -1;
            before[w] = now;
            if ((used - since[w] < patience && ++still[w] < patience_seconds) || !go_on()) continue;
            std::array<char, 200> text{};
            std::snprintf(text.data(), text.size(),
                "rescue: %s: nothing for %d s, in which the process has had %.1f s of CPU\n", names[w], still[w],
                used - since[w]);
            say(text.data());
            std::abort();
        }
    }
}

void allocate(unsigned seed) {
    std::vector<void*> kept(256);
    while (go_on()) {
        for (int i = 0; i < 64; ++i) {
            seed = seed * 1664525 + 1013904223;
            void*& place = kept[(seed >> 8) % kept.size()];
            std::free(place);
            place = std::malloc(64 + (seed >> 16) % 60000);
            if (place != nullptr) std::memset(place, 1, 64);
        }
        count(allocations);
    }
    for (void* p : kept) std::free(p);
}

// One more than fits into the run queues: the global queue grows.
void start_many() {
    while (go_on()) {
        dunlin::wait_group all;
        for (int i = 0; i < 20'000 && go_on(); ++i) all.go([] {});
        all.wait();
        count(bursts);
    }
}

void start_with_stacks_of_their_own() {
    while (go_on()) {
        dunlin::wait_group all;
        for (int i = 0; i < 2000 && go_on(); ++i) {
            all.add(1);
            dunlin::go({.stack_size = 64 << 10}, [&all] { all.done(); });
        }
        all.wait();
        count(own_stacks);
    }
}

// Stacks that the monitor then gives back.
void park_many() {
    while (go_on()) {
        dunlin::wait_group gate, all;
        gate.add(1);
        for (int i = 0; i < 3000; ++i) all.go([&gate] { gate.wait(); });
        gate.done();
        all.wait();
        count(peaks);
        dunlin::sleep_for(50ms);
    }
}

void throw_all_the_time() {
    while (go_on()) {
        for (int i = 0; i < 100; ++i) {
            try {
                throw std::runtime_error(std::string(100, 'x'));
            } catch (const std::exception& e) {
                if (std::strlen(e.what()) != 100) std::abort();
            }
        }
        count(throws);
    }
}

void print_all_the_time(std::FILE* file) {
    while (go_on()) {
        for (int i = 0; i < 200; ++i) std::fprintf(file, "%d %s %f\n", i, "text", i / 3.0);
        count(prints);
    }
}

void write_texts() {
    while (go_on()) {
        std::ostringstream out;
        for (int i = 0; i < 100; ++i) out << i << ' ' << i / 7.0;
        if (out.str().empty()) std::abort();
        count(texts);
    }
}

void start_from_a_plain_thread() {
    std::atomic<long> ended{0};
    long started = 0;
    while (go_on()) {
        for (int i = 0; i < 100; ++i, ++started)
            dunlin::go([&ended, text = std::string(200, 'y')] { ended.fetch_add(text.size() == 200); });
        while (ended.load() + 1000 < started && go_on()) std::this_thread::sleep_for(100us);
        count(plain_threads);
    }
    while (ended.load() < started) std::this_thread::sleep_for(100us);
}

void change_processors(unsigned procs) {
    unsigned n = 0;
    while (go_on()) {
        std::this_thread::sleep_for(20ms);
        dunlin::runtime::set_max_procs(1 + n++ % procs);
        count(machines);
    }
    dunlin::runtime::set_max_procs(procs);
}

}  // namespace

int main(int argc, char** argv) {
    const int seconds = argc > 1 ? std::atoi(argv[1]) : 10;
    const unsigned procs = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 2;
    if (seconds < 1 || procs < 1 || procs > 1024) return std::fputs("usage: rescue SECONDS PROCS\n", stderr), 2;
    std::FILE* file = std::fopen("/dev/null", "w");
    std::thread watcher(watch, procs);
    dunlin::run({.max_procs = procs, .stack_size = dunlin::dense_stack_size}, [&] {
        std::thread plain(start_from_a_plain_thread), changer(change_processors, procs);
        dunlin::wait_group all;
        for (unsigned i = 0; i < 12; ++i) all.go({.name = "allocates"}, [i] { allocate(i * 7919 + 1); });
        all.go(start_many);
        all.go(start_with_stacks_of_their_own);
        all.go(park_many);
        for (int i = 0; i < 2; ++i) all.go({.name = "throws"}, throw_all_the_time);
        for (int i = 0; i < 2; ++i) all.go({.name = "prints"}, [file] { print_all_the_time(file); });
        for (int i = 0; i < 2; ++i) all.go({.name = "texts"}, write_texts);
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
        while (std::chrono::steady_clock::now() < end) {
            dunlin::sleep_for(1ms);
            count(sleeps);
        }
        stop = true;
        all.wait();
        dunlin::blocking([&] {
            plain.join();
            changer.join();
        });
    });
    watcher.join();
    const auto hand_offs = dunlin::runtime::stats().hand_offs;
    const auto number = [](std::uint64_t n) { return static_cast<unsigned long>(n); };
    std::printf(
        "%d s, P=%u: %lu stops, %lu thaws;", seconds, procs, number(hand_offs.preemptions), number(hand_offs.thaws));
    for (int w = 0; w < works; ++w) std::printf(" %s %ld%s", names[w], done[w].load(), w + 1 < works ? "," : "\n");
    return 0;
}
