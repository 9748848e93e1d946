// runtime::dump() and runtime::stats(): what they say about goroutines, at rest and under load.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <sys/time.h>
#include <unistd.h>

#include "support/runtime_test.h"
#include "support/undisturbed.h"

using namespace std::chrono_literals;

namespace {

std::string dump() {
    std::ostringstream text;
    dunlin::runtime::dump(text);
    return text.str();
}

std::vector<std::string> headers_of(const std::string& dump) {
    std::vector<std::string> result;
    std::istringstream lines(dump);
    for (std::string line; std::getline(lines, line);) {
        if (line.rfind("goroutine ", 0) == 0) result.push_back(line);
    }
    return result;
}

// Goroutines that a dump tells of: those that are alike are one paragraph.
std::size_t count_of(const std::string& dump) {
    std::size_t count = headers_of(dump).size();
    const std::regex others(R"re(\n    and (\d+) like it: )re");
    for (std::sregex_iterator i(dump.begin(), dump.end(), others), end; i != end; ++i) count += std::stoul((*i)[1]);
    return count;
}

class Dump : public support::each_p {};
EACH_P(Dump);

// The part of a dump that is about the goroutine of that name.
std::string part_of(const std::string& dump, const std::string& name) {
    const std::size_t at = dump.find('"' + name + '"');
    if (at == dump.npos) return "";
    return dump.substr(at, dump.find("\n\n", at) - at);
}

TEST_P(Dump, ShowsNamesLabelsReasonsAndPlaces) {
    run([] {
        dunlin::wait_group gate;
        gate.add(1);
        const int waits = __LINE__ + 2;
        dunlin::task<void> waiter =
            dunlin::spawn({.name = "waiter", .labels = {{"user", "anna"}, {"request", "12"}}}, [gate] { gate.wait(); });
        dunlin::go({.name = "sleeper"}, [] { dunlin::sleep_for(1h); });  // not over before it is counted
        dunlin::task<void> joiner = dunlin::spawn({.name = "joiner"}, [gate] {
            dunlin::task<void> child = dunlin::spawn({.name = "child"}, [gate] { gate.wait(); });
            dunlin::yield();
            child.get();
        });
        dunlin::task<void> grouper = dunlin::spawn({.name = "grouper"}, [gate] {
            dunlin::task_group group;
            group.go({.name = "member"}, [gate] { gate.wait(); });
            group.wait();
        });
        support::eventually([] { return dunlin::runtime::stats().waiting == 6; });
        const std::string text = dump();
        const auto expect = [&](const std::string& name, std::vector<std::string> wanted) {
            const std::string part = part_of(text, name);
            for (const std::string& w : wanted)
                EXPECT_NE(part.find(w), std::string::npos) << name << " should have " << w << "\n" << text;
        };
        expect("waiter",
            {"[sync.WaitGroup.Wait", "user=anna", "request=12", "waits at dump_test.cpp:" + std::to_string(waits),
                "created at dump_test.cpp:" + std::to_string(waits)});
        expect("sleeper", {"[sleep", "waits at dump_test.cpp:"});
        expect("child", {"[sync.WaitGroup.Wait"});
        expect("joiner", {"waits at dump_test.cpp:"});
        expect("grouper", {"waits at dump_test.cpp:"});
        expect("member", {"[sync.WaitGroup.Wait"});
        // Labels are inherited.
        EXPECT_EQ(count_of(text), dunlin::runtime::num_goroutines());
        gate.done();
    });
}

std::atomic<bool> enough{false};

[[gnu::noinline]] std::uint64_t first_hog(std::uint64_t x) {
    while (!enough.load(std::memory_order_relaxed)) x = x * 6364136223846793005u + 1;
    return x;
}

[[gnu::noinline]] std::uint64_t second_hog(std::uint64_t x) {
    while (!enough.load(std::memory_order_relaxed)) x = x * 6364136223846793005u + 3;
    return x;
}

// The one that burns the CPU is the one for which people ask for a dump: whether it is preempted at the moment, or
// computes.
TEST_P(Dump, ShowsWhereAGoroutineComputes) {
    run([] {
        enough = false;
        std::uint64_t results[2];
        const std::size_t hogs = std::max(2u, dunlin::runtime::max_procs());
        dunlin::wait_group group;
        for (std::size_t i = 0; i < hogs; ++i) {
            group.go({.name = "hog" + std::to_string(i)}, [&results, i] {
                const std::uint64_t result = i % 2 == 0 ? first_hog(1) : second_hog(1);
                if (i < 2) results[i] = result;
            });
        }
        dunlin::sleep_for(50ms);
        std::vector<bool> seen(hogs);
        std::string text;
        support::eventually([&] {
            text = dump();
            for (std::size_t i = 0; i < hogs; ++i) {
                const std::string part = part_of(text, "hog" + std::to_string(i));
                if (part.find(i % 2 == 0 ? "first_hog" : "second_hog") != part.npos) seen[i] = true;
                EXPECT_EQ(part.find(i % 2 == 0 ? "second_hog" : "first_hog"), part.npos) << text;
            }
            EXPECT_NE(text.find("dunlin::runtime::dump"), text.npos) << "the caller's own\n" << text;
            return std::ranges::all_of(seen, [](bool s) { return s; });
        });
        enough = true;
        group.wait();
        EXPECT_NE(results[0], results[1]);
    });
}

// As in libc's __mpn_submul_1: what is pushed, or where the return address is, the unwinder is not told. It finds an
// address that does not exist.
extern "C" void loop_that_misleads(const std::atomic<int>* until);
asm(".text\n"
    ".globl loop_that_misleads\n"
    ".type loop_that_misleads, %function\n"
    "loop_that_misleads:\n"
    ".cfi_startproc\n"
#if defined(__x86_64__)
    "push $0x1234567\n"
    "1: cmpl $0, (%rdi)\n"
    "je 1b\n"
    "pop %rax\n"
#elif defined(__aarch64__)
    "mov x9, x30\n"
    "mov x30, #0x4567\n"
    "1: ldr w10, [x0]\n"
    "cbz w10, 1b\n"
    "mov x30, x9\n"
#endif
    "ret\n"
    ".cfi_endproc\n"
    ".size loop_that_misleads, . - loop_that_misleads\n");

TEST_P(Dump, SurvivesAnUnwinderThatIsMisled) {
    if (support::under_thread)
        GTEST_SKIP() << "ThreadSanitizer keeps a signal until the thread calls something that it knows";
    run([] {
        std::atomic<int> until{0};
        dunlin::wait_group group;
        for (const char* name : {"one", "two"}) group.go({.name = name}, [&until] { loop_that_misleads(&until); });
        bool one = false, two = false;
        support::eventually([&] {
            const std::string text = dump();
            one = one || part_of(text, "one").find("loop_that_misleads") != text.npos;
            two = two || part_of(text, "two").find("loop_that_misleads") != text.npos;
            return one && two;
        });
        until = 1;
        group.wait();
    });
}

TEST_P(Dump, ShowsWhereAGoroutinesThreadSleepsInTheKernel) {
    run([] {
        int ends[2];
        ASSERT_EQ(pipe(ends), 0);
        dunlin::wait_group group;
        const auto read_one = [&] {
            char c;
            EXPECT_EQ(read(ends[0], &c, 1), 1);
        };
        group.go({.name = "unannounced"}, read_one);
        group.go({.name = "announced"}, [&] { dunlin::blocking(read_one); });
        support::eventually([&] {
            const std::string text = dump();
            const auto says = [&](const char* name) {
                return part_of(text, name).find("sleeps in the kernel, called at read") != text.npos;
            };
            return says("unannounced") && says("announced");
        });
        EXPECT_EQ(write(ends[1], "ab", 2), 2);
        group.wait();
        close(ends[0]);
        close(ends[1]);
    });
}

// By libc's function: where nothing is optimised, those of std::mutex stand between.
[[gnu::noinline]] void lock_the_usual(std::mutex& m) {
    pthread_mutex_lock(m.native_handle());
    asm volatile("" ::: "memory");
    m.unlock();
}

TEST_P(Dump, NamesTheFunctionThatSleepsForAMutexOfTheStandardLibrary) {
#if !defined(__x86_64__)
    GTEST_SKIP() << "return addresses are in registers there";
#endif
    if (support::sanitized) GTEST_SKIP() << "the sanitizer's own lock() stands between";
    run([] {
        std::mutex m;
        m.lock();
        dunlin::wait_group group;
        group.go({.name = "blocked"}, [&] { lock_the_usual(m); });
        std::string part;
        support::eventually([&] {
            part = part_of(dump(), "blocked");
            return part.find("lock_the_usual(std::mutex&)") != part.npos;
        });
        EXPECT_NE(part.find("[blocked in the kernel"), part.npos) << part;
        std::ostringstream json;
        dunlin::runtime::dump(json, {.format = dunlin::runtime::dump_format::json});
        EXPECT_NE(json.str().find("lock_the_usual"), std::string::npos) << json.str();
        m.unlock();
        group.wait();
    });
}

[[gnu::noinline]] void wait_in_a_guard(dunlin::mutex& m) {
    const std::lock_guard guard(m);
    asm volatile("" ::: "memory");
}

[[gnu::noinline]] void wait_in_a_lock_of_two(dunlin::mutex& a, dunlin::shared_mutex& b) {
    const std::scoped_lock guard(a, b);
    asm volatile("" ::: "memory");
}

TEST_P(Dump, LocksAreWaitedForWhereTheProgramTakesThem) {
    run([] {
        dunlin::mutex a, b;
        dunlin::shared_mutex free;
        std::unique_lock held_a(a), held_b(b);
        dunlin::task_group group;
        group.go({.name = "guard"}, [&] { wait_in_a_guard(a); });
        group.go({.name = "two"}, [&] { wait_in_a_lock_of_two(b, free); });
        support::eventually([] { return dunlin::runtime::stats().waiting == 2; });
        const std::string text = dump();
        held_a.unlock();
        held_b.unlock();
        group.wait();
        const auto place = [&](const std::string& name) {
            const std::string part = part_of(text, name);
            const std::size_t at = part.find("waits at ");
            return at == part.npos ? part : part.substr(at, part.find('\n', at) - at);
        };
        EXPECT_NE(place("guard").find("wait_in_a_guard"), std::string::npos) << text;
        EXPECT_NE(place("two").find("wait_in_a_lock_of_two"), std::string::npos) << text;
    });
}

// Calls that cannot take a place of their own, or have none: not the line in the library's header.
TEST_P(Dump, WaitsInsideOfTheLibraryAreWhereTheProgramCalledIt) {
    run([] {
        dunlin::wait_group gate;
        gate.add(1);
        dunlin::once_flag flag;
        dunlin::task_group group, limited;
        limited.set_limit(1);
        group.go({.name = "limited"}, [&] {
            limited.go([gate] { gate.wait(); });
            limited.go([] {});
        });
        group.go([&] { dunlin::call_once(flag, [&] { gate.wait(); }); });
        dunlin::yield();
        group.go({.name = "second"}, [&] { dunlin::call_once(flag, [] {}); });
        support::eventually([] { return dunlin::runtime::stats().waiting == 4; });
        const std::string text = dump();
        gate.done();
        group.wait();
        limited.wait();
        for (const char* name : {"limited", "second"}) {
            const std::string part = part_of(text, name);
            const std::size_t at = part.find("waits at ");
            ASSERT_NE(at, part.npos) << text;
            const std::string place = part.substr(at, part.find('\n', at) - at);
            EXPECT_EQ(place.rfind("waits at (anonymous namespace)::Dump_WaitsInsideOfTheLibrary", 0), 0u) << text;
        }
    });
}

TEST_P(Dump, GoroutinesInheritLabels) {
    run([] {
        dunlin::wait_group gate;
        gate.add(1);
        dunlin::task<void> parent = dunlin::spawn({.name = "parent", .labels = {{"who", "heir"}}}, [gate] {
            dunlin::task<void> heir = dunlin::spawn({.name = "heir"}, [gate] { gate.wait(); });
            dunlin::task<void> other =
                dunlin::spawn({.name = "other", .labels = {{"own", "yes"}}}, [gate] { gate.wait(); });
            dunlin::yield();
            gate.wait();
        });
        support::eventually([] { return dunlin::runtime::stats().waiting == 3; });
        const std::string text = dump();
        EXPECT_NE(part_of(text, "heir").find("who=heir"), std::string::npos) << text;
        EXPECT_NE(part_of(text, "other").find("own=yes"), std::string::npos) << text;
        EXPECT_EQ(part_of(text, "other").find("who=heir"), std::string::npos) << text;
        gate.done();
    });
}

TEST_P(Dump, HeadersHaveOneForm) {
    run([] {
        dunlin::wait_group gate;
        gate.add(1);
        for (int i = 0; i < 20; ++i) dunlin::go([gate] { gate.wait(); });
        for (int i = 0; i < 20; ++i) dunlin::go({.name = "n " + std::to_string(i)}, [] { dunlin::sleep_for(20ms); });
        dunlin::yield();
        const std::regex form(R"re(goroutine \d+( "[^"]*")? \[[^\]]+\]:)re");
        for (const std::string& header : headers_of(dump())) EXPECT_TRUE(std::regex_match(header, form)) << header;
        gate.done();
    });
}

