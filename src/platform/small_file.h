// small_file.h - reads files of the kernel: a few bytes at a time, without the heap, without errno.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace dunlin::inline v0_1::platform {

// An open file, closed at the end of its scope. `valid()` is false when it could not be opened.
class small_file {
public:
    small_file() noexcept = default;
    explicit small_file(const char* path) noexcept;
    ~small_file() { close(); }
    small_file(small_file&& other) noexcept;
    small_file& operator=(small_file&& other) noexcept;

    bool valid() const noexcept { return descriptor_ >= 0; }

    // The file from its start, as much as fits; empty on failure. Reads anew each time: /proc and cgroup files change.
    std::string_view read(std::span<char> buffer) const noexcept;

    // The bytes from `offset` on; 0 at the end and on failure.
    std::size_t read_at(std::span<char> buffer, std::size_t offset) const noexcept;

private:
    void close() noexcept;

    int descriptor_ = -1;
};

// One line after another. A line that does not fit into the buffer is skipped: the lines that matter are short, and a
// cut one would say something else.
class line_reader {
public:
    line_reader(const small_file& file, std::span<char> buffer) noexcept : file_(file), buffer_(buffer) {}

    // False at the end of the file. The line is without its newline, and valid until the next call.
    bool next(std::string_view& line) noexcept;

private:
    bool refill() noexcept;

    const small_file& file_;
    std::span<char> buffer_;
    std::size_t offset_ = 0;  // in the file, of the byte after buffer_[end_)
    std::size_t begin_ = 0;   // buffer_[begin_, end_) was read and not yet returned
    std::size_t end_ = 0;
    bool skipping_ = false;   // inside a line that did not fit
};

}  // namespace dunlin::platform
