// http.h - as much of HTTP/1.1 as a page for one's own program needs: one GET or HEAD for each connection.
//
// Limits     A request's first lines have at most 8 KiB, its address 2 KiB. Bodies are not read. Input that is no
//            request is answered with a status of its own, never with silence, except when the client has gone.
// Tests      tests/debug/server_test.cpp
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dunlin::inline v0_1::debug {

inline constexpr std::size_t longest_head = 8192, longest_target = 2048;

struct request {
    bool head_only = false;  // HEAD
    std::string path;        // decoded, without the parameters
    std::string query;       // after the '?', not decoded
    std::string host;        // without the port; empty: none was named
    std::string bearer;      // of Authorization

    // The decoded value; none: the parameter is not there.
    std::optional<std::string> parameter(std::string_view name) const;
};

struct reply {
    int status = 200;
    std::string body = {};
    std::string type = "text/plain; charset=utf-8";
    std::string more_headers = {};  // each with its line end
};

// Tells a client of its mistake, or of ours: the status, and a sentence.
reply failure(int status, std::string_view sentence);

// `text` is everything up to the empty line. A status other than 200: what is wrong with it.
reply parse_request(std::string_view text, request& into);

// The bytes of a reply.
std::string to_bytes(const reply& r, bool head_only);

// Takes equally long for all texts of the same length.
bool same_secret(std::string_view a, std::string_view b) noexcept;

}  // namespace dunlin::debug
