// Goroutines that compute lose their processor to others. Ports of Go's own tests of preemption, under Go's names.
// Where Go's need function calls in a loop, these loops make none. ThreadSanitizer keeps signals back until a thread
// calls libc: there such a loop loses its processor and computes on without one, so nothing is asserted about how many
// were stopped.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <pthread.h>
#include <spawn.h>
#include <sstream>
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <sys/time.h>
#include <unistd.h>
#include <vector>

#include "go/hogs.h"
#include "go/preempt_support.h"
#include "sched/data/current.h"
#include "sched/data/types.h"
#include "support/child.h"
#include "support/runtime_test.h"
#include "support/undisturbed.h"

using namespace std::chrono_literals;
using namespace preempt_support;

namespace {

class GoPreempt : public support::runtime_test {};
class GoPreemptP : public support::each_p {};
EACH_P(GoPreemptP);

// ---- progress -------------------------------------------------------------------------------------------------------

// PRE-02 TestPreemption
TEST_P(GoPreemptP, TestPreemption) {
    run([] {
        constexpr int n = 5;
        std::atomic<int> x{0};
        dunlin::wait_group done;
        for (int g = 0; g < 2; ++g) {
            done.go([&x, g] {
                for (int i = 0; i < n; ++i) {
                    while (x.load() != g) {}
                    x.store(1 - g);
                }
            });
        }
        done.wait();
        EXPECT_EQ(x.load(), 0);
    });
}

// PRE-03 TestAsyncPreempt
TEST_F(GoPreempt, TestAsyncPreempt) {
    const auto r = support::run_child("hand_off", {"async_preempt"}, {.environment = {{"DUNLIN_MAXPROCS", "1"}}});
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "OK 4 goroutines\n") << r;
    EXPECT_EQ(r.err, "") << r;
    EXPECT_LT(r.milliseconds(), support::sanitized ? 20'000 : 5000) << r;
}

// The world is stopped by a dump, which unwinds those that compute, and by a change of the number of processors.
void world_stops_against_loops(unsigned procs, int loops) {
    dunlin::run({.max_procs = procs}, [procs, loops] {
        std::atomic<bool> over{false};
        std::atomic<int> started{0};
        dunlin::wait_group done;
        for (int i = 0; i < loops; ++i) {
            done.go([&] {
                started.fetch_add(1);
                while (!over.load(std::memory_order_relaxed)) {}
            });
        }
        support::eventually([&] { return started.load() == loops; });
        const auto begin = dunlin::clock::now();
        for (int i = 0; i < 10; ++i) {
            dunlin::sleep_for(1ms);
            if (i % 2 == 0) {
                std::ostringstream text;
                dunlin::runtime::dump(text);
                EXPECT_NE(text.str().find("goroutine "), std::string::npos);
            } else {
                EXPECT_EQ(dunlin::runtime::set_max_procs(procs), procs);
            }
        }
        EXPECT_LT(dunlin::clock::now() - begin, support::sanitized ? 20s : 5s);
        over = true;
        done.wait();
    });
}

// PRE-04 TestPreemptSplitBig
TEST_F(GoPreempt, TestPreemptSplitBig) { world_stops_against_loops(2, 1); }

// PRE-04 TestPreemptionGC
TEST_F(GoPreempt, TestPreemptionGC) { world_stops_against_loops(6, 5); }

struct alignas(64) runner {
    std::atomic<std::uint64_t> work{0};
    std::vector<std::uint64_t> runs;  // how much work was done in each
    std::atomic<std::size_t> run_count{0};
    double cpu_ns = 0;

    // A run ends where time is missing here in which the other one has worked.
    void compute(const runner& other, const std::atomic<bool>& over) {
        const std::uint64_t gap = ticks_per_ms();
        const double cpu_before = thread_cpu_ns();  // it makes no call of the runtime, so its thread stays the same
        std::uint64_t last = ticks(), others = other.work.load(std::memory_order_relaxed), done = 0, begin = 0;
        while (!over.load(std::memory_order_relaxed)) {
            const std::uint64_t o = other.work.load(std::memory_order_relaxed), now = ticks();
            // Read anew: it may have been stopped between the two.
            if (now - last > gap && other.work.load(std::memory_order_relaxed) != others &&
                runs.size() < runs.capacity()) {
                runs.push_back(done - begin);
                run_count.store(runs.size(), std::memory_order_relaxed);
                begin = done;
            }
            last = now;
            others = o;
            work.store(++done, std::memory_order_relaxed);
        }
        cpu_ns = thread_cpu_ns() - cpu_before;
    }

