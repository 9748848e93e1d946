// comes_true.h - for tests without a runtime: waits for a state that must come.
#pragma once

#include <chrono>
#include <thread>

namespace support {

// False: not within ten seconds, so never.
bool comes_true(const auto& condition) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > until) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
}

}  // namespace support
