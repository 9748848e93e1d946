// malloc.cpp - the process's allocator, libc's or one that is preloaded: blocks that are freed on other threads than
// they come from, goroutines that are preempted inside it all the time, and threads that come and go.
#include <cstring>

#include "libraries/library.h"

namespace {

struct block {
    unsigned char* bytes = nullptr;
    std::size_t size = 0;
    unsigned char fill = 0;
};

block make(std::uint64_t& random, std::size_t most) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    block b;
    b.size = 1 + (random >> 20) % most;
    b.fill = static_cast<unsigned char>(random >> 50);
    b.bytes = static_cast<unsigned char*>(std::malloc(b.size));
    std::memset(b.bytes, b.fill, b.size);
    return b;
}

void check_and_free(const block& b) {
    libraries::expect(b.bytes[0] == b.fill && b.bytes[b.size / 2] == b.fill && b.bytes[b.size - 1] == b.fill,
        "a block has other contents");
    std::free(b.bytes);
}

}  // namespace

int main() {
    const char* preloaded = std::getenv("LD_PRELOAD");
    libraries::program p(std::string("malloc: ") + (preloaded ? preloaded : "libc's"));
    libraries::in_goroutines({.goroutines = 6, .rounds = 2}, [](int seed, int) {
        dunlin::chan<block> blocks(64);
        dunlin::wait_group makers, takers, computing;
        std::atomic<bool> stop{false};
        // They never call the runtime: where they are preempted, it is inside malloc or free.
        for (int i = 0; i < 4; ++i) {
            computing.go([&, i] {
                std::uint64_t random = static_cast<std::uint64_t>(i);
                while (!stop) {
                    block some[32];
                    for (block& b : some) b = make(random, 2000);
                    for (const block& b : some) check_and_free(b);
                }
            });
        }
        for (int i = 0; i < 20; ++i) {
            makers.go([&, i] {
                std::uint64_t random = static_cast<std::uint64_t>(seed * 100 + i);
                for (int k = 0; k < 300; ++k) blocks.send(make(random, k % 100 == 0 ? 300'000 : 3000));
            });
            takers.go([&] {
                while (const std::optional<block> b = blocks.recv()) check_and_free(*b);
            });
            // Their threads end with them.
            makers.go([&, i] {
                if (i % 4 != 0) return;
                dunlin::lock_os_thread();
                std::uint64_t random = static_cast<std::uint64_t>(seed * 100 + i);
                for (int k = 0; k < 20; ++k) blocks.send(make(random, 1000));
            });
        }
        makers.wait();
        blocks.close();
        takers.wait();
        stop = true;
        computing.wait();
    });
    return p.result();
}
