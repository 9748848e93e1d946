// http_server.cpp - an HTTP server made of Boost.Beast's synchronous calls, unchanged, one goroutine for each
// connection.
//
//   example_http_server                  answers a few requests of its own, and ends
//   example_http_server --listen ADDR    serves ADDR (":8080", say) until SIGINT or SIGTERM:
//                                        wrk -c 100 http://127.0.0.1:8080/
#include <csignal>
#include <cstdio>
#include <ctime>
#include <string_view>

#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <dunlin/asio.hpp>
#include <dunlin/dunlin.hpp>
#include <dunlin/net.hpp>
#include <dunlin/signal.hpp>

namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace net = dunlin::net;

using connection = dunlin::asio_stream<net::stream>;
static_assert(beast::is_sync_stream<connection>::value);

namespace {

// What all answers have in common, made once for each connection. The body is a literal: nothing is copied.
class greeting {
public:
    greeting() : response_(http::status::ok, 11) {
        response_.set(http::field::content_type, "text/plain; charset=utf-8");
        response_.body() = {text.data(), text.size()};
        response_.prepare_payload();
    }

    http::response<http::span_body<const char>>& to(bool keep_alive, unsigned version) {
        if (const std::time_t now = std::time(nullptr); now != dated_) date(now);
        if (version != response_.version()) response_.version(version);
        if (keep_alive != response_.keep_alive()) response_.keep_alive(keep_alive);
        return response_;
    }

private:
    static constexpr std::string_view text = "hello, world\n";

    void date(std::time_t now) {
        std::tm utc;
        char line[40];
        gmtime_r(&now, &utc);
        std::strftime(line, sizeof line, "%a, %d %b %Y %H:%M:%S GMT", &utc);
        response_.set(http::field::date, line);
        dated_ = now;
    }

    http::response<http::span_body<const char>> response_;
    std::time_t dated_ = 0;
};

// Serves requests until the client has enough; the buffer and the answer are used for all of them.
void serve(connection c) {
    beast::flat_buffer buffer;
    http::request<http::string_body> request;
    greeting answer;
    beast::error_code ec;
    for (;;) {
        request.clear();
        request.body().clear();
        http::read(c, buffer, request, ec);
        if (ec) return;  // the end of the stream, in most cases
        const bool keep_alive = request.keep_alive();
        http::write(c, answer.to(keep_alive, request.version()), ec);
        if (ec || !keep_alive) return;
    }
}

void accept_from(net::listener& l) {
    std::error_code ec;
    while (net::stream s = l.accept(ec)) {
        dunlin::go([s = std::move(s)]() mutable { serve(connection(std::move(s))); });
    }
}

// Sends several requests over one connection; returns the number of right answers.
int ask(const net::address& server, int requests) {
    connection c(net::dial("tcp", server));
    beast::flat_buffer buffer;
    int right = 0;
    for (int i = 0; i < requests; ++i) {
        http::request<http::empty_body> request(http::verb::get, "/", 11);
        request.set(http::field::host, "localhost");
        request.keep_alive(i + 1 < requests);
        http::write(c, request);
        http::response<http::string_body> response;
        http::read(c, buffer, response);
        if (response.result() == http::status::ok && response.body() == "hello, world\n") ++right;
    }
    beast::error_code ec;
    http::response<http::string_body> none;
    http::read(c, buffer, none, ec);  // the last answer was to end the connection
    return ec == http::error::end_of_stream ? right : 0;
}

int serve_own_clients() {
    constexpr int clients = 20, requests = 10;
    auto l = net::listen("tcp", "127.0.0.1:0");
    auto server = dunlin::spawn([&] { accept_from(l); });
    std::atomic<int> right{0};
    dunlin::task_group all;
    for (int i = 0; i < clients; ++i) all.go([&] { right += ask(l.local_address(), requests); });
    all.wait();
    l.close();
    server.wait();
    std::printf("%d of %d requests answered\n", right.load(), clients * requests);
    return right == clients * requests ? 0 : 1;
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
