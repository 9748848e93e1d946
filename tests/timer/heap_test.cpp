// The heap of timers: against a model, and with several threads that take, cancel and move at the same time.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/build.h"
#include "support/watchdog.h"
#include "timer/heap.h"

using namespace std::chrono_literals;
using dunlin::timers::cancel;
using dunlin::timers::timer_entry;
using dunlin::timers::timer_heap;

namespace {

constexpr std::int64_t end_of_time = std::numeric_limits<std::int64_t>::max();

class TimerHeap : public testing::Test {
protected:
    support::watchdog dog_{testing::UnitTest::GetInstance()->current_test_info()->name(), 60s};
};

std::vector<std::unique_ptr<timer_entry>> make_entries(std::size_t n) {
    std::vector<std::unique_ptr<timer_entry>> all(n);
    for (auto& e : all) e = std::make_unique<timer_entry>();
    return all;
}

// ---- against a model ------------------------------------------------------------------------------------------------

class modelled_heap {
public:
    void insert(timer_entry* t, std::int64_t when) {
        t->when_ns = when;
        when = std::max(when, dunlin::timers::first_moment);  // what is due earlier is due then
        const bool earliest = model_.empty() || when < model_.begin()->first;
        EXPECT_EQ(heap_.insert(t), earliest);
        model_.emplace(when, t);
        check();
    }
    void take_out(timer_entry* t, bool by_remove) {
        const auto at = find(t);
        EXPECT_EQ(by_remove ? heap_.remove(t) == timer_heap::removal::removed : cancel(t), at != model_.end());
        if (at != model_.end()) model_.erase(at);
        EXPECT_FALSE(t->armed.load());
        check();
    }
    // Takes what is due until nothing is.
    void take_due(std::int64_t now) {
        while (timer_entry* t = heap_.take_due(now)) {
            ASSERT_FALSE(model_.empty());
            EXPECT_EQ(t->when_ns, model_.begin()->first) << "the earliest comes first";
            EXPECT_LE(t->when_ns, now);
            const auto at = find(t);
            ASSERT_NE(at, model_.end());
            model_.erase(at);
            EXPECT_FALSE(t->armed.load());
            check();
        }
        EXPECT_TRUE(model_.empty() || model_.begin()->first > now);
    }
    // Those that do not end with run() stay.
    void forget() {
        heap_.forget();
        for (auto i = model_.begin(); i != model_.end();) {
            EXPECT_EQ(i->second->armed.load(), !i->second->ends_with_run);
            i = i->second->ends_with_run ? model_.erase(i) : std::next(i);
        }
        check();
    }
    void move_all_to(modelled_heap& other) {
        heap_.move_all_to(other.heap_);
        other.model_.merge(model_);
        check();
        other.check();
    }
    bool holds(timer_entry* t) const { return find(t) != model_.end(); }
    std::size_t size() const { return model_.size(); }

    void check() const {
        EXPECT_TRUE(heap_.valid());
        EXPECT_EQ(heap_.size(), model_.size());
        EXPECT_EQ(heap_.earliest(), model_.empty() ? 0 : model_.begin()->first);
    }

private:
    using content = std::multimap<std::int64_t, timer_entry*>;
    content::const_iterator find(timer_entry* t) const {
        const auto [first, last] = model_.equal_range(t->when_ns);
        const auto at = std::find_if(first, last, [&](const auto& x) { return x.second == t; });
        return at == last ? model_.end() : at;
    }

