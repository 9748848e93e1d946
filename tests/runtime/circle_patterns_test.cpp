// Faults with locks and joins in the manner of GoBench's blocking bugs (Yuan et al., "GoBench: a benchmark suite of
// real-world Go concurrency bugs", CGO 2021: resource deadlocks and mixed ones), written anew for this library. Each is
// a row: found as a circle, or `silent`, with the reason why a circle is not there or cannot be seen. And programs that
// are well, of which nothing may be said.
#include <cstdlib>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>

#include "support/caught_stderr.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

// Read when the runtime starts, which no test has done yet.
const bool settings_made = [] {
    setenv("DUNLIN_DEBUG", "deadlock", 1);
    return true;
}();

// What a row uses. It outlives the run, which stops the goroutines in the midst of it.
struct scene {
    dunlin::mutex a, b, c;
    dunlin::recursive_mutex r;
    dunlin::shared_mutex rw;
    dunlin::condition_variable cond;
    dunlin::wait_group group;
    dunlin::latch both{2}, three{3}, one{1};
    dunlin::chan<int> values;
    dunlin::task<void> first, second;
};

struct row {
    const char* name;
    const char* why_silent;  // null: it is found
    void (*play)(scene& s);
};

template <class Held, class Wanted>
void hold_and_want(dunlin::latch& all, Held& held, Wanted& wanted) {
    const std::lock_guard one(held);
    all.arrive_and_wait();
    const std::lock_guard other(wanted);
}

constexpr const char* any_may_send = "any holder of the channel may send or receive";
constexpr const char* readers_unknown = "a shared_mutex does not note its holders";

