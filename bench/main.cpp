// dunlin_bench NAME [--procs N] [--n N] [--quick]: one workload, its metrics as lines of JSON (see registry.h).
// bench/run.py runs it in turn with the same workloads in other languages; alone it is for a profiler.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <CLI/CLI.hpp>

#include "measure.h"
#include "registry.h"

namespace bench {

std::vector<workload>& workloads() {
    static std::vector<workload> all;
    return all;
}

void results::add(std::string_view metric, double value, std::string_view unit) {
    std::printf(R"({"workload":"%.*s","metric":"%.*s","peer":"%s","procs":%d,"value":%.6g,"unit":"%.*s"})"
                "\n",
        static_cast<int>(workload_.size()), workload_.data(), static_cast<int>(metric.size()), metric.data(),
        this_program.peer, this_program.procs(), value, static_cast<int>(unit.size()), unit.data());
}

void expect(const char* what, long got, long expected) {
    if (got != expected)
        fail(std::string(what) + ": " + std::to_string(got) + ", expected " + std::to_string(expected));
}

void fail(std::string_view text) {
    std::fprintf(stderr, "benchmark of %s: %.*s\n", this_program.peer, static_cast<int>(text.size()), text.data());
    std::exit(1);
}

}  // namespace bench

int main(int argc, char** argv) {
    auto& all = bench::workloads();
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });

    CLI::App app(std::string("Benchmarks of ") + bench::this_program.peer +
                 ", one workload per run; ./dev bench compares runtimes.");
    bench::settings settings;
    int procs = 0;
    std::string watched;
    bool list = false;
    app.add_option("--procs", procs, "processors (P); default: the runtime's own choice")
        ->check(CLI::Range(1, 1024));
    app.add_flag("--quick", settings.quick, "a tenth of the work, for trying things out");
    app.add_option("--n", settings.n, "the size of a grow-... workload, and of skynet")->check(CLI::PositiveNumber);
    if (bench::this_program.watch != nullptr)
        app.add_option("--watched", watched, "recorder, profile or page=ADDRESS: what looks at the program meanwhile");
    app.add_option("--seconds", settings.seconds, "how long is measured at least, where a workload can go on")
        ->check(CLI::Range(0.1, 3600.0));
    app.add_flag("--list", list, "print the names of the workloads");
    app.set_version_flag("--version", bench::this_program.version());
    app.require_subcommand(0, 1);
    app.fallthrough();  // the options may stand behind the name too
    for (const auto& w : all) {
        app.add_subcommand(std::string(w.name), std::string(w.what))->callback([&settings, &procs, &watched, &w] {
            if (procs != 0) bench::this_program.use_procs(procs);
            if (settings.seconds > 0) bench::measured_ns_min = settings.seconds * 1e9;
            if (!watched.empty()) bench::this_program.watch(watched);
            if (w.one_processor_only && bench::this_program.procs() != 1) bench::fail("with one processor only");
            bench::results results(w.name);
            w.run(settings, results);
        });
    }
    CLI11_PARSE(app, argc, argv);

    if (list) {
        for (const auto& w : all)
            std::printf("%.*s%s\n", static_cast<int>(w.name.size()), w.name.data(), w.one_processor_only ? " P=1" : "");
    } else if (app.get_subcommands().empty()) {
        std::fputs(app.help().c_str(), stderr);
        return 1;
    }
    return 0;
}