    timer_heap heap_;
    content model_;
};

// 0 stands for "none" in earliest(), and no clock of a running machine shows it.
std::int64_t draw_when(std::mt19937_64& random) {
    switch (random() % 16) {
    case 0: return end_of_time;
    case 1: return std::numeric_limits<std::int64_t>::min();
    case 2: return -1 - static_cast<std::int64_t>(random() % 1000);
    case 3: return 1 + static_cast<std::int64_t>(random() % 8);  // many of the same
    default: return 1 + static_cast<std::int64_t>(random() % 1'000'000);
    }
}

TEST_F(TimerHeap, DoesWhatTheModelDoes) {
    for (unsigned seed = 1; seed <= 12; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::mt19937_64 random(seed);
        const auto entries = make_entries(seed * 40);
        for (const auto& e : entries) e->ends_with_run = random() % 2 == 0;
        modelled_heap heap;
        for (int step = 0; step < support::rounds(3000); ++step) {
            timer_entry* t = entries[random() % entries.size()].get();
            const unsigned what = static_cast<unsigned>(random() % 100);
            if (what < 60) {
                heap.holds(t) ? heap.take_out(t, random() % 2 == 0) : heap.insert(t, draw_when(random));
            } else if (what < 90) {
                heap.take_out(t, random() % 2 == 0);
            } else if (what < 99) {
                heap.take_due(static_cast<std::int64_t>(random() % 20'000));
            } else {
                heap.forget();
            }
            if (HasFailure()) FAIL() << "step " << step;
        }
        heap.take_due(end_of_time);
        EXPECT_EQ(heap.size(), 0u);
    }
}

TEST_F(TimerHeap, IsEmptyAtFirst) {
    timer_heap heap;
    timer_entry t;
    EXPECT_TRUE(heap.valid());
    EXPECT_EQ(heap.size(), 0u);
    EXPECT_EQ(heap.earliest(), 0);
    EXPECT_EQ(heap.take_due(end_of_time), nullptr);
    EXPECT_NE(heap.remove(&t), timer_heap::removal::removed);
    EXPECT_FALSE(cancel(&t)) << "never in a heap";
    heap.forget();
    EXPECT_TRUE(heap.valid());
}

TEST_F(TimerHeap, EveryPlaceCanBeTakenOutOfEverySize) {
    for (std::size_t n = 1; n <= 40; ++n) {
        for (std::size_t out = 0; out < n; ++out) {
            for (const int order : {0, 1, 2}) {  // rising, falling, mixed
                const auto entries = make_entries(n);
                modelled_heap heap;
                for (std::size_t i = 0; i < n; ++i) {
                    const std::size_t when = order == 0 ? i : order == 1 ? n - i : i * 17 % 41;
                    heap.insert(entries[i].get(), static_cast<std::int64_t>(when) + 1);
                }
                heap.take_out(entries[out].get(), true);
                heap.take_due(end_of_time);
                ASSERT_FALSE(HasFailure()) << n << ", " << out << ", order " << order;
            }
        }
    }
}

TEST_F(TimerHeap, OneThatIsInAnotherHeapStaysThere) {
    timer_heap a, b;
    timer_entry t;
    t.when_ns = 5;
    a.insert(&t);
    EXPECT_EQ(b.remove(&t), timer_heap::removal::elsewhere);
    EXPECT_TRUE(t.armed.load());
    EXPECT_EQ(a.remove(&t), timer_heap::removal::removed);
    EXPECT_EQ(a.remove(&t), timer_heap::removal::not_armed);
    EXPECT_FALSE(cancel(&t));
    b.insert(&t);
    EXPECT_EQ(a.remove(&t), timer_heap::removal::elsewhere);
    EXPECT_TRUE(cancel(&t));
    EXPECT_EQ(b.size(), 0u);
}

TEST_F(TimerHeap, MovesEverything) {
    for (unsigned seed = 1; seed <= 60; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::mt19937_64 random(seed);
        const auto entries = make_entries(200);
        modelled_heap a, b;
        const std::size_t in_a = random() % 101, in_b = random() % 100;
        for (std::size_t i = 0; i < in_a + in_b; ++i) (i < in_a ? a : b).insert(entries[i].get(), draw_when(random));
        a.move_all_to(b);
        EXPECT_EQ(a.size(), 0u);
        EXPECT_EQ(b.size(), in_a + in_b);
        // Those that came are found where they are, and the old heap goes on working.
        for (std::size_t i = 0; i < in_a + in_b; ++i) {
            if (random() % 4 == 0) b.take_out(entries[i].get(), random() % 2 == 0);
        }
        for (std::size_t i = in_a + in_b; i < entries.size(); ++i) a.insert(entries[i].get(), draw_when(random));
        b.move_all_to(a);
        a.take_due(end_of_time);
        ASSERT_FALSE(HasFailure());
    }
}

TEST_F(TimerHeap, ForgetsThoseThatEndWithRunAndKeepsTheOthers) {
    for (std::size_t n = 0; n < 130; ++n) {
        std::mt19937_64 random(n + 1);
        const auto entries = make_entries(n);
        modelled_heap heap;
        const unsigned keep_percent = static_cast<unsigned>(n % 5) * 25;
        for (const auto& e : entries) {
            e->ends_with_run = random() % 100 >= keep_percent;
            heap.insert(e.get(), draw_when(random));
        }
        heap.forget();
        EXPECT_EQ(heap.size(), static_cast<std::size_t>(std::count_if(
                                   entries.begin(), entries.end(), [](const auto& e) { return !e->ends_with_run; })));
        // What was forgotten is out of the heap, and may go into it again.
        for (const auto& e : entries) {
            if (!e->ends_with_run) continue;
            EXPECT_FALSE(cancel(e.get()));
            if (random() % 2 == 0) heap.insert(e.get(), draw_when(random));
        }
        heap.take_due(end_of_time);
        ASSERT_FALSE(HasFailure()) << n;
    }
}

// ---- claims ---------------------------------------------------------------------------------------------------------

struct claimed_entry : timer_entry {
    claimed_entry() { claim = count; }
    std::atomic<int> claims{0};
    std::atomic<bool> refuses{false}, cancelled{false}, late{false};

    static bool count(timer_entry* t) noexcept {
        auto* self = static_cast<claimed_entry*>(t);
        self->claims.fetch_add(1);
        if (self->cancelled.load()) self->late.store(true);
        return !self->refuses.load();
    }
};

TEST_F(TimerHeap, GoesOnToTheNextWhenAClaimIsRefused) {
    timer_heap heap;
    std::vector<claimed_entry> entries(20);
    for (std::size_t i = 0; i < entries.size(); ++i) {
        entries[i].when_ns = static_cast<std::int64_t>(i) + 1;
        entries[i].refuses = i % 3 != 0;
        heap.insert(&entries[i]);
    }
    std::vector<timer_entry*> taken;
    while (timer_entry* t = heap.take_due(15)) taken.push_back(t);
    EXPECT_EQ(taken, (std::vector<timer_entry*>{&entries[0], &entries[3], &entries[6], &entries[9], &entries[12]}));
    EXPECT_EQ(heap.size(), 5u);
    for (std::size_t i = 0; i < entries.size(); ++i) EXPECT_EQ(entries[i].claims.load(), i < 15 ? 1 : 0) << i;
    for (std::size_t i = 15; i < entries.size(); ++i) EXPECT_TRUE(cancel(&entries[i]));
    EXPECT_EQ(heap.earliest(), 0);
}

// ---- several threads ------------------------------------------------------------------------------------------------

// Each entry is either taken once or cancelled once; after cancel() has returned there are no more claims.
TEST_F(TimerHeap, OfCancelAndTakeDueExactlyOneGetsIt) {
    constexpr std::size_t n = 400;
    for (int round = 0; round < support::rounds(300); ++round) {
        timer_heap heap;
        std::vector<claimed_entry> entries(n);
        for (std::size_t i = 0; i < n; ++i) {
            entries[i].when_ns = static_cast<std::int64_t>(i * 7919 % n) + 1;
            heap.insert(&entries[i]);
        }
        std::atomic<std::size_t> taken{0}, cancelled{0};
        std::atomic<bool> begin{false};
        std::vector<std::thread> threads;
        for (int k = 0; k < 2; ++k) {
            threads.emplace_back([&] {
                while (!begin.load()) std::this_thread::yield();
                for (std::int64_t now = 0; now <= static_cast<std::int64_t>(n); ++now) {
                    while (heap.take_due(now) != nullptr) taken.fetch_add(1);
                }
            });
            threads.emplace_back([&, k] {
                while (!begin.load()) std::this_thread::yield();
                for (std::size_t i = 0; i < n; ++i) {
                    claimed_entry& e = entries[(k == 0 ? i : n - 1 - i)];
                    if (cancel(&e)) cancelled.fetch_add(1);
                    e.cancelled.store(true);
                }
            });
        }
        begin = true;
        for (auto& t : threads) t.join();
        ASSERT_EQ(taken.load() + cancelled.load(), n);
        for (const claimed_entry& e : entries) {
            ASSERT_LE(e.claims.load(), 1);
            ASSERT_FALSE(e.late.load()) << "claimed after cancel() had returned";
        }
        ASSERT_TRUE(heap.valid());
        ASSERT_EQ(heap.size(), 0u);
    }
}

// The same while they are moved from heap to heap: cancel() follows.
TEST_F(TimerHeap, OfCancelAndTakeDueExactlyOneGetsItWhileTheyMove) {
    constexpr std::size_t n = 200;
    for (int round = 0; round < support::rounds(300); ++round) {
        timer_heap heaps[3];
        std::vector<claimed_entry> entries(n);
        for (std::size_t i = 0; i < n; ++i) {
            entries[i].when_ns = static_cast<std::int64_t>(i) + 1;
            heaps[i % 3].insert(&entries[i]);
        }
        std::atomic<std::size_t> taken{0}, cancelled{0};
        std::atomic<bool> begin{false}, end{false};
        std::thread mover([&] {
            for (std::size_t i = 0; !end.load(); ++i) heaps[i % 3].move_all_to(heaps[(i + 1 + i / 3 % 2) % 3]);
        });
        std::thread taker([&] {
            while (!begin.load()) std::this_thread::yield();
            for (std::int64_t now = 0; now <= static_cast<std::int64_t>(n) / 2; ++now) {
                for (timer_heap& h : heaps) {
                    while (h.take_due(now) != nullptr) taken.fetch_add(1);
                }
            }
        });
        std::thread canceller([&] {
            while (!begin.load()) std::this_thread::yield();
            for (std::size_t i = n; i-- > 0;) {
                if (cancel(&entries[i])) cancelled.fetch_add(1);
                entries[i].cancelled.store(true);
            }
        });
        begin = true;
        taker.join();
        canceller.join();
        end = true;
        mover.join();
        // All were cancelled or taken: the canceller asked for each.
        ASSERT_EQ(taken.load() + cancelled.load(), n) << "round " << round;
        for (timer_heap& h : heaps) ASSERT_TRUE(h.valid() && h.size() == 0);
        for (const claimed_entry& e : entries) ASSERT_FALSE(e.late.load());
    }
}

// Entries that come and go, by threads of their own, while another takes what is due.
TEST_F(TimerHeap, ServesManyThreads) {
    timer_heap heap;
    std::atomic<bool> end{false};
    std::atomic<long> inserted{0}, taken{0}, cancelled{0};
    std::thread taker([&] {
        std::mt19937_64 random(7);
        while (!end.load()) {
            if (heap.take_due(static_cast<std::int64_t>(random() % 1000)) != nullptr) taken.fetch_add(1);
            EXPECT_TRUE(heap.valid());
        }
    });
    std::vector<std::thread> users;
    for (unsigned k = 0; k < 3; ++k) {
        users.emplace_back([&, k] {
            std::mt19937_64 random(k + 1);
            std::vector<claimed_entry> mine(30);
            std::vector<int> claims_before(mine.size());
            for (int i = 0; i < support::rounds(100'000); ++i) {
                const std::size_t which = random() % mine.size();
                claimed_entry& e = mine[which];
                // An inserter must know that it is out: cancelled by itself, or claimed.
                if (claims_before[which] < 0) {
                    if (cancel(&e)) {
                        cancelled.fetch_add(1);
                        EXPECT_EQ(e.claims.load(), -claims_before[which] - 1);
                    }
                    claims_before[which] = 0;
                } else {
                    claims_before[which] = -e.claims.load() - 1;
                    e.when_ns = 1 + static_cast<std::int64_t>(random() % 2000);
                    heap.insert(&e);
                    inserted.fetch_add(1);
                }
            }
            for (claimed_entry& e : mine) {
                if (cancel(&e)) cancelled.fetch_add(1);
            }
        });
    }
    for (auto& t : users) t.join();
    end = true;
    taker.join();
    EXPECT_EQ(inserted.load(), taken.load() + cancelled.load());
    EXPECT_EQ(heap.size(), 0u);
    EXPECT_TRUE(heap.valid());
}

}  // namespace
