// nats/delivery.hpp - a job that was taken from a queue, and must be ended.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <dunlin/clock.hpp>
#include <dunlin/context.hpp>
#include <dunlin/nats/message.hpp>

namespace dunlin::inline v0_1::nats {

namespace detail {
struct held;
class puller;
}  // namespace detail

/// A delivery without its value. Move-only; done(), retry() or reject() ends it. One that is destroyed without any of
/// these is handed back at once, and another process gets it.
///
/// At least once: a job may come again although it was done, if the confirmation did not arrive in time, or the process
/// died between the effect and done().
/// Deadline  While it lives, its deadline at the server is prolonged. If that is not possible in time (no connection, a
///           process that stood still), it is lost: the server gives the job to another consumer.
/// Threads   One at a time; lost() and context() from anywhere.
class DUNLIN_API delivery_base {
public:
    delivery_base() noexcept = default;
    delivery_base(delivery_base&&) noexcept = default;
    delivery_base& operator=(delivery_base&& other) noexcept;
    ~delivery_base();

    /// The job is done: when this returns, the server has confirmed that, and will not deliver the job again.
    /// Throws    errc::not_confirmed, connection_lost, closed: the job may come again. context_cancelled. After an
    ///           error done() may be called again.
    void done(const dunlin::context& ctx = {});
    /// Not now: the job will be delivered again after `delay`, a hundred years at most. Does not wait for an answer.
    /// Throws std::invalid_argument for a time that is not a number.
    void retry(std::chrono::nanoseconds delay = std::chrono::nanoseconds(0));
    template <class Rep, class Period>
    void retry(const std::chrono::duration<Rep, Period>& delay) {
        retry(dunlin::detail::to_nanoseconds(delay));
    }
    /// Never: puts the job among the dead letters, with this reason. When this returns, the job is there and no longer
    /// in the queue.
    void reject(const std::string& reason, const dunlin::context& ctx = {});

    /// Another consumer has the job now, or will get it: the deadline has passed without being prolonged.
    bool lost() const noexcept;
    /// A context that is done when the delivery is lost (cause: errc::not_confirmed) or has ended; derived from the one
    /// in consume_options. It has the sender's trace_id.
    dunlin::context context() const;
    /// True until the delivery has ended.
    explicit operator bool() const noexcept { return static_cast<bool>(held_); }

    /// The number of this delivery of the job; 1 is the first. The server counts, and leaves out deliveries for which
    /// it found no receiver.
    std::uint64_t deliveries() const noexcept;
    /// The job's number in its stream, the same for all its deliveries.
    std::uint64_t sequence() const noexcept;
    /// The message as it came.
    const nats::message& message() const noexcept;

protected:
    friend class detail::puller;
    explicit delivery_base(std::shared_ptr<detail::held> h) noexcept : held_(std::move(h)) {}
    std::shared_ptr<detail::held> held_;
};

/// A job of type T.
template <class T>
class delivery : public delivery_base {
public:
    delivery(delivery_base&& d, T&& value) : delivery_base(std::move(d)), value_(std::move(value)) {}
    T& operator*() noexcept { return value_; }
    const T& operator*() const noexcept { return value_; }
    T* operator->() noexcept { return std::addressof(value_); }

private:
    T value_;
};

}  // namespace dunlin::nats
