// cached_read.h - reads a file from the page cache, without ever waiting for the disk.
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cerrno>
#include <cstddef>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "io/system.h"
#include "platform/syscall.h"

#ifndef RWF_NOWAIT
#define RWF_NOWAIT 8
#endif

namespace dunlin::inline v0_1::io {

// the kernel has preadv2 and this flag. A hint: several threads may find out that it has not
inline platform::atomic<bool> has_nowait{true};

inline constexpr long at_position = -1;  // an offset: the file's position, which moves on

// Is this the end? Linux 5.10 says so of some places in the middle of a file on a disk (preadv2(2), BUGS).
inline bool is_at_end(int fd, long offset) noexcept {
    struct stat about;
    if (::fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) return true;
    if (offset == at_position) offset = platform::raw_syscall(SYS_lseek, fd, 0, SEEK_CUR);
    return offset >= about.st_size;
}

// -EAGAIN: the read would have to wait for the disk, or the kernel cannot tell.
inline long read_from_cache(int fd, void* data, std::size_t size, long offset) noexcept {
    if (!has_nowait.load(std::memory_order_relaxed)) return -EAGAIN;
    const iovec part{data, at_most(size)};
    const long n = platform::raw_syscall(SYS_preadv2, fd, platform::syscall_arg(&part), 1, offset, 0, RWF_NOWAIT);
    if (n == -ENOSYS) has_nowait.store(false, std::memory_order_relaxed);
    if (n == 0 && size != 0 && !is_at_end(fd, offset)) return -EAGAIN;
    return n >= 0 ? n : -EAGAIN;
}

}  // namespace dunlin::io
