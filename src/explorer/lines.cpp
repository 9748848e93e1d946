#include "explorer/lines.h"

#include <algorithm>
#include <bit>

namespace dunlin::inline v0_1::explorer {

lines::lines(const costs& c)
    : table_(std::size_t{1} << 16), near_ns_(c[cost::line_near]), far_ns_(c[cost::line_far]),
      shared_ns_(c[cost::line_shared]), keeps_ns_(c[cost::line_kept]),
      in_socket_(static_cast<unsigned>(c[cost::cpus_in_socket])) {}

lines::line& lines::at(std::uintptr_t number) {
    const std::size_t mask = table_.size() - 1;
    for (std::size_t i = (number * 0x9e3779b97f4a7c15u >> 24) & mask;; i = (i + 1) & mask) {
        line& l = table_[i];
        if (l.number == number) return l;
        if (l.number != 0) continue;
        if (2 * ++used_ > table_.size()) {
            grow();
            return at(number);
        }
        l.number = number;
        return l;
    }
}

void lines::grow() {
    std::vector<line> before(2 * table_.size());
    before.swap(table_);
    used_ = 0;
    for (const line& l : before) {
        if (l.number != 0) at(l.number) = l;
    }
}

// Is the nearest copy, or the farthest one, in another socket?
bool lines::is_far(const line& l, unsigned cpu, bool farthest) const noexcept {
    bool any_near = false, any_far = false;
    for (unsigned word = 0; word < l.copies.size(); ++word) {
        for (std::uint64_t bits = l.copies[word]; bits != 0; bits &= bits - 1) {
            const unsigned other = 64 * word + static_cast<unsigned>(std::countr_zero(bits));
            if (other == cpu) continue;
            (other / in_socket_ == cpu / in_socket_ ? any_near : any_far) = true;
        }
    }
    return farthest ? any_far : any_far && !any_near;
}

lines::wait lines::access(const void* at_address, access_kind kind, unsigned cpu, std::int64_t now_ns) {
    const std::uintptr_t number = reinterpret_cast<std::uintptr_t>(at_address) / 64;
    if (kept_[cpu].line == number && now_ns < kept_[cpu].until_ns) return {};
    line& l = at(number);
    const bool writes = kind != access_kind::load;
    unsigned others = 0;
    for (const std::uint64_t word : l.copies) others += static_cast<unsigned>(std::popcount(word));
    const bool mine = has(l, cpu);
    others -= mine ? 1 : 0;
    if (others == 0 || (mine && !writes)) {
        l.copies[cpu / 64] |= std::uint64_t{1} << cpu % 64;
        return {};
    }
    wait w;
    w.queued_ns = std::max<std::int64_t>(l.busy_until_ns - now_ns, 0);
    w.moved_ns = is_far(l, cpu, writes) ? far_ns_ : near_ns_;
    // Copies for readers leave one after the other; a line that is to be written has to arrive first.
    l.busy_until_ns = now_ns + w.queued_ns + (writes ? w.moved_ns + keeps_ns_ : shared_ns_);
    if (writes) {
        l.copies = {};
        kept_[cpu] = {number, l.busy_until_ns};
    }
    l.copies[cpu / 64] |= std::uint64_t{1} << cpu % 64;
    return w;
}

}  // namespace dunlin::explorer
