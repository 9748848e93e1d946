// abandon.h - the abandoned wait: what must hold for everything that can be waited for, whatever it is.
//
// Claim      After one of the waiters has given up, each that could proceed does, and nothing is lost: no permit,
//            value, lock or wake-up.
// Data       A subject is one thing that can be waited for, behind four functions: wait (what a waiter calls, with a
//            limit or none), serve (what lets one waiter proceed, or all of them), close, and rest (what is left over
//            when all is over). A scenario is a subject, a way in which the wait of one of its waiters (the quitter)
//            ends, the quitter's place in the queue, and on what the waiters and the server run: goroutines or plain
//            threads.
// Protocol   1  The waiters are started one after another, each when the one before waits or has returned.
//            2  The quitter's wait is ended in the scenario's way; in a race at the same moment as one serve().
//            3  serve() for the waiters that are left, once for each of them, or once for all; each time one of them,
//               or all, must return with what it waits for.
//            4  As many were served as serve() was called for, and rest() finds nothing.
//            What does not return is named by the watchdog's dump: the driver of a scenario has the scenario's name.
// New ones   A subject and a line in the table of abandoned_wait_test.cpp.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <sys/syscall.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "sched/data/types.h"
#include "sched/goroutines/goroutine.h"
#include "support/build.h"

namespace abandon {

using namespace std::chrono_literals;

enum class outcome { got, cancelled, timed_out, closed, wrong };

inline const char* name(outcome o) {
    constexpr const char* names[] = {"got it", "cancelled", "timed out", "closed", "ended in another way"};
    return names[static_cast<int>(o)];
}

// What a waiter waits for at most: nothing, a context, or so long.
struct limit {
    enum { none, context, time } how = none;
    dunlin::context ctx = {};
    std::chrono::nanoseconds d{};
};

namespace detail {

// A call that returns nothing, or true, has got it; one that returns false was too late.
template <class F>
outcome outcome_of(F&& f) {
    if constexpr (std::is_void_v<std::invoke_result_t<F&>>) {
        f();
        return outcome::got;
    } else if constexpr (std::is_same_v<std::invoke_result_t<F&>, outcome>) {
        return f();
    } else {
        return f() ? outcome::got : outcome::timed_out;
    }
}

inline outcome end_of(const std::error_code& code) {
    if (code == dunlin::errc::closed || code == dunlin::errc::channel_closed) return outcome::closed;
    if (code == dunlin::errc::cancelled) return outcome::cancelled;
    if (code == dunlin::errc::deadline_exceeded || code == std::errc::timed_out) return outcome::timed_out;
    return outcome::wrong;
}

}  // namespace detail

// Calls the form for the limit: plain(), with(context), timed(duration). Rows without a timed form give nullptr.
template <class Plain, class With, class Timed = std::nullptr_t>
outcome call(const limit& l, Plain plain, With with, Timed timed = nullptr) {
    try {
        switch (l.how) {
        case limit::none: return detail::outcome_of(plain);
        case limit::context: return detail::outcome_of([&] { return with(l.ctx); });
        case limit::time:
            if constexpr (!std::is_null_pointer_v<Timed>) return detail::outcome_of([&] { return timed(l.d); });
        }
    } catch (const std::future_error& e) {
        return e.code() == std::future_errc::broken_promise ? outcome::closed : outcome::wrong;
    } catch (const std::system_error& e) {
        return detail::end_of(e.code());
    } catch (const std::exception&) {
    }
    return outcome::wrong;
}

// What can be done with a subject, and what it is like.
struct traits {
    bool timed = false;         // has a form with a duration
    bool closes = false;        // close() ends all waits with outcome::closed
    bool for_all = false;       // one serve() is for all waiters
    bool freed_by_leaver = false;  // the others get it when the quitter gives up: serve() is for the quitter
    bool quits = true;          // its waits can be given up at all
    bool destroys = false;      // may be destroyed when the last wait has returned: destroy()
    int waiters = 3;            // 1: one at a time may wait for it
};

class subject {
public:
    virtual ~subject() = default;
    // On a waiter's own goroutine or thread; `quitter`: the one that may give up.
    virtual outcome wait(const limit& l, bool quitter) = 0;
    // On the server's.
    virtual void serve() = 0;
    virtual void close() {}
    // When all waiters have returned and `served` of them got it: what is wrong; empty: nothing.
    virtual std::string rest(int served) = 0;
    // Destroys what is waited for, while the serve() that ended the last wait may not have returned yet.
    virtual void destroy() {}
};

enum class kind { goroutine, thread };
enum class way { success, cancel, deadline, time_out, close, destroyed, cancel_race, time_race };

inline const char* name(way w) {
    constexpr const char* names[] = {
        "success", "cancel", "deadline", "time-out", "close", "destroyed", "race with cancel", "race with time-out"};
    return names[static_cast<int>(w)];
}
inline const char* name(kind k) { return k == kind::goroutine ? "goroutine" : "thread"; }

// The driver's own waiting: it relies on nothing that is tested here.
template <class Condition>
void until(Condition condition) {
    for (int i = 0; !condition(); ++i) {
        dunlin::yield();
        if (i > 200) dunlin::sleep_for(50us);
    }
}

// A function on a goroutine or a plain thread of its own.
class actor {
public:
    actor(kind k, std::function<void()> f) : body_(std::make_shared<body>()) {
        body_->f = std::move(f);
        if (k == kind::thread) {
            thread_ = std::thread([b = body_] {
                b->thread.store(static_cast<int>(syscall(SYS_gettid)));
                b->run();
            });
        } else {
            dunlin::go({.name = "waiter"}, [b = body_] {
                b->goroutine.store(dunlin::sched::current_goroutine());
                b->run();
            });
        }
    }
    actor(const actor&) = delete;
    ~actor() { join(); }
    void join() {
        until([this] { return done(); });
        if (thread_.joinable()) thread_.join();
    }
    bool done() const { return body_->done.load(); }
    // In a wait, as far as can be seen from outside; of a thread: it sleeps in the kernel.
    bool waits() const {
        if (const auto* g = body_->goroutine.load()) return g->state.load() == dunlin::sched::goroutine_state::waiting;
        const int id = body_->thread.load();
        return id != 0 && sleeps(id);
    }

private:
    struct body {
        std::function<void()> f;
        std::atomic<const dunlin::sched::goroutine*> goroutine{nullptr};
        std::atomic<int> thread{0};
        std::atomic<bool> done{false};
        void run() {
            f();
            f = nullptr;
            goroutine.store(nullptr);
            thread.store(0);
            done.store(true);
        }
    };
    static bool sleeps(int id) {
        char path[64], text[512];
        std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", id);
        std::FILE* file = std::fopen(path, "re");
        if (file == nullptr) return false;
        const std::size_t n = std::fread(text, 1, sizeof text - 1, file);
        std::fclose(file);
        text[n] = '\0';
        const char* end = std::strrchr(text, ')');
        return end != nullptr && end[1] == ' ' && end[2] == 'S';
    }

