// report.h - how the tour talks: headings, paragraphs, figures, small charts, progress, and claims that are checked.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace tour {

struct options {
    bool quick = false;  // a tenth of the work
};

/// A line of output, indented, as printf.
[[gnu::format(printf, 1, 2)]] void say(const char* format, ...);
/// A paragraph that explains: what this is, what you see. Lines are broken by the writer.
void explain(std::string_view text);
/// Something that must be true. Printed with "ok" or "FAILED"; a failed one makes the tour fail. Returns `truth`.
[[gnu::format(printf, 2, 3)]] bool claim(bool truth, const char* format, ...);

void heading(int number, int parts, std::string_view title, std::string_view where_to_look);
/// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...);
/// 1234567 as "1,234,567".
std::string with_commas(std::uint64_t n);
/// "870 ns", "12.3 us", "4.56 ms", "1.23 s".
std::string readable(std::chrono::nanoseconds d);
/// A bar of `width` cells, `share` (0 to 1) of them filled.
std::string bar(double share, int width = 40);
/// Words that stand out on a terminal.
std::string bold(std::string_view words);
std::string dim(std::string_view words);

struct claims {
    int good = 0;
    int failed = 0;
};
/// All claims so far.
claims count_claims();
/// The claims that failed, one line each.
std::string failed_claims();

/// How far a long piece of work is: a line that is redrawn on a terminal; elsewhere a line for
/// every quarter, if it takes long.
class progress {
public:
    progress(std::string_view what, std::uint64_t total);
    ~progress();
    progress(const progress&) = delete;
    progress& operator=(const progress&) = delete;
    void show(std::uint64_t done);

private:
    std::string what_;
    std::uint64_t total_;
    std::uint64_t quarters_ = 0;
    std::chrono::steady_clock::time_point next_{};
};

class stopwatch {
public:
    std::chrono::nanoseconds elapsed() const { return std::chrono::steady_clock::now() - start_; }
    double seconds() const { return std::chrono::duration<double>(elapsed()).count(); }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace tour
