// Ports of Go's own tests of select, under Go's names. The long ones are in select_stress_test.cpp.
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class GoSelect : public support::each_p {};
EACH_P(GoSelect);

// Until so many goroutines wait. Waiters on channels stand in their queues then, for the next one that locks them.
void until_parked(std::size_t n) {
    support::eventually([n] { return dunlin::runtime::stats().waiting == n; });
}

// ---- SEL-08 ---------------------------------------------------------------------------------------------------------

struct row {
    const char* what;
    const char* waits;  // what the dump says; null: it does not block
    std::function<void()> act;
};

void unreachable() { ADD_FAILURE() << "a case was taken that never can be"; }

std::vector<row> rows() {
    const auto nil = dunlin::chan<int>::nil();
    dunlin::chan<int> closed;
    closed.close();
    const auto with_value = [] {
        dunlin::chan<int> c(1);
        c.send(7);
        return c;
    };
    using dunlin::on_recv, dunlin::on_send, dunlin::otherwise, dunlin::select;
    return {
        {"send on nil", "chan send (nil chan)", [=] { nil.send(7); }},
        {"receive from nil", "chan receive (nil chan)", [=] { static_cast<void>(nil.recv()); }},
        {"send on full", "chan send", [=] { with_value().send(7); }},
        {"receive from empty", "chan receive", [] { static_cast<void>(dunlin::chan<int>().recv()); }},
        {"receive from empty with buffer", "chan receive", [] { static_cast<void>(dunlin::chan<int>(1).recv()); }},
        {"send with room", nullptr, [] { dunlin::chan<int>(1).send(7); }},
        {"receive what is there", nullptr, [=] { EXPECT_EQ(with_value().recv(), 7); }},
        {"receive from closed", nullptr,
            [=] {
                for (int i = 0; i < 10; ++i) EXPECT_EQ(closed.recv(), std::nullopt);
            }},
        {"send on closed", nullptr, [=] { EXPECT_THROW(closed.send(7), dunlin::channel_closed); }},

        {"select of nothing", "select (no cases)", [] { select(); }},
        {"select, receive from nil", "select (no cases)", [=] { select(on_recv(nil, unreachable)); }},
        {"select, send on nil", "select (no cases)", [=] { select(on_send(nil, 7, unreachable)); }},
        {"select, both on nil", "select (no cases)",
            [=] { select(on_recv(nil, unreachable), on_send(nil, 7, unreachable)); }},
        {"select, receive from empty", "select",
            [] {
                const dunlin::chan<int> c;
                select(on_recv(c, unreachable));
            }},
        {"select, send on full", "select", [=] { select(on_send(with_value(), 7, unreachable)); }},
        {"select, receive from empty or nil", "select",
            [=] { select(on_recv(nil, unreachable), on_recv(dunlin::chan<int>(3), unreachable)); }},
        {"select, send and receive on the same", "select",
            [] {
                const dunlin::chan<int> c;
                select(on_send(c, 1, unreachable), on_recv(c, unreachable));
            }},

        {"otherwise alone", nullptr, [] { EXPECT_EQ(select(otherwise()), 0u); }},
        {"receive from nil, otherwise", nullptr,
            [=] { EXPECT_EQ(select(on_recv(nil, unreachable), otherwise()), 1u); }},
        {"send on nil, otherwise", nullptr, [=] { EXPECT_EQ(select(on_send(nil, 7, unreachable), otherwise()), 1u); }},
        {"receive from empty, otherwise", nullptr,
            [] { EXPECT_EQ(select(on_recv(dunlin::chan<int>(), unreachable), otherwise()), 1u); }},
        {"send on full, otherwise", nullptr,
            [=] { EXPECT_EQ(select(on_send(with_value(), 7, unreachable), otherwise()), 1u); }},
        {"send and receive on the same, otherwise", nullptr,
            [] {
                const dunlin::chan<int> c;
                EXPECT_EQ(select(on_send(c, 1, unreachable), on_recv(c, unreachable), otherwise()), 2u);
            }},
        {"send with room, otherwise", nullptr,
            [] { EXPECT_EQ(select(on_send(dunlin::chan<int>(1), 7), otherwise(unreachable)), 0u); }},
        {"receive what is there, otherwise", nullptr,
            [=] { EXPECT_EQ(select(on_recv(with_value()), otherwise(unreachable)), 0u); }},

        {"select, receive from closed", nullptr, [=] { EXPECT_EQ(select(on_recv(closed)), 0u); }},
        {"select, receive from closed, with value", nullptr,
            [=] { select(on_recv(closed, [](std::optional<int> v) { EXPECT_EQ(v, std::nullopt); })); }},
        {"select, receive from closed, otherwise", nullptr,
            [=] { EXPECT_EQ(select(on_recv(closed), otherwise(unreachable)), 0u); }},
        {"select, send on closed", nullptr,
            [=] { EXPECT_THROW(select(on_send(closed, 7, unreachable)), dunlin::channel_closed); }},
        {"select, send on closed, otherwise", nullptr,
            [=] {
                EXPECT_THROW(select(on_send(closed, 7, unreachable), otherwise(unreachable)), dunlin::channel_closed);
            }},
    };
}

