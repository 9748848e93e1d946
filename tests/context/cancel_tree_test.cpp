// A cancel() returns when the whole tree is done, whatever else is cancelled at the same time; what is forgotten with a
// run, and what must not leak.
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "context/inside.h"
#include "context/race.h"
#include "support/runtime_test.h"

namespace {

// Blocks of the size of a stop_link that are there.
std::atomic<long> links{0};
constexpr std::size_t link_size = sizeof(dunlin::detail::stop_link);

}  // namespace

// What this program allocates by new, with its size in front.
void* operator new(std::size_t size) {
    void* const p = std::malloc(size + 16);
    if (p == nullptr) throw std::bad_alloc();
    *static_cast<std::size_t*>(p) = size;
    if (size == link_size) links.fetch_add(1, std::memory_order_relaxed);
    return static_cast<char*>(p) + 16;
}
// A sanitizer has one of its own, which GoogleTest calls from 1.16 on.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    try {
        return operator new(size);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}
void operator delete(void* p) noexcept {
    if (p == nullptr) return;
    void* const begin = static_cast<char*>(p) - 16;
    if (*static_cast<std::size_t*>(begin) == link_size) links.fetch_sub(1, std::memory_order_relaxed);
    std::free(begin);
}
void operator delete(void* p, std::size_t) noexcept { operator delete(p); }

