// exception_state.h - what the C++ runtime keeps per thread about exceptions, kept per goroutine instead.
//
// The Itanium C++ ABI keeps the stack of caught exceptions and the number of uncaught ones in a per-thread record. A
// goroutine that parks inside a catch block or inside a destructor during unwinding must take its record along, or the
// next goroutine on the thread rethrows an exception that is not its own. The record's address is asked for once per
// thread: __cxa_get_globals() is declared `const`, and a compiler would keep its result across a switch.
#pragma once

namespace dunlin::inline v0_1::stack {

struct exception_state {
    void* caught = nullptr;     // the innermost exception being handled
    unsigned uncaught = 0;      // exceptions thrown and not yet caught

    bool empty() const noexcept { return caught == nullptr && uncaught == 0; }
};

// The same as a goroutine's struct keeps it: without the padding at the end, since the room is needed there.
struct [[gnu::packed, gnu::aligned(4)]] kept_exceptions {
    void* caught = nullptr;
    unsigned uncaught = 0;

    kept_exceptions() = default;
    kept_exceptions(const exception_state& s) noexcept : caught(s.caught), uncaught(s.uncaught) {}
    operator exception_state() const noexcept { return {caught, uncaught}; }
    bool empty() const noexcept { return caught == nullptr && uncaught == 0; }
};

// This thread's record; valid as long as the thread lives.
exception_state* thread_exception_state() noexcept;

}  // namespace dunlin::stack
