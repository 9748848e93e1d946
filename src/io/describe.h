// describe.h - the words of errors.
#pragma once

#include <string>
#include <string_view>
#include <system_error>

#include <dunlin/io.hpp>

namespace dunlin::inline v0_1::detail {

// The cause of an error, as it stands at the end of a message.
std::string cause_text(std::error_code ec);

// Gives a descriptor without an address the name that messages show: a file's path, for instance. Before other threads
// know it. Without memory it has no name.
void give_name(io_descriptor* d, std::string_view text) noexcept;

// The network's part: how a socket is called.
void set_socket_describer(std::string (*f)(io_descriptor*)) noexcept;

}  // namespace dunlin::detail
