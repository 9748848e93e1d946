// play.h - plays a story: runs its actors, and asks the oracle after every step.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "fuzz/objects.h"
#include "fuzz/oracle.h"
#include "fuzz/story.h"
#include "fuzz/words.h"

namespace fuzz {

using std::chrono::microseconds;
using time_point = dunlin::clock::time_point;

inline void burn_for(microseconds d) {
    for (const auto end = std::chrono::steady_clock::now() + d; std::chrono::steady_clock::now() < end;) {
        for (int i = 0; i < 100; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    }
}

// The contexts of a story, and what is known of them without asking them.
class context_tree {
public:
    context_tree(verdict& v, const std::vector<context_of>& all) : verdict_(v), of_(all), asked_(all.size()) {
        const time_point begin = dunlin::clock::now();
        for (const context_of& c : all) {
            const dunlin::context parent = c.parent < 0 ? dunlin::context() : made_[static_cast<std::size_t>(c.parent)];
            moments_.push_back(c.deadline == 0 ? time_point::max() : begin + microseconds(c.deadline));
            made_.push_back(
                c.deadline == 0 ? dunlin::with_cancel(parent) : dunlin::with_deadline(parent, moments_.back()));
        }
    }
    const dunlin::context& operator[](unsigned i) const { return made_[i]; }

    void cancel(unsigned i) {
        asked_[i].store(true);
        made_[i].cancel();
        for (unsigned k = 0; k < of_.size(); ++k) {
            if (descends(static_cast<int>(k), i)) {
                verdict_.expect(made_[k].is_done(), "cancel(): context ", k, " below is not done");
            }
        }
    }
    // A wait was ended by it.
    void check_done(unsigned i) {
        const std::error_code why = made_[i].err();
        const time_point now = dunlin::clock::now();  // after it: the moment may come in between
        bool asked = false, late = false;
        for (int k = static_cast<int>(i); k >= 0; k = of_[static_cast<std::size_t>(k)].parent) {
            asked = asked || asked_[static_cast<std::size_t>(k)];
            late = late || moments_[static_cast<std::size_t>(k)] <= now;
        }
        verdict_.expect(bool(why), "cancelled, but context ", i, " is not done");
        if (why == dunlin::errc::cancelled) verdict_.expect(asked, "context ", i, " was cancelled by nobody");
        if (why == dunlin::errc::deadline_exceeded) verdict_.expect(late, "context ", i, ": its deadline was early");
    }

private:
    bool descends(int k, unsigned from) const {
        for (; k >= 0; k = of_[static_cast<std::size_t>(k)].parent) {
            if (k == static_cast<int>(from)) return true;
        }
        return false;
    }
    verdict& verdict_;
    const std::vector<context_of>& of_;
    std::vector<std::atomic<bool>> asked_;
    std::vector<dunlin::cancellable> made_;
    std::vector<time_point> moments_;
};

class player {
public:
    player(const story& s, plant p) : story_(s), plant_(p), contexts_(verdict_, s.contexts), once_(s.flags) {
        for (unsigned i = 0; i < s.lines.size(); ++i) {
            const line_of& l = s.lines[i];
            const std::int64_t capacity = carries_records(l.kind) ? -1 : static_cast<std::int64_t>(l.capacity);
            ledgers_.push_back(std::make_unique<ledger>(verdict_, "line " + std::to_string(i), s.senders, capacity));
            lines_.push_back(make_line(l, p));
            open_.push_back(std::make_unique<std::atomic<unsigned>>(1u));
        }
        for (unsigned i = 0; i < s.guards.size(); ++i) {
            const int permits = s.guards[i].kind == guard_kind::semaphore ? static_cast<int>(s.guards[i].permits) : 1;
            inside_.push_back(std::make_unique<occupancy>(verdict_, "guard " + std::to_string(i), permits));
            guards_.push_back(make_guard(s.guards[i], p));
        }
    }

    // In a goroutine. What is wrong; nothing if all is right.
    std::vector<std::string> run() {
        for (const actor_of& a : story_.actors) {
            for (std::size_t i = a.sends_from; i < lines_.size(); ++i) ++*open_[i];
        }
        dunlin::wait_group all;
        std::vector<std::thread> threads;
        const auto start = [&](bool on_thread, std::string name, auto f) {
            if (on_thread) {
                threads.emplace_back(std::move(f));
            } else {
                all.go({.name = name}, std::move(f));
            }
        };
        for (unsigned i = 0; i < lines_.size(); ++i) {
            start(story_.lines[i].drained_by_thread, "drainer of line " + std::to_string(i), [this, i] { drain(i); });
        }
        for (unsigned i = 0; i < story_.actors.size(); ++i) {
            start(story_.actors[i].on_thread, "actor " + std::to_string(i), [this, i] { act(i); });
        }
        for (unsigned i = 0; i < lines_.size(); ++i) close_if_last(i);
        all.wait();
        for (std::thread& t : threads) dunlin::blocking([&] { t.join(); });
        check_the_end();
        return verdict_.faults();
    }

private:
    // What one actor or child carries with it.
    struct role {
        unsigned sender;
        ledger::reader reader;
    };

    void close_if_last(unsigned i) {
        if (--*open_[i] == 0) lines_[i]->close();
    }

    void drain(unsigned i) {
        ledger::reader reader;
        for (letter_ptr v;; v.reset()) {
            ledgers_[i]->begin_receive();
            if (lines_[i]->recv(v, {}) != status::ok) break;
            reader.got(*ledgers_[i], *v);
            if (story_.lines[i].drainers_pause != 0) dunlin::sleep_for(microseconds(story_.lines[i].drainers_pause));
        }
        ledgers_[i]->no_receive();
    }

    // Real time, of which a simulation has none.
    void pass(unsigned us) const {
        if (!story_.simulated) usleep(us);
    }

    void act(unsigned i) {
        role me{i, {}};
        for (unsigned n = story_.actors[i].repeats; n > 0; --n) play(story_.actors[i].steps, me);
        for (unsigned k = story_.actors[i].sends_from; k < lines_.size(); ++k) close_if_last(k);
    }

    void play(const std::vector<step>& steps, role& me) {
        for (const step& s : steps) play(s, me);
    }

    void play(const step& s, role& me) {
        switch (s.what) {
        case verb::send:
        case verb::try_send: return send(s, me);
        case verb::recv:
        case verb::try_recv: return receive(s, me);
        case verb::select: return select(s, me);
        case verb::select_loop: return select_loop(s, me);
        case verb::close: return lines_[s.object]->close();
        case verb::hold:
        case verb::share: return hold(s, me);
        case verb::cancel: return contexts_.cancel(s.object);
        case verb::await: return await(s);
        case verb::sleep: return sleep(s);
        case verb::yield: return dunlin::yield();
        case verb::burn: return story_.simulated ? void() : burn_for(microseconds(s.amount));
        case verb::block: return block(s);
        case verb::timer: return timer(s);
        case verb::after_func: return call_later(s);
        case verb::once: return once(s);
        case verb::wait_group: return wait_group(s);
        case verb::tasks: return tasks(s);
        case verb::task_group: return task_group(s);
        case verb::promise: return promise(s);
        case verb::latch: return latch(s);
        case verb::barrier: return barrier(s);
        case verb::watch: return play_watch(scene_of(s));
        case verb::broadcast: return play_broadcast(scene_of(s));
        case verb::notify: return play_notify(scene_of(s));
        case verb::singleflight: return play_singleflight(scene_of(s));
        case verb::retry: return play_retry(scene_of(s));
        case verb::task_set: return play_task_set(scene_of(s));
        }
    }

    limit limit_for(const limit_of& l) const {
        if (l.how == limit_kind::context) return {l.how, contexts_[l.amount], {}};
        return {l.how, {}, microseconds(l.amount)};
    }

    // How a wait of step `s` that began at `begin` may have ended.
    status checked(const step& s, time_point begin, status ended) {
        const bool for_nothing =
            plant_ == plant::cancelled_for_nothing && s.limit.how == limit_kind::context && s.id % 8 == 0;
        if (ended == status::timed_out) {
            auto waited = dunlin::clock::now() - begin;
            if (plant_ == plant::early_time_out) waited /= 2;
            verdict_.expect(s.limit.how == limit_kind::time, "step ", s.id, " timed out without a time-out");
            verdict_.expect(waited >= microseconds(s.limit.amount), "step ", s.id, " timed out early");
        }
        if (ended == status::cancelled || for_nothing) {
            verdict_.expect(s.limit.how == limit_kind::context, "step ", s.id, " was cancelled without a context");
            if (s.limit.how == limit_kind::context) contexts_.check_done(s.limit.amount);
        }
        return ended;
    }

    void send(const step& s, role& me) {
        ledger& l = *ledgers_[s.object];
        letter_ptr v = l.draft(me.sender);
        if (!v) return;
        const std::uint32_t number = v->number;
        const time_point begin = dunlin::clock::now();
        const bool once = s.what == verb::try_send;
        const status ended = once ? lines_[s.object]->try_send(v) : lines_[s.object]->send(v, limit_for(s.limit));
        verdict_.expect((v == nullptr) == (ended == status::ok), l.name(), ": a send that ", word(ended),
            " has kept or lost its value");
        if (ended == status::ok) return l.sent(me.sender, number);
        if (!once) checked(s, begin, ended);
    }

    void receive(const step& s, role& me) {
        ledger& l = *ledgers_[s.object];
        letter_ptr v;
        const time_point begin = dunlin::clock::now();
        const bool once = s.what == verb::try_recv;
        l.begin_receive();
        const status ended = once ? lines_[s.object]->try_recv(v) : lines_[s.object]->recv(v, limit_for(s.limit));
        if (ended != status::ok) l.no_receive();
        verdict_.expect(
            (v != nullptr) == (ended == status::ok), l.name(), ": a receive that ", word(ended), " and its value");
        if (v) return me.reader.got(l, *v);
        if (!once) checked(s, begin, ended);
    }

    // What a select is made of; each case is told apart by its index.
    struct choice {
        std::vector<dunlin::select_case> cases;
        std::vector<std::uint32_t> numbers;  // of the values that would be sent
        std::vector<bool> receives;
        letter_ptr got;
    };

    void offer(choice& all, const step& c, role& me) {
        letter_ptr v = c.what == verb::send ? ledgers_[c.object]->draft(me.sender) : nullptr;
        all.numbers.push_back(v ? v->number : 0);
        all.receives.push_back(c.what != verb::await && !v);
        if (c.what == verb::await) {
            all.cases.emplace_back(dunlin::on_done(contexts_[c.object]));
        } else if (v) {
            all.cases.emplace_back(dunlin::on_send(lines_[c.object]->channel(), std::move(v)));
        } else {
            ledgers_[c.object]->begin_receive();
            all.cases.emplace_back(dunlin::on_recv(lines_[c.object]->channel(), [&all](std::optional<letter_ptr> r) {
                if (r) all.got = std::move(*r);
            }));
        }
    }

    void select(const step& s, role& me) {
        choice all;
        for (const step& c : s.body) offer(all, c, me);
        if (s.amount == 0) {
            all.cases.emplace_back(dunlin::otherwise());
        } else {
            all.cases.emplace_back(dunlin::on_timeout(microseconds(s.amount)));
        }
        const time_point begin = dunlin::clock::now();
        std::size_t taken = all.cases.size();
        try {
            taken = dunlin::select(all.cases);
        } catch (const dunlin::channel_closed&) {
        }
        const auto waited = dunlin::clock::now() - begin;
        if (taken == s.body.size()) {
            verdict_.expect(waited >= microseconds(s.amount), "step ", s.id, ": select timed out early");
        }
        settle(all, s, taken, me);
    }

    void settle(choice& all, const step& s, std::size_t taken, role& me) {
        for (std::size_t i = 0; i < s.body.size(); ++i) {
            if (all.receives[i] && !(i == taken && all.got)) ledgers_[s.body[i].object]->no_receive();
        }
        if (taken >= s.body.size()) return;
        const step& c = s.body[taken];
        if (c.what == verb::await) return contexts_.check_done(c.object);
        if (all.got) return me.reader.got(*ledgers_[c.object], *all.got);
        if (!all.receives[taken]) ledgers_[c.object]->sent(me.sender, all.numbers[taken]);
    }

    // On the same cases until so many have been taken, one is the last by itself, or none is taken for so long.
    void select_loop(const step& s, role& me) {
        const unsigned most = 1 + s.id % 5;
        unsigned rounds = 0;
        time_point begin = dunlin::clock::now();
        const auto one_more = [&] {
            begin = dunlin::clock::now();
            return ++rounds == most ? dunlin::loop::leave : dunlin::loop::again;
        };
        std::vector<dunlin::select_case> cases;
        std::vector<ledger*> receives;
        std::set<unsigned> sends_to;
        for (const step& c : s.body) {
            if (c.what == verb::await) {
                cases.emplace_back(dunlin::on_done(contexts_[c.object], [this, &c] {
                    contexts_.check_done(c.object);
                    return dunlin::loop::leave;
                }));
                continue;
            }
            ledger& l = *ledgers_[c.object];
            // Of two values for one line either may be the first: there is one.
            const bool sends = c.what == verb::send && sends_to.insert(c.object).second;
            if (letter_ptr v = sends ? l.draft(me.sender) : nullptr) {
                const auto sent = [&, number = v->number] { return l.sent(me.sender, number), one_more(); };
                cases.emplace_back(dunlin::on_send(lines_[c.object]->channel(), std::move(v), sent));
            } else {
                l.begin_receive();
                receives.push_back(&l);
                const auto got = [&](std::optional<letter_ptr> r) {
                    if (!r) return dunlin::loop::leave;
                    if (plant_ != plant::round_lost) me.reader.got(l, **r);
                    l.begin_receive();
                    return one_more();
                };
                cases.emplace_back(dunlin::on_recv(lines_[c.object]->channel(), got));
            }
        }
        cases.emplace_back(dunlin::on_timeout(microseconds(s.amount), [&] {
            const auto waited = dunlin::clock::now() - begin;
            verdict_.expect(waited >= microseconds(s.amount), "step ", s.id, ": select_loop timed out early");
            return dunlin::loop::leave;
        }));
        try {
            static_cast<void>(dunlin::select_loop(cases));
            verdict_.expect(rounds <= most, "step ", s.id, ": select_loop went on after it had been left");
        } catch (const dunlin::channel_closed&) {
        }
        for (ledger* l : receives) l->no_receive();
    }

    void hold(const step& s, role& me) {
        const bool shared = s.what == verb::share;
        guard& g = *guards_[s.object];
        const time_point begin = dunlin::clock::now();
        if (checked(s, begin, g.take(shared, limit_for(s.limit))) != status::ok) return;
        inside_[s.object]->enter(shared);
        play(s.body, me);
        inside_[s.object]->leave(shared);
        g.give(shared);
    }

    void await(const step& s) {
        const auto done = contexts_[s.object].done();
        const time_point begin = dunlin::clock::now();
        const auto over = [](bool value) { return value ? status::ok : status::closed; };
        const status ended = limited(
            limit_for(s.limit), [&] { return over(done.recv().has_value()); },
            [&](const auto& ctx) { return over(done.recv(ctx).has_value()); },
            [&](auto d) { return status_of(done.recv_for(d).status(), status::timed_out); });
        if (checked(s, begin, ended) == status::closed) contexts_.check_done(s.object);
    }

    void sleep(const step& s) {
        const microseconds d(s.amount);
        const time_point begin = dunlin::clock::now();
        const auto slept = [&] {
            auto waited = dunlin::clock::now() - begin;
            if (plant_ == plant::early_sleep) waited /= 2;
            verdict_.expect(waited >= d, "step ", s.id, ": a sleep ended early");
            return status::ok;
        };
        const status ended = limited(
            limit_for(s.limit), [&] { return dunlin::sleep_for(d), slept(); },
            [&](const auto& ctx) { return dunlin::sleep_for(d, ctx), slept(); }, [&](auto) { return status::ok; });
        checked(s, begin, ended);
    }

    void block(const step& s) const {
        if (s.id % 2 == 0) {
            dunlin::blocking([&] { pass(s.amount); });
        } else {
            pass(s.amount);
        }
    }

    // Three ways: it fires; it is stopped; it is set anew.
    void timer(const step& s) {
        const microseconds d(s.amount);
        const time_point begin = dunlin::clock::now();
        dunlin::timer t(d);
        const auto c = t.channel();
        if (s.id % 3 == 1) {
            const bool pending = t.stop();
            verdict_.expect(!c.try_recv(), "step ", s.id, ": a tick of a timer that was stopped");
            return verdict_.expect(pending, "step ", s.id, ": a timer whose tick nobody had received was not pending");
        }
        if (s.id % 3 == 2) t.reset(2 * d);
        static_cast<void>(c.recv());
        verdict_.expect(
            dunlin::clock::now() - begin >= d * (s.id % 3 == 2 ? 2 : 1), "step ", s.id, ": a timer was early");
        if (plant_ == plant::timer_twice) t.reset(microseconds(0));
        verdict_.expect(!c.try_recv(), "step ", s.id, ": a second tick of a timer");
    }

    // A call that is due by now, or was stopped.
    struct later {
        std::atomic<int> runs{0};
        bool stopped = false;
        unsigned id = 0;
    };
    void call_later(const step& s) {
        const microseconds d(s.amount);
        const time_point due = dunlin::clock::now() + d;
        auto state = std::make_shared<later>();
        state->id = s.id;
        const auto f = [this, state, due] {
            verdict_.expect(dunlin::clock::now() >= due, "step ", state->id, ": after_func() ran early");
            ++state->runs;
        };
        dunlin::timer t = dunlin::after_func(d, f);
        if (s.id % 2 == 0) {
            dunlin::yield();
            state->stopped = t.stop();
        }
        const std::scoped_lock lock(later_lock_);
        later_.push_back(std::move(state));
    }

    void once(const step& s) {
        once_state& o = once_[s.object];
        dunlin::call_once(o.flag, [&] {
            ++o.calls;
            dunlin::yield();
            o.done = true;
        });
        if (plant_ == plant::once_twice) ++o.calls;
        verdict_.expect(o.done, "call_once() returned before the function had");
    }

    // ---- children ----

    scene scene_of(const step& s) {
        return {s, verdict_, plant_, [this, &s](std::size_t i) { child(s, i); },
            [this, &s] { return limit_for(s.limit); },
            [this, &s](time_point begin, status ended) { checked(s, begin, ended); }};
    }
    void child(const step& s, std::size_t i) {
        role me{s.first_child + static_cast<unsigned>(i), {}};
        play(s.children[i], me);
    }
    // A wait for children: first with the step's limit, then without.
    template <class Plain, class With, class Timed>
    void wait_for_children(const step& s, Plain plain, With with, Timed timed) {
        const time_point begin = dunlin::clock::now();
        const status ended = limited(
            limit_for(s.limit), [&] { return plain(), status::ok; },
            [&](const auto& ctx) { return with(ctx), status::ok; },
            [&](auto d) { return timed(d) ? status::ok : status::timed_out; });
        if (checked(s, begin, ended) != status::ok) plain();
    }

    void wait_group(const step& s) {
        dunlin::wait_group g;
        std::vector<int> ended(s.children.size());  // plain memory: the wait orders it
        for (std::size_t i = 0; i < s.children.size(); ++i) {
            g.go([this, &s, &ended, i] {
                child(s, i);
                ended[i] = 1;
            });
        }
        wait_for_children(
            s, [&] { g.wait(); }, [&](const auto& ctx) { g.wait(ctx); }, [&](auto d) { return g.wait_for(d); });
        if (plant_ == plant::child_forgotten) ended[0] = 0;
        for (const int e : ended) verdict_.expect(e == 1, "step ", s.id, ": wait() returned before a child had ended");
    }

    void tasks(const step& s) {
        std::vector<dunlin::task<unsigned>> all;
        for (std::size_t i = 0; i < s.children.size(); ++i) {
            all.push_back(dunlin::spawn([this, &s, i] {
                child(s, i);
                return s.id + static_cast<unsigned>(i);
            }));
        }
        for (std::size_t i = 0; i < all.size(); ++i) {
            wait_for_children(
                s, [&] { all[i].wait(); }, [&](const auto& ctx) { all[i].wait(ctx); },
                [&](auto d) { return all[i].wait_for(d); });
            verdict_.expect(all[i].done(), "step ", s.id, ": a task that was waited for has not ended");
            verdict_.expect(all[i].get() == s.id + i, "step ", s.id, ": another result of a task");
        }
    }

    struct intended : std::runtime_error {
        using std::runtime_error::runtime_error;
    };

    void task_group(const step& s) {
        dunlin::task_group g;
        std::atomic<unsigned> ended{0};
        const dunlin::context ctx = g.context();
        for (std::size_t i = 0; i < s.children.size(); ++i) {
            g.go([this, &s, &ended, i] {
                child(s, i);
                ++ended;
                if (i == s.amount && plant_ != plant::exception_forgotten) throw intended("a child's");
            });
        }
        bool threw = false;
        const auto wait = [&] {
            try {
                g.wait();
            } catch (const intended&) {
                threw = true;
            }
        };
        const auto with = [&](const dunlin::context& limit) {
            try {
                g.wait(limit);
            } catch (const intended&) {
                threw = true;
            }
        };
        wait_for_children(s, wait, with, [&](auto) { return wait(), true; });
        verdict_.expect(ended == s.children.size(), "step ", s.id, ": wait() returned before a member had ended");
        verdict_.expect(
            threw == (s.amount < s.children.size()), "step ", s.id, ": the exception of a member, and wait()");
        verdict_.expect(ctx.is_done() == threw, "step ", s.id, ": the exception of a member, and the group's context");
    }

    void promise(const step& s) {
        std::vector<dunlin::future<letter_ptr>> all;
        dunlin::wait_group g;
        for (std::size_t i = 0; i < s.children.size(); ++i) {
            dunlin::promise<letter_ptr> p;
            all.push_back(p.get_future());
            // One breaks its promise.
            g.go([this, &s, i, p = std::move(p)]() mutable {
                child(s, i);
                if (i != s.amount) p.set_value(std::make_unique<letter>(s.id, static_cast<std::uint32_t>(i)));
            });
        }
        for (std::size_t i = 0; i < all.size(); ++i) {
            wait_for_children(
                s, [&] { all[i].wait(); }, [&](const auto& ctx) { all[i].wait(ctx); },
                [&](auto d) { return all[i].wait_for(d) == dunlin::future_status::ready; });
            bool broken = false;
            try {
                const letter_ptr v = all[i].get();
                verdict_.expect(v && v->is_whole() && v->sender == s.id && v->number == i, "step ", s.id,
                    ": another value of a future");
            } catch (const dunlin::future_error& e) {
                broken = e.code() == dunlin::future_errc::broken_promise;
            }
            verdict_.expect(broken == (i == s.amount), "step ", s.id, ": a promise, kept or broken");
        }
        g.wait();
    }

    void latch(const step& s) {
        const std::size_t n = s.children.size();
        dunlin::latch l(static_cast<std::ptrdiff_t>(n));
        std::vector<int> arrived(n);  // plain memory: the latch orders it
        dunlin::wait_group g;
        const auto all_arrived = [&] {
            for (const int a : arrived) {
                verdict_.expect(a == 1, "step ", s.id, ": a latch opened before all had arrived");
            }
        };
        for (std::size_t i = 0; i < n; ++i) {
            g.go([&, i] {
                child(s, i);
                arrived[i] = 1;
                if (i % 2 == 0) {
                    l.count_down();
                } else {
                    l.arrive_and_wait();
                    all_arrived();
                }
            });
        }
        wait_for_children(
            s, [&] { l.wait(); }, [&](const auto& ctx) { l.wait(ctx); }, [&](auto d) { return l.wait_for(d); });
        all_arrived();
        g.wait();
    }

    // In each phase every child does its steps, then all meet.
    void barrier(const step& s) {
        const std::size_t n = s.children.size();
        const unsigned phases = 1 + s.amount;
        std::vector<unsigned> at(n);  // plain memory: the barrier orders it
        unsigned completed = 0;
        const auto complete = [&]() noexcept { ++completed; };
        dunlin::barrier b(static_cast<std::ptrdiff_t>(n), complete);
        const auto body = [&](std::size_t i) {
            for (unsigned phase = 1; phase <= phases; ++phase) {
                if (phase == 1) child(s, i);
                at[i] = phase;
                if (plant_ != plant::barrier_open) b.arrive_and_wait();
                for (const unsigned a : at) {
                    verdict_.expect(a == phase, "step ", s.id, ": a barrier opened before all had arrived");
                }
                if (plant_ != plant::barrier_open) b.arrive_and_wait();  // before the next phase writes
            }
        };
        dunlin::wait_group g;
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < n; ++i) {
            if (!story_.simulated && (s.id + i) % 4 == 0) {
                threads.emplace_back([&, i] { body(i); });
            } else {
                g.go([&, i] { body(i); });
            }
        }
        g.wait();
        for (std::thread& t : threads) dunlin::blocking([&] { t.join(); });
        verdict_.expect(
            completed == 2 * phases || plant_ == plant::barrier_open, "step ", s.id, ": another number of phases");
    }

    // ---- when all have ended ----

    void check_the_end() {
        for (const auto& l : ledgers_) l->close_books();
        for (std::size_t i = 0; i < guards_.size(); ++i) {
            verdict_.expect(
                guards_[i]->is_whole(), inside_[i]->name(), " is not as it was: something is lost or left over");
        }
        for (const once_state& o : once_) verdict_.expect(o.calls <= 1, "call_once() called more than once");
        for (const auto& l : later_) {
            while (!l->stopped && l->runs == 0) dunlin::sleep_for(microseconds(100));
        }
        for (const auto& l : later_) {
            verdict_.expect(
                l->runs == (l->stopped ? 0 : 1), "step ", l->id, ": after_func(), how often it ran: ", l->runs.load());
        }
    }

    struct once_state {
        dunlin::once_flag flag;
        std::atomic<int> calls{0};
        bool done = false;
    };

    const story& story_;
    const plant plant_;
    verdict verdict_;
    context_tree contexts_;
    std::vector<std::unique_ptr<ledger>> ledgers_;
    std::vector<std::unique_ptr<line>> lines_;
    std::vector<std::unique_ptr<std::atomic<unsigned>>> open_;  // of each line: how many may still send
    std::vector<std::unique_ptr<guard>> guards_;
    std::vector<std::unique_ptr<occupancy>> inside_;
    std::vector<once_state> once_;
    std::mutex later_lock_;
    std::vector<std::shared_ptr<later>> later_;
};

}  // namespace fuzz
