// call_once, once_func, once_value; promise and future; pool.
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <dunlin/future.hpp>
#include <dunlin/once.hpp>
#include <dunlin/pool.hpp>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class Once : public support::each_p {};
EACH_P(Once);
class Future : public support::each_p {};
EACH_P(Future);
class Pool : public support::each_p {};
EACH_P(Pool);

TEST_P(Once, IsCalledOnceAndAllWaitForItsEnd) {
    run([] {
        for (int round = 0; round < support::rounds(500); ++round) {
            auto flag = std::make_unique<dunlin::once_flag>();
            std::atomic<int> calls{0}, wrong{0};
            dunlin::task_group group;
            for (int i = 0; i < 8; ++i) {
                group.go([&] {
                    dunlin::call_once(*flag, [&](int n) {
                        dunlin::yield();
                        calls += n;
                    }, 1);
                    if (calls != 1) ++wrong;
                });
            }
            if (round % 10 == 0) {
                std::thread t([&] { dunlin::call_once(*flag, [&] { ++calls; }); });
                dunlin::blocking([&] { t.join(); });
            }
            group.wait();
            flag.reset();
            EXPECT_EQ(calls, 1);
            EXPECT_EQ(wrong, 0);
        }
    });
}

TEST_P(Once, AnExceptionCountsAsDone) {
    run([] {
        dunlin::once_flag flag;
        EXPECT_THROW(dunlin::call_once(flag, [] { throw std::runtime_error("once"); }), std::runtime_error);
        dunlin::call_once(flag, [] { FAIL(); });
        int calls = 0;
        auto f = dunlin::once_func([&] {
            ++calls;
            throw std::runtime_error("each time");
        });
        const std::exception* first = nullptr;
        for (int i = 0; i < 3; ++i) {
            try {
                f();
                FAIL();
            } catch (const std::exception& e) {
                if (first == nullptr) first = &e;
                EXPECT_EQ(&e, first);
            }
        }
        EXPECT_EQ(calls, 1);
    });
}

TEST_P(Once, ValueIsKept) {
    run([] {
        int calls = 0;
        auto f = dunlin::once_value([&] { return std::to_string(++calls); });
        auto copy = f;
        EXPECT_EQ(f(), "1");
        EXPECT_EQ(&copy(), &f());
        auto by_reference = dunlin::once_value([&]() -> int& { return ++calls; });
        EXPECT_EQ(&by_reference(), &calls);
        EXPECT_EQ(by_reference(), 2);
        auto exits = dunlin::once_value([]() -> int { dunlin::exit_goroutine(); });
        dunlin::wait_group wg;
        wg.go([=] { exits(); });
        wg.wait();
        EXPECT_THROW(exits(), dunlin::goroutine_exited);
    });
}

TEST_P(Future, GetsTheValueOrTheException) {
    run([] {
        for (int round = 0; round < support::rounds(2000); ++round) {
            dunlin::promise<std::string> p;
            auto f = p.get_future();
            dunlin::go([p = std::move(p)]() mutable { p.set_value("done"); });
            if (round % 3 == 0) while (f.wait_for(10us) != dunlin::future_status::ready) {}
            EXPECT_EQ(f.get(), "done");
            EXPECT_FALSE(f.valid());
        }
        dunlin::promise<int> failed;
        auto f = failed.get_future();
        std::thread t([&] { failed.set_exception(std::make_exception_ptr(std::range_error("x"))); });
        EXPECT_THROW(f.get(), std::range_error);
        dunlin::blocking([&] { t.join(); });
        int i = 0;
        dunlin::promise<int&> r;
        r.set_value(i);
        EXPECT_EQ(&r.get_future().get(), &i);
        dunlin::promise<void> v;
        auto vf = v.get_future();
        EXPECT_EQ(vf.wait_for(1ms), dunlin::future_status::timeout);
        v.set_value();
        vf.wait();
        vf.get();
    });
}

template <class F>
void expect_error(std::future_errc code, F f) {
    try {
        f();
        FAIL();
    } catch (const std::future_error& e) {
        EXPECT_EQ(e.code(), code);
    }
}

