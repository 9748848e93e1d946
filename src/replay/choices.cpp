#include "replay/choices.h"

#include <algorithm>
#include <bit>

namespace dunlin::inline v0_1::replay {

void choices::begin(std::uint64_t seed, unsigned depth, std::int64_t longest_delay_ns, search* s) {
    search_ = s;
    source_ = platform::random_source(seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u);
    depth_ = depth;
    longest_delay_ns_ = longest_delay_ns;
    lowest_ = high;
    change_points_.clear();
    // The length of an execution is not known. Each change point is drawn below a drawn power of two, so that for each
    // length some seeds have the right one.
    for (unsigned i = 1; i < depth; ++i) change_points_.push_back(1 + below(std::uint64_t{4} << below(12)));
    // Odds that find one fault hide another: a goroutine that is switched away at every second call never makes two
    // calls in a row. So each execution draws its own.
    constexpr unsigned switches[] = {0, 2, 8, 32, 64, 128};
    switch_odds_ = switches[below(std::size(switches))];
    constexpr unsigned delays[] = {0, 0, 4, 32};
    delay_odds_ = delays[below(std::size(delays))];
    const std::uint64_t taste = below(4);
    newest_odds_ = taste == 0 ? 192 : 0;
    oldest_odds_ = taste == 1 ? 192 : 0;
}

std::uint64_t choices::below(std::uint64_t bound) noexcept {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(source_.next()) * bound) >> 64);
}

bool choices::is_change_point(std::uint64_t step) noexcept {
    return std::find(change_points_.begin(), change_points_.end(), step) != change_points_.end();
}

std::size_t choices::which(std::size_t count) noexcept {
    if (count == 1) return 0;
    if (of_256(newest_odds_)) return count - 1;
    if (of_256(oldest_odds_)) return 0;
    return static_cast<std::size_t>(below(count));
}

std::int64_t choices::delay_ns() noexcept { return of_256(delay_odds_) ? drawn_time() : 0; }

// Every order of magnitude is equally likely.
std::int64_t choices::drawn_time() noexcept {
    if (longest_delay_ns_ <= 0) return 0;
    const int magnitudes = std::bit_width(static_cast<std::uint64_t>(longest_delay_ns_));
    const std::uint64_t most = std::uint64_t{1} << below(static_cast<std::uint64_t>(magnitudes));
    return std::min(longest_delay_ns_, static_cast<std::int64_t>(most + below(most)));
}

}  // namespace dunlin::replay
