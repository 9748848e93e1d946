// Types that are legal and unusual, cases that are kept, and durations that are not numbers.
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "support/runtime_test.h"

// An operator& of its own, and one that argument-dependent lookup finds for everything that is made of such a type.
namespace odd {

struct amp {
    int v = 1;
    amp() = default;
    explicit amp(int x) : v(x) {}
    amp(amp&& o) noexcept : v(std::exchange(o.v, 0)) {}
    amp& operator=(amp&& o) noexcept {
        v = std::exchange(o.v, 0);
        return *this;
    }
    ~amp() { v = -1; }
    int operator()() const { return v; }
};
template <class T>
void operator&(T&&) = delete;

}  // namespace odd

namespace {

using namespace std::chrono_literals;
using dunlin::on_recv;
using dunlin::on_send;
using dunlin::otherwise;
using dunlin::select;
using odd::amp;

class OddTypes : public support::each_p {};
EACH_P(OddTypes);

const std::string long_text(100, 'x');

// ---- cases that are kept --------------------------------------------------------------------------------------------

TEST_P(OddTypes, AKeptSendOwnsItsValue) {
    run([] {
        const dunlin::chan<std::string> c(3);
        auto of_temporary = on_send(c, std::string(long_text));
        std::string named(long_text + "2");
        auto of_variable = on_send(c, std::move(named));
        named.assign(200, 'y');
        auto made_elsewhere = [&] {
            std::string local(long_text + "3");
            return on_send(c, std::move(local));
        }();
        EXPECT_EQ(of_variable.value(), long_text + "2");
        EXPECT_EQ(select(of_temporary, otherwise()), 0u);
        EXPECT_EQ(select(std::move(of_variable)), 0u);
        EXPECT_EQ(select(made_elsewhere), 0u);
        EXPECT_EQ(c.recv(), long_text);
        EXPECT_EQ(c.recv(), long_text + "2");
        EXPECT_EQ(c.recv(), long_text + "3");
        {
            auto untaken = on_send(c, std::move(named));
            named.assign(200, 'z');
            EXPECT_EQ(select(on_send(dunlin::chan<std::string>(1), std::move(untaken.value()))), 0u);
        }
        EXPECT_EQ(named, std::string(200, 'z')) << "nothing is put back into what has another value by now";
    });
}

// It is offered again and again until it is taken, and can be had back.
TEST_P(OddTypes, AKeptSendKeepsWhatWasNotSent) {
    run([] {
        const dunlin::chan<std::unique_ptr<int>> c(1);
        c.send(nullptr);
        auto value = std::make_unique<int>(5);
        auto offer = on_send(c, std::move(value));
        EXPECT_EQ(select(offer, otherwise()), 1u);
        EXPECT_EQ(select(offer, dunlin::on_timeout(1us)), 1u);
        ASSERT_TRUE(offer.value());
        static_cast<void>(c.recv());
        EXPECT_EQ(select(offer, otherwise()), 0u);
        EXPECT_FALSE(offer.value());
        EXPECT_EQ(**c.recv(), 5);
        // In a list as well.
        std::vector<dunlin::select_case> list;
        list.emplace_back(on_send(c, std::make_unique<int>(6)));
        EXPECT_EQ(select(list), 0u);
        EXPECT_EQ(**c.recv(), 6);
    });
}

TEST_P(OddTypes, AValueThatWasNotSentIsBackBeforeAHandlerRuns) {
    run([] {
        const dunlin::chan<std::string> full;
        std::string text = long_text;
        int seen = 0;
        select(on_send(full, std::move(text)), otherwise([&] { seen += text == long_text; }));
        select(on_send(full, std::move(text)), dunlin::on_timeout(1us, [&] { seen += text == long_text; }));
        EXPECT_EQ(seen, 2);
        EXPECT_THROW(select(on_send(full, std::move(text)), otherwise([] { throw 1; })), int);
        EXPECT_EQ(text, long_text);
        const dunlin::chan<std::string> closed;
        closed.close();
        EXPECT_THROW(select(on_send(closed, std::move(text))), dunlin::channel_closed);
        EXPECT_EQ(text, long_text);
        EXPECT_EQ(select(on_recv(full), on_send(dunlin::chan<std::string>(1), std::move(text))), 1u);
        EXPECT_TRUE(text.empty());
    });
}

template <class Handle>
concept can_be_polled = requires(Handle&& h) { dunlin::on_readable(std::forward<Handle>(h)); };
static_assert(can_be_polled<dunlin::byte_stream&> && can_be_polled<const dunlin::net::stream&>);
static_assert(!can_be_polled<dunlin::byte_stream>, "a temporary would be closed before select() looks at it");

// ---- operator& ------------------------------------------------------------------------------------------------------

TEST_P(OddTypes, AnOverloadedAddressOperatorIsNotCalled) {
    run([] {
        dunlin::chan<amp> c(2);
        c.send(amp(1));
        EXPECT_EQ(c.recv()->v, 1);
        EXPECT_EQ(c.try_send(amp(2)), dunlin::channel_status::ok);
        amp got(0);
        EXPECT_EQ(c.try_recv(got), dunlin::channel_status::ok);
        EXPECT_EQ(got.v, 2);
        EXPECT_TRUE(c.send_for(amp(3), 1s));
        EXPECT_EQ(c.try_recv()->v, 3);
        EXPECT_FALSE(c.recv_for(1us));
        EXPECT_FALSE(c.recv_until(std::chrono::steady_clock::now()));
        int seen = 0;
        select(on_send(c, amp(4)));
        select(on_recv(c, [&](std::optional<amp> a) { seen = a->v; }));
        EXPECT_EQ(seen, 4);
        c.send(amp(5), dunlin::context());
        EXPECT_EQ(c.recv(dunlin::context())->v, 5);
        c.close();
        for (amp a : c) ADD_FAILURE() << a.v;

        dunlin::promise<amp> p;
        auto f = p.get_future();
        p.set_value(amp(6));
        EXPECT_EQ(f.get().v, 6);
        amp there(7);
        dunlin::promise<amp&> r;
        auto reference = r.get_future();
        r.set_value(there);
        EXPECT_EQ(reference.get().v, 7);
        EXPECT_EQ(dunlin::spawn([] { return amp(8); }).get().v, 8);
        EXPECT_EQ(dunlin::spawn([&]() -> amp& { return there; }).get().v, 7);
        EXPECT_EQ(dunlin::spawn(amp(9)).get(), 9);
        dunlin::wait_group group;
        group.go(amp(10));
        group.wait();
        dunlin::task_group tasks;
        tasks.go(amp(11));
        tasks.wait();
        EXPECT_EQ(dunlin::once_value([&]() -> amp& { return there; })().v, 7);
        EXPECT_EQ(dunlin::once_value([] { return amp(12); })().v, 12);
        EXPECT_EQ(dunlin::blocking([] { return amp(13); }).v, 13);
        static dunlin::goroutine_local<amp> local([] { return amp(14); });
        EXPECT_EQ(local->v, 14);
        EXPECT_EQ(local.get().v, 14);
        dunlin::after_func(0s, amp(15));
        dunlin::go(amp(16));
        const auto ctx = dunlin::with_value(dunlin::context(), "key", std::make_shared<int>(1));
        EXPECT_NE(ctx.value<std::shared_ptr<int>>("key"), nullptr);
        support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });
    });
}

