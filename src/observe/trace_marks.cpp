// trace_marks.cpp - what a program says of itself in a trace (<dunlin/trace.hpp>): regions, tasks and messages.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include <dunlin/detail/atomic.hpp>
#include <dunlin/trace.hpp>

#include "observe/trace_file.h"
#include "platform/clock.h"
#include "sched/data/all_goroutines.h"
#include "sched/goroutines/extra.h"
#include "sched/machines/machine.h"
#include "sched/machines/trace.h"

namespace dunlin::inline v0_1::trace {

namespace {

// f(machine, goroutine) where events may be noted; nothing on a plain thread.
template <class F>
[[gnu::noinline]] void in_trace(F f) noexcept {
    sched::machine* m = sched::current_machine();
    if (m == nullptr) return;
    m = sched::enter(m);
    if (sched::tracing::on()) f(m, m->current.load(std::memory_order_relaxed));
    sched::leave(m);
}

std::uint64_t task_of(const sched::goroutine* g) noexcept { return g->extra != nullptr ? g->extra->task : 0; }

platform::atomic<std::uint64_t> last_task{0};

}  // namespace

region::region(std::string_view name, std::chrono::nanoseconds too_slow) noexcept : too_slow_ns_(too_slow.count()) {
    if (!sched::tracing::on()) return;
    if (too_slow_ns_ > 0) began_ns_ = platform::now_ns();
    traced_ = true;
    in_trace([&](sched::machine* m, const sched::goroutine* g) {
        note_text(m, sched::tracing::kind::region, g, task_of(g), name);
    });
}

region::~region() {
    if (!traced_) return;
    in_trace([&](sched::machine* m, const sched::goroutine* g) {
        note(m, sched::tracing::kind::region_end, g, task_of(g));
    });
    if (began_ns_ == 0 || platform::now_ns() - began_ns_ <= too_slow_ns_) return;
    observe::ask_for_trace_of_slow_region();
}

task::task(std::string_view name) {
    if (!sched::tracing::on() || sched::current_machine() == nullptr) return;
    sched::make_extra_of_current();
    const std::uint64_t id = last_task.fetch_add(1, std::memory_order_relaxed) + 1;
    in_trace([&](sched::machine* m, const sched::goroutine* g) {
        id_ = id;
        before_ = std::exchange(g->extra->task, id);
        note_text(m, sched::tracing::kind::task, g, id, name);
        if (before_ != 0) note(m, sched::tracing::kind::parent_task, g, before_);
    });
}

task::~task() {
    if (id_ == 0) return;
    sched::machine* m = sched::current_machine();
    if (m == nullptr) return;
    m = sched::enter(m);
    const sched::goroutine* g = m->current.load(std::memory_order_relaxed);
    if (g->extra != nullptr && g->extra->task == id_) g->extra->task = before_;
    if (sched::tracing::on()) note(m, sched::tracing::kind::task_end, g, id_);
    sched::leave(m);
}

void message(std::string_view category, std::string_view text) noexcept {
    if (!sched::tracing::on()) return;
    char both[sched::tracing::longest_text];
    std::size_t size = category.copy(both, 100);
    both[size++] = 0;
    size += text.copy(both + size, sizeof both - size);
    in_trace([&](sched::machine* m, const sched::goroutine* g) {
        note_text(m, sched::tracing::kind::message, g, task_of(g), {both, size});
    });
}

}  // namespace dunlin::trace
