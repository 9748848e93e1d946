// What happens at the ends: go() while run() returns, fewer processors, what a run() leaves behind, and runs that wait
// for it.
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <functional>
#include <mutex>
#include <poll.h>
#include <pthread.h>
#include <shared_mutex>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <type_traits>
#include <ucontext.h>
#include <utility>
#include <vector>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class Ends : public support::each_p {};
EACH_P(Ends);

unsigned threads_of_this_process() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.rfind("Threads:", 0) == 0) return static_cast<unsigned>(std::stoul(line.substr(8)));
    }
    return 0;
}

long peak_kilobytes() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    return used.ru_maxrss;
}

// The goroutine is runnable only when it is in a queue: the end of run() finds it there, or finds it dead.
TEST_P(Ends, GoAndSpawnByPlainThreadsWhileRunReturnsStressed) {
    static std::atomic<long> ended;
    std::atomic<bool> stop{false};
    std::vector<std::thread> plain;
    for (int i = 0; i < 2; ++i) {
        plain.emplace_back([&, i] {
            while (!stop) {
                if (i == 0) {
                    dunlin::go([] { ended.fetch_add(1, std::memory_order_relaxed); });
                } else {
                    dunlin::go({.name = "named", .stack_size = 32 << 10},
                        [] { ended.fetch_add(1, std::memory_order_relaxed); });
                }
                if (i == 1) std::this_thread::sleep_for(20us);
            }
        });
    }
    for (int round = 0; round < support::rounds(300); ++round) {
        dunlin::run({.max_procs = procs()}, [] {
            dunlin::go([] { dunlin::sleep_for(1h); });
            dunlin::yield();
        });
    }
    stop = true;
    for (std::thread& t : plain) t.join();
    dunlin::run([] {});  // forgets what is left
}

