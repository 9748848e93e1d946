// libfuzzer.cpp - a target (PARSE_TARGET) for libFuzzer; with clang:
//     cmake --build build/X --target parse_fuzz_address &&
//     build/X/tests/parse/parse_fuzz_address NEW tests/parse/corpus/address
// What it finds is written to the first folder, or as crash-* here.
#include "parse/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    parse::PARSE_TARGET({reinterpret_cast<const char*>(data), size});
    return 0;
}
