// Goroutines whose threads block: announced by blocking(), or not. Ports of Go's own tests of system calls, under Go's names, and what
// blocking() promises. Go's entersyscall is blocking() here; what says nothing loses its processor a little later.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <fcntl.h>
#include <map>
#include <memory>
#include <mutex>
#include <netdb.h>
#include <poll.h>
#include <semaphore.h>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "sched/types.h"
#include "support/child.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class GoSyscall : public support::runtime_test {};
class GoSyscallP : public support::each_p {};
EACH_P(GoSyscallP);

dunlin::runtime::hand_off_stats hand_offs() { return dunlin::runtime::stats().hand_offs; }

// Read anew each time: what a compiler takes for constant in a function is not, where the goroutine may go on on another thread.
[[gnu::noinline]] int errno_now() { return errno; }
[[gnu::noinline]] void set_errno(int value) { errno = value; }
[[gnu::noinline]] const int* errno_address() {
    asm volatile("");
    return &errno;
}
[[gnu::noinline]] pid_t thread_now() { return static_cast<pid_t>(syscall(SYS_gettid)); }

struct descriptors {
    int read_end = -1, write_end = -1;
    descriptors() {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
        read_end = ends[0];
        write_end = ends[1];
    }
    ~descriptors() {
        close(read_end);
        close(write_end);
    }
    descriptors(const descriptors&) = delete;
    descriptors& operator=(const descriptors&) = delete;
};

// A goroutine that runs all the time, so that there is always somebody who wants a processor.
class busy {
public:
    busy() {
        done_.go([this] {
            while (!over_.load()) {
                turns_.fetch_add(1);
                dunlin::yield();
            }
        });
    }
    ~busy() {
        over_ = true;
        done_.wait();
    }
    busy(const busy&) = delete;
    busy& operator=(const busy&) = delete;
    long turns() const { return turns_.load(); }

private:
    std::atomic<bool> over_{false};
    std::atomic<long> turns_{0};
    dunlin::wait_group done_;
};

// ---- SYS-01 to SYS-08 -------------------------------------------------------------------------------------------------------------------------

// go1.24 src/runtime/testdata/testprog/gc.go: those who write keep nobody from waking.
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
        for (int i = 0; i < 5; ++i) {
            const auto begin = dunlin::clock::now();
            dunlin::sleep_for(10ms);
            EXPECT_LT(dunlin::clock::now() - begin, support::sanitized ? 5s : 500ms);
        }
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
        std::mutex mutex;
        std::condition_variable all_in;
        int inside = 0;
        std::atomic<int> asleep{0};
        dunlin::wait_group done;
        const busy counter;
        for (int i = 0; i < n; ++i) {
            done.go([&] {
                dunlin::blocking([&] {
                    // Nobody sleeps before all are in the call: a thread each.
                    std::unique_lock lock(mutex);
                    if (++inside == n) all_in.notify_all();
                    all_in.wait(lock, [&] { return inside == n; });
                    lock.unlock();
                    asleep.fetch_add(1);
                    const timespec t{0, 200'000'000};
                    EXPECT_EQ(nanosleep(&t, nullptr), 0);
                    asleep.fetch_sub(1);
                });
            });
        }
        while (asleep.load() < n) dunlin::yield();
        const auto begin = dunlin::clock::now();
        // Windows of 20 ms: the counter gets on in each.
        for (int window = 0; window < 5; ++window) {
            const long before = counter.turns();
            dunlin::sleep_for(20ms);
            EXPECT_GT(counter.turns(), before);
        }
        EXPECT_LE(dunlin::runtime::stats().threads, threads_before + n + 6);
        done.wait();
        EXPECT_LT(dunlin::clock::now() - begin, 2s) << "not one after the other";
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
        } while (after.returns_idle == before.returns_idle);
        EXPECT_GT(after.from_blocking + after.at_once, before.from_blocking + before.at_once);
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
        EXPECT_LE(after.returns_idle, before.returns_idle + 10);
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
        while (trips.load() < 20 || sleeps.load() < 20 || joins.load() < 20 || storm_signals.load() < before + 50) dunlin::sleep_for(1ms);
        over = true;
        done.wait();
    });
}

