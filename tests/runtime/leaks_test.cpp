// runtime::leaks() and testing::no_leaks: goroutines that can never go on, and those that a test leaves behind.
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

#include <dunlin/testing.hpp>

#include "support/may_trace.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class Leaks : public support::each_p {};
EACH_P(Leaks);

// Those that leaks() tells of, by name.
std::vector<std::string> stuck_names() {
    std::vector<std::string> names;
    for (const dunlin::runtime::leak& l : dunlin::runtime::leaks()) names.push_back(l.name);
    std::sort(names.begin(), names.end());
    return names;
}

void until_waiting(std::size_t count) {
    support::eventually([&] { return dunlin::runtime::stats().waiting >= count; });
}

// What is stuck for good stays when run() returns, which stops it: nothing else ends it.
TEST_P(Leaks, NilChannelsAndEmptySelectsAreForEver) {
    run([] {
        const auto none = dunlin::chan<int>::nil();
        dunlin::go({.name = "a receives"}, [=] { none.recv(); });
        dunlin::go({.name = "b sends"}, [=] { none.send(1); });
        dunlin::go({.name = "c selects"}, [] { dunlin::select(); });
        const int place = __LINE__ + 1;
        dunlin::go({.name = "d selects"}, [=] { dunlin::select(dunlin::on_recv(none, [] {})); });
        until_waiting(4);
        EXPECT_EQ(stuck_names(), (std::vector<std::string>{"a receives", "b sends", "c selects", "d selects"}));
        for (const dunlin::runtime::leak& l : dunlin::runtime::leaks()) {
            EXPECT_GE(l.id, 2u);
            EXPECT_FALSE(l.why.empty());
            EXPECT_GE(l.waited, 0ns);
            if (l.name == "c selects") {
                EXPECT_NE(l.waits_at.find("NilChannelsAndEmptySelectsAreForEver"), std::string::npos) << l.waits_at;
            }
            if (l.name != "d selects") continue;
            EXPECT_EQ(l.state, "select (no cases)");
            EXPECT_NE(l.created_at.find("leaks_test.cpp:" + std::to_string(place)), std::string::npos) << l.created_at;
            EXPECT_NE(l.waits_at.find("leaks_test.cpp:" + std::to_string(place)), std::string::npos) << l.waits_at;
        }
    });
}

TEST_P(Leaks, SoIsAJoinerOfOneOfThem) {
    run([] {
        const auto none = dunlin::chan<int>::nil();
        dunlin::go({.name = "a grandparent"}, [=] {
            dunlin::task<void> t = dunlin::spawn({.name = "b parent"}, [=] {
                dunlin::task<void> child = dunlin::spawn({.name = "c child"}, [=] { none.recv(); });
                child.get();
            });
            t.get();
        });
        until_waiting(3);
        EXPECT_EQ(stuck_names(), (std::vector<std::string>{"a grandparent", "b parent", "c child"}));
    });
}

// The parent is parked, and not on the child's stack.
TEST_P(Leaks, SoIsAParkedJoinerOfOneOfThem) {
    run([] {
        const auto none = dunlin::chan<int>::nil();
        dunlin::go({.name = "a parent"}, [=] {
            dunlin::task<void> child = dunlin::spawn({.name = "b child"}, [=] { none.recv(); });
            dunlin::sleep_for(1ms);
            child.get();
        });
        support::eventually([] { return stuck_names().size() == 2; });
        EXPECT_EQ(stuck_names(), (std::vector<std::string>{"a parent", "b child"}));
    });
}

TEST_P(Leaks, AGoroutineThatMayStillGoOnIsNoAlarm) {
    run([] {
        const dunlin::chan<int> none = dunlin::chan<int>::nil(), silent;
        dunlin::mutex m;
        m.lock();
        dunlin::context ctx = dunlin::context::background();
        auto [cancelled, cancel] = dunlin::with_cancel(ctx);
        std::vector<dunlin::task<void>> all;
        all.push_back(dunlin::spawn([=] { none.recv_for(20ms); }));
        all.push_back(dunlin::spawn([=] { none.send_for(1, 20ms); }));
        all.push_back(dunlin::spawn([=, c = cancelled] { EXPECT_THROW(none.recv(c), dunlin::context_cancelled); }));
        const auto nothing = [] {};
        all.push_back(dunlin::spawn([=] {
            dunlin::select(dunlin::on_recv(none, nothing), dunlin::on_timeout(20ms, nothing));
        }));
        all.push_back(dunlin::spawn([=] {
            dunlin::select(dunlin::on_recv(none, nothing), dunlin::on_recv(silent, nothing));
        }));
        all.push_back(dunlin::spawn([=] { silent.recv(); }));
        all.push_back(dunlin::spawn([&] { m.lock(), m.unlock(); }));
        all.push_back(dunlin::spawn([] { dunlin::sleep_for(20ms); }));
        all.push_back(dunlin::spawn([=] {
            dunlin::task<void> child = dunlin::spawn([=] { silent.recv(); });
            dunlin::yield();
            child.get();
        }));
        dunlin::sleep_for(5ms);
        EXPECT_EQ(stuck_names(), std::vector<std::string>{});
        m.unlock();
        cancel();
        silent.close();
        for (dunlin::task<void>& t : all) t.get();
    });
}

