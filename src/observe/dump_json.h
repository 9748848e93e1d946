// dump_json.h - the same as a dump's text, for programs that read it. Its form is told at dump_format::json in
// <dunlin/runtime.hpp>.
#pragma once

#include <cstddef>
#include <string_view>

#include "platform/text.h"

namespace dunlin::inline v0_1::observe {

class page;

// Of more than `at_most` groups only how many. The world must be stopped.
void write_json(page& to, std::size_t at_most) noexcept;

// The length of the UTF-8 sequence that `text` begins with; 0: there is none.
std::size_t utf8_sequence(std::string_view text) noexcept;

// With its quotes. What is not UTF-8 becomes U+FFFD.
void write_json_string(platform::text_writer& out, std::string_view text) noexcept;

}  // namespace dunlin::observe
