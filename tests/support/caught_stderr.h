// caught_stderr.h - stderr, from construction to destruction, for tests of what the runtime says by itself.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

namespace support {

class caught_stderr {
public:
    caught_stderr() {
        EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0);
        kept_ = dup(2);
        dup2(ends_[1], 2);
    }
    ~caught_stderr() {
        dup2(kept_, 2);
        for (const int fd : {ends_[0], ends_[1], kept_}) close(fd);
    }
    caught_stderr(const caught_stderr&) = delete;
    caught_stderr& operator=(const caught_stderr&) = delete;

    // All that came, when `text` is in it, so many times. The watchdog ends it if it never is.
    const std::string& until(const std::string& text, std::size_t times = 1) {
        const auto found = [&] {
            std::size_t n = 0;
            for (std::size_t at = all_.find(text); at != all_.npos; at = all_.find(text, at + 1)) ++n;
            return n;
        };
        while (found() < times) read_some(-1);
        return all_;
    }
    // What comes for so long.
    const std::string& during(std::chrono::milliseconds d) {
        const auto end = std::chrono::steady_clock::now() + d;
        for (auto now = end - d; now < end; now = std::chrono::steady_clock::now()) {
            read_some(static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(end - now).count()));
        }
        return all_;
    }

private:
    void read_some(int timeout_ms) {
        pollfd p{ends_[0], POLLIN, 0};
        if (poll(&p, 1, timeout_ms) != 1) return;
        char buffer[4096];
        const ssize_t n = read(ends_[0], buffer, sizeof buffer);
        if (n > 0) all_.append(buffer, static_cast<std::size_t>(n));
    }

    int ends_[2] = {-1, -1}, kept_ = -1;
    std::string all_;
};

}  // namespace support