std::atomic<std::uint64_t> handled{0};

// For as long as it lives a handler of the program's is in the place of ours.
class own_handler {
public:
    explicit own_handler(int signal) : signal_(signal) {
        struct sigaction action {};
        action.sa_handler = [](int) { handled.fetch_add(1); };
        action.sa_flags = SA_RESTART | SA_ONSTACK;
        EXPECT_EQ(sigaction(signal, &action, &before_), 0);
    }
    ~own_handler() { sigaction(signal_, &before_, nullptr); }
    own_handler(const own_handler&) = delete;
    own_handler& operator=(const own_handler&) = delete;

private:
    int signal_;
    struct sigaction before_;
};

// In whichever thread they come, the one that writes the dump too.
TEST_P(Dump, SignalsOfTheProgramComeWhileItIsWritten) {
    if (support::under_thread)
        GTEST_SKIP() << "ThreadSanitizer keeps a signal until the thread calls something that it knows";
    run([] {
        const own_handler handler(SIGALRM);
        std::atomic<bool> stop{false};
        dunlin::wait_group others;
        for (int i = 0; i < 20; ++i) {
            others.go({.name = "sleeper"}, [&] {
                while (!stop) dunlin::sleep_for(100us);
            });
        }
        handled = 0;
        const itimerval often{{0, 200}, {0, 200}}, never{};
        setitimer(ITIMER_REAL, &often, nullptr);
        support::eventually([] {
            const std::string text = dump();
            EXPECT_GE(count_of(text), 21u) << text;
            return handled >= 50;
        });
        setitimer(ITIMER_REAL, &never, nullptr);
        std::signal(SIGALRM, SIG_IGN);  // one that is on its way still would end the process
        stop = true;
        others.wait();
    });
}

