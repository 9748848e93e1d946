// inside.h - what the tests of contexts look at from within: children, functions that wait for the end, timers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include <dunlin/context.hpp>

#include "context/context_node.h"
#include "sched/data/types.h"
#include "timer/heap.h"

namespace inside {

using dunlin::detail::context_node;

// An explicit instantiation may name private members, and a friend that it defines can be called.
constexpr auto first_child();
constexpr auto next_sibling();
constexpr auto registered_calls();
constexpr auto deadline_call();
constexpr auto link_to_stop();
constexpr auto call_references();

template <auto First, auto Next, auto Calls, auto Deadline, auto Stop, auto References>
struct opener {
    friend constexpr auto first_child() { return First; }
    friend constexpr auto next_sibling() { return Next; }
    friend constexpr auto registered_calls() { return Calls; }
    friend constexpr auto deadline_call() { return Deadline; }
    friend constexpr auto link_to_stop() { return Stop; }
    friend constexpr auto call_references() { return References; }
};
template struct opener<&context_node::first_child_, &context_node::next_, &context_node::calls_,
    &context_node::timer_call_, &context_node::stop_link_, &dunlin::detail::timed_call::references_>;

// The node that has the cancellation of `ctx`; null for the background.
inline context_node* node(const dunlin::context& ctx) {
    return static_cast<context_node*>(dunlin::detail::done_channel(ctx));
}

inline std::size_t children(const dunlin::context& ctx) {
    context_node* n = node(ctx);
    dunlin::park::runtime_section section;
    std::scoped_lock guard(n->lock);
    std::size_t count = 0;
    for (context_node* c = n->*first_child(); c != nullptr; c = c->*next_sibling()) ++count;
    return count;
}

inline std::size_t calls(const dunlin::context& ctx) {
    context_node* n = node(ctx);
    dunlin::park::runtime_section section;
    std::scoped_lock guard(n->lock);
    return (n->*registered_calls()).size();
}

// The timer of its deadline, and the holder of that.
inline dunlin::detail::timed_call* deadline(const dunlin::context& ctx) {
    return dunlin::detail::as_timed_call(node(ctx)->*deadline_call());
}
inline std::uint32_t references(dunlin::detail::timed_call* call) { return (call->*call_references()).load(); }
inline dunlin::detail::stop_link* stop_link(const dunlin::context& ctx) { return node(ctx)->*link_to_stop(); }

// Entries in the heaps of all processors.
inline std::size_t timers() {
    const dunlin::sched::scheduler& s = dunlin::sched::the_scheduler;
    const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
    std::size_t count = 0;
    dunlin::park::runtime_section section;
    for (std::uint32_t i = 0; i < made; ++i)
        count += static_cast<const dunlin::timers::timer_heap*>(s.processor_at(i)->events)->size();
    return count;
}

}  // namespace inside
