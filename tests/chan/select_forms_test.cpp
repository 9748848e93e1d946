// The forms of select(): handlers that take a T, lists, and loops that a handler leaves; and elements whose move or
// copy may throw.
#include <any>
#include <array>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "chan/core.h"
#include "park/waiter.h"
#include "support/runtime_test.h"

namespace {

using namespace std::chrono_literals;
using dunlin::channel_status;
using dunlin::context;
using dunlin::context_cancelled;
using dunlin::loop;
using dunlin::on_recv;
using dunlin::on_send;
using dunlin::otherwise;
using dunlin::select;
using dunlin::select_again;
using dunlin::select_loop;

class SelectForms : public support::each_p {};
EACH_P(SelectForms);
class ThrowingElements : public support::each_p {};
EACH_P(ThrowingElements);

TEST_P(SelectForms, AValueIsNotLostWithAHandlerThatCannotBeCopied) {
    struct refuses {
        refuses() = default;
        refuses(const refuses&) { throw std::runtime_error("no copy"); }
        void operator()() const {}
    };
    run([] {
        const dunlin::chan<std::unique_ptr<int>> c(1);
        auto v = std::make_unique<int>(7);
        const refuses handler;
        EXPECT_THROW(select(on_send(c, std::move(v), handler), otherwise()), std::runtime_error);
        EXPECT_NE(v, nullptr);
    });
}

TEST_P(SelectForms, ACaseThatWasMovedFromIsRefused) {
    run([] {
        const dunlin::chan<int> c(1);
        c.send(1);
        dunlin::select_case a = on_recv(c), b = std::move(a);
        EXPECT_THROW(select(a, b), std::invalid_argument);
        EXPECT_THROW(static_cast<void>(select_again(a, b)), std::invalid_argument);
        EXPECT_THROW(select_loop(a, b), std::invalid_argument);
        std::vector<dunlin::select_case> list;
        list.push_back(std::move(a));
        EXPECT_THROW(select(list), std::invalid_argument);
        EXPECT_EQ(c.recv(), 1);
    });
}

// ---- handlers that take a T -----------------------------------------------------------------------------------------

TEST_P(SelectForms, AHandlerMayTakeTheValueItself) {
    run([] {
        const dunlin::chan<std::unique_ptr<int>> c(4);
        for (int i = 1; i <= 4; ++i) c.send(std::make_unique<int>(i));
        int sum = 0;
        select(on_recv(c, [&](std::unique_ptr<int> p) { sum += *p; }));
        select(on_recv(c, [&](std::unique_ptr<int>&& p) { sum += *p; }));
        select(on_recv(c, [&](const std::unique_ptr<int>& p) { sum += *p; }));
        const auto by_any = [&](auto v) {
            static_assert(std::is_same_v<decltype(v), std::optional<std::unique_ptr<int>>>, "as before");
            sum += **v;
        };
        select(on_recv(c, by_any));
        EXPECT_EQ(sum, 10);
        dunlin::chan<bool> b(1);
        b.send(true);
        select(on_recv(b, [&](bool v) { sum += v; }));
        EXPECT_EQ(sum, 11);
        // Members, too: of the value.
        struct message {
            int weight;
            int count() const { return weight; }
        };
        const dunlin::chan<message> m(1);
        m.send(message{5});
        select(on_recv(m, &message::count));
    });
}

TEST_P(SelectForms, AHandlerOfAValueHasNoWordForTheEnd) {
    run([] {
        const dunlin::chan<int> c(1);
        c.send(1);
        c.close();
        int got = 0;
        select(on_recv(c, [&](int v) { got += v; }));
        try {
            select(on_recv(c, [&](int) { got += 100; }));
            ADD_FAILURE();
        } catch (const dunlin::channel_closed& e) {
            EXPECT_STREQ(e.what(), "receive on closed channel");
        }
        select(on_recv(c, [&](std::optional<int> v) { got += v ? 100 : 1; }));
        EXPECT_EQ(got, 2);
        std::vector<dunlin::select_case> list;
        list.emplace_back(on_recv(c, [&](int) { got += 100; }));
        EXPECT_THROW(select(list), dunlin::channel_closed);
        EXPECT_EQ(got, 2);
    });
}

template <class Handler>
concept handles_int = requires(dunlin::chan<int> c, Handler h) { on_recv(c, h); };
static_assert(handles_int<void (*)()> && handles_int<void (*)(int)> && handles_int<void (*)(std::optional<int>)>);

// ---- lists ----------------------------------------------------------------------------------------------------------

TEST_P(SelectForms, ListsInBracesAndVectors) {
    run([] {
        const dunlin::chan<int> a(1), b(1);
        const dunlin::chan<std::unique_ptr<int>> p(1);
        b.send(7);
        int got = 0;
        EXPECT_EQ(select({on_recv(a), on_recv(b, [&](int v) { got = v; })}), 1u);
        EXPECT_EQ(got, 7);
        EXPECT_EQ(select({on_recv(a), on_send(p, std::make_unique<int>(8)), dunlin::on_timeout(1h)}), 1u);
        EXPECT_EQ(**p.recv(), 8);
        EXPECT_EQ(select({on_recv(a), otherwise()}), 1u);
        const auto made = [&] {
            std::vector<dunlin::select_case> list;
            list.emplace_back(on_recv(a));
            list.emplace_back(otherwise([&] { got = 9; }));
            return list;
        };
        EXPECT_EQ(select(made()), 1u);
        EXPECT_EQ(got, 9);
        std::array<dunlin::select_case, 2> pair{on_recv(a), otherwise()};
        EXPECT_EQ(select(pair), 1u);
        auto moved = std::move(pair[0]);
        EXPECT_THROW(select(pair), std::invalid_argument);
    });
}

// ---- loops ----------------------------------------------------------------------------------------------------------

TEST_P(SelectForms, ALoopEndsWhenAHandlerLeaves) {
    run([] {
        const dunlin::chan<int> jobs(8);
        auto ctx = dunlin::with_cancel({});
        for (int i = 1; i <= 5; ++i) jobs.send(i);
        jobs.close();
        int sum = 0;
        const auto work = [&](std::optional<int> v) {
            if (!v) return loop::leave;
            sum += *v;
            return loop::again;
        };
        EXPECT_EQ(select_loop(dunlin::on_done(ctx), on_recv(jobs, work)), 1u);
        EXPECT_EQ(sum, 15);
        ctx.cancel();
        EXPECT_EQ(select_loop(on_recv(dunlin::chan<int>()), dunlin::on_done(ctx, [] { return loop::leave; })), 1u);
        int ticks = 0;
        EXPECT_EQ(select_loop({on_recv(dunlin::chan<int>::nil()),
                      dunlin::on_timeout(1us, [&] { return ++ticks == 3 ? loop::leave : loop::again; })}),
            1u);
        EXPECT_EQ(ticks, 3);
        EXPECT_THROW(select_loop(otherwise([&] { if (++ticks == 6) throw 1; })), int);
        EXPECT_THROW(select_loop(on_recv(jobs, [](int) {})), dunlin::channel_closed);
    });
}

TEST_P(SelectForms, ALoopOffersASendOnce) {
    run([] {
        const dunlin::chan<std::unique_ptr<int>> out(3);
        const dunlin::chan<int> in(3);
        int sent = 0, ticks = 0;
        auto value = std::make_unique<int>(1);
        EXPECT_EQ(select_loop(on_send(out, std::move(value), [&] { ++sent; }), on_recv(in),
                      dunlin::on_timeout(1ms, [&] { return ++ticks == 3 ? loop::leave : loop::again; })),
            2u);
        EXPECT_EQ(sent, 1);
        EXPECT_EQ(out.len(), 1u);
        EXPECT_EQ(**out.recv(), 1);
        // Not taken in the first rounds, but kept for the next; not taken at all, it is back.
        const dunlin::chan<std::unique_ptr<int>> full;
        value = std::make_unique<int>(2);
        auto receiver = dunlin::spawn([&] { return **full.recv(); });
        std::vector<dunlin::select_case> list;
        list.emplace_back(on_send(full, std::move(value), [] { return loop::leave; }));
        list.emplace_back(dunlin::on_timeout(10us));
        EXPECT_EQ(select_loop(list), 0u);
        EXPECT_EQ(receiver.get(), 2);
        value = std::make_unique<int>(3);
        ticks = 0;
        select_loop(on_send(full, std::move(value)),
            dunlin::on_timeout(10us, [&] { return ++ticks == 3 ? loop::leave : loop::again; }));
        ASSERT_TRUE(value);
        EXPECT_EQ(*value, 3);
    });
}

// A value that is moved by destruction and construction, and counts its objects.
struct counted_value {
    static inline int objects = 0;
    explicit counted_value(std::string t) : text(std::move(t)) { ++objects; }
    counted_value(counted_value&& other) noexcept : text(std::move(other.text)) { ++objects; }
    counted_value& operator=(counted_value&&) = delete;
    ~counted_value() { --objects; }
    std::string text;
};

TEST_P(SelectForms, ALoopHasAValueAtHomeWhileAnotherHandlerRuns) {
    const std::string first = "long enough to be somewhere else: first", second = "the same again, but the second one";
    run([&] {
        const dunlin::chan<std::string> out, news(3);
        news.send(second);
        news.send(second);
        std::string v = first;
        std::vector<std::string> seen;
        // A handler sees it, and what it puts there is offered next.
        dunlin::task<std::string> receiver;
        EXPECT_EQ(select_loop(on_send(out, std::move(v), [] { return loop::leave; }), on_recv(news, [&](std::string s) {
            seen.push_back(v);
            v = std::move(s);
            if (seen.size() == 2) receiver = dunlin::spawn([&] { return *out.recv(); });
        })),
            0u);
        EXPECT_EQ(seen, (std::vector{first, second}));
        EXPECT_EQ(receiver.get(), second);
        // It is there when the loop is left, too, and after an exception.
        v = first;
        select_loop(on_send(out, std::move(v)), dunlin::on_timeout(1us, [&] {
            v += "!";
            return loop::leave;
        }));
        EXPECT_EQ(v, first + "!");
        EXPECT_THROW(select_loop(on_send(out, std::move(v)), dunlin::on_timeout(1us, [&] {
            v = second;
            throw 1;
        })),
            int);
        EXPECT_EQ(v, second);
    });
    run([&] {
        const dunlin::chan<counted_value> out;
        counted_value v(first);
        int ticks = 0;
        select_loop(on_send(out, std::move(v)), dunlin::on_timeout(1us, [&] {
            EXPECT_EQ(v.text, first);
            return ++ticks == 3 ? loop::leave : loop::again;
        }));
        EXPECT_EQ(v.text, first);
        EXPECT_EQ(counted_value::objects, 1);
    });
}

// The loop keeps its channels: a handler may let the variable go.
TEST_P(SelectForms, ALoopKeepsItsChannels) {
    run([] {
        auto c = std::make_unique<dunlin::chan<int>>(3);
        for (int i = 0; i < 3; ++i) c->send(i);
        int left = 3;
        select_loop(on_recv(*c, [&](int) {
            c.reset();
            return --left == 0 ? loop::leave : loop::again;
        }));
        EXPECT_EQ(left, 0);
    });
}

TEST_P(SelectForms, ALoopThatIsMadeAnewEachTime) {
    run([] {
        dunlin::chan<int> a(10), b(10), out(100);
        for (int i = 0; i < 10; ++i) a.send(1), b.send(100);
        a.close();
        b.close();
        int sum = 0, received = 0, offered = 0;
        const auto take = [&](dunlin::chan<int>& c) {
            return [&](std::optional<int> v) {
                if (!v) {
                    c = dunlin::chan<int>::nil();  // Go's way to switch a case off
                } else {
                    sum += *v;
                    ++received;
                }
                return a.is_nil() && b.is_nil() ? loop::leave : loop::again;
            };
        };
        while (select_again(on_recv(a, take(a)), on_recv(b, take(b)), on_send(out, offered, [&] { ++offered; }))) {}
        EXPECT_EQ(received, 20);
        EXPECT_EQ(sum, 1010);
        for (int i = 0; i < offered; ++i) EXPECT_EQ(out.recv(), i);
    });
}

// ---- elements whose move may throw ----------------------------------------------------------------------------------

// Copying throws when it is told to; there is no move.
struct fragile {
    int v;
    std::string weight = std::string(40, 'w');
    inline static std::atomic<int> alive{0}, throws_in{0};
    inline static std::function<void()> before_throw;
    explicit fragile(int x) : v(x) { ++alive; }
    fragile(const fragile& o) : v(o.v), weight(o.weight) {
        if (throws_in > 0 && --throws_in == 0) {
            if (before_throw) before_throw();
            throw std::runtime_error("copy");
        }
        ++alive;
    }
    fragile& operator=(const fragile& o) {
        if (throws_in > 0 && --throws_in == 0) throw std::runtime_error("assignment");
        v = o.v;
        weight = o.weight;
        return *this;
    }
    ~fragile() { --alive; }
};

struct all_destroyed {
    ~all_destroyed() {
        EXPECT_EQ(fragile::alive, 0);
        fragile::throws_in = 0;
    }
};

TEST_P(ThrowingElements, AreSentAndReceivedInAllForms) {
    const all_destroyed at_end;
    run([] {
        dunlin::chan<fragile> c(8);
        fragile one(1);
        c.send(one);
        c.send(std::move(one));
        EXPECT_EQ(one.v, 1) << "it was copied";
        c.send(fragile(2), context());
        EXPECT_TRUE(c.send_for(fragile(3), 1s));
        EXPECT_TRUE(c.send_until(fragile(4), std::chrono::system_clock::now() + 1s));
        EXPECT_EQ(c.try_send(fragile(5)), channel_status::ok);
        select(on_send(c, fragile(6)));
        select(on_send(c, one));
        EXPECT_EQ(c.len(), 8u);
        EXPECT_EQ(c.try_send(fragile(7)), channel_status::would_block);
        EXPECT_FALSE(c.send_for(fragile(7), 1us));
        EXPECT_EQ(c.recv()->v, 1);
        EXPECT_EQ(c.recv(context())->v, 1);
        EXPECT_EQ(c.recv_for(1s)->v, 2);
        EXPECT_EQ(c.recv_until(std::chrono::system_clock::now() + 1s)->v, 3);
        EXPECT_EQ(c.try_recv()->v, 4);
        EXPECT_EQ(c.try_recv(one), channel_status::ok);
        EXPECT_EQ(one.v, 5);
        int seen = 0;
        select(on_recv(c, [&](std::optional<fragile> f) { seen = f->v; }));
        EXPECT_EQ(seen, 6);
        select(on_recv(c, [&](const fragile& f) { seen = f.v; }));
        EXPECT_EQ(seen, 1);
        c.send(fragile(8));
        select(on_recv(c));
        auto sender = dunlin::spawn([&] {
            const dunlin::chan<fragile> to = c;
            for (int i = 0; i < 20; ++i) to.send(fragile(i));
            to.close();
        });
        int next = 0;
        for (const fragile& f : c) EXPECT_EQ(f.v, next++);
        EXPECT_EQ(next, 20);
        sender.get();
        EXPECT_EQ(c.recv_for(1s).status(), channel_status::closed);
        EXPECT_THROW(c.send(fragile(9)), dunlin::channel_closed);
        const dunlin::chan<fragile> left(2);
        left.send(one);
    });
}

TEST_P(ThrowingElements, AValueThatCannotBeReceivedNowComesFirstLater) {
    const all_destroyed at_end;
    run([] {
        const dunlin::chan<fragile> c(3), unbuffered;
        for (int i = 1; i <= 3; ++i) c.send(fragile(i));
        fragile other(0);
        const auto fails = [&](auto&& receive) {
            fragile::throws_in = 1;
            EXPECT_THROW(receive(), std::runtime_error);
            fragile::throws_in = 0;
        };
        fails([&] { c.recv(); });
        fails([&] { c.recv(context()); });
        fails([&] { c.recv_for(1s); });
        fails([&] { c.try_recv(); });
        fails([&] { c.try_recv(other); });
        fails([&] { select(on_recv(c, [](std::optional<fragile>) { ADD_FAILURE(); })); });
        fails([&] { select(on_recv(c, [](const fragile&) { ADD_FAILURE(); })); });
        fails([&] {
            for (const fragile& f : c) ADD_FAILURE() << f.v;
        });
        EXPECT_EQ(other.v, 0);
        // The buffer has room for another now, which comes after.
        c.send(fragile(4));
        EXPECT_EQ(select(on_recv(c, [](const fragile& f) { EXPECT_EQ(f.v, 1); }), otherwise()), 0u);
        for (int i = 2; i <= 4; ++i) EXPECT_EQ(c.try_recv()->v, i);
        EXPECT_EQ(c.try_recv().status(), channel_status::would_block);
        // Handed over directly: the sender is gone by then.
        fragile::throws_in = 2;  // the receiver's copy: the first is the sender's
        auto sender = dunlin::spawn([&] { unbuffered.send(fragile(5)); });
        EXPECT_THROW(unbuffered.recv(), std::runtime_error);
        sender.get();
        EXPECT_EQ(unbuffered.recv()->v, 5);
    });
}

// Another waits by the time that the copy fails: it gets the value at once.
TEST_P(ThrowingElements, AValueThatComesBackGoesToAWaitingReceiver) {
    const all_destroyed at_end;
    run([] {
        for (const bool by_select : {false, true}) {
            const dunlin::chan<fragile> c;
            dunlin::task<int> waiter;
            fragile::before_throw = [&] {
                waiter = dunlin::spawn([&] {
                    int got = 0;
                    if (by_select) {
                        select(on_recv(c, [&](const fragile& f) { got = f.v; }), dunlin::on_timeout(1h));
                    } else {
                        got = c.recv()->v;
                    }
                    return got;
                });
                support::eventually([&] {  // unbuffered: a send can go through when there is a receiver
                    dunlin::park::runtime_section inside;
                    auto* core = dunlin::detail::handle_access::core(c);
                    const std::scoped_lock guard(core->lock);
                    return core->may_send();
                });
            };
            fragile::throws_in = 2;  // the receiver's copy: the first is the sender's
            auto sender = dunlin::spawn([&] { c.send(fragile(1)); });
            EXPECT_THROW(c.recv(), std::runtime_error);
            fragile::before_throw = nullptr;
            EXPECT_EQ(waiter.get(), 1);
            sender.get();
        }
    });
}

// The handler's parameter is where the copy is made: nothing stands between the channel and it.
TEST_P(ThrowingElements, OnAClosedChannelToo) {
    const all_destroyed at_end;
    run([] {
        const dunlin::chan<fragile> c(1);
        c.send(fragile(1));
        c.close();
        fragile::throws_in = 1;
        EXPECT_THROW(select(on_recv(c, [](fragile) { ADD_FAILURE(); })), std::runtime_error);
        EXPECT_EQ(c.len(), 1u);
        EXPECT_EQ(c.recv()->v, 1);
        EXPECT_EQ(c.recv(), std::nullopt);
        // And one that stays in the channel is destroyed with it.
        const dunlin::chan<fragile> d(1);
        d.send(fragile(2));
        fragile::throws_in = 1;
        EXPECT_THROW(d.recv(), std::runtime_error);
    });
}

TEST_P(ThrowingElements, AValueThatCannotBeSentIsAsItWas) {
    const all_destroyed at_end;
    run([] {
        const dunlin::chan<fragile> c(1);
        fragile f(1);
        fragile::throws_in = 1;
        EXPECT_THROW(c.send(std::move(f)), std::runtime_error);
        EXPECT_EQ(f.v, 1);
        EXPECT_FALSE(f.weight.empty());
        EXPECT_EQ(c.len(), 0u);
        auto offer = on_send(c, std::move(f));
        fragile::throws_in = 1;
        EXPECT_THROW(select(offer, otherwise()), std::runtime_error);
        EXPECT_EQ(offer.value().v, 1);
        EXPECT_EQ(select(offer, otherwise()), 0u);
        EXPECT_EQ(select(offer, otherwise()), 1u);
        EXPECT_EQ(c.recv()->v, 1);
    });
}

// Copies fail all the time, on both sides; what was sent is received, once, and a waiter gets what another could not
// keep.
TEST_P(ThrowingElements, NothingIsLostOrDoubled) {
    const all_destroyed at_end;
    for (const int capacity : {0, 2}) {
        run([&] {
            const dunlin::chan<fragile> c(capacity);
            const int each = support::rounds(300);
            std::vector<std::atomic<int>> got(static_cast<std::size_t>(3 * each));
            dunlin::task_group senders, receivers;
            std::vector<std::thread> threads;
            std::atomic<bool> over{false};
            for (int s = 0; s < 3; ++s) {
                senders.go([&, s] {
                    for (int i = 0; i < each;) {
                        try {
                            const fragile f(s * each + i);
                            c.send(f);
                            ++i;
                        } catch (const std::runtime_error&) {
                        }
                    }
                });
            }
            const auto receive = [&](int r) {
                for (int i = 0;; ++i) {
                    try {
                        std::optional<fragile> v;
                        if ((i + r) % 3 == 0) {
                            const auto timed = c.recv_for(50us);
                            if (timed.status() == channel_status::would_block) continue;
                            if (timed) ++got[static_cast<std::size_t>(timed->v)];
                            if (!timed) return;
                        } else if ((i + r) % 3 == 1) {
                            bool closed = false;
                            select(on_recv(c, [&](const std::optional<fragile>& f) {
                                if (f) ++got[static_cast<std::size_t>(f->v)];
                                closed = !f;
                            }));
                            if (closed) return;
                        } else if (const auto f = c.recv()) {
                            ++got[static_cast<std::size_t>(f->v)];
                        } else {
                            return;
                        }
                    } catch (const std::runtime_error&) {
                    }
                }
            };
            for (int r = 0; r < 3; ++r) receivers.go(receive, r);
            threads.emplace_back(receive, 3);
            auto saboteur = dunlin::spawn([&] {
                while (!over) {
                    fragile::throws_in = 3;
                    dunlin::yield();
                }
            });
            senders.wait();
            over = true;
            saboteur.get();
            fragile::throws_in = 0;
            c.close();
            receivers.wait();
            for (std::thread& t : threads) dunlin::blocking([&] { t.join(); });
            // One may have been put back after all others had seen the end.
            while (const auto f = c.recv()) ++got[static_cast<std::size_t>(f->v)];
            for (const auto& n : got) ASSERT_EQ(n, 1);
        });
    }
}

// Anything can be made a std::any, a std::optional<std::any> too.
TEST_P(SelectForms, AHandlerThatTakesAnAnyGetsTheValue) {
    run([] {
        dunlin::chan<std::any> c(4);
        dunlin::broadcast<std::any> b(4);
        auto r = b.subscribe();
        for (int i = 1; i <= 3; ++i) c.send(std::any(i));
        b.send(std::any(7));
        int sum = 0;
        select(on_recv(c, [&](std::any v) { sum += std::any_cast<int>(v); }));
        select(on_recv(c, [&](const std::any& v) { sum += std::any_cast<int>(v); }));
        select(on_recv(c, [&](std::optional<std::any> v) { sum += std::any_cast<int>(*v); }));
        select(on_recv(r, [&](std::any v) { sum += std::any_cast<int>(v); }));
        EXPECT_EQ(sum, 13);
        c.close();
        EXPECT_THROW(select(on_recv(c, [](std::any) {})), dunlin::channel_closed);
        bool ended = false;
        select(on_recv(c, [&](std::optional<std::any> v) { ended = !v; }));
        EXPECT_TRUE(ended);
    });
}

// A case that is kept looks at the variable each time.
TEST_P(SelectForms, AVariableOfAKeptCaseMayReferToAnotherChannel) {
    run([] {
        dunlin::chan<int> c(1), d(1);
        c.send(1);
        int got = 0;
        auto receive = on_recv(c, [&](std::optional<int> v) {
            got = got * 10 + *v;
            c = d;
        });
        select(receive);  // that was the last handle of the first channel
        d.send(2);
        select(receive);
        EXPECT_EQ(got, 12);
        auto send = on_send(c, 3);
        c = dunlin::chan<int>(1);
        select(send);
        EXPECT_EQ(*c.recv(), 3);
        EXPECT_EQ(d.len(), 0u);
    });
}

TEST_P(SelectForms, AVectorMayBeMadeOfCasesInBraces) {
    run([] {
        dunlin::chan<int> a(1), b(1);
        int got = 0;
        std::vector<dunlin::select_case> cases{
            on_recv(a, [&](std::optional<int> v) { got = *v; }), on_send(b, 7), on_recv(dunlin::chan<int>::nil())};
        const std::vector<dunlin::select_case> same = cases;
        EXPECT_EQ(select(cases), 1u);
        EXPECT_EQ(*b.recv(), 7);
        a.send(5);
        b.send(0);
        EXPECT_EQ(select(same), 0u);
        EXPECT_EQ(got, 5);
        cases.push_back(same[0]);
        EXPECT_THROW(select(cases), std::invalid_argument) << "one case twice";
        EXPECT_THROW(select(cases[0], same[0]), std::invalid_argument);
        cases.pop_back();
        a.send(6);
        EXPECT_EQ(select(cases), 0u) << "which changes nothing";
    });
}

}  // namespace
