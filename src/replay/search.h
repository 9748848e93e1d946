// search.h - every order of a program, one after the other: those with the fewest detours come first.
//
// Choice     Among `count` things, of which the first is the plain one. The first `free` are as good as each other;
//            each of the others is a detour. Choices are counted from 0 in each execution; where there is one thing
//            only, there is none.
// Name       An execution is where it has not taken the plain one, and what it took there. So it is short, and an
//            execution is known by it alone.
// Way        Each execution goes by a name, and takes the plain thing from there on. Meanwhile it notes, for each
//            choice behind the last of its name, the names of the executions that take another thing there. So each is
//            made once, and none is forgotten. They wait by their number of detours; which is next among equals is
//            drawn, so that a search that is cut short has been everywhere a little.
// Memory     No more names are kept than executions may still be made.
// Not here   A reduction (sleep sets, partial orders): what a goroutine reads and writes between two calls of dunlin is
//            not known, so no two of its pieces are known to be independent of each other.
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

    // At most so many detours in an execution; at most so many executions.
    search(unsigned most_detours, std::uint64_t executions) : most_detours_(most_detours), left_(executions) {}
    // One execution alone.
    explicit search(name only) : most_detours_(0), left_(1), alone_(true) { now_.path = std::move(only); }

    // Around each execution. False: there is none left, or no more may be made.
    bool begin();
    void end() noexcept { differs_ = differs_ || done_ != now_.path.size(); }

    // `hash`: of all that was decided before.
    std::size_t among(std::size_t count, std::size_t free, std::uint64_t hash) noexcept;
    // Something was drawn that could have been otherwise, and is not tried.
    void leave_out() noexcept { leaves_out_ = true; }

    // The execution has not come to the choices that its name speaks of.
    bool differs() const noexcept { return differs_; }
    unsigned detours() const noexcept { return now_.detours; }
    const name& current() const noexcept { return now_.path; }
    // After begin() has said no: were all within the limit made? All with at most so many detours were: -1: not even
    // all without.
    // All executions with fewer detours than the current one were made before it.
    bool found_with_fewest() const noexcept { return !alone_ && static_cast<int>(now_.detours) <= covered() + 1; }
    bool has_left_out() const noexcept { return leaves_out_; }
    bool complete() const noexcept { return exhausted_ && lowest_dropped_ == unlimited && !leaves_out_; }
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
    std::size_t level_ = 0, count_ = 0;       // nothing waits below; how many do
    unsigned lowest_dropped_ = unlimited;
    platform::random_source source_{1};
};

// "12:1,30:2"; "plain", if the name is empty.
std::string text_of(const search::name& n);
std::optional<search::name> name_in(std::string_view text);

}  // namespace dunlin::replay