// SYS-08 TestGetgThreadSwitch
TEST_P(GoSyscallP, TestGetgThreadSwitch) {
    run([this] {
        std::vector<std::unique_ptr<busy>> others;
        for (unsigned i = 0; i < procs(); ++i) others.push_back(std::make_unique<busy>());
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

// ---- what blocking() hands through ------------------------------------------------------------------------------------------------------------

// Until it has come back on another thread several times, and on the same.
TEST_P(GoSyscallP, ErrnoAndTheResultArriveOnWhicheverThread) {
    run([this] {
        std::vector<std::unique_ptr<busy>> others;
        for (unsigned i = 0; i < procs(); ++i) others.push_back(std::make_unique<busy>());
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

// "Read it in the function that made the call, that is, inside f, and return it" (blocking.hpp), also where f is written as a lambda in a function
// that has read errno before, on another thread.
TEST_P(GoSyscallP, ErrnoIsReadInsideTheFunctionThatMadeTheCall) {
    run([this] {
        std::vector<std::unique_ptr<busy>> others;
        for (unsigned i = 0; i < procs(); ++i) others.push_back(std::make_unique<busy>());
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
        for (unsigned i = 0; i < procs(); ++i) others.push_back(std::make_unique<busy>());
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
    EXPECT_EQ(dunlin::blocking([] { return dunlin::blocking([] { return dunlin::blocking([] { return 12; }) + 1; }) + 1; }), 14);
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
        for (unsigned i = 0; i < procs(); ++i) others.push_back(std::make_unique<busy>());
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
        for (unsigned i = 0; i < procs(); ++i) others.push_back(std::make_unique<busy>());
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
        for (unsigned i = 0; i < procs(); ++i) others.push_back(std::make_unique<busy>());
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

// ---- calls that say nothing -------------------------------------------------------------------------------------------------------------------

// One processor, a goroutine that ticks, and, as main, one that calls what blocks its thread. Where `until` can be told, the call ends when there have
// been twenty ticks; so each call ends if, and only if, others run meanwhile.
class Unannounced : public GoSyscall {
protected:
    struct ticker {
        std::atomic<int> ticks{0};
        std::atomic<bool> over{false};
        void reset() { ticks = 0; }
        bool enough() const { return ticks.load() >= 20; }
    };

    // body(ticker, at_twenty): at_twenty is called once, by the ticking goroutine, when it has ticked twenty times.
    template <class Body, class AtTwenty>
    static void with_ticker(Body body, AtTwenty at_twenty, int loops = 0) {
        dunlin::run({.max_procs = 1}, [&] {
            ticker t;
            dunlin::wait_group done;
            for (int i = 0; i < loops; ++i) {
                done.go([&t] {
                    while (!t.over.load(std::memory_order_relaxed)) {}
                });
            }
            done.go([&] {
                while (!t.over.load()) {
                    dunlin::sleep_for(500us);
                    if (t.ticks.fetch_add(1) + 1 == 20) at_twenty();
                }
            });
            body(t);
            EXPECT_TRUE(t.enough()) << t.ticks.load() << " ticks";
            t.over = true;
            done.wait();
        });
    }
};

TEST_F(Unannounced, ReadOfAPipe) {
    for (const int loops : {0, 2}) {
        const descriptors pipe;
        with_ticker(
            [&](ticker&) {
                char byte = 0;
                const ssize_t n = read(pipe.read_end, &byte, 1);
                EXPECT_EQ(n, 1) << errno_now();
            },
            [&] { EXPECT_EQ(write(pipe.write_end, "x", 1), 1); }, loops);
    }
}

TEST_F(Unannounced, WriteToAFullPipe) {
    const descriptors pipe;
    const int size = fcntl(pipe.write_end, F_SETPIPE_SZ, 4096);
    std::vector<char> data(static_cast<std::size_t>(size));
    ASSERT_EQ(write(pipe.write_end, data.data(), data.size()), size);
    std::vector<char> drained(data.size());
    with_ticker(
        [&](ticker&) { EXPECT_EQ(write(pipe.write_end, data.data(), data.size()), size) << errno_now(); },
        [&] { EXPECT_EQ(read(pipe.read_end, drained.data(), drained.size()), size); });
}

TEST_F(Unannounced, Usleep) {
    for (const int loops : {0, 2}) {
        with_ticker(
            [](ticker& t) {
                // One long one, and then short ones until there were enough.
                const auto begin = dunlin::clock::now();
                EXPECT_EQ(usleep(50'000), 0) << errno_now();
                EXPECT_GE(dunlin::clock::now() - begin, 50ms);
                while (!t.enough()) EXPECT_EQ(usleep(3'000), 0) << errno_now();
            },
            [] {}, loops);
    }
}

TEST_F(Unannounced, PollSelectAndEpoll) {
    for (const int which : {0, 1, 2}) {
        const descriptors pipe;
        const int epoll = epoll_create1(EPOLL_CLOEXEC);
        epoll_event interest{EPOLLIN, {}};
        ASSERT_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, pipe.read_end, &interest), 0);
        with_ticker(
            [&](ticker&) {
                if (which == 0) {
                    pollfd p{pipe.read_end, POLLIN, 0};
                    EXPECT_EQ(poll(&p, 1, -1), 1) << errno_now();
                } else if (which == 1) {
                    fd_set set;
                    FD_ZERO(&set);
                    FD_SET(pipe.read_end, &set);
                    EXPECT_EQ(select(pipe.read_end + 1, &set, nullptr, nullptr, nullptr), 1) << errno_now();
                } else {
                    epoll_event event;
                    EXPECT_EQ(epoll_wait(epoll, &event, 1, -1), 1) << errno_now();
                }
            },
            [&] { EXPECT_EQ(write(pipe.write_end, "x", 1), 1); }, 1);
        close(epoll);
    }
}

TEST_F(Unannounced, Flock) {
    char name[] = "/tmp/dunlin_flock_XXXXXX";
    const int holder = mkstemp(name);
    ASSERT_GE(holder, 0);
    const int waiter = open(name, O_RDWR | O_CLOEXEC);
    ASSERT_GE(waiter, 0);
    unlink(name);
    for (const int loops : {0, 2}) {
        ASSERT_EQ(flock(holder, LOCK_EX), 0);
        with_ticker([&](ticker&) { EXPECT_EQ(flock(waiter, LOCK_EX), 0) << errno_now(); }, [&] { EXPECT_EQ(flock(holder, LOCK_UN), 0); }, loops);
        ASSERT_EQ(flock(waiter, LOCK_UN), 0);
    }
    close(holder);
    close(waiter);
}

TEST_F(Unannounced, AcceptAndConnect) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = "dunlin_test_" + std::to_string(getpid());
    std::copy(name.begin(), name.end(), address.sun_path + 1);  // in the abstract name space: no file
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), size), 0);
    ASSERT_EQ(listen(listener, 1), 0);
    int accepted = -1;
    with_ticker(
        [&](ticker&) {
            accepted = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
            EXPECT_GE(accepted, 0) << errno_now();
        },
        [&] { EXPECT_EQ(connect(client, reinterpret_cast<const sockaddr*>(&address), size), 0); });
    close(accepted);
    close(client);
    close(listener);
}

TEST_F(Unannounced, Semaphore) {
    sem_t semaphore;
    ASSERT_EQ(sem_init(&semaphore, 0, 0), 0);
    for (const int loops : {0, 2}) {
        with_ticker([&](ticker&) { EXPECT_EQ(sem_wait(&semaphore), 0) << errno_now(); }, [&] { EXPECT_EQ(sem_post(&semaphore), 0); }, loops);
    }
    sem_destroy(&semaphore);
}

TEST_F(Unannounced, ContendedMutex) {
    for (const int loops : {0, 2}) {
        std::mutex mutex;
        std::atomic<bool> held{false}, release{false};
        std::thread holder([&] {
            std::lock_guard guard(mutex);
            held = true;
            while (!release.load()) usleep(100);
        });
        while (!held.load()) usleep(100);
        with_ticker([&](ticker&) { std::lock_guard guard(mutex); }, [&] { release = true; }, loops);
        holder.join();
    }
}

// Held by a goroutine that sits in a system call, and by one that computes.
TEST_F(Unannounced, MutexesHeldByGoroutines) {
    dunlin::run({.max_procs = 1}, [] {
        std::mutex mutex;
        long entered = 0, inside = 0, wrong = 0;
        dunlin::wait_group done;
        for (int i = 0; i < 10; ++i) {
            done.go([&, i] {
                for (int round = 0; round < 5; ++round) {
                    std::lock_guard guard(mutex);
                    wrong += ++inside != 1;
                    if (i % 2 == 0) {
                        usleep(1000);
                    } else {
                        for (int k = 0; k < 300'000; ++k) asm volatile("");
                    }
                    --inside;
                    ++entered;
                }
            });
        }
        done.wait();
        EXPECT_EQ(entered, 50);
        EXPECT_EQ(wrong, 0);
    });
}

TEST_F(Unannounced, ConditionVariable) {
    for (const int loops : {0, 2}) {
        std::mutex mutex;
        std::condition_variable changed;
        bool ready = false;
        with_ticker(
            [&](ticker&) {
                std::unique_lock lock(mutex);
                changed.wait(lock, [&] { return ready; });
            },
            [&] {
                {
                    std::lock_guard guard(mutex);
                    ready = true;
                }
                changed.notify_one();
            },
            loops);
    }
}

TEST_F(Unannounced, Getaddrinfo) {
    with_ticker(
        [](ticker& t) {
            while (!t.enough()) {
                addrinfo* found = nullptr;
                const int result = getaddrinfo("localhost", "80", nullptr, &found);
                EXPECT_FALSE(result == EAI_SYSTEM && errno_now() == EINTR);
                if (result == 0) freeaddrinfo(found);
            }
        },
        [] {}, 1);
}

// Computing and short system calls in turn, while main sleeps and wakes: signals are sent at the moments at which calls begin.
TEST_P(GoSyscallP, NoCallEverEndsWithEintr) {
    run([this] {
        const descriptors pipe;
        std::atomic<bool> over{false};
        std::atomic<long> failed{0}, rounds{0};
        std::array<std::atomic<int>, 5> errors{};
        dunlin::wait_group done;
        for (unsigned i = 0; i < std::max(5u, procs() + 2); ++i) {
            done.go([&, i] {
                unsigned random = i + 1;
                while (!over.load()) {
                    random = random * 1'664'525 + 1'013'904'223;
                    for (unsigned k = random >> 13; k != 0; --k) asm volatile("");
                    const timespec t{0, 50'000 + static_cast<long>(random % 100'000)};
                    pollfd p{pipe.read_end, POLLIN, 0};
                    timeval v{0, 100};
                    sem_t semaphore;
                    sem_init(&semaphore, 0, 0);
                    timespec soon;
                    clock_gettime(CLOCK_REALTIME, &soon);
                    soon.tv_nsec = std::min(soon.tv_nsec + 100'000, 999'999'999L);
                    int error = 0;
                    switch (i % 5) {
                        case 0: error = usleep(100) == 0 ? 0 : errno_now(); break;
                        case 1: error = nanosleep(&t, nullptr) == 0 ? 0 : errno_now(); break;
                        case 2: error = poll(&p, 1, 1) == 0 ? 0 : errno_now(); break;
                        case 3: error = select(0, nullptr, nullptr, nullptr, &v) == 0 ? 0 : errno_now(); break;
                        case 4: error = sem_timedwait(&semaphore, &soon) == -1 && errno_now() == ETIMEDOUT ? 0 : errno_now(); break;
                    }
                    if (error != 0) {
                        failed.fetch_add(1);
                        errors[i % 5] = error;
                    }
                    sem_destroy(&semaphore);
                    rounds.fetch_add(1);
                }
            });
        }
        const std::uint64_t before = hand_offs().preemptions;
        const auto until = dunlin::clock::now() + 500ms;
        while (dunlin::clock::now() < until || rounds.load() < 20) dunlin::sleep_for(100us);
        over = true;
        done.wait();
#if defined(__x86_64__)
        // Elsewhere a call cannot be made again (stack/signal_frame.h).
        EXPECT_EQ(failed.load(), 0) << "of " << rounds.load() << "; usleep " << errors[0] << ", nanosleep " << errors[1] << ", poll " << errors[2]
                                    << ", select " << errors[3] << ", sem_timedwait " << errors[4];
#endif
        RecordProperty("preemptions", static_cast<int>(hand_offs().preemptions - before));
    });
}

// ---- threads ----------------------------------------------------------------------------------------------------------------------------------

TEST_F(GoSyscall, ThreadsAreGivenBackWhenNobodyNeedsThem) {
    dunlin::run({.max_procs = 2}, [] {
        const auto ended_before = hand_offs().threads_ended;
        std::mutex mutex;
        std::condition_variable all_in;
        constexpr int n = support::sanitized ? 50 : 200;
        int inside = 0;
        dunlin::wait_group done;
        for (int i = 0; i < n; ++i) {
            done.go([&] {
                dunlin::blocking([&] {
                    std::unique_lock lock(mutex);
                    if (++inside == n) all_in.notify_all();
                    all_in.wait(lock, [&] { return inside == n; });
                    lock.unlock();
                    usleep(20'000);
                });
            });
        }
        // Main does not wait in a call of the runtime that would run them in place.
        while (dunlin::runtime::num_goroutines() > 1) dunlin::sleep_for(1ms);
        done.wait();
        const unsigned most = dunlin::runtime::stats().threads;
        EXPECT_GE(most, static_cast<unsigned>(n) / 2);
        // Half of them each second. To a quarter is enough to see.
        while (dunlin::runtime::stats().threads > std::max(most / 4, 8u)) dunlin::sleep_for(50ms);
        EXPECT_GE(hand_offs().threads_ended, ended_before + most - std::max(most / 4, 8u));
        // And they come again.
        dunlin::wait_group again;
        for (int i = 0; i < 20; ++i) again.go([] { dunlin::blocking([] { usleep(2'000); }); });
        again.wait();
    });
}

TEST_F(GoSyscall, WithoutMoreThreadsItGoesOnAndSaysSoOnce) {
    const auto r = support::run_child("hand_off", {"no_more_threads"});
    if (r.status == 77) GTEST_SKIP() << "seccomp is not available";
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "count 12\n") << r;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r;
    EXPECT_NE(r.err.find("no more threads"), std::string::npos) << r;
}

TEST_F(GoSyscall, AnIdleProcessUsesNoCpuWhateverItsThreadsSleepIn) {
    if (support::sanitized) GTEST_SKIP() << "the sanitizer's own thread uses some";
    const auto r = support::run_child("hand_off", {"idle_after_hand_offs"});
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_LT(std::stod(r.out), 0.2) << r;
}

}  // namespace
