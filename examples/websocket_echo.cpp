// websocket_echo.cpp - WebSocket server and client, through Boost.Beast's synchronous calls, one goroutine for each
// connection.
//
//   example_websocket_echo                  talks to a few clients of its own, and ends
//   example_websocket_echo --listen ADDR    serves ADDR (":9001", say) until SIGINT or SIGTERM
#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>

#include <boost/beast/core.hpp>
#include <boost/beast/websocket.hpp>

#include <dunlin/asio.hpp>
#include <dunlin/dunlin.hpp>
#include <dunlin/net.hpp>
#include <dunlin/signal.hpp>

namespace beast = boost::beast;
namespace net = dunlin::net;
namespace websocket = boost::beast::websocket;

using connection = websocket::stream<dunlin::asio_stream<net::stream>>;

namespace {

void serve(net::stream s) {
    connection c(std::move(s));
    beast::error_code ec;
    c.accept(ec);
    beast::flat_buffer message;
    while (!ec) {
        c.read(message, ec);  // when the client closes, this call answers it
        if (ec) break;
        c.text(c.got_text());
        c.write(message.data(), ec);
        message.clear();
    }
    if (ec != websocket::error::closed) std::fprintf(stderr, "connection lost: %s\n", ec.message().c_str());
}

void accept_from(net::listener& l) {
    std::error_code ec;
    while (net::stream s = l.accept(ec)) {
        dunlin::go([s = std::move(s)]() mutable { serve(std::move(s)); });
    }
}

// Sends several messages, expects each back, and closes. True if everything was as expected.
bool talk(const net::address& server, int client) {
    connection c(net::dial("tcp", server));
    c.handshake("localhost", "/");
    beast::flat_buffer heard;
    for (int i = 0; i < 10; ++i) {
        const std::string said = "message " + std::to_string(i) + " of client " + std::to_string(client) +
                                 std::string(static_cast<std::size_t>(i) * 1000, '.');
        c.write(boost::asio::buffer(said));
        c.read(heard);
        if (beast::buffers_to_string(heard.data()) != said) return false;
        heard.clear();
    }
    c.close(websocket::close_code::normal);
    return c.reason().code == websocket::close_code::normal && !c.next_layer().is_open();
}

int serve_own_clients() {
    constexpr int clients = 20;
    auto l = net::listen("tcp", "127.0.0.1:0");
    auto server = dunlin::spawn([&] { accept_from(l); });
    std::atomic<int> right{0};
    dunlin::task_group all;
    for (int i = 0; i < clients; ++i) all.go([&, i] { right += talk(l.local_address(), i); });
    all.wait();
    l.close();
    server.wait();
    std::printf("%d of %d clients were answered, and parted properly\n", right.load(), clients);
    return right == clients ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    const bool listens = argc == 3 && std::string_view(argv[1]) == "--listen";
    return dunlin::run([&] {
        if (!listens) return serve_own_clients();
        auto l = net::listen("tcp", argv[2]);
        std::printf("listening at %s\n", l.local_address().to_string().c_str());
        dunlin::go([&] { accept_from(l); });
        dunlin::signal_channel({SIGINT, SIGTERM}).recv();
        return 0;
    });
}
