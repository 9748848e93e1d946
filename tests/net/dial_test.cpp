// Connecting: what is refused, what takes too long, names with several addresses.
#include <atomic>
#include <chrono>
#include <cstring>
#include <dlfcn.h>
#include <netdb.h>
#include <string>
#include <thread>
#include <vector>

#include "net/pairs.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

// Names of this test's: "A,B.test" has the addresses A and B in this order. All others are the system's.
using look_up = int (*)(const char*, const char*, const addrinfo*, addrinfo**);

int look_up_list(look_up real, std::string names, const char* service, addrinfo hints, addrinfo** result) {
    names.resize(names.size() - std::strlen(".test"));
    hints.ai_flags |= AI_NUMERICHOST;
    addrinfo** end = result;
    *end = nullptr;
    for (std::size_t at = 0; at <= names.size();) {
        const std::size_t comma = std::min(names.find(',', at), names.size());
        if (real(names.substr(at, comma - at).c_str(), service, &hints, end) == 0) {
            while (*end != nullptr) end = &(*end)->ai_next;
        }
        at = comma + 1;
    }
    return *result != nullptr ? 0 : EAI_NONAME;
}

}  // namespace

extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints, addrinfo** result) {
    static const auto real = reinterpret_cast<look_up>(dlsym(RTLD_NEXT, "getaddrinfo"));
    const std::string name = host != nullptr ? host : "";
    return name.ends_with(".test") ? look_up_list(real, name, service, *hints, result)
                                   : real(host, service, hints, result);
}

namespace {

namespace net = dunlin::net;
using dunlin::context;
using support::code_of;
using support::has_timed_out;
using support::text_of;


// A port of 127.0.0.1 without a listener: bound, so that no other gets it.
class closed_port {
public:
    closed_port() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const net::address any = net::address::parse("tcp4", "127.0.0.1:0");
        if (bind(fd_, static_cast<const sockaddr*>(any.native()), any.native_size()) != 0) std::abort();
        sockaddr_in name;
        socklen_t size = sizeof name;
        getsockname(fd_, reinterpret_cast<sockaddr*>(&name), &size);
        port_ = std::to_string(ntohs(name.sin_port));
    }
    ~closed_port() { close(fd_); }
    const std::string& port() const { return port_; }

private:
    int fd_;
    std::string port_;
};

// A listener that lets none in any more: its backlog is full.
class full_listener {
public:
    explicit full_listener(const char* network)
        : listener(net::listen(network, support::any_address(network), {.backlog = 1})) {
        // A single time-out may be the machine's fault.
        for (int timeouts = 0; timeouts < 2 && clients.size() < 20;) {
            std::error_code ec;
            net::stream s = net::dial(network, listener.local_address(), 150ms, ec);
            timeouts = ec ? timeouts + 1 : 0;
            if (s.is_open()) clients.push_back(std::move(s));
        }
    }
    std::string address() const { return listener.local_address().to_string(); }

    net::listener listener;
    std::vector<net::stream> clients;
};

class Dial : public support::each_p {
protected:
    // Once for all: it takes a while to find out that none is let in.
    static void SetUpTestSuite() {
        full_tcp = std::make_unique<full_listener>("tcp");
        full_unix = std::make_unique<full_listener>("unix");
    }
    static void TearDownTestSuite() {
        full_tcp.reset();
        full_unix.reset();
    }
    inline static std::unique_ptr<full_listener> full_tcp, full_unix;

    void SetUp() override {
        support::each_p::SetUp();
        open_before_ = dunlin::netpoll::fd_record::open_count();
    }
    void TearDown() override {
        support::each_p::TearDown();
        EXPECT_EQ(support::waiters(), 0);
        EXPECT_EQ(dunlin::netpoll::fd_record::open_count(), open_before_);
    }

private:
    std::size_t open_before_ = 0;
};
EACH_P(Dial);

TEST_P(Dial, IsRefused) {
    run([] {
        const closed_port port;
        const std::string to = "127.0.0.1:" + port.port();
        EXPECT_EQ(code_of([&] { net::dial("tcp", to); }), std::errc::connection_refused);
        EXPECT_EQ(text_of([&] { net::dial("tcp", to, 5s); }), "dial tcp " + to + ": connection refused");
        EXPECT_EQ(
            text_of([&] { net::dial("unix", "@nobody-is-here"); }), "dial unix @nobody-is-here: connection refused");
        EXPECT_EQ(code_of([] { net::dial("unix", "/no/such/path"); }), std::errc::no_such_file_or_directory);
        std::error_code ec;
        EXPECT_FALSE(net::dial("tcp", to, ec).is_open());
        EXPECT_EQ(ec, std::errc::connection_refused);
        EXPECT_FALSE(net::dial("tcp", to, 1s, ec).is_open());
        EXPECT_EQ(ec, std::errc::connection_refused);
        EXPECT_FALSE(net::dial("tcp", to, context::background(), ec).is_open());
        EXPECT_EQ(ec, std::errc::connection_refused);
    });
    EXPECT_EQ(code_of([] { net::dial("tcp", "127.0.0.1:" + closed_port().port()); }), std::errc::connection_refused)
        << "from a plain thread";
}