std::string header_of(const std::string& name) {
    std::ostringstream text;
    dunlin::runtime::dump(text);
    std::istringstream lines(text.str());
    for (std::string line; std::getline(lines, line);) {
        if (line.find('"' + name + '"') != line.npos) return line;
    }
    return "";
}

// SEL-08, go1.24 test/chan/select3.go
TEST_P(GoSelect, select3) {
    run([] {
        std::size_t blocked = 0;
        std::vector<std::pair<row, std::shared_ptr<std::atomic<bool>>>> all;
        for (row& r : rows()) {
            auto done = std::make_shared<std::atomic<bool>>(false);
            dunlin::go({.name = r.what}, [act = r.act, done] {
                act();
                *done = true;
            });
            blocked += r.waits != nullptr;
            all.emplace_back(std::move(r), std::move(done));
        }
        for (const auto& [r, done] : all) {
            if (r.waits == nullptr) support::eventually([&d = *done] { return d.load(); });
        }
        until_parked(blocked);
        dunlin::sleep_for(10ms);
        for (const auto& [r, done] : all) {
            if (r.waits == nullptr) continue;
            EXPECT_FALSE(*done) << r.what;
            const std::string header = header_of(r.what);
            const std::string reason = "[" + std::string(r.waits);
            const std::size_t at = header.find(reason);
            ASSERT_NE(at, header.npos) << r.what << " waits for: " << header;
            EXPECT_NE(std::string("],").find(header[at + reason.size()]), std::string::npos)
                << r.what << " waits for: " << header;
        }
    });
}

// ---- SEL-09 ---------------------------------------------------------------------------------------------------------

// One combination of cases: each with a channel of its own, in some state.
class combination {
public:
    enum form { send, receive, receive_or_closed, forms };
    enum state { nil, ready, not_ready, states };
    static constexpr int kinds = static_cast<int>(forms) * states;

    combination(int number, int count, bool with_otherwise) : with_otherwise_(with_otherwise) {
        for (int i = 0; i < count; ++i, number /= kinds) {
            one o{static_cast<form>(number % kinds / states), static_cast<state>(number % states)};
            if (o.how != nil) o.channel = dunlin::chan<int>(o.how == ready ? 1 : 0);
            if (o.how == ready && o.what != send) o.channel.send(100 + i);
            cases_.push_back(std::move(o));
        }
    }

    void check() {
        const bool any_ready = has(ready);
        if (!any_ready && !with_otherwise_ && !has(not_ready)) return;  // for ever
        std::vector<dunlin::select_case> list = evaluate();
        dunlin::wait_group helper;
        if (!any_ready && !with_otherwise_) helper.go([this] { meet_last(); });
        const std::size_t taken = dunlin::select(list);
        helper.wait();
        ASSERT_EQ(handlers_run_, std::vector<std::size_t>{taken});
        if (taken == cases_.size()) {
            ASSERT_TRUE(with_otherwise_ && !any_ready);
        } else {
            ASSERT_EQ(cases_[taken].how, any_ready ? ready : not_ready);
        }
        for (std::size_t i = 0; i < cases_.size(); ++i) check_channel(i, i == taken);
    }

private:
    struct one {
        form what;
        state how;
        dunlin::chan<int> channel = dunlin::chan<int>::nil();
    };

    bool has(state s) const {
        for (const one& o : cases_) {
            if (o.how == s) return true;
        }
        return false;
    }

