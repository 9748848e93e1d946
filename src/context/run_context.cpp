#include "context/run_context.h"

#include <mutex>
#include <optional>
#include <utility>

#include <dunlin/context.hpp>

#include "park/waiter.h"
#include "platform/lock.h"

namespace dunlin::inline v0_1 {

namespace {

platform::ranked_lock<platform::lock_rank::registry> lock;
std::optional<cancellable> current;  // lock; made by the first that asks

std::optional<cancellable> find() {
    const park::runtime_section inside;
    const std::scoped_lock guard(lock);
    return current;
}

}  // namespace

context run_context() {
    if (auto ctx = find()) return *ctx;
    // Outside of the lock: it allocates. If two are made at once the first counts.
    auto fresh = context::background().with_cancel();
    const park::runtime_section inside;
    const std::scoped_lock guard(lock);
    if (!current) current = fresh;
    return *current;
}

void cancel_run_context() {
    run_context();  // a goroutine that asks only now shall find it cancelled
    if (auto ctx = find()) ctx->cancel();
}

void forget_run_context() noexcept {
    std::optional<cancellable> last;  // destroyed after the lock is released
    const std::scoped_lock guard(lock);
    last.swap(current);
}

}  // namespace dunlin
