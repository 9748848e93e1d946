#include "sched/preempt/safe_point.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <link.h>
#include <sched.h>
#include <string_view>

#include "platform/cpu.h"
#include "stack/code.h"
#include "stack/interrupted_call.h"
#include "stack/sanitizer.h"
#include "stack/symbols.h"

namespace dunlin::inline v0_1::sched {

namespace {

struct code_range {
    std::uintptr_t begin, end;
    bool of_unwinder;
};

// Filled once, before any handler is installed.
constexpr std::size_t max_ranges = 32;
code_range untouchable[max_ranges];
std::size_t untouchable_count = 0;

// ThreadSanitizer is not in this list: it holds a signal back until the thread leaves one of its functions, and calls
// the handler then.
bool must_not_stop_in(const char* library) noexcept {
    const char* slash = std::strrchr(library, '/');
    const char* name = slash ? slash + 1 : library;
    for (const char* prefix : {"libc.", "libc-", "ld-linux", "ld-musl", "libgcc_s", "libpthread", "libstdc++", "libc++",
        "libunwind", "libjemalloc",
             "libtcmalloc", "libmimalloc", "libasan", "libubsan", "liblsan", "libclang_rt"}) {
        if (std::strncmp(name, prefix, std::strlen(prefix)) == 0) return true;
    }
    return false;
}

int note_library(dl_phdr_info* info, std::size_t, void*) {
    // The vdso has no reliable name, and no locks.
    if (info->dlpi_name == nullptr || !must_not_stop_in(info->dlpi_name)) return 0;
    for (int i = 0; i < info->dlpi_phnum && untouchable_count < max_ranges; ++i) {
        const auto& segment = info->dlpi_phdr[i];
        if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_X)) continue;
        const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
        const bool of_unwinder = std::strstr(info->dlpi_name, "libgcc_s") != nullptr ||
            std::strstr(info->dlpi_name, "libunwind") != nullptr;
        untouchable[untouchable_count++] = {begin, begin + segment.p_memsz, of_unwinder};
    }
    return 0;
}

// An AddressSanitizer that is linked statically, as clang's is, has its allocator's locks in the program itself.
bool is_of_sanitizer(std::uintptr_t pc) noexcept {
    if constexpr (!stack::address_sanitizing) return false;
    const std::string_view name = stack::find_symbol(pc).name;
    for (const char* part : {"__asan", "__sanitizer", "__lsan", "__ubsan", "__interception"}) {
        if (name.find(part) != name.npos) return true;
    }
    return false;
}

constexpr std::uintptr_t page = 4096;  // the smallest page size there is
constexpr std::uintptr_t hint_is_near = 16;    // bytes of code between the hint and where a thread in the loop around
                                               // it may be found
// the longest body of libc's sched_yield(): load a number, make the call, check the result
constexpr std::uintptr_t yield_bytes = 32;

}  // namespace

void note_unsafe_points() noexcept {
    dl_iterate_phdr(note_library, nullptr);
    stack::note_readable_code();
    stack::note_what_calls_leave();
}

bool spins_at(std::uintptr_t pc) noexcept {
    const auto yield = reinterpret_cast<std::uintptr_t>(&sched_yield);
    if (pc - yield < yield_bytes) return true;
    const std::uintptr_t begin = std::max(pc & ~(page - 1), pc - hint_is_near),
        end = std::min((pc | (page - 1)) + 1, pc + hint_is_near);
    std::array<std::uint8_t, 2 * hint_is_near> copy;
    const std::uint8_t* const code = stack::code_at(begin, end, copy);
    if (code == nullptr) return false;
    for (std::uintptr_t at = begin; at + platform::spin_hint_bytes <= end; at += platform::spin_hint_step) {
        if (platform::is_spin_hint(code + (at - begin))) return true;
    }
    return false;
}

bool is_in_unwinder(std::uintptr_t pc) noexcept {
    for (std::size_t i = 0; i < untouchable_count; ++i) {
        if (untouchable[i].of_unwinder && pc >= untouchable[i].begin && pc < untouchable[i].end) return true;
    }
    return false;
}

bool may_stop_at(std::uintptr_t pc) noexcept {
    if (stack::goes_on_with_call(reinterpret_cast<const void*>(pc))) return false;
    for (std::size_t i = 0; i < untouchable_count; ++i) {
        if (pc >= untouchable[i].begin && pc < untouchable[i].end) return false;
    }
    if (is_of_sanitizer(pc)) return false;
    // In a statically linked program libc cannot be told from the program's own code.
    return untouchable_count != 0;
}

}  // namespace dunlin::sched
