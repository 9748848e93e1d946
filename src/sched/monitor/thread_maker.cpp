#include "sched/monitor/thread_maker.h"

#include <dunlin/detail/atomic.hpp>

#include <algorithm>

#include "platform/clock.h"
#include "platform/futex.h"
#include "platform/simulated.h"
#include "platform/text.h"
#include "platform/thread.h"
#include "sched/data/bells.h"
#include "sched/data/event_source.h"
#include "sched/machines/event_notice.h"
#include "sched/machines/machine.h"
#include "sched/machines/processor.h"
#include "sched/machines/wake.h"
#include "sched/preempt/frozen.h"

namespace dunlin::inline v0_1::sched {

namespace {

constexpr std::uint32_t enough_spares = 2;
constexpr std::uint32_t most_at_once = 16;
constexpr std::int64_t pause_after_failure_ns = 100'000'000;
constexpr std::int64_t look_again_ns = 1'000'000;

// The number of goroutines that wait for a thread or for their turn; a hint.
std::size_t waiting_goroutines() noexcept {
    const scheduler& s = the_scheduler;
    std::size_t waiting = s.global_size();
    const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < made; ++i) waiting += s.processor_at(i)->queue.size();
    return waiting;
}

// Are there enough machines on the way? One for each waiting goroutine is enough. While there are no more machines than
// processors, calls cannot be what holds the threads, and one for each idle processor is enough: at the start of a
// program, threads that have nothing to do would only delay the first ones.
bool enough_on_their_way() noexcept {
    const scheduler& s = the_scheduler;
    std::size_t needed = waiting_goroutines();
    if (needed == 0) return false;
    if (s.machine_count.load(std::memory_order_relaxed) <= s.max_procs.load(std::memory_order_relaxed)) {
        const std::size_t idle = idle_count(s.idle_and_spinning.load(std::memory_order_seq_cst));
        needed = std::clamp<std::size_t>(idle, 1, needed);
    }
    return spare_machines() >= needed;
}

// Makes one machine for the requester, and more if many goroutines wait: at most as many as there are already, and only
// while each of them would find a goroutine. False: no thread is available for the requester.
bool make_enough() noexcept {
    if (!make_spare_machine()) return false;
    const std::uint32_t have = the_scheduler.machine_count.load(std::memory_order_relaxed);
    if (have + most_at_once >= max_machines) return true;
    for (std::uint32_t more = std::min(have, most_at_once); more != 0 &&
        spare_machines() < waiting_goroutines(); --more) {
        if (!make_spare_machine(false)) break;
    }
    return true;
}

// If no thread could be made for a second, and nothing was executed anywhere although goroutines wait: reports, once,
// what holds the threads.
class stall_report {
public:
    void look(std::int64_t now_ns) noexcept {
        const std::uint64_t executed = switches();
        if (executed != executed_ || waiting_goroutines() == 0) {
            executed_ = executed;
            since_ns_ = now_ns;
        } else if (!reported_ && now_ns - since_ns_ >= patience_ns) {
            reported_ = true;
            report();
        }
    }

private:
    static constexpr std::int64_t patience_ns = 1'000'000'000;

    static std::uint64_t switches() noexcept {
        const std::uint32_t made = the_scheduler.procs_made.load(std::memory_order_acquire);
        std::uint64_t sum = 0;
        for (std::uint32_t i = 0; i < made; ++i) sum += the_scheduler.processor_at(i)->counts.switches.get();
        return sum;
    }

    static void report() noexcept {
        unsigned wired = 0, returns = 0, compute = 0, in_calls = 0, left = 0;
        for (const machine* m = the_scheduler.machines.load(std::memory_order_acquire); m != nullptr; m = m->all_next) {
            if (m->ended) continue;
            if (m->frozen.load(std::memory_order_relaxed) || m->condemned.load(std::memory_order_relaxed)) {
                ++left;
            } else if (const goroutine* g = m->wired_g; g != nullptr) {
                ++(g->extra == &m->for_return ? returns : wired);
            } else if (m->current.load(std::memory_order_relaxed) != nullptr) {
                (platform::thread_is_running(m->tid) ? compute : in_calls) += 1;
            }
        }
        platform::text_writer out(2, maker_waits_for_stderr_ms);
        out << "dunlin: nothing is executed any more: " << static_cast<std::uint64_t>(waiting_goroutines())
            << " goroutines wait for a thread. Of the threads "
            << compute << " are held by goroutines that compute and never call the runtime, " << in_calls
            << " by calls that block or by goroutines that were preempted, " << returns
            << " by goroutines that wait for a processor after such a call, " << wired
            << " by lock_os_thread(), " << left
            << " by goroutines that a run() has left (each keeps its thread: allow more)\n";
    }

