// Ports of Go's own tests of contexts, under Go's names. The long ones are in context_stress_test.cpp.
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "context/inside.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;
using dunlin::cancellable;
using dunlin::context;
using dunlin::errc;

namespace {

class GoContext : public support::each_p {};
EACH_P(GoContext);

constexpr auto short_time = 10ms;
constexpr auto very_long = 1h;

// Go's select with a default.
bool is_open(const context& ctx) {
    return dunlin::select(dunlin::on_done(ctx), dunlin::otherwise()) == 1;
}

std::string text_of(std::exception_ptr cause) {
    if (!cause) return "";
    try {
        std::rethrow_exception(cause);
    } catch (const dunlin::context_cancelled& e) {
        return e.code() == errc::cancelled           ? "Canceled"
               : e.code() == errc::deadline_exceeded ? "DeadlineExceeded"
                                                     : e.what();
    } catch (const std::exception& e) {
        return e.what();
    }
}

void expect_not_done(const context& ctx, const char* what) {
    EXPECT_TRUE(is_open(ctx)) << what;
    EXPECT_FALSE(ctx.err()) << what;
    EXPECT_FALSE(ctx.is_done()) << what;
    EXPECT_EQ(ctx.cause(), nullptr) << what;
}

void expect_done(const context& ctx, errc err, const char* what) {
    EXPECT_FALSE(is_open(ctx)) << what;
    EXPECT_EQ(ctx.err(), err) << what;
    EXPECT_TRUE(ctx.is_done()) << what;
}

// CTX-01
TEST_P(GoContext, TestBackground) {
    run([] {
        for (const context& c : {context(), context::background(), context::todo()}) {
            EXPECT_TRUE(c.done().is_nil());
            expect_not_done(c, "background");
            EXPECT_FALSE(c.deadline());
            EXPECT_EQ(c.value<int>("key"), nullptr);
        }
        EXPECT_EQ(to_string(context::background()), "context.Background");
        EXPECT_EQ(to_string(context::todo()), "context.TODO");
        EXPECT_EQ(context::todo(), context::todo());
        EXPECT_NE(context::todo(), context::background());
    });
}

// CTX-01
TEST_P(GoContext, TestWithCancel) {
    run([] {
        auto [c1, cancel] = dunlin::with_cancel(context::background());
        EXPECT_EQ(to_string(c1), "context.Background.WithCancel");
        const context o{c1};
        const context c2 = dunlin::with_value(o, "k", 1);
        const context contexts[] = {c1, o, c2};
        for (const context& c : contexts) {
            EXPECT_FALSE(c.done().is_nil());
            EXPECT_EQ(c.done(), c1.done());
            expect_not_done(c, "before cancel");
        }
        cancel();  // returns after done() is closed
        for (const context& c : contexts) expect_done(c, errc::cancelled, "after cancel");
        const std::exception_ptr cause = c1.cause();
        cancel();
        for (const context& c : contexts) expect_done(c, errc::cancelled, "after the second cancel");
        EXPECT_EQ(c1.cause(), cause);
        EXPECT_EQ(c1.done().recv(), std::nullopt);
        EXPECT_EQ(c1.done().recv(), std::nullopt);
    });
}

// CTX-06
TEST_P(GoContext, TestParentFinishesChild) {
    run([] {
        // Context tree:
        // parent -> cancelChild
        // parent -> valueChild -> timerChild
        // parent -> afterStop (a function instead of a context)
        const auto [parent, cancel] = dunlin::with_cancel({});
        const auto [cancel_child, stop] = dunlin::with_cancel(parent);
        const context value_child = parent.with_value("key", std::string("value"));
        const auto [timer_child, timer_stop] = dunlin::with_timeout(value_child, very_long);
        dunlin::chan<int> called;
        const auto stop_after = parent.after_func([called] { called.close(); });

        for (const context& c : {parent, cancel_child, value_child, timer_child}) expect_not_done(c, "before");
        // The parent's children: cancelChild and timerChild, past the value.
        EXPECT_EQ(inside::children(parent), 2u);
        EXPECT_EQ(inside::children(cancel_child), 0u);
        EXPECT_EQ(inside::children(timer_child), 0u);
        EXPECT_EQ(inside::calls(parent), 1u);
        EXPECT_EQ(inside::timers(), 1u);

        cancel();
        EXPECT_EQ(inside::children(parent), 0u);
        EXPECT_EQ(inside::calls(parent), 0u);
        EXPECT_EQ(inside::timers(), 0u);
        for (const context& c : {parent, cancel_child, value_child, timer_child})
            expect_done(c, errc::cancelled, "after");
        EXPECT_EQ(called.recv(), std::nullopt);
        EXPECT_FALSE(stop_after());

        const auto [pre, pre_cancel] = dunlin::with_cancel(parent);
        expect_done(pre, errc::cancelled, "derived from a cancelled parent");
        EXPECT_EQ(inside::children(parent), 0u);
        EXPECT_EQ(parent.with_value("a", 1).value<int>("a") != nullptr, true);
    });
}

// CTX-06
TEST_P(GoContext, TestChildFinishesFirst) {
    run([] {
        const auto [cancellable_parent, parent_stop] = dunlin::with_cancel({});
        for (const context& parent : {context(), cancellable_parent}) {
            const auto [child, cancel] = dunlin::with_cancel(parent);
            expect_not_done(parent, "parent, before");
            expect_not_done(child, "child, before");
            if (parent != context()) {
                EXPECT_EQ(inside::children(parent), 1u);
            }
            cancel();
            if (parent != context()) {
                EXPECT_EQ(inside::children(parent), 0u);
            }
            expect_done(child, errc::cancelled, "child, after");
            expect_not_done(parent, "parent, after");
        }
    });
}

// CTX-06
TEST_P(GoContext, TestCancelRemoves) {
    run([] {
        const auto [ctx, cancel] = dunlin::with_cancel({});
        EXPECT_EQ(inside::children(ctx), 0u);
        {
            const auto [child, stop] = dunlin::with_cancel(ctx);
            EXPECT_EQ(inside::children(ctx), 1u);
            stop();
            EXPECT_EQ(inside::children(ctx), 0u);
        }
        {
            const auto [child, stop] = dunlin::with_timeout(ctx, 1min);
            EXPECT_EQ(inside::children(ctx), 1u);
            EXPECT_EQ(inside::timers(), 1u);
            stop();
            EXPECT_EQ(inside::children(ctx), 0u);
            EXPECT_EQ(inside::timers(), 0u);
        }
        const auto stop = ctx.after_func([] {});
        EXPECT_EQ(inside::calls(ctx), 1u);
        EXPECT_TRUE(stop());
        EXPECT_EQ(inside::calls(ctx), 0u);
    });
}

// Waits until c is done by its deadline.
void test_deadline(const char* name, const context& c) {
    c.done().recv();
    expect_done(c, errc::deadline_exceeded, name);
}

// CTX-02
TEST_P(GoContext, TestDeadline) {
    run([] {
        using dunlin::clock;
        const auto [c1, stop1] = dunlin::with_deadline({}, clock::now() + short_time);
        test_deadline("WithDeadline", c1);

        const auto [c2, stop2] = dunlin::with_deadline({}, clock::now() + short_time);
        test_deadline("WithDeadline+value", c2.with_value("k", 0));

        const auto [c3, stop3] = dunlin::with_deadline({}, clock::now() + short_time);
        const auto [c4, stop4] = dunlin::with_deadline(c3.with_value("k", 0), clock::now() + very_long);
        EXPECT_EQ(c4.deadline(), c3.deadline());
        test_deadline("WithDeadline+value+WithDeadline", c4);

        const auto [c5, stop5] = dunlin::with_deadline({}, clock::now() - 1ns);
        EXPECT_TRUE(c5.is_done());
        test_deadline("WithDeadline+inthepast", c5);
        const auto [c6, stop6] = dunlin::with_deadline({}, clock::now());
        EXPECT_TRUE(c6.is_done());
        test_deadline("WithDeadline+now", c6);
        EXPECT_EQ(inside::timers(), 0u);
    });
}

// CTX-02
TEST_P(GoContext, TestTimeout) {
    run([] {
        const auto begin = dunlin::clock::now();
        const auto [c1, stop1] = dunlin::with_timeout({}, short_time);
        EXPECT_GE(*c1.deadline(), begin + short_time);
        test_deadline("WithTimeout", c1);
        EXPECT_GE(dunlin::clock::now() - begin, short_time);

        const auto [c2, stop2] = dunlin::with_timeout({}, short_time);
        test_deadline("WithTimeout+value", c2.with_value("k", 0));

        const auto [c3, stop3] = dunlin::with_timeout({}, short_time);
        const auto [c4, stop4] = dunlin::with_timeout(c3.with_value("k", 0), very_long);
        test_deadline("WithTimeout+value+WithTimeout", c4);
    });
}

// CTX-02
TEST_P(GoContext, TestCanceledTimeout) {
    run([] {
        const auto [c, stop] = dunlin::with_timeout({}, very_long);
        const auto [child, cancel] = dunlin::with_timeout(c.with_value("k", 0), 2 * very_long);
        stop();  // returns after done() is closed
        expect_done(child, errc::cancelled, "WithTimeout+value+WithTimeout+cancel");
        EXPECT_EQ(inside::timers(), 0u);
    });
}

TEST_P(GoContext, TestDeadlineExceededSupportsTimeout) {
    run([] {
        const auto [c, stop] = dunlin::with_timeout({}, 0s);
        EXPECT_EQ(c.err(), std::errc::timed_out);
        EXPECT_NE(c.err(), std::errc::operation_canceled);
        stop();
        EXPECT_EQ(c.err(), std::errc::timed_out);
    });
}

// CTX-11
enum class key1 { one = 1 };
enum class key2 { one = 1, three = 3 };

TEST_P(GoContext, TestValues) {
    run([] {
        const auto check = [](const char* name, const context& c, const char* v1, const char* v2, const char* v3) {
            const auto shown = [](const std::string* s) { return s != nullptr ? *s : std::string(); };
            EXPECT_EQ(shown(c.value<std::string>(key1::one)), v1) << name;
            EXPECT_EQ(shown(c.value<std::string>(key2::one)), v2) << name;
            EXPECT_EQ(shown(c.value<std::string>(key2::three)), v3) << name;
        };
        const context c0;
        check("c0", c0, "", "", "");
        const context c1 = c0.with_value(key1::one, std::string("c1k1"));
        check("c1", c1, "c1k1", "", "");
        EXPECT_NE(to_string(c1).find("key1, c1k1)"), std::string::npos) << to_string(c1);
        const context c2 = c1.with_value(key2::one, std::string("c2k2"));
        check("c2", c2, "c1k1", "c2k2", "");
        const context c3 = c2.with_value(key2::three, std::string("c3k3"));
        check("c3", c3, "c1k1", "c2k2", "c3k3");
        // Shadows it.
        const context c4 = c3.with_value(key1::one, std::string());
        check("c4", c4, "", "c2k2", "c3k3");
        EXPECT_NE(c4.value<std::string>(key1::one), nullptr);

        const context o0 = c1.with_cancel();
        check("o0", o0, "c1k1", "", "");
        const context o1 = o0.with_value(key2::one, std::string("o1k2"));
        check("o1", o1, "c1k1", "o1k2", "");
        const context o2 = o1.with_timeout(1h).with_value(key2::three, std::string("o2k3"));
        check("o2", o2, "c1k1", "o1k2", "o2k3");
        check("o3", o2.without_cancel(), "c1k1", "o1k2", "o2k3");
        check("c4 again", c4, "", "c2k2", "c3k3");
    });
}

// CTX-11. A null parent is the background and a key that cannot be compared does not compile; what is left is the null
// function.
TEST_P(GoContext, TestInvalidDerivedFail) {
    run([] {
        const auto [ctx, cancel] = dunlin::with_cancel({});
        EXPECT_THROW(ctx.after_func(std::function<void()>()), std::invalid_argument);
        EXPECT_THROW(dunlin::after_func(ctx, static_cast<void (*)()>(nullptr)), std::invalid_argument);
        EXPECT_EQ(inside::calls(ctx), 0u);
    });
}

// CTX-07
TEST_P(GoContext, TestWithCancelCanceledParent) {
    run([] {
        const auto [parent, cancel_parent] = dunlin::with_cancel({});
        cancel_parent(std::runtime_error("Because!"));
        const auto [c, stop] = dunlin::with_cancel(parent);
        expect_done(c, errc::cancelled, "child of a cancelled parent");
        EXPECT_EQ(text_of(c.cause()), "Because!");
        EXPECT_EQ(c.cause(), parent.cause());
        const auto [timed, stop2] =
            dunlin::with_timeout(parent.with_value("k", 0), 1h, std::make_exception_ptr(std::runtime_error("own")));
        expect_done(timed, errc::cancelled, "the same with a deadline");
        EXPECT_EQ(text_of(timed.cause()), "Because!");
        EXPECT_EQ(inside::timers(), 0u);
    });
}

// CTX-08
struct cause_case {
    const char* name;
    std::function<context()> make;
    const char* err;
    const char* cause;
};

TEST_P(GoContext, TestCause) {
    const auto error = [](const char* text) { return std::make_exception_ptr(std::runtime_error(text)); };
    const auto parent_cause = error("parentCause"), child_cause = error("childCause"), too_slow = error("tooSlow"),
               finished = error("finishedEarly");
    const cause_case cases[] = {
        {"Background", [] { return context::background(); }, "", ""},
        {"todo", [] { return context::todo(); }, "", ""},
        {"WithCancel",
            [] {
                auto c = dunlin::with_cancel({});
                c.cancel();
                return context(c);
            },
            "Canceled", "Canceled"},
        {"WithCancelCause",
            [=] {
                auto c = dunlin::with_cancel({});
                c.cancel(parent_cause);
                return context(c);
            },
            "Canceled", "parentCause"},
        {"WithCancelCause nil",
            [] {
                auto c = dunlin::with_cancel({});
                c.cancel(std::exception_ptr());
                return context(c);
            },
            "Canceled", "Canceled"},
        {"WithCancelCause: parent cause before child",
            [=] {
                auto p = dunlin::with_cancel({});
                auto c = p.with_cancel();
                p.cancel(parent_cause);
                c.cancel(child_cause);
                return context(c);
            },
            "Canceled", "parentCause"},
        {"WithCancelCause: parent cause after child",
            [=] {
                auto p = dunlin::with_cancel({});
                auto c = p.with_cancel();
                c.cancel(child_cause);
                p.cancel(parent_cause);
                return context(c);
            },
            "Canceled", "childCause"},
        {"WithCancelCause: parent cause nil",
            [=] {
                auto p = dunlin::with_cancel({});
                auto c = p.with_cancel();
                p.cancel();
                c.cancel(child_cause);
                return context(c);
            },
            "Canceled", "Canceled"},
        {"WithCancelCause: child cause nil",
            [=] {
                auto p = dunlin::with_cancel({});
                auto c = p.with_cancel();
                c.cancel();
                p.cancel(parent_cause);
                return context(c);
            },
            "Canceled", "Canceled"},
        {"WithCancelCause: multiple",
            [=] {
                auto c = dunlin::with_cancel({});
                c.cancel(parent_cause);
                c.cancel(child_cause);
                return context(c);
            },
            "Canceled", "parentCause"},
        {"WithTimeout",
            [] {
                auto c = dunlin::with_timeout({}, 0s);
                c.cancel();
                return context(c);
            },
            "DeadlineExceeded", "DeadlineExceeded"},
        {"WithTimeout canceled",
            [] {
                auto c = dunlin::with_timeout({}, 1h);
                c.cancel();
                return context(c);
            },
            "Canceled", "Canceled"},
        {"WithTimeout cancelled by parent",
            [=] {
                auto p = dunlin::with_cancel({});
                auto c = p.with_timeout(1h);
                p.cancel(parent_cause);
                return context(c);
            },
            "Canceled", "parentCause"},
        {"WithTimeoutCause",
            [=] {
                auto c = dunlin::with_timeout({}, 0s, too_slow);
                c.cancel();
                return context(c);
            },
            "DeadlineExceeded", "tooSlow"},
        {"WithTimeoutCause later",
            [=] {
                auto c = dunlin::with_timeout({}, 1ms, too_slow);
                c.done().recv();
                return context(c);
            },
            "DeadlineExceeded", "tooSlow"},
        {"WithTimeoutCause canceled",
            [=] {
                auto c = dunlin::with_timeout({}, 1h, too_slow);
                c.cancel();
                return context(c);
            },
            "Canceled", "Canceled"},
        {"WithTimeoutCause stacked",
            [=] {
                auto p = dunlin::with_cancel({});
                auto c = p.with_timeout(0s, too_slow);
                p.cancel(finished);
                return context(c);
            },
            "DeadlineExceeded", "tooSlow"},
        {"WithTimeoutCause stacked canceled",
            [=] {
                auto p = dunlin::with_cancel({});
                auto c = p.with_timeout(1h, too_slow);
                p.cancel(finished);
                return context(c);
            },
            "Canceled", "finishedEarly"},
        {"WithoutCancel", [] { return dunlin::without_cancel({}); }, "", ""},
        {"WithoutCancel canceled",
            [=] {
                auto p = dunlin::with_cancel({});
                auto c = p.without_cancel();
                p.cancel(parent_cause);
                return c;
            },
            "", ""},
        {"WithoutCancel timeout",
            [=] {
                auto p = dunlin::with_timeout({}, 0s, too_slow);
                return p.without_cancel();
            },
            "", ""},
    };
    run([&] {
        for (const cause_case& c : cases) {
            const context ctx = c.make();
            const std::string err = !ctx.err() ? "" : ctx.err() == errc::cancelled ? "Canceled" : "DeadlineExceeded";
            EXPECT_EQ(err, c.err) << c.name;
            EXPECT_EQ(text_of(ctx.cause()), c.cause) << c.name;
        }
        EXPECT_EQ(inside::timers(), 0u);
    });
}

// CTX-08
TEST_P(GoContext, TestWithoutCancel) {
    run([] {
        const auto [parent, cancel] = dunlin::with_timeout(context().with_value("key", 42), 1h);
        const context ctx = parent.without_cancel();
        EXPECT_FALSE(ctx.deadline());
        EXPECT_TRUE(ctx.done().is_nil());
        cancel();
        EXPECT_FALSE(ctx.err());
        ASSERT_NE(ctx.value<int>("key"), nullptr);
        EXPECT_EQ(*ctx.value<int>("key"), 42);
        // A child of it has its own life.
        const auto [child, stop] = ctx.with_cancel();
        EXPECT_FALSE(child.is_done());
        stop();
        EXPECT_TRUE(child.is_done());
    });
}

// CTX-09
TEST_P(GoContext, TestAfterFuncCalledAfterCancel) {
    run([] {
        const auto [ctx, cancel] = dunlin::with_cancel({});
        dunlin::chan<int> done;
        const auto stop = dunlin::after_func(ctx, [done] { done.close(); });  // a second close would be reported
        EXPECT_EQ(done.recv_for(short_time).status(), dunlin::channel_status::would_block) << "called before cancel";
        cancel();
        EXPECT_EQ(done.recv(), std::nullopt);
        cancel();
        EXPECT_FALSE(stop());
    });
}

// CTX-09
TEST_P(GoContext, TestAfterFuncCalledAfterTimeout) {
    run([] {
        const auto [ctx, cancel] = dunlin::with_timeout({}, short_time);
        dunlin::chan<std::error_code> done;
        ctx.after_func([done, &ctx = ctx] { done.send(ctx.err()); });
        EXPECT_EQ(done.recv(), errc::deadline_exceeded);
    });
}

// CTX-09
TEST_P(GoContext, TestAfterFuncCalledImmediately) {
    run([] {
        const auto [ctx, cancel] = dunlin::with_cancel({});
        cancel();
        dunlin::chan<int> done;
        const auto stop = ctx.after_func([done] { done.close(); });
        EXPECT_EQ(done.recv(), std::nullopt);
        EXPECT_FALSE(stop());
    });
}

// CTX-09
TEST_P(GoContext, TestAfterFuncNotCalledAfterStop) {
    run([] {
        const auto [ctx, cancel] = dunlin::with_cancel({});
        std::atomic<int> calls{0};
        const auto stop = ctx.after_func([&] { ++calls; });
        EXPECT_TRUE(stop());
        cancel();
        dunlin::sleep_for(short_time);
        EXPECT_EQ(calls, 0);
        EXPECT_FALSE(stop()) << "nothing is left to stop";
    });
}

// CTX-09: a synchronous call would wait for ever.
TEST_P(GoContext, TestAfterFuncCalledAsynchronously) {
    run([] {
        const auto [ctx, cancel] = dunlin::with_cancel({});
        dunlin::chan<int> done;
        ctx.after_func([done] { done.send(1); });
        cancel();
        EXPECT_EQ(done.recv(), 1);
    });
}

// CTX-10. There are no contexts of other types here. The foreign thing is a std::stop_token, and even that needs no
// goroutine.
TEST_P(GoContext, TestCustomContextGoroutines) {
    run([] {
        const std::size_t before = dunlin::runtime::num_goroutines();
        std::stop_source source;
        const auto [parent, cancel] = dunlin::with_cancel({});
        std::vector<cancellable> all;
        for (int i = 0; i < 100; ++i) {
            all.push_back(parent.with_cancel());
            all.push_back(parent.with_value("k", i).with_timeout(1h));
            all.push_back(parent.with_stop_token(source.get_token()));
        }
        EXPECT_EQ(dunlin::runtime::num_goroutines(), before);
        EXPECT_EQ(inside::children(parent), 300u);
        for (std::size_t i = 0; i < all.size(); i += 2) all[i].cancel();
        source.request_stop();
        EXPECT_EQ(dunlin::runtime::num_goroutines(), before);
        cancel();
        EXPECT_EQ(dunlin::runtime::num_goroutines(), before);
        for (const cancellable& c : all) EXPECT_TRUE(c.is_done());
        EXPECT_EQ(inside::timers(), 0u);
    });
}

// CTX-10
TEST_P(GoContext, TestCustomContextPropagation) {
    run([] {
        std::stop_source source;
        const auto [parent, stop] = dunlin::with_stop_token({}, source.get_token());
        const auto [child, cancel] = parent.with_value("k", 1).with_cancel();
        EXPECT_FALSE(child.is_done());
        source.request_stop();
        EXPECT_EQ(parent.err(), errc::cancelled);
        EXPECT_EQ(child.err(), errc::cancelled);
        EXPECT_EQ(child.done().recv(), std::nullopt);
    });
}

}  // namespace
