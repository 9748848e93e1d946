// runtime.cpp - the only file that knows every layer: it wires them, starts them, and stops them.
#include <algorithm>
#include <cerrno>
#include <pthread.h>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>

#include <dunlin/detail/atomic.hpp>
#include <dunlin/dunlin.hpp>

#include "chan/timed_call.h"
#include "context/run_context.h"
#include "observe/report.h"
#include "park/join.h"
#include "park/lot.h"
#include "platform/check.h"
#include "platform/clock.h"
#include "platform/cpu_count.h"
#include "platform/environment.h"
#include "platform/futex.h"
#include "platform/lock_check.h"
#include "platform/membarrier.h"
#include "platform/thread.h"
#include "platform/usable.h"
#include "platform/valgrind.h"
#include "poll/netpoll.h"
#include "sched/blocking.h"
#include "sched/crash.h"
#include "sched/deadlock.h"
#include "sched/freeze.h"
#include "sched/global_queue.h"
#include "sched/goroutine.h"
#include "sched/hooks.h"
#include "sched/lifetime.h"
#include "sched/monitor.h"
#include "sched/os_thread.h"
#include "sched/preempt.h"
#include "sched/processor.h"
#include "sched/thread_maker.h"
#include "sched/thread_stack.h"
#include "timer/timers.h"

