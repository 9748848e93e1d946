#include "net/socket.h"

#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <new>
#include <sys/socket.h>
#include <utility>

#include "io/error.h"
#include "io/system.h"

namespace dunlin::inline v0_1::net {

namespace {

constexpr network networks[] = {
    {"tcp", AF_UNSPEC, SOCK_STREAM},
    {"tcp4", AF_INET, SOCK_STREAM},
    {"tcp6", AF_INET6, SOCK_STREAM},
    {"unix", AF_UNIX, SOCK_STREAM},
    {"udp", AF_UNSPEC, SOCK_DGRAM},
    {"udp4", AF_INET, SOCK_DGRAM},
    {"udp6", AF_INET6, SOCK_DGRAM},
    {"unixgram", AF_UNIX, SOCK_DGRAM},
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
    const std::string local = detail::with_zeros_shown(local_address_of(d).to_string()),
                      remote = detail::with_zeros_shown(remote_address_of(d).to_string());
    if (!local.empty() || !remote.empty()) text += ' ' + local;
    if (!remote.empty()) text += "->" + remote;
    return text;
}

// False: the kernel does not tell (any more).
bool ask_kernel(io_descriptor* d, bool of_peer, address& a) noexcept {
    const io::brief_use mine(d);
    sockaddr_storage s;
    socklen_t size = sizeof s;
    if (!mine || io::system_name(d->fd(), of_peer, &s, &size) != 0) return false;
    a = from_kernel(&s, size);
    return true;
}

// Both addresses, in as few bytes as possible: there may be a great many of these.
class ends final : public netpoll::descriptor_name {
public:
    static ends* make(const address& local, const address& remote) noexcept {
        void* memory = ::operator new(sizeof(ends) + local.native_size() + remote.native_size(), std::nothrow);
        return memory != nullptr ? new (memory) ends(local, remote) : nullptr;
    }
    static void operator delete(void* memory) noexcept { ::operator delete(memory); }

    address local() const noexcept { return address::from_native(bytes(), local_size_); }
    address remote() const noexcept { return address::from_native(bytes() + local_size_, remote_size_); }

private:
    ends(const address& local, const address& remote) noexcept
        : local_size_(static_cast<std::uint8_t>(local.native_size())),
          remote_size_(static_cast<std::uint8_t>(remote.native_size())) {
        std::memcpy(bytes(), local.native(), local_size_);
        std::memcpy(bytes() + local_size_, remote.native(), remote_size_);
    }
    static void* operator new(std::size_t, void* memory) noexcept { return memory; }
    unsigned char* bytes() noexcept { return reinterpret_cast<unsigned char*>(this + 1); }
    const unsigned char* bytes() const noexcept { return reinterpret_cast<const unsigned char*>(this + 1); }

