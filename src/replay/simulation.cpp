#include "replay/simulation.h"

#include <dunlin/detail/simulated_point.hpp>

#include <algorithm>
#include <ctime>
#include <limits>
#include <sys/resource.h>
#include <new>
#include <utility>

#include "park/parking_lot.h"
#include "park/waiter.h"
#include "platform/clock.h"
#include "platform/syscall.h"
#include "platform/thread.h"
#include "poll/fd_record.h"
#include "poll/netpoll.h"
#include "sched/data/all_goroutines.h"
#include "sched/data/event_source.h"
#include "sched/goroutines/goroutine.h"
#include "sched/machines/event_notice.h"
#include "sched/machines/processor.h"
#include "sched/monitor/monitor.h"
#include "sched/preempt/crash.h"
#include "sched/queues/global_queue.h"
#include "sched/queues/run_queue_prefetch.h"
#include "timer/timers.h"

namespace dunlin::inline v0_1::replay {

namespace {

using sched::goroutine;
using sched::goroutine_state;
using sched::machine;
using sched::processor;
using sched::the_scheduler;
using sim::failure_kind;

constexpr std::int64_t begin_ns = 3'600'000'000'000;  // the time at which executions begin: not 0, and no clock's time
constexpr std::int64_t choice_takes_ns = 200;
constexpr std::int64_t look_at_clock_takes_ns = 20;   // so that a loop that waits for a time ends
constexpr std::int64_t asleep_factor = 6;             // a thread that sleeps has this many times the patience
// Goroutines that wait by yielding: after this many yields of each, with nothing else to run, time goes on.
constexpr std::uint64_t yields_in_vain = 16;
constexpr std::uint64_t steps_between_looks = 256;     // steps, and executions, between two looks at the memory

// The peak memory of the process, bytes.
std::uint64_t most_memory() noexcept {
    rusage used{};
    platform::raw_syscall(SYS_getrusage, RUSAGE_SELF, platform::syscall_arg(&used));
    return static_cast<std::uint64_t>(used.ru_maxrss) * 1024;
}

int clock_of_simulation(clockid_t id, timespec* t) noexcept {
    const machine* m = sched::current_machine();
    sched::steering* s = sched::steered();
    if (m == nullptr || s == nullptr || id != CLOCK_MONOTONIC || m->p.load(std::memory_order_relaxed) == nullptr)
        return clock_gettime(id, t);
    const std::int64_t now_ns = s->now_ns(m);
    t->tv_sec = now_ns / 1'000'000'000;
    t->tv_nsec = now_ns % 1'000'000'000;
    return 0;
}

// Makes unlocks, and whatever else wakes waiters of the parking lot, take their slow paths (steering.h).
void watch_lot(bool yes) noexcept {
    const park::runtime_section inside;
    for (park::lot_bucket& b : park::the_lot) {
        b.lock.lock();
        if (yes) {
            b.watched.store(1, std::memory_order_relaxed);
            b.announce();
        } else {
            b.retract();
        }
        b.lock.unlock();
    }
}

void set_fast_paths(const detail::fast_path_bounds& to) noexcept {
    sched::free_mutex_word.store(to.free_word, std::memory_order_relaxed);
    __atomic_store_n(&detail::fast_paths.free_word, to.free_word, __ATOMIC_RELAXED);
    __atomic_store_n(&detail::fast_paths.most_readers, to.most_readers, __ATOMIC_RELAXED);
    __atomic_store_n(&detail::fast_paths.no_permits, to.no_permits, __ATOMIC_RELAXED);
}

void stop_steering() noexcept {
    set_fast_paths({});
    netpoll::the_simulated_sockets.store(nullptr, std::memory_order_release);
    sched::the_steering.store(nullptr, std::memory_order_release);
    platform::monotonic_clock.store(clock_gettime, std::memory_order_relaxed);
}

}  // namespace

simulation& the_simulation() noexcept {
    alignas(simulation) static std::byte memory[sizeof(simulation)];
    static simulation* const one = new (memory) simulation;
    return *one;
}

// From here on the monitor takes no processor: a goroutine without one would read the kernel's clock, and run beside
// the decisions. If the round in progress has taken this one, it is asked back while the monitor works as always.
void simulation::keep_monitor_away() noexcept {
    for (;;) {
        sched::the_steering.store(this, std::memory_order_seq_cst);  // pairs with the load in begin_looks()
        sched::wait_for_round_in_progress();
        if (sched::current_machine()->p.load(std::memory_order_acquire) != nullptr) return;
        sched::the_steering.store(nullptr, std::memory_order_release);
        sched::leave(sched::enter(sched::current_machine()));
    }
}

// ---- one after the other --------------------------------------------------------------------------------------------

void simulation::begin(const plan& p) noexcept {
    plan_ = p;
    patience_ns_.store(p.patience_ns, std::memory_order_relaxed);
    driver_ = sched::current_goroutine();
    machine_ = nullptr;
    off_ = 0;
    memory_before_ = most_memory();
    outside_told_ = !p.warns;
    phase_.store(phase::idle, std::memory_order_relaxed);
    outside_.store(false, std::memory_order_relaxed);
    keep_monitor_away();
    // What the monitor has raised would stand for steered_taken until the goroutine's first call: one decision fewer.
    machine* m = sched::enter(sched::current_machine());
    sched::forget_what_asked(m);
    sched::leave(m);
    // Here, not by the first goroutine that opens a descriptor: its execution would have one call more than the next.
    netpoll::start_polling();
    watch_lot(true);
    set_fast_paths({.free_word = ~std::uint32_t{0}, .most_readers = 0,
        .no_permits = std::numeric_limits<std::ptrdiff_t>::max()});
    netpoll::the_simulated_sockets.store(&network_, std::memory_order_release);
    platform::monotonic_clock.store(clock_of_simulation, std::memory_order_relaxed);
}

void simulation::end() noexcept {
    stop_steering();
    watch_lot(false);
    machine* m = sched::enter(sched::current_machine());
    m->random = platform::random_source(static_cast<std::uint64_t>(platform::now_ns()) * 2654435761u + m->id);
    sched::leave(m);
}

void simulation::root_entry(void* raw) {
    struct at_end {
        simulation* s;
        ~at_end() {
            for (host_number h = test_host + 1; h < s->network_.host_count(); ++h) s->switch_off(h);
            s->root_ended_ = true;
            s->root_ended_ns_ = s->now_ns_;
        }
    };
    auto* s = *static_cast<simulation**>(raw);
    const at_end guard{s};
    s->f_(s->with_);
}

outcome simulation::execute(std::uint64_t seed, void (*f)(void*), void* with, bool tell_it, std::uint64_t story_from) {
    const bool failed_before = kind_ != failure_kind::none;  // what it left behind has stopped where it was
    seed_ = seed;
    f_ = f;
    with_ = with;
    choices_.begin(seed, plan_.depth, plan_.longest_delay_ns, plan_.every_order);
    hash_ = {};
    story_.begin(story_from, tell_it);
    known_.clear();
    runnable_.clear();
    wait_for_others_.clear();
    forced_ = nullptr;
    first_id_ = 0;
    numbers_ = steps_ = yields_ = 0;
    now_ns_ = begin_ns;
    root_ended_ = false;
    kind_ = failure_kind::none;
    failed_in_ = 0;
    failed_at_.size = 0;
    message_.clear();
    ++execution_;
    starts_ = no_host;
    network_.begin(failed_before);
    progress_.store(progress_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);

    machine* m = sched::enter(sched::current_machine());
    m->random = platform::random_source(~seed * 0x9e3779b97f4a7c15u);
    machine_ = nullptr;
    take_machine(m, sched::processor_of(m));
    if (!sched::start_inside_runtime(root_entry, this)) {
        sched::leave(m);
        throw std::bad_alloc();
    }
    phase_.store(phase::running, std::memory_order_release);
    sched::prepare_to_park(driver_, sched::wait_reason::parked, std::source_location::current());
    sched::park(m);  // until finish(), or watch()

    outcome o;
    const bool abandoned = phase_.load(std::memory_order_acquire) == phase::abandoned;
    {
        const park::runtime_section inside;
        if (!abandoned) fetch(sched::processor_of(inside.machine()), nullptr);  // what is queued must not run any more
        if (sched::earliest_deadline() != 0) {
            the_scheduler.events->forget_all();
            timers::forget_everything();
        }
    }
    if (!abandoned && execution_ % steps_between_looks == 0) look_at_memory();
    hash_.add(steps_);
    hash_.add(static_cast<std::uint64_t>(now_ns_));
    o.kind = kind_;
    o.hash = hash_.value();
    o.steps = steps_;
    o.took_ns = now_ns_ - begin_ns;
    if (kind_ == failure_kind::none && !tell_it) return o;
    o.message = message_;
    platform::text_writer out(o.details);
    if (failed_at_.size != 0) {
        out << "  in g" << failed_in_ << ":\n";
        out.flush();
        stack::print_trace(out, failed_at_);
    }
    if (kind_ != failure_kind::none) describe_waiters(out);  // else options::failed is what fails, if anything does
    if (!story_.empty()) {
        out << "  the last choices (g1 runs the function itself; times are virtual):\n";
        story_.print(out);
    }
    return o;
}

// ---- decisions ------------------------------------------------------------------------------------------------------

bool simulation::begin_decision() noexcept {
    phase expected = phase::running;
    return phase_.compare_exchange_strong(expected, phase::deciding, std::memory_order_acquire,
        std::memory_order_relaxed);
}

void simulation::end_decision(phase next) noexcept { phase_.store(next, std::memory_order_release); }

void simulation::take_machine(machine* m, processor* p) noexcept {
    if (m->taken.load(std::memory_order_relaxed) == 0) {
        std::uint32_t free = 0;  // a taker may be there first
        m->taken.compare_exchange_strong(free, sched::steered_taken, std::memory_order_relaxed);
    }
    p->tick.store(1, std::memory_order_relaxed);  // find_local() and yield() do something of their own at some ticks
    p->next_look = 0;
    // What is left over of a batch of ids and of a magazine must not decide on which path a goroutine is made: one path
    // enters the runtime once more than the other (detail::make()).
    p->next_id = p->last_id;
    p->slice.store(sched::slice_state::goes_on, std::memory_order_relaxed);
    if (m == machine_) return;
    if (machine_ != nullptr) m->random = machine_->random;
    machine_ = m;
    tid_.store(m->tid, std::memory_order_relaxed);
}

candidate& simulation::known(const goroutine* g) noexcept {
    const std::uint64_t at = g->id - first_id_;
    if (at >= known_.size()) known_.resize(at + 1);
    return known_[at];
}

std::uint64_t simulation::number_of(const goroutine* g) const noexcept {
    return first_id_ != 0 && g->id >= first_id_ && g->id - first_id_ < known_.size() ?
        known_[g->id - first_id_].number : 0;
}

bool simulation::is_off(const goroutine* g) const noexcept {
    return first_id_ != 0 && g->id >= first_id_ && g->id - first_id_ < known_.size() && known_[g->id - first_id_].off;
}

// by: the goroutine that has made g, if g is new; null: a timer.
void simulation::add(goroutine* g, const goroutine* by) noexcept {
    if (g == driver_) return;
    if (first_id_ == 0) first_id_ = g->id;
    if (g->id < first_id_ || is_off(g)) return;  // of an earlier execution, or of a host that is off
    const host_number maker_host = by != nullptr && number_of(by) != 0 ? known_[by->id - first_id_].host : test_host;
    candidate& c = known(g);
    if (c.number == 0) {
        c.number = ++numbers_;
        c.g = g;
        c.host = starts_ != no_host ? starts_ : maker_host;
        if (choices_.uses_priorities()) c.priority = choices_.new_priority();
    }
    c.queued = true;
    runnable_.push_back(g);
}

goroutine* simulation::take(std::size_t at) noexcept {
    goroutine* g = runnable_[at];
    runnable_.erase(runnable_.begin() + static_cast<std::ptrdiff_t>(at));
    known(g).queued = false;
    return g;
}

// Takes all goroutines out of the runtime's queues: those put there first come first.
void simulation::fetch(processor* p, const goroutine* by) noexcept {
    sched::scheduler& s = the_scheduler;
    while (goroutine* g = p->queue.pop_and_prefetch()) add(g, by);
    while (s.global_size() != 0) {
        s.lock.lock();
        goroutine* const g = s.global.pop_front();
        s.lock.unlock();
        if (g != nullptr) add(g, by);  // which allocates
    }
    if (goroutine* g = p->run_next.load(std::memory_order_relaxed)) {
        p->run_next.store(nullptr, std::memory_order_relaxed);
        add(g, by);
    }
}

void simulation::fire_due() noexcept {
    sched::event_source* events = the_scheduler.events;
    const std::uint32_t made = the_scheduler.procs_made.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < made; ++i) {
        processor* p = the_scheduler.processor_at(i);
        const auto is_due = [&](std::int64_t deadline) { return deadline != 0 && deadline <= now_ns_; };
        while (is_due(events->next_deadline(p))) events->collect(p, now_ns_);
    }
    network_.deliver_due(now_ns_);
}

