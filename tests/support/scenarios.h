// scenarios.h - main() of a program of tests/crash: its first argument says which of its scenarios to run.
#pragma once

#include <cstdio>
#include <cstring>

namespace support {

struct scenario {
    const char* name;
    int (*run)();
};

template <std::size_t N>
int choose(int argc, char** argv, const scenario (&all)[N]) {
    for (const scenario& s : all) {
        if (argc == 2 && std::strcmp(argv[1], s.name) == 0) return s.run();
    }
    std::fprintf(stderr, "usage: %s SCENARIO, one of:\n", argv[0]);
    for (const scenario& s : all) std::fprintf(stderr, "    %s\n", s.name);
    return 64;
}

}  // namespace support
