// fs.hpp - files, pipes, child processes and signals in blocking style.
#pragma once

#include <dunlin/config.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include <dunlin/io.hpp>
#include <dunlin/process.hpp>
#include <dunlin/signal.hpp>

namespace dunlin::inline v0_1 {

namespace fs {

/// A pipe: what is written to write_end is read from read_end. `auto [r, w] = dunlin::fs::pipe();` A write to a pipe
/// whose read end is closed fails with std::errc::broken_pipe and raises no SIGPIPE. Do not put it into packet mode
/// (O_DIRECT): for that, make one with pipe2() and adopt its ends.
struct DUNLIN_API pipe {
    /// Throws io_error.
    pipe();
    explicit pipe(std::error_code& ec);
    byte_stream read_end;
    byte_stream write_end;
};

/// How to open(); combine with |.
enum class open_mode : unsigned {
    read = 1,
    write = 2,
    create = 4,      ///< if it does not exist
    truncate = 8,    ///< empty it
    append = 16,     ///< each write goes to the end
    exclusive = 32,  ///< with create: fail if it exists
    sync = 64,       ///< each write is on the disk when it returns
};
constexpr open_mode operator|(open_mode a, open_mode b) noexcept {
    return static_cast<open_mode>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr bool operator&(open_mode a, open_mode b) noexcept {
    return (static_cast<unsigned>(a) & static_cast<unsigned>(b)) != 0;
}

/// An open file.
///
/// Blocks    What is in the page cache is read at once (preadv2, RWF_NOWAIT). A read from the disk, and every write,
///           may block the thread; its processor then goes to other goroutines. Waiting for a FIFO, a terminal or
///           another device that can be polled costs no thread.
/// Threads   read_some() and write_some() share one position: one reader and one writer at a time. Any number of
///           pread() and pwrite().
/// Errors    Each call throws io_error; with a trailing std::error_code& it does not. Deadlines: only what can be
///           polled has them (errc::no_deadlines).
class DUNLIN_API file : public byte_stream {
public:
    file() noexcept = default;
    /// The mode is one of fopen()'s: "r", "r+", "w", "w+", "a", "a+", with "x" for exclusive; or an open_mode. Throws
    /// io_error: "open /etc/x: no such file or directory".
    /// Blocks    Opening a FIFO waits for its other end, on a thread. A context ends the wait with context_cancelled;
    ///           the thread goes on waiting in the background, and may still meet the next process that opens the other
    ///           end, which then finds it closed: what that one writes is lost. Where that matters, open with
    ///           O_NONBLOCK (open(2)) and adopt the descriptor.
    static file open(const std::filesystem::path& path, std::string_view mode = "r", unsigned permissions = 0666);
    static file open(const std::filesystem::path& path, open_mode mode, unsigned permissions = 0666);
    static file open(const std::filesystem::path& path, std::string_view mode, std::error_code& ec,
        unsigned permissions = 0666);
    static file open(const std::filesystem::path& path, open_mode mode, std::error_code& ec,
        unsigned permissions = 0666);
    static file open(const std::filesystem::path& path, std::string_view mode, const context& ctx,
        unsigned permissions = 0666);
    static file open(const std::filesystem::path& path, open_mode mode, const context& ctx,
        unsigned permissions = 0666);
    static file open(const std::filesystem::path& path, std::string_view mode, const context& ctx, std::error_code& ec,
        unsigned permissions = 0666);
    static file open(const std::filesystem::path& path, open_mode mode, const context& ctx, std::error_code& ec,
        unsigned permissions = 0666);
    static file open(
        const std::filesystem::path& path, std::string_view mode, unsigned permissions, std::error_code& ec) {
        return open(path, mode, ec, permissions);
    }
    static file open(const std::filesystem::path& path, open_mode mode, unsigned permissions, std::error_code& ec) {
        return open(path, mode, ec, permissions);
    }
    static file open(const std::filesystem::path& path, std::string_view mode, const context& ctx, unsigned permissions,
        std::error_code& ec) {
        return open(path, mode, ctx, ec, permissions);
    }
    static file open(const std::filesystem::path& path, open_mode mode, const context& ctx, unsigned permissions,
        std::error_code& ec) {
        return open(path, mode, ctx, ec, permissions);
    }
    /// Opens an empty file for reading and writing; creates it if it does not exist.
    static file create(const std::filesystem::path& path) { return open(path, "w+"); }
    static file create(const std::filesystem::path& path, std::error_code& ec) { return open(path, "w+", ec); }
    /// As byte_stream::adopt().
    static file adopt(int fd);
    static file adopt(int fd, std::error_code& ec) noexcept { return io_access::make<file>(detail::io_adopt(fd, ec)); }

    /// Reads from `offset` on, at least one byte, without moving the position; 0 at the end of the file.
    std::size_t pread(mutable_buffer b, std::uint64_t offset);
    std::size_t pread(mutable_buffer b, std::uint64_t offset, std::error_code& ec);
    std::size_t pread(void* data, std::size_t size, std::uint64_t offset) {
        return pread(mutable_buffer(data, size), offset);
    }
    std::size_t pread(void* data, std::size_t size, std::uint64_t offset, std::error_code& ec) {
        return pread(mutable_buffer(data, size), offset, ec);
    }
    /// Writes all of it at `offset`. (If the file was opened to append, Linux writes at the end all the same.)
    std::size_t pwrite(const_buffer b, std::uint64_t offset);
    std::size_t pwrite(const_buffer b, std::uint64_t offset, std::error_code& ec);
    std::size_t pwrite(const void* data, std::size_t size, std::uint64_t offset) {
        return pwrite(const_buffer(data, size), offset);
    }
    std::size_t pwrite(const void* data, std::size_t size, std::uint64_t offset, std::error_code& ec) {
        return pwrite(const_buffer(data, size), offset, ec);
    }
    /// Writes all of it at the position: write_all().
    std::size_t write(const_buffer b, where_type w = where_type::current()) { return write_all(b, w); }
    std::size_t write(const_buffer b, std::error_code& ec, where_type w = where_type::current()) {
        return write_all(b, ec, w);
    }
    std::size_t write(const void* data, std::size_t size, where_type w = where_type::current()) {
        return write_all(data, size, w);
    }
    std::size_t write(const void* data, std::size_t size, std::error_code& ec, where_type w = where_type::current()) {
        return write_all(data, size, ec, w);
    }

    enum class from { begin, current, end };
    /// The new position.
    std::uint64_t seek(std::int64_t offset, from whence = from::begin);
    std::uint64_t seek(std::int64_t offset, from whence, std::error_code& ec);
    std::uint64_t seek(std::int64_t offset, std::error_code& ec) { return seek(offset, from::begin, ec); }
    std::uint64_t size() const;
    std::uint64_t size(std::error_code& ec) const;
    /// Makes it longer (with zeroes) or shorter; the position stays.
    void truncate(std::uint64_t size);
    void truncate(std::uint64_t size, std::error_code& ec);
    /// Returns when everything is on the disk (fsync); for sync_data(), when all that is needed to read the data back
    /// is there (fdatasync).
    void sync();
    void sync(std::error_code& ec);
    void sync_data();
    void sync_data(std::error_code& ec);
};

/// Read or write a whole file; write_file() replaces its contents, and reports what the close of the file would report
/// (a disk quota, a network filesystem that could not store it). Both throw io_error, std::bad_alloc. A context ends
/// the waits for what is no regular file (a FIFO, a terminal): context_cancelled.
DUNLIN_API std::string read_file(const std::filesystem::path& path);
DUNLIN_API std::string read_file(const std::filesystem::path& path, std::error_code& ec);
DUNLIN_API std::string read_file(const std::filesystem::path& path, const context& ctx);
DUNLIN_API std::string read_file(const std::filesystem::path& path, const context& ctx, std::error_code& ec);
DUNLIN_API void write_file(const std::filesystem::path& path, const_buffer content);
DUNLIN_API void write_file(const std::filesystem::path& path, const_buffer content, std::error_code& ec);
DUNLIN_API void write_file(const std::filesystem::path& path, const_buffer content, const context& ctx);
DUNLIN_API void write_file(
    const std::filesystem::path& path, const_buffer content, const context& ctx, std::error_code& ec);

using dunlin::process;
using dunlin::signal_channel;

}  // namespace fs
}  // namespace dunlin
