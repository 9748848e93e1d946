#include "park/contention.h"

#include <bit>
#include <cerrno>

#include "park/parking_lot.h"
#include "platform/clock.h"
#include "sched/machines/trace.h"

namespace dunlin::inline v0_1::park {

constinit platform::atomic<const contention_counter*> waits_counter{nullptr};
constinit platform::atomic<const contention_counter*> unlocks_counter{nullptr};

namespace {

constexpr std::uint32_t looked_at = 128;

// How long n has waited since `since_ns`, or since it queued. Zero: it queued before counting began, or n belongs to a
// frozen goroutine and waits for an object that was here before.
std::int64_t waited_since(const lot_node* n, std::int64_t since_ns, std::int64_t now_ns) noexcept {
    if (n->kind != lot_kind::mutex && n->kind != lot_kind::reader && n->kind != lot_kind::writer) return 0;
    const std::int64_t queued_ns = static_cast<const lock_node*>(n)->queued_ns;
    const std::int64_t from_ns = queued_ns > since_ns ? queued_ns : since_ns;
    return queued_ns != 0 && now_ns > from_ns ? now_ns - from_ns : 0;
}

}  // namespace

std::int64_t lot_bucket::charge(const void* address, std::int64_t now_ns) noexcept {
    const std::int64_t since_ns = charged_address == address ? charged_ns : 0;
    charged_address = address;
    charged_ns = now_ns;
    const lot_node* const first = front(address);
    if (first == nullptr) return 0;
    std::int64_t all_ns = 0, last_ns = 0;
    std::uint32_t seen = 0;
    const lot_node* n = first;
    for (; n != nullptr && seen != looked_at; n = n->after(), ++seen) {
        all_ns += last_ns = waited_since(n, since_ns, now_ns);
    }
    if (n == nullptr) return all_ns;
    // An estimate: the count includes waiters of other addresses in this bucket.
    const std::uint32_t others = waiting.load(std::memory_order_relaxed) - seen;
    return all_ns + (last_ns + waited_since(first->last, since_ns, now_ns)) / 2 * others;
}

void unlock_charge::look(lot_bucket& b, const void* address) noexcept {
    ns_ += b.charge(address, platform::now_ns());
}

// A counter enters the runtime and may leave it on another thread: errno's address must not be kept across that.
[[gnu::noinline]] static int errno_here() noexcept { return errno; }
[[gnu::noinline]] static void set_errno_here(int value) noexcept { errno = value; }

[[gnu::noinline]] void unlock_charge::tell() const noexcept {
    const int kept = errno_here();
    // Acquire: pairs with the release of set_mutex_profile_fraction(), which publishes the table.
    if (const contention_counter* c = unlocks_counter.load(std::memory_order_acquire)) c->made_wait(ns_);
    set_errno_here(kept);
}

[[gnu::noinline]] void waiter::wait_counted() noexcept {
    const sched::wait_reason reason =
        goroutine_ != nullptr ? goroutine_->reason.load(std::memory_order_relaxed) : reason_;
    if (goroutine_ != nullptr && sched::tracing::on()) {
        const auto where = std::bit_cast<std::uint64_t>(goroutine_->waits_at);
        sched::tracing::note(machine_, sched::tracing::kind::park, goroutine_, where,
            static_cast<std::uint8_t>(reason));
    }
    // Acquire: as in count_wait().
    const contention_counter* c = waits_counter.load(std::memory_order_acquire);
    if (c == nullptr || c->waited == nullptr) return wait_uncounted();
    const std::int64_t began_ns = platform::now_ns();
    wait_uncounted();
    count_wait(reason, platform::now_ns() - began_ns);
}

[[gnu::noinline]] void waiter::count_wait(sched::wait_reason reason, std::int64_t ns) noexcept {
    const int kept = errno_here();
    // Acquire: pairs with the release in set_waits_counter(), which publishes the table.
    if (const contention_counter* c = waits_counter.load(std::memory_order_acquire); c != nullptr &&
        c->waited != nullptr) c->waited(reason, ns);
    set_errno_here(kept);
}

}  // namespace dunlin::park
