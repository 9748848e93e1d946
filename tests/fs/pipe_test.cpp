// Pipes: bytes, ends, close from elsewhere, and what a broken one says.
#include <cerrno>
#include <csignal>
#include <string>
#include <thread>
#include <unistd.h>

#include <dunlin/fs.hpp>

#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

class Pipe : public support::each_p {};
EACH_P(Pipe);
class PipeAnywhere : public support::runtime_test {};

std::string read_all(dunlin::byte_stream& from) {
    std::string text;
    char buffer[4096];
    while (const std::size_t n = from.read_some(buffer)) text.append(buffer, n);
    return text;
}

TEST_P(Pipe, BytesComeInOrderAndTheEndIsSeen) {
    run([] {
        auto [r, w] = dunlin::fs::pipe();
        std::string sent;
        for (int i = 0; i < 40'000; ++i) sent += std::to_string(i);  // three times what fits into it
        auto writer = dunlin::spawn([&] {
            w.write_all(sent);
            w.close();
        });
        EXPECT_EQ(read_all(r), sent);
        EXPECT_EQ(r.read_some(std::string(1, ' ')), 0u);
        writer.wait();
    });
}

// The short read of what was left, and the end that comes with it.
TEST_P(Pipe, AShortReadComesBeforeTheEnd) {
    run([] {
        for (int i = 0; i < support::rounds(500); ++i) {
            auto [r, w] = dunlin::fs::pipe();
            auto writer = dunlin::spawn([&, i] {
                w.write_all("abc");
                if (i % 2 != 0) dunlin::yield();
                w.write_all("de");
                w.close();
            });
            EXPECT_EQ(read_all(r), "abcde");
            writer.wait();
        }
    });
}

TEST_P(Pipe, ConnectsAGoroutineAndAThread) {
    run([] {
        auto [to, from_us] = dunlin::fs::pipe();
        auto [from, to_us] = dunlin::fs::pipe();
        std::thread echo([&in = to, &out = to_us] {
            char c;
            while (in.read_some(&c, 1) == 1) out.write_all(&c, 1);
            out.close();
        });
        for (int i = 0; i < support::rounds(500); ++i) {
            const char sent = static_cast<char>(i);
            char got = 0;
            from_us.write_all(&sent, 1);
            from.read_exactly(&got, 1);
            ASSERT_EQ(got, sent);
        }
        from_us.close();
        EXPECT_EQ(read_all(from), "");
        echo.join();
    });
}

TEST_P(Pipe, AWriteWithoutAReaderFails) {
    run([] {
        auto [r, w] = dunlin::fs::pipe();
        r.close();
        std::error_code ec;
        EXPECT_EQ(w.write_all("x", ec), 0u);
        EXPECT_EQ(ec, std::errc::broken_pipe);
        try {
            w.write_all("x");
            ADD_FAILURE();
        } catch (const dunlin::io_error& e) {
            EXPECT_STREQ(e.what(), "write pipe: broken pipe");
            EXPECT_EQ(e.code(), std::errc::broken_pipe);
        }
    });
}

TEST_P(Pipe, CloseWakesReaderAndWriter) {
    run([] {
        for (int i = 0; i < support::rounds(200); ++i) {
            auto [r, w] = dunlin::fs::pipe();
            auto [r2, w2] = dunlin::fs::pipe();
            auto reader = dunlin::spawn([&] {
                std::error_code ec;
                char c;
                EXPECT_EQ(r.read_some(&c, 1, ec), 0u);
                return ec;
            });
            auto writer = dunlin::spawn([&] {
                std::error_code ec;
                const std::string much(200'000, 'x');
                EXPECT_LT(w2.write_all(much, ec), much.size());
                return ec;
            });
            if (i % 4 != 0) dunlin::yield();
            if (i % 4 == 2) dunlin::sleep_for(100us);
            r.close();
            w2.close();
            EXPECT_EQ(reader.get(), dunlin::errc::closed);
            EXPECT_EQ(writer.get(), dunlin::errc::closed);
            EXPECT_EQ(r.native_handle(), -1);
        }
    });
}

TEST_P(Pipe, InASelectBesideATimeout) {
    run([] {
        auto [r, w] = dunlin::fs::pipe();
        bool timed_out = false;
        dunlin::select(dunlin::on_readable(r), dunlin::on_timeout(1ms, [&] { timed_out = true; }));
        EXPECT_TRUE(timed_out);
        w.write_all("x");
        EXPECT_EQ(dunlin::select(dunlin::on_readable(r), dunlin::on_timeout(20s)), 0u);
        char c;
        EXPECT_EQ(r.read_some(&c, 1), 1u);
        w.close();
        EXPECT_EQ(dunlin::select(dunlin::on_readable(r), dunlin::on_timeout(20s)), 0u);
        EXPECT_EQ(r.read_some(&c, 1), 0u);
    });
}

TEST_F(PipeAnywhere, WorksOnThreadsOnly) {
    auto [r, w] = dunlin::fs::pipe();
    std::string got;
    std::thread reader([&r = r, &got] { got = read_all(r); });
    w.write_all("from a thread");
    w.close();
    reader.join();
    EXPECT_EQ(got, "from a thread");
}

TEST_F(PipeAnywhere, OutlivesARun) {
    auto [r, w] = dunlin::fs::pipe();
    dunlin::run([&w = w] { w.write_all("one"); });
    std::string text(3, ' ');
    dunlin::run([&r = r, &text] { r.read_exactly(text); });
    EXPECT_EQ(text, "one");
}

// SIGPIPE has its default action all the while: the process would be gone.
TEST_F(PipeAnywhere, RaisesNoSignal) {
    std::signal(SIGPIPE, SIG_DFL);
    auto [r, w] = dunlin::fs::pipe();
    r.close();
    std::error_code ec;
    w.write_some("x", ec);
    EXPECT_EQ(ec, std::errc::broken_pipe);
}

}  // namespace
