#include "platform/environment.h"

#include <cstdlib>
#include <unistd.h>

#include "platform/text.h"

namespace dunlin::inline v0_1::platform {

namespace {

using parser = std::optional<std::uint64_t> (*)(std::string_view) noexcept;

std::optional<std::uint64_t> in_range(const char* name, parser parse, const char* form, std::uint64_t low,
    std::uint64_t high) noexcept {
    const std::string_view text = environment_text(name);
    if (text.empty()) return std::nullopt;
    const std::optional<std::uint64_t> value = parse(text);
    if (value && *value >= low && *value <= high) return value;
    text_writer why(-1);
    if (value) {
        why << "is not between " << low << " and " << high;
    } else {
        why << "is not " << form;
    }
    complain(name, text, why.view());
    return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> parse_number(std::string_view text) noexcept {
    if (text.empty()) return std::nullopt;
    std::uint64_t value = 0;
    for (const char c : text) {
        if (c < '0' || c > '9') return std::nullopt;
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, static_cast<std::uint64_t>(c - '0'), &value)) {
            return std::nullopt;
        }
    }
    return value;
}

std::optional<std::uint64_t> parse_size(std::string_view text) noexcept {
    std::size_t digits = 0;
    while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
    const std::optional<std::uint64_t> value = parse_number(text.substr(0, digits));
    if (!value) return std::nullopt;
    std::string_view unit = text.substr(digits);
    if (unit.empty()) return value;
    unsigned shift = 0;
    switch (unit.front()) {
        case 'k': case 'K': shift = 10; break;
        case 'm': case 'M': shift = 20; break;
        case 'g': case 'G': shift = 30; break;
        default: return std::nullopt;
    }
    unit.remove_prefix(1);
    if (!unit.empty() && unit != "iB" && unit != "B") return std::nullopt;
    if (*value > (UINT64_MAX >> shift)) return std::nullopt;
    return *value << shift;
}

std::optional<std::uint64_t> environment_number(const char* name, std::uint64_t low, std::uint64_t high) noexcept {
    return in_range(name, parse_number, "a whole number", low, high);
}

std::optional<std::uint64_t> environment_size(const char* name, std::uint64_t low, std::uint64_t high) noexcept {
    return in_range(name, parse_size, "a size (for example 65536, 64K or 1M)", low, high);
}

std::string_view environment_text(const char* name) noexcept {
    const char* text = std::getenv(name);
    return text ? std::string_view(text) : std::string_view();
}

void complain(const char* name, std::string_view value, std::string_view what) noexcept {
    text_writer(STDERR_FILENO) << "dunlin: " << name << "=" << value << ' ' << what << "; going on with the default\n";
}

}  // namespace dunlin::platform
