// wait_graph.h - which goroutine waits for which: for a lock that another holds, and for the end of others.
//
// Edges      From a goroutine to each one without which it cannot go on:
//              the holder of the mutex that it waits for (recursive_mutex too)
//              the goroutine whose end it waits for (task, jthread; not a future), also the one that it runs in place
//              each member of the wait_group or task_group that it waits for: those that go() of that group started
//            There is none to the holders of a shared_mutex, which does not note them, nor to goroutines that may
//            release a semaphore, notify a condition variable, or use a channel: that may be any goroutine. There is
//            none to or from a plain thread.
// Circles    All edges mean "needs", so the goroutines in a circle of edges cannot go on, unless one of the waits has a
//            limit, or another goroutine unlocks a mutex that one of them holds: the report says which it is.
// Guess      Without stopping the world: a circle stays as it is, so a graph that is made of the goroutines' structs
//            alone, while they change, has it for certain: what a waiter wrote
//            before it waited is seen with its state (transition() releases, the look acquires). It may have others
//            that never were. So the world is stopped only
//            where the guess has a circle.
// Exact      Goroutines do not run while the world is stopped, but a plain thread may wake some, and unlock. So two
//            graphs are made, one after the other. An edge that is in both, from a wait that began at the same moment,
//            was there all the time between the two, since both its ends waited all the time. So a circle of such edges
//            existed at one moment, and none of its goroutines can change it. In detail: a waiter that stands in the
//            parking lot in both graphs stood there all the time, since it would have to run to come back; a holder
//            that waits does not unlock. Only a hand-over could name a waiter as the owner of what it waits for, and a
//            hand-over takes the waiter off the parking lot first.
// Cost       The guess: two looks at each struct, and a system call for each waiter for a mutex and for each that
//            may be a group's member and has a large callable. It has no node for one that waits for a group of which
//            no waiter is a member: a million goroutines that wait for one gate cost no memory. A node is about 110
//            bytes with its places in the indexes. The exact graphs look at each waiter in the parking lot as well.
//            These lie on stacks that nothing has touched for long, which costs up to 5 us each. All this is done only
//            when the monitor has seen a goroutine wait for long (sched/monitor/monitor.cpp).
// Tests      tests/runtime/circles_test.cpp, tests/runtime/circle_patterns_test.cpp
#pragma once

#include <cstdint>

#include "observe/mapped.h"
#include "park/parking_lot.h"
#include "sched/data/types.h"

namespace dunlin::inline v0_1::observe {

class wait_graph {
public:
    enum class kind : std::uint8_t { none, mutex, join, in_place, group };
    struct node {
        const sched::goroutine* g;
        std::int64_t since_ns;   // when it began to wait; meaningless while it runs another in place
        const void* object;      // what it waits for in the parking lot; null: nothing
        park::lot_kind object_kind;
        kind how;
        bool limited;            // it stands in the parking lot with a deadline or a context
        std::uint32_t to;        // the goroutine that it waits for, unless how is `group`; or none
        std::uint32_t members_begin, members_end;  // the members of the group that wait like it
        std::uint32_t next_edge, came_by;          // for_each_circle()
        std::uint8_t visited;
    };
    static constexpr std::uint32_t none = mapped_index::none;

    enum class kind_of_look : bool { exact, guess };
    // Of the goroutines that wait for a lock or for the end of others. For an exact one the world must be stopped.
    explicit wait_graph(kind_of_look how = kind_of_look::exact) noexcept;
    wait_graph(const wait_graph&) = delete;
    wait_graph& operator=(const wait_graph&) = delete;

    // False: there is no memory, or the kernel does not let a guess read memory that may not be there.
    bool usable() const noexcept {
        return nodes_.usable() && by_id_.usable() && tops_.usable() && members_.usable() && !refused_;
    }

    node& at(std::uint32_t n) const noexcept { return nodes_[n]; }
    std::uint32_t edges_of(const node& n) const noexcept {
        return n.how == kind::group ? n.members_end - n.members_begin : n.to != none ? 1 : 0;
    }
    std::uint32_t edge(const node& n, std::uint32_t i) const noexcept {
        return n.how == kind::group ? members_[n.members_begin + i].number : n.to;
    }
    // Is the edge from `from` to `to`, of another graph, in this one as well?
    bool has(const node& from, const node& to) const noexcept;

    // f(first, last) for circles: each goroutine that is in a circle is in at least one of these. `came_by` leads
    // backwards from the last to the first.
    template <class F>
    void for_each_circle(F f) noexcept;

private:
    struct member {
        const void* group;
        std::uint32_t number;
    };
    // Addresses that have been added, and perhaps others (a Bloom filter with one hash).
    class address_filter {
    public:
        void add(const void* address) noexcept { words_[place(address) / 64] |= bit(address); }
        bool may_contain(const void* address) const noexcept {
            return (words_[place(address) / 64] & bit(address)) != 0;
        }

    private:
        static constexpr std::size_t bits = 4096;
        static std::size_t place(const void* address) noexcept {
            return (reinterpret_cast<std::uintptr_t>(address) * 0x9e3779b97f4a7c15 >> 40) % bits;
        }
        static std::uint64_t bit(const void* address) noexcept { return std::uint64_t{1} << place(address) % 64; }
        std::uint64_t words_[bits / 64] = {};
    };
    std::size_t count_candidates() noexcept;
    bool leads_on(const sched::goroutine& g) const noexcept;
    const void* group_of(const sched::goroutine& g) noexcept;
    std::uintptr_t word_at(const void* address) noexcept;
    void look_into_lot() noexcept;
    void link_joiners() noexcept;
    static bool by_group(const member& a, const member& b) noexcept;
    void add(const sched::goroutine& g) noexcept;
    void link(node& n) noexcept;

    const kind_of_look how_;
    bool refused_ = false;
    address_filter groups_with_members_;
    const std::size_t candidates_;
    mapped_array<node> nodes_;
    mapped_index by_id_;        // the goroutine's id; for a guess also the address of its `join`
    mapped_index tops_;         // a stack's address: the goroutine that waits there, run in place by the others on it
    mapped_array<member> members_;  // by group
};

// How many goroutines wait, for whatever it is. The world must be stopped.
std::size_t waiting_goroutines() noexcept;

template <class F>
void wait_graph::for_each_circle(F f) noexcept {
    enum : std::uint8_t { unseen, on_the_path, done };
    for (std::uint32_t start = 0; start < nodes_.size(); ++start) {
        if (at(start).visited != unseen) continue;
        std::uint32_t here = start;
        at(here).came_by = none;
        at(here).visited = on_the_path;
        while (here != none) {
            node& n = at(here);
            if (n.next_edge == edges_of(n)) {
                n.visited = done;
                here = n.came_by;
                continue;
            }
            const std::uint32_t next = edge(n, n.next_edge++);
            if (at(next).visited == on_the_path) {
                f(next, here);
            } else if (at(next).visited == unseen) {
                at(next).visited = on_the_path;
                at(next).came_by = here;
                here = next;
            }
        }
    }
}

}  // namespace dunlin::observe
