// asio.cpp - Asio's io_context, run by goroutines. It keeps a list of the calls of run() for each thread: handlers that
// do not park run in any goroutine, those that do in wired ones.
#include <asio.hpp>

#include "libraries/library.h"

namespace {

void post_and_wait(bool wired) {
    asio::io_context io;
    auto strand = asio::make_strand(io);
    std::atomic<int> done{0};
    int inside = 0;  // of the strand
    constexpr int handlers = 500;
    auto work = asio::make_work_guard(io);
    dunlin::wait_group runners;
    for (int i = 0; i < 4; ++i) {
        runners.go([&] {
            if (wired) {
                const dunlin::os_thread_lock lock;
                io.run();
            } else {
                io.run();
            }
        });
    }
    for (int i = 0; i < handlers; ++i) {
        asio::post(io, [&] {
            bool at_once = false;
            asio::dispatch(io, [&] { at_once = true; });
            libraries::expect(at_once, "dispatch() inside run() waits");
            auto timer = std::make_shared<asio::steady_timer>(io, std::chrono::milliseconds(1));
            timer->async_wait([&, timer](const asio::error_code& error) {
                libraries::expect(!error, "the timer: %s", error.message().c_str());
                if (wired) dunlin::sleep_for(std::chrono::microseconds(100));
                asio::post(strand, [&] {
                    libraries::expect(strand.running_in_this_thread() && ++inside == 1, "the strand");
                    if (wired) dunlin::yield();
                    --inside;
                    if (++done == handlers) work.reset();
                });
            });
        });
    }
    runners.wait();
    libraries::expect(done == handlers, "%d handlers", done.load());
}

// Sockets: so many clients and their servers are handlers of one io_context.
void echo() {
    asio::io_context io;
    asio::ip::tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
    const auto where = acceptor.local_endpoint();
    constexpr int clients = 50;
    std::atomic<int> good{0};
    dunlin::wait_group all;
    for (int i = 0; i < clients; ++i) {
        all.go([&] {
            asio::ip::tcp::socket s = acceptor.accept();
            char buffer[8];
            asio::read(s, asio::buffer(buffer));
            asio::write(s, asio::buffer(buffer));
        });
        all.go([&, i] {
            asio::io_context own;
            asio::ip::tcp::socket s(own);
            char out[8], in[8] = {};
            std::snprintf(out, sizeof out, "%07d", i);
            s.async_connect(where, [&](const asio::error_code& error) {
                libraries::expect(!error, "connect: %s", error.message().c_str());
                asio::async_write(s, asio::buffer(out), [&](const asio::error_code&, std::size_t) {
                    asio::async_read(s, asio::buffer(in),
                        [&](const asio::error_code&, std::size_t n) { good += n == 8 && std::string(in) == out; });
                });
            });
            own.run();
        });
    }
    all.wait();
    libraries::expect(good == clients, "%d echoes of %d", good.load(), clients);
}

}  // namespace

int main() {
    libraries::program p("Asio " + std::to_string(ASIO_VERSION / 100000) + "." +
        std::to_string(ASIO_VERSION / 100 % 1000));
    libraries::in_goroutines({.goroutines = 8, .rounds = 2}, [](int i, int) { post_and_wait(i % 2 == 0); });
    libraries::in_goroutines({.goroutines = 2, .rounds = 2}, [](int, int) { echo(); });
    return p.result();
}
