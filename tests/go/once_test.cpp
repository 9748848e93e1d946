// Ports of Go's own tests of sync.Once, OnceFunc and OnceValue, under Go's names.
#include <exception>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <vector>

#include <dunlin/once.hpp>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class GoOnce : public support::each_p {};
EACH_P(GoOnce);

static_assert(!std::is_copy_constructible_v<dunlin::once_flag> && !std::is_copy_assignable_v<dunlin::once_flag>);

// SYN-15, go1.24 src/sync/once_test.go TestOnce
TEST_P(GoOnce, TestOnce) {
    run([] {
        int o = 0;
        dunlin::once_flag once;
        dunlin::chan<bool> c;
        constexpr int n = 10;
        for (int i = 0; i < n; ++i) {
            dunlin::go([&, c] {
                dunlin::call_once(once, [&] {
                    dunlin::yield();  // the others come meanwhile
                    ++o;
                });
                EXPECT_EQ(o, 1) << "once failed inside run";
                c.send(true);
            });
        }
        for (int i = 0; i < n; ++i) c.recv();
        EXPECT_EQ(o, 1) << "once failed outside run";
    });
}

// SYN-15, go1.24 src/sync/once_test.go TestOncePanic
TEST_P(GoOnce, TestOncePanic) {
    run([] {
        dunlin::once_flag once;
        EXPECT_THROW(dunlin::call_once(once, [] { throw std::runtime_error("failed"); }), std::runtime_error);
        dunlin::call_once(once, [] { ADD_FAILURE() << "Once.Do called twice"; });
    });
}

// SYN-15: waiters get no exception when f throws, and go on when it has ended.
TEST_P(GoOnce, OnceExceptionGoesToItsCallerAlone) {
    run([] {
        for (int round = 0; round < support::rounds(200); ++round) {
            dunlin::once_flag once;
            std::atomic<int> thrown{0}, calls{0};
            std::atomic<bool> ended{false};
            dunlin::task_group group;
            for (int i = 0; i < 8; ++i) {
                group.go([&] {
                    try {
                        dunlin::call_once(once, [&] {
                            ++calls;
                            dunlin::yield();
                            ended = true;
                            throw std::runtime_error("failed");
                        });
                    } catch (const std::runtime_error&) {
                        ++thrown;
                    }
                    EXPECT_TRUE(ended);
                });
            }
            group.wait();
            ASSERT_EQ(calls, 1);
            ASSERT_EQ(thrown, 1);
        }
    });
}

// SYN-16, go1.24 src/sync/oncefunc_test.go TestOnceFunc
TEST_P(GoOnce, TestOnceFunc) {
    run([] {
        std::atomic<int> calls{0};
        const auto of = dunlin::once_func([&] { ++calls; });
        EXPECT_EQ(calls, 0);
        dunlin::task_group group;
        for (int i = 0; i < 10; ++i) group.go(of);
        group.wait();
        EXPECT_EQ(calls, 1);
    });
}

// SYN-16, go1.24 src/sync/oncefunc_test.go TestOnceValue
TEST_P(GoOnce, TestOnceValue) {
    run([] {
        int calls = 0;
        const auto f = dunlin::once_value([&] { return ++calls; });
        for (int i = 0; i < 10; ++i) EXPECT_EQ(f(), 1);
        EXPECT_EQ(&f(), &f()) << "the value is kept, not copied";
    });
}

// SYN-16, go1.24 src/sync/oncefunc_test.go TestOnceValues: one value that is a tuple.
TEST_P(GoOnce, TestOnceValues) {
    run([] {
        int calls = 0;
        const auto f = dunlin::once_value([&] {
            ++calls;
            return std::tuple(calls, std::make_unique<int>(calls + 1));
        });
        for (int i = 0; i < 10; ++i) {
            const auto& [a, b] = f();
            EXPECT_EQ(a, 1);
            EXPECT_EQ(*b, 2);
        }
    });
}

