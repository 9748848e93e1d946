#include "sched/data/bells.h"

#include "platform/clock.h"
#include "platform/futex.h"
#include "sched/data/event_source.h"

namespace dunlin::inline v0_1::sched {

// ---- the monitor ----------------------------------------------------------------------------------------------------

constinit platform::atomic<std::uint32_t> monitor_asleep{0};
constinit monitor_words monitor_bell;
constinit platform::atomic<unsigned> watching_threads{0};

unsigned monitor_threads() noexcept { return monitor_bell.threads.load(std::memory_order_relaxed); }

void wake_monitor() noexcept {
    monitor_asleep.store(0, std::memory_order_seq_cst);
    platform::futex_wake(monitor_asleep);
}

// The fetch_add in hurry_monitor() pairs with the acquire of `call_word` in one_round(): a round that reads the new
// word sees `urgent`; a round that has read the old one finds it changed when it wants to sleep, and does not sleep.
// The store's own release pairs with nothing: all loads of `urgent` are relaxed.
void call_monitor() noexcept {
    the_scheduler.urgent.store(true, std::memory_order_release);
    hurry_monitor();
}

void hurry_monitor() noexcept {
    monitor_bell.call_word.fetch_add(1, std::memory_order_seq_cst);
    platform::futex_wake(monitor_bell.call_word);
    if (monitor_bell.in_poller.load(std::memory_order_seq_cst)) the_scheduler.events->interrupt();
}

// The store and the load of monitor_asleep that follows it are seq_cst; so are, in sleep_until_busy(), the store
// monitor_asleep = 1 and the load of the flag that follows it. So the monitor sees the flag before it sleeps, or it is
// woken.
void call_monitor_for_lost() noexcept {
    monitor_bell.lost_late.store(true, std::memory_order_seq_cst);
    wake_monitor_if_asleep();
}

// The same with this flag. While the monitor is awake it looks in its next round, 10 ms later at most.
void call_monitor_to_dump() noexcept {
    monitor_bell.dump_called_for.store(true, std::memory_order_seq_cst);
    wake_monitor_if_asleep();
}

// ---- the thread maker -----------------------------------------------------------------------------------------------

constinit maker_words maker_bell;

namespace {

// Release publishes what the asker did before. Acquire, because an asker that finds an earlier wish passes on what that
// wish's asker has released.
void ask(wish::bits w) noexcept {
    maker_words& k = maker_bell;
    if (k.wanted.fetch_or(w, std::memory_order_acq_rel) == 0) platform::futex_wake(k.wanted);
}

}  // namespace

void want_spare_machine() noexcept {
    maker_words& k = maker_bell;
    const std::int64_t not_before = k.not_before_ns.load(std::memory_order_relaxed);
    if (DUNLIN_UNLIKELY(not_before != 0) && platform::real_now_ns() < not_before) return;
    ask(wish::a_thread);
}

void want_lost_forgotten() noexcept { ask(wish::lost_forgotten); }

void want_lock_holder_let_go() noexcept { ask(wish::lock_holder_let_go); }

void want_coming_watched() noexcept { ask(wish::coming_watched); }

void want_printed(void (*print)()) noexcept {
    maker_bell.print.store(print, std::memory_order_relaxed);  // released by ask()
    ask(wish::printed);
}

bool last_thread_failed() noexcept { return maker_bell.failed.load(std::memory_order_relaxed); }

bool in_pause_after_failure() noexcept { return maker_bell.not_before_ns.load(std::memory_order_seq_cst) != 0; }

bool spare_is_overdue(std::int64_t now_ns) noexcept {
    maker_words& k = maker_bell;
    const std::int64_t not_before = k.not_before_ns.load(std::memory_order_relaxed);
    if (not_before == 0 || now_ns < not_before) return false;
    k.not_before_ns.store(0, std::memory_order_relaxed);
    return true;
}

unsigned thread_maker_threads() noexcept { return maker_bell.threads.load(std::memory_order_relaxed); }

}  // namespace dunlin::sched
