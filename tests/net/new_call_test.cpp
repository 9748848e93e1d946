// How a new operation on a descriptor is written: peek(), which shows what read_some() would read and leaves it there.
// CONTRIBUTING.md walks through it.
#include <dunlin/dunlin.hpp>

#include <source_location>
#include <string>
#include <system_error>

#include <sys/socket.h>

#include <gtest/gtest.h>

#include "io/operation.h"
#include "io/system.h"
#include "net/pairs.h"

namespace {

using namespace std::chrono_literals;
namespace detail = dunlin::detail;
namespace io = dunlin::io;

// The system call: a count, or -errno, without touching errno. A sanitizer must see libc's function.
long system_peek(int fd, void* data, std::size_t size) noexcept {
    if (dunlin::netpoll::is_simulated(fd)) return -EOPNOTSUPP;
    size = io::at_most(size);
    if constexpr (dunlin::stack::sanitizing || dunlin::stack::thread_sanitizing) {
        return io::by_libc([=] { return ::recv(fd, data, size, MSG_PEEK); });
    } else {
        return dunlin::platform::raw_syscall(
            SYS_recvfrom, fd, dunlin::platform::syscall_arg(data), static_cast<long>(size), MSG_PEEK, 0, 0);
    }
}

// The call behind the forms. It reads, so it enters as a reader, and has their deadline.
std::size_t io_peek(detail::io_descriptor* d, dunlin::mutable_buffer b, const detail::wait_limit* limit,
                    std::error_code& ec, const std::source_location& where) {
    const io::fd_guard mine(d, dunlin::netpoll::direction::read, limit, where, ec);
    if (!mine || b.size() == 0) return 0;
    const long n = io::perform(d, dunlin::netpoll::direction::read, limit, where, ec,
                               [&](int fd) { return system_peek(fd, b.data(), b.size()); });
    return n > 0 ? static_cast<std::size_t>(n) : 0;
}

// The forms: with an error_code or an exception, with a context or without.
std::size_t peek(dunlin::net::stream& s, dunlin::mutable_buffer b, std::error_code& ec,
                 std::source_location where = std::source_location::current()) {
    return io_peek(dunlin::io_access::of(s), b, nullptr, ec, where);
}
std::size_t peek(dunlin::net::stream& s, dunlin::mutable_buffer b, const dunlin::context& ctx, std::error_code& ec,
                 std::source_location where = std::source_location::current()) {
    return io_peek(dunlin::io_access::of(s), b, detail::io_limit(ctx).get(), ec, where);
}
std::size_t peek(dunlin::net::stream& s, dunlin::mutable_buffer b, const dunlin::context& ctx = {},
                 std::source_location where = std::source_location::current()) {
    std::error_code ec;
    const std::size_t n = io_peek(dunlin::io_access::of(s), b, detail::io_limit(ctx).get(), ec, where);
    if (ec) detail::throw_io_error("peek", dunlin::io_access::of(s), ec);
    return n;
}

// ---- its tests ------------------------------------------------------------------------------------------------------

TEST(NewCall, LeavesWhatItShows) {
    dunlin::run([] {
        auto [client, server] = support::connected("tcp");
        client.write_all("news");
        char seen[4], read[4];
        EXPECT_EQ(peek(server, seen), 4u);
        EXPECT_EQ(std::string(seen, 4), "news");
        EXPECT_EQ(server.read_exactly(read), 4u);
        EXPECT_EQ(std::string(read, 4), "news");
    });
}

TEST(NewCall, WaitsUntilThereIsSomething) {
    dunlin::run([] {
        auto [client, server] = support::connected("tcp");
        dunlin::task<std::size_t> waiting = dunlin::spawn([&server = server] {
            char seen[4];
            return peek(server, seen);
        });
        EXPECT_FALSE(waiting.wait_for(10ms));
        client.write_all("x");
        EXPECT_EQ(waiting.get(), 1u);
    });
}

TEST(NewCall, EndsByItsContextAndByTheReadersDeadlineAndByAClose) {
    dunlin::run([] {
        auto [client, server] = support::connected("tcp");
        char seen[4];
        auto [soon, cancel] = dunlin::with_timeout(dunlin::context::background(), 5ms);
        EXPECT_THROW(peek(server, seen, soon), dunlin::context_cancelled);
        std::error_code ec;
        EXPECT_EQ(peek(server, seen, soon, ec), 0u);
        EXPECT_TRUE(ec);
        server.set_read_deadline(5ms);
        EXPECT_EQ(peek(server, seen, ec), 0u);
        EXPECT_EQ(ec, std::errc::timed_out);
        server.clear_read_deadline();
        dunlin::go([&server = server] {
            dunlin::sleep_for(5ms);
            server.close();
        });
        EXPECT_EQ(peek(server, seen, ec), 0u);
        EXPECT_EQ(ec, dunlin::errc::closed);
    });
}

TEST(NewCall, LetsTheNextReaderIn) {
    dunlin::run([] {
        auto [client, server] = support::connected("tcp");
        dunlin::wait_group all;
        for (int i = 0; i < 8; ++i) {
            all.go([&server = server] {
                char seen[1];
                EXPECT_EQ(peek(server, seen), 1u);
            });
        }
        dunlin::yield();
        client.write_all("x");
        all.wait();
    });
}

}  // namespace
