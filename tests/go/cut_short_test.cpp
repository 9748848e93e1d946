// Calls that move much on a thread that blocks return all of it, though goroutines compute beside them: as threads'
// calls do, to which no signal is sent.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <dunlin/net.hpp>

#include "go/hogs.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;
using preempt_support::hogs;

namespace {

// Where neither can go on, glibc no longer says which call it makes (stack/interrupted_call.h).
bool can_go_on() {
#if defined(__x86_64__) && defined(__GLIBC__)
    int minor = 0;
    return std::sscanf(gnu_get_libc_version(), "2.%d", &minor) == 1 && minor <= 40;
#else
    return false;
#endif
}

// What fits into the buffer of one that writes before anything is read: the kernel counts its own part, too.
std::size_t room_in(int fd) {
    int bytes = 0;
    socklen_t size = sizeof bytes;
    getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &size);
    return static_cast<std::size_t>(bytes) / 4;
}

// The two ends of a connection in blocking mode, as plain descriptors.
struct blocking_pair {
    int write_end = -1, read_end = -1;
    explicit blocking_pair(bool tcp) {
        if (tcp) {
            auto listener = dunlin::net::listen("tcp", "127.0.0.1:0");
            auto one = dunlin::net::dial("tcp", listener.local_address());
            auto other = listener.accept();
            write_end = fcntl(one.native_handle(), F_DUPFD_CLOEXEC, 0);
            read_end = fcntl(other.native_handle(), F_DUPFD_CLOEXEC, 0);
        } else {
            int ends[2];
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
            write_end = ends[0], read_end = ends[1];
        }
        const int much = 4 << 20;  // so that a thread copies for long before it sleeps
        setsockopt(write_end, SOL_SOCKET, SO_SNDBUF, &much, sizeof much);
        for (const int end : {write_end, read_end}) fcntl(end, F_SETFL, fcntl(end, F_GETFL) & ~O_NONBLOCK);
    }
    ~blocking_pair() {
        close(write_end);
        close(read_end);
    }
    blocking_pair(const blocking_pair&) = delete;
    blocking_pair& operator=(const blocking_pair&) = delete;
};

class CutShort : public support::each_p {};
EACH_P(CutShort);

// ThreadSanitizer's functions hold the signal back until the call has ended with a part; and without preemption by
// signals there is nothing to see.
TEST_P(CutShort, NothingThatIsWrittenAndNothingThatIsWaitedForIs) {
    if (support::under_thread) GTEST_SKIP() << "the sanitizer runs the handler after the call";
    for (const bool tcp : {true, false}) {
        run([&] {
            constexpr std::size_t size = 8 << 20;
            const blocking_pair pair(tcp);
            const hogs beside(static_cast<int>(procs()) + 1);
            const auto end = std::chrono::steady_clock::now() + (support::sanitized ? 1500ms : 700ms);
            int writes = 0, parts_written = 0, parts_read = 0, wrong = 0;
            dunlin::wait_group both;
            both.go([&] {
                std::vector<char> data(size);
                for (std::size_t i = 0; i < size; ++i) data[i] = static_cast<char>(i * 7 >> 5);
                ssize_t moved = 1;
                for (; moved > 0 && std::chrono::steady_clock::now() < end; ++writes) {
                    std::size_t n = 0;
                    for (int calls = 0; n < size && moved > 0; ++calls) {
                        moved = writes % 2 == 0 ? write(pair.write_end, data.data() + n, size - n)
                                                : send(pair.write_end, data.data() + n, size - n, 0);
                        n += static_cast<std::size_t>(moved);
                        parts_written += calls != 0;
                    }
                }
                EXPECT_GT(moved, 0);
                shutdown(pair.write_end, SHUT_WR);  // the reader ends
            });
            both.go([&] {
                std::vector<char> data(size);
                for (std::size_t n = 0;;) {
                    const ssize_t moved = recv(pair.read_end, data.data() + n, size - n, MSG_WAITALL);
                    ASSERT_GE(moved, 0);
                    if (moved == 0) break;
                    parts_read += n != 0;
                    n += static_cast<std::size_t>(moved);
                    if (n != size) continue;
                    for (std::size_t i = 0; i < size; i += 1021) wrong += data[i] != static_cast<char>(i * 7 >> 5);
                    n = 0;
                }
            });
            both.wait();
            RecordProperty("writes", writes);
            if (can_go_on()) {
                EXPECT_EQ(parts_written, 0) << "of " << writes << (tcp ? ", TCP" : ", Unix");
                EXPECT_EQ(parts_read, 0) << "of " << writes << (tcp ? ", TCP" : ", Unix");
            }
            EXPECT_EQ(wrong, 0);
        });
    }
}