// The signal stack of a goroutine's own may be as small as the kernel allows: a look at the goroutine needs more.
TEST_P(Dump, OfAGoroutineWithASmallSignalStackStaysWithinIt) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer's functions need more than that themselves";
    run([] {
        constexpr std::size_t below = 64 << 10;
        const std::size_t size = static_cast<std::size_t>(sysconf(_SC_MINSIGSTKSZ)) + 1024;
        std::vector<unsigned char> memory(below + size, 0x5a);
        std::atomic<bool> stop{false};
        dunlin::wait_group computing;
        computing.go({.name = "small"}, [&] {
            stack_t mine{}, before{};
            mine.ss_sp = memory.data() + below;
            mine.ss_size = size;
            sigaltstack(&mine, &before);
            while (!stop.load(std::memory_order_relaxed)) {}
            sigaltstack(&before, nullptr);
        });
        for (int i = 0; i < 20; ++i) {
            dump();
            dunlin::sleep_for(1ms);
        }
        stop = true;
        computing.wait();
        EXPECT_EQ(std::count(memory.begin(), memory.begin() + below, 0x5a), static_cast<std::ptrdiff_t>(below));
    });
}

// A fault while a stack is looked at would be the program's then: only the function in which a goroutine computes is
// said.
TEST_P(Dump, OfAProgramWhoseHandlersReplaceOurs) {
    if (support::under_thread)
        GTEST_SKIP() << "ThreadSanitizer keeps a signal until the thread calls something that it knows";
    run([] {
        const own_handler faults(SIGSEGV), bus(SIGBUS);
        enough = false;
        handled = 0;
        dunlin::wait_group group;
        const dunlin::chan<int> silent;
        group.go({.name = "hog"}, [] { first_hog(1); });
        group.go({.name = "waits"}, [&] { silent.recv(); });
        support::eventually([] {
            const std::string text = dump();
            return part_of(text, "waits").find("chan receive") != std::string::npos &&
                   part_of(text, "hog").find("first_hog") != std::string::npos;
        });
        EXPECT_EQ(handled, 0u) << "no signal of a dump's own goes to the program";
        enough = true;
        silent.close();
        group.wait();
    });
}