struct panic : std::runtime_error {
    using runtime_error::runtime_error;
};

// Calls f ten times from ten goroutines: each gets one and the same exception.
template <class F>
void expect_same_panic(const F& f) {
    std::vector<std::exception_ptr> errors(10);
    dunlin::task_group group;
    for (std::exception_ptr& error : errors) {
        group.go([&] {
            try {
                f();
            } catch (const panic&) {
                error = std::current_exception();
            }
        });
    }
    group.wait();
    for (const std::exception_ptr& error : errors) {
        EXPECT_NE(error, nullptr);
        EXPECT_EQ(error, errors[0]);
    }
}

// SYN-16, go1.24 src/sync/oncefunc_test.go TestOnceFuncPanic
TEST_P(GoOnce, TestOnceFuncPanic) {
    run([] {
        std::atomic<int> calls{0};
        expect_same_panic(dunlin::once_func([&] {
            ++calls;
            throw panic("x");
        }));
        EXPECT_EQ(calls, 1);
    });
}

// SYN-16, go1.24 src/sync/oncefunc_test.go TestOnceValuePanic, TestOnceValuesPanic
TEST_P(GoOnce, TestOnceValuePanic) {
    run([] {
        std::atomic<int> calls{0};
        expect_same_panic(dunlin::once_value([&]() -> int {
            ++calls;
            dunlin::yield();
            throw panic("x");
        }));
        EXPECT_EQ(calls, 1);
    });
}

// SYN-16, go1.24 src/sync/oncefunc_test.go TestOnceFuncGoexit: f is not called twice. A second caller is told.
TEST_P(GoOnce, TestOnceFuncGoexit) {
    run([] {
        std::atomic<int> calls{0}, returned{0}, told{0};
        const auto f = dunlin::once_func([&] {
            ++calls;
            dunlin::exit_goroutine();
        });
        for (int i = 0; i < 3; ++i) {
            dunlin::wait_group wg;
            wg.go([&] {
                try {
                    f();
                    ++returned;
                } catch (const dunlin::goroutine_exited&) {
                    ++told;
                }
            });
            wg.wait();
        }
        EXPECT_EQ(calls, 1);
        EXPECT_EQ(returned, 0);
        EXPECT_EQ(told, 2);
    });
}

// The same of Once.Do, with others waiting: they go on.
TEST_P(GoOnce, OnceGoexit) {
    run([] {
        dunlin::once_flag once;
        std::atomic<int> calls{0}, went_on{0};
        dunlin::chan<bool> begun, go_on;
        dunlin::wait_group all;
        all.go([&] {
            dunlin::call_once(once, [&] {
                ++calls;
                begun.close();
                go_on.recv();
                dunlin::exit_goroutine();
            });
        });
        begun.recv();
        for (int i = 0; i < 5; ++i) {
            all.go([&] {
                dunlin::call_once(once, [&] { ++calls; });
                ++went_on;
            });
        }
        support::eventually([] { return dunlin::runtime::stats().waiting == 6; });
        go_on.close();
        all.wait();
        EXPECT_EQ(calls, 1);
        EXPECT_EQ(went_on, 5);
    });
}

// SYN-16, go1.24 src/sync/oncefunc_test.go TestOnceXGC: what f holds is let go when f has been called, also when it has
// thrown.
TEST_P(GoOnce, TestOnceXGC) {
    run([] {
        const auto held = std::make_shared<int>(1);
        const auto f = dunlin::once_func([held] {});
        const auto v = dunlin::once_value([held] { return 1; });
        const auto p = dunlin::once_func([held] { throw panic("x"); });
        EXPECT_EQ(held.use_count(), 4);
        f();
        EXPECT_EQ(held.use_count(), 3);
        v();
        EXPECT_EQ(held.use_count(), 2);
        for (int i = 0; i < 2; ++i) EXPECT_THROW(p(), panic);
        EXPECT_EQ(held.use_count(), 1);
    });
}

}  // namespace
