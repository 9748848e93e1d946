#include "platform/futex.h"

#include <dunlin/detail/atomic.hpp>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <linux/futex.h>

#include "platform/simulated.h"
#include "platform/syscall.h"

namespace dunlin::inline v0_1::platform {

namespace {

// For a simulation, to which 0 means that there is no deadline: a moment that is past is 1.
constexpr std::int64_t no_simulated_deadline = 0;
std::int64_t simulated(std::int64_t deadline_ns) noexcept { return std::max<std::int64_t>(deadline_ns, 1); }

long futex(const platform::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* deadline,
    std::uint32_t mask) noexcept {
    return raw_syscall(SYS_futex, syscall_arg(&word), operation, value, syscall_arg(deadline), 0, mask);
}

}  // namespace

void futex_wait(const platform::atomic<std::uint32_t>& word, std::uint32_t expected) noexcept {
    if (simulation* s = simulation_here()) {
        s->futex_wait(&word, expected, no_simulated_deadline, std::source_location::current());
        return;
    }
    futex(word, FUTEX_WAIT_PRIVATE, expected, nullptr, 0);
}

bool futex_wait_until(const platform::atomic<std::uint32_t>& word, std::uint32_t expected,
    std::int64_t deadline_ns) noexcept {
    if (deadline_ns == no_deadline) {
        futex_wait(word, expected);
        return true;
    }
    if (simulation* s = simulation_here()) {
        return s->futex_wait(&word, expected, simulated(deadline_ns), std::source_location::current());
    }
    // The kernel refuses times before the clock's zero (EINVAL), and waiters would try again for ever.
    if (deadline_ns < 0) deadline_ns = 0;
    // WAIT_BITSET takes an absolute time of the monotonic clock; plain WAIT takes a duration, which drifts when it is
    // interrupted.
    const timespec deadline{static_cast<time_t>(deadline_ns / 1'000'000'000),
        static_cast<long>(deadline_ns % 1'000'000'000)};
    return futex(word, FUTEX_WAIT_BITSET_PRIVATE, expected, &deadline, FUTEX_BITSET_MATCH_ANY) != -ETIMEDOUT;
}

void futex_wake(const platform::atomic<std::uint32_t>& word, int count) noexcept {
    if (simulation* s = simulation_here()) return s->futex_wake(&word, count, std::source_location::current());
    raw_syscall(SYS_futex, syscall_arg(&word), FUTEX_WAKE_PRIVATE, count);
}

}  // namespace dunlin::platform
