// pipe.cpp - pipes.
//
// A read from a pipe that returns less than there was room for has emptied it (poll/fd_record.h, "Short read"), and
// the end of the last writer is an edge of its own. That does not hold in packet mode (O_DIRECT), where each read ends
// at a packet, and the mode is the writer's choice: so only reads from a pipe whose two ends are this library's learn
// from it.
#include "fs/pipe.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include <dunlin/fs.hpp>

#include "io/error.h"
#include "io/operation.h"
#include "io/system.h"
#include "platform/syscall.h"

namespace dunlin::inline v0_1 {

namespace fs {

// Calls libc's function, from which sanitizers learn that the two ends belong together. Not inlined: it reads errno.
[[gnu::noinline]] int make_pipe(int (&ends)[2], int flags) noexcept { return pipe2(ends, flags) == 0 ? 0 : errno; }

byte_stream own_pipe_end(int fd, pipe_writer writer, int& error) noexcept {
    netpoll::fd_record* d = netpoll::fd_record::open(fd, error);
    if (d == nullptr) {
        close_number(fd);
        return {};
    }
    d->kind = static_cast<std::uint8_t>(io::kind::pipe);
    if (writer == pipe_writer::ours) d->set_short_reads_drain();
    return io_access::make<byte_stream>(d);
}

}  // namespace fs

fs::pipe::pipe(std::error_code& ec) {
    int ends[2];
    int error = fs::make_pipe(ends, O_CLOEXEC | O_NONBLOCK);
    if (error == 0) {
        int second = 0;
        read_end = fs::own_pipe_end(ends[0], fs::pipe_writer::ours, error);
        write_end = fs::own_pipe_end(ends[1], fs::pipe_writer::ours, second);
        if (error == 0) error = second;
    }
    ec = io::system_error_code(error);
    if (!ec) return;
    read_end.close();
    write_end.close();
}

fs::pipe::pipe() {
    std::error_code ec;
    *this = pipe(ec);
    if (ec) throw io_error(ec, "make a pipe: " + detail::cause_text(ec));
}

}  // namespace dunlin
