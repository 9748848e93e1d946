#include "observe/alike.h"

#include <algorithm>
#include <bit>

#include "platform/memory.h"

namespace dunlin::inline v0_1::observe {

alike::alike(std::size_t at_most) noexcept {
    const std::size_t places = std::bit_ceil(2 * at_most + 2);
    bytes_ = places * sizeof(group) + at_most * (sizeof(member) + sizeof(member*));
    memory_ = platform::reserve(bytes_, platform::page_size());
    if (memory_ == nullptr) return;
    groups_ = reinterpret_cast<group*>(memory_);  // zero: all places are free
    mask_ = places - 1;
    members_ = reinterpret_cast<member*>(memory_ + places * sizeof(group));
    firsts_ = reinterpret_cast<const member**>(members_ + at_most);
    room_ = at_most;
}

alike::~alike() {
    if (memory_ != nullptr) platform::release({memory_, bytes_});
}

void alike::add(const sched::goroutine& g, std::uint64_t key) noexcept {
    if (used_ == room_) return;
    member* const m = &members_[used_++];
    // A thread that is not a machine may make the goroutine ready meanwhile.
    const std::int64_t since_ns = g.waits_since_ns;
    const bool waits = g.state.load(std::memory_order_relaxed) == sched::goroutine_state::waiting && since_ns != 0;
    *m = {&g, nullptr, 1, waits ? since_ns : never};
    std::size_t at = key & mask_;
    // half of the places stay free
    while (groups_[at].first != nullptr && groups_[at].key != key) at = (at + 1) & mask_;
    group& of = groups_[at];
    if (of.first == nullptr) {
        of = {key, m, m};
        firsts_[firsts_used_++] = m;
        return;
    }
    of.last->next = m;
    of.last = m;
    ++of.first->in_group;
    of.first->since_ns = std::min(of.first->since_ns, m->since_ns);
}

void alike::sort() noexcept {
    std::sort(firsts_, firsts_ + firsts_used_, [](const member* a, const member* b) {
        return a->since_ns != b->since_ns ? a->since_ns < b->since_ns : a->g->id < b->g->id;
    });
}

}  // namespace dunlin::observe
