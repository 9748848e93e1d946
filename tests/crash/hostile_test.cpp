// Surroundings that are hostile: whatever they are, a program works, or says in a line why not. None hangs, and none
// crashes without a word.
#include <csignal>
#include <cstddef>
#include <fcntl.h>
#include <functional>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <string>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "support/build.h"
#include "support/child.h"

namespace {

constexpr int cannot = 77;  // what before_exec ends with where the surroundings cannot be made

support::child_result run(const std::string& scenario, int processors, std::function<void()> surroundings = {}) {
    return support::run_child("hostile", {scenario}, {.environment = {{"DUNLIN_MAXPROCS", std::to_string(processors)}},
        .before_exec = std::move(surroundings), .timeout = std::chrono::seconds(120)});
}

void limit(int resource, rlim_t to) {
    const rlimit both{to, to};
    if (setrlimit(resource, &both) != 0) _exit(cannot);
}

// Without those that the program that started the tests has left open.
void limit_descriptors(rlim_t to) {
    for (int fd = STDERR_FILENO + 1; fd < 256; ++fd) fcntl(fd, F_SETFD, FD_CLOEXEC);
    limit(RLIMIT_NOFILE, to);
}

// The calls fail with `error` from here on.
void refuse(std::vector<long> calls, int error) {
    std::vector<sock_filter> code{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
    for (const long call : calls) {
        code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1));
        code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)));
    }
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(cannot);
}

void expect_worked(const support::child_result& r) {
    if (r.status == cannot) GTEST_SKIP() << "it cannot be made here";
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "worked\n") << r;
}

void expect_worked_or_said(const support::child_result& r, const std::string& why) {
    if (r.status == cannot) GTEST_SKIP() << "it cannot be made here";
    EXPECT_FALSE(r.timed_out) << r;
    EXPECT_EQ(r.signal, 0) << r;
    if (r.status == 0) {
        EXPECT_EQ(r.out, "worked\n") << r;
    } else {
        EXPECT_NE((r.out + r.err).find(why), std::string::npos) << r;
    }
}

class Hostile : public testing::TestWithParam<int> {
protected:
    support::child_result run(const std::string& scenario, std::function<void()> surroundings = {}) {
        return ::run(scenario, GetParam(), std::move(surroundings));
    }
};

TEST_P(Hostile, LittleAddressSpaceIsEnoughOrSaid) {
    if (support::sanitized) GTEST_SKIP() << "sanitizers need address space without limits";
    for (const rlim_t mebibytes : {16, 32, 48, 64, 96, 128, 256, 1024, 4096}) {
        SCOPED_TRACE(mebibytes);
        const auto r = run("work", [=] { limit(RLIMIT_AS, mebibytes << 20); });
        // Below what the libraries of the program need, it is the dynamic linker that says so.
        if (r.status != 127) expect_worked_or_said(r, "bad_alloc");
    }
}

// The kernel counts stacks as data.
TEST_P(Hostile, ALimitOfDataMakesStacksSmaller) {
    if (support::sanitized) GTEST_SKIP() << "sanitizers need more";
    expect_worked(run("many", [] { limit(RLIMIT_DATA, rlim_t{1} << 30); }));
}

TEST_P(Hostile, FewThreadsAreEnoughOrSaid) {
    if (support::sanitized || getuid() != 0) GTEST_SKIP() << "another user is needed, who has no other thread";
    for (const rlim_t threads : {1, 2, 3, 4, 5, 6, 8, 10, 15, 20}) {
        SCOPED_TRACE(threads);
        // One that never calls the runtime keeps its thread, which may be the only one: crash/shortage has that.
        const auto r = run(threads < 15 ? "work_that_calls" : "work", [=] {
            limit(RLIMIT_NPROC, threads);
            constexpr unsigned nobody = 64321;
            if (setgroups(0, nullptr) != 0 || setresgid(nobody, nobody, nobody) != 0 ||
                setresuid(nobody, nobody, nobody) != 0)
                _exit(cannot);
        });
        if (r.status == 127) GTEST_SKIP() << "the program cannot be read by others";
        expect_worked_or_said(r, "thread");
        if (r.status == 0 && r.elapsed < std::chrono::seconds(1)) {
            EXPECT_EQ(r.err.find("nothing is executed"), std::string::npos) << "it is said after a second\n" << r;
        }
    }
}

TEST_P(Hostile, FewDescriptorsAreEnoughOrSaid) {
    if (support::sanitized) GTEST_SKIP() << "sanitizers need descriptors of their own";
    for (const rlim_t descriptors : {4, 5, 8}) {
        SCOPED_TRACE(descriptors);
        expect_worked(run("work", [=] { limit_descriptors(descriptors); }));
    }
    for (const rlim_t descriptors : {4, 5, 10}) {  // in between, an accept waits: see the next test
        SCOPED_TRACE(descriptors);
        expect_worked_or_said(run("echo", [=] { limit_descriptors(descriptors); }), "too many open files");
    }
}

// A new thread would wait for the dynamic linker's lock to register a destructor.
TEST_P(Hostile, AGoroutineInALibrarysConstructorKeepsNoOther) {
    if (support::sanitized || support::emulated) GTEST_SKIP() << "the library is built as the program is, without a tool";
    for (int i = 0; i < 5; ++i) expect_worked(run("constructor_that_waits"));
}

