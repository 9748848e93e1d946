// explorer.h - runs every interleaving of a protocol's threads, and shows the shortest one in which it breaks.
//
// Search     Breadth first over all states. A state is all of memory, all buffers, and of each thread where it is and
//            its locals. Of the states met only a 64-bit hash is kept: with 10^7 of them the chance to miss one is 3 in
//            a million.
// At rest    A state in which nothing can happen any more: every thread has ended or is blocked. What must be true then
//            is the protocol's to say.
// Livelock   A state from which no way leads to rest is a failure as well. (That some ways go on for ever is none: they
//            are unfair.)
// Idle steps A step that never happens in a protocol that holds proves nothing; never_made() says which.
// See them   DUNLIN_SHOW_INTERLEAVINGS=1 prints what the refuted variants do wrong, and how many states there were.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <set>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "model/protocol.h"

namespace model {

// ---- the search -----------------------------------------------------------------------------------------------------

struct result {
    std::string failure;        // empty: it holds
    std::string interleaving;   // the shortest one that fails
    std::size_t states = 0;
    std::size_t transitions = 0;
    std::size_t rests = 0;
    std::set<std::string> steps, made;  // all there are, and those that some thread has made
};

// For what is large and read all over: in pages of 2 MB it takes a processor little to find the page.
template <class T>
struct large_pages {
    using value_type = T;

    large_pages() = default;
    template <class U>
    large_pages(const large_pages<U>&) {}

    T* allocate(std::size_t n) {
        constexpr std::size_t page = 2 << 20;
        const std::size_t bytes = n * sizeof(T);
        if (bytes < page) return static_cast<T*>(::operator new(bytes));
        const std::size_t whole = (bytes + page - 1) / page * page;
        void* memory = std::aligned_alloc(page, whole);
        if (memory == nullptr) throw std::bad_alloc();
        madvise(memory, whole, MADV_HUGEPAGE);
        return static_cast<T*>(memory);
    }
    void deallocate(T* memory, std::size_t n) {
        n * sizeof(T) < 2 << 20 ? ::operator delete(memory) : std::free(memory);
    }
    bool operator==(const large_pages&) const = default;
};

class explorer {
public:
    explicit explorer(const protocol& model, std::size_t max_states = 20'000'000)
        : model_(model), max_states_(max_states) {
        for (const auto& thread : model.threads) made_.emplace_back(thread.steps.size(), false);
    }

    result run() {
        std::vector<state> now{model_.start}, next;
        add(hash_of(model_.start), {0, 0, 0});
        std::size_t first = 0;  // the node of now[0]
        while (!now.empty() && found_.failure.empty()) {
            const std::size_t first_next = nodes_.size();
            next.clear();
            for (std::size_t i = 0; i < now.size() && found_.failure.empty(); ++i)
                expand(now[i], static_cast<std::uint32_t>(first + i), next);
            first = first_next;
            now.swap(next);
        }
        found_.states = nodes_.size();
        if (found_.failure.empty()) look_for_livelock();
        for (std::size_t i = 0; i < made_.size(); ++i) {
            for (std::size_t at = 0; at < made_[i].size(); ++at) {
                const step& s = model_.threads[i].steps[at];
                const std::string name = std::string(s.label) + " " + s.text;
                found_.steps.insert(name);
                if (made_[i][at]) found_.made.insert(name);
            }
        }
        return found_;
    }

private:
    // How a state was reached. `move` below 128: that way of the thread's step; from there on: that write leaves its
    // buffer.
    struct node {
        std::uint32_t parent;
        std::uint8_t thread;
        std::uint8_t move;
    };
    static constexpr unsigned leaves_buffer = 128;
    struct edge {
        std::uint32_t from, to;
    };
    struct step_to {
        state to;
        node by;
        std::uint64_t hash;
    };

    // All moves first, then the look whether their states are known: the table is in no cache, and by then its lines
    // are on the way.
    void expand(const state& from, std::uint32_t id, std::vector<state>& next) {
        reached_.clear();
        bool moved = false;
        for (unsigned thread = 0; thread < model_.threads.size(); ++thread) {
            unsigned ways = 1;
            for (unsigned i = 0; i < from.threads[thread].buffered; ++i)
                moved |= follow(from, id, thread, leaves_buffer + i, ways);
            for (unsigned way = 0; way < ways && found_.failure.empty(); ++way)
                moved |= follow(from, id, thread, way, ways);
        }
        for (const step_to& r : reached_) {
            const std::size_t before = nodes_.size();
            edges_.push_back({id, add(r.hash, r.by)});
            if (nodes_.size() != before) next.push_back(r.to);
        }
        if (moved || !found_.failure.empty()) return;
        ++found_.rests;
        rests_.push_back(id);
        found_.failure = model_.check_at_rest(view(from));
        if (!found_.failure.empty()) found_.interleaving = trace(id, nullptr);
    }

