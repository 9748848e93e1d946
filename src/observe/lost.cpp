#include "observe/lost.h"

#include <algorithm>
#include <chrono>

#include <dunlin/go.hpp>

#include "observe/collect.h"
#include "observe/dump.h"
#include "observe/page.h"
#include "observe/wait_graph.h"
#include "platform/check.h"
#include "platform/clock.h"
#include "platform/environment.h"
#include "platform/futex.h"
#include "platform/thread.h"
#include "sched/data/bells.h"
#include "sched/data/all_goroutines.h"
#include "sched/goroutines/goroutine.h"
#include "sched/machines/processor.h"

namespace dunlin::inline v0_1::observe {

namespace {

using sched::goroutine;
using sched::goroutine_state;

constexpr std::chrono::milliseconds between_searches{1};

}  // namespace

bool lost_goroutines::contains(const goroutine& g) const noexcept {
    if (g.state.load(std::memory_order_acquire) != goroutine_state::waiting) return false;
    const wait* const w =
        std::lower_bound(begin(), end(), g.id, [](const wait& a, std::uint64_t id) { return a.id < id; });
    return w != end() && w->id == g.id && w->since_ns == g.waits_since_ns;
}

const char* lost_goroutines::search(std::uintptr_t from, bool again) noexcept {
    const char* why = nullptr;
    sched::stop_world();
    {
        reach r(waiting_goroutines());
        why = r.search(from);
        if (why != nullptr) {
            waits_.shrink(0);
        } else if (again) {
            const wait* const kept =
                std::remove_if(waits_.begin(), waits_.end(), [&](const wait& w) { return !r.lost(w.id, w.since_ns); });
            waits_.shrink(static_cast<std::size_t>(kept - begin()));
        } else {
            waits_.shrink(0);
            r.for_each_lost([&](const reach::waiting& w) { waits_.add({w.id, w.since_ns}); });
        }
    }
    sched::start_world();
    return why;
}

const char* lost_goroutines::find(std::uintptr_t from) noexcept {
    if (!waits_.usable()) return "there is no memory for it";
    if (const char* why = search(from, false)) return why;
    if (waits_.size() == 0) return nullptr;
    std::sort(waits_.begin(), waits_.end(), [](const wait& a, const wait& b) { return a.id < b.id; });
    sleep_for(between_searches);
    return search(from, true);
}

// ---- DUNLIN_DEBUG=leaks ---------------------------------------------------------------------------------------------

namespace {

platform::atomic<bool> told_at_end{false};

bool is_lost(const goroutine& g, const void* of) noexcept {
    return static_cast<const lost_goroutines*>(of)->contains(g);
}

void write_lost(page& to, const lost_goroutines& lost) noexcept {
    const goroutine_filter filter{is_lost, &lost};
    to.text() << "dunlin: " << static_cast<std::uint64_t>(lost.count())
              << (lost.count() == 1 ? " goroutine" : " goroutines")
              << " can never go on, for nothing that can still run refers to what they wait for:\n\n";
    write_goroutines(to, everything, &filter);
}

[[gnu::noinline]] void report_lost_from(std::uintptr_t from) noexcept {
    lost_goroutines lost;
    if (const char* why = lost.find(from)) {
        platform::text_writer(2) << "dunlin: DUNLIN_DEBUG=leaks: not looked for goroutines that can never go on: "
                                 << why << '\n';
        return;
    }
    if (lost.count() == 0) return;
    page to;
    to.reserve(lost.count());
    sched::stop_world();
    write_lost(to, lost);
    sched::start_world();
    const std::string text = to.finish();
    platform::text_writer(2) << std::string_view(text);
}

// The thread of leaks=MILLISECONDS. It keeps what one search has found, and checks it before the next.
struct watch {
    std::int64_t period_ns = 0;
    platform::atomic<std::uint32_t> never{0};
};
constinit watch the_watch;

// Each goroutine that was lost must still be in the same wait, unless the run has ended.
void check_still_lost(const lost_goroutines& before) noexcept {
    sched::stop_world();
    const lost_goroutines::wait* gone_on = nullptr;
    for (const lost_goroutines::wait& w : before) {
        bool there = false;
        sched::for_each_goroutine([&](const goroutine& g) {
            if (g.id != w.id) return;
            there = there || g.state.load(std::memory_order_acquire) == goroutine_state::frozen || before.contains(g);
        });
        if (!there) gone_on = &w;
    }
    if (gone_on != nullptr) {
        platform::text_writer(2) << "fatal: goroutine " << gone_on->id
                                 << " has gone on, though it was found that it never can: please report this\n";
        platform::end_process(2);
    }
    sched::start_world();
}

[[gnu::noinline]] void watch_from(std::uintptr_t from) noexcept {
    lost_goroutines lost;
    for (std::int64_t pause_ns = the_watch.period_ns;;) {
        platform::futex_wait_until(the_watch.never, 0, platform::real_now_ns() + pause_ns);
        const std::int64_t begun_ns = platform::real_now_ns();
        check_still_lost(lost);
        lost.find(from);
        // Even if a search takes long, the program has most of the time.
        pause_ns = std::max(the_watch.period_ns, 3 * (platform::real_now_ns() - begun_ns));
    }
}

void watch_main(void*) {
    sched::watching_threads.fetch_add(1);
    DUNLIN_STACK_POINTER_HERE(from);
    watch_from(from);
}
constexpr platform::thread_kind watch_thread{watch_main, "dunlin-leaks"};

}  // namespace

void ask_for_lost_at_end() noexcept { told_at_end.store(true, std::memory_order_relaxed); }

void report_lost_at_end() noexcept {
    DUNLIN_STACK_POINTER_HERE(from);
    if (told_at_end.load(std::memory_order_relaxed)) report_lost_from(from);
}

void watch_lost(std::int64_t period_ms) noexcept {
    the_watch.period_ns = period_ms * 1'000'000;
    if (platform::start_thread<watch_thread>(nullptr) == 0) return;
    platform::complain("DUNLIN_DEBUG", "leaks", "there is no thread for it");
}

}  // namespace dunlin::observe
