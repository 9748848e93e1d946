// What another version of the library shows of itself, and nothing else: a note that leads to a descriptor
// (src/platform/usable.h).
#include <cstdint>

extern "C" {

struct other_copy {
    std::uint32_t version, in_use;
    void* forbid;
    void (*reached)();
    void (*own)();
};

[[gnu::visibility("hidden")]] void reached_and_own() {}
[[gnu::visibility("hidden"), gnu::used]] other_copy descriptor{907, 0, nullptr, reached_and_own, reached_and_own};

[[gnu::visibility("default")]] int copies_nothing(void*) { return 1; }
}

asm(R"(
    .pushsection .note.dunlin, "a", %note
    .balign 4
    .long 7, 4, 1
    .asciz "dunlin"
    .balign 4
    .long descriptor - .
    .popsection
)");