// What is short for another reason stays so.
TEST_P(CutShort, ThatTheSocketDoesNotBlockIsStillSeen) {
    run([&] {
        const blocking_pair pair(false);
        fcntl(pair.write_end, F_SETFL, fcntl(pair.write_end, F_GETFL) | O_NONBLOCK);
        const hogs beside(static_cast<int>(procs()) + 1);
        std::vector<char> data(64 << 20);
        for (int i = 0; i < 20; ++i) {
            const ssize_t moved = write(pair.write_end, data.data(), data.size());
            ASSERT_GT(moved, 0);
            ASSERT_LT(moved, static_cast<ssize_t>(data.size()));
            for (ssize_t left = moved; left > 0;) left -= read(pair.read_end, data.data(), data.size());
        }
    });
}

// A datagram is all that there is, however much is asked for.
TEST_P(CutShort, ADatagramIsNotContinuedByTheNext) {
    run([&] {
        int ends[2];
        ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends), 0);
        const int much = 4 << 20;
        setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &much, sizeof much);
        const hogs beside(static_cast<int>(procs()) + 1);
        constexpr ssize_t size = 40'000;
        const std::size_t at_once = std::clamp<std::size_t>(room_in(ends[0]) / size, 1, 8);
        std::vector<char> data(1 << 20);
        const auto end = std::chrono::steady_clock::now() + 500ms;
        for (int wrong = 0; wrong == 0 && std::chrono::steady_clock::now() < end;) {
            for (std::size_t i = 0; i < at_once; ++i) ASSERT_EQ(send(ends[0], data.data(), size, 0), size);
            for (std::size_t i = 0; i < at_once; ++i) {
                wrong += recv(ends[1], data.data(), data.size(), MSG_WAITALL) != size;
            }
            EXPECT_EQ(wrong, 0);
        }
        for (const int e : ends) close(e);
    });
}

// A look at what is queued begins at its head each time.
TEST_P(CutShort, WhatIsLookedAtIsWhatStandsThere) {
    run([&] {
        const blocking_pair pair(false);
        const std::size_t size = room_in(pair.write_end);
        std::vector<char> data(size), seen(2 * size);
        for (std::size_t i = 0; i < size; ++i) data[i] = static_cast<char>(i * 7 >> 5);
        ASSERT_EQ(write(pair.write_end, data.data(), size), static_cast<ssize_t>(size));
        shutdown(pair.write_end, SHUT_WR);
        const hogs beside(static_cast<int>(procs()) + 1);
        const auto end = std::chrono::steady_clock::now() + 500ms;
        for (bool right = true; right && std::chrono::steady_clock::now() < end;) {
            const ssize_t n = recv(pair.read_end, seen.data(), seen.size(), MSG_PEEK | MSG_WAITALL);
            ASSERT_GT(n, 0);
            right = n <= static_cast<ssize_t>(size) && std::equal(data.begin(), data.begin() + n, seen.begin());
            EXPECT_TRUE(right) << "of " << n;
        }
    });
}

// The part of a write that a limit of the file leaves is returned without a signal; a further one would get it.
TEST_P(CutShort, AFileAtItsLimitGetsNoSecondWrite) {
    static std::atomic<int> signals;
    signals = 0;
    struct sigaction counts {}, before {};
    counts.sa_handler = [](int) { signals.fetch_add(1); };
    sigaction(SIGXFSZ, &counts, &before);
    rlimit usual{};
    getrlimit(RLIMIT_FSIZE, &usual);
    run([&] {
        constexpr rlim_t most = 32 << 20;
        const std::vector<char> data(2 * most);
        const hogs beside(static_cast<int>(procs()) + 1);
        const rlimit small{most, usual.rlim_max};
        for (int i = 0; i < 6; ++i) {
            const int file = memfd_create("limited", MFD_CLOEXEC);
            setrlimit(RLIMIT_FSIZE, &small);
            const ssize_t written = write(file, data.data(), data.size());
            setrlimit(RLIMIT_FSIZE, &usual);
            EXPECT_EQ(written, static_cast<ssize_t>(most));
            close(file);
        }
    });
    sigaction(SIGXFSZ, &before, nullptr);
    EXPECT_EQ(signals, 0);
}

