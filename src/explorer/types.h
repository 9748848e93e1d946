// types.h - what a simulation is made of: threads that do not run by themselves, what each is about to do, and the
// choices between them.
#pragma once

#include <array>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

namespace dunlin::inline v0_1::explorer {

inline constexpr unsigned max_threads = 12;

// How memory behaves.
//   sequential  every access takes effect at once
//   tso         x86-64: a store waits in its thread's buffer, first in first out, and becomes visible at any later
//               moment; the thread itself sees it at once. Locked operations and fences wait until the buffer is empty
//   cxx         the C++ memory model, and so weaker than aarch64's: a load may find any value that coherence and
//               what its thread has acquired allow. But no load finds a value that is stored later (load buffering)
enum class memory : std::uint8_t { sequential, tso, cxx };

// How far each thread has come, as one of them knows it.
using vector_clock = std::array<std::uint32_t, max_threads>;

inline void join(vector_clock& to, const vector_clock& from) noexcept {
    for (unsigned i = 0; i < max_threads; ++i) to[i] = to[i] < from[i] ? from[i] : to[i];
}

// For each place, by its number: the oldest value that a thread may still find (cxx).
using view = std::vector<std::uint32_t>;

void join(view& to, const view& from);

enum class action : std::uint8_t {
    begin,       // of the thread
    load,
    store,
    modify,
    fence,
    barrier,     // the heavy one
    sleep,       // a futex
    wake,
    wait,        // pause: until others have written
    resume,      // after sleep or barrier
    settle,      // until no other thread can do anything (whole programs)
};

// Places are numbered in the order in which threads come to them: addresses differ from one execution to the next.
inline constexpr std::uint32_t no_place = 0, first_place = 1;

// What a thread does when it is chosen next.
struct operation {
    action what = action::begin;
    bool needs_empty_buffer = false;
    bool alone = false;                 // its order matters among all others
    bool writes = false;                // or counts as a write, for its order among others
    std::uint32_t place = no_place;
    std::source_location where;
};

// One thing that may happen next: a thread does what it is about to do, the oldest store in its buffer becomes visible,
// or its sleep is over. `value` is not such a thing: it says which of several values a load has found (0: the newest).
enum class step_kind : std::uint8_t { run, flush, time_out, value };

struct choice {
    step_kind kind = step_kind::run;
    std::uint8_t which = 0;  // thread, or value

    friend bool operator==(const choice&, const choice&) = default;
};

struct transition {
    choice what;
    bool writes = false;
    bool anything = false;        // its order matters among all others
    bool fresh = false;           // a store: nothing else was chosen yet while it could have become visible
    std::uint32_t place = no_place;

    // The two may change places without a difference. Two of one thread may: a store of it that becomes visible, and
    // its next step.
    bool independent_of(const transition& other) const noexcept {
        if (anything || other.anything) return false;
        if (what.which == other.what.which && what.kind == other.what.kind) return false;
        if (what.which == other.what.which &&
            (what.kind == step_kind::time_out || other.what.kind == step_kind::time_out))
            return false;
        return place == no_place || place != other.place || !(writes || other.writes);
    }
};

// Lines of a source file; its name ends with `file`.
struct source_range {
    std::string file;
    unsigned first = 0, last = 0;

    bool has(const std::source_location& l) const noexcept {
        return l.line() >= first && l.line() <= last && std::string_view(l.file_name()).ends_with(file);
    }
};

// Makes the choices. Each execution asks it again from the beginning.
class strategy {
public:
    virtual ~strategy() = default;
    // The thread has come to this operation, which is its next.
    virtual void arrives(unsigned, const operation&) {}
    // Must this choice not be made while another can be? Then time may jump although it could be made.
    virtual bool keeps_back(const choice&) const noexcept { return false; }
    // Called before each execution. False: there is no other one to make.
    virtual bool begin() = 0;
    // The index of one of `possible`, which are sorted; `last` is the thread that ran last. `possible.size()`: this
    // execution need not go on.
    virtual std::size_t pick(const std::vector<transition>& possible, unsigned last) = 0;
    virtual unsigned pick_value(unsigned count) = 0;
    // A thread that can go on does so in the end.
    virtual bool is_fair() const noexcept { return true; }
    // The execution has ended, after this many steps.
    virtual void ended(std::size_t steps) = 0;
};

}  // namespace dunlin::explorer
