// [thread.mutex], [thread.lock], [thread.once]: our locks under the standard's requirements and in its guards, clause
// by clause.
#include <array>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <system_error>
#include <type_traits>

#include "std/worlds.h"

using namespace worlds;

namespace {

class Locks : public each_world {};
EACH_WORLD(Locks);
class Guards : public each_world {};
EACH_WORLD(Guards);
class OnceFlag : public each_world {};
EACH_WORLD(OnceFlag);

// Where std's constructors are constexpr, and more: no order of initialisation.
constinit dunlin::mutex constant_mutex;
constinit dunlin::recursive_mutex constant_recursive;
constinit dunlin::shared_mutex constant_shared;
constinit dunlin::condition_variable constant_condition;
constinit dunlin::once_flag constant_once;
constinit dunlin::latch constant_latch(1);
constinit dunlin::barrier<> constant_barrier(1);
constinit dunlin::counting_semaphore<3> constant_semaphore(3);
constinit dunlin::binary_semaphore constant_binary(1);

TEST_P(Locks, ConstantOnesWork) {
    inside([] {
        const std::scoped_lock all(constant_mutex, constant_recursive, constant_shared);
        constant_condition.notify_all();
        dunlin::call_once(constant_once, [] {});
        if (!constant_latch.try_wait()) constant_latch.count_down();
        constant_barrier.arrive_and_wait();
        EXPECT_TRUE(constant_semaphore.try_acquire());
        constant_semaphore.release();
        EXPECT_TRUE(constant_binary.try_acquire());
        constant_binary.release();
    });
}

template <class T>
concept has_native_handle = requires(T t) { t.native_handle(); };

template <class M>
constexpr bool is_a_mutex =
    std::is_nothrow_default_constructible_v<M> && !std::is_copy_constructible_v<M> &&
    !std::is_move_constructible_v<M> && !std::is_copy_assignable_v<M> && !std::is_move_assignable_v<M> &&
    std::is_standard_layout_v<M> && !has_native_handle<M> && std::is_void_v<decltype(std::declval<M&>().lock())> &&
    std::is_same_v<bool, decltype(std::declval<M&>().try_lock())> &&
    std::is_void_v<decltype(std::declval<M&>().unlock())> && noexcept(std::declval<M&>().try_lock());
static_assert(is_a_mutex<dunlin::mutex> && is_a_mutex<dunlin::timed_mutex>);
static_assert(is_a_mutex<dunlin::recursive_mutex> && is_a_mutex<dunlin::recursive_timed_mutex>);
static_assert(is_a_mutex<dunlin::shared_mutex> && is_a_mutex<dunlin::shared_timed_mutex>);
static_assert(!has_native_handle<dunlin::condition_variable> && !has_native_handle<dunlin::jthread>);

// ---- [thread.mutex.requirements] -----------------------------------------------------------------------------------

template <class M, class Start>
void excludes_and_orders(Start start) {
    M m;
    int plain = 0;
    std::atomic<int> inside_now{0}, wrong{0};
    constexpr int workers = 6;
    const int rounds = support::rounds(400);
    {
        const auto all = start(workers, [&](int i) {
            for (int r = 0; r < rounds; ++r) {
                if (i % 3 == 0) {
                    m.lock();
                } else if (i % 3 == 1) {
                    while (!m.try_lock()) dunlin::this_goroutine::yield();
                } else {
                    while (!m.try_lock_for(1ms)) {}
                }
                if (inside_now.fetch_add(1) != 0) ++wrong;
                ++plain;
                if (r % 64 == 0) dunlin::yield();
                --inside_now;
                m.unlock();
            }
        });
    }
    EXPECT_EQ(plain, workers * rounds) << "an unlock happens before the next lock";
    EXPECT_EQ(wrong, 0);
}

TEST_P(Locks, LetInOneAtATime) {
    inside([this] {
        const auto workers = [this](int n, const std::function<void(int)>& f) { return start(n, f); };
        excludes_and_orders<dunlin::mutex>(workers);
        excludes_and_orders<dunlin::recursive_mutex>(workers);
        excludes_and_orders<dunlin::shared_mutex>(workers);
    });
}

struct ticks {  // a clock of another kind: coarse, and not ours
    using duration = std::chrono::milliseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<ticks>;
    [[maybe_unused]] static constexpr bool is_steady = true;
    static time_point now() {
        return time_point(std::chrono::duration_cast<duration>(std::chrono::steady_clock::now().time_since_epoch()));
    }
};

template <class M, class Start>
void refuses_while_held(Start start) {
    M m;
    m.lock();
    start([&] {
        EXPECT_FALSE(m.try_lock());
        EXPECT_FALSE(m.try_lock_for(0s));
        EXPECT_FALSE(m.try_lock_for(-1h));
        EXPECT_FALSE(m.try_lock_until(std::chrono::steady_clock::time_point::min()));
        const auto begun = std::chrono::steady_clock::now();
        EXPECT_FALSE(m.try_lock_for(std::chrono::duration<double, std::milli>(1.5)));
        EXPECT_GE(std::chrono::steady_clock::now() - begun, 1500us);
        const auto t = std::chrono::system_clock::now() + 1ms;
        EXPECT_FALSE(m.try_lock_until(t));
        EXPECT_GE(std::chrono::system_clock::now(), t);
        const auto coarse = ticks::now() + 2ms;
        EXPECT_FALSE(m.try_lock_until(coarse));
        EXPECT_GE(ticks::now(), coarse);
    }).join();
    std::atomic<bool> got{false};
    auto waiter = start([&] {
        EXPECT_TRUE(m.try_lock_for(1h));
        got = true;
        m.unlock();
    });
    a_while();
    EXPECT_FALSE(got);
    m.unlock();
    waiter.join();
    EXPECT_TRUE(m.try_lock_for(-1s)) << "a free one is had whatever the time";
    m.unlock();
    EXPECT_TRUE(m.try_lock_until(std::chrono::system_clock::time_point())) << "the same";
    m.unlock();
}

TEST_P(Locks, TimedAttemptsEndInTimeAndNotBefore) {
    inside([this] {
        const auto one = [this](std::function<void()> f) { return start(std::move(f)); };
        refuses_while_held<dunlin::timed_mutex>(one);
        refuses_while_held<dunlin::recursive_timed_mutex>(one);
        refuses_while_held<dunlin::shared_timed_mutex>(one);
    });
}

// ---- [thread.mutex.recursive], [thread.timedmutex.recursive] -------------------------------------------------------

TEST_P(Locks, ARecursiveOneIsFreeAfterAsManyUnlocks) {
    inside([this] {
        dunlin::recursive_mutex m;
        m.lock();
        EXPECT_TRUE(m.try_lock());
        EXPECT_TRUE(m.try_lock_for(0s));
        EXPECT_TRUE(m.try_lock_until(std::chrono::system_clock::now()));
        for (int held = 4; held > 0; --held) {
            start([&] { EXPECT_FALSE(m.try_lock()); }).join();
            m.unlock();
        }
        start([&] {
            EXPECT_TRUE(m.try_lock());
            m.lock();
            m.unlock();
            m.unlock();
        }).join();
    });
}

// ---- [thread.sharedmutex], [thread.sharedtimedmutex] ---------------------------------------------------------------

TEST_P(Locks, LetReadersInTogetherAndWritersAlone) {
    inside([this] {
        dunlin::shared_mutex m;
        std::atomic<int> readers{0};
        {
            const auto all = start(4, [&](int) {
                const std::shared_lock<dunlin::shared_mutex> share(m);
                ++readers;
                until([&] { return readers == 4; });  // all have it at once, or this does not end
            });
        }
        m.lock_shared();
        start([&] {
            EXPECT_FALSE(m.try_lock());
            EXPECT_FALSE(m.try_lock_for(1ms));
            EXPECT_TRUE(m.try_lock_shared());
            m.unlock_shared();
            EXPECT_TRUE(m.try_lock_shared_for(0s));
            m.unlock_shared();
            EXPECT_TRUE(m.try_lock_shared_until(std::chrono::system_clock::now() + 1h));
            m.unlock_shared();
        }).join();
        m.unlock_shared();
        m.lock();
        start([&] {
            EXPECT_FALSE(m.try_lock_shared());
            const auto begun = std::chrono::steady_clock::now();
            EXPECT_FALSE(m.try_lock_shared_for(2ms));
            EXPECT_FALSE(m.try_lock_shared_until(begun + 3ms));
            EXPECT_GE(std::chrono::steady_clock::now() - begun, 3ms);
        }).join();
        int written = 0;
        auto reader = start([&] {
            const std::shared_lock share(m);
            EXPECT_EQ(written, 1) << "an unlock happens before lock_shared";
        });
        written = 1;
        m.unlock();
        reader.join();
        m.lock();  // unlock_shared happens before lock
        written = 2;
        m.unlock();
    });
}

// ---- [thread.lock.guard], [thread.lock.scoped], [thread.lock.unique], [thread.lock.shared] -------------------------

template <class M, class Start>
void is_held_by_another(M& m, bool held, Start start) {
    start([&] {
        const bool got = m.try_lock();
        EXPECT_NE(got, held);
        if (got) m.unlock();
    }).join();
}

TEST_P(Guards, LockOneOrMany) {
    inside([this] {
        const auto one = [this](std::function<void()> f) { return start(std::move(f)); };
        dunlin::mutex a;
        dunlin::recursive_mutex b;
        dunlin::shared_mutex c;
        {
            const std::lock_guard guard(a);
            is_held_by_another(a, true, one);
        }
        a.lock();
        {
            const std::lock_guard guard(a, std::adopt_lock);
        }
        is_held_by_another(a, false, one);
        {
            [[maybe_unused]] const std::scoped_lock<> none;
            const std::scoped_lock all(a, b, c);
            is_held_by_another(a, true, one);
            is_held_by_another(b, true, one);
            is_held_by_another(c, true, one);
        }
        a.lock();
        b.lock();
        {
            const std::scoped_lock both(std::adopt_lock, a, b);
        }
        is_held_by_another(a, false, one);
        is_held_by_another(b, false, one);
        is_held_by_another(c, false, one);
    });
}

template <class Lock, class M>
void guard_with_all_its_members(M& m) {
    using std::errc;
    Lock none;
    EXPECT_FALSE(none);
    expect_code(errc::operation_not_permitted, [&] { none.lock(); });
    EXPECT_THROW(none.unlock(), std::system_error);  // libstdc++'s shared_lock has another code than the standard
    Lock l(m);
    EXPECT_TRUE(l.owns_lock() && l.mutex() == &m);
    expect_code(errc::resource_deadlock_would_occur, [&] { l.lock(); });
    expect_code(errc::resource_deadlock_would_occur, [&] { static_cast<void>(l.try_lock()); });
    expect_code(errc::resource_deadlock_would_occur, [&] { static_cast<void>(l.try_lock_for(1ms)); });
    expect_code(errc::resource_deadlock_would_occur,
        [&] { static_cast<void>(l.try_lock_until(std::chrono::system_clock::now())); });
    l.unlock();
    EXPECT_THROW(l.unlock(), std::system_error);
    EXPECT_TRUE(l.try_lock());
    Lock moved(std::move(l));
    EXPECT_TRUE(moved && !l && l.mutex() == nullptr);
    none = std::move(moved);
    EXPECT_TRUE(none && !moved);
    swap(none, l);
    EXPECT_TRUE(l && !none);
    l = Lock();  // gives it back
    {
        Lock deferred(m, std::defer_lock), tried(m, std::try_to_lock);
        EXPECT_TRUE(!deferred && tried);
        EXPECT_EQ(tried.release(), &m);
        Lock adopted(m, std::adopt_lock);
        EXPECT_TRUE(adopted);
    }
    EXPECT_TRUE((Lock(m, 1ms)));
    EXPECT_TRUE((Lock(m, std::chrono::steady_clock::now() + 1h)));
    EXPECT_TRUE(m.try_lock()) << "all have given it back";
    m.unlock();
}

TEST_P(Guards, AreUniqueLockAndSharedLock) {
    inside([] {
        dunlin::mutex a;
        dunlin::recursive_mutex b;
        dunlin::shared_mutex c;
        guard_with_all_its_members<std::unique_lock<dunlin::mutex>>(a);
        guard_with_all_its_members<std::unique_lock<dunlin::recursive_mutex>>(b);
        guard_with_all_its_members<std::unique_lock<dunlin::shared_mutex>>(c);
        guard_with_all_its_members<std::shared_lock<dunlin::shared_mutex>>(c);
    });
}

// ---- [thread.lock.algorithm] ---------------------------------------------------------------------------------------

struct throwing_lock {
    void lock() { throw 7; }
    bool try_lock() { throw 7; }
    void unlock() {}
};

TEST_P(Guards, LockAndTryLockOfMany) {
    inside([this] {
        const auto one = [this](std::function<void()> f) { return start(std::move(f)); };
        dunlin::mutex a, b;
        dunlin::shared_mutex c;
        EXPECT_EQ(std::try_lock(a, b, c), -1);
        a.unlock();
        c.unlock();
        start([&] { EXPECT_EQ(std::try_lock(a, c, b), 2); }).join();
        is_held_by_another(a, false, one);
        is_held_by_another(c, false, one);
        b.unlock();
        throwing_lock bad;
        EXPECT_THROW(std::lock(a, b, bad), int);
        EXPECT_THROW(std::try_lock(a, bad), int);
        is_held_by_another(a, false, one);
        is_held_by_another(b, false, one);
        // In all orders at once: a caller that can have all gets them.
        std::array<int, 3> plain{};
        const int rounds = support::rounds(300);
        {
            const auto all = start(6, [&](int i) {
                for (int r = 0; r < rounds; ++r) {
                    std::unique_lock x(a, std::defer_lock), y(b, std::defer_lock);
                    std::unique_lock z(c, std::defer_lock);
                    if (i % 3 == 0) {
                        std::lock(x, y, z);
                    } else if (i % 3 == 1) {
                        std::lock(z, y, x);
                    } else {
                        std::lock(y, z, x);
                    }
                    for (int& p : plain) ++p;
                }
            });
        }
        EXPECT_EQ(plain, (std::array{6 * rounds, 6 * rounds, 6 * rounds}));
    });
}

// ---- [thread.once] -------------------------------------------------------------------------------------------------

TEST_P(OnceFlag, OneCallAllWaitForItsEnd) {
    static_assert(!std::is_copy_constructible_v<dunlin::once_flag> && !std::is_copy_assignable_v<dunlin::once_flag>);
    static_assert(std::is_nothrow_default_constructible_v<dunlin::once_flag>);
    inside([this] {
        for (int round = 0; round < support::rounds(40); ++round) {
            dunlin::once_flag flag;
            int plain = 0;
            const auto all = start(5, [&](int) {
                dunlin::call_once(flag, [&](std::unique_ptr<int> by) {
                    dunlin::yield();
                    plain += *by;
                }, std::make_unique<int>(1));
                EXPECT_EQ(plain, 1) << "what the call does happens before every return";
            });
        }
    });
}

TEST_P(OnceFlag, InvokesAsInvokeDoes) {
    inside([] {
        struct thing {
            int n = 0;
            void raise(int by) { n += by; }
        } t;
        dunlin::once_flag member;
        for (int i = 0; i < 2; ++i) dunlin::call_once(member, &thing::raise, t, 3);
        EXPECT_EQ(t.n, 3) << "arguments are forwarded, not copied";
    });
}

TEST_P(OnceFlag, OneFlagInsideAnother) {
    inside([] {
        dunlin::once_flag inner, outer;
        int calls = 0;
        for (int i = 0; i < 2; ++i) dunlin::call_once(outer, [&] { dunlin::call_once(inner, [&] { ++calls; }); });
        EXPECT_EQ(calls, 1);
    });
}

// docs/std.md: std would try again.
TEST_P(OnceFlag, AnExceptionGoesToItsCallerAndCountsAsDone) {
    inside([] {
        dunlin::once_flag flag;
        EXPECT_THROW(dunlin::call_once(flag, [] { throw 5; }), int);
        dunlin::call_once(flag, [] { FAIL(); });
    });
}

}  // namespace
