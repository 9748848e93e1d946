// words.h - the verbs of a story that came from Tokio and errgroup. Each is a scene of its own: its children play their
// steps, and then what all of them do together must come out right.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "fuzz/objects.h"
#include "fuzz/oracle.h"
#include "fuzz/story.h"

namespace fuzz {

struct scene {
    const step& s;
    verdict& faults;
    plant planted;
    std::function<void(std::size_t)> play_child;
    // What a wait may use: first with the step's limit, if that ends it without.
    std::function<limit()> limit_now;
    std::function<void(dunlin::clock::time_point, status)> check;

    std::size_t children() const { return s.children.size(); }
    template <class... Parts>
    void expect(bool right, const Parts&... parts) const {
        faults.expect(right, "step ", s.id, ": ", parts...);
    }
    // Each form returns a status; `ok` and `closed` end the wait.
    template <class Plain, class With, class Timed>
    status wait(Plain plain, With with, Timed timed) const {
        const auto begin = dunlin::clock::now();
        const status ended = limited(limit_now(), plain, with, timed);
        if (ended != status::timed_out && ended != status::cancelled) return ended;
        check(begin, ended);
        return plain();
    }
};

// Receives from a follower of a watch or a broadcast; what broadcast_lagged says goes to the caller.
template <class Receiver>
std::optional<unsigned> next_of(const scene& c, Receiver& r) {
    std::optional<unsigned> value;
    const auto took = [&](const auto& got) {
        if (got) value = *got;
        return got ? status::ok : status::closed;
    };
    c.wait([&] { return took(r.recv()); }, [&](const auto& ctx) { return took(r.recv(ctx)); },
        [&](auto d) {
            const auto got = r.recv_for(d);
            return got.status() == dunlin::channel_status::would_block ? status::timed_out : took(got);
        });
    return value;
}

// Each child sees values in their order, and the last one.
inline void play_watch(const scene& c) {
    const unsigned values = 3 + 4 * c.s.amount;
    dunlin::watch<unsigned> w(0u);
    dunlin::wait_group g;
    for (std::size_t i = 0; i < c.children(); ++i) {
        g.go([&c, values, i, r = w.subscribe()]() mutable {
            c.play_child(i);
            unsigned last = 0;
            while (const auto v = next_of(c, r)) {
                c.expect(*v > last, "a watch went back");
                last = *v;
            }
            c.expect(last == values, "the last value of a watch was lost");
        });
    }
    for (unsigned v = 1; v <= values; ++v) {
        if (v != values || c.planted != plant::last_value_lost) w.send(v);
        if (v % 3 == 0) dunlin::yield();
    }
    w.close();
    g.wait();
}

// Each child gets each value, or is told how many it has missed.
inline void play_broadcast(const scene& c) {
    constexpr unsigned values = 12;
    dunlin::broadcast<unsigned> b(static_cast<std::ptrdiff_t>(1 + 4 * c.s.amount));
    dunlin::wait_group g;
    for (std::size_t i = 0; i < c.children(); ++i) {
        g.go([&c, i, r = b.subscribe()]() mutable {
            c.play_child(i);
            for (std::uint64_t next = 1;; ) {
                try {
                    const auto v = next_of(c, r);
                    if (!v) {
                        c.expect(next == values + 1, "the end of a broadcast was lost");
                        return;
                    }
                    c.expect(*v == next, "a value of a broadcast was lost");
                    next = *v + 1u;
                } catch (const dunlin::broadcast_lagged& e) {
                    c.expect(e.missed() != 0, "a broadcast lagged by nothing");
                    next += e.missed();
                }
            }
        });
    }
    for (unsigned v = 1; v <= values; ++v) {
        if (v != 5 || c.planted != plant::broadcast_lost) b.send(v);
        if (v % 4 == 0) dunlin::yield();
    }
    b.close();
    g.wait();
}

// There is a token for each child, and one that takes one tells the next of those that are left.
inline void play_notify(const scene& c) {
    dunlin::notify news;
    std::atomic<std::size_t> tokens{0};
    const auto take = [&] {
        std::size_t n = tokens.load();
        while (n != 0 && !tokens.compare_exchange_weak(n, n - 1)) {
        }
        if (n > 1) news.notify_one();
        return n != 0;
    };
    dunlin::wait_group g;
    for (std::size_t i = 0; i < c.children(); ++i) {
        g.go([&, i] {
            c.play_child(i);
            while (!take()) {
                c.wait([&] { return news.wait(), status::ok; },
                    [&](const auto& ctx) { return news.wait(ctx), status::ok; },
                    [&](auto d) { return news.wait_for(d) ? status::ok : status::timed_out; });
            }
        });
    }
    for (std::size_t i = 0; i < c.children(); ++i) {
        ++tokens;
        if (c.planted != plant::news_lost) news.notify_one();
        if (i % 2 == 0) dunlin::yield();
    }
    g.wait();
    c.expect(tokens == 0, "tokens are left");
}

// The function is under way once at a time; each caller gets what a call has returned.
inline void play_singleflight(const scene& c) {
    struct state {
        std::atomic<int> under_way{0};
        std::atomic<unsigned> calls{0};
        std::atomic<bool> twice{false};
    };
    // A call with a context goes on when its callers have given up: it owns what it uses.
    const auto mine = std::make_shared<state>();
    const auto f = [mine] {
        if (++mine->under_way != 1) mine->twice = true;
        dunlin::yield();
        const unsigned number = ++mine->calls;
        --mine->under_way;
        return number;
    };
    dunlin::singleflight<unsigned, unsigned> flights;
    dunlin::wait_group g;
    for (std::size_t i = 0; i < c.children(); ++i) {
        g.go([&, i] {
            c.play_child(i);
            unsigned got = 0;
            if (c.planted == plant::flight_twice) got = f();
            c.wait([&] { return got = flights.call(1, f), status::ok; },
                [&](const auto& ctx) { return got = flights.call(1, f, ctx), status::ok; },
                [&](auto d) {
                    const auto v = flights.call_for(1, d, f);
                    got = v.value_or(0);
                    return v ? status::ok : status::timed_out;
                });
            c.expect(got >= 1 && got <= mine->calls, "a result that no call has returned");
        });
    }
    g.wait();
    flights.call(1, f);  // what is under way has ended then
    c.expect(!mine->twice, "two calls with one key at a time");
}

// The first calls fail; one succeeds, and is the last.
inline void play_retry(const scene& c) {
    struct failure : std::runtime_error {
        using std::runtime_error::runtime_error;
    };
    dunlin::retry_once_flag flag;
    unsigned runs = 0, successes = 0;  // plain memory: the flag orders it
    const auto f = [&] {
        const unsigned run = ++runs;
        dunlin::yield();
        if (run <= c.s.amount) throw failure("a call's");
        successes += c.planted == plant::retried_after_all ? 2 : 1;
    };
    dunlin::wait_group g;
    for (std::size_t i = 0; i < c.children(); ++i) {
        g.go([&, i] {
            c.play_child(i);
            while (!flag.done()) {
                try {
                    c.wait([&] { return flag.call(f), status::ok; },
                        [&](const auto& ctx) { return flag.call(f, ctx), status::ok; },
                        [&](auto d) { return flag.call_for(d, f) ? status::ok : status::timed_out; });
                    c.expect(flag.done() && successes != 0, "call() returned before a function had succeeded");
                } catch (const failure&) {
                }
            }
        });
    }
    g.wait();
    c.expect(successes == 1 && runs == c.s.amount + 1, "a function was called again after it had succeeded");
}

// Each result once, and the exception of the member that throws.
inline void play_task_set(const scene& c) {
    struct failure : std::runtime_error {
        using std::runtime_error::runtime_error;
    };
    dunlin::task_set<std::size_t> set;
    for (std::size_t i = 0; i < c.children(); ++i) {
        set.go([&c, i] {
            c.play_child(i);
            if (i == c.s.amount) throw failure("a member's");
            return i;
        });
    }
    std::set<std::size_t> seen;
    std::size_t threw = 0;
    for (bool more = true; more;) {
        const auto took = [&](std::optional<std::size_t> v) {
            if (v && !(c.planted == plant::result_lost && *v == 0)) c.expect(seen.insert(*v).second, "a result twice");
            return v ? status::ok : status::closed;
        };
        try {
            const status ended = c.wait([&] { return took(set.next()); },
                [&](const auto& ctx) { return took(set.next(ctx)); },
                [&](auto d) {  // none, or too late: which one, next() tells
                    const auto v = set.next_for(d);
                    return v ? took(v) : took(set.next());
                });
            more = ended != status::closed;
        } catch (const failure&) {
            ++threw;
        }
    }
    const std::size_t throwing = c.s.amount < c.children() ? 1 : 0;
    c.expect(threw == throwing && seen.size() + throwing == c.children(), "results of a set are lost");
}

}  // namespace fuzz
