#include "platform/small_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <utility>

#include "platform/syscall.h"

namespace dunlin::inline v0_1::platform {

small_file::small_file(const char* path) noexcept
    : descriptor_(static_cast<int>(raw_syscall(SYS_openat, AT_FDCWD, syscall_arg(path), O_RDONLY | O_CLOEXEC))) {}

small_file::small_file(small_file&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

small_file& small_file::operator=(small_file&& other) noexcept {
    if (this != &other) {
        close();
        descriptor_ = std::exchange(other.descriptor_, -1);
    }
    return *this;
}

void small_file::close() noexcept {
    if (valid()) {
        raw_syscall(SYS_close, descriptor_);
        descriptor_ = -1;
    }
}

std::size_t small_file::read_at(std::span<char> buffer, std::size_t offset) const noexcept {
    if (!valid() || buffer.empty()) {
        return 0;
    }
    long result;
    do {
        result = raw_syscall(SYS_pread64, descriptor_, syscall_arg(buffer.data()), static_cast<long>(buffer.size()),
                             static_cast<long>(offset));
    } while (result == -EINTR);
    return result > 0 ? static_cast<std::size_t>(result) : 0;
}

std::string_view small_file::read(std::span<char> buffer) const noexcept { return {buffer.data(), read_at(buffer, 0)}; }

bool line_reader::next(std::string_view& line) noexcept {
    for (;;) {
        char* const first = buffer_.data() + begin_;
        const std::size_t available = end_ - begin_;
        if (auto* newline = static_cast<char*>(available == 0 ? nullptr : std::memchr(first, '\n', available))) {
            line = {first, static_cast<std::size_t>(newline - first)};
            begin_ += line.size() + 1;
            if (!std::exchange(skipping_, false)) {
                return true;
            }
        } else if (!refill()) {
            // The end: what is left is a last line without newline.
            line = {buffer_.data() + begin_, end_ - begin_};
            begin_ = end_;
            return !line.empty() && !std::exchange(skipping_, false);
        }
    }
}

// Makes room behind the unfinished line and reads on. False at the end of the file.
bool line_reader::refill() noexcept {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    if (end_ == buffer_.size()) {
        skipping_ = true;
        end_ = 0;
    }
    const std::size_t count = file_.read_at(buffer_.subspan(end_), offset_);
    offset_ += count;
    end_ += count;
    return count != 0;
}

}  // namespace dunlin::platform
