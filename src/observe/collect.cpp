#include "observe/collect.h"

#include <algorithm>
#include <bit>
#include <string_view>

#include "park/parking_lot.h"
#include "platform/clock.h"
#include "sched/goroutines/goroutine.h"

namespace dunlin::inline v0_1::observe {

using sched::goroutine;
using sched::goroutine_state;

bool alive(const goroutine& g) noexcept {
    const goroutine_state state = g.state.load(std::memory_order_acquire);
    return state != goroutine_state::dead && state != goroutine_state::frozen;
}

waited::waited(const alike::member* m) noexcept : shortest_ns(INT64_MAX), longest_ns(0) {
    const std::int64_t now = platform::now_ns();
    for (; m != nullptr; m = m->next) {
        const std::int64_t ns = m->g->waits_since_ns != 0 ? now - m->g->waits_since_ns : 0;
        shortest_ns = std::min(shortest_ns, ns);
        longest_ns = std::max(longest_ns, ns);
    }
}

namespace {

int searches_left = 0;  // one report at a time: the world is stopped

}  // namespace

void allow_searches(int count) noexcept { searches_left = count; }

const void* mutex_of(const goroutine& g) noexcept {
    if (g.state.load(std::memory_order_acquire) != goroutine_state::waiting) return nullptr;
    if (g.reason.load(std::memory_order_relaxed) != sched::wait_reason::mutex_lock || searches_left == 0)
        return nullptr;
    --searches_left;
    return park::object_waited_for(&g);
}

bool has_trace(const goroutine& g) noexcept {
    const goroutine_state state = g.state.load(std::memory_order_acquire);
    const bool stopped = state == goroutine_state::waiting || state == goroutine_state::runnable;
    const bool in_place_parent = g.reason.load(std::memory_order_relaxed) == sched::wait_reason::in_place_join;
    return stopped && !in_place_parent && g.stack != nullptr && g.saved.load(std::memory_order_acquire) != 0;
}

stack::trace trace_of(const goroutine& g, const sched::stack_captures& captures) noexcept {
    if (has_trace(g)) return stack::capture_trace(g.context);
    return &g == sched::current_goroutine() ? stack::capture_trace() : captures.of(g);
}

bool waits_in_library(const goroutine& g) noexcept {
    const std::string_view file = g.waits_at.line() != 0 ? g.waits_at.file_name() : "";
    const bool of_cpp = file.find("/include/c++/") != file.npos || file.find("/c++/v1/") != file.npos;
    const bool of_dunlin = file.find("include/dunlin/") != file.npos && file.ends_with(".hpp");
    return (file.empty() || of_cpp || of_dunlin) && has_trace(g);
}

std::uint64_t key_of(const goroutine& g, const sched::stack_captures& captures) noexcept {
    likeness l;
    const goroutine_state state = g.state.load(std::memory_order_acquire);
    l.add(static_cast<std::uint64_t>(state));
    l.add(static_cast<std::uint64_t>(g.reason.load(std::memory_order_relaxed)));
    l.add(static_cast<std::uint64_t>(g.flags & (goroutine::in_place | goroutine::wired)));
    l.add(std::bit_cast<std::uint64_t>(g.created_at));
    const stack::trace frames = trace_of(g, captures);
    for (std::size_t i = 0; i < frames.size; ++i) l.add(frames.pc[i]);
    // A goroutine on a processor whose stack is not known is like no other.
    if (frames.size == 0 && g.stack != nullptr && state != goroutine_state::waiting) l.add(&g);
    if (state == goroutine_state::waiting) {
        l.add(std::bit_cast<std::uint64_t>(g.waits_at));
        l.add(mutex_of(g));
    }
    if (g.extra != nullptr) {
        l.add(std::string_view(g.extra->name));
        for (const auto& [key, value] : g.extra->labels) l.add(std::string_view(key)), l.add(std::string_view(value));
    }
    return l.key();
}

}  // namespace dunlin::observe
