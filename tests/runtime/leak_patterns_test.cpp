// Goroutines that are left waiting, in the manner of GoBench's communication deadlocks and mixed ones (Yuan et al.,
// "GoBench: a benchmark suite of real-world Go concurrency bugs", CGO 2021) and of the programs that goleak is for,
// written anew for this library: runtime::leaks() finds each. And programs that are well, of which it may say nothing.
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/may_trace.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

struct row {
    const char* name;
    unsigned lost;        // how many, all with the name of the go
    void (*play)();       // in a goroutine that ends before one looks
};

std::string name_of_go;

template <class F>
void lost(F f) {
    dunlin::go({.name = name_of_go}, std::move(f));
}

using ints = dunlin::chan<int>;
const auto nothing = [] {};

// Its request gives up at once: what comes later has no receiver.
int ask_and_give_up(const ints& answers) {
    const auto r = answers.recv_for(0ms);
    return r ? *r : 0;
}

const row faults[] = {
    {"a sender whose receiver has timed out", 1, [] {
        const ints answers;
        lost([=] { answers.send(1); });
        ask_and_give_up(answers);
    }},
    {"a second sender to a channel of one answer", 1, [] {
        const ints first;
        for (int i = 0; i < 2; ++i) lost([=] { first.send(i); });
        first.recv();
    }},
    {"a sender whose receiver has returned with an error", 2, [] {
        const ints results, errors;
        lost([=] { results.send(1); });
        lost([=] { results.send(2); });
        dunlin::go([=] { errors.send(1); });
        errors.recv();
    }},
    {"a second error, with room for one", 2, [] {
        const ints errors(1);
        for (int i = 0; i < 4; ++i) lost([=] { errors.send(i); });
        errors.recv();
        dunlin::sleep_for(1ms);
    }},
    {"range over a channel that is not closed", 1, [] {
        const ints work(4);
        lost([=] {
            for (int v : work) (void)v;
        });
        for (int i = 0; i < 4; ++i) work.send(i);
    }},
    {"workers that wait for work when all is done", 3, [] {
        const ints work;
        for (int i = 0; i < 3; ++i) {
            lost([=] {
                while (work.recv()) {
                }
            });
        }
        for (int i = 0; i < 5; ++i) work.send(i);
    }},
    {"a producer whose consumer has left its loop", 1, [] {
        const ints values;
        lost([=] {
            for (int i = 0;; ++i) values.send(i);
        });
        for (int v : values) {
            if (v == 3) break;
        }
    }},
    {"a pipeline of which the last stage has returned", 3, [] {
        ints in;
        lost([=] {
            for (int i = 0;; ++i) in.send(i);
        });
        for (int stage = 0; stage < 2; ++stage) {
            const ints out;
            lost([=] {
                for (int v : in) out.send(v);
            });
            in = out;
        }
        in.recv();
    }},
    {"a stop that is never sent", 1, [] {
        const ints ticks, stop;
        lost([=] {
            for (bool goes_on = true; goes_on;) {
                dunlin::select(dunlin::on_recv(ticks, nothing), dunlin::on_recv(stop, [&] { goes_on = false; }));
            }
        });
        ticks.send(1);
    }},
    {"a stop that no loop receives any more", 1, [] {
        const ints stop;
        const dunlin::chan<int> ended;
        dunlin::go([=] { ended.close(); });
        ended.recv();
        lost([=] { stop.send(1); });
    }},
    {"a context that is not cancelled", 1, [] {
        auto [ctx, cancel] = dunlin::with_cancel(dunlin::context::background());
        lost([ctx = ctx] { ctx.done().recv(); });
    }},
    {"a receive until a context that is not cancelled", 1, [] {
        const ints values;
        auto [ctx, cancel] = dunlin::with_cancel(dunlin::context::background());
        lost([values, ctx = ctx] { values.recv(ctx); });
    }},
    {"a select of a context that is not cancelled and of a silent channel", 1, [] {
        const ints values;
        auto [ctx, cancel] = dunlin::with_cancel(dunlin::context::background());
        lost([values, ctx = ctx] {
            dunlin::select(dunlin::on_recv(ctx.done(), nothing), dunlin::on_recv(values, nothing));
        });
    }},
    {"two that each wait for the other's message", 2, [] {
        const ints a, b;
        lost([=] { a.recv(), b.send(1); });
        lost([=] { b.recv(), a.send(1); });
    }},
    {"a circle of three channels", 3, [] {
        const ints c[] = {ints(), ints(), ints()};
        for (int i = 0; i < 3; ++i) {
            lost([from = c[i], to = c[(i + 1) % 3]] {
                from.recv();
                to.send(1);
            });
        }
    }},
    {"a lock held while sending, wanted by the receiver", 2, [] {
        struct state {
            dunlin::mutex m;
            ints c;
        };
        const auto s = std::make_shared<state>();
        const ints locked;
        lost([=] {
            const std::lock_guard held(s->m);
            locked.send(1);
            s->c.send(1);
        });
        locked.recv();
        lost([=] {
            const std::lock_guard held(s->m);
            s->c.recv();
        });
    }},
    // A lock taken twice by its holder is reported at once: it ends the process (tests/crash/sync.cpp).
    {"a lock that a return has forgotten", 2, [] {
        const auto m = std::make_shared<dunlin::mutex>();
        dunlin::spawn([=] { m->lock(); }).get();
        for (int i = 0; i < 2; ++i) lost([=] { m->lock(); });
    }},
    {"two locks in two orders", 2, [] {
        struct state {
            dunlin::mutex a, b;
            dunlin::latch both{2};
        };
        const auto s = std::make_shared<state>();
        lost([=] { s->a.lock(), s->both.arrive_and_wait(), s->b.lock(); });
        lost([=] { s->b.lock(), s->both.arrive_and_wait(), s->a.lock(); });
    }},
    {"a reader that reads again behind a writer", 2, [] {
        struct state {
            dunlin::shared_mutex rw;
            ints read;
            std::atomic<bool> again{false};
        };
        const auto s = std::make_shared<state>();
        lost([=] {
            s->rw.lock_shared();
            s->read.send(1);
            while (!s->again) dunlin::yield();
            s->rw.lock_shared();
        });
        s->read.recv();
        lost([=] { s->rw.lock(); });
        while (s->rw.try_lock_shared()) {
            s->rw.unlock_shared();
            dunlin::yield();
        }
        s->again = true;
    }},
    {"a wait_group with one done too few", 1, [] {
        const auto group = std::make_shared<dunlin::wait_group>();
        group->add(2);
        dunlin::go([=] { group->done(); });
        lost([=] { group->wait(); });
    }},
    {"a wait_group whose member waits for a message", 2, [] {
        const ints c;
        lost([=] {
            dunlin::wait_group group;
            group.go([&] {
                dunlin::this_goroutine::set_name(name_of_go);
                c.recv();
            });
            group.wait();
        });
    }},
    {"a wait for workers who send what the waiter would receive", 3, [] {
        struct state {
            dunlin::wait_group group;
            ints results;
        };
        const auto s = std::make_shared<state>();
        s->group.add(2);
        for (int i = 0; i < 2; ++i) lost([=] { s->results.send(i), s->group.done(); });
        lost([=] {
            s->group.wait();
            s->results.close();
        });
    }},
    {"a condition that is not notified", 1, [] {
        struct state {
            dunlin::mutex m;
            dunlin::condition_variable c;
        };
        const auto s = std::make_shared<state>();
        lost([=] {
            std::unique_lock held(s->m);
            s->c.wait(held);
        });
    }},
    {"a condition that was notified before the wait", 1, [] {
        struct state {
            dunlin::mutex m;
            dunlin::condition_variable c;
        };
        const auto s = std::make_shared<state>();
        s->c.notify_all();
        lost([=] {
            std::unique_lock held(s->m);
            s->c.wait(held);
        });
    }},
    {"a semaphore whose permit is not given back", 2, [] {
        const auto permits = std::make_shared<dunlin::counting_semaphore<>>(1);
        permits->acquire();
        for (int i = 0; i < 2; ++i) lost([=] { permits->acquire(); });
    }},
    {"permits in a channel, taken and not put back", 1, [] {
        const ints permits(1);
        permits.send(1);
        lost([=] { permits.send(1); });
    }},
    {"a latch with one arrival too few", 1, [] {
        const auto latch = std::make_shared<dunlin::latch>(2);
        lost([=] { latch->arrive_and_wait(); });
    }},
    {"a barrier for three that two come to", 2, [] {
        const auto barrier = std::make_shared<dunlin::barrier<>>(3);
        for (int i = 0; i < 2; ++i) lost([=] { barrier->arrive_and_wait(); });
    }},
    {"a future whose promise waits itself", 1, [] {
        lost([] {
            dunlin::promise<int> p;
            p.get_future().get();
        });
    }},
    {"a joiner of one that is lost", 2, [] {
        const ints c;
        lost([=] {
            dunlin::task<void> child = dunlin::spawn({.name = name_of_go}, [=] { c.recv(); });
            dunlin::sleep_for(1ms);
            child.get();
        });
    }},
    {"one that runs a lost one in place", 2, [] {
        const ints c;
        lost([=] { dunlin::spawn({.name = name_of_go}, [=] { c.recv(); }).get(); });
    }},
    {"a notification that is not sent", 1, [] {
        const dunlin::notify bell;
        lost([=] { bell.wait(); });
    }},
    {"a channel of channels, with a request that is not answered", 1, [] {
        const dunlin::chan<ints> requests(1);
        lost([=] {
            const ints answer;
            requests.send(answer);
            answer.recv();
        });
        dunlin::sleep_for(1ms);
    }},
    {"handles in a container of a lost one", 1, [] {
        std::vector<ints> many;
        for (int i = 0; i < 8; ++i) many.emplace_back();
        lost([many] { many[5].recv(); });
    }},
    {"a large closure", 1, [] {
        const ints c;
        struct {
            char bytes[400];
        } large{};
        lost([=] {
            c.send(large.bytes[0]);
        });
    }},
};

