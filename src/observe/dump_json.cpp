#include "observe/dump_json.h"

#include "observe/alike.h"
#include "observe/collect.h"
#include "observe/page.h"
#include "sched/data/all_goroutines.h"
#include "sched/goroutines/goroutine.h"
#include "sched/goroutines/os_thread.h"
#include "sched/preempt/crash.h"
#include "sched/preempt/stack_capture.h"
#include "sync/mutex_holder.h"

namespace dunlin::inline v0_1::observe {

std::size_t utf8_sequence(std::string_view text) noexcept {
    const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
    const auto follows = [&](std::size_t i) { return (byte(i) & 0xc0) == 0x80; };
    const unsigned first = byte(0), second = byte(1);
    if (first < 0x80) return 1;
    if (first >= 0xc2 && first <= 0xdf) return follows(1) ? 2 : 0;
    if (first >= 0xe0 && first <= 0xef) {
        const bool shortest = first != 0xe0 || second >= 0xa0, no_surrogate = first != 0xed || second < 0xa0;
        return follows(1) && follows(2) && shortest && no_surrogate ? 3 : 0;
    }
    if (first >= 0xf0 && first <= 0xf4) {
        const bool in_range = (first != 0xf0 || second >= 0x90) && (first != 0xf4 || second < 0x90);
        return follows(1) && follows(2) && follows(3) && in_range ? 4 : 0;
    }
    return 0;
}

namespace {

using sched::goroutine;
using sched::goroutine_state;

constexpr std::uint32_t ids_of_a_group = 100;

void key(platform::text_writer& out, const char* name) noexcept { out << ", \"" << name << "\": "; }

void write_ids(platform::text_writer& out, const alike::member& first) noexcept {
    std::uint32_t written = 0;
    for (const alike::member* m = &first; m != nullptr && written != ids_of_a_group; m = m->next, ++written) {
        out << (written == 0 ? "" : ", ") << m->g->id;
    }
}

void write_wait(page& to, const alike::member& first) noexcept {
    platform::text_writer& out = to.text();
    const goroutine& g = *first.g;
    key(out, "reason");
    write_json_string(out, name(g.reason.load(std::memory_order_relaxed)));
    const waited w(&first);
    key(out, "shortest_wait_ns");
    out << w.shortest_ns;
    key(out, "longest_wait_ns");
    out << w.longest_ns;
    key(out, "waits_at");
    to.json_place_of_program(waits_in_library(g) ? stack::capture_trace(g.context) : stack::trace{}, g.waits_at);
    if (const void* mutex = mutex_of(g)) {
        key(out, "object");
        out << '"' << mutex << '"';
        if (const std::uint64_t holder = detail::mutex_holder::goroutine(mutex); holder != 0) {
            key(out, "holder");
            out << holder;
        }
    }
}

void write_name_and_labels(platform::text_writer& out, const goroutine& g) noexcept {
    if (g.extra == nullptr) return;
    if (!g.extra->name.empty()) {
        key(out, "name");
        write_json_string(out, g.extra->name);
    }
    if (g.extra->labels.empty()) return;
    key(out, "labels");
    bool another = false;
    for (const auto& [name, value] : g.extra->labels) {
        out << (another ? ", " : "{");
        write_json_string(out, name);
        out << ": ";
        write_json_string(out, value);
        another = true;
    }
    out << '}';
}

void write_group_as_json(page& to, const alike::member& first, const sched::stack_captures& captures) noexcept {
    platform::text_writer& out = to.text();
    const goroutine& g = *first.g;
    const goroutine_state state = g.state.load(std::memory_order_acquire);
    out << "{\"count\": " << first.in_group << ", \"ids\": [";
    write_ids(out, first);
    out << "], \"state\": ";
    write_json_string(out, name(state));
    write_name_and_labels(out, g);
    if (sched::is_wired(&g)) out << ", \"locked_to_thread\": true";
    if (g.flags & goroutine::in_place) out << ", \"in_place\": true";
    if (state == goroutine_state::waiting) {
        write_wait(to, first);
    } else if (state == goroutine_state::running &&
               g.reason.load(std::memory_order_relaxed) == sched::wait_reason::blocking_call) {
        key(out, "reason");
        write_json_string(out, name(sched::wait_reason::blocking_call));
    }
    key(out, "created_at");
    if (const void* code = g.created_at.code()) {
        to.json_symbol(code);
    } else {
        to.json_place_of_program({}, g.created_at.location());
    }
    key(out, "stack");
    stack::trace frames = trace_of(g, captures);
    platform::sleeping_call call;
    if (frames.size == 0 && state == goroutine_state::running) {
        call = sched::asleep_in(g);
        frames = sched::frames_of_sleeper(g, call);
    }
    to.json_stack(frames);
    if (call.at != nullptr) {
        key(out, "asleep_in_kernel_at");
        to.json_symbol(call.at);
    }
    out << '}';
}

// The length of each processor's queue; the world is stopped.
void write_processors(platform::text_writer& out) noexcept {
    key(out, "processors");
    out << '[';
    const std::uint32_t count = sched::the_scheduler.max_procs.load(std::memory_order_relaxed);
    for (std::uint32_t i = 0; i < count; ++i) {
        const sched::processor* p = sched::the_scheduler.processor_at(i);
        out << (i == 0 ? "" : ", ") << "{\"id\": " << i << ", \"queue\": " << p->queue.size() << '}';
    }
    out << ']';
}

}  // namespace

void write_json_string(platform::text_writer& out, std::string_view text) noexcept {
    constexpr char digits[] = "0123456789abcdef";
    out << '"';
    while (!text.empty()) {
        const auto c = static_cast<unsigned char>(text[0]);
        const std::size_t length = utf8_sequence(text);
        if (length == 0) {
            out << "\\ufffd";
        } else if (c < 0x20) {
            out << "\\u00" << digits[c >> 4] << digits[c & 15];
        } else if (c == '"' || c == '\\') {
            out << '\\' << text[0];
        } else {
            out << text.substr(0, length);
        }
        text.remove_prefix(length == 0 ? 1 : length);
    }
    out << '"';
}

void write_json(page& to, std::size_t at_most) noexcept {
    allow_searches(1000);
    const sched::stack_captures captures;
    std::size_t all = 0;
    sched::for_each_goroutine([&](const goroutine& g) { all += alive(g); });
    alike groups(all);
    const bool whole = groups.usable();
    if (whole) {
        sched::for_each_goroutine([&](const goroutine& g) {
            if (alive(g)) groups.add(g, key_of(g, captures));
        });
        groups.sort();
    }
    allow_searches(1000);
    platform::text_writer& out = to.text();
    out << "{\"version\": 1, \"goroutines\": " << all;
    if (const goroutine* self = sched::current_goroutine()) {
        key(out, "current");
        out << self->id;
    }
    write_processors(out);
    key(out, "groups");
    out << '[';
    std::size_t written = 0, left = 0, left_goroutines = whole ? 0 : all;
    groups.for_each_group([&](const alike::member& first) {
        if (written == at_most) {
            ++left;
            left_goroutines += first.in_group;
            return;
        }
        out << (written++ == 0 ? "\n" : ",\n");
        write_group_as_json(to, first, captures);
    });
    out << "\n], \"groups_left_out\": " << left << ", \"goroutines_left_out\": " << left_goroutines << "}\n";
}

}  // namespace dunlin::observe
