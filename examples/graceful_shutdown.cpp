// graceful_shutdown.cpp - SIGTERM ends a service: it takes no new requests, and finishes those under way, for at most a
// second; then it cancels them.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <unistd.h>

#include <dunlin/dunlin.hpp>

using namespace std::chrono_literals;

namespace {

struct service {
    dunlin::chan<int> requests;
    std::atomic<int> handled{0};

    void handle(const dunlin::context& working) {
        try {
            dunlin::sleep_for(2ms, working);  // the work; every wait in it ends when `working` is done
            ++handled;
        } catch (const dunlin::context_cancelled&) {
        }
    }

    void serve(const dunlin::context& accepting, const dunlin::context& working) {
        dunlin::task_group under_way;
        for (bool on = true; on;) {
            dunlin::select(
                dunlin::on_recv(requests, [&](std::optional<int>) {
                    under_way.go([this, working] { handle(working); });
                }),
                dunlin::on_done(accepting, [&] { on = false; }));
        }
        under_way.wait();
    }
};

std::string why(const dunlin::context& ctx) {
    try {
        std::rethrow_exception(ctx.cause());
    } catch (const std::exception& e) {
        return e.what();
    }
}

}  // namespace

int main() {
    return dunlin::run([] {
        dunlin::signal_context accepting({SIGTERM, SIGINT});
        auto [working, give_up] = dunlin::with_cancel(dunlin::context::background());
        service s;
        dunlin::chan<bool> finished(1);
        auto served = dunlin::spawn([&, working = working] {
            s.serve(accepting, working);
            finished.send(true);
        });

        std::atomic<int> accepted{0};
        auto client = dunlin::spawn([&] {
            try {
                for (;;) {
                    s.requests.send(1, accepting);
                    if (++accepted == 20) kill(getpid(), SIGTERM);
                    dunlin::sleep_for(100us, accepting);
                }
            } catch (const dunlin::context_cancelled&) {
            }
        });

        accepting.done().recv();
        const std::string reason = why(accepting);
        accepting.stop();  // a second signal ends the program at once
        const bool in_time = finished.recv_for(1s).has_value();
        if (!in_time) give_up();
        served.wait();
        client.wait();
        std::printf("%s: %d of %d requests finished%s\n", reason.c_str(), s.handled.load(), accepted.load(),
            in_time ? "" : ", the others were given up");
        return in_time && s.handled.load() == accepted.load() ? 0 : 1;
    });
}
