// Goroutines whose threads block, announced by blocking(): ports of Go's own tests of system calls, under Go's names,
// and what blocking() promises. Go's entersyscall is blocking() here; what says nothing loses its processor a little
// later (unannounced_test.cpp).
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <map>
#include <memory>
#include <poll.h>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "go/syscall_support.h"
#include "sched/data/types.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;
using namespace syscall_support;

namespace {

class GoSyscall : public support::runtime_test {};
class GoSyscallP : public support::each_p {};
EACH_P(GoSyscallP);

// Read anew each time, like errno_now().
[[gnu::noinline]] void set_errno(int value) { errno = value; }
[[gnu::noinline]] const int* errno_address() {
    asm volatile("");
    return &errno;
}
[[gnu::noinline]] pid_t thread_now() { return static_cast<pid_t>(syscall(SYS_gettid)); }

// ---- SYS-01 to SYS-08 -----------------------------------------------------------------------------------------------

// go1.24 src/runtime/testdata/testprog/gc.go: goroutines that write keep no other from waking.
template <class Write>
void writers_and_a_sleep(Write write_byte) {
    dunlin::run({.max_procs = 1}, [&] {
        const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        ASSERT_GE(null, 0);
        std::atomic<bool> over{false};
        std::atomic<long> written{0};
        dunlin::wait_group done;
        for (int i = 0; i < 2; ++i) {
            done.go([&] {
                while (!over.load()) {
                    EXPECT_EQ(write_byte(null), 1);
                    written.fetch_add(1);
                }
            });
        }
        std::vector<dunlin::clock::duration> took;
        for (int i = 0; i < 5; ++i) {
            const auto begin = dunlin::clock::now();
            dunlin::sleep_for(10ms);
            took.push_back(dunlin::clock::now() - begin);
        }
        // Go's 500 ms, for three of the five: a machine that stands still once is not the runtime. They would write
        // until it wakes.
        std::sort(took.begin(), took.end());
        EXPECT_LT(took[2], support::sanitized ? 5s : 500ms);
        EXPECT_LT(took[4], 5s);
        over = true;
        done.wait();
        EXPECT_GT(written.load(), 0);
        close(null);
    });
}

// SYS-01 GCFairness
TEST_F(GoSyscall, GCFairness) {
    writers_and_a_sleep([](int fd) { return dunlin::blocking([fd] { return write(fd, "x", 1); }); });
}

// SYS-01 GCFairness, unannounced
TEST_F(GoSyscall, GCFairnessOfCallsThatSayNothing) {
    writers_and_a_sleep([](int fd) { return write(fd, "x", 1); });
}

// SYS-02 blocking syscalls do not stop others
TEST_F(GoSyscall, TwentyThatSleepInSystemCallsAndOneThatCounts) {
    dunlin::run({.max_procs = 1}, [] {
        constexpr int n = 20;
        const unsigned threads_before = dunlin::runtime::stats().threads;
        meeting all_in(n);  // none sleeps before all are in the call
        std::atomic<int> asleep{0};
        const descriptors end_of_sleep;
        dunlin::wait_group done;
        const busy counter;
        for (int i = 0; i < n; ++i) {
            done.go([&] {
                dunlin::blocking([&] {
                    all_in.wait_for_all();
                    asleep.fetch_add(1);
                    char byte;
                    EXPECT_EQ(read(end_of_sleep.read_end, &byte, 1), 1);
                    asleep.fetch_sub(1);
                });
            });
        }
        while (asleep.load() < n) dunlin::yield();
        // Others get on, again and again: the counter, and this. The watchdog ends it if they do not; in one window the
        // kernel may have given the counter's thread no time.
        for (int window = 0; window < 5; ++window) {
            const long before = counter.turns();
            do dunlin::sleep_for(20ms);
            while (counter.turns() == before);
        }
        EXPECT_EQ(asleep.load(), n);
        EXPECT_LE(dunlin::runtime::stats().threads, threads_before + n + 6);
        EXPECT_EQ(write(end_of_sleep.write_end, std::string(n, 'x').data(), n), n);
        done.wait();
    });
}

// SYS-03 return path order: (a) a short call, and nothing else
TEST_P(GoSyscallP, AShortCallReturnsWithItsProcessor) {
    run([] {
        const auto before = hand_offs();
        for (int i = 0; i < 10'000; ++i) dunlin::blocking([] {});
        const auto after = hand_offs();
        EXPECT_EQ(after.blocking_calls, before.blocking_calls + 10'000);
        EXPECT_EQ(after.at_once, before.at_once);
        // The kernel may have kept it from running for ten milliseconds in the midst of one.
        EXPECT_LE(after.from_blocking, before.from_blocking + 20);
        EXPECT_LE(after.returns_idle + after.returns_queued, before.returns_idle + before.returns_queued + 20);
    });
}

// SYS-03 return path order: (b) the old processor is gone, another is idle
TEST_F(GoSyscall, ALongCallReturnsToAnIdleProcessor) {
    dunlin::run({.max_procs = 3}, [] {
        const busy other;
        const auto before = hand_offs();
        auto after = before;
        do {
            dunlin::blocking([] { usleep(30'000); });
            after = hand_offs();
        } while (after.returns_idle == before.returns_idle ||
                 after.from_blocking + after.at_once == before.from_blocking + before.at_once);
    });
}

// SYS-03 return path order: (c) none is idle
TEST_F(GoSyscall, ALongCallReturnsThroughTheGlobalQueue) {
    dunlin::run({.max_procs = 1}, [] {
        const busy other;
        const auto before = hand_offs();
        auto after = before;
        do {
            dunlin::blocking([] { usleep(5'000); });
            after = hand_offs();
        } while (after.returns_queued < before.returns_queued + 10 || after.at_once == before.at_once);
        EXPECT_GT(after.from_blocking, before.from_blocking) << "the first calls were not known to last";
        // It finds one idle only when the kernel has kept the other's thread from running, or it had no other to hand
        // it to.
        EXPECT_LE(after.returns_idle, before.returns_idle + 10 + (after.from_blocked - before.from_blocked) +
                                          (after.from_hogs - before.from_hogs));
    });
}

// Each place learns, also while another is met between two of its calls. Then the monitor has nothing to take any more.
TEST_F(GoSyscall, PlacesThatAreCalledInTurnLearn) {
    dunlin::run({.max_procs = 1}, [] {
        const busy other;
        constexpr int pairs = 50;
        const auto before = hand_offs();
        for (int i = 0; i < pairs; ++i) {
            dunlin::blocking([] { usleep(3'000); });
            dunlin::blocking([] { usleep(3'001); });
        }
        const auto after = hand_offs();
        EXPECT_GE(after.at_once, before.at_once + pairs);
    });
}

// SYS-04 TestThreadExhaustion. Ten thousand threads are too many for a test: it begins near the limit.
TEST_F(GoSyscall, TestThreadExhaustion) {
    if (support::under_thread) GTEST_SKIP() << "no death tests with threads under ThreadSanitizer";
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto exhaust = [] {
        dunlin::run({.max_procs = 1}, [] {
            dunlin::sched::the_scheduler.machine_count.fetch_add(dunlin::sched::max_machines - 10);
            const busy other;
            std::atomic<int> inside{0};
            for (int i = 0; i < 30; ++i) {
                dunlin::go([&] {
                    dunlin::blocking([&] {
                        inside.fetch_add(1);
                        poll(nullptr, 0, 20'000);
                    });
                });
            }
            while (inside.load() < 30) dunlin::yield();
        });
    };
    EXPECT_EXIT(exhaust(), testing::KilledBySignal(SIGABRT), "fatal: thread exhaustion.*10000");
}

// SYS-05 TestGoroutineProfile
TEST_F(GoSyscall, TestGoroutineProfile) {
    dunlin::run({.max_procs = 100}, [] {
        std::atomic<bool> over{false};
        std::atomic<long> calls{0};
        dunlin::wait_group done;
        for (int i = 0; i < 4; ++i) {
            done.go([&, i] {
                while (!over.load(std::memory_order_relaxed)) {
                    const auto fail = [] { return close(-1) == -1 ? errno_now() : 0; };
                    EXPECT_EQ(i % 2 == 0 ? dunlin::blocking(fail) : fail(), EBADF);
                    calls.fetch_add(1, std::memory_order_relaxed);
                }
            });
        }
        while (calls.load() == 0) dunlin::yield();
        for (int i = 0; i < support::rounds(1000); ++i) {
            std::ostringstream text;
            dunlin::runtime::dump(text);
            ASSERT_NE(text.str().find("goroutine "), std::string::npos);
        }
        over = true;
        done.wait();
    });
}

// SYS-06 TestAllThreadsSyscallBlockedSyscall
TEST_P(GoSyscallP, TestAllThreadsSyscallBlockedSyscall) {
    run([this] {
        const descriptors pipe, announced;
        std::atomic<int> returned{0};
        dunlin::wait_group done;
        for (const int fd : {pipe.read_end, announced.read_end}) {
            done.go([&, fd] {
                char byte = 0;
                const auto call = [&] { return read(fd, &byte, 1) == 1 ? 0 : errno_now(); };
                EXPECT_EQ(fd == pipe.read_end ? call() : dunlin::blocking(call), 0);
                EXPECT_EQ(byte, 'x');
                returned.fetch_add(1);
            });
        }
        dunlin::sleep_for(2ms);
        for (int i = 0; i < 100; ++i) {
            if (i % 2 == 0) {
                std::ostringstream text;
                dunlin::runtime::dump(text);
                ASSERT_NE(text.str().find("goroutine "), std::string::npos);
            } else {
                ASSERT_EQ(dunlin::runtime::set_max_procs(procs()), procs());
            }
        }
        EXPECT_EQ(returned.load(), 0);
        EXPECT_EQ(write(pipe.write_end, "x", 1), 1);
        EXPECT_EQ(write(announced.write_end, "x", 1), 1);
        done.wait();
        EXPECT_EQ(returned.load(), 2);
    });
}

std::atomic<long> storm_signals{0};

extern "C" void count_signal(int) { storm_signals.fetch_add(1); }

// SIGUSR1 and SIGCHLD to the process, a thousand times a second, without SA_RESTART.
class signal_storm {
public:
    signal_storm() {
        struct sigaction action {};
        action.sa_handler = count_signal;
        sigaction(SIGUSR1, &action, &before_usr1_);
        sigaction(SIGCHLD, &action, &before_chld_);
        thread_ = std::thread([this] {
            // Others are to be interrupted, not this one.
            sigset_t these;
            sigemptyset(&these);
            sigaddset(&these, SIGUSR1);
            sigaddset(&these, SIGCHLD);
            pthread_sigmask(SIG_BLOCK, &these, nullptr);
            for (int i = 0; !over_.load(); ++i) {
                kill(getpid(), i % 2 == 0 ? SIGUSR1 : SIGCHLD);
                usleep(1000);
            }
        });
    }
    ~signal_storm() {
        over_ = true;
        thread_.join();
        sigaction(SIGUSR1, &before_usr1_, nullptr);
        sigaction(SIGCHLD, &before_chld_, nullptr);
    }

private:
    struct sigaction before_usr1_ {}, before_chld_ {};
    std::atomic<bool> over_{false};
    std::thread thread_;
};

// SYS-07 TestEINTR. What waits in the runtime never notices; a program's own calls are repeated by the program.
TEST_P(GoSyscallP, TestEINTR) {
    const long before = storm_signals.load();
    const signal_storm storm;
    run([before] {
        const descriptors there, back;
        std::atomic<bool> over{false};
        std::atomic<long> trips{0}, sleeps{0}, joins{0};
        const auto again = [](auto call) {
            return dunlin::blocking([&] {
                for (;;) {
                    const auto result = call();
                    if (result != -1 || errno_now() != EINTR) return result;
                }
            });
        };
        dunlin::wait_group done;
        done.go([&] {
            for (char byte = 0; again([&] { return read(there.read_end, &byte, 1); }) == 1 && byte != 'q';) {
                EXPECT_EQ(again([&] { return write(back.write_end, &byte, 1); }), 1);
            }
        });
        done.go([&] {
            while (!over.load()) {
                char byte = 'x';
                EXPECT_EQ(again([&] { return write(there.write_end, &byte, 1); }), 1);
                pollfd p{back.read_end, POLLIN, 0};
                EXPECT_EQ(again([&] { return poll(&p, 1, -1); }), 1);
                EXPECT_EQ(again([&] { return read(back.read_end, &byte, 1); }), 1);
                EXPECT_EQ(byte, 'x');
                trips.fetch_add(1);
            }
            EXPECT_EQ(again([&] { return write(there.write_end, "q", 1); }), 1);
        });
        done.go([&] {
            while (!over.load()) {
                const auto begin = dunlin::clock::now();
                dunlin::sleep_for(1500us);
                EXPECT_GE(dunlin::clock::now() - begin, 1500us);
                sleeps.fetch_add(1);
            }
        });
        done.go([&] {
            while (!over.load()) {
                EXPECT_EQ(dunlin::spawn([] {
                    dunlin::yield();
                    dunlin::sleep_for(300us);
                    return 7;
                }).get(), 7);
                joins.fetch_add(1);
            }
        });
        while (trips.load() < 20 || sleeps.load() < 20 || joins.load() < 20 || storm_signals.load() < before + 50)
            dunlin::sleep_for(1ms);
        over = true;
        done.wait();
    });
}

// SYS-08 TestGetgThreadSwitch
TEST_P(GoSyscallP, TestGetgThreadSwitch) {
    run([this] {
        std::vector<std::unique_ptr<busy>> others;
        // Twice as many as processors, so that none is ever idle when the call comes back.
        for (unsigned i = 0; i < 2 * procs(); ++i) others.push_back(std::make_unique<busy>());
        const std::uint64_t self = dunlin::this_goroutine::id();
        std::map<pid_t, const int*> errno_of;
        std::set<const int*> addresses;
        int switched = 0;
        for (pid_t last = thread_now(); switched < 10;) {
            dunlin::blocking([] { usleep(500); });
            const pid_t now = thread_now();
            const int* const address = errno_address();
            EXPECT_EQ(dunlin::this_goroutine::id(), self);
            const auto [place, is_new] = errno_of.try_emplace(now, address);
            EXPECT_EQ(place->second, address) << "of thread " << now;
            EXPECT_EQ(addresses.insert(address).second, is_new) << "errno of another thread";
            switched += now != last;
            last = now;
        }
        EXPECT_GE(errno_of.size(), 2u);
    });
}

// ---- what blocking() hands through ----------------------------------------------------------------------------------

// Until it has come back on another thread several times, and on the same.
TEST_P(GoSyscallP, ErrnoAndTheResultArriveOnWhicheverThread) {
    run([this] {
        std::vector<std::unique_ptr<busy>> others;
        // Twice as many as processors, so that none is ever idle when the call comes back.
        for (unsigned i = 0; i < 2 * procs(); ++i) others.push_back(std::make_unique<busy>());
        int switched = 0;
        for (int i = 0; switched < 10; ++i) {
            pid_t inside = 0;
            set_errno(0);
            const ssize_t result = dunlin::blocking([&]() -> ssize_t {
                inside = thread_now();
                if (i % 2 == 0) usleep(1000);
                char byte;
                if (i % 3 == 0) return read(-1, &byte, 1);
                if (i % 3 == 1) return open("/nowhere/at/all", O_RDONLY);
                return lseek(0, -1, 77);
            });
            const int error = errno_now();
            EXPECT_EQ(result, -1);
            EXPECT_EQ(error, i % 3 == 0 ? EBADF : i % 3 == 1 ? ENOENT : EINVAL) << i;
            switched += thread_now() != inside;
        }
    });
}

// "Read it in the function that made the call, that is, inside f, and return it" (blocking.hpp), also where f is
// written as a lambda in a function that has read errno before, on another thread.
TEST_P(GoSyscallP, ErrnoIsReadInsideTheFunctionThatMadeTheCall) {
    run([this] {
        std::vector<std::unique_ptr<busy>> others;
        // Twice as many as processors, so that none is ever idle when the call comes back.
        for (unsigned i = 0; i < 2 * procs(); ++i) others.push_back(std::make_unique<busy>());
        int switched = 0, wrong = 0;
        while (switched < 10) {
            const pid_t before = thread_now();
            const int first = dunlin::blocking([] {
                usleep(500);
                close(-1);
                return errno;
            });
            switched += thread_now() != before;
            const int second = dunlin::blocking([] {
                close(open("/nowhere/at/all", O_RDONLY) == -1 ? 100'000 : -1);
                lseek(0, -1, 77);
                return errno;
            });
            wrong += first != EBADF || second != EINVAL;
        }
        EXPECT_EQ(wrong, 0) << "of " << switched << " that came back on another thread";
    });
}

struct trouble : std::runtime_error {
    using runtime_error::runtime_error;
};

TEST_P(GoSyscallP, ExceptionsPassThrough) {
    run([this] {
        std::vector<std::unique_ptr<busy>> others;
        // Twice as many as processors, so that none is ever idle when the call comes back.
        for (unsigned i = 0; i < 2 * procs(); ++i) others.push_back(std::make_unique<busy>());
        for (int i = 0; i < 10; ++i) {
            const std::string text = "trouble " + std::to_string(i);
            try {
                dunlin::blocking([&] {
                    if (i % 2 == 0) usleep(2000);
                    throw trouble(text);
                });
                ADD_FAILURE() << "nothing was thrown";
            } catch (const trouble& t) {
                EXPECT_EQ(t.what(), text);
                EXPECT_EQ(std::uncaught_exceptions(), 0);
                // And in a catch block that is alive meanwhile.
                dunlin::blocking([] { usleep(1000); });
                EXPECT_EQ(t.what(), text);
                EXPECT_NE(std::current_exception(), nullptr);
            }
            EXPECT_EQ(std::current_exception(), nullptr);
        }
        // The processor comes back while the stack unwinds.
        struct blocks_at_the_end {
            ~blocks_at_the_end() {
                dunlin::blocking([] { usleep(2000); });
                EXPECT_EQ(std::uncaught_exceptions(), 1);
            }
        };
        try {
            const blocks_at_the_end guard;
            throw trouble("unwinding");
        } catch (const trouble& t) { EXPECT_STREQ(t.what(), "unwinding"); }
        EXPECT_EQ(std::uncaught_exceptions(), 0);
    });
}

TEST_P(GoSyscallP, ExitGoroutinePassesThrough) {
    run([] {
        std::atomic<int> destroyed{0}, after{0};
        struct counter {
            std::atomic<int>& n;
            ~counter() { n.fetch_add(1); }
        };
        dunlin::wait_group done;
        for (int i = 0; i < 5; ++i) {
            done.go([&] {
                dunlin::blocking([&] {
                    const counter guard{destroyed};
                    usleep(1000);
                    dunlin::exit_goroutine();
                });
                after.fetch_add(1);
            });
        }
        done.wait();
        EXPECT_EQ(destroyed.load(), 5);
        EXPECT_EQ(after.load(), 0);
        EXPECT_EQ(dunlin::spawn([] { return 3; }).get(), 3);
    });
}

struct callable {
    int operator()() & { return 1; }
    int operator()() const& { return 2; }
    int operator()() && { return 3; }
};

void expect_results_of_all_kinds() {
    // Move-only.
    auto owner = dunlin::blocking([] { return std::make_unique<int>(41); });
    EXPECT_EQ(*owner, 41);
    auto handed = dunlin::blocking([o = std::move(owner)]() mutable { return std::move(o); });
    static_assert(std::is_same_v<decltype(handed), std::unique_ptr<int>>);
    EXPECT_EQ(*handed, 41);
    // References are references.
    int value = 5;
    static_assert(std::is_same_v<decltype(dunlin::blocking([&]() -> int& { return value; })), int&>);
    static_assert(std::is_same_v<decltype(dunlin::blocking([&]() -> const int& { return value; })), const int&>);
    static_assert(std::is_same_v<decltype(dunlin::blocking([&]() -> int&& { return std::move(value); })), int&&>);
    static_assert(std::is_same_v<decltype(dunlin::blocking([] {})), void>);
    EXPECT_EQ(&dunlin::blocking([&]() -> int& { return value; }), &value);
    dunlin::blocking([&]() -> int& { return value; }) = 6;
    EXPECT_EQ(value, 6);
    // What cannot be moved at all.
    struct immovable {
        int number;
        explicit immovable(int n) : number(n) {}
        immovable(const immovable&) = delete;
    };
    EXPECT_EQ(dunlin::blocking([] { return immovable(9); }).number, 9);
    // The function is called as what it is.
    callable named;
    const callable constant;
    EXPECT_EQ(dunlin::blocking(named), 1);
    EXPECT_EQ(dunlin::blocking(constant), 2);
    EXPECT_EQ(dunlin::blocking(callable()), 3);
    EXPECT_EQ(dunlin::blocking(&getpid), getpid());
    // Nested.
    EXPECT_EQ(
        dunlin::blocking([] { return dunlin::blocking([] { return dunlin::blocking([] { return 12; }) + 1; }) + 1; }),
        14);
    EXPECT_THROW(dunlin::blocking([] { dunlin::blocking([] { throw trouble("inner"); }); }), trouble);
}

TEST_P(GoSyscallP, ResultsOfAllKinds) {
    run([] { expect_results_of_all_kinds(); });
}

TEST_F(GoSyscall, BlockingOnAPlainThreadOnlyCalls) {
    const std::uint64_t before = hand_offs().blocking_calls;
    expect_results_of_all_kinds();
    errno = 0;
    dunlin::blocking([] { errno = ERANGE; });
    EXPECT_EQ(errno_now(), ERANGE);
    std::thread plain([] { expect_results_of_all_kinds(); });
    plain.join();
    EXPECT_EQ(hand_offs().blocking_calls, before);
}

TEST_P(GoSyscallP, NestedCallsThatLast) {
    run([this] {
        std::vector<std::unique_ptr<busy>> others;
        // Twice as many as processors, so that none is ever idle when the call comes back.
        for (unsigned i = 0; i < 2 * procs(); ++i) others.push_back(std::make_unique<busy>());
        dunlin::wait_group done;
        for (int i = 0; i < 10; ++i) {
            done.go([] {
                for (int round = 0; round < 3; ++round) {
                    const int sum = dunlin::blocking([] {
                        usleep(1000);
                        const int inner = dunlin::blocking([] {
                            usleep(1000);
                            return 1;
                        });
                        usleep(1000);
                        return inner + 1;
                    });
                    EXPECT_EQ(sum, 2);
                }
            });
        }
        done.wait();
    });
}

TEST_P(GoSyscallP, AGoroutineThatParksInsideIsAnOrdinaryOne) {
    run([this] {
        std::vector<std::unique_ptr<busy>> others;
        // Twice as many as processors, so that none is ever idle when the call comes back.
        for (unsigned i = 0; i < 2 * procs(); ++i) others.push_back(std::make_unique<busy>());
        dunlin::wait_group done;
        std::atomic<int> ended{0};
        for (int i = 0; i < 20; ++i) {
            done.go([&, i] {
                dunlin::wait_group gate;
                gate.add(1);
                dunlin::go([gate]() mutable {
                    dunlin::yield();
                    gate.done();
                });
                const int got = dunlin::blocking([&] {
                    if (i % 2 == 0) usleep(1000);
                    gate.wait();
                    dunlin::sleep_for(200us);
                    dunlin::yield();
                    const int child = dunlin::spawn([] {
                        dunlin::yield();
                        return 4;
                    }).get();
                    if (i % 3 == 0) usleep(1000);
                    return child;
                });
                EXPECT_EQ(got, 4);
                ended.fetch_add(1);
            });
        }
        done.wait();
        EXPECT_EQ(ended.load(), 20);
    });
}

TEST_P(GoSyscallP, OfAWiredGoroutineStaysOnItsThread) {
    run([this] {
        std::vector<std::unique_ptr<busy>> others;
        // Twice as many as processors, so that none is ever idle when the call comes back.
        for (unsigned i = 0; i < 2 * procs(); ++i) others.push_back(std::make_unique<busy>());
        dunlin::wait_group done;
        for (int i = 0; i < 4; ++i) {
            done.go([i] {
                const dunlin::os_thread_lock wired;
                const pid_t mine = thread_now();
                for (int round = 0; round < 10; ++round) {
                    if (i % 2 == 0) dunlin::blocking([] { usleep(500); });
                    if (i % 2 == 1) usleep(2000);
                    EXPECT_EQ(thread_now(), mine);
                    dunlin::yield();
                    EXPECT_EQ(thread_now(), mine);
                }
            });
        }
        done.wait();
    });
}

}  // namespace