    std::shared_ptr<body> body_;
    std::thread thread_;
};

struct scenario {
    way how;
    int place;           // the quitter's in the queue: 0, 1, 2
    kind quitter, others;
    unsigned jitter = 0;  // of the races, in microseconds
};

inline std::string name(const scenario& s, const char* row) {
    constexpr const char* places[] = {"first", "middle", "last"};
    return std::string(row) + ": " + name(s.how) + ", " + places[s.place] + ", quitter on a " + name(s.quitter) +
           ", others on a " + name(s.others);
}

// One scenario with one subject. What went wrong; empty: nothing.
class play {
public:
    play(std::unique_ptr<subject> s, const traits& t, const scenario& how)
        : subject_(std::move(s)), traits_(t), how_(how) {}

    std::string run() {
        queue_up();
        end_the_quitters_wait();
        if (how_.how == way::close) return fault_;
        serve_the_rest();
        if (how_.how != way::destroyed && fault_.empty()) fault_ = subject_->rest(served_);
        return fault_;
    }

private:
    struct waiter {
        outcome result = outcome::wrong;
        std::chrono::nanoseconds waited{};
        std::unique_ptr<actor> who;
    };

    static constexpr auto patience = 4ms;  // of a quitter that times out: until all stand in the queue, mostly

    bool races() const { return how_.how == way::cancel_race || how_.how == way::time_race; }
    int quitter() const { return traits_.waiters == 1 ? 0 : how_.place; }

    limit quitters_limit() {
        switch (how_.how) {
        case way::success:
        case way::close: return {};
        case way::time_out: return {limit::time, {}, patience};
        case way::time_race:
            if (traits_.timed) return {limit::time, {}, patience};
            [[fallthrough]];
        case way::deadline: return {limit::context, dunlin::with_timeout({}, patience), {}};
        default: return {limit::context, cancel_, {}};
        }
    }

