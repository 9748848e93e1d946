#include "observe/wait_graph.h"

#include <algorithm>
#include <cerrno>
#include <functional>

#include "park/join.h"
#include "platform/cpu.h"
#include "platform/memory_map.h"
#include "sched/data/all_goroutines.h"
#include "sync/mutex_holder.h"

namespace dunlin::inline v0_1::observe {

namespace {

using sched::goroutine;
using sched::goroutine_state;
using sched::wait_reason;

bool waits(const goroutine& g) noexcept { return g.state.load(std::memory_order_acquire) == goroutine_state::waiting; }

// Does it wait in a way that can lead to another node? All others are ends of paths, and in no circle.
bool may_lead_on(const goroutine& g) noexcept {
    const wait_reason reason = g.reason.load(std::memory_order_relaxed);
    return waits(g) && (sched::may_be_in_a_circle(reason) || reason == wait_reason::in_place_join);
}

std::size_t count(bool (*which)(const goroutine&) noexcept) noexcept {
    std::size_t n = 0;
    sched::for_each_goroutine([&](const goroutine& g) { n += which(g); });
    return n;
}

// For a guess: what its owner may write meanwhile.
template <class T>
DUNLIN_NOT_INSTRUMENTED T peek(const volatile T& variable) noexcept {
    return variable;
}

// A key of the index, beside the ids: what one that waits for the end of g keeps in waits_for.
std::uint64_t key_of_end(const void* join_address) noexcept { return reinterpret_cast<std::uintptr_t>(join_address); }

}  // namespace

std::size_t waiting_goroutines() noexcept { return count(waits); }

bool wait_graph::by_group(const member& a, const member& b) noexcept { return std::less<>()(a.group, b.group); }

wait_graph::wait_graph(kind_of_look how) noexcept
    : how_(how), candidates_(count_candidates()), nodes_(candidates_),
      by_id_(how == kind_of_look::guess ? 2 * candidates_ : candidates_), tops_(candidates_), members_(candidates_) {
    if (!usable()) return;
    sched::for_each_goroutine([&](const goroutine& g) {
        if (may_lead_on(g) && leads_on(g)) add(g);
    });
    if (how == kind_of_look::exact) look_into_lot();
    std::sort(members_.begin(), members_.end(), by_group);
    for (node& n : nodes_) link(n);
    if (how == kind_of_look::exact) link_joiners();
}

std::size_t wait_graph::count_candidates() noexcept {
    if (how_ == kind_of_look::exact) return count(may_lead_on);
    sched::for_each_goroutine([&](const goroutine& g) {
        if (!may_lead_on(g)) return;
        if (const void* group = group_of(g)) groups_with_members_.add(group);
    });
    std::size_t n = 0;
    sched::for_each_goroutine([&](const goroutine& g) { n += may_lead_on(g) && leads_on(g); });
    return n;
}

// False: it waits for a group of which no waiter was a member, so it is an end of paths too. Only a guess knows that
// before the parking lot is looked at.
bool wait_graph::leads_on(const goroutine& g) const noexcept {
    if (how_ == kind_of_look::exact) return true;
    const wait_reason reason = g.reason.load(std::memory_order_relaxed);
    if (reason != wait_reason::wait_group_wait && reason != wait_reason::task_group_wait) return true;
    return groups_with_members_.may_contain(peek(g.link));
}

void wait_graph::look_into_lot() noexcept {
    park::for_each_in_lot([&](const park::lot_node& n) noexcept {
        const goroutine* g = n.owner->goroutine();
        if (g == nullptr) return;
        const std::uint32_t number = by_id_.find(g->id);
        if (number == none) return;
        at(number).object = n.address;
        at(number).object_kind = n.kind;
        at(number).limited = n.several;
    });
}

// A joiner without a limit is not in the parking lot: the child names it.
void wait_graph::link_joiners() noexcept {
    for (std::uint32_t child = 0; child < nodes_.size(); ++child) {
        const goroutine* const joiner = park::joiner_of(at(child).g);
        if (const std::uint32_t number = joiner != nullptr ? by_id_.find(joiner->id) : none; number != none) {
            if (at(number).how == kind::join) at(number).to = child;
        }
    }
}

void wait_graph::add(const goroutine& g) noexcept {
    const auto number = static_cast<std::uint32_t>(nodes_.size());
    if (!nodes_.add({&g, g.waits_since_ns, nullptr, {}, kind::none, false, none, 0, 0, 0, none, 0})) return;
    if (how_ == kind_of_look::guess) {
        at(number).object = peek(g.link);
        by_id_.set(key_of_end(&g.join), number);
    }
    by_id_.set(peek(g.id), number);
    const bool runs_another = g.reason.load(std::memory_order_relaxed) == wait_reason::in_place_join;
    if ((g.flags & goroutine::in_place) != 0 && !runs_another) {
        tops_.set(reinterpret_cast<std::uintptr_t>(static_cast<stack::slot*>(g.stack)), number);
    }
    if (const void* group = group_of(g)) members_.add({group, number});
}

// The group of which it is a member, or null (dunlin/wait_group.hpp, member_mark). A thread may write the first word
// meanwhile if that is the callable's own: then it is not a mark.
DUNLIN_NOT_INSTRUMENTED const void* wait_graph::group_of(const goroutine& g) noexcept {
    std::uintptr_t mark = *reinterpret_cast<const volatile std::uintptr_t*>(g.inline_frame);
    if (g.flags & goroutine::heap_frame) {
        const auto* frame = reinterpret_cast<const std::uintptr_t*>(mark);
        if (frame == nullptr) return nullptr;
        mark = how_ == kind_of_look::guess ? word_at(frame) : *static_cast<const volatile std::uintptr_t*>(frame);
    }
    return (mark & 7) == 1 ? reinterpret_cast<const void*>(mark - 1) : nullptr;
}

// For a guess: what may no longer be there. 0: it is not.
std::uintptr_t wait_graph::word_at(const void* address) noexcept {
    std::uintptr_t word = 0;
    const long n = platform::read_own_memory(reinterpret_cast<std::uintptr_t>(address), &word, sizeof word);
    if (n < 0 && n != -EFAULT) refused_ = true;
    return n == sizeof word ? word : 0;
}

void wait_graph::link(node& n) noexcept {
    const bool guess = how_ == kind_of_look::guess;
    switch (n.g->reason.load(std::memory_order_relaxed)) {
    case wait_reason::mutex_lock:
        if (n.object == nullptr || (!guess && n.object_kind != park::lot_kind::mutex)) return;
        n.how = kind::mutex;
        n.to = by_id_.find(guess ? word_at(detail::mutex_holder::owner_of(n.object))
                                 : detail::mutex_holder::goroutine(n.object));
        return;
    case wait_reason::in_place_join:
        n.how = kind::in_place;
        n.to = tops_.find(reinterpret_cast<std::uintptr_t>(static_cast<stack::slot*>(n.g->stack)));
        return;
    case wait_reason::wait_group_wait:
    case wait_reason::task_group_wait: {
        if (n.object == nullptr || (!guess && n.object_kind != park::lot_kind::group)) return;
        n.how = kind::group;
        const member wanted{n.object, 0};
        const auto [begin, end] = std::equal_range(members_.begin(), members_.end(), wanted, by_group);
        n.members_begin = static_cast<std::uint32_t>(begin - members_.begin());
        n.members_end = static_cast<std::uint32_t>(end - members_.begin());
        return;
    }
    case wait_reason::task_join:
        n.how = kind::join;
        // A joiner with a limit stands in the parking lot, at the address of the child's `join`. The child's task keeps
        // that struct.
        if (n.object == nullptr) return;
        n.to = by_id_.find(guess ? key_of_end(n.object) : park::child_of(n.object)->id);
        return;
    default: return;
    }
}

bool wait_graph::has(const node& from, const node& to) const noexcept {
    const std::uint32_t a = by_id_.find(from.g->id), b = by_id_.find(to.g->id);
    if (a == none || b == none) return false;
    const node& n = at(a);
    if (n.since_ns != from.since_ns || at(b).since_ns != to.since_ns || n.how != from.how || n.object != from.object) {
        return false;
    }
    for (std::uint32_t i = 0; i < edges_of(n); ++i) {
        if (edge(n, i) == b) return true;
    }
    return false;
}

}  // namespace dunlin::observe
