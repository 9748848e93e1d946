// pipe.h - making pipes, and taking over their ends.
#pragma once

#include <dunlin/io.hpp>

#include "poll/fd_record.h"

namespace dunlin::inline v0_1::fs {

enum class pipe_side : bool { read, write };
enum class pipe_writer : bool { ours, of_another_process };

// Returns 0, or errno. ends[0] is the read end.
int make_pipe(int (&ends)[2], int flags) noexcept;

using netpoll::close_number;

// Takes over an end of a pipe that make_pipe() has made, with O_NONBLOCK. After an error the end is closed.
byte_stream own_pipe_end(int fd, pipe_writer writer, int& error) noexcept;

}  // namespace dunlin::fs
