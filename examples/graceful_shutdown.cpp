// graceful_shutdown.cpp - SIGTERM ends a service: it takes no new requests, and finishes those under way, for at most a
// second.
#include <csignal>
#include <cstdio>
#include <thread>

#include <dunlin/dunlin.hpp>

using namespace std::chrono_literals;

namespace {

// A plain thread waits for the signal and reports it on a channel, which threads and goroutines share.
dunlin::receiver<int> signals(const sigset_t& set) {
    dunlin::chan<int> out(1);
    std::thread([=] {
        int number = 0;
        if (sigwait(&set, &number) == 0) out.send(number);
    }).detach();
    return out;
}

struct service {
    dunlin::chan<int> requests;
    std::atomic<int> handled{0};

    void serve(const dunlin::context& accepting) {
        dunlin::task_group under_way;
        for (bool on = true; on;) {
            dunlin::select(
                dunlin::on_recv(requests, [&](std::optional<int>) {
                    under_way.go([this] {
                        dunlin::sleep_for(2ms);  // the work
                        ++handled;
                    });
                }),
                dunlin::on_done(accepting, [&] { on = false; }));
        }
        under_way.wait();
    }
};

}  // namespace

int main() {
    sigset_t set;  // blocked before any thread exists, so that all threads inherit this
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);

    return dunlin::run([&] {
        auto [accepting, stop] = dunlin::with_cancel(dunlin::context::background());
        service s;
        auto served = dunlin::spawn([&s, accepting = accepting] { s.serve(accepting); });

        std::atomic<int> accepted{0};
        auto client = dunlin::spawn([&, accepting = accepting] {
            try {
                for (;;) {
                    s.requests.send(1, accepting);
                    if (++accepted == 20) kill(getpid(), SIGTERM);
                    dunlin::sleep_for(100us, accepting);
                }
            } catch (const dunlin::context_cancelled&) {
            }
        });

        const int number = *signals(set).recv();
        stop();
        dunlin::chan<bool> finished(1);
        dunlin::go([&] {
            served.wait();
            finished.send(true);
        });
        const bool in_time = finished.recv_for(1s).has_value();
        client.wait();
        std::printf("signal %d: %d of %d requests finished%s\n", number, s.handled.load(), accepted.load(),
            in_time ? "" : ", the others were given up");
        return in_time && s.handled.load() == accepted.load() ? 0 : 1;
    });
}
