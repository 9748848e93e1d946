// usable.h - may this copy of the library work in this process? Not beside another copy that works, and not in the
// child of a fork().
//
// Asking     costs a load, and is done only where a plain thread enters, where a wait begins, and where something is
//            started. Goroutines, and so all fast paths, never ask: a copy that must not work has no goroutines.
// Copies     A static library that is linked into both the executable and a plug-in is there twice, each copy with its
//            own scheduler, parking lot and idea of "this machine". An object of one copy that is used by the other
//            means a crash or a lost wake-up. So a process has one copy that works, and a second one ends the process
//            with a line that names both.
// Reached    A copy does no harm if its module's calls are bound to another copy's functions: that of a plug-in beside
//            an executable that exports its own (-rdynamic), or beside the shared library. The linker decides which it
//            is: a call of the exported symbol with the version, dunlin_copy_v0_1, reaches this copy or another.
// Found      by an ELF note in each copy, which leads to its descriptor (`copy`). dl_iterate_phdr() shows the notes of
//            all loaded modules, whatever their version and the visibility of their symbols.
// Protocol   loading:  forbid is set; then a look at all others: if this one and another are reached, the process ends;
//                      if another is in use, this one refuses every request
//            starting: in_use = 1; then a look at all others: if another is reached, or in use, this one refuses; else
//                      each other is told to refuse, by its forbid()
//            Both sides are sequentially consistent, and the loader's lock orders the list of loaded modules. Two
//            copies that start at once both refuse: the program uses two. A copy that is not reached may be used all
//            the same if only some of its functions are bound to another's: so it has to refuse, too.
// Stays      A copy that works is never unloaded: its threads run in it (RTLD_NODELETE).
// Rejected   docs/decisions/029-several-copies.md
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstdint>

#include "platform/cpu.h"

namespace dunlin::inline v0_1::platform {

// Why this copy must not work; null: it may. The texts stay for ever.
DUNLIN_HIDDEN extern platform::atomic<const char*> not_in_this_process;  // it refuses every request
DUNLIN_HIDDEN extern platform::atomic<const char*> not_after_fork;       // it refuses starts and waits

// fatal(), with the reason.
[[noreturn]] void refuse(const char* why) noexcept;

// For code that touches an object that may belong to another copy.
inline void check_alone() noexcept {
    if (const char* why = not_in_this_process.load(std::memory_order_relaxed)) [[unlikely]] refuse(why);
}

// For code that needs a thread of the runtime, or may wait for one.
inline void check_usable() noexcept {
    check_alone();
    if (const char* why = not_after_fork.load(std::memory_order_relaxed)) [[unlikely]] refuse(why);
}

// Other versions read this, too: the layout is fixed for ever.
struct copy {
    std::uint32_t version;
    platform::atomic<std::uint32_t> in_use{0};
    platform::atomic<void (*)(const copy* by) noexcept> forbid{nullptr};
    void (*reached)() noexcept = nullptr;  // what a call of dunlin_copy_v0_1 in this module reaches
    void (*own)() noexcept = nullptr;      // this copy's own: the same if the copy is reached
};

// The runtime of this copy starts. Does not return if another copy's has started.
void be_the_one_that_works() noexcept;

// Redirects the paths that do not ask to those that do. Defined in runtime.cpp, which is thereby part of every program.
void close_fast_paths() noexcept;

}  // namespace dunlin::platform
