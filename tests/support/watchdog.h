// watchdog.h - a thread that ends a test which hangs, after it has said what every goroutine waits for.
#pragma once

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>

#include <dunlin/runtime.hpp>

namespace support {

class watchdog {
public:
    explicit watchdog(std::string what, std::chrono::seconds limit = std::chrono::seconds(30))
        : what_(std::move(what)), limit_(limit), thread_([this] { watch(); }) {}
    watchdog(const watchdog&) = delete;
    watchdog& operator=(const watchdog&) = delete;
    ~watchdog() {
        {
            std::lock_guard guard(mutex_);
            done_ = true;
        }
        changed_.notify_one();
        thread_.join();
    }

private:
    void watch() {
        std::unique_lock lock(mutex_);
        if (changed_.wait_for(lock, limit_, [this] { return done_; })) return;
        std::fprintf(
            stderr, "watchdog: %s has not ended after %lld s\n", what_.c_str(), static_cast<long long>(limit_.count()));
        // The dump needs a runtime that works. If it does not come, the alarm does.
        std::signal(SIGALRM, SIG_DFL);
        alarm(10);
        dunlin::runtime::dump(std::cerr);
        std::cerr.flush();
        std::fflush(stdout);  // failures so far
        std::abort();
    }

    const std::string what_;
    const std::chrono::seconds limit_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool done_ = false;
    std::thread thread_;  // last: it uses the others
};

}  // namespace support
