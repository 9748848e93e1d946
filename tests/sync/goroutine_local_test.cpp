// goroutine_local_test.cpp - each goroutine has its own, on whatever thread it runs.
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "support/runtime_test.h"

namespace {

using namespace support;

class goroutine_local_test : public each_p {};
EACH_P(goroutine_local_test);

TEST_P(goroutine_local_test, EachGoroutineHasItsOwnWhereverItRuns) {
    static dunlin::goroutine_local<int> number;
    run([] {
        dunlin::wait_group all;
        for (int i = 1; i <= 200; ++i) {
            all.go([i] {
                EXPECT_EQ(*number, 0);
                *number = i;
                for (int k = 0; k < 20; ++k) {
                    dunlin::yield();
                    if (k == 10) dunlin::sleep_for(100us);
                    EXPECT_EQ(*number, i);
                }
            });
        }
        all.wait();
        EXPECT_EQ(number.find(), nullptr) << "main has not used it";
    });
}

TEST_P(goroutine_local_test, ValuesAreDestroyedWhenTheirGoroutineEndsHoweverItEnds) {
    static std::atomic<int> alive{0};
    struct counted {
        counted() { ++alive; }
        ~counted() {
            dunlin::yield();  // an ordinary place: it may park
            --alive;
        }
    };
    static dunlin::goroutine_local<counted> value;
    run([] {
        for (int i = 0; i < 100; ++i) {
            dunlin::spawn([] { value.get(); }).get();
            dunlin::go([] {
                value.get();
                dunlin::exit_goroutine();
            });
        }
        eventually([] { return dunlin::runtime::num_goroutines() == 1; });
        EXPECT_EQ(alive.load(), 0);
    });
}

TEST_P(goroutine_local_test, ADestructorMayMakeAnother) {
    static std::atomic<int> destroyed{0};
    struct second {
        ~second() { ++destroyed; }
    };
    static dunlin::goroutine_local<second> later;
    struct first {
        ~first() {
            later.get();
            ++destroyed;
        }
    };
    static dunlin::goroutine_local<first> early;
    destroyed = 0;
    run([] { dunlin::spawn([] { early.get(); }).get(); });
    EXPECT_EQ(destroyed.load(), 2);
}

TEST_P(goroutine_local_test, MakerResetAndFind) {
    dunlin::goroutine_local<std::string> text([] { return "made"; });
    run([&] {
        EXPECT_EQ(text.find(), nullptr);
        EXPECT_EQ(*text, "made");
        text->append("!");
        EXPECT_EQ(*text.find(), "made!");
        text.reset();
        EXPECT_EQ(text.find(), nullptr);
        EXPECT_EQ(text.get(), "made");
        dunlin::goroutine_local<std::unique_ptr<int>> other;
        EXPECT_EQ(*other, nullptr) << "a new one does not find another's value";
    });
}

TEST_P(goroutine_local_test, OfWhatCannotBeMovedOrChangedOrCopied) {
    struct fixed {
        int number;
        explicit fixed(int n) : number(n) {}
        fixed(const fixed&) = delete;
    };
    dunlin::goroutine_local<fixed> made_in_place([n = 3]() mutable { return fixed(n++); });
    dunlin::goroutine_local<const fixed> constant([] { return fixed(5); });
    dunlin::goroutine_local<const int> zero;
    dunlin::goroutine_local<int> by_a_factory_that_only_moves([p = std::make_unique<int>(6)] { return *p; });
    static_assert(std::is_same_v<decltype(constant.get()), const fixed&>);
    static_assert(!std::is_constructible_v<dunlin::goroutine_local<std::string>, int (*)()>);
    run([&] {
        EXPECT_EQ(made_in_place->number, 3);
        EXPECT_EQ(dunlin::spawn([&] { return made_in_place->number; }).get(), 4) << "one factory makes all";
        EXPECT_EQ(constant->number, 5);
        EXPECT_EQ(constant.find(), &*constant);
        EXPECT_EQ(*zero, 0);
        EXPECT_EQ(*by_a_factory_that_only_moves, 6);
    });
}

// As a thread_local, of a type that forbids new expressions.
struct not_by_new {
    static void* operator new(std::size_t) = delete;
    static void operator delete(void*) = delete;
    int n = 3;
};

TEST_P(goroutine_local_test, OfWhatForbidsNewAndDelete) {
    run([] {
        dunlin::goroutine_local<not_by_new> made_by_itself;
        dunlin::goroutine_local<not_by_new> made_by_function([] { return not_by_new{4}; });
        EXPECT_EQ(made_by_itself->n, 3);
        EXPECT_EQ(made_by_function->n, 4);
        made_by_itself.reset();
        EXPECT_EQ(made_by_itself.find(), nullptr);
    });
}

TEST_P(goroutine_local_test, APlainThreadHasOneToo) {
    dunlin::goroutine_local<int> number;
    *number = 7;
    std::thread([&] { EXPECT_EQ(*number, 0); }).join();
    run([&] { EXPECT_EQ(*number, 0); });
    EXPECT_EQ(*number, 7);
    number.reset();
}

}  // namespace
