// fan_in.cpp - many sources, one loop: select over channels, a ticker and a deadline.
#include <cstdio>
#include <string>

#include <dunlin/dunlin.hpp>

using namespace std::chrono_literals;

namespace {

dunlin::receiver<std::string> speaker(const char* name, int lines, std::chrono::microseconds pause) {
    dunlin::chan<std::string> out;
    dunlin::go([=] {
        for (int i = 1; i <= lines; ++i) {
            dunlin::sleep_for(pause);
            out.send(std::string(name) + " " + std::to_string(i));
        }
        out.close();
    });
    return out;
}

}  // namespace

int main() {
    return dunlin::run([] {
        auto ann = speaker("ann", 20, 300us);
        auto bob = speaker("bob", 12, 500us);
        dunlin::ticker status(2ms);
        int heard = 0, ticks = 0;
        bool late = false;

        // A closed channel is always ready. A channel with nothing more to say becomes nil, which is never ready.
        while (ann || bob) {
            dunlin::select(
                dunlin::on_recv(ann, [&](std::optional<std::string> line) {
                    if (line) ++heard;
                    else ann = {};
                }),
                dunlin::on_recv(bob, [&](std::optional<std::string> line) {
                    if (line) ++heard;
                    else bob = {};
                }),
                dunlin::on_recv(status.channel(), [&](std::optional<dunlin::clock::time_point>) { ++ticks; }),
                dunlin::on_timeout(5s, [&] {
                    late = true;
                    ann = bob = {};
                }));
        }
        std::printf(
            "%d lines heard, %s\n", heard, ticks > 0 ? "the ticker ticked meanwhile" : "it took less than a tick");
        return heard == 32 && !late ? 0 : 1;
    });
}
