// demangle.h - a C++ name as a reader knows it.
#pragma once

#include <dunlin/config.hpp>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <memory>
#include <string_view>

namespace dunlin::inline v0_1::platform {

struct free_text {
    void operator()(char* text) const noexcept { std::free(text); }
};
using demangled_text = std::unique_ptr<char, free_text>;

// "_ZN6dunlin4v0_15mutex4lockEv" -> "dunlin::mutex::lock()": without the namespace of the version, which no program
// writes. Null: the name is not mangled, or there is no memory. Allocates.
inline demangled_text demangled(const char* mangled) noexcept {
    int status = 0;
    demangled_text text(abi::__cxa_demangle(mangled, nullptr, nullptr, &status));
    if (text == nullptr) return text;
    constexpr std::string_view with_version = "dunlin::" DUNLIN_ABI_NAME "::";
    constexpr std::size_t kept = std::string_view("dunlin::").size();
    char* to = text.get();
    for (const char* from = to; *from != '\0';) {
        const bool skip = std::strncmp(from, with_version.data(), with_version.size()) == 0;
        const std::size_t n = skip ? kept : 1;
        std::memmove(to, from, n);
        to += n;
        from += skip ? with_version.size() : 1;
    }
    *to = '\0';
    return text;
}

}  // namespace dunlin::platform