namespace {

using namespace std::chrono_literals;
using dunlin::cancellable;
using dunlin::context;
using dunlin::errc;
using support::opponent;

class CancelTree : public support::each_p {};
EACH_P(CancelTree);

// ---- complete -------------------------------------------------------------------------------------------------------

void expect_all_done(const std::vector<cancellable>& all) {
    for (const cancellable& c : all) {
        ASSERT_TRUE(c.is_done());
        ASSERT_TRUE(c.done().closed());
    }
}

// Wide and deep, with values in between.
void grow(const context& top, std::vector<cancellable>& all) {
    for (int i = 0; i < 10; ++i) all.push_back(dunlin::with_cancel(top.with_value("i", i)));
    for (int i = 0; i < 30; ++i) all.push_back(all[all.size() - 10].with_cancel());
}

TEST_P(CancelTree, OfTwoCancelsBothFindItComplete) {
    allow(60s);
    run([this] {
        for (const auto who : {opponent::goroutine, opponent::thread}) {
            cancellable top;
            std::vector<cancellable> all;
            support::race(
                support::rounds(procs() == 8 ? 500 : 1500), who,
                [&](int) {
                    top = dunlin::with_cancel({});
                    all.clear();
                    grow(top, all);
                },
                [&](int) {
                    top.cancel();
                    expect_all_done(all);
                },
                [&](int) {
                    top.cancel();
                    expect_all_done(all);
                },
                [](int) {});
        }
    });
}

// One cancels the tree, another a part of it: each finds its own complete, and what another has begun too.
TEST_P(CancelTree, ACancelInsideTheTreeOfAnother) {
    allow(60s);
    run([this] {
        for (const auto who : {opponent::goroutine, opponent::thread}) {
            cancellable top;
            std::vector<cancellable> above, inner;
            support::race(
                support::rounds(procs() == 8 ? 500 : 1500), who,
                [&](int i) {
                    top = dunlin::with_cancel({});
                    above.clear();
                    inner.clear();
                    grow(top, above);
                    grow(above[static_cast<std::size_t>(i) % above.size()], inner);
                    above.push_back(above[static_cast<std::size_t>(i) % above.size()]);
                },
                [&](int) {
                    top.cancel();
                    expect_all_done(above);
                    expect_all_done(inner);
                },
                [&](int) {
                    above.back().cancel();
                    expect_all_done(inner);
                },
                [](int) {});
        }
    });
}

TEST_P(CancelTree, ManyCancelEverything) {
    run([] {
        for (int round = 0; round < support::rounds(200); ++round) {
            const cancellable top = dunlin::with_cancel({});
            std::vector<cancellable> all;
            grow(top, all);
            dunlin::task_group group;
            for (std::size_t g = 0; g < 4; ++g) {
                group.go([&, g] {
                    for (std::size_t i = g; i < all.size(); i += 4) all[all.size() - 1 - i].cancel();
                    top.cancel();
                    expect_all_done(all);
                });
            }
            std::thread thread([&] {
                top.cancel();
                expect_all_done(all);
            });
            group.wait();
            dunlin::blocking([&] { thread.join(); });
        }
    });
}

// The program's code runs when nothing is held: it may cancel any part of the tree, and wait for others that do.
TEST_P(CancelTree, CallbacksMayCancelTheTreeThatIsCancelled) {
    run([] {
        const cancellable top = dunlin::with_cancel({});
        std::vector<cancellable> all;
        grow(top, all);
        std::atomic<int> called{0};
        const auto again = [&] {
            top.cancel();
            all.front().cancel();
            all.back().cancel();
            expect_all_done(all);
            ++called;
        };
        const std::stop_callback at_top(top.stop_token(), again), below(all.back().stop_token(), again);
        const std::stop_callback with_help(all.front().stop_token(), [&] {
            std::thread other(again);  // on this goroutine's thread no other is needed for that
            other.join();
        });
        top.after_func(again);
        all[5].after_func(again);
        top.cancel();
        support::eventually([&] { return called == 5; });
    });
}

TEST_P(CancelTree, AContextMadeMeanwhileIsDoneWhenItIsThere) {
    run([] {
        cancellable top;
        std::vector<cancellable> all;
        std::atomic<bool> returned{false};
        support::race(
            support::rounds(2000), opponent::goroutine,
            [&](int) {
                returned = false;
                top = dunlin::with_cancel({});
                all.clear();
                grow(top, all);
            },
            [&](int) {
                top.cancel();
                returned = true;
            },
            [&](int) {
                for (int i = 0; i < 5; ++i) {
                    const bool after = returned;
                    const cancellable late = all.back().with_cancel();
                    ASSERT_TRUE(!after || late.is_done());
                }
            },
            [](int) {});
    });
}

// ---- deadlines that are forgotten -----------------------------------------------------------------------------------

TEST_P(CancelTree, AChildDoesNotRelyOnADeadlineThatIsForgotten) {
    cancellable parent, of_run;
    const cancellable of_thread = dunlin::with_timeout({}, 1h);
    std::optional<cancellable> before;
    run([&] {
        parent = dunlin::with_timeout({}, 1h);
        of_run = of_thread.with_timeout(2h);  // the thread's comes first, and stays
        EXPECT_EQ(parent.with_cancel().deadline(), parent.deadline());
        std::thread maker([&] { before = parent.with_timeout(1h + 30ms); });
        maker.join();
    });
    EXPECT_EQ(parent.deadline(), std::nullopt) << "forgotten";
    EXPECT_EQ(parent.with_cancel().deadline(), std::nullopt);
    EXPECT_EQ(of_run.deadline(), of_thread.deadline());
    EXPECT_TRUE(before->deadline()) << "a thread's own, though its parent's would have come first";
    EXPECT_EQ(inside::timers(), 2u);
    before.reset();

    const auto later = parent.with_timeout(5ms);  // in a later moment than the forgotten one it would be the same
    later.done().recv();
    EXPECT_EQ(later.err(), errc::deadline_exceeded);
    run([&] {
        const auto child = parent.with_timeout(2h), grandchild = child.with_timeout(3h);
        EXPECT_EQ(inside::timers(), 2u) << "the grandchild relies on the child's, which is of this run";
        EXPECT_EQ(grandchild.deadline(), child.deadline());
        EXPECT_GT(*child.deadline(), dunlin::clock::now() + 90min);
    });
    EXPECT_FALSE(parent.is_done());
}

TEST_P(CancelTree, ADeadlineLaterThanAForgottenOneStillPasses) {
    cancellable parent;
    run([&] {
        parent = dunlin::with_timeout({}, 20ms);  // it is over before that, and if not the test says nothing
    });
    const auto child = parent.with_timeout(40ms);
    const bool passed = child.done().recv_for(20s).status() == dunlin::channel_status::closed;
    EXPECT_TRUE(passed);
    EXPECT_EQ(child.err(), errc::deadline_exceeded);
}

// ---- contexts of stop tokens ----------------------------------------------------------------------------------------

// Dropped before a stop is requested, while it is, in the midst of its callbacks, and afterwards.
TEST_P(CancelTree, ADropBesideAStopRequestLeaksNothing) {
    allow(60s);
    run([] {
        const long before = links;
        for (const auto who : {opponent::goroutine, opponent::thread}) {
            std::optional<std::stop_source> source;
            std::vector<cancellable> contexts;
            support::race(
                support::rounds(1000), who,
                [&](int) {
                    source.emplace();
                    contexts.clear();
                    for (int i = 0; i < 3; ++i) contexts.push_back(dunlin::with_stop_token({}, source->get_token()));
                },
                [&](int) { contexts.clear(); }, [&](int) { source->request_stop(); }, [](int) {});
        }
        for (int i = 0; i < 50; ++i) {
            std::stop_source source;
            std::optional<cancellable> first = dunlin::with_stop_token({}, source.get_token()), last;
            // Callbacks run in the order opposite to that in which they came: this one is the first.
            {
                last = dunlin::with_stop_token({}, source.get_token());
                std::stop_callback drop(source.get_token(), [&] {
                    first.reset();
                    last.reset();
                    dunlin::yield();
                });
                source.request_stop();
            }
        }
        support::eventually([&] { return links == before; });
    });
}

}  // namespace
