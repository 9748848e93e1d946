// A library whose constructor calls the function whose address is in the environment.
#include <cstdint>
#include <cstdlib>

namespace {

[[gnu::constructor]] void call_back() {
    if (const char* address = std::getenv("DUNLIN_TEST_CALLBACK")) {
        reinterpret_cast<void (*)()>(static_cast<std::uintptr_t>(std::strtoull(address, nullptr, 10)))();
    }
}

}  // namespace
