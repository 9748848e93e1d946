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

// Never destroyed: a static object may ask at the end of the program.
constinit union never_destroyed {
    std::optional<cancellable> current;  // lock; made by the first that asks
    constexpr never_destroyed() : current() {}
    ~never_destroyed() {}
} of_run;

std::optional<cancellable> find() {
    const park::runtime_section inside;
    const std::scoped_lock guard(lock);
    return of_run.current;
}

}  // namespace

context run_context() {
    if (auto ctx = find()) return *ctx;
    // Outside of the lock: it allocates. If two are made at once the first counts.
    auto fresh = context::background().with_cancel();
    const park::runtime_section inside;
    const std::scoped_lock guard(lock);
    if (!of_run.current) of_run.current = fresh;
    return *of_run.current;
}

void cancel_run_context() {
    run_context();  // a goroutine that asks only now shall find it cancelled
    if (auto ctx = find()) ctx->cancel();
}

void forget_run_context() noexcept {
    std::optional<cancellable> last;  // destroyed after the lock is released
    const std::scoped_lock guard(lock);
    last.swap(of_run.current);
}

}  // namespace dunlin
