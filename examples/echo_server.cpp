// echo_server.cpp - the smallest useful server: a goroutine for each connection, written as if it had a thread of its
// own.
//
//   example_echo_server                  serves a few clients of its own, and ends
//   example_echo_server --listen ADDR    serves ADDR (":7000", say) until SIGINT or SIGTERM
#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>

#include <dunlin/dunlin.hpp>
#include <dunlin/net.hpp>
#include <dunlin/signal.hpp>

namespace net = dunlin::net;

namespace {

void echo(net::stream s) {
    char data[4096];
    std::error_code ec;  // a client that disconnects must not end the program
    while (const std::size_t n = s.read_some(data, ec)) {
        s.write_all(data, n, ec);
        if (ec) break;
    }
}

void serve(net::listener& l) {
    std::error_code ec;
    while (net::stream s = l.accept(ec)) dunlin::go([s = std::move(s)]() mutable { echo(std::move(s)); });
}

int serve_own_clients() {
    auto l = net::listen("tcp", "127.0.0.1:0");
    auto server = dunlin::spawn([&] { serve(l); });

    std::atomic<int> right{0};
    constexpr int clients = 100;
    dunlin::wait_group all;
    for (int i = 0; i < clients; ++i) {
        all.go([&, i] {
            auto s = net::dial("tcp", l.local_address());
            const std::string said = "I am client " + std::to_string(i);
            std::string heard(said.size(), '\0');
            s.write_all(said);
            s.read_exactly(heard);
            if (heard == said) ++right;
        });
    }
    all.wait();
    l.close();  // accept() fails, and serve() returns
    server.wait();
    std::printf("%d of %d clients heard what they had said\n", right.load(), clients);
    return right == clients ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    const bool listens = argc == 3 && std::string_view(argv[1]) == "--listen";
    return dunlin::run([&] {
        if (!listens) return serve_own_clients();
        auto l = net::listen("tcp", argv[2]);
        std::printf("listening at %s\n", l.local_address().to_string().c_str());
        dunlin::go([&] { serve(l); });
        dunlin::signal_channel({SIGINT, SIGTERM}).recv();
        return 0;
    });
}