    void queue_up() {
        begun_ = dunlin::clock::now();
        waiters_.resize(static_cast<std::size_t>(traits_.waiters));
        for (int i = 0; i < traits_.waiters; ++i) {
            waiter& w = waiters_[static_cast<std::size_t>(i)];
            const bool quits = i == quitter();
            const auto wait = [this, &w, quits, l = quits ? quitters_limit() : limit{}] {
                const auto begin = dunlin::clock::now();
                w.result = subject_->wait(l, quits);
                w.waited = dunlin::clock::now() - begin;
            };
            w.who = std::make_unique<actor>(quits ? how_.quitter : how_.others, wait);
            until([&] { return w.who->done() || w.who->waits(); });
        }
    }

    void end_the_quitters_wait() {
        waiter& q = waiters_[static_cast<std::size_t>(quitter())];
        switch (how_.how) {
        case way::success: return;
        case way::close:
            subject_->close();
            for (waiter& w : waiters_) {
                w.who->join();
                expect(w.result == outcome::closed, "a wait ended by close()", w.result);
            }
            return;
        case way::cancel_race:
        case way::time_race: return race(q);
        case way::cancel:
        case way::destroyed: cancel_.cancel(); break;
        default: break;
        }
        q.who->join();
        const bool by_cancel = how_.how == way::cancel || how_.how == way::destroyed;
        expect(q.result == (by_cancel ? outcome::cancelled : outcome::timed_out), "the quitter", q.result);
        // A context's deadline was set before the wait began.
        if (how_.how == way::time_out) expect(q.waited >= patience, "the quitter, too early,", q.result);
    }

    // One serve() while the quitter gives up: it gets what was served, or another does.
    void race(waiter& q) {
        if (how_.how == way::time_race) {
            const auto moment = begun_ + patience + std::chrono::microseconds(how_.jitter) - 50us;
            dunlin::sleep_until(moment);
        }
        if (how_.how == way::cancel_race && how_.jitter % 2 == 0) {
            // The quitter is told to give up and has not yet gone: the server meets it in the queue.
            cancel_.cancel();
            subject_->serve();
        } else {
            actor server(how_.quitter, [this] { subject_->serve(); });
            if (how_.how == way::cancel_race) {
                for (unsigned i = 1; i < how_.jitter; ++i) dunlin::yield();
                cancel_.cancel();
            }
        }
        q.who->join();
        expect(q.result != outcome::wrong && q.result != outcome::closed, "the quitter", q.result);
        calls_ = 1;
        until([this] { return done(outcome::got) >= (traits_.for_all ? others() : 1); });
        if (!traits_.for_all && !traits_.freed_by_leaver) {
            expect(done(outcome::got) == 1, "those served by one serve()", q.result);
        }
    }

    void serve_the_rest() {
        if (traits_.freed_by_leaver && how_.how != way::success) {
            join_all();  // without a serve()
        } else if (traits_.for_all) {
            if (calls_ == 0) serve_once(traits_.waiters);
            join_all();
        } else {
            for (int left = traits_.waiters - done_in_all(); left > 0; --left) serve_once(left);
        }
        for (const waiter& w : waiters_) {
            if (&w != &waiters_[static_cast<std::size_t>(quitter())] || how_.how == way::success) {
                expect(w.result == outcome::got, "one who stayed", w.result);
            }
        }
        served_ = done(outcome::got);
    }

    void serve_once(int left) {
        const int before = done_in_all();
        actor server(how_.quitter, [this] { subject_->serve(); });
        ++calls_;
        const bool last = left == 1 || traits_.for_all;
        // A single waiter that has given up left no other to wait for: what was served is looked for in rest().
        until([&] { return done_in_all() > before || before == traits_.waiters; });
        if (last) join_all();
        if (last && how_.how == way::destroyed) subject_->destroy();
    }

    void join_all() {
        for (waiter& w : waiters_) w.who->join();
    }
    int others() const { return traits_.waiters - 1; }
    int done_in_all() const {
        int n = 0;
        for (const waiter& w : waiters_) n += w.who->done();
        return n;
    }
    int done(outcome o) const {
        int n = 0;
        for (const waiter& w : waiters_) n += w.who->done() && w.result == o;
        return n;
    }
    void expect(bool right, const char* what, outcome o) {
        if (!right && fault_.empty()) fault_ = std::string(what) + ": " + name(o);
    }

    std::unique_ptr<subject> subject_;
    const traits& traits_;
    const scenario how_;
    const dunlin::cancellable cancel_ = dunlin::with_cancel({});
    dunlin::clock::time_point begun_;
    std::string fault_;
    int calls_ = 0, served_ = 0;
    std::vector<waiter> waiters_;  // last: their threads use the others
};

}  // namespace abandon
