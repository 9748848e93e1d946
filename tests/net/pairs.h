// pairs.h - connected streams and what else the tests of descriptors and of the network share.
#pragma once

#include <atomic>
#include <cerrno>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <dunlin/dunlin.hpp>
#include <dunlin/net.hpp>
#include <gtest/gtest.h>

#include "poll/fd_record.h"

namespace support {

namespace net = dunlin::net;

// A name that no other test, and no other process, uses. '@': in no directory.
inline std::string abstract_name() {
    static std::atomic<int> count{0};
    return "@dunlin-test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
}
inline std::string socket_path() { return "/tmp/" + abstract_name().substr(1); }

inline std::string any_address(std::string_view network) {
    if (network == "unix" || network == "unixgram") return abstract_name();
    return network == "tcp6" || network == "udp6" ? "[::1]:0" : "127.0.0.1:0";
}

struct ends {
    net::stream client, server;
};

// Both ends of a connection. Works for one goroutine or thread alone: the backlog takes the connection before it is
// accepted.
inline ends connect(const net::listener& l, std::string_view network) {
    ends e;
    e.client = net::dial(network, l.local_address());
    e.server = const_cast<net::listener&>(l).accept();
    return e;
}
inline ends connected(std::string_view network = "tcp") {
    return connect(net::listen(network, any_address(network)), network);
}

// What a call throws, as a std::error_code; none if it throws nothing.
template <class F>
std::error_code code_of(F&& f) {
    try {
        f();
    } catch (const std::system_error& e) {
        return e.code();
    }
    return {};
}

// And what it says.
template <class F>
std::string text_of(F&& f) {
    try {
        f();
    } catch (const std::exception& e) {
        return e.what();
    }
    return "nothing was thrown";
}

inline const std::error_code is_closed = dunlin::errc::closed;
inline const std::error_code has_timed_out = std::make_error_code(std::errc::timed_out);

inline bool has_ipv6() {
    std::error_code ec;
    return net::listen("tcp6", "[::1]:0", ec).is_open();
}

inline std::int64_t waiters() { return dunlin::netpoll::fd_record::waiter_count(); }

// Writes to an end of a stream_pair() until it takes no more. How much.
inline std::size_t fill(net::stream& s) {
    const std::string block(1 << 16, 'f');
    std::size_t all = 0;
    for (const std::size_t size : {block.size(), std::size_t{1}}) {
        for (ssize_t n; (n = send(s.native_handle(), block.data(), size, MSG_DONTWAIT | MSG_NOSIGNAL)) > 0;)
            all += static_cast<std::size_t>(n);
    }
    return all;
}

}  // namespace support
