// resolve_test.cpp - look-ups that do not come back. getaddrinfo() is this file's: it waits, for names below .stuck and .slow, until it is let go.
#include <atomic>
#include <dlfcn.h>
#include <netdb.h>
#include <string_view>
#include <unistd.h>

#include "net/pairs.h"
#include "support/runtime_test.h"

namespace {

// Of those below .stuck, whose run() ends, some stand still for good: asking does not become 0 again.
struct names_that_wait {
    std::atomic<int> asking{0}, let_go{0};
} stuck, slow;

}  // namespace

extern "C" int getaddrinfo(const char* host, const char* port, const addrinfo* hints, addrinfo** result) {
    using call = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
    static const call real = reinterpret_cast<call>(dlsym(RTLD_NEXT, "getaddrinfo"));
    const std::string_view name = host != nullptr ? host : "";
    if (!name.ends_with(".stuck") && !name.ends_with(".slow")) return real(host, port, hints, result);
    names_that_wait& names = name.ends_with(".stuck") ? stuck : slow;
    ++names.asking;
    while (names.let_go == 0) usleep(1000);
    --names.asking;
    return EAI_AGAIN;
}

namespace {

using namespace std::chrono_literals;
namespace net = dunlin::net;

class Resolve : public support::runtime_test {};

// As many look-ups as there may be at a time; the run ends, and the next one finds all places free.
TEST_F(Resolve, LookUpsThatAnEndedRunHasLeftBehindTakeNobodysPlace) {
    constexpr int places = 64, waiting = 8;
    allow(60s);
    for (int round = 1; round <= 2; ++round) {
        dunlin::run({.max_procs = 2}, [round] {
            for (int i = 0; i < places + waiting; ++i) {
                dunlin::go([] {
                    std::error_code ec;
                    net::resolve("somebody.stuck:80", ec);
                });
            }
            support::eventually([round] { return stuck.asking == round * places; });
        });
        dunlin::run({.max_procs = 2}, [] {
            const auto limit = dunlin::with_timeout(dunlin::context::background(), 20s);
            std::error_code ec;
            EXPECT_FALSE(net::resolve("tcp4", "localhost:80", limit, ec).empty());
            EXPECT_FALSE(ec) << ec.message();
        });
    }
    stuck.let_go = 1;
}

TEST_F(Resolve, ALookUpOutlivesTheContextOfItsCaller) {
    dunlin::run([] {
        const auto limit = dunlin::with_timeout(dunlin::context::background(), 10ms);
        std::error_code ec;
        EXPECT_TRUE(net::resolve("somebody.slow:80", limit, ec).empty());
        EXPECT_EQ(ec, dunlin::errc::deadline_exceeded);
        net::dial("tcp", "somebody.slow:80", 10ms, ec);
        EXPECT_EQ(ec, std::errc::timed_out);
        support::eventually([] { return slow.asking == 2; });
        slow.let_go = 1;
        support::eventually([] { return slow.asking == 0; });
    });
}

}  // namespace
