// What the library does in goroutines for plain threads goes on when a run() ends (sched/goroutines/independent.h).
// Where it does not, the plain thread of the test waits for ever, and the watchdog reports it.
#include <chrono>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <dunlin/singleflight.hpp>

#include "sched/machines/processor.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class Independent : public support::each_p {
protected:
    void TearDown() override {
        support::each_p::TearDown();
        EXPECT_EQ(dunlin::sched::the_scheduler.independent.load(), 0u) << "they are counted off as they end";
    }

    // Not the fixture's run(), which waits until no goroutine is left.
    template <class Body>
    void a_run(Body&& body) {
        dunlin::run({.max_procs = procs()}, std::forward<Body>(body));
    }

    // A call that a plain thread makes, while several runs end.
    template <class Call>
    void while_runs_end(Call&& call) {
        std::atomic<bool> over{false};
        std::thread caller([&] {
            call();
            over = true;
        });
        while (!over) a_run([] { dunlin::sleep_for(1ms); });
        caller.join();
    }
};
EACH_P(Independent);

TEST_P(Independent, AFunctionOfASingleflightGoesOnAsItSleeps) {
    dunlin::singleflight<int, int> flights;
    while_runs_end([&] {
        for (int i = 0; i < 20; ++i) {
            const auto got = flights.call_for(1, 1h, [i] {
                dunlin::sleep_for(5ms);
                return i;
            });
            EXPECT_EQ(got, i);
        }
    });
}

// Whatever such a function waits for: a channel with a limit, a deadline of its own, a thread that it has wired, a call
// that again needs a goroutine.
TEST_P(Independent, ItsWaitsOfAllKindsGoOn) {
    dunlin::singleflight<int, int> flights;
    while_runs_end([&] {
        const auto waits = [&](auto f) {
            EXPECT_EQ(flights.call_for(1, 1h, [&] {
                f();
                return 7;
            }), 7);
        };
        const dunlin::chan<int> never;
        for (int i = 0; i < 5; ++i) {
            waits([&] { EXPECT_FALSE(never.recv_for(5ms)); });
            waits([&] { EXPECT_THROW(never.recv(dunlin::with_timeout({}, 5ms)), dunlin::context_cancelled); });
            waits([&] { dunlin::select(dunlin::on_recv(never, [](auto) {}), dunlin::on_timeout(5ms, [] {})); });
            waits([&] { dunlin::blocking([] { std::this_thread::sleep_for(5ms); }); });
            waits([&] { std::this_thread::sleep_for(5ms); });
            waits([&] {
                dunlin::lock_os_thread();
                dunlin::sleep_for(5ms);
                dunlin::unlock_os_thread();
            });
            waits([&] {
                const auto until = dunlin::clock::now() + 5ms;
                while (dunlin::clock::now() < until) {}
            });
            waits([&] {
                dunlin::on_thread_stack([] { dunlin::sleep_for(5ms); });
            });
            waits([&] {
                const auto called = std::make_shared<dunlin::chan<int>>();
                const dunlin::cancellable ctx = dunlin::with_timeout({}, 5ms);
                ctx.after_func([called] {
                    dunlin::sleep_for(5ms);
                    called->send(1);
                });
                EXPECT_EQ(called->recv(), 1);
            });
            waits([&] {
                dunlin::singleflight<int, int> inner;
                EXPECT_EQ(inner.call_for(1, 1h, [] {
                    dunlin::sleep_for(5ms);
                    return 8;
                }), 8);
            });
        }
    });
}

// What it starts is independent too, whether it runs on a stack of its own or on that of the goroutine that joins it.
TEST_P(Independent, WhatItStartsGoesOn) {
    dunlin::singleflight<int, int> flights;
    while_runs_end([&] {
        for (int i = 0; i < 5; ++i) {
            const auto got = flights.call_for(1, 1h, [] {
                std::atomic<int> ended{0};
                const auto one = [&ended] {
                    dunlin::sleep_for(3ms);
                    ++ended;
                };
                dunlin::spawn([&] { dunlin::spawn(one).get(); }).get();
                dunlin::wait_group members;
                for (int k = 0; k < 3; ++k) members.go(one);
                members.wait();
                dunlin::task_group group;
                group.go_n(3, [&](std::size_t) { one(); });
                group.wait();
                const dunlin::chan<int> told;
                const dunlin::timer later = dunlin::after_func(3ms, [&] { told.send(1); });
                told.recv();
                return ended.load();
            });
            EXPECT_EQ(got, 7);
        }
    });
}

// A FIFO can be opened once there is a writer.
TEST_P(Independent, AnOpenWithAContextGoesOn) {
    const std::string fifo = std::filesystem::temp_directory_path() / ("dunlin_fifo_" + std::to_string(getpid()));
    ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
    const dunlin::cancellable ctx = dunlin::with_cancel({});
    std::atomic<int> opened{0};
    std::thread reader([&] {
        const dunlin::fs::file f = dunlin::fs::file::open(fifo, "r", ctx);
        opened = 1;
    });
    support::eventually_on_thread([] { return dunlin::runtime::num_goroutines() == 1; });
    for (int i = 0; i < 5; ++i) a_run([] { dunlin::sleep_for(2ms); });
    const int writer = open(fifo.c_str(), O_WRONLY);
    reader.join();
    EXPECT_EQ(opened, 1);
    close(writer);
    unlink(fifo.c_str());
}