    // Meets the last case that can be met.
    void meet_last() {
        for (std::size_t i = cases_.size(); i-- > 0;) {
            const one& o = cases_[i];
            if (o.how != not_ready) continue;
            if (o.what == send) {
                EXPECT_EQ(o.channel.recv(), 200 + static_cast<int>(i));
            } else {
                o.channel.send(100 + static_cast<int>(i));
            }
            return;
        }
    }

    std::vector<dunlin::select_case> evaluate() {
        std::vector<dunlin::select_case> list;
        std::vector<std::size_t> channels, values;  // evaluated, in this order
        const auto channel_of = [&](std::size_t i) -> const dunlin::chan<int>& {
            channels.push_back(i);
            return cases_[i].channel;
        };
        const auto value_of = [&](std::size_t i) {
            values.push_back(i);
            return 200 + static_cast<int>(i);
        };
        std::vector<std::size_t> all, sends;
        for (std::size_t i = 0; i < cases_.size(); ++i) {
            all.push_back(i);
            switch (cases_[i].what) {
            case send:
                sends.push_back(i);
                list.push_back(dunlin::on_send(channel_of(i), value_of(i), [this, i] { handlers_run_.push_back(i); }));
                break;
            case receive:
                list.push_back(dunlin::on_recv(channel_of(i), [this, i] { handlers_run_.push_back(i); }));
                break;
            default:
                list.push_back(dunlin::on_recv(channel_of(i), [this, i](std::optional<int> v) {
                    EXPECT_EQ(v, 100 + static_cast<int>(i));
                    handlers_run_.push_back(i);
                }));
            }
        }
        if (with_otherwise_) list.push_back(dunlin::otherwise([this] { handlers_run_.push_back(cases_.size()); }));
        EXPECT_EQ(channels, all);
        EXPECT_EQ(values, sends);
        return list;
    }

    // Only the case taken has done something, and no node stands in a queue any more.
    void check_channel(std::size_t i, bool taken) const {
        const one& o = cases_[i];
        if (o.how == ready) {
            ASSERT_EQ(o.channel.len(), (o.what == send) == taken ? 1u : 0u) << "of case " << i;
        } else if (o.how == not_ready) {
            ASSERT_EQ(o.channel.try_send(1), dunlin::channel_status::would_block) << "of case " << i;
            ASSERT_EQ(o.channel.try_recv().status(), dunlin::channel_status::would_block) << "of case " << i;
        }
    }

    std::vector<one> cases_;
    bool with_otherwise_;
    std::vector<std::size_t> handlers_run_;
};

// SEL-09, go1.24 test/chan/select5.go
TEST_P(GoSelect, select5) {
    allow(120s);
    run([] {
        int combinations = combination::kinds;
        for (int count = 1; count <= (support::sanitized ? 3 : 4); ++count, combinations *= combination::kinds) {
            for (int number = 0; number < combinations; ++number) {
                for (const bool with_otherwise : {false, true}) {
                    combination(number, count, with_otherwise).check();
                    ASSERT_FALSE(HasFailure())
                        << "combination " << number << " of " << count << (with_otherwise ? ", otherwise" : "");
                }
            }
        }
    });
}

// SEL-09, go1.24 test/chan/select5.go. The order among arguments of one call is C++'s, so only the number counts here.
TEST_P(GoSelect, EachOperandIsEvaluatedOnce) {
    run([] {
        dunlin::chan<int> a, b(1), never;
        int evaluated[5] = {};
        const auto once = [&](std::size_t i, auto&& operand) -> decltype(auto) {
            ++evaluated[i];
            return std::forward<decltype(operand)>(operand);
        };
        const std::size_t taken = dunlin::select(dunlin::on_recv(once(0, a)), dunlin::on_send(once(1, b), once(2, 5)),
            dunlin::on_send(once(3, never), once(4, 6)));
        EXPECT_EQ(taken, 1u);
        for (const int times : evaluated) EXPECT_EQ(times, 1);
        EXPECT_EQ(b.recv(), 5);
    });
}

// ---- SEL-10 ---------------------------------------------------------------------------------------------------------

