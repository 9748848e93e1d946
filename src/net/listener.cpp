// listener.cpp - listening and accepting.
//
// Shortage   accept4 fails with EMFILE or ENFILE when no descriptors are left. The connection stays in the backlog, so
//            no further edge comes: the goroutine sleeps, 5 ms at first and later up to 100 ms, and tries again. So it
//            notices within that time that this process has closed a descriptor; a close in another process (ENFILE)
//            would not be reported anyway. A shortage of memory (ENOBUFS, ENOMEM) is handled likewise. A connection
//            that is accepted but cannot be watched (epoll: ENOSPC, ENOMEM) is kept, and watching is tried again; it is
//            lost only if the listener is closed, or the call's limit comes, first. A shortage is reported once on
//            stderr.
// Given up   Connections that ended in the backlog are skipped: ECONNABORTED, and the network errors that accept(2)
//            says to treat in the same way.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include <dunlin/detail/atomic.hpp>
#include <dunlin/net.hpp>

#include "io/system.h"
#include "net/address.h"
#include "net/resolve.h"
#include "net/socket.h"
#include "platform/clock.h"
#include "platform/text.h"

namespace dunlin::inline v0_1::net {

namespace {

bool was_given_up(long error) noexcept {
    switch (error) {
    case ECONNABORTED:
    case EPROTO:
    case ENETDOWN:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ENETUNREACH: return true;
    default: return false;
    }
}

bool is_shortage(long error) noexcept {
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM || error == ENOSPC;
}

constexpr std::int64_t first_pause_ns = 5'000'000, longest_pause_ns = 100'000'000;

class pause {
public:
    std::int64_t next_ns() noexcept { return std::exchange(ns_, std::min(2 * ns_, longest_pause_ns)); }

private:
    std::int64_t ns_ = first_pause_ns;
};

// Printed once in a process, because the peers in the backlog see only a server that does not answer.
void say_shortage(int error) noexcept {
    static platform::atomic<bool> said{false};
    if (said.exchange(true, std::memory_order_relaxed)) return;
    platform::text_writer(STDERR_FILENO) << "dunlin: accept: " << std::strerror(error)
        << ": connections wait until there is room (limits: ulimit -n, memory)\n";
}

// Sleeps; ends early if the listener is closed, its deadline comes, or the context is done, which the caller finds out
// at its next look.
void wait_out_shortage(
    io_descriptor* d, const wait_limit* limit, std::int64_t pause_ns, const std::source_location& where) {
    wait_limit until{platform::now_ns() + pause_ns, limit != nullptr ? limit->done : nullptr};
    // An edge (another connection) ends the sleep early, which does not matter; a close does too, which matters.
    io::wait_for_edge(d, direction::read, d->edges(direction::read), &until, where);
}

// The caller is in the fd mutex. Returns the new socket, or -1 with `ec`.
int accept_socket(
    io_descriptor* d, address& peer, const wait_limit* limit, std::error_code& ec, const std::source_location& where) {
    for (pause shortage;;) {
        sockaddr_storage name;
        socklen_t name_size = 0;
        const long fd = io::perform(d, direction::read, limit, where, ec, [&](int listening) {
            name_size = sizeof name;
            return io::system_accept(listening, &name, &name_size);
        });
        if (fd >= 0) {
            peer = from_kernel(&name, name_size);
            return static_cast<int>(fd);
        }
        if (ec.category() != std::generic_category()) return -1;
        if (was_given_up(ec.value())) {
            ec.clear();
        } else if (is_shortage(ec.value())) {
            say_shortage(ec.value());
            ec.clear();
            if (!io::may_wait(limit, ec)) return -1;
            wait_out_shortage(d, limit, shortage.next_ns(), where);
        } else {
            return -1;
        }
    }
}

// The caller is in the fd mutex. Lets the poller watch the new socket, or closes it.
io_descriptor* watch_accepted(
    int fd, io_descriptor* d, const wait_limit* limit, std::error_code& ec, const std::source_location& where) {
    for (pause shortage;;) {
        io_descriptor* accepted = try_open_descriptor(fd, io::kind_of(d), d->is_plain_stream(), ec);
        if (accepted != nullptr) return accepted;
        if (!is_shortage(ec.value())) break;
        say_shortage(ec.value());
        if (!io::may_go_on(d, direction::read, limit, ec) || !io::may_wait(limit, ec)) break;
        try {
            wait_out_shortage(d, limit, shortage.next_ns(), where);
        } catch (const std::bad_alloc&) {
            netpoll::close_number(fd);
            throw;
        }
    }
    netpoll::close_number(fd);
    return nullptr;
}

// A connection inherits its listener's options: no_delay and keep_alive were set there.
stream accept_stream(
    io_descriptor* d, const wait_limit* limit, std::error_code& ec, const std::source_location& where) {
    const io::fd_guard mine(d, direction::read, limit, where, ec);
    if (!mine) return {};
    address peer;
    const int fd = accept_socket(d, peer, limit, ec, where);
    if (fd < 0) return {};
    io_descriptor* accepted = watch_accepted(fd, d, limit, ec, where);
    remember_ends(accepted, &peer);
    return io_access::make<stream>(accepted);
}

// ---- listening ------------------------------------------------------------------------------------------------------

// Of a socket that is bound to a path but cannot be listened at: the next attempt would find the address in use.
void remove_path(int fd, const address& at) noexcept {
    const auto& name = *reinterpret_cast<const sockaddr_un*>(at.native());
    if (at.is_unix() && name.sun_path[0] != 0 && !netpoll::is_simulated(fd)) ::unlink(name.sun_path);
}

std::error_code bind_and_listen(int fd, const network& n, const address& at, const listen_options& options) noexcept {
    const auto done = [](long result) { return system_error_code(-result); };
    if (!n.is_unix()) {
        if (options.reuse_address) set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
        if (options.reuse_port) {
            if (const int error = set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1)) return system_error_code(error);
        }
        if (at.is_ipv6()) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, n.family != AF_UNSPEC);
    }
    if (const auto ec = done(io::system_bind(fd, at.native(), at.native_size()))) return ec;
    if (n.type == SOCK_DGRAM) return {};
    apply(fd, n.descriptor_kind(), options.accepted);
    const auto ec = done(io::system_listen(fd, options.backlog));
    if (ec) remove_path(fd, at);
    return ec;
}

}  // namespace

