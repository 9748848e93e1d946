// page.h - what a report is written to while the world is stopped.
//
// To find the name and line of an address takes 20 us; to keep the address takes nothing. So a page of a live program
// keeps addresses within its text and names them when the world goes on (finish()). The page of a program that is about
// to end is written through at once: it needs no memory.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

#include "platform/text.h"
#include "stack/trace.h"

namespace dunlin::inline v0_1::observe {

class page {
public:
    explicit page(platform::text_writer& through) noexcept : out_(through) {}
    page() noexcept : later_(true), own_(text_), out_(own_) {}
    page(const page&) = delete;
    page& operator=(const page&) = delete;

    // Makes room for this many goroutines, so that the heap is not needed while the world is stopped. Throws nothing:
    // what finds no memory is dropped.
    void reserve(std::size_t goroutines) noexcept;

    platform::text_writer& text() noexcept { return out_; }
    void stack(const stack::trace& frames) noexcept { add(kind::stack, frames, {}); }
    void symbol(const void* pc) noexcept;
    // The place of the first frame that is the program's own; `otherwise` if none is.
    void place_of_program(const stack::trace& frames, std::source_location otherwise) noexcept {
        add(kind::place_of_program, frames, otherwise);
    }

    // The same three as JSON: an array of frames, a string, a string. Not on a page that is written through.
    void json_stack(const stack::trace& frames) noexcept { add(kind::json_stack, frames, {}); }
    void json_symbol(const void* pc) noexcept;
    void json_place_of_program(const stack::trace& frames, std::source_location otherwise) noexcept {
        add(kind::json_place, frames, otherwise);
    }

    // The whole text. Not on a page that is written through.
    std::string finish();

private:
    enum class kind : std::uint8_t { stack, symbol, place_of_program, json_stack, json_symbol, json_place };
    struct item {
        std::size_t text_before;  // where in the text it stands
        std::size_t first;        // index of its first frame
        std::uint32_t frames;
        kind what;
        std::source_location otherwise;
    };

    void add(kind what, const stack::trace& frames, std::source_location otherwise) noexcept;
    static void print(
        platform::text_writer& out, kind what, const stack::trace& frames, std::source_location otherwise) noexcept;

    bool later_ = false;
    std::string text_;
    std::vector<void*> frames_;
    std::vector<item> items_;
    platform::text_writer own_{-1};
    platform::text_writer& out_;
};

}  // namespace dunlin::observe
