// dump_json.h - a dump as JSON, for programs that read it. The form is described at dump_format::json in
// <dunlin/runtime.hpp>.
#pragma once

#include <cstddef>
#include <string_view>

#include "platform/text.h"

namespace dunlin::inline v0_1::observe {

class page;

// Groups beyond `at_most` are only counted. The world must be stopped.
void write_json(page& to, std::size_t at_most) noexcept;

// The length of the UTF-8 sequence that `text` begins with; 0: there is none.
std::size_t utf8_sequence(std::string_view text) noexcept;

// Writes the quotes, too. Bytes that are not UTF-8 become U+FFFD.
void write_json_string(platform::text_writer& out, std::string_view text) noexcept;

}  // namespace dunlin::observe
