// dial.h - addresses, and one attempt to connect.
//
// Rule    Each natsConnection has one life: libnats may not reconnect it (reconnect.cpp makes another one), because its
//         parser keeps the place within a message at which the old connection broke.
#pragma once

#include <string>
#include <vector>

#include <nats/nats.h>

#include <dunlin/nats/cluster.hpp>

#include "failure.h"
#include "loop.h"

namespace dunlin::inline v0_1::nats::detail {

// "a, b,c" as a list.
std::vector<std::string> split_addresses(const std::string& text);
// Without user and password.
std::string printable(const std::string& url);
// The same for a list.
std::string printable(const std::vector<std::string>& urls);
bool is_encrypted(const std::vector<std::string>& urls, const connect_options& o);
// Those that `nc` was told of by its server and that are not among `known` yet; with the scheme, user and password of
// the first of them.
std::vector<std::string> discovered(natsConnection* nc, const std::vector<std::string>& known);
// The one among `urls` with the host and port of `url`; their number if there is none.
std::size_t index_of(const std::vector<std::string>& urls, const std::string& url);
// What each address says to a client that dials it: libnats tells one error for all of them.
std::string said_by_each(const std::vector<std::string>& urls, std::chrono::milliseconds timeout, const context& ctx);

// What libnats tells of a connection, on a thread of its own. `closed` is told last, and owns the closure.
struct listeners {
    natsConnectionHandler closed;
    natsErrHandler error;
    void* closure;  // the caller's again if the attempt fails
};

struct attempt {
    natsConnection* made = nullptr;
    failure fault;
};

// In undisturbed(). Blocks the thread for connect_options::timeout at most, for each of `urls`, in an order that
// libnats draws. The socket is driven by `loop`, to which no other one may be attached.
attempt dial(const std::vector<std::string>& urls, const connect_options& o, event_loop& loop, const listeners& tell);

}  // namespace dunlin::nats::detail
