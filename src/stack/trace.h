// trace.h - stack traces, of the caller and of stopped computations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "platform/text.h"
#include "stack/context.h"

namespace dunlin::inline v0_1::stack {

inline constexpr std::size_t trace_frames_max = 32;

// Return addresses, which may lie just behind a function that ends with the call. For the frame that a signal
// interrupted: the address behind the one interrupted at, so that pc - 1 is in the function in every case.
struct trace {
    void* pc[trace_frames_max];
    std::size_t size = 0;
};

// The frames of the caller, innermost first, `skip` of them left out. In a signal handler: of what it interrupted.
trace capture_trace(std::size_t skip = 0) noexcept;

// The same, written frame by frame, so that what was found before a fault is there after it. For a handler that may
// have interrupted any instruction: where functions written in assembly tell the unwinder nothing, or the wrong things,
// it reads from addresses that do not exist.
void capture_trace(trace& into) noexcept;

// The frames of a stopped computation. It must not be switched to meanwhile.
trace capture_trace(const context& stopped) noexcept;

// The frames of a thread that sleeps in a system call, of which only the stack pointer and the address are known: up to
// the first that needs another register, which none before it has saved. On x86-64 that is often the first of code that
// is compiled with frame pointers. The thread may wake up meanwhile, and change what is read here: the caller catches
// faults, and finds what was written before. Elsewhere than on x86-64, where return addresses are in a register: none.
void capture_trace_of_sleeper(void* sp, const void* pc, trace& into) noexcept;

// The two ends of a stack that may have a hundred thousand frames, and what stands in it again and again: nothing is
// kept of what lies between.
struct deep_trace {
    static constexpr std::size_t ends = trace_frames_max / 2;  // of each end, when not all are shown

    trace inner;                                      // the innermost frames
    std::uint32_t times[trace_frames_max] = {};       // how often the address of each of these stands in the stack
    void* outer[ends];                                // the outermost: frame n is at n % ends
    std::size_t frames = 0;
};

// The frames of what a signal handler, which calls this, has interrupted; what was found before a fault is there after
// it. Of a handler that was itself interrupted by a fault: its frames, and then those of what it interrupted.
void capture_deep_trace(deep_trace& into) noexcept;

// "    recursion: even(int) x 1366, odd(int) x 1365" if few functions make up most of the frames; then the frames, as
// print_trace() does.
void print_deep_trace(platform::text_writer& out, const deep_trace& t, bool hide_runtime = true) noexcept;

// One line per frame: "    #2 0x55d0c3 worker(int) at app.cpp:17", or without -g
// "    #2 0x55d0c3 worker(int)+0x41 (app)". Frames of the runtime itself are left out where `hide_runtime`, if there
// are others; an entry that leads to a goroutine's function is shown as that function. "near app.cpp:17" is a line
// before a call that was inlined from a header (lines.h). errno stays as it is.
void print_trace(platform::text_writer& out, const trace& t, bool hide_runtime = true) noexcept;

// The first frame of `t` that is neither dunlin's nor the C++ library's, as print_symbol(). False: there is none, and
// nothing was printed.
bool print_first_of_program(platform::text_writer& out, const trace& t) noexcept;

// How many of the innermost frames are dunlin's or the C++ library's, which stand between the program and what it waits
// for. All of them: 0.
std::size_t frames_of_library(const trace& t) noexcept;

// "worker(int) at app.cpp:17". Demangling needs the heap.
void print_symbol(platform::text_writer& out, const void* pc, bool demangle = true) noexcept;

}  // namespace dunlin::stack
