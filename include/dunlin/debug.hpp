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
    /// If it is not empty, each request must carry it, as `Authorization: Bearer TOKEN` or as the parameter `token` of
    /// its address.
    std::string token = {};
    /// How many requests are served at once. More are refused (503); beyond twice as many, connections are just closed.
    unsigned connections = 32;
    /// How long a client may take to send its request, and to receive the reply.
    dunlin::detail::duration_option request_limit = std::chrono::seconds(5), reply_limit = std::chrono::seconds(30);
    /// Keeps runtime::set_wait_histograms() on while it serves, for `/metrics`: the clock is read twice for each wait.
    /// That matters where goroutines do nothing but hand over (`./dev bench sight`). The last such server to close
    /// switches it off, if the first has switched it on.
    bool wait_histograms = true;
};

/// The server that serve() has started. It serves until close() or its destructor.
class DUNLIN_API server {
public:
    /// Serves nothing.
    server() noexcept;
    server(server&&) noexcept;
    server& operator=(server&&) noexcept;
    ~server();

    /// Where it listens, with the port that was chosen for port 0.
    net::address local_address() const;
    /// "http://127.0.0.1:6060/"
    std::string url() const;
    /// Takes no more requests, ends those under way, and waits for their end, for two seconds at most. Call it, or
    /// destroy the object, before the end of the run() in which it was made.
    void close() noexcept;
    explicit operator bool() const noexcept { return state_ != nullptr; }

private:
    explicit server(std::shared_ptr<server_state> s) noexcept;
    friend DUNLIN_API server serve(std::string_view address, const serve_options& options);

    std::shared_ptr<server_state> state_;
};

/// Serves at "host:port", in goroutines, while the program goes on: `/` (a page that updates itself every two seconds),
/// `/dump`, `/dump.json`, `/metrics` (for Prometheus) and, as Go's programs do, `/debug/pprof/goroutine`, `block`,
/// `mutex` and `profile` (of the CPU, for `?seconds=N`, default 30; 409: one runs already), in the format that
/// `go tool pprof` takes, or as text with `?debug=1` and `2`; `/debug/pprof/trace?seconds=N` (default 1), for
/// dunlin-trace, not for Go's tools. `/trace`, which the page asks for, is what the flight recorder has kept. Unless
/// the program has a recorder of its own, a small one runs while `/trace` is asked for, and ten seconds longer.
/// Requests change nothing else; block and mutex profiles show what is counted since
/// runtime::set_block_profile_rate() and set_mutex_profile_fraction() have switched that on. Without a token it listens
/// only at this machine's own addresses (127.0.0.1, [::1], localhost), and answers only requests to such a host (in
/// HTTP/1.1 each names one, or gets a 400). A client that may ask sees names, labels and stacks of the program; with a
/// token they still travel in the clear.
/// `DUNLIN_DEBUG=page=127.0.0.1:6060` in the environment makes a program that is linked with this library serve in each
/// run() (with the token in `DUNLIN_PAGE_TOKEN`, if there is one), and say on stderr where, or why not. While it
/// listens, the runtime finds no deadlock of all goroutines. Throws io_error; std::invalid_argument: another address
/// without a token. From goroutines, and from plain threads while a run() lasts.
DUNLIN_API server serve(std::string_view address, const serve_options& options = {});
/// The same without exceptions: another address without a token is std::errc::permission_denied.
DUNLIN_API server serve(std::string_view address, const serve_options& options, std::error_code& ec);
inline server serve(std::string_view address, std::error_code& ec) { return serve(address, serve_options(), ec); }

}  // namespace dunlin::debug
