// nats/service.hpp - answers requests: each in a goroutine, with a bound on their number.
#pragma once

#include <dunlin/config.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <dunlin/context.hpp>
#include <dunlin/nats/cluster.hpp>

namespace dunlin::inline v0_1::nats {

struct serve_options {
    std::string group = "serve";   ///< one server of a group gets each request
    std::size_t at_once = 256;     ///< goroutines
    std::size_t queued = 1024;     ///< requests that wait for a goroutine; further ones are answered with errc::busy
};

/// Makes the answer to a request. `ctx` is done at the caller's deadline, when the caller no longer waits, and when the
/// server is closed; it has the caller's trace_id. If the handler throws, the caller gets errc::handler_failed with the
/// exception's text; also if it ends its goroutine (exit_goroutine()).
using request_handler = std::function<std::string(const message& request, const context& ctx)>;

namespace detail {
struct service;
}

/// Serves until it is closed or destroyed. Move-only.
class DUNLIN_API server {
public:
    server(server&&) noexcept = default;
    server& operator=(server&&) = delete;
    /// close() and wait().
    ~server();
    /// Takes no more requests; cancels the contexts of those under way.
    void close() noexcept;
    /// Takes no more requests; waits for those under way, those that wait for a goroutine, and those that the NATS
    /// server had sent before it heard of this.
    void drain();

    explicit server(std::shared_ptr<detail::service> s) noexcept : service_(std::move(s)) {}

private:
    std::shared_ptr<detail::service> service_;
};

/// Answers requests for `subject` from now on: when this returns, the connected NATS server knows of it; the other
/// servers of the cluster learn it soon after.
/// Throws    errc::not_confirmed, connection_lost: no answer within connect_options::confirm; not_permitted;
///           context_cancelled: `ctx` is done first. `ctx` limits only this call: serving goes on when `ctx` is done.
DUNLIN_API server serve(const cluster& c, const std::string& subject, request_handler handler,
    const serve_options& o = {}, const context& ctx = {});

}  // namespace dunlin::nats
