// Contexts as C++ has them: member forms, keys, causes, stop tokens, lifetime, and the calls that take one. Go's own
// tests are in tests/go/context_test.cpp.
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <vector>

#include "context/inside.h"
#include "context/race.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;
using dunlin::cancel_function;
using dunlin::cancellable;
using dunlin::context;
using dunlin::context_key;
using dunlin::errc;
using support::opponent;

namespace {

class Context : public support::each_p {};
EACH_P(Context);

inline const context_key<int> request_id;
inline const context_key<int> other_id;
inline const context_key<std::string> user;

template <class Exception>
bool holds(const std::exception_ptr& p) {
    try {
        if (p) std::rethrow_exception(p);
    } catch (const Exception&) {
        return true;
    } catch (...) {
    }
    return false;
}

// ---- forms ----------------------------------------------------------------------------------------------------------

TEST_P(Context, EachFormMakesADerivedContext) {
    run([] {
        const context parent = context::background();
        const auto [a, cancel] = dunlin::with_cancel(parent);
        static_assert(std::is_same_v<std::remove_const_t<decltype(a)>, context> &&
                      std::is_same_v<std::remove_const_t<decltype(cancel)>, cancel_function>);
        const auto b = a.with_timeout(1h);
        const auto c = context::with_value(b, user, "ann");
        const auto [d, cancel_d] = context::with_deadline(c, std::chrono::steady_clock::now() + 30min);
        const auto e = context::without_cancel(d);
        const auto [f, cancel_f] = context::with_stop_token(e, {});
        const auto [g, cancel_g] = context::with_cancel(f).with_deadline(dunlin::clock::now() + 1h);
        EXPECT_LT(*d.deadline(), *b.deadline());
        EXPECT_EQ(*c.value(user), "ann");
        EXPECT_EQ(*g.value(user), "ann");

        b.cancel();
        b.cancel();
        EXPECT_FALSE(a.is_done());
        EXPECT_TRUE(b.is_done() && c.is_done() && d.is_done());
        EXPECT_FALSE(e.is_done() || f.is_done() || g.is_done());
        const cancel_function copy = cancel;
        copy();
        EXPECT_TRUE(a.is_done());
        EXPECT_FALSE(f.is_done());
        cancel_f();
        EXPECT_TRUE(f.is_done() && g.is_done());
        cancel_d();
        cancel_g();
        cancel_function()();  // nothing

        context empty;
        EXPECT_EQ(empty, parent);
        empty = a;
        EXPECT_EQ(empty, a);
        EXPECT_NE(empty, static_cast<const context&>(b));
        EXPECT_EQ(cancellable(), context());
        cancellable().cancel();
    });
}

TEST_P(Context, WorksAmongPlainThreads) {
    const auto [ctx, cancel] = dunlin::with_cancel({});
    EXPECT_FALSE(ctx.is_done());
    cancel();
    EXPECT_EQ(ctx.err(), errc::cancelled);
    EXPECT_EQ(ctx.done().recv(), std::nullopt);
}

TEST_P(Context, TheEarlierDeadlineCounts) {
    run([] {
        EXPECT_FALSE(dunlin::with_timeout({}, std::chrono::hours::max()).deadline()) << "for ever";
        const auto now = dunlin::clock::now();
        const cancellable parent = dunlin::with_deadline({}, now + 1h);
        EXPECT_EQ(parent.deadline(), now + 1h);
        EXPECT_EQ(parent.with_deadline(now + 2h).deadline(), now + 1h);
        EXPECT_EQ(parent.with_deadline(now + 30min).deadline(), now + 30min);
        EXPECT_EQ(parent.with_cancel().with_value(1, 2).deadline(), now + 1h);
        EXPECT_FALSE(parent.without_cancel().deadline());
        EXPECT_EQ(inside::timers(), 1u) << "dropped ones have none";
        EXPECT_EQ(dunlin::with_timeout({}, -1h).err(), errc::deadline_exceeded);
        EXPECT_EQ(parent.with_timeout(-std::chrono::hours::max()).err(), errc::deadline_exceeded);
        EXPECT_FALSE(parent.is_done());
        // A short one under a long one, and its cause.
        const auto late = std::make_exception_ptr(std::out_of_range("late"));
        EXPECT_FALSE(holds<std::out_of_range>(parent.with_timeout(30min, late).cause()));
        const cancellable child = parent.with_timeout(5ms, late);
        child.done().recv();
        EXPECT_TRUE(holds<std::out_of_range>(child.cause()));
        EXPECT_FALSE(parent.is_done());
    });
}

// Even when both moments are past, and no processor has had the time to look at timers.
TEST_P(Context, ALaterDeadlineIsNotTheFirstToPass) {
    run([] {
        const auto late = std::make_exception_ptr(std::out_of_range("late"));
        const auto early = std::make_exception_ptr(std::length_error("early"));
        for (int i = 0; i < 20; ++i) {
            const cancellable parent = dunlin::with_timeout({}, 200us, early);
            const auto t = *parent.deadline();
            std::optional<cancellable> later, same;
            {
                const dunlin::no_preempt processor_looks_at_no_timer;
                while (dunlin::clock::now() < t + 50us) {}
                later = parent.with_deadline(t + 10us, late);
                same = parent.with_deadline(t, late);
                EXPECT_TRUE(!later->is_done() || parent.is_done());
            }
            EXPECT_TRUE(same->is_done());
            EXPECT_TRUE(holds<std::out_of_range>(same->cause()) || holds<std::length_error>(same->cause()));
            later->done().recv();
            EXPECT_TRUE(parent.is_done());
            EXPECT_EQ(later->err(), errc::deadline_exceeded);
            EXPECT_TRUE(holds<std::length_error>(later->cause()));
        }
    });
}

TEST_P(Context, ErrorsAreErrorCodesOfBothKinds) {
    run([] {
        const cancellable c = dunlin::with_cancel({});
        EXPECT_EQ(c.err(), std::error_code());
        c.cancel();
        EXPECT_EQ(c.err(), errc::cancelled);
        EXPECT_EQ(c.err(), std::errc::operation_canceled);
        EXPECT_NE(c.err(), std::errc::timed_out);
        EXPECT_FALSE(c.err().message().empty());
    });
}

// ---- causes ---------------------------------------------------------------------------------------------------------

TEST_P(Context, ACauseIsKeptAsItWasGiven) {
    run([] {
        const auto cancelled_with = [](auto&&... cause) {
            const cancellable c = dunlin::with_cancel({});
            c.cancel(cause...);
            EXPECT_EQ(c.err(), errc::cancelled);
            const cancellable f = dunlin::with_cancel({});
            f.canceller()(cause...);
            EXPECT_EQ(f.err(), errc::cancelled);
            return c.cause();
        };
        const auto code_of = [](const std::exception_ptr& p) {
            try {
                std::rethrow_exception(p);
            } catch (const std::system_error& e) {
                return e.code();
            }
        };
        EXPECT_TRUE(holds<dunlin::context_cancelled>(cancelled_with()));
        EXPECT_EQ(code_of(cancelled_with()), errc::cancelled);
        EXPECT_EQ(code_of(cancelled_with(std::make_error_code(std::errc::io_error))), std::errc::io_error);
        EXPECT_EQ(code_of(cancelled_with(errc::closed)), errc::closed);
        EXPECT_TRUE(holds<std::out_of_range>(cancelled_with(std::out_of_range("x")))) << "not sliced";
        const auto p = std::make_exception_ptr(42);
        EXPECT_EQ(cancelled_with(p), p);
        EXPECT_EQ(code_of(dunlin::with_timeout({}, 0s).cause()), errc::deadline_exceeded);
    });
}

TEST_P(Context, ACauseThatIsSeenAsItsBaseIsNotSliced) {
    run([] {
        const auto text_of = [](const cancellable& c) -> std::string {
            try {
                std::rethrow_exception(c.cause());
            } catch (const std::exception& e) {
                return e.what();
            }
        };
        const cancellable handled = dunlin::with_cancel({}), nested = dunlin::with_cancel({});
        try {
            throw std::out_of_range("too far");
        } catch (const std::exception& e) {
            handled.cancel(e);
            try {
                throw 5;
            } catch (int) {
                nested.cancel(e);
            }
            EXPECT_EQ(handled.cause(), std::current_exception());
        }
        EXPECT_FALSE(holds<std::out_of_range>(nested.cause())) << "another one is being handled";
        EXPECT_EQ(text_of(nested), "too far");
        const cancellable with_code = dunlin::with_cancel({}), with_text = dunlin::with_cancel({});
        const dunlin::io_error not_thrown(std::make_error_code(std::errc::io_error), "here");
        const std::length_error too_long("too long");
        with_code.cancel(static_cast<const std::exception&>(not_thrown));
        with_text.canceller()(static_cast<const std::logic_error&>(too_long));
        EXPECT_EQ(text_of(with_text), "too long");
        try {
            std::rethrow_exception(with_code.cause());
        } catch (const std::system_error& e) {
            EXPECT_EQ(e.code(), std::errc::io_error);
        }
    });
}

TEST_P(Context, TheFirstCauseStays) {
    run([] {
        std::vector<std::exception_ptr> causes;
        for (int i = 0; i < 4; ++i) causes.push_back(std::make_exception_ptr(i));
        const cancellable parent = dunlin::with_cancel({});
        const cancellable child = parent.with_timeout(1h, causes[3]);
        child.cancel(causes[0]);
        parent.cancel(causes[1]);
        child.cancel(causes[2]);
        parent.cancel();
        EXPECT_EQ(child.cause(), causes[0]);
        EXPECT_EQ(child.with_cancel().cause(), causes[0]);
        EXPECT_EQ(parent.cause(), causes[1]);
        EXPECT_EQ(parent.with_value(1, 1).cause(), causes[1]);
        EXPECT_EQ(parent.without_cancel().cause(), nullptr);
    });
}

// ---- values ---------------------------------------------------------------------------------------------------------

TEST_P(Context, ValuesAreFoundThroughAllParents) {
    run([] {
        const context none;
        EXPECT_EQ(none.value(request_id), nullptr);
        EXPECT_EQ(none.value<int>("n"), nullptr);

        const context a = none.with_value(request_id, 7).with_value(user, "ann");
        EXPECT_EQ(*a.value(request_id), 7);
        static_assert(std::is_same_v<decltype(a.value(user)), const std::string*>);
        EXPECT_EQ(*a.value(user), "ann");
        EXPECT_EQ(a.value(other_id), nullptr) << "keys of the same type are different objects";

        const context b = a.with_value(request_id, 8);
        EXPECT_EQ(*b.value(request_id), 8);
        EXPECT_EQ(*a.value(request_id), 7);
        EXPECT_EQ(b.value(user), a.value(user)) << "the same object";

        // Texts are the same however they are given; numbers have their types.
        const context c = none.with_value("trace", 1)
                              .with_value(std::string("user"), std::string("bob"))
                              .with_value(5, 2.5)
                              .with_value(5L, 'x');
        EXPECT_EQ(*c.value<int>(std::string("trace")), 1);
        EXPECT_EQ(*c.value<int>(std::string_view("trace")), 1);
        const char trace[] = "trace";
        EXPECT_EQ(*c.value<int>(trace), 1);
        EXPECT_EQ(*c.value<int>(static_cast<const char*>(trace)), 1);
        EXPECT_EQ(*c.value<std::string>("user"), "bob");
        EXPECT_EQ(*c.value<double>(5), 2.5);
        EXPECT_EQ(*c.value<char>(5L), 'x');
        EXPECT_EQ(c.value<double>(5U), nullptr);
        EXPECT_EQ(c.value<int>("Trace"), nullptr);

        // Of another type than was asked for: not found.
        EXPECT_EQ(c.value<long>("trace"), nullptr);
        EXPECT_EQ(c.value<double>(5L), nullptr);
        const context d = c.with_value("trace", std::string("shadow"));
        EXPECT_EQ(*d.value<std::string>("trace"), "shadow");

        // What can only be moved.
        const context e = none.with_value("p", std::make_shared<int>(3));
        EXPECT_EQ(**e.value<std::shared_ptr<int>>("p"), 3);
        const context f = none.with_value("u", std::make_unique<int>(4));
        EXPECT_EQ(**f.value<std::unique_ptr<int>>("u"), 4);
    });
}

TEST_P(Context, ValuesLiveAsLongAsTheContext) {
    run([] {
        const auto alive = std::make_shared<int>(1);
        {
            const context a = context().with_value("k", alive);
            const cancellable b = a.with_cancel();
            EXPECT_EQ(alive.use_count(), 2);
            b.cancel();
            EXPECT_EQ(alive.use_count(), 2);
            EXPECT_EQ(**b.value<std::shared_ptr<int>>("k"), 1) << "after cancel too";
        }
        EXPECT_EQ(alive.use_count(), 1);
    });
}

// ---- std::stop_token ------------------------------------------------------------------------------------------------

TEST_P(Context, AStopTokenOfAContextFollowsIt) {
    run([] {
        EXPECT_FALSE(context().stop_token().stop_possible());
        const cancellable c = dunlin::with_cancel({});
        const std::stop_token token = c.stop_token(), again = c.with_value("k", 1).stop_token();
        EXPECT_EQ(token, again);
        EXPECT_TRUE(token.stop_possible());
        EXPECT_FALSE(token.stop_requested());
        std::thread::id by;
        bool done_before = false;
        std::stop_callback on_stop(token, [&] {
            by = std::this_thread::get_id();
            done_before = c.is_done() && c.done().closed();
        });
        {
            dunlin::chan<int> none;
            std::stop_callback unused(token, [none] { none.close(); });
        }
        c.cancel();
        EXPECT_TRUE(token.stop_requested());
        EXPECT_NE(by, std::thread::id());
        EXPECT_TRUE(done_before);
        EXPECT_TRUE(c.stop_token().stop_requested());

        const cancellable done = dunlin::with_timeout({}, 0s);
        EXPECT_TRUE(done.stop_token().stop_requested()) << "when it is done already";
        const cancellable later = dunlin::with_timeout({}, 2ms);
        const std::stop_token of_deadline = later.stop_token();
        support::eventually([&] { return of_deadline.stop_requested(); });
        EXPECT_TRUE(later.is_done());
    });
}

TEST_P(Context, CallbacksRunOnTheCanceller) {
    const cancellable c = dunlin::with_cancel({});
    std::thread::id by;
    std::stop_callback on_stop(c.stop_token(), [&] { by = std::this_thread::get_id(); });
    c.cancel();
    EXPECT_EQ(by, std::this_thread::get_id()) << "on a plain thread it is that thread";
}

TEST_P(Context, AStopCallbackThatTakesLongHoldsUpNoFunctionBelow) {
    run([] {
        const cancellable above = dunlin::with_cancel({}), below = dunlin::with_cancel(above);
        std::atomic<bool> called{false};
        const auto registration = below.after_func([&] { called = true; });
        const std::stop_callback slow(above.stop_token(), [&] {
            for (const auto end = dunlin::clock::now() + 20s; !called && dunlin::clock::now() < end;) dunlin::yield();
        });
        above.cancel();
        EXPECT_TRUE(called);
    });
}

TEST_P(Context, ATokenMayOutliveItsContext) {
    run([] {
        std::stop_token of_done, of_dropped;
        {
            const cancellable a = dunlin::with_cancel({}), b = dunlin::with_cancel({});
            of_done = a.stop_token();
            of_dropped = b.stop_token();
            a.cancel();
        }
        EXPECT_TRUE(of_done.stop_requested());
        EXPECT_FALSE(of_dropped.stop_requested());
        EXPECT_FALSE(of_dropped.stop_possible()) << "nobody can any more";
        std::stop_callback on_stop(of_dropped, [] { ADD_FAILURE(); });
    });
}

TEST_P(Context, AContextOfAStopToken) {
    run([] {
        std::stop_source source;
        {
            const cancellable dropped = dunlin::with_stop_token({}, source.get_token());
            const cancellable first = dunlin::with_stop_token({}, source.get_token());
            first.cancel(std::out_of_range("own"));
            EXPECT_FALSE(source.stop_requested()) << "not the other way";
            EXPECT_TRUE(holds<std::out_of_range>(first.cause()));
        }
        const cancellable parent = dunlin::with_cancel({});
        const auto [ctx, cancel] = parent.with_stop_token(source.get_token());
        const context child = ctx.with_timeout(1h).with_value("k", 1);
        source.request_stop();
        EXPECT_EQ(ctx.err(), errc::cancelled);
        EXPECT_EQ(child.err(), errc::cancelled);
        EXPECT_TRUE(holds<dunlin::context_cancelled>(ctx.cause()));
        EXPECT_FALSE(parent.is_done());

        const auto [late, cancel_late] = parent.with_stop_token(source.get_token());
        EXPECT_EQ(late.err(), errc::cancelled) << "requested already";
        const auto [never, cancel_never] = parent.with_stop_token({});
        EXPECT_FALSE(never.is_done());
        parent.cancel();
        EXPECT_TRUE(never.is_done());
    });
}

// A done child is no child: as one that was cancelled after it had joined.
TEST_P(Context, WhatIsDoneFromTheBeginningIsNoChild) {
    run([] {
        std::stop_source source;
        source.request_stop();
        const cancellable parent = dunlin::with_cancel({});
        const cancellable late = parent.with_timeout(0s);
        EXPECT_TRUE(late.is_done());
        EXPECT_EQ(inside::children(parent), 0u);
        const cancellable stopped = parent.with_stop_token(source.get_token());
        EXPECT_TRUE(stopped.is_done());
        EXPECT_EQ(inside::children(parent), 0u);
    });
}

// token -> context -> token -> context, and to the end of the chain in one call.
TEST_P(Context, StopTokensWorkBothWays) {
    run([] {
        std::stop_source source;
        const cancellable a = dunlin::with_stop_token({}, source.get_token());
        const cancellable b = dunlin::with_stop_token({}, a.stop_token());
        const std::stop_token end = b.with_value("k", 1).stop_token();
        EXPECT_FALSE(end.stop_requested());
        source.request_stop();
        EXPECT_TRUE(a.is_done() && b.is_done() && end.stop_requested());
    });
}

TEST_P(Context, AStopAndADropMayMeet) {
    run([] {
        for (const auto who : {opponent::goroutine, opponent::thread}) {
            std::optional<std::stop_source> source;
            cancellable c, child;
            std::atomic<int> called{0};
            int expected = 0;
            support::race(
                support::rounds(5000), who,
                [&](int) {
                    source.emplace();
                    c = dunlin::with_stop_token({}, source->get_token());
                    child = c.with_cancel();
                    c.after_func([&] { ++called; });
                },
                [&](int) { c = {}; }, [&](int) { source->request_stop(); },
                [&](int i) {
                    ASSERT_TRUE(child.is_done()) << "it holds its parent, round " << i;
                    ++expected;
                });
            support::eventually([&] { return called == expected; });
        }
    });
}

// The callback that cancels may move to another thread meanwhile, and may be the one that drops the last handle.
TEST_P(Context, StopCallbackThatMovesAndDropsTheContext) {
    run([] {
        std::atomic<bool> end{false};
        dunlin::task_group hogs;
        for (int i = 0; i < 2; ++i) {
            hogs.go([&] {
                while (!end) dunlin::yield();
            });
        }
        for (int i = 0; i < support::rounds(200); ++i) {
            std::stop_source source;
            std::optional<cancellable> ctx = dunlin::with_stop_token({}, source.get_token());
            std::stop_callback on_stop(ctx->stop_token(), [&] {
                ctx.reset();
                const pid_t me = gettid();
                for (int k = 0; k < 100 && gettid() == me; ++k) dunlin::yield();
            });
            source.request_stop();
        }
        end = true;
        hogs.wait();
    });
}

// ---- names ----------------------------------------------------------------------------------------------------------

enum class colour { red };
struct point {
    int x = 0;
    friend bool operator==(const point&, const point&) = default;
    friend std::ostream& operator<<(std::ostream& out, const point& p) { return out << "x=" << p.x; }
};
inline const context_key<int> port("port");

TEST_P(Context, NamesTellHowAContextWasMade) {
    run([] {
        const context top;
        EXPECT_EQ(to_string(top.with_cancel()), "context.Background.WithCancel");
        EXPECT_EQ(to_string(top.with_cancel().without_cancel()), "context.Background.WithCancel.WithoutCancel");
        EXPECT_EQ(to_string(top.with_stop_token(std::stop_token())), "context.Background.WithStopToken");
        EXPECT_EQ(to_string(context::todo().with_value("user", "ann").with_cancel()),
            "context.TODO.WithValue(user, ann).WithCancel");
        // What can be shown is, of the rest the type.
        EXPECT_EQ(to_string(top.with_value(1, true)), "context.Background.WithValue(1, true)");
        EXPECT_EQ(to_string(top.with_value(point{3}, 2.5)), "context.Background.WithValue(x=3, 2.5)");
        EXPECT_EQ(to_string(top.with_value(port, 80)), "context.Background.WithValue(port, 80)");
        EXPECT_EQ(
            to_string(top.with_value(request_id, 7)), "context.Background.WithValue(dunlin::context_key<int>, 7)");
        EXPECT_EQ(to_string(top.with_value("p", std::make_unique<int>(4)))
                      .find("context.Background.WithValue(p, std::unique_ptr<int"),
            0u);
        EXPECT_EQ(to_string(top.with_value("p", static_cast<const char*>(nullptr))),
            "context.Background.WithValue(p, <nil>)");
        EXPECT_NE(to_string(top.with_value("c", colour::red)).find("colour)"), std::string::npos);
        EXPECT_EQ(*top.with_value(port, 81).value(port), 81);

        const std::regex deadline(
            R"(context\.Background\.WithDeadline\(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \+0000 UTC \[(-?[0-9a-z.]+)\]\)(.*))");
        std::smatch found;
        const std::string soon = to_string(top.with_timeout(90min).with_timeout(2h));
        ASSERT_TRUE(std::regex_match(soon, found, deadline)) << soon;
        EXPECT_TRUE(found[1].str().starts_with("1h29m") || found[1] == "1h30m0s") << soon;
        EXPECT_EQ(found[2], ".WithCancel") << "the parent's deadline comes first";
        const std::string past = to_string(top.with_timeout(-3s));
        ASSERT_TRUE(std::regex_match(past, found, deadline)) << past;
        EXPECT_TRUE(found[1].str().starts_with("-")) << past;
        const std::string far = to_string(top.with_timeout(24h * 365 * 250));
        EXPECT_TRUE(std::regex_match(far, found, deadline)) << far;

        std::ostringstream out;
        out << top;
        EXPECT_EQ(out.str(), "context.Background");
        context chain;
        for (int i = 0; i < 10'000; ++i) chain = chain.with_cancel();
        EXPECT_EQ(to_string(chain).size(), 18u + 10'000 * 11);
    });
}

// ---- after_func -----------------------------------------------------------------------------------------------------

TEST_P(Context, AfterFuncRunsOnceUnlessStopped) {
    run([] {
        const cancellable c = dunlin::with_cancel({});
        dunlin::chan<int> called(10);
        const auto stop0 = c.after_func([called] { called.send(0); });
        const auto stop1 = dunlin::after_func(
            c.with_value("k", 1), [called, only_moved = std::make_unique<int>(1)] { called.send(*only_moved); });
        const auto stop2 = c.after_func([called] { called.send(2); });
        const auto never = context().after_func([] { ADD_FAILURE(); });
        EXPECT_EQ(inside::calls(c), 3u);
        const dunlin::stop_function copy = stop0;
        EXPECT_TRUE(copy());
        EXPECT_FALSE(stop0());
        EXPECT_EQ(inside::calls(c), 2u);
        c.cancel();
        EXPECT_EQ(*called.recv() + *called.recv(), 3);
        EXPECT_FALSE(stop1());
        EXPECT_FALSE(stop2());
        EXPECT_TRUE(never());
        EXPECT_EQ(called.try_recv().status(), dunlin::channel_status::would_block);
    });
}

// The function is destroyed with the stop, with the last handle, or when it has run; not later.
TEST_P(Context, AfterFuncsAreWithdrawnInAnyOrder) {
    run([] {
        for (const int step : {1, 7, 99}) {
            const cancellable c = dunlin::with_cancel({});
            std::atomic<int> called{0}, wrong{0};
            std::vector<dunlin::stop_function> stops;
            for (int i = 0; i < 100; ++i) {
                stops.push_back(c.after_func([&, i] {
                    if (i >= 50) ++wrong;
                    ++called;
                }));
            }
            for (int i = 0; i < 100; ++i) {
                const int which = i * step % 100;
                if (which >= 50) {
                    EXPECT_TRUE(stops[static_cast<std::size_t>(which)]());
                    EXPECT_FALSE(stops[static_cast<std::size_t>(which)]());
                }
            }
            EXPECT_EQ(inside::calls(c), 50u);
            c.cancel();
            support::eventually([&] { return called == 50; });
            EXPECT_EQ(wrong, 0);
            EXPECT_FALSE(stops[0]());
        }
    });
}

TEST_P(Context, AfterFuncIsDestroyed) {
    run([] {
        const auto alive = std::make_shared<int>(1);
        const cancellable c = dunlin::with_cancel({});
        const auto stop = c.after_func([alive] {});
        EXPECT_EQ(alive.use_count(), 2);
        stop();
        EXPECT_EQ(alive.use_count(), 1);
        const auto ran = c.after_func([alive] {});
        c.cancel();
        support::eventually([&] { return alive.use_count() == 1; });
        const auto at_once = c.after_func([alive] {});
        support::eventually([&] { return alive.use_count() == 1; });
        {
            const auto dropped = dunlin::with_cancel({}).after_func([alive] { ADD_FAILURE(); });
            EXPECT_EQ(alive.use_count(), 1) << "the context is gone";
            const auto background = context().after_func([alive] { ADD_FAILURE(); });
        }
        EXPECT_EQ(alive.use_count(), 1);
    });
}

// "True if the function has not been started and never will be."
TEST_P(Context, AfterFuncOfADroppedContextCanBeStopped) {
    run([] {
        const auto stop = dunlin::with_cancel({}).after_func([] { ADD_FAILURE(); });
        EXPECT_TRUE(stop());
    });
}

// Also while it is being destroyed, which may take long.
TEST_P(Context, AfterFuncThatIsBeingDroppedCanBeStopped) {
    run([] {
        dunlin::latch dropping(1), go_on(1);
        std::optional<cancellable> c = dunlin::with_cancel({});
        std::shared_ptr<int> slow(new int, [&](int* p) {
            dropping.count_down();
            go_on.wait();
            delete p;
        });
        const auto stop = c->after_func([slow = std::move(slow)] { ADD_FAILURE(); });
        dunlin::task<void> last = dunlin::spawn([&] { c.reset(); });
        dropping.wait();
        EXPECT_TRUE(stop());
        EXPECT_FALSE(stop());
        go_on.count_down();
        last.get();
        EXPECT_FALSE(stop());
    });
}

// A function of a run() that is over, as its context is cancelled.
TEST_P(Context, AfterFuncOfAnEndedRunCanBeStopped) {
    const cancellable c = dunlin::with_cancel({});
    std::optional<dunlin::stop_function> stop;
    std::atomic<bool> dropped{false}, told{false};
    std::shared_ptr<int> watched(new int, [&](int* p) {
        told = (*stop)();
        dropped = true;
        delete p;
    });
    run([&] { stop = c.after_func([watched = std::move(watched)] { ADD_FAILURE(); }); });
    c.cancel();
    EXPECT_TRUE(dropped);
    EXPECT_TRUE(told);
}

TEST_P(Context, TodoIsOneContext) {
    run([] {
        dunlin::task_group group;
        const context first = context::todo();
        for (int i = 0; i < 10; ++i) group.go([&] { EXPECT_TRUE(context::todo() == first); });
        group.wait();
    });
}

TEST_P(Context, AfterFuncMayUseItsContext) {
    run([] {
        std::atomic<int> calls{0};
        const cancellable c = dunlin::with_cancel({});
        c.after_func([&calls, c] {
            EXPECT_TRUE(c.is_done());
            c.after_func([&calls] { ++calls; });
            const cancellable child = c.with_cancel();
            EXPECT_TRUE(child.is_done());
            c.cancel();
            ++calls;
        });
        c.cancel();
        support::eventually([&] { return calls == 2; });
    });
}

}  // namespace
