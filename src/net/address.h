// address.h - reads the addresses that need no look-up.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <dunlin/net.hpp>

namespace dunlin::inline v0_1::net {

struct network;  // socket.h

// Reads an IP address without a port; AF_UNSPEC accepts both families. None without `ec`: it may be a name; none with
// std::errc::no_such_device: its zone is no interface of this machine.
std::optional<address> parse_ip(std::string_view host, std::uint16_t port, int family, std::error_code& ec) noexcept;
// The same with a port, or a path. None: `ec` is set.
std::optional<address> parse_numeric(const network& n, std::string_view text, std::error_code& ec);

// What a message adds to the text of `ec`, which a call for networks of this type (SOCK_STREAM, SOCK_DGRAM) has found
// for these arguments: what is wrong with them, or what the code does not say. May be empty.
std::string advice_for(std::error_code ec, std::string_view network_name, int type, std::string_view text);

}  // namespace dunlin::net
