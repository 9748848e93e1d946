// slot_list.h - the arena's lists of free slots: doubly linked, because trim() takes slots from the cold end and from
// the middle.
//
// Not synchronised: for the owner of the list. The holders of allocated slots see chains linked by `next` alone and do
// not need this.
#pragma once

#include <cstddef>

#include "stack/slot.h"

namespace dunlin::inline v0_1::stack {

class slot_list {
public:
    constexpr slot_list() noexcept = default;

    // A chain linked by `next` from head to tail; the missing links are set here.
    slot_list(slot* head, slot* tail, std::size_t count) noexcept : head_(head), tail_(tail), count_(count) {
        slot* previous = nullptr;
        tail->next = nullptr;
        for (slot* s = head; s != nullptr; s = s->next) {
            s->prev = previous;
            previous = s;
        }
    }

    slot* head() const noexcept { return head_; }
    slot* tail() const noexcept { return tail_; }
    std::size_t count() const noexcept { return count_; }
    bool empty() const noexcept { return count_ == 0; }

    void push_back(slot* s) noexcept {
        s->next = nullptr;
        s->prev = tail_;
        (tail_ != nullptr ? tail_->next : head_) = s;
        tail_ = s;
        ++count_;
    }

    // Only if not empty.
    slot* pop_front() noexcept {
        slot* const first = head_;
        remove(first);
        return first;
    }

    // Keeps the first `count` slots and returns the others.
    slot_list split_after(std::size_t count) noexcept {
        slot_list rest;
        if (count >= count_) {
            return rest;
        }
        slot_list kept;
        while (kept.count_ < count) {
            kept.push_back(pop_front());
        }
        rest = *this;
        *this = kept;
        return rest;
    }

    // Moves all of `other` before the first, or behind the last.
    void splice_front(slot_list& other) noexcept {
        other.splice_back(*this);
        *this = other;
        other = {};
    }

    void splice_back(slot_list& other) noexcept {
        if (other.empty()) {
            return;
        }
        other.head_->prev = tail_;
        (tail_ != nullptr ? tail_->next : head_) = other.head_;
        tail_ = other.tail_;
        count_ += other.count_;
        other = {};
    }

    void remove(slot* s) noexcept {
        (s->prev != nullptr ? s->prev->next : head_) = s->next;
        (s->next != nullptr ? s->next->prev : tail_) = s->prev;
        --count_;
    }

private:
    slot* head_ = nullptr;
    slot* tail_ = nullptr;
    std::size_t count_ = 0;
};

}  // namespace dunlin::stack
