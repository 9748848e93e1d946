// [thread.jthread.class], [thread.thread.this]: a goroutine with a stop token, and what a goroutine can do to itself,
// clause by clause.
#include <algorithm>
#include <atomic>
#include <compare>
#include <concepts>
#include <cstdint>
#include <memory>
#include <set>
#include <sstream>
#include <stop_token>
#include <string>
#include <system_error>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "std/worlds.h"

using namespace worlds;

namespace {

class Jthread : public each_world {};
EACH_WORLD(Jthread);
class ThisGoroutine : public each_world {};
EACH_WORLD(ThisGoroutine);

static_assert(
    std::is_nothrow_default_constructible_v<dunlin::jthread> && std::is_nothrow_move_constructible_v<dunlin::jthread>);
static_assert(std::is_nothrow_move_assignable_v<dunlin::jthread> && std::is_nothrow_swappable_v<dunlin::jthread>);
static_assert(!std::is_copy_constructible_v<dunlin::jthread> && !std::is_copy_assignable_v<dunlin::jthread>);
static_assert(
    !std::is_convertible_v<void (*)(), dunlin::jthread> && std::is_constructible_v<dunlin::jthread, void (*)()>);
static_assert(std::is_constructible_v<dunlin::jthread, void (*)(std::stop_token, int), int>);
static_assert(
    noexcept(dunlin::jthread::hardware_concurrency()) && noexcept(std::declval<const dunlin::jthread&>().get_id()));

// ---- [thread.thread.id] ---------------------------------------------------------------------------------------------

static_assert(std::is_trivially_copyable_v<dunlin::jthread::id> && std::totally_ordered<dunlin::jthread::id> &&
              std::three_way_comparable<dunlin::jthread::id, std::strong_ordering>);
static_assert(std::is_same_v<decltype(dunlin::this_goroutine::get_id()), dunlin::jthread::id>);
static_assert(dunlin::jthread::id() == 0u && dunlin::jthread::id(3) != 0 && dunlin::jthread::id(3) < 4u &&
              dunlin::jthread::id(3) <=> dunlin::jthread::id(2) > 0);

static_assert([] {
    dunlin::jthread::id unset;
    return unset == dunlin::jthread::id();
}());

TEST_P(Jthread, AnIdIsUsedAsStds) {
    inside([] {
        const dunlin::jthread::id none;
        std::unordered_map<dunlin::jthread::id, int> by_id{{none, 1}, {7, 2}};
        std::atomic<dunlin::jthread::id> shared;
        EXPECT_EQ(shared.load(), none);
        shared = dunlin::this_goroutine::get_id();
        const std::uint64_t number = shared.load();
        EXPECT_EQ(number, dunlin::this_goroutine::id());
        EXPECT_EQ(by_id.at(std::uint64_t{7}), 2);
        EXPECT_EQ(by_id.at({}), 1);
        std::ostringstream out;
        out << dunlin::jthread::id() << ' ' << std::max(dunlin::jthread::id(5), dunlin::jthread::id(40));
        EXPECT_EQ(out.str(), "0 40");
    });
}

TEST_P(Jthread, TakesWhatIsAlignedMoreStrictlyThanAGoroutinesStorage) {
    struct alignas(256) wide {
        std::shared_ptr<int> value;
        bool is_aligned() const { return reinterpret_cast<std::uintptr_t>(this) % alignof(wide) == 0; }
    };
    inside([] {
        const auto counted = std::make_shared<int>(7);
        {
            const wide captured{counted};
            dunlin::jthread t([captured](std::stop_token, const wide& argument) {
                EXPECT_TRUE(captured.is_aligned() && argument.is_aligned());
                EXPECT_EQ(*captured.value + *argument.value, 14);
            }, wide{counted});
            dunlin::jthread({.name = "with options"}, [captured] { EXPECT_TRUE(captured.is_aligned()); }).join();
            t.join();
            EXPECT_EQ(counted.use_count(), 2) << "the copies are destroyed on the goroutine";
        }
    });
}

TEST_P(Jthread, CallsWithATokenOrWithout) {
    inside([] {
        std::string seen;
        bool possible = false;
        {
            const dunlin::jthread t([&](std::stop_token token, std::string a, std::unique_ptr<int> b) {
                possible = token.stop_possible();
                seen = a + std::to_string(*b);
            }, "with ", std::make_unique<int>(1));
        }
        EXPECT_TRUE(possible);
        EXPECT_EQ(seen, "with 1");
        { const dunlin::jthread t([&](const char* a) { seen = a; }, "without"); }
        EXPECT_EQ(seen, "without");
        struct both {
            std::string* to;
            void operator()(std::stop_token) const { *to = "token"; }
            void operator()() const { *to = "none"; }
        };
        { const dunlin::jthread t{both{&seen}}; }
        EXPECT_EQ(seen, "token") << "where f takes both, the token is given";
        struct thing {
            std::string* to;
            void set(std::stop_token, const char* text) { *to = text; }
        } object{&seen};
        { const dunlin::jthread t([](thing* o, const char* text) { *o->to = text; }, &object, "member"); }
        EXPECT_EQ(seen, "member");
        std::string name;
        {
            const dunlin::jthread t(
                dunlin::go_options{.name = "named"}, [&](std::stop_token) { name = dunlin::this_goroutine::name(); });
        }
        EXPECT_EQ(name, "named");
        EXPECT_THROW(dunlin::jthread(static_cast<void (*)()>(nullptr)), std::invalid_argument);
    });
}

TEST_P(Jthread, TheDestructorAsksAndWaits) {
    inside([] {
        for (int round = 0; round < support::rounds(50); ++round) {
            std::atomic<bool> ended{false};
            int plain = 0;
            {
                const dunlin::jthread t([&](std::stop_token token) {
                    while (!token.stop_requested()) dunlin::yield();
                    plain = 1;
                    ended = true;
                });
            }
            EXPECT_TRUE(ended);
            EXPECT_EQ(plain, 1);
            dunlin::jthread a([&](std::stop_token token) {
                dunlin::mutex m;
                dunlin::condition_variable_any c;
                std::unique_lock l(m);
                c.wait(l, token, [] { return false; });
                plain = 2;
            });
            a = dunlin::jthread();  // so does an assignment
            EXPECT_EQ(plain, 2);
        }
    });
}

TEST_P(Jthread, HasTheStandardsStatesAndErrors) {
    using std::errc;
    inside([] {
        dunlin::jthread none;
        EXPECT_FALSE(none.joinable());
        EXPECT_EQ(none.get_id(), dunlin::jthread::id());
        EXPECT_FALSE(
            none.get_stop_token().stop_possible() || none.get_stop_source().stop_possible() || none.request_stop());
        expect_code(errc::invalid_argument, [&] { none.join(); });
        expect_code(errc::invalid_argument, [&] { none.detach(); });
        dunlin::jthread::id inside_id;
        dunlin::jthread t([&] { inside_id = dunlin::this_goroutine::get_id(); });
        const auto id = t.get_id();
        EXPECT_NE(id, dunlin::jthread::id());
        EXPECT_NE(id, dunlin::this_goroutine::get_id());
        dunlin::jthread u(std::move(t));
        EXPECT_TRUE(u.joinable() && !t.joinable() && u.get_id() == id);
        swap(t, u);
        t.join();
        EXPECT_EQ(inside_id, id);
        EXPECT_FALSE(t.joinable());
        EXPECT_EQ(t.get_id(), dunlin::jthread::id());
        expect_code(errc::invalid_argument, [&] { t.join(); });
        EXPECT_TRUE(t.request_stop()) << "the state of the token stays";
        EXPECT_FALSE(t.request_stop());
        EXPECT_GE(dunlin::jthread::hardware_concurrency(), 1u);
        dunlin::binary_semaphore here(0);
        std::atomic<int> code{0};
        dunlin::jthread self;
        self = dunlin::jthread([&] {
            here.acquire();
            try {
                self.join();
            } catch (const std::system_error& e) {
                code = e.code().value();
            }
        });
        here.release();
        until([&] { return code != 0; });
        EXPECT_EQ(code, static_cast<int>(errc::resource_deadlock_would_occur));
        self.join();
    });
}

TEST_P(Jthread, JoinUntilAContextIsDone) {
    inside([] {
        dunlin::jthread t([](std::stop_token token) {
            while (!token.stop_requested()) dunlin::sleep_for(50us);
        });
        EXPECT_THROW(t.join(dunlin::with_timeout(dunlin::context(), 1ms)), dunlin::context_cancelled);
        EXPECT_TRUE(t.joinable());
        t.request_stop();
        t.join(dunlin::with_timeout(dunlin::context(), 1h));
        EXPECT_FALSE(t.joinable());
    });
}

TEST_P(Jthread, ADetachedOneGoesOnAlone) {
    inside([] {
        const auto before = dunlin::runtime::num_goroutines();
        for (int round = 0; round < support::rounds(200); ++round) {
            auto alive = std::make_shared<int>(0);
            std::stop_source stop;
            {
                dunlin::jthread t([alive, round](std::stop_token token) {
                    if (round % 4 == 0) {
                        while (!token.stop_requested()) dunlin::sleep_for(20us);
                    }
                });
                stop = t.get_stop_source();
                if (round % 4 == 0) {
                    // One that was waited for with a limit: its end looks for waiters.
                    if (round % 8 == 0) {
                        EXPECT_THROW(t.join(dunlin::with_timeout(dunlin::context(), 10us)), dunlin::context_cancelled);
                    }
                } else if (round % 4 == 1) {
                    until([&] { return alive.use_count() == 1; });  // detached at its end or after it
                }
                t.detach();
                EXPECT_FALSE(t.joinable());
            }
            EXPECT_FALSE(stop.stop_requested()) << "it is not asked to stop";
            stop.request_stop();
            until([&] { return alive.use_count() == 1; });
        }
        until([&] { return dunlin::runtime::num_goroutines() == before; });
    });
}

TEST_P(Jthread, CallbacksRunInTheOneThatAsks) {
    inside([] {
        std::atomic<std::uint64_t> ran_in{~std::uint64_t{0}};
        dunlin::jthread t([](std::stop_token token) {
            while (!token.stop_requested()) dunlin::yield();
        });
        const std::stop_callback callback(t.get_stop_token(), [&] { ran_in = dunlin::this_goroutine::id(); });
        EXPECT_TRUE(t.request_stop());
        EXPECT_EQ(ran_in, dunlin::this_goroutine::id());
        auto token = t.get_stop_token();
        bool at_once = false;
        const std::stop_callback later(token, [&] { at_once = true; });
        EXPECT_TRUE(at_once);
    });
}

TEST_P(Jthread, ExitGoroutineEndsItAsAReturnDoes) {
    inside([] {
        auto alive = std::make_shared<int>(0);
        { const dunlin::jthread t([alive] { dunlin::exit_goroutine(); }); }
        EXPECT_EQ(alive.use_count(), 1);
    });
}

// ---- [thread.thread.this] ------------------------------------------------------------------------------------------

TEST_P(ThisGoroutine, IdsSleepsAndYields) {
    inside([this] {
        const auto mine = dunlin::this_goroutine::get_id();
        EXPECT_EQ(mine, dunlin::this_goroutine::id());
        const auto begun = std::chrono::steady_clock::now();
        dunlin::this_goroutine::sleep_for(1500us);
        EXPECT_GE(std::chrono::steady_clock::now() - begun, 1500us);
        dunlin::this_goroutine::sleep_for(-1s);
        dunlin::this_goroutine::sleep_for(std::chrono::duration<double, std::milli>(0.5));
        const auto t = std::chrono::system_clock::now() + 1ms;
        dunlin::this_goroutine::sleep_until(t);
        EXPECT_GE(std::chrono::system_clock::now(), t);
        dunlin::this_goroutine::sleep_until(std::chrono::steady_clock::time_point::min());
        dunlin::this_goroutine::yield();
        EXPECT_EQ(dunlin::this_goroutine::get_id(), mine) << "wherever it goes on";
        std::mutex m;
        std::multiset<dunlin::jthread::id> ids;
        {
            const auto all = start(8, [&](int) {
                const auto id = dunlin::this_goroutine::get_id();
                const std::scoped_lock l(m);
                ids.insert(id);
            });
        }
        for (const auto id : ids) {
            if (id != 0) {
                EXPECT_EQ(ids.count(id), 1u);
            }
        }
    });
}

}  // namespace
