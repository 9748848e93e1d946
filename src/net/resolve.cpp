// resolve.cpp - "host:port" to addresses.
//
// Known here  Numbers, a missing host, and "localhost" (RFC 6761: always this machine) need no resolver, and resolve
//             whatever name servers do. A port's name is asked for as a host's is, since the system's files may be
//             slow, or it may ask elsewhere (NIS, LDAP).
// Not asked   A host whose last label is a number, "127.1" or "0x7f000001": no public name ends so, libc would take it
//             for an address in one of its old forms, and a filter of addresses would not have seen one.
// Names       lookup.h.
#include "net/resolve.h"

#include <algorithm>
#include <charconv>
#include <netdb.h>
#include <sys/socket.h>
#include <tuple>

#include <dunlin/blocking.hpp>
#include <dunlin/net.hpp>

#include "io/system.h"
#include "net/address.h"
#include "net/lookup.h"
#include "net/socket.h"
#include "poll/fd_record.h"

namespace dunlin::inline v0_1::net {

namespace {

bool is_decimal(std::string_view s) noexcept {
    return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// True for "::1", false for "fe80::1:80", whose end may be meant as a port.
bool is_bare_ipv6(std::string_view text) noexcept {
    std::error_code ec;
    const std::size_t colon = text.rfind(':');
    // a bad zone: reported when it is resolved
    if (!parse_ip(text, 0, AF_INET6, ec)) return ec == std::errc::no_such_device;
    return !is_decimal(text.substr(colon + 1)) || !parse_ip(text.substr(0, colon), 0, AF_INET6, ec);
}

// Adds an empty port, since a host without a port is allowed here.
std::string with_port(const network& n, std::string_view text) {
    std::string whole(text);
    if (n.is_unix() || text.find('\0') != text.npos) return whole;
    if (text.find(':') == text.npos) return whole + ':';
    if (text[0] == '[') return text.back() == ']' ? whole + ':' : whole;
    return is_bare_ipv6(text) ? '[' + whole + "]:" : whole;
}

std::vector<address> checked(
    std::vector<address> found, std::string_view network_name, std::string_view text, std::error_code ec) {
    if (!ec) return found;
    const network* n = find_network(network_name);
    std::string why;
    if (n != nullptr && text.empty()) {
        why = "a host is wanted";
    } else {
        why = n == nullptr ? advice_for(ec, network_name, 0, text)
                           : advice_for(ec, network_name, n->type, with_port(*n, text));
    }
    throw_net_error("resolve", "", text, ec, why);
}

std::vector<address> resolve_for(
    std::string_view network_name, std::string_view text, const wait_limit* limit, std::error_code& ec) {
    const network* n = find_network(network_name);
    if (n != nullptr && !text.empty()) return addresses_of(*n, with_port(*n, text), false, limit, ec);
    ec = errc::bad_address;
    return {};
}

// ---- what is known here ---------------------------------------------------------------------------------------------

bool is_localhost(std::string_view host) noexcept {
    constexpr std::string_view name = "localhost";
    if (host.ends_with('.')) host.remove_suffix(1);
    return host.size() == name.size() &&
           std::equal(host.begin(), host.end(), name.begin(), [](char a, char b) { return (a | 0x20) == b; });
}

// Is there a route to ::1?
bool has_ipv6_loopback(const address& loopback) noexcept {
    const int fd = make_socket(AF_INET6, SOCK_DGRAM);
    if (fd < 0) return false;
    const long result = io::system_connect(fd, loopback.native(), loopback.native_size());
    netpoll::close_number(fd);
    return result == 0;
}

// In the resolver's order: addresses that cannot be reached come last.
std::vector<address> this_machine(int family, std::uint16_t port) {
    std::error_code ec;
    const address v4 = *parse_ip("127.0.0.1", port, AF_INET, ec), v6 = *parse_ip("::1", port, AF_INET6, ec);
    if (family == AF_INET) return {v4};
    if (family == AF_INET6) return {v6};
    if (netpoll::simulated_here() != nullptr) return {v4};
    return has_ipv6_loopback(v6) ? std::vector{v6, v4} : std::vector{v4, v6};
}

std::vector<address> any_address(int family, std::uint16_t port) {
    std::error_code ec;
    const address v4 = *parse_ip("0.0.0.0", port, AF_INET, ec);
    if (family == AF_INET) return {v4};
    const address v6 = *parse_ip("::", port, AF_INET6, ec);
    if (family == AF_INET6) return {v6};
    return {v6, v4};  // a machine without IPv6 listens at its other addresses
}

// A socket listens at one address. Of those of a name this is the first of IPv4, as with Go: clients that know no other
// family try it. Datagrams to this machine go there too, since nothing tells their sender that no socket has them.
std::vector<address> in_order(std::vector<address> all, bool by_family) {
    if (by_family) std::stable_partition(all.begin(), all.end(), [](const address& a) { return a.is_ipv4(); });
    return all;
}

// As the URL standard tells them apart (WHATWG URL, "ends in a number").
bool ends_in_a_number(std::string_view host) noexcept {
    if (host.ends_with('.')) host.remove_suffix(1);
    const std::string_view last = host.substr(host.rfind('.') + 1);
    if (is_decimal(last)) return true;
    constexpr std::string_view digits = "0123456789abcdefABCDEF";
    return (last.starts_with("0x") || last.starts_with("0X")) && last.find_first_not_of(digits, 2) == last.npos;
}

// In a simulation only its own hosts have names.
std::vector<address> host_of_simulation(
    netpoll::simulated_sockets& s, int family, std::string_view name, std::uint16_t port, std::error_code& ec) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    v4.sin_addr.s_addr = s.find_host(name);
    if (v4.sin_addr.s_addr != 0 && family != AF_INET6) return {address::from_native(&v4, sizeof v4)};
    ec = errc::host_not_found;
    return {};
}

bool is_any(const address& a) { return a.host() == "::" || a.host() == "0.0.0.0"; }

// Services that programs ask for by name, for a machine without /etc/services (part of Debian's netbase); the list of
// Go's net/port.go. 0: none of these.
std::uint16_t well_known_port(int type, std::string_view name) noexcept {
    struct service {
        std::string_view name;
        std::uint16_t port;
    };
    static constexpr service all[] = {{"domain", 53}, {"ftp", 21}, {"ftps", 990}, {"gopher", 70}, {"http", 80},
        {"https", 443}, {"imap2", 143}, {"imap3", 220}, {"imaps", 993}, {"pop3", 110}, {"pop3s", 995}, {"smtp", 25},
        {"ssh", 22}, {"submissions", 465}, {"telnet", 23}};
    const auto same = [](char a, char b) { return (a | 0x20) == b; };
    for (const service& s : all) {
        if (s.name.size() != name.size() || !std::equal(name.begin(), name.end(), s.name.begin(), same)) continue;
        return type == SOCK_STREAM || s.name == "domain" ? s.port : std::uint16_t{0};
    }
    return 0;
}

// Reads a number, more strictly than libc (which takes a port modulo 65536, and accepts blanks and signs), or a
// service's name, which is looked up as a host's is, in files or elsewhere.
std::uint16_t port_of(const network& n, const std::string& text, const wait_limit* limit, std::error_code& ec) {
    std::uint16_t number = 0;
    ec.clear();
    if (text.empty()) return number;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) return number;
    ec = errc::bad_address;
    const bool is_name = (text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z');
    if (!is_name) return 0;
    const question q{AF_INET, n.type, false, "127.0.0.1", text, AI_NUMERICHOST};
    const bool simulated = netpoll::simulated_here() != nullptr;
    const answer a = simulated ? blocking([&] { return ask_the_system(q); }) : look_up(q, limit);
    ec = a.error;
    if (!ec) return a.addresses.front().port();
    if (limit != nullptr && (ec == std::errc::timed_out || ec == errc::cancelled)) return 0;  // its caller has given up
    const std::uint16_t known = well_known_port(n.type, text);
    if (known != 0) ec.clear();
    return known;
}

}  // namespace

std::vector<address> addresses_of(
    const network& n, std::string_view text, bool passive, const wait_limit* limit, std::error_code& ec) {
    if (n.is_unix()) {
        const auto path = parse_numeric(n, text, ec);
        return path ? std::vector{*path} : std::vector<address>();
    }
    std::string host, port_text;
    std::tie(host, port_text) = split_host_port(text, ec);
    const std::uint16_t port = ec ? std::uint16_t{0} : port_of(n, port_text, limit, ec);
    if (ec) return {};
    if (host.empty())
        return passive ? any_address(n.family, port) : in_order(this_machine(n.family, port), n.type == SOCK_DGRAM);
    if (is_localhost(host)) return in_order(this_machine(n.family, port), passive || n.type == SOCK_DGRAM);
    const auto number = parse_ip(host, port, AF_UNSPEC, ec);
    if (ec) return {};
    if (number) {
        const int family = number->is_ipv4() ? AF_INET : AF_INET6;
        if (n.family != AF_UNSPEC && n.family != family) {
            ec = errc::host_not_found;
            return {};
        }
        if (passive || !is_any(*number)) return {*number};
        // What listens at 0.0.0.0 has no address of IPv6; what listens at :: mostly has both.
        return in_order(this_machine(n.family, port), number->is_ipv4());
    }
    if (ends_in_a_number(host)) {
        ec = errc::host_not_found;
        return {};
    }
    if (netpoll::simulated_sockets* s = netpoll::simulated_here())
        return host_of_simulation(*s, n.family, host, port, ec);
    answer a = look_up({n.family, n.type, passive, std::move(host), std::to_string(port)}, limit);
    ec = a.error;
    return in_order(std::move(a.addresses), passive);
}

std::vector<address> resolve(std::string_view network_name, std::string_view text, std::error_code& ec) {
    return resolve_for(network_name, text, nullptr, ec);
}

std::vector<address> resolve(
    std::string_view network_name, std::string_view text, const context& ctx, std::error_code& ec) {
    return resolve_for(network_name, text, detail::io_limit(ctx).get(), ec);
}

std::vector<address> resolve(std::string_view network_name, std::string_view text) {
    std::error_code ec;
    auto found = resolve(network_name, text, ec);
    return checked(std::move(found), network_name, text, ec);
}

std::vector<address> resolve(std::string_view network_name, std::string_view text, const context& ctx) {
    std::error_code ec;
    auto found = resolve(network_name, text, ctx, ec);
    return checked(std::move(found), network_name, text, ec);
}

std::vector<address> resolve(std::string_view text) { return resolve("tcp", text); }
std::vector<address> resolve(std::string_view text, const context& ctx) { return resolve("tcp", text, ctx); }
std::vector<address> resolve(std::string_view text, std::error_code& ec) { return resolve("tcp", text, ec); }
std::vector<address> resolve(std::string_view text, const context& ctx, std::error_code& ec) {
    return resolve("tcp", text, ctx, ec);
}

}  // namespace dunlin::net
