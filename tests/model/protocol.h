// protocol.h - how a protocol is written down for the explorer: threads as tables of steps, and the memory that they
// share.
//
// Thread     A table of steps, {label, text, action}, in the words and with the labels of the protocol it stands for.
//            An action makes at most one access to shared memory; this is checked. Taking a row out (program::without)
//            is taking that step out of the protocol.
// Memory     sequential  every access takes effect at once.
//            tso         x86: a store waits in its thread's buffer, first in first out, and becomes visible at any
//                        later moment. The thread itself sees it at once. Read-modify-writes and fences empty the
//                        buffer.
//            weak        as tso, but stores leave the buffer in any order (a releasing one after all before it), and a
//                        read-modify-write whose result is not used waits there as well: it is no fence for the loads
//                        after it, as on aarch64. Loads are in order.
// Barrier    heavy_barrier() is a fence in every thread, at some moment of each thread's own between its beginning and
//            its end: a moment at which that thread's buffer is empty.
// Guarded    What a lock protects is read and written at once and without a step of its own: the buffer's order keeps
//            it behind the unlock. Ghost variables, which only the proof has, are the same. A cell that one thread also
//            stores to must not be read as guarded by that thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace model {

enum class memory { sequential, tso, weak };

using value = std::uint16_t;

struct cell {
    std::uint8_t index = 0;
};

inline constexpr unsigned max_cells = 24;
inline constexpr unsigned max_threads = 5;
inline constexpr unsigned max_locals = 6;
inline constexpr unsigned max_buffered = 4;

// ---- a state --------------------------------------------------------------------------------------------------------

enum class kind : std::uint8_t { none, store, release, add };

struct buffered_write {
    std::uint8_t cell;
    kind how;
    value what;
};

struct thread_state {
    value locals[max_locals];
    std::uint8_t at;            // the row that comes next; the number of rows: ended
    std::uint8_t back_to;       // where a called row returns to
    std::uint8_t waits_for;     // heavy barrier: the threads that have not made their fence yet
    std::uint8_t buffered;
    buffered_write buffer[max_buffered];
};

struct state {
    value memory[max_cells];
    thread_state threads[max_threads];
};
static_assert(std::has_unique_object_representations_v<state>);  // it is hashed as bytes

// ---- a model --------------------------------------------------------------------------------------------------------

class turn;

struct step {
    const char* label;
    std::string text;
    std::function<void(turn&)> act;
};

class program : public std::vector<step> {
public:
    using std::vector<step>::vector;

    program& operator+=(const program& more) {
        insert(end(), more.begin(), more.end());
        return *this;
    }

    unsigned find(std::string_view label) const {
        for (unsigned i = 0; i < size(); ++i) {
            if (label == (*this)[i].label) return i;
        }
        throw std::logic_error("no step " + std::string(label));
    }

    // All rows of that label.
    program without(std::string_view label) const {
        find(label);
        program rest;
        for (const step& s : *this) {
            if (label != s.label) rest.push_back(s);
        }
        return rest;
    }
};

class view {
public:
    explicit view(const state& s) : state_(s) {}
    value operator[](cell c) const { return state_.memory[c.index]; }

private:
    const state& state_;
};

class protocol {
public:
    explicit protocol(memory m) : memory_model(m) {}

    cell make(std::string name, value initial = 0) {
        if (cell_names.size() == max_cells) throw std::logic_error("too many cells");
        start.memory[cell_names.size()] = initial;
        cell_names.push_back(std::move(name));
        return {static_cast<std::uint8_t>(cell_names.size() - 1)};
    }

    void thread(std::string name, program steps) {
        if (threads.size() == max_threads) throw std::logic_error("too many threads");
        threads.push_back({std::move(name), std::move(steps)});
    }

    // What is wrong at rest; empty: nothing.
    void at_rest(std::function<std::string(const view&)> check) { check_at_rest = std::move(check); }

    struct thread_model {
        std::string name;
        program steps;
    };

    const memory memory_model;
    state start{};
    std::vector<std::string> cell_names;
    std::vector<thread_model> threads;
    std::function<std::string(const view&)> check_at_rest = [](const view&) { return std::string(); };
};

// ---- what an action can do ------------------------------------------------------------------------------------------

class turn {
public:
    turn(const protocol& model, state& s, unsigned thread, unsigned way, std::string* notes)
        : model_(model),
          state_(s),
          me_(s.threads[thread]),
          steps_(model.threads[thread].steps),
          thread_(thread),
          way_(way),
          notes_(notes) {}

    // -- shared memory: one of these in each step

    value load(cell c) {
        access();
        const value v = own_view(c);
        note([&] { return "reads " + name(c) + " = " + std::to_string(v); });
        return v;
    }

    // Relaxed or, which makes a difference in weak memory only, releasing.
    void store(cell c, value v) { write(c, v, kind::store); }
    void store_release(cell c, value v) { write(c, v, kind::release); }

    // A read-modify-write without use of the result.
    void add(cell c, int delta) {
        access();
        if (model_.memory_model == memory::weak) {
            buffer(c, static_cast<value>(delta), kind::add);
        } else {
            drain();
            state_.memory[c.index] = static_cast<value>(state_.memory[c.index] + delta);
        }
    }

