// task_group_context_test.cpp - the first exception of a group cancels its context.
#include <stdexcept>
#include <string>
#include <thread>

#include "support/runtime_test.h"

namespace {

using namespace support;

class task_group_context_test : public each_p {};
EACH_P(task_group_context_test);

std::string text_of(const std::exception_ptr& e) {
    try {
        std::rethrow_exception(e);
    } catch (const std::exception& what) {
        return what.what();
    }
}

TEST_P(task_group_context_test, TheFirstExceptionCancelsIt) {
    run([] {
        dunlin::task_group group;
        const dunlin::context ctx = group.context();
        std::atomic<int> stopped{0};
        for (int i = 0; i < 10; ++i) {
            group.go([&] {
                try {
                    dunlin::chan<int>().recv(ctx);
                } catch (const dunlin::context_cancelled&) {
                    ++stopped;
                }
            });
        }
        group.go([] {
            dunlin::sleep_for(1ms);
            throw std::runtime_error("first");
        });
        EXPECT_THROW(group.wait(), std::runtime_error);
        EXPECT_EQ(stopped.load(), 10);
        EXPECT_EQ(ctx.err(), dunlin::errc::cancelled);
        EXPECT_EQ(text_of(ctx.cause()), "first");
        EXPECT_FALSE(group.context().err()) << "a new one after wait()";
    });
}

TEST_P(task_group_context_test, AContextAskedForAfterTheErrorIsCancelled) {
    run([] {
        for (int round = 0; round < 2000; ++round) {
            dunlin::task_group group;
            group.go([] { throw std::runtime_error("now"); });
            bool seen = false;
            group.go([&] {
                const dunlin::context ctx = group.context();
                ctx.done().recv();  // for ever, unless one of the two cancels
                seen = ctx.is_done();
            });
            EXPECT_THROW(group.wait(), std::runtime_error);
            EXPECT_TRUE(seen);
        }
    });
}

// cancel() and context() are for watchers, which do not know when wait() rethrows and takes the old context away.
TEST_P(task_group_context_test, MayBeCancelledBesideAWaitThatRethrows) {
    run([] {
        dunlin::task_group group;
        std::atomic<bool> end{false};
        dunlin::wait_group watchers;
        std::thread thread([&] {
            while (!end) {
                group.cancel();
                std::this_thread::yield();
            }
        });
        for (int i = 0; i < 2; ++i) {
            watchers.go([&] {
                while (!end) {
                    const dunlin::context c = group.context();
                    EXPECT_TRUE(!c.cause() || c.is_done());
                    group.cancel();
                    EXPECT_TRUE(c.is_done() || !(c == group.context()));
                    dunlin::yield();
                }
            });
        }
        for (int i = 0; i < support::rounds(3000); ++i) {
            group.go([] { throw 1; });
            EXPECT_THROW(group.wait(), int);
        }
        end = true;
        dunlin::blocking([&] { thread.join(); });
        watchers.wait();
    });
}

TEST_P(task_group_context_test, TheParentCancelsIt) {
    run([] {
        auto [parent, cancel] = dunlin::with_cancel(dunlin::context::background());
        dunlin::task_group group(parent);
        group.go([ctx = group.context()] { ctx.done().recv(); });
        cancel();
        group.wait();
        EXPECT_EQ(group.context().err(), dunlin::errc::cancelled);
        dunlin::task_group other;
        other.go([ctx = other.context()] { ctx.done().recv(); });
        other.cancel();
        other.wait();
    });
}

TEST_P(task_group_context_test, WaitsThatEndEarly) {
    run([] {
        dunlin::chan<int> go_on;
        dunlin::task<int> task = dunlin::spawn([=] { return *go_on.recv(); });
        EXPECT_FALSE(task.wait_for(1ms));
        EXPECT_THROW(task.wait(dunlin::with_timeout({}, 1ms)), dunlin::context_cancelled);
        dunlin::task_group group;
        group.go([=] { go_on.recv(); });
        EXPECT_THROW(group.wait(dunlin::with_timeout({}, 1ms)), dunlin::context_cancelled);
        go_on.close();
        group.wait(dunlin::context());
    });
}

// The end of the task, the time-out and a second wait, at the same moment.
TEST_P(task_group_context_test, LimitedWaitsForTasksThatEndMeanwhile) {
    run([] {
        for (int round = 0; round < (sanitized ? 1000 : 10'000); ++round) {
            dunlin::task<int> task = dunlin::spawn([round] {
                if (round % 3 != 0) dunlin::sleep_for(std::chrono::microseconds(round % 50));
                return round;
            });
            const bool ended = task.wait_for(std::chrono::microseconds(round % 40));
            if (ended) {
                EXPECT_TRUE(task.done());
            }
            if (round % 2 == 0) {
                EXPECT_EQ(task.get(dunlin::context()), round);
            } else {
                EXPECT_EQ(task.get(), round);
            }
        }
    });
}

}  // namespace
