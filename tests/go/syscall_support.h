// syscall_support.h - what the tests of calls that block share: the counts of hand-offs, errno, a pipe, a meeting, a
// goroutine that is always busy.
#pragma once

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <fcntl.h>
#include <mutex>
#include <unistd.h>

#include <dunlin/dunlin.hpp>

namespace syscall_support {

inline dunlin::runtime::hand_off_stats hand_offs() { return dunlin::runtime::stats().hand_offs; }

// Read anew each time: what a compiler takes for constant in a function is not, where the goroutine may go on on
// another thread.
[[gnu::noinline]] inline int errno_now() { return errno; }

struct descriptors {
    int read_end = -1, write_end = -1;
    descriptors() {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
        read_end = ends[0];
        write_end = ends[1];
    }
    ~descriptors() {
        close(read_end);
        close(write_end);
    }
    descriptors(const descriptors&) = delete;
    descriptors& operator=(const descriptors&) = delete;
};

// Each waits in the kernel until all have come: a thread each.
class meeting {
public:
    explicit meeting(int all) : all_(all) {}
    void wait_for_all() {
        std::unique_lock lock(mutex_);
        if (++here_ == all_) complete_.notify_all();
        complete_.wait(lock, [this] { return here_ == all_; });
    }

private:
    const int all_;
    int here_ = 0;
    std::mutex mutex_;
    std::condition_variable complete_;
};

// A goroutine that runs all the time, so that there is always one that wants a processor.
class busy {
public:
    busy() {
        done_.go([this] {
            while (!over_.load()) {
                turns_.fetch_add(1);
                dunlin::yield();
            }
        });
    }
    ~busy() {
        over_ = true;
        done_.wait();
    }
    busy(const busy&) = delete;
    busy& operator=(const busy&) = delete;
    long turns() const { return turns_.load(); }

private:
    std::atomic<bool> over_{false};
    std::atomic<long> turns_{0};
    dunlin::wait_group done_;
};

}  // namespace syscall_support
