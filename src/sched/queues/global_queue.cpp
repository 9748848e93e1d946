#include "sched/queues/global_queue.h"

#include "platform/memory.h"

namespace dunlin::inline v0_1::sched {

global_queue::block* global_queue::take_block() noexcept {
    block* b = spare_;
    if (b != nullptr) {
        spare_ = b->next;
    } else {
        if (uncut_ == 0) {
            chunk_ = reinterpret_cast<block*>(platform::reserve(chunk_blocks * sizeof(block)));
            if (chunk_ == nullptr) return nullptr;
            uncut_ = chunk_blocks;
        }
        b = chunk_ + (chunk_blocks - uncut_--);
    }
    b->next = nullptr;
    return b;
}

bool global_queue::add_block_behind() noexcept {
    block* b = take_block();
    if (b == nullptr) return false;
    if (last_ == nullptr) {
        first_ = b;
        begin_ = 0;
    } else {
        last_->next = b;
    }
    last_ = b;
    end_ = 0;
    return true;
}

void global_queue::drop_first_block() noexcept {
    block* b = first_;
    if (b == last_) {
        // The queue is empty: start again at the beginning of the block instead of giving it up.
        begin_ = end_ = 0;
        return;
    }
    first_ = b->next;
    begin_ = 0;
    b->next = spare_;
    spare_ = b;
}

bool global_queue::make_room_in_front() noexcept {
    if (first_ != nullptr && first_ == last_ && begin_ == end_) {
        begin_ = end_ = block_items;
        return true;
    }
    block* b = take_block();
    if (b == nullptr) return false;
    if (last_ == nullptr) {
        last_ = b;
        end_ = block_items;
    }
    b->next = first_;
    first_ = b;
    begin_ = block_items;
    return true;
}

// The whole queue of a processor comes here when its thread blocks and no other thread is ready, so the cost must not
// depend on the length of the global queue.
void global_queue::push_front(goroutine* g) noexcept {
    if (begin_ == 0 && !make_room_in_front()) return rebuild_behind(g);
    first_->items[--begin_] = g;
    ++count_;
    publish_size();
}

// There is no memory for a block: takes all goroutines out and puts them in again behind g.
void global_queue::rebuild_behind(goroutine* g) noexcept {
    goroutine_list all;
    all.push_back(g);
    while (goroutine* other = take_first()) all.push_back(other);
    push_back(all);
}

}  // namespace dunlin::sched
