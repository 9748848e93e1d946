#include "explorer/strategies.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "platform/check.h"

namespace dunlin::inline v0_1::explorer {

namespace {

platform::random_source source_of(std::uint64_t seed, std::uint64_t execution) noexcept {
    platform::random_source of_seed(seed * 0x9e3779b97f4a7c15u + execution);
    return platform::random_source(of_seed.next());
}

// The default: buffers empty at once, then the thread that ran last goes on, then the first that can.
std::size_t plainest(const std::vector<transition>& possible, unsigned last) noexcept {
    std::size_t best = 0;
    int best_rank = 100;
    for (std::size_t i = 0; i < possible.size(); ++i) {
        const choice c = possible[i].what;
        int rank = 2;
        if (c.kind == step_kind::flush) {
            rank = 0;
        } else if (c.kind == step_kind::time_out) {
            rank = 3;
        } else if (c.which == last) {
            rank = 1;
        }
        if (rank < best_rank) {
            best = i;
            best_rank = rank;
        }
    }
    return best;
}

// Picks each with a probability that is proportional to its weight. None: all weights are 0.
template <class Weight>
std::optional<std::size_t> pick_by_weight(const std::vector<transition>& possible, platform::random_source& random,
    const Weight& weight) {
    std::uint32_t sum = 0;
    for (const transition& t : possible) sum += weight(t.what);
    if (sum == 0) return std::nullopt;
    std::uint32_t at = random.below(sum);
    std::size_t i = 0;
    for (; at >= weight(possible[i].what); ++i) at -= weight(possible[i].what);
    return i;
}

}  // namespace

// ---- random --------------------------------------------------------------------------------------------------------

bool random_order::begin() {
    random_ = source_of(seed_, execution_++);
    static constexpr std::uint32_t weights[] = {1, 4, 16}, staying[] = {16, 64, 256}, older[] = {2, 4, 16};
    flush_weight_ = weights[random_.below(3)];
    stay_weight_ = staying[random_.below(3)];
    time_out_weight_ = weights[random_.below(3)];
    older_ = older[random_.below(3)];
    return true;
}

std::size_t random_order::pick(const std::vector<transition>& possible, unsigned last) {
    const auto weight = [&](const choice& c) {
        if (c.kind == step_kind::flush) return flush_weight_;
        if (c.kind == step_kind::time_out) return time_out_weight_;
        return c.which == last ? stay_weight_ : 16;
    };
    return *pick_by_weight(possible, random_, weight);  // no weight is 0
}

unsigned random_order::pick_value(unsigned count) { return random_.below(older_) == 0 ? random_.below(count) : 0; }

// ---- delayed -------------------------------------------------------------------------------------------------------

bool delayed_order::begin() {
    random_ = source_of(seed_, execution_++);
    static constexpr std::uint32_t staying[] = {16, 64, 256}, rarely[] = {64, 256, 1024}, with_buffer[] = {8, 64, 1024},
                                   lengths[] = {60, 250, 1000};
    stay_weight_ = staying[random_.below(3)];
    one_in_ = rarely[random_.below(3)];
    one_in_with_buffer_ = with_buffer[random_.below(3)];
    longest_ = lengths[random_.below(3)];
    left_ = 0;
    return true;
}

void delayed_order::begin_delay(const std::vector<transition>& possible, unsigned last) noexcept {
    const auto leaves = [&](const transition& t) { return t.what.kind == step_kind::flush && t.what.which == last; };
    const bool has_buffer = std::any_of(possible.begin(), possible.end(), leaves);
    if (random_.below(has_buffer ? one_in_with_buffer_ : one_in_) != 0) return;
    left_ = 1 + random_.below(longest_);
    delayed_ = last;
}

std::size_t delayed_order::pick(const std::vector<transition>& possible, unsigned last) {
    if (left_ != 0) --left_;
    if (left_ == 0) begin_delay(possible, last);
    const auto weight = [&](const choice& c) {
        if (left_ != 0 && c.which == delayed_) return 0u;
        if (c.kind == step_kind::run && c.which == last) return stay_weight_;
        return c.kind == step_kind::time_out ? 4u : 16u;
    };
    if (const std::optional<std::size_t> picked = pick_by_weight(possible, random_, weight)) return *picked;
    left_ = 0;  // no other thread can go on
    return random_.below(static_cast<std::uint32_t>(possible.size()));
}

unsigned delayed_order::pick_value(unsigned count) { return random_.below(4) == 0 ? random_.below(count) : 0; }

// ---- held ----------------------------------------------------------------------------------------------------------

// Small numbers of arrivals and of steps are as likely as large ones.
void held_order::draw(hold& h) noexcept {
    h.arrival = 1 + random_.below(1u << random_.below(8));
    h.after = random_.below(3) != 0;
    h.further = h.after && random_.below(2) == 0 ? random_.below(1u << random_.below(6)) : 0;
    h.steps = 1 + random_.below(1u << (1 + random_.below(13)));
    h.keeps_buffer = random_.below(2) == 0;
}

bool held_order::begin() {
    random_ = source_of(seed_, execution_++);
    static constexpr std::uint32_t weights[] = {1, 4, 16}, staying[] = {16, 64, 256, 2048}, older[] = {2, 4, 16};
    flush_weight_ = weights[random_.below(3)];
    stay_weight_ = staying[random_.below(4)];
    older_ = older[random_.below(3)];
    holds_ = {};
    draw(holds_[0]);
    if (random_.below(2) == 0) draw(holds_[1]);
    was_there_ = {};
    goes_further_ = {};
    kept_ = {};
    return true;
}

bool held_order::is_place(const std::source_location& where) {
    const char* const file = where.file_name();
    const auto is_it = [file](const auto& f) { return f.first == file; };
    auto known = std::find_if(files_.begin(), files_.end(), is_it);
    if (known == files_.end()) {
        const auto in_it = [file](const source_range& p) { return std::string_view(file).ends_with(p.file); };
        const bool any = std::any_of(places_.begin(), places_.end(), in_it);
        known = files_.insert(files_.end(), {file, any});
    }
    if (!known->second) return false;
    return std::any_of(places_.begin(), places_.end(), [&](const source_range& p) { return p.has(where); });
}

void held_order::begin_hold(const hold& h, unsigned thread) noexcept {
    for (kept& k : kept_) {
        if (k.left != 0) continue;
        k = {h.steps, thread, h.keeps_buffer};
        return;
    }
}

// No other thread can go on: one that is kept goes on.
void held_order::let_one_go() noexcept {
    const auto one = random_.below(most_holds);
    kept& k = kept_[kept_[one].left != 0 ? one : 1 - one];
    k.left = 0;
}

bool held_order::keeps_back(const choice& c) const noexcept {
    return std::any_of(kept_.begin(), kept_.end(), [&c](const kept& k) {
        return k.left != 0 && c.which == k.thread && (c.kind != step_kind::flush || k.with_buffer);
    });
}

void held_order::arrives(unsigned thread, const operation& next) {
    const bool there = is_place(next.where), has_been = std::exchange(was_there_[thread], there);
    if (hold& h = goes_further_[thread]; h.arrival != 0 && --h.arrival == 0) begin_hold(h, thread);
    for (hold& h : holds_) {
        if (h.arrival == 0 || !(h.after ? has_been : there) || --h.arrival != 0) continue;
        if (h.further == 0) {
            begin_hold(h, thread);
        } else {
            goes_further_[thread] = h;
            goes_further_[thread].arrival = h.further;
        }
    }
}

std::size_t held_order::pick(const std::vector<transition>& possible, unsigned last) {
    for (kept& k : kept_) k.left -= k.left != 0;
    const auto weight = [&](const choice& c) {
        if (keeps_back(c)) return 0u;
        if (c.kind == step_kind::flush) return flush_weight_;
        if (c.kind == step_kind::time_out) return 4u;
        return c.which == last ? stay_weight_ : 16u;
    };
    for (;;) {
        if (const std::optional<std::size_t> picked = pick_by_weight(possible, random_, weight)) return *picked;
        let_one_go();
    }
}

unsigned held_order::pick_value(unsigned count) { return random_.below(older_) == 0 ? random_.below(count) : 0; }

// ---- pct -----------------------------------------------------------------------------------------------------------

void pct_order::draw_priorities() noexcept {
    for (std::uint32_t& p : priority_) p = depth_ + static_cast<std::uint32_t>(random_.next() >> 40);
}

bool pct_order::begin() {
    random_ = source_of(seed_, execution_++);
    step_ = 0;
    draw_priorities();
    changes_.clear();
    for (unsigned i = 1; i < depth_; ++i) changes_.push_back(random_.below(static_cast<std::uint32_t>(longest_)));
    lowest_ = depth_;
    return true;
}

std::size_t pct_order::pick(const std::vector<transition>& possible, unsigned) {
    const auto index = [](const choice& c) { return static_cast<std::size_t>(c.kind) * max_threads + c.which; };
    const auto highest = [&] {
        const auto less = [&](const transition& a, const transition& b) {
            return priority_[index(a.what)] < priority_[index(b.what)];
        };
        return static_cast<std::size_t>(std::max_element(possible.begin(), possible.end(), less) - possible.begin());
    };
    if (step_ >= strict_steps && step_ % steps_of_others == 0) draw_priorities();
    std::size_t picked = highest();
    if (std::count(changes_.begin(), changes_.end(), step_++) != 0) {
        priority_[index(possible[picked].what)] = --lowest_;
        picked = highest();
    }
    return picked;
}

unsigned pct_order::pick_value(unsigned count) { return random_.below(4) == 0 ? random_.below(count) : 0; }

// ---- round robin ---------------------------------------------------------------------------------------------------

std::size_t round_robin_order::pick(const std::vector<transition>& possible, unsigned last) {
    std::size_t best = 0;
    unsigned best_rank = 1000;
    for (std::size_t i = 0; i < possible.size(); ++i) {
        const choice c = possible[i].what;
        unsigned rank = 0;
        if (c.kind == step_kind::run) rank = 1 + (c.which + 2 * max_threads - last - 1) % max_threads;
        if (c.kind == step_kind::time_out) rank = 100;
        if (rank < best_rank) {
            best = i;
            best_rank = rank;
        }
    }
    return best;
}

// ---- exhaustive ----------------------------------------------------------------------------------------------------

bool exhaustive_order::begin() {
    depth_ = 0;
    asleep_.clear();
    detours_ = 0;
    if (std::exchange(first_, false)) return true;
    while (!path_.empty()) {
        node& n = path_.back();
        if (n.possible.empty()) {
            if (++n.chosen < n.count) return true;
        } else {
            if (reduces()) n.asleep.push_back(n.possible[n.chosen]);
            if (choose_next(n, reduces() ? 0 : n.chosen + 1)) return true;
        }
        path_.pop_back();
    }
    return false;
}

unsigned exhaustive_order::detours(const node& n, std::size_t i) noexcept {
    const choice c = n.possible[i].what;
    if (c.kind == step_kind::flush) return 0;
    const auto left = [&](const transition& t) {
        return t.what.kind == step_kind::run && t.what != c &&
               (t.what.which == n.last || c.kind == step_kind::time_out);
    };
    const bool leaves =
        !(c.kind == step_kind::run && c.which == n.last) && std::any_of(n.possible.begin(), n.possible.end(), left);
    const auto passed =
        std::count_if(n.possible.begin(), n.possible.end(), [](const transition& t) { return t.fresh; });
    return leaves + static_cast<unsigned>(passed);
}

bool exhaustive_order::may_choose(const node& n, std::size_t i) const noexcept {
    if (!reduces()) return n.detours + detours(n, i) <= limit_;
    const choice c = n.possible[i].what;
    return std::none_of(n.asleep.begin(), n.asleep.end(), [&](const transition& t) { return t.what == c; });
}

bool exhaustive_order::choose_next(node& n, std::size_t from) noexcept {
    for (std::size_t i = from; i < n.possible.size(); ++i) {
        if (!may_choose(n, i)) continue;
        n.chosen = static_cast<unsigned>(i);
        return true;
    }
    return false;
}

void exhaustive_order::go_on_from(const node& n) {
    const transition& made = n.possible[n.chosen];
    asleep_.clear();
    for (const transition& t : n.asleep) {
        if (t.independent_of(made)) asleep_.push_back(t);
    }
    detours_ = n.detours + (reduces() ? 0 : detours(n, n.chosen));
}

std::size_t exhaustive_order::pick(const std::vector<transition>& possible, unsigned last) {
    if (depth_ == path_.size()) {
        node n;
        n.possible = possible;
        n.asleep = asleep_;
        n.last = last;
        n.detours = detours_;
        if (!choose_next(n, 0)) return possible.size();
        path_.push_back(std::move(n));
    }
    const node& n = path_[depth_++];
    const bool same = n.possible.size() == possible.size() && n.possible[n.chosen].what == possible[n.chosen].what;
    DUNLIN_CHECK(same, "a simulated case does something else when it is executed again");
    go_on_from(n);
    return n.chosen;
}

unsigned exhaustive_order::pick_value(unsigned count) {
    if (depth_ == path_.size()) {
        node n;
        n.count = count;
        path_.push_back(std::move(n));
    }
    return path_[depth_++].chosen;
}

// ---- replay --------------------------------------------------------------------------------------------------------

std::size_t replayed_order::pick(const std::vector<transition>& possible, unsigned last) {
    for (; at_ < choices_.size(); ++at_) {
        const auto same = [&](const transition& t) { return t.what == choices_[at_]; };
        const auto found = std::find_if(possible.begin(), possible.end(), same);
        if (found == possible.end()) continue;
        ++at_;
        return static_cast<std::size_t>(found - possible.begin());
    }
    return plainest(possible, last);
}

unsigned replayed_order::pick_value(unsigned count) {
    if (at_ == choices_.size() || choices_[at_].kind != step_kind::value) return 0;
    return std::min<unsigned>(choices_[at_++].which, count - 1);
}

}  // namespace dunlin::explorer
