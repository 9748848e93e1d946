// What dunlin::debug::serve() leaves behind when memory fails for a request.
#include <cstdlib>
#include <new>
#include <sstream>
#include <string>
#include <string_view>

#include <dunlin/debug.hpp>
#include <dunlin/trace.hpp>

#include "support/failing_memory.h"
#include "support/runtime_test.h"

void* operator new(std::size_t size) { return support::allocate(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return support::allocate_or_null(size); }
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace {

using namespace std::chrono_literals;
using DebugNoMemory = support::runtime_test;

// The server's status, while the `which`-th allocation fails. 0: the connection has ended without a reply. `failed`:
// there were so many.
int status_without(long which, const dunlin::debug::server& at, const std::string& path, bool& failed) {
    auto client = dunlin::net::dial("tcp", at.local_address());
    const std::string sent = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char first[16] = {}, rest[4096];
    support::allocations_left.store(which);
    try {
        client.write_all(sent);
        client.read_exactly(first, sizeof first - 1);
        while (client.read_some(rest, sizeof rest) != 0) {
        }
    } catch (const std::bad_alloc&) {  // it was an allocation of this client's
    } catch (const dunlin::io_error&) {
    }
    failed = support::allocations_left.exchange(0) == 0;
    return std::string_view(first).starts_with("HTTP/1.1 ") ? std::atoi(first + 9) : 0;
}

// False: not within ten seconds, so never.
bool recorder_ends() {
    for (const auto until = dunlin::clock::now() + 10s; dunlin::trace::running();) {
        if (dunlin::clock::now() > until) return false;
        dunlin::sleep_for(1ms);
    }
    return true;
}

TEST_F(DebugNoMemory, ATraceThatFailsLeavesNoRecorder) {
    allow(120s);
    dunlin::run({.max_procs = 1}, [] {
        const auto s = dunlin::debug::serve("127.0.0.1:0", {.wait_histograms = false});
        bool failed = true, late = false;  // late: it has failed after its second
        for (long which = 1; failed && !late; ++which) {
            const auto began = dunlin::clock::now();
            const int status = status_without(which, s, "/debug/pprof/trace?seconds=1", failed);
            // If it is the client that has failed, the trace lasts its second.
            ASSERT_TRUE(recorder_ends()) << "without allocation " << which << ", status " << status;
            late = status == 500 && dunlin::clock::now() - began >= 1s;
        }
        EXPECT_TRUE(late);
        EXPECT_EQ(status_without(0, s, "/debug/pprof/trace?seconds=1", failed), 200);
    });
}

TEST_F(DebugNoMemory, ARecorderThatCannotBeWatchedIsNotLeft) {
    allow(120s);
    dunlin::run({.max_procs = 1}, [] {
        int unwatched = 0, watched = 0;
        bool failed = true;
        for (long which = 1; failed; ++which) {
            const auto s = dunlin::debug::serve("127.0.0.1:0", {.wait_histograms = false});
            if (status_without(which, s, "/trace", failed) != 500) continue;
            std::ostringstream dump;
            dunlin::runtime::dump(dump);
            const bool is_watched = dump.str().find("dunlin::debug recorder") != std::string::npos;
            EXPECT_EQ(dunlin::trace::running(), is_watched) << "without allocation " << which;
            ++(is_watched ? watched : unwatched);
        }
        EXPECT_GT(unwatched, 0);
        EXPECT_GT(watched, 0);
    });
}

TEST(DebugMemory, FailsWhenItIsTold) { EXPECT_TRUE(support::memory_fails()); }

}  // namespace
