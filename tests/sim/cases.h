// cases.h - the protocols' cases: real files of src/ on virtual threads. One program has them all (cases.cpp).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "park/parking_lot.h"
#include "explorer/explore.h"

namespace dunlin::inline v0_1::sim_cases {

struct protocol_case {
    std::string name;                // <protocol>/<what it does>
    std::vector<explorer::options> runs;  // each way in which it is explored
    explorer::case_function build;
};

std::vector<protocol_case>& all();

// At namespace scope: adds one.
struct add {
    add(std::string name, std::vector<explorer::options> runs, explorer::case_function build);
};

// All orders under both memories; with a limit on detours where all are too many.
inline constexpr unsigned every = ~0u;
std::vector<explorer::options> exhaustively(unsigned tso_detours = every, unsigned cxx_detours = every);
// So many by each of the drawn orders, under both memories.
std::vector<explorer::options> at_random(std::size_t executions);
std::vector<explorer::options> operator+(std::vector<explorer::options> a, std::vector<explorer::options> b);

// An object whose waiters queue in the parking lot: with its bucket as at the start of a program.
template <class T, class... Args>
T& make_in_parking_lot(explorer::scenario& s, std::string name, Args&&... args) {
    T& object = s.make<T>(std::move(name), std::forward<Args>(args)...);
    park::lot_bucket& b = park::bucket_of(&object);
    std::construct_at(&b);
    s.name(&b, sizeof b, "bucket");
    return object;
}

}  // namespace dunlin::sim_cases
