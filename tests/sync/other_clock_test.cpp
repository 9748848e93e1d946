// A moment of another clock has not come before that clock says so, however slow it is; and no notify is lost because a
// waiter looks at it again.
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <thread>

#include <dunlin/dunlin.hpp>

#include "support/runtime_test.h"

namespace {

using namespace std::chrono_literals;

// Goes at a third of the speed.
struct slow_clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<slow_clock>;
    [[maybe_unused]] static constexpr bool is_steady = true;
    static time_point now() { return time_point(std::chrono::steady_clock::now().time_since_epoch() / 3); }
};

// Stands still unless it is moved: a wait on it is one look after the other.
struct lazy_clock {
    using duration = std::chrono::microseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<lazy_clock>;
    [[maybe_unused]] static constexpr bool is_steady = false;
    static inline std::atomic<std::int64_t> ticks{0};
    static time_point now() { return time_point(duration(ticks.load())); }
};

// The same in the smallest steps.
struct finest_clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<finest_clock>;
    [[maybe_unused]] static constexpr bool is_steady = false;
    static inline std::atomic<std::int64_t> ticks{0};
    static time_point now() { return time_point(duration(ticks.load())); }
};

class OtherClock : public support::each_p {
protected:
    // `wait(t)` says false when the time was over.
    template <class Wait>
    void ends_at(const char* what, Wait wait) {
        const auto t = slow_clock::now() + 2ms;
        EXPECT_FALSE(wait(t)) << what;
        EXPECT_GE(slow_clock::now(), t) << what << " has ended too early";
        EXPECT_FALSE(wait(t)) << what << ", when the time is over";
    }
};
EACH_P(OtherClock);

void wait_until_times_long_past() {
    using duration = dunlin::clock::duration;
    dunlin::mutex m;
    dunlin::condition_variable cv;
    dunlin::condition_variable_any any;
    dunlin::task_set<int> set;
    dunlin::binary_semaphore go_on(0);
    set.go([&] {
        go_on.acquire();
        return 1;
    });
    for (const duration d : {duration(0), duration(1), duration(-1), duration::min(), duration::min() + 1ns}) {
        const dunlin::clock::time_point t(d);
        std::unique_lock lock(m);
        EXPECT_EQ(cv.wait_until(lock, t), dunlin::cv_status::timeout);
        EXPECT_FALSE(cv.wait_until(lock, t, [] { return false; }));
        EXPECT_EQ(any.wait_until(lock, t), dunlin::cv_status::timeout);
        EXPECT_FALSE(any.wait_until(lock, std::stop_source().get_token(), t, [] { return false; }));
        EXPECT_FALSE(set.next_until(t));
        EXPECT_EQ(dunlin::chan<int>::nil().recv_until(t).status(), dunlin::channel_status::would_block);
        EXPECT_EQ(dunlin::chan<int>::nil().send_until(1, t).status(), dunlin::channel_status::would_block);
        EXPECT_EQ(dunlin::chan<int>().recv_until(t).status(), dunlin::channel_status::would_block);
        dunlin::sleep_until(t);
        dunlin::sleep_for(100us);
    }
    dunlin::chan<int> fired(1);
    const auto timer = dunlin::after_func(duration::min(), [&] { fired.send(1); });
    EXPECT_EQ(*fired.recv(), 1);
    go_on.release();
    EXPECT_EQ(*set.next(), 1);
}

// The runtime's own clock: what is long past, 0 and less too, ends a wait at once, and stands before no other timer.
TEST_P(OtherClock, ATimeLongPastEndsAWaitAtOnce) { run(wait_until_times_long_past); }
TEST_P(OtherClock, ATimeLongPastEndsAWaitOfAPlainThreadAtOnce) {
    run([] {
        std::thread waiter(wait_until_times_long_past);
        dunlin::blocking([&] { waiter.join(); });
    });
}

