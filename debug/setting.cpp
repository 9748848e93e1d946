// setting.cpp - DUNLIN_DEBUG=page=ADDRESS: if this library is linked, the core calls it at the beginning and at the end
// of each run(). The core knows no more of it than these two functions (dunlin/detail/page_hook.hpp).
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include <dunlin/debug.hpp>
#include <dunlin/detail/page_hook.hpp>

namespace {

namespace debug = dunlin::debug;

// The page of the current run(): there is one run() at a time, and only its main goroutine comes here.
std::optional<debug::server>& page() {
    static std::optional<debug::server> p;
    return p;
}

void say(const char* address, const std::string& sentence) {
    std::fprintf(stderr, "dunlin: DUNLIN_DEBUG=page=%s: %s\n", address, sentence.c_str());
}

void begin(const char* address) noexcept {
    try {
        debug::serve_options options;
        if (const char* token = std::getenv("DUNLIN_PAGE_TOKEN")) options.token = token;
        page().emplace(debug::serve(address, options));
        say(address, "the page of this program is at " + page()->url());
    } catch (const std::exception& e) {
        say(address, std::string("there is no page: ") + e.what());
    }
}

void end() noexcept { page().reset(); }

const bool registered = [] {
    dunlin::detail::set_page_hook({begin, end});
    return true;
}();

}  // namespace

// A program that links the library asks for this name. Otherwise the linker would leave this file out of a program that
// does not call the library.
extern "C" DUNLIN_API const char dunlin_debug_page = 0;
