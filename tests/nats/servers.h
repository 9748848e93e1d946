// servers.h - what the tests of dunlin::nats share: servers of their own (tools/cluster/servers.h), and what is asked
// of them.
#pragma once

#include <cstdio>
#include <string>

#include <dunlin/nats.hpp>

#include "../../tools/cluster/servers.h"
#include "support/build.h"
#include "support/runtime_test.h"

namespace support {

// A job with a codec.
struct number {
    int value;
};

// One whose codec throws what is no exception.
struct moody {};

// One whose codec ends the goroutine in which it reads "exit".
struct leaving {};

}  // namespace support

template <>
struct dunlin::nats::codec<support::number> {
    static std::string encode(const support::number& n) { return std::to_string(n.value); }
    static support::number decode(std::string_view bytes) { return {std::stoi(std::string(bytes))}; }
};

template <>
struct dunlin::nats::codec<support::moody> {
    static std::string encode(const support::moody&) { return ""; }
    static support::moody decode(std::string_view) { throw 7; }
};

template <>
struct dunlin::nats::codec<support::leaving> {
    static std::string encode(const support::leaving&) { return "stay"; }
    static support::leaving decode(std::string_view bytes) {
        if (bytes == "exit") dunlin::exit_goroutine();
        return {};
    }
};

namespace support {

using fleet::free_port;
using fleet::nats_server;
using fleet::nats_servers;

// The error of f(), which is printed; none: 0.
dunlin::nats::errc code_of(const auto& f) {
    try {
        f();
    } catch (const dunlin::nats::error& e) {
        std::printf("%s\n", e.what());
        return static_cast<dunlin::nats::errc>(e.code().value());
    }
    return {};
}

class nats_test : public runtime_test {
protected:
    void SetUp() override {
        if (fleet::nats_server_path().empty()) {
            // GoogleTest's own line is not printed when it is told to be brief
            std::puts("nats-server is not installed: left out");
            GTEST_SKIP();
        }
        allow(std::chrono::seconds(120));
    }
};

}  // namespace support
