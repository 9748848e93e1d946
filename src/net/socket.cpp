#include "net/socket.h"

#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "io/describe.h"
#include "io/system.h"

namespace dunlin::net {

namespace {

constexpr network networks[] = {
    {"tcp", AF_UNSPEC, SOCK_STREAM}, {"tcp4", AF_INET, SOCK_STREAM},   {"tcp6", AF_INET6, SOCK_STREAM}, {"unix", AF_UNIX, SOCK_STREAM},
    {"udp", AF_UNSPEC, SOCK_DGRAM},  {"udp4", AF_INET, SOCK_DGRAM},    {"udp6", AF_INET6, SOCK_DGRAM},  {"unixgram", AF_UNIX, SOCK_DGRAM},
};

const char* name_of(kind k) noexcept {
    switch (k) {
    case kind::tcp: return "tcp";
    case kind::udp: return "udp";
    case kind::unix_stream: return "unix";
    case kind::unix_packet: return "unixgram";
    default: return "socket";
    }
}

// "tcp 127.0.0.1:80->127.0.0.1:4711"
std::string describe(io_descriptor* d) {
    std::string text = name_of(io::kind_of(d));
    const std::string local = local_address_of(d).to_string(), remote = remote_address_of(d).to_string();
    if (!local.empty() || !remote.empty()) text += ' ' + local;
    if (!remote.empty()) text += "->" + remote;
    return text;
}

using name_call = int (*)(int, sockaddr*, socklen_t*);

// Not inlined: libc's errno.
[[gnu::noinline]] address name_of_end(io_descriptor* d, name_call call) noexcept {
    const io::use mine(d);
    sockaddr_storage s;
    socklen_t size = sizeof s;
    if (!mine || call(d->fd(), reinterpret_cast<sockaddr*>(&s), &size) != 0) return {};
    return from_kernel(&s, size);
}

}  // namespace

address from_kernel(const void* name, unsigned size) noexcept {
    sockaddr_in6 v6;
    if (size == sizeof v6) {
        std::memcpy(&v6, name, sizeof v6);
        if (v6.sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
            sockaddr_in v4{};
            v4.sin_family = AF_INET;
            v4.sin_port = v6.sin6_port;
            std::memcpy(&v4.sin_addr, v6.sin6_addr.s6_addr + 12, sizeof v4.sin_addr);
            return address::from_native(&v4, sizeof v4);
        }
    }
    return address::from_native(name, size);
}

bool network::is_unix() const noexcept { return family == AF_UNIX; }

kind network::descriptor_kind() const noexcept {
    if (is_unix()) return type == SOCK_STREAM ? kind::unix_stream : kind::unix_packet;
    return type == SOCK_STREAM ? kind::tcp : kind::udp;
}

const network* find_network(std::string_view name) noexcept {
    for (const network& n : networks) {
        if (n.name == name) return &n;
    }
    return nullptr;
}

int make_socket(int family, int type) noexcept {
    return static_cast<int>(io::system_socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK));
}

io_descriptor* open_descriptor(int fd, kind k, std::error_code& ec) noexcept {
    static const bool describer_set = (detail::set_socket_describer(describe), true);
    static_cast<void>(describer_set);
    int error = 0;
    io_descriptor* d = io_descriptor::open(fd, error);
    if (d == nullptr) {
        ec = system_error_code(error);
        netpoll::close_number(fd);
        return nullptr;
    }
    ec.clear();
    d->kind = static_cast<std::uint8_t>(k);
    if (k == kind::tcp) d->short_reads_drain();
    return d;
}

io_descriptor* adopt_socket(int fd, std::initializer_list<kind> allowed, std::error_code& ec) noexcept {
    detail::set_socket_describer(describe);
    const long flags = platform::raw_syscall(SYS_fcntl, fd, F_GETFL);
    io_descriptor* d = detail::io_adopt(fd, ec);
    if (d == nullptr) return nullptr;
    for (const kind k : allowed) {
        if (io::kind_of(d) == k) return d;
    }
    ec = std::make_error_code(std::errc::not_a_socket);
    d->give_back_fd();
    platform::raw_syscall(SYS_fcntl, fd, F_SETFL, flags);  // and blocks, if it did before
    return nullptr;
}

int set_option(int fd, int level, int name, int value) noexcept {
    return static_cast<int>(-platform::raw_syscall(SYS_setsockopt, fd, level, name, platform::syscall_arg(&value), sizeof value));
}

void set_option_or_throw(io_descriptor* d, const char* what, int level, int name, int value) {
    const io::use mine(d);
    const std::error_code ec = !mine ? make_error_code(errc::closed) : system_error_code(set_option(d->fd(), level, name, value));
    if (ec) detail::throw_io_error(what, d, ec);
}

void apply(int fd, kind k, const stream_options& options) noexcept {
    if (k != kind::tcp) return;
    if (options.no_delay) set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (options.keep_alive.count() <= 0) return;
    const int seconds = static_cast<int>(std::min<std::chrono::seconds::rep>(options.keep_alive.count(), 32767));
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
}

address local_address_of(io_descriptor* d) noexcept { return name_of_end(d, getsockname); }
address remote_address_of(io_descriptor* d) noexcept { return name_of_end(d, getpeername); }

void throw_net_error(std::string_view operation, std::string_view network, std::string_view address, std::error_code ec, std::string_view detail) {
    std::string text(operation);
    for (const std::string_view word : {network, address}) {
        if (!word.empty()) text += ' ' + std::string(word);
    }
    if (ec == errc::cancelled || (ec.category() == error_category() && ec == errc::deadline_exceeded)) throw context_cancelled(ec, text);
    text += ": " + detail::cause_text(ec);
    if (!detail.empty()) text += (ec == std::errc::timed_out ? " " : ": ") + std::string(detail);
    throw io_error(ec, std::move(text));
}

}  // namespace dunlin::net
