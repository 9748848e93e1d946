// resolve.h - the addresses that a text stands for, by a look-up if it names a host.
#pragma once

#include <string_view>
#include <system_error>
#include <vector>

#include "net/socket.h"

namespace dunlin::inline v0_1::net {

// The addresses of "host:port" for a network. `passive`: addresses to listen at. Never empty without `ec`.
std::vector<address> addresses_of(
    const network& n, std::string_view text, bool passive, const wait_limit* limit, std::error_code& ec);

}  // namespace dunlin::net
