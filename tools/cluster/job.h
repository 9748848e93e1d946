// job.h - what the coordinator sends and the workers do.
#pragma once

#include <charconv>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include <dunlin/nats.hpp>

namespace fleet {

using namespace std::chrono_literals;

struct job {
    std::uint32_t number;
};

// Both ask for the same. No limit of deliveries: workers die more often here than anywhere.
inline const dunlin::nats::queue_options queue_settings{.replicas = 3, .ack_wait = 2s, .max_deliveries = 0};

// When a worker ends itself, as if it was killed: at its `job`-th job, in the midst of others.
struct crash {
    // between: the effect is there, done() not begun
    enum moment { never, before, between, during, after } when = never;
    std::uint32_t job = 0;
};

int work(const std::string& urls, const std::string& file, std::uint32_t jobs, unsigned place, crash c);

struct show_options {
    std::uint32_t jobs = 100'000;
    std::uint32_t seed = 1;
    bool brief = false;  // the faults that take a second each
    bool purge = false;  // and one that loses jobs
};
int show(const show_options& o);

}  // namespace fleet

template <>
struct dunlin::nats::codec<fleet::job> {
    static std::string encode(const fleet::job& j) { return std::to_string(j.number); }
    static fleet::job decode(std::string_view bytes) {
        fleet::job j{};
        const auto [end, fault] = std::from_chars(bytes.data(), bytes.data() + bytes.size(), j.number);
        if (fault != std::errc() || end != bytes.data() + bytes.size())
            throw std::invalid_argument("not a number: " + std::string(bytes));
        return j;
    }
};
