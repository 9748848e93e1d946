// [futures.task]: packaged_task, by plain threads, by goroutines, and by both.
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <type_traits>
#include <utility>

#include "std/worlds.h"

using namespace worlds;
using std::future_errc;

namespace {

class PackagedTask : public each_world {};
EACH_WORLD(PackagedTask);

int half(int n) { return n / 2; }
double quarter(int n) noexcept { return n / 4.0; }

TEST_P(PackagedTask, OfWhateverCanBeCalled) {
    inside([this] {
        struct thing {
            int base;
            int plus(int n) const { return base + n; }
        };
        dunlin::packaged_task deduced(half);
        dunlin::packaged_task deduced_noexcept(quarter);
        static_assert(std::is_same_v<decltype(deduced), dunlin::packaged_task<int(int)>>);
        static_assert(std::is_same_v<decltype(deduced_noexcept), dunlin::packaged_task<double(int)>>);
        dunlin::packaged_task lambda(
            [p = std::make_unique<int>(5)](std::unique_ptr<int> q) mutable { return std::make_unique<int>(*p + *q); });
        static_assert(
            std::is_same_v<decltype(lambda), dunlin::packaged_task<std::unique_ptr<int>(std::unique_ptr<int>)>>);
        dunlin::packaged_task<long(thing&, int)> member(&thing::plus);
        int object = 0;
        dunlin::packaged_task<int&()> reference([&]() -> int& { return object; });
        dunlin::packaged_task<void()> discards([] { return 5; });
        auto f = deduced.get_future();
        auto l = lambda.get_future();
        auto m = member.get_future();
        auto r = reference.get_future();
        auto d = discards.get_future();
        auto other = start([&] {
            deduced(8);
            lambda(std::make_unique<int>(1));
            thing t{40};
            member(t, 2);
            reference();
            discards();
        });
        EXPECT_EQ(f.get(), 4);
        EXPECT_EQ(*l.get(), 6);
        EXPECT_EQ(m.get(), 42);
        EXPECT_EQ(&r.get(), &object);
        d.get();
    });
}

TEST_P(PackagedTask, HasTheStandardsStatesAndErrors) {
    inside([] {
        using task = dunlin::packaged_task<int(int)>;
        task none;
        EXPECT_FALSE(none.valid());
        expect_code(future_errc::no_state, [&] { none(1); });
        expect_code(future_errc::no_state, [&] { none.make_ready_at_thread_exit(1); });
        expect_code(future_errc::no_state, [&] { none.reset(); });
        expect_code(future_errc::no_state, [&] { static_cast<void>(none.get_future()); });
        EXPECT_THROW(task(static_cast<int (*)(int)>(nullptr)), std::invalid_argument) << "(std: undefined)";
        int calls = 0;
        task t([&calls](int n) { return ++calls, n < 0 ? throw n : n; });
        auto first = t.get_future();
        expect_code(future_errc::future_already_retrieved, [&] { static_cast<void>(t.get_future()); });
        t(3);
        expect_code(future_errc::promise_already_satisfied, [&] { t(4); });
        expect_code(future_errc::promise_already_satisfied, [&] { t.make_ready_at_thread_exit(4); });
        EXPECT_EQ(first.get(), 3);
        t.reset();
        auto second = t.get_future();
        none = std::move(t);
        EXPECT_TRUE(none.valid() && !t.valid());
        none(-1);
        EXPECT_THROW(second.get(), int);
        EXPECT_EQ(calls, 2);
        none.reset();
        auto third = none.get_future();
        none.reset();
        expect_code(future_errc::broken_promise, [&] { third.get(); });
        auto fourth = none.get_future();
        dunlin::swap(none, t);
        { const task gone = std::move(t); }
        expect_code(future_errc::broken_promise, [&] { fourth.get(); });
    });
}

// Null in every way in which that can be asked, and callable.
struct null_and_callable {
    explicit operator bool() const { return false; }
    bool operator==(std::nullptr_t) const { return true; }
    int operator()() const { return -1; }
};

TEST_P(PackagedTask, AndAsyncCallWhatIsNullIfItCanBeCalled) {
    inside([] {
        const std::function<int()> empty;
        dunlin::packaged_task<int()> task(empty), callable{null_and_callable()};
        auto of_task = task.get_future(), of_callable = callable.get_future();
        task();
        callable();
        EXPECT_THROW(of_task.get(), std::bad_function_call);
        EXPECT_EQ(of_callable.get(), -1);
        for (const auto policy : {std::launch::async, std::launch::deferred}) {
            EXPECT_THROW(dunlin::async(policy, empty).get(), std::bad_function_call);
            EXPECT_EQ(dunlin::async(policy, null_and_callable()).get(), -1);
        }
    });
}

#define DUNLIN_QUALIFIED(qualifiers)                                                                        \
    {                                                                                                       \
        struct f {                                                                                          \
            int operator()(int n) qualifiers { return n; }                                                  \
        };                                                                                                  \
        static_assert(                                                                                      \
            std::is_same_v<decltype(dunlin::packaged_task(std::declval<f>())), dunlin::packaged_task<int(int)>>); \
    }

TEST_P(PackagedTask, IsDeducedFromEveryQualifiedCall) {
    DUNLIN_QUALIFIED()
    DUNLIN_QUALIFIED(const)
    DUNLIN_QUALIFIED(volatile)
    DUNLIN_QUALIFIED(const volatile)
    DUNLIN_QUALIFIED(&)
    DUNLIN_QUALIFIED(const volatile& noexcept)
    DUNLIN_QUALIFIED(volatile noexcept)
}
#undef DUNLIN_QUALIFIED

// The future may be the signal that the task is not needed any more.
TEST_P(PackagedTask, MayBeDestroyedAsSoonAsItIsReady) {
    inside([this] {
        for (int round = 0; round < support::rounds(100); ++round) {
            auto t = std::make_unique<dunlin::packaged_task<int()>>([] { return 1; });
            auto f = t->get_future();
            auto other = start([raw = t.get()] { (*raw)(); });
            EXPECT_EQ(f.get(), 1);
            t.reset();
        }
    });
}

}  // namespace
