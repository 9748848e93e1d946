// Programs in which no goroutine can ever run again, and some that only look like it.
#include <cstdio>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include <dunlin/dunlin.hpp>

#include "support/scenarios.h"

using namespace std::chrono_literals;

namespace {

[[noreturn]] void never() {
    dunlin::wait_group wg;
    wg.add(1);
    wg.wait();
    std::printf("woken\n");
    std::exit(3);
}

int wait_group_never_done() {
    dunlin::run([] {
        dunlin::go(dunlin::go_options{.name = "left behind", .labels = {{"kind", "parked"}}}, [] { never(); });
        std::printf("waiting\n");
        std::fflush(stdout);
        never();
    });
    return 0;
}

int two_wait_for_each_other() {
    dunlin::run([] {
        dunlin::wait_group a, b;
        a.add(1);
        b.add(1);
        dunlin::task<void> other = dunlin::spawn([a, b]() mutable {
            a.wait();
            b.done();
        });
        b.wait();
        a.done();
        other.get();
    });
    return 0;
}

// The classic: two locks in two orders.
int locks_in_two_orders() {
    dunlin::run([] {
        dunlin::mutex a, b;
        dunlin::latch both(2);
        const auto lock = [&](dunlin::mutex& first, dunlin::mutex& second) {
            first.lock();
            both.arrive_and_wait();
            second.lock();
        };
        dunlin::task<void> one = dunlin::spawn([&] { lock(a, b); }), other = dunlin::spawn([&] { lock(b, a); });
        one.get();
    });
    return 0;
}

int task_group_never_ends() {
    dunlin::run([] {
        dunlin::task_group group;
        group.go([] { never(); });
        group.wait();
    });
    return 0;
}

int join_never_ends() {
    dunlin::run([] {
        dunlin::task<void> t = dunlin::spawn([] { never(); });
        dunlin::yield();
        t.get();
    });
    return 0;
}

// The fact comes to be at a known time.
int after_a_sleep() {
    dunlin::run([] {
        dunlin::sleep_for(200ms);
        timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        std::printf("%lld\n", static_cast<long long>(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
        std::fflush(stdout);
        never();
    });
    return 0;
}

int main_exits_others_end() {
    dunlin::run([] {
        dunlin::go([] { dunlin::sleep_for(20ms); });
        dunlin::go([] { dunlin::yield(); });
        dunlin::exit_goroutine();
    });
    return 0;
}

int main_exits_alone() {
    dunlin::run([] { dunlin::exit_goroutine(); });
    return 0;
}

int main_exits_others_stay() {
    dunlin::run([] {
        dunlin::go([] { never(); });
        dunlin::exit_goroutine();
    });
    return 0;
}

// go1.24 testdata/testprog/crash... GoexitExit: another goroutine ends the process after main has gone.
int main_exits_another_calls_exit() {
    dunlin::run([] {
        dunlin::go([] {
            dunlin::sleep_for(20ms);
            std::exit(0);
        });
        dunlin::exit_goroutine();
    });
    return 1;
}

// A thread of the program's that has been joined counts no more, also when the kernel has not quite forgotten it.
int after_a_thread_was_joined() {
    dunlin::run([] {
        std::thread([] {}).join();
        never();
    });
    return 0;
}

// A thread that could have sent something has ended without doing so.
int after_the_last_thread_ended() {
    dunlin::run([] {
        std::thread([] { usleep(100'000); }).detach();
        never();
    });
    return 0;
}

int second_run() {
    for (int i = 0; i < 10; ++i) dunlin::run([] { dunlin::spawn([] { dunlin::yield(); }).get(); });
    dunlin::run([] { never(); });
    return 0;
}

// The run before has left goroutines that were parked.
int second_run_after_parked_ones_were_left() {
    dunlin::run([] {
        dunlin::go([] { never(); });
        dunlin::go([] { dunlin::sleep_for(1h); });
        dunlin::yield();
    });
    dunlin::run([] { never(); });
    return 0;
}

int many_goroutines() {
    dunlin::run([] {
        for (int i = 0; i < 1000; ++i) dunlin::go([] { never(); });
        never();
    });
    return 0;
}

int with_many_processors() {
    dunlin::run({.max_procs = 64}, [] {
        dunlin::wait_group wg;
        for (int i = 0; i < 1000; ++i) wg.go([] { dunlin::yield(); });
        wg.wait();
        never();
    });
    return 0;
}

// ---- none of these is a deadlock ------------------------------------------------------------------------------------

int thread_sends_later() {
    dunlin::wait_group wg;
    wg.add(1);
    std::thread sender([wg]() mutable {
        usleep(300'000);
        wg.done();
    });
    dunlin::run([wg] { wg.wait(); });
    sender.join();
    std::printf("received\n");
    return 0;
}

int timer_is_pending() {
    dunlin::run([] {
        dunlin::wait_group wg;
        wg.go([] { dunlin::sleep_for(500ms); });
        wg.wait();
    });
    std::printf("fired\n");
    return 0;
}

int without_run() {
    dunlin::go([] { never(); });
    usleep(300'000);
    std::printf("ended\n");
    return 0;
}

// A thousand moments at which every goroutine waits, but something is on its way: a timer, a system call, a thread that
// is being made.
int pending_a_thousand_times() {
    dunlin::run({.max_procs = 4}, [] {
        for (int i = 0; i < 1000; ++i) {
            dunlin::wait_group wg;
            switch (i % 4) {
            case 0: wg.go([] { dunlin::sleep_for(100us); }); break;
            case 1: wg.go([] { usleep(100); }); break;
            case 2:  // threads are made
                dunlin::runtime::set_max_procs(4 + static_cast<unsigned>(i / 4) % 40);
                for (int k = 0; k < 40; ++k) wg.go([] { dunlin::yield(); });
                break;
            default:  // a writer outside
                wg.add(1);
                std::thread([wg]() mutable { wg.done(); }).detach();
                break;
            }
            wg.wait();
        }
    });
    std::printf("a thousand\n");
    return 0;
}

// DLK-03, LockedDeadlock: main is wired to its thread and waits.
int locked_waits() {
    dunlin::run([] {
        dunlin::lock_os_thread();
        dunlin::wait_group never;
        never.add();
        never.wait();
    });
    return 0;
}

// DLK-03, LockedDeadlock2: another is, and both wait.
int another_is_locked() {
    dunlin::run([] {
        dunlin::wait_group never;
        never.add();
        dunlin::go([never] {
            dunlin::lock_os_thread();
            never.wait();
        });
        dunlin::sleep_for(std::chrono::milliseconds(1));
        never.wait();
    });
    return 0;
}

// What an earlier run() has left on its thread's stack may send as a thread may.
int left_on_a_threads_stack_sends_later() {
    dunlin::chan<int> c;
    dunlin::run([&] {
        std::atomic<bool> inside{false};
        dunlin::go([c, &inside]() mutable {
            dunlin::on_thread_stack([&] {
                inside = true;
                std::this_thread::sleep_for(100ms);
                c.send(1);
            });
        });
        while (!inside) dunlin::sleep_for(1ms);
    });
    dunlin::run([&] {
        c.recv();
        std::printf("received\n");
    });
    return 0;
}

void leave_one_that_waits(dunlin::leftovers at_end, dunlin::clock::duration limit) {
    dunlin::run({.at_end = at_end, .at_end_limit = limit}, [] {
        dunlin::go([] { never(); });
        dunlin::sleep_for(1ms);
    });
}

int run_waits_for_leftovers() {
    leave_one_that_waits(dunlin::leftovers::wait, dunlin::clock::duration::max());
    return 0;
}

int run_waits_for_leftovers_until_a_limit() {
    const auto begin = dunlin::clock::now();
    leave_one_that_waits(dunlin::leftovers::wait, 30ms);
    leave_one_that_waits(dunlin::leftovers::cancel_and_wait, 30ms);
    std::printf("waited: %s\n", dunlin::clock::now() - begin >= 60ms ? "yes" : "no");
    dunlin::run([] { std::printf("ran\n"); });
    return 0;
}

constexpr support::scenario all[] = {
    {"wait_group_never_done", wait_group_never_done},
    {"two_wait_for_each_other", two_wait_for_each_other},
    {"locks_in_two_orders", locks_in_two_orders},
    {"task_group_never_ends", task_group_never_ends},
    {"join_never_ends", join_never_ends},
    {"after_a_sleep", after_a_sleep},
    {"main_exits_others_end", main_exits_others_end},
    {"main_exits_alone", main_exits_alone},
    {"main_exits_others_stay", main_exits_others_stay},
    {"main_exits_another_calls_exit", main_exits_another_calls_exit},
    {"after_a_thread_was_joined", after_a_thread_was_joined},
    {"after_the_last_thread_ended", after_the_last_thread_ended},
    {"second_run", second_run},
    {"second_run_after_parked_ones_were_left", second_run_after_parked_ones_were_left},
    {"run_waits_for_leftovers", run_waits_for_leftovers},
    {"run_waits_for_leftovers_until_a_limit", run_waits_for_leftovers_until_a_limit},
    {"many_goroutines", many_goroutines},
    {"with_many_processors", with_many_processors},
    {"thread_sends_later", thread_sends_later},
    {"left_on_a_threads_stack_sends_later", left_on_a_threads_stack_sends_later},
    {"timer_is_pending", timer_is_pending},
    {"locked_waits", locked_waits},
    {"another_is_locked", another_is_locked},
    {"without_run", without_run},
    {"pending_a_thousand_times", pending_a_thousand_times},
};

}  // namespace

int main(int argc, char** argv) { return support::choose(argc, argv, all); }
