// dump.cpp - every goroutine with what it does, where it was created, and its stack.
#include <ostream>
#include <string>

#include <dunlin/runtime.hpp>

#include "observe/page.h"
#include "observe/report.h"
#include "park/lot.h"
#include "platform/check.h"
#include "platform/clock.h"
#include "sched/crash.h"
#include "sched/descriptors.h"
#include "sched/goroutine.h"
#include "sched/lifetime.h"
#include "sched/processor.h"
#include "sched/sample.h"
#include "stack/trace.h"
#include "sync/mutex_holder.h"

namespace dunlin::observe {

namespace {

using sched::goroutine;
using sched::goroutine_state;
using sched::the_scheduler;

bool alive(const goroutine& g) noexcept {
    const goroutine_state state = g.state.load(std::memory_order_acquire);
    return state != goroutine_state::dead && state != goroutine_state::frozen;
}

// goroutine 7 "writer" [sleep, 3.1 ms]:
void write_header(platform::text_writer& out, const goroutine& g) noexcept {
    sched::print_who(out, &g);
    const goroutine_state state = g.state.load(std::memory_order_acquire);
    out << " [";
    if (state == goroutine_state::waiting) {
        out << name(g.reason.load(std::memory_order_relaxed));
        const std::int64_t waited = platform::now_ns() - g.waits_since_ns;
        if (g.waits_since_ns != 0 && waited >= 1'000'000) {
            out << ", ";
            out.duration(waited);
        }
    } else if (state == goroutine_state::running && g.reason.load(std::memory_order_relaxed) == sched::wait_reason::blocking_call) {
        out << name(sched::wait_reason::blocking_call);
    } else {
        out << name(state);
        if (g.flags & goroutine::in_place) out << ", in place";
    }
    if (g.flags & goroutine::locked) out << ", locked to thread";
    out << "]:\n";
    if (g.extra && !g.extra->labels.empty()) {
        out << "    labels:";
        for (const auto& [key, value] : g.extra->labels) out << ' ' << std::string_view(key) << '=' << std::string_view(value);
        out << '\n';
    }
}

int searches_left = 0;  // one report at a time: the world is stopped

// Whoever waits for a mutex would like to know whom to ask.
void write_holder(platform::text_writer& out, const goroutine& g) noexcept {
    if (g.reason.load(std::memory_order_relaxed) != sched::wait_reason::mutex_lock || searches_left == 0) return;
    --searches_left;
    if (const void* mutex = park::object_waited_for(&g)) detail::mutex_holder::print(out, mutex);
}

bool has_trace(const goroutine& g) noexcept {
    const goroutine_state state = g.state.load(std::memory_order_acquire);
    const bool stopped = state == goroutine_state::waiting || state == goroutine_state::runnable;
    const bool in_place_parent = g.reason.load(std::memory_order_relaxed) == sched::wait_reason::in_place_join;
    return stopped && !in_place_parent && g.stack != nullptr && g.saved.load(std::memory_order_acquire) != 0;
}

// The caller's own, that of a parked goroutine, or of one that computes.
stack::trace trace_of(const goroutine& g, const sched::samples& samples) noexcept {
    if (has_trace(g)) return stack::capture_trace(g.context);
    return &g == sched::current_goroutine() ? stack::capture_trace() : samples.of(g);
}

// A lock that a std::lock_guard takes is called from a header of the C++ library: whoever made the guard is meant.
void write_wait_place(page& to, const goroutine& g) noexcept {
    const std::string_view file = g.waits_at.line() != 0 ? g.waits_at.file_name() : "";
    const bool in_library = file.find("/include/c++/") != file.npos || file.find("/c++/v1/") != file.npos;
    if (in_library && has_trace(g)) return to.place_of_program(stack::capture_trace(g.context), g.waits_at);
    sched::print_where(to.text(), g.waits_at);
}

void write_creation_place(page& to, const goroutine& g) noexcept {
    if (const void* code = g.created_at.code()) return to.symbol(code);
    sched::print_where(to.text(), g.created_at.location());
}

void write_one(page& to, const goroutine& g, const sched::samples& samples) noexcept {
    platform::text_writer& out = to.text();
    const goroutine_state state = g.state.load(std::memory_order_acquire);
    write_header(out, g);
    if (state == goroutine_state::waiting) {
        out << "    waits at ";
        write_wait_place(to, g);
        write_holder(out, g);
        out << '\n';
    }
    if (const stack::trace frames = trace_of(g, samples); frames.size != 0) {
        to.stack(frames);
    } else if (state == goroutine_state::runnable && g.stack == nullptr) {
        out << "    not started\n";
    } else if (const void* pc = state == goroutine_state::running ? sched::asleep_at(g) : nullptr; pc != nullptr) {
        out << "    its thread sleeps in the kernel, called at ";
        to.symbol(pc);
        out << '\n';
    }
    out << "    created at ";
    write_creation_place(to, g);
    out << "\n\n";
}

struct counts {
    std::size_t waiting = 0, starved = 0;
};

}  // namespace

void write_goroutines(page& to) noexcept {
    searches_left = 1000;
    const sched::samples samples;
    const goroutine* self = sched::current_goroutine();
    if (self != nullptr) write_one(to, *self, samples);
    sched::for_each_descriptor([&](const goroutine& g) {
        if (&g != self && alive(g)) write_one(to, g, samples);
    });
}

void report_deadlock() noexcept {
    platform::end_lock_checks();
    {
        platform::text_writer out(2);
        counts c;
        sched::for_each_descriptor([&](const goroutine& g) {
            if (!alive(g)) return;
            ++c.waiting;
            if (g.reason.load(std::memory_order_relaxed) == sched::wait_reason::stack_shortage) ++c.starved;
        });
        if (c.waiting == 0) {
            out << "fatal: no goroutines (main called exit_goroutine) - deadlock!\n";
        } else {
            out << "fatal: all goroutines are asleep - deadlock!\n";
            if (c.starved != 0) out << c.starved << " of them wait for memory for a stack\n";
            out << '\n';
            page through(out);
            write_goroutines(through);
        }
    }
    platform::end_process(2);
}

void report_leaks() noexcept {
    sched::stop_world();
    {
        platform::text_writer out(2);
        std::size_t left = 0;
        sched::for_each_descriptor([&](const goroutine& g) { left += alive(g); });
        if (left != 0) {
            out << "dunlin: " << left << (left == 1 ? " goroutine is" : " goroutines are") << " left when run() returns:\n\n";
            page through(out);
            write_goroutines(through);
        }
    }
    sched::start_world();
}

}  // namespace dunlin::observe

namespace dunlin::runtime {

void dump(std::ostream& stream) {
    sched::start_runtime();
    observe::page page;
    page.reserve(sched::live_goroutines());
    // The stream may be anything, even one that waits for a goroutine: it is written when the world goes on.
    sched::stop_world();
    observe::write_goroutines(page);
    sched::start_world();
    stream << page.finish();
}

}  // namespace dunlin::runtime
