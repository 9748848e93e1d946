// Child processes: streams, statuses, waiting from anywhere, ends that are not waited for.
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <dunlin/fs.hpp>

#include "fs/process.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;
using dunlin::process;
using dunlin::process_options;
using dunlin::process_stream;

namespace {

class Process : public support::each_p {};
EACH_P(Process);
class ProcessAnywhere : public support::runtime_test {};

std::vector<std::string> shell(std::string script) { return {"/bin/sh", "-c", std::move(script)}; }

std::string read_all(dunlin::byte_stream& from) {
    std::string text;
    char buffer[4096];
    while (const std::size_t n = from.read_some(buffer)) text.append(buffer, n);
    return text;
}

template <class F>
std::string error_text(F f) {
    try {
        f();
    } catch (const std::exception& e) {
        return e.what();
    }
    return "no error";
}

bool exists(int pid) { return ::kill(pid, 0) == 0; }

TEST_P(Process, TellsHowItEnded) {
    run([] {
        EXPECT_TRUE(process({"true"}).wait().success());
        EXPECT_EQ(process({"false"}).wait().code, 1);
        EXPECT_EQ(process(shell("exit 77")).wait().code, 77);
        const dunlin::exit_status killed = process(shell("kill -KILL $$")).wait();
        EXPECT_EQ(killed.signal, SIGKILL);
        EXPECT_EQ(killed.code, -1);
        EXPECT_FALSE(killed.success());
    });
}

TEST_P(Process, HasStreamsToAndFromIt) {
    run([] {
        process p({"cat"}, {.input = process_stream::pipe, .output = process_stream::pipe});
        EXPECT_GT(p.id(), 0);
        EXPECT_FALSE(p.standard_error());
        for (int i = 0; i < 20; ++i) {
            const std::string line = std::to_string(i) + '\n';
            p.standard_input().write_all(line);
            std::string back(line.size(), ' ');
            p.standard_output().read_exactly(back);
            ASSERT_EQ(back, line);
        }
        p.standard_input().close();
        EXPECT_EQ(read_all(p.standard_output()), "");
        EXPECT_TRUE(p.wait().success());
        EXPECT_FALSE(p.kill());
    });
}

TEST_P(Process, StandardErrorGoesWhereItIsTold) {
    run([] {
        const std::string script = "echo out; echo err >&2";
        process together(shell(script), {.output = process_stream::pipe, .error = process_stream::output});
        EXPECT_EQ(read_all(together.standard_output()), "out\nerr\n");
        process apart(shell(script), {.output = process_stream::null, .error = process_stream::pipe});
        EXPECT_EQ(read_all(apart.standard_error()), "err\n");
        process none(shell("read x; exit $?"), {.input = process_stream::null});
        EXPECT_EQ(none.wait().code, 1);
        apart.wait();
        together.wait();
    });
}

// In packet mode, which the writer chooses, a short read does not mean that nothing is left.
TEST_P(Process, EachPacketOfItsOutputIsRead) {
    run([] {
        process child({"sleep", "60"}, {.output = process_stream::pipe});
        const int writer = open(("/proc/" + std::to_string(child.id()) + "/fd/1").c_str(), O_WRONLY | O_CLOEXEC);
        ASSERT_GE(writer, 0);
        ASSERT_EQ(fcntl(writer, F_SETFL, O_DIRECT), 0);
        ASSERT_EQ(write(writer, "a", 1), 1);
        ASSERT_EQ(write(writer, "b", 1), 1);
        dunlin::sleep_for(20ms);  // the poller has told that there is something to read
        child.standard_output().set_read_deadline(10s);
        char got[8];
        for (const char wanted : {'a', 'b'}) {
            std::error_code ec;
            EXPECT_EQ(child.standard_output().read_some(got, ec), 1u) << ec.message();
            EXPECT_EQ(got[0], wanted);
        }
        close(writer);
        child.kill(SIGKILL);
        child.wait();
    });
}

TEST_P(Process, StartsInItsDirectoryWithItsEnvironment) {
    run([] {
        process in_root({"pwd"}, {.output = process_stream::pipe, .directory = "/"});
        EXPECT_EQ(read_all(in_root.standard_output()), "/\n");
        process_options options{.output = process_stream::pipe};
        options.environment = dunlin::process_environment{{"ONE", "1"}, {"TWO", "=2="}};
        process clean({"/usr/bin/env"}, options);
        EXPECT_EQ(read_all(clean.standard_output()), "ONE=1\nTWO==2=\n");
        in_root.wait();
        clean.wait();
    });
}

// Descriptor 3 of ls is the directory that it lists.
TEST_P(Process, InheritsNoDescriptors) {
    const int careless = open("/dev/null", O_RDONLY);  // not O_CLOEXEC
    ASSERT_GE(careless, 0);
    run([] {
        auto [r, w] = dunlin::fs::pipe();
        EXPECT_EQ(process::run({"ls", "/proc/self/fd"}).output, "0\n1\n2\n3\n");
    });
    close(careless);
}

TEST_P(Process, InheritsNoSignalMask) {
    run([] {
        const std::string mask = process::run(shell("grep -E 'SigBlk|SigIgn' /proc/self/status")).output;
        EXPECT_NE(mask.find("SigBlk:\t0000000000000000"), std::string::npos) << mask;
        const auto ignored = std::stoull(mask.substr(mask.find("SigIgn:") + 7), nullptr, 16);
        EXPECT_EQ(ignored >> (SIGPIPE - 1) & 1, 0u);
    });
}

// The runtime's threads have settings of their own (docs/decisions/026-short-slices.md); this one can be read without
// tools.
TEST_P(Process, InheritsNoTimerSlack) {
    const auto slack_ns = [] { return prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0); };
    const std::string ours = std::to_string(slack_ns()) + "\n";
    run([&] {
        const dunlin::os_thread_lock wired;
        prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);  // as a thread has it that has slept for timers
        EXPECT_EQ(process::run({"cat", "/proc/self/timerslack_ns"}).output, ours);
        EXPECT_EQ(slack_ns(), 1) << "the goroutine's thread has its own again";
    });
}