// A listener whose backlog is full answers none: the kernel asks again after a second.
TEST_P(Independent, ADialToSeveralAddressesGoesOn) {
    using namespace dunlin;
    net::listener four = net::listen("tcp", "127.0.0.1:0", {.backlog = 1});
    const std::string port = std::to_string(four.local_address().port());
    std::error_code none;
    net::listener six = net::listen("tcp", "[::1]:" + port, {.backlog = 1}, none);
    if (none) GTEST_SKIP() << "no IPv6, or its port is taken: localhost is one address here";
    std::vector<net::stream> waiting;
    for (const auto* of : {"127.0.0.1:", "[::1]:"}) {
        for (int timeouts = 0; timeouts < 2;) {
            if (waiting.size() == 100) GTEST_SKIP() << "this kernel lets in more than the backlog";
            std::error_code ec;
            net::stream s = net::dial("tcp", of + port, 50ms, ec);
            timeouts = ec ? timeouts + 1 : 0;
            if (s.is_open()) waiting.push_back(std::move(s));
        }
    }
    while_runs_end([&] {
        std::atomic<bool> begun{false};
        std::thread drains([&] {
            while (!begun) std::this_thread::sleep_for(1ms);
            std::this_thread::sleep_for(400ms);  // the second attempt begins after 250 ms, and meets a full queue too
            for (net::listener* l : {&four, &six}) {
                for (std::error_code ec; !ec;) static_cast<void>(l->accept(with_timeout({}, 1ms), ec));
            }
        });
        begun = true;
        EXPECT_TRUE(net::dial("tcp", "localhost:" + port).is_open());
        drains.join();
    });
}

// run() does not wait for what works for a plain thread, even if it waits for all that it leaves.
TEST_P(Independent, NoRunWaitsForIt) {
    std::atomic<bool> over{false}, began{false};
    dunlin::singleflight<int, int> flights;
    std::thread caller([&] {
        const auto got = flights.call_for(1, 1h, [&] {
            began = true;
            while (!over) dunlin::sleep_for(1ms);
            return 5;
        });
        EXPECT_EQ(got, 5);
    });
    support::eventually_on_thread([&] { return began.load(); });
    bool ended = false;
    dunlin::run({.max_procs = procs(), .at_end = dunlin::leftovers::wait}, [&] {
        dunlin::go([&] {
            dunlin::sleep_for(5ms);
            ended = true;
        });
    });
    EXPECT_TRUE(ended);
    over = true;
    caller.join();
}

// What run() waits for is told from what works for threads, however many of these come and go.
TEST_P(Independent, RunWaitsForAllOthersAmongThem) {
    std::atomic<bool> over{false};
    std::thread caller([&] {
        dunlin::singleflight<int, int> flights;
        while (!over) flights.call_for(1, 1h, [] { return 1; });
    });
    for (int i = 0; i < support::rounds(100); ++i) {
        std::atomic<bool> ended{false};
        dunlin::run({.max_procs = procs(), .at_end = dunlin::leftovers::wait}, [&] {
            dunlin::go([&] {
                dunlin::sleep_for(500us);
                ended = true;
            });
        });
        EXPECT_TRUE(ended);
    }
    over = true;
    caller.join();
}

// A goroutine of the run joins one that is independent. It may not run that one in place: it is stopped at the end, and
// the other goes on.
TEST_P(Independent, WhatOneOfItsTasksDoesGoesOnThoughTheJoinerIsStopped) {
    for (int i = 0; i < support::rounds(20); ++i) {
        const dunlin::chan<std::shared_ptr<dunlin::task<void>>> given;
        const auto ended = std::make_shared<std::atomic<bool>>(false);
        const auto joins = std::make_shared<std::atomic<bool>>(false);
        std::thread thread;
        a_run([&] {
            dunlin::go([=] {
                const auto its = *given.recv();
                *joins = true;
                its->get();
            });
            dunlin::yield();
            thread = std::thread([=] {
                const dunlin::cancellable ctx = dunlin::with_cancel({});
                ctx.after_func([=] {
                    const auto its = std::make_shared<dunlin::task<void>>(dunlin::spawn([=] {
                        dunlin::sleep_for(3ms);
                        *ended = true;
                    }));
                    given.send(its);  // the joiner runs before the task begins, on the same processor
                });
                ctx.cancel();
            });
            support::eventually([&] { return joins->load(); });
            dunlin::yield();
        });
        thread.join();
        support::eventually_on_thread([&] { return ended->load(); });
    }
}

// What a goroutine of the run gave to after_func() is the run's, although a plain thread's deadline calls it, in an
// independent goroutine.
TEST_P(Independent, AFunctionOfAGoroutineIsNotWhicheverCancels) {
    for (int i = 0; i < support::rounds(20); ++i) {
        const dunlin::cancellable ctx = dunlin::with_timeout({}, 1ms);
        std::atomic<int> ended{0};
        dunlin::run({.max_procs = procs(), .at_end = dunlin::leftovers::wait}, [&] {
            ctx.after_func([&] {
                dunlin::sleep_for(3ms);
                ++ended;
            });
            ctx.done().recv();
            dunlin::sleep_for(1ms);
        });
        EXPECT_EQ(ended, 1);
    }
}

// What a plain thread itself starts belongs to the run() of that moment.
TEST_P(Independent, WhatAThreadStartsEndsWithTheRun) {
    std::atomic<unsigned> steps{0};
    dunlin::go([&] {
        for (;;) {
            ++steps;
            dunlin::sleep_for(100us);
        }
    });
    support::eventually_on_thread([&] { return steps != 0; });
    a_run([] {});
    const unsigned then = steps;
    std::this_thread::sleep_for(5ms);
    EXPECT_EQ(steps, then);
}

}  // namespace
