#include "platform/lock_check.h"

#if DUNLIN_CHECKING

#include <dunlin/config.hpp>
#include <dunlin/detail/atomic.hpp>

#include <cstddef>
#include <iterator>

#if DUNLIN_ADDRESS_SANITIZER || DUNLIN_THREAD_SANITIZER
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void*, std::size_t),
    void (*free_hook)(const volatile void*));
#endif

namespace dunlin::inline v0_1::platform {

namespace {

constexpr unsigned most_locks = 32;  // of a select over more channels the rest is only counted

struct held_locks {
    unsigned count = 0;
    unsigned uncounted = 0;  // held beyond most_locks
    bool rescuer = false;
    bool failed = false;  // a report is under way: its own locks and memory are not checked
    struct held {
        const void* lock;
        lock_rank rank;
    } locks[most_locks];
};

thread_local constinit held_locks mine{};
constinit platform::atomic<bool (*)()> stoppable_here{nullptr};

constexpr const char* names[] =
    {"start", "world", "registry", "object", "channel", "descriptors", "descriptor", "parking_lot", "scheduler",
    "retake", "store", "trim", "arena", "trace", "leaf"};
static_assert(std::size(names) == static_cast<std::size_t>(lock_rank::leaf) + 1);

void require(bool condition, const char* rule) noexcept {
    if (condition || mine.failed) return;
    mine.failed = true;
    {
        text_writer out(2);
        out << "dunlin: this thread holds the locks (innermost last):";
        for (unsigned i = 0; i < mine.count; ++i) out << ' ' << names[static_cast<std::size_t>(mine.locks[i].rank)];
        out << '\n';
    }
    check_failed(rule, __FILE__, __LINE__);
}

#if DUNLIN_ADDRESS_SANITIZER || DUNLIN_THREAD_SANITIZER

void look_at_allocation() noexcept {
    const held_locks& h = mine;
    if (h.failed || (h.count == 0 && !h.rescuer)) return;
    require(!h.rescuer, "the monitor allocates or frees memory (K3)");
    for (unsigned i = 0; i < h.count; ++i) {
        require(!monitor_waits_for(h.locks[i].rank),
            "memory is allocated or freed under a lock that the monitor waits for (K3)");
    }
}

#endif

}  // namespace

// Not inlined: a goroutine may have changed its thread since the last call, and `mine` is the thread's.
[[gnu::noinline]] void note_locked(const void* lock, lock_rank rank) noexcept {
    held_locks& h = mine;
    if (h.failed) return;
    bool (*const stoppable)() = stoppable_here.load(std::memory_order_relaxed);
    require(stoppable == nullptr || !stoppable(),
        "a lock of the runtime is taken where the monitor may stop the thread (K2)");
    require(!h.rescuer || monitor_waits_for(rank), "the monitor takes a lock that it must not wait for (K4)");
    bool in_order = true;
    for (unsigned i = 0; i < h.count; ++i) {
        in_order = in_order && (h.locks[i].rank < rank || (h.locks[i].rank == rank && several(rank)));
    }
    if (h.count == most_locks) {
        ++h.uncounted;
    } else {
        h.locks[h.count++] = {lock, rank};
    }
    require(in_order, "a lock of the runtime is taken out of order (K1)");
}

[[gnu::noinline]] void note_unlocked(const void* lock) noexcept {
    held_locks& h = mine;
    if (h.failed) return;
    for (unsigned i = h.count; i-- > 0;) {
        if (h.locks[i].lock != lock) continue;
        h.locks[i] = h.locks[--h.count];
        return;
    }
    require(h.uncounted-- != 0, "a lock of the runtime is given back by a thread that does not hold it");
}

void set_stoppable(bool (*stoppable)()) noexcept { stoppable_here.store(stoppable, std::memory_order_relaxed); }

void act_as_rescuer() noexcept { mine.rescuer = true; }

void end_lock_checks() noexcept { mine.failed = true; }

[[gnu::noinline]] void assert_held(const void* lock, lock_rank rank) noexcept {
    const held_locks& h = mine;
    bool held = h.failed || h.uncounted != 0;
    for (unsigned i = 0; i < h.count; ++i) held = held || h.locks[i].lock == lock;
    if (held) return;
    text_writer(2) << "dunlin: a lock of rank '" << names[static_cast<std::size_t>(rank)] << "' must be held here\n";
    require(false, "what a lock guards is touched by a thread that does not hold it");
}

[[gnu::noinline]] void assert_no_locks() noexcept {
    require(mine.count == 0, "a lock of the runtime is held over a switch of stacks");
}

[[gnu::noinline]] void assert_unstoppable() noexcept {
    bool (*const stoppable)() = stoppable_here.load(std::memory_order_relaxed);
    require(stoppable == nullptr || !stoppable(),
        "the monitor may stop the thread here, where the runtime relies on it to go on (K2)");
}

void watch_allocations() noexcept {
#if DUNLIN_ADDRESS_SANITIZER || DUNLIN_THREAD_SANITIZER
    static platform::atomic<bool> watched{false};
    if (watched.exchange(true, std::memory_order_relaxed)) return;
    __sanitizer_install_malloc_and_free_hooks([](const volatile void*, std::size_t) { look_at_allocation(); },
                                              [](const volatile void*) { look_at_allocation(); });
#endif
}

}  // namespace dunlin::platform

#endif
