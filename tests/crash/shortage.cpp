// Programs that run out of threads, of memory for stacks, of memory for goroutines.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <malloc.h>
#include <new>
#include <optional>
#include <pthread.h>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include <dunlin/dunlin.hpp>

#include "support/forbid_threads.h"
#include "support/scenarios.h"

using namespace std::chrono_literals;

// how many more can be had, unlike forbid_threads() for a while; negative: any number
static std::atomic<int> threads_left{-1};

#if !DUNLIN_THREAD_SANITIZER && !DUNLIN_ADDRESS_SANITIZER
// In the place of libc's, which it calls.
extern "C" int pthread_create(
    pthread_t* thread, const pthread_attr_t* attributes, void* (*entry)(void*), void* argument) noexcept {
    static const auto real = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
    if (threads_left == 0) return EAGAIN;
    if (threads_left > 0) --threads_left;
    return real(thread, attributes, entry, argument);
}

// How many more `new` of this thread can have until one fails, and only that one; negative: any number.
static thread_local int allocations_left = -1;
// While it is set, all other threads get nothing.
static std::atomic<bool> others_go_without{false};
static thread_local bool is_another = true;

static void* allocate(std::size_t size, std::size_t alignment) {
    if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
    if (is_another && others_go_without) throw std::bad_alloc();
    if (void* p = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment)) return p;
    throw std::bad_alloc();
}
void* operator new(std::size_t size) { return allocate(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t to) { return allocate(size, static_cast<std::size_t>(to)); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

// A first start without the memory for its `n`-th object, and a second one. In a process of its own. Returns 0 if the
// first start wanted so many, 1 if it did not.
static int start_without_memory(int n) {
    alarm(20);
    bool failed = false;
    allocations_left = n;
    try {
        dunlin::go([] {});
    } catch (const std::bad_alloc&) {
        failed = true;
    }
    failed = failed || allocations_left < 0;
    allocations_left = -1;
    int ran = 0;
    for (int i = 0; i < 2; ++i) {
        dunlin::run({.max_procs = i == 0 ? 0u : 3u}, [&] {
            dunlin::sleep_for(100us);
            dunlin::wait_group group;
            for (int k = 0; k < 10; ++k) group.go([] { dunlin::yield(); });
            group.wait();
            ++ran;
        });
    }
    dunlin::spawn([&] { ++ran; }).get();
    _exit(ran != 3 ? 2 : failed ? 0 : 1);
}
#endif

namespace {

// Prints after how many objects the first start wants no more, or what became of a process.
int no_memory_for_the_start() {
#if !DUNLIN_THREAD_SANITIZER && !DUNLIN_ADDRESS_SANITIZER
    for (int n = 0; n < 1000; ++n) {
        const pid_t child = fork();
        if (child == 0) start_without_memory(n);
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child) return 1;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 1) {
            std::printf("more than two: %s\n", n > 2 ? "yes" : "no");
            return 0;
        }
        std::printf("without object %d: status %#x\n", n, static_cast<unsigned>(status));
    }
#endif
    return 1;
}

// The first goroutine runs although only its starter has memory.
int no_memory_for_the_other_threads() {
#if !DUNLIN_THREAD_SANITIZER && !DUNLIN_ADDRESS_SANITIZER
    is_another = false;
    std::atomic<int> ran{0};
    others_go_without = true;
    for (int i = 0; i < 10; ++i) {
        dunlin::go([&] {
            ++ran;
            ran.notify_one();
        });
    }
    for (int seen = 0; seen < 10; seen = ran) ran.wait(seen);
    others_go_without = false;
    std::printf("%d ran\n", ran.load());
#endif
    return 0;
}

// From here on this process may have so much more address space than it has. None of it for the arenas that glibc's
// malloc would reserve for new threads, 64 MiB each: they might leave nothing at all.
void limit_memory(std::size_t more) {
    mallopt(M_ARENA_MAX, 1);
    std::ifstream status("/proc/self/statm");
    std::size_t pages = 0;
    status >> pages;
    const rlimit limit{pages * 4096 + more, pages * 4096 + more};
    if (setrlimit(RLIMIT_AS, &limit) != 0) std::exit(77);
}

int no_first_thread() {
    support::forbid_threads();
    for (int i = 0; i < 2; ++i) {
        try {
            dunlin::run([] { std::printf("ran\n"); });
        } catch (const std::system_error& e) {
            std::printf("%s\n", e.what());
        }
    }
    return 0;
}

// A start that fails in its midst, and one that succeeds: what the first has installed is not taken for the program's.
int no_second_thread_at_first() {
    threads_left = 1;
    try {
        dunlin::run([] { std::printf("ran\n"); });
    } catch (const std::system_error& e) {
        std::printf("%s\n", e.what());
    }
    threads_left = -1;
    dunlin::run([] {
        kill(getpid(), SIGURG);
        dunlin::spawn([] { dunlin::sleep_for(1ms); }).get();
        std::printf("passed on\n");
        std::fflush(stdout);
        raise(SIGSEGV);
    });
    return 0;
}

// Goes on with the threads that there are.
int no_more_threads() {
    dunlin::run({.max_procs = 1}, [] {
        dunlin::spawn([] { dunlin::yield(); }).get();
        support::forbid_threads();
        dunlin::runtime::set_max_procs(8);
        std::atomic<int> count{0};
        for (int round = 0; round < 50; ++round) {
            dunlin::wait_group wg;
            for (int i = 0; i < 200; ++i) {
                wg.go([&count, i] {
                    for (int k = 0; k < i % 5; ++k) dunlin::yield();
                    if (i % 50 == 0) dunlin::sleep_for(100us);
                    count.fetch_add(1);
                });
            }
            wg.wait();
        }
        std::printf("count %d max_procs %u threads %u\n", count.load(), dunlin::runtime::max_procs(),
            dunlin::runtime::stats().threads);
    });
    return 0;
}

// Each thread belongs to a goroutine that is wired to it: a processor that no other machine can take goes to the next
// one's thread at once, not a tenth of a second later.
int no_more_threads_but_wired_ones() {
    dunlin::run({.max_procs = 1}, [] {
        dunlin::os_thread_lock stays_too;
        dunlin::wait_group makes_threads;
        for (int i = 0; i < 4; ++i) makes_threads.go([] { dunlin::blocking([] { usleep(2000); }); });
        makes_threads.wait();
        support::forbid_threads();
        const dunlin::chan<int> there, back, end;
        for (auto others = dunlin::runtime::stats().threads - 3; others > 0; --others) {  // this one, two that play
            dunlin::go([end] {
                dunlin::os_thread_lock stays;
                end.recv();
            });
        }
        const auto plays = [end](const dunlin::chan<int>& from, const dunlin::chan<int>& to, bool begins) {
            dunlin::go([from, to, begins, end] {
                dunlin::os_thread_lock stays;
                if (begins) to.send(0);
                for (int n = 0; n != 1000; ++n) {
                    from.recv();
                    to.send(n);
                }
                end.close();  // the first one; the other is still in its last send
            });
        };
        plays(there, back, false);
        plays(back, there, true);
        end.recv();
        std::printf("over\n");
    });
    return 0;
}

// More goroutines parked at once than there is memory for stacks. Those that have none wait until others end.
int no_memory_for_stacks() {
    dunlin::run({.max_procs = 2}, [] {
        dunlin::spawn([] { dunlin::yield(); }).get();
        limit_memory(std::size_t{96} << 20);
        std::atomic<int> count{0};
        dunlin::wait_group wg;
        for (int i = 0; i < 3000; ++i) {
            wg.go([&count] {
                dunlin::sleep_for(2ms);
                count.fetch_add(1);
            });
        }
        wg.wait();
        std::printf("count %d\n", count.load());
    });
    return 0;
}

// A stack of a size of its own that there is no memory for.
int no_memory_for_a_big_stack() {
    dunlin::run({.max_procs = 2}, [] {
        dunlin::spawn([] { dunlin::yield(); }).get();
        limit_memory(std::size_t{96} << 20);
        for (int i = 0; i < 3; ++i) {
            try {
                dunlin::go({.stack_size = std::size_t{512} << 20}, [] {});
                std::printf("started\n");
            } catch (const std::bad_alloc&) {
                std::printf("bad_alloc\n");
            }
        }
        std::printf("%d\n", dunlin::spawn([] { return 5; }).get());
    });
    return 0;
}

// A goroutine with a stack that is not main's: one that is joined at once would run in place.
void bind_a_stack() {
    std::atomic<bool> ended{false};
    dunlin::go([&ended] { ended = true; });
    while (!ended) dunlin::yield();
}

// Goroutines that cannot run yet, until there is no memory for another. Those that were started all run.
int no_memory_for_goroutines() {
    dunlin::run({.max_procs = 1}, [] {
        bind_a_stack();
        limit_memory(std::size_t{64} << 20);
        static std::size_t started = 0, ended = 0;
        try {
            const dunlin::no_preempt no_other_runs_meanwhile;
            for (;;) {
                dunlin::go([] { ++ended; });
                ++started;
            }
        } catch (const std::bad_alloc&) {
            std::printf("bad_alloc after more than 100000: %s\n", started > 100'000 ? "yes" : "no");
        }
        while (ended < started) dunlin::yield();
        // And there is memory again.
        dunlin::spawn([] {}).get();
        std::printf("all ended: %s\n", ended == started ? "yes" : "no");
    });
    return 0;
}

constexpr support::scenario all[] = {
    {"no_first_thread", no_first_thread},
    {"no_second_thread_at_first", no_second_thread_at_first},
    {"no_memory_for_the_start", no_memory_for_the_start},
    {"no_memory_for_the_other_threads", no_memory_for_the_other_threads},
    {"no_more_threads", no_more_threads},
    {"no_more_threads_but_wired_ones", no_more_threads_but_wired_ones},
    {"no_memory_for_stacks", no_memory_for_stacks},
    {"no_memory_for_a_big_stack", no_memory_for_a_big_stack},
    {"no_memory_for_goroutines", no_memory_for_goroutines},
};

}  // namespace

int main(int argc, char** argv) { return support::choose(argc, argv, all); }