struct well_row {
    const char* name;
    std::function<void()> (*start)();  // what it returns lets them go on
};

dunlin::wait_group* all_well = nullptr;

template <class F>
void well(F f) {
    all_well->go({.name = "well"}, std::move(f));
}

const ints of_the_program(0);

const well_row healthy[] = {
    {"a channel that the caller still has", [] {
        const ints c;
        well([=] { c.recv(); });
        return std::function<void()>([=] { c.send(1); });
    }},
    {"a static channel", [] {
        well([] { of_the_program.recv(); });
        return std::function<void()>([] { of_the_program.send(1); });
    }},
    {"a channel by reference", [] {
        const auto c = std::make_shared<ints>();
        well([c = c.get()] { c->recv(); });
        return std::function<void()>([=] { c->send(1); });
    }},
    {"a handle that only a sleeper has", [] {
        const ints c;
        well([=] { c.recv(); });
        well([=] { dunlin::sleep_for(30ms), c.send(1); });
        return std::function<void()>(nothing);
    }},
    {"a handle that only a timer has", [] {
        const ints c;
        well([=] { c.recv(); });
        dunlin::after_func(30ms, [=] { c.send(1); });
        return std::function<void()>(nothing);
    }},
    {"a handle that only a plain thread has", [] {
        const ints c;
        well([=] { c.recv(); });
        std::thread([c]() mutable {
            std::this_thread::sleep_for(30ms);
            c.send(1);
        }).detach();
        return std::function<void()>(nothing);
    }},
    {"a handle that only one in a blocking call has", [] {
        const ints c;
        well([=] { c.recv(); });
        well([=] { dunlin::blocking([] { std::this_thread::sleep_for(30ms); }), c.send(1); });
        return std::function<void()>(nothing);
    }},
    {"a handle that only one that computes has", [] {
        const ints c;
        static std::atomic<bool> computes;
        computes = true;
        well([=] { c.recv(); });
        well([=] {
            while (computes.load(std::memory_order_relaxed)) {
            }
            c.send(1);
        });
        return std::function<void()>([] { computes = false; });
    }},
    {"a handle in a value on its way", [] {
        const dunlin::chan<ints> mail(1);
        const ints c;
        well([=] { c.recv(); });
        mail.send(c);
        return std::function<void()>([=] { mail.recv()->send(1); });
    }},
    {"a handle in the result of a task that has ended", [] {
        const ints c;
        well([=] { c.recv(); });
        auto t = std::make_shared<dunlin::task<ints>>(dunlin::spawn([=] { return c; }));
        dunlin::sleep_for(1ms);
        return std::function<void()>([=] { t->get().send(1); });
    }},
    {"a chain of which the first link is held", [] {
        const ints a, b, c;
        well([=] { a.recv(), b.send(1); });
        well([=] { b.recv(), c.send(1); });
        well([=] { c.recv(); });
        return std::function<void()>([=] { a.send(1); });
    }},
    {"a wait with a limit", [] {
        const ints c;
        well([=] { c.recv_for(30ms); });
        well([=] { dunlin::select(dunlin::on_recv(c, nothing), dunlin::on_timeout(30ms, nothing)); });
        well([=] {
            auto [ctx, cancel] = dunlin::with_timeout(dunlin::context::background(), 30ms);
            EXPECT_THROW(c.recv(ctx), dunlin::context_cancelled);
        });
        return std::function<void()>(nothing);
    }},
    {"a timer's channel", [] {
        well([] { dunlin::after(30ms).recv(); });
        return std::function<void()>(nothing);
    }},
    {"a wait_group on the stack, with a member that sleeps", [] {
        well([] {
            dunlin::wait_group group;
            group.go([] { dunlin::sleep_for(30ms); });
            group.wait();
        });
        return std::function<void()>(nothing);
    }},
    {"objects in a struct that the caller has by its beginning", [] {
        struct state {
            char before[256];
            dunlin::mutex m;
            dunlin::condition_variable c;
            dunlin::counting_semaphore<> s{0};
            dunlin::latch l{1};
        };
        const auto s = std::make_shared<state>();
        s->m.lock();
        well([p = s.get()] { const std::lock_guard held(p->m); });
        well([p = s.get()] { p->s.acquire(); });
        well([p = s.get()] { p->l.wait(); });
        return std::function<void()>([=] { s->m.unlock(), s->s.release(), s->l.count_down(); });
    }},
    {"a future", [] {
        const auto p = std::make_shared<dunlin::promise<int>>();
        well([f = std::make_shared<dunlin::future<int>>(p->get_future())] { f->get(); });
        return std::function<void()>([=] { p->set_value(1); });
    }},
    {"one on another's stack, by reference", [] {
        well([] {
            const ints c;
            dunlin::go({.name = "well"}, [&] { dunlin::sleep_for(30ms), c.send(1); });
            c.recv();
        });
        return std::function<void()>(nothing);
    }},
};

