// libfuzzer.cpp - the targets of targets.h for libFuzzer; made by clang, beside AddressSanitizer (./dev fuzz parse):
//     parse_fuzz --target=address [libFuzzer's options] NEW tests/parse/corpus/address
// What it finds is written to the first folder, or as crash-* here.
#include "parse/targets.h"

namespace {
const parse::target* chosen = nullptr;
}

// libFuzzer itself passes over what begins with two hyphens.
extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
    constexpr std::string_view option = "--target=";
    for (int i = 1; i < *count; ++i) {
        const std::string_view a = (*arguments)[i];
        if (!a.starts_with(option)) continue;
        for (const parse::target& t : parse::targets) {
            if (a.substr(option.size()) == t.name) chosen = &t;
        }
    }
    if (chosen != nullptr) return 0;
    std::fprintf(stderr, "parse_fuzz: which target? One of");
    for (const parse::target& t : parse::targets) std::fprintf(stderr, " --target=%s", t.name);
    std::fprintf(stderr, "\n");
    std::_Exit(64);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    chosen->run({reinterpret_cast<const char*>(data), size});
    return 0;
}
