// describe.h - the words of errors.
#pragma once

#include <string>
#include <system_error>

#include <dunlin/io.hpp>

namespace dunlin::detail {

// What went wrong, as it stands at the end of a line.
std::string cause_text(std::error_code ec);

// The network's part: how a socket is called.
void set_socket_describer(std::string (*f)(io_descriptor*)) noexcept;

}  // namespace dunlin::detail
