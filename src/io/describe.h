// describe.h - the words of errors.
#pragma once

#include <string>
#include <string_view>
#include <system_error>

#include <dunlin/io.hpp>

namespace dunlin::inline v0_1::detail {

// What went wrong, as it stands at the end of a line.
std::string cause_text(std::error_code ec);

// How messages call what has no address; a file's path, for instance. Before others know it. Without memory it stays
// nameless.
void give_name(io_descriptor* d, std::string_view text) noexcept;

// The network's part: how a socket is called.
void set_socket_describer(std::string (*f)(io_descriptor*)) noexcept;

}  // namespace dunlin::detail
