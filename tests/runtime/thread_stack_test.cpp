// on_thread_stack(): a function on the stack that its thread was made with, while the goroutine waits.
#include <cerrno>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <thread>

#include "sched/data/current.h"
#include "sched/data/types.h"
#include "sched/goroutines/thread_stack.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class ThreadStack : public support::each_p {};
EACH_P(ThreadStack);

// Whether this function's frame lies where the system says that this thread's stack is.
bool stands_on_its_threads_stack() {
    pthread_attr_t attributes;
    void* low = nullptr;
    std::size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return false;
    pthread_attr_getstack(&attributes, &low, &size);
    pthread_attr_destroy(&attributes);
    // Not that of a local variable: AddressSanitizer may keep those elsewhere.
    const auto address = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)),
               begin = reinterpret_cast<std::uintptr_t>(low);
    return address >= begin && address < begin + size && size >= (std::size_t{320} << 10);
}

[[gnu::noinline]] int uses_much_stack(int kilobytes) {
    volatile char frame[1024];
    frame[0] = static_cast<char>(kilobytes);
    if (kilobytes == 0) return 0;
    const int below = uses_much_stack(kilobytes - 1);
    return below + (frame[0] == static_cast<char>(kilobytes));
}

TEST_P(ThreadStack, IsTheOneThatTheSystemNames) {
    run([] {
        if (!support::sanitized) {
            EXPECT_FALSE(stands_on_its_threads_stack());
        }
        EXPECT_TRUE(dunlin::on_thread_stack([] { return stands_on_its_threads_stack(); }));
        dunlin::lock_os_thread();
        const pthread_t mine = pthread_self();
        for (int i = 0; i < 100; ++i) {
            dunlin::yield();
            EXPECT_TRUE(dunlin::on_thread_stack(
                [&] { return stands_on_its_threads_stack() && pthread_equal(pthread_self(), mine); }));
        }
        dunlin::unlock_os_thread();
    });
}

TEST_P(ThreadStack, IsAsLargeAsThatOfAThread) {
    if (support::sanitized) GTEST_SKIP() << "frames are larger, or a thread's stack is";
    run([] { EXPECT_EQ(dunlin::on_thread_stack([] { return uses_much_stack(6000); }), 6000); });
}

TEST_P(ThreadStack, ReturnsWhatTheFunctionReturns) {
    run([] {
        EXPECT_EQ(dunlin::on_thread_stack([] { return std::string("text"); }), "text");
        int variable = 1;
        int& reference = dunlin::on_thread_stack([&]() -> int& { return variable; });
        EXPECT_EQ(&reference, &variable);
        dunlin::on_thread_stack([&] { variable = 2; });
        EXPECT_EQ(variable, 2);
        auto owner = dunlin::on_thread_stack([] { return std::make_unique<int>(3); });
        EXPECT_EQ(*owner, 3);
    });
    EXPECT_EQ(dunlin::on_thread_stack([] { return 4; }), 4);  // on a plain thread
}

TEST_P(ThreadStack, ExceptionsComeThroughAndThoseBeingHandledStay) {
    run([] {
        try {
            throw std::runtime_error("outer");
        } catch (const std::exception&) {
            EXPECT_THROW(dunlin::on_thread_stack([]() -> int { throw std::logic_error("inner"); }), std::logic_error);
            EXPECT_EQ(dunlin::on_thread_stack([] {
                try {
                    throw 5;
                } catch (int n) {
                    return n;
                }
            }), 5);
            try {
                throw;
            } catch (const std::exception& e) {
                EXPECT_STREQ(e.what(), "outer");
            }
        }
    });
}

TEST_P(ThreadStack, ErrnoIsWhatTheFunctionLeft) {
    run([] {
        const int seen = dunlin::on_thread_stack([] {
            errno = ERANGE;
            return errno;
        });
        EXPECT_EQ(seen, ERANGE);
    });
}

TEST_P(ThreadStack, CallsNestAndTheRuntimeIsThereAsOnAPlainThread) {
    run([] {
        dunlin::chan<int> c(1);
        dunlin::on_thread_stack([&] {
            EXPECT_EQ(dunlin::this_goroutine::id(), 0u);
            EXPECT_TRUE(dunlin::on_thread_stack([] { return stands_on_its_threads_stack(); }));
            dunlin::go([c]() mutable {
                dunlin::sleep_for(1ms);
                c.send(7);
            });
            EXPECT_EQ(*c.recv(), 7);  // blocks the thread: another runs the sender
            dunlin::mutex m;
            const std::scoped_lock guard(m);
        });
        EXPECT_NE(dunlin::this_goroutine::id(), 0u);
    });
}

// The end of that run() would wait for the call, and take the caller's goroutine away.
TEST_P(ThreadStack, RunIsRefusedThere) {
    run([] {
        try {
            dunlin::on_thread_stack([] { dunlin::run([] {}); });
            FAIL();
        } catch (const std::logic_error& e) {
            EXPECT_STREQ(e.what(), "dunlin::run: called in a goroutine; use go() or spawn()");
        }
    });
}

TEST_P(ThreadStack, OthersRunMeanwhile) {
    run([] {
        std::atomic<int> rounds{0};
        std::atomic<bool> stop{false};
        dunlin::wait_group all;
        all.go([&] {
            while (!stop) {
                rounds.fetch_add(1);
                dunlin::yield();
            }
        });
        dunlin::on_thread_stack([&] {
            while (rounds < 1000) std::this_thread::sleep_for(1ms);
        });
        dunlin::on_thread_stack([&] {
            const int before = rounds;
            while (rounds < before + 1000) {}  // computes
        });
        stop = true;
        all.wait();
    });
}

