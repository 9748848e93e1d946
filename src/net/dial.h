// dial.h - connects a socket to one address.
#pragma once

#include <source_location>
#include <system_error>

#include <dunlin/detail/atomic.hpp>

#include "net/socket.h"

namespace dunlin::inline v0_1::net {

// For tests: called when a connection has been made, before its caller knows.
extern platform::atomic<void (*)() noexcept> when_connected;

// Connects a socket to one address. Null: `ec` is set.
io_descriptor* connect_to(const network& n, const address& to, const wait_limit* limit, const stream_options& options,
    std::error_code& ec, const std::source_location& where);

}  // namespace dunlin::net
