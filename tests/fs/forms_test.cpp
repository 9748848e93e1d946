// forms_test.cpp - that the calls on files, processes and signals have their forms with an error_code, and one with a
// context if they can wait for long; and that errors name the file.
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <sys/stat.h>

#include <dunlin/fs.hpp>

#include "net/pairs.h"
#include "support/runtime_test.h"

namespace {

using namespace std::chrono_literals;
using dunlin::fs::file;
using dunlin::fs::open_mode;
using support::code_of;
using support::is_closed;
using support::text_of;

const std::error_code is_cancelled = dunlin::errc::cancelled;

template <class Call>
std::error_code error_of(Call call) {
    std::error_code ec = std::make_error_code(std::errc::address_in_use);
    call(ec);
    return ec;
}

class FsForms : public support::runtime_test {
protected:
    FsForms() {
        char name[] = "/tmp/dunlin_forms_XXXXXX";
        if (mkdtemp(name) == nullptr) std::abort();
        dir_ = name;
    }
    ~FsForms() override {
        std::error_code ec;
        std::filesystem::remove_all(dir_, ec);
    }
    std::filesystem::path dir_;
};

TEST_F(FsForms, ErrorsNameTheFile) {
    dunlin::run([this] {
        const std::string path = dir_ / "a file";
        file f = file::create(path);
        f.write("text");
        file reads = file::open(path, "r");
        EXPECT_EQ(text_of([&] { reads.write("x"); }), "write " + path + ": bad file descriptor");
        EXPECT_EQ(text_of([&] { reads.truncate(1); }), "truncate " + path + ": invalid argument");
        EXPECT_EQ(text_of([&] { f.seek(-1); }), "seek " + path + ": invalid argument");
        EXPECT_EQ(text_of([&] { f.pread(nullptr, 0, ~std::uint64_t{0}); }), "pread " + path + ": invalid argument");
        EXPECT_EQ(text_of([&] { f.set_deadline(1s); }).rfind("set deadline of " + path + ": ", 0), 0u);
        f.close();
        char c;
        EXPECT_EQ(text_of([&] { f.read_some(&c, 1); }).rfind("read " + path + ": ", 0), 0u);
        EXPECT_EQ(text_of([&] { f.sync(); }).rfind("sync " + path + ": ", 0), 0u);
        EXPECT_EQ(text_of([&] { f.size(); }).rfind("find the size of " + path + ": ", 0), 0u);
        EXPECT_EQ(text_of([&] { dunlin::fs::read_file(dir_); }), "read " + dir_.native() + ": is a directory");
    });
}

TEST_F(FsForms, FilesHaveBoth) {
    dunlin::run([this] {
        const std::filesystem::path path = dir_ / "f";
        file f;
        EXPECT_EQ(error_of([&](std::error_code& ec) { f = file::create(path, ec); }), std::error_code());
        EXPECT_EQ(error_of([&](std::error_code& ec) { file::create(dir_ / "none" / "f", ec); }),
            std::errc::no_such_file_or_directory);
        EXPECT_EQ(error_of([&](std::error_code& ec) { EXPECT_EQ(f.write("0123", 4, ec), 4u); }), std::error_code());
        EXPECT_EQ(error_of([&](std::error_code& ec) { EXPECT_EQ(f.pwrite("ab", 2, 1, ec), 2u); }), std::error_code());
        EXPECT_EQ(
            error_of([&](std::error_code& ec) { EXPECT_EQ(f.seek(0, file::from::end, ec), 4u); }), std::error_code());
        EXPECT_EQ(error_of([&](std::error_code& ec) { EXPECT_EQ(f.seek(1, ec), 1u); }), std::error_code());
        EXPECT_EQ(error_of([&](std::error_code& ec) { f.seek(-1, ec); }), std::errc::invalid_argument);
        EXPECT_EQ(error_of([&](std::error_code& ec) { EXPECT_EQ(f.size(ec), 4u); }), std::error_code());
        EXPECT_EQ(error_of([&](std::error_code& ec) { f.truncate(3, ec); }), std::error_code());
        EXPECT_EQ(error_of([&](std::error_code& ec) { f.sync(ec); }), std::error_code());
        EXPECT_EQ(error_of([&](std::error_code& ec) { f.sync_data(ec); }), std::error_code());
        EXPECT_EQ(error_of([&](std::error_code& ec) { EXPECT_EQ(dunlin::fs::read_file(path, ec), "0ab"); }),
            std::error_code());
        EXPECT_EQ(error_of([&](std::error_code& ec) { dunlin::fs::write_file(path, "new", ec); }), std::error_code());
        EXPECT_EQ(dunlin::fs::read_file(path), "new");
        EXPECT_EQ(error_of([&](std::error_code& ec) { EXPECT_EQ(dunlin::fs::read_file(dir_, ec), ""); }),
            std::errc::is_a_directory);
        EXPECT_EQ(
            error_of([&](std::error_code& ec) { dunlin::fs::write_file(dir_, "new", ec); }), std::errc::is_a_directory);
        const dunlin::context live = dunlin::with_cancel(dunlin::context::background());
        const std::filesystem::path last = dir_ / "last";
        EXPECT_EQ(error_of([&](std::error_code& ec) { EXPECT_TRUE(file::open(last, "w", 0600, ec)); }), std::error_code());
        EXPECT_EQ(std::filesystem::status(last).permissions(), std::filesystem::perms(0600));
        EXPECT_EQ(
            error_of([&](std::error_code& ec) { EXPECT_TRUE(file::open(last, open_mode::read, live, 0600, ec)); }),
            std::error_code());
        char c[4];
        EXPECT_EQ(f.pread(c, sizeof c, 1), 2u);
        f.close();
        EXPECT_EQ(error_of([&](std::error_code& ec) { f.seek(0, ec); }), is_closed);
        EXPECT_EQ(error_of([&](std::error_code& ec) { EXPECT_EQ(f.size(ec), 0u); }), is_closed);
        EXPECT_EQ(error_of([&](std::error_code& ec) { f.truncate(0, ec); }), is_closed);
        EXPECT_EQ(error_of([&](std::error_code& ec) { f.sync(ec); }), is_closed);
        EXPECT_EQ(error_of([&](std::error_code& ec) { f.sync_data(ec); }), is_closed);
        std::error_code ec;
        dunlin::fs::pipe p(ec);
        EXPECT_FALSE(ec);
        p.write_end.write_all("x");
        EXPECT_EQ(p.read_end.read_some(c), 1u);
    });
}

// The other end is not opened.
TEST_F(FsForms, OpeningAFifoEndsWithAContext) {
    const std::filesystem::path path = dir_ / "fifo";
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    dunlin::run([&] {
        const auto limit = dunlin::with_timeout(dunlin::context::background(), 10ms);
        EXPECT_EQ(error_of([&](std::error_code& ec) { EXPECT_FALSE(file::open(path, "r", limit, ec)); }),
            dunlin::errc::deadline_exceeded);
        EXPECT_EQ(code_of([&] { file::open(path, open_mode::read, limit); }), dunlin::errc::deadline_exceeded)
            << "it is over already";
        EXPECT_EQ(text_of([&] { file::open(path, "r", limit); }).rfind("open " + path.native(), 0), 0u);
        // The one that was left behind is let go, and then there is nothing that reads.
        const int writes = open(path.c_str(), O_WRONLY);
        ASSERT_GE(writes, 0);
        close(writes);
        support::eventually([&] { return open(path.c_str(), O_WRONLY | O_NONBLOCK) < 0; });

        for (const auto& whole : {std::function<void(std::error_code&)>(
                 [&](std::error_code& ec) { EXPECT_EQ(dunlin::fs::read_file(path, limit, ec), ""); }),
                 std::function<void(std::error_code&)>(
                     [&](std::error_code& ec) { dunlin::fs::write_file(path, "x", limit, ec); })}) {
            EXPECT_EQ(error_of(whole), dunlin::errc::deadline_exceeded);
        }
        EXPECT_THROW(dunlin::fs::read_file(path, limit), dunlin::context_cancelled);
        EXPECT_THROW(dunlin::fs::write_file(path, "x", limit), dunlin::context_cancelled);
        // One that is open at its other end, and from which nothing comes.
        const int both = open(path.c_str(), O_RDWR);
        const auto in_time = [] { return dunlin::with_timeout(dunlin::context::background(), 10ms); };
        EXPECT_THROW(dunlin::fs::read_file(path, in_time()), dunlin::context_cancelled);
        EXPECT_EQ(error_of([&](std::error_code& ec) { dunlin::fs::read_file(path, in_time(), ec); }),
            dunlin::errc::deadline_exceeded);
        const std::string much(1 << 20, 'x');  // more than a FIFO takes
        EXPECT_EQ(error_of([&](std::error_code& ec) { dunlin::fs::write_file(path, much, in_time(), ec); }),
            dunlin::errc::deadline_exceeded);
        EXPECT_THROW(dunlin::fs::write_file(path, much, in_time()), dunlin::context_cancelled);
        close(both);

        const auto live = dunlin::with_cancel(dunlin::context::background());
        dunlin::fs::write_file(dir_ / "g", "all", live);
        EXPECT_EQ(dunlin::fs::read_file(dir_ / "g", live), "all");
        EXPECT_TRUE(file::open(dir_ / "f", "w", live));
        EXPECT_EQ(code_of([&] { file::open(dir_ / "f", "rx", live); }), std::errc::invalid_argument);
        EXPECT_EQ(error_of([&](std::error_code& ec) { file::open(dir_ / "none", "r", live, ec); }),
            std::errc::no_such_file_or_directory);
    });
}

TEST_F(FsForms, ProcessesHaveBoth) {
    dunlin::run([] {
        using dunlin::process;
        std::error_code ec;
        process none({"/no/such/program"}, ec);
        EXPECT_EQ(ec, std::errc::no_such_file_or_directory);
        EXPECT_EQ(none.id(), -1);
        EXPECT_EQ(error_of([](std::error_code& e) { process({}, e); }), std::errc::invalid_argument);
        EXPECT_EQ(error_of([&](std::error_code& e) { none.wait(e); }), is_closed);
        EXPECT_EQ(error_of([&](std::error_code& e) { EXPECT_FALSE(none.kill(SIGTERM, e)); }), std::error_code());

        process cat({"cat"}, {.input = dunlin::process_stream::pipe}, ec);
        ASSERT_FALSE(ec) << ec.message();
        const auto limit = dunlin::with_timeout(dunlin::context::background(), 5ms);
        EXPECT_EQ(error_of([&](std::error_code& e) { cat.wait(limit, e); }), dunlin::errc::deadline_exceeded);
        EXPECT_EQ(error_of([&](std::error_code& e) { cat.kill(12345, e); }), std::errc::invalid_argument);
        const std::string name = "standard input of process " + std::to_string(cat.id()) + " (cat)";
        cat.standard_input().close();
        EXPECT_EQ(text_of([&] { cat.standard_input().write_all("x"); }).rfind("write " + name + ": ", 0), 0u);
        EXPECT_EQ(error_of([&](std::error_code& e) { EXPECT_TRUE(cat.wait(e).success()); }), std::error_code());

        EXPECT_EQ(error_of([](std::error_code& e) {
            EXPECT_EQ(process::run({"echo", "x"}, e).output, "x\n");
        }),
            std::error_code());
        EXPECT_EQ(error_of([](std::error_code& e) { process::run({"/no/such/program"}, e); }),
            std::errc::no_such_file_or_directory);
        EXPECT_EQ(error_of([&](std::error_code& e) { process::run({"cat"}, "x", limit, e); }),
            dunlin::errc::deadline_exceeded);
        const dunlin::process_options here{.directory = "/"};
        const dunlin::context live = dunlin::with_cancel(dunlin::context::background());
        EXPECT_EQ(error_of([&](std::error_code& e) { EXPECT_EQ(process::run({"pwd"}, here, e).output, "/\n"); }),
            std::error_code());
        EXPECT_EQ(error_of([&](std::error_code& e) { EXPECT_EQ(process::run({"pwd"}, "", live, here, e).output, "/\n"); }),
            std::error_code());
        EXPECT_EQ(error_of([&](std::error_code& e) { process::run({"cat"}, limit, e); }), dunlin::errc::deadline_exceeded);
    });
}

TEST_F(FsForms, SignalsHaveBoth) {
    EXPECT_EQ(error_of([](std::error_code& ec) {
        EXPECT_EQ(dunlin::signal_channel({SIGKILL}, ec), dunlin::receiver<int>());
    }),
        std::errc::invalid_argument);
    EXPECT_EQ(error_of([](std::error_code& ec) {
        const auto c = dunlin::signal_channel({SIGUSR1}, 2, ec);
        raise(SIGUSR1);
        EXPECT_EQ(c.recv(), SIGUSR1);
    }), std::error_code());
}

}  // namespace