// go1.24 src/runtime/pprof/pprof_test.go, TestTracebackAll; OBS-09.
TEST_P(Dump, IsWellFormedUnderLoad) {
    run([] {
        std::atomic<bool> stop{false};
        dunlin::wait_group load;
        for (int i = 0; i < 8; ++i) {
            load.go([&stop] {
                while (!stop) dunlin::yield();
            });
            load.go([&stop] {
                while (!stop) {
                    dunlin::wait_group wg;
                    for (int k = 0; k < 10; ++k) wg.go([] { dunlin::sleep_for(1us); });
                    wg.wait();
                }
            });
        }
        const std::regex form(R"re(goroutine \d+( "[^"]*")? \[[^\]]+\]:)re");
        for (int i = 0; i < (support::sanitized ? 10 : 334); ++i) {  // a thousand, with all numbers of processors
            const std::string text = dump();
            const auto headers = headers_of(text);
            ASSERT_GE(count_of(text), 17u) << text;
            for (const std::string& header : headers) ASSERT_TRUE(std::regex_match(header, form)) << header;
            if (i % 5 == 0) dunlin::yield();
        }
        stop = true;
        load.wait();
    });
}

// What differs in anything that is shown stands by itself.
TEST_P(Dump, ThoseThatAreAlikeAreOneParagraph) {
    run([] {
        constexpr unsigned each = 100;
        dunlin::wait_group gate, all;
        gate.add(1);
        const auto wait = [gate] { gate.wait(); };
        for (unsigned i = 0; i < each; ++i) all.go(wait);
        for (unsigned i = 0; i < each; ++i) all.go({.name = "named"}, wait);
        for (unsigned i = 0; i < each; ++i) all.go({.name = "by number " + std::to_string(i % 2)}, wait);
        for (unsigned i = 0; i < each; ++i) all.go({.labels = {{"request", std::to_string(i % 4)}}}, wait);
        for (unsigned i = 0; i < each; ++i) {
            all.go([gate] {
                gate.wait();
                dunlin::yield();
            });
        }
        support::eventually([] { return dunlin::runtime::stats().waiting == 5 * each; });
        const std::string text = dump();
        EXPECT_EQ(headers_of(text).size(), 1u + 1 + 1 + 2 + 4 + 1) << text;
        EXPECT_EQ(count_of(text), 1 + 5 * each) << text;
        EXPECT_NE(part_of(text, "named").find("\n    and 99 like it: "), std::string::npos) << text;
        EXPECT_NE(part_of(text, "by number 1").find("\n    and 49 like it: "), std::string::npos) << text;
        gate.done();
        all.wait();
    });
}

