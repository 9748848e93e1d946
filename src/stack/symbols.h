// symbols.h - which function an address is in, and on which line.
//
// Problem    dladdr() knows what an object exports, and an ordinary executable exports nothing: every frame would read
//            "+0xb380 (app)".
// Guarantee  The names are those of the file's .symtab, else of its .dynsym, else what dladdr() says. Nothing here
//            allocates from the heap, throws, or changes errno, and the stack needed is less than 4 KiB: it may run in
//            a signal handler.
// Cost       An object's file is mapped and its functions are sorted when an address inside is asked for the first
//            time: a few milliseconds for 100,000 functions. It stays mapped. After that a name is a binary search; a
//            line also takes reading a part of a line table.
#pragma once

#include <cstdint>
#include <string_view>

#include "stack/lines.h"

namespace dunlin::inline v0_1::stack {

struct symbol {
    std::string_view name;     // as the linker knows it; empty where nothing is known
    std::uintptr_t begin = 0;  // of the function; of the object where there is no name
    std::string_view object;   // the file's name without its directory; empty outside of every object
};

// The texts are valid until the object is unloaded.
symbol find_symbol(std::uintptr_t address) noexcept;

// Line 0 where it is not known: compiled without -g, stripped, or compressed.
source_line find_line(std::uintptr_t address) noexcept;

}  // namespace dunlin::stack
