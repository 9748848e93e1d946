// dial.cpp - connecting.
//
// One        socket(), connect(); EINPROGRESS: wait until the socket is writable, and ask SO_ERROR. If the backlog of a
//            Unix socket is full, connect() fails with EAGAIN and no edge follows: it is tried again (retry_pause).
// Several    RFC 8305 ("happy eyeballs"): the families alternate, beginning with the one that the resolver prefers; the
//            next attempt begins when 250 ms have passed or an earlier one has failed. Each attempt runs in a goroutine
//            of its own and sends its outcome to a channel that has room for all, so that dial() need not wait for late
//            attempts: their connections are closed together with the channel.
#include "net/address.h"
#include "net/dial.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <netinet/in.h>
#include <sys/socket.h>

#include <dunlin/chan.hpp>
#include <dunlin/context.hpp>
#include <dunlin/detail/atomic.hpp>
#include <dunlin/detail/caught.hpp>
#include <dunlin/detail/helper.hpp>
#include <dunlin/net.hpp>

#include "io/system.h"
#include "net/resolve.h"
#include "net/socket.h"
#include "platform/clock.h"
#include "platform/text.h"

namespace dunlin::inline v0_1::net {

namespace {

constexpr std::int64_t next_attempt_after_ns = 250'000'000;
constexpr int self_connects_allowed = 3;

// Returns 0 when the socket is connected, -EAGAIN when it is not yet, or the error.
long look_whether_connected(int fd) noexcept {
    int error = 0;
    const long result = io::system_get_option(fd, SOL_SOCKET, SO_ERROR, &error);
    if (result != 0) return result;
    if (error != 0) return error == EINPROGRESS || error == EALREADY ? -EAGAIN : -error;
    sockaddr_storage peer;
    socklen_t size = sizeof peer;
    const long named = io::system_name(fd, true, &peer, &size);
    return named == -ENOTCONN ? -EAGAIN : named;
}

long start_to_connect(int fd, const address& to) noexcept {
    const long result = io::system_connect(fd, to.native(), to.native_size());
    return result == -EISCONN ? 0 : result;
}

bool finish_connecting(io_descriptor* d, const address& to, long started, const wait_limit* limit, std::error_code& ec,
    const std::source_location& where) {
    const io::fd_guard mine(d, direction::write, limit, where, ec);
    for (retry_pause pause; mine && started == -EAGAIN; pause.lengthen()) {
        if (!io::pause_writer(d, pause.ns, limit, where, ec)) return false;
        started = start_to_connect(d->fd(), to);
    }
    if (!mine) return false;
    if (started != 0 && started != -EINPROGRESS && started != -EINTR) {
        ec = system_error_code(-started);
        return false;
    }
    if (io::perform(d, direction::write, limit, where, ec, look_whether_connected) != 0) return false;
    if (auto* hook = when_connected.load(std::memory_order_relaxed)) hook();
    // A cancelled dial gives no connection, however far it has come, as in Go.
    return io::may_go_on(d, direction::write, limit, ec) && io::may_wait(limit, ec);
}

io_descriptor* connect_once(const network& n, const address& to, const wait_limit* limit, const stream_options& options,
    std::error_code& ec, const std::source_location& where) {
    const int fd = make_socket(to.is_unix() ? AF_UNIX : to.is_ipv4() ? AF_INET : AF_INET6, n.type);
    if (fd < 0) {
        ec = system_error_code(-fd);
        return nullptr;
    }
    apply(fd, n.descriptor_kind(), options);
    const long started = start_to_connect(fd, to);
    io_descriptor* d = open_descriptor(fd, n.descriptor_kind(), ec);
    if (d == nullptr) return nullptr;
    bool connected = false;
    try {
        connected = finish_connecting(d, to, started, limit, ec, where);
    } catch (...) {
        d->release();
        throw;
    }
    if (connected) return d;
    d->release();
    return nullptr;
}

// ---- several addresses ----------------------------------------------------------------------------------------------

std::vector<address> families_by_turns(const std::vector<address>& all) {
    std::vector<address> first, second, result;
    for (const address& a : all) (a.is_ipv4() == all.front().is_ipv4() ? first : second).push_back(a);
    for (std::size_t i = 0; i < first.size() || i < second.size(); ++i) {
        if (i < first.size()) result.push_back(first[i]);
        if (i < second.size()) result.push_back(second[i]);
    }
    return result;
}

struct outcome {
    stream connection;
    std::error_code error;
    std::exception_ptr thrown;  // for the caller: the attempt's goroutine has none that would catch it
};
using outcomes = chan<std::unique_ptr<outcome>>;

// The outcome is made here, so that there is one whatever memory fails for.
void start_attempt(const outcomes& to_here, const network& n, const address& to, std::int64_t deadline_ns,
    const context& ctx, const stream_options& options, const std::source_location& where) {
    auto attempt = [=, &n, o = std::make_unique<outcome>()]() mutable {
        try {
            const wait_limit limit{deadline_ns, detail::done_channel(ctx)};
            o->connection = io_access::make<stream>(connect_to(n, to, &limit, options, o->error, where));
        } catch (...) {
            o->thrown = detail::caught();
        }
        outcomes(to_here).try_send(std::move(o));
    };
    detail::go_for(detail::this_caller(), std::move(attempt));
}

// Null: no attempt has finished in time; `ec` is set if the context is done.
std::unique_ptr<outcome> next_outcome(
    const outcomes& c, const wait_limit& until, std::error_code& ec, const std::source_location& where) {
    detail::element_slot<std::unique_ptr<outcome>> slot;
    switch (detail::channel_receive(detail::handle_access::core(c), &slot.value, &until, where)) {
    case detail::wait_outcome::ok: return *detail::take(slot);
    case detail::wait_outcome::cancelled: ec = detail::error_of_node(until.done); return nullptr;
    default: return nullptr;
    }
}

io_descriptor* connect_to_one_of(const network& n, const std::vector<address>& all, const wait_limit& limit,
    const stream_options& options, std::error_code& ec, const std::source_location& where) {
    const std::vector<address> order = families_by_turns(all);
    const outcomes results(static_cast<std::ptrdiff_t>(order.size()));
    const auto attempts = with_cancel(context::background());
    struct canceller {
        const cancellable& ctx;
        ~canceller() { ctx.cancel(); }
    } cancel_the_others{attempts};
    std::error_code first_error;
    std::size_t started = 0, pending = 0;
    for (;;) {
        if (started < order.size()) {
            start_attempt(results, n, order[started++], limit.deadline_ns, attempts, options, where);
            ++pending;
        }
        wait_limit until = limit;
        if (started < order.size())
            until.deadline_ns = std::min(until.deadline_ns, platform::now_ns() + next_attempt_after_ns);
        ec.clear();
        const std::unique_ptr<outcome> o = next_outcome(results, until, ec, where);
        if (ec) return nullptr;
        if (o == nullptr) {
            if (limit.deadline_ns > platform::now_ns()) continue;
            ec = first_error ? first_error : std::make_error_code(std::errc::timed_out);
            return nullptr;
        }
        if (o->thrown != nullptr) std::rethrow_exception(o->thrown);
        if (!o->error) return io_access::take(o->connection);
        --pending;
        if (!first_error) first_error = o->error;
        if (pending == 0 && started == order.size()) {
            ec = first_error;
            return nullptr;
        }
    }
}

stream dial_with(std::string_view network_name, std::string_view text, const wait_limit& limit, std::error_code& ec,
    const stream_options& options) {
    const network* n = find_network(network_name);
    if (n == nullptr || n->type != SOCK_STREAM) {
        ec = errc::bad_address;
        return {};
    }
    const auto where = std::source_location::current();
    const std::vector<address> addresses = addresses_of(*n, text, false, &limit, ec);
    if (ec) return {};
    return io_access::make<stream>(addresses.size() == 1 ? connect_to(*n, addresses.front(), &limit, options, ec, where)
                                                         : connect_to_one_of(*n, addresses, limit, options, ec, where));
}

stream checked(
    stream s, std::string_view network_name, std::string_view text, std::error_code ec, const std::string& after = {}) {
    if (!ec) return s;
    const bool timeout = ec == std::make_error_code(std::errc::timed_out) && !after.empty();
    throw_net_error("dial", network_name, text, ec,
        timeout ? "after " + after : advice_for(ec, network_name, SOCK_STREAM, text));
}

wait_limit limit_in(std::chrono::nanoseconds timeout) { return {detail::deadline_in(timeout), nullptr}; }

}  // namespace

constinit platform::atomic<void (*)() noexcept> when_connected{nullptr};

io_descriptor* connect_to(const network& n, const address& to, const wait_limit* limit, const stream_options& options,
    std::error_code& ec, const std::source_location& where) {
    for (int again = self_connects_allowed;; --again) {
        io_descriptor* d = connect_once(n, to, limit, options, ec, where);
        // A socket that dials a port of this machine without a listener may itself be given that port by the kernel: it
        // is then connected to itself.
        if (!remember_ends(d) || io::kind_of(d) != kind::tcp) return d;
        d->release();
        if (again == 0) {
            ec = std::make_error_code(std::errc::connection_refused);
            return nullptr;
        }
    }
}

stream dial(std::string_view network_name, std::string_view text, std::error_code& ec, const stream_options& options) {
    return dial_with(network_name, text, {}, ec, options);
}

stream dial(std::string_view network_name, std::string_view text, std::chrono::nanoseconds timeout, std::error_code& ec,
    const stream_options& options) {
    return dial_with(network_name, text, limit_in(timeout), ec, options);
}

stream dial(std::string_view network_name, std::string_view text, const context& ctx, std::error_code& ec,
    const stream_options& options) {
    return dial_with(network_name, text, {wait_limit::never, detail::done_channel(ctx)}, ec, options);
}

stream dial(std::string_view network_name, std::string_view text, const stream_options& options) {
    std::error_code ec;
    stream s = dial(network_name, text, ec, options);
    return checked(std::move(s), network_name, text, ec);
}

stream dial(std::string_view network_name, std::string_view text, std::chrono::nanoseconds timeout,
    const stream_options& options) {
    std::error_code ec;
    stream s = dial(network_name, text, timeout, ec, options);
    return checked(std::move(s), network_name, text, ec,
        platform::duration_text(std::max(timeout, std::chrono::nanoseconds{}).count()));
}

stream dial(std::string_view network_name, std::string_view text, const context& ctx, const stream_options& options) {
    std::error_code ec;
    stream s = dial(network_name, text, ctx, ec, options);
    return checked(std::move(s), network_name, text, ec);
}

}  // namespace dunlin::net
