#include "sched/thread_maker.h"

#include <mutex>

#include "platform/clock.h"
#include "platform/futex.h"
#include "platform/thread.h"
#include "sched/machine.h"

namespace dunlin::sched {

namespace {

constexpr std::int64_t pause_after_failure_ns = 100'000'000;

struct maker {
    platform::futex_lock users;                 // one request for a thread at a time
    std::atomic<std::uint32_t> requests{0};     // raised by each request: the word that the maker sleeps on
    std::atomic<std::uint32_t> answered{1};     // 0 while somebody waits for a thread; the word that he sleeps on
    std::atomic<bool> spare_wanted{false};
    std::atomic<std::int64_t> not_before_ns{0};
    std::atomic<unsigned> threads{0};
    void (*main)(void*) = nullptr;
    void* argument = nullptr;
    int result = 0;
};
maker the_maker;

void make_spare(maker& k) noexcept {
    const std::uint32_t before = the_scheduler.machine_count.load(std::memory_order_relaxed);
    make_spare_machines(1);
    if (the_scheduler.machine_count.load(std::memory_order_relaxed) == before) {
        k.not_before_ns.store(platform::now_ns() + pause_after_failure_ns, std::memory_order_relaxed);
    }
    k.spare_wanted.store(false, std::memory_order_release);
}

void maker_main(void*) {
    maker& k = the_maker;
    for (;;) {
        const std::uint32_t seen = k.requests.load(std::memory_order_acquire);
        if (k.answered.load(std::memory_order_acquire) == 0) {
            k.result = platform::start_thread(k.main, k.argument, "dunlin-m");
            k.answered.store(1, std::memory_order_release);
            platform::futex_wake(k.answered);
        }
        if (k.spare_wanted.load(std::memory_order_acquire)) make_spare(k);
        platform::futex_wait(k.requests, seen);
    }
}

void request() noexcept {
    the_maker.requests.fetch_add(1, std::memory_order_release);
    platform::futex_wake(the_maker.requests);
}

}  // namespace

bool start_thread_maker() noexcept {
    if (the_maker.threads.exchange(1) != 0) return true;
    if (platform::start_thread(maker_main, nullptr, "dunlin-maker") == 0) return true;
    the_maker.threads.store(0);
    return false;
}

int make_thread_elsewhere(void (*main)(void*), void* argument) noexcept {
    maker& k = the_maker;
    std::scoped_lock guard(k.users);
    k.main = main;
    k.argument = argument;
    k.answered.store(0, std::memory_order_release);
    request();
    while (k.answered.load(std::memory_order_acquire) == 0) platform::futex_wait(k.answered, 0);
    return k.result;
}

void want_spare_machine(std::int64_t now_ns) noexcept {
    maker& k = the_maker;
    if (k.spare_wanted.load(std::memory_order_relaxed) || now_ns < k.not_before_ns.load(std::memory_order_relaxed)) return;
    k.spare_wanted.store(true, std::memory_order_release);
    request();
}

unsigned thread_maker_threads() noexcept { return the_maker.threads.load(std::memory_order_relaxed); }

}  // namespace dunlin::sched