// Their structs come back from the processors on which they end.
TEST_P(Ends, GoByPlainThreadsAloneTakesNoMemoryForEver) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer keeps memory back";
    std::atomic<long> ended{0};
    long started = 0;
    const auto start = [&](long count) {
        for (const long until = started + count; started < until;) {
            dunlin::go([&] { ended.fetch_add(1); });
            ++started;
            while (started - ended.load() > 500) std::this_thread::yield();
        }
        while (ended != started) std::this_thread::yield();
    };
    start(100'000);
    const long before = peak_kilobytes();
    start(300'000);
    EXPECT_LT(peak_kilobytes() - before, 20'000);  // 55 MB if each took a struct of its own
}

TEST_P(Ends, NoMoreGoroutinesComputeThanThereAreProcessorsAfterShrinking) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer keeps signals back for long";
    dunlin::runtime::set_max_procs(8);
    std::atomic<bool> stop{false};
    struct alignas(64) counter {
        std::atomic<unsigned long> steps{0};
    };
    std::vector<counter> hogs(8);
    std::atomic<int> left{8};
    for (counter& hog : hogs) {
        dunlin::go([&] {
            while (!stop) hog.steps.fetch_add(1, std::memory_order_relaxed);
            --left;
        });
    }
    support::eventually_on_thread(
        [&] { return std::all_of(hogs.begin(), hogs.end(), [](const counter& h) { return h.steps != 0; }); });
    dunlin::runtime::set_max_procs(1);
    // One at a time: between two looks a millisecond apart most stand still, once the monitor has stopped those that
    // lost their processors.
    const auto moving = [&] {
        std::vector<unsigned long> before;
        for (counter& hog : hogs) before.push_back(hog.steps);
        std::this_thread::sleep_for(1ms);
        int n = 0;
        for (std::size_t i = 0; i < hogs.size(); ++i) n += hogs[i].steps != before[i];
        return n;
    };
    support::eventually_on_thread([&] {
        for (int look = 0; look < 10; ++look) {
            if (moving() > 2) return false;  // one, and one that has just had its turn
        }
        return true;
    });
    stop = true;
    support::eventually_on_thread([&] { return left == 0; });
    dunlin::runtime::set_max_procs(procs());
}

TEST_P(Ends, AProcessorThatIsIdleGoesToAGoroutineThatLostItsOwn) {
    dunlin::runtime::set_max_procs(8);
    std::atomic<bool> stop{false}, ended{false};
    std::atomic<unsigned long> steps{0};
    dunlin::go([&] {
        while (!stop) steps.fetch_add(1, std::memory_order_relaxed);
        dunlin::yield();
        ended = true;
    });
    for (unsigned n : {7u, 3u, 1u, 8u, 1u}) {
        dunlin::runtime::set_max_procs(n);
        const unsigned long before = steps;
        support::eventually_on_thread([&] { return steps > before + 1000; });
    }
    stop = true;
    support::eventually_on_thread([&] { return ended.load(); });
}

// A thread that stands in a handler, on `memory` as its alternate stack.
class thread_in_handler {
public:
    thread_in_handler(std::byte* memory, std::size_t size) : thread_([=] { stand(memory, size); }) {
        while (!stands_) std::this_thread::sleep_for(1ms);
    }
    ~thread_in_handler() {
        stands_ = false;
        thread_.join();
    }

private:
    static void stand(std::byte* memory, std::size_t size) {
        stack_t alternate{}, before{};
        alternate.ss_sp = memory;
        alternate.ss_size = size;
        sigaltstack(&alternate, &before);
        struct sigaction ours {}, others {};
        ours.sa_handler = [](int) {
            for (stands_ = true; stands_;) ::usleep(1000);
        };
        ours.sa_flags = SA_ONSTACK;
        sigaction(SIGUSR2, &ours, &others);
        sigset_t one, usual;
        sigemptyset(&one);
        sigaddset(&one, SIGUSR2);
        pthread_sigmask(SIG_BLOCK, &one, &usual);
        raise(SIGUSR2);
        ppoll(nullptr, 0, nullptr, &usual);  // in a call that blocks ThreadSanitizer runs the handler where it came
        sigaction(SIGUSR2, &others, nullptr);
        sigaltstack(&before, nullptr);
    }

    static inline std::atomic<bool> stands_{false};
    std::thread thread_;
};

// On a stack of the program's, with a signal blocked, and just below a signal stack in use: neither makes
// it a handler of the program, for which run() would wait ten seconds.
TEST_P(Ends, AGoroutineThatComputesOnAStackOfTheProgramsStops) {
    constexpr std::size_t size = 256 << 10;
    static std::atomic<std::uint64_t> turns;
    static ucontext_t inside, outside;
    static std::vector<std::byte> stack;
    stack.assign(size + (32 << 10), {});
#if defined(__x86_64__)  // elsewhere they are taken for this stack's (src/sched/preempt/program_handler.h)
    const thread_in_handler neighbour(stack.data() + size, stack.size() - size);
#endif
    std::chrono::steady_clock::time_point end;
    run([&end] {
        dunlin::go([] {
            sigset_t one;
            sigemptyset(&one);
            sigaddset(&one, SIGPIPE);
            pthread_sigmask(SIG_BLOCK, &one, nullptr);
            getcontext(&inside);
            inside.uc_stack.ss_sp = stack.data();
            inside.uc_stack.ss_size = size;
            makecontext(
                &inside, [] { for (;;) turns.fetch_add(1, std::memory_order_relaxed); }, 0);
            swapcontext(&outside, &inside);
        });
        const std::uint64_t before = turns;
        while (turns == before) dunlin::sleep_for(1ms);
        end = std::chrono::steady_clock::now();
    });
    EXPECT_LT(std::chrono::steady_clock::now() - end, 5s);
    support::eventually([] {
        const std::uint64_t then = turns;
        std::this_thread::sleep_for(50ms);
        return turns == then;
    });
}

// It is found asleep whenever the monitor looks.
TEST_P(Ends, AGoroutineThatOnlySleepsInLibcStops) {
    if (support::sanitized) GTEST_SKIP() << "a thread is not stopped inside a sanitizer's own functions";
    static std::atomic<long> steps;
    for (int round = 0; round < 5; ++round) {
        run([] {
            for (int i = 0; i < 20; ++i) {
                dunlin::go([] {
                    for (;; steps.fetch_add(1)) ::usleep(1000);
                });
            }
            while (steps.load() < 100) dunlin::sleep_for(1ms);
        });
        long before = -1;
        support::eventually([&] {
            const long now = steps.load();
            std::this_thread::sleep_for(100ms);
            return std::exchange(before, now) == now && steps.load() == now;
        });
        steps = 0;
    }
    support::eventually([] { return threads_of_this_process() < 40; });
}

// Each leaves a goroutine that computes. The youngest stand still in their handlers; the threads of the others end.
TEST_P(Ends, ThreadsOfGoroutinesThatRunsHaveLeftEnd) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer keeps books on threads: they stay";
    for (int round = 0; round < 60; ++round) {
        static std::atomic<bool> computes;
        computes = false;
        run([] {
            dunlin::go([] {
                computes = true;
                for (std::atomic<unsigned long> n{0};;) n.fetch_add(1, std::memory_order_relaxed);
            });
            while (!computes) dunlin::sleep_for(50us);
        });
    }
    support::eventually_on_thread([] { return threads_of_this_process() < 40; });
}

