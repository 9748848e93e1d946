// task_group_context_test.cpp - the first exception of a group cancels its context.
#include <stdexcept>
#include <string>

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

TEST_P(task_group_context_test, WhoAsksAfterTheErrorFindsItCancelled) {
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

}  // namespace
