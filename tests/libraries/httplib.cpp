// httplib.cpp - cpp-httplib: its server with a goroutine for each connection, whose routes are std::regex, and its
// clients, with paths of 7,000 characters.
#include <httplib.h>

#include "libraries/library.h"

namespace {

struct goroutines : httplib::TaskQueue {
    dunlin::wait_group running;
    void enqueue(std::function<void()> f) override { running.go(std::move(f)); }
    void shutdown() override { running.wait(); }
};

}  // namespace

int main() {
    libraries::program p(std::string("cpp-httplib ") + CPPHTTPLIB_VERSION);
    httplib::Server server;
    server.new_task_queue = [] { return new goroutines; };
    server.Get(R"(/files/(.*))", [](const httplib::Request& request, httplib::Response& response) {
        response.set_content(std::to_string(request.matches[1].length()), "text/plain");
    });
    const int port = server.bind_to_any_port("127.0.0.1");
    std::thread listening([&] { server.listen_after_bind(); });
    while (!server.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // The server's goroutines belong to the runtime that stays, so the clients' are started in it as well.
    dunlin::wait_group clients;
    for (int i = 0; i < 40; ++i) {
        clients.go([&, i] {
            const int length = i % 2 == 0 ? 7000 : 100;
            httplib::Client client("127.0.0.1", port);
            client.set_read_timeout(60);
            for (int round = 0; round < 3; ++round) {
                const httplib::Result answer = client.Get("/files/" +
                    std::string(static_cast<std::size_t>(length), 'x'));
                if (!libraries::expect(static_cast<bool>(answer), "no answer: %d",
                    static_cast<int>(answer.error()))) continue;
                libraries::expect(answer->status == 200 && answer->body == std::to_string(length), "answer %d: %s",
                    answer->status, answer->body.c_str());
            }
        });
    }
    clients.wait();
    std::printf("  40 clients, 3 calls each\n");
    server.stop();
    listening.join();
    return p.result();
}
