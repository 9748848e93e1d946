// lines.h - file and line of an address, from the line tables that -g leaves in an ELF file: .debug_line of DWARF 2 to
// 5.
//
// Guarantee  The bytes are not trusted: damaged tables end early. No heap, no exceptions, little stack.
// Inlining   A row names the innermost inlined function, which for a call of sleep_for() would be our header. So the
//            answer is the last row at or before the address, in the same function, that is not from a header of the
//            C++ library or of dunlin; if all are, the row itself. The last row before is not always the last line
//            executed, so then the answer is not `exact`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "platform/memory.h"

namespace dunlin::inline v0_1::stack {

using file_bytes = std::span<const std::byte>;

// The text at `offset` in a table of strings that end with 0; empty if it is not inside.
inline std::string_view text_at(file_bytes table, std::uint64_t offset) noexcept {
    if (offset >= table.size()) return {};
    const char* text = reinterpret_cast<const char*>(table.data() + offset);
    const std::size_t length = strnlen(text, table.size() - offset);
    return {text, length < table.size() - offset ? length : 0};
}

struct source_line {
    std::string_view file;  // without its directory
    unsigned line = 0;      // 0: not known
    bool exact = false;
};

class line_table {
public:
    struct sections {
        file_bytes line, line_strings, strings;
    };

    // Reads every row once, so that find() need not: about a millisecond for each MiB of the section.
    void index(const sections& from) noexcept;
    void release() noexcept;

    // `function` is where its function begins. Addresses are those of the file.
    source_line find(std::uintptr_t function, std::uintptr_t address) const noexcept;

private:
    // Rows of rising addresses: usually the code of one source file, or one function of a template.
    struct sequence {
        std::uintptr_t begin, end;
        std::uint64_t unit, rows;  // offsets in the section: of the unit's header, of the first instruction
    };

    sections from_;
    std::span<sequence> sequences_;  // sorted
    platform::memory_range memory_;
};

}  // namespace dunlin::stack
