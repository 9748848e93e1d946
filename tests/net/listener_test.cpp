// Listeners: accepting, closing, options, and what happens when there are no descriptors left.
#include <array>
#include <atomic>
#include <chrono>
#include <ctime>
#include <fcntl.h>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <vector>

#include "net/pairs.h"
#include "poll/netpoll.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

namespace net = dunlin::net;
using support::code_of;
using support::has_timed_out;
using support::is_closed;
using support::text_of;

class Listener : public support::each_p {};
EACH_P(Listener);
class ListenerOnce : public support::runtime_test {};

constexpr const char* networks[] = {"tcp", "unix"};

TEST_P(Listener, ACloseEndsAllAccepts) {
    run([] {
        for (int i = 0; i < support::rounds(100); ++i) {
            const char* network = networks[i % 2];
            net::listener l = net::listen(network, support::any_address(network));
            const std::string prefix = i % 2 ? "accept unix" : "accept tcp";
            dunlin::wait_group wg;
            for (int k = 0; k < 3; ++k) wg.go([&] { EXPECT_EQ(text_of([&] { l.accept(); }).rfind(prefix, 0), 0u); });
            std::thread thread([&] {
                std::error_code ec;
                EXPECT_FALSE(l.accept(ec).is_open());
                EXPECT_EQ(ec, is_closed);
            });
            if (i % 3) support::eventually([] { return support::waiters() >= 1; });
            l.close();
            EXPECT_FALSE(l.is_open());
            EXPECT_EQ(code_of([&] { l.accept(); }), is_closed);
            wg.wait();
            thread.join();
        }
    });
}

TEST_P(Listener, AcceptEndsByDeadlineAndContext) {
    run([] {
        net::listener l = net::listen("tcp", "127.0.0.1:0");
        l.set_deadline(2ms);
        EXPECT_EQ(code_of([&] { l.accept(); }), has_timed_out);
        net::stream waits = net::dial("tcp", l.local_address());
        EXPECT_EQ(code_of([&] { l.accept(); }), has_timed_out) << "though one is there";
        l.clear_deadline();
        auto ctx = dunlin::with_cancel(dunlin::context::background());
        ctx.cancel();
        EXPECT_TRUE(l.accept(ctx).is_open()) << "one is there, and need not be waited for";
        EXPECT_EQ(code_of([&] { l.accept(ctx); }), std::error_code(dunlin::errc::cancelled));
        const auto soon = dunlin::context::with_timeout(dunlin::context::background(), 2ms);
        std::error_code ec;
        l.accept(soon, ec);
        EXPECT_EQ(ec, std::error_code(dunlin::errc::deadline_exceeded));
    });
}

TEST_P(Listener, ConnectionsThatWereGivenUpAreNoErrors) {
    run([] {
        net::listener l = net::listen("tcp", "127.0.0.1:0");
        for (int i = 0; i < 20; ++i) {
            net::stream gone = net::dial("tcp", l.local_address());
            gone.set_linger(0s);
            gone.close();
        }
        net::stream stays = net::dial("tcp", l.local_address());
        stays.write_all("x");
        for (;;) {  // the kernel may pass the others
            net::stream s = l.accept();
            char c;
            std::error_code ec;
            if (s.read_some(&c, 1, ec) == 1) break;
            EXPECT_TRUE(!ec || ec == std::errc::connection_reset) << ec.message();
        }
    });
}

TEST_F(ListenerOnce, RefusesWhatCannotBeListenedAt) {
    const net::listener l = net::listen("tcp", "127.0.0.1:0");
    const std::string taken = l.local_address().to_string();
    EXPECT_EQ(code_of([&] { net::listen("tcp", taken); }), std::errc::address_in_use);
    const std::string text = text_of([&] { net::listen("tcp", taken); });
    EXPECT_EQ(text, "listen tcp " + taken + ": address already in use");
    std::error_code ec;
    EXPECT_FALSE(net::listen("tcp", "8.8.8.8:0", ec).is_open());
    EXPECT_EQ(ec, std::errc::address_not_available);
    net::listen("udp", "127.0.0.1:0", ec);
    EXPECT_EQ(ec, std::error_code(dunlin::errc::bad_address));
    net::listen("tcp", "127.0.0.1", ec);
    EXPECT_EQ(ec, std::error_code(dunlin::errc::bad_address));
    net::listen("unix", "/no/such/directory/socket", ec);
    EXPECT_EQ(ec, std::errc::no_such_file_or_directory);
    net::listen("tcp", "127.0.0.1:0", net::listen_options{}, ec);
    EXPECT_FALSE(ec);
}

