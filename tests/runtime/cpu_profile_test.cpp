// The CPU profile from inside a program: begin, end, what is refused, and signals at any moment. What it shows:
// tests/tools/profile_test.py.
#include <gtest/gtest.h>

#include <csetjmp>
#include <csignal>
#include <ctime>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>

#include <dunlin/dunlin.hpp>

namespace {

std::int64_t process_cpu_ns() {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

TEST(CpuProfile, RunsOnceAtATimeAndCountsWhatIsAsked) {
    std::ostringstream none;
    dunlin::runtime::stop_cpu_profile(none);
    EXPECT_EQ(none.str(), "");
    EXPECT_THROW(dunlin::runtime::start_cpu_profile(0), std::invalid_argument);
    EXPECT_THROW(dunlin::runtime::start_cpu_profile(1001), std::invalid_argument);
    dunlin::runtime::start_cpu_profile();
    try {
        dunlin::runtime::start_cpu_profile();
        ADD_FAILURE() << "it runs twice";
    } catch (const std::system_error& e) {
        EXPECT_EQ(e.code(), std::errc::device_or_resource_busy);
    }
    std::ostringstream out;
    dunlin::runtime::stop_cpu_profile(out, dunlin::runtime::profile_format::text);
    EXPECT_EQ(out.str().substr(0, 12), "cpu profile:");
}

// Switches, parks, steals, ends and preemptions are interrupted wherever they are.
TEST(CpuProfile, InterruptsTheSchedulerAnywhere) {
    for (const unsigned processors : {1u, 2u, 8u}) {
        std::ostringstream out;
        dunlin::run({.max_procs = processors}, [&] {
            dunlin::runtime::start_cpu_profile(1000);
            const std::int64_t until = process_cpu_ns() + 400'000'000;
            dunlin::wait_group all;
            for (int k = 0; k < 8; ++k) {
                all.go([&] {
                    while (process_cpu_ns() < until) {
                        const dunlin::chan<int> c;
                        dunlin::go(dunlin::go_options{.labels = {{"a", "label"}}}, [c] { c.send(1); });
                        EXPECT_EQ(*c.recv(), 1);
                        dunlin::spawn([] { dunlin::yield(); }).get();
                        dunlin::blocking([] {});
                    }
                });
            }
            all.wait();
            dunlin::runtime::stop_cpu_profile(out, dunlin::runtime::profile_format::text);
        });
        EXPECT_NE(out.str().find(" @ "), std::string::npos) << processors;
    }
}

TEST(CpuProfile, PassesSignalsOfOthersOn) {
    // The first profile of this process has replaced the handler that was there: none. So they are dropped, and do not
    // end the process.
    dunlin::runtime::start_cpu_profile();
    raise(SIGPROF);
    std::ostringstream out;
    dunlin::runtime::stop_cpu_profile(out);
    raise(SIGPROF);
}

volatile std::sig_atomic_t signals_of_others = 0;

// What the program has done with SIGPROF between two profiles is no matter, and what it has installed gets what is its.
// Samples come with the kernel's ticks, of which a virtual machine that has to wait for its CPUs loses some, and the
// monitor's thread may have the first one: so it computes until this goroutine has one.
TEST(CpuProfile, AHandlerThatWasInstalledSinceTheLastOneIsReplaced) {
    using handler = void (*)(int);
    const handler others = [](int) { signals_of_others = signals_of_others + 1; };
    for (const handler before : {handler{SIG_DFL}, handler{SIG_IGN}, others}) {
        std::string text;
        for (int profiles = 0; profiles < 100 && text.find(" @ ") == text.npos; ++profiles) {
            std::signal(SIGPROF, before);
            std::ostringstream out;
            dunlin::run([&] {
                dunlin::runtime::start_cpu_profile(1000);
                for (const std::int64_t until = process_cpu_ns() + 50'000'000; process_cpu_ns() < until;) {
                }
                signals_of_others = 0;
                raise(SIGPROF);
                EXPECT_EQ(signals_of_others, before == others ? 1 : 0);
                dunlin::runtime::stop_cpu_profile(out, dunlin::runtime::profile_format::text);
            });
            text = out.str();
        }
        EXPECT_NE(text.find(" @ "), text.npos) << text;
    }
}

struct sigaction found_by_program;
sigjmp_buf out_of_handler;

void passes_on(int signal, siginfo_t* info, void* context) {
    signals_of_others = signals_of_others + 1;
    found_by_program.sa_sigaction(signal, info, context);
}
void leaves(int, siginfo_t*, void*) {
    signals_of_others = signals_of_others + 1;
    siglongjmp(out_of_handler, 1);
}

[[gnu::noinline]] void raise_and_come_back() {
    if (sigsetjmp(out_of_handler, 1) == 0) raise(SIGPROF);
}

// One that passes on to ours, which it found, has each signal once; so has one that leaves by siglongjmp().
TEST(CpuProfile, AHandlerOfTheProgramMayPassOnToTheOneThatItFoundOrLeave) {
    for (const auto handler : {passes_on, leaves}) {
        std::ostringstream none;
        dunlin::runtime::start_cpu_profile();
        dunlin::runtime::stop_cpu_profile(none);
        struct sigaction mine {};
        mine.sa_sigaction = handler;
        mine.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigaction(SIGPROF, &mine, &found_by_program);
        dunlin::runtime::start_cpu_profile();
        signals_of_others = 0;
        for (int i = 1; i <= 3; ++i) {
            raise_and_come_back();
            EXPECT_EQ(signals_of_others, i);
        }
        dunlin::runtime::stop_cpu_profile(none);
        std::signal(SIGPROF, SIG_IGN);
    }
}

}  // namespace