TEST_P(Process, ErrorsNameTheProgram) {
    run([] {
        EXPECT_EQ(
            error_text([] { process({"/no/such/program"}); }), "start /no/such/program: no such file or directory");
        EXPECT_EQ(error_text([] { process({"no-such-program-anywhere"}); }),
            "start no-such-program-anywhere: no such file or directory");
        EXPECT_EQ(error_text([] { process({"/etc/passwd"}); }), "start /etc/passwd: permission denied");
        EXPECT_EQ(error_text([] { process({"true"}, {.directory = "/no/such"}); }),
            "start true in /no/such: no such file or directory");
        EXPECT_THROW(process(std::vector<std::string>{}), std::invalid_argument);
        EXPECT_THROW(process({"true"}, {.output = process_stream::output}), std::invalid_argument);
        EXPECT_THROW(process({"true"}, {.input = process_stream::output}), std::invalid_argument);
        EXPECT_THROW(process({"echo", std::string("a\0b", 3)}), std::invalid_argument);
        process_options options;
        options.environment = dunlin::process_environment{{"A=B", "c"}};
        EXPECT_THROW(process({"true"}, options), std::invalid_argument);
        process none;
        EXPECT_EQ(none.id(), -1);
        EXPECT_FALSE(none.kill());
        EXPECT_TRUE(none.done().is_nil());
        EXPECT_EQ(error_text([&] { none.wait(); }), "wait for a process that was never started");
        process sleeper({"sleep", "60"});
        EXPECT_EQ(error_text([&] { sleeper.kill(12345); }),
            "send signal 12345 to process " + std::to_string(sleeper.id()) + " (sleep): invalid argument");
        EXPECT_TRUE(sleeper.kill(SIGKILL));
        EXPECT_EQ(sleeper.wait().signal, SIGKILL);
    });
}

TEST_P(Process, ManyMayWaitForOneChild) {
    run([] {
        process p({"sleep", "60"});
        dunlin::wait_group done;
        std::atomic<int> told{0};
        for (int i = 0; i < 10; ++i) {
            done.go([&] {
                if (p.wait().signal == SIGTERM) ++told;
            });
        }
        std::thread outside([&] {
            if (p.wait().signal == SIGTERM) ++told;
        });
        auto status = p.done();
        done.go([&] {
            if (const auto s = status.recv(); s && s->signal == SIGTERM) ++told;
        });
        dunlin::sleep_for(1ms);
        EXPECT_TRUE(p.kill());
        done.wait();
        outside.join();
        EXPECT_EQ(told.load(), 12);
        EXPECT_FALSE(status.recv());
        EXPECT_EQ(p.wait().signal, SIGTERM);
        EXPECT_FALSE(p.kill());
    });
}

