// Programs in which timers are, or are not, a reason to wait.
#include <cstdio>
#include <optional>
#include <stdexcept>

#include <dunlin/dunlin.hpp>

#include "support/scenarios.h"

using namespace std::chrono_literals;

namespace {

using dunlin::clock;
using times = dunlin::receiver<clock::time_point>;

int say(const char* what) {
    std::printf("%s\n", what);
    return 0;
}

// DLK-06, child A.
int function_closes() {
    dunlin::run([] {
        dunlin::chan<int> c;
        dunlin::after_func(500ms, [c] { c.close(); });
        c.recv();
    });
    return say("closed");
}

// DLK-06, child B.
int function_stopped() {
    dunlin::run([] {
        dunlin::chan<int> c;
        dunlin::timer t = dunlin::after_func(500ms, [c] { c.close(); });
        t.stop();
        c.recv();
    });
    return say("received");
}

int function_stopped_later() {
    dunlin::run([] {
        dunlin::chan<int> c;
        dunlin::timer t = dunlin::after_func(1h, [c] { c.close(); });
        dunlin::go([&t] {
            dunlin::sleep_for(20ms);
            t.stop();
        });
        c.recv();
    });
    return say("received");
}

int waits_for_timer() {
    dunlin::run([] {
        dunlin::timer t(200ms);
        t.channel().recv();
        dunlin::select(dunlin::on_recv(dunlin::after(100ms)), dunlin::on_recv(dunlin::chan<int>()));
        dunlin::ticker k(20ms);
        for (int i = 0; i < 5; ++i) k.channel().recv();
    });
    return say("received");
}

int waits_for_stopped_timer() {
    dunlin::run([] {
        dunlin::timer t(10ms);
        t.stop();
        t.channel().recv();
    });
    return say("received");
}

// It stands in a heap when it is stopped.
int stopped_under_its_waiter() {
    dunlin::run([] {
        dunlin::timer t(1h);
        const times c = t.channel();
        dunlin::go([&t] {
            dunlin::sleep_for(20ms);
            t.stop();
        });
        c.recv();
    });
    return say("received");
}

int waits_for_stopped_ticker() {
    dunlin::run([] {
        dunlin::ticker k(1ms);
        k.channel().recv();
        dunlin::sleep_for(5ms);
        k.stop();
        dunlin::select(dunlin::on_recv(k.channel()), dunlin::on_recv(dunlin::chan<int>()));
    });
    return say("received");
}

int receives_twice() {
    dunlin::run([] {
        dunlin::timer t(1ms);
        t.channel().recv();
        t.channel().recv();
    });
    return say("received");
}

// Timers without a waiter.
int without_a_waiter() {
    dunlin::run([] {
        dunlin::timer t(1h);
        dunlin::ticker k(1ms);
        const times a = dunlin::after(1h), c = t.channel();
        dunlin::chan<int>().recv();
    });
    return say("received");
}

// There was a waiter, which has given up.
int after_the_last_waiter() {
    dunlin::run([] {
        dunlin::timer t(1h);
        dunlin::ticker k(1h);
        t.channel().recv_for(1ms);
        dunlin::select(dunlin::on_recv(t.channel()), dunlin::on_recv(k.channel()), dunlin::on_timeout(1ms));
        dunlin::chan<int>().recv();
    });
    return say("received");
}

int dropped_under_its_waiter() {
    dunlin::run([] {
        times c;
        dunlin::wait_group wg;
        {
            dunlin::timer t(1h);
            c = t.channel();
            wg.go([c] { c.recv(); });
            dunlin::sleep_for(20ms);
        }
        wg.wait();
    });
    return say("received");
}

// What was pending when the first run() returned is forgotten, and no reason to wait in the second.
int function_of_an_earlier_run() {
    std::optional<dunlin::timer> t;
    dunlin::run([&] { t.emplace(dunlin::after_func(1h, [] {})); });
    dunlin::run([] { dunlin::chan<int>().recv(); });
    return say("received");
}

// The first run's goroutines do not get what is meant for the second's.
int waited_for_again() {
    dunlin::timer t(1h);
    const times c = t.channel();
    dunlin::run([&] {
        for (int i = 0; i < 10; ++i) dunlin::go([c] { c.recv(); });
        dunlin::sleep_for(20ms);
    });
    dunlin::run([&] {
        t.reset(50ms);
        c.recv();
    });
    return say("received");
}

int function_throws() {
    dunlin::run([] {
        dunlin::after_func(1ms, [] { throw std::runtime_error("from a timer"); });
        dunlin::sleep_for(10s);
    });
    return say("slept");
}

constexpr support::scenario all[] = {
    {"function_closes", function_closes},
    {"function_stopped", function_stopped},
    {"function_stopped_later", function_stopped_later},
    {"waits_for_timer", waits_for_timer},
    {"waits_for_stopped_timer", waits_for_stopped_timer},
    {"stopped_under_its_waiter", stopped_under_its_waiter},
    {"waits_for_stopped_ticker", waits_for_stopped_ticker},
    {"receives_twice", receives_twice},
    {"without_a_waiter", without_a_waiter},
    {"after_the_last_waiter", after_the_last_waiter},
    {"dropped_under_its_waiter", dropped_under_its_waiter},
    {"function_of_an_earlier_run", function_of_an_earlier_run},
    {"waited_for_again", waited_for_again},
    {"function_throws", function_throws},
};

}  // namespace

int main(int argc, char** argv) { return support::choose(argc, argv, all); }