// SEL-10, go1.24 test/chan/select7.go
TEST_P(GoSelect, select7) {
    run([] {
        using channel = dunlin::chan<int>;
        using dunlin::on_recv, dunlin::on_send, dunlin::select;
        const std::array<void (*)(const channel&), 3> receives = {
            [](const channel& c) { static_cast<void>(c.recv()); },
            [](const channel& c) { select(on_recv(c)); },
            [](const channel& c) { select(on_recv(c), on_recv(channel())); },
        };
        const std::array<void (*)(const channel&), 3> sends = {
            [](const channel& c) { c.send(1); },
            [](const channel& c) { select(on_send(c, 1)); },
            [](const channel& c) { select(on_send(c, 1), on_send(channel(), 2)); },
        };
        for (int round = 0; round < support::rounds(1000); ++round) {
            for (const auto receive : receives) {
                for (const auto send : sends) {
                    const channel c;
                    dunlin::wait_group other;
                    if (round % 2 == 0) {
                        other.go([&] { send(c); });
                        dunlin::yield();
                        receive(c);
                    } else {
                        other.go([&] { receive(c); });
                        dunlin::yield();
                        send(c);
                    }
                    other.wait();
                }
            }
        }
    });
}

// ---- SEL-11 ---------------------------------------------------------------------------------------------------------

// SEL-11, go1.24 test/chan/select.go: a channel that was used is made nil, and so left out.
TEST_P(GoSelect, select) {
    run([] {
        unsigned evaluated = 0, shift = 0;
        const auto value = [&] {
            ++evaluated;
            return 1u << shift;
        };
        const auto send_all = [&](dunlin::chan<unsigned> a, dunlin::chan<unsigned> b) {
            int sent = 0;
            const auto used = [&](dunlin::chan<unsigned>& c) {
                ++sent;
                c = dunlin::chan<unsigned>::nil();
            };
            for (bool more = true; more; ++shift) {
                dunlin::select(dunlin::on_send(a, value(), [&] { used(a); }),
                    dunlin::on_send(b, value(), [&] { used(b); }), dunlin::otherwise([&] { more = false; }));
                if (!more) break;
            }
            return sent;
        };
        dunlin::chan<unsigned> a(1), b(1);
        EXPECT_EQ(send_all(a, b), 2);
        EXPECT_EQ(*a.recv() | *b.recv(), 3u);
        EXPECT_EQ(send_all(a, dunlin::chan<unsigned>::nil()), 1);
        EXPECT_EQ(evaluated, 10u);
    });
}

// SEL-11, go1.24 test/chan/select4.go: of two cases one is ready.
TEST_P(GoSelect, select4) {
    run([] {
        dunlin::chan<int> c(1), never;
        c.send(42);
        int got = 0;
        dunlin::select(dunlin::on_recv(never, [] { ADD_FAILURE() << "received"; }),
            dunlin::on_recv(c, [&](std::optional<int> v) { got = *v; }));
        EXPECT_EQ(got, 42);
    });
}

// ---- SEL-13 ---------------------------------------------------------------------------------------------------------

// SEL-13, go1.24 src/time/tick_test.go TestChan: a receiver that waits already follows what reset() says.
TEST_P(GoSelect, TestChan) {
    run([] {
        for (int round = 0; round < support::rounds(10); ++round) {
            dunlin::timer t(10'000s);
            dunlin::chan<int> quit;
            std::atomic<int> fired{0}, others{0};
            const auto wait = [&, ticks = t.channel()] {
                dunlin::select(dunlin::on_recv(ticks, [&] { ++fired; }), dunlin::on_recv(quit, [&] { ++others; }));
            };
            dunlin::wait_group both;
            for (int i = 0; i < 2; ++i) both.go(wait);
            until_parked(2);
            EXPECT_TRUE(t.reset(20'000s));
            dunlin::sleep_for(50ms);
            EXPECT_EQ(fired, 0);
            EXPECT_TRUE(t.reset(1ns));
            support::eventually([&] { return fired == 1; });
            // Stopped and started again: once more, for the other.
            if (round % 2 == 1) {
                EXPECT_FALSE(t.stop());
                EXPECT_FALSE(t.reset(20'000s));
                EXPECT_TRUE(t.stop());
                EXPECT_FALSE(t.reset(1ms));
                support::eventually([&] { return fired == 2; });
            }
            dunlin::sleep_for(10ms);
            EXPECT_EQ(fired, 1 + round % 2);
            quit.close();
            both.wait();
            EXPECT_EQ(fired + others, 2);
            support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });
        }
    });
}

}  // namespace