TEST_P(Process, AWaitEndsWithItsContext) {
    run([] {
        process p({"sleep", "60"});
        auto ctx = dunlin::with_timeout(dunlin::context::background(), 2ms);
        EXPECT_EQ(error_text([&] {
            p.wait(ctx);
        }).find("wait for process " + std::to_string(p.id()) + " (sleep): context deadline exceeded"),
            0u);
        EXPECT_EQ(dunlin::select(dunlin::on_recv(p.done()), dunlin::on_timeout(1ms)), 1u);
        p.kill();
        dunlin::exit_status status;
        dunlin::select(dunlin::on_recv(p.done(), [&](std::optional<dunlin::exit_status> s) { status = *s; }),
            dunlin::on_timeout(20s));
        EXPECT_EQ(status.signal, SIGTERM);
    });
}

// More than any pipe holds, both ways and on both outputs.
TEST_P(Process, RunWithMuchOnAllStreams) {
    run([] {
        const std::string much(500'000, 'x');
        const process::result r = process::run(shell("tee /dev/stderr"), much);
        EXPECT_TRUE(r.status.success());
        EXPECT_EQ(r.output, much);
        EXPECT_EQ(r.error, much);
        EXPECT_EQ(process::run({"true"}, much).status.code, 0);  // it reads nothing of it
        EXPECT_EQ(process::run(shell("exec >&- 2>&-; exit 3")).status.code, 3);
    });
}

TEST_P(Process, RunsUntilItIsCancelled) {
    run([] {
        auto ctx = dunlin::with_timeout(dunlin::context::background(), 5ms);
        EXPECT_EQ(error_text([&] {
            process::run({"sleep", "60"}, {}, ctx);
        }).find("run sleep: context deadline exceeded"),
            0u);
        EXPECT_THROW(process::run({"sleep", "60"}, {}, ctx), dunlin::context_cancelled);
    });
}

// What the child has started holds its output open, and the child is gone.
TEST_P(Process, RunIsCancelledAlsoWhenOnlyTheOutputIsWaitedFor) {
    run([] {
        auto ctx = dunlin::with_timeout(dunlin::context::background(), 50ms);
        EXPECT_THROW(process::run(shell("echo part; sleep 3 &"), {}, ctx), dunlin::context_cancelled);
    });
}

// What the child has started holds its input open, and does not read it. The background command would get /dev/null as
// its input; so it is given another descriptor's.
TEST_P(Process, RunDropsInputThatOnlyWhatTheChildHasStartedCouldRead) {
    run([] {
        const auto ctx = dunlin::with_timeout(dunlin::context::background(), 15s);
        const process::result r = process::run(
            shell("exec 3<&0; sleep 60 <&3 >/dev/null 2>&1 & echo $!; exit 5"), std::string(1 << 20, 'x'), ctx);
        EXPECT_EQ(r.status.code, 5);
        EXPECT_EQ(::kill(std::stoi(r.output), SIGKILL), 0) << "run() has not waited for it";
    });
}

TEST_P(Process, DroppedChildrenAreReaped) {
    run([] {
        std::vector<int> children;
        for (int i = 0; i < 5; ++i) children.push_back(process({"true"}).id());
        for (const int pid : children) {
            while (exists(pid)) dunlin::sleep_for(1ms);
        }
    });
}

TEST_P(Process, ManyRunAtOnce) {
    run([] {
        dunlin::wait_group done;
        const int count = support::rounds(60);
        for (int i = 0; i < count; ++i) {
            done.go([i] {
                const process::result r =
                    process::run(shell("cat; exit " + std::to_string(i)), "input " + std::to_string(i));
                EXPECT_EQ(r.status.code, i);
                EXPECT_EQ(r.output, "input " + std::to_string(i));
            });
        }
        done.wait();
    });
}

TEST_P(Process, KillRacesWithTheEnd) {
    run([] {
        for (int i = 0; i < support::rounds(50); ++i) {
            process p({"true"});
            dunlin::wait_group done;
            for (int k = 0; k < 3; ++k) {
                done.go([&] {
                    while (p.kill(SIGUSR1)) dunlin::yield();
                });
            }
            const auto status = p.wait();
            EXPECT_TRUE(status.code == 0 || status.signal == SIGUSR1);
            done.wait();
        }
    });
}

TEST_P(Process, AGroupOfItsOwnIsKilledAsAWhole) {
    run([] {
        // the grandchild holds the output open
        process p(shell("sleep 60 & echo $!; wait"), {.output = process_stream::pipe, .own_group = true});
        EXPECT_EQ(getpgid(p.id()), p.id());
        char line[32] = {};
        ASSERT_GT(p.standard_output().read_some(line), 0u);
        const int grandchild = std::atoi(line);
        EXPECT_EQ(getpgid(grandchild), p.id());
        EXPECT_TRUE(p.kill_group(SIGKILL));
        EXPECT_EQ(p.wait().signal, SIGKILL);
        EXPECT_EQ(read_all(p.standard_output()), "");
        EXPECT_FALSE(p.kill_group());
        EXPECT_FALSE(process().kill_group());
        process other({"sleep", "60"});
        EXPECT_THROW(other.kill_group(), std::logic_error);
        std::error_code ec;
        EXPECT_FALSE(other.kill_group(SIGTERM, ec));
        EXPECT_EQ(ec, std::errc::invalid_argument);
        EXPECT_EQ(getpgid(other.id()), getpgid(0));
        EXPECT_TRUE(other.kill(SIGKILL));
        other.wait();
    });
}

TEST_P(Process, RunTakesOptionsAndKillsTheGroup) {
    run([] {
        EXPECT_EQ(process::run({"pwd"}, {}, {}, {.directory = "/"}).output, "/\n");
        const auto ctx = dunlin::with_timeout({}, 100ms);
        const auto script = shell("sleep 61.25 & wait");
        EXPECT_THROW(process::run(script, {}, ctx, {.own_group = true}), dunlin::context_cancelled);
        const auto runs = [] { return process::run({"pgrep", "-f", "sleep 61.2[5]"}).status.success(); };
        for (int i = 0; i < 100 && runs(); ++i) dunlin::sleep_for(20ms);
        EXPECT_FALSE(runs());
    });
}

TEST_P(Process, WorksWithoutPidfd) {
    dunlin::fs::use_pidfd = false;
    run([] {
        process p({"sleep", "60"});
        process q(shell("exit 5"));
        EXPECT_EQ(q.wait().code, 5);
        EXPECT_TRUE(p.kill(SIGTERM));
        EXPECT_EQ(p.wait().signal, SIGTERM);
        EXPECT_FALSE(p.kill(SIGTERM));
    });
    dunlin::fs::use_pidfd = true;
}

TEST_F(ProcessAnywhere, WorksOnThreadsOnly) {
    const process::result r = process::run(shell("cat; echo error >&2; exit 4"), "text");
    EXPECT_EQ(r.output, "text");
    EXPECT_EQ(r.error, "error\n");
    EXPECT_EQ(r.status.code, 4);
}

TEST_F(ProcessAnywhere, OutlivesARun) {
    process p;
    dunlin::run([&] {
        p = process({"cat"}, {.input = process_stream::pipe, .output = process_stream::pipe});
        dunlin::go([&] { p.wait(); });  // frozen at the end
        dunlin::yield();
    });
    dunlin::run([&] {
        p.standard_input().close();
        EXPECT_EQ(p.wait().code, 0);
    });
    EXPECT_EQ(p.wait().code, 0);
}

std::ptrdiff_t open_descriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

// The starter is left in the constructor, which must watch the child all the same.
TEST_F(ProcessAnywhere, AChildThatIsStartedAsARunEndsIsReaped) {
    for (int round = 0; round < support::rounds(40); ++round) {
        dunlin::run([round] {
            dunlin::go([] {
                const process p({"true"});
                dunlin::sleep_for(1h);
            });
            dunlin::blocking([round] { ::usleep(static_cast<useconds_t>(50 * (round % 20))); });
        });
    }
    support::eventually([] {
        siginfo_t ended{};
        return waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0;
    });
}

TEST_P(Process, RunTakesAContextOrOptionsWithoutInput) {
    run([] {
        const process_options in_root{.directory = "/"};
        EXPECT_EQ(process::run({"pwd"}, in_root).output, "/\n");
        auto [ctx, cancel] = dunlin::with_timeout(dunlin::context::background(), 20ms);
        EXPECT_THROW(process::run({"sleep", "100"}, ctx), dunlin::context_cancelled);
        EXPECT_EQ(error_text([] { process p({"no such program"}); }),
            "start \"no such program\" (each argument is an element of its own): no such file or directory");
    });
}

TEST_F(ProcessAnywhere, LeavesNoDescriptorsBehind) {
    process({"true"}).wait();  // what is made once
    const std::ptrdiff_t before = open_descriptors();
    dunlin::run([] {
        for (int i = 0; i < 20; ++i) {
            process::run({"true"});
            EXPECT_THROW(process::run({"/no/such/program"}), dunlin::io_error);
            process({"true"}, {.input = process_stream::pipe, .output = process_stream::pipe}).wait();
        }
    });
    // For moments the monitor has files of /proc open.
    support::eventually([before] { return open_descriptors() <= before; });
}

// With descriptors 0 to 2 closed, the pipes get these numbers. In a process of its own.
TEST_F(ProcessAnywhere, DISABLED_WithoutStandardStreams) {
    const process::result r = process::run(shell("cat; echo error >&2"), "text");
    if (r.output != "text" || r.error != "error\n" || !r.status.success()) _exit(1);
    process quiet(shell("exit 7"), {.input = process_stream::pipe, .error = process_stream::pipe});
    _exit(read_all(quiet.standard_error()).empty() && quiet.wait().code == 7 ? 77 : 2);
}

TEST_F(ProcessAnywhere, WithoutStandardStreamsOfOurOwn) {
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    const process::result r = process::run(shell("exec <&- >&- 2>&-; exec " + self +
        " --gtest_also_run_disabled_tests --gtest_filter=ProcessAnywhere.DISABLED_WithoutStandardStreams"));
    EXPECT_EQ(r.status.code, 77) << r.status.signal;
}

// In a process of its own: attaches to the process whose number is in the environment, and never fetches its status.
TEST_F(ProcessAnywhere, DISABLED_Debugger) {
    const int pid = std::atoi(std::getenv("DUNLIN_TEST_PID"));
    if (ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) != 0) _exit(1);
    dunlin::blocking([] {
        if (write(STDOUT_FILENO, "attached", 8) != 8) _exit(2);
        pause();
    });
}

