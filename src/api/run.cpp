// run.cpp - run(): the thread that calls it starts the main goroutine and waits until that goroutine has ended.
#include "api/run.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <source_location>
#include <stdexcept>
#include <string>

#include <dunlin/detail/atomic.hpp>
#include <dunlin/detail/page_hook.hpp>
#include <dunlin/detail/wait.hpp>
#include <dunlin/go.hpp>
#include <dunlin/runtime.hpp>

#include "api/exit.h"
#include "api/settings.h"
#include "context/run_context.h"
#include "observe/dump.h"
#include "observe/lost.h"
#include "observe/schedtrace.h"
#include "platform/clock.h"
#include "platform/environment.h"
#include "platform/futex.h"
#include "platform/thread.h"
#include "sched/goroutines/goroutine.h"
#include "sched/goroutines/thread_stack.h"
#include "sched/machines/deadlock.h"
#include "sched/machines/processor.h"
#include "sched/monitor/thread_maker.h"
#include "sched/preempt/lifetime.h"
#include "sched/preempt/end_of_run.h"

namespace dunlin::inline v0_1::api {

constinit platform::ranked_lock<platform::lock_rank::start> start_lock;

namespace {

struct main_call {
    void (*entry)(void*);
    void* frame;
};

platform::atomic<std::uint32_t> main_done{0};

detail::page_hook& the_page_hook() noexcept {
    static constinit detail::page_hook hook;
    return hook;
}

// While this object lives, the page of DUNLIN_DEBUG=page=ADDRESS is served. Does nothing unless a library has
// registered itself for it.
class page_of_run {
public:
    page_of_run() noexcept : address_(observe::page_setting()) {
        if (address_ == nullptr) return;
        if (the_page_hook().begin != nullptr) {
            the_page_hook().begin(address_);
        } else {
            platform::complain("DUNLIN_DEBUG", "page", "needs a program that is linked with dunlin::debug");
        }
    }
    ~page_of_run() {
        if (address_ != nullptr && the_page_hook().end != nullptr) the_page_hook().end();
    }
    page_of_run(const page_of_run&) = delete;
    page_of_run& operator=(const page_of_run&) = delete;

private:
    const char* address_;
};

void main_entry(void* raw) {
    const main_call call = *static_cast<main_call*>(raw);
    const page_of_run page;
    call.entry(call.frame);
}

}  // namespace

void main_ended(sched::goroutine* g) noexcept {
    if (g->extra != nullptr && g->extra->exiting) {
        sched::the_scheduler.lock.lock();
        sched::the_scheduler.main_exited = true;
        sched::the_scheduler.lock.unlock();
        return;
    }
    sched::the_scheduler.lock.lock();
    sched::the_scheduler.main_returned = true;
    sched::the_scheduler.lock.unlock();
    main_done.store(1, std::memory_order_release);
    platform::futex_wake(main_done);
}

}  // namespace dunlin::api

namespace dunlin::inline v0_1::detail {

void set_page_hook(const page_hook& hook) noexcept { api::the_page_hook() = hook; }

// Are there goroutines that belong to this run()?
static bool any_left() noexcept {
    if (sched::live_goroutines() == 0) return false;
    if (sched::the_scheduler.independent.load(std::memory_order_relaxed) == 0) return true;
    sched::stop_world();
    const bool any = sched::any_ends_with_run();
    sched::start_world();
    return any;
}

// Each sleep has a time limit: the end of a goroutine does not wake the sleeper here, since that would cost every
// goroutine something.
static void wait_for_leftovers(const run_options& options) {
    if (options.at_end == leftovers::stop) return;
    if (options.at_end == leftovers::cancel_and_wait) {
        try {
            cancel_run_context();
        } catch (const std::bad_alloc&) {
            // No goroutine has asked for the context before, and there is no memory for it now: run() must end all the
            // same, as it does when the limit is over.
            return;
        }
    }
    sched::scheduler& s = sched::the_scheduler;
    constexpr std::int64_t shortest_ns = 20'000, longest_ns = 2'000'000;
    const std::int64_t until = deadline_in(options.at_end_limit);
    if (until == wait_limit::never) {
        s.lock.lock();
        s.main_returned = false;  // run() goes on waiting, so a deadlock must be reported; a limit ends any wait
        sched::check_for_deadlock();
        s.lock.unlock();
    }
    for (std::int64_t sleep_ns = shortest_ns;;) {
        const std::int64_t begin = platform::real_now_ns();
        if (!any_left()) break;
        const std::int64_t now = platform::real_now_ns();
        if (now >= until) break;
        // The world may have stood still for the look: for a twentieth of the time at most.
        const std::int64_t pause_ns = std::max(sleep_ns, 20 * (now - begin));
        platform::futex_wait_until(api::main_done, 1, std::min(now + pause_ns, until));
        sleep_ns = std::min(2 * sleep_ns, longest_ns);
    }
    s.lock.lock();
    s.main_returned = true;
    s.lock.unlock();
}

void run_main(const run_options& options, void (*entry)(void*), void* frame, std::source_location where) {
    if (sched::own_machine() != nullptr)  // in on_thread_stack() too
        throw std::logic_error("dunlin::run: called in a goroutine; use go() or spawn()");
    if (options.max_procs > sched::max_procs_limit) {
        throw std::invalid_argument(
            "dunlin::run: max_procs " + std::to_string(options.max_procs) + " is not between 1 and 1024");
    }
    if (options.stack_size != 0) api::check_stack_size("dunlin::run", options.stack_size);
    const std::size_t main_stack = options.main_stack_size != 0 ? options.main_stack_size : std::size_t{8} << 20;
    api::check_stack_size("dunlin::run (main_stack_size)", main_stack);
    const bool starts = sched::start_runtime();
    api::arm_stopper();
    sched::scheduler& s = sched::the_scheduler;
    {
        std::unique_lock guard(api::start_lock);
        s.lock.lock();
        const bool busy = s.inside_run;
        s.lock.unlock();
        if (busy) throw std::logic_error("dunlin::run: another thread is inside run(); use go() or spawn() from there");
        if (options.max_procs != 0) sched::set_max_procs(options.max_procs);
        if (options.stack_size != 0) sched::set_default_stack_class(stack::class_for(options.stack_size));
        sched::goroutine* g = sched::make_goroutine(
            sizeof(api::main_call), alignof(api::main_call), main_stack, sched::creation_place(where));
        if (!s.main_was_started) g->id = 1;
        s.main_was_started = true;
        *static_cast<api::main_call*>(g->frame()) = {entry, frame};
        g->entry = api::main_entry;
        g->flags |= sched::goroutine::main;
        api::main_done.store(0, std::memory_order_relaxed);
        s.lock.lock();
        s.inside_run = true;
        s.runner.store(platform::thread_id(), std::memory_order_relaxed);
        s.main_returned = true;  // until it is queued: start_goroutine_outside()
        s.lock.unlock();
        sched::start_goroutine(g);
    }
    // While the main goroutine begins. A later run() may be called by a thread whose affinity is its own: a new thread
    // would copy it.
    if (starts) sched::make_first_machines(4);
    while (api::main_done.load(std::memory_order_acquire) == 0) platform::futex_wait(api::main_done, 0);
    wait_for_leftovers(options);
    if (options.report_leaks) observe::report_leaks();
    observe::report_lost_at_end();
    forget_run_context();
    sched::end_run();
    s.lock.lock();
    s.inside_run = false;
    s.lock.unlock();
}

}  // namespace dunlin::detail
