// nats/delivery.hpp - a job that was taken from a queue, and must end somehow.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <dunlin/context.hpp>
#include <dunlin/nats/message.hpp>

namespace dunlin::inline v0_1::nats {

namespace detail {
struct held;
class puller;
}  // namespace detail

/// What a delivery is, without its value. Move-only; it ends by done(), retry() or reject(). One that is destroyed
/// without any is handed back at once, and another process gets it.
///
/// At least once: a job may come again though it was done, when the confirmation did not arrive in time, or the process
/// died between the effect and done().
/// Deadline  While it lives its deadline at the server is prolonged. When that could not be done in time (no
///           connection, a process that stood still), it is lost: the server gives the job to another one.
/// Threads   One at a time; lost() and context() from anywhere.
class DUNLIN_API delivery_base {
public:
    delivery_base() noexcept = default;
    delivery_base(delivery_base&&) noexcept = default;
    delivery_base& operator=(delivery_base&& other) noexcept;
    ~delivery_base();

    /// The job is done: when it returns the server has confirmed it, and will not deliver it again.
    /// Throws    errc::not_confirmed, connection_lost, closed: it may come again. context_cancelled. It may be called
    ///           again then.
    void done(const dunlin::context& ctx = {});
    /// Not now: to be delivered again after `delay`. Does not wait for an answer.
    void retry(std::chrono::nanoseconds delay = std::chrono::nanoseconds(0));
    /// Never: to the dead letters, with this reason. When it returns, it is there and no longer in the queue.
    void reject(const std::string& reason, const dunlin::context& ctx = {});

    /// Another one has it now, or will: the deadline has passed here without being prolonged.
    bool lost() const noexcept;
    /// Done when it is lost (cause: errc::not_confirmed) and when it has ended; derived from that of consume_options.
    /// Has the sender's trace_id.
    dunlin::context context() const;
    /// It has not ended yet.
    explicit operator bool() const noexcept { return static_cast<bool>(held_); }

    /// Which delivery of this job it is; 1 is the first. The server's count, which leaves out those for which it found
    /// no receiver.
    std::uint64_t deliveries() const noexcept;
    /// The job's number in its stream, the same for all its deliveries.
    std::uint64_t sequence() const noexcept;
    /// As it came.
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
    T* operator->() noexcept { return &value_; }

private:
    T value_;
};

}  // namespace dunlin::nats
