// code.h - reads instructions that a signal has interrupted.
#pragma once

#include <cstdint>
#include <span>

namespace dunlin::inline v0_1::stack {

// Notes which code of the program and its libraries can be read. Called once, before any handler is installed.
void note_readable_code() noexcept;

// The code from `begin` to `end`; null: it is not there, or can be executed and not read (PROT_EXEC alone, on a CPU
// with protection keys). Code that was made or loaded since the note is read by the kernel, into `into`; where the
// kernel refuses to, it can be read like most code.
const std::uint8_t* code_at(std::uintptr_t begin, std::uintptr_t end, std::span<std::uint8_t> into) noexcept;

}  // namespace dunlin::stack