TEST_P(OtherClock, NoWaitEndsBeforeItsTime) {
    run([this] {
        using std::cv_status;
        dunlin::mutex m;
        dunlin::recursive_mutex r;
        dunlin::shared_mutex s;
        dunlin::counting_semaphore<> permits(0);
        dunlin::condition_variable cv;
        dunlin::condition_variable_any any;
        dunlin::latch l(1);
        dunlin::promise<int> p;
        auto f = p.get_future();
        dunlin::chan<int> c;
        dunlin::wait_group group;
        group.add();
        auto task = dunlin::spawn([&] { l.wait(); });
        std::unique_lock lock(m);
        s.lock();
        r.lock();
        std::stop_source stop;
        ends_at("mutex", [&](auto t) { return dunlin::spawn([&] { return m.try_lock_until(t); }).get(); });
        ends_at("recursive_mutex", [&](auto t) { return dunlin::spawn([&] { return r.try_lock_until(t); }).get(); });
        ends_at("lock", [&](auto t) { return s.try_lock_until(t); });
        ends_at("lock_shared", [&](auto t) { return s.try_lock_shared_until(t); });
        ends_at("semaphore", [&](auto t) { return permits.try_acquire_until(t); });
        ends_at("condition_variable", [&](auto t) { return cv.wait_until(lock, t) == cv_status::no_timeout; });
        ends_at("condition_variable, predicate", [&](auto t) { return cv.wait_until(lock, t, [] { return false; }); });
        ends_at("condition_variable_any", [&](auto t) { return any.wait_until(lock, t) == cv_status::no_timeout; });
        ends_at(
            "condition_variable_any, predicate", [&](auto t) { return any.wait_until(lock, t, [] { return false; }); });
        ends_at("condition_variable_any, token",
            [&](auto t) { return any.wait_until(lock, stop.get_token(), t, [] { return false; }); });
        ends_at("latch", [&](auto t) { return l.wait_until(t); });
        ends_at("future", [&](auto t) { return f.wait_until(t) == std::future_status::ready; });
        ends_at("receive", [&](auto t) { return c.recv_until(t).has_value(); });
        ends_at("send", [&](auto t) { return static_cast<bool>(c.send_until(1, t)); });
        ends_at("wait_group", [&](auto t) { return group.wait_until(t); });
        ends_at("task", [&](auto t) { return task.wait_until(t); });
        ends_at("sleep", [&](auto t) { return dunlin::sleep_until(t), false; });
        ends_at("sleep with a context", [&](auto t) { return dunlin::sleep_until(t, dunlin::context()), false; });
        r.unlock();
        s.unlock();
        group.done();
        l.count_down();
    });
}

TEST_P(OtherClock, ADeadlineOfAContextIsOnItsOwnClock) {
    run([this] {
        ends_at("context", [&](auto t) { return dunlin::with_deadline({}, t).done().recv().has_value(); });
        // A child does not rely on it: its own, which looked like the later one, comes first, since that clock stands
        // still.
        const auto parent = dunlin::with_deadline({}, lazy_clock::now() + 5ms);
        EXPECT_LE(*parent.deadline(), dunlin::clock::now() + 5ms);
        const auto child = parent.with_timeout(10ms), grandchild = child.with_timeout(1h);
        child.done().recv();
        EXPECT_EQ(child.err(), dunlin::errc::deadline_exceeded);
        grandchild.done().recv();  // a moment after its parent
        EXPECT_EQ(grandchild.err(), dunlin::errc::deadline_exceeded);
        EXPECT_FALSE(parent.is_done());
        lazy_clock::ticks += 5000;
        parent.done().recv();
        EXPECT_EQ(parent.err(), dunlin::errc::deadline_exceeded);
        // By the runtime's clock this one has passed before it is made.
        const auto at_once = dunlin::with_deadline({}, finest_clock::now() + 1ns);
        EXPECT_FALSE(at_once.is_done());
        finest_clock::ticks += 1;
        at_once.done().recv();
        EXPECT_EQ(at_once.err(), dunlin::errc::deadline_exceeded);
        // One that is cancelled, or dropped, while its clock is looked at again.
        for (int i = 0; i < support::rounds(200); ++i) {
            const auto c = dunlin::with_deadline({}, lazy_clock::now() + 1us);
            dunlin::sleep_for(std::chrono::microseconds(i % 10));
            if (i % 2 == 0) c.cancel();
        }
    });
}

