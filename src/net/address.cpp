// address.cpp - writing and reading addresses.
#include "net/address.h"

#include <arpa/inet.h>
#include <charconv>
#include <cstring>
#include <net/if.h>
#include <netinet/in.h>
#include <ostream>
#include <sys/socket.h>
#include <sys/un.h>

#include <dunlin/net.hpp>

#include "net/socket.h"

namespace dunlin::inline v0_1::net {

namespace {

static_assert(sizeof(sockaddr_un) <= 112);

template <class Sockaddr>
Sockaddr as(const address& a) noexcept {
    Sockaddr s{};
    std::memcpy(&s, a.native(), a.native_size() < sizeof s ? a.native_size() : sizeof s);
    return s;
}

sa_family_t family_of(const address& a) noexcept {
    return a.native_size() < sizeof(sa_family_t) ? sa_family_t{AF_UNSPEC} : as<sockaddr>(a).sa_family;
}

template <class Sockaddr>
address make(const Sockaddr& s) noexcept {
    return address::from_native(&s, sizeof s);
}

std::string unix_path(const address& a) {
    const auto s = as<sockaddr_un>(a);
    constexpr std::size_t before = offsetof(sockaddr_un, sun_path);
    if (a.native_size() <= before) return {};  // unnamed: a client, or a pair
    // The kernel counts a zero at the end, for which there may be no room.
    const std::size_t size = std::min(a.native_size() - before, sizeof s.sun_path);
    if (s.sun_path[0] == '\0') return "@" + std::string(s.sun_path + 1, size - 1);
    return {s.sun_path, strnlen(s.sun_path, size)};
}

std::optional<address> parse_unix(std::string_view path) noexcept {
    sockaddr_un s{};
    s.sun_family = AF_UNIX;
    const bool abstract = !path.empty() && path[0] == '@';
    if (path.empty() || path.size() + (abstract ? 0 : 1) > sizeof s.sun_path) return std::nullopt;
    // In an abstract name a zero byte is one like others: programs give them to the kernel with all zeros at their end.
    if (!abstract && path.find('\0') != path.npos) return std::nullopt;
    std::memcpy(s.sun_path, path.data(), path.size());
    if (abstract) s.sun_path[0] = '\0';
    return address::from_native(
        &s, static_cast<unsigned>(offsetof(sockaddr_un, sun_path) + path.size() + (abstract ? 0 : 1)));
}

std::optional<std::uint16_t> parse_port(std::string_view text) noexcept {
    std::uint16_t port = 0;
    if (text.empty()) return port;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return port;
}

struct host_and_port {
    std::string_view host = {}, port = {};
    const char* fault = nullptr;  // what is wrong; then there is no host
};

host_and_port split(std::string_view text) noexcept {
    if (text.find('\0') != text.npos) return {.fault = "it contains a zero byte"};
    const std::size_t colon = text.rfind(':');
    if (text.starts_with('[')) {
        const std::size_t bracket = text.find(']');
        if (bracket == text.npos) return {.fault = "missing ']'"};
        if (bracket + 1 == text.size()) return {.fault = "missing port"};
        if (text[bracket + 1] != ':') return {.fault = "expected ':' after ']'"};
        if (bracket + 1 != colon) return {.fault = "too many colons"};
        return {.host = text.substr(1, bracket - 1), .port = text.substr(bracket + 2)};
    }
    if (colon == text.npos) return {.fault = "missing port"};
    if (text.find(':') != colon) return {.fault = "too many colons: an IPv6 address stands in brackets"};
    return {.host = text.substr(0, colon), .port = text.substr(colon + 1)};
}

// libc wants a zero at the end of a text. Empty if it is too long for this place. Allocates nothing.
template <std::size_t Size>
struct text_for_libc {
    explicit text_for_libc(std::string_view s) noexcept {
        if (s.size() < Size) text[s.copy(text, Size)] = '\0';
    }
    char text[Size] = {};
};

bool read_number(int family, std::string_view text, void* to) noexcept {
    return inet_pton(family, text_for_libc<INET6_ADDRSTRLEN>(text).text, to) == 1;
}

// The index of an interface, given by its name or as a number; 0 if there is none.
unsigned zone_index(std::string_view name) noexcept {
    if (const unsigned index = if_nametoindex(text_for_libc<IF_NAMESIZE>(name).text); index != 0) return index;
    unsigned index = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    char known[IF_NAMESIZE];
    return error == std::errc() && end == name.data() + name.size() && if_indextoname(index, known) != nullptr ? index
                                                                                                               : 0;
}

}  // namespace

std::optional<address> parse_ip(std::string_view host, std::uint16_t port, int family, std::error_code& ec) noexcept {
    ec.clear();
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    if (family != AF_INET6 && read_number(AF_INET, host, &v4.sin_addr)) return make(v4);
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    const std::size_t zone = host.find('%');
    if (family == AF_INET || !read_number(AF_INET6, host.substr(0, zone), &v6.sin6_addr)) return std::nullopt;
    if (zone != host.npos) {
        v6.sin6_scope_id = zone_index(host.substr(zone + 1));
        if (v6.sin6_scope_id == 0) {
            ec = std::make_error_code(std::errc::no_such_device);
            return std::nullopt;
        }
    }
    return make(v6);
}

// Parses an address in numbers, or a path.
std::optional<address> parse_numeric(const network& n, std::string_view text, std::error_code& ec) {
    ec = errc::bad_address;
    if (n.is_unix()) {
        const auto a = parse_unix(text);
        if (a) ec.clear();
        return a;
    }
    const host_and_port parts = split(text);
    const auto port = parse_port(parts.port);
    if (parts.fault != nullptr || !port) return std::nullopt;
    if (parts.host.empty()) return parse_ip(n.family == AF_INET ? "0.0.0.0" : "::", *port, AF_UNSPEC, ec);
    const auto a = parse_ip(parts.host, *port, n.family, ec);
    if (!a && !ec) ec = errc::bad_address;  // a name, for instance
    return a;
}

namespace {

std::string why_bad(std::string_view network_name, int type, std::string_view text) {
    const network* n = find_network(network_name);
    if (n == nullptr) return "there is no such network: tcp, tcp4, tcp6, unix, udp, udp4, udp6, unixgram";
    const bool may_have_zeros = n->is_unix() && text.starts_with('@');
    if (!may_have_zeros && text.find('\0') != text.npos) return "it contains a zero byte";
    if (n->type != type) {
        return type == SOCK_STREAM ? "this network is for datagrams: dial_packet(), listen_packet()"
                                   : "this network is for streams: dial(), listen()";
    }
    if (n->is_unix()) return "a path is wanted, shorter than 108 bytes, or '@' and a name";
    const host_and_port parts = split(text);
    if (parts.fault != nullptr) return std::string(parts.fault) + "; as in host:port, [::1]:port";
    if (!parse_port(parts.port)) {
        return "the port \"" + std::string(parts.port) + "\" is neither a number up to 65535 nor the name of a service";
    }
    return "an IP address and a port are wanted";
}

bool names_a_host(std::string_view network_name, std::string_view text) {
    const network* n = find_network(network_name);
    const std::string_view host = split(text).host;
    std::error_code ec;
    return n != nullptr && !n->is_unix() && !host.empty() && !parse_ip(host, 0, AF_UNSPEC, ec) && !ec;
}

}  // namespace

std::string advice_for(std::error_code ec, std::string_view network_name, int type, std::string_view text) {
    if (ec == errc::bad_address) return why_bad(network_name, type, text);
    if (ec == std::errc::resource_unavailable_try_again && names_a_host(network_name, text))
        return "the name server has failed, or does not answer";
    return {};
}

address address::parse(std::string_view network_name, std::string_view text, std::error_code& ec) {
    const network* n = find_network(network_name);
    if (n == nullptr) {
        ec = errc::bad_address;
        return {};
    }
    const auto a = parse_numeric(*n, text, ec);
    return a ? *a : address();
}

address address::parse(std::string_view network_name, std::string_view text) {
    const network* n = find_network(network_name);
    std::error_code ec;
    const address a = parse(network_name, text, ec);
    if (ec == errc::bad_address)
        throw_net_error("parse", network_name, text, ec, why_bad(network_name, n != nullptr ? n->type : 0, text));
    if (ec) throw_net_error("parse", network_name, text, ec, "the zone after '%' is no interface of this machine");
    return a;
}

address address::from_native(const void* sockaddr, unsigned size) noexcept {
    address a;
    if (size == 0 || size > a.storage_.size()) return a;
    std::memcpy(a.storage_.data(), sockaddr, size);
    a.size_ = size;
    // It gives a path without room for the zero at its end one byte more than it takes.
    if (a.is_unix() && size > sizeof(sockaddr_un)) a.size_ = sizeof(sockaddr_un);
    return a;
}

bool address::is_ipv4() const noexcept { return family_of(*this) == AF_INET; }
bool address::is_ipv6() const noexcept { return family_of(*this) == AF_INET6; }
bool address::is_unix() const noexcept { return family_of(*this) == AF_UNIX; }

bool address::is_loopback() const noexcept {
    if (is_ipv4()) return (ntohl(as<sockaddr_in>(*this).sin_addr.s_addr) >> 24) == 127;
    const auto v6 = as<sockaddr_in6>(*this);
    return is_ipv6() && IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

std::uint16_t address::port() const noexcept {
    if (is_ipv4()) return ntohs(as<sockaddr_in>(*this).sin_port);
    return is_ipv6() ? ntohs(as<sockaddr_in6>(*this).sin6_port) : std::uint16_t{0};
}

std::string address::host() const {
    char text[INET6_ADDRSTRLEN + IF_NAMESIZE + 2] = "";
    if (is_ipv4()) {
        const auto v4 = as<sockaddr_in>(*this);
        inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
        return text;
    }
    if (is_unix()) return unix_path(*this);
    if (!is_ipv6()) return {};
    const auto v6 = as<sockaddr_in6>(*this);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    std::string host = text;
    if (v6.sin6_scope_id != 0) {
        char name[IF_NAMESIZE];
        host += '%';
        host +=
            if_indextoname(v6.sin6_scope_id, name) != nullptr ? std::string(name) : std::to_string(v6.sin6_scope_id);
    }
    return host;
}

std::string address::to_string() const {
    if (is_ipv4() || is_ipv6()) return join_host_port(host(), std::to_string(port()));
    return host();
}

bool operator==(const address& a, const address& b) noexcept {
    return a.size_ == b.size_ && std::memcmp(a.storage_.data(), b.storage_.data(), a.size_) == 0;
}

std::strong_ordering operator<=>(const address& a, const address& b) noexcept {
    if (a.size_ != b.size_) return a.size_ <=> b.size_;
    return std::memcmp(a.storage_.data(), b.storage_.data(), a.size_) <=> 0;
}

std::ostream& operator<<(std::ostream& out, const address& a) { return out << a.to_string(); }

std::pair<std::string, std::string> split_host_port(std::string_view text) {
    const host_and_port parts = split(text);
    if (parts.fault != nullptr) throw_net_error("read address", "", text, errc::bad_address, parts.fault);
    return {std::string(parts.host), std::string(parts.port)};
}

std::pair<std::string, std::string> split_host_port(std::string_view text, std::error_code& ec) {
    ec.clear();
    const host_and_port parts = split(text);
    if (parts.fault != nullptr) ec = errc::bad_address;
    return {std::string(parts.host), std::string(parts.port)};
}

std::string join_host_port(std::string_view host, std::string_view port) {
    const bool brackets = host.find(':') != host.npos;
    return (brackets ? "[" : "") + std::string(host) + (brackets ? "]:" : ":") + std::string(port);
}

}  // namespace dunlin::net
