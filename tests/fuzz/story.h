// story.h - a random program as data: drawn from a seed, printed, and cut shorter.
//
// Data       Actors (goroutines and plain threads) with their steps; what the steps use, by number: lines (channels and
//            other things that values go through), guards (locks and semaphores), contexts, flags of call_once().
// Ends       Whatever the schedule, every program ends, so one that does not has found a fault:
//            * Each line has a drainer, which receives until the line is closed and waits for nothing else. So every
//              send ends.
//            * A line is closed when all actors that may send on it have ended. An actor waits without a limit only for
//              values of lines below all of those that it sends on. So line 0 is closed, then line 1, ...
//            * Guards are taken in the order of their numbers, and given back. With one an actor waits without a
//              limit only for guards of higher numbers, and to send.
//            * A parent waits for its children with no guard in hand; they keep to the same rules, as parts of it.
//            * Contexts are waited for with a limit, or have a deadline.
//            Taking steps or actors away leaves all of this true.
// New ones   A verb here (the enum, the generator, `words`), what it does in play.h, and what must hold in oracle.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace fuzz {

// splitmix64: the same numbers everywhere, which the distributions of std do not promise.
class random {
public:
    explicit random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }
    unsigned below(unsigned n) { return static_cast<unsigned>(next() % n); }
    unsigned from_to(unsigned a, unsigned b) { return a + below(b - a + 1); }
    bool one_in(unsigned n) { return below(n) == 0; }
    template <class T, std::size_t N>
    T any(const T (&of)[N]) {
        return of[below(N)];
    }

private:
    std::uint64_t state_;
};

#define FUZZ_VERBS(X)                                                                                                 \
    X(send) X(recv) X(try_send) X(try_recv) X(select) X(select_loop) X(close) X(hold) X(share) X(cancel) X(await)     \
    X(sleep) X(yield) X(burn) X(block) X(timer) X(after_func) X(once) X(wait_group) X(tasks) X(task_group)            \
    X(promise) X(latch) X(barrier) X(watch) X(broadcast) X(notify) X(singleflight) X(retry) X(task_set)

enum class verb : std::uint8_t {
#define FUZZ_VERB(name) name,
    FUZZ_VERBS(FUZZ_VERB)
#undef FUZZ_VERB
};
#define FUZZ_VERB(name) +1
inline constexpr unsigned verbs = 0 FUZZ_VERBS(FUZZ_VERB);
#undef FUZZ_VERB

inline const char* word(verb v) {
    constexpr const char* words[] = {
#define FUZZ_VERB(name) #name,
        FUZZ_VERBS(FUZZ_VERB)
#undef FUZZ_VERB
    };
    return words[static_cast<int>(v)];
}

enum class line_kind : std::uint8_t { channel, queue, pipe, socket };
// The kernel holds what was sent, as much as it likes, and one end of it is closed, once.
inline bool carries_records(line_kind k) { return k == line_kind::pipe || k == line_kind::socket; }

enum class guard_kind : std::uint8_t { mutex, recursive_mutex, shared_mutex, std_mutex, semaphore, weighted };
enum class limit_kind : std::uint8_t { none, context, time };

struct limit_of {
    limit_kind how = limit_kind::none;
    unsigned amount = 0;  // the context's number; microseconds
};

struct step {
    verb what;
    unsigned id = 0;       // for cutting
    unsigned object = 0;   // line, guard, context, flag
    unsigned amount = 0;   // microseconds, and whatever the verb says
    limit_of limit = {};
    std::vector<step> body = {};                   // of hold and share; the cases of select
    std::vector<std::vector<step>> children = {};  // of wait_group and what comes after it
    unsigned first_child = 0;                      // the children's numbers as senders begin here
};

