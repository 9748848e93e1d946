// dump.cpp - every goroutine with what it does, where it was created, and its stack; goroutines that are alike share a
// paragraph.
#include "observe/dump.h"

#include <algorithm>
#include <bit>
#include <new>
#include <ostream>
#include <string>

#include <dunlin/runtime.hpp>

#include "observe/alike.h"
#include "observe/collect.h"
#include "observe/dump_json.h"
#include "observe/page.h"
#include "observe/trace_file.h"
#include "park/parking_lot.h"
#include "platform/check.h"
#include "platform/clock.h"
#include "platform/thread.h"
#include "sched/data/all_goroutines.h"
#include "sched/data/bells.h"
#include "sched/goroutines/goroutine.h"
#include "sched/goroutines/os_thread.h"
#include "sched/machines/processor.h"
#include "sched/preempt/crash.h"
#include "sched/preempt/lifetime.h"
#include "sched/preempt/stack_capture.h"
#include "stack/symbols.h"
#include "stack/trace.h"
#include "sync/mutex_holder.h"

namespace dunlin::inline v0_1::observe {

namespace {

using sched::goroutine;
using sched::goroutine_state;
using sched::the_scheduler;

constexpr std::int64_t worth_saying_ns = 1'000'000;
constexpr std::uint32_t named_of_a_group = 16;

// "    and 999 like it: 8, 9, 10 and 996 more"
void write_others(platform::text_writer& out, const alike::member& first) noexcept {
    std::uint32_t left = first.in_group - 1;
    if (left == 0) return;
    out << "    and " << left << " like it: ";
    std::uint32_t named = 0;
    for (const alike::member* m = first.next; m != nullptr && named != named_of_a_group; m = m->next, ++named, --left) {
        if (named != 0) out << ", ";
        out << m->g->id;
    }
    if (left != 0) out << " and " << left << " more";
    out << '\n';
}

// goroutine 7 "writer" [sleep, 3.1 ms]:
void write_header(platform::text_writer& out, const alike::member& first, bool asleep) noexcept {
    const goroutine& g = *first.g;
    sched::print_identity(out, &g);
    const goroutine_state state = g.state.load(std::memory_order_acquire);
    out << " [";
    if (state == goroutine_state::waiting) {
        out << name(g.reason.load(std::memory_order_relaxed));
        const waited w(&first);
        if (w.longest_ns >= worth_saying_ns) {
            out << ", ";
            out.duration(w.shortest_ns);
            if (w.longest_ns - w.shortest_ns >= worth_saying_ns) out << " to ", out.duration(w.longest_ns);
        }
    } else if (state == goroutine_state::running &&
               g.reason.load(std::memory_order_relaxed) == sched::wait_reason::blocking_call) {
        out << name(sched::wait_reason::blocking_call);
    } else {
        out << (asleep ? "blocked in the kernel" : name(state));
        if (g.flags & goroutine::in_place) out << ", in place";
    }
    if (sched::is_wired(&g)) out << ", locked to thread";
    out << "]:\n";
    write_others(out, first);
    if (g.extra && !g.extra->labels.empty()) {
        out << "    labels:";
        for (const auto& [key, value] : g.extra->labels) (out << ' ').printable(key) << '=', out.printable(value);
        out << '\n';
    }
}

// For a goroutine that waits for a mutex: which goroutine holds it.
void write_holder(platform::text_writer& out, const goroutine& g) noexcept {
    if (const void* mutex = mutex_of(g)) detail::mutex_holder::print(out, mutex);
}

void write_wait_place(page& to, const goroutine& g) noexcept {
    if (waits_in_library(g)) return to.place_of_program(stack::capture_trace(g.context), g.waits_at);
    sched::print_where(to.text(), g.waits_at);
}

void write_creation_place(page& to, const goroutine& g) noexcept {
    if (const void* code = g.created_at.code()) return to.symbol(code);
    sched::print_where(to.text(), g.created_at.location());
}

void write_group(page& to, const alike::member& first, const sched::stack_captures& captures,
    const more_about_wait* more = nullptr) noexcept {
    const goroutine& g = *first.g;
    platform::text_writer& out = to.text();
    const goroutine_state state = g.state.load(std::memory_order_acquire);
    const stack::trace frames = trace_of(g, captures);
    const bool may_sleep = state == goroutine_state::running && frames.size == 0;
    const platform::sleeping_call call = may_sleep ? sched::asleep_in(g) : platform::sleeping_call();
    write_header(out, first, call.at != nullptr);
    if (state == goroutine_state::waiting) {
        out << "    waits at ";
        write_wait_place(to, g);
        write_holder(out, g);
        if (more != nullptr) more->write(out, more->with);
        out << '\n';
    }
    if (frames.size != 0) {
        to.stack(frames);
    } else if (state == goroutine_state::runnable && g.stack == nullptr) {
        out << "    not started\n";
    } else if (call.at != nullptr) {
        out << "    its thread sleeps in the kernel, called at ";
        // From glibc 2.41 on its calls share one instruction, in a function that has no name outside.
        const bool names_itself = call.name == nullptr ||
            !stack::find_symbol(reinterpret_cast<std::uintptr_t>(call.at)).name.empty();
        if (!names_itself) out << call.name << ' ';
        to.symbol(call.at);
        out << '\n';
        if (const stack::trace found = sched::frames_of_sleeper(g, call); found.size != 0) to.stack(found);
    }
    out << "    created at ";
    write_creation_place(to, g);
    out << "\n\n";
}

struct counts {
    std::size_t waiting = 0, starved = 0;
};

}  // namespace

void write_goroutines(page& to, std::size_t at_most, const goroutine_filter* filter) noexcept {
    allow_searches(1000);
    const sched::stack_captures captures;
    const goroutine* self = sched::current_goroutine();
    const auto alone = [&](const goroutine& g) { write_group(to, {&g, nullptr, 1, alike::never}, captures); };
    const auto for_each_other = [&](auto f) {
        sched::for_each_goroutine([&](const goroutine& g) {
            if (&g != self && alive(g) && (filter == nullptr || filter->wanted(g, filter->with))) f(g);
        });
    };
    if (self != nullptr && filter == nullptr) alone(*self);
    std::size_t others = 0;
    for_each_other([&](const goroutine&) { ++others; });
    alike groups(others);
    if (!groups.usable()) return for_each_other(alone);
    for_each_other([&](const goroutine& g) { groups.add(g, key_of(g, captures)); });
    allow_searches(1000);
    groups.sort();
    std::size_t written = 0, left = 0, left_goroutines = 0;
    groups.for_each_group([&](const alike::member& first) {
        if (written == at_most) {
            ++left;
            left_goroutines += first.in_group;
            return;
        }
        ++written;
        write_group(to, first, captures);
    });
    if (left != 0) {
        to.text() << "... and " << left << (left == 1 ? " paragraph" : " paragraphs") << " of " << left_goroutines
                  << " goroutines that wait less long\n\n";
    }
}

void write_one(
    page& to, const goroutine& g, const sched::stack_captures& captures, const more_about_wait& more) noexcept {
    write_group(to, {&g, nullptr, 1, alike::never}, captures, &more);
}

void report_deadlock() noexcept {
    platform::end_lock_checks();
    {
        platform::text_writer out(2);
        counts c;
        sched::for_each_goroutine([&](const goroutine& g) {
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
            write_goroutines(through, everything);
        }
    }
    write_trace_of_death();
    platform::end_process(2);
}

void report_later(void (*write)(page& to) noexcept, int patience_ms) noexcept {
    try {
        page page;
        page.reserve(sched::live_goroutines());
        sched::stop_world();
        write(page);
        sched::start_world();
        const std::string text = page.finish();
        platform::text_writer out(2, patience_ms);
        out << std::string_view(text);
    } catch (const std::bad_alloc&) {
        platform::text_writer out(2, patience_ms);
        out << "dunlin: no memory for a report\n";
    }
}

// Not one of a run() that has ended, whose thread sleeps in the kernel still.
static bool is_of_this_run(const goroutine& g) noexcept {
    if (g.independent()) return false;
    if (g.state.load(std::memory_order_relaxed) != sched::goroutine_state::running) return true;
    const sched::machine* m = sched::the_scheduler.machines.load(std::memory_order_acquire);
    while (m != nullptr && (!m->condemned || m->current.load(std::memory_order_relaxed) != &g)) m = m->all_next;
    return m == nullptr;
}

void report_leaks() noexcept {
    report_later([](page& to) noexcept {
        std::size_t left = 0;
        sched::for_each_goroutine([&](const goroutine& g) { left += alive(g) && is_of_this_run(g); });
        if (left == 0) return;
        to.text() << "dunlin: " << left << (left == 1 ? " goroutine is" : " goroutines are")
                  << " left when run() returns:\n\n";
        const goroutine_filter filter{[](const goroutine& g, const void*) noexcept { return is_of_this_run(g); },
                                      nullptr};
        write_goroutines(to, everything, &filter);
    }, platform::text_writer::no_limit);
}

void dump_to_stderr(bool as_json) noexcept {
    report_later(as_json ? [](page& to) noexcept { write_json(to, runtime::dump_options().paragraphs); }
                         : [](page& to) noexcept { write_goroutines(to, runtime::dump_options().paragraphs); },
        sched::maker_waits_for_stderr_ms);
}

}  // namespace dunlin::observe

namespace dunlin::inline v0_1::runtime {

void dump(std::ostream& stream, const dump_options& options) {
    sched::start_runtime();
    observe::page page;
    page.reserve(sched::live_goroutines());
    // The stream may be of any kind, even one that waits for a goroutine: it is written after the world goes on.
    sched::stop_world();
    if (options.format == dump_format::json) {
        observe::write_json(page, options.paragraphs);
    } else {
        observe::write_goroutines(page, options.paragraphs);
    }
    sched::start_world();
    stream << page.finish();
}

void dump(std::ostream& stream) { dump(stream, dump_options()); }

}  // namespace dunlin::runtime
