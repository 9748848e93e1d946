// debug_layout.h - tells a debugger where the goroutines of a live process or a core file are.
//
// Problem    An optimised or stripped program has no debug information for this library, and in a core file no code can
//            run. But some fifty numbers are enough to find the goroutines, and the registers of those that do not run.
// Data       A table of these numbers in read-only memory: each has a name, and is an offset, a size, a bit or an
//            address. A tool asks by name, so a new entry does not disturb tools that do not know it. `version` is
//            raised when the meaning of an entry changes.
// Found      through a note in the ELF file, with owner "dunlin" and type 2, in a section of its own: it is loaded with
//            the program, and strip keeps it. It contains the distance from itself to the table, 4 bytes. A process has
//            one note for each copy of this library.
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