TEST_P(Future, ErrorsAreTheStandards) {
    run([] {
        dunlin::future<int> f;
        expect_error(std::future_errc::no_state, [&] { f.wait(); });
        {
            dunlin::promise<int> p;
            f = p.get_future();
            expect_error(std::future_errc::future_already_retrieved, [&] { static_cast<void>(p.get_future()); });
        }
        expect_error(std::future_errc::broken_promise, [&] { f.get(); });
        dunlin::promise<int> p;
        p.set_value(1);
        expect_error(std::future_errc::promise_already_satisfied, [&] { p.set_value(2); });
        dunlin::promise<int> moved = std::move(p);
        expect_error(std::future_errc::no_state, [&] { p.set_value(3); });
        EXPECT_EQ(moved.get_future().get(), 1);
        dunlin::promise<void> a, b;
        dunlin::future<void> of_a = a.get_future();
        swap(a, b);
        a.swap(a);
        expect_error(std::future_errc::future_already_retrieved, [&] { static_cast<void>(b.get_future()); });
        b.set_value();
        of_a.get();
        static_cast<void>(a.get_future());
        dunlin::promise<std::unique_ptr<int>> u;
        u.set_value(std::make_unique<int>(5));
        EXPECT_EQ(*u.get_future().get(), 5);
    });
}

// Under ThreadSanitizer: the exception that was taken is not freed by the promise.
TEST_P(Future, AnExceptionThatWasTakenIsTheTakersAlone) {
    run([] {
        for (int i = 0; i < support::rounds(2000); ++i) {
            dunlin::promise<int> p;
            auto f = p.get_future();
            dunlin::wait_group g;
            g.go([p = std::move(p), i]() mutable {
                if (i % 2 == 0)
                    p.set_exception(
                        std::make_exception_ptr(std::system_error(std::make_error_code(std::errc::io_error))));
            });
            try {
                f.get();
                ADD_FAILURE();
            } catch (const std::future_error& e) {
                EXPECT_EQ(e.code(), std::future_errc::broken_promise);
            } catch (const std::system_error& e) {
                EXPECT_EQ(e.code(), std::errc::io_error);
            }
            g.wait();
        }
    });
}

struct counted {
    static inline std::atomic<int> alive{0};
    std::atomic<int> owners{0};
    counted() { ++alive; }
    ~counted() { --alive; }
};

TEST_P(Pool, SurvivesOneTrimNotTwo) {
    run([] {
        {
            dunlin::pool<counted> p;
            EXPECT_EQ(p.get(), nullptr);
            auto a = std::make_unique<counted>();
            counted* const raw = a.get();
            p.put(std::move(a));
            p.trim();
            a = p.get();
            EXPECT_EQ(a.get(), raw);
            p.put(std::move(a));
            p.trim();
            p.trim();
            EXPECT_EQ(p.get(), nullptr);
            EXPECT_EQ(counted::alive, 0);
            for (int i = 0; i < 1000; ++i) p.put(std::make_unique<counted>());
            for (int i = 0; i < 500; ++i) EXPECT_NE(p.get(), nullptr);
        }
        EXPECT_EQ(counted::alive, 0);
        dunlin::pool<int> made([] { return std::make_unique<int>(7); });
        EXPECT_EQ(*made.get(), 7);
        EXPECT_EQ(made.try_get(), nullptr);
    });
}

// As one whose destructor gives a part of it back.
struct puts_another : counted {
    puts_another(dunlin::pool<puts_another>& p, int n) : to(p), left(n) {}
    ~puts_another() {
        if (left != 0) to.put(std::make_unique<puts_another>(to, left - 1));
    }
    dunlin::pool<puts_another>& to;
    const int left;
};

TEST_P(Pool, WhatADestructorPutsBackIsDestroyedWithThePool) {
    run([] {
        {
            dunlin::pool<puts_another> p;
            for (int i = 0; i < 100; ++i) p.put(std::make_unique<puts_another>(p, i % 5));
            p.trim();
            for (int i = 0; i < 100; ++i) p.put(std::make_unique<puts_another>(p, i % 5));
        }
        EXPECT_EQ(counted::alive, 0);
    });
}

TEST_P(Pool, AnObjectHasOneOwner) {
    run([] {
        dunlin::pool<counted> p([] { return std::make_unique<counted>(); });
        std::atomic<int> wrong{0};
        auto body = [&](int rounds) {
            std::vector<std::unique_ptr<counted>> mine;
            for (int i = 0; i < rounds; ++i) {
                mine.push_back(p.get());
                if (mine.back()->owners.fetch_add(1) != 0) ++wrong;
                if (i % 97 == 0) dunlin::yield();
                if (mine.size() < static_cast<std::size_t>(i % 200)) continue;
                while (!mine.empty()) {
                    mine.back()->owners.fetch_sub(1);
                    p.put(std::move(mine.back()));
                    mine.pop_back();
                }
                if (i % 5000 == 0) p.trim();
            }
        };
        std::thread t([&] { body(support::rounds(20'000)); });
        {
            dunlin::task_group group;
            for (int i = 0; i < 6; ++i) group.go([&] { body(support::rounds(20'000)); });
            group.wait();
        }
        dunlin::blocking([&] { t.join(); });
        EXPECT_EQ(wrong, 0);
    });
    EXPECT_EQ(counted::alive, 0);
}

}  // namespace
