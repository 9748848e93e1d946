// task_group.cpp - goroutines that belong together, their first exception, and the context that it cancels.
//
// The context is made when somebody asks for it, since most groups never do. failed(): writes the error, then looks for a context; context(): publishes it,
// then looks for an error. Both pairs are sequentially consistent, so at least one of the two cancels.
#include <dunlin/context.hpp>
#include <dunlin/task.hpp>

#include "sched/wait_reason.h"

namespace dunlin {

goroutine_exited::~goroutine_exited() = default;

namespace {

constexpr auto reason = static_cast<unsigned char>(sched::wait_reason::task_group_wait);

struct access : context {
    explicit access(detail::chan_handle h) : context(std::move(h)) {}
    static detail::chan_core* core_of(const context& c) noexcept { return static_cast<const access&>(c).core(); }
};

}  // namespace

task_group::task_group(const dunlin::context& parent) : parent_(access::core_of(parent)) { detail::chan_handle::reference(parent_); }

task_group::~task_group() {
    members_.wait(reason, true, std::source_location::current());
    detail::chan_handle::release(context_.load(std::memory_order_relaxed));
    detail::chan_handle::release(parent_);
}

void task_group::failed(std::exception_ptr error) noexcept {
    if (!error) return;  // exit_goroutine() passes through the same catch
    if (has_error_.exchange(true, std::memory_order_relaxed)) return;
    error_ = std::move(error);
    error_written_.store(true, std::memory_order_seq_cst);
    if (detail::chan_core* c = context_.load(std::memory_order_seq_cst)) detail::cancel_node(c, error_);
}

void task_group::wait(std::source_location where) {
    members_.wait(reason, true, where);
    rethrow();
}

void task_group::wait(const dunlin::context& ctx, std::source_location where) {
    const detail::wait_limit limit{detail::wait_limit::never, detail::done_channel(ctx)};
    if (members_.wait_limited(limit, reason, where) == detail::wait_outcome::cancelled) detail::throw_cancelled(ctx, "task_group wait");
    rethrow();
}

void task_group::rethrow() {
    if (!has_error_.load(std::memory_order_relaxed)) return;
    std::exception_ptr error = std::move(error_);
    error_ = nullptr;
    error_written_.store(false, std::memory_order_relaxed);
    has_error_.store(false, std::memory_order_relaxed);
    detail::chan_handle::release(context_.exchange(nullptr, std::memory_order_acq_rel));
    std::rethrow_exception(std::move(error));
}

dunlin::context task_group::context() const {
    detail::chan_core* c = context_.load(std::memory_order_seq_cst);
    if (c == nullptr) {
        detail::chan_handle::reference(parent_);
        detail::chan_handle made = detail::make_cancel_node(detail::chan_handle(parent_));
        if (context_.compare_exchange_strong(c, made.core(), std::memory_order_seq_cst)) {
            c = made.core();
            detail::chan_handle::reference(c);  // the group's
        }
        if (error_written_.load(std::memory_order_seq_cst)) detail::cancel_node(c, error_);
    }
    detail::chan_handle::reference(c);
    return access(detail::chan_handle(c));
}

void task_group::cancel() const { detail::cancel_node(access::core_of(context()), nullptr); }

}  // namespace dunlin
