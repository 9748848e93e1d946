// zlib.cpp - zlib: text is compressed and comes back.
#include <vector>
#include <zlib.h>

#include "libraries/library.h"

int main() {
    libraries::program p(std::string("zlib ") + zlibVersion());
    libraries::in_goroutines({.goroutines = 200, .rounds = 3}, [](int i, int round) {
        std::string text;
        for (int k = 0; k < 5000; ++k) text += std::to_string((i + 1) * (k + round)) + ' ';
        std::vector<unsigned char> packed(compressBound(text.size()));
        uLongf length = packed.size(), back = text.size();
        std::string again(text.size(), 0);
        libraries::expect(compress2(packed.data(), &length, reinterpret_cast<const Bytef*>(text.data()), text.size(),
            6) == Z_OK, "compress2");
        libraries::expect(uncompress(reinterpret_cast<Bytef*>(again.data()), &back, packed.data(), length) == Z_OK &&
            again == text, "another text comes back");
    });
    return p.result();
}