    std::uint64_t executed_ = ~std::uint64_t{0};  // no look so far
    std::int64_t since_ns_ = 0;
    bool reported_ = false;
};

// A thread that waits for a lock as it begins (registration, states.h) is not the one that a request is left to. True:
// threads are coming; look again in a millisecond.
bool watch_coming_threads() noexcept {
    static std::int64_t looked_ns = 0;
    scheduler& s = the_scheduler;
    if (s.yet_to_look.load(std::memory_order_relaxed) == 0 || platform::simulation_here() != nullptr) return false;
    const std::int64_t now = platform::real_now_ns();
    if (now - looked_ns >= look_again_ns) {
        looked_ns = now;
        // Also if nothing is queued: the request may be for a machine that sleeps until a timer is due.
        if (write_off_threads_that_wait()) want_spare_machine();
    }
    return true;
}

void maker_main(void*) {
    maker_words& k = maker_bell;
    platform::use_short_slices();  // inherited by the threads that it makes
    k.tid.store(platform::thread_id(), std::memory_order_relaxed);
    stall_report stalls;
    for (;;) {
        // lock_holder_goes_on() is asked in short steps: the holder may need seconds, and threads are wanted meanwhile.
        for (;;) {
            const bool holder_runs = lock_holder_goes_on();
            const bool looks = watch_coming_threads() || holder_runs;
            if (k.wanted.load(std::memory_order_acquire) != 0) break;
            if (looks) {
                platform::futex_wait_until(k.wanted, 0, platform::real_now_ns() + look_again_ns);
            } else {
                platform::futex_wait(k.wanted, 0);
            }
        }
        // Cleared before the machine is made: a later requester may make its processor idle after the new machine has
        // looked. Acquires what every request has released, also requests that found an earlier one. Seq_cst: this
        // comes before the reads of the counts below.
        const std::uint32_t wishes = k.wanted.exchange(0, std::memory_order_seq_cst);
        if (wishes & wish::lost_forgotten) the_scheduler.events->forget_lost();
        if (wishes & wish::printed) k.print.load(std::memory_order_relaxed)();
        if (wishes & wish::lock_holder_let_go) let_lock_holder_go();
        if (!(wishes & wish::a_thread)) continue;
        if (the_scheduler.idle_machine_count >= enough_spares) {
            // There are enough idle machines by now, but they may have looked for work before there was any.
            submit_barrier();
            if (work_anywhere() || events_are_unwatched()) wake_if_idle();
            continue;
        }
        // A machine that has yet to look finds the processor that was made idle for this request
        // (look_for_a_processor), and wakes the next machine if more goroutines wait (F2 of wake.h).
        if (enough_on_their_way() &&
            the_scheduler.yet_to_look.fetch_add(0, std::memory_order_acq_rel) != 0) {
            continue;
        }
        k.makings.fetch_add(1, std::memory_order_release);
        const bool made = make_enough();
        k.makings.fetch_add(1, std::memory_order_release);
        k.failed.store(!made, std::memory_order_relaxed);
        if (made) continue;
        stalls.look(platform::real_now_ns());
        // Seq_cst, followed by a look whether the monitor sleeps: either the monitor sees this store before it sleeps
        // (sleep_until_busy), or it is woken.
        k.not_before_ns.store(platform::real_now_ns() + pause_after_failure_ns, std::memory_order_seq_cst);
        wake_monitor_if_asleep();
        // The processor may have been put aside before the failure was known: now the thread of a wired goroutine has
        // it (start_wired_machine).
        if (work_anywhere()) wake_if_idle();
    }
}

constexpr platform::thread_kind maker_thread{maker_main, "dunlin-maker"};

}  // namespace

bool start_thread_maker() noexcept {
    if (maker_bell.threads.exchange(1) != 0) return true;
    if (platform::start_thread<maker_thread>(nullptr) == 0) return true;
    maker_bell.threads.store(0);
    return false;
}

void make_first_machines(std::uint32_t at_most) noexcept {
    if (platform::simulation_here() != nullptr) return;  // its cases are about the threads that are made later
    const std::uint32_t procs = the_scheduler.max_procs.load(std::memory_order_relaxed);
    make_machines_ahead(procs == 1 ? 1 : std::min(2 * procs, at_most));
}

void make_machines_ahead(std::uint32_t count) noexcept {
    bool made = false;
    while (the_scheduler.machine_count.load(std::memory_order_relaxed) < count) {
        if (make_spare_machine(false)) {
            made = true;
            continue;
        }
        // The maker may have left a request to this machine, which was on its way (yet_to_look): so it is made again.
        if (work_anywhere()) wake_if_idle();
        break;
    }
    if (made) want_coming_watched();
}

}  // namespace dunlin::sched