TEST_F(ListenerOnce, ListensAtNamesAndInBothFamilies) {
    net::listener l = net::listen("tcp", ":0");
    EXPECT_NE(l.local_address().port(), 0);
    const std::string port = std::to_string(l.local_address().port());
    EXPECT_TRUE(net::dial("tcp", "127.0.0.1:" + port).is_open());
    if (support::has_ipv6()) {
        EXPECT_TRUE(net::dial("tcp", "[::1]:" + port).is_open()) << "both families";
    }
    EXPECT_TRUE(net::dial("tcp", ":" + port).is_open());
    for (const char* network : {"tcp", "udp"}) {
        const net::address at = network[0] == 't' ? net::listen("tcp", "localhost:0").local_address()
                                                  : net::listen_packet("udp", "localhost:0").local_address();
        EXPECT_EQ(at.host(), "127.0.0.1") << network << ": as with Go, where a client that knows IPv4 only comes";
    }
    net::packet_conn in = net::listen_packet("udp", "localhost:0");
    net::packet_conn out = net::dial_packet("udp", "localhost:" + std::to_string(in.local_address().port()));
    out.write_some("x", 1);
    char byte;
    net::address from;
    in.set_deadline(10s);
    EXPECT_EQ(in.read_from(&byte, 1, from), 1u) << "both ends mean the same";
    EXPECT_TRUE(net::listen("tcp4", ":0").local_address().is_ipv4());
    if (support::has_ipv6()) {
        const net::listener six = net::listen("tcp6", "[::]:0");
        EXPECT_EQ(code_of([&] { net::dial("tcp4", "127.0.0.1:" + std::to_string(six.local_address().port())); }),
            std::errc::connection_refused);
    }
}

TEST_F(ListenerOnce, SeveralShareAPort) {
    const net::listen_options shared{.reuse_port = true};
    net::listener first = net::listen("tcp", "127.0.0.1:0", shared);
    net::listener second = net::listen("tcp", first.local_address(), shared);
    EXPECT_EQ(first.local_address(), second.local_address());
    EXPECT_EQ(code_of([&] { net::listen("tcp", first.local_address()); }), std::errc::address_in_use);
    std::vector<net::stream> clients;
    for (int i = 0; i < 64; ++i) clients.push_back(net::dial("tcp", first.local_address()));
    int accepted = 0;
    const auto accept = [](net::listener& l) { return dunlin::on_readable(l, [&l] { l.accept(); }); };
    for (; accepted < 64; ++accepted) dunlin::select(accept(first), accept(second));
    EXPECT_EQ(dunlin::select(dunlin::on_readable(first), dunlin::on_readable(second), dunlin::otherwise()), 2u);
}

TEST_F(ListenerOnce, OnlyWhatListensIsTakenForAListener) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const std::string what = "adopt descriptor " + std::to_string(fd) + ": invalid argument: ";
    EXPECT_EQ(text_of([&] { net::listener::adopt(fd); }), what + "it does not listen: call listen(2) first");
    EXPECT_FALSE(fcntl(fd, F_GETFL) & O_NONBLOCK) << "as it was";
    ASSERT_EQ(listen(fd, 1), 0);
    EXPECT_EQ(text_of([&] { net::stream::adopt(fd); }), what + "it listens: net::listener::adopt() takes it");
    net::listener l = net::listener::adopt(fd);
    net::stream client = net::dial("tcp4", "127.0.0.1:" + std::to_string(l.local_address().port()));
    EXPECT_TRUE(l.accept().is_open());
}

