// trace_sink.h - where a trace's blocks go (trace_file.cpp): a file, or a text in memory.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <ctime>
#include <new>
#include <string>
#include <sys/types.h>
#include <unistd.h>

namespace dunlin::inline v0_1::observe {

class sink {
public:
    virtual bool write(const void* from, std::size_t bytes) noexcept = 0;

protected:
    ~sink() = default;
};

// While this lives, a write beyond the limit on the size of files fails (EFBIG), as one that finds no space does. It
// sends no SIGXFSZ, which would end the process.
class without_size_signal {
public:
    without_size_signal() noexcept {
        sigemptyset(&one_);
        sigaddset(&one_, SIGXFSZ);
        pthread_sigmask(SIG_BLOCK, &one_, &before_);
    }
    ~without_size_signal() {
        if (sigismember(&before_, SIGXFSZ)) return;
        if (exceeded) {
            const timespec now{};
            sigtimedwait(&one_, nullptr, &now);  // the kernel has sent it to this thread
        }
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    without_size_signal(const without_size_signal&) = delete;
    without_size_signal& operator=(const without_size_signal&) = delete;

    bool exceeded = false;

private:
    sigset_t one_, before_;
};

class file_sink final : public sink {
public:
    bool write(const void* from, std::size_t bytes) noexcept override {
        without_size_signal limit;
        const char* at = static_cast<const char*>(from);
        while (bytes != 0) {
            const ssize_t n = ::write(fd, at, bytes);
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) {
                error = n < 0 ? errno : ENOSPC;
                limit.exceeded = error == EFBIG;
                return false;
            }
            at += n;
            bytes -= static_cast<std::size_t>(n);
        }
        return true;
    }
    int fd = -1;
    int error = 0;
};

class text_sink final : public sink {
public:
    bool write(const void* from, std::size_t bytes) noexcept override {
        try {
            text.append(static_cast<const char*>(from), bytes);
            return true;
        } catch (const std::bad_alloc&) {
            return false;
        }
    }
    std::string text;
};

}  // namespace dunlin::observe
