// What may not throw does not allocate, and what fails for want of memory or of a thread leaves nothing behind.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include <dlfcn.h>
#include <pthread.h>

#include <gtest/gtest.h>

#include <dunlin/config.hpp>
#include <dunlin/nats.hpp>

#include "nats/servers.h"
#include "support/comes_true.h"
#include "support/failing_memory.h"

static thread_local bool fails_here = false;  // the allocations of other threads do not fail

void* operator new(std::size_t size) {
    if (fails_here) return support::allocate(size);
    if (void* const p = std::malloc(size != 0 ? size : 1)) return p;
    throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    return fails_here ? support::allocate_or_null(size) : std::malloc(size != 0 ? size : 1);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

#if !DUNLIN_THREAD_SANITIZER && !DUNLIN_ADDRESS_SANITIZER
static std::atomic<bool> no_threads{false};

// In the place of libc's, which it calls.
extern "C" int pthread_create(
    pthread_t* thread, const pthread_attr_t* attributes, void* (*entry)(void*), void* argument) noexcept {
    static const auto real = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
    return no_threads ? EAGAIN : real(thread, attributes, entry, argument);
}
#endif

namespace {

using namespace std::chrono_literals;
namespace nats = dunlin::nats;
using support::nats_servers;
using nats_no_memory = support::nats_test;

// f() on this thread, while its `which`-th allocation fails. False: std::bad_alloc came out.
template <class F>
bool works_without(long which, F f) {
    bool worked = true;
    support::allocations_left.store(which);
    fails_here = true;
    try {
        f();
    } catch (const std::bad_alloc&) {
        worked = false;
    }
    fails_here = false;
    support::allocations_left.store(0);
    return worked;
}

auto open_descriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

std::string masked_signals() {
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, nullptr, &now);
    std::string all;
    for (int s = 1; s < NSIG; ++s) all += sigismember(&now, s) == 1 ? '1' : '0';
    return all;
}

TEST(NatsNoMemory, TheFirstCodeNeedsNone) {
    fails_here = true;
    support::allocations_left.store(1);
    const std::error_code first = make_error_code(dunlin::nats::errc::busy);
    support::allocations_left.store(0);
    fails_here = false;
    EXPECT_STREQ(first.category().name(), "dunlin.nats");
}

TEST_F(nats_no_memory, ASendThatFailsGivesItsPermitBack) {
    nats_servers servers;
    auto cluster = nats::connect(servers.urls());
    auto jobs = cluster.queue<std::string>("jobs", {.window = 1});
    bool sent = false;
    for (long which = 1; !sent && which < 1'000; ++which) {
        const auto soon = dunlin::with_timeout(dunlin::context::background(), 10s);
        ASSERT_NO_THROW(sent = works_without(which, [&] { jobs.send_async("job", nats::once_by("one"), soon); })) << which;
    }
    EXPECT_TRUE(sent);
    EXPECT_TRUE(jobs.flush().empty());
    EXPECT_EQ(jobs.size().messages, 1u);
    cluster.close();
}

TEST_F(nats_no_memory, AFailureIsReportedEvenIfThereWasNoMemoryForItsReport) {
    nats_servers servers;
    auto cluster = nats::connect(servers.urls());
    auto jobs = cluster.queue<std::string>("jobs");
    servers[0].signal(SIGSTOP);
    std::map<std::string, std::string> sent, reported;
    for (const char c : {'a', 'b', 'c'}) {
        const std::string id(40, c), data(100, c);
        sent[id] = data;
        jobs.send_async(data, nats::once_by(id));
    }
    const auto over = dunlin::with_cancel(dunlin::context::background());
    over.cancel();
    for (long which = 1; reported.size() < sent.size() && which < 1'000; ++which) {
        std::vector<nats::unconfirmed> some;
        static_cast<void>(works_without(which, [&] { some = jobs.flush(over); }));
        for (const nats::unconfirmed& u : some) {
            EXPECT_EQ(u.code, nats::errc::not_confirmed);
            EXPECT_TRUE(reported.emplace(u.id, u.data).second) << "twice";
        }
    }
    EXPECT_EQ(reported, sent);
    EXPECT_TRUE(jobs.flush().empty()) << "no job is left";
    servers[0].signal(SIGCONT);
    cluster.close();
}

TEST_F(nats_no_memory, AConnectThatFailsLeavesNothing) {
    nats_servers servers;
    dunlin::spawn([] {}).get();  // the runtime has its descriptors then
    const std::string urls = servers.urls(), mask = masked_signals();
    const auto before = open_descriptors();
    const nats::connect_options options;
    bool connected = false;
    for (long which = 1; !connected && which < 1'000; ++which) {
        connected = works_without(which, [&] { nats::connect(urls, options); });
        EXPECT_EQ(masked_signals(), mask) << which;
        ASSERT_TRUE(support::comes_true([&] { return open_descriptors() == before; })) << "without allocation " << which;
    }
    EXPECT_TRUE(connected);
}

#if !DUNLIN_THREAD_SANITIZER && !DUNLIN_ADDRESS_SANITIZER
TEST_F(nats_no_memory, AConnectWithoutAThreadLeavesNothing) {
    nats_servers servers;
    dunlin::spawn([] {}).get();
    const auto none = dunlin::context::background();
    const dunlin::context soon = dunlin::with_timeout(none, 60s);
    const auto before = open_descriptors();
    nats::connect(servers.urls()).close();  // libnats has its threads then
    support::eventually_on_thread([&] { return open_descriptors() == before; });
    const std::string mask = masked_signals();
    for (const dunlin::context& ctx : {none, soon}) {
        no_threads = true;
        try {
            nats::connect(servers.urls(), {}, ctx);
            ADD_FAILURE() << "there is a thread";
        } catch (const std::system_error& e) {
            EXPECT_EQ(e.code(), std::errc::resource_unavailable_try_again) << e.what();
        }
        no_threads = false;
        EXPECT_EQ(masked_signals(), mask);
        support::eventually_on_thread([&] { return open_descriptors() == before; });
    }
    const auto cluster = nats::connect(servers.urls());
    cluster.flush();
    cluster.close();
}
#endif

TEST(NatsMemory, FailsWhenItIsTold) {
    fails_here = true;
    EXPECT_TRUE(support::memory_fails());
    fails_here = false;
}

}  // namespace
