// Programs that use locks and the like as they must not be used, and programs in which all wait for one of them.
//
// sync MISUSE PLACE     the misuse on the main goroutine, on another one, inside catch (...), or on a plain thread
// sync SCENARIO
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <dunlin/barrier.hpp>
#include <dunlin/condition_variable.hpp>
#include <dunlin/dunlin.hpp>
#include <dunlin/future.hpp>
#include <dunlin/latch.hpp>
#include <dunlin/mutex.hpp>
#include <dunlin/once.hpp>
#include <dunlin/semaphore.hpp>
#include <dunlin/shared_mutex.hpp>

#include "support/scenarios.h"

using namespace std::chrono_literals;

namespace {

int say(const char* what) {
    std::printf("%s\n", what);
    std::fflush(stdout);
    return 0;
}

template <class Condition>
void eventually(Condition condition) {
    while (!condition()) dunlin::yield();
}

// On any thread.
void until_waiting(std::size_t goroutines) {
    while (dunlin::runtime::stats().waiting < goroutines) std::this_thread::sleep_for(1ms);
}

// Starts `wait` and destroys the object while it waits.
template <class Object, class Wait, class... Args>
void destroy_under_waiter(Wait wait, Args... args) {
    std::optional<Object> object(std::in_place, args...);
    dunlin::go([&object, wait] { wait(*object); });
    until_waiting(1);
    object.reset();
}

// ---- go1.24 src/sync/mutex_test.go, misuseTests; and ours -----------------------------------------------------------

void mutex_unlock() {
    dunlin::mutex m;
    m.unlock();
}

void mutex_unlock_2() {
    dunlin::mutex m;
    m.lock();
    m.unlock();
    m.unlock();
}

void shared_mutex_unlock() {
    dunlin::shared_mutex m;
    m.unlock();
}

void shared_mutex_unlock_2() {
    dunlin::shared_mutex m;
    m.lock_shared();
    m.unlock();
}

void shared_mutex_unlock_3() {
    dunlin::shared_mutex m;
    m.lock();
    m.unlock();
    m.unlock();
}

void shared_mutex_unlock_shared() {
    dunlin::shared_mutex m;
    m.unlock_shared();
}

void shared_mutex_unlock_shared_2() {
    dunlin::shared_mutex m;
    m.lock();
    m.unlock_shared();
}

void shared_mutex_unlock_shared_3() {
    dunlin::shared_mutex m;
    m.lock_shared();
    m.unlock_shared();
    m.unlock_shared();
}

void recursive_mutex_unlock() {
    dunlin::recursive_mutex m;
    m.unlock();
}

void recursive_mutex_unlock_2() {
    dunlin::recursive_mutex m;
    m.lock();
    m.lock();
    m.unlock();
    m.unlock();
    m.unlock();
}

// In the destructor of a lock.
void mutex_unlock_by_guard() {
    dunlin::mutex m;
    const std::lock_guard guard(m);
    m.unlock();
}

// By a condition variable.
void mutex_unlock_by_wait() {
    dunlin::mutex m;
    dunlin::condition_variable_any changed;
    changed.wait(m);
}

void mutex_lock_twice() {
    dunlin::mutex m;
    m.lock();
    m.lock();
}

void recursive_mutex_unlock_by_another() {
    static dunlin::recursive_mutex m;
    dunlin::chan<int> locked, never;
    dunlin::go([=] {
        m.lock();
        locked.close();
        never.recv();
    });
    locked.recv();
    m.unlock();
}

void destroy_locked_mutex() {
    dunlin::mutex m;
    m.lock();
}

void destroy_locked_recursive_mutex() {
    dunlin::recursive_mutex m;
    m.lock();
}

void destroy_read_shared_mutex() {
    dunlin::shared_mutex m;
    m.lock_shared();
}

void destroy_written_shared_mutex() {
    dunlin::shared_mutex m;
    m.lock();
}

void destroy_waited_mutex() {
    std::optional<dunlin::mutex> m(std::in_place);
    m->lock();
    dunlin::go([&m] { m->lock(); });
    until_waiting(1);
    m.reset();
}

void destroy_waited_shared_mutex() {
    std::optional<dunlin::shared_mutex> m(std::in_place);
    m->lock();
    dunlin::go([&m] { m->lock_shared(); });
    until_waiting(1);
    m.reset();
}

void destroy_waited_condition_variable() {
    static dunlin::mutex m;
    destroy_under_waiter<dunlin::condition_variable>([](dunlin::condition_variable& changed) {
        std::unique_lock lock(m);
        changed.wait(lock);
    });
}

void destroy_waited_condition_variable_any() {
    static dunlin::shared_mutex m;
    destroy_under_waiter<dunlin::condition_variable_any>([](dunlin::condition_variable_any& changed) {
        std::shared_lock lock(m);
        changed.wait(lock);
    });
}

void destroy_waited_semaphore() {
    destroy_under_waiter<dunlin::counting_semaphore<>>([](dunlin::counting_semaphore<>& s) { s.acquire(); }, 0);
}

void destroy_waited_latch() {
    destroy_under_waiter<dunlin::latch>([](dunlin::latch& l) { l.wait(); }, 1);
}

void destroy_waited_barrier() {
    destroy_under_waiter<dunlin::barrier<>>([](dunlin::barrier<>& b) { b.arrive_and_wait(); }, 2);
}

// Its function runs, and another waits for its end.
void destroy_waited_once_flag() {
    std::optional<dunlin::once_flag> once(std::in_place);
    dunlin::chan<int> begun, never;
    dunlin::go([&once, begun, never] {
        dunlin::call_once(*once, [&] {
            begun.close();
            never.recv();
        });
    });
    begun.recv();
    dunlin::go([&once] { dunlin::call_once(*once, [] {}); });
    until_waiting(2);
    once.reset();
}

constexpr struct {
    const char* name;
    void (*run)();
} misuses[] = {
    {"mutex_unlock", mutex_unlock},
    {"mutex_unlock_2", mutex_unlock_2},
    {"shared_mutex_unlock", shared_mutex_unlock},
    {"shared_mutex_unlock_2", shared_mutex_unlock_2},
    {"shared_mutex_unlock_3", shared_mutex_unlock_3},
    {"shared_mutex_unlock_shared", shared_mutex_unlock_shared},
    {"shared_mutex_unlock_shared_2", shared_mutex_unlock_shared_2},
    {"shared_mutex_unlock_shared_3", shared_mutex_unlock_shared_3},
    {"recursive_mutex_unlock", recursive_mutex_unlock},
    {"recursive_mutex_unlock_2", recursive_mutex_unlock_2},
    {"mutex_unlock_by_guard", mutex_unlock_by_guard},
    {"mutex_unlock_by_wait", mutex_unlock_by_wait},
    {"mutex_lock_twice", mutex_lock_twice},
    {"recursive_mutex_unlock_by_another", recursive_mutex_unlock_by_another},
    {"destroy_locked_mutex", destroy_locked_mutex},
    {"destroy_locked_recursive_mutex", destroy_locked_recursive_mutex},
    {"destroy_read_shared_mutex", destroy_read_shared_mutex},
    {"destroy_written_shared_mutex", destroy_written_shared_mutex},
    {"destroy_waited_mutex", destroy_waited_mutex},
    {"destroy_waited_shared_mutex", destroy_waited_shared_mutex},
    {"destroy_waited_condition_variable", destroy_waited_condition_variable},
    {"destroy_waited_condition_variable_any", destroy_waited_condition_variable_any},
    {"destroy_waited_semaphore", destroy_waited_semaphore},
    {"destroy_waited_latch", destroy_waited_latch},
    {"destroy_waited_barrier", destroy_waited_barrier},
    {"destroy_waited_once_flag", destroy_waited_once_flag},
};

int misuse(void (*f)(), const std::string& place) {
    if (place == "main") {
        dunlin::run([f] { f(); });
    } else if (place == "goroutine") {
        dunlin::run([f] {
            std::atomic<bool> ended{false};
            dunlin::go(dunlin::go_options{.name = "culprit"}, [f, &ended] {
                f();
                ended = true;
            });
            eventually([&] { return ended.load(); });  // does not count as one that waits
        });
    } else if (place == "catch") {
        dunlin::run([f] {
            try {
                f();
            } catch (...) {}
        });
    } else if (place == "thread") {
        dunlin::run([f] { std::thread(f).join(); });
    } else {
        return 64;
    }
    return say("survived");
}

// ---- errors that are exceptions -------------------------------------------------------------------------------------

int negative_wait_group() {
    dunlin::run([] {
        dunlin::wait_group wg;
        wg.add();
        wg.done();
        dunlin::go([wg]() mutable { wg.done(); });
        dunlin::sleep_for(10s);
    });
    return say("survived");
}

// go() counts a member up and down; its function has done so itself.
int member_done_twice() {
    dunlin::run([] {
        dunlin::wait_group wg;
        wg.go([wg]() mutable { wg.done(); });
        wg.wait();
        dunlin::sleep_for(10s);
    });
    return say("survived");
}

int negative_wait_group_caught() {
    dunlin::run([] {
        dunlin::wait_group wg;
        for (int i = 0; i < 3; ++i) {
            try {
                wg.add(-1);
            } catch (const std::logic_error& e) {
                say(e.what());
            }
        }
        wg.wait();
    });
    return say("survived");
}

int negative_latch() {
    dunlin::run([] {
        dunlin::latch l(1);
        l.count_down();
        dunlin::go([&l] { l.count_down(); });
        dunlin::sleep_for(10s);
    });
    return say("survived");
}

int semaphore_overflow() {
    dunlin::run([] {
        dunlin::binary_semaphore s(1);
        dunlin::go([&s] { s.release(); });
        dunlin::sleep_for(10s);
    });
    return say("survived");
}

int close_of_closed_channel() {
    dunlin::run([] {
        dunlin::chan<int> c;
        c.close();
        dunlin::go(dunlin::go_options{.name = "closer"}, [c] { c.close(); });
        dunlin::sleep_for(10s);
    });
    return say("survived");
}

int send_on_closed_channel() {
    dunlin::run([] {
        dunlin::chan<int> c;
        c.close();
        dunlin::go([c] { c.send(1); });
        dunlin::sleep_for(10s);
    });
    return say("survived");
}

// ---- DLK-02, go1.24 testdata/testprog/deadlock.go: SimpleDeadlock, InitDeadlock; and each primitive -----------------

int no_cases() {
    dunlin::run([] { dunlin::select(); });
    return say("woken");
}

int no_cases_in_a_list() {
    dunlin::run([] {
        std::vector<dunlin::select_case> none;
        dunlin::select(none);
    });
    return say("woken");
}

int nil_receive() {
    dunlin::run([] { dunlin::chan<int>::nil().recv(); });
    return say("woken");
}

int nil_send() {
    dunlin::run([] { dunlin::chan<int>::nil().send(1); });
    return say("woken");
}

int nil_select() {
    dunlin::run([] {
        dunlin::select(dunlin::on_recv(dunlin::chan<int>::nil()), dunlin::on_send(dunlin::chan<int>::nil(), 1));
    });
    return say("woken");
}

int channel_send() {
    dunlin::run([] { dunlin::chan<int>().send(1); });
    return say("woken");
}

int wait_group_never_done() {
    dunlin::run([] {
        dunlin::wait_group wg;
        wg.add();
        wg.wait();
    });
    return say("woken");
}

// Each has one and waits for the other's.
int two_mutexes() {
    dunlin::run([] {
        dunlin::mutex a, b;
        dunlin::chan<int> ready;
        a.lock();
        dunlin::go(dunlin::go_options{.name = "other"}, [&] {
            b.lock();
            ready.close();
            a.lock();
        });
        ready.recv();
        b.lock();
    });
    return say("woken");
}

int recursive_mutex_held_by_another() {
    dunlin::run([] {
        dunlin::recursive_mutex m;
        m.lock();
        dunlin::spawn([&] { m.lock(); }).get();
    });
    return say("woken");
}

// A share, a writer that waits for its end, and one more share: go1.24 sync/rwmutex.go says that this does not work.
int read_recursively() {
    dunlin::run([] {
        dunlin::shared_mutex m;
        m.lock_shared();
        dunlin::go([&] { m.lock(); });
        eventually([] { return dunlin::runtime::stats().waiting == 1; });
        m.lock_shared();
    });
    return say("woken");
}

int condition_never_true() {
    dunlin::run([] {
        dunlin::mutex m;
        dunlin::condition_variable changed;
        std::unique_lock lock(m);
        changed.wait(lock, [] { return false; });
    });
    return say("woken");
}

int semaphore_empty() {
    dunlin::run([] { dunlin::counting_semaphore<5>(0).acquire(); });
    return say("woken");
}

int latch_never_zero() {
    dunlin::run([] { dunlin::latch(1).wait(); });
    return say("woken");
}

int barrier_incomplete() {
    dunlin::run([] { dunlin::barrier(2).arrive_and_wait(); });
    return say("woken");
}

int once_inside_itself() {
    dunlin::run([] {
        dunlin::once_flag once;
        dunlin::call_once(once, [&] { dunlin::call_once(once, [] {}); });
    });
    return say("woken");
}

int promise_never_kept() {
    dunlin::run([] {
        dunlin::promise<int> p;
        p.get_future().get();
    });
    return say("woken");
}

// ---- DLK-03, go1.24 testdata/testprog/deadlock.go: LockedDeadlock, LockedDeadlock2 ----------------------------------

int locked_deadlock() {
    dunlin::run([] {
        dunlin::lock_os_thread();
        dunlin::select();
    });
    return say("woken");
}

int locked_deadlock_2() {
    dunlin::run([] {
        dunlin::go([] {
            dunlin::lock_os_thread();
            dunlin::select();
        });
        dunlin::sleep_for(1ms);
        dunlin::select();
    });
    return say("woken");
}

int locked_for_a_mutex() {
    dunlin::run([] {
        dunlin::mutex m;
        m.lock();
        dunlin::go([&] {
            dunlin::os_thread_lock wired;
            m.lock();
        });
        dunlin::os_thread_lock wired;
        dunlin::counting_semaphore<>(0).acquire();
    });
    return say("woken");
}

// ---- DLK-06 ---------------------------------------------------------------------------------------------------------

int function_unlocks() {
    dunlin::run([] {
        dunlin::mutex m;
        m.lock();
        dunlin::after_func(500ms, [&] { m.unlock(); });
        dunlin::spawn([&] {
            m.lock();
            m.unlock();
        }).get();
    });
    return say("unlocked");
}

int stopped_function_would_unlock() {
    dunlin::run([] {
        dunlin::mutex m;
        m.lock();
        dunlin::timer t = dunlin::after_func(500ms, [&] { m.unlock(); });
        t.stop();
        dunlin::spawn([&] { m.lock(); }).get();
    });
    return say("unlocked");
}

// Every limit is a timer.
int limits_end() {
    dunlin::run([] {
        dunlin::mutex m;
        dunlin::shared_mutex s;
        dunlin::condition_variable changed;
        dunlin::latch never(1);
        m.lock();
        s.lock();
        dunlin::wait_group all;
        all.go([&] { m.try_lock_for(200ms); });
        all.go([&] { s.try_lock_for(200ms); });
        all.go([&] { s.try_lock_shared_for(200ms); });
        all.go([&] { dunlin::counting_semaphore<>(0).try_acquire_for(200ms); });
        all.go([&] { never.wait_for(200ms); });
        all.go([&] {
            dunlin::mutex mine;
            std::unique_lock lock(mine);
            changed.wait_for(lock, 200ms);
        });
        all.wait();
        m.unlock();
        s.unlock();
    });
    return say("ended");
}

// A limit that is over is no reason to wait.
int limit_before() {
    dunlin::run([] {
        dunlin::counting_semaphore<> s(0);
        s.try_acquire_for(10ms);
        s.acquire();
    });
    return say("woken");
}

int thread_unlocks() {
    dunlin::mutex m;
    m.lock();
    std::thread other([&] {
        std::this_thread::sleep_for(300ms);
        m.unlock();
    });
    dunlin::run([&] { m.lock(); });
    other.join();
    m.unlock();
    return say("unlocked");
}

constexpr support::scenario scenarios[] = {
    {"negative_wait_group", negative_wait_group},
    {"member_done_twice", member_done_twice},
    {"negative_wait_group_caught", negative_wait_group_caught},
    {"negative_latch", negative_latch},
    {"semaphore_overflow", semaphore_overflow},
    {"close_of_closed_channel", close_of_closed_channel},
    {"send_on_closed_channel", send_on_closed_channel},
    {"no_cases", no_cases},
    {"no_cases_in_a_list", no_cases_in_a_list},
    {"nil_receive", nil_receive},
    {"nil_send", nil_send},
    {"nil_select", nil_select},
    {"channel_send", channel_send},
    {"wait_group_never_done", wait_group_never_done},
    {"two_mutexes", two_mutexes},
    {"recursive_mutex_held_by_another", recursive_mutex_held_by_another},
    {"read_recursively", read_recursively},
    {"condition_never_true", condition_never_true},
    {"semaphore_empty", semaphore_empty},
    {"latch_never_zero", latch_never_zero},
    {"barrier_incomplete", barrier_incomplete},
    {"once_inside_itself", once_inside_itself},
    {"promise_never_kept", promise_never_kept},
    {"locked_deadlock", locked_deadlock},
    {"locked_deadlock_2", locked_deadlock_2},
    {"locked_for_a_mutex", locked_for_a_mutex},
    {"function_unlocks", function_unlocks},
    {"stopped_function_would_unlock", stopped_function_would_unlock},
    {"limits_end", limits_end},
    {"limit_before", limit_before},
    {"thread_unlocks", thread_unlocks},
};

// InitDeadlock: run() before main().
struct before_main {
    before_main() {
        if (std::getenv("SYNC_DEADLOCK_BEFORE_MAIN") != nullptr) dunlin::run([] { dunlin::select(); });
    }
} const early;

}  // namespace

int main(int argc, char** argv) {
    for (const auto& m : misuses) {
        if (argc == 3 && std::strcmp(argv[1], m.name) == 0) return misuse(m.run, argv[2]);
    }
    return support::choose(argc, argv, scenarios);
}