// In nanoseconds the difference to now overflows, and for some of these even the time point.
TEST_P(OtherClock, MomentsCenturiesAwayArePastOrFuture) {
    run([] {
        using namespace std::chrono;
        const auto past = sys_days{1600y / 1 / 1}, future = sys_days{2300y / 1 / 1}, far = sys_days{9999y / 12 / 31};
        dunlin::sleep_until(past);
        dunlin::chan<int> c;
        EXPECT_FALSE(c.recv_until(past));
        dunlin::mutex m;
        const std::scoped_lock held(m);
        EXPECT_FALSE(dunlin::spawn([&] { return m.try_lock_until(past); }).get());
        EXPECT_TRUE(dunlin::with_deadline({}, past).is_done());
        const auto parent = dunlin::with_deadline({}, system_clock::now() + 1h);
        for (const auto t : {future, far}) {
            EXPECT_FALSE(dunlin::with_deadline({}, t).is_done());
            EXPECT_FALSE(dunlin::with_deadline(parent, t).is_done());
        }
        EXPECT_FALSE(dunlin::with_deadline(parent, sys_seconds::max()).is_done());
        dunlin::singleflight<int, int> flights;
        const auto one = [] { return 1; };
        EXPECT_EQ(flights.call_until(1, future, one), 1);
        EXPECT_EQ(flights.call_until(1, far, one), 1);
        EXPECT_EQ(flights.call_until(1, time_point<dunlin::clock, hours>::max(), one), 1);
        EXPECT_EQ(flights.call_until(1, past, one), std::nullopt);
    });
}

TEST(Durations, AreRoundedUpInEachUnit) {
    using namespace std::chrono;
    using dunlin::detail::to_nanoseconds;
    using ticks = duration<std::int64_t, std::ratio<1, 3'579'545>>;  // of a PC's timer: wraps in 64 bits after hours
    EXPECT_EQ(to_nanoseconds(ticks(3'579'545LL * 3600 * 24 * 365)), 365 * 24h);
    EXPECT_EQ(to_nanoseconds(ticks(1)), 280ns);
    EXPECT_EQ(to_nanoseconds(ticks(-1)), -279ns);
    EXPECT_EQ(to_nanoseconds(ticks::max()), nanoseconds::max());
    EXPECT_EQ(to_nanoseconds(ticks::min()), nanoseconds::min());
    EXPECT_EQ(to_nanoseconds(duration<float>(36.0f)), 36s);
    EXPECT_GE(to_nanoseconds(duration<float>(1001.5611f)), duration<double>(double{1001.5611f}));
    EXPECT_EQ(to_nanoseconds(duration<double, std::milli>(0.5)), 500us);
    EXPECT_EQ(to_nanoseconds(duration<std::uint64_t>(UINT64_MAX)), nanoseconds::max());
    EXPECT_EQ(to_nanoseconds(hours::max()), nanoseconds::max());
    EXPECT_EQ(to_nanoseconds(hours::min()), nanoseconds::min());
}

// While a wait looks at its clock again it stays in the queue: each notify_one() wakes a waiter.
TEST_P(OtherClock, NoNotifyIsLostWhileItLooksAgain) {
    allow(60s);
    run([] {
        dunlin::mutex m;
        dunlin::condition_variable cv;
        long tokens = 0, taken = 0;
        bool end = false;
        constexpr int waiters = 4;
        dunlin::task_group group;
        for (int i = 0; i < waiters; ++i) {
            group.go([&, i] {
                std::unique_lock lock(m);
                while (!end) {
                    // Without a predicate, on purpose. Most of these end one look of the clock after the other.
                    const auto status = cv.wait_until(lock, slow_clock::now() + std::chrono::microseconds(20 + 10 * i));
                    if (status == std::cv_status::no_timeout && tokens > 0) --tokens, ++taken;
                }
            });
        }
        dunlin::sleep_for(1ms);
        for (int i = 0; i < support::rounds(2000); ++i) {
            {
                const std::scoped_lock lock(m);
                ++tokens;
            }
            cv.notify_one();
            if (i % 8 == 0) dunlin::sleep_for(20us);
        }
        {
            const std::scoped_lock lock(m);
            end = true;
        }
        cv.notify_all();
        group.wait();
        EXPECT_GT(taken, 0);
    });
}

// The same, exactly: one waiter, one notify, at any moment of its looks.
TEST_P(OtherClock, ANotifyAtAnyMomentOfALookIsNoticed) {
    run([] {
        dunlin::mutex m;
        dunlin::condition_variable cv;
        for (int i = 0; i < support::rounds(1000); ++i) {
            bool waits = false;
            auto waiter = dunlin::spawn([&] {
                std::unique_lock lock(m);
                waits = true;
                // A hundred looks in the time that the clock takes for this.
                return cv.wait_until(lock, slow_clock::now() + 20s);
            });
            support::eventually([&] {
                const std::scoped_lock lock(m);
                return waits;
            });
            if (i % 3 != 0) dunlin::sleep_for(std::chrono::microseconds(i % 40));
            cv.notify_one();
            EXPECT_EQ(waiter.get(), std::cv_status::no_timeout);
        }
    });
}

