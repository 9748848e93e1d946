// hogs.h - goroutines that compute beside a test, and call nothing.
#pragma once

#include <atomic>

#include <dunlin/dunlin.hpp>

namespace preempt_support {

// Loops that are stopped all the time, as long as it lives. On a goroutine.
class hogs {
public:
    explicit hogs(int n) {
        for (int i = 0; i < n; ++i) {
            done_.go([over = &over_] {
                while (!over->load(std::memory_order_relaxed)) {}
            });
        }
    }
    ~hogs() {
        over_ = true;
        done_.wait();
    }
    hogs(const hogs&) = delete;
    hogs& operator=(const hogs&) = delete;

private:
    std::atomic<bool> over_{false};
    dunlin::wait_group done_;
};

}  // namespace preempt_support