struct line_of {
    line_kind kind;
    unsigned capacity;
    unsigned drainers_pause;  // microseconds between two values
    bool drained_by_thread;
};
struct guard_of {
    guard_kind kind;
    unsigned permits;
};
struct context_of {
    int parent;         // -1: the background
    unsigned deadline;  // microseconds after the beginning; 0: none
};
struct actor_of {
    bool on_thread;
    unsigned sends_from;  // the lowest line it may send on
    unsigned repeats;     // so many times it plays its steps
    std::vector<step> steps;
};

struct story {
    std::uint64_t seed = 0;
    std::vector<line_of> lines;
    std::vector<guard_of> guards;
    bool simulated = false;  // no plain threads, and no real time
    std::vector<context_of> contexts;
    std::vector<actor_of> actors;
    unsigned flags = 2;
    unsigned senders = 0;  // actors and children, each with a number of its own
};

// ---- drawing -------------------------------------------------------------------------------------------------------

class author {
public:
    explicit author(std::uint64_t seed) : r_(seed * 2 + 1) { s_.seed = seed; }

    story write() {
        for (unsigned n = r_.from_to(1, 4); n > 0; --n) draw_line();
        for (unsigned n = r_.from_to(1, 4); n > 0; --n) draw_guard();
        for (unsigned n = r_.from_to(1, 4); n > 0; --n) draw_context();
        const unsigned actors = r_.from_to(2, 10);
        s_.senders = actors;
        for (unsigned i = 0; i < actors; ++i) {
            actor_of a{r_.below(10) < 3, r_.below(static_cast<unsigned>(s_.lines.size()) + 1), r_.from_to(1, 4), {}};
            sends_from_ = a.sends_from;
            a.steps = draw_steps(r_.from_to(3, 20), 0, 0);
            s_.actors.push_back(std::move(a));
        }
        return std::move(s_);
    }

private:
    void draw_line() {
        constexpr line_kind kinds[] = {
            line_kind::channel, line_kind::channel, line_kind::channel, line_kind::queue, line_kind::pipe,
            line_kind::socket};
        constexpr unsigned capacities[] = {0, 0, 1, 2, 3, 16};
        const line_kind k = r_.any(kinds);
        unsigned capacity = r_.any(capacities);
        if (k == line_kind::queue && capacity == 0) capacity = 1;
        s_.lines.push_back({k, capacity, r_.one_in(2) ? r_.below(300) : 0, r_.one_in(4)});
    }
    void draw_guard() {
        constexpr guard_kind kinds[] = {guard_kind::mutex, guard_kind::mutex, guard_kind::recursive_mutex,
            guard_kind::shared_mutex, guard_kind::shared_mutex, guard_kind::std_mutex, guard_kind::semaphore,
            guard_kind::semaphore, guard_kind::weighted};
        s_.guards.push_back({r_.any(kinds), r_.from_to(1, 3)});
    }
    void draw_context() {
        const unsigned made = static_cast<unsigned>(s_.contexts.size());
        const int parent = made == 0 ? -1 : static_cast<int>(r_.below(made + 1)) - 1;
        s_.contexts.push_back({parent, r_.one_in(2) ? 0 : r_.from_to(1, 12'000)});
    }

    unsigned any_context() { return r_.below(static_cast<unsigned>(s_.contexts.size())); }
    limit_of draw_limit(bool may_be_none) {
        switch (r_.below(may_be_none ? 4 : 2)) {
        case 0: return {limit_kind::time, r_.below(800)};
        // A context need not end; with it alone a wait may have no end.
        case 1:
            return may_be_none ? limit_of{limit_kind::context, any_context()}
                               : limit_of{limit_kind::time, r_.below(100)};
        default: return {};
        }
    }

    // `lowest`: the first guard that may be taken; above 0: with one in hand. `depth`: of children.
    std::vector<step> draw_steps(unsigned n, unsigned lowest, unsigned depth) {
        std::vector<step> all;
        for (; n > 0; --n) all.push_back(draw_step(lowest, depth));
        return all;
    }

    step draw_step(unsigned lowest, unsigned depth) {
        for (;;) {
            step s{static_cast<verb>(r_.below(verbs))};
            s.id = ++ids_;
            if (fill(s, lowest, depth)) return s;
        }
    }

    bool fill(step& s, unsigned lowest, unsigned depth) {
        const unsigned lines = static_cast<unsigned>(s_.lines.size());
        switch (s.what) {
        case verb::send:
        case verb::try_send:
            if (sends_from_ == lines) return false;
            s.object = r_.from_to(sends_from_, lines - 1);
            s.limit = draw_limit(true);
            return true;
        case verb::recv: {
            s.object = r_.below(lines);
            s.limit = draw_limit(lowest == 0 && s.object < sends_from_);
            return true;
        }
        case verb::try_recv: s.object = r_.below(lines); return true;
        case verb::close:
            s.object = r_.below(lines);
            return r_.one_in(6) && !carries_records(s_.lines[s.object].kind);
        case verb::select:
        case verb::select_loop: return fill_select(s);
        case verb::hold:
        case verb::share: return fill_guard(s, lowest, depth);
        case verb::cancel: s.object = any_context(); return r_.one_in(3);
        case verb::await:
            s.object = any_context();
            s.limit = draw_limit(lowest == 0 && s_.contexts[s.object].deadline != 0);
            return true;
        case verb::sleep:
            s.amount = r_.below(1000);
            s.limit = r_.one_in(2) ? limit_of{limit_kind::context, any_context()} : limit_of{};
            return true;
        case verb::burn: s.amount = r_.one_in(60) ? 12'000 : r_.below(150); return true;
        case verb::block: s.amount = r_.below(400); return true;
        case verb::timer:
        case verb::after_func: s.amount = r_.below(1500); return true;
        case verb::once: s.object = r_.below(s_.flags); return true;
        case verb::yield: return true;
        default: return lowest == 0 && depth < 2 && fill_children(s, depth);
        }
    }

    // Channels only. With a time-out, so that it ends in any case.
    bool fill_select(step& s) {
        const unsigned lines = static_cast<unsigned>(s_.lines.size());
        for (unsigned n = r_.from_to(1, 4); n > 0; --n) {
            step c{r_.one_in(2) ? verb::send : verb::recv};
            c.object = r_.below(lines);
            if (s_.lines[c.object].kind != line_kind::channel) continue;
            if (c.what == verb::send && c.object < sends_from_) c.what = verb::recv;
            s.body.push_back(c);
        }
        if (r_.one_in(4)) {
            step c{verb::await};
            c.object = any_context();
            s.body.push_back(c);
        }
        s.amount = s.what == verb::select && r_.one_in(4) ? 0 : r_.from_to(1, 600);
        return !s.body.empty();
    }

    bool fill_guard(step& s, unsigned lowest, unsigned depth) {
        const unsigned guards = static_cast<unsigned>(s_.guards.size());
        if (lowest == guards) return false;
        s.object = r_.from_to(lowest, guards - 1);
        const guard_kind k = s_.guards[s.object].kind;
        const bool is_shared = k == guard_kind::shared_mutex || k == guard_kind::weighted;
        if (!is_shared && s.what == verb::share) s.what = verb::hold;
        if (k == guard_kind::std_mutex) {  // its holder must not leave its thread
            step c{verb::burn};
            c.amount = r_.below(50);
            s.body.push_back(c);
            return true;
        }
        s.limit = draw_limit(true);
        s.body = draw_steps(r_.below(4), s.object + 1, depth);
        return true;
    }

    bool fill_children(step& s, unsigned depth) {
        const unsigned n = r_.from_to(1, 4);
        s.limit = draw_limit(true);
        s.amount = r_.below(4);
        s.first_child = s_.senders;
        s_.senders += n;
        for (unsigned i = 0; i < n; ++i) s.children.push_back(draw_steps(r_.below(4), 0, depth + 1));
        return true;
    }

    random r_;
    story s_;
    unsigned sends_from_ = 0;
    unsigned ids_ = 0;
};

inline story story_of(std::uint64_t seed) { return author(seed).write(); }

// ---- cutting -------------------------------------------------------------------------------------------------------

struct cuts {
    std::set<unsigned> actors, steps;
};

inline void cut(std::vector<step>& steps, const std::set<unsigned>& ids) {
    std::erase_if(steps, [&](const step& s) { return s.id != 0 && ids.contains(s.id); });
    for (step& s : steps) {
        cut(s.body, ids);
        for (auto& child : s.children) cut(child, ids);
    }
}

inline void cut(story& s, const cuts& c) {
    for (unsigned i = 0; i < s.actors.size(); ++i) {
        if (c.actors.contains(i)) s.actors[i].steps.clear();
        cut(s.actors[i].steps, c.steps);
    }
}

// ---- printing ------------------------------------------------------------------------------------------------------

inline void print(std::ostream& out, const std::vector<step>& steps, unsigned depth);

inline void print(std::ostream& out, const step& s, unsigned depth) {
    out << std::string(4 + 2 * depth, ' ');
    if (s.id != 0) out << '#' << s.id << ' ';
    out << word(s.what) << ' ' << s.object;
    if (s.amount != 0) out << ", amount " << s.amount;
    if (s.limit.how == limit_kind::context) out << ", until context " << s.limit.amount;
    if (s.limit.how == limit_kind::time) out << ", for " << s.limit.amount << " us";
    out << '\n';
    print(out, s.body, depth + 1);
    for (unsigned i = 0; i < s.children.size(); ++i) {
        out << std::string(6 + 2 * depth, ' ') << "child " << s.first_child + i << ":\n";
        print(out, s.children[i], depth + 2);
    }
}

inline void print(std::ostream& out, const std::vector<step>& steps, unsigned depth) {
    for (const step& s : steps) print(out, s, depth);
}

inline std::string to_string(const story& s) {
    constexpr const char* lines[] = {"channel", "queue (mutex, condition variables)", "pipe", "pair of sockets"};
    constexpr const char* guards[] = {"mutex", "recursive_mutex", "shared_mutex", "std::mutex", "semaphore",
        "weighted_semaphore"};
    std::ostringstream out;
    for (unsigned i = 0; i < s.lines.size(); ++i) {
        out << "  line " << i << ": " << lines[static_cast<int>(s.lines[i].kind)] << ", capacity "
            << s.lines[i].capacity << '\n';
    }
    for (unsigned i = 0; i < s.guards.size(); ++i) {
        out << "  guard " << i << ": " << guards[static_cast<int>(s.guards[i].kind)];
        if (s.guards[i].kind == guard_kind::semaphore) out << " of " << s.guards[i].permits;
        out << '\n';
    }
    for (unsigned i = 0; i < s.contexts.size(); ++i) {
        out << "  context " << i << ": of " << s.contexts[i].parent;
        if (s.contexts[i].deadline != 0) out << ", deadline after " << s.contexts[i].deadline << " us";
        out << '\n';
    }
    for (unsigned i = 0; i < s.actors.size(); ++i) {
        if (s.actors[i].steps.empty()) continue;
        out << "  actor " << i << (s.actors[i].on_thread ? ", a plain thread" : ", a goroutine") << ", "
            << s.actors[i].repeats << " times:\n";
        print(out, s.actors[i].steps, 0);
    }
    return out.str();
}

// All that can be cut away, as cutting names it: "a3" an actor, "17" a step.
inline void names(std::vector<std::string>& all, const std::vector<step>& steps) {
    for (const step& s : steps) {
        if (s.id != 0) all.push_back(std::to_string(s.id));
        names(all, s.body);
        for (const auto& child : s.children) names(all, child);
    }
}
inline std::vector<std::string> names(const story& s) {
    std::vector<std::string> all;
    for (unsigned i = 0; i < s.actors.size(); ++i) {
        if (!s.actors[i].steps.empty()) all.push_back("a" + std::to_string(i));
    }
    for (const actor_of& a : s.actors) names(all, a.steps);
    return all;
}

}  // namespace fuzz
