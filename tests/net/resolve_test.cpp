// resolve_test.cpp - look-ups that do not come back, as with a name server that is dead. getaddrinfo() is this file's:
// it waits, for names below .stuck, .slow, .dead and .port, until it is let go; names below .quick are 127.0.0.1 at
// once; for those below .shortage there are no descriptors, and none below .none exists.
#include <atomic>
#include <cerrno>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <netdb.h>
#include <pthread.h>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>

#include "net/pairs.h"
#include "support/runtime_test.h"

namespace {

// Of those below .stuck, whose run() ends, some stand still for good: asking does not become 0 again.
struct names_that_wait {
    std::atomic<int> asking{0}, let_go{0};
} stuck, slow, dead, ports;

// How often each name was asked for.
std::mutex lock;
std::map<std::string, int, std::less<>> asked;
int times_asked(std::string_view name) {
    const std::lock_guard hold(lock);
    const auto found = asked.find(name);
    return found != asked.end() ? found->second : 0;
}

}  // namespace

extern "C" int getaddrinfo(const char* host, const char* port, const addrinfo* hints, addrinfo** result) {
    using call = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
    static const call real = reinterpret_cast<call>(dlsym(RTLD_NEXT, "getaddrinfo"));
    const std::string_view service = port != nullptr ? port : "";
    const std::string_view name = service.ends_with(".port") ? service : host != nullptr ? host : "";
    {
        const std::lock_guard hold(lock);
        ++asked[std::string(name)];
    }
    if (name.ends_with(".quick")) return real("127.0.0.1", port, hints, result);
    if (name.ends_with(".shortage")) errno = EMFILE;
    if (name.ends_with(".shortage") || name.ends_with(".none")) return EAI_NONAME;
    if (!name.ends_with(".stuck") && !name.ends_with(".slow") && !name.ends_with(".dead") && !name.ends_with(".port"))
        return real(host, port, hints, result);
    names_that_wait& names = name.ends_with(".stuck") ? stuck
                             : name.ends_with(".slow") ? slow
                             : name.ends_with(".port") ? ports
                                                       : dead;
    ++names.asking;
    do {
        usleep(1000);
    } while (names.let_go == 0);
    --names.asking;
    return EAI_AGAIN;
}

