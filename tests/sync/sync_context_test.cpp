// Every wait of the synchronisation primitives ends with its context, and leaves the primitive as it was.
#include <mutex>
#include <string>
#include <vector>

#include <dunlin/barrier.hpp>
#include <dunlin/condition_variable.hpp>
#include <dunlin/context.hpp>
#include <dunlin/future.hpp>
#include <dunlin/latch.hpp>
#include <dunlin/mutex.hpp>
#include <dunlin/semaphore.hpp>
#include <dunlin/shared_mutex.hpp>
#include <dunlin/wait_group.hpp>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class SyncContext : public support::each_p {};
EACH_P(SyncContext);

// One wait that a deadline ends, one that a cancel from elsewhere ends, one with a context that is done already; from a
// goroutine and from a thread.
template <class Wait>
void expect_cancelled(const char* begins, Wait wait) {
    auto once = [&](const dunlin::context& ctx) {
        try {
            wait(ctx);
            ADD_FAILURE() << begins << " has returned";
        } catch (const dunlin::context_cancelled& e) {
            EXPECT_EQ(std::string(e.what()).rfind(begins, 0), 0u) << e.what();
        }
    };
    {
        auto ctx = dunlin::with_timeout(dunlin::context::background(), 2ms);
        once(ctx);
        once(ctx);
    }
    auto ctx = dunlin::with_cancel(dunlin::context::background());
    auto canceller = dunlin::spawn([&] {
        dunlin::sleep_for(2ms);
        ctx.cancel();
    });
    std::thread t([&] { once(ctx); });
    once(ctx);
    canceller.get();
    dunlin::blocking([&] { t.join(); });
}

TEST_P(SyncContext, EndsEachWait) {
    run([] {
        dunlin::mutex m;
        m.lock();
        expect_cancelled("mutex lock", [&](const dunlin::context& ctx) { m.lock(ctx); });
        m.unlock();
        m.lock(dunlin::context::background());
        m.unlock();

        dunlin::shared_mutex s;
        s.lock();
        expect_cancelled("shared_mutex lock", [&](const dunlin::context& ctx) { s.lock(ctx); });
        expect_cancelled("shared_mutex lock_shared", [&](const dunlin::context& ctx) { s.lock_shared(ctx); });
        s.unlock();
        s.lock(dunlin::context::background());
        s.unlock();

        dunlin::condition_variable c;
        expect_cancelled("condition_variable wait", [&](const dunlin::context& ctx) {
            std::unique_lock lock(m);
            c.wait(lock, ctx, [] { return false; });
        });
        EXPECT_TRUE(m.try_lock());
        m.unlock();

        dunlin::counting_semaphore<> permits(0);
        expect_cancelled("semaphore acquire", [&](const dunlin::context& ctx) { permits.acquire(ctx); });
        permits.release();
        permits.acquire(dunlin::context::background());

        dunlin::latch l(1);
        expect_cancelled("latch wait", [&](const dunlin::context& ctx) { l.wait(ctx); });
        l.count_down();
        l.wait(dunlin::context::background());
        dunlin::latch of_many(20);
        expect_cancelled("latch wait", [&](const dunlin::context& ctx) { of_many.arrive_and_wait(ctx); });

        dunlin::barrier<> b(20);
        expect_cancelled("barrier wait", [&](const dunlin::context& ctx) { b.arrive_and_wait(ctx); });

        dunlin::wait_group wg;
        wg.add();
        expect_cancelled("wait_group wait", [&](const dunlin::context& ctx) { wg.wait(ctx); });
        wg.done();
        wg.wait(dunlin::context::background());

        dunlin::promise<int> p;
        auto f = p.get_future();
        expect_cancelled("future wait", [&](const dunlin::context& ctx) { f.wait(ctx); });
        EXPECT_TRUE(f.valid());
        p.set_value(1);
        EXPECT_EQ(f.get(dunlin::context::background()), 1);
    });
}

// No waiter is forgotten when cancels and releases come at the same time.
TEST_P(SyncContext, RacesWithTheWake) {
    run([] {
        dunlin::mutex m;
        dunlin::binary_semaphore s(1);
        std::atomic<long> taken{0}, cancelled{0};
        long under_lock = 0;
        dunlin::task_group group;
        for (int i = 0; i < 6; ++i) {
            group.go([&, i] {
                for (int round = 0; round < support::rounds(300); ++round) {
                    auto ctx = dunlin::with_timeout(
                        dunlin::context::background(), std::chrono::microseconds(10 * i + round % 50));
                    try {
                        m.lock(ctx);
                        ++under_lock;
                        ++taken;
                        if (round % 4 == 0) dunlin::yield();
                        m.unlock();
                        s.acquire(ctx);
                        dunlin::yield();
                        s.release();
                    } catch (const dunlin::context_cancelled&) {
                        ++cancelled;
                    }
                }
            });
        }
        group.wait();
        EXPECT_EQ(under_lock, taken);
        EXPECT_TRUE(m.try_lock());
        m.unlock();
        EXPECT_TRUE(s.try_acquire());
    });
}

}  // namespace