class LeakPatterns : public support::each_p {};
EACH_P(LeakPatterns);

std::size_t count_of(const std::vector<dunlin::runtime::leak>& leaks, const std::string& name) {
    return static_cast<std::size_t>(
        std::count_if(leaks.begin(), leaks.end(), [&](const auto& l) { return l.name == name; }));
}

// Far below the frames of what looks then, so that what is left of this one's is not in them.
[[gnu::noinline]] void play(const row& r) {
    char below[16384];
    asm volatile("" : : "r"(below) : "memory");
    dunlin::spawn([&] { r.play(); }).get();
    asm volatile("" : : "r"(below) : "memory");
}

// An old value on a stack may hide one (runtime::leaks()): of several goes, at other places, one must show all.
[[gnu::noinline]] bool found_in_some_go(const row& r) {
    for (int go = 1; go <= 20; ++go) {
        name_of_go = "lost, go " + std::to_string(go);
        play(r);
        for (int look = 0; look < 3; ++look) {
            dunlin::sleep_for((look + 1) * 1ms);
            if (count_of(dunlin::runtime::leaks(), name_of_go) == r.lost) return true;
        }
    }
    return false;
}

// Most of them: frames have old values in them, the larger they are (AddressSanitizer's, and without optimisation) the
// more, so that none is sure to be found in each run.
TEST_P(LeakPatterns, MostAreFound) {
    allow(120s);
    if (support::under_thread || !support::may_trace()) GTEST_SKIP() << "only waits for nil channels are known here";
    std::size_t found = 0;
    for (const row& r : faults) {
        run([&] {
            const bool this_one = found_in_some_go(r);
            if (!this_one) std::printf("not found: %s\n", r.name);
            found += this_one;
        });
    }
    EXPECT_GE(found, std::size(faults) * 3 / 4);
}