namespace {

using namespace std::chrono_literals;
namespace net = dunlin::net;

class Resolve : public support::runtime_test {};

// As many look-ups as there may be at a time; the run ends, and the next one finds all places free.
TEST_F(Resolve, LookUpsThatAnEndedRunHasLeftBehindTakeNoPlaces) {
    constexpr int places = 64, waiting = 8;
    allow(60s);
    for (int round = 1; round <= 2; ++round) {
        dunlin::run({.max_procs = 2}, [round] {
            for (int i = 0; i < places + waiting; ++i) {
                dunlin::go([i] {
                    std::error_code ec;
                    net::resolve(std::to_string(i) + ".stuck:80", ec);
                });
            }
            support::eventually([round] { return stuck.asking == round * places; });
        });
        dunlin::run({.max_procs = 2}, [] {
            const auto limit = dunlin::with_timeout(dunlin::context::background(), 20s);
            std::error_code ec;
            EXPECT_FALSE(net::resolve("tcp4", "somebody.quick:80", limit, ec).empty());
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
        support::eventually([] { return slow.asking == 1; });
        slow.let_go = 1;
        support::eventually([] { return slow.asking == 0; });
        EXPECT_EQ(times_asked("somebody.slow"), 1) << "both waited for the same";
    });
}

// A name server that is dead.
TEST_F(Resolve, LookUpsWithoutAWaiterStandInNoCallersWay) {
    allow(60s);
    dunlin::run({.max_procs = 2}, [] {
        // More than there are places, and all callers go away.
        constexpr int many = 150;
        dunlin::wait_group callers;
        for (int i = 0; i < many; ++i) {
            callers.go([i] {
                const auto limit = dunlin::with_timeout(dunlin::context::background(), 50ms);
                std::error_code ec;
                net::resolve("away" + std::to_string(i) + ".dead:80", limit, ec);
                EXPECT_EQ(ec, dunlin::errc::deadline_exceeded);
            });
        }
        callers.wait();
        EXPECT_EQ(net::resolve("tcp4", "first.quick:80").at(0).to_string(), "127.0.0.1:80");

        // Callers of one name share a look-up.
        for (int i = 0; i < 50; ++i) {
            callers.go([] {
                std::error_code ec;
                net::dial("tcp", "same.dead:80", 50ms, ec);
                EXPECT_EQ(ec, support::has_timed_out);
            });
        }
        callers.wait();
        EXPECT_EQ(times_asked("same.dead"), 1);

        // With all places taken by callers that wait: another one waits for a place within its limit, and does not
        // begin afterwards. What needs no resolver is there.
        constexpr int places = 64;
        const int before = dead.asking;
        dunlin::wait_group holders;
        for (int i = 0; i < places; ++i) {
            holders.go([i] {
                std::error_code ec;
                net::resolve("held" + std::to_string(i) + ".dead:80", ec);
                EXPECT_EQ(ec, std::errc::resource_unavailable_try_again);
            });
        }
        support::eventually([before] { return dead.asking == before + places; });
        const auto limit = dunlin::with_timeout(dunlin::context::background(), 20ms);
        std::error_code ec;
        net::resolve("late.quick:80", limit, ec);
        EXPECT_EQ(ec, dunlin::errc::deadline_exceeded);
        for (const char* text : {"localhost:80", "LOCALHOST.:80", ":80", "127.0.0.1:80", "[::1]:80", "::1", "127.0.0.1",
                 "localhost", "127.0.0.1:http"}) {
            const auto found = net::resolve(text);
            ASSERT_FALSE(found.empty()) << text;
            EXPECT_TRUE(found[0].is_loopback()) << text;
        }
        EXPECT_TRUE(net::listen("tcp", "localhost:0").is_open());
        EXPECT_TRUE(net::listen("tcp", ":0").is_open());
        EXPECT_EQ(times_asked("localhost"), 0);
        EXPECT_EQ(net::resolve("localhost:http").at(0).port(), 80);

        dead.let_go = 1;
        holders.wait();
        support::eventually([] { return dead.asking == 0; });
        EXPECT_EQ(net::resolve("tcp4", "last.quick:80").size(), 1u);
        EXPECT_EQ(times_asked("late.quick"), 0) << "its caller had gone before there was a place";
    });
}

// So many that are not waited for keep their threads; those beyond keep their places, and a caller is told in time.
TEST_F(Resolve, ThreadsOfLookUpsWithoutAWaiterAreBounded) {
    static constexpr int places = 64, unwanted = 192, waves = unwanted / places + 2;
    allow(60s);
    dead.let_go = 0;
    dunlin::run({.max_procs = 2}, [] {
        const auto name = [](int wave, int i) {
            return "wave" + std::to_string(wave) + "-" + std::to_string(i) + ".dead";
        };
        // The callers of each wave take all places, and go away; there are more waves than can leave something behind.
        for (int wave = 0; wave < waves; ++wave) {
            dunlin::wait_group callers;
            for (int i = 0; i < places; ++i) {
                callers.go([=] {
                    const auto limit = dunlin::with_timeout(dunlin::context::background(), 300ms);
                    std::error_code ec;
                    net::resolve(name(wave, i) + ":80", limit, ec);
                    EXPECT_EQ(ec, dunlin::errc::deadline_exceeded);
                });
            }
            callers.wait();
        }
        dead.let_go = 1;
        support::eventually([] { return dunlin::runtime::num_goroutines() == 1; });
        // Of a wave on a slow machine some callers go before their look-up has begun; a later one has their places.
        int begun = 0;
        for (int wave = 0; wave < waves; ++wave) {
            for (int i = 0; i < places; ++i) begun += times_asked(name(wave, i));
        }
        EXPECT_LE(begun, places + unwanted);
        EXPECT_GT(begun, unwanted);
        EXPECT_EQ(net::resolve("tcp4", "after.quick:80").size(), 1u);
    });
}

// A plain thread may wait for the flight of a goroutine that stands still when its run() ends: it asks itself then.
TEST_F(Resolve, APlainThreadIsNotLeftBehindWithAnEndedRun) {
    std::atomic<bool> asks{false};
    slow.let_go = 0;
    std::thread thread;
    dunlin::run([&] {
        dunlin::go([] {
            std::error_code ec;
            net::resolve("shared.slow:80", ec);
        });
        support::eventually([] { return times_asked("shared.slow") == 1; });
        thread = std::thread([&] {
            std::error_code ec;
            asks = true;
            net::resolve("shared.slow:80", ec);
            EXPECT_EQ(ec, std::errc::resource_unavailable_try_again);
        });
        support::eventually([&] { return asks.load(); });
    });
    support::eventually_on_thread([] { return times_asked("shared.slow") == 2; });
    slow.let_go = 1;
    thread.join();
}

// What a plain thread has asked is answered once, however many runs end meanwhile: here, or in a goroutine that works
// for it.
TEST_F(Resolve, TheLookUpOfAPlainThreadGoesOnWhenRunsEnd) {
    for (const bool limited : {false, true}) {
        const std::string name = limited ? "limited.slow" : "mine.slow";
        slow.let_go = 0;
        std::atomic<bool> over{false};
        std::thread thread([&] {
            std::error_code ec;
            if (limited) {
                net::resolve(name + ":80", dunlin::with_timeout({}, 1h), ec);
            } else {
                net::resolve(name + ":80", ec);
            }
            EXPECT_EQ(ec, std::errc::resource_unavailable_try_again);
            over = true;
        });
        support::eventually_on_thread([&] { return times_asked(name) == 1; });
        for (int i = 0; i < 20; ++i) dunlin::run({.max_procs = 2}, [] { dunlin::sleep_for(1ms); });
        slow.let_go = 1;
        support::eventually_on_thread([&] { return over.load(); });
        thread.join();
        EXPECT_EQ(times_asked(name), 1);
    }
}

TEST_F(Resolve, ThePortsNameIsLookedUpWithinTheCallersLimit) {
    dunlin::run({.max_procs = 1}, [] {
        const auto limit = dunlin::with_timeout(dunlin::context::background(), 10ms);
        std::error_code ec;
        EXPECT_TRUE(net::resolve("127.0.0.1:my.port", limit, ec).empty());
        EXPECT_EQ(ec, dunlin::errc::deadline_exceeded);
        net::dial("tcp", "127.0.0.1:my.port", 10ms, ec);
        EXPECT_EQ(ec, support::has_timed_out);
        net::listen("tcp", "127.0.0.1:my.port", limit, ec);
        EXPECT_EQ(ec, dunlin::errc::deadline_exceeded);
        support::eventually([] { return ports.asking == 1; });
        EXPECT_EQ(net::resolve("127.0.0.1:80", ec).at(0).port(), 80) << "a number asks no one";
        ports.let_go = 1;
        support::eventually([] { return ports.asking == 0; });
        EXPECT_EQ(times_asked("my.port"), 1) << "all waited for the same";
    });
}

TEST_F(Resolve, AFailureSaysWhetherItIsTheNamesTheServersOrTheCallersProcess) {
    slow.let_go = 1;
    EXPECT_EQ(support::text_of([] { net::dial("tcp", "failing.slow:80"); }),
        "dial tcp failing.slow:80: resource temporarily unavailable: the name server has failed, or does not answer");
    EXPECT_EQ(support::text_of([] { net::resolve("failing.slow"); }),
        "resolve failing.slow: resource temporarily unavailable: the name server has failed, or does not answer");
    EXPECT_EQ(support::text_of([] { net::resolve("some.shortage"); }), "resolve some.shortage: too many open files");
    errno = EMFILE;  // of an earlier call
    EXPECT_EQ(support::text_of([] { net::resolve("no.none"); }), "resolve no.none: no such host");
}

// Others may wait for the same answer. It ends after that, at the next cancellation point.
TEST_F(Resolve, ThePlainThreadOfALookUpIsNotCancelledInIt) {
    slow.let_go = 1;
    static std::atomic<bool> answered;
    answered = false;
    pthread_t t;
    ASSERT_EQ(pthread_create(&t, nullptr, [](void*) -> void* {
        pthread_cancel(pthread_self());
        std::error_code ec;
        net::resolve("cancelled.slow:80", ec);
        answered = true;
        pthread_testcancel();
        return nullptr;
    }, nullptr), 0);
    void* result = nullptr;
    pthread_join(t, &result);
    EXPECT_EQ(result, PTHREAD_CANCELED);
    EXPECT_TRUE(answered);
}

}  // namespace
