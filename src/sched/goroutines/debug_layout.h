// debug_layout.h - where a debugger finds the goroutines, of a live process or of a core file.
//
// Problem    An optimised or stripped program has no debug information of this library, and a core file no code that
//            runs. But some fifty numbers say which goroutines there are, and where the registers of those that do
//            not run are kept.
// Data       A table of them in read-only memory: each has a name, and is an offset, a size, a bit or an address. A
//            tool asks by name, so a new entry disturbs none that does not know it. `version` is raised when the
//            meaning of one changes.
// Found      by a note of the ELF file, of the owner "dunlin" and type 2, in a section of its own: it is loaded with
//            the program, and strip leaves it. It is the distance from itself to the table, 4 bytes. A process has one
//            for each copy of this library.
// Cost       None: the process itself never reads it.
// Tests      tests/sched/debug_layout_test.cpp, tests/debuggers/
#pragma once

#include <cstdint>

namespace dunlin::inline v0_1::sched {

struct debug_entry {
    char name[32];
    std::uint64_t number;
    const void* address;  // null: it is a number
};

struct debug_table {
    char magic[8];
    std::uint32_t version;
    std::uint32_t entries;
    debug_entry entry[64];
};

}  // namespace dunlin::sched

extern "C" {
[[gnu::visibility("hidden")]] extern const dunlin::sched::debug_table dunlin_debug_layout;
}