    // A read-modify-write that has succeeded, retries included. `change(old)` says the new value, or none: then it was
    // only a load.
    template <class Change>
    bool update(cell c, Change change) {
        access();
        if (pending(c)) drain();
        const std::optional<value> next = change(state_.memory[c.index]);
        if (!next) {
            note([&] { return "reads " + name(c) + " = " + std::to_string(state_.memory[c.index]); });
            return false;
        }
        drain();
        state_.memory[c.index] = *next;
        return true;
    }

    bool cas(cell c, value expected, value desired) {
        return update(c, [=](value old) { return old == expected ? std::optional<value>(desired) : std::nullopt; });
    }
    value exchange(cell c, value v) {
        value before = 0;
        update(c, [&](value old) { return before = old, std::optional<value>(v); });
        return before;
    }

    void fence() {
        access();
        drain();
    }

    void heavy_barrier() {
        access();
        drain();
        for (unsigned i = 0; i < model_.threads.size(); ++i) {
            if (i != thread_) me_.waits_for |= static_cast<std::uint8_t>(1u << i);
        }
    }

    // A system call that looks at memory: a fence, then the look.
    value load_in_kernel(cell c) {
        access();
        drain();
        return state_.memory[c.index];
    }

    // A lock whose unlock is a plain store (platform/lock.h). The CAS acquires: in weak memory earlier stores may stay
    // in the buffer.
    bool try_lock(cell c) {
        access();
        if (model_.memory_model != memory::weak) drain();
        if (state_.memory[c.index] != 0 || pending(c)) return false;
        state_.memory[c.index] = 1;
        return true;
    }
    void lock(cell c) {
        if (!try_lock(c)) block();
    }
    void unlock(cell c) { store_release(c, 0); }

    // -- what is not a step of its own

    value& guarded(cell c) { return state_.memory[c.index]; }
    value& local(unsigned i) { return me_.locals[i]; }

    // 0, 1 .. ways - 1: the search takes each of them.
    unsigned way(unsigned ways) {
        ways_ = ways;
        return way_;
    }

    // The step cannot be made now, and nothing of it has happened.
    void block() { blocked_ = true; }
    void fail(std::string why) {
        if (failure_.empty()) failure_ = std::move(why);
    }

    // -- where it goes on: at the next row unless said otherwise

    void go(std::string_view label) { me_.at = static_cast<std::uint8_t>(steps_.find(label)); }
    void call(std::string_view label) {
        me_.back_to = me_.at;  // the next row already
        go(label);
    }
    void back() { me_.at = std::exchange(me_.back_to, std::uint8_t{0}); }
    // The locals of a thread that has ended, or starts again, do not tell states apart.
    void forget() { std::fill(std::begin(me_.locals), std::end(me_.locals), value{0}); }
    void end() {
        me_.at = static_cast<std::uint8_t>(steps_.size());
        forget();
    }

private:
    friend class explorer;

    void access() {
        if (++accesses_ > 1) throw std::logic_error("a step with two accesses");
    }
    const std::string& name(cell c) const { return model_.cell_names[c.index]; }
    template <class Text>
    void note(const Text& text) {
        if (notes_ != nullptr) *notes_ += (notes_->empty() ? "" : ", ") + text();
    }

    bool pending(cell c) const {
        return std::any_of(
            me_.buffer, me_.buffer + me_.buffered, [=](const buffered_write& w) { return w.cell == c.index; });
    }

    value own_view(cell c) {
        for (unsigned i = me_.buffered; i-- > 0;) {
            if (me_.buffer[i].cell != c.index) continue;
            if (me_.buffer[i].how != kind::add) return me_.buffer[i].what;
            drain();
            break;
        }
        return state_.memory[c.index];
    }

    void write(cell c, value v, kind how) {
        access();
        if (model_.memory_model == memory::sequential) {
            state_.memory[c.index] = v;
        } else {
            buffer(c, v, how);
        }
    }

    void buffer(cell c, value v, kind how) {
        // A full buffer: the processor waits until there is room.
        if (me_.buffered == max_buffered) return block();
        me_.buffer[me_.buffered++] = {c.index, how, v};
        note([&] {
            return "in its buffer: " + name(c) +
                   (how == kind::add ? " += " + std::to_string(static_cast<std::int16_t>(v))
                                     : " = " + std::to_string(v));
        });
    }

    void drain() {
        while (me_.buffered != 0) make_visible(0);
    }

    void make_visible(unsigned i) {
        const buffered_write w = me_.buffer[i];
        value& where = state_.memory[w.cell];
        where = w.how == kind::add ? static_cast<value>(where + w.what) : w.what;
        --me_.buffered;
        std::copy(me_.buffer + i + 1, me_.buffer + me_.buffered + 1, me_.buffer + i);
        me_.buffer[me_.buffered] = {};
    }

    // May the i-th write in the buffer become visible now?
    bool may_leave(unsigned i) const {
        if (i == 0) return true;
        if (model_.memory_model != memory::weak || me_.buffer[i].how != kind::store) return false;
        return std::none_of(
            me_.buffer, me_.buffer + i, [&](const buffered_write& w) { return w.cell == me_.buffer[i].cell; });
    }

    const protocol& model_;
    state& state_;
    thread_state& me_;
    const program& steps_;
    const unsigned thread_;
    const unsigned way_;
    std::string* const notes_;
    unsigned ways_ = 1;
    unsigned accesses_ = 0;
    bool blocked_ = false;
    std::string failure_;
};

}  // namespace model