TEST_P(OtherClock, ANotifyBetweenTwoLooksIsNoticed) {
    run([] {
        dunlin::mutex m;
        dunlin::condition_variable cv;
        for (int i = 0; i < support::rounds(1000); ++i) {
            bool waits = false;
            const auto t = lazy_clock::now() + 1us;  // looks every microsecond
            auto waiter = dunlin::spawn([&] {
                std::unique_lock lock(m);
                waits = true;
                return cv.wait_until(lock, t);
            });
            support::eventually([&] {
                const std::scoped_lock lock(m);
                return waits;
            });
            dunlin::sleep_for(std::chrono::microseconds(i % 20));
            cv.notify_one();
            EXPECT_EQ(waiter.get(), std::cv_status::no_timeout);
            // And a notify that comes too late for one waiter goes to the other.
            const auto soon = lazy_clock::now() + 1us;
            auto late = dunlin::spawn([&] {
                std::unique_lock lock(m);
                return cv.wait_until(lock, soon);
            });
            dunlin::sleep_for(std::chrono::microseconds(i % 7));
            ++lazy_clock::ticks;
            EXPECT_EQ(late.get(), std::cv_status::timeout);
        }
    });
}

// The program's own code, in the midst of a wait: the look at its clock.
struct asked_clock {
    using duration = std::chrono::microseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<asked_clock>;
    [[maybe_unused]] static constexpr bool is_steady = false;
    static inline int looks = 0;
    static inline std::function<bool(int look)> is_over;
    static time_point now() { return time_point(duration(is_over(++looks) ? 1 : 0)); }
};

TEST_P(OtherClock, ANotifyDuringALookIsNoticed) {
    run([] {
        dunlin::mutex m;
        dunlin::condition_variable cv;
        std::unique_lock lock(m);
        const asked_clock::time_point t(1us);
        for (const bool over : {false, true}) {
            int first_after_a_wait = 0;
            for (int at = 1; at < 12; ++at) {
                asked_clock::looks = 0;
                asked_clock::is_over = [&](int look) {
                    // still before the wait: the lock is held
                    if (first_after_a_wait == 0 && !m.try_lock()) return false;
                    if (first_after_a_wait == 0) m.unlock(), first_after_a_wait = look;
                    if (look == first_after_a_wait + at) cv.notify_one();
                    return look > 30 || (over && look >= first_after_a_wait + at);
                };
                EXPECT_EQ(cv.wait_until(lock, t), std::cv_status::no_timeout)
                    << "notified in look " << at << " after the first, over: " << over;
            }
        }
        asked_clock::is_over = nullptr;
    });
}

// What can be tested by if is a predicate.
struct answer {
    bool yes;
    explicit operator bool() const { return yes; }
};

TEST_P(OtherClock, PredicatesNeedOnlyBeTestable) {
    run([] {
        dunlin::mutex m;
        dunlin::condition_variable cv;
        dunlin::condition_variable_any any;
        std::unique_lock lock(m);
        const auto yes = [] { return answer{true}; };
        const auto no = [] { return answer{false}; };
        cv.wait(lock, yes);
        cv.wait(lock, dunlin::context(), yes);
        EXPECT_FALSE(cv.wait_for(lock, 1us, no));
        EXPECT_FALSE(cv.wait_until(lock, slow_clock::now(), no));
        any.wait(lock, yes);
        any.wait(lock, dunlin::context(), yes);
        EXPECT_FALSE(any.wait_for(lock, 1us, no));
        EXPECT_FALSE(any.wait_until(lock, dunlin::clock::now(), no));
        EXPECT_TRUE(any.wait(lock, std::stop_token(), yes));
        std::stop_source stop;
        EXPECT_FALSE(any.wait_for(lock, stop.get_token(), 1us, no));
        stop.request_stop();
        EXPECT_FALSE(any.wait(lock, stop.get_token(), no));
    });
}

}  // namespace
