// frames.h - the frames of a stack as a dump shows them, one by one, for reports that are not text.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "platform/text.h"
#include "stack/trace.h"

namespace dunlin::inline v0_1::observe {

struct shown_frame {
    std::string_view pc;        // "0x55d0c3"
    std::string_view function;  // "worker(int)", or "worker(int)+0x41 (app)" where there are no lines
    std::string_view place;     // "app.cpp:17", or empty
};

// f(shown_frame) for each, innermost first; the texts live as long as the call. Not while the world is stopped: it
// looks up names.
template <class F>
void for_each_frame(const stack::trace& frames, F f) {
    std::string text;
    {
        platform::text_writer into(text);
        stack::print_trace(into, frames);
    }
    // "    #2 0x55d0c3 worker(int) at app.cpp:17"
    std::string_view rest = text;
    while (!rest.empty()) {
        std::string_view line = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(line.size() + 1, rest.size()));
        const auto word = [&] {
            line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
            const std::string_view result = line.substr(0, line.find(' '));
            line.remove_prefix(std::min(result.size() + 1, line.size()));
            return result;
        };
        word();  // its number
        const std::string_view pc = word();
        std::size_t at = line.rfind(" at "), after = at + 4;
        if (at == line.npos) at = line.rfind(" near "), after = at + 6;
        f(shown_frame{pc, line.substr(0, at), at == line.npos ? std::string_view() : line.substr(after)});
    }
}

}  // namespace dunlin::observe