// One that waits with a limit for one that is stuck is not: it gives up.
TEST_P(Leaks, AJoinerWithALimitIsNoAlarm) {
    run([] {
        const auto none = dunlin::chan<int>::nil();
        dunlin::task<void> child = dunlin::spawn({.name = "child"}, [=] { none.recv(); });
        dunlin::task<bool> joiner = dunlin::spawn([&] { return child.wait_for(20ms); });
        dunlin::sleep_for(5ms);
        EXPECT_EQ(stuck_names(), std::vector<std::string>{"child"});
        EXPECT_FALSE(joiner.get());
        child.detach();
    });
}

// What is said where the search cannot be made, and that it can.
TEST_P(Leaks, SaysWhetherAllWasLookedFor) {
    run([] {
        const auto none = dunlin::chan<int>::nil();
        dunlin::go({.name = "a nil"}, [=] { none.recv(); });
        until_waiting(1);
        std::string incomplete = "old";
        EXPECT_EQ(dunlin::runtime::leaks(incomplete).size(), 1u);
        EXPECT_EQ(incomplete.empty(), !support::under_thread && support::may_trace()) << incomplete;
    });
}

// Where glibc would have a heap, at a multiple of 64 MiB, there may be a guard that the list of mappings does not show:
// that of a stack of 256 KiB, or one of the program's.
TEST_P(Leaks, LooksForHeapsWithoutTouchingGuards) {
    constexpr std::uintptr_t heaps_at = std::uintptr_t{64} << 20;
    constexpr int guard_install = 102;  // MADV_GUARD_INSTALL of Linux 6.13
    void* const memory =
        mmap(nullptr, 2 * heaps_at, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    const std::uintptr_t place = (reinterpret_cast<std::uintptr_t>(memory) + heaps_at - 1) & ~(heaps_at - 1);
    if (madvise(reinterpret_cast<void*>(place), 4096, guard_install) == 0) {
        run([] { EXPECT_EQ(stuck_names(), std::vector<std::string>{}); });
    } else {
        std::puts("this kernel has no such guards");
    }
    munmap(memory, 2 * heaps_at);
}

// ---- the guard
// --------------------------------------------------------------------------------------------------------

using dunlin::testing::no_leaks;

TEST_P(Leaks, TheGuardSaysNothingOfWhatEnds) {
    run([] {
        const no_leaks guard({.on_leak = [](const std::string& report) { ADD_FAILURE() << report; }});
        dunlin::wait_group all;
        for (int i = 0; i < 100; ++i) all.go([] { dunlin::sleep_for(1ms); });
        all.wait();
        dunlin::spawn([] {}).get();
        dunlin::go([] { dunlin::sleep_for(30ms); });  // on its way out when the scope ends
        dunlin::after_func(1ms, [] { dunlin::sleep_for(5ms); });
    });
}

TEST_P(Leaks, TheGuardWithoutPatienceLooksOnce) {
    run([] {
        no_leaks nothing_left({.grace = 0s});
        EXPECT_EQ(nothing_left.check(), "");
        const dunlin::chan<int> silent;
        no_leaks one_left({.grace = 0s});
        dunlin::task<void> t = dunlin::spawn([=] { silent.recv(); });
        EXPECT_NE(one_left.check(), "");
        silent.close();
        t.get();
    });
}

TEST_P(Leaks, TheGuardSaysNothingOfWhatWasThereBefore) {
    run([] {
        const dunlin::chan<int> silent;
        dunlin::task<void> before = dunlin::spawn({.name = "before"}, [=] { silent.recv(); });
        {
            const no_leaks guard({.on_leak = [](const std::string& report) { ADD_FAILURE() << report; }});
            dunlin::sleep_for(1ms);
        }
        silent.close();
        before.get();
    });
}

TEST_P(Leaks, TheGuardTellsNamePlacesAndStackOfWhatIsLeft) {
    run([] {
        const dunlin::chan<int> silent;
        std::string report;
        std::vector<dunlin::task<void>> left;
        int created = 0, waits = 0;
        {
            const no_leaks guard({.grace = 20ms, .on_leak = [&](const std::string& r) { report = r; }});
            created = __LINE__ + 1;
            left.push_back(dunlin::spawn({.name = "forgotten"}, [=, &waits] {
                waits = __LINE__ + 1;
                silent.recv();
            }));
            left.push_back(dunlin::spawn({.name = "also"}, [=] { silent.recv(); }));
        }
        const auto has = [&](const std::string& what) { return report.find(what) != std::string::npos; };
        const std::string begin = "dunlin: 2 goroutines are left of what no_leaks guards (leaks_test.cpp:";
        EXPECT_EQ(report.rfind(begin, 0), 0u) << report;
        EXPECT_TRUE(has("\"forgotten\" [chan receive")) << report;
        EXPECT_TRUE(has("\"also\" [chan receive")) << report;
        EXPECT_TRUE(has("waits at leaks_test.cpp:" + std::to_string(waits))) << report;
        EXPECT_TRUE(has("created at leaks_test.cpp:" + std::to_string(created))) << report;
        EXPECT_FALSE(has("goroutine 1 ")) << report;
        silent.close();
        for (dunlin::task<void>& t : left) t.get();
    });
}

TEST_P(Leaks, TheGuardDoesNotWaitForAGoroutineThatCanNeverGoOn) {
    run([] {
        const auto none = dunlin::chan<int>::nil();
        std::string report;
        const auto began = std::chrono::steady_clock::now();
        {
            const no_leaks guard({.grace = 1h, .on_leak = [&](const std::string& r) { report = r; }});
            dunlin::go({.name = "stuck"}, [=] { none.recv(); });
            until_waiting(1);
        }
        EXPECT_LT(std::chrono::steady_clock::now() - began, 10s);
        EXPECT_NE(report.find("1 goroutine is left"), std::string::npos) << report;
        EXPECT_NE(report.find("\"stuck\""), std::string::npos) << report;
    });
}

TEST_P(Leaks, CheckLooksBeforeTheEndAndOnce) {
    run([] {
        const dunlin::chan<int> silent;
        std::optional<no_leaks> guard;
        const auto fail = [](const std::string& report) { ADD_FAILURE() << report; };
        guard.emplace(dunlin::testing::no_leaks_options{.grace = 1ms, .on_leak = fail});
        EXPECT_EQ(guard->check(), "");
        dunlin::task<void> t = dunlin::spawn([=] { silent.recv(); });
        until_waiting(1);
        EXPECT_NE(guard->check(), "");
        guard.reset();  // it has said it
        silent.close();
        t.get();
    });
}

TEST_P(Leaks, OnAPlainThread) {
    run([] {
        const dunlin::chan<int> silent;
        std::string report;
        dunlin::task<void> t;
        std::thread thread([&] {
            const no_leaks guard({.grace = 10ms, .on_leak = [&](const std::string& r) { report = r; }});
            t = dunlin::spawn({.name = "of a thread"}, [=] { silent.recv(); });
        });
        dunlin::blocking([&] { thread.join(); });
        EXPECT_NE(report.find("\"of a thread\""), std::string::npos) << report;
        silent.close();
        t.get();
    });
}

// While others are started, end and wait, on all processors: never a word.
TEST_P(Leaks, NoAlarmInAStorm) {
    run([] {
        std::atomic<bool> enough{false};
        dunlin::wait_group all;
        for (int i = 0; i < 4; ++i) {
            all.go([&] {
                while (!enough.load()) {
                    const dunlin::chan<int> c;
                    dunlin::task<void> t = dunlin::spawn([c] { c.send(1); });
                    dunlin::task<int> u = dunlin::spawn([] { return dunlin::spawn([] { return 1; }).get(); });
                    c.recv();
                    t.get(), u.get();
                }
            });
        }
        for (int i = 0; i < 30; ++i) {
            no_leaks guard({.grace = 1ms});
            EXPECT_TRUE(dunlin::runtime::leaks().empty());
            dunlin::sleep_for(1ms);
            guard.check();  // others are at work, and it may find them
        }
        enough.store(true);
        all.wait();
    });
}

TEST(LeaksDeathTest, WithoutAHandlerTheProcessAborts) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(dunlin::run([] {
        const auto none = dunlin::chan<int>::nil();
        const no_leaks guard;
        dunlin::go({.name = "forgotten"}, [=] { none.recv(); });
        until_waiting(1);
    }), "1 goroutine is left of what no_leaks guards(.|\n)*forgotten");
}

}  // namespace