    // Makes one move. False: it cannot be made. `ways` becomes the number of ways that there are of this step.
    bool follow(const state& from, std::uint32_t id, unsigned thread, unsigned move, unsigned& ways) {
        reached_.push_back({from, {id, static_cast<std::uint8_t>(thread), static_cast<std::uint8_t>(move)}, 0});
        std::string failure;
        if (!make(reached_.back().to, thread, move, ways, nullptr, failure)) {
            reached_.pop_back();
            return false;
        }
        ++found_.transitions;
        if (move < leaves_buffer) made_[thread][from.threads[thread].at] = true;
        if (failure.empty()) {
            step_to& reached = reached_.back();
            reached.hash = hash_of(reached.to);
            __builtin_prefetch(&seen_[reached.hash & (seen_.size() - 1)]);
        } else {
            const node n = reached_.back().by;
            reached_.pop_back();
            found_.failure = failure;
            found_.interleaving = trace(id, &n);
        }
        return true;
    }

    bool make(
        state& s, unsigned thread, unsigned move, unsigned& ways, std::string* notes, std::string& failure) const {
        turn t(model_, s, thread, move, notes);
        thread_state& me = s.threads[thread];
        if (move >= leaves_buffer) {
            if (!t.may_leave(move - leaves_buffer)) return false;
            t.make_visible(move - leaves_buffer);
        } else {
            const program& steps = model_.threads[thread].steps;
            if (me.at == steps.size() || me.waits_for != 0) return false;
            const step& now = steps[me.at++];
            now.act(t);
            ways = t.ways_;
            if (t.blocked_) return false;
            if (me.at == steps.size()) t.forget();
        }
        failure = t.failure_;
        // Whose buffer is empty has now made its fence for every heavy barrier that waits for it.
        unsigned empty = 0;
        for (unsigned i = 0; i < model_.threads.size(); ++i) empty |= (s.threads[i].buffered == 0) << i;
        for (unsigned i = 0; i < model_.threads.size(); ++i)
            s.threads[i].waits_for &= static_cast<std::uint8_t>(~empty);
        return true;
    }

    std::uint64_t hash_of(const state& s) const {
        std::uint64_t hash = mix(0x9e3779b97f4a7c15, s.memory, model_.cell_names.size() * sizeof(value));
        hash = mix(hash, s.threads, model_.threads.size() * sizeof(thread_state));
        return hash + (hash == 0);
    }

    // The number of the state of that hash; a new one was reached by n.
    std::uint32_t add(std::uint64_t hash, const node& n) {
        if (2 * (nodes_.size() + 1) > seen_.size()) grow();
        entry& e = find(hash);
        if (e.hash == hash) return e.node;
        if (nodes_.size() == max_states_) throw std::length_error("too many states for this model");
        e = {hash, static_cast<std::uint32_t>(nodes_.size())};
        nodes_.push_back(n);
        return e.node;
    }

    // Two words at a time, by the whole of their product.
    static std::uint64_t mix(std::uint64_t hash, const void* from, std::size_t bytes) {
        const char* p = static_cast<const char*>(from);
        while (bytes != 0) {
            const std::size_t n = std::min<std::size_t>(bytes, 16);
            std::uint64_t words[2] = {};
            std::memcpy(words, p, n);
            p += n;
            bytes -= n;
            using twice = unsigned __int128;
            const twice product =
                static_cast<twice>(hash ^ words[0] ^ 0xff51afd7ed558ccd) * (words[1] ^ 0xc4ceb9fe1a85ec53);
            hash = hash * 0x9e3779b97f4a7c15 ^ static_cast<std::uint64_t>(product) ^
                   static_cast<std::uint64_t>(product >> 64);
        }
        hash ^= hash >> 32;
        return hash * 0xc4ceb9fe1a85ec53;
    }

    struct entry {
        std::uint64_t hash;  // 0: free
        std::uint32_t node;
    };

    entry& find(std::uint64_t hash) {
        std::size_t i = hash & (seen_.size() - 1);
        while (seen_[i].hash != 0 && seen_[i].hash != hash) i = (i + 1) & (seen_.size() - 1);
        return seen_[i];
    }

    void grow() {
        std::vector<entry, large_pages<entry>> old(std::max<std::size_t>(2 * seen_.size(), 1024));
        old.swap(seen_);
        for (const entry& e : old) {
            if (e.hash != 0) find(e.hash) = e;
        }
    }

