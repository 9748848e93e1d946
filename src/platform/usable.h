// usable.h - may this copy of the library work in this process? Not beside another copy that works, and not in the
// child of a fork().
//
// Asking     costs a load, and is done only where a plain thread comes, where a wait begins, and where something is
//            started. Goroutines, and thereby all fast paths, never ask: a copy that must not work has none.
// Copies     A static library in the executable and in a plug-in is there twice, each with a scheduler, a lot and an
//            idea of "this machine" of its own. An object of one, used by the other, is a crash. So the first copy that
//            starts its runtime is the one that works, and every other copy refuses every call. A copy that is merely
//            there does no harm, and says nothing. Where the dynamic linker has bound a plug-in's calls to the
//            executable's functions, the plug-in's own copy is one of those.
// Found      by an ELF note in each copy, which leads to its descriptor (`copy`). dl_iterate_phdr() shows the notes of
//            all that is loaded, whatever the visibility of their symbols.
// Protocol   starting: in_use = 1; then a look at all others: is one in use? refused; else call its forbid()
//            loading:  forbid is set; then a look at all others: is one in use? refused
//            Both are sequentially consistent, and the loader's lock orders the list of what is loaded. Two that start
//            at once both refuse: the program uses two.
// Rejected   docs/decisions/029-several-copies.md
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <cstdint>

#include "platform/cpu.h"

namespace dunlin::inline v0_1::platform {

// Why not; null: it may. The texts stay for ever.
DUNLIN_HIDDEN extern platform::atomic<const char*> not_in_this_process;  // whatever is asked of it
DUNLIN_HIDDEN extern platform::atomic<const char*> not_after_fork;       // to start something, or to wait for something

// fatal(), with the reason.
[[noreturn]] void refuse(const char* why) noexcept;

// For whatever touches an object that may belong to another copy.
inline void check_alone() noexcept {
    if (const char* why = not_in_this_process.load(std::memory_order_relaxed)) [[unlikely]] refuse(why);
}

// For whatever needs a thread of the runtime, or may wait for one.
inline void check_usable() noexcept {
    check_alone();
    if (const char* why = not_after_fork.load(std::memory_order_relaxed)) [[unlikely]] refuse(why);
}

// What other versions read of a copy, too: the layout is for ever.
struct copy {
    std::uint32_t version;
    platform::atomic<std::uint32_t> in_use{0};
    platform::atomic<void (*)(const copy* by) noexcept> forbid{nullptr};
};

// The runtime of this copy starts. Does not return if another's has.
void be_the_one_that_works() noexcept;

// Leads paths that do not ask into those that do. In runtime.cpp, which is thereby part of every program.
void close_fast_paths() noexcept;

}  // namespace dunlin::platform
