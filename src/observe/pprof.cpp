#include "observe/pprof.h"

#include <charconv>
#include <climits>
#include <ctime>
#include <unistd.h>
#include <utility>

#include "observe/dump_json.h"
#include "observe/frames.h"

namespace dunlin::inline v0_1::observe {

namespace {

// profile.proto
namespace in_profile {
enum : unsigned {
    sample_type = 1,
    sample = 2,
    mapping = 3,
    location = 4,
    function = 5,
    strings = 6,
    time_ns = 9,
    duration_ns = 10,
    period_type = 11,
    period = 12
};
}
namespace in_type { enum : unsigned { type = 1, unit = 2 }; }
namespace in_sample { enum : unsigned { location = 1, value = 2, label = 3 }; }
namespace in_label { enum : unsigned { key = 1, text = 2 }; }
namespace in_mapping {
enum : unsigned { id = 1, start = 2, limit = 3, file = 5, has_functions = 7, has_files = 8, has_lines = 9 };
}
namespace in_location { enum : unsigned { id = 1, mapping = 2, address = 3, line = 4 }; }
namespace in_line { enum : unsigned { function = 1, line = 2 }; }
namespace in_function { enum : unsigned { id = 1, name = 2, system_name = 3, file = 4 }; }

}  // namespace

void message::varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
}

void message::number(unsigned field, std::uint64_t value) {
    varint(field << 3 | 0);
    varint(value);
}

void message::text(unsigned field, std::string_view value) {
    varint(field << 3 | 2);
    varint(value.size());
    bytes_ += value;
}

void message::numbers(unsigned field, const std::vector<std::uint64_t>& values) {
    message packed;
    for (const std::uint64_t v : values) packed.varint(v);
    sub(field, packed);
}

profile::profile(const types& of_values) : profile(of_values, 0, 0) {}

profile::profile(const types& of_values, std::uint64_t period, std::uint64_t duration_ns) {
    text("");  // number 0 is the empty text
    std::size_t left = of_values.size();
    for (const auto& [type, unit] : of_values) {
        message what;
        what.number(in_type::type, text(type));
        what.number(in_type::unit, text(unit));
        whole_.sub(in_profile::sample_type, what);
        const bool first = left == of_values.size(), last = --left == 0;
        if (period == 0 ? first : last) whole_.sub(in_profile::period_type, what);
    }
    whole_.number(in_profile::period, period == 0 ? 1 : period);
    if (duration_ns != 0) whole_.number(in_profile::duration_ns, duration_ns);
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    whole_.number(in_profile::time_ns,
        static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec));
    // One mapping for everything. It says that functions and lines are here already, so that pprof does not look for
    // the program's file.
    char program[PATH_MAX];
    const ssize_t size = readlink("/proc/self/exe", program, sizeof program);
    message all;
    all.number(in_mapping::id, 1);
    all.number(in_mapping::start, 0);
    all.number(in_mapping::limit, ~std::uint64_t{0} >> 1);
    all.number(in_mapping::file, text({program, size > 0 ? static_cast<std::size_t>(size) : 0}));
    for (const unsigned has : {in_mapping::has_functions, in_mapping::has_files, in_mapping::has_lines})
        all.number(has, 1);
    whole_.sub(in_profile::mapping, all);
}

// Protobuf's strings are UTF-8, and some readers refuse others: bytes that are not UTF-8 become U+FFFD.
static std::string as_utf8(std::string_view t) {
    std::string good;
    while (!t.empty()) {
        const std::size_t length = utf8_sequence(t);
        good += length != 0 ? t.substr(0, length) : std::string_view("\xef\xbf\xbd");
        t.remove_prefix(length != 0 ? length : 1);
    }
    return good;
}

std::uint64_t profile::text(std::string_view t) {
    std::string good = as_utf8(t);
    if (const auto known = texts_.find(good); known != texts_.end()) return known->second;
    in_order_.push_back(std::move(good));
    return texts_[in_order_.back()] = in_order_.size() - 1;
}

std::uint64_t profile::location(std::uint64_t pc, std::string_view function, std::string_view place) {
    const std::size_t colon = place.rfind(':');
    const std::string_view file = place.substr(0, colon);
    std::uint64_t line = 0;
    if (colon != place.npos) std::from_chars(place.data() + colon + 1, place.data() + place.size(), line);
    std::uint64_t& f = functions_[{std::string(function), std::string(file)}];
    if (f == 0) {
        f = functions_.size();
        message m;
        m.number(in_function::id, f);
        m.number(in_function::name, text(function));
        m.number(in_function::system_name, text(function));
        m.number(in_function::file, text(file));
        whole_.sub(in_profile::function, m);
    }
    std::uint64_t& l = locations_[{pc, f, line}];
    if (l == 0) {
        l = locations_.size();
        message at;
        at.number(in_line::function, f);
        at.number(in_line::line, line);
        message m;
        m.number(in_location::id, l);
        m.number(in_location::mapping, 1);
        m.number(in_location::address, pc);
        m.sub(in_location::line, at);
        whole_.sub(in_profile::location, m);
    }
    return l;
}

void profile::add(const stack::trace& frames, std::string_view otherwise, const std::vector<std::uint64_t>& values,
    const labels& with) {
    std::vector<std::uint64_t> locations;
    for_each_frame(frames, [&](const shown_frame& f) {
        std::uint64_t pc = 0;
        std::from_chars(f.pc.data() + 2, f.pc.data() + f.pc.size(), pc, 16);
        locations.push_back(location(pc - 1, f.function, f.place));
    });
    if (locations.empty()) locations.push_back(location(0, otherwise, {}));
    message sample;
    sample.numbers(in_sample::location, locations);
    sample.numbers(in_sample::value, values);
    for (const auto& [key, content] : with) {
        message label;
        label.number(in_label::key, text(key));
        label.number(in_label::text, text(content));
        sample.sub(in_sample::label, label);
    }
    whole_.sub(in_profile::sample, sample);
}

void append_sample(std::string& text, std::string_view values, const stack::trace& frames,
    const profile::labels& with) {
    std::string lines;
    text += values;
    text += " @";
    for_each_frame(frames, [&](const shown_frame& f) {
        text += ' ';
        text += f.pc;
        lines += "#\t";
        lines += f.pc;
        lines += '\t';
        lines += f.function;
        lines += '\t';
        lines += f.place;
        lines += '\n';
    });
    text += '\n';
    if (!with.empty()) {
        platform::text_writer out(text);
        out << "# labels: {";
        for (std::size_t i = 0; i < with.size(); ++i) {
            if (i != 0) out << ", ";
            write_json_string(out, with[i].first);
            out << ':';
            write_json_string(out, with[i].second);
        }
        out << "}\n";
    }
    text += lines;
    text += '\n';
}

std::string profile::finish() {
    for (const std::string& t : in_order_) whole_.text(in_profile::strings, t);
    return whole_.bytes();
}

}  // namespace dunlin::observe
