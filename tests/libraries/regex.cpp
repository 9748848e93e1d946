// regex.cpp - std::regex, which recurses once or more for each character, and plain deep recursion: 6 MiB of stack, as
// on a thread.
#include <regex>

#include "libraries/library.h"

namespace {

[[gnu::noinline]] std::uint64_t deep(int depth) {
    volatile unsigned char frame[960];
    frame[0] = static_cast<unsigned char>(depth);
    return depth == 0 ? 0 : deep(depth - 1) + 1 + (frame[0] == static_cast<unsigned char>(depth) ? 0 : 1);
}

}  // namespace

int main() {
    libraries::program p("std::regex of libstdc++ " + std::to_string(__GLIBCXX__) + ", and deep recursion");
    const std::regex alternatives("(a|b)*"), path("/files/(.*)");
    libraries::in_goroutines({.goroutines = 16, .rounds = 4}, [&](int, int) {
        const std::string text(7000, 'a');
        libraries::expect(std::regex_match(text, alternatives), "7000 characters do not match");
        libraries::expect(!std::regex_match(text + "c", alternatives), "what should not match does");
        std::smatch parts;
        const std::string name = "/files/" + text;
        libraries::expect(std::regex_match(name, parts, path) && parts[1].length() == 7000, "the path does not match");
    });
    libraries::in_goroutines({.goroutines = 100, .rounds = 2},
        [](int, int) { libraries::expect(deep(6000) == 6000, "the recursion came back with another number"); });
    return p.result();
}
