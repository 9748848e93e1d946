#include "observe/page.h"

#include <algorithm>
#include <new>
#include <string_view>

#include "observe/dump_json.h"
#include "observe/frames.h"
#include "sched/preempt/crash.h"

namespace dunlin::inline v0_1::observe {

namespace {

constexpr std::size_t bytes_each = 256, items_each = 2, frames_each = 12;  // about what one goroutine takes

}  // namespace

void page::reserve(std::size_t goroutines) noexcept {
    try {
        text_.reserve(goroutines * bytes_each);
        items_.reserve(goroutines * items_each);
        frames_.reserve(goroutines * frames_each);
    } catch (const std::bad_alloc&) {
    }
}

namespace {

stack::trace only(const void* pc) noexcept {
    stack::trace one;
    one.pc[0] = const_cast<void*>(pc);
    one.size = 1;
    return one;
}

// What `print` prints, as a JSON string.
template <class F>
void quoted(platform::text_writer& out, F print) noexcept {
    std::string text;
    {
        platform::text_writer into(text);
        print(into);
    }
    write_json_string(out, text);
}

void print_json_trace(platform::text_writer& out, const stack::trace& frames) noexcept {
    out << '[';
    bool another = false;
    for_each_frame(frames, [&](const shown_frame& f) {
        out << (another ? ", {\"pc\": " : "{\"pc\": ");
        write_json_string(out, f.pc);
        out << ", \"function\": ";
        write_json_string(out, f.function);
        if (!f.place.empty()) {
            out << ", \"at\": ";
            write_json_string(out, f.place);
        }
        out << '}';
        another = true;
    });
    out << ']';
}

}  // namespace

void page::symbol(const void* pc) noexcept { add(kind::symbol, only(pc), {}); }
void page::json_symbol(const void* pc) noexcept { add(kind::json_symbol, only(pc), {}); }

void page::add(kind what, const stack::trace& frames, std::source_location otherwise) noexcept {
    if (!later_) return print(out_, what, frames, otherwise);
    try {
        own_.flush();
        const std::size_t first = frames_.size();
        frames_.insert(frames_.end(), frames.pc, frames.pc + frames.size);
        items_.push_back({text_.size(), first, static_cast<std::uint32_t>(frames.size), what, otherwise});
    } catch (const std::bad_alloc&) {
    }
}

void page::print(
    platform::text_writer& out, kind what, const stack::trace& frames, std::source_location otherwise) noexcept {
    switch (what) {
    case kind::stack: return stack::print_trace(out, frames);
    case kind::symbol: return stack::print_symbol(out, frames.pc[0]);
    case kind::place_of_program:
        if (!stack::print_first_of_program(out, frames)) sched::print_where(out, otherwise);
        return;
    case kind::json_stack: return print_json_trace(out, frames);
    case kind::json_symbol:
    case kind::json_place: {
        const kind as_text = what == kind::json_symbol ? kind::symbol : kind::place_of_program;
        return quoted(out, [&](platform::text_writer& into) { print(into, as_text, frames, otherwise); });
    }
    }
}

std::string page::finish() {
    own_.flush();
    std::string whole;
    {
        platform::text_writer out(whole);
        std::size_t at = 0;
        for (const item& i : items_) {
            out << std::string_view(text_).substr(at, i.text_before - at);
            at = i.text_before;
            stack::trace frames;
            frames.size = i.frames;
            std::copy_n(frames_.begin() + static_cast<std::ptrdiff_t>(i.first), i.frames, frames.pc);
            print(out, i.what, frames, i.otherwise);
        }
        out << std::string_view(text_).substr(at);
    }
    return whole;
}

}  // namespace dunlin::observe