TEST_P(Hostile, AGoroutineThatIsLeftInALibrarysConstructorKeepsNoLaterRun) {
    if (support::sanitized || support::emulated) GTEST_SKIP() << "as above";
    expect_worked(run("left_in_a_constructor"));
}

TEST_P(Hostile, AnAcceptThatWaitsForADescriptorSaysSo) {
    const auto r = run("accept_without_descriptors");
    expect_worked(r);
    EXPECT_EQ(r.err.find("dunlin: accept: Too many open files: connections wait"), 0u) << r;
    EXPECT_EQ(r.err.find('\n'), r.err.size() - 1) << r;
}

TEST_P(Hostile, AnyLimitOfTheStackIsGood) {
    if (support::sanitized) GTEST_SKIP() << "sanitizers need more than a tiny one";
    for (const rlim_t bytes : {RLIM_INFINITY, rlim_t{48} << 10, rlim_t{128} << 10, rlim_t{64} << 20}) {
        SCOPED_TRACE(bytes);
        expect_worked(run("work", [=] { limit(RLIMIT_STACK, bytes); }));
    }
}

TEST_P(Hostile, ItWorksWithoutWhatTheKernelMayRefuse) {
    if (support::sanitized) GTEST_SKIP() << "sanitizers need some of these";
    const std::vector<long> each{SYS_membarrier, SYS_rseq, SYS_tgkill, SYS_rt_tgsigqueueinfo, SYS_timer_create,
        SYS_sigaltstack, SYS_madvise, SYS_sched_getaffinity, SYS_epoll_create1, SYS_eventfd2, SYS_prctl,
        440 /* process_madvise */, 314 /* sched_setattr */};
    for (const int error : {EPERM, ENOSYS}) {
        for (const long call : each) {
            SCOPED_TRACE(std::to_string(call) + ", " + std::to_string(error));
            expect_worked(run("work", [=] { refuse({call}, error); }));
        }
        expect_worked(run("work", [=] { refuse(each, error); }));
    }
}

TEST_P(Hostile, WhatThePollerNeedsIsSaid) {
    if (support::sanitized) GTEST_SKIP() << "a filter is inherited by the sanitizer's own threads";
    for (const long call : {SYS_epoll_create1, SYS_eventfd2, SYS_epoll_ctl}) {
        SCOPED_TRACE(call);
        const auto r = run("echo", [=] { refuse({call}, ENOSYS); });
        expect_worked_or_said(r, "listen tcp 127.0.0.1:0: function not implemented");
        EXPECT_NE(r.status, 0) << r;
    }
    expect_worked(run("echo", [] { refuse({441 /* epoll_pwait2 */}, ENOSYS); }));
    const auto r = run("echo", [] { refuse({441, SYS_epoll_pwait,
#if defined(SYS_epoll_wait)
        SYS_epoll_wait
#endif
    }, ENOSYS); });
    EXPECT_EQ(r.signal, SIGABRT) << r;
    EXPECT_EQ(r.err.find("fatal: epoll_wait fails: the kernel, or a filter of system calls, refuses it\n"), 0u) << r;
}

TEST_P(Hostile, NothingIsNeededOfProc) {
    const auto without_proc = [] {
        if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
            umount2("/proc", MNT_DETACH) != 0)
            _exit(cannot);
    };
    if (support::sanitized) GTEST_SKIP() << "sanitizers need it";
    expect_worked(run("work", without_proc));
    expect_worked(run("echo", without_proc));
}

TEST_P(Hostile, AProcessThatIsStoppedAllTheTimeGetsOn) {
    for (const char* scenario : {"work", "echo"}) {
        expect_worked(run(scenario, [] {
            const pid_t watched = getpid();
            if (fork() != 0) return;
            for (const int end : {1, 2}) close(end);
            for (int i = 0; i < 1000 && kill(watched, SIGSTOP) == 0; ++i) {
                usleep(10'000);
                kill(watched, SIGCONT);
                usleep(10'000);
                if (getppid() != watched) break;  // it has ended
            }
            _exit(0);
        }));
    }
}

TEST_P(Hostile, TheMainThreadMayEndBeforeTheProgram) { expect_worked(run("main_thread_ends")); }

TEST_P(Hostile, AGoroutineThatEndsItsThreadEndsTheProcessWithAReport) {
    const auto r = run("goroutine_ends_its_thread");
    EXPECT_EQ(r.signal, SIGABRT) << r;
    EXPECT_EQ(r.out, "") << r;
    EXPECT_NE(r.err.find("in goroutine "), std::string::npos) << r;
    EXPECT_NE(r.err.find("pthread_exit() in a goroutine"), std::string::npos) << r;
}

TEST_P(Hostile, ChildrenAreMadeAtAnyMoment) {
    if (support::under_thread) GTEST_SKIP() << "ThreadSanitizer has a word of its own about them";
    expect_worked(run("children_at_any_moment"));
}

TEST_P(Hostile, ExitByThreeGoroutinesAmongHogsDestroysStaticObjectsThatUseTheRuntime) {
    const auto r = run("exit_among_hogs");
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.out, "destroyed\n") << r;
}

INSTANTIATE_TEST_SUITE_P(Processors, Hostile, testing::Values(1, 2, 8), testing::PrintToStringParamName());

}  // namespace
