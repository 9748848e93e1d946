// this_goroutine.cpp - what a goroutine may ask for itself: sleep, yield, blocking(), no_preempt, its name, its thread.
#include <string>
#include <string_view>

#include <dunlin/blocking.hpp>
#include <dunlin/clock.hpp>
#include <dunlin/go.hpp>
#include <dunlin/runtime.hpp>

#include "platform/clock.h"
#include "sched/goroutines/blocking.h"
#include "sched/goroutines/goroutine.h"
#include "sched/goroutines/os_thread.h"
#include "sched/goroutines/thread_stack.h"
#include "sched/goroutines/yield.h"
#include "timer/timers.h"

namespace dunlin::inline v0_1 {

clock::time_point clock::now() noexcept { return time_point(duration(platform::now_ns())); }

namespace detail {

void sleep_until(clock::time_point t, std::source_location where) {
    timers::sleep_until_ns(t.time_since_epoch().count(), where);
}

blocking_scope::blocking_scope(blocking_site& site) noexcept : site_(site) {
    const sched::blocking_entry entry = sched::begin_blocking(site.score);
    began_ns_ = entry.began_ns;
    reason_before_ = static_cast<unsigned char>(entry.reason_before);
}

void call_on_thread_stack(void (*entry)(void*), void* argument) {
    sched::call_on_thread_stack(entry, argument);
}

blocking_scope::~blocking_scope() {
    sched::end_blocking(site_.score, {began_ns_, static_cast<sched::wait_reason>(reason_before_)});
}

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

}  // namespace dunlin
