// Goroutines that wait for each other: for mutexes, and for their ends. DUNLIN_DEBUG=deadlock: found as soon as they
// have waited for 10 ms. Patterns of published faults, and programs that are well: circle_patterns_test.cpp.
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "support/build.h"
#include "support/caught_stderr.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

using support::caught_stderr;

// Read when the runtime starts, which no test has done yet.
const bool settings_made = [] {
    setenv("DUNLIN_DEBUG", "deadlock", 1);
    return true;
}();

std::size_t count_of(const std::string& word, const std::string& text) {
    std::size_t n = 0;
    for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++n;
    return n;
}

class Circles : public support::each_p {
protected:
    // What is said when `body` has closed a circle, of so many paragraphs. What stands in it is left, and ends with the
    // run.
    template <class Body>
    std::string report_of(std::size_t paragraphs, Body body) {
        return run([&] {
            caught_stderr err;
            body();
            return dunlin::blocking([&] {
                err.until("created at ", paragraphs);
                return err.during(300ms);  // what would be said twice
            });
        });
    }
};
EACH_P(Circles);

#define EXPECT_SAID(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)
#define EXPECT_NOT_SAID(text, part) EXPECT_EQ((text).find(part), std::string::npos) << (text)

// Objects of goroutines that are stopped in the midst of them when the run ends.
template <class T>
T& left() {
    return *new T;
}

TEST_P(Circles, AHolderThatJoinsAWaiterForItsMutex) {
    dunlin::mutex& m = left<dunlin::mutex>();
    const std::string text = report_of(2, [&] {
        dunlin::go({.name = "parent"}, [&] {
            const std::lock_guard guard(m);
            dunlin::task<void> child = dunlin::spawn({.name = "child"}, [&] { const std::lock_guard inner(m); });
            dunlin::sleep_for(1ms);  // it has begun by then, or does in place
            child.get();
        });
    });
    EXPECT_SAID(text, "for mutexes and for their ends, in a circle");
    EXPECT_SAID(text, "\"parent\" [");
    EXPECT_SAID(text, ", for the end of goroutine ");
    EXPECT_SAID(text, "\"child\" [sync.Mutex.Lock");
    EXPECT_SAID(text, ", which goroutine ");
    EXPECT_SAID(text, " (mutex 0x");
    EXPECT_SAID(text, "created at ");
    EXPECT_SAID(text, "a deadlock, unless another goroutine unlocks one of the mutexes");
    EXPECT_EQ(count_of("a deadlock", text), 1u) << text;
}

TEST_P(Circles, AlsoIfTheChildRunsInPlace) {
    dunlin::mutex& m = left<dunlin::mutex>();
    const std::string text = report_of(2, [&] {
        dunlin::go({.name = "parent"}, [&] {
            const std::lock_guard guard(m);
            dunlin::task<void> child = dunlin::spawn({.name = "child"}, [&] {
                dunlin::task<void> grandchild =
                    dunlin::spawn({.name = "grandchild"}, [&] { const std::lock_guard inner(m); });
                grandchild.get();
            });
            child.get();
        });
    });
    EXPECT_SAID(text, "for mutexes and for their ends, in a circle");
    EXPECT_SAID(text, "\"parent\" [");
    EXPECT_SAID(text, "\"grandchild\" [sync.Mutex.Lock");
    EXPECT_EQ(count_of("a deadlock", text), 1u) << text;
}

TEST_P(Circles, AJoinWithALimitIsAnEdgeToo) {
    dunlin::mutex& m = left<dunlin::mutex>();
    const std::string text = report_of(2, [&] {
        dunlin::go({.name = "parent"}, [&] {
            const std::lock_guard guard(m);
            dunlin::task<void> child = dunlin::spawn({.name = "child"}, [&] { const std::lock_guard inner(m); });
            child.wait_for(1h);
        });
    });
    EXPECT_SAID(text, "\"parent\" [task join");
    EXPECT_SAID(text, "\"child\" [sync.Mutex.Lock");
    EXPECT_SAID(text, "a deadlock, if none of them gives up (1 of these waits has a limit)");
}