TEST_P(Dump, FromAPlainThread) {
    run([] {
        dunlin::wait_group gate;
        gate.add(1);
        for (int i = 0; i < 30; ++i) dunlin::go([gate] { gate.wait(); });
        support::eventually([] { return dunlin::runtime::stats().waiting == 30; });
        std::string text;
        std::thread([&text] { text = dump(); }).join();
        EXPECT_EQ(count_of(text), 31u) << text;
        gate.done();
    });
}

class Stats : public support::each_p {};
EACH_P(Stats);

TEST_P(Stats, CountGoroutinesByState) {
    run([this] {
        auto s = dunlin::runtime::stats();
        EXPECT_EQ(s.max_procs, procs());
        EXPECT_EQ(s.goroutines, 1u);
        EXPECT_EQ(s.running, 1u);
        EXPECT_EQ(s.waiting, 0u);
        EXPECT_EQ(s.runnable, 0u);
        dunlin::wait_group gate;
        gate.add(1);
        for (int i = 0; i < 100; ++i) dunlin::go([gate] { gate.wait(); });
        support::eventually([] { return dunlin::runtime::stats().waiting == 100; });
        s = dunlin::runtime::stats();
        EXPECT_EQ(s.goroutines, 101u);
        EXPECT_EQ(s.running, 1u);
        EXPECT_GE(s.stacks_in_use, 100u);
        EXPECT_GE(s.procs.size(), procs());
        gate.done();
        support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });
    });
}

