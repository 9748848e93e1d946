#include "stack/code.h"

#include <cerrno>
#include <cstddef>
#include <link.h>

#include "platform/memory_map.h"

namespace dunlin::inline v0_1::stack {

namespace {

struct code_range {
    std::uintptr_t begin, end;
};

constexpr std::size_t max_ranges = 32;
code_range readable_code[max_ranges];
std::size_t readable_code_count = 0;

int note_object(dl_phdr_info* info, std::size_t, void*) {
    for (int i = 0; i < info->dlpi_phnum && readable_code_count < max_ranges; ++i) {
        const auto& segment = info->dlpi_phdr[i];
        if (segment.p_type != PT_LOAD || (segment.p_flags & (PF_X | PF_R)) != (PF_X | PF_R)) continue;
        const std::uintptr_t from = info->dlpi_addr + segment.p_vaddr;
        readable_code[readable_code_count++] = {from, from + segment.p_memsz};
    }
    return 0;
}

}  // namespace

void note_readable_code() noexcept { dl_iterate_phdr(note_object, nullptr); }

const std::uint8_t* code_at(std::uintptr_t begin, std::uintptr_t end, std::span<std::uint8_t> into) noexcept {
    for (std::size_t i = 0; i < readable_code_count; ++i) {
        const code_range& r = readable_code[i];
        if (begin >= r.begin && end <= r.end) return reinterpret_cast<const std::uint8_t*>(begin);
    }
    const long n = platform::read_own_memory(begin, into.data(), end - begin);
    if (n == static_cast<long>(end - begin)) return into.data();
    return n >= 0 || n == -EFAULT ? nullptr : reinterpret_cast<const std::uint8_t*>(begin);
}

}  // namespace dunlin::stack