// This computer has no such address, or none of its kind: another one of the same name may do. Any other failure
// (mostly: the port is in use) is about the address that was asked for, so trying the next address would listen
// somewhere else.
bool is_not_here(std::error_code ec) noexcept {
    return ec == std::errc::address_family_not_supported || ec == std::errc::address_not_available;
}

// Binds a socket of the network to the first of these addresses that this computer has.
io_descriptor* open_bound(const network& n, const std::vector<address>& addresses, const listen_options& options,
    std::error_code& ec) noexcept {
    for (const address& at : addresses) {
        const int family = at.is_unix() ? AF_UNIX : at.is_ipv4() ? AF_INET : AF_INET6;
        const int fd = make_socket(family, n.type);
        ec = fd < 0 ? system_error_code(-fd) : bind_and_listen(fd, n, at, options);
        if (!ec) {
            io_descriptor* d = open_descriptor(fd, n.descriptor_kind(), ec);
            if (d == nullptr) {
                remove_path(fd, at);
                return nullptr;
            }
            remember_ends(d);
            return d;
        }
        if (fd >= 0) netpoll::close_number(fd);
        if (!is_not_here(ec)) break;
    }
    return nullptr;
}

struct listener_access {
    static listener make(io_descriptor* d, std::string path) {
        auto l = io_access::make<listener>(d);
        l.has_path_ = !path.empty();
        l.path_ = std::move(path);
        return l;
    }
};