TEST_P(Stats, CountWhatProcessorsDid) {
    run([] {
        const auto sum = [](const dunlin::runtime::runtime_stats& s,
                             std::uint64_t dunlin::runtime::processor_stats::*field) {
            std::uint64_t n = 0;
            for (const auto& p : s.procs) n += p.*field;
            return n;
        };
        using p = dunlin::runtime::processor_stats;
        const auto before = dunlin::runtime::stats();
        for (int i = 0; i < 1000; ++i) dunlin::spawn([] {}).get();
        for (int i = 0; i < 500; ++i) dunlin::yield();
        support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });
        const auto after = dunlin::runtime::stats();
        EXPECT_EQ(sum(after, &p::created) - sum(before, &p::created), 1000u);
        EXPECT_EQ(sum(after, &p::ended) - sum(before, &p::ended), 1000u);
        EXPECT_GE(sum(after, &p::yields) - sum(before, &p::yields), 500u);
        EXPECT_LE(sum(after, &p::in_place_joins) - sum(before, &p::in_place_joins), 1000u);
        for (const auto& one : after.procs) {
            std::uint64_t stolen = 0;
            for (const std::uint64_t n : one.stolen_from) stolen += n;
            EXPECT_EQ(stolen, one.stolen);
            EXPECT_LE(one.steals, one.stolen);
        }
    });
}

TEST_P(Stats, CountWhatIsStolen) {
    if (procs() == 1) GTEST_SKIP() << "nobody to steal from";
    run([] {
        const auto before = dunlin::runtime::stats().stolen;
        // Work for all, on the queue of one.
        while (dunlin::runtime::stats().stolen == before) {
            dunlin::wait_group wg;
            for (int i = 0; i < 100; ++i) {
                wg.go([] {
                    const auto until = dunlin::clock::now() + 20us;
                    while (dunlin::clock::now() < until) {}
                });
            }
            wg.wait();
        }
    });
}

// Fairness of yield at P = 1: two that yield are never more than one turn apart.
class Yield : public support::runtime_test {};

TEST_F(Yield, TwoYieldersAreNeverMoreThanOneTurnApart) {
    dunlin::run({.max_procs = 1}, [] {
        struct round_result {
            long worst;
            bool both;
        };
        const auto round = [] {
            const long turns = support::rounds(100'000);
            std::atomic<long> count[2] = {0, 0};
            // One that was preempted may execute beside the other for a moment.
            std::atomic<long> worst{0};
            std::atomic<bool> both{false};
            for (int i = 0; i < 2; ++i) {
                dunlin::go([&, i] {
                    while (count[i] < turns) {
                        ++count[i];
                        const long a = count[0], b = count[1];
                        if (a > 0 && b > 0 && a < turns && b < turns) {
                            if (std::abs(a - b) > worst) worst = std::abs(a - b);
                            both = true;
                        }
                        dunlin::yield();
                    }
                });
            }
            support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });
            return round_result{worst, both};
        };
        // No goroutine readies another, so the end of a slice changes nothing.
        const round_result r = support::undisturbed(round, 1h);
        EXPECT_TRUE(r.both);
        EXPECT_LE(r.worst, 1);
    });
}

TEST_F(Yield, OfManyGoroutinesGivesEachItsTurn) {
    dunlin::run({.max_procs = 1}, [] {
        const auto round = [] {
            constexpr int n = 100;
            std::vector<int> count(n);
            std::atomic<bool> done{false};
            for (int i = 0; i < n; ++i) {
                dunlin::go([&, i] {
                    while (!done) {
                        ++count[static_cast<std::size_t>(i)];
                        dunlin::yield();
                    }
                });
            }
            for (int i = 0; i < 1000; ++i) dunlin::yield();
            done = true;
            support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });
            return count;
        };
        const std::vector<int> count = support::undisturbed(round, 1h);
        const auto [least, most] = std::minmax_element(count.begin(), count.end());
        // The global queue goes first every 61st turn, which moves places.
        EXPECT_GT(*least, 800);
        EXPECT_LE(*most - *least, 150);
    });
}

}  // namespace