TEST_F(ProcessAnywhere, ADebuggerThatHoldsAStatusBackHoldsUpNoOtherChild) {
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    process held({"sleep", "100"}), other({"sleep", "100"});
    process debugger({"env", "DUNLIN_TEST_PID=" + std::to_string(held.id()), self, "--gtest_also_run_disabled_tests",
                         "--gtest_filter=ProcessAnywhere.DISABLED_Debugger"},
        {.output = process_stream::pipe});
    std::string text;
    char buffer[4096];
    while (text.find("attached") == text.npos) {
        const std::size_t n = debugger.standard_output().read_some(buffer);
        text.append(buffer, n);
        if (n == 0) break;
    }
    held.kill(SIGKILL);
    const auto soon = dunlin::with_timeout({}, 50ms);
    const bool attached = text.find("attached") != text.npos;
    if (attached) {
        EXPECT_THROW(held.wait(soon), dunlin::context_cancelled);
    }
    other.kill(SIGKILL);
    EXPECT_EQ(other.wait(dunlin::with_timeout({}, 20s)).signal, SIGKILL);
    debugger.kill(SIGKILL);
    debugger.wait();
    EXPECT_EQ(held.wait().signal, SIGKILL) << "it is not lost";
    if (!attached) GTEST_SKIP() << "this process must not attach to another one";
}

// Nothing else would say why the wait does not end.
TEST_F(ProcessAnywhere, AWaitAfterTheProgramHasClosedAllDescriptorsEndsIt) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    for (const bool by_channel : {false, true}) {
        EXPECT_EXIT(
            {
                alarm(20);
                dunlin::run([by_channel] {
                    process p({"sleep", "5"});
                    closefrom(3);
                    by_channel ? static_cast<void>(p.done().recv()) : static_cast<void>(p.wait());
                });
            },
            testing::KilledBySignal(SIGABRT), "the end of a process, or a signal, cannot be seen");
    }
}

}  // namespace
