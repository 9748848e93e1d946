// file.cpp - files by name, and the operations that only files have.
//
// Problem    The kernel does not report when a file on a disk is "ready": calls wait in the kernel. So all calls,
//            except for reads from the page cache, run in blocking(), which hands the processor on if they take long.
// Errors     System calls are raw, because after blocking() a goroutine may be on another thread, with another errno.
// open       may wait too: for a disk, a network, or the other end of a FIFO. With O_NONBLOCK a FIFO without a reader
//            could not be opened for writing, and one opened for reading would seem to be at its end; so it is opened
//            without O_NONBLOCK, which is set afterwards (io_adopt).
// Source     Go 1.24 os/file_unix.go, internal/poll/fd_unix.go.
// Tests      tests/fs/file_test.cpp, tests/go/os_pipe_test.cpp
#include <algorithm>
#include <cerrno>
#include <exception>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>

#include <dunlin/blocking.hpp>
#include <dunlin/chan.hpp>
#include <dunlin/context.hpp>
#include <dunlin/detail/caught.hpp>
#include <dunlin/detail/helper.hpp>
#include <dunlin/fs.hpp>

#include "fs/pipe.h"
#include "io/cached_read.h"
#include "io/error.h"
#include "io/operation.h"
#include "io/system.h"

namespace dunlin::inline v0_1::fs {

namespace {

// Makes the system call `call`, which returns -errno, again as long as signals interrupt it.
template <class Call>
long call_blocking(Call call) {
    for (;;) {
        const long n = blocking(call);
        if (n != -EINTR) return n;
    }
}

// ---- open -----------------------------------------------------------------------------------------------------------

// -1: the mode asks neither for reading nor for writing.
int flags_of(open_mode mode) noexcept {
    const bool reads = mode & open_mode::read, writes = (mode & open_mode::write) || (mode & open_mode::append);
    if (!reads && !writes) return -1;
    int flags = O_CLOEXEC | O_NOCTTY | (reads && writes ? O_RDWR : writes ? O_WRONLY : O_RDONLY);
    if (mode & open_mode::create) flags |= O_CREAT;
    if (mode & open_mode::truncate) flags |= O_TRUNC;
    if (mode & open_mode::append) flags |= O_APPEND;
    if (mode & open_mode::exclusive) flags |= O_EXCL;
    if (mode & open_mode::sync) flags |= O_SYNC;
    return flags;
}

constexpr open_mode no_mode{};

// no_mode: the text is no mode.
open_mode parse_mode(std::string_view text) noexcept {
    if (text.empty()) return no_mode;
    const char kind = text.front();
    if (kind != 'r' && kind != 'w' && kind != 'a') return no_mode;
    const auto count = [text](char c) { return std::count(text.begin() + 1, text.end(), c); };
    if (count('+') > 1 || count('x') > 1 || count('b') > 1 ||
        count('+') + count('x') + count('b') != static_cast<long>(text.size()) - 1)
        return no_mode;
    if (kind == 'r' && count('x') != 0) return no_mode;
    open_mode mode =
        kind == 'r' ? open_mode::read
                    : open_mode::write | open_mode::create | (kind == 'w' ? open_mode::truncate : open_mode::append);
    if (count('+') != 0) mode = mode | open_mode::read | open_mode::write;
    if (count('x') != 0) mode = mode | open_mode::exclusive;
    return mode;
}

long system_open(const char* path, int flags, unsigned permissions) noexcept {
    if constexpr (stack::sanitizing || stack::thread_sanitizing) {
        // so ThreadSanitizer learns that the number now belongs to another file
        return io::by_libc([=] { return ::open(path, flags, permissions); });
    } else {
        return platform::raw_syscall(
            SYS_openat, AT_FDCWD, platform::syscall_arg(path), flags, static_cast<long>(permissions));
    }
}

// The kernel would open the path before the zero byte.
bool has_zero(const std::filesystem::path& path) noexcept { return path.native().find('\0') != std::string::npos; }

[[noreturn]] void throw_for_path(
    const char* operation, const std::filesystem::path& path, std::error_code ec, std::size_t transferred = 0) {
    std::string text = std::string(operation) + ' ' + detail::with_zeros_shown(path.native());
    if (ec.category() == error_category() && (ec == errc::cancelled || ec == errc::deadline_exceeded))
        throw context_cancelled(ec, text);
    text += ": " + detail::cause_text(ec);
    if (has_zero(path)) text += ": it contains a zero byte";
    throw io_error(ec, std::move(text), transferred);
}

}  // namespace

file file::open(const std::filesystem::path& path, open_mode mode, std::error_code& ec, unsigned permissions) {
    ec.clear();
    const int flags = flags_of(mode);
    if (flags < 0 || has_zero(path)) {
        ec = io::system_error_code(EINVAL);
        return {};
    }
    const char* name = path.c_str();
    const long fd = call_blocking([=] { return system_open(name, flags, permissions); });
    if (fd < 0) {
        ec = io::system_error_code(-fd);
        return {};
    }
    file f = adopt(static_cast<int>(fd), ec);
    if (ec) close_number(static_cast<int>(fd));
    detail::give_name(io_access::of(f), path.native());
    return f;
}

// Opens in a goroutine of its own. When the context is done the caller leaves that goroutine behind; a file that it
// still opens is closed.
file file::open(
    const std::filesystem::path& path, open_mode mode, const context& ctx, std::error_code& ec, unsigned permissions) {
    struct outcome {
        file opened;
        std::error_code error;
        std::exception_ptr thrown;  // for the caller: the goroutine has none that would catch it
    };
    const detail::wait_limit limit{detail::wait_limit::never, detail::done_channel(ctx)};
    if (limit.done == nullptr) return open(path, mode, ec, permissions);
    ec = ctx.err();
    if (ec) return {};
    const chan<std::unique_ptr<outcome>> c(1);
    // The outcome is made here, so that there is one whatever memory fails for.
    detail::go_for(detail::this_caller(), [=, o = std::make_unique<outcome>()]() mutable {
        try {
            o->opened = open(path, mode, o->error, permissions);
        } catch (...) {
            o->thrown = detail::caught();
        }
        chan<std::unique_ptr<outcome>>(c).try_send(std::move(o));
    });
    detail::element_slot<std::unique_ptr<outcome>> slot;
    if (detail::channel_receive(detail::handle_access::core(c), &slot.value, &limit, std::source_location::current()) !=
        detail::wait_outcome::ok) {
        ec = detail::error_of_node(limit.done);
        return {};
    }
    const std::unique_ptr<outcome> o = *detail::take(slot);
    if (o->thrown != nullptr) std::rethrow_exception(o->thrown);
    ec = o->error;
    return std::move(o->opened);
}

namespace {

file opened(file f, const std::filesystem::path& path, std::error_code ec) {
    if (ec) throw_for_path("open", path, ec);
    return f;
}

// Throws if `mode` is no mode.
open_mode parsed(const std::filesystem::path& path, std::string_view mode) {
    const open_mode m = parse_mode(mode);
    if (m != no_mode) return m;
    throw io_error(io::system_error_code(EINVAL), "open " + detail::with_zeros_shown(path.native()) + ": mode \"" + std::string(mode) +
        "\" is none of r, r+, w, w+, a, a+; x after w or a: it must not exist");
}

}  // namespace

file file::open(const std::filesystem::path& path, open_mode mode, unsigned permissions) {
    std::error_code ec;
    file f = open(path, mode, ec, permissions);
    return opened(std::move(f), path, ec);
}

file file::open(const std::filesystem::path& path, open_mode mode, const context& ctx, unsigned permissions) {
    std::error_code ec;
    file f = open(path, mode, ctx, ec, permissions);
    return opened(std::move(f), path, ec);
}

// no_mode leads to EINVAL, as any mode that asks neither for reading nor for writing.
file file::open(const std::filesystem::path& path, std::string_view mode, std::error_code& ec, unsigned permissions) {
    return open(path, parse_mode(mode), ec, permissions);
}

file file::open(const std::filesystem::path& path, std::string_view mode, const context& ctx, std::error_code& ec,
    unsigned permissions) {
    return open(path, parse_mode(mode), ctx, ec, permissions);
}

file file::open(const std::filesystem::path& path, std::string_view mode, unsigned permissions) {
    return open(path, parsed(path, mode), permissions);
}

file file::open(const std::filesystem::path& path, std::string_view mode, const context& ctx, unsigned permissions) {
    return open(path, parsed(path, mode), ctx, permissions);
}

file file::adopt(int fd) {
    std::error_code ec;
    file f = adopt(fd, ec);
    if (ec) detail::throw_adopt_error(fd, ec);
    return f;
}

// ---- at an offset ---------------------------------------------------------------------------------------------------

namespace {

long system_pread(int fd, void* data, std::size_t size, long offset) noexcept {
    if constexpr (stack::sanitizing || stack::thread_sanitizing) {
        return io::by_libc([=] { return ::pread(fd, data, io::at_most(size), offset); });
    } else {
        return platform::raw_syscall(
            SYS_pread64, fd, platform::syscall_arg(data), static_cast<long>(io::at_most(size)), offset);
    }
}

long system_pwrite(int fd, const void* data, std::size_t size, long offset) noexcept {
    if constexpr (stack::sanitizing || stack::thread_sanitizing) {
        return io::by_libc([=] { return ::pwrite(fd, data, io::at_most(size), offset); });
    } else {
        return platform::raw_syscall(
            SYS_pwrite64, fd, platform::syscall_arg(data), static_cast<long>(io::at_most(size)), offset);
    }
}

long read_at(int fd, void* data, std::size_t size, long offset) {
    const long n = io::read_from_cache(fd, data, size, offset);
    return n != -EAGAIN ? n : call_blocking([=] { return system_pread(fd, data, size, offset); });
}

// The kernel's offsets are signed: -1 would mean "at the position" there.
bool good_offset(std::uint64_t offset, std::error_code& ec) noexcept {
    if (static_cast<std::int64_t>(offset) >= 0) return true;
    ec = io::system_error_code(EINVAL);
    return false;
}

// Returns what `call(fd)` returns, or -1 with `ec`; the descriptor stays open meanwhile.
template <class Call>
long with_open(detail::io_descriptor* d, std::error_code& ec, Call call) {
    ec.clear();
    const io::use mine(d);
    if (!mine) {
        ec = errc::closed;
        return -1;
    }
    const int fd = d->fd();
    const long n = call_blocking([=] { return call(fd); });
    if (n < 0) ec = io::system_error_code(-n);
    return n < 0 ? -1 : n;
}

// Returns the result of `call(ec)`; throws if that sets the error.
template <class Call>
auto or_throw(const char* operation, detail::io_descriptor* d, Call call) {
    std::error_code ec;
    const auto result = call(ec);
    if (ec) detail::throw_io_error(operation, d, ec);
    return result;
}

}  // namespace

std::size_t file::pread(mutable_buffer b, std::uint64_t offset, std::error_code& ec) {
    ec.clear();
    const io::use mine(descriptor_);
    if (!mine) {
        ec = errc::closed;
        return 0;
    }
    if (!good_offset(offset, ec)) return 0;
    const long n = read_at(descriptor_->fd(), b.data(), b.size(), static_cast<long>(offset));
    if (n < 0) ec = io::system_error_code(-n);
    return n < 0 ? 0 : static_cast<std::size_t>(n);
}

std::size_t file::pread(mutable_buffer b, std::uint64_t offset) {
    std::error_code ec;
    const std::size_t n = pread(b, offset, ec);
    if (ec) detail::throw_io_error("pread", descriptor_, ec);
    return n;
}

std::size_t file::pwrite(const_buffer b, std::uint64_t offset, std::error_code& ec) {
    ec.clear();
    const io::use mine(descriptor_);
    if (!mine) {
        ec = errc::closed;
        return 0;
    }
    std::size_t done = 0;
    while (done < b.size() && good_offset(offset + done, ec)) {
        const int fd = descriptor_->fd();
        const char* data = static_cast<const char*>(b.data()) + done;
        const std::size_t size = b.size() - done;
        const long at = static_cast<long>(offset + done);
        const long n = call_blocking([=] { return system_pwrite(fd, data, size, at); });
        if (n < 0) {
            ec = io::system_error_code(-n);
            break;
        }
        done += static_cast<std::size_t>(n);
        if (n == 0) {
            ec = std::make_error_code(std::errc::io_error);  // as in io_write: it would never change
            break;
        }
    }
    return done;
}

std::size_t file::pwrite(const_buffer b, std::uint64_t offset) {
    std::error_code ec;
    const std::size_t n = pwrite(b, offset, ec);
    if (ec) detail::throw_io_error("pwrite", descriptor_, ec, n);
    return n;
}

// ---- the rest -------------------------------------------------------------------------------------------------------

std::uint64_t file::seek(std::int64_t offset, from whence, std::error_code& ec) {
    const long origin = whence == from::begin ? SEEK_SET : whence == from::current ? SEEK_CUR : SEEK_END;
    const long position =
        with_open(descriptor_, ec, [=](int fd) { return platform::raw_syscall(SYS_lseek, fd, offset, origin); });
    return position < 0 ? 0 : static_cast<std::uint64_t>(position);
}

std::uint64_t file::size(std::error_code& ec) const {
    // by_libc() returns the size in bytes, or -errno.
    const long bytes = with_open(descriptor_, ec, [](int fd) {
        return io::by_libc([fd] {
            struct stat what;
            return ::fstat(fd, &what) == 0 ? static_cast<long>(what.st_size) : -1L;
        });
    });
    return bytes < 0 ? 0 : static_cast<std::uint64_t>(bytes);
}

void file::truncate(std::uint64_t size, std::error_code& ec) {
    with_open(
        descriptor_, ec, [=](int fd) { return platform::raw_syscall(SYS_ftruncate, fd, static_cast<long>(size)); });
}

void file::sync(std::error_code& ec) {
    with_open(descriptor_, ec, [](int fd) { return platform::raw_syscall(SYS_fsync, fd); });
}

void file::sync_data(std::error_code& ec) {
    with_open(descriptor_, ec, [](int fd) { return platform::raw_syscall(SYS_fdatasync, fd); });
}

std::uint64_t file::seek(std::int64_t offset, from whence) {
    return or_throw("seek", descriptor_, [&](std::error_code& ec) { return seek(offset, whence, ec); });
}

std::uint64_t file::size() const {
    return or_throw("find the size of", descriptor_, [this](std::error_code& ec) { return size(ec); });
}

void file::truncate(std::uint64_t size) {
    or_throw("truncate", descriptor_, [&](std::error_code& ec) { return truncate(size, ec), 0; });
}

void file::sync() {
    or_throw("sync", descriptor_, [this](std::error_code& ec) { return sync(ec), 0; });
}

void file::sync_data() {
    or_throw("sync", descriptor_, [this](std::error_code& ec) { return sync_data(ec), 0; });
}

// ---- whole files ----------------------------------------------------------------------------------------------------

namespace {

// After an error, returns what has been read before it. `read`: read_some() of the file, within the caller's limit.
template <class Read>
std::string read_all(file& f, std::error_code& ec, Read read) {
    // some files below /proc report size 0, and give all they have in the first read, or lose the rest
    constexpr std::size_t least_room = 512;
    std::string content;
    std::size_t got = 0;
    const std::uint64_t size = f.size(ec);
    if (!ec && size >= content.max_size()) ec = std::make_error_code(std::errc::file_too_large);
    if (ec) return content;
    content.resize(std::max<std::size_t>(size + 1, least_room));  // one more, so that the end is seen without growing
    while (!ec) {
        if (content.size() == got) content.resize(2 * got);
        const std::size_t n = read(mutable_buffer(content.data() + got, content.size() - got));
        if (n == 0) break;
        got += n;
    }
    content.resize(got);
    return content;
}

std::string read_within(file f, std::error_code& ec) {
    return read_all(f, ec, [&](mutable_buffer b) { return f.read_some(b, ec); });
}
std::string read_within(file f, const context& ctx, std::error_code& ec) {
    return read_all(f, ec, [&](mutable_buffer b) { return f.read_some(b, ctx, ec); });
}

}  // namespace

std::string read_file(const std::filesystem::path& path, std::error_code& ec) {
    file f = file::open(path, "r", ec);
    return ec ? std::string() : read_within(std::move(f), ec);
}

std::string read_file(const std::filesystem::path& path, const context& ctx, std::error_code& ec) {
    file f = file::open(path, "r", ctx, ec);
    return ec ? std::string() : read_within(std::move(f), ctx, ec);
}

std::string read_file(const std::filesystem::path& path) {
    std::error_code ec;
    std::string content = read_within(file::open(path), ec);
    if (ec) throw_for_path("read", path, ec, content.size());
    return content;
}

std::string read_file(const std::filesystem::path& path, const context& ctx) {
    std::error_code ec;
    std::string content = read_within(file::open(path, "r", ctx), ctx, ec);
    if (ec) throw_for_path("read", path, ec, content.size());
    return content;
}

namespace {

// The error that a close of the file would report: some filesystems (over a network, in user space, with a quota) learn
// only then that what was written is lost. They are told of the close of every descriptor; so that of a copy will do.
// Without a number for the copy they are not asked.
void check_as_close_does(file& f, std::error_code& ec) {
    with_open(io_access::of(f), ec, [](int fd) {
        const long copy = platform::raw_syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0);
        if (copy < 0) return 0L;
        const long result = platform::raw_syscall(SYS_close, copy);
        return result == -EINTR ? 0L : result;  // it is closed, and not known to be lost
    });
}

std::size_t write_within(file& f, const_buffer content, const context& ctx, std::error_code& ec) {
    const std::size_t n = f.write_all(content, ctx, ec);
    if (!ec) check_as_close_does(f, ec);
    return n;
}

}  // namespace

void write_file(const std::filesystem::path& path, const_buffer content, const context& ctx, std::error_code& ec) {
    file f = file::open(path, "w", ctx, ec);
    if (!ec) write_within(f, content, ctx, ec);
}

void write_file(const std::filesystem::path& path, const_buffer content, const context& ctx) {
    file f = file::open(path, "w", ctx);
    std::error_code ec;
    const std::size_t n = write_within(f, content, ctx, ec);
    if (ec) throw_for_path("write", path, ec, n);
}

void write_file(const std::filesystem::path& path, const_buffer content, std::error_code& ec) {
    write_file(path, content, context(), ec);
}

void write_file(const std::filesystem::path& path, const_buffer content) { write_file(path, content, context()); }

}  // namespace dunlin::fs
