// Programs with one processor and a goroutine that keeps it, started with one setting or another.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <malloc.h>
#include <mutex>
#include <poll.h>
#include <pthread.h>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include <dunlin/dunlin.hpp>

#include "support/forbid_threads.h"
#include "support/scenarios.h"

using namespace std::chrono_literals;

namespace {

dunlin::runtime::hand_off_stats hand_offs() { return dunlin::runtime::stats().hand_offs; }

// ---- PRE-03 ---------------------------------------------------------------------------------------------------------

std::atomic<int> started{0};

// go1.24 src/runtime/testdata/testprog/preempt.go. One has a frame and calls on its way in, one is arithmetic without a
// frame, one is empty.
void loop_after_a_call() {
    started.fetch_add(1);
    for (unsigned i = 0;; ++i) asm volatile("" : "+r"(i));
}

[[gnu::noinline]] void frameless(std::atomic<unsigned>& n) {
    for (unsigned i = 1;; i = i * 3 + 1) n.store(i, std::memory_order_relaxed);
}

int async_preempt() {
    dunlin::run([] {
        static std::atomic<unsigned> n{0};
        dunlin::go(loop_after_a_call);
        dunlin::go([] {
            started.fetch_add(1);
            frameless(n);
        });
        dunlin::go([] {
            started.fetch_add(1);
            for (;;) asm volatile("");
        });
        while (started.load() < 3) dunlin::yield();
        std::ostringstream text;
        dunlin::runtime::dump(text);
        const std::string dump = text.str();
        int headers = 0;
        for (std::size_t at = 0; (at = dump.find("goroutine ", at)) != std::string::npos; ++at)
            headers += at == 0 || dump[at - 1] == '\n';
        std::printf("OK %d goroutines\n", headers);
    });
    return 0;
}

// ---- settings -------------------------------------------------------------------------------------------------------

enum class wanted { nothing, ticks, taken, stopped };

// Main sleeps, over and over, while another goroutine keeps the processor: until the other one has ended, or what is
// wanted has happened. A slow machine may need a second for it. Where a goroutine shall be stopped there are two:
// beside main alone it finds, when the signal comes late on a busy CPU, that main sleeps again and its processor is
// idle, and goes on.
template <class Keep>
int tick_beside(wanted what, Keep keep) {
    dunlin::run([&] {
        std::atomic<bool> over{false}, ended{false};
        const int keepers = what == wanted::stopped ? 2 : 1;
        std::atomic<int> running{keepers};
        int ticks = 0;
        for (int i = 0; i < keepers; ++i) {
            dunlin::go([&] {
                keep(over);
                ended = true;
                running.fetch_sub(1);
            });
        }
        const auto reached = [&] {
            if (what == wanted::nothing || ticks < 10) return false;
            const auto h = hand_offs();
            return what == wanted::ticks || (what == wanted::taken && h.from_hogs != 0) || h.preemptions != 0;
        };
        while (!ended && !reached()) {
            dunlin::sleep_for(1ms);
            if (!ended) ++ticks;
        }
        over = true;
        const auto h = hand_offs();
        if (ticks != 0) std::puts("ticked");
        if (h.from_hogs != 0) std::puts("taken");
        if (h.preemptions != 0) std::puts("stopped");
        while (running != 0) dunlin::yield();
    });
    return 0;
}

long now_ms() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1'000'000;
}

int loop_beside_main(wanted what, int seconds) {
    return tick_beside(what, [seconds](std::atomic<bool>& over) {
        for (const long until = now_ms() + seconds * 1000; now_ms() < until && !over;) {
            for (int i = 0; i < 10'000'000 && !over.load(std::memory_order_relaxed); ++i) asm volatile("");
        }
    });
}

int loop_until_stopped() { return loop_beside_main(wanted::stopped, 25); }
int loop_until_taken() { return loop_beside_main(wanted::taken, 25); }
int loop_of_a_second() { return loop_beside_main(wanted::nothing, 1); }

// Whether the end of run() stops a goroutine that computes.
int leave_one_behind() {
    static std::atomic<long> turns{0};
    dunlin::run([] {
        dunlin::go([] {
            for (;;) turns.fetch_add(1, std::memory_order_relaxed);
        });
        while (turns == 0) dunlin::sleep_for(1ms);
    });
    const long at_end = turns;
    usleep(50'000);
    std::puts(turns == at_end ? "frozen" : "computes after the end of run()");
    return 0;
}

// As main() does where one thread takes all signals, by sigwait().
int all_signals_blocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    loop_until_stopped();
    return leave_one_behind();
}