    static double thread_cpu_ns() {
        timespec t;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
    }

    double median_ms() {
        std::sort(runs.begin(), runs.end());
        return static_cast<double>(runs[runs.size() / 2]) * cpu_ns / static_cast<double>(work.load()) / 1e6;
    }
};

// PRE-05 time slice
TEST_F(GoPreempt, TwoThatComputeShareOneProcessorInSlicesOfTenMilliseconds) {
    runner a, b;
    a.runs.reserve(10'000);
    b.runs.reserve(10'000);
    ticks_per_ms();
    const auto begin = dunlin::clock::now();
    dunlin::run({.max_procs = 1}, [&] {
        std::atomic<bool> over{false};
        dunlin::wait_group done;
        done.go([&] { a.compute(b, over); });
        done.go([&] { b.compute(a, over); });
        dunlin::sleep_for(500ms);
        // Under ThreadSanitizer both compute all the time.
        while (!support::under_thread && (a.run_count.load() < 20 || b.run_count.load() < 20)) dunlin::sleep_for(100ms);
        over = true;
        done.wait();
    });
    EXPECT_GT(a.work.load(), 0u);
    EXPECT_GT(b.work.load(), 0u);
    if (support::under_thread) return;
    // Where other programs have the CPUs, slices end by the clock, or because a thread gets no time; shares and lengths
    // are then what the kernel makes of them.
    const std::chrono::duration<double, std::nano> lasted = dunlin::clock::now() - begin;
    const bool quiet = a.cpu_ns + b.cpu_ns > 0.8 * lasted.count();
    const double share = a.cpu_ns / (a.cpu_ns + b.cpu_ns), least = quiet ? 0.35 : 0.05;
    EXPECT_GE(share, least) << (quiet ? "quiet" : "busy");
    EXPECT_LE(share, 1 - least) << (quiet ? "quiet" : "busy");
    for (runner* r : {&a, &b}) {
        const double median = r->median_ms();
        EXPECT_GE(median, quiet ? 5 : 0) << r->runs.size() << " runs";
        EXPECT_LE(median, quiet ? 25 : 50) << r->runs.size() << " runs";
    }
}

// Many loops on few processors: each gets on.
TEST_P(GoPreemptP, NoGoroutineStarvesAmongManyThatCompute) {
    run([this] {
        const std::size_t n = procs() + 3;
        std::vector<std::atomic<std::uint64_t>> work(n);
        std::atomic<bool> over{false};
        dunlin::wait_group done;
        for (std::atomic<std::uint64_t>& w : work) {
            done.go([&w, &over] {
                while (!over.load(std::memory_order_relaxed))
                    w.store(w.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
            });
        }
        // Twice each, so that it was stopped and came back.
        for (int round = 0; round < 2; ++round) {
            for (const std::atomic<std::uint64_t>& w : work) {
                for (const std::uint64_t seen = w.load(); w.load() == seen;) dunlin::sleep_for(1ms);
            }
        }
        over = true;
        done.wait();
    });
}

// ---- locks ----------------------------------------------------------------------------------------------------------

// The holder of a lock may be stopped. Its waiters block their threads or spin, and the holder has its turn.
TEST_P(GoPreemptP, HoldersOfAMutexAreStoppedAndItGoesRound) {
    run([] {
        std::mutex mutex;
        long inside = 0, wrong = 0, entered = 0;
        dunlin::wait_group done;
        for (int i = 0; i < 6; ++i) {
            done.go([&] {
                for (int round = 0; round < 10; ++round) {
                    std::lock_guard guard(mutex);
                    wrong += ++inside != 1;
                    compute_for(2 * ticks_per_ms());
                    --inside;
                    ++entered;
                }
            });
        }
        done.wait();
        EXPECT_EQ(wrong, 0);
        EXPECT_EQ(entered, 60);
    });
}

TEST_P(GoPreemptP, HoldersOfASpinLockAreStoppedAndItGoesRound) {
    run([] {
        std::atomic<bool> locked{false};
        long inside = 0, wrong = 0, entered = 0;
        dunlin::wait_group done;
        for (int i = 0; i < 4; ++i) {
            done.go([&] {
                for (int round = 0; round < 5; ++round) {
                    while (locked.exchange(true, std::memory_order_acquire)) {}
                    wrong += ++inside != 1;
                    compute_for(2 * ticks_per_ms());
                    --inside;
                    ++entered;
                    locked.store(false, std::memory_order_release);
                }
            });
        }
        done.wait();
        EXPECT_EQ(wrong, 0);
        EXPECT_EQ(entered, 20);
    });
}

// ---- no_preempt -----------------------------------------------------------------------------------------------------

// PRE-07 no preemption while locked
TEST_F(GoPreempt, OtherGoroutinesRunAtTheEndOfANoPreemptScopeAndNotInIt) {
    dunlin::run({.max_procs = 1}, [] {
        std::atomic<bool> over{false};
        std::atomic<long> others{0}, wakings{0};
        dunlin::wait_group done;
        done.go([&] {
            while (!over.load()) {
                others.fetch_add(1);
                dunlin::yield();
            }
        });
        done.go([&] {
            while (!over.load()) {
                wakings.fetch_add(1);
                dunlin::sleep_for(100us);
            }
        });
        struct counts {
            long before, in_outer, in_inner, after;
        };
        const auto round = [&] {
            // Both have a processor's turns, and are nowhere on a thread that has lost its processor and would take one
            // more step.
            for (const long seen = wakings.load(); wakings.load() < seen + 3;) dunlin::yield();
            for (const long seen = others.load(); others.load() < seen + 3;) dunlin::yield();
            long before, in_outer, in_inner, after;
            {
                const dunlin::no_preempt outer;
                before = others.load() + wakings.load();
                {
                    const dunlin::no_preempt inner;
                    compute_for(20 * ticks_per_ms());
                    in_inner = others.load() + wakings.load();
                }
                compute_for(30 * ticks_per_ms());
                // Until it was asked to leave.
                while (!dunlin::sched::current_machine()->preempt_later.load(std::memory_order_relaxed)) {}
                in_outer = others.load() + wakings.load();
            }
            after = others.load() + wakings.load();
            return counts{before, in_outer, in_inner, after};
        };
        for (int i = 0; i < 5; ++i) {
            const counts c = support::undisturbed(round, 1h);
            EXPECT_EQ(c.in_inner, c.before);
            EXPECT_EQ(c.in_outer, c.before) << "the inner scope has ended, the outer has not";
            EXPECT_GT(c.after, c.before) << "they have waited, so the end of the scope yields";
        }
        over = true;
        done.wait();
    });
}

// Each scope is the goroutine's own: it stays its thread's only one, whatever the others do.
TEST_P(GoPreemptP, NoPreemptScopesOfMany) {
    run([this] {
        storm(procs(), [](int i) -> long {
            const dunlin::no_preempt scope;
            int* const before = mine_now();
            const bool free = *before == 0;
            *before = i + 1;
            compute_for(ticks_per_ms() / 2);
            const bool same = mine_now() == before && *before == i + 1;
            *before = 0;
            if (i < 4) return !free + !same;
            dunlin::yield();  // allowed, and it may go on elsewhere
            return !free + !same;
        }, 0);
    });
}

TEST_F(GoPreempt, NoPreemptOnAPlainThreadIsNothing) {
    const dunlin::no_preempt outer;
    const dunlin::no_preempt inner;
    EXPECT_EQ(dunlin::this_goroutine::id(), 0u);
}

// ---- signals --------------------------------------------------------------------------------------------------------

std::atomic<pid_t> signalled_tid{0};
std::atomic<int> signalled{0};

extern "C" void note_signal(int) {
    const int saved = errno;
    signalled_tid.store(static_cast<pid_t>(syscall(SYS_gettid)));
    signalled.fetch_add(1);
    errno = saved;
}

class handler {
public:
    handler(int signal, void (*function)(int), int flags) : signal_(signal) {
        struct sigaction action {};
        action.sa_handler = function;
        action.sa_flags = flags;
        sigaction(signal, &action, &before_);
    }
    ~handler() { sigaction(signal_, &before_, nullptr); }
    handler(const handler&) = delete;
    handler& operator=(const handler&) = delete;

private:
    int signal_;
    struct sigaction before_ {};
};

// PRE-08 TestSignalM
TEST_P(GoPreemptP, TestSignalM) {
    const handler installed(SIGUSR1, note_signal, SA_RESTART);
    run([this] {
        const hogs loops(static_cast<int>(procs()) + 1);
        const dunlin::os_thread_lock wired;
        for (int i = 0; i < 20; ++i) {
            const int before = signalled.load();
            const auto tid = static_cast<pid_t>(syscall(SYS_gettid));
            pthread_kill(pthread_self(), SIGUSR1);
            while (signalled.load() == before) usleep(10);
            EXPECT_EQ(signalled_tid.load(), tid);
            dunlin::sleep_for(500us);
            EXPECT_EQ(static_cast<pid_t>(syscall(SYS_gettid)), tid);
        }
    });
}

TEST_P(GoPreemptP, SignalsReachAPlainThread) {
    const handler installed(SIGUSR1, note_signal, SA_RESTART);
    run([this] {
        const hogs loops(static_cast<int>(procs()) + 1);
        std::atomic<pid_t> tid{0};
        std::atomic<bool> over{false};
        std::thread plain([&] {
            // ThreadSanitizer makes its record for signals at a thread's first call that blocks, and loses one that
            // arrives in the midst of that.
            usleep(1);
            tid = static_cast<pid_t>(syscall(SYS_gettid));
            while (!over.load()) usleep(100);
        });
        while (tid.load() == 0) dunlin::sleep_for(100us);
        for (int i = 0; i < 20; ++i) {
            const int before = signalled.load();
            pthread_kill(plain.native_handle(), SIGUSR1);
            while (signalled.load() == before) dunlin::sleep_for(200us);
            EXPECT_EQ(signalled_tid.load(), tid.load());
        }
        over = true;
        plain.join();
    });
}

// PRE-08 TestSignalDuringExec
TEST_P(GoPreemptP, TestSignalDuringExec) {
    run([this] {
        const hogs loops(static_cast<int>(procs()) + 1);
        std::atomic<int> ended{0};
        for (int i = 0; i < 20; ++i) {
            dunlin::go([&ended] {
                std::string program = "/bin/true";
                char* arguments[] = {program.data(), nullptr};
                pid_t child = 0;
                EXPECT_EQ(posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ), 0);
                int status = -1;
                EXPECT_EQ(waitpid(child, &status, 0), child) << errno;
                EXPECT_EQ(status, 0);
                ended.fetch_add(1);
            });
            dunlin::sleep_for(1ms);
        }
        while (ended.load() < 20) dunlin::sleep_for(100us);
    });
}

// The signal cannot reach it. Its processor is taken all the same.
TEST_P(GoPreemptP, AGoroutineThatBlocksAllSignalsComputes) {
    run([this] {
        std::atomic<int> woken{0};
        std::atomic<bool> over{false};
        std::atomic<long> wrong{0};
        dunlin::wait_group done;
        for (unsigned i = 0; i < procs() + 1; ++i) {
            done.go([&] {
                sigset_t all, before, now;
                sigfillset(&all);
                pthread_sigmask(SIG_SETMASK, &all, &before);
                // At least until main has been woken twenty times.
                while (woken.load(std::memory_order_relaxed) < 20 && !over.load(std::memory_order_relaxed)) {}
                pthread_sigmask(SIG_SETMASK, &before, &now);
                wrong.fetch_add(sigismember(&now, SIGTERM) != 1);
            });
        }
        for (int i = 0; i < 20; ++i) {
            dunlin::sleep_for(500us);
            woken.fetch_add(1);
        }
        done.wait();
        EXPECT_EQ(wrong.load(), 0);
        sigset_t now;
        pthread_sigmask(SIG_SETMASK, nullptr, &now);
        EXPECT_EQ(sigismember(&now, SIGTERM), 0);
    });
}

// The handler runs on whatever alternate stack the thread has, or on the goroutine's own.
TEST_P(GoPreemptP, AGoroutineThatChangesItsSignalStackComputes) {
    run([this] {
        storm(procs(), [](int i) -> long {
            static thread_local std::array<char, 64 * 1024> own;
            stack_t ours{}, before{}, now{};
            ours.ss_sp = own.data();
            ours.ss_size = own.size();
            if (i % 2 == 0) ours.ss_flags = SS_DISABLE;
            long wrong = sigaltstack(&ours, &before) != 0;
            const std::uint64_t result = compute_in_integers(i);
            wrong += sigaltstack(&before, &now) != 0;
            wrong += i % 2 == 0 ? now.ss_flags != SS_DISABLE : now.ss_sp != ours.ss_sp;
            return wrong + (result != compute_in_integers(i));
        });
    });
}

// What a handler with SA_ONSTACK needs it has, as on a thread whose program has set no such stack.
TEST_P(GoPreemptP, AHandlerOnTheSignalStackMayNeedMuchOfIt) {
    if (support::sanitized) GTEST_SKIP() << "the sanitizer's signal stack is a small one";
    run([this] {
        struct sigaction mine {};
        mine.sa_handler = [](int) {
            char much[256 << 10];
            for (std::size_t i = 0; i < sizeof much; i += 512) *const_cast<volatile char*>(much + i) = 'x';
        };
        mine.sa_flags = SA_ONSTACK | SA_RESTART;
        sigaction(SIGALRM, &mine, nullptr);
        const itimerval often{{0, 1000}, {0, 1000}}, never{};
        setitimer(ITIMER_REAL, &often, nullptr);
        storm(procs(), [](int i) { return static_cast<long>(compute_in_integers(i) != compute_in_integers(i)); });
        setitimer(ITIMER_REAL, &never, nullptr);
        std::signal(SIGALRM, SIG_IGN);  // one that is on its way still would end the process
    });
}

// ---- settings and shortage: children --------------------------------------------------------------------------------

using settings = std::vector<std::pair<std::string, std::string>>;

support::child_result hand_off(const std::string& scenario, settings environment = {}) {
    environment.emplace_back("DUNLIN_MAXPROCS", "1");
    return support::run_child("hand_off", {scenario}, {.environment = environment});
}

constexpr const char* until_stopped = support::under_thread ? "loop_until_taken" : "loop_until_stopped";
constexpr const char* stopped = support::under_thread ? "" : "stopped\n";

TEST_F(GoPreempt, BySignalUnlessToldOtherwise) {
    allow(120s);
    for (const settings& s :
        {settings{}, settings{{"DUNLIN_PREEMPTION", "signal"}}, settings{{"DUNLIN_PREEMPTION_SIGNAL", "10"}}}) {
        const auto r = hand_off(until_stopped, s);
        EXPECT_EQ(r.status, 0) << r;
        EXPECT_EQ(r.out.rfind(std::string("ticked\ntaken\n") + stopped, 0), 0u) << r;
        EXPECT_EQ(r.err, "") << r;
    }
}

TEST_F(GoPreempt, OfProcessorsOnlyIfToldSo) {
    const auto r = hand_off("loop_until_taken", {{"DUNLIN_PREEMPTION", "take"}});
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "ticked\ntaken\n") << r;
    EXPECT_EQ(r.err, "") << r;
}

TEST_F(GoPreempt, NotAtAllIfToldSo) {
    const auto r = hand_off("loop_of_a_second", {{"DUNLIN_PREEMPTION", "off"}});
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.err, "") << r;
    // Neither is its processor taken for computing, nor is it stopped.
    EXPECT_EQ(r.out.find("taken"), std::string::npos) << r;
    EXPECT_EQ(r.out.find("stopped"), std::string::npos) << r;
    // Nor does main ever tick. Under an emulator it may: the hog's thread can sleep on the emulator's own locks, and
    // then it is a thread that blocks.
    if (!support::emulated) {
        EXPECT_EQ(r.out, "") << r;
    }
    // A goroutine that blocks its thread loses its processor nevertheless.
    const auto blocked = hand_off("blocked_and_ticks", {{"DUNLIN_PREEMPTION", "off"}});
    EXPECT_EQ(blocked.out, "ticked\n") << blocked;
}

TEST_F(GoPreempt, InAProgramThatBlocksAllSignalsOrMayNotReadUnderProc) {
    if (support::sanitized || support::emulated) GTEST_SKIP() << "they delay signals, and read under /proc themselves";
    allow(120s);
    for (const char* scenario : {"all_signals_blocked", "no_more_privileges"}) {
        const auto r = hand_off(scenario);
        EXPECT_EQ(r.status, 0) << scenario << r;
        EXPECT_EQ(r.out, "ticked\ntaken\nstopped\nfrozen\n") << scenario << r;
        EXPECT_EQ(r.err, "") << scenario << r;
    }
    // On a busy computer a thread that waits for a CPU is taken for one that sleeps: its processor is handed on as from
    // a call that blocks ("taken" is missing), and the end of run() leaves the thread to the monitor.
    const auto r = hand_off("no_more_descriptors");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out.rfind("ticked\n", 0), 0u) << r;
    EXPECT_NE(r.out.find("stopped\n"), std::string::npos) << r;
}

