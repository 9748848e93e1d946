// Calls in which the library works in a goroutine or a thread of its own, or in a function that may not throw, while
// memory fails for one allocation after another: the caller is told, and the process goes on.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <dunlin/dunlin.hpp>
#include <dunlin/fs.hpp>
#include <dunlin/net.hpp>
#include <dunlin/process.hpp>
#include <dunlin/signal.hpp>

#include "support/failing_memory.h"
#include "support/runtime_test.h"

void* operator new(std::size_t size) { return support::allocate(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return support::allocate_or_null(size); }
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace {

using namespace std::chrono_literals;
namespace net = dunlin::net;
namespace fs = dunlin::fs;
using support::allocations_left;

class NoMemory : public support::runtime_test {};

// Calls f() again and again; the first allocation fails, then the second, until f() has got all that it wants.
void while_memory_fails(const std::function<void()>& f) {
    f();
    for (long which = 1;; ++which) {
        ASSERT_LT(which, 1000);
        std::string said;
        allocations_left.store(which);
        try {
            f();
        } catch (const std::bad_alloc&) {
            // as announced
        } catch (const std::exception& e) {
            allocations_left.store(0);
            said = e.what();
        }
        const bool got_all = allocations_left.exchange(0) > 0;
        ASSERT_EQ(said, "") << which;
        if (got_all) return;
    }
}

void expect_none_but_of_memory(const std::error_code& ec) {
    if (ec && ec != std::errc::not_enough_memory) throw std::system_error(ec);
}

TEST_F(NoMemory, ForADialOfSeveralAddressesIsTheCallersBadAlloc) {
    dunlin::run({.max_procs = 2}, [] {
        const auto l = net::listen("tcp", "127.0.0.1:0");
        const std::string at = "localhost:" + std::to_string(l.local_address().port());
        while_memory_fails([&] {
            std::error_code ec;
            const net::stream s = net::dial("tcp", at, 20s, ec);
            expect_none_but_of_memory(ec);
        });
    });
}

TEST_F(NoMemory, ForTheOpeningOfAFileWithAContextIsTheCallersBadAlloc) {
    dunlin::run({.max_procs = 2}, [] {
        const auto ctx = dunlin::with_cancel(dunlin::context::background());
        while_memory_fails([&] {
            std::error_code ec;
            const std::string content = fs::read_file("/proc/self/status", ctx, ec);
            expect_none_but_of_memory(ec);
        });
    });
}

TEST_F(NoMemory, ForAnAddressIsTheCallersBadAlloc) {
    while_memory_fails([] {
        std::error_code ec;
        net::address::parse("tcp", "[2001:db8:1234:5678:9abc:def0:1234:5678]:80", ec);
        expect_none_but_of_memory(ec);
        net::resolve("2001:db8:1234:5678:9abc:def0:1234:5678", ec);
        expect_none_but_of_memory(ec);
    });
}

TEST_F(NoMemory, ForASignalContextIsTheBadAllocOfItsConstructor) {
    dunlin::run({.max_procs = 2}, [] {
        while_memory_fails([] {
            const dunlin::signal_context ctx({SIGUSR1, SIGUSR2});
            kill(getpid(), SIGUSR2);
            while (!ctx.is_done()) dunlin::yield();
            try {
                std::rethrow_exception(ctx.cause());
            } catch (const dunlin::signal_received& e) {
                EXPECT_EQ(e.signal(), SIGUSR2);
            }
        });
    });
}

// What is left of a listener would make the next one's bind fail.
TEST_F(NoMemory, ForAListenersPathLeavesNoSocket) {
    const std::string path = "/tmp/dunlin_no_memory_test_" + std::to_string(getpid());
    dunlin::run({.max_procs = 2}, [&] {
        while_memory_fails([&] {
            std::error_code ec;
            const net::listener l = net::listen("unix", path, ec);
            expect_none_but_of_memory(ec);
        });
    });
    EXPECT_NE(access(path.c_str(), F_OK), 0);
}

// A child that was started would be out of its caller's reach.
TEST_F(NoMemory, ForAChildIsToldBeforeItIsStarted) {
    const std::vector<std::string> command{"sleep", "60"};
    const dunlin::process_options pipes{.input = dunlin::process_stream::pipe, .output = dunlin::process_stream::pipe};
    dunlin::run({.max_procs = 2}, [&] {
        for (long which = 1;; ++which) {
            ASSERT_LT(which, 1000);
            std::optional<dunlin::process> child;
            allocations_left.store(which);
            try {
                child.emplace(command, pipes);
            } catch (const std::bad_alloc&) {
            } catch (const std::system_error& e) {
                EXPECT_EQ(e.code(), std::errc::not_enough_memory) << which;
            }
            const bool got_all = allocations_left.exchange(0) > 0;
            if (child) {
                child->kill(SIGKILL);
                child->wait();
            }
            siginfo_t left{};
            ASSERT_EQ(waitid(P_ALL, 0, &left, WEXITED | WNOHANG | WNOWAIT), -1) << which;
            if (got_all) break;
        }
    });
}

std::size_t open_descriptors() {
    std::size_t n = 0;
    for (int fd = 0; fd < 1024; ++fd) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

TEST_F(NoMemory, ForACpuProfileLeavesNoneRunning) {
    std::atomic<bool> over{false};
    std::vector<std::thread> others;
    dunlin::run({.max_procs = 2}, [&] {
        const auto profiles_once = [&] {
            dunlin::runtime::start_cpu_profile();  // throws if one runs already
            std::ostringstream out;
            dunlin::runtime::stop_cpu_profile(out);
        };
        profiles_once();
        for (long which = 1;; ++which) {
            ASSERT_LT(which, 1000);
            // One more than any profile before had to do with: else there is room for its timer.
            others.emplace_back([&] { over.wait(false); });
            const std::size_t before = open_descriptors();
            bool started = false;
            allocations_left.store(which);
            try {
                dunlin::runtime::start_cpu_profile();
                started = true;
            } catch (const std::bad_alloc&) {
            }
            const bool got_all = allocations_left.exchange(0) > 0;
            EXPECT_EQ(open_descriptors(), before) << which;
            if (started) {
                std::ostringstream out;
                dunlin::runtime::stop_cpu_profile(out);
            }
            profiles_once();
            if (got_all) break;
        }
    });
    over = true;
    over.notify_all();
    for (std::thread& t : others) t.join();
}

TEST(VocabularyMemory, FailsWhenItIsTold) { EXPECT_TRUE(support::memory_fails()); }

}  // namespace
