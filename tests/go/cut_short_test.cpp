// Calls that move much on a thread that blocks return all of it, though goroutines compute beside them: as threads'
// calls do, to which no signal is sent.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <fcntl.h>
#include <memory>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <dunlin/net.hpp>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

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

class CutShort : public support::each_p {
protected:
    struct hogs {
        std::atomic<bool> over{false};
        dunlin::wait_group running;
        explicit hogs(unsigned n) {
            for (unsigned i = 0; i < n; ++i) {
                running.go([this] {
                    while (!over.load(std::memory_order_relaxed)) {}
                });
            }
        }
        ~hogs() {
            over = true;
            running.wait();
        }
        hogs(const hogs&) = delete;
        hogs& operator=(const hogs&) = delete;
    };
};
EACH_P(CutShort);

// ThreadSanitizer's functions hold the signal back until the call has ended with a part; and without preemption by
// signals there is nothing to see.
TEST_P(CutShort, NothingThatIsWrittenAndNothingThatIsWaitedForIs) {
    if (support::under_thread) GTEST_SKIP() << "the sanitizer runs the handler after the call";
    for (const bool tcp : {true, false}) {
        run([&] {
            constexpr std::size_t size = 8 << 20;
            const blocking_pair pair(tcp);
            const hogs beside(procs() + 1);
            const auto end = std::chrono::steady_clock::now() + (support::sanitized ? 1500ms : 700ms);
            int writes = 0, parts_written = 0, parts_read = 0, wrong = 0;
            dunlin::wait_group both;
            both.go([&] {
                std::vector<char> data(size);
                for (std::size_t i = 0; i < size; ++i) data[i] = static_cast<char>(i * 7 >> 5);
                for (; std::chrono::steady_clock::now() < end; ++writes) {
                    std::size_t n = 0;
                    for (int calls = 0; n < size; ++calls) {
                        const ssize_t moved = writes % 2 == 0 ? write(pair.write_end, data.data() + n, size - n)
                                                              : send(pair.write_end, data.data() + n, size - n, 0);
                        ASSERT_GT(moved, 0);
                        n += static_cast<std::size_t>(moved);
                        parts_written += calls != 0;
                    }
                }
                shutdown(pair.write_end, SHUT_WR);
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
#if defined(__x86_64__)
            // Elsewhere such a call cannot go on (stack/interrupted_call.h).
            EXPECT_EQ(parts_written, 0) << "of " << writes << (tcp ? ", TCP" : ", Unix");
            EXPECT_EQ(parts_read, 0) << "of " << writes << (tcp ? ", TCP" : ", Unix");
#endif
            EXPECT_EQ(wrong, 0);
        });
    }
}

// What is short for another reason stays so.
TEST_P(CutShort, ThatTheSocketDoesNotBlockIsStillSeen) {
    run([&] {
        const blocking_pair pair(false);
        fcntl(pair.write_end, F_SETFL, fcntl(pair.write_end, F_GETFL) | O_NONBLOCK);
        const hogs beside(procs() + 1);
        std::vector<char> data(64 << 20);
        for (int i = 0; i < 20; ++i) {
            const ssize_t moved = write(pair.write_end, data.data(), data.size());
            ASSERT_GT(moved, 0);
            ASSERT_LT(moved, static_cast<ssize_t>(data.size()));
            for (ssize_t left = moved; left > 0;) left -= read(pair.read_end, data.data(), data.size());
        }
    });
}

}  // namespace
