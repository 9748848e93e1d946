#include "replay/search.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "platform/environment.h"

namespace dunlin::inline v0_1::replay {

bool search::begin() {
    if (!first_) {
        while (level_ < waiting_.size() && waiting_[level_].empty()) ++level_;
        exhausted_ = level_ == waiting_.size();
        if (exhausted_ || left_ == 0) return false;
        std::vector<item>& equals = waiting_[level_];
        std::swap(equals[source_.below(static_cast<std::uint32_t>(equals.size()))], equals.back());
        now_ = std::move(equals.back());
        equals.pop_back();
        --count_;
    }
    first_ = false;
    --left_;
    position_ = 0;
    done_ = 0;
    return true;
}

std::size_t search::among(std::size_t count, std::size_t free, std::uint64_t hash) noexcept {
    if (count < 2) return 0;
    const std::uint32_t at = position_++;
    if (done_ != now_.path.size()) {
        const deviation next = now_.path[done_];
        if (next.at != at) return 0;
        ++done_;
        const bool is_last = done_ == now_.path.size();
        if (next.which < count && (alone_ || !is_last || hash == now_.hash)) return next.which;
        differs_ = true;
        return 0;
    }
    if (alone_) return 0;
    for (std::size_t i = 1; i < count; ++i) note(at, static_cast<std::uint32_t>(i), now_.detours + (i >= free), hash);
    return 0;
}

// Is one more name, with this many detours, to be kept? A name with the most detours is dropped for it; among equals,
// any of them, or the new one.
bool search::make_room(unsigned detours) noexcept {
    if (count_ < left_) return true;
    std::size_t most = waiting_.size();
    while (most > 0 && waiting_[most - 1].empty()) --most;
    if (most == 0 || most - 1 < detours) {
        lowest_dropped_ = std::min(lowest_dropped_, detours);
        return false;
    }
    std::vector<item>& highest = waiting_[most - 1];
    lowest_dropped_ = std::min(lowest_dropped_, static_cast<unsigned>(most - 1));
    if (most - 1 == detours && (source_.next() & 1) == 0) return false;
    std::swap(highest[source_.below(static_cast<std::uint32_t>(highest.size()))], highest.back());
    highest.pop_back();
    --count_;
    return true;
}

void search::note(std::uint32_t at, std::uint32_t which, unsigned detours, std::uint64_t hash) noexcept {
    if (detours > most_detours_ || !make_room(detours)) return;
    if (detours >= waiting_.size()) waiting_.resize(detours + 1);
    item& added = waiting_[detours].emplace_back();
    added.path.reserve(now_.path.size() + 1);
    added.path = now_.path;
    added.path.push_back({at, which});
    added.detours = detours;
    added.hash = hash;
    ++count_;
}

int search::covered() const noexcept {
    if (leaves_out_) return -1;
    const unsigned below = exhausted_ ? std::max(static_cast<unsigned>(level_), 1u) : static_cast<unsigned>(level_);
    return static_cast<int>(std::min(below, lowest_dropped_)) - 1;
}

std::string text_of(const search::name& n) {
    std::string text;
    for (const search::deviation d : n) {
        if (!text.empty()) text += ',';
        text += std::to_string(d.at) + ':' + std::to_string(d.which);
    }
    return text.empty() ? "plain" : text;
}

std::optional<search::name> name_in(std::string_view text) {
    search::name n;
    if (text == "plain") return n;
    for (;;) {
        const std::size_t end = std::min(text.find(','), text.size());
        const std::string_view word = text.substr(0, end);
        const std::size_t colon = word.find(':');
        if (colon == std::string_view::npos) return std::nullopt;
        const auto at = platform::parse_number(word.substr(0, colon)),
                   which = platform::parse_number(word.substr(colon + 1));
        constexpr std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
        if (!at || !which || *at > most || *which > most || *which == 0) return std::nullopt;
        if (!n.empty() && *at <= n.back().at) return std::nullopt;
        n.push_back({static_cast<std::uint32_t>(*at), static_cast<std::uint32_t>(*which)});
        if (end == text.size()) return n;
        text.remove_prefix(end + 1);
    }
}

}  // namespace dunlin::replay
