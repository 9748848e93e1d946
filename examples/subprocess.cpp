// subprocess.cpp - a child process: reads its output line by line as it comes, and waits for its exit status in a
// select with a timeout.
#include <cstdio>
#include <string>
#include <vector>

#include <dunlin/dunlin.hpp>
#include <dunlin/fs.hpp>

using namespace std::chrono_literals;

namespace {

// Starts a goroutine that splits bytes into lines; the channel is closed after the last line.
dunlin::receiver<std::string> lines_of(dunlin::byte_stream& from) {
    dunlin::chan<std::string> out;
    dunlin::go([&from, out] {
        std::string rest;
        char buffer[512];
        while (const std::size_t n = from.read_some(buffer)) {
            rest.append(buffer, n);
            for (std::size_t end; (end = rest.find('\n')) != std::string::npos; rest.erase(0, end + 1))
                out.send(rest.substr(0, end));
        }
        out.close();
    });
    return out;
}

}  // namespace

int main() {
    return dunlin::run([] {
        const std::vector<std::string> command{
            "/bin/sh", "-c", "for i in 1 2 3; do echo step $i; sleep 0.02; done; exit 3"};
        dunlin::process child(command, {.output = dunlin::process_stream::pipe});
        dunlin::receiver<std::string> lines = lines_of(child.standard_output());

        std::vector<std::string> seen;
        dunlin::exit_status status;
        for (bool more = true, running = true; more || running;) {
            dunlin::select(dunlin::on_recv(lines,
                               [&](std::optional<std::string> line) {
                                   if (line) {
                                       std::printf("child: %s\n", line->c_str());
                                       seen.push_back(*line);
                                   } else {
                                       more = false;
                                       lines = {}; // nil is never ready
                                   }
                               }),
                dunlin::on_recv(running ? child.done() : dunlin::receiver<dunlin::exit_status>(),
                    [&](std::optional<dunlin::exit_status> s) {
                        status = *s;
                        running = false;
                    }),
                dunlin::on_timeout(20s, [&] { child.kill(); }));
        }
        std::printf("it returned %d after %zu lines\n", status.code, seen.size());
        return status.code == 3 && seen == std::vector<std::string>{"step 1", "step 2", "step 3"} ? 0 : 1;
    });
}