TEST_P(Dial, RefusesWhatIsNoAddress) {
    run([] {
        const std::error_code bad = dunlin::errc::bad_address;
        EXPECT_EQ(code_of([] { net::dial("tcp", "127.0.0.1"); }), bad);
        EXPECT_EQ(code_of([] { net::dial("tcp", ""); }), bad);
        EXPECT_EQ(code_of([] { net::dial("udp", "127.0.0.1:1"); }), bad);
        EXPECT_EQ(code_of([] { net::dial("foo", "127.0.0.1:1"); }), bad);
        EXPECT_EQ(code_of([] { net::dial("unix", ""); }), bad);
        EXPECT_EQ(code_of([] { net::dial("tcp", "::1:80"); }), bad);
        const std::string text = text_of([] { net::dial("foo", "127.0.0.1:1"); });
        EXPECT_EQ(text.rfind("dial foo 127.0.0.1:1: ", 0), 0u) << text;
    });
}

TEST_P(Dial, TakesNoLongerThanItsLimit) {
    run([] {
        for (const char* network : {"tcp", "unix"}) {
            const full_listener& full = std::string(network) == "tcp" ? *full_tcp : *full_unix;
            const auto begin = dunlin::clock::now();
            const std::string text = text_of([&] { net::dial(network, full.address(), 50ms); });
            EXPECT_GE(dunlin::clock::now() - begin, 50ms);
            EXPECT_EQ(text, std::string("dial ") + network + ' ' + full.address() + ": timed out after 50ms");
            const auto soon = context::with_timeout(context::background(), 20ms);
            EXPECT_EQ(code_of([&] { net::dial(network, full.address(), soon); }),
                std::error_code(dunlin::errc::deadline_exceeded));
            auto ctx = dunlin::with_cancel(context::background());
            dunlin::wait_group wg;
            wg.go([&] {
                std::error_code ec;
                net::dial(network, full.address(), ctx, ec);
                EXPECT_EQ(ec, std::error_code(dunlin::errc::cancelled));
            });
            dunlin::sleep_for(5ms);
            ctx.cancel();
            wg.wait();
            EXPECT_EQ(
                code_of([&] { net::dial(network, full.address(), ctx); }), std::error_code(dunlin::errc::cancelled))
                << "before it began";
            EXPECT_EQ(code_of([&] { net::dial(network, full.address(), 0s); }), has_timed_out);
            EXPECT_EQ(code_of([&] { net::dial(network, full.address(), -1s); }), has_timed_out);
        }
    });
}

// The backlog of a Unix socket: connect() says EAGAIN, and no event tells when there is room.
TEST_P(Dial, WaitsForRoomInTheBacklogOfAUnixSocket) {
    run([] {
        full_listener full("unix");
        dunlin::wait_group wg;
        wg.go([&] { EXPECT_TRUE(net::dial("unix", full.address()).is_open()); });
        dunlin::sleep_for(5ms);
        std::vector<net::stream> accepted;
        for (std::size_t i = 0; i < full.clients.size(); ++i) accepted.push_back(full.listener.accept());
        wg.wait();
    });
}

TEST_P(Dial, ANameWhereOneFamilyAnswers) {
    run([] {
        for (const char* network : {"tcp4", "tcp6"}) {
            if (std::string(network) == "tcp6") {
                // The name must have an address of that family.
                bool has = false;
                for (const net::address& a : net::resolve("localhost:1")) has = has || a.is_ipv6();
                if (!has || !support::has_ipv6()) continue;
            }
            net::listener l = net::listen(network, support::any_address(network));
            const std::string port = std::to_string(l.local_address().port());
            for (int i = 0; i < 20; ++i) {
                net::stream client = net::dial("tcp", "localhost:" + port);
                net::stream server = l.accept();
                client.write_all("x");
                char c;
                EXPECT_EQ(server.read_some(&c, 1), 1u);
                EXPECT_TRUE(net::dial("tcp", ":" + port, 5s).is_open());
                l.accept();
            }
        }
    });
}