    std::uint8_t local_size_, remote_size_;
};

const ends* noted(const io_descriptor* d) noexcept {
    return d != nullptr ? static_cast<const ends*>(d->name) : nullptr;
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
    const int fd = static_cast<int>(io::system_socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK));
    // As in Go: a caller that names a broadcast address means it.
    if (fd >= 0 && type == SOCK_DGRAM && family != AF_UNIX) set_option(fd, SOL_SOCKET, SO_BROADCAST, 1);
    return fd;
}

io_descriptor* try_open_descriptor(int fd, kind k, bool plain_tcp, std::error_code& ec) noexcept {
    static const bool describer_set = (detail::set_socket_describer(describe), true);
    static_cast<void>(describer_set);
    int error = 0;
    io_descriptor* d = io_descriptor::open(fd, error);
    if (d == nullptr) {
        ec = system_error_code(error);
        return nullptr;
    }
    ec.clear();
    d->kind = static_cast<std::uint8_t>(k);
    if (plain_tcp) d->set_short_reads_drain();
    return d;
}

io_descriptor* open_descriptor(int fd, kind k, std::error_code& ec) noexcept {
    io_descriptor* d = try_open_descriptor(fd, k, k == kind::tcp, ec);
    if (d == nullptr) netpoll::close_number(fd);
    return d;
}

namespace {

// The value, or -errno.
long option_of(int fd, int name) noexcept {
    int value = 0;
    const long result = io::system_get_option(fd, SOL_SOCKET, name, &value);
    return result != 0 ? result : value;
}

std::error_code unfit_for(int fd, purpose p) noexcept {
    const long type = option_of(fd, SO_TYPE);
    if (type < 0) return system_error_code(-type);
    if (type != (p == purpose::datagrams ? SOCK_DGRAM : SOCK_STREAM))
        return std::make_error_code(std::errc::wrong_protocol_type);
    if (p == purpose::datagrams) return {};
    const bool listens = option_of(fd, SO_ACCEPTCONN) > 0;
    return listens == (p == purpose::listener) ? std::error_code() : std::make_error_code(std::errc::invalid_argument);
}

}  // namespace

io_descriptor* adopt_socket(int fd, purpose p, std::error_code& ec) noexcept {
    detail::set_socket_describer(describe);
    if (netpoll::simulated_here() != nullptr) {
        ec = std::make_error_code(std::errc::operation_not_supported);
        return nullptr;
    }
    ec = unfit_for(fd, p);
    io_descriptor* d = !ec ? detail::io_adopt(fd, ec) : nullptr;
    remember_ends(d);
    return d;
}

void throw_adopt_error(int fd, purpose p, std::error_code ec) {
    const char* advice = detail::why_not_adopted(ec);
    if (ec == std::errc::operation_not_supported)
        advice = "it is the kernel's, and dunlin::sim has sockets of its own: listen() and dial() make them";
    if (ec == std::errc::wrong_protocol_type)
        advice = p == purpose::datagrams ? "a SOCK_DGRAM socket is wanted" : "a SOCK_STREAM socket is wanted";
    if (ec == std::errc::invalid_argument && p == purpose::listener)
        advice = "it does not listen: call listen(2) first";
    if (ec == std::errc::invalid_argument && p == purpose::connection)
        advice = "it listens: net::listener::adopt() takes it";
    throw_net_error("adopt", "descriptor", std::to_string(fd), ec, advice);
}

int set_option(int fd, int level, int name, int value) noexcept {
    return static_cast<int>(-io::system_set_option(fd, level, name, &value, sizeof value));
}

void set_option_or_throw(io_descriptor* d, const char* what, int level, int name, int value) {
    if (const std::error_code ec = set_option_of(d, level, name, value)) detail::throw_io_error(what, d, ec);
}

std::error_code set_option_of(io_descriptor* d, int level, int name, int value) noexcept {
    const io::brief_use mine(d);
    return !mine ? make_error_code(errc::closed) : system_error_code(set_option(d->fd(), level, name, value));
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

address local_address_of(io_descriptor* d) noexcept {
    address a;
    const bool known = ask_kernel(d, false, a);
    return known || noted(d) == nullptr ? a : noted(d)->local();
}

address remote_address_of(io_descriptor* d) noexcept {
    address a;
    const bool known = ask_kernel(d, true, a);
    return known || noted(d) == nullptr ? a : noted(d)->remote();
}

bool remember_ends(io_descriptor* d, const address* remote) noexcept {
    if (d == nullptr) return false;
    address here, there;
    ask_kernel(d, false, here);
    if (remote != nullptr) {
        there = *remote;
    } else {
        ask_kernel(d, true, there);
    }
    delete std::exchange(d->name, ends::make(here, there));
    return here == there;
}

void throw_net_error(std::string_view operation, std::string_view network, std::string_view address, std::error_code ec,
    std::string_view detail) {
    std::string text(operation);
    for (const std::string_view word : {network, address}) {
        if (!word.empty()) text += ' ';
        text += detail::with_zeros_shown(word);
    }
    if (ec == errc::cancelled || (ec.category() == error_category() && ec == errc::deadline_exceeded))
        throw context_cancelled(ec, text);
    text += ": " + detail::cause_text(ec);
    if (!detail.empty()) text += (ec == std::errc::timed_out ? " " : ": ") + std::string(detail);
    throw io_error(ec, std::move(text));
}

}  // namespace dunlin::net
