// error.h - the texts of errors.
#pragma once

#include <string>
#include <string_view>
#include <system_error>

#include <dunlin/io.hpp>

namespace dunlin::inline v0_1::detail {

// The cause of an error, in the form for the end of a message.
std::string cause_text(std::error_code ec);

// A path or an address for a message: what() would end at a zero byte, so that is written as \0.
std::string with_zeros_shown(std::string_view text);

// What an error of adopt() leaves open; empty if nothing.
const char* why_not_adopted(std::error_code ec) noexcept;

// Gives a descriptor without an address the name that messages show: a file's path, for instance. Called before other
// threads know the descriptor. If memory is short it stays without a name.
void give_name(io_descriptor* d, std::string_view text) noexcept;

// Sets the function with which net/ describes a socket.
void set_socket_describer(std::string (*f)(io_descriptor*)) noexcept;

}  // namespace dunlin::detail
