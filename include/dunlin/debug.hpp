// debug.hpp - a program's own page: its goroutines, metrics and profiles over HTTP. A library of its own (CMake:
// dunlin::debug, pkg-config: dunlin-debug), without dependencies.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include <dunlin/error.hpp>
#include <dunlin/net.hpp>

namespace dunlin::inline v0_1::debug {

struct server_state;

/// How serve() serves.
struct serve_options {
    /// Not empty: each request must bring it, as `Authorization: Bearer TOKEN` or as the parameter `token` of its
    /// address.
    std::string token = {};
    /// How many requests are served at once. More are refused (503); where there are more than twice as many,
    /// connections are closed.
    unsigned connections = 32;
    /// How long a client may take to send its request, and to take the reply.
    std::chrono::nanoseconds request_limit = std::chrono::seconds(5), reply_limit = std::chrono::seconds(30);
    /// Has runtime::set_wait_histograms() on while it serves, for `/metrics`: the clock is read twice for each wait.
    /// That matters where goroutines do nothing but hand over (`./dev bench sight`).
    bool wait_histograms = true;
};

/// What serve() has started. It serves until close(), or its destructor.
class DUNLIN_API server {
public:
    /// Serves nothing.
    server() noexcept;
    server(server&&) noexcept;
    server& operator=(server&&) noexcept;
    ~server();

    /// Where it listens: with the port that was chosen for port 0.
    net::address local_address() const;
    /// "http://127.0.0.1:6060/"
    std::string url() const;
    /// Takes no more requests, ends those under way, and waits for that, for two seconds at most. Call it, or destroy
    /// the object, before the run() ends in which it was made.
    void close() noexcept;
    explicit operator bool() const noexcept { return state_ != nullptr; }

private:
    explicit server(std::shared_ptr<server_state> s) noexcept;
    friend DUNLIN_API server serve(std::string_view address, const serve_options& options);

    std::shared_ptr<server_state> state_;
};

/// Serves at "host:port", in goroutines, while the program goes on: `/` (a page that shows itself anew every two
/// seconds), `/dump`, `/dump.json`, `/metrics` (for Prometheus) and, as Go's programs do, `/debug/pprof/goroutine`,
/// `block`, `mutex` and `profile` (of the CPU, for `?seconds=N`, 30; 409: one runs already), with `?debug=1` and `2` as
/// text: what `go tool pprof` takes; `/debug/pprof/trace?seconds=N` (1), for dunlin-trace, not for Go's tools.
/// `/trace`, which the page asks for, is what the flight recorder has kept: with a small one that runs while it is
/// asked for, and ten seconds longer, unless the program has one of its own. Nothing else is changed by a request;
/// block and mutex profiles show what runtime::set_block_profile_rate() and set_mutex_profile_fraction() have had
/// counted. Without a token on this machine's own addresses only (127.0.0.1, [::1], localhost), and for requests to
/// such a host. A client that may ask sees names, labels and stacks of the program; with a token they still travel in
/// the clear. `DUNLIN_DEBUG=page=127.0.0.1:6060` in the environment has a program that is linked with this library
/// serve in each run() (with the token in `DUNLIN_PAGE_TOKEN`, if there is one), and says on stderr where, or why not.
/// While it listens the runtime finds no deadlock of all goroutines. Throws io_error; std::invalid_argument:
/// another address, and no token. From goroutines, and from plain threads while a run() lasts.
DUNLIN_API server serve(std::string_view address, const serve_options& options = {});
/// The same without exceptions: std::errc::permission_denied is the other address without a token.
DUNLIN_API server serve(std::string_view address, const serve_options& options, std::error_code& ec);
inline server serve(std::string_view address, std::error_code& ec) { return serve(address, serve_options(), ec); }

}  // namespace dunlin::debug
