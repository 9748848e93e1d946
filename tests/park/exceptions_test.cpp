// Exceptions and errno belong to the goroutine, wherever it parks and on whichever thread it goes on.
#include <cerrno>
#include <exception>
#include <stdexcept>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class Exceptions : public support::each_p {};
EACH_P(Exceptions);

// Runs f in many goroutines at once, which get in each other's way.
template <class F>
void in_many(int goroutines, F f) {
    dunlin::task_group group;
    for (int i = 0; i < goroutines; ++i) group.go([&f, i] { f(i); });
    group.wait();
}

TEST_P(Exceptions, AGoroutineParkedInACatchBlockKeepsItsException) {
    run([] {
        in_many(50, [](int i) {
            for (int k = 0; k < support::rounds(100); ++k) {
                const std::string mine = std::to_string(i) + "/" + std::to_string(k);
                try {
                    throw std::runtime_error(mine);
                } catch (const std::runtime_error& e) {
                    dunlin::yield();
                    ASSERT_EQ(e.what(), mine);
                    dunlin::sleep_for(1us * (k % 7));
                    try {
                        throw;
                    } catch (const std::exception& again) {
                        ASSERT_EQ(again.what(), mine);
                    }
                }
                ASSERT_EQ(std::current_exception(), nullptr);
            }
        });
    });
}

TEST_P(Exceptions, NestedCatchBlocksUnwindInOrderAcrossParks) {
    struct nest {
        static void into(int depth, int who) {
            try {
                throw depth * 1000 + who;
            } catch (int value) {
                dunlin::yield();
                if (depth > 0) into(depth - 1, who);
                dunlin::yield();
                ASSERT_EQ(value, depth * 1000 + who);
                try {
                    throw;
                } catch (int again) {
                    ASSERT_EQ(again, depth * 1000 + who);
                }
            }
        }
    };
    run([] { in_many(20, [](int i) { nest::into(support::rounds(100), i); }); });
}

// A destructor that parks while an exception unwinds through it.
struct parks_in_destructor {
    int expected;
    std::atomic<int>* counted;
    ~parks_in_destructor() {
        EXPECT_EQ(std::uncaught_exceptions(), expected);
        for (int i = 0; i < 3; ++i) {
            dunlin::yield();
            EXPECT_EQ(std::uncaught_exceptions(), expected);
        }
        dunlin::sleep_for(20us);
        EXPECT_EQ(std::uncaught_exceptions(), expected);
        counted->fetch_add(1);
    }
};

TEST_P(Exceptions, AGoroutineParkedInADestructorDuringUnwindingCountsItsOwn) {
    run([] {
        std::atomic<int> counted{0};
        in_many(50, [&counted](int i) {
            for (int k = 0; k < support::rounds(50); ++k) {
                if (i % 2 == 0) {
                    try {
                        parks_in_destructor guard{1, &counted};
                        throw i;
                    } catch (int value) {
                        ASSERT_EQ(value, i);
                    }
                } else {
                    parks_in_destructor guard{0, &counted};
                }
                ASSERT_EQ(std::uncaught_exceptions(), 0);
            }
        });
        EXPECT_EQ(counted.load(), 50 * support::rounds(50));
    });
}

TEST_P(Exceptions, ADestructorDuringUnwindingMaySpawnThrowAndCatch) {
    struct nested {
        ~nested() {
            EXPECT_EQ(std::uncaught_exceptions(), 1);
            // The child may run in place: it has no exception under way, whatever its waiter has.
            EXPECT_EQ(dunlin::spawn([] { return std::uncaught_exceptions(); }).get(), 0);
            try {
                dunlin::spawn([] { throw std::runtime_error("inner"); }).get();
                ADD_FAILURE();
            } catch (const std::runtime_error& e) {
                EXPECT_STREQ(e.what(), "inner");
            }
            EXPECT_EQ(std::uncaught_exceptions(), 1);
        }
    };
    run([] {
        in_many(20, [](int i) {
            for (int k = 0; k < support::rounds(50); ++k) {
                try {
                    nested object;
                    throw i;
                } catch (int value) {
                    ASSERT_EQ(value, i);
                }
            }
        });
    });
}