// Leaves a goroutine that takes m again and again, and lets the calling thread take it too, as a Waiter.
template <class Lock, template <class> class Waiter>
void wait_for_a_lock_that_is_left(unsigned procs) {
    static Lock m;
    static std::atomic<bool> holds;
    holds = false;
    dunlin::run({.max_procs = procs}, [] {
        dunlin::go({.name = "keeps the lock"}, [] {
            for (;;) {
                const std::lock_guard guard(m);
                holds = true;
                const auto until = std::chrono::steady_clock::now() + 50ms;
                while (std::chrono::steady_clock::now() < until) {}
            }
        });
        while (!holds) dunlin::sleep_for(1ms);
    });
    testing::internal::CaptureStderr();
    { const Waiter<Lock> guard(m); }
    const std::string said = testing::internal::GetCapturedStderr();
    if (!said.empty()) {  // unless the goroutine could not be stopped while it had it
        EXPECT_NE(said.find("waits for the lock at"), std::string::npos) << said;
        EXPECT_NE(said.find("keeps the lock"), std::string::npos) << said;
        EXPECT_NE(said.find("run_options::at_end"), std::string::npos) << said;
    }
}

TEST_P(Ends, MainGetsTheMutexThatAStoppedGoroutineHolds) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer's own locks stand before libc's";
    wait_for_a_lock_that_is_left<std::mutex, std::unique_lock>(procs());
}

TEST_P(Ends, MainReadsBehindAStoppedWriter) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer's own locks stand before libc's";
    wait_for_a_lock_that_is_left<std::shared_mutex, std::shared_lock>(procs());
}

TEST_P(Ends, MainWritesBehindAStoppedWriter) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer's own locks stand before libc's";
    wait_for_a_lock_that_is_left<std::shared_mutex, std::unique_lock>(procs());
}

// Nothing notes which thread it is that main waits for. Leaves goroutines that compute, one of which does what `enter`
// does first, until main has gone on, and one that waits for that in `queue`; main then waits in `wait`.
constexpr auto nothing = [] {};
template <class Enter, class Wait, class Queue = decltype(nothing)>
void wait_for_one_that_is_left(unsigned procs, Enter enter, Wait wait, Queue queue = nothing) {
    static std::atomic<int> computing;
    static std::atomic<unsigned long> steps;
    static std::atomic<bool> waits;
    computing = 0;
    waits = false;
    const auto compute = [] {
        while (!waits) steps.fetch_add(1, std::memory_order_relaxed);  // so that the end of run() stops it
    };
    dunlin::run({.max_procs = procs}, [&] {
        dunlin::go([] {
            ++computing;
            for (;;) steps.fetch_add(1, std::memory_order_relaxed);
        });
        dunlin::go({.name = "has it"}, [=] {
            enter([=] {
                ++computing;
                compute();
            });
        });
        while (computing != 2) dunlin::sleep_for(1ms);
        if (std::is_same_v<Queue, decltype(nothing)>) return;
        dunlin::go([=] {
            queue();
            for (;;) steps.fetch_add(1, std::memory_order_relaxed);
        });
        dunlin::sleep_for(50ms);  // by then its thread sleeps
    });
    waits = true;
    testing::internal::CaptureStderr();
    wait();
    const std::string said = testing::internal::GetCapturedStderr();
    if (said.empty()) return;  // it could not be stopped where it was
    // Then the one that waits for it may have come in, and been stopped there: that is noted in the lock.
    const bool behind_the_next = said.find("waits for the thread that") == std::string::npos &&
        said.find("waits for the lock at") != std::string::npos;
    if (!std::is_same_v<Queue, decltype(nothing)> && behind_the_next) return;
    EXPECT_NE(said.find("waits for the thread that"), std::string::npos) << said;
    EXPECT_NE(said.find("that stands still since its run() returned"), std::string::npos) << said;
    EXPECT_NE(said.find("run_options::at_end"), std::string::npos) << said;
}

TEST_P(Ends, MainWritesBehindAStoppedReader) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer's own locks stand before libc's";
    static std::shared_mutex m;
    wait_for_one_that_is_left(
        procs(),
        [](auto then) {
            const std::shared_lock guard(m);
            then();
        },
        [] { const std::unique_lock guard(m); });
}