namespace dunlin {

namespace {

using sched::the_scheduler;

platform::ranked_lock<platform::lock_rank::start> start_lock;  // start_runtime() and the beginning and end of run()

// ---- settings -------------------------------------------------------------------------------------------------------

unsigned default_max_procs() {
    for (const char* name : {"DUNLIN_MAXPROCS", "GOMAXPROCS"}) {
        if (const auto n = platform::environment_number(name, 1, sched::max_procs_limit)) return static_cast<unsigned>(*n);
    }
    const unsigned n = platform::processors_for(platform::affinity_cpus(), platform::cpu_quota().cpus());
    return n < sched::max_procs_limit ? n : sched::max_procs_limit;
}

void check_stack_size(const char* operation, std::size_t bytes) {
    const std::size_t most = stack::usable_bytes(stack::class_count - 1);
    if (bytes >= min_stack_size && bytes <= most) return;
    throw std::invalid_argument(std::string(operation) + ": stack_size " + std::to_string(bytes) + " is not between the minimum of " +
                                std::to_string(min_stack_size) + " bytes and the maximum of " + std::to_string(most) + " bytes");
}

unsigned default_stack_class() {
    const auto bytes = platform::environment_size("DUNLIN_STACK_SIZE", min_stack_size, stack::usable_bytes(stack::class_count - 1));
    if (bytes) return stack::class_for(*bytes);
    if (stack::sanitizing) return stack::checked_class;
    if (platform::under_valgrind()) return stack::dense_class;  // it has little address space
    return stack::class_like_a_thread(platform::space_for_stacks());
}

void choose_guards() {
    const std::string_view text = platform::environment_text("DUNLIN_STACK_GUARD");
    if (text.empty()) return;
    if (const auto kind = platform::parse_guard_kind(text)) {
        stack::stacks.use_guards(*kind);
    } else {
        platform::complain("DUNLIN_STACK_GUARD", text, "is not one of auto, madvise, mprotect, canary, none");
    }
}

void choose_preemption() {
    using sched::preemption;
    // Valgrind runs one thread at a time, for long: one that stands still in a handler is then hard to tell from one
    // that hangs.
    if (platform::under_valgrind()) sched::preemption_mode = preemption::take;
    const std::string_view text = platform::environment_text("DUNLIN_PREEMPTION");
    if (text == "off") {
        sched::preemption_mode = preemption::off;
    } else if (text == "take") {
        sched::preemption_mode = preemption::take;
    } else if (text == "anywhere") {
        sched::preemption_mode = preemption::signal;
        sched::preempt_anywhere = true;
    } else if (text == "signal") {
        sched::preemption_mode = preemption::signal;
    } else if (!text.empty()) {
        platform::complain("DUNLIN_PREEMPTION", text, "is not one of signal, take, off");
    }
    const std::string_view number = platform::environment_text("DUNLIN_PREEMPTION_SIGNAL");
    if (number.empty()) return;
    const auto signal = platform::parse_number(number);
    // Not what the kernel sends for faults, nor what cannot be caught, nor libc's own (32, 33).
    const auto usable = [](std::uint64_t n) {
        for (const int no : {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, 32, 33}) {
            if (n == static_cast<std::uint64_t>(no)) return false;
        }
        return n >= 1 && n <= 64;
    };
    if (signal && usable(*signal)) {
        sched::preemption_signal = static_cast<int>(*signal);
    } else {
        platform::complain("DUNLIN_PREEMPTION_SIGNAL", number, "is not the number of a signal that a program can handle");
    }
}

// What it says has been done when the program was loaded (platform/membarrier.h).
void check_barriers_setting() {
    const std::string_view text = platform::environment_text("DUNLIN_BARRIERS");
    if (!text.empty() && text != "auto" && text != "symmetric") platform::complain("DUNLIN_BARRIERS", text, "is not one of auto, symmetric");
}

// ---- the end of the process -----------------------------------------------------------------------------------------

void stop_at_exit() noexcept {
    // In the child of a fork only the forking thread exists: there is nothing to stop, and a wait would not end.
    const bool forked = platform::not_after_fork.load(std::memory_order_relaxed) != nullptr;
    if (the_scheduler.started.load(std::memory_order_acquire) && !forked) sched::retire_world();
}

// exit() destroys the exiting thread's thread_locals before it runs atexit handlers and destroys static objects. So an
// object of the main thread, and one of each thread that runs goroutines, stops the goroutines before the first static
// destructor can take anything away from them. Other threads that call exit() get as far as the handler.
struct stopper {
    bool armed = false;
    ~stopper() {
        if (armed) stop_at_exit();
    }
};
thread_local stopper thread_stopper;

void arm_stopper() noexcept {
    if (platform::is_main_thread()) thread_stopper.armed = true;
}

void machine_thread(bool begins) noexcept {
    thread_stopper.armed = begins;
    observe::profile_machine_thread(begins);
}

// ---- run ------------------------------------------------------------------------------------------------------------

struct main_call {
    void (*entry)(void*);
    void* frame;
};

platform::atomic<std::uint32_t> main_done{0};

void main_entry(void* raw) {
    const main_call call = *static_cast<main_call*>(raw);
    call.entry(call.frame);
}

void main_ended(sched::goroutine* g) noexcept {
    if (g->extra != nullptr && g->extra->exiting) {
        the_scheduler.lock.lock();
        the_scheduler.main_exited = true;
        the_scheduler.lock.unlock();
        return;
    }
    the_scheduler.lock.lock();
    the_scheduler.main_returned = true;
    the_scheduler.lock.unlock();
    main_done.store(1, std::memory_order_release);
    platform::futex_wake(main_done);
}

void wire() {
    sched::hooks.wake_joiner = park::wake_joiner;
    sched::hooks.main_ended = main_ended;
    sched::hooks.illegal_transition = sched::report_illegal_transition;
    sched::hooks.outlives_run = detail::timed_call_outlives_run;
    sched::hooks.deadlock = observe::report_deadlock;
    sched::hooks.process_dies = observe::write_trace_of_death;
    sched::hooks.machine_thread = machine_thread;
    if (the_scheduler.events == nullptr) the_scheduler.events = new netpoll::poller;
}

sched::goroutine* of(detail::goroutine_handle* g) noexcept { return reinterpret_cast<sched::goroutine*>(g); }
const sched::goroutine* of(const detail::goroutine_handle* g) noexcept { return reinterpret_cast<const sched::goroutine*>(g); }

}  // namespace

namespace sched {

[[gnu::noinline]] static void start_for_the_first_time() {
    std::unique_lock guard(start_lock);
    scheduler& s = the_scheduler;
    if (s.started.load(std::memory_order_acquire)) return;
    platform::be_the_one_that_works();
    check_barriers_setting();
    platform::remember_signal_mask();
    platform::set_stoppable(sched::may_be_stopped_here);
    platform::watch_allocations();
    wire();
    choose_guards();
    choose_preemption();
    s.default_stack_class = default_stack_class();
    s.cpus.store(platform::affinity_cpus(), std::memory_order_relaxed);
    s.coarse_now_ns.store(platform::now_ns(), std::memory_order_relaxed);
    install_crash_handlers();
    install_freeze_handler();
    if (!start_monitor() || !start_thread_maker()) {
        throw std::system_error(EAGAIN, std::generic_category(), "dunlin: no thread for the monitor (limits: ulimit -u, pids.max, memory)");
    }
    set_max_procs(default_max_procs());
    observe::read_debug_settings();
    std::atexit(stop_at_exit);
    pthread_atfork(nullptr, nullptr, sched::leave_runtime_in_child);
    s.started.store(true, std::memory_order_release);
    guard.unlock();
    if (hooks.started != nullptr) hooks.started();
}

void start_runtime() {
    platform::check_usable();
    if (DUNLIN_UNLIKELY(!the_scheduler.started.load(std::memory_order_acquire))) start_for_the_first_time();
}

}  // namespace sched

namespace platform {

void close_fast_paths() noexcept {
    for (park::lot_bucket& b : park::the_lot) {
        b.watched.store(1, std::memory_order_relaxed);
        b.waiting.store(1, std::memory_order_relaxed);
    }
}

}  // namespace platform

// ---- the functions behind the headers -------------------------------------------------------------------------------

clock::time_point clock::now() noexcept { return time_point(duration(platform::now_ns())); }

namespace detail {

void throw_null_function(const char* operation) {
    throw std::invalid_argument(std::string(operation) + ": go of nil func value (the function is null or empty)");
}

[[gnu::noinline]] static void apply(const go_options& options, sched::goroutine* g) {
    if (!options.name.empty()) sched::extra_of(g).name = options.name;
    if (!options.labels.empty()) sched::extra_of(g).labels = options.labels;
}

// The cases of make() that its quick half leaves out.
[[gnu::noinline]] static new_goroutine make_any(std::size_t bytes, std::size_t align, const go_options* options, sched::creation_place place) {
    if (DUNLIN_UNLIKELY(sched::current_machine() == nullptr)) {
        sched::start_runtime();
        arm_stopper();
    }
    std::size_t stack_size = 0;
    if (options != nullptr && options->stack_size != 0) {
        stack_size = options->stack_size;
        check_stack_size("dunlin::go", stack_size);
    }
    sched::goroutine* g = sched::make_goroutine(bytes, align, stack_size, place);
    if (DUNLIN_UNLIKELY(options != nullptr)) {
        try {
            apply(*options, g);
        } catch (...) {
            sched::discard_goroutine(g);
            throw;
        }
    }
    return {reinterpret_cast<goroutine_handle*>(g), g->frame()};
}

new_goroutine make(std::size_t bytes, std::size_t align, const go_options* options, std::source_location where) {
    const sched::creation_place place = where.line() != 0 ? sched::creation_place(where) : sched::creation_place(__builtin_return_address(0));
    sched::machine* m = sched::current_machine();
    if (DUNLIN_LIKELY(m != nullptr && options == nullptr && bytes <= sched::inline_frame_bytes && align <= 16)) {
        if (sched::goroutine* g = sched::make_plain_goroutine(m, place)) return {reinterpret_cast<goroutine_handle*>(g), g->inline_frame};
    }
    return make_any(bytes, align, options, place);
}

void start(new_goroutine n, void (*entry)(void*), end_kind kind, const void* group) noexcept {
    sched::goroutine* g = of(n.g);
    g->entry = entry;
    if (kind == end_kind::joinable) {
        g->flags |= sched::goroutine::joinable;
        group = g;
    }
    g->group.store(g->flags & sched::goroutine::own_stack ? nullptr : group, std::memory_order_relaxed);
    sched::start_goroutine(g);
}

static sched::goroutine_list list_of(const new_goroutines& l) noexcept {
    sched::goroutine_list list;
    list.head = l.first != nullptr ? of(l.first) : nullptr;
    list.tail = l.last != nullptr ? of(l.last) : nullptr;
    list.size = l.count;
    return list;
}

static void note(new_goroutines& l, const sched::goroutine_list& list) noexcept {
    l = {reinterpret_cast<goroutine_handle*>(list.head), reinterpret_cast<goroutine_handle*>(list.tail), list.size};
}

void add_to(new_goroutines& l, new_goroutine n, void (*entry)(void*), const void* group) noexcept {
    sched::goroutine* g = of(n.g);
    g->entry = entry;
    g->group.store(g->flags & sched::goroutine::own_stack ? nullptr : group, std::memory_order_relaxed);
    sched::goroutine_list list = list_of(l);
    list.push_back(g);
    note(l, list);
}

new_goroutine take_off(new_goroutines& l) noexcept {
    sched::goroutine_list list = list_of(l);
    sched::goroutine* g = list.pop_front();
    note(l, list);
    return {reinterpret_cast<goroutine_handle*>(g), g->frame()};
}

void start_all(const new_goroutines& l) noexcept {
    sched::goroutine_list list = list_of(l);
    sched::start_goroutines(list);
}

void discard(new_goroutine n) noexcept { sched::discard_goroutine(of(n.g)); }
void join(goroutine_handle* g, std::source_location where) noexcept { park::join(of(g), where); }
bool has_ended(const goroutine_handle* g) noexcept { return park::has_ended(of(g)); }
void release(goroutine_handle* g) noexcept { sched::release_goroutine(of(g)); }
void detach(goroutine_handle* g) noexcept { park::detach(of(g)); }
unsigned long long id_of(const goroutine_handle* g) noexcept { return of(g)->id; }

unsigned hardware_concurrency() noexcept {
    try {
        return runtime::max_procs();
    } catch (...) {
        return 0;  // the runtime cannot start
    }
}

void throw_cannot_join(const char* operation, join_refusal why) {
    if (why == join_refusal::itself) {
        throw std::system_error(std::make_error_code(std::errc::resource_deadlock_would_occur), std::string(operation) + ": called by the goroutine itself");
    }
    throw std::system_error(std::make_error_code(std::errc::invalid_argument),
        std::string(operation) + ": it holds no goroutine (default constructed, moved from, joined or detached)");
}

void sleep_until(clock::time_point t, std::source_location where) { timers::sleep_until_ns(t.time_since_epoch().count(), where); }

// With an end to each sleep: the end of a goroutine wakes no sleeper here, since that would cost each goroutine
// something.
static void wait_for_leftovers(const run_options& options) {
    if (options.at_end == leftovers::stop) return;
    if (options.at_end == leftovers::cancel_and_wait) cancel_run_context();
    sched::scheduler& s = the_scheduler;
    s.lock.lock();
    s.main_returned = false;  // run() waits on: a deadlock is one
    sched::check_for_deadlock();
    s.lock.unlock();
    constexpr std::int64_t shortest_ns = 20'000, longest_ns = 2'000'000;
    const std::int64_t until = deadline_in(std::chrono::duration_cast<std::chrono::nanoseconds>(options.at_end_limit));
    for (std::int64_t sleep_ns = shortest_ns; sched::live_goroutines() != 0 && platform::now_ns() < until;) {
        platform::futex_wait_until(main_done, 1, std::min(platform::now_ns() + sleep_ns, until));
        sleep_ns = std::min(2 * sleep_ns, longest_ns);
    }
    s.lock.lock();
    s.main_returned = true;
    s.lock.unlock();
}

void run_main(const run_options& options, void (*entry)(void*), void* frame, std::source_location where) {
    if (sched::current_machine() != nullptr) throw std::logic_error("dunlin::run: called in a goroutine; use go() or spawn()");
    if (options.max_procs > sched::max_procs_limit) {
        throw std::invalid_argument("dunlin::run: max_procs " + std::to_string(options.max_procs) + " is not between 1 and 1024");
    }
    if (options.stack_size != 0) check_stack_size("dunlin::run", options.stack_size);
    const std::size_t main_stack = options.main_stack_size != 0 ? options.main_stack_size : std::size_t{8} << 20;
    check_stack_size("dunlin::run (main_stack_size)", main_stack);
    sched::start_runtime();
    arm_stopper();
    sched::scheduler& s = the_scheduler;
    {
        std::unique_lock guard(start_lock);
        s.lock.lock();
        const bool busy = s.inside_run;
        s.lock.unlock();
        if (busy) throw std::logic_error("dunlin::run: another thread is inside run(); use go() or spawn() from there");
        if (options.max_procs != 0) sched::set_max_procs(options.max_procs);
        if (options.stack_size != 0) sched::set_default_stack_class(stack::class_for(options.stack_size));
        sched::goroutine* g = sched::make_goroutine(sizeof(main_call), alignof(main_call), main_stack, sched::creation_place(where));
        if (!s.main_was_started) g->id = 1;
        s.main_was_started = true;
        *static_cast<main_call*>(g->frame()) = {entry, frame};
        g->entry = main_entry;
        g->flags |= sched::goroutine::main;
        main_done.store(0, std::memory_order_relaxed);
        s.lock.lock();
        s.inside_run = true;
        s.runner.store(platform::thread_id(), std::memory_order_relaxed);
        s.main_returned = false;
        s.lock.unlock();
        sched::start_goroutine(g);
    }
    while (main_done.load(std::memory_order_acquire) == 0) platform::futex_wait(main_done, 0);
    wait_for_leftovers(options);
    if (options.report_leaks) observe::report_leaks();
    forget_run_context();
    sched::retire_world();
    s.lock.lock();
    s.inside_run = false;
    s.lock.unlock();
}

}  // namespace detail

namespace detail {

blocking_scope::blocking_scope(blocking_site& site) noexcept : site_(site) {
    const sched::blocking_entry entry = sched::begin_blocking(site.score);
    began_ns_ = entry.began_ns;
    reason_before_ = static_cast<unsigned char>(entry.reason_before);
}

void call_on_thread_stack(void (*entry)(void*), void* argument) noexcept { sched::call_on_thread_stack(entry, argument); }

blocking_scope::~blocking_scope() { sched::end_blocking(site_.score, {began_ns_, static_cast<sched::wait_reason>(reason_before_)}); }

}  // namespace detail

no_preempt::no_preempt() noexcept : outermost_(sched::begin_no_preempt()) {}
no_preempt::~no_preempt() {
    if (outermost_) sched::end_no_preempt();
}

void yield() noexcept { sched::yield(); }
void exit_goroutine() { sched::exit_goroutine(); }
void lock_os_thread() { sched::lock_os_thread(); }
void unlock_os_thread() noexcept { sched::unlock_os_thread(); }

namespace this_goroutine {

std::uint64_t id() noexcept {
    const sched::goroutine* g = sched::current_goroutine();
    return g ? g->id : 0;
}

std::string name() {
    const sched::goroutine* g = sched::current_goroutine();
    return g && g->extra ? g->extra->name : std::string();
}

void set_name(std::string_view name) { sched::name_current_goroutine(name); }

}  // namespace this_goroutine

namespace runtime {

unsigned max_procs() {
    sched::start_runtime();
    return the_scheduler.max_procs.load(std::memory_order_relaxed);
}

unsigned set_max_procs(unsigned n) {
    if (n < 1 || n > sched::max_procs_limit) {
        throw std::invalid_argument("dunlin::runtime::set_max_procs: " + std::to_string(n) + " is not between 1 and " + std::to_string(sched::max_procs_limit));
    }
    const unsigned before = max_procs();
    if (n != before) sched::set_max_procs(n);
    return before;
}

std::size_t num_goroutines() { return sched::live_goroutines(); }

}  // namespace runtime
}  // namespace dunlin
