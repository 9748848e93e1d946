// search.h - every order of a program, one after the other: those with the fewest detours come first.
//
// Choice     Takes one of `count` things, the first of which is the plain one. The first `free` are as good as each
//            other; each of the others is a detour. Choices are counted from 0 in each execution; a single thing is no
//            choice.
// Name       The name of an execution lists the choices at which it did not take the plain thing, and what it took
//            there. So names are short, and the name alone identifies the execution.
// Way        Each execution follows a name, and takes the plain thing from its end on. Meanwhile it notes, for each
//            choice after the last one of its name, the names of the executions that take another thing there. So each
//            execution is made once, and none is forgotten. Names wait by their number of detours; which of several
//            equals is next is drawn, so that a search that is cut short has been everywhere a little.
// Memory     No more names are kept than executions may still be made.
// Not here   A reduction (sleep sets, partial orders): what a goroutine reads and writes between two calls of dunlin is
//            not known, so no two such pieces are known to be independent of each other.
// Tests      tests/replay/search_test.cpp
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/random.h"

namespace dunlin::inline v0_1::replay {

class search {
public:
    static constexpr unsigned unlimited = ~0u;

    struct deviation {
        std::uint32_t at = 0, which = 0;
    };
    using name = std::vector<deviation>;

    // At most `most_detours` detours in an execution, and at most `executions` executions.
    search(unsigned most_detours, std::uint64_t executions) : most_detours_(most_detours), left_(executions) {}
    // The execution of this name alone.
    explicit search(name only) : most_detours_(0), left_(1), alone_(true) { now_.path = std::move(only); }

    // Around each execution. False: there is none left, or no more may be made.
    bool begin();
    void end() noexcept { differs_ = differs_ || done_ != now_.path.size(); }

    // The thing that is taken. `hash`: the hash of all that was decided before.
    std::size_t among(std::size_t count, std::size_t free, std::uint64_t hash) noexcept;
    // Something was drawn, and its other values are not tried.
    void leave_out() noexcept { leaves_out_ = true; }

    // The execution has not come to the choices that its name lists.
    bool differs() const noexcept { return differs_; }
    unsigned detours() const noexcept { return now_.detours; }
    const name& current() const noexcept { return now_.path; }
    // All executions with fewer detours than the current one were made before it.
    bool found_with_fewest() const noexcept { return !alone_ && static_cast<int>(now_.detours) <= covered() + 1; }
    bool has_left_out() const noexcept { return leaves_out_; }
    // After begin() has returned false: were all executions within the limit made?
    bool complete() const noexcept { return exhausted_ && lowest_dropped_ == unlimited && !leaves_out_; }
    // All executions with at most this many detours were made; -1: not even all without a detour.
    int covered() const noexcept;

private:
    struct item {
        name path;
        unsigned detours = 0;
        std::uint64_t hash = 0;  // before the last choice of the name
    };

    void note(std::uint32_t at, std::uint32_t which, unsigned detours, std::uint64_t hash) noexcept;
    bool make_room(unsigned detours) noexcept;

    unsigned most_detours_;
    std::uint64_t left_;
    const bool alone_ = false;
    bool first_ = true, exhausted_ = false, leaves_out_ = false, differs_ = false;
    item now_;
    std::uint32_t position_ = 0;
    std::size_t done_ = 0;                    // of now_.path
    std::vector<std::vector<item>> waiting_;  // by their detours
    std::size_t level_ = 0, count_ = 0;       // the lowest level at which a name may wait; how many names wait
    unsigned lowest_dropped_ = unlimited;
    platform::random_source source_{1};
};

// "12:1,30:2"; "plain" if the name is empty.
std::string text_of(const search::name& n);
std::optional<search::name> name_in(std::string_view text);

}  // namespace dunlin::replay