// No file can be opened: the monitor cannot read under /proc.
int no_more_descriptors() {
    dunlin::run([] {});
    rlimit r{};
    getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = 3;
    setrlimit(RLIMIT_NOFILE, &r);
    return loop_until_stopped();
}

// As a server that was started by root and has given its privileges up.
int no_more_privileges() {
    dunlin::run([] {});
    if (geteuid() == 0 && setuid(65534) != 0) return 1;
    prctl(PR_SET_DUMPABLE, 0);
    loop_until_stopped();
    return leave_one_behind();
}

// A goroutine is in a signal handler, on its own stack or on a signal stack that has disarmed itself, when run() ends:
// the handler has interrupted any code, malloc's for instance, so it is let go on.
int in_a_handler_at_the_end(bool disarms) {
    static std::byte stack[64 << 10];
    static std::atomic<bool> begun{false}, finished{false};
    struct sigaction action {};
    action.sa_handler = [](int) {
        begun = true;
        for (const long until = now_ms() + 100; now_ms() < until;) {
            for (int i = 0; i < 1'000'000; ++i) asm volatile("");
        }
        finished = true;
    };
    action.sa_flags = disarms ? SA_ONSTACK : 0;
    sigaction(SIGUSR1, &action, nullptr);
    dunlin::run([disarms] {
        dunlin::go([disarms] {
            constexpr unsigned disarm_itself = 1u << 31;  // SS_AUTODISARM, which libc's headers do not have
            const stack_t own{stack, static_cast<int>(disarm_itself), sizeof stack};
            if (disarms) sigaltstack(&own, nullptr);
            raise(SIGUSR1);
            for (;;) asm volatile("");
        });
        while (!begun) dunlin::sleep_for(1ms);
    });
    std::puts(finished ? "finished" : "stopped in the handler");
    return 0;
}

int blocked_and_ticks() {
    return tick_beside(wanted::ticks, [](std::atomic<bool>& over) {
        while (!over) poll(nullptr, 0, 100);
    });
}

std::atomic<int> own_calls{0};

void install_own_handler() {
    struct sigaction action {};
    action.sa_handler = [](int) { own_calls.fetch_add(1); };
    action.sa_flags = SA_RESTART;
    sigaction(SIGURG, &action, nullptr);
}

// The program's own handler was there first: it is passed the program's own signals, and only those.
int own_handler_before() {
    install_own_handler();
#if DUNLIN_THREAD_SANITIZER
    loop_until_taken();
#else
    loop_until_stopped();
#endif
    raise(SIGURG);
    kill(getpid(), SIGURG);
    dunlin::run([] { raise(SIGURG); });
    std::printf("own handler called %d times\n", own_calls.load());
    return 0;
}

// Its handler is called once for each signal, while the runtime sends the same one to stop goroutines and to look at
// stacks. The program's go to the process: a thread may have a request already, and the kernel keeps one for each.
int own_handler_among_requests() {
    install_own_handler();
    constexpr int signals = 300;
    int sent = 0;
    dunlin::run({.max_procs = 1}, [&] {
        std::atomic<bool> over{false};
        dunlin::wait_group all;
        for (int i = 0; i < 3; ++i) {
            all.go([&] {
                while (!over.load(std::memory_order_relaxed)) {}
            });
        }
        all.go([&] {
            while (!over) {
                std::ostringstream text;
                dunlin::runtime::dump(text);
                dunlin::sleep_for(100us);
            }
        });
        std::thread sender([&] {
            // Most goroutines get a processor again before the runtime's signal arrives: on a busy machine all 60 in
            // 300 signals of the program's.
            while ((sent < signals || hand_offs().preemptions == 0) && own_calls == sent) {
                kill(getpid(), SIGURG);
                ++sent;
                while (own_calls < sent) usleep(10);
                usleep(500);
            }
        });
        dunlin::blocking([&] { sender.join(); });
        over = true;
        all.wait();
    });
    std::printf("%s\n", sent >= signals && own_calls == sent ? "each signal called it once" : "a signal did not call it once");
    return 0;
}

// The kernel has no room for what is said with a signal.
int no_room_for_signals() {
    const rlimit none{0, 0};
    if (setrlimit(RLIMIT_SIGPENDING, &none) != 0) return 1;
    return loop_until_stopped();
}

