// pthread_exit() and pthread_cancel() of a plain thread inside a caller's function: the thread ends, as with std's
// types, and those that wait for the function's result learn that there is none.
#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <pthread.h>
#include <string>
#include <thread>
#include <vector>

#include "std/worlds.h"

using namespace worlds;
using std::future_errc;

namespace {

class ForcedUnwind : public each_world {};
EACH_WORLD(ForcedUnwind);

// Runs f on a plain thread and waits for the thread.
template <class F>
void on_a_thread(F f) {
    pthread_t t;
    ASSERT_EQ(pthread_create(&t, nullptr, [](void* raw) -> void* {
        (*static_cast<F*>(raw))();
        return nullptr;
    }, &f), 0);
    dunlin::blocking([t] { pthread_join(t, nullptr); });
}

enum class way { exits, is_cancelled };

// Ends the calling thread. Not in pause() or the like: a thread that is cancelled in a call which ThreadSanitizer
// stands in for is taken by it to be there for ever, and its locks are not seen any more.
void end(way w) {
    if (w == way::exits) pthread_exit(nullptr);
    pthread_cancel(pthread_self());
    pthread_testcancel();
}

template <class Future>
void expect_broken(Future f) {
    expect_code(future_errc::broken_promise, [&f] { f.get(); });
}

constexpr std::array both{way::exits, way::is_cancelled};

TEST_P(ForcedUnwind, APackagedTasksFutureIsBroken) {
    inside([] {
        for (const way w : both) {
            dunlin::packaged_task<int()> now([w] { return end(w), 1; }), late([w] { return end(w), 1; });
            auto f = now.get_future(), g = late.get_future();
            bool unwound = false;
            on_a_thread([&] {
                struct scope {
                    bool& left;
                    ~scope() { left = true; }
                } const s{unwound};
                now();
            });
            EXPECT_TRUE(unwound);
            on_a_thread([&] { late.make_ready_at_thread_exit(); });
            expect_broken(std::move(f));
            expect_broken(std::move(g));
        }
    });
}

TEST_P(ForcedUnwind, ADeferredFunctionsFutureIsBroken) {
    inside([] {
        for (const way w : both) {
            const auto f = dunlin::async(std::launch::deferred, end, w).share();
            on_a_thread([f] { f.wait(); });
            expect_broken(f);
        }
    });
}

TEST_P(ForcedUnwind, ASharedCallHasNoResult) {
    inside([this] {
        for (const way w : both) {
            dunlin::singleflight<int, int> calls;
            std::atomic<bool> begun{false};
            const auto waiter = start([&] {
                until([&] { return begun.load(); });
                // It joins the call, or comes after it and makes one of its own. (The exception is not looked into:
                // only the standard library's own counter would order that with its end, which ThreadSanitizer does not
                // see.)
                try {
                    EXPECT_EQ(calls.call(1, [] { return 2; }), 2);
                } catch (const std::future_error&) {
                }
            });
            on_a_thread([&] {
                calls.call(1, [&] {
                    begun = true;
                    a_while();
                    return end(w), 1;
                });
            });
            EXPECT_EQ(calls.call(2, [] { return 3; }), 3);
            auto once = dunlin::once_func([w] { end(w); });
            auto value = dunlin::once_value([w] { return end(w), std::string(); });
            on_a_thread(once);
            on_a_thread([&] { value(); });
            expect_code(future_errc::broken_promise, once);
            expect_code(future_errc::broken_promise, [&] { value(); });
        }
    });
}

TEST_P(ForcedUnwind, PassesThroughTheOtherCalls) {
    inside([] {
        for (const way w : both) {
            dunlin::once_flag flag;
            dunlin::retry_once_flag retried;
            dunlin::promise<int> p;
            auto f = p.get_future();
            on_a_thread([&] { dunlin::on_thread_stack([w] { end(w); }); });
            on_a_thread([&] { dunlin::blocking([w] { end(w); }); });
            on_a_thread([&] { call_once(flag, end, w); });
            on_a_thread([&] { call_once(retried, end, w); });
            on_a_thread([&] {
                p.set_value_at_thread_exit(3);
                end(w);
            });
            call_once(flag, [] { ADD_FAILURE() << "it counts as called"; });
            EXPECT_FALSE(retried.done());
            EXPECT_EQ(f.get(), 3);
        }
    });
}

}  // namespace
