// usable.h - may this copy of the library work in this process? Not beside another copy that works, and not in the
// child of a fork().
//
// Asking     costs a load, and is done only where a plain thread comes, where a wait begins, and where something is
//            started. Goroutines, and thereby all fast paths, never ask: a copy that must not work has none.
// Copies     A static library in the executable and in a plug-in is there twice, each with a scheduler, a lot and an
//            idea of "this machine" of its own. An object of one, used by the other, is a crash, or a wake-up that is
//            lost. So a process has one copy that works, and a second one ends it with a line that names both.
// Reached    A copy does no harm where its module's calls are bound to another's functions: a plug-in's beside an
//            executable that exports its own (-rdynamic), or beside the shared library. The linker says which it is:
//            a call of the exported symbol with the version, dunlin_copy_v0_1, reaches this copy or another.
// Found      by an ELF note in each copy, which leads to its descriptor (`copy`). dl_iterate_phdr() shows the notes of
//            all that is loaded, whatever the visibility of their symbols, and of whatever version.
// Protocol   loading:  forbid is set; then a look at all others: if this one and another are reached, the process ends;
//                      if another is in use, this one refuses whatever is asked of it
//            starting: in_use = 1; then a look at all others: if another is reached, or in use, this one refuses; else
//                      each other is told to, by its forbid()
//            Both are sequentially consistent, and the loader's lock orders the list of what is loaded. Two that start
//            at once both refuse: the program uses two. What is not reached may be used all the same where only some
//            of its functions are bound to another's: so it has to refuse, too.
// Stays      A copy that works is never unloaded: its threads run in it (RTLD_NODELETE).
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
    void (*reached)() noexcept = nullptr;  // what a call of dunlin_copy_v0_1 in this module reaches
    void (*own)() noexcept = nullptr;      // this copy's: the same where it is reached
};

// The runtime of this copy starts. Does not return if another's has.
void be_the_one_that_works() noexcept;

// Leads paths that do not ask into those that do. In runtime.cpp, which is thereby part of every program.
void close_fast_paths() noexcept;

}  // namespace dunlin::platform