// The timers that they slept by refer to them from nowhere when they have fired, though the heap has grown meanwhile.
TEST_P(LeakPatterns, SendersThatSleptBeforeAreFoundAsOthers) {
    if (support::under_thread || !support::may_trace()) GTEST_SKIP() << "only waits for nil channels are known here";
    run([] {
        constexpr int senders = 40;
        const row r{"senders that sleep, and come too late", senders, [] {
            for (int i = 0; i < senders; ++i) {
                const ints answer;
                lost([=] {
                    dunlin::sleep_for(5ms);
                    answer.send(1);
                });
            }
        }};
        name_of_go = "late";
        play(r);
        // An old value on a stack may hide some.
        support::eventually([] { return count_of(dunlin::runtime::leaks(), "late") >= senders / 2; });
    });
}

// A stack that begins where another goroutine has just parked has nothing of what that one had in its registers.
TEST_P(LeakPatterns, GoroutinesThatBeginOneAfterTheOtherDoNotHideEachOther) {
    if (support::sanitized) GTEST_SKIP() << "frames have old values of their own there";
    if (!support::may_trace()) GTEST_SKIP() << "only waits for nil channels are known here";
    run([] {
        constexpr int pairs = 40;
        static std::vector<ints> kept;
        kept.reserve(pairs);
        const row r{"every second one of a burst", pairs, [] {
            for (int i = 0; i < pairs; ++i) {
                const ints has_no_sender, has_one;
                lost([=] { has_no_sender.recv(); });
                dunlin::go({.name = "well"}, [=] { has_one.recv(); });
                kept.push_back(has_one);
            }
        }};
        name_of_go = "burst";
        play(r);
        support::eventually([] { return count_of(dunlin::runtime::leaks(), "burst") >= pairs * 3 / 4; });
        EXPECT_EQ(count_of(dunlin::runtime::leaks(), "well"), 0u);
        for (const ints& c : kept) c.send(1);
        kept.clear();
    });
}

TEST_P(LeakPatterns, OfProgramsThatAreWellNothingIsSaid) {
    allow(120s);
    for (const well_row& r : healthy) {
        SCOPED_TRACE(r.name);
        run([&] {
            dunlin::wait_group all;
            all_well = &all;
            const std::function<void()> release = r.start();
            for (int look = 0; look < 5; ++look) {
                EXPECT_EQ(count_of(dunlin::runtime::leaks(), "well"), 0u);
                dunlin::sleep_for(2ms);
            }
            release();
            all.wait();
            support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });
        });
    }
}

}  // namespace