TEST_P(Circles, AHolderThatWaitsForAGroupWhoseMemberWantsItsMutex) {
    dunlin::mutex& m = left<dunlin::mutex>();
    const std::string text = report_of(2, [&] {
        dunlin::go({.name = "parent"}, [&] {
            dunlin::wait_group group;
            dunlin::latch begun(4);
            const std::lock_guard guard(m);
            group.go({.name = "at work"}, [&] {
                begun.count_down();
                dunlin::sleep_for(1h);
            });
            for (int i = 0; i < 3; ++i) {
                group.go({.name = "member"}, [&] {
                    begun.count_down();
                    const std::lock_guard inner(m);
                });
            }
            begun.wait();  // none runs in place
            group.wait();
        });
    });
    EXPECT_SAID(text, "\"parent\" [sync.WaitGroup.Wait");
    EXPECT_SAID(text, "of that group that wait like it, of which one is goroutine ");
    EXPECT_SAID(text, "\"member\" [sync.Mutex.Lock");
    EXPECT_NOT_SAID(text, "at work");
    EXPECT_EQ(count_of("a deadlock", text), 1u) << text;
}

// Too large for the goroutine's struct: its storage is on the heap.
TEST_P(Circles, AMemberIsKnownWhereverItsFunctionIsKept) {
    dunlin::mutex& m = left<dunlin::mutex>();
    const std::string text = report_of(2, [&] {
        dunlin::go({.name = "parent"}, [&] {
            dunlin::task_group group;
            dunlin::latch begun(1);
            const std::lock_guard guard(m);
            const std::array<char, 200> large{};
            group.go(dunlin::go_options{.name = "member"}, [&m, &begun, large] {
                begun.count_down();
                const std::lock_guard inner(m);
                EXPECT_EQ(large[0], 0);
            });
            begun.wait();
            group.wait();
        });
    });
    EXPECT_SAID(text, "\"parent\" [task group wait");
    EXPECT_SAID(text, ", a member of that group");
    EXPECT_SAID(text, "\"member\" [sync.Mutex.Lock");
}

TEST_P(Circles, AMemberThatWaitsForItsOwnGroupIsACircleOfOne) {
    const std::string text = report_of(1, [&] {
        dunlin::wait_group group;
        group.go({.name = "member"}, [group] { group.wait(); });
    });
    EXPECT_SAID(text, "waits for its own end, a circle of one");
    EXPECT_SAID(text, "\"member\" [sync.WaitGroup.Wait");
    EXPECT_SAID(text, "itself, a member of that group");
}

TEST_P(Circles, TasksThatJoinEachOther) {
    struct pair {
        dunlin::task<void> anna, bert;
        dunlin::latch made{1}, begun{2};
    };
    pair& p = left<pair>();
    const std::string text = report_of(2, [&] {
        p.anna = dunlin::spawn({.name = "anna"}, [&] {
            p.begun.count_down();
            p.made.wait();
            p.bert.wait();
        });
        p.bert = dunlin::spawn({.name = "bert"}, [&] {
            p.begun.count_down();
            p.made.wait();
            p.anna.wait();
        });
        p.begun.wait();
        p.made.count_down();
    });
    EXPECT_SAID(text, "\"anna\" [task join");
    EXPECT_SAID(text, "\"bert\" [task join");
}

TEST_P(Circles, RecursiveMutexesAndLongCircles) {
    static constexpr int length = 60;
    struct ring {
        dunlin::recursive_mutex m[length];
        dunlin::latch all_hold{length};
    };
    ring& r = left<ring>();
    const std::string text = report_of(50, [&] {
        for (int i = 0; i < length; ++i) {
            dunlin::go({.name = "link"}, [&r, i] {
                const std::lock_guard held(r.m[i]);
                r.all_hold.arrive_and_wait();
                const std::lock_guard wanted(r.m[(i + 1) % length]);
            });
        }
    });
    EXPECT_SAID(text, "wait for mutexes that they hold among themselves, in a circle");
    EXPECT_EQ(count_of("\"link\" [", text), 50u) << text;
    EXPECT_SAID(text, "... and 10 more of this circle");
}

// A second circle, which has nothing to do with the first, is told of as well.
TEST_P(Circles, EachCircleIsToldOfOnce) {
    struct two {
        dunlin::mutex a, b;
        dunlin::latch both_hold{2};
    };
    two &first = left<two>(), &second = left<two>();
    const auto close = [](two& t, const char* name) {
        for (const bool swapped : {false, true}) {
            dunlin::go({.name = name}, [&t, swapped] {
                const std::lock_guard held(swapped ? t.b : t.a);
                t.both_hold.arrive_and_wait();
                const std::lock_guard wanted(swapped ? t.a : t.b);
            });
        }
    };
    run([&] {
        caught_stderr err;
        close(first, "first");
        dunlin::blocking([&] { err.until("\"first\""); });
        close(second, "second");
        const std::string text = dunlin::blocking([&] {
            err.until("created at ", 4);
            return err.during(300ms);
        });
        EXPECT_EQ(count_of("a deadlock", text), 2u) << text;
        EXPECT_EQ(count_of("\"first\" [", text), 2u) << text;
        EXPECT_EQ(count_of("\"second\" [", text), 2u) << text;
    });
}

