// The explorer on algorithms whose faults are known: each is found where a fence, an order or a second look is missing,
// and nothing is found where none is.
#include <gtest/gtest.h>

#include "platform/futex.h"
#include "platform/membarrier.h"
#include "explorer/explore.h"

namespace {

using namespace dunlin;
using platform::atomic;
using explorer::memory;
using explorer::order;
using explorer::scenario;

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;
constexpr auto acq_rel = std::memory_order_acq_rel;
constexpr auto seq_cst = std::memory_order_seq_cst;

void fence(std::memory_order o) {
    platform::simulation_here()->fence(o, std::source_location::current());
}

testing::AssertionResult holds(const explorer::options& o, const explorer::case_function& build) {
    const explorer::result r = explorer::explore(o, build);
    if (!r.holds()) return testing::AssertionFailure() << r.failure << " after " << r.executions << "\n" << r.story;
    if (o.order == order::exhaustive && !r.complete)
        return testing::AssertionFailure() << "not complete after " << r.executions;
    return testing::AssertionSuccess() << r.executions << " executions, " << r.given_up << " given up";
}

// Finds a failure whose words begin with these, in each way of looking, and plays it again.
testing::AssertionResult breaks(
    const explorer::options& o, const std::string& how, const explorer::case_function& build) {
    for (const order way : {order::exhaustive, order::random, order::pct}) {
        explorer::options tried = o;
        tried.order = way;
        const explorer::result r = explorer::explore(tried, build);
        const auto in = [&] { return testing::AssertionFailure() << "order " << static_cast<int>(way) << ": "; };
        if (r.holds())
            return in() << "nothing is found in " << r.executions << " executions"
                        << (r.complete ? ", which are all" : "");
        if (r.failure.rfind(how, 0) != 0)
            return in() << "expected: " << how << "; found: " << r.failure << "\n" << r.story;
        const explorer::result again = explorer::replay(o, explorer::choices_in(explorer::text_of(r.choices)), build);
        if (again.failure != r.failure || again.story != r.story)
            return in() << "played again: '" << again.failure << "'\n" << again.story;
    }
    return testing::AssertionSuccess();
}

// ---- the strategies themselves --------------------------------------------------------------------------------------

// Two look for what a third is about to say. It never would, if those of higher priority always went first.
TEST(Textbook, PriorityKeepsNoThreadFromItsCpuForEver) {
    const auto build = [](scenario& s) {
        auto& said = s.make<atomic<int>>("said", 0);
        for (const char* name : {"a", "b"}) {
            s.thread(name, [&said] {
                while (said.load(relaxed) == 0) {
                }
            });
        }
        s.thread("c", [&said] { said.store(1, relaxed); });
    };
    EXPECT_TRUE(holds({.order = order::pct, .model = memory::tso, .executions = 20, .max_steps = 100'000}, build));
}

// ---- store buffering: Dekker, Peterson -----------------------------------------------------------------------------

// Each raises its flag and looks at the other's.
explorer::case_function dekker(bool with_fence) {
    return [=](scenario& s) {
        auto& flags = s.make<std::array<atomic<int>, 2>>("flags");
        auto& inside = s.make<std::array<int, 2>>("inside");
        for (unsigned i = 0; i < 2; ++i) {
            s.thread(i == 0 ? "a" : "b", [&flags, &inside, i, with_fence] {
                flags[i].store(1, relaxed);
                if (with_fence) fence(seq_cst);
                inside[i] = flags[1 - i].load(relaxed) == 0;
            });
        }
        s.at_end([&] { explorer::require(inside[0] + inside[1] <= 1, "both are in"); });
    };
}

TEST(Textbook, DekkerNeedsItsFence) {
    for (const memory m : {memory::tso, memory::cxx}) {
        EXPECT_TRUE(holds({.model = m}, dekker(true)));
        EXPECT_TRUE(breaks({.model = m}, "both are in", dekker(false)));
    }
    EXPECT_TRUE(holds({.model = memory::sequential}, dekker(false)));
}

explorer::case_function peterson(bool with_fence) {
    return [=](scenario& s) {
        struct state {
            atomic<int> wants[2];
            atomic<int> turn{0};
            explorer::variable<int> count{0, "count"};
        };
        auto& p = s.make<state>("peterson");
        for (int i = 0; i < 2; ++i) {
            s.thread(i == 0 ? "a" : "b", [&p, i, with_fence] {
                p.wants[i].store(1, relaxed);
                p.turn.store(1 - i, release);
                if (with_fence) fence(seq_cst);
                while (p.wants[1 - i].load(acquire) == 1 && p.turn.load(acquire) == 1 - i) platform::pause();
                p.count.set(p.count.get() + 1);
                p.wants[i].store(0, release);
            });
        }
        s.at_end([&] { explorer::require(p.count.get() == 2, "an increment is lost"); });
    };
}

TEST(Textbook, PetersonNeedsItsFence) {
    EXPECT_TRUE(holds({.model = memory::tso}, peterson(true)));
    EXPECT_TRUE(breaks({.model = memory::tso}, "data race on count", peterson(false)));
    EXPECT_TRUE(breaks({.model = memory::cxx}, "data race on count", peterson(false)));
    EXPECT_TRUE(holds({.model = memory::sequential}, peterson(false)));
}

// ---- the asymmetric handshake --------------------------------------------------------------------------------------

enum class missing { nothing, light, heavy };

explorer::case_function handshake(missing what) {
    return [=](scenario& s) {
        struct state {
            atomic<int> in{0}, taken{0};
            int owner_went_on = 0, taker_went_on = 0;
        };
        auto& h = s.make<state>("handshake");
        s.thread("owner", [&h, what] {
            h.in.store(1, relaxed);
            if (what != missing::light) platform::light_barrier();
            h.owner_went_on = h.taken.load(relaxed) == 0;
        });
        s.thread("taker", [&h, what] {
            h.taken.store(1, relaxed);
            if (what != missing::heavy) platform::heavy_barrier();
            h.taker_went_on = h.in.load(relaxed) == 0;
        });
        s.at_end([&] { explorer::require(h.owner_went_on + h.taker_went_on <= 1, "both go on"); });
    };
}

TEST(Textbook, AnAsymmetricHandshakeNeedsBothItsBarriers) {
    for (const memory m : {memory::tso, memory::cxx}) {
        EXPECT_TRUE(holds({.model = m}, handshake(missing::nothing)));
        EXPECT_TRUE(breaks({.model = m}, "both go on", handshake(missing::heavy)));
        EXPECT_TRUE(breaks({.model = m}, "both go on", handshake(missing::light)));
    }
}

// ---- message passing, by variables and by fences -------------------------------------------------------------------

explorer::case_function message(std::memory_order store, std::memory_order load) {
    return [=](scenario& s) {
        struct state {
            atomic<int> ready{0};
            explorer::variable<int> value{0, "the message"};
            atomic<int> relaxed_value{0};
        };
        auto& m = s.make<state>("message");
        s.thread("sender", [&m, store] {
            m.value.set(7);
            m.relaxed_value.store(7, relaxed);
            m.ready.store(1, store);
        });
        s.thread("receiver", [&m, load] {
            if (m.ready.load(load) == 0) return;
            explorer::require(m.relaxed_value.load(relaxed) == 7, "an old value is found");
            explorer::require(m.value.get() == 7, "an old value");
        });
    };
}

TEST(Textbook, AMessageNeedsReleaseAndAcquire) {
    for (const memory m : {memory::tso, memory::cxx}) EXPECT_TRUE(holds({.model = m}, message(release, acquire)));
    // The hardware keeps the order of stores and of loads, the language does not.
    for (const auto& [store, load] : {std::pair{relaxed, acquire}, {release, relaxed}}) {
        EXPECT_TRUE(breaks({.model = memory::tso}, "data race on the message", message(store, load)));
        EXPECT_FALSE(explorer::explore({.model = memory::cxx}, message(store, load)).holds());
    }
}

explorer::case_function message_by_fences(std::memory_order first, std::memory_order second) {
    return [=](scenario& s) {
        struct state {
            atomic<int> ready{0};
            explorer::variable<int> value{0, "the message"};
        };
        auto& m = s.make<state>("message");
        s.thread("sender", [&m, first] {
            m.value.set(7);
            if (first != relaxed) fence(first);
            m.ready.store(1, relaxed);
        });
        s.thread("receiver", [&m, second] {
            if (m.ready.load(relaxed) == 0) return;
            if (second != relaxed) fence(second);
            explorer::require(m.value.get() == 7, "an old value");
        });
    };
}

TEST(Textbook, FencesCarryAMessageToo) {
    for (const memory m : {memory::tso, memory::cxx}) {
        EXPECT_TRUE(holds({.model = m}, message_by_fences(release, acquire)));
        EXPECT_TRUE(breaks({.model = m}, "data race on the message", message_by_fences(relaxed, acquire)));
        EXPECT_TRUE(breaks({.model = m}, "data race on the message", message_by_fences(release, relaxed)));
    }
}

// ---- coherence -----------------------------------------------------------------------------------------------------

TEST(Textbook, AThreadNeverLooksBack) {
    EXPECT_TRUE(holds({.model = memory::cxx}, [](scenario& s) {
        auto& x = s.make<atomic<int>>("x", 0);
        s.thread("writer", [&x] {
            x.store(1, relaxed);
            x.store(2, relaxed);
        });
        s.thread("reader", [&x] {
            const int first = x.load(relaxed), second = x.load(relaxed);
            explorer::require(first <= second, "the second look finds an older value");
        });
    }));
}

// ---- Chase-Lev -----------------------------------------------------------------------------------------------------

// Le, Pop, Cohen, Zappa Nardelli: "Correct and Efficient Work-Stealing for Weak Memory Models" (2013).
struct deque {
    atomic<long> top{0}, bottom{0};
    atomic<int> items[4];
    bool fence_in_take = true, fence_in_steal = true;

    void push(int item) {
        const long b = bottom.load(relaxed);
        items[b % 4].store(item, relaxed);
        fence(release);
        bottom.store(b + 1, relaxed);
    }
    int take() {
        const long b = bottom.load(relaxed) - 1;
        bottom.store(b, relaxed);
        if (fence_in_take) fence(seq_cst);
        long t = top.load(relaxed);
        if (t > b) {
            bottom.store(b + 1, relaxed);
            return 0;
        }
        int item = items[b % 4].load(relaxed);
        if (t == b) {
            if (!top.compare_exchange_strong(t, t + 1, seq_cst, relaxed)) item = 0;
            bottom.store(b + 1, relaxed);
        }
        return item;
    }
    int steal() {
        long t = top.load(acquire);
        if (fence_in_steal) fence(seq_cst);
        const long b = bottom.load(acquire);
        if (t >= b) return 0;
        const int item = items[t % 4].load(relaxed);
        return top.compare_exchange_strong(t, t + 1, seq_cst, relaxed) ? item : 0;
    }
};

explorer::case_function chase_lev(bool fence_in_take, bool fence_in_steal) {
    return [=](scenario& s) {
        auto& d = s.make<deque>("deque");
        auto& taken = s.make<std::array<int, 3>>("taken");
        d.fence_in_take = fence_in_take;
        d.fence_in_steal = fence_in_steal;
        s.thread("owner", [&] {
            d.push(1);
            d.push(2);
            for (int i = 0; i < 2; ++i) ++taken[static_cast<std::size_t>(d.take())];
        });
        s.thread("thief", [&] {
            for (int i = 0; i < 2; ++i) ++taken[static_cast<std::size_t>(d.steal())];
        });
        s.at_end([&] { explorer::require(taken[1] == 1 && taken[2] == 1, "an item is taken twice, or lost"); });
    };
}

TEST(Textbook, ADequeNeedsItsFences) {
    EXPECT_TRUE(holds({.model = memory::tso}, chase_lev(true, true)));
    EXPECT_TRUE(breaks({.model = memory::tso}, "an item is taken twice", chase_lev(false, true)));
    EXPECT_TRUE(holds({.order = order::random, .model = memory::cxx, .executions = 20'000}, chase_lev(true, true)));
    EXPECT_FALSE(explorer::explore({.order = order::random, .model = memory::cxx}, chase_lev(true, false)).holds());
}

// ---- seqlock -------------------------------------------------------------------------------------------------------

explorer::case_function seqlock(bool release_fence, bool acquire_fence) {
    return [=](scenario& s) {
        struct state {
            atomic<unsigned> sequence{0};
            atomic<int> a{0}, b{0};
        };
        auto& l = s.make<state>("seqlock");
        s.thread("writer", [&l, release_fence] {
            l.sequence.store(1, relaxed);
            if (release_fence) fence(release);
            l.a.store(1, relaxed);
            l.b.store(1, relaxed);
            l.sequence.store(2, release);
        });
        s.thread("reader", [&l, acquire_fence] {
            const unsigned before = l.sequence.load(acquire);
            const int a = l.a.load(relaxed), b = l.b.load(relaxed);
            if (acquire_fence) fence(acquire);
            const unsigned after = l.sequence.load(relaxed);
            if (before == after && before % 2 == 0) explorer::require(a == b, "half a write is read");
        });
    };
}

TEST(Textbook, ASeqlockNeedsItsFencesWhereLoadsAndStoresPassEachOther) {
    EXPECT_TRUE(holds({.model = memory::cxx}, seqlock(true, true)));
    EXPECT_TRUE(breaks({.model = memory::cxx}, "half a write is read", seqlock(false, true)));
    EXPECT_TRUE(breaks({.model = memory::cxx}, "half a write is read", seqlock(true, false)));
    EXPECT_TRUE(holds({.model = memory::tso}, seqlock(false, false)));
}

// ---- hazard pointers -----------------------------------------------------------------------------------------------

explorer::case_function hazard_pointer(bool with_fence, bool looks_again) {
    return [=](scenario& s) {
        struct state {
            atomic<int> current{1}, hazard{0};
            explorer::variable<int> nodes[3]{{0, "no node"}, {1, "the first node"}, {1, "the second node"}};
        };
        auto& h = s.make<state>("hazard");
        s.thread("reader", [&h, with_fence, looks_again] {
            const int seen = h.current.load(acquire);
            h.hazard.store(seen, relaxed);
            if (with_fence) fence(seq_cst);
            if (!looks_again || h.current.load(acquire) == seen) {
                explorer::require(h.nodes[seen].get() == 1, "a node is read that was freed");
            }
            h.hazard.store(0, release);
        });
        s.thread("writer", [&h, with_fence] {
            h.current.store(2, release);
            if (with_fence) fence(seq_cst);
            if (h.hazard.load(acquire) != 1) h.nodes[1].set(0);  // frees it
        });
    };
}

TEST(Textbook, AHazardPointerNeedsItsFenceAndItsSecondLook) {
    for (const memory m : {memory::tso, memory::cxx}) {
        EXPECT_TRUE(holds({.model = m}, hazard_pointer(true, true)));
        EXPECT_FALSE(explorer::explore({.model = m}, hazard_pointer(false, true)).holds());
        EXPECT_FALSE(explorer::explore({.model = m}, hazard_pointer(true, false)).holds());
    }
}

// ---- a futex mutex -------------------------------------------------------------------------------------------------

enum class mutex_fault { none, unlock_looks_for_one, sleeps_without_mark, wakes_no_waiter };

// Drepper, "Futexes Are Tricky": 0 free, 1 locked, 2 locked and there are sleepers.
struct futex_mutex {
    atomic<std::uint32_t> word{0};
    mutex_fault fault = mutex_fault::none;

    void lock() {
        std::uint32_t seen = 0;
        if (word.compare_exchange_strong(seen, 1, acquire, relaxed)) return;
        const std::uint32_t mark = fault == mutex_fault::sleeps_without_mark ? 1 : 2;
        while (word.exchange(mark, acquire) != 0) platform::futex_wait(word, mark);
    }
    void unlock() {
        if (fault == mutex_fault::unlock_looks_for_one) {
            const bool sleeps = word.load(relaxed) == 2;
            word.store(0, release);
            if (sleeps) platform::futex_wake(word);
        } else if (word.exchange(0, release) == 2 && fault != mutex_fault::wakes_no_waiter) {
            platform::futex_wake(word);
        }
    }
};

explorer::case_function futex_mutex_of(mutex_fault fault, int threads) {
    return [=](scenario& s) {
        auto& m = s.make<futex_mutex>("mutex");
        auto& count = s.make<explorer::variable<int>>("count", 0, "count");
        m.fault = fault;
        for (int i = 0; i < threads; ++i) {
            s.thread(std::string(1, static_cast<char>('a' + i)), [&] {
                m.lock();
                count.set(count.get() + 1);
                m.unlock();
            });
        }
        s.at_end([&count, threads] { explorer::require(count.get() == threads, "an increment is lost"); });
    };
}

TEST(Textbook, AFutexMutexLosesNoSleeper) {
    for (const memory m : {memory::tso, memory::cxx}) {
        EXPECT_TRUE(holds({.model = m}, futex_mutex_of(mutex_fault::none, 2)));
        EXPECT_TRUE(holds({.model = m, .detours = 3}, futex_mutex_of(mutex_fault::none, 3)));
        EXPECT_TRUE(
            breaks({.model = m}, "threads wait for ever", futex_mutex_of(mutex_fault::unlock_looks_for_one, 2)));
        EXPECT_TRUE(breaks({.model = m}, "threads wait for ever", futex_mutex_of(mutex_fault::sleeps_without_mark, 2)));
        EXPECT_TRUE(breaks({.model = m}, "threads wait for ever", futex_mutex_of(mutex_fault::wakes_no_waiter, 2)));
    }
}

// ---- the explorer itself -------------------------------------------------------------------------------------------

TEST(Explorer, TheSameSeedDoesTheSame) {
    for (const order way : {order::random, order::pct}) {
        const explorer::options o{.order = way, .model = memory::cxx, .seed = 7, .executions = 200};
        const explorer::result a = explorer::explore(o, futex_mutex_of(mutex_fault::none, 4));
        const explorer::result b = explorer::explore(o, futex_mutex_of(mutex_fault::none, 4));
        EXPECT_EQ(a.hash, b.hash);
        EXPECT_EQ(a.steps, b.steps);
        explorer::options other = o;
        other.seed = 8;
        EXPECT_NE(a.hash, explorer::explore(other, futex_mutex_of(mutex_fault::none, 4)).hash);
    }
}

// What a thread finds that is kept at one line for as long as another needs for 200 steps: what it has stored is still
// in its buffer then, or another has stored much between two of its loads. `at`: the line.
explorer::case_function kept_at(unsigned& at, bool looks_twice) {
    return [&at, looks_twice](scenario& s) {
        struct state {
            atomic<int> came{0}, said{0}, ticks{0};
        };
        auto& k = s.make<state>("state");
        s.thread("a", [&k, &at, looks_twice] {
            k.came.fetch_add(1);
            k.said.store(1, relaxed);
            const int before = k.ticks.load(relaxed);
            at = std::source_location::current().line() + 1;
            const int after = k.ticks.load(relaxed);
            if (looks_twice) explorer::require(after - before < 200, "kept between two loads");
            fence(seq_cst);
        });
        s.thread("b", [&k, looks_twice] {
            while (k.came.load(relaxed) == 0) platform::pause();
            for (int i = 1; i <= 250; ++i) k.ticks.store(i, relaxed);
            if (!looks_twice) explorer::require(k.said.load(relaxed) == 1, "kept in the buffer");
        });
    };
}

TEST(Explorer, AThreadIsKeptWhereItIsTold) {
    unsigned line = 0;
    for (const bool looks_twice : {true, false}) {
        const auto build = kept_at(line, looks_twice);
        explorer::options o{.order = order::round_robin, .model = memory::tso, .executions = 400};
        EXPECT_TRUE(explorer::explore(o, build).holds());  // and `line` is known
        o.order = order::held;
        o.places = {{"textbook_test.cpp", line, line}};
        const explorer::result found = explorer::explore(o, build);
        EXPECT_EQ(found.failure, looks_twice ? "kept between two loads" : "kept in the buffer");
        const explorer::result again = explorer::replay(o, found.choices, build);
        EXPECT_EQ(again.failure, found.failure);
        // Elsewhere it is not: the first line of this file is not executed.
        o.places = {{"textbook_test.cpp", 1, 1}};
        EXPECT_TRUE(explorer::explore(o, build).holds());
    }
}

// Nobody waits for a thread that is kept for ever: it goes on when no other can.
TEST(Explorer, AThreadThatOthersWaitForIsKeptNoLonger) {
    const auto build = [](scenario& s) {
        auto& said = s.make<atomic<int>>("said", 0);
        s.thread("a", [&said] { said.store(1, relaxed); });
        s.thread("b", [&said] {
            while (said.load(relaxed) == 0) platform::pause();
        });
    };
    const explorer::options o{
        .order = order::held, .model = memory::tso, .executions = 400, .places = {{"textbook_test.cpp", 1, 10'000}}};
    EXPECT_TRUE(holds(o, build));
}

// Two orders of two steps at one place; one of two steps at two.
TEST(Explorer, EquivalentOrdersAreExecutedOnce) {
    const auto two = [](bool same_place) {
        return [same_place](scenario& s) {
            auto& x = s.make<std::array<atomic<int>, 2>>("x");
            s.thread("a", [&x] { x[0].fetch_add(1); });
            s.thread("b", [&x, same_place] { x[same_place ? 0 : 1].fetch_add(1); });
        };
    };
    const explorer::result same = explorer::explore({.model = memory::sequential}, two(true));
    EXPECT_TRUE(same.complete);
    EXPECT_EQ(same.executions - same.given_up, 2u);
    const explorer::result different = explorer::explore({.model = memory::sequential}, two(false));
    EXPECT_TRUE(different.complete);
    EXPECT_EQ(different.executions - different.given_up, 1u);
}

// With and without reduction the same results are reached.
TEST(Explorer, TheReductionLosesNoResult) {
    const auto results = [](memory m, unsigned detours) {
        std::set<std::array<int, 4>> found;
        const explorer::result r = explorer::explore({.model = m, .detours = detours}, [&found](scenario& s) {
            auto& x = s.make<std::array<atomic<int>, 2>>("x");
            auto& seen = s.make<std::array<int, 4>>("seen");
            s.thread("a", [&x, &seen] {
                x[0].store(1, relaxed);
                seen[0] = x[1].load(relaxed);
                x[1].store(2, relaxed);
            });
            s.thread("b", [&x, &seen] {
                x[1].store(1, relaxed);
                seen[1] = x[0].load(relaxed);
                seen[2] = x[0].fetch_add(1, relaxed);
            });
            s.thread("c", [&x, &seen] { seen[3] = x[1].load(relaxed) * 10 + x[0].load(relaxed); });
            s.at_end([&seen, &found] { found.insert(seen); });
        });
        EXPECT_TRUE(r.complete);
        return found;
    };
    for (const memory m : {memory::sequential, memory::tso, memory::cxx}) {
        const auto reduced = results(m, ~0u), all = results(m, 100);
        EXPECT_EQ(reduced, all);
        EXPECT_GT(all.size(), 10u);
    }
}

TEST(Explorer, RoundRobinIsOneExecution) {
    const explorer::result r = explorer::explore({.order = order::round_robin}, futex_mutex_of(mutex_fault::none, 3));
    EXPECT_TRUE(r.holds());
    EXPECT_EQ(r.executions, 1u);
    EXPECT_TRUE(r.complete);
}

TEST(Explorer, WhatDoesNotEndIsSaid) {
    const explorer::result spins = explorer::explore({}, [](scenario& s) {
        auto& x = s.make<atomic<int>>("x", 0);
        s.thread("a", [&x] {
            while (x.load(relaxed) == 0) platform::pause();
        });
    });
    EXPECT_EQ(spins.failure, "threads wait for ever: a spins.");
    const explorer::result runs = explorer::explore({.max_steps = 200}, [](scenario& s) {
        auto& x = s.make<atomic<int>>("x", 0);
        s.thread("a", [&x] {
            while (x.load(relaxed) == 0) x.store(0, relaxed);
        });
    });
    EXPECT_EQ(runs.failure, "it does not end");
}

TEST(Explorer, AStoryIsShort) {
    const explorer::result r = explorer::explore({.order = order::random, .model = memory::tso}, dekker(false));
    ASSERT_FALSE(r.holds());
    EXPECT_LE(r.choices.size(), 4u) << explorer::text_of(r.choices);
    EXPECT_NE(r.story.find("flags = 1 (into its buffer)"), std::string::npos) << r.story;
    EXPECT_NE(r.story.find("textbook_test.cpp:"), std::string::npos) << r.story;
}

TEST(Explorer, WordsThatAreNoChoicesAreRefused) {
    for (const char* text : {"x1", "r", "r99", "r1x", "run"})
        EXPECT_THROW(explorer::choices_in(text), std::invalid_argument) << text;
    EXPECT_EQ(explorer::text_of(explorer::choices_in(" r0  f1 t2\nv3\n")), "r0 f1 t2 v3");
}

// An uncaught fault of a case in one thread leaves the values of the others' thread-local variables alone.
int* mine() {
    static thread_local int value;
    return &value;
}

TEST(Explorer, EachThreadHasItsOwnThreadLocals) {
    explorer::add_thread_variable({[]() noexcept -> void* { return mine(); }, sizeof(int)});
    EXPECT_TRUE(holds({}, [](scenario& s) {
        auto& x = s.make<atomic<int>>("x", 0);
        for (int i = 1; i <= 3; ++i) {
            s.thread("t" + std::to_string(i), [&x, i] {
                explorer::require(*mine() == 0, "another thread's value at first");
                *mine() = i;
                x.fetch_add(1);
                explorer::require(*mine() == i, "another thread's value");
            });
        }
    }));
    EXPECT_EQ(*mine(), 0);
}

TEST(Explorer, FourThreadsTenThousandTimesInAMinute) {
    const auto begin = std::chrono::steady_clock::now();
    const explorer::result r = explorer::explore({.order = order::random, .executions = 10'000}, [](scenario& s) {
        auto& m = s.make<futex_mutex>("mutex");
        auto& count = s.make<explorer::variable<int>>("count", 0, "count");
        for (int i = 0; i < 4; ++i) {
            s.thread("t" + std::to_string(i), [&] {
                for (int k = 0; k < 8; ++k) {
                    m.lock();
                    count.set(count.get() + 1);
                    m.unlock();
                }
            });
        }
        s.at_end([&count] { explorer::require(count.get() == 32, "an increment is lost"); });
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_TRUE(r.holds()) << r.failure << r.story;
    EXPECT_GE(r.steps / r.executions, 100u);
    EXPECT_LT(seconds, 60);
    RecordProperty("executions_a_minute", static_cast<int>(60 * static_cast<double>(r.executions) / seconds));
    std::printf("%.0f executions a minute, %zu steps each\n", 60 * static_cast<double>(r.executions) / seconds,
        r.steps / r.executions);
}

}  // namespace
