// global_queue.h - the goroutines that belong to no processor: first in, first out, guarded by the scheduler lock.
//
// Data       Blocks of pointers, not a list through the goroutines: when a run queue overflows, half of it is copied as
//            pointers and later taken back as pointers, and no goroutine is touched in between. With a list each
//            goroutine would be loaded twice, each load waiting for the one before, and a million of them fit into
//            no cache (docs/decisions/009-global-queue.md).
// Memory     is mapped, not taken from malloc: the scheduler lock is held here, and the owner of malloc's lock may
//            stand still until the monitor, which waits for the scheduler lock, makes it go on (platform/lock_check.h,
//            K3). Blocks are never given back. They take a 24th of the memory of the structs of the goroutines that
//            were in them, which are not given back either.
// No memory  for another block: new goroutines go to a list through goroutine::link, which is served when the blocks
//            are empty. While the list is not empty, new ones join it, so the order is kept.
#pragma once

#include <cstddef>

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

inline void goroutine_list::push_back(goroutine* g) noexcept {
    g->link = nullptr;
    (tail ? tail->link : head) = g;
    tail = g;
    ++size;
}

inline goroutine* goroutine_list::pop_front() noexcept {
    goroutine* g = head;
    if (!g) return nullptr;
    head = g->link;
    if (!head) tail = nullptr;
    --size;
    return g;
}

inline void global_queue::append(goroutine* g) noexcept {
    if (last_ == nullptr || end_ == block_items || spill_.head != nullptr) {
        if (spill_.head != nullptr || !add_block_behind()) {
            spill_.push_back(g);
            ++count_;
            return;
        }
    }
    last_->items[end_++] = g;
    ++count_;
}

inline goroutine* global_queue::take_first() noexcept {
    if (count_ == 0) return nullptr;
    --count_;
    if (count_ + 1 == spill_.size) return spill_.pop_front();
    goroutine* g = first_->items[begin_++];
    if (begin_ == (first_ == last_ ? end_ : block_items)) drop_first_block();
    return g;
}

inline void global_queue::push_back(goroutine* g) noexcept {
    append(g);
    publish_size();
}

inline void global_queue::push_back(goroutine_list& all) noexcept {
    while (goroutine* g = all.pop_front()) append(g);
    publish_size();
}

inline void global_queue::push_back(goroutine* const* first, std::size_t count, goroutine* last) noexcept {
    for (std::size_t i = 0; i < count; ++i) append(first[i]);
    append(last);
    publish_size();
}

inline goroutine* global_queue::pop_front() noexcept {
    goroutine* g = take_first();
    publish_size();
    return g;
}

inline void global_queue::pop_front(goroutine** out, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) out[i] = take_first();
    publish_size();
}

inline goroutine* global_queue::exchange(goroutine* g) noexcept {
    goroutine* oldest = take_first();
    append(g);
    publish_size();
    return oldest;
}

}  // namespace dunlin::sched
