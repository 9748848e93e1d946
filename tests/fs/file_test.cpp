// Files: modes, positions and offsets, errors, and what cannot be polled.
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <dunlin/fs.hpp>

#include "support/runtime_test.h"

using namespace std::chrono_literals;
using dunlin::fs::file;
using dunlin::fs::open_mode;

namespace {

class scratch {
public:
    scratch() {
        char name[] = "/tmp/dunlin_file_XXXXXX";
        if (mkdtemp(name) == nullptr) std::abort();
        path_ = name;
    }
    ~scratch() {
        std::error_code ec;
        std::filesystem::remove_all(path_, ec);
    }
    std::filesystem::path operator/(const char* name) const { return path_ / name; }

private:
    std::filesystem::path path_;
};

class File : public support::each_p {
protected:
    scratch dir_;
};
EACH_P(File);
class FileAnywhere : public support::runtime_test {
protected:
    scratch dir_;
};

template <class F>
std::string error_text(F f, std::error_code* code = nullptr) {
    try {
        f();
    } catch (const dunlin::io_error& e) {
        if (code != nullptr) *code = e.code();
        return e.what();
    }
    return "no error";
}

TEST_P(File, WritesReadsAndSeeks) {
    run([this] {
        file f = file::create(dir_ / "a");
        EXPECT_EQ(f.write("hello world"), 11u);
        EXPECT_EQ(f.size(), 11u);
        EXPECT_EQ(f.seek(6), 6u);
        std::string text(20, ' ');
        EXPECT_EQ(f.read_some(text), 5u);
        EXPECT_EQ(text.substr(0, 5), "world");
        EXPECT_EQ(f.read_some(text), 0u);
        EXPECT_EQ(f.seek(-5, file::from::end), 6u);
        EXPECT_EQ(f.seek(-6, file::from::current), 0u);
        f.sync();
        f.sync_data();
        f.truncate(4);
        EXPECT_EQ(dunlin::fs::read_file(dir_ / "a"), "hell");
    });
}

TEST_P(File, ReadsAndWritesAtOffsets) {
    run([this] {
        file f = file::create(dir_ / "a");
        EXPECT_EQ(f.pwrite("world", 6), 5u);
        EXPECT_EQ(f.pwrite("hello ", 0), 6u);
        std::string text(5, ' ');
        EXPECT_EQ(f.pread(text, 6), 5u);
        EXPECT_EQ(text, "world");
        EXPECT_EQ(f.pread(text, 11), 0u);
        EXPECT_EQ(f.seek(0, file::from::current), 0u);
        std::error_code ec;
        EXPECT_EQ(f.pread(text, ~std::uint64_t{0}, ec), 0u);
        EXPECT_EQ(ec, std::errc::invalid_argument);
        EXPECT_EQ(f.pwrite(text, ~std::uint64_t{0}, ec), 0u);
        EXPECT_EQ(ec, std::errc::invalid_argument);
    });
}

TEST_P(File, ManyReadAndWriteAtOffsetsAtOnce) {
    run([this] {
        file f = file::create(dir_ / "a");
        constexpr int writers = 16, block = 5000;
        dunlin::wait_group done;
        for (int i = 0; i < writers; ++i) {
            done.go([&f, i] {
                const std::string sent(block, static_cast<char>('a' + i));
                for (int round = 0; round < 5; ++round) {
                    f.pwrite(sent, static_cast<std::uint64_t>(i) * block);
                    std::string got(block, ' ');
                    ASSERT_EQ(f.pread(got, static_cast<std::uint64_t>(i) * block), static_cast<std::size_t>(block));
                    ASSERT_EQ(got, sent);
                }
            });
        }
        done.wait();
        EXPECT_EQ(f.size(), static_cast<std::uint64_t>(writers * block));
    });
}

TEST_P(File, ModesAreThoseOfFopen) {
    run([this] {
        const auto path = dir_ / "a";
        dunlin::fs::write_file(path, "one");
        EXPECT_EQ(dunlin::fs::read_file(path), "one");
        dunlin::fs::write_file(path, "2");
        EXPECT_EQ(dunlin::fs::read_file(path), "2");
        file::open(path, "a").write("3");
        EXPECT_EQ(dunlin::fs::read_file(path), "23");
        file::open(path, "r+").write("x");
        EXPECT_EQ(dunlin::fs::read_file(path), "x3");
        file both = file::open(path, "a+b");
        both.write("y");
        both.seek(0);
        char c = 0;
        EXPECT_EQ(both.read_some(&c, 1), 1u);
        EXPECT_EQ(c, 'x');
        file::open(path, open_mode::write | open_mode::truncate);
        EXPECT_EQ(dunlin::fs::read_file(path), "");
        file::open(dir_ / "new", "wx").write("z");
        file::open(dir_ / "locked", open_mode::write | open_mode::create | open_mode::sync, 0600).write("z");
        struct stat what;
        ASSERT_EQ(stat((dir_ / "locked").c_str(), &what), 0);
        EXPECT_EQ(what.st_mode & 0777, 0600u);
        EXPECT_NE(fcntl(both.native_handle(), F_GETFD) & FD_CLOEXEC, 0);
    });
}

TEST_P(File, ErrorsNameThePath) {
    run([this] {
        const auto path = dir_ / "absent";
        std::error_code ec;
        EXPECT_EQ(error_text([&] { file::open(path); }, &ec), "open " + path.string() + ": no such file or directory");
        EXPECT_EQ(ec, std::errc::no_such_file_or_directory);
        EXPECT_FALSE(file::open(path, open_mode::read, ec).is_open());
        EXPECT_EQ(ec, std::errc::no_such_file_or_directory);
        for (const char* mode : {"", "q", "rw", "r++", "rx", "wxx", "+r"}) {
            EXPECT_NE(error_text([&] { file::open(path, mode); }, &ec)
                          .find("\"" + std::string(mode) + "\" is none of r, r+,"),
                std::string::npos)
                << mode;
            EXPECT_EQ(ec, std::errc::invalid_argument);
        }
        dunlin::fs::write_file(path, "here now");
        EXPECT_EQ(error_text([&] { file::open(path, "wx"); }, &ec), "open " + path.string() + ": file exists");
        EXPECT_EQ(error_text([&] { file::open(std::string("/tmp/a\0b", 8)); }, &ec).find("open /tmp/a"), 0u);
        EXPECT_EQ(ec, std::errc::invalid_argument);
        EXPECT_EQ(
            error_text([&] { file::open(path).write("x"); }, &ec), "write " + path.native() + ": bad file descriptor");
        EXPECT_EQ(ec, std::errc::bad_file_descriptor);
        EXPECT_EQ(error_text([&] { file::open(path).pwrite("x", 0); }, &ec),
            "pwrite " + path.native() + ": bad file descriptor");
        EXPECT_EQ(error_text([&] { file::open(path).seek(-1); }, &ec), "seek " + path.native() + ": invalid argument");
        EXPECT_EQ(error_text([&] { dunlin::fs::read_file("/tmp"); }, &ec), "read /tmp: is a directory");
        const std::filesystem::path endless = "/dev/shm/dunlin-file-test-" + std::to_string(getpid());
        std::ofstream(endless) << 'x';
        if (truncate(endless.c_str(), INT64_MAX) == 0) {  // on tmpfs it can be as large
            EXPECT_EQ(dunlin::fs::read_file(endless, ec), "");
            EXPECT_EQ(ec, std::errc::file_too_large);
        }
        std::filesystem::remove(endless);
        EXPECT_EQ(error_text([&] { dunlin::fs::write_file("/dev/full", "x"); }, &ec),
            "write /dev/full: no space left on device");
        EXPECT_EQ(error_text([&] { file::adopt(-1); }, &ec), "adopt descriptor -1: bad file descriptor");
        file closed = file::open(path);
        closed.close();
        EXPECT_EQ(error_text([&] { closed.size(); }, &ec), "find the size of " + path.native() + ": closed");
        EXPECT_EQ(ec, dunlin::errc::closed);
        char c;
        EXPECT_EQ(file().pread({&c, 1}, 0, ec), 0u);
        EXPECT_EQ(ec, dunlin::errc::closed);
        EXPECT_EQ(closed.pwrite("x", 0, ec), 0u);
        EXPECT_EQ(ec, dunlin::errc::closed);
    });
}

TEST_P(File, ReadsAndWritesWholeFiles) {
    run([this] {
        std::string much;
        for (int i = 0; i < 100'000; ++i) much += std::to_string(i);
        dunlin::fs::write_file(dir_ / "a", much);
        EXPECT_EQ(dunlin::fs::read_file(dir_ / "a"), much);
        EXPECT_EQ(dunlin::fs::read_file("/dev/null"), "");
        EXPECT_GE(std::stol(dunlin::fs::read_file("/proc/sys/fs/pipe-max-size")), 4096);
        EXPECT_NE(dunlin::fs::read_file("/proc/self/status").find("Threads:"), std::string::npos);
    });
}

// From now on the kernel answers this thread's close() with an error, and does not close. False: it has no filters.
bool refuse_closes(unsigned error) {
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{std::size(code), code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// A network filesystem, or one with a quota, may learn only there that the data is lost.
TEST_F(FileAnywhere, WriteFileReportsTheErrorOfAClose) {
    const auto path = dir_ / "a";
    dunlin::fs::write_file(path, "before");
    bool refused = false;
    std::error_code plain, with_context;
    std::string thrown, thrown_with_context;
    std::thread([&] {
        refused = refuse_closes(EIO);
        if (!refused) return;
        const dunlin::context ctx;
        dunlin::fs::write_file(path, "x", plain);
        dunlin::fs::write_file(path, "x", ctx, with_context);
        thrown = error_text([&] { dunlin::fs::write_file(path, "x"); });
        thrown_with_context = error_text([&] { dunlin::fs::write_file(path, "x", ctx); });
    }).join();
    if (!refused) GTEST_SKIP() << "seccomp is not available";
    EXPECT_EQ(plain, std::errc::io_error);
    EXPECT_EQ(with_context, std::errc::io_error);
    EXPECT_EQ(thrown, "write " + path.native() + ": input/output error");
    EXPECT_EQ(thrown_with_context, thrown);
}

// The readers fail with errc::closed, or read; none reads from another file that has got the number.
TEST_P(File, MayBeClosedWhileOthersRead) {
    run([this] {
        dunlin::fs::write_file(dir_ / "a", std::string(8192, 'a'));
        dunlin::fs::write_file(dir_ / "b", std::string(8192, 'b'));
        for (int i = 0; i < support::rounds(200); ++i) {
            file a = file::open(dir_ / "a");
            dunlin::wait_group done;
            for (int reader = 0; reader < 4; ++reader) {
                done.go([&a, reader] {
                    std::string text(4096, ' ');
                    for (std::error_code ec; !ec;) {
                        const std::size_t n = reader == 0 ? a.read_some(text, ec) : a.pread(text, 4096, ec);
                        if (ec) {
                            ASSERT_EQ(ec, dunlin::errc::closed);
                        }
                        ASSERT_EQ(text.substr(0, n).find('b'), std::string::npos);
                        if (n == 0) break;
                        dunlin::yield();
                    }
                });
            }
            dunlin::yield();
            a.close();
            file b = file::open(dir_ / "b");
            done.wait();
        }
    });
}

// The two wait for each other in the kernel; with one processor too.
TEST_P(File, FifoIsOpenedFromBothSides) {
    run([this] {
        const auto path = dir_ / "fifo";
        ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
        auto reader = dunlin::spawn([&] { return dunlin::fs::read_file(path); });
        dunlin::fs::write_file(path, "through a fifo");
        EXPECT_EQ(reader.get(), "through a fifo");
    });
}

// Read without a thread: the deadline works.
TEST_P(File, FifoIsPolled) {
    run([this] {
        const auto path = dir_ / "fifo";
        ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
        file both = file::open(path, "r+");
        both.set_read_deadline(1ms);
        char c;
        std::error_code ec;
        EXPECT_EQ(both.read_some(&c, 1, ec), 0u);
        EXPECT_EQ(ec, std::errc::timed_out);
        both.clear_deadline();
        both.write("x");
        EXPECT_EQ(both.read_some(&c, 1), 1u);
        EXPECT_EQ(both.pread({&c, 1}, 0, ec), 0u);
        EXPECT_EQ(ec, std::errc::invalid_seek);
    });
}

TEST_F(FileAnywhere, WorksOnAThread) {
    dunlin::fs::write_file(dir_ / "a", "text");
    EXPECT_EQ(dunlin::fs::read_file(dir_ / "a"), "text");
    file f = file::open(dir_ / "a", "r+");
    f.pwrite("T", 0);
    EXPECT_EQ(f.size(), 4u);
    f.sync();
    std::string text(4, ' ');
    f.read_exactly(text);
    EXPECT_EQ(text, "Text");
}

// A goroutine that waits in open() keeps no other from running.
TEST_F(FileAnywhere, OpenThatWaitsGivesItsProcessorAway) {
    const auto path = dir_ / "fifo";
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    dunlin::run({.max_procs = 1}, [&] {
        std::atomic<bool> opened{false};
        auto reader = dunlin::spawn([&] {
            file f = file::open(path);
            opened = true;
        });
        dunlin::sleep_for(5ms);
        EXPECT_FALSE(opened.load());
        file writer = file::open(path, "w");
        reader.wait();
    });
}

TEST_F(FileAnywhere, MessagesNameWhatTheCallerHasGiven) {
    const std::string zero("/etc/hostname\0x", 15);
    const std::string of_zero = " /etc/hostname\\0x: invalid argument: it contains a zero byte";
    EXPECT_EQ(error_text([&] { file::open(zero); }), "open" + of_zero);
    EXPECT_EQ(error_text([&] { dunlin::fs::read_file(zero); }), "open" + of_zero);
    EXPECT_EQ(error_text([&] { dunlin::fs::write_file(zero, "x"); }), "open" + of_zero);
    EXPECT_EQ(error_text([&] { file::open(zero, "q"); }).rfind("open /etc/hostname\\0x: mode \"q\"", 0), 0u);

    const int event = eventfd(0, EFD_CLOEXEC);
    const std::string number = std::to_string(event);
    auto adopted = dunlin::byte_stream::adopt(event);
    EXPECT_EQ(error_text([&] { dunlin::byte_stream::adopt(event); }),
        "adopt descriptor " + number + ": file exists: it is adopted already");
    adopted.set_deadline(1ms);
    char count[8];
    EXPECT_EQ(error_text([&] { adopted.read_some(count); }), "read descriptor " + number + ": timed out");
    adopted.close();
    EXPECT_EQ(error_text([&] { adopted.read_some(count); }), "read descriptor: closed");
}

}  // namespace