// It takes the signal from the runtime: no goroutine is stopped any more, and none is kept waiting.
int own_handler_after() {
    dunlin::run([] {});
    install_own_handler();
    return loop_until_taken();
}

// It takes a signal that the runtime was told not to use.
int own_handler_after_another_signal() {
    dunlin::run([] {});
    install_own_handler();
    return loop_until_stopped();
}

// ---- shortage -------------------------------------------------------------------------------------------------------

// Goroutines block and compute, and there are only the threads that there are.
int no_more_threads() {
    dunlin::run({.max_procs = 1}, [] {
        dunlin::spawn([] { dunlin::yield(); }).get();
        support::forbid_threads();
        static std::atomic<int> count{0};
        dunlin::wait_group done;
        for (int i = 0; i < 12; ++i) {
            done.go([i] {
                if (i % 3 == 0) dunlin::blocking([] { usleep(20'000); });
                if (i % 3 == 1) usleep(20'000);
                if (i % 3 == 2) {
                    for (int k = 0; k < 50'000'000; ++k) asm volatile("");
                }
                dunlin::sleep_for(1ms);
                count.fetch_add(1);
            });
        }
        while (count.load() < 12) dunlin::sleep_for(5ms);
        done.wait();
        std::printf("count %d\n", count.load());
    });
    return 0;
}

// Each holds a lock that all wait for, while its processor is taken, and enters the runtime by a call that never waits.
int locks_without_threads() {
    dunlin::run({.max_procs = 2}, [] {
        dunlin::wait_group first;
        for (int i = 0; i < 4; ++i) first.go([] { usleep(20'000); });
        first.wait();
        support::forbid_threads();
        std::mutex m;
        dunlin::chan<int> c(1);
        int count = 0;
        dunlin::wait_group done;
        for (int i = 0; i < 300; ++i) {
            done.go([&] {
                const std::lock_guard hold(m);
                usleep(2'000);
                static_cast<void>(c.try_send(1));
                ++count;
            });
        }
        done.wait();
        std::printf("count %d\n", count);
    });
    return 0;
}

// The program limits itself when it is loaded and the runtime has not begun: it goes on with barriers of its own.
int barriers_refused_before() {
    support::refuse_calls(SYS_membarrier, SYS_membarrier, EPERM);
    dunlin::mutex m;
    int guarded = 0;
    const auto count = [&] {
        for (int k = 0; k < 20'000; ++k) {
            const std::lock_guard hold(m);
            ++guarded;
        }
    };
    // Plain threads, before the runtime runs.
    std::thread first(count), second(count);
    first.join();
    second.join();
    dunlin::run({.max_procs = 2}, [&] {
        dunlin::wait_group done;
        for (int i = 0; i < 6; ++i) done.go(count);
        done.wait();
    });
    std::printf("count %d\n", guarded);
    return 0;
}

// When it runs already, there is no going on.
int barriers_refused_later() {
    constexpr int private_expedited = 1 << 3;
    if (syscall(SYS_membarrier, private_expedited, 0, 0) != 0) return 77;  // not used
    dunlin::run({.max_procs = 2}, [] {
        support::refuse_calls(SYS_membarrier, SYS_membarrier, EPERM);
        dunlin::wait_group done;
        for (int i = 0; i < 100; ++i) done.go([] { usleep(20'000); });
        done.wait();
        dunlin::sleep_for(1s);
    });
    std::printf("ran\n");
    return 0;
}

std::size_t address_space_bytes() {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// Every thread blocks, the only processor lies idle, and the goroutine that would release them waits for a thread:
// there is room for one only later.
int threads_come_back() {
    // A thread's own arena is mapped twice as large as it stays: what is given back would be room for threads.
    mallopt(M_ARENA_MAX, 1);
    static int ends[2];
    if (pipe(ends) != 0) return 1;
    const auto wait_for_byte = [] {
        dunlin::blocking([] {
            char byte;
            while (read(ends[0], &byte, 1) != 1) {
            }
        });
    };
    const auto release = [](int n) {
        for (int i = 0; i < n; ++i) {
            if (write(ends[1], "x", 1) != 1) std::abort();
        }
    };
    dunlin::run({.max_procs = 1}, [&] {
        // The place learns that its calls last, and there are stacks for all that come.
        dunlin::wait_group first;
        for (int i = 0; i < 200; ++i) first.go([] { dunlin::yield(); });
        for (int i = 0; i < 4; ++i) first.go(wait_for_byte);
        dunlin::sleep_for(20ms);
        release(4);
        first.wait();
        static std::atomic<bool> begun{false}, limited{false};
        std::thread later([] {
            begun = true;
            while (!limited.load()) usleep(1'000);
            usleep(1'000'000);
            const rlimit none{RLIM_INFINITY, RLIM_INFINITY};
            setrlimit(RLIMIT_AS, &none);
        });
        while (!begun.load()) usleep(1'000);
        const rlimit little{address_space_bytes() + (64 << 10), RLIM_INFINITY};
        setrlimit(RLIMIT_AS, &little);
        // qemu does not keep to it
        if (mmap(nullptr, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) _exit(77);
        limited = true;
        // A channel: a waiter for a group runs what has not begun itself, the last one first.
        // More than the threads that there are: on a busy machine some were made for the calls above.
        const int waiters = static_cast<int>(dunlin::runtime::stats().threads) + 15;
        dunlin::chan<int> done(waiters);
        for (int i = 0; i < waiters; ++i) {
            dunlin::go([&] {
                wait_for_byte();
                done.send(1);
            });
        }
        dunlin::go([&] { release(waiters); });
        dunlin::go([] {});  // this one has its turn first
        for (int i = 0; i < waiters; ++i) done.recv();
        later.join();
    });
    std::printf("released\n");
    return 0;
}

// ---- idle -----------------------------------------------------------------------------------------------------------

// How often a thread of this process has gone to sleep. (Not its CPU time: what a wake costs differs from computer to
// computer by a factor of ten.)
long wakes() {
    rusage use{};
    getrusage(RUSAGE_SELF, &use);
    return use.ru_nvcsw;
}

// Prints how often its threads wake in 1.5 s, when there has been much to hand on and now all sleep: in the runtime, in
// blocking(), in the kernel.
int idle_after_hand_offs() {
    dunlin::run({.max_procs = 2}, [] {
        static std::atomic<bool> over{false};
        dunlin::wait_group done;
        for (int i = 0; i < 3; ++i) {
            done.go([] {
                while (!over.load(std::memory_order_relaxed)) {}
            });
        }
        for (int i = 0; i < 50; ++i) done.go([] { dunlin::blocking([] { usleep(20'000); }); });
        for (int i = 0; i < 30; ++i) dunlin::sleep_for(1ms);
        over = true;
        done.wait();
        dunlin::go([] { dunlin::blocking([] { poll(nullptr, 0, 60'000); }); });
        dunlin::go([] { poll(nullptr, 0, 60'000); });
        dunlin::go([] { dunlin::sleep_for(60s); });
        dunlin::sleep_for(1500ms);  // threads that are not needed are ended
        const long before = wakes();
        dunlin::sleep_for(1500ms);
        std::printf("%ld\n", wakes() - before);
    });
    std::fflush(stdout);
    _exit(0);
}

constexpr support::scenario all[] = {
    {"async_preempt", async_preempt},
    {"loop_until_stopped", loop_until_stopped},
    {"loop_until_taken", loop_until_taken},
    {"loop_of_a_second", loop_of_a_second},
    {"all_signals_blocked", all_signals_blocked},
    {"in_a_handler_at_the_end", [] { return in_a_handler_at_the_end(false); }},
    {"in_a_handler_that_disarmed_its_stack", [] { return in_a_handler_at_the_end(true); }},
    {"no_more_descriptors", no_more_descriptors},
    {"no_more_privileges", no_more_privileges},
    {"blocked_and_ticks", blocked_and_ticks},
    {"own_handler_before", own_handler_before},
    {"own_handler_among_requests", own_handler_among_requests},
    {"no_room_for_signals", no_room_for_signals},
    {"own_handler_after", own_handler_after},
    {"own_handler_after_another_signal", own_handler_after_another_signal},
    {"no_more_threads", no_more_threads},
    {"locks_without_threads", locks_without_threads},
    {"barriers_refused_before", barriers_refused_before},
    {"barriers_refused_later", barriers_refused_later},
    {"threads_come_back", threads_come_back},
    {"idle_after_hand_offs", idle_after_hand_offs},
};

}  // namespace

int main(int argc, char** argv) { return support::choose(argc, argv, all); }