namespace {

listener listen_within(std::string_view network_name, std::string_view text, const listen_options& options,
    const wait_limit* limit, std::error_code& ec) {
    const network* n = find_network(network_name);
    if (n == nullptr || n->type != SOCK_STREAM) {
        ec = errc::bad_address;
        return {};
    }
    const std::vector<address> addresses = addresses_of(*n, text, true, limit, ec);
    if (ec) return {};
    const bool has_path = n->is_unix() && options.unlink && !text.empty() && text[0] != '@';
    std::string path = has_path ? std::string(text) : std::string();  // it may throw: before there is a socket to lose
    io_descriptor* d = open_bound(*n, addresses, options, ec);
    if (d == nullptr) return {};
    if (netpoll::is_simulated(d->fd())) path.clear();
    return listener_access::make(d, std::move(path));
}

listener checked(listener l, std::string_view network_name, std::string_view text, std::error_code ec) {
    if (ec) throw_net_error("listen", network_name, text, ec, advice_for(ec, network_name, SOCK_STREAM, text));
    return l;
}

}  // namespace

listener listen(
    std::string_view network_name, std::string_view text, const listen_options& options, std::error_code& ec) {
    return listen_within(network_name, text, options, nullptr, ec);
}

listener listen(std::string_view network_name, std::string_view text, const context& ctx, const listen_options& options,
    std::error_code& ec) {
    return listen_within(network_name, text, options, detail::io_limit(ctx).get(), ec);
}

listener listen(std::string_view network_name, std::string_view text, const listen_options& options) {
    std::error_code ec;
    listener l = listen(network_name, text, options, ec);
    return checked(std::move(l), network_name, text, ec);
}

listener listen(
    std::string_view network_name, std::string_view text, const context& ctx, const listen_options& options) {
    std::error_code ec;
    listener l = listen(network_name, text, ctx, options, ec);
    return checked(std::move(l), network_name, text, ec);
}

listener listener::adopt(int fd, const stream_options& accepted, std::error_code& ec) {
    io_descriptor* d = adopt_socket(fd, purpose::listener, ec);
    if (d == nullptr) return {};
    apply(d->fd(), io::kind_of(d), accepted);
    return listener_access::make(d, {});
}

listener listener::adopt(int fd, const stream_options& accepted) {
    std::error_code ec;
    listener l = adopt(fd, accepted, ec);
    if (ec) throw_adopt_error(fd, purpose::listener, ec);
    return l;
}

listener::listener(listener&& other) noexcept
    : io_handle(std::move(other)), has_path_(other.has_path_.exchange(false)), path_(std::move(other.path_)) {}

listener& listener::operator=(listener&& other) noexcept {
    if (this != &other) {
        close();
        io_handle::operator=(std::move(other));
        has_path_ = other.has_path_.exchange(false);
        path_ = std::move(other.path_);
    }
    return *this;
}

void listener::close() noexcept {
    // Before the waiting acceptors are woken: they may listen at the same path again.
    const bool first = has_path_.exchange(false, std::memory_order_relaxed);
    if (first) platform::raw_syscall(SYS_unlinkat, AT_FDCWD, platform::syscall_arg(path_.c_str()), 0);
    detail::io_close(descriptor_);
}

stream listener::accept_one(detail::io_limit limit, const where_type& w) {
    std::error_code ec;
    stream s = accept_stream(descriptor_, limit.get(), ec, w);
    if (ec) detail::throw_io_error("accept", descriptor_, ec);
    return s;
}

stream listener::accept(std::error_code& ec, where_type w) { return accept_stream(descriptor_, nullptr, ec, w); }

stream listener::accept(const context& ctx, std::error_code& ec, where_type w) {
    return accept_stream(descriptor_, detail::io_limit(ctx).get(), ec, w);
}

address listener::local_address() const { return local_address_of(descriptor_); }

}  // namespace dunlin::net