TEST_P(Exceptions, ChildrenRunInPlaceInACatchBlockHaveNoCurrentException) {
    run([] {
        for (int i = 0; i < 100; ++i) {
            try {
                throw 1;
            } catch (int) {
                EXPECT_TRUE(dunlin::spawn([] { return std::current_exception() == nullptr; }).get());
                dunlin::spawn([] {
                    try {
                        throw 2;
                    } catch (int) {
                        dunlin::yield();  // leaves the parent's stack where it is
                    }
                }).get();
                EXPECT_NE(std::current_exception(), nullptr);
                EXPECT_THROW(throw, int);
            }
        }
    });
}

// std::this_thread::get_id() will not do: pthread_self() is declared constant, so compilers keep it over a park.
[[gnu::noinline]] long thread_now() {
    asm volatile("");
    return syscall(SYS_gettid);
}

// Makes it likely that a goroutine goes on elsewhere.
void move_about() {
    const long here = thread_now();
    for (int i = 0; i < 50 && thread_now() == here; ++i) dunlin::yield();
}

TEST_P(Exceptions, AreRethrownAfterAMigration) {
    run([] {
        // Until enough of them have changed threads in their catch block; with one processor that never happens.
        std::atomic<int> moved{0};
        const int enough = GetParam() > 1 ? support::rounds(1000) : 0;
        do {
            in_many(32, [&moved](int i) {
                for (int k = 0; k < support::rounds(100); ++k) {
                    try {
                        try {
                            throw std::runtime_error(std::to_string(i));
                        } catch (...) {
                            const long before = thread_now();
                            move_about();
                            if (thread_now() != before) moved.fetch_add(1);
                            throw;
                        }
                    } catch (const std::runtime_error& e) {
                        ASSERT_EQ(e.what(), std::to_string(i));
                    }
                }
            });
        } while (moved.load() < enough);
    });
}

TEST_P(Exceptions, ExceptionPointersTravelBetweenGoroutines) {
    run([] {
        for (int i = 0; i < support::rounds(2000); ++i) {
            std::exception_ptr stored;
            dunlin::spawn([&stored, i] {
                try {
                    throw std::to_string(i);
                } catch (...) {
                    stored = std::current_exception();
                }
            }).get();
            try {
                dunlin::spawn([&stored] { std::rethrow_exception(stored); }).get();
                FAIL();
            } catch (const std::string& s) {
                ASSERT_EQ(s, std::to_string(i));
            }
        }
    });
}

class Errno : public support::each_p {};
EACH_P(Errno);

// errno's address is looked up behind a call, since compilers keep it over a park.
[[gnu::noinline]] void set_errno(int value) {
    asm volatile("");
    errno = value;
}
[[gnu::noinline]] int get_errno() {
    asm volatile("");
    return errno;
}

TEST_P(Errno, BelongsToTheGoroutineAcrossParks) {
    run([] {
        in_many(64, [](int i) {
            set_errno(1000 + i);
            for (int k = 0; k < support::rounds(300); ++k) {
                switch (k % 3) {
                case 0: dunlin::yield(); break;
                case 1: dunlin::sleep_for(1us); break;
                default: dunlin::spawn([] { set_errno(5); dunlin::yield(); }).get(); break;
                }
                ASSERT_EQ(get_errno(), 1000 + i);
            }
        });
    });
}

TEST_P(Errno, IsZeroWhenAGoroutineBegins) {
    run([] {
        for (int i = 0; i < 1000; ++i) {
            set_errno(EBADF);
            ASSERT_EQ(dunlin::spawn([] { const int e = get_errno(); set_errno(77); return e; }).get(), 0);
            ASSERT_EQ(get_errno(), EBADF);
        }
    });
}

// Each throw; counts the unwinding of exit_goroutine() as one more uncaught exception.
TEST_P(Exceptions, NoneIsLeftBehindByAGoroutineThatExits) {
    run([] {
        const auto exits = [] {
            EXPECT_EQ(std::uncaught_exceptions(), 0);
            try {
                dunlin::exit_goroutine();
            } catch (...) {
                throw;
            }
        };
        for (int i = 0; i < 20; ++i) dunlin::spawn(exits).get();
        for (int i = 0; i < 20; ++i) dunlin::go(exits);  // not run by a waiter, on the waiter's stack
        support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });
        EXPECT_EQ(std::uncaught_exceptions(), 0);
        in_many(20, [](int) { EXPECT_EQ(std::uncaught_exceptions(), 0); });
    });
}

}  // namespace
