#include "platform/memory_map.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <string_view>
#include <sys/uio.h>

#include "platform/small_file.h"
#include "platform/syscall.h"

namespace dunlin::inline v0_1::platform {

namespace {

// Takes the number at the front of `text`, and one character behind it.
std::uintptr_t take_hex(std::string_view& text) noexcept {
    std::uintptr_t n = 0;
    while (!text.empty()) {
        const char c = text.front();
        text.remove_prefix(1);
        if (c >= '0' && c <= '9') n = 16 * n + static_cast<std::uintptr_t>(c - '0');
        else if (c >= 'a' && c <= 'f') n = 16 * n + static_cast<std::uintptr_t>(c - 'a' + 10);
        else break;
    }
    return n;
}

// "7f81-7f82 rw-p 00000000 00:00 0    [name]". A device's memory must not be read: that may have effects.
bool read_line(std::string_view line, mapped_region& r, std::uintptr_t& unreadable_to) noexcept {
    r.begin = take_hex(line);
    r.end = take_hex(line);
    if (line.size() < 5 || line[0] != 'r') {
        unreadable_to = r.end;
        return false;
    }
    r.guarded = r.begin == unreadable_to;
    r.writable = line[1] == 'w';
    const std::size_t name_at = line.find_first_of("/[");
    const std::string_view name = name_at == line.npos ? std::string_view() : line.substr(name_at);
    r.anonymous = name.empty() || name[0] == '[';
    r.main_stack = name == "[stack]";
    if (name.starts_with("[v")) return false;  // [vvar], [vdso], [vsyscall]
    return !name.starts_with("/dev/") || name.starts_with("/dev/shm/") || name.starts_with("/dev/zero");
}

constexpr std::uint64_t in_memory = std::uint64_t{1} << 63, swapped_out = std::uint64_t{1} << 62;

}  // namespace

std::size_t read_memory_map(std::span<mapped_region> into) noexcept {
    const small_file file("/proc/self/maps");
    static char buffer[8192];  // one caller at a time: the world is stopped
    line_reader lines(file, buffer);
    std::size_t count = 0;
    std::uintptr_t unreadable_to = 0;
    for (std::string_view line; lines.next(line);) {
        mapped_region r;
        if (!read_line(line, r, unreadable_to)) continue;
        if (count < into.size()) into[count] = r;
        ++count;
    }
    return count;
}

long read_own_memory(std::uintptr_t from, void* to, std::size_t bytes) noexcept {
    const iovec mine{to, bytes};
    const iovec theirs{reinterpret_cast<void*>(from), bytes};
    return raw_syscall(
        SYS_process_vm_readv, raw_syscall(SYS_getpid), syscall_arg(&mine), 1, syscall_arg(&theirs), 1, 0);
}

memory_reader::memory_reader() noexcept
    : page_(page_size()),
      pages_file_(static_cast<int>(
          raw_syscall(SYS_openat, AT_FDCWD, syscall_arg("/proc/self/pagemap"), O_RDONLY | O_CLOEXEC, 0))) {}

memory_reader::~memory_reader() {
    if (pages_file_ >= 0) raw_syscall(SYS_close, pages_file_);
}

bool memory_reader::present(std::uintptr_t page_number) noexcept {
    if (pages_file_ < 0) return true;
    if (page_number < known_from_ || page_number >= known_to_) {
        const long bytes = raw_syscall(SYS_pread64, pages_file_, syscall_arg(known_), sizeof known_,
            static_cast<long>(page_number * sizeof known_[0]));
        if (bytes < static_cast<long>(sizeof known_[0])) return true;
        known_from_ = page_number;
        known_to_ = page_number + static_cast<std::uintptr_t>(bytes) / sizeof known_[0];
    }
    return (known_[page_number - known_from_] & (in_memory | swapped_out)) != 0;
}

std::uintptr_t memory_reader::next_present(std::uintptr_t from, std::uintptr_t end) noexcept {
    while (from < end && !present(from / page_)) from = (from / page_ + 1) * page_;
    return from;
}

std::size_t memory_reader::copy(std::uintptr_t from, std::uintptr_t end) noexcept {
    std::uintptr_t to = std::min(end, (from / page_ + 1) * page_);
    while (to < end && to - from + page_ <= sizeof piece_ && present(to / page_)) to = std::min(end, to + page_);
    const long bytes = read_own_memory(from, piece_, to - from);
    if (bytes < 0 && bytes != -EFAULT) works_ = false;
    return bytes > 0 ? static_cast<std::size_t>(bytes) / sizeof(std::uintptr_t) * sizeof(std::uintptr_t) : 0;
}

}  // namespace dunlin::platform
