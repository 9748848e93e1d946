// pipe.h - making pipes, and taking over their ends.
#pragma once

#include <dunlin/io.hpp>

#include "poll/descriptor.h"

namespace dunlin::inline v0_1::fs {

enum class pipe_side : bool { read, write };

// 0, or errno. ends[0] is read from.
int make_pipe(int (&ends)[2], int flags) noexcept;

using netpoll::close_number;

// The end of a pipe that make_pipe() has made, with O_NONBLOCK. An error: it is closed.
byte_stream own_pipe_end(int fd, pipe_side side, int& error) noexcept;

}  // namespace dunlin::fs
