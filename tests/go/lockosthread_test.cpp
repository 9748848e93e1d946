// lockosthread_test.cpp - ports of the thread-locking cases of go1.24 src/runtime/proc_test.go (SCH-03, 14, 16, 17, 18,
// 19).
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <dunlin/dunlin.hpp>

#include "support/build.h"

using namespace std::chrono_literals;

namespace {

pid_t thread_id() { return static_cast<pid_t>(syscall(SYS_gettid)); }

bool thread_exists(pid_t tid) { return std::filesystem::exists("/proc/self/task/" + std::to_string(tid)); }

// Within 10000 times 1 ms. Go has 100, in which a busy machine may not let the thread run.
bool ends(pid_t tid) {
    for (int i = 0; i < 10'000 && thread_exists(tid); ++i) dunlin::sleep_for(1ms);
    return !thread_exists(tid);
}

// SCH-03, TestYieldLockedProgress: a goroutine that yields in a loop lets others run, wired to its thread too.
TEST(GoLockOSThread, TestYieldLockedProgress) {
    dunlin::run({.max_procs = 1}, [] {
        std::atomic<bool> stop{false};
        dunlin::task<int> looper = dunlin::spawn([&] {
            dunlin::os_thread_lock wired;
            const pid_t tid = thread_id();
            int moved = 0;
            while (!stop) {
                dunlin::yield();
                moved += thread_id() != tid;
            }
            return moved;
        });
        for (int i = 0; i < 100; ++i) dunlin::yield();
        stop = true;
        EXPECT_EQ(looper.get(), 0);
    });
}

// SCH-14, TestLockOSThreadTemplateThreadRace: two goroutines wire themselves and start others while the world is
// stopped in a loop.
TEST(GoLockOSThread, TestLockOSThreadTemplateThreadRace) {
    const int rounds = support::sanitized ? 10 : 50;
    for (int round = 0; round < rounds; ++round) {
        dunlin::run({.max_procs = 4}, [] {
            std::atomic<bool> stop{false};
            dunlin::wait_group all;
            dunlin::task<void> stopper = dunlin::spawn([&] {
                for (unsigned n = 3; !stop; n = 7 - n) dunlin::runtime::set_max_procs(n);
            });
            std::atomic<int> ready{0};
            for (int i = 0; i < 2; ++i) {
                all.go([&] {
                    ++ready;
                    while (ready < 2) dunlin::yield();
                    dunlin::task<void> other = dunlin::spawn([] { dunlin::yield(); });
                    dunlin::os_thread_lock wired;
                    dunlin::yield();
                    other.get();
                });
            }
            all.wait();
            stop = true;
            stopper.get();
        });
    }
}

// SCH-16, TestYieldLocked: yields and sleeps without ever unlocking; the thread is gone afterwards.
TEST(GoLockOSThread, TestYieldLocked) {
    dunlin::run([] {
        const pid_t tid = dunlin::spawn([] {
                              dunlin::yield();  // so that it runs on a stack of its own, not in place
                              dunlin::lock_os_thread();
                              const pid_t here = thread_id();
                              for (int i = 0; i < 10; ++i) {
                                  dunlin::yield();
                                  dunlin::sleep_for(1ms);
                                  EXPECT_EQ(thread_id(), here);
                              }
                              return here;
                          }).get();
        EXPECT_TRUE(ends(tid));
    });
}

// SCH-17, TestLockOSThreadNesting: it takes as many unlocks as locks; one too many is nothing.
TEST(GoLockOSThread, TestLockOSThreadNesting) {
    dunlin::run({.max_procs = 2}, [] {
        dunlin::spawn([] {
            const pid_t tid = thread_id();
            dunlin::unlock_os_thread();
            dunlin::lock_os_thread();
            dunlin::lock_os_thread();
            dunlin::unlock_os_thread();
            for (int i = 0; i < 100; ++i) {
                dunlin::sleep_for(10us);
                EXPECT_EQ(thread_id(), tid);
            }
            dunlin::unlock_os_thread();
            dunlin::unlock_os_thread();
        }).get();
    });
}

// SCH-18, TestLockOSThreadExit (Alt): nothing else ever runs on the thread of a goroutine that ended wired, and the
// thread ends.
TEST(GoLockOSThread, TestLockOSThreadExitAlt) {
    dunlin::run({.max_procs = 1}, [] {
        for (int round = 0; round < (support::sanitized ? 5 : 50); ++round) {
            std::atomic<pid_t> wired_tid{0};
            dunlin::wait_group wg;
            wg.go([&] {
                dunlin::yield();
                dunlin::lock_os_thread();
                wired_tid = thread_id();
            });
            while (wired_tid == 0) dunlin::yield();
            std::atomic<int> seen{0};
            for (int i = 0; i < 20; ++i) {
                wg.go([&] {
                    dunlin::yield();
                    seen += thread_id() == wired_tid;
                });
            }
            wg.wait();
            EXPECT_EQ(seen, 0);
            EXPECT_TRUE(ends(wired_tid));
        }
    });
}

// SCH-19, TestLockOSThreadAvoidsStatePropagation: threads are not copies of one that a wired goroutine has changed.
TEST(GoLockOSThread, TestLockOSThreadAvoidsStatePropagation) {
    dunlin::run({.max_procs = 4}, [] {
        cpu_set_t before;
        ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
        dunlin::spawn([] {
            dunlin::yield();
            dunlin::lock_os_thread();
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(static_cast<unsigned>(sched_getcpu()), &one);
            sched_setaffinity(0, sizeof one, &one);
            prctl(PR_SET_NAME, "altered");
            // It needs other threads now: those must not look like this one.
            std::vector<dunlin::task<void>> others;
            for (int i = 0; i < 20; ++i) others.push_back(dunlin::spawn([] { dunlin::sleep_for(100us); }));
            for (auto& t : others) t.get();
        }).get();
        std::vector<dunlin::task<std::string>> names;
        std::atomic<int> narrow{0};
        for (int i = 0; i < 20; ++i) {
            names.push_back(dunlin::spawn([&] {
                dunlin::yield();
                dunlin::os_thread_lock wired;
                dunlin::sleep_for(1ms);  // all of them at once: each needs a thread of its own
                cpu_set_t mine;
                sched_getaffinity(0, sizeof mine, &mine);
                narrow += !CPU_EQUAL(&mine, &before);
                char name[16] = {};
                prctl(PR_GET_NAME, name);
                return std::string(name);
            }));
        }
        for (auto& name : names) EXPECT_NE(name.get(), "altered");
        EXPECT_EQ(narrow, 0);
    });
}

}  // namespace