TEST_F(GoPreempt, AHandlerOnAGoroutinesOwnStackIsNotStopped) {
    if (support::sanitized || support::emulated) GTEST_SKIP() << "they call handlers in their own way";
    for (const char* scenario : {"in_a_handler_at_the_end", "in_a_handler_that_disarmed_its_stack"}) {
        const auto r = hand_off(scenario);
        EXPECT_EQ(r.status, 0) << scenario << r;
        EXPECT_EQ(r.out, "finished\n") << scenario << r;
    }
}

// Else a handler of the program could run on the monitor's thread, and wait there for what only the monitor brings
// about.
TEST_F(GoPreempt, TheMonitorAndTheThreadMakerTakeNoSignalsOfTheProgram) {
    if (support::emulated) GTEST_SKIP() << "masks are the emulator's";
    dunlin::run([] {});
    int seen = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name, word;
        std::getline(std::ifstream(task.path() / "comm"), name);
        if (name != "dunlin-monitor" && name != "dunlin-maker") continue;
        ++seen;
        std::ifstream status(task.path() / "status");
        while (status >> word && word != "SigBlk:") {}
        status >> word;
        const std::uint64_t blocked = std::stoull(word, nullptr, 16);
        const auto blocks = [&](int signal) { return ((blocked >> (signal - 1)) & 1) != 0; };
        for (const int signal : {SIGUSR1, SIGTERM, SIGALRM, SIGCHLD, SIGURG}) EXPECT_TRUE(blocks(signal)) << signal;
        for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) EXPECT_FALSE(blocks(signal)) << signal;
    }
    EXPECT_EQ(seen, 2);
}