const row faults[] = {
    {"AB-BA", nullptr, [](scene& s) {
        dunlin::go([&] { hold_and_want(s.both, s.a, s.b); });
        dunlin::go([&] { hold_and_want(s.both, s.b, s.a); });
    }},
    {"circular wait of three", nullptr, [](scene& s) {
        dunlin::go([&] { hold_and_want(s.three, s.a, s.b); });
        dunlin::go([&] { hold_and_want(s.three, s.b, s.c); });
        dunlin::go([&] { hold_and_want(s.three, s.c, s.a); });
    }},
    {"AB-BA with a recursive lock", nullptr, [](scene& s) {
        dunlin::go([&] { hold_and_want(s.both, s.r, s.b); });
        dunlin::go([&] { hold_and_want(s.both, s.b, s.r); });
    }},
    {"double lock with a limit", nullptr, [](scene& s) {
        dunlin::go([&] {
            const std::lock_guard held(s.a);
            s.a.try_lock_for(1h);
        });
    }},
    {"AB-BA through a callback, with limits", nullptr, [](scene& s) {
        const auto want = [](dunlin::mutex& m) { m.try_lock_for(1h); };
        dunlin::go([&s, want] {
            const std::lock_guard held(s.a);
            s.both.arrive_and_wait();
            want(s.b);
        });
        dunlin::go([&s, want] {
            const std::lock_guard held(s.b);
            s.both.arrive_and_wait();
            want(s.a);
        });
    }},
    {"stop under the lock that the worker wants", nullptr, [](scene& s) {
        s.first = dunlin::spawn([&] {
            s.both.arrive_and_wait();
            const std::lock_guard held(s.a);
        });
        dunlin::go([&] {
            const std::lock_guard held(s.a);
            s.both.arrive_and_wait();
            s.first.wait();
        });
    }},
    {"WaitGroup.Wait under the lock of its members", nullptr, [](scene& s) {
        dunlin::go([&] {
            const std::lock_guard held(s.a);
            for (int i = 0; i < 5; ++i) s.group.go([&] { const std::lock_guard inner(s.a); });
            s.group.wait();
        });
    }},
    {"WaitGroup.Wait by a member", nullptr, [](scene& s) {
        s.group.go([&] { s.group.wait(); });
    }},
    {"two tasks that join each other", nullptr, [](scene& s) {
        s.first = dunlin::spawn([&] { s.both.arrive_and_wait(), s.one.wait(), s.second.wait(); });
        s.second = dunlin::spawn([&] { s.both.arrive_and_wait(), s.one.wait(), s.first.wait(); });
        s.one.count_down();
    }},
    {"two locks and a join between", nullptr, [](scene& s) {
        s.first = dunlin::spawn([&] { hold_and_want(s.both, s.b, s.a); });
        s.second = dunlin::spawn([&] {
            const std::lock_guard held(s.c);
            s.first.wait();
        });
        dunlin::go([&] { hold_and_want(s.both, s.a, s.b); });
    }},
    {"locks of three services, and a member that calls back", nullptr, [](scene& s) {
        dunlin::go([&] {
            const std::lock_guard held(s.a);
            s.group.go([&] { hold_and_want(s.one, s.b, s.a); });
            s.one.wait();
            const std::lock_guard wanted(s.b);
        });
    }},
    {"task_group whose destructor waits under the lock", nullptr, [](scene& s) {
        dunlin::go([&] {
            const std::lock_guard held(s.a);
            dunlin::task_group members;
            members.go([&] { const std::lock_guard inner(s.a); });
        });
    }},
    {"return without unlock", "the holder has ended, and any goroutine may unlock", [](scene& s) {
        s.first = dunlin::spawn([&] { s.a.lock(); });
        s.first.wait();
        dunlin::go([&] { s.a.lock(); });
    }},
    {"RWR: read lock, writer, read lock", readers_unknown, [](scene& s) {
        dunlin::go([&] {
            const std::shared_lock reads(s.rw);
            s.both.arrive_and_wait();
            while (s.rw.try_lock_shared()) s.rw.unlock_shared(), dunlin::yield();  // until the writer waits
            const std::shared_lock again(s.rw);
        });
        dunlin::go([&] {
            s.both.arrive_and_wait();
            const std::lock_guard writes(s.rw);
        });
    }},
    {"AB-BA with a reader", readers_unknown, [](scene& s) {
        dunlin::go([&] { hold_and_want(s.both, s.a, s.rw); });
        dunlin::go([&] {
            const std::shared_lock held(s.rw);
            s.both.arrive_and_wait();
            const std::lock_guard wanted(s.a);
        });
    }},
    {"send under the lock of the receiver", any_may_send, [](scene& s) {
        dunlin::go([&] {
            const std::lock_guard held(s.a);
            s.both.arrive_and_wait();
            s.values.send(1);
        });
        dunlin::go([&] {
            s.both.arrive_and_wait();
            const std::lock_guard held(s.a);
            s.values.recv();
        });
    }},
    {"missing signal", "any goroutine may notify", [](scene& s) {
        dunlin::go([&] {
            std::unique_lock held(s.a);
            s.cond.wait(held);
        });
    }},
    {"add without done", "any goroutine may call done()", [](scene& s) {
        s.group.add(1);
        dunlin::go([&] { s.group.wait(); });
    }},
    {"double send", any_may_send, [](scene& s) {
        dunlin::go([&] { s.values.send(1), s.values.send(2); });
        s.values.recv();
    }},
    {"forgotten receiver", any_may_send, [](scene& s) { dunlin::go([&] { s.values.recv(); }); }},
    {"abandoned select", any_may_send, [](scene& s) {
        dunlin::go([&] { dunlin::select(dunlin::on_recv(s.values, [](auto&&...) {})); });
    }},
};