TEST_P(Ends, MainWritesBehindAStoppedReaderAndAWriterThatWaits) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer's own locks stand before libc's";
    static std::shared_mutex m;
    const auto write = [] { const std::unique_lock guard(m); };
    wait_for_one_that_is_left(
        procs(),
        [](auto then) {
            const std::shared_lock guard(m);
            then();
        },
        write, write);
}

TEST_P(Ends, MainReadsBehindAStoppedReaderAndAWriterThatComesFirst) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer's own locks stand before libc's";
    static pthread_rwlock_t lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    wait_for_one_that_is_left(
        procs(),
        [](auto then) {
            pthread_rwlock_rdlock(&lock);
            then();
            pthread_rwlock_unlock(&lock);
        },
        [] {
            pthread_rwlock_rdlock(&lock);
            pthread_rwlock_unlock(&lock);
        },
        [] {
            pthread_rwlock_wrlock(&lock);
            pthread_rwlock_unlock(&lock);
        });
}

TEST_P(Ends, MainComesPastAStoppedCallOnce) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer's own locks stand before libc's";
    static std::once_flag* flag;
    flag = new std::once_flag;  // for ever: the goroutine that is stopped inside may come out at any time
    wait_for_one_that_is_left(
        procs(), [](auto then) { std::call_once(*flag, then); }, [] { std::call_once(*flag, [] {}); });
}

template <unsigned Procs, class F>
int initialised_by(F f) {
    static std::function<void()> first;
    if (!first) first = f;
    static const int value = (first(), 42);
    return value;
}

TEST_P(Ends, MainComesPastAStoppedInitialisationOfAStatic) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer's own locks stand before libc's";
    static std::array<bool, 9> done;
    if (std::exchange(done.at(procs()), true)) GTEST_SKIP() << "initialised by an earlier round";
    const auto get = [procs = procs()](const std::function<void()>& f) {
        return procs == 1 ? initialised_by<1>(f) : procs == 2 ? initialised_by<2>(f) : initialised_by<8>(f);
    };
    wait_for_one_that_is_left(procs(), [=](auto then) { get(then); }, [=] { EXPECT_EQ(get([] {}), 42); });
}

TEST_P(Ends, RunWaitsForWhatIsLeftIfAsked) {
    std::atomic<int> ended{0};
    dunlin::run({.max_procs = procs(), .at_end = dunlin::leftovers::wait}, [&] {
        for (int i = 0; i < 20; ++i) {
            dunlin::go([&, i] {
                dunlin::sleep_for(std::chrono::milliseconds(i));
                dunlin::go([&] {
                    dunlin::sleep_for(1ms);
                    ++ended;
                });
                ++ended;
            });
        }
    });
    EXPECT_EQ(ended, 40);
}

TEST_P(Ends, RunCancelsItsContextAndWaits) {
    std::atomic<int> told{0};
    for (int round = 0; round < 20; ++round) {
        told = 0;
        dunlin::run({.max_procs = procs(), .at_end = dunlin::leftovers::cancel_and_wait}, [&] {
            for (int i = 0; i < 10; ++i) {
                dunlin::go([&] {
                    const dunlin::context mine = dunlin::run_context().with_cancel();
                    mine.done().recv();
                    ++told;
                });
            }
        });
        EXPECT_EQ(told, 10);
    }
    EXPECT_FALSE(dunlin::run_context().err());  // another one
}

TEST_P(Ends, RunDoesNotWaitLongerThanItsLimit) {
    std::atomic<bool> ended{false};
    const auto before = std::chrono::steady_clock::now();
    dunlin::run({.max_procs = procs(), .at_end = dunlin::leftovers::wait, .at_end_limit = 30ms}, [&] {
        dunlin::go([&] {
            dunlin::sleep_for(1h);
            ended = true;
        });
    });
    EXPECT_GE(std::chrono::steady_clock::now() - before, 30ms);
    EXPECT_FALSE(ended);
}

// As many nanoseconds do not fit: std would make a negative number of them.
TEST_P(Ends, RunWaitsForEverIfItsLimitIsTheLongestOfAnyUnit) {
    std::atomic<bool> ended{false};
    constexpr auto longest = std::chrono::hours::max();
    dunlin::run({.max_procs = procs(), .at_end = dunlin::leftovers::wait, .at_end_limit = longest}, [&] {
        dunlin::go([&] {
            dunlin::sleep_for(20ms);
            ended = true;
        });
    });
    EXPECT_TRUE(ended);
    dunlin::run_options options;
    options.at_end_limit = longest;
    EXPECT_EQ(options.at_end_limit, dunlin::clock::duration::max());
}

}  // namespace