// ---- assignments that throw, and those that there are not -----------------------------------------------------------

struct throws_when_assigned {
    int v;
    std::unique_ptr<int> weight = std::make_unique<int>(1);
    static inline int alive = 0;
    explicit throws_when_assigned(int x) : v(x) { ++alive; }
    throws_when_assigned(throws_when_assigned&& o) noexcept : v(o.v), weight(std::move(o.weight)) { ++alive; }
    throws_when_assigned& operator=(throws_when_assigned&&) { throw 1; }
    ~throws_when_assigned() { --alive; }
};

TEST_P(OddTypes, NoValueIsLostWhenItsAssignmentWouldThrow) {
    run([] {
        {
            const dunlin::chan<throws_when_assigned> c(1);
            c.send(throws_when_assigned(7));
            throws_when_assigned x(0);
            EXPECT_EQ(c.try_recv(x), dunlin::channel_status::ok);
            EXPECT_EQ(x.v, 7);
            EXPECT_TRUE(x.weight);
            EXPECT_EQ(c.try_recv(x), dunlin::channel_status::would_block);
            EXPECT_EQ(x.v, 7);
            // And one that is not sent comes back.
            const dunlin::chan<throws_when_assigned> full;
            EXPECT_EQ(select(on_send(full, std::move(x)), otherwise()), 1u);
            EXPECT_EQ(x.v, 7);
            EXPECT_TRUE(x.weight);
        }
        EXPECT_EQ(throws_when_assigned::alive, 0);
    });
}

struct constant {
    const int v;
};

TEST_P(OddTypes, ElementsNeedNoAssignment) {
    run([] {
        const dunlin::chan<constant> c(1);
        c.send(constant{3});
        int seen = 0;
        select(on_recv(c, [&](std::optional<constant> x) { seen = x->v; }));
        EXPECT_EQ(seen, 3);
        select(on_send(c, constant{4}));
        EXPECT_EQ(c.try_recv()->v, 4);
        EXPECT_FALSE(c.recv_for(1us));
    });
}