std::int64_t simulation::next_event_ns() const noexcept {
    const std::int64_t timer = sched::earliest_deadline(), arrival = network_.next_ns();
    return timer == 0 || (arrival != 0 && arrival < timer) ? arrival : timer;
}

void simulation::look_at_memory() noexcept {
    const std::uint64_t now = most_memory();
    if (now - memory_before_ <= plan_.max_memory) return;
    fail(failure_kind::memory,
        "the memory of the process has grown by more than options::max_memory since check() began: in this "
        "execution, or by what executions before it have left behind");
}

bool simulation::count_step() noexcept {
    progress_.store(progress_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    now_ns_ += choice_takes_ns;
    if (steps_ % steps_between_looks == steps_between_looks - 1) look_at_memory();
    if (kind_ != failure_kind::none) return false;
    if (++steps_ <= plan_.max_steps) return true;
    fail(failure_kind::never_ends, "does not end: options::max_steps choices were made");
    return false;
}

void simulation::tell(const goroutine* ran, leaving how, const goroutine* next, std::int64_t jumped_ns) noexcept {
    if (!story_.wants(steps_)) return;
    choice& c = story_.add();
    c.step = steps_;
    c.at_ns = now_ns_ - begin_ns;
    c.how = how;
    c.jumped_ns = jumped_ns;
    c.next = next != nullptr ? number_of(next) : 0;
    if (ran == nullptr || ran == driver_) return;
    c.ran = number_of(ran);
    if (how == leaving::waits) c.reason = ran->reason.load(std::memory_order_relaxed);
    if (how != leaving::ended) c.frames = stack::capture_trace(1);
}

// Nothing can run: time goes on to the next event. False: that is the end.
bool simulation::wait_for_time() noexcept {
    const bool all_ended = sched::live_goroutines() <= 1 + off_;  // 1: the driver
    if (root_ended_ && all_ended) return false;
    if (the_scheduler.events->has_waiters() && netpoll::fd_record::waiter_count() > network_.waiters()) {
        fail(failure_kind::outside_wait,
            "waits for a descriptor: sockets, pipes and files are the kernel's, which has no seed");
        return false;
    }
    const std::int64_t deadline = next_event_ns();
    const bool too_late = root_ended_ && deadline - root_ended_ns_ > plan_.grace_ns;
    if (deadline == 0 || too_late) {
        fail(root_ended_ ? failure_kind::leak : failure_kind::deadlock,
            root_ended_ ? "the function has returned, and goroutines are left that do not end"
                        : "deadlock: all goroutines are asleep");
        return false;
    }
    if (deadline > now_ns_) now_ns_ = deadline;
    hash_.add(static_cast<std::uint64_t>(now_ns_));
    return count_step();
}

// Nothing can run, so the goroutines that wait for just that become runnable. False: there are none.
bool simulation::release_waiters_for_others() noexcept {
    for (goroutine* g : std::exchange(wait_for_others_, {})) {
        if (is_off(g)) continue;
        sched::transition<goroutine_state::waiting, goroutine_state::runnable>(g->state);
        add(g, nullptr);
    }
    return !runnable_.empty();
}

goroutine* simulation::decide(machine* m, processor* p) noexcept {
    take_machine(m, p);
    goroutine* self = m->current.load(std::memory_order_relaxed);
    if (self == driver_) self = nullptr;
    fetch(p, self);
    if (forced_ != nullptr && kind_ == failure_kind::none) return std::exchange(forced_, nullptr);
    if (outside_.exchange(false, std::memory_order_relaxed)) {
        fail(failure_kind::outside_thread,
            "a plain thread uses dunlin: it has made a goroutine runnable, or waits for one, and what threads do has no seed");
    }
    const goroutine_state state = self != nullptr ? self->state.load(std::memory_order_relaxed) : goroutine_state::dead;
    goroutine* const yields =
        state == goroutine_state::runnable && !is_off(self) && !known(self).queued ? self : nullptr;
    leaving how = leaving::nothing;
    if (yields != nullptr) {
        how = leaving::yields;
        if (choices_.uses_priorities()) known(self).priority = choices_.lowest_priority();
    } else if (self != nullptr) {
        how = state == goroutine_state::dead ? leaving::ended : leaving::waits;
    }
    if (self != nullptr && number_of(self) != 0) known(self).yielded = yields != nullptr;
    yields_ = yields != nullptr ? yields_ + 1 : 0;
    const std::int64_t before_ns = now_ns_;
    bool over = kind_ != failure_kind::none;
    if (yields_ > yields_in_vain * (runnable_.size() + 1)) {
        yields_ = 0;
        if (const std::int64_t deadline = next_event_ns(); deadline > now_ns_) now_ns_ = deadline;
    }
    for (;;) {
        if (!over) {
            fire_due();
            fetch(p, nullptr);
        }
        if (over || !runnable_.empty() || yields != nullptr) break;
        if (!release_waiters_for_others()) over = !wait_for_time();
    }
    const std::int64_t jumped_ns = now_ns_ - before_ns;
    if (!over && count_step()) {
        be_delayed(p);
        const std::size_t at = pick(yields);
        goroutine* next = at == runnable_.size() ? self : take(at);
        hash_.add(number_of(next));
        tell(self, next == yields ? leaving::goes_on : how, next, jumped_ns);
        return next == yields ? nullptr : next;
    }
    tell(self, how, nullptr, jumped_ns);
    return finish();
}

goroutine* simulation::finish() noexcept {
    sched::transition<goroutine_state::waiting, goroutine_state::runnable>(driver_->state);
    return driver_;
}

goroutine* simulation::choose(machine* m, processor* p) noexcept {
    if (!begin_decision()) return nullptr;
    // What select has drawn is a choice as well.
    platform::random_source drawn = m == machine_ || machine_ == nullptr ? m->random : machine_->random;
    hash_.add(drawn.next());
    goroutine* next = decide(m, p);
    end_decision(next == driver_ ? phase::idle : phase::running);
    return next;
}

machine* simulation::point(machine* m) noexcept {
    goroutine* self = m->current.load(std::memory_order_relaxed);
    processor* p = sched::processor_of(m);
    if (self == nullptr || self == driver_ || !begin_decision()) return m;
    take_machine(m, p);
    fetch(p, self);
    bool away = kind_ != failure_kind::none || !count_step() || is_off(self);
    if (!away && !runnable_.empty() && !(self->flags & goroutine::pinned)) {
        std::size_t next = 0;
        away = leaves_for(self, next);
        if (away) {
            forced_ = take(next);
            hash_.add(number_of(forced_) + (steps_ << 32));
            tell(self, leaving::switched_away, forced_, 0);
        }
    }
    if (!away) {
        end_decision(phase::running);
        return m;
    }
    self->saved.store(0, std::memory_order_relaxed);
    sched::transition<goroutine_state::running, goroutine_state::runnable>(self->state);
    add(self, self);
    end_decision(phase::running);
    return sched::leave_queued(m, self);  // goes to choose()
}

// ---- what goroutines ask --------------------------------------------------------------------------------------------

std::int64_t simulation::now_ns(const machine* m) noexcept {
    // Reading the clock from inside the runtime takes no time.
    if (m->in_runtime.load(std::memory_order_relaxed) == 0 &&
        phase_.load(std::memory_order_relaxed) == phase::running) now_ns_ += look_at_clock_takes_ns;
    return now_ns_;
}

void simulation::wait_for_others(const std::source_location& where) noexcept {
    machine* m = sched::enter(sched::current_machine());
    goroutine* self = m->current.load(std::memory_order_relaxed);
    sched::prepare_to_park(self, sched::wait_reason::parked, where);
    wait_for_others_.push_back(self);
    sched::park(m);  // goes to choose()
}

host_number simulation::current_host() const noexcept {
    const goroutine* self = sched::current_goroutine();
    return self != nullptr && number_of(self) != 0 ? known_[self->id - first_id_].host : test_host;
}

void simulation::host_entry(void* raw) {
    const auto* main = *static_cast<const std::function<void()>**>(raw);
    (*main)();
}

void simulation::start_host(host_number h) {
    const park::runtime_section inside;
    processor* p = sched::processor_of(inside.machine());
    fetch(p, inside.machine()->current.load(std::memory_order_relaxed));
    if (network_.host(h).up) return;  // another goroutine has restarted it meanwhile
    starts_ = h;
    const bool started = sched::start_inside_runtime(host_entry, &network_.host(h).main);
    network_.host(h).up = started;
    fetch(p, nullptr);
    starts_ = no_host;
    if (!started) throw std::bad_alloc();
}

void simulation::switch_off(host_number h) {
    if (!network_.host(h).up) return;
    {
        const park::runtime_section inside;
        fetch(sched::processor_of(inside.machine()), inside.machine()->current.load(std::memory_order_relaxed));
        for (std::size_t i = 0; i < known_.size(); ++i) {
            candidate& c = known_[i];
            if (c.host != h || c.off || c.g == nullptr || c.g->id != first_id_ + i) continue;
            if (c.g->state.load(std::memory_order_relaxed) == goroutine_state::dead) continue;
            c.off = true;
            ++off_;
            if (c.queued) runnable_.erase(std::find(runnable_.begin(), runnable_.end(), c.g));
        }
    }
    network_.switch_off(h);
    if (is_off(sched::current_goroutine())) {
        for (;;) sched::pass_point();  // point() lets it go no further
    }
}

void simulation::sleep_in_call() noexcept {
    const goroutine* self = sched::current_goroutine();
    if (self == driver_ || phase_.load(std::memory_order_relaxed) != phase::running) return;
    search* const s = choices_.every_order();
    const std::int64_t ns = s == nullptr ? choices_.drawn_time() :
        s->among(2, 1, hash_.value()) != 0 ? choices_.longest_delay_ns() : 0;
    if (ns == 0) return sched::pass_point();
    try {
        timers::sleep_until_ns(now_ns_ + ns, std::source_location::current());
    } catch (...) {  // no memory: the call is a short one
    }
}

// ---- the end --------------------------------------------------------------------------------------------------------

void simulation::fail(failure_kind kind, std::string_view what) noexcept {
    if (kind_ != failure_kind::none) return;
    kind_ = kind;
    try {
        message_ = what;
    } catch (...) {  // no memory: the kind alone must do
    }
}

void simulation::stop_here(failure_kind kind, std::string_view what) noexcept {
    const machine* m = sched::current_machine();
    const goroutine* self = m != nullptr ? m->current.load(std::memory_order_relaxed) : nullptr;
    // Inside the runtime the goroutine may hold a lock.
    if (self == nullptr || self == driver_ || m->in_runtime.load(std::memory_order_relaxed) != 0) return;
    if (!begin_decision()) return;
    failed_in_ = number_of(self);
    failed_at_ = stack::capture_trace(1);
    fail(kind, what);
    end_decision(phase::running);
    for (;;) sched::pass_point();  // point() lets it go no further
}

void simulation::outside(std::string_view what) noexcept {
    if (sched::current_goroutine() == driver_) return;
    if (plan_.strict) {
        stop_here(failure_kind::outside_wait,
            "uses what is outside of the simulation (options::strict): a file, pipe or process of the kernel's");
    }
    if (std::exchange(outside_told_, true)) return;
    platform::text_writer out(2);
    out << "dunlin::sim: seed " << seed_ << " uses " << what
        << ": what that says has no seed (said once; options::strict makes it a failure)\n";
}

void simulation::stop_here(std::string_view what) noexcept {
    constexpr std::string_view uncaught = "uncaught exception";
    stop_here(what.substr(0, uncaught.size()) == uncaught ? failure_kind::exception : failure_kind::misuse, what);
}

void simulation::watch(std::int64_t now_ns) noexcept {
    if (phase_.load(std::memory_order_relaxed) != phase::running) return;
    const std::uint64_t progress = progress_.load(std::memory_order_relaxed);
    const pid_t tid = tid_.load(std::memory_order_relaxed);
    const std::int64_t cpu_ns = platform::thread_cpu_ns(tid);
    if (std::exchange(seen_progress_, progress) != progress) {
        seen_ns_ = now_ns;
        seen_cpu_ns_ = cpu_ns;
        return;
    }
    const std::int64_t patience_ns = patience_ns_.load(std::memory_order_relaxed);
    const bool computes = cpu_ns - seen_cpu_ns_ >= patience_ns;
    // A thread that waits for a CPU has not used up its patience.
    if (!computes && ((now_ns - seen_ns_) / asleep_factor < patience_ns || platform::thread_is_running(tid))) return;
    phase expected = phase::running;
    if (!phase_.compare_exchange_strong(expected, phase::abandoned, std::memory_order_acq_rel)) return;
    fail(failure_kind::never_ends, computes ? "does not end: a goroutine computes, and calls nothing of the runtime"
                                            : "does not end: the thread of a goroutine sleeps in the kernel");
    stop_steering();
    sched::goroutine_list driver;
    driver.push_back(driver_);
    sched::ready_all(driver);
}

void simulation::print(platform::text_writer& out) const noexcept {
    out << "dunlin::sim: in the execution of seed " << seed_ << " (DUNLIN_SIM_SEED=" << seed_ << " runs it again):\n";
}

void simulation::describe_waiters(platform::text_writer& out) noexcept {
    constexpr unsigned most = 20;
    unsigned left_out = 0, shown = 0;
    sched::for_each_goroutine([&](const goroutine& g) {
        const goroutine_state state = g.state.load(std::memory_order_acquire);
        if (state != goroutine_state::waiting && state != goroutine_state::running) return;
        if (&g == driver_ || number_of(&g) == 0 || is_off(&g)) return;
        if (++shown > most) {
            ++left_out;
            return;
        }
        const host_number h = known_[g.id - first_id_].host;
        if (h != test_host) out << " of " << std::string_view(network_.host(h).name);
        const bool waits = state == goroutine_state::waiting;
        out << "  g" << number_of(&g);
        if (g.extra != nullptr && !g.extra->name.empty()) (out << " \"").printable(g.extra->name) << '"';
        out << (waits ? " waits (" : " computes");
        if (waits) out << sched::name(g.reason.load(std::memory_order_relaxed)) << ')';
        if (waits && g.stack != nullptr && g.saved.load(std::memory_order_acquire) != 0 &&
            !(g.flags & goroutine::in_place)) {
            std::string place;
            {
                platform::text_writer into(place);
                if (!stack::print_first_of_program(into, stack::capture_trace(g.context))) place.clear();
            }
            if (!place.empty()) out << " in " << std::string_view(place);
        }
        if (number_of(&g) != 1) {
            out << ", created at ";
            sched::print_where(out, g.created_at);
        }
        out << '\n';
    });
    if (left_out != 0) out << "  and " << left_out << " more\n";
}

}  // namespace dunlin::replay
