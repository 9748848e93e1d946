// Pipes and FIFOs: ports of Go's own tests of os.File, under Go's names.
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <dunlin/fs.hpp>

#include "platform/thread.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;
using dunlin::fs::file;

namespace {

class GoOs : public support::each_p {};
EACH_P(GoOs);

class temporary_directory {
public:
    temporary_directory() {
        char name[] = "/tmp/dunlin_os_XXXXXX";
        if (mkdtemp(name) == nullptr) std::abort();
        path_ = name;
    }
    ~temporary_directory() {
        std::error_code ec;
        std::filesystem::remove_all(path_, ec);
    }
    std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

private:
    std::filesystem::path path_;
};

// ---- NET-18: go1.24 src/os/pipe_test.go -----------------------------------------------------------------------------

TEST_P(GoOs, ClosedPipeRaceRead) {
    run([] {
        auto [r, w] = dunlin::fs::pipe();
        dunlin::go([&r = r] {
            dunlin::sleep_for(20ms);
            r.close();
        });
        std::error_code ec;
        char c;
        EXPECT_EQ(r.read_some(&c, 1, ec), 0u);
        EXPECT_EQ(ec, dunlin::errc::closed);
    });
}

TEST_P(GoOs, ClosedPipeRaceWrite) {
    run([] {
        // What overloads a pipe without a reader.
        const std::string much(std::stoul(dunlin::fs::read_file("/proc/sys/fs/pipe-max-size")) + 1, 'x');
        auto [r, w] = dunlin::fs::pipe();
        dunlin::go([&w = w] {
            dunlin::sleep_for(20ms);
            w.close();
        });
        std::error_code ec;
        EXPECT_LT(w.write_all(much, ec), much.size());
        EXPECT_EQ(ec, dunlin::errc::closed);
    });
}

void close_with_blocking_read(dunlin::byte_stream& r, dunlin::byte_stream& w) {
    dunlin::chan<bool> entering, done;
    dunlin::go([&] {
        char c;
        entering.close();
        std::error_code ec;
        EXPECT_EQ(r.read_some(&c, 1, ec), 0u);
        EXPECT_TRUE(!ec || ec == dunlin::errc::closed) << ec.message();
        done.close();
    });
    entering.recv();
    dunlin::sleep_for(5ms);
    r.close();
    w.close();
    done.recv();
}

// CloseWithBlockingReadByNewFile. A pipe in blocking mode that is adopted is set to O_NONBLOCK.
TEST_P(GoOs, CloseWithBlockingReadByNewFile) {
    run([] {
        int ends[2];
        ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
        dunlin::byte_stream r = dunlin::byte_stream::adopt(ends[0]), w = dunlin::byte_stream::adopt(ends[1]);
        EXPECT_NE(fcntl(ends[0], F_GETFL) & O_NONBLOCK, 0);
        close_with_blocking_read(r, w);
    });
}

// CloseWithBlockingReadByFd. In Go asking for the number puts the file into blocking mode; here it stays as it is.
TEST_P(GoOs, CloseWithBlockingReadByFd) {
    run([] {
        auto [r, w] = dunlin::fs::pipe();
        EXPECT_NE(fcntl(r.native_handle(), F_GETFL) & O_NONBLOCK, 0);
        close_with_blocking_read(r, w);
    });
}

TEST_P(GoOs, PipeEOF) {
    run([] {
        auto [r, w] = dunlin::fs::pipe();
        dunlin::go([&w = w] {
            for (int i = 0; i < 3; ++i) {
                dunlin::sleep_for(1ms);
                w.write_all("line " + std::to_string(i) + '\n');
            }
            dunlin::sleep_for(1ms);
            w.close();
        });
        std::string text;
        char buffer[100];
        while (const std::size_t n = r.read_some(buffer)) text.append(buffer, n);
        EXPECT_EQ(text, "line 0\nline 1\nline 2\n");
    });
}

// ---- NET-19: go1.24 src/os/os_test.go -------------------------------------------------------------------------------

std::size_t most_pipes(std::size_t wanted) {
    rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    return std::min<std::size_t>(wanted, (files.rlim_cur - 50) / 2);
}

TEST_P(GoOs, PipeThreads) {
    const std::size_t count = most_pipes(1000);
    ASSERT_GT(count, 100u);
    // A reader that waits takes no thread. Some are made all the same: the first use of a stack may sleep in a page
    // fault, above all under AddressSanitizer, for the kernel's lock of the address space; the monitor sees it as a
    // call that lasts. So the readers begin one after the other, and then they all wait at once.
    static constexpr unsigned enough = support::sanitized ? 200 : 50;
    run([count] {
        std::vector<dunlin::fs::pipe> pipes(count);
        dunlin::chan<bool> reading(static_cast<std::ptrdiff_t>(count)), done(static_cast<std::ptrdiff_t>(count));
        for (dunlin::fs::pipe& p : pipes) {
            dunlin::go([&p, reading, done] {
                char c = 0;
                reading.send(true);
                EXPECT_EQ(p.read_end.read_some(&c, 1), 1u);
                EXPECT_EQ(c, 'x');
                p.read_end.close();
                done.send(true);
            });
            reading.recv();
        }
        EXPECT_LT(dunlin::platform::count_threads(), enough);
        for (dunlin::fs::pipe& p : pipes) {
            p.write_end.write_all("x");
            p.write_end.close();
            done.recv();
        }
        EXPECT_LT(dunlin::platform::count_threads(), enough);
    });
}

// go1.24 src/os/os_test.go: whatever the race, the ends are errors or bytes, never a hang.
TEST_P(GoOs, PipeIOCloseRace) {
    run([] {
        for (int i = 0; i < support::rounds(100); ++i) {
            auto [r, w] = dunlin::fs::pipe();
            dunlin::wait_group done;
            done.go([&w = w] {
                for (std::error_code ec; !ec;) w.write_some("hi", ec);
            });
            done.go([&r = r] {
                char buffer[3];
                for (std::error_code ec; !ec;) {
                    if (r.read_some(buffer, ec) == 0) break;
                }
            });
            done.go([&r = r, &w = w] {
                dunlin::yield();
                r.close();
                w.close();
            });
            done.wait();
        }
    });
}

// ---- NET-24: go1.24 src/os/fifo_test.go, timeout_test.go ------------------------------------------------------------

TEST_P(GoOs, FifoEOF) {
    temporary_directory dir;
    const auto path = dir / "fifo";
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    run([&] {
        // Closed and opened again: each time an end of its own.
        for (int i = 0; i < 3; ++i) {
            auto opened = dunlin::spawn([&] { return file::open(path); });
            file w = file::open(path, dunlin::fs::open_mode::write);
            file r = opened.get();
            dunlin::go([&w] {
                dunlin::sleep_for(1ms);
                w.write("text");
                dunlin::sleep_for(1ms);
                w.close();
            });
            std::string text;
            char buffer[100];
            while (const std::size_t n = r.read_some(buffer)) text.append(buffer, n);
            EXPECT_EQ(text, "text");
        }
    });
}

// A reader that stays open meets the end, and the next writer.
TEST_P(GoOs, FIFONonBlockingEOF) {
    temporary_directory dir;
    const auto path = dir / "fifo";
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    run([&] {
        const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        file r = file::adopt(fd);
        for (int i = 0; i < 3; ++i) {
            file w = file::open(path, dunlin::fs::open_mode::write);
            w.write("Hello Gophers!");
            std::string text(14, ' ');
            r.read_exactly(text);
            EXPECT_EQ(text, "Hello Gophers!");
            dunlin::go([&w] {
                dunlin::sleep_for(2ms);
                w.close();
            });
            EXPECT_EQ(r.read_some(text), 0u);
            dunlin::select(dunlin::on_timeout(1ms));
        }
    });
}

// Opens files that cannot be polled, while others are polled with the same numbers. (Go's file is /dev/net/tun, which
// needs rights.)
TEST_P(GoOs, NonPollable) {
    run([] {
        const int attempts = support::rounds(1000);
        dunlin::wait_group done;
        done.go([=] {
            for (int i = 0; i < attempts; ++i) {
                file zero = file::open("/dev/zero", "r+");
                char c = 'x';
                EXPECT_EQ(zero.read_some(&c, 1), 1u);
                EXPECT_EQ(c, 0);
            }
        });
        for (int i = 0; i < attempts; ++i) {
            auto [r, w] = dunlin::fs::pipe();
            w.write_all("message");
            std::string text(7, ' ');
            EXPECT_EQ(r.read_some(text), 7u);
        }
        done.wait();
    });
}

TEST_P(GoOs, NonpollableDeadline) {
    temporary_directory dir;
    run([&] {
        for (const std::filesystem::path& path : {dir / "regular", std::filesystem::path("/dev/null")}) {
            file f = file::open(path, "w+");
            const auto refused = [&](auto set) {
                try {
                    set();
                    ADD_FAILURE() << path;
                } catch (const dunlin::io_error& e) {
                    EXPECT_EQ(e.code(), dunlin::errc::no_deadlines);
                    EXPECT_NE(std::string(e.what()).find(": file type does not support deadlines"), std::string::npos)
                        << e.what();
                }
            };
            refused([&] { f.set_deadline(10s); });
            refused([&] { f.set_read_deadline(10s); });
            refused([&] { f.set_write_deadline(10s); });
        }
    });
}

// ---- NET-25: go1.24 src/os/timeout_test.go --------------------------------------------------------------------------

// Ten at a time on one end with a deadline of a millisecond; buffers are given back right after each call.
template <class Call, class Again>
void racy(Call call, Again again) {
    dunlin::wait_group done;
    again();
    for (int i = 0; i < 10; ++i) {
        done.go([=] {
            for (int k = 0; k < support::rounds(100); ++k) {
                std::error_code ec;
                auto buffer = std::make_unique<char[]>(1024);
                call(dunlin::mutable_buffer(buffer.get(), 1024), ec);
                buffer[k] = 'x';
                buffer.reset();
                if (!ec) continue;
                EXPECT_EQ(ec, std::errc::timed_out) << ec.message();
                again();
            }
        });
    }
    done.wait();
}

TEST_P(GoOs, RacyRead) {
    run([] {
        dunlin::fs::pipe p;
        dunlin::wait_group done;
        done.go([&p] {
            std::string text(700, 'y');
            for (std::error_code ec; !ec;) {
                p.write_end.write_all(text, ec);
                dunlin::sleep_for(100us);
            }
        });
        racy([&p](dunlin::mutable_buffer b, std::error_code& ec) { p.read_end.read_some(b, ec); },
            [&p] { p.read_end.set_read_deadline(1ms); });
        p.read_end.close();
        done.wait();
    });
}

TEST_P(GoOs, RacyWrite) {
    run([] {
        dunlin::fs::pipe p;
        dunlin::wait_group done;
        done.go([&p] {
            std::string text(10'000, ' ');
            for (std::error_code ec; !ec && p.read_end.read_some(text, ec) != 0;) dunlin::sleep_for(100us);
        });
        racy(
            [&p](dunlin::mutable_buffer b, std::error_code& ec) {
                std::fill_n(static_cast<char*>(b.data()), b.size(), 'z');
                p.write_end.write_all(b, ec);
            },
            [&p] { p.write_end.set_write_deadline(1ms); });
        p.write_end.close();
        done.wait();
    });
}

}  // namespace
