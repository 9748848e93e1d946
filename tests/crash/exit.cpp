// Programs that end while goroutines do all kinds of things. They must end at once, with status 0, and without a crash
// in a static destructor.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <sstream>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "support/scenarios.h"

using namespace std::chrono_literals;

namespace {

// Static objects, of which goroutines make use until the end and whose destructors look whether they are sound.
struct registry {
    std::map<std::string, std::string> entries;
    std::string text = std::string(1000, 'r');
    std::ostringstream stream;
    ~registry() {
        for (const auto& [key, value] : entries) {
            if (key.size() + value.size() > 100'000) abort();
        }
        entries.clear();
        std::memset(text.data(), 0, text.size());
    }
};
registry the_registry;
std::vector<std::unique_ptr<std::string>> owners;
std::atomic<int> started;

void wait_until_started(int n) {
    while (started.load() < n) dunlin::yield();
}

// A goroutine of its own map entry; only one goroutine writes.
void uses_static_objects() {
    for (int i = 0;; i = (i + 1) % 64) {
        the_registry.entries["key" + std::to_string(i)] = std::string(static_cast<std::size_t>(i) * 3, 'v');
        the_registry.stream.str({});
        the_registry.stream << i << the_registry.text.size();
        if (the_registry.entries.size() > 1000) abort();
        if (i == 10) started.fetch_add(1);
    }
}

void spins() {
    started.fetch_add(1);
    for (;;) asm volatile("");
}

void parks() {
    started.fetch_add(1);
    dunlin::wait_group wg;
    wg.add(1);
    wg.wait();
}

void sleeps() {
    started.fetch_add(1);
    dunlin::sleep_for(1h);
}

void sits_in_a_system_call() {
    int ends[2];
    if (pipe(ends) != 0) abort();
    started.fetch_add(1);
    char byte;
    while (read(ends[0], &byte, 1) != 1) {}
}

void allocates() {
    started.fetch_add(1);
    for (std::size_t i = 1;; i = i % 4000 + 1) {
        std::string s(i, 'x');
        auto p = std::make_unique<std::string>(s + s);
        asm volatile("" : : "r"(p.get()) : "memory");
    }
}

void prints() {
    for (int i = 0;; ++i) {
        std::printf("line %d of a goroutine that prints\n", i);
        if (i == 10) started.fetch_add(1);
    }
}

void prints_to_cout() {
    for (int i = 0;; ++i) {
        std::cout << "line " << i << '\n';
        if (i == 10) started.fetch_add(1);
    }
}

void throws() {
    started.fetch_add(1);
    for (;;) {
        try {
            throw std::runtime_error("again");
        } catch (const std::exception&) {
        }
    }
}

void spawns() {
    started.fetch_add(1);
    for (;;) dunlin::spawn([] { return 1; }).get();
}

void yields() {
    started.fetch_add(1);
    for (;;) dunlin::yield();
}

// Output to nowhere: a pipe without a reader would block.
void quiet() {
    if (!std::freopen("/dev/null", "w", stdout)) abort();
}

template <void (*Body)(), int Count>
int main_returns() {
    quiet();
    dunlin::run({.max_procs = 4}, [] {
        for (int i = 0; i < Count; ++i) dunlin::go(Body);
        wait_until_started(Count);
    });
    return 0;
}

int everything_at_once() {
    quiet();
    dunlin::run({.max_procs = 16}, [] {
        void (*const bodies[])() = {uses_static_objects, spins, parks, sleeps, sits_in_a_system_call, allocates, prints,
            prints_to_cout, throws, spawns, yields};
        for (auto* body : bodies) dunlin::go([body] { body(); });
        wait_until_started(static_cast<int>(std::size(bodies)));
    });
    return 0;
}

// Without run(): main() just returns.
int everything_without_run() {
    quiet();
    dunlin::runtime::set_max_procs(16);
    void (*const bodies[])() = {uses_static_objects, spins, parks, sleeps, sits_in_a_system_call, allocates, prints,
        prints_to_cout, throws, spawns, yields};
    for (auto* body : bodies) dunlin::go([body] { body(); });
    while (started.load() < static_cast<int>(std::size(bodies))) usleep(100);
    return 0;
}

// As many threads that compute, without goroutines, and nothing to stop: what the machine takes for that at this
// moment.
int plain_threads() {
    quiet();
    constexpr int count = 11;
    for (int i = 0; i < count; ++i) std::thread(spins).detach();
    while (started.load() < count) usleep(100);
    _exit(0);
}

int exit_in_a_goroutine() {
    quiet();
    dunlin::run({.max_procs = 8}, [] {
        dunlin::go(uses_static_objects);
        dunlin::go(allocates);
        dunlin::go(parks);
        wait_until_started(3);
        dunlin::spawn([] { std::exit(0); }).get();
    });
    return 1;
}

int exit_in_a_thread() {
    quiet();
    dunlin::run({.max_procs = 8}, [] {
        dunlin::go(uses_static_objects);
        dunlin::go(yields);
        wait_until_started(2);
        std::thread([] { std::exit(0); }).detach();
        dunlin::sleep_for(1h);
    });
    return 1;
}

int exit_in_main_goroutine() {
    quiet();
    dunlin::run({.max_procs = 8}, [] {
        dunlin::go(uses_static_objects);
        dunlin::go(spins);
        wait_until_started(2);
        std::exit(0);
    });
    return 1;
}

// A static object whose destructor uses the runtime.
struct late_user {
    bool armed = false;
    ~late_user() {
        if (!armed) return;
        dunlin::yield();
        dunlin::wait_group wg;
        wg.add(1);
        wg.done();
        wg.wait();
        dunlin::sleep_for(1ms);
        std::fprintf(stderr, "destroyed, %zu goroutines\n", dunlin::runtime::num_goroutines());
    }
};
late_user the_late_user;

int static_destructor_uses_the_runtime() {
    the_late_user.armed = true;
    dunlin::run([] {
        dunlin::go(parks);
        wait_until_started(1);
    });
    return 0;
}

// It was made before the library's own static objects, so it is destroyed after them.
struct last_reader {
    std::error_code code;
    dunlin::context of_run;
    ~last_reader() {
        if (!code) return;
        if (code.message() != "closed" || code.category().name() != std::string("dunlin")) _exit(3);
        if (dunlin::run_context() != of_run || of_run.is_done()) _exit(4);
        std::fputs("read\n", stderr);
    }
};
last_reader the_last_reader;

int static_destructor_reads_what_it_has_kept() {
    the_last_reader.code = dunlin::errc::closed;
    the_last_reader.of_run = dunlin::run_context();
    return 0;
}

// Two wait for one listener, a static object's: the turn of the one is handed on to the other at the end.
int exit_while_goroutines_accept() {
    static dunlin::net::listener l = dunlin::net::listen("tcp", "127.0.0.1:0");
    dunlin::run([] {
        for (int i = 0; i < 2; ++i) dunlin::go([] { l.accept(); });
        while (dunlin::runtime::stats().poll.waiting == 0) dunlin::yield();
        for (int i = 0; i < 10; ++i) dunlin::yield();
        dunlin::spawn([] { std::exit(0); }).get();
    });
    return 1;
}

int static_destructor_uses_the_runtime_after_exit_in_a_goroutine() {
    the_late_user.armed = true;
    dunlin::run([] {
        dunlin::go(parks);
        wait_until_started(1);
        std::exit(0);
    });
    return 1;
}

// What the exiting thread has started waits for that thread, which is one of the runtime's.
struct waited_for_late {
    ~waited_for_late() {
        if (!armed) return;
        const dunlin::chan<int> c;
        dunlin::task<int> receives = dunlin::spawn([c] { return *c.recv(); });
        usleep(30'000);
        c.send(7);
        std::fprintf(stderr, "received %d\n", receives.get());
    }
    bool armed = false;
} the_one_waited_for;

int a_goroutine_waits_for_the_thread_that_exits() {
    the_one_waited_for.armed = true;
    dunlin::run({.max_procs = 1}, [] { std::exit(0); });
    return 1;
}

// In a goroutine that the library has started for this thread.
int exit_in_an_independent_goroutine() {
    the_late_user.armed = true;
    const dunlin::cancellable ctx = dunlin::with_cancel({});
    ctx.after_func([] { std::exit(0); });
    ctx.cancel();
    for (;;) usleep(1000);
}

// One that waits for the thread that waits in run(), for what the main goroutine has left: it is no deadlock.
int an_independent_goroutine_waits_for_run() {
    const dunlin::chan<int> go_on, over;
    for (int i = 0; i < 50; ++i) {
        const dunlin::cancellable ctx = dunlin::with_cancel({});
        ctx.after_func([=] {
            go_on.recv();
            over.send(1);
        });
        ctx.cancel();
        dunlin::run({.at_end = dunlin::leftovers::wait}, [] {
            dunlin::go([] { dunlin::sleep_for(std::chrono::milliseconds(5)); });
        });
        go_on.send(1);
        over.recv();
    }
    return 0;
}

// ---- static objects that wait for what a plain thread has started ----

dunlin::jthread static_thread;
dunlin::future<int> static_future;

void start_for_static_objects() {
    static_thread = dunlin::jthread([](std::stop_token stop) {
        while (!stop.stop_requested()) dunlin::sleep_for(1ms);
        for (int i = 0; i < 100; ++i) dunlin::yield();
        std::puts("asked to stop");
    });
    static_future = dunlin::async([] {
        dunlin::sleep_for(50ms);
        std::puts("ended");
        return 1;
    });
}

int static_objects_wait_for_goroutines() {
    start_for_static_objects();
    return 0;
}

int static_objects_wait_after_an_unrelated_run() {
    start_for_static_objects();
    dunlin::run([] { dunlin::sleep_for(5ms); });
    std::exit(0);
}

int a_static_object_waits_for_a_goroutine_of_a_run() {
    dunlin::run([] {
        static_thread = dunlin::jthread([](std::stop_token stop) {
            while (!stop.stop_requested()) dunlin::sleep_for(1ms);
        });
    });
    return 0;
}

int a_static_object_waits_for_a_call_of_a_run() {
    static int ends[2];
    if (pipe(ends) != 0) return 1;
    dunlin::run([] {
        static_thread = dunlin::jthread([] {
            char byte;
            started.fetch_add(1);
            static_cast<void>(read(ends[0], &byte, 1));
        });
        while (started.load() < 1) dunlin::yield();
        dunlin::sleep_for(50ms);
    });
    return 0;
}

int static_destructor_uses_the_runtime_without_run() {
    the_late_user.armed = true;
    dunlin::go(parks);
    while (started.load() < 1) usleep(100);
    return 0;
}

int exit_handler_uses_the_runtime() {
    dunlin::go([] {});
    std::atexit([] {
        const int answer = dunlin::spawn([] { return 42; }).get();
        std::fprintf(stderr, "answer %d\n", answer);
    });
    return 0;
}

int quick_exit() {
    dunlin::run([] {
        dunlin::go(spins);
        if (dunlin::runtime::max_procs() > 1) wait_until_started(1);
        std::quick_exit(0);
    });
    return 1;
}

int nothing() {
    dunlin::run([] {});
    return 0;
}

int leak_report() {
    dunlin::run({.report_leaks = true}, [] {
        dunlin::go({.name = "forgotten"}, parks);
        wait_until_started(1);
        dunlin::sleep_for(std::chrono::milliseconds(50));  // it has begun, perhaps elsewhere, and is about to wait
    });
    return 0;
}

int leak_report_of_none() {
    dunlin::run({.report_leaks = true}, [] { dunlin::spawn([] {}).get(); });
    return 0;
}

// The goroutine of the first run still sleeps in the kernel, which is of no interest to the second one.
int leak_report_after_a_run_with_leftovers() {
    int ends[2];
    if (pipe(ends) != 0) return 1;
    dunlin::run([&] {
        dunlin::go([from = ends[0]] {
            char c;
            if (read(from, &c, 1) == 0) std::abort();
        });
        dunlin::sleep_for(std::chrono::milliseconds(50));
    });
    dunlin::run({.report_leaks = true}, [] {});
    return 0;
}

// Twenty answers that come when none waits for them, and one goroutine for which the program has the channel still.
int lost_report() {
    static const dunlin::chan<int> kept;
    dunlin::run([] {
        dunlin::go({.name = "kept"}, [] { kept.recv(); });
        for (int i = 0; i < 20; ++i) {
            dunlin::spawn([] {
                const dunlin::chan<int> answer;
                dunlin::go({.name = "answers too late"}, [=] { answer.send(1); });
                answer.recv_for(std::chrono::microseconds(1));
            }).get();
        }
        dunlin::sleep_for(std::chrono::milliseconds(20));
    });
    return 0;
}

// ---- a lock that a goroutine holds when it is left behind -----------------------------------------------------------

std::mutex held;
std::atomic<bool> is_held{false}, is_wanted{false};

struct wants_the_lock {
    ~wants_the_lock() {
        if (!is_wanted) return;
        const std::lock_guard guard(held);
        std::puts("had the lock");
    }
};
wants_the_lock last_object;

void holds_the_lock() {
    for (;;) {
        const std::lock_guard guard(held);
        is_held = true;
        for (const auto end = std::chrono::steady_clock::now() + 20ms; std::chrono::steady_clock::now() < end;) {}
    }
}

// exit() is called beside it, and a static object's destructor wants the lock.
template <bool by_goroutine>
int exit_beside_a_holder() {
    is_wanted = true;
    dunlin::run({.max_procs = 2}, [] {
        dunlin::go({.name = "holder"}, holds_the_lock);
        while (!is_held) dunlin::sleep_for(1ms);
        if (by_goroutine) {
            dunlin::go([] { std::exit(0); });
        } else {
            std::thread([] { std::exit(0); }).detach();
        }
        dunlin::sleep_for(1h);
    });
    return 1;
}

// A plain thread waits for the lock, and main for that thread.
int thread_beside_a_holder() {
    dunlin::run({.max_procs = 2}, [] {
        dunlin::go({.name = "holder"}, holds_the_lock);
        while (!is_held) dunlin::sleep_for(1ms);
    });
    std::thread([] {
        const std::lock_guard guard(held);
        std::puts("had the lock");
    }).join();
    std::fflush(stdout);
    _exit(0);
}

// What a library keeps for each thread, and gives back when the thread ends.
std::atomic<bool> gone{false};
void use_static_objects() {
    usleep(10'000);
    if (!gone) return;
    std::fputs("static objects are destroyed while a thread still destroys its own\n", stderr);
    _exit(3);
}
struct kept_for_a_thread {
    bool used = false;
    ~kept_for_a_thread() {
        if (used) use_static_objects();
    }
};
thread_local kept_for_a_thread kept;
pthread_key_t kept_key;
struct last_of_all {
    ~last_of_all() {
        gone = true;
        usleep(60'000);  // for those that are still there
    }
};

int threads_that_end() {
    static last_of_all destroyed_at_exit;
    pthread_key_create(&kept_key, [](void*) { use_static_objects(); });
    dunlin::run([] {
        dunlin::wait_group all;
        dunlin::chan<int> never;
        for (int i = 0; i < 4; ++i) {
            const auto keep = [] {
                dunlin::lock_os_thread();  // the thread ends with the goroutine
                kept.used = true;
                pthread_setspecific(kept_key, &kept_key);
            };
            all.go(keep);
            dunlin::go([=] {  // left by run(), which tells its thread to end
                keep();
                never.recv();
            });
        }
        dunlin::sleep_for(1ms);
        all.wait();
    });
    return 0;
}

// Main waits for the lock of a holder that locks it again at once. The first unlock may wake main on another CPU, too
// late; the holder must then run where main sleeps next.
int holders_that_lock_again() {
    alarm(30);
    for (int i = 0; i < 6; ++i) {
        auto* const lock = new std::mutex;  // stays locked, so that no holder of before goes on
        is_held = false;
        dunlin::run({.max_procs = 2}, [lock] {
            dunlin::go({.name = "holder"}, [lock] {
                for (;;) {
                    const std::lock_guard guard(*lock);
                    is_held = true;
                    for (const auto end = std::chrono::steady_clock::now() + 100ms;
                         std::chrono::steady_clock::now() < end;) {}
                }
            });
            while (!is_held) dunlin::sleep_for(1ms);
        });
        lock->lock();
    }
    std::puts("had each lock");
    std::fflush(stdout);
    _exit(0);
}

// The holder is lost in its next call of the library, and the lock with it. What is said of it comes from the thread
// maker, without the heap, though the place where it was made is known as an address only (a call with arguments).
int holder_that_calls() {
    dunlin::run({.max_procs = 2}, [] {
        const auto holds = [](std::chrono::milliseconds how_long) {
            const std::lock_guard guard(held);
            is_held = true;
            const auto end = std::chrono::steady_clock::now() + how_long;
            while (std::chrono::steady_clock::now() < end) {}
            dunlin::yield();
        };
        dunlin::go({.name = "holder"}, holds, 300ms);
        while (!is_held) dunlin::sleep_for(1ms);
    });
    alarm(6);
    const std::lock_guard guard(held);
    return 1;
}

// Main waits for a goroutine that was left behind while it waited for another that was.
int holders_in_a_chain() {
    static std::mutex far;
    dunlin::run({.max_procs = 2}, [] {
        dunlin::go({.name = "far"}, [] {
            const std::lock_guard guard(far);
            is_wanted = true;
            const auto end = std::chrono::steady_clock::now() + 300ms;
            while (std::chrono::steady_clock::now() < end) {}
        });
        while (!is_wanted) dunlin::sleep_for(1ms);
        dunlin::go({.name = "near"}, [] {
            const std::lock_guard guard(held);
            is_held = true;
            const std::lock_guard other(far);
        });
        while (!is_held) dunlin::sleep_for(1ms);
        dunlin::sleep_for(20ms);  // by then it sleeps for the other lock
    });
    alarm(20);
    const std::lock_guard guard(held);
    return 0;
}

// A mutex of the library's: computing or parked, the holder is lost with it.
template <bool Computes>
int holder_of_a_mutex_of_ours() {
    static dunlin::mutex ours;
    dunlin::run({.max_procs = 2}, [] {
        dunlin::go({.name = "holder"}, [] {
            const std::lock_guard guard(ours);
            is_held = true;
            for (volatile bool computes = Computes; computes;) {}
            dunlin::sleep_for(1h);
        });
        while (!is_held) dunlin::sleep_for(1ms);
    });
    alarm(4);
    const std::lock_guard guard(ours);
    return 1;
}

constexpr support::scenario all[] = {
    {"nothing", nothing},
    {"spin", main_returns<spins, 3>},
    {"park", main_returns<parks, 100>},
    {"sleep", main_returns<sleeps, 100>},
    {"system_call", main_returns<sits_in_a_system_call, 3>},
    {"allocate", main_returns<allocates, 3>},
    {"printf", main_returns<prints, 3>},
    {"cout", main_returns<prints_to_cout, 1>},
    {"static_objects", main_returns<uses_static_objects, 1>},
    {"throw", main_returns<throws, 3>},
    {"spawn", main_returns<spawns, 3>},
    {"yield", main_returns<yields, 20>},
    {"everything_at_once", everything_at_once},
    {"everything_without_run", everything_without_run},
    {"plain_threads", plain_threads},
    {"exit_in_a_goroutine", exit_in_a_goroutine},
    {"exit_in_a_thread", exit_in_a_thread},
    {"exit_while_goroutines_accept", exit_while_goroutines_accept},
    {"exit_in_main_goroutine", exit_in_main_goroutine},
    {"static_destructor_uses_the_runtime", static_destructor_uses_the_runtime},
    {"static_destructor_uses_the_runtime_after_exit_in_a_goroutine",
        static_destructor_uses_the_runtime_after_exit_in_a_goroutine},
    {"a_goroutine_waits_for_the_thread_that_exits", a_goroutine_waits_for_the_thread_that_exits},
    {"static_destructor_uses_the_runtime_without_run", static_destructor_uses_the_runtime_without_run},
    {"static_destructor_reads_what_it_has_kept", static_destructor_reads_what_it_has_kept},
    {"static_objects_wait_for_goroutines", static_objects_wait_for_goroutines},
    {"static_objects_wait_after_an_unrelated_run", static_objects_wait_after_an_unrelated_run},
    {"a_static_object_waits_for_a_goroutine_of_a_run", a_static_object_waits_for_a_goroutine_of_a_run},
    {"a_static_object_waits_for_a_call_of_a_run", a_static_object_waits_for_a_call_of_a_run},
    {"exit_handler_uses_the_runtime", exit_handler_uses_the_runtime},
    {"exit_in_an_independent_goroutine", exit_in_an_independent_goroutine},
    {"an_independent_goroutine_waits_for_run", an_independent_goroutine_waits_for_run},
    {"quick_exit", quick_exit},
    {"exit_by_a_goroutine_beside_a_holder", exit_beside_a_holder<true>},
    {"exit_by_a_thread_beside_a_holder", exit_beside_a_holder<false>},
    {"thread_beside_a_holder", thread_beside_a_holder},
    {"holder_that_calls", holder_that_calls},
    {"holders_that_lock_again", holders_that_lock_again},
    {"threads_that_end", threads_that_end},
    {"holders_in_a_chain", holders_in_a_chain},
    {"computing_holder_of_a_mutex_of_ours", holder_of_a_mutex_of_ours<true>},
    {"waiting_holder_of_a_mutex_of_ours", holder_of_a_mutex_of_ours<false>},
    {"leak_report", leak_report},
    {"leak_report_of_none", leak_report_of_none},
    {"leak_report_after_a_run_with_leftovers", leak_report_after_a_run_with_leftovers},
    {"lost_report", lost_report},
};

}  // namespace

int main(int argc, char** argv) { return support::choose(argc, argv, all); }