// The poller has no room for a connection that was accepted (ENOSPC beyond fs.epoll.max_user_watches), or no memory.
TEST_F(ListenerOnce, AShortageOfThePollerIsWaitedOut) {
    dunlin::run([] {
        net::listener l = net::listen("tcp", "127.0.0.1:0");
        const std::string to = l.local_address();
        net::stream first = net::dial("tcp", to);
        dunlin::netpoll::adds_refused = 3;
        std::error_code ec;
        net::stream served = l.accept(ec);
        EXPECT_FALSE(ec) << ec.message();
        EXPECT_EQ(dunlin::netpoll::adds_refused.load(), 0);
        first.write_all("x");
        char c;
        EXPECT_EQ(served.read_some(&c, 1), 1u) << "it was not lost";

        // While it lasts, the limits of accept() hold.
        std::vector<net::stream> more;
        for (int i = 0; i < 3; ++i) more.push_back(net::dial("tcp", to));
        dunlin::netpoll::adds_refused = 1'000'000;
        l.set_deadline(30ms);
        l.accept(ec);
        EXPECT_EQ(ec, has_timed_out);
        l.clear_deadline();
        const auto soon = dunlin::with_timeout(dunlin::context::background(), 30ms);
        l.accept(soon, ec);
        EXPECT_EQ(ec, dunlin::errc::deadline_exceeded);
        dunlin::wait_group wg;
        wg.go([&] { EXPECT_EQ(code_of([&] { l.accept(); }), is_closed); });
        dunlin::sleep_for(30ms);
        l.close();
        wg.wait();
        dunlin::netpoll::adds_refused = 0;
    });
}

TEST_F(ListenerOnce, TheBacklogIsLimited) {
    net::listener l = net::listen("tcp", "127.0.0.1:0", {.backlog = 1});
    std::vector<net::stream> clients;
    std::error_code ec;
    while (!ec && clients.size() < 20) {
        clients.push_back(net::dial("tcp", l.local_address(), 300ms, ec));
    }
    EXPECT_EQ(ec, has_timed_out);
    EXPECT_LT(clients.size(), 10u);
}

TEST_F(ListenerOnce, AUnixPathThatCannotBeListenedAtIsRemoved) {
    const std::string path = support::socket_path();
    std::error_code ec;
    dunlin::netpoll::adds_refused = 1;
    net::listen("unix", path, ec);
    EXPECT_EQ(ec, std::errc::no_space_on_device);
    dunlin::netpoll::adds_refused = 1;
    net::listen_packet("unixgram", path, ec);
    EXPECT_EQ(ec, std::errc::no_space_on_device);
    EXPECT_TRUE(net::listen("unix", path, ec).is_open()) << ec.message();
}

TEST_F(ListenerOnce, AUnixPathIsRemoved) {
    const std::string path = support::socket_path();
    const auto exists = [&] {
        struct stat s;
        return stat(path.c_str(), &s) == 0;
    };
    {
        net::listener l = net::listen("unix", path);
        EXPECT_TRUE(exists());
        EXPECT_EQ(l.local_address().to_string(), path);
        EXPECT_TRUE(net::dial("unix", path).is_open());
        EXPECT_EQ(code_of([&] { net::listen("unix", path); }), std::errc::address_in_use);
        net::listener moved = std::move(l);
        l.close();
        EXPECT_TRUE(exists());
        moved.close();
        EXPECT_FALSE(exists());
        EXPECT_EQ(code_of([&] { net::dial("unix", path); }), std::errc::no_such_file_or_directory);
        moved = net::listen("unix", path);
        EXPECT_TRUE(exists());
        moved = net::listener();
        EXPECT_FALSE(exists());
    }
    { net::listener l = net::listen("unix", path); }
    EXPECT_FALSE(exists()) << "the destructor";
    { net::listener l = net::listen("unix", path, {.unlink = false}); }
    EXPECT_TRUE(exists());
    EXPECT_EQ(code_of([&] { net::dial("unix", path); }), std::errc::connection_refused);
    unlink(path.c_str());
}