// ---- const results --------------------------------------------------------------------------------------------------

TEST_P(OddTypes, ResultsMayBeConst) {
    run([] {
        dunlin::promise<const std::string> p;
        dunlin::future<const std::string> f = p.get_future();
        p.set_value(long_text);
        EXPECT_EQ(f.get(), long_text);
        dunlin::promise<const int> q;
        auto g = q.get_future();
        q.set_value(3);
        EXPECT_EQ(g.get(), 3);
        static_assert(std::is_same_v<decltype(g), dunlin::future<const int>>);
        int there = 4;
        dunlin::promise<const int&> r;
        auto h = r.get_future();
        r.set_value(there);
        EXPECT_EQ(&h.get(), &there);
        EXPECT_EQ(dunlin::spawn([]() -> const std::string { return long_text; }).get(), long_text);
        EXPECT_EQ(dunlin::once_value([]() -> const std::string { return long_text; })(), long_text);
    });
}

// ---- durations ------------------------------------------------------------------------------------------------------

using real = std::chrono::duration<double>;

TEST_P(OddTypes, ADurationThatIsNotANumberIsAnError) {
    run([] {
        const real nan(std::nan(""));
        const std::chrono::time_point<dunlin::clock, real> never(nan);
        const std::chrono::time_point<std::chrono::steady_clock, real> not_even_there(nan);
        dunlin::mutex m;
        m.lock();
        const dunlin::chan<int> c;
        EXPECT_THROW(dunlin::sleep_for(nan), std::invalid_argument);
        EXPECT_THROW(dunlin::sleep_until(never), std::invalid_argument);
        EXPECT_THROW(dunlin::sleep_until(not_even_there), std::invalid_argument);
        EXPECT_THROW(m.try_lock_for(nan), std::invalid_argument);
        EXPECT_THROW(m.try_lock_until(not_even_there), std::invalid_argument);
        EXPECT_THROW(c.recv_for(nan), std::invalid_argument);
        EXPECT_THROW(c.send_until(1, never), std::invalid_argument);
        EXPECT_THROW(static_cast<void>(dunlin::on_timeout(nan)), std::invalid_argument);
        EXPECT_THROW(dunlin::timer{nan}, std::invalid_argument);
        EXPECT_THROW(dunlin::ticker{nan}, std::invalid_argument);
        EXPECT_THROW(dunlin::after(nan), std::invalid_argument);
        EXPECT_THROW(dunlin::after_func(nan, [] {}), std::invalid_argument);
        EXPECT_THROW(static_cast<void>(dunlin::with_timeout({}, nan)), std::invalid_argument);
        EXPECT_THROW(static_cast<void>(dunlin::with_deadline({}, not_even_there)), std::invalid_argument);
        auto [a, b] = dunlin::net::stream_pair();
        EXPECT_THROW(a.set_deadline(nan), std::invalid_argument);
        std::error_code ec;
        a.set_deadline(nan, ec);
        EXPECT_EQ(ec, std::errc::invalid_argument);
        EXPECT_THROW(dunlin::net::dial("tcp", "127.0.0.1:1", nan), std::invalid_argument);
        EXPECT_FALSE(dunlin::net::dial("tcp", "127.0.0.1:1", nan, ec));
        EXPECT_EQ(ec, std::errc::invalid_argument);
        m.unlock();
    });
}

TEST_P(OddTypes, InfiniteDurationsAreTheLongestAndTheShortest) {
    run([] {
        const real infinite(std::numeric_limits<double>::infinity());
        const dunlin::chan<int> c, d(1);
        d.send(1);
        EXPECT_EQ(d.recv_for(infinite), 1);
        EXPECT_FALSE(c.recv_for(-infinite));
        dunlin::sleep_for(-infinite);
        const auto ctx = dunlin::with_timeout({}, infinite);
        EXPECT_EQ(ctx.deadline(), std::nullopt);
        EXPECT_TRUE(dunlin::with_timeout({}, -infinite).is_done());
        auto waiter = dunlin::spawn([&] { return c.recv_for(infinite); });
        auto sleeper =
            dunlin::spawn([&] { EXPECT_THROW(dunlin::sleep_for(infinite, ctx), dunlin::context_cancelled); });
        auto by_deadline = dunlin::spawn([&] {
            const std::chrono::time_point<std::chrono::system_clock, real> end_of_days(infinite);
            return c.recv_until(end_of_days);
        });
        c.send(2);
        c.send(2);
        ctx.cancel();
        EXPECT_EQ(waiter.get(), 2);
        EXPECT_EQ(by_deadline.get(), 2);
        sleeper.get();
        EXPECT_FALSE(dunlin::timer(infinite).channel().recv_for(1ms));
    });
}

}  // namespace
