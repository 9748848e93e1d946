// dial.h - addresses, and one attempt to connect.
//
// Rule    Each natsConnection has one life: libnats may not reconnect it (reconnect.cpp makes another one), because its
//         parser keeps the position within a message at which the old connection broke.
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
// The addresses that the server has told `nc` and that are not in `known` yet; with the scheme, user and password of
// the first one in `known`.
std::vector<std::string> discovered(natsConnection* nc, const std::vector<std::string>& known);
// The index in `urls` of the address with the host and port of `url`; urls.size() if there is none.
std::size_t index_of(const std::vector<std::string>& urls, const std::string& url);
// Dials each address and returns the results, because libnats reports one error for all of them.
std::string said_by_each(const std::vector<std::string>& urls, std::chrono::milliseconds timeout, const context& ctx);

// libnats' callbacks for a connection, on a thread of its own. `closed` is called last, and owns the closure.
struct listeners {
    natsConnectionHandler closed;
    natsErrHandler error;
    void* closure;  // if the attempt fails, the caller owns it again
};

struct attempt {
    natsConnection* made = nullptr;
    failure fault;
};

// In undisturbed(). Blocks the thread for connect_options::timeout at most for each of `urls`, which libnats tries in
// random order. `loop` drives the socket; no other one may be attached to it.
attempt dial(const std::vector<std::string>& urls, const connect_options& o, event_loop& loop, const listeners& tell);

}  // namespace dunlin::nats::detail
