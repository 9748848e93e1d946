// runtime.cpp - the only file that knows every layer: it wires them and starts them.
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <pthread.h>
#include <system_error>

#include <dunlin/detail/atomic.hpp>

#include "api/exit.h"
#include "api/run.h"
#include "api/settings.h"
#include "observe/dump.h"
#include "observe/schedtrace.h"
#include "observe/trace_file.h"
#include "park/join.h"
#include "park/parking_lot.h"
#include "platform/clock.h"
#include "platform/cpu_count.h"
#include "platform/lock_check.h"
#include "platform/membarrier.h"
#include "platform/thread.h"
#include "platform/usable.h"
#include "poll/netpoll.h"
#include "sched/data/hooks.h"
#include "sched/machines/processor.h"
#include "sched/monitor/monitor.h"
#include "sched/monitor/thread_maker.h"
#include "sched/preempt/crash.h"
#include "sched/preempt/fatal_signal.h"
#include "sched/preempt/freeze.h"
#include "sched/preempt/lifetime.h"
#include "sched/preempt/preempt.h"

namespace dunlin::inline v0_1 {

namespace {

using sched::the_scheduler;

void wire() {
    sched::hooks.wake_joiner = park::wake_joiner;
    sched::hooks.main_ended = api::main_ended;
    sched::hooks.illegal_transition = sched::report_illegal_transition;
    sched::hooks.deadlock = observe::report_deadlock;
    sched::hooks.process_dies = observe::write_trace_of_death;
    sched::hooks.register_thread = api::register_thread;
    sched::hooks.machine_thread = api::machine_thread;
    if (the_scheduler.events == nullptr) the_scheduler.events = new netpoll::poller;
}

}  // namespace

namespace sched {

// A child that is forked while another thread starts the runtime has half of it, and the lock of the start.
static void told_in_child() noexcept {
    if (the_scheduler.started.load(std::memory_order_relaxed) || api::start_lock.is_locked()) leave_runtime_in_child();
}

// Not again after a start that has failed. Before the lock is taken: pthread_atfork() waits while other threads fork.
// Noted after it: a second thread that starts the runtime meanwhile registers the function as well, which does no harm;
// if it went on, it could fork before the first one has registered it. Release pairs with the acquire in
// tell_children(): a thread that is told so by the flag may fork.
static void tell_children() noexcept {
    static platform::atomic<bool> done{false};
    if (done.load(std::memory_order_acquire)) return;
    if (pthread_atfork(nullptr, nullptr, told_in_child) == 0) done.store(true, std::memory_order_release);
}

// False: another thread has just done it.
[[gnu::noinline]] static bool start_for_the_first_time() {
    tell_children();
    std::unique_lock guard(api::start_lock);
    scheduler& s = the_scheduler;
    if (s.started.load(std::memory_order_acquire)) return false;
    platform::be_the_one_that_works();
    api::check_barriers_setting();
    platform::choose_barriers();
    platform::set_stoppable(sched::may_be_stopped_here);
    platform::watch_allocations();
    wire();
    api::choose_guards();
    api::choose_preemption();
    // A program whose main() blocks all signals, for a thread that takes them by sigwait(), blocks these as well.
    platform::remember_signal_mask(std::array{sched::preemption_signal, SIGSEGV, SIGBUS, SIGILL, SIGFPE});
    s.cpus.store(platform::affinity_cpus(), std::memory_order_relaxed);
    s.coarse_now_ns.store(platform::now_ns(), std::memory_order_relaxed);
    install_crash_handlers();
    install_freeze_handler();
    make_first_record();
    if (!start_monitor() || !start_thread_maker()) {
        throw std::system_error(
            EAGAIN, std::generic_category(), "dunlin: no thread for the monitor (limits: ulimit -u, pids.max, memory)");
    }
    set_max_procs(api::default_max_procs());
    set_default_stack_class(api::default_stack_class());
    observe::read_debug_settings();
    platform::prepare_thread_ends();
    sched::make_first_machines(2);
    std::atexit(api::stop_at_exit);
    s.started.store(true, std::memory_order_release);
    guard.unlock();
    if (hooks.started != nullptr) hooks.started();
    return true;
}

bool start_runtime() {
    platform::check_usable();
    return DUNLIN_UNLIKELY(!the_scheduler.started.load(std::memory_order_acquire)) && start_for_the_first_time();
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

}  // namespace dunlin
