// inflow.h - messages on their way from libnats' thread to their readers.
//
// Data      ready      a channel; readers wait for it.
//           behind     messages that found it full, in order (policy `wait`): each reader that has taken a message
//                      moves them up.
// Protocol  arrived() never waits. While `behind` has messages, new ones go there too, so the order is kept. If the
//           channel is empty, so is `behind`: a message goes to `behind` under the lock while the channel is full, and
//           the reader that makes room moves it up under the lock.
#pragma once

#include <deque>
#include <mutex>

#include <dunlin/nats/subscription.hpp>

#include "connection.h"

namespace dunlin::inline v0_1::nats::detail {

struct inflow final : sink {
    inflow(std::shared_ptr<connection> c, subscribe_options o)
        : link(std::move(c)),
          options(std::move(o)),
          ready(static_cast<std::ptrdiff_t>(std::max<std::size_t>(options.buffer, 1))) {}

    void arrived(nats::message m) override;
    void taken();
    void end(failure f) noexcept;
    bool refused(const failure& f) override {
        end(f);
        return true;
    }

    const std::shared_ptr<connection> link;
    const subscribe_options options;
    const chan<nats::message> ready;
    std::shared_ptr<interest> subscription;
    platform::atomic<std::uint64_t> dropped{0};

    mutable std::mutex mutex;
    std::deque<nats::message> behind;
    std::size_t bytes_behind = 0;
    bool over = false;      // no more messages will come
    bool closed = false;    // ready is closed
    failure why;
};

// Ends an inflow with its connection.
struct inflow_member final : member {
    explicit inflow_member(std::weak_ptr<inflow> f) : flow(std::move(f)) {}
    void tick(std::int64_t) override {}
    void came_back() override {}
    void ended(const failure& f) override {
        if (const auto i = flow.lock()) i->end(f);
    }
    std::weak_ptr<inflow> flow;
};

}  // namespace dunlin::nats::detail
