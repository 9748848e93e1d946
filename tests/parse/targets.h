// targets.h - what reads text that others have written, as functions of some bytes: for the corpus test, and for
// libFuzzer (libfuzzer.cpp).
//
// A target returns if the bytes are read or refused as they should be, and aborts if not. New ones: a name in
// `targets`, and a folder in corpus/ with what it should begin with. What a fuzzer finds goes there too.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unistd.h>

#include <dunlin/net.hpp>

#include "../debug/http.h"
#include "../nats/text.h"
#include "platform/cpu_count.h"
#include "platform/environment.h"
#include "platform/memory.h"

namespace parse {

inline void expect(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "does not hold: %s\n", what);
    std::abort();
}

// What is an address is the same when it is printed and read again, and its parts can be put together.
inline void address(std::string_view text) {
    namespace net = dunlin::net;
    std::error_code ec;
    for (const char* network : {"tcp", "tcp4", "udp6", "unix"}) {
        const net::address a = net::address::parse(network, text, ec);
        if (ec) {
            expect(a == net::address(), "an error gives no address");
            continue;
        }
        expect(net::address::parse(network, a.to_string()) == a, "an address can be printed and read");
        expect(net::address::from_native(a.native(), a.native_size()) == a, "and taken from the system");
    }
    const auto [host, port] = net::split_host_port(text, ec);
    if (ec || host.find_first_of("[]") != host.npos) return;
    const auto again = net::split_host_port(net::join_host_port(host, port), ec);
    expect(!ec && again.first == host && again.second == port, "what is split can be joined");
}

// The values of the environment's variables.
inline void settings(std::string_view text) {
    const auto number = dunlin::platform::parse_number(text);
    if (number) expect(dunlin::platform::parse_size(text) == number, "a number is a size");
    static_cast<void>(dunlin::platform::parse_size(text));
    static_cast<void>(dunlin::platform::parse_guard_kind(text));
}

// /proc/self/cgroup, /proc/self/mountinfo and cpu.max, with a line "--" between them.
inline void quota(std::string_view text) {
    static const std::filesystem::path root = [] {
        const auto made = std::filesystem::temp_directory_path() / ("dunlin-parse-" + std::to_string(getpid()));
        std::filesystem::create_directories(made / "proc/self");
        std::filesystem::create_directories(made / "cg/group");
        std::atexit([] {
            std::filesystem::remove_all(
                std::filesystem::temp_directory_path() / ("dunlin-parse-" + std::to_string(getpid())));
        });
        return made;
    }();
    const char* const names[] = {"proc/self/cgroup", "proc/self/mountinfo", "cg/group/cpu.max"};
    for (const char* name : names) {
        const std::size_t end = text.find("--\n");
        std::ofstream(root / name, std::ios::binary) << text.substr(0, end);
        text = end != text.npos ? text.substr(end + 3) : std::string_view();
    }
    static_cast<void>(dunlin::platform::cpu_quota(root.c_str()).cpus());
}

// A request to the page of a program.
inline void http(std::string_view text) {
    namespace debug = dunlin::debug;
    debug::request request;
    const debug::reply refused = debug::parse_request(text, request);
    const std::string answer = debug::to_bytes(refused, false);
    expect(answer.starts_with("HTTP/1.1 " + std::to_string(refused.status) + ' '), "an answer has a status");
    expect(answer.find("Internal Server Error") == answer.npos, "what is wrong with a request is not our fault");
    expect(answer.ends_with("\r\n\r\n" + refused.body), "an answer has a head and a body");
    if (refused.status != 200) return;
    expect(request.path.starts_with('/'), "what is asked for begins with /");
    for (const char* name : {"", "seconds", "token"}) {
        if (request.query.find(name) == request.query.npos) expect(!request.parameter(name), "a parameter is in the query");
    }
}

// What a server of NATS sends: JSON, and the subjects of what it delivers.
inline void json(std::string_view text) {
    namespace nats = dunlin::nats::detail;
    const auto look = [text](std::initializer_list<std::string_view> path) {
        const auto found = nats::json_text(text, path);
        if (found) expect(found->size() <= 3 * text.size(), "what is found is a part");
        static_cast<void>(nats::json_number(text, path));
    };
    look({});
    look({"a"});
    look({"error", "code"});
    look({"a", "b", "c"});
    const std::string object = "{\"before\":[1,{\"x\":null}],\"key\":" + nats::json_quoted(text) + "}";
    expect(nats::json_text(object, {"key"}) == text, "a text that is quoted can be read");
    if (const auto subject = nats::read_ack_subject(text)) {
        expect(text.find(subject->consumer) != text.npos && text.find(subject->stored) != text.npos, "parts are parts");
    }
    if (const auto n = nats::read_base36(text)) {
        expect(nats::read_base36(nats::base36(*n)) == n, "a number can be printed and read");
    }
}

struct target {
    const char* name;
    void (*run)(std::string_view);
};
inline constexpr target targets[] = {
    {"address", address}, {"settings", settings}, {"quota", quota}, {"http", http}, {"json", json}};

}  // namespace parse
