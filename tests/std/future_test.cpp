// [futures]: promise, future, shared_future, async, clause by clause; and what happens at the end of a goroutine or
// thread.
#include <array>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "std/worlds.h"

using namespace worlds;
using std::future_errc;

namespace {

class Promise : public each_world {};
EACH_WORLD(Promise);
class SharedFuture : public each_world {};
EACH_WORLD(SharedFuture);
class Async : public each_world {};
EACH_WORLD(Async);
class AtExit : public each_world {};
EACH_WORLD(AtExit);

template <class T>
constexpr bool moves_only =
    std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T> &&
    !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> && std::is_nothrow_swappable_v<T>;
static_assert(
    moves_only<dunlin::promise<int>> && moves_only<dunlin::promise<int&>> && moves_only<dunlin::promise<void>>);
static_assert(moves_only<dunlin::future<int>> && moves_only<dunlin::packaged_task<int(char)>>);
static_assert(std::is_nothrow_copy_constructible_v<dunlin::shared_future<int>> &&
              std::is_nothrow_copy_assignable_v<dunlin::shared_future<int>>);
static_assert(std::is_nothrow_constructible_v<dunlin::shared_future<int>, dunlin::future<int>>);
static_assert(!std::is_constructible_v<dunlin::future<int>, dunlin::shared_future<int>>);
static_assert(std::is_same_v<decltype(std::declval<const dunlin::shared_future<int>&>().get()), const int&>);
static_assert(std::is_same_v<decltype(std::declval<const dunlin::shared_future<int&>&>().get()), int&>);
static_assert(std::is_void_v<decltype(std::declval<const dunlin::shared_future<void>&>().get())>);
static_assert(std::uses_allocator_v<dunlin::promise<int>, std::allocator<char>> &&
              std::uses_allocator_v<dunlin::promise<void>, std::allocator<char>>);

// ---- [futures.promise], [futures.unique.future] --------------------------------------------------------------------

struct counted_allocations {
    std::atomic<int> live{0}, all{0};
};
template <class T>
struct counting_allocator {
    using value_type = T;
    counted_allocations* to;
    explicit counting_allocator(counted_allocations* c) : to(c) {}
    template <class U>
    counting_allocator(const counting_allocator<U>& other) : to(other.to) {}
    T* allocate(std::size_t n) {
        ++to->live;
        ++to->all;
        return std::allocator<T>().allocate(n);
    }
    void deallocate(T* p, std::size_t n) {
        --to->live;
        std::allocator<T>().deallocate(p, n);
    }
    bool operator==(const counting_allocator&) const = default;
};

TEST_P(Promise, OfEveryKindToAWaiter) {
    inside([this] {
        for (int round = 0; round < support::rounds(30); ++round) {
            dunlin::promise<std::string> value;
            dunlin::promise<int&> reference;
            dunlin::promise<void> nothing;
            dunlin::promise<std::unique_ptr<int>> movable;
            int object = 0, plain = 0;
            auto v = value.get_future();
            auto r = reference.get_future();
            auto n = nothing.get_future();
            auto m = movable.get_future();
            auto other = start([&] {
                const std::string text = "copied";
                plain = 1;
                value.set_value(text);
                reference.set_value(object);
                movable.set_value(std::make_unique<int>(3));
                nothing.set_value();
            });
            EXPECT_EQ(v.get(), "copied");
            EXPECT_EQ(plain, 1) << "what happens before the result is set happens before the return";
            EXPECT_EQ(&r.get(), &object);
            EXPECT_EQ(*m.get(), 3);
            n.get();
            EXPECT_FALSE(v.valid() || r.valid() || m.valid() || n.valid());
        }
    });
}

TEST_P(Promise, ErrorsOfBothSides) {
    EXPECT_EQ(dunlin::make_error_code(future_errc::no_state).category(), dunlin::future_category());
    EXPECT_EQ(dunlin::make_error_condition(future_errc::no_state), dunlin::make_error_code(future_errc::no_state));
    dunlin::promise<void> kept, spare;
    auto done = kept.get_future();
    dunlin::swap(kept, spare);
    spare.set_value();
    done.get();
    inside([] {
        dunlin::promise<int> p;
        auto f = p.get_future();
        expect_code(future_errc::future_already_retrieved, [&] { static_cast<void>(p.get_future()); });
        p.set_exception(std::make_exception_ptr(5));
        expect_code(future_errc::promise_already_satisfied, [&] { p.set_value(1); });
        expect_code(future_errc::promise_already_satisfied, [&] { p.set_exception(std::make_exception_ptr(6)); });
        expect_code(future_errc::promise_already_satisfied, [&] { p.set_value_at_thread_exit(1); });
        expect_code(future_errc::promise_already_satisfied,
            [&] { p.set_exception_at_thread_exit(std::make_exception_ptr(6)); });
        EXPECT_THROW(f.get(), int);
        dunlin::promise<int> moved(std::move(p));
        expect_code(future_errc::no_state, [&] { p.set_value(1); });
        expect_code(future_errc::no_state, [&] { p.set_value_at_thread_exit(1); });
        expect_code(future_errc::no_state, [&] { static_cast<void>(p.get_future()); });
        expect_code(future_errc::no_state, [&] { f.get(); });
        expect_code(future_errc::no_state, [&] { static_cast<void>(f.wait_for(1s)); });
        dunlin::promise<void> dropped;
        auto broken = dropped.get_future();
        dropped = dunlin::promise<void>();
        EXPECT_TRUE(broken.valid());
        expect_code(future_errc::broken_promise, [&] { broken.get(); });
        struct throws {
            throws() = default;
            throws(const throws&) { throw 7; }
        };
        dunlin::promise<throws> again;
        const throws t;
        EXPECT_THROW(again.set_value(t), int);
        EXPECT_THROW(again.set_value_at_thread_exit(t), int);
        again.set_exception(std::make_exception_ptr(8));  // unsatisfied until now
        EXPECT_THROW(again.get_future().get(), int);
    });
}

TEST_P(Promise, TakesWhatOnlyAnExplicitConstructorCopies) {
    struct copied_explicitly {
        int value;
        explicit copied_explicitly(int v) : value(v) {}
        explicit copied_explicitly(const copied_explicitly&) = default;
    };
    inside([] {
        dunlin::promise<copied_explicitly> now, late;
        dunlin::promise<const copied_explicitly> constant;
        copied_explicitly value(3);
        now.set_value(value);
        constant.set_value(value);
        EXPECT_EQ(now.get_future().share().get().value, 3);
        EXPECT_EQ(constant.get_future().share().get().value, 3);
        auto f = late.get_future().share();
        dunlin::go([p = std::move(late), value = 4]() mutable {
            copied_explicitly later(value);
            p.set_value_at_thread_exit(later);
        });
        EXPECT_EQ(f.get().value, 4);
    });
}

// What one promise's setters are given: the copy says that it has begun, takes a while, and may fail.
struct slow_copy {
    std::atomic<bool>* begun;
    bool fails;
    slow_copy(std::atomic<bool>* b, bool f) : begun(b), fails(f) {}
    slow_copy(slow_copy&&) noexcept = default;
    slow_copy(const slow_copy& other) : begun(other.begun), fails(other.fails) {
        *begun = true;
        a_while();
        if (fails) throw 7;
    }
};

TEST_P(Promise, ASetterWaitsForOneThatMayFail) {
    inside([this] {
        using promise = dunlin::promise<slow_copy>;
        const std::array setters{
            +[](promise& p, std::atomic<bool>& b) { p.set_value(slow_copy(&b, false)); },
            +[](promise& p, std::atomic<bool>& b) { p.set_value_at_thread_exit(slow_copy(&b, false)); },
            +[](promise& p, std::atomic<bool>&) { p.set_exception(std::make_exception_ptr(8)); },
            +[](promise& p, std::atomic<bool>&) { p.set_exception_at_thread_exit(std::make_exception_ptr(8)); },
        };
        for (unsigned i = 0; i < setters.size() * 2; ++i) {
            std::atomic<bool> begun{false};
            promise p;
            auto f = p.get_future();
            auto first = start([&] {
                const slow_copy bad(&begun, true);
                EXPECT_THROW(i % 2 == 0 ? p.set_value(bad) : p.set_value_at_thread_exit(bad), int);
            });
            auto second = start([&] {
                until([&] { return begun.load(); });
                EXPECT_NO_THROW(setters[i / 2](p, begun)) << "nothing is set, so this one sets it: " << i;
            });
            EXPECT_EQ(f.wait_for(10s), dunlin::future_status::ready);
        }
    });
}

TEST_P(Promise, IsSatisfiedOnlyWhenItIsReady) {
    inside([this] {
        for (int round = 0; round < support::rounds(30); ++round) {
            std::atomic<bool> begun{false};
            dunlin::promise<slow_copy> p;
            auto f = p.get_future();
            const auto both = start(2, [&](int i) {
                const slow_copy value(&begun, false);
                if (i == 0) return p.set_value(value);
                until([&] { return begun.load(); });
                expect_code(future_errc::promise_already_satisfied, [&] { p.set_value(value); });
                EXPECT_EQ(f.wait_for(0s), dunlin::future_status::ready);
            });
        }
        // But nothing waits for the end of a goroutine or thread.
        std::atomic<bool> set{false}, refused{false};
        dunlin::promise<int> late;
        auto other = start([&] {
            late.set_value_at_thread_exit(1);
            set = true;
            until([&] { return refused.load(); });
        });
        until([&] { return set.load(); });
        expect_code(future_errc::promise_already_satisfied, [&] { late.set_value(2); });
        refused = true;
        EXPECT_EQ(late.get_future().get(), 1);
    });
}

TEST_P(Promise, WaitsEndInTime) {
    inside([this] {
        dunlin::promise<int> p;
        auto f = p.get_future();
        const auto t = std::chrono::system_clock::now() + 2ms;
        EXPECT_EQ(f.wait_until(t), dunlin::future_status::timeout);
        EXPECT_GE(std::chrono::system_clock::now(), t);
        EXPECT_EQ(f.wait_for(-1h), dunlin::future_status::timeout);
        auto other = start([&] { p.set_value(4); });
        EXPECT_EQ(f.wait_for(1h), dunlin::future_status::ready);
        EXPECT_EQ(f.wait_until(std::chrono::steady_clock::time_point::min()), dunlin::future_status::ready);
        f.wait();
        EXPECT_EQ(f.get(), 4);
        other.join();
    });
}

TEST_P(Promise, TakesItsMemoryFromAnAllocator) {
    counted_allocations counts;
    inside([&] {
        const counting_allocator<char> a(&counts);
        dunlin::promise<std::string> p(std::allocator_arg, a);
        dunlin::promise<void> q(std::allocator_arg, a);
        auto f = p.get_future();
        EXPECT_EQ(counts.live, 2);
        {
            auto gone = std::move(p);
            gone.set_value("kept by the future");
        }
        EXPECT_EQ(counts.live, 2);
        EXPECT_EQ(f.get(), "kept by the future");
        EXPECT_EQ(counts.live, 1);
    });
    EXPECT_EQ(counts.live, 0);
    EXPECT_EQ(counts.all, 2);
}

// ---- [futures.shared.future] ---------------------------------------------------------------------------------------

TEST_P(SharedFuture, ManyReadTheSame) {
    inside([this] {
        dunlin::promise<std::string> p;
        auto f = p.get_future();
        const dunlin::shared_future<std::string> shared = f.share();
        EXPECT_FALSE(f.valid());
        std::vector<const std::string*> seen(6);
        {
            const auto all = start(6, [&seen, mine = shared](int i) {
                if (i % 2 == 0) {
                    EXPECT_EQ(mine.wait_for(1h), dunlin::future_status::ready);
                }
                seen[static_cast<std::size_t>(i)] = &mine.get();
            });
            p.set_value("all");
        }
        for (const std::string* s : seen) EXPECT_EQ(s, &shared.get());
        EXPECT_EQ(shared.get(), "all");
        dunlin::shared_future<std::string> copy, moved;
        EXPECT_FALSE(copy.valid());
        expect_code(future_errc::no_state, [&] { copy.get(); });
        copy = shared;
        moved = std::move(copy);
        EXPECT_TRUE(moved.valid() && shared.valid() && !copy.valid());
    });
}

TEST_P(SharedFuture, APromiseRefusesANullException) {
    dunlin::promise<std::string> p;
    EXPECT_THROW(p.set_exception(nullptr), std::invalid_argument);
    p.set_value("still free");
    EXPECT_EQ(p.get_future().get(), "still free");
}

TEST_P(SharedFuture, OfReferencesNothingAndExceptions) {
    inside([] {
        int object = 0;
        dunlin::promise<int&> r;
        dunlin::shared_future<int&> rf = r.get_future();
        r.set_value(object);
        EXPECT_EQ(&rf.get(), &rf.get());
        dunlin::promise<void> n;
        auto nf = n.get_future().share();
        EXPECT_EQ(nf.wait_for(0s), dunlin::future_status::timeout);
        n.set_exception(std::make_exception_ptr(std::string("each time")));
        for (int i = 0; i < 2; ++i) EXPECT_THROW(nf.get(), std::string);
        auto last = dunlin::promise<int>().get_future().share();
        expect_code(future_errc::broken_promise, [&] { last.get(); });
    });
}

// ---- [futures.async] -----------------------------------------------------------------------------------------------

int half(int n) { return n / 2; }

TEST_P(Async, RunsAsAGoroutine) {
    inside([] {
        static_assert(std::is_same_v<decltype(dunlin::async(half, 1)), dunlin::future<int>>);
        auto text = dunlin::async([](std::string a, std::unique_ptr<int> b) { return a + std::to_string(*b); },
            "n = ", std::make_unique<int>(4));
        auto either =
            dunlin::async(std::launch::async | std::launch::deferred, [] { return dunlin::this_goroutine::id(); });
        EXPECT_EQ(either.wait_for(1h), dunlin::future_status::ready) << "not deferred: goroutines cost little";
        const auto id = either.get();
        EXPECT_NE(id, 0u);
        EXPECT_NE(id, dunlin::this_goroutine::id());
        EXPECT_EQ(text.get(), "n = 4");
        int object = 0;
        EXPECT_EQ(&dunlin::async([](int& i) -> int& { return i; }, std::ref(object)).get(), &object);
        EXPECT_THROW(dunlin::async([]() -> int { throw 5; }).get(), int);
        EXPECT_THROW(dunlin::async([]() -> int { dunlin::exit_goroutine(); }).get(), dunlin::goroutine_exited);
        EXPECT_THROW(static_cast<void>(dunlin::async(std::launch{}, half, 1)), std::invalid_argument);
        auto shared = dunlin::async(half, 10).share();
        EXPECT_EQ(shared.get() + shared.get(), 10);
    });
}

TEST_P(Async, IsFoundBesideStds) {
    inside([] {
        using dunlin::async;
        const auto mine = dunlin::this_goroutine::id();
        auto at_once = async(std::launch::async, [] { return dunlin::this_goroutine::id(); });
        auto deferred = async(std::launch::deferred, [](std::string) { return dunlin::this_goroutine::id(); }, "");
        auto without = async(std::function<bool(std::string)>(&std::string::empty), std::string());
        static_assert(std::is_same_v<decltype(without), dunlin::future<bool>>);
        EXPECT_NE(at_once.get(), mine);
        EXPECT_EQ(deferred.get(), mine);
        EXPECT_TRUE(without.get());
    });
}

TEST_P(Async, TakesWhatIsAlignedMoreStrictlyThanAGoroutinesStorage) {
    struct alignas(256) wide {
        int value;
        bool is_aligned() const { return reinterpret_cast<std::uintptr_t>(this) % alignof(wide) == 0; }
    };
    inside([] {
        for (const std::launch policy : {std::launch::async, std::launch::deferred}) {
            const wide captured{40};
            auto f = dunlin::async(policy, [captured](const wide& argument) {
                EXPECT_TRUE(captured.is_aligned() && argument.is_aligned());
                return wide{captured.value + argument.value};
            }, wide{2}).share();
            EXPECT_TRUE(f.get().is_aligned());
            EXPECT_EQ(f.get().value, 42);
        }
        EXPECT_THROW(dunlin::async([w = wide{1}]() -> int { throw w.value; }).get(), int);
    });
}

TEST_P(Async, ADeferredOneRunsWhereItIsWaitedFor) {
    inside([this] {
        int calls = 0;
        auto argument = std::make_shared<int>(3);
        auto f = dunlin::async(std::launch::deferred, [&calls](const std::shared_ptr<int>& p) {
            ++calls;
            return dunlin::this_goroutine::id() + static_cast<std::uint64_t>(*p);
        }, argument);
        EXPECT_EQ(argument.use_count(), 2);
        EXPECT_EQ(f.wait_for(1h), dunlin::future_status::deferred);
        EXPECT_EQ(f.wait_until(std::chrono::steady_clock::now() + 1h), dunlin::future_status::deferred);
        EXPECT_EQ(calls, 0);
        f.wait();
        EXPECT_EQ(calls, 1);
        EXPECT_EQ(argument.use_count(), 1);
        EXPECT_EQ(f.wait_for(0s), dunlin::future_status::ready);
        EXPECT_EQ(f.get(), dunlin::this_goroutine::id() + 3);
        { const auto never = dunlin::async(std::launch::deferred, [&calls, argument] { ++calls; }); }
        EXPECT_EQ(calls, 1);
        EXPECT_EQ(argument.use_count(), 1);
        EXPECT_THROW(dunlin::async(std::launch::deferred, []() -> int { throw 5; }).get(), int);
        // One of many waiters calls it, and the others wait for that.
        for (int round = 0; round < support::rounds(30); ++round) {
            std::atomic<int> runs{0};
            const auto shared = dunlin::async(std::launch::deferred, [&runs] {
                dunlin::yield();
                return ++runs;
            }).share();
            const auto all = start(4, [shared](int) { EXPECT_EQ(shared.get(), 1); });
        }
    });
}

TEST_P(Async, TheLastFutureWaitsForTheEnd) {
    inside([] {
        for (int round = 0; round < support::rounds(50); ++round) {
            std::atomic<bool> go{false}, ended{false};
            auto f = dunlin::async([&] {
                until([&] { return go.load(); });
                ended = true;
            });
            auto copy = f.share();
            { const auto one_of_two = copy; }
            EXPECT_FALSE(ended) << "one of several waits for nothing";
            go = true;
            copy = {};
            EXPECT_TRUE(ended);
        }
    });
}

// ---- at the end of a goroutine or thread ---------------------------------------------------------------------------

struct says_when_gone {
    std::atomic<bool>* gone = nullptr;
    ~says_when_gone() {
        if (gone == nullptr) return;
        dunlin::yield();  // an ordinary place
        *gone = true;
    }
};
dunlin::goroutine_local<says_when_gone> local;
thread_local says_when_gone of_thread;

// What ends where f does: its own goroutine, or its own thread.
void touch(std::atomic<bool>& gone) {
    if (dunlin::this_goroutine::id() != 0) {
        local->gone = &gone;
    } else {
        of_thread.gone = &gone;
    }
}

TEST_P(AtExit, APromiseIsKeptWhenTheEndHasCome) {
    inside([this] {
        for (int round = 0; round < support::rounds(30); ++round) {
            std::atomic<bool> go{false};
            std::array<std::atomic<bool>, 5> gone{};
            dunlin::promise<std::string> value;
            dunlin::promise<int&> reference;
            dunlin::promise<void> nothing, failed;
            dunlin::packaged_task<int(int)> task(half);
            auto v = value.get_future();
            auto r = reference.get_future();
            auto n = nothing.get_future();
            auto x = failed.get_future();
            auto t = task.get_future();
            int object = 0;
            const auto all = start(5, [&](int i) {
                if (round % 2 == 0) touch(gone[static_cast<std::size_t>(i)]);
                switch (i) {
                case 0: dunlin::promise(std::move(value)).set_value_at_thread_exit("late"); break;
                case 1: reference.set_value_at_thread_exit(object); break;
                case 2: nothing.set_value_at_thread_exit(); break;
                case 3: failed.set_exception_at_thread_exit(std::make_exception_ptr(5)); break;
                default: task.make_ready_at_thread_exit(8);
                }
                if (round % 2 != 0) touch(gone[static_cast<std::size_t>(i)]);
                until([&] { return go.load(); });
            });
            EXPECT_EQ(v.wait_for(500us), dunlin::future_status::timeout) << "the promise is gone, the goroutine is not";
            for (auto* f : {&n, &x}) EXPECT_EQ(f->wait_for(0s), dunlin::future_status::timeout);
            EXPECT_EQ(t.wait_for(0s), dunlin::future_status::timeout);
            go = true;
            EXPECT_EQ(v.get(), "late");
            EXPECT_TRUE(gone[0]) << "local values are destroyed before";
            EXPECT_EQ(&r.get(), &object);
            EXPECT_TRUE(gone[1]);
            n.get();
            EXPECT_TRUE(gone[2]);
            EXPECT_THROW(x.get(), int);
            EXPECT_TRUE(gone[3]);
            EXPECT_EQ(t.get(), 4);
            EXPECT_TRUE(gone[4]);
        }
    });
}

TEST_P(AtExit, AnAsyncIsReadyWhenItsLocalValuesAreGone) {
    inside([] {
        for (int round = 0; round < support::rounds(100); ++round) {
            std::atomic<bool> gone{false};
            dunlin::async([&] { touch(gone); }).get();
            EXPECT_TRUE(gone);
            gone = false;
            static_cast<void>(dunlin::async([&] { touch(gone); }));
            EXPECT_TRUE(gone);
        }
    });
}

TEST_P(AtExit, NotifyAllFindsTheGoroutineGone) {
    inside([this] {
        for (int round = 0; round < support::rounds(30); ++round) {
            auto m = std::make_unique<dunlin::mutex>();
            auto c = std::make_unique<dunlin::condition_variable>();
            std::atomic<bool> gone{false};
            bool done = false;
            auto other = start([&] {
                std::unique_lock l(*m);
                dunlin::notify_all_at_thread_exit(*c, std::move(l));
                touch(gone);
                done = true;  // with the lock held, to the end
            });
            {
                std::unique_lock l(*m);
                while (!done) c->wait(l);
                EXPECT_TRUE(gone);
            }
            c.reset();
            m.reset();
        }
        dunlin::mutex m;
        dunlin::condition_variable c;
        expect_code(std::errc::operation_not_permitted,
            [&] { dunlin::notify_all_at_thread_exit(c, std::unique_lock<dunlin::mutex>()); });
        expect_code(std::errc::operation_not_permitted,
            [&] { dunlin::notify_all_at_thread_exit(c, std::unique_lock(m, std::defer_lock)); });
    });
}

// A goroutine_local that is used by the destructor of a thread_local made before it: the list of values is gone by
// then, and comes back.
struct uses_a_local_late {
    std::atomic<bool>* gone = nullptr;
    ~uses_a_local_late() {
        if (gone != nullptr) local->gone = gone;
    }
};
thread_local uses_a_local_late late;

TEST_P(AtExit, AThreadsValuesAndCallsOutliveItsThreadLocals) {
    std::atomic<bool> gone{false}, first{false};
    dunlin::promise<void> p;
    auto f = p.get_future();
    std::thread t([&] {
        late.gone = &gone;
        local->gone = &first;
        p.set_value_at_thread_exit();
    });
    f.get();
    EXPECT_TRUE(first && gone);
    t.join();
}

}  // namespace
