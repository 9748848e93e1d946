// report.cpp - see report.h.
#include "report.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

namespace tour {

namespace {

constexpr auto redraw_every = std::chrono::milliseconds(60);
constexpr auto print_every = std::chrono::milliseconds(500);

claims counted;
std::string failures;
std::string part_title;

bool on_terminal() {
    static const bool terminal = isatty(STDOUT_FILENO) != 0;
    return terminal;
}

bool in_colour() {
    static const bool colour = on_terminal() && std::getenv("NO_COLOR") == nullptr;
    return colour;
}

std::string painted(const char* code, std::string_view words) {
    if (!in_colour()) return std::string(words);
    return "\033[" + std::string(code) + "m" + std::string(words) + "\033[0m";
}

std::string format_list(const char* format, va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    const int length = std::vsnprintf(nullptr, 0, format, arguments);
    std::string out(length > 0 ? static_cast<std::size_t>(length) : 0, '\0');
    std::vsnprintf(out.data(), out.size() + 1, format, again);
    va_end(again);
    return out;
}

}  // namespace

std::string text(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::string out = format_list(format, arguments);
    va_end(arguments);
    return out;
}

void say(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const std::string line = format_list(format, arguments);
    va_end(arguments);
    std::printf("   %s\n", line.c_str());
    std::fflush(stdout);
}

void explain(std::string_view words) {
    while (!words.empty()) {
        const std::size_t end = words.find('\n');
        const std::string line(words.substr(0, end));
        std::printf("   %s\n", dim(line).c_str());
        words.remove_prefix(end == words.npos ? words.size() : end + 1);
    }
    std::printf("\n");
    std::fflush(stdout);
}

bool claim(bool truth, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const std::string line = format_list(format, arguments);
    va_end(arguments);
    std::printf(
        "   %s %s\n", truth ? painted("32", "[ok]").c_str() : painted("1;31", "[FAILED]").c_str(), line.c_str());
    std::fflush(stdout);
    ++(truth ? counted.good : counted.failed);
    if (!truth) failures += "   " + part_title + ": " + line + "\n";
    return truth;
}

void heading(int number, int parts, std::string_view title, std::string_view where_to_look) {
    part_title = title;
    std::printf("\n%s  %s\n", painted("1;36", text("%d/%d  %s", number, parts, part_title.c_str())).c_str(),
        dim("(" + std::string(where_to_look) + ")").c_str());
    std::fflush(stdout);
}

std::string with_commas(std::uint64_t n) {
    std::string digits = std::to_string(n);
    for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, 1, ',');
    return digits;
}

std::string readable(std::chrono::nanoseconds d) {
    const double ns = static_cast<double>(d.count());
    if (ns < 999.5) return text("%.0f ns", ns);
    if (ns < 999'500) return text("%.1f us", ns / 1e3);
    if (ns < 999'500'000) return text("%.1f ms", ns / 1e6);
    return text("%.2f s", ns / 1e9);
}

std::string bar(double share, int width) {
    int filled = static_cast<int>(share * width + 0.5);
    filled = filled < 0 ? 0 : filled > width ? width
                                             : filled;
    if (filled == 0 && share > 0) filled = 1;
    return painted("36", std::string(static_cast<std::size_t>(filled), '#')) +
           std::string(static_cast<std::size_t>(width - filled), '.');
}

std::string bold(std::string_view words) { return painted("1", words); }
std::string dim(std::string_view words) { return painted("2", words); }

claims count_claims() { return counted; }
std::string failed_claims() { return failures; }

progress::progress(std::string_view what, std::uint64_t total) : what_(what), total_(total ? total : 1) {
    if (!on_terminal()) next_ = std::chrono::steady_clock::now() + print_every;  // what is over sooner needs no lines
    show(0);
}

progress::~progress() {
    if (!on_terminal()) return;
    std::printf("\r\033[K");
    std::fflush(stdout);
}

void progress::show(std::uint64_t done) {
    const double share = static_cast<double>(done) / static_cast<double>(total_);
    if (on_terminal()) {
        const auto now = std::chrono::steady_clock::now();
        if (now < next_) return;
        next_ = now + redraw_every;
        std::printf("\r\033[K   %s %3.0f %%  %s", bar(share, 30).c_str(), 100 * share, what_.c_str());
    } else {
        const std::uint64_t quarters = 4 * done / total_;
        const auto now = std::chrono::steady_clock::now();
        if (quarters == quarters_ || now < next_) return;
        quarters_ = quarters;
        next_ = now + print_every;
        std::printf("   ... %3.0f %%  %s\n", 100 * share, what_.c_str());
    }
    std::fflush(stdout);
}

}  // namespace tour