// A goroutine that has been a member once does not make a member of the next one in its struct: a function without
// captures leaves its storage as it was.
dunlin::mutex* wanted_by_all;
dunlin::wait_group* done_by_all;

TEST_P(Circles, ThePlaceOfAFormerMemberSaysNothing) {
    run([] {
        caught_stderr err;
        dunlin::mutex m;
        dunlin::wait_group former, others;
        wanted_by_all = &m;
        done_by_all = &others;
        for (int round = 0; round < 3; ++round) {
            dunlin::latch begun(200);
            for (int i = 0; i < 200; ++i) former.go([&] { begun.arrive_and_wait(); });
            former.wait();
            m.lock();
            others.add(200);
            for (int i = 0; i < 200; ++i) {
                dunlin::go([] {
                    wanted_by_all->lock();
                    wanted_by_all->unlock();
                    done_by_all->done();
                });
            }
            dunlin::latch may_end(1);
            former.go([&] { may_end.wait(); });
            // While it waits for its group, of which none of those is.
            dunlin::after_func(100ms, [&] { may_end.count_down(); });
            former.wait();
            m.unlock();
            others.wait();
        }
        EXPECT_EQ(dunlin::blocking([&] { return err.during(10ms); }), "");
    });
}

// As a report reads it: without a word to the compiler.
[[gnu::noinline]] std::uintptr_t word_at(const std::byte* p) {
    std::uintptr_t word;
    std::memcpy(&word, p, sizeof word);
    return word;
}

TEST_P(Circles, AMarkIsGoneWithItsMember) {
    alignas(8) std::byte storage[8] = {};
    int group = 0;
    auto* mark = ::new (storage) dunlin::detail::member_mark<int>(&group);
    EXPECT_EQ(mark->group(), &group);
    std::destroy_at(mark);
    EXPECT_EQ(word_at(storage), 0u);
}

// Edges come and go in thousands of circles that would be, if each were looked at at another moment: none is one.
// A stop of the world lasts as long as a look at every waiter's stack.
TEST_P(Circles, TheWorldGoesOnWhileManyWaitWithoutACircle) {
    const auto stops = [] { return dunlin::runtime::stats().world_stops.total(); };
    run([&] {
        dunlin::task_group handlers;
        dunlin::mutex m;
        dunlin::wait_group gate;
        gate.add(1);
        std::unique_lock guard(m);
        for (int i = 0; i < 50; ++i) {
            handlers.go([&, large = std::array<char, 200>()] {
                static_cast<void>(large);
                dunlin::task_group parts;
                for (int part = 0; part < 3; ++part) parts.go([gate] { dunlin::spawn([gate] { gate.wait(); }).get(); });
                parts.go([&] { const std::lock_guard inner(m); });
                parts.wait();
            });
        }
        while (dunlin::runtime::stats().waiting < 50 * 5) dunlin::yield();
        const auto before = stops();
        dunlin::sleep_for(300ms);
        EXPECT_EQ(stops(), before);
        gate.done();
        guard.unlock();
        handlers.wait();
    });
}

TEST_P(Circles, WhatIsNoCircleAtAnyMomentIsNone) {
    run([] {
        caught_stderr err;
        dunlin::mutex a, b;
        std::atomic<bool> stop{false};
        dunlin::wait_group group;
        for (int i = 0; i < 4; ++i) {
            group.go([&] {
                while (!stop.load(std::memory_order_relaxed)) {
                    {
                        const std::scoped_lock both(a, b);
                        dunlin::sleep_for(15ms);
                    }
                    dunlin::task<void> child = dunlin::spawn([&] { const std::lock_guard one(a); });
                    child.get();
                }
            });
        }
        std::thread outside([&] {
            while (!stop.load(std::memory_order_relaxed)) {
                const std::lock_guard one(b);
                std::this_thread::sleep_for(12ms);
            }
        });
        dunlin::sleep_for(1s);
        stop = true;
        group.wait();
        dunlin::blocking([&] { outside.join(); });
        EXPECT_EQ(dunlin::blocking([&] { return err.during(10ms); }), "");
    });
}

}  // namespace
