// task_group.cpp - goroutines that belong together, their first exception, and the context that it cancels.
//
// The context is made when it is asked for: most groups never need one. The context and the error change under a lock,
// because a wait() that rethrows takes both away while others may ask for the context, or cancel it: under the lock
// they get a reference of their own. No lock is held while a context is cancelled or freed.
#include <dunlin/context.hpp>
#include <dunlin/task.hpp>

#include <limits>
#include <new>

#include "park/waiter.h"
#include "platform/lock.h"
#include "sched/data/wait_reason.h"

namespace dunlin::inline v0_1 {

goroutine_exited::~goroutine_exited() = default;

namespace {

constexpr auto reason = static_cast<unsigned char>(sched::wait_reason::task_group_wait);

struct access : context {
    explicit access(detail::chan_handle h) : context(std::move(h)) {}
    static detail::chan_core* core_of(const context& c) noexcept { return static_cast<const access&>(c).core(); }
};

}  // namespace

task_group::task_group(const dunlin::context& parent) : parent_(access::core_of(parent)) {
    detail::chan_handle::reference(parent_);
}

task_group::~task_group() {
    if (std::uncaught_exceptions() > exceptions_) {
        try {
            cancel();
        } catch (const std::bad_alloc&) {  // no memory for a context: there is none
        }
    }
    members_.wait(reason, true, std::source_location::current());
    detail::chan_handle::release(context_);
    detail::chan_handle::release(parent_);
}

// The group's lock for a scope, inside the runtime.
struct task_group::locked {
    explicit locked(const task_group& g) noexcept
        : lock_(*std::launder(reinterpret_cast<platform::futex_lock*>(&g.lock_))) {
        static_assert(sizeof g.lock_ == sizeof(platform::futex_lock) && alignof(platform::futex_lock) == 4);
        lock_.lock();
    }
    ~locked() { lock_.unlock(); }
    locked(const locked&) = delete;
    locked& operator=(const locked&) = delete;

private:
    park::runtime_section inside_;  // first: it is left last
    platform::futex_lock& lock_;
};

void task_group::set_limit(std::size_t n) {
    if (n == 0) throw std::invalid_argument("dunlin::task_group::set_limit: 0 members would be none ever");
    if (const std::uint32_t members = members_.pending(); members != 0) {
        throw std::logic_error("dunlin::task_group::set_limit: the group has " + std::to_string(members) +
                               " members: call it before go()");
    }
    constexpr auto most = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
    places_ = n > most ? nullptr : std::make_unique<weighted_semaphore>(static_cast<std::ptrdiff_t>(n));
}

void task_group::failed(std::exception_ptr error) noexcept {
    detail::chan_handle to_cancel;
    {
        const locked guard(*this);
        if (error_) return;
        error_ = error;
        has_error_.store(true, std::memory_order_relaxed);
        detail::chan_handle::reference(context_);
        to_cancel = detail::chan_handle(context_);
    }
    if (to_cancel.core() != nullptr) detail::cancel_node(to_cancel.core(), std::move(error));
}

void task_group::wait(std::source_location where) {
    members_.wait(reason, true, where);
    rethrow();
}

void task_group::wait(const dunlin::context& ctx, std::source_location where) {
    const detail::wait_limit limit{detail::wait_limit::never, detail::done_channel(ctx)};
    if (members_.wait_limited(limit, reason, where) == detail::wait_outcome::cancelled) {
        detail::throw_cancelled(ctx, "task_group wait");
    }
    rethrow();
}

void task_group::rethrow() {
    // Relaxed: the end of the member that set it happened before the end of our wait.
    if (!has_error_.load(std::memory_order_relaxed)) return;
    std::exception_ptr error;
    detail::chan_handle old;
    {
        const locked guard(*this);
        error = std::exchange(error_, nullptr);
        has_error_.store(false, std::memory_order_relaxed);
        old = detail::chan_handle(std::exchange(context_, nullptr));
    }
    old = {};  // before the throw: it may be the last reference
    std::rethrow_exception(std::move(error));
}

dunlin::context task_group::context() const {
    detail::chan_handle mine, made;
    std::exception_ptr error;
    for (;;) {
        {
            const locked guard(*this);
            if (context_ == nullptr) context_ = made.detach();  // the group's reference
            if (context_ != nullptr) {
                detail::chan_handle::reference(context_);
                mine = detail::chan_handle(context_);
                error = error_;
                break;
            }
        }
        detail::chan_handle::reference(parent_);
        made = detail::make_cancel_node(detail::chan_handle(parent_));
    }
    if (error) detail::cancel_node(mine.core(), std::move(error));
    return access(std::move(mine));
}

void task_group::cancel() const { detail::cancel_node(access::core_of(context()), nullptr); }

}  // namespace dunlin
