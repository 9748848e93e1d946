#include "sched/machines/lost_holders.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>

#include "platform/thread.h"

namespace dunlin::inline v0_1::sched {

namespace {

struct lost_one {
    pid_t tid = 0;
    const machine* lives_on = nullptr;
    const goroutine* g = nullptr;
};
std::array<lost_one, 64> the_last{};  // scheduler lock
std::uint32_t count = 0;              // scheduler lock: how many were ever noted

}  // namespace

void note_lost_holder(pid_t tid, const machine* lives_on, const goroutine* g) noexcept {
    scheduler& s = the_scheduler;
    s.lock.assert_held();
    if (g == nullptr) return;
    the_last[count++ % the_last.size()] = {tid, lives_on, g};
    s.times_frozen.store(s.times_frozen.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

const goroutine* lost_holder(std::span<const pid_t> owners) noexcept {
    const std::scoped_lock guard(the_scheduler.lock);
    for (std::uint32_t i = 1; i <= std::min<std::size_t>(count, the_last.size()); ++i) {
        const lost_one& each = the_last[(count - i) % the_last.size()];
        if (std::ranges::find(owners, each.tid) == owners.end()) continue;
        const machine* m = each.lives_on;
        if (m != nullptr && m->tid == each.tid) {
            return m->current.load(std::memory_order_relaxed) == nullptr ? each.g : nullptr;
        }
        // If there is a thread with that number again, the lock may be that thread's.
        return platform::send_signal(each.tid, 0) ? nullptr : each.g;
    }
    return nullptr;
}

}  // namespace dunlin::sched
