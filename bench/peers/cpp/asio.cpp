// asio.cpp - an echo server by Boost.Asio, with callbacks, as programs in C++ have it without a runtime of goroutines.
//
// P threads. Each has an io_context of its own, and connections are dealt out in turn, which is the faster of the two
// usual forms; `echo-64-shared` has one io_context that all threads run.

#include <unistd.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/version.hpp>

#include "../../registry.h"
#include "../../under_load.h"

namespace bench {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

int processors = static_cast<int>(std::thread::hardware_concurrency());

/// Lives as long as one of its callbacks is pending.
class connection : public std::enable_shared_from_this<connection> {
public:
    explicit connection(tcp::socket socket) : socket_(std::move(socket)) { socket_.set_option(tcp::no_delay(true)); }

    tcp::socket::executor_type executor() { return socket_.get_executor(); }

    void read() {
        socket_.async_read_some(
            asio::buffer(buffer_), [self = shared_from_this()](const boost::system::error_code& ec, std::size_t n) {
                if (!ec) self->write(n);
            });
    }

private:
    void write(std::size_t n) {
        asio::async_write(socket_, asio::buffer(buffer_, n),
            [self = shared_from_this()](const boost::system::error_code& ec, std::size_t) {
                if (ec) fail("an echo was not written: " + ec.message());
                self->read();
            });
    }

    tcp::socket socket_;
    std::array<char, 1024> buffer_;
};

/// Listens and echoes in P threads until it is destroyed.
class server {
public:
    explicit server(bool shared) {
        for (int i = 0; i < (shared ? 1 : processors); ++i)
            contexts_.push_back(std::make_unique<asio::io_context>(shared ? processors : 1));
        acceptor_ = std::make_unique<tcp::acceptor>(*contexts_[0], tcp::endpoint(asio::ip::address_v4::loopback(), 0));
        acceptor_->listen(4096);
        accept();
        for (int i = 0; i < processors; ++i) {
            asio::io_context& context = *contexts_[static_cast<std::size_t>(i) % contexts_.size()];
            running_.emplace_back([&context] {
                const auto work = asio::make_work_guard(context);
                context.run();
            });
        }
    }
    server(const server&) = delete;
    server& operator=(const server&) = delete;
    ~server() {
        for (const auto& context : contexts_) context->stop();
        for (std::thread& t : running_) t.join();
    }

    int port() const { return acceptor_->local_endpoint().port(); }

private:
    void accept() {
        acceptor_->async_accept(
            *contexts_[next_++ % contexts_.size()], [this](const boost::system::error_code& ec, tcp::socket socket) {
                if (ec) fail("a connection was not accepted: " + ec.message());
                // In the thread that its socket belongs to.
                auto accepted = std::make_shared<connection>(std::move(socket));
                asio::post(accepted->executor(), [accepted] { accepted->read(); });
                accept();
            });
    }

    std::vector<std::unique_ptr<asio::io_context>> contexts_;
    std::unique_ptr<tcp::acceptor> acceptor_;
    std::size_t next_ = 0;
    std::vector<std::thread> running_;
};

void echo(const settings& s, results& r, const char* kind, long connections, bool shared = false) {
    const server echoing(shared);
    std::vector<std::string> words = {"--connections", std::to_string(connections), "--seconds", s.quick ? "0.1" : "1"};
    if (processors > 1) words.push_back("--free");
    run_load(r, kind, echoing.port(), getpid(), words);
}

void echo_64(const settings& s, results& r) { echo(s, r, "echo", 64); }
void echo_64_shared(const settings& s, results& r) { echo(s, r, "echo", 64, true); }
void echo_1000(const settings& s, results& r) { echo(s, r, "echo", 1000); }
void echo_think(const settings& s, results& r) { echo(s, r, "think", s.scaled(10'000)); }

const registered all[] = {
    registered({"echo-64", "an echo server for 64 connections, an io_context for each thread", echo_64}),
    registered({"echo-64-shared", "the same with one io_context for all threads", echo_64_shared}),
    registered({"echo-1000", "an echo server for 1000 connections", echo_1000}),
    registered({"echo-think", "an echo server for 10,000 connections that think between their messages", echo_think}),
};

}  // namespace

const program this_program = {
    "asio",
    [] { return std::string("Boost.Asio of Boost " BOOST_LIB_VERSION "; g++ " __VERSION__); },
    [](int procs) { processors = procs; },
    [] { return processors; },
};

}  // namespace bench