    // From the states at rest backwards.
    void look_for_livelock() {
        // By where they lead to: those to node n are before[begins[n]] up to before[begins[n + 1]].
        std::vector<std::uint32_t> begins(nodes_.size() + 2), before(edges_.size());
        for (const edge& e : edges_) ++begins[e.to + 2];
        for (std::size_t n = 2; n < begins.size(); ++n) begins[n] += begins[n - 1];
        for (const edge& e : edges_) before[begins[e.to + 1]++] = e.from;
        std::vector<bool> comes_to_rest(nodes_.size());
        for (const std::uint32_t rest : rests_) comes_to_rest[rest] = true;
        while (!rests_.empty()) {
            const std::uint32_t to = rests_.back();
            rests_.pop_back();
            for (std::uint32_t i = begins[to]; i < begins[to + 1]; ++i) {
                if (comes_to_rest[before[i]]) continue;
                comes_to_rest[before[i]] = true;
                rests_.push_back(before[i]);
            }
        }
        const auto lost = std::find(comes_to_rest.begin(), comes_to_rest.end(), false);
        if (lost == comes_to_rest.end()) return;
        found_.failure = "it goes on for ever";
        found_.interleaving = trace(static_cast<std::uint32_t>(lost - comes_to_rest.begin()), nullptr);
    }

    // The way to that node, and one move more if there is one, in words.
    std::string trace(std::uint32_t id, const node* last) const {
        std::vector<node> path;
        if (last != nullptr) path.push_back(*last);
        for (; id != 0; id = nodes_[id].parent) path.push_back(nodes_[id]);
        std::reverse(path.begin(), path.end());
        std::size_t width = 0;
        for (const auto& thread : model_.threads) width = std::max(width, thread.name.size());
        std::string text;
        state s = model_.start;
        for (std::size_t i = 0; i < path.size(); ++i) {
            const node& n = path[i];
            const state before = s;
            std::string notes, failure;
            unsigned ways = 1;
            make(s, n.thread, n.move, ways, &notes, failure);
            if (ways > 1)
                notes +=
                    (notes.empty() ? "way " : ", way ") + std::to_string(n.move + 1) + " of " + std::to_string(ways);
            for (std::size_t c = 0; c < model_.cell_names.size(); ++c) {
                if (before.memory[c] == s.memory[c]) continue;
                notes += (notes.empty() ? "" : ", ") + model_.cell_names[c] + " " + std::to_string(before.memory[c]) +
                         " -> " + std::to_string(s.memory[c]);
            }
            const auto& thread = model_.threads[n.thread];
            std::string line = std::string(i < 9 ? 5 : 4, ' ') + std::to_string(i + 1) + "  " + thread.name;
            line += std::string(width - thread.name.size() + 2, ' ');
            if (n.move >= leaves_buffer) {
                line += "..   (a buffered write becomes visible)";
            } else {
                const step& made = thread.steps[before.threads[n.thread].at];
                line +=
                    made.label + std::string(5 - std::min<std::size_t>(4, std::strlen(made.label)), ' ') + made.text;
            }
            text += line +
                    (notes.empty() ? "" : std::string(line.size() < 80 ? 80 - line.size() : 1, ' ') + "| " + notes) +
                    "\n";
        }
        return text;
    }

    const protocol& model_;
    const std::size_t max_states_;
    std::vector<node> nodes_;
    std::vector<entry, large_pages<entry>> seen_;
    std::vector<edge> edges_;
    std::vector<std::uint32_t> rests_;
    std::vector<step_to> reached_;  // from the state that is expanded
    std::vector<std::vector<bool>> made_;
    result found_;
};

// ---- in tests -------------------------------------------------------------------------------------------------------

inline bool show_interleavings() { return std::getenv("DUNLIN_SHOW_INTERLEAVINGS") != nullptr; }

inline result explore(const protocol& model) {
    result r = explorer(model).run();
    if (show_interleavings()) {
        std::cout << r.states << " states, " << r.transitions << " moves, " << r.rests << " at rest\n";
        if (!r.failure.empty()) std::cout << r.failure << ":\n" << r.interleaving;
    }
    return r;
}

// The steps that happen in none of these models.
template <class... Protocols>
std::set<std::string> never_made(const Protocols&... models) {
    std::set<std::string> never;
    const result results[] = {explore(models)...};
    for (const result& r : results) never.insert(r.steps.begin(), r.steps.end());
    for (const result& r : results) {
        for (const std::string& step : r.made) never.erase(step);
    }
    return never;
}

// EXPECT_TRUE(holds(m)): no interleaving fails.
inline testing::AssertionResult holds(const protocol& model) {
    const result r = explore(model);
    if (!r.failure.empty()) return testing::AssertionFailure() << r.failure << ":\n" << r.interleaving;
    return testing::AssertionSuccess();
}

// EXPECT_TRUE(breaks(m, "what then goes wrong")): the model finds that a step which was taken out was needed, and for
// this reason.
inline testing::AssertionResult breaks(const protocol& model, const std::string& how) {
    const result r = explore(model);
    if (r.failure == how) return testing::AssertionSuccess();
    if (r.failure.empty())
        return testing::AssertionFailure()
               << "the variant holds in all " << r.states << " states, but should break: " << how;
    return testing::AssertionFailure() << "the variant breaks otherwise than expected (" << how << "): " << r.failure
                                       << ":\n"
                                       << r.interleaving;
}

}  // namespace model
