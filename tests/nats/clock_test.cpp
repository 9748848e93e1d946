// The wall clock jumps: an hour ahead, and two hours back. It is the clock that this process asks for, here; the
// servers' stands still.
#include <atomic>
#include <ctime>

#include <dlfcn.h>
#include <sys/time.h>

#include "nats/servers.h"

namespace {
std::atomic<long> shifted_s{0};
std::atomic<int> asked{0};

template <class F>
F next(const char* name) {
    return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}
}  // namespace

// In place of libc's, for this program and for libnats.
extern "C" int clock_gettime(clockid_t clock, timespec* t) noexcept {
    static const auto real = next<int (*)(clockid_t, timespec*)>("clock_gettime");
    const int result = real(clock, t);
    if (clock == CLOCK_REALTIME) {
        t->tv_sec += shifted_s.load();
        asked.fetch_add(1);
    }
    return result;
}
extern "C" int gettimeofday(timeval* t, void* zone) noexcept {
    static const auto real = next<int (*)(timeval*, void*)>("gettimeofday");
    const int result = real(t, zone);
    t->tv_sec += shifted_s.load();
    return result;
}

namespace {

using namespace std::chrono_literals;
namespace nats = dunlin::nats;
using support::nats_servers;
using nats_clock = support::nats_test;

TEST_F(nats_clock, AWallClockThatJumpsLosesNoDeliveryAndEndsNoWait) {
    nats_servers servers;
    dunlin::run([&] {
        auto cluster = nats::connect(servers.urls(), {.timeout = 2s, .ping = 200ms});
        auto jobs = cluster.queue<std::string>("jobs", {.ack_wait = 2s});
        auto consumer = jobs.consume({.in_flight = 2});
        jobs.send("held");
        auto held = consumer.recv();
        ASSERT_TRUE(held);
        for (const long jump : {3'600L, -3'600L}) {
            shifted_s = jump;
            jobs.send("next");
            auto d = consumer.recv_for(5s);
            ASSERT_TRUE(d) << jump;
            EXPECT_EQ(**d, "next");
            d->done();
            dunlin::sleep_for(2300ms);  // beyond ack_wait
            EXPECT_FALSE(held->lost()) << jump;
        }
        EXPECT_EQ(cluster.stats().redelivered, 0u);
        EXPECT_GT(asked, 0) << "libnats does not ask this clock";
        // A server that stands still is found out whatever the wall clock says.
        servers[0].signal(SIGSTOP);
        support::eventually([&] {
            dunlin::sleep_for(20ms);
            return !cluster.stats().connected;
        });
        servers[0].signal(SIGCONT);
        held->done();
        EXPECT_EQ(jobs.size().messages, 0u);
        shifted_s = 0;
        cluster.close();
    });
}

}  // namespace
