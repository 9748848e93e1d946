// pprof.h - writes a profile in the format of pprof: the message Profile of its profile.proto, not compressed (pprof
// takes both).
//
// Data       Texts, functions and locations are numbered in the order in which they first occur; each sample names
//            locations, innermost first.
// Source     github.com/google/pprof, proto/profile.proto: the numbers of the fields.
// Tests      tests/tools/profile_test.py
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "stack/trace.h"

namespace dunlin::inline v0_1::observe {

// A message of protocol buffers: fields one after the other.
class message {
public:
    void number(unsigned field, std::uint64_t value);
    void text(unsigned field, std::string_view value);
    void numbers(unsigned field, const std::vector<std::uint64_t>& values);  // packed
    void sub(unsigned field, const message& value) { text(field, value.bytes_); }
    const std::string& bytes() const noexcept { return bytes_; }

private:
    void varint(std::uint64_t value);

    std::string bytes_;
};

class profile {
public:
    using labels = std::vector<std::pair<std::string, std::string>>;

    // What is counted, and its unit: "goroutine", "count". The period is of the first type, and is 1.
    using types = std::vector<std::pair<std::string_view, std::string_view>>;
    explicit profile(const types& of_values);
    // A sample is taken each time `period` of the last type has passed; the profile lasted for `duration_ns`.
    profile(const types& of_values, std::uint64_t period, std::uint64_t duration_ns);

    // Adds a sample, with a value for each type. `otherwise` is the only function of a stack that has no frames.
    void add(const stack::trace& frames, std::string_view otherwise, const std::vector<std::uint64_t>& values,
        const labels& with);
    std::string finish();

private:
    std::uint64_t text(std::string_view t);
    std::uint64_t location(std::uint64_t pc, std::string_view function, std::string_view place);

    std::map<std::string, std::uint64_t, std::less<>> texts_;
    std::vector<std::string> in_order_;
    std::map<std::pair<std::string, std::string>, std::uint64_t> functions_;                            // name, file
    std::map<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>, std::uint64_t> locations_;  // pc, function, line
    message whole_;
};

// A sample in the text form of Go's profiles: "40 @ 0x55d0c2 0x55e1f7", its labels, and a line for each frame.
void append_sample(std::string& text, std::string_view values, const stack::trace& frames, const profile::labels& with);

}  // namespace dunlin::observe
