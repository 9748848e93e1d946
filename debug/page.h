// page.h - the page at /: one text, which asks for /dump.json, /metrics and /trace every two seconds and needs nothing
// else.
#pragma once

#include <string_view>

namespace dunlin::inline v0_1::debug {

extern const std::string_view page_html;

// What the page may do, and no more: a name or a label of a goroutine cannot make it do something else.
inline constexpr std::string_view page_policy =
    "Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; frame-ancestors 'none'\r\nReferrer-Policy: no-referrer\r\n";

}  // namespace dunlin::debug
