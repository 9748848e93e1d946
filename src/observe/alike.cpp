#include "observe/alike.h"

#include <bit>

#include "platform/memory.h"

namespace dunlin::observe {

alike::alike(std::size_t at_most) noexcept {
    const std::size_t places = std::bit_ceil(2 * at_most + 2);
    bytes_ = places * sizeof(group) + at_most * sizeof(member);
    memory_ = platform::reserve(bytes_, platform::page_size());
    if (memory_ == nullptr) return;
    groups_ = reinterpret_cast<group*>(memory_);  // zero: all places are free
    mask_ = places - 1;
    members_ = reinterpret_cast<member*>(memory_ + places * sizeof(group));
    room_ = at_most;
}

alike::~alike() {
    if (memory_ != nullptr) platform::release({memory_, bytes_});
}

void alike::add(const sched::goroutine& g, std::uint64_t key) noexcept {
    if (used_ == room_) return;
    member* const m = &members_[used_++];
    *m = {&g, nullptr, 1, true};
    std::size_t at = key & mask_;
    while (groups_[at].first != nullptr && groups_[at].key != key) at = (at + 1) & mask_;  // half of the places stay free
    group& of = groups_[at];
    if (of.first == nullptr) {
        of = {key, m, m};
        return;
    }
    m->first = false;
    of.last->next = m;
    of.last = m;
    ++of.first->in_group;
}

}  // namespace dunlin::observe
