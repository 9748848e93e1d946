// service.h - the requests of mixed-service, and how each is answered: of service_bench.cpp and of peers/cpp.
// bench/load/mixed_load.c sends them, says how a message looks and checks every answer.

#pragma once

#include <time.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "measure.h"
#include "registry.h"
#include "work.h"

namespace bench {

/// 64 bytes, the same in both directions but for the value.
struct message {
    std::uint64_t number;
    std::uint32_t kind;
    std::uint32_t amount;
    std::uint64_t value;
    std::array<unsigned char, 40> rest;
};
static_assert(sizeof(message) == 64);

enum message_kind : std::uint32_t { lookup, burst, library };

/// A function as of any C library: it knows nothing of the runtime, and the runtime is told nothing of it.
[[gnu::noinline]] inline std::uint64_t call_library(std::uint64_t value, std::uint32_t us) {
    const timespec t{0, static_cast<long>(us) * 1000};
    nanosleep(&t, nullptr);
    return ~value;
}

inline constexpr std::size_t service_table_size = 4096;

inline std::vector<std::uint64_t> make_service_table() {
    std::vector<std::uint64_t> table(service_table_size);
    splitmix64 random(1);
    for (std::uint64_t& entry : table) entry = random.next();
    return table;
}

inline void answer(message& m, const std::vector<std::uint64_t>& table) {
    switch (m.kind) {
    case lookup: m.value = table[m.value % service_table_size]; break;
    case burst: m.value = compute(m.value, m.amount); break;
    case library: m.value = call_library(m.value, m.amount); break;
    default: fail("mixed-service: a request of no kind");
    }
}

/// What the load of mixed-service is told for a server with so many processors.
inline std::vector<std::string> mixed_load_words(const settings& s, unsigned procs) {
    std::vector<std::string> words = {
        "--connections", "256", "--rate", std::to_string(2000 * procs), "--seconds", s.quick ? "0.5" : "4"};
    if (procs > 1) words.push_back("--free");  // several processors on one CPU would never run at once
    return words;
}

/// The same of open-loop.
inline std::vector<std::string> open_load_words(const settings& s, unsigned procs) {
    std::vector<std::string> words = {"--connections", "64", "--seconds", s.quick ? "0.2" : "1"};
    if (procs > 1) words.push_back("--free");
    return words;
}

}  // namespace bench
