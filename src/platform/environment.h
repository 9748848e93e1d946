// environment.h - read settings from the environment. A value that cannot be read is one clear line on stderr and the
// default, never silence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace dunlin::inline v0_1::platform {

// A whole number, in decimal, nothing around it.
std::optional<std::uint64_t> parse_number(std::string_view text) noexcept;

// A size: a number and optionally K, M or G (or KiB, MiB, GiB): "64K", "1M", "262144".
std::optional<std::uint64_t> parse_size(std::string_view text) noexcept;

// The variable as a number in [low, high]; nothing if it is not set, or if it cannot be read (after a complaint).
std::optional<std::uint64_t> environment_number(const char* name, std::uint64_t low, std::uint64_t high) noexcept;
std::optional<std::uint64_t> environment_size(const char* name, std::uint64_t low, std::uint64_t high) noexcept;
// The variable's text, empty if it is not set.
std::string_view environment_text(const char* name) noexcept;

// "dunlin: NAME=value <what>; going on with the default"
void complain(const char* name, std::string_view value, std::string_view what) noexcept;

}  // namespace dunlin::platform
