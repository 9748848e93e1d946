// Clients that send a byte now and then, and clients that never read what they asked for: they hold their own
// connections, and hurt no other.
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "support/runtime_test.h"

using namespace std::chrono_literals;
namespace net = dunlin::net;

namespace {

constexpr std::size_t small = 16 * 1024;  // of buffers, so that a client that does not read is felt soon

class BadClients : public support::each_p {
protected:
    // An echo server by lines, one goroutine for each connection, with a limit on what a client may keep it waiting
    // for.
    struct server {
        net::listener listener = net::listen("tcp", "127.0.0.1:0");
        std::string address = listener.local_address();
        std::atomic<int> open{0}, gave_up{0};
        dunlin::wait_group handlers;
        std::chrono::milliseconds limit;

        explicit server(std::chrono::milliseconds patience) : limit(patience) {
            handlers.go([this] {
                std::error_code ec;
                for (;;) {
                    net::stream s = listener.accept(ec);
                    if (ec) return;
                    handlers.go([this, s = std::move(s)]() mutable { serve(s); });
                }
            });
        }

        void serve(net::stream& s) {
            ++open;
            try {
                s.set_send_buffer(small);
                std::string pending;
                std::vector<char> buffer(small);
                s.set_deadline(limit);
                while (const std::size_t n = s.read_some(buffer)) {
                    pending.append(buffer.data(), n);
                    const std::size_t end = pending.rfind('\n');
                    if (end == pending.npos) continue;
                    s.write_all(pending.data(), end + 1);
                    pending.erase(0, end + 1);
                    s.set_deadline(limit);
                }
            } catch (const std::system_error& e) {
                if (e.code() == std::errc::timed_out) ++gave_up;
            }
            --open;
        }

        void end() {
            listener.close();
            handlers.wait();
        }
    };

    static void talk(const std::string& address, int lines) {
        net::stream s = net::dial("tcp", address);
        const std::string line = "a line of a well-behaved client\n";
        std::string answer(line.size(), ' ');
        for (int i = 0; i < lines; ++i) {
            s.write_all(line);
            s.read_exactly(answer);
            ASSERT_EQ(answer, line);
        }
    }
};
EACH_P(BadClients);

TEST_P(BadClients, HurtNoOtherClientsAndAreGivenUp) {
    allow(60s);
    constexpr int bad = 40, good = 10;
    const int lines = support::rounds(500);
    run([&] {
        server s(2s);
        dunlin::task_group others;
        std::atomic<bool> end{false};
        std::atomic<int> connected{0};
        for (int i = 0; i < bad; ++i) {
            // A slow loris: a byte of its line at a time, never the last.
            others.go([&] {
                net::stream c = net::dial("tcp", s.address);
                ++connected;
                std::error_code ec;
                while (!end && !ec) {
                    c.write_all("x", ec);
                    dunlin::sleep_for(20ms);
                }
            });
            // One that asks and asks, and never reads: in the end its own writes wait, until the server gives it up.
            others.go([&] {
                net::stream c = net::dial("tcp", s.address);
                c.set_receive_buffer(small);
                c.set_send_buffer(small);
                ++connected;
                const std::string line = std::string(8191, 'y') + '\n';
                std::error_code ec;
                while (!ec) c.write_all(line, ec);
            });
        }
        support::eventually([&] { return connected == 2 * bad; });
        dunlin::task_group clients;
        for (int i = 0; i < good; ++i) clients.go([&] { talk(s.address, lines); });
        clients.wait();
        // And each of the bad ones is given up when its time is over.
        support::eventually([&] {
            dunlin::sleep_for(10ms);
            return s.gave_up >= bad && s.open == 0;
        });
        end = true;
        others.wait();
        s.end();
    });
}

}  // namespace