// RFC 8305: the next address when one has failed, or has not answered for 250 ms.
TEST_P(Dial, TheAddressThatAnswersIsTaken) {
    run([] {
        net::listener l = net::listen("tcp4", "127.0.0.1:0");
        const std::string port = ":" + std::to_string(l.local_address().port());
        for (const char* name :
            {"::1,127.0.0.1.test", "127.0.0.1,::1.test", "127.0.0.2,127.0.0.3,::1,127.0.0.1.test"}) {
            for (int i = 0; i < 20; ++i) {
                EXPECT_EQ(net::dial("tcp", '[' + std::string(name) + ']' + port).remote_address(), l.local_address())
                    << name;
                l.accept();
            }
        }
    });
}

TEST_P(Dial, AnAddressThatDoesNotAnswerIsNotWaitedFor) {
    run([] {
        const full_listener& full = *full_tcp;
        const std::string port = ":" + std::to_string(full.listener.local_address().port());
        net::listener l = net::listen("tcp4", "127.0.0.2" + port);
        const auto begin = dunlin::clock::now();
        EXPECT_EQ(net::dial("tcp", "127.0.0.1,127.0.0.2.test" + port).remote_address(), l.local_address());
        EXPECT_GE(dunlin::clock::now() - begin, 250ms);
        EXPECT_EQ(net::dial("tcp", "127.0.0.3,127.0.0.2.test" + port).remote_address(), l.local_address())
            << "refused, and the next at once";
        EXPECT_EQ(code_of([&] { net::dial("tcp", "127.0.0.1,127.0.0.1.test" + port, 20ms); }), has_timed_out);
        auto ctx = dunlin::with_cancel(context::background());
        dunlin::wait_group wg;
        wg.go([&] {
            EXPECT_EQ(code_of([&] { net::dial("tcp", "127.0.0.1,127.0.0.3.test" + port, ctx); }),
                std::error_code(dunlin::errc::cancelled));
        });
        dunlin::sleep_for(5ms);
        ctx.cancel();
        wg.wait();
        std::thread([&] { EXPECT_TRUE(net::dial("tcp", "127.0.0.1,127.0.0.2.test" + port).is_open()); }).join();
        // Those that lost are given up after the call has returned.
        support::eventually([] { return support::waiters() == 0; });
    });
}

// fe80::1 without a zone is no address that the kernel has a way to.
TEST_P(Dial, DatagramsGoToTheFirstAddressThatCanBeReached) {
    run([] {
        net::packet_conn server = net::listen_packet("udp4", "127.0.0.1:0");
        const std::string port = ":" + std::to_string(server.local_address().port());
        net::packet_conn client = net::dial_packet("udp", "[fe80::1,127.0.0.1.test]" + port);
        EXPECT_EQ(client.remote_address(), server.local_address());
        const std::error_code first = code_of([&] { net::dial_packet("udp", "[fe80::1]" + port); });
        EXPECT_TRUE(first);
        EXPECT_EQ(code_of([&] { net::dial_packet("udp", "[fe80::1,fe80::2.test]" + port); }), first);
    });
}

TEST_P(Dial, ANameWhereNothingAnswersIsAnError) {
    run([] {
        const closed_port port;
        EXPECT_EQ(code_of([&] { net::dial("tcp", "localhost:" + port.port()); }), std::errc::connection_refused);
        EXPECT_EQ(code_of([&] { net::dial("tcp", "localhost:" + port.port(), 5s); }), std::errc::connection_refused);
        const std::error_code ec = code_of([&] { net::dial("tcp", std::string(70, 'x') + ".invalid:80", 5s); });
        EXPECT_TRUE(ec == dunlin::errc::host_not_found || ec == std::errc::resource_unavailable_try_again ||
                    ec == has_timed_out)
            << ec.message();
    });
}

TEST_P(Dial, ManyAtOnceFromGoroutinesAndThreads) {
    run([] {
        net::listener l = net::listen("tcp", "127.0.0.1:0");
        const int each = support::rounds(100);
        std::atomic<int> sum{0};
        const auto dial = [&] {
            for (int i = 0; i < each; ++i) {
                net::stream s = net::dial("tcp", l.local_address());
                char c = 1;
                s.write_all(&c, 1);
                s.read_exactly(&c, 1);
                sum += c;
            }
        };
        dunlin::wait_group wg;
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i) wg.go(dial);
        for (int i = 0; i < 2; ++i) threads.emplace_back(dial);
        dunlin::wait_group served;
        for (int i = 0; i < 6 * each; ++i) {
            served.go([s = std::make_shared<net::stream>(l.accept())] {
                char c;
                s->read_exactly(&c, 1);
                s->write_all(&c, 1);
            });
        }
        wg.wait();
        served.wait();
        for (std::thread& t : threads) t.join();
        EXPECT_EQ(sum, 6 * each);
    });
}

}  // namespace