TEST_P(Listener, TakesOverADescriptor) {
    run([] {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        const net::address any = net::address::parse("tcp4", "127.0.0.1:0");
        ASSERT_EQ(bind(fd, static_cast<const sockaddr*>(any.native()), any.native_size()), 0);
        ASSERT_EQ(listen(fd, 10), 0);
        net::listener l = net::listener::adopt(fd);
        net::stream client = net::dial("tcp", l.local_address());
        EXPECT_EQ(l.accept().local_address(), client.remote_address());
        EXPECT_NE(code_of([] { net::listener::adopt(-1); }), std::error_code());
        net::listener none;
        EXPECT_EQ(code_of([&] { none.accept(); }), is_closed);
        EXPECT_EQ(none.local_address().to_string(), "");
    });
}

// ---- no descriptors left --------------------------------------------------------------------------------------------

std::chrono::nanoseconds cpu_time() {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

// Sets the limit of descriptors so that there are none left.
class no_descriptors {
public:
    no_descriptors() {
        getrlimit(RLIMIT_NOFILE, &before_);
        const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
        close(next);
        const rlimit now{static_cast<rlim_t>(next), before_.rlim_max};
        setrlimit(RLIMIT_NOFILE, &now);
    }
    ~no_descriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

private:
    rlimit before_;
};

class client_socket {
public:
    client_socket() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
    ~client_socket() { close(fd_); }
    void connect(const net::address& to) {
        ASSERT_EQ(::connect(fd_, static_cast<const sockaddr*>(to.native()), to.native_size()), 0);
    }

private:
    int fd_;
};

TEST_P(Listener, AcceptWaitsOutAShortageOfDescriptors) {
    run([] {
        net::listener l = net::listen("tcp", "127.0.0.1:0");
        client_socket clients[3];
        std::atomic<int> accepted{0};
        dunlin::wait_group wg;
        {
            const no_descriptors shortage;
            for (client_socket& c : clients) c.connect(l.local_address());
            for (int i = 0; i < 2; ++i) {
                wg.go([&] {
                    l.accept();
                    ++accepted;
                });
            }
            dunlin::sleep_for(50ms);
            const auto before = cpu_time();
            dunlin::sleep_for(400ms);
            EXPECT_LT(cpu_time() - before, 200ms) << "it spins";
            EXPECT_EQ(accepted, 0);
        }
        wg.wait();
        EXPECT_EQ(accepted, 2) << "by itself";
        l.accept();
    });
}

TEST_P(Listener, AShortageIsEndedByCloseDeadlineAndContext) {
    run([] {
        net::listener l = net::listen("tcp", "127.0.0.1:0");
        client_socket client;
        const no_descriptors shortage;
        client.connect(l.local_address());
        l.set_deadline(20ms);
        EXPECT_EQ(code_of([&] { l.accept(); }), has_timed_out);
        l.clear_deadline();
        const auto soon = dunlin::context::with_timeout(dunlin::context::background(), 20ms);
        EXPECT_EQ(code_of([&] { l.accept(soon); }), std::error_code(dunlin::errc::deadline_exceeded));
        dunlin::wait_group wg;
        wg.go([&] { EXPECT_EQ(code_of([&] { l.accept(); }), is_closed); });
        dunlin::sleep_for(5ms);
        l.close();
        wg.wait();
    });
}

TEST_P(Listener, ForBothFamiliesSaysWhichOneAClientHas) {
    run([] {
        net::listener l = net::listen("tcp", ":0");
        const std::string port = std::to_string(l.local_address().port());
        net::stream client = net::dial("tcp4", "127.0.0.1:" + port), server = l.accept();
        EXPECT_TRUE(server.remote_address().is_ipv4()) << server.remote_address();
        EXPECT_TRUE(server.remote_address().is_loopback());
        EXPECT_EQ(server.remote_address(), client.local_address());
        EXPECT_EQ(server.local_address(), client.remote_address());
    });
}

// "localhost" has two addresses. The port is in use at the first: a listener at the second would wait for nobody.
TEST_P(Listener, APortInUseIsNotSoughtElsewhere) {
    run([] {
        const net::listener first = net::listen("tcp", "localhost:0");
        const std::string again = "localhost:" + std::to_string(first.local_address().port());
        std::error_code ec;
        EXPECT_FALSE(net::listen("tcp", again, ec)) << again;
        EXPECT_EQ(ec, std::errc::address_in_use) << ec.message();
    });
}

}  // namespace
