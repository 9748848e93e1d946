// cancellation.cpp - time-outs and cancellation: a context is passed down the calls, and every wait ends when it is
// done.
#include <cstdio>
#include <string>

#include <dunlin/dunlin.hpp>

using namespace std::chrono_literals;

namespace {

inline const dunlin::context_key<std::string> request_id;

// Some replicas answer, some never do. The context ends those that are still waiting.
std::string ask_replica(const dunlin::context& ctx, int replica) {
    if (replica == 2) {
        dunlin::sleep_for(1ms, ctx);
        return "answer from replica 2 to " + *ctx.value(request_id);
    }
    dunlin::sleep_for(1h, ctx);  // throws context_cancelled
    return {};
}

// The first answer wins; the others are told to stop, and are waited for.
std::string ask_all(const dunlin::context& parent) {
    dunlin::chan<std::string> answers(3);
    std::atomic<int> stopped{0};
    // After what its members use: it is destroyed first, and waits for them. If an exception leaves this scope, as when
    // `parent` is done before there is an answer, it cancels them first.
    dunlin::task_group asked(parent);
    for (int replica = 0; replica < 3; ++replica) {
        asked.go([=, ctx = asked.context(), &stopped] {
            try {
                answers.send(ask_replica(ctx, replica));
            } catch (const dunlin::context_cancelled&) {
                ++stopped;
            }
        });
    }
    std::string first = *answers.recv(parent);
    asked.cancel();
    asked.wait();
    std::printf("%s; %d others stopped\n", first.c_str(), stopped.load());
    return first;
}

}  // namespace

int main() {
    return dunlin::run([] {
        const dunlin::context request = dunlin::context::background().with_value(request_id, "request 17");
        const bool answered = !ask_all(request).empty();

        bool timed_out = false;
        try {
            const auto ctx = dunlin::with_timeout(request, 2ms);
            dunlin::chan<int>().recv(ctx);  // nothing is ever sent
        } catch (const dunlin::context_cancelled& e) {
            timed_out = e.code() == dunlin::errc::deadline_exceeded;
            std::printf("%s\n", e.what());
        }

        // The first exception of a group cancels the group's context.
        dunlin::task_group group;
        group.go([ctx = group.context()] { ctx.done().recv(); });
        group.go([] { throw std::runtime_error("the disk is full"); });
        bool failed = false;
        try {
            group.wait();
        } catch (const std::runtime_error& e) {
            failed = true;
            std::printf("the group failed: %s\n", e.what());
        }
        return answered && timed_out && failed ? 0 : 1;
    });
}
