// sim_cases [--seed N] [--quiet] [--first] [--hold FILE:LINE[-LINE]]... [--replay "r0 f1 ..."|@FILE --model
// sequential|tso|cxx] NAME...: explores the cases whose names begin so. Prints a line for each way of exploring one,
// and the story of each failure. With --hold each is explored by the order `held` as well, at these lines. With
// --first the cases are explored in the order of the names, each way a little at first and then as usual, and the first
// failure is the end: it is only said what it is. 0: all hold; 1: one fails; 2: misuse.
#include "sim/cases.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <sys/personality.h>
#include <unistd.h>

#include "explorer/forked.h"

namespace dunlin::inline v0_1::sim_cases {

std::vector<protocol_case>& all() {
    static std::vector<protocol_case> cases;
    return cases;
}

add::add(std::string name, std::vector<explorer::options> runs, explorer::case_function build) {
    all().push_back({std::move(name), std::move(runs), std::move(build)});
}

std::vector<explorer::options> exhaustively(unsigned tso_detours, unsigned cxx_detours) {
    return {{.model = explorer::memory::tso, .executions = 3'000'000, .detours = tso_detours},
            {.model = explorer::memory::cxx, .executions = 3'000'000, .detours = cxx_detours}};
}

std::vector<explorer::options> at_random(std::size_t executions) {
    std::vector<explorer::options> runs;
    for (const explorer::memory m : {explorer::memory::tso, explorer::memory::cxx}) {
        runs.push_back({.order = explorer::order::random, .model = m, .executions = executions});
        runs.push_back({.order = explorer::order::pct, .model = m, .executions = executions, .depth = 3});
    }
    return runs;
}

std::vector<explorer::options> operator+(std::vector<explorer::options> a, std::vector<explorer::options> b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

namespace {

const char* const orders[] = {"random", "pct", "round robin", "every order", "delayed", "held"};
const char* const models[] = {"sequential", "tso", "cxx"};

struct arguments {
    std::uint64_t seed = 1;
    bool quiet = false, first = false;
    std::string replay;  // empty: none
    std::vector<explorer::source_range> places;  // to hold threads at
    explorer::memory model = explorer::memory::tso;
    std::vector<std::string_view> names;
};

[[noreturn]] void misuse(const char* what) {
    std::fprintf(stderr,
        "sim_cases: %s\nusage: sim_cases [--seed N] [--quiet] [--first] [--hold FILE:LINE[-LINE]]... "
        "[--replay CHOICES|@FILE --model sequential|tso|cxx] NAME...\n",
        what);
    std::exit(2);
}

// Of a long execution they are too many for a command line.
std::string choices_from(std::string_view text) {
    if (text.empty()) misuse("no choices to replay");
    if (text.front() != '@') return std::string(text);
    std::ifstream file(std::string(text.substr(1)));
    std::string read(std::istreambuf_iterator<char>(file), {});
    if (read.empty()) misuse("the file of choices cannot be read, or is empty");
    return read;
}

// FILE:LINE or FILE:LINE-LINE
explorer::source_range place_from(std::string_view text) {
    const std::size_t colon = text.rfind(':');
    if (colon == 0 || colon == std::string_view::npos) misuse("a place is FILE:LINE or FILE:LINE-LINE");
    explorer::source_range p{std::string(text.substr(0, colon)), 0, 0};
    const char *at = text.data() + colon + 1, *const end = text.data() + text.size();
    auto read = std::from_chars(at, end, p.first);
    p.last = p.first;
    if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-')
        read = std::from_chars(read.ptr + 1, end, p.last);
    if (read.ec != std::errc() || read.ptr != end || p.last < p.first) misuse("a place is FILE:LINE or FILE:LINE-LINE");
    return p;
}

arguments read_arguments(int argc, char** argv) {
    arguments a;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        const auto value = [&] {
            if (++i == argc) misuse("an option lacks its value");
            return argv[i];
        };
        if (word == "--seed") {
            char* end = nullptr;
            const char* text = value();
            a.seed = std::strtoull(text, &end, 10);
            if (*text < '0' || *text > '9' || *end != 0) misuse("a seed is a number");
        } else if (word == "--quiet") {
            a.quiet = true;
        } else if (word == "--first") {
            a.first = true;
        } else if (word == "--hold") {
            a.places.push_back(place_from(value()));
        } else if (word == "--replay") {
            a.replay = choices_from(value());
        } else if (word == "--model") {
            const std::string_view model = value();
            const auto* const found = std::find(std::begin(models), std::end(models), model);
            if (found == std::end(models)) misuse("a model is sequential, tso or cxx");
            a.model = static_cast<explorer::memory>(found - std::begin(models));
        } else if (word.starts_with("--")) {
            misuse("unknown option");
        } else {
            a.names.push_back(word);
        }
    }
    return a;
}

bool wanted(const arguments& a, const protocol_case& c) {
    if (a.names.empty()) return true;
    for (const std::string_view name : a.names) {
        if (std::string_view(c.name).starts_with(name)) return true;
    }
    return false;
}

// The end of a story that is very long.
std::string shortened(const std::string& story) {
    constexpr std::size_t most = 16'000;
    if (story.size() <= most) return story;
    return "   ...\n" + story.substr(story.find('\n', story.size() - most) + 1);
}

// False: it fails.
bool run(const arguments& a, const protocol_case& c, explorer::options o) {
    o.seed = a.seed;
    o.tells = !a.first;
    const auto begin = std::chrono::steady_clock::now();
    // A case leaves its marks on the scheduler's globals, and the next one must find them as at the start of a program.
    const explorer::result r = explorer::in_process_of_its_own([&] { return explorer::explore(o, c.build); });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const char* const model = models[static_cast<int>(o.model)];
    if (!a.quiet || !r.holds()) {
        std::string way = orders[static_cast<int>(o.order)];
        if (o.order == explorer::order::exhaustive && o.detours != every)
            way += " of " + std::to_string(o.detours) + " detours";
        std::printf("%-34s %-4s %-28s %8zu executions %9zu steps %6.1f s %s, hash %016llx\n", c.name.c_str(), model,
            way.c_str(), r.executions, r.steps, seconds,
            !r.holds()                                          ? "FAILS"
            : (o.order != explorer::order::exhaustive || r.complete) ? "holds"
                                                                : "INCOMPLETE",
            static_cast<unsigned long long>(r.hash));
    }
    if (!r.holds() && a.first) {
        std::printf("%s\n", r.failure.c_str());
    } else if (!r.holds()) {
        std::printf("%s\n%sagain: sim_cases --model %s --replay '%s' %s\n", r.failure.c_str(),
            shortened(r.story).c_str(), model, explorer::text_of(r.choices).c_str(), c.name.c_str());
    }
    std::fflush(stdout);
    return r.holds() && (o.order != explorer::order::exhaustive || r.complete);
}

// The case at the given places: under each memory that it is explored under, as often as otherwise.
std::vector<explorer::options> held_runs(const arguments& a, const protocol_case& c) {
    constexpr std::size_t of_a_small_case = 20'000;
    std::vector<explorer::options> runs;
    if (a.places.empty()) return runs;
    for (const explorer::options& o : c.runs) {
        const std::size_t executions = o.order == explorer::order::exhaustive ? of_a_small_case : o.executions;
        const auto same = [&](const explorer::options& r) { return r.model == o.model; };
        const auto found = std::find_if(runs.begin(), runs.end(), same);
        if (found != runs.end()) {
            found->executions = std::max(found->executions, executions);
            continue;
        }
        runs.push_back(o);
        runs.back().order = explorer::order::held;
        runs.back().executions = executions;
        runs.back().places = a.places;
    }
    return runs;
}

// What fails mostly fails soon, in one of the ways.
bool first_failure(const arguments& a) {
    constexpr std::size_t part = 8;
    std::vector<const protocol_case*> cases;
    for (const std::string_view name : a.names) {
        for (const protocol_case& c : all()) {
            const bool there = std::find(cases.begin(), cases.end(), &c) != cases.end();
            if (!there && std::string_view(c.name).starts_with(name)) cases.push_back(&c);
        }
    }
    if (cases.empty()) misuse("no case of that name");
    for (const bool little : {true, false}) {
        for (const protocol_case* c : cases) {
            for (const explorer::options& o : held_runs(a, *c)) {
                if (!little && !run(a, *c, o)) return true;
            }
        }
        for (const protocol_case* c : cases) {
            for (explorer::options o : c->runs) {
                if (little && o.order == explorer::order::exhaustive) continue;
                if (little) o.executions /= part;
                if (!run(a, *c, o)) return true;
            }
        }
    }
    return false;
}

int main_of(const arguments& a) {
    if (a.first) return first_failure(a);
    bool found = false, all_hold = true;
    for (const protocol_case& c : all()) {
        if (!wanted(a, c)) continue;
        found = true;
        if (!a.replay.empty()) {
            explorer::options o = c.runs.front();
            o.model = a.model;
            const explorer::result r = explorer::replay(o, explorer::choices_in(a.replay), c.build);
            std::printf("%s%s\n", r.story.c_str(), r.failure.c_str());
            return !r.holds();
        }
        for (const explorer::options& o : held_runs(a, c) + c.runs) {
            if (!run(a, c, o)) {
                all_hold = false;
                break;
            }
        }
    }
    if (!found) misuse("no case of that name");
    return !all_hold;
}

}  // namespace

}  // namespace dunlin::sim_cases

// What a whole program does depends on its addresses: locks are taken in their order. The same in each process.
static void use_the_same_addresses(char** argv) {
    const int now = personality(0xffffffff);
    if (now == -1 || (now & ADDR_NO_RANDOMIZE) != 0 ||
        personality(static_cast<unsigned>(now) | ADDR_NO_RANDOMIZE) == -1)
        return;
    execv("/proc/self/exe", argv);
}

int main(int argc, char** argv) {
    use_the_same_addresses(argv);
    try {
        return dunlin::sim_cases::main_of(dunlin::sim_cases::read_arguments(argc, argv));
    } catch (const std::exception& e) {
        std::fprintf(stderr, "sim_cases: %s\n", e.what());
        return 2;
    }
}