TEST_P(ThreadStack, ThousandsOfCallsFromManyGoroutinesStressed) {
    run([] {
        std::atomic<long> sum{0};
        dunlin::wait_group all;
        for (int g = 0; g < 20; ++g) {
            all.go([&, g] {
                for (int i = 0; i < 500; ++i) {
                    sum += dunlin::on_thread_stack([&] {
                        if (i % 50 == 0) std::this_thread::sleep_for(100us);
                        return stands_on_its_threads_stack() ? 1 : 0;
                    });
                    if (i % 7 == g % 7) dunlin::yield();
                }
            });
        }
        all.wait();
        EXPECT_EQ(sum, 20 * 500);
    });
}

// The function is on its way when run() returns: it goes on as a thread of the program's would, and its goroutine is
// lost when it returns.
TEST_P(ThreadStack, AnEndOfRunLeavesWhatIsOnItAlone) {
    static std::atomic<int> inside, ended;
    static std::atomic<bool> stop, returned;
    for (int round = 0; round < 5; ++round) {
        inside = ended = 0;
        stop = returned = false;
        run([] {
            dunlin::go([] {
                dunlin::on_thread_stack([] {
                    ++inside;
                    while (!stop) {}
                    ++ended;
                });
                returned = true;
            });
            dunlin::go([] {
                dunlin::on_thread_stack([] {
                    ++inside;
                    while (!stop) std::this_thread::sleep_for(1ms);
                    ++ended;
                });
                returned = true;
            });
            while (inside != 2) dunlin::sleep_for(1ms);
        });
        stop = true;
        support::eventually_on_thread([] { return ended == 2; });
        std::this_thread::sleep_for(1ms);
        EXPECT_FALSE(returned);
    }
}

// It may hold any lock of this library's then.
TEST_P(ThreadStack, WhatIsOnItMayUseTheLibraryWhenRunReturns) {
    static std::atomic<int> inside;
    static std::atomic<bool> stop;
    for (int round = 0; round < 8; ++round) {
        const dunlin::chan<int> c(4);
        const auto use_everything = [c]() mutable {
            dunlin::go([] {});
            static_cast<void>(c.try_send(1));
            static_cast<void>(c.try_recv());
            static_cast<void>(dunlin::run_context());
            static_cast<void>(dunlin::context::background().with_cancel());
        };
        inside = 0;
        stop = false;
        dunlin::run({.max_procs = procs()}, [&] {
            for (int i = 0; i < 3; ++i) {
                dunlin::go([use_everything] {
                    dunlin::on_thread_stack([mine = use_everything]() mutable {
                        ++inside;
                        while (!stop) mine();
                        --inside;
                    });
                });
            }
            while (inside != 3) dunlin::sleep_for(1ms);
        });
        auto mine = use_everything;
        for (int i = 0; i < 100; ++i) mine();
        stop = true;
        support::eventually_on_thread([] { return inside == 0; });
    }
    dunlin::run([] {});  // forgets what is left
}

// Its machine is as one that has lost its processor, and computes; but a wait in the kernel is not to end early there.
TEST_P(ThreadStack, TheMonitorSendsItNoSignal) {
    std::atomic<bool> asked{false}, stop{false};
    std::atomic<int> inside{0};
    run([&] {
        dunlin::runtime::set_max_procs(8);
        dunlin::wait_group all;
        for (int i = 0; i < 3; ++i) {
            all.go([&] {
                dunlin::on_thread_stack([&] {
                    const dunlin::sched::machine* m = dunlin::sched::machine_behind();
                    for (++inside; !stop;) {
                        if (m->preempt_asked) asked = true;
                    }
                });
            });
        }
        for (int i = 0; i < 2; ++i) {
            all.go([&] {
                while (!stop) {}
            });
        }
        while (inside != 3) dunlin::sleep_for(1ms);
        dunlin::runtime::set_max_procs(1);
        for (int i = 0; i < 30 && !asked; ++i) dunlin::sleep_for(5ms);
        stop = true;
        all.wait();
    });
    dunlin::runtime::set_max_procs(procs());
    EXPECT_FALSE(asked);
}

TEST_P(ThreadStack, TheEndOfRunSendsItNoSignal) {
    static std::atomic<bool> inside, stop, ended, asked;
    inside = stop = ended = asked = false;
    run([] {
        dunlin::go([] {
            dunlin::on_thread_stack([] {
                const dunlin::sched::machine* m = dunlin::sched::machine_behind();
                const std::int64_t before = m->asked_ns;
                for (inside = true; !stop;) {}
                asked = m->asked_ns != before;
                ended = true;
            });
        });
        while (!inside) dunlin::sleep_for(1ms);
    });
    std::this_thread::sleep_for(20ms);  // the monitor goes on asking those that have not stopped
    stop = true;
    support::eventually_on_thread([] { return ended.load(); });
    EXPECT_FALSE(asked);
    dunlin::run([] {});  // forgets what is left
}

// A goroutine that is stopped on its way there; the record of its thread serves another one.
TEST_P(ThreadStack, ACallThatWasNotMadeIsNotMadeByAnotherThread) {
    if (support::sanitized) GTEST_SKIP() << "a sanitizer keeps books on threads: none ends";
    static std::atomic<bool> computes, called;
    called = false;
    for (int round = 0; round < 40; ++round) {
        computes = false;
        run([] {
            dunlin::go([] {
                dunlin::sched::current_machine()->call = {[](void*) { called = true; }, nullptr};
                computes = true;
                for (std::atomic<unsigned long> n{0};;) n.fetch_add(1, std::memory_order_relaxed);
            });
            while (!computes) dunlin::sleep_for(50us);
        });
    }
    EXPECT_FALSE(called);
}

}  // namespace