TEST_F(GoPreempt, TheProgramsOwnHandlerGetsItsSignalsAndNoOthers) {
    if (support::under_thread) GTEST_SKIP() << "it delays signals";
    allow(120s);
    const auto r = hand_off("own_handler_among_requests");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "each signal called it once\n") << r;
}

TEST_F(GoPreempt, WithoutRoomForWhatIsSaidWithASignal) {
    if (support::under_thread) GTEST_SKIP() << "it keeps signals itself";
    const auto r = hand_off("no_room_for_signals");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "ticked\ntaken\nstopped\n") << r;
}

TEST_F(GoPreempt, WithTheProgramsOwnHandlerOfTheSignal) {
    allow(120s);
    const auto before = hand_off("own_handler_before");
    EXPECT_EQ(before.status, 0) << before;
    EXPECT_EQ(before.out.rfind("ticked\ntaken\n", 0), 0u) << before;
    EXPECT_NE(before.out.find("own handler called 3 times\n"), std::string::npos) << before;
    const auto after = hand_off("own_handler_after");
    EXPECT_EQ(after.status, 0) << after;
    EXPECT_EQ(after.out, "ticked\ntaken\n") << after;
    if (support::under_thread) return;
    EXPECT_NE(before.out.find("stopped\n"), std::string::npos) << before;
    const auto other = hand_off("own_handler_after_another_signal", {{"DUNLIN_PREEMPTION_SIGNAL", "10"}});
    EXPECT_EQ(other.status, 0) << other;
    EXPECT_EQ(other.out, "ticked\ntaken\nstopped\n") << other;
}

}  // namespace
