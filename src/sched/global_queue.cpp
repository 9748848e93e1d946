#include "sched/global_queue.h"

#include <cstdlib>

namespace dunlin::sched {

global_queue::block* global_queue::take_block() noexcept {
    block* b = spare_;
    if (b != nullptr) {
        spare_ = b->next;
        --spare_count_;
    } else {
        b = static_cast<block*>(std::malloc(sizeof(block)));
    }
    if (b != nullptr) b->next = nullptr;
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
        // Empty: start again at its beginning rather than giving it up.
        begin_ = end_ = 0;
        return;
    }
    first_ = b->next;
    begin_ = 0;
    if (spare_count_ < spare_max) {
        b->next = spare_;
        spare_ = b;
        ++spare_count_;
    } else {
        std::free(b);
    }
}

// Rare (a processor goes away, a world ends): the old contents are taken out and put in again behind the new.
void global_queue::push_front(goroutine_list& list) noexcept {
    goroutine_list all;
    while (goroutine* g = list.pop_front()) all.push_back(g);
    while (goroutine* g = pop_front()) all.push_back(g);
    while (goroutine* g = all.pop_front()) push_back(g);
}

}  // namespace dunlin::sched