// Nobody reads: only the program's own signal can end the call.
TEST_P(CutShort, ASignalOfTheProgramsEndsTheCall) {
    if (support::under_thread) GTEST_SKIP() << "the sanitizer runs the handler after the call";
    struct sigaction ends_calls {}, before {};
    ends_calls.sa_handler = [](int) {};
    sigaction(SIGUSR2, &ends_calls, &before);
    run([&] {
        const std::vector<char> data(64 << 20);
        const hogs beside(static_cast<int>(procs()) + 1);
        for (int i = 0; i < 10; ++i) {
            const blocking_pair pair(false);
            std::atomic<pid_t> writer{gettid()};  // for the time of the call it stays on this thread
            std::thread alarm([&] {
                do std::this_thread::sleep_for(20ms);
                while (writer != 0 && syscall(SYS_tgkill, getpid(), writer.load(), SIGUSR2) == 0);
            });
            const ssize_t moved = write(pair.write_end, data.data(), data.size());
            writer = 0;
            dunlin::blocking([&] { alarm.join(); });
            EXPECT_GT(moved, 0);
            EXPECT_LT(moved, static_cast<ssize_t>(data.size()));
        }
    });
    sigaction(SIGUSR2, &before, nullptr);
}

// What is queued before an error is read first, as by a thread: all of it.
TEST_P(CutShort, AReaderGetsAllThatWasSentBeforeAReset) {
    if (support::under_thread) GTEST_SKIP() << "the sanitizer runs the handler after the call";
    run([&] {
        constexpr std::size_t size = 2 << 20;
        const std::vector<char> data(size);
        const hogs beside(static_cast<int>(procs()) + 1);
        for (int i = 0; i < (support::sanitized ? 10 : 40); ++i) {
            blocking_pair pair(false);
            ASSERT_EQ(send(pair.read_end, "unread", 6, 0), 6);  // so that its end is a reset
            dunlin::wait_group sending;
            sending.go([&] {
                for (std::size_t n = 0; n < size;) {
                    const ssize_t moved = write(pair.write_end, data.data() + n, size - n);
                    if (moved <= 0) break;
                    n += static_cast<std::size_t>(moved);
                }
                close(std::exchange(pair.write_end, -1));
            });
            std::vector<char> got(size);
            const ssize_t n = recv(pair.read_end, got.data(), size, MSG_WAITALL);
            sending.wait();
            if (can_go_on()) {
                EXPECT_EQ(n, static_cast<ssize_t>(size));
            }
        }
    });
}

// An error of the connection is the next call's: it must not be lost in what goes on.
TEST_P(CutShort, AResetIsSeenByTheNextCall) {
    run([&] {
        constexpr std::size_t size = 8 << 20;
        const std::vector<char> data(size);
        const hogs beside(static_cast<int>(procs()) + 1);
        for (int i = 0; i < (support::sanitized ? 10 : 40); ++i) {
            auto pair = std::make_unique<blocking_pair>(true);
            dunlin::wait_group sending;
            sending.go([&] {
                for (std::size_t n = 0; n < size;) {
                    const ssize_t moved = write(pair->write_end, data.data() + n, size - n);
                    if (moved <= 0) break;
                    n += static_cast<std::size_t>(moved);
                }
                dunlin::sleep_for(5ms);
                const linger reset{1, 0};
                setsockopt(pair->write_end, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
                dup2(pair->read_end, pair->write_end);  // closes it
            });
            std::vector<char> got(2 * size);
            std::size_t all = 0;
            ssize_t n;
            while ((n = recv(pair->read_end, got.data(), got.size(), MSG_WAITALL)) > 0) {
                all += static_cast<std::size_t>(n);
            }
            const int error = errno;
            sending.wait();
            EXPECT_EQ(n, -1) << "after " << all << " bytes: the end of the file instead of the reset";
            EXPECT_EQ(error, ECONNRESET);
        }
    });
}

}  // namespace
