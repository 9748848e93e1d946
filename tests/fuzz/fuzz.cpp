// fuzz.cpp - random programs over the vocabulary (the verbs of story.h), each checked by the oracle (play.h, words.h,
// oracle.h).
//
//   fuzz [--seconds S | --seeds N] [--first SEED] [--procs P] [--patience S] [--plant FAULT]
//   fuzz --seed SEED [--rounds N] [--without NAMES] [--names] ...
//
// Without --procs: P = 1, 2, 8 in turn. --seed plays one program, again and again for --rounds; the program is the same
// each time, and its schedule is not. --names writes what can be taken out of it (a3: an actor, 17: a step), --without
// takes it out. A program that has not ended after the patience hangs: every goroutine is dumped. Exit status: 0, 1
// after a fault, 64 if called wrongly; a signal after a crash, or a program that hangs (SIGABRT).
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "fuzz/play.h"
#include "support/watchdog.h"

namespace {

struct options {
    std::optional<std::uint64_t> seed;
    std::uint64_t first = 1, seeds = 0;
    unsigned procs = 0, seconds = 0, rounds = 1, patience = 30;
    bool names = false;
    fuzz::plant plant = fuzz::plant::none;
    fuzz::cuts without;
};

template <class Number>
bool read(std::string_view text, Number& n) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    return error == std::errc() && end == text.data() + text.size();
}

bool read(std::string_view text, fuzz::plant& p) {
    for (std::size_t i = 0; i < std::size(fuzz::plant_names); ++i) {
        if (text == fuzz::plant_names[i]) return p = static_cast<fuzz::plant>(i), true;
    }
    return false;
}

bool read(std::string_view text, fuzz::cuts& c) {
    while (!text.empty()) {
        std::string_view one = text.substr(0, text.find(','));
        text.remove_prefix(std::min(text.size(), one.size() + 1));
        unsigned n = 0;
        const bool actor = one.starts_with('a');
        if (!read(one.substr(actor), n)) return false;
        (actor ? c.actors : c.steps).insert(n);
    }
    return true;
}

bool read(int argc, char** argv, options& o) {
    for (int i = 1; i < argc; ++i) {
        const std::string_view name = argv[i];
        if (name == "--names") {
            o.names = true;
            continue;
        }
        if (++i == argc) return false;
        const std::string_view value = argv[i];
        std::uint64_t seed = 0;
        const bool good = name == "--seed"       ? read(value, seed) && (o.seed = seed, true)
                          : name == "--first"    ? read(value, o.first)
                          : name == "--seeds"    ? read(value, o.seeds)
                          : name == "--procs"    ? read(value, o.procs) && o.procs <= 64
                          : name == "--seconds"  ? read(value, o.seconds)
                          : name == "--rounds"   ? read(value, o.rounds)
                          : name == "--patience" ? read(value, o.patience)
                          : name == "--plant"    ? read(value, o.plant)
                          : name == "--without"  ? read(value, o.without)
                                                 : false;
        if (!good) return false;
    }
    return true;
}

// True: all is right.
bool play(const options& o, std::uint64_t seed, unsigned procs) {
    fuzz::story story = fuzz::story_of(seed);
    fuzz::cut(story, o.without);
    const std::string heading = "seed " + std::to_string(seed) + " at P = " + std::to_string(procs);
    std::vector<std::string> faults;
    {
        const support::watchdog dog(heading + ":\n" + fuzz::to_string(story), std::chrono::seconds(o.patience));
        faults = dunlin::run({.max_procs = procs}, [&] { return fuzz::player(story, o.plant).run(); });
    }
    if (faults.empty()) return true;
    std::cout << heading << ":\n" << fuzz::to_string(story);
    for (const std::string& fault : faults) std::cout << "  FAULT  " << fault << '\n';
    std::cout << std::flush;
    return false;
}

// Says what is played before it is: a crash says nothing afterwards.
int play_many(const options& o) {
    constexpr unsigned all_procs[] = {1, 2, 8};
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(o.seconds);
    for (std::uint64_t i = 0; o.seconds != 0 ? std::chrono::steady_clock::now() < end : i < o.seeds; ++i) {
        const unsigned procs = o.procs != 0 ? o.procs : all_procs[i % 3];
        const std::uint64_t seed = o.first + i;
        std::printf("seed %llu P %u\n", static_cast<unsigned long long>(seed), procs);
        std::fflush(stdout);
        if (!play(o, seed, procs)) return 1;
    }
    return 0;
}

int play_one(const options& o) {
    if (o.names) {
        fuzz::story story = fuzz::story_of(*o.seed);
        fuzz::cut(story, o.without);
        for (const std::string& name : fuzz::names(story)) std::cout << name << '\n';
        return 0;
    }
    for (unsigned i = 0; i < o.rounds; ++i) {
        for (const unsigned procs : {1u, 2u, 8u}) {
            if ((o.procs == 0 || o.procs == procs) && !play(o, *o.seed, procs)) return 1;
        }
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    options o;
    if (!read(argc, argv, o) || (!o.seed && o.seconds == 0 && o.seeds == 0)) {
        std::fprintf(stderr, "usage: fuzz --seconds S | --seeds N | --seed SEED, and what the head of fuzz.cpp says\n");
        return 64;
    }
    return o.seed ? play_one(o) : play_many(o);
}