// Each ends, after waits of more than 10 ms on whatever can be waited for.
const row well[] = {
    {"a chain of holders", nullptr, [](scene& s) {
        s.group.go([&] {
            const std::lock_guard held(s.a);
            s.three.arrive_and_wait();
            dunlin::sleep_for(50ms);
        });
        s.group.go([&] { hold_and_want(s.three, s.b, s.a); });
        s.three.arrive_and_wait();
        const std::lock_guard last(s.b);
    }},
    {"a join under a lock that the child does not want", nullptr, [](scene& s) {
        const std::lock_guard held(s.a);
        dunlin::spawn([&] {
            const std::lock_guard other(s.b);
            dunlin::sleep_for(50ms);
        }).get();
    }},
    {"a group under a lock that its members do not want", nullptr, [](scene& s) {
        const std::lock_guard held(s.a);
        for (int i = 0; i < 10; ++i) s.group.go([] { dunlin::sleep_for(50ms); });
        s.group.wait();
    }},
    {"a waiter of the group that has captured it", nullptr, [](scene& s) {
        s.group.go([&] { s.both.arrive_and_wait(), dunlin::sleep_for(50ms); });
        dunlin::task<void> waits = dunlin::spawn([group = s.group] { group.wait(); });
        s.both.arrive_and_wait();
        s.group.wait();
        waits.get();
    }},
    {"nested groups", nullptr, [](scene& s) {
        for (int i = 0; i < 3; ++i) {
            s.group.go([] {
                dunlin::wait_group inner;
                for (int k = 0; k < 3; ++k) inner.go([] { dunlin::sleep_for(30ms); });
                inner.wait();
            });
        }
        s.group.wait();
    }},
    {"a mutex that another goroutine unlocks", nullptr, [](scene& s) {
        s.a.lock();
        dunlin::go([&] {
            dunlin::sleep_for(50ms);
            s.a.unlock();
        });
        dunlin::go([&] {
            s.a.lock();
            s.a.unlock();
            s.values.send(1);
        });
        s.values.recv();
    }},
    {"a plain thread that holds the mutex", nullptr, [](scene& s) {
        std::thread holder([&] {
            const std::lock_guard held(s.a);
            s.both.arrive_and_wait();
            std::this_thread::sleep_for(50ms);
        });
        s.both.arrive_and_wait();
        dunlin::spawn([&] { const std::lock_guard held(s.a); }).get();
        dunlin::blocking([&] { holder.join(); });
    }},
    {"a plain thread that joins", nullptr, [](scene& s) {
        dunlin::task<void> t = dunlin::spawn([&] { s.one.wait(); });
        std::thread joiner([&] { t.wait(); });
        dunlin::sleep_for(50ms);
        s.one.count_down();
        dunlin::blocking([&] { joiner.join(); });
    }},
    {"two orders that never meet", nullptr, [](scene& s) {
        for (int i = 0; i < 2; ++i) {
            dunlin::spawn([&] {
                const std::scoped_lock held(s.a, s.b);
                dunlin::sleep_for(20ms);
            }).get();
            dunlin::spawn([&] {
                const std::scoped_lock held(s.b, s.a);
                dunlin::sleep_for(20ms);
            }).get();
        }
    }},
    {"back off with a limit", nullptr, [](scene& s) {
        dunlin::spawn([&] {
            const std::lock_guard held(s.a);
            EXPECT_TRUE(s.b.try_lock());
            s.b.unlock();
            dunlin::sleep_for(30ms);
        }).get();
    }},
    {"a long wait for a channel under a lock", nullptr, [](scene& s) {
        dunlin::go([&] {
            dunlin::sleep_for(50ms);
            s.values.send(1);
        });
        const std::lock_guard held(s.a);
        s.group.go([&] { const std::lock_guard inner(s.a); });
        EXPECT_TRUE(s.values.recv().has_value());
    }},
    {"a condition under a lock", nullptr, [](scene& s) {
        dunlin::go([&] {
            dunlin::sleep_for(50ms);
            const std::lock_guard held(s.a);
            s.cond.notify_one();
        });
        std::unique_lock held(s.a);
        s.cond.wait(held);
    }},
    {"readers and a writer", nullptr, [](scene& s) {
        for (int i = 0; i < 3; ++i) {
            s.group.go([&] {
                const std::shared_lock reads(s.rw);
                dunlin::sleep_for(30ms);
            });
            s.group.go([&] {
                const std::lock_guard writes(s.rw);
                dunlin::sleep_for(10ms);
            });
        }
        s.group.wait();
    }},
};

class CirclePatterns : public support::each_p {
protected:
    // What is said until `word` is, or all is asleep.
    std::string said_of(const row& r) {
        scene& s = *new scene;
        return run([&] {
            support::caught_stderr err;
            r.play(s);
            return dunlin::blocking([&]() -> std::string {
                if (r.why_silent == nullptr) return err.until("a deadlock");
                return err.during(100ms);
            });
        });
    }
};
EACH_P(CirclePatterns);

TEST_P(CirclePatterns, EachIsFoundOrItIsKnownWhyNot) {
    allow(120s);
    for (const row& r : faults) {
        SCOPED_TRACE(r.name);
        const std::string text = said_of(r);
        EXPECT_EQ(
            text.find("in a circle") != text.npos || text.find("a circle of one") != text.npos, r.why_silent == nullptr)
            << text;
    }
}

TEST_P(CirclePatterns, OfProgramsThatAreWellNothingIsSaid) {
    allow(120s);
    for (const row& r : well) {
        SCOPED_TRACE(r.name);
        run([&] {
            support::caught_stderr err;
            {
                scene s;
                r.play(s);
                s.group.wait();
            }
            EXPECT_EQ(dunlin::blocking([&] { return err.during(1ms); }), "");
        });
    }
}

}  // namespace
