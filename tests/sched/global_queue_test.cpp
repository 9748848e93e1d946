// The global queue, as it is: order, from both ends, across the ends of its blocks.
#include "sched/queues/global_queue.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace {

using dunlin::sched::global_queue;
using dunlin::sched::goroutine;

class GlobalQueue : public testing::Test {
protected:
    static constexpr std::size_t most = 4000;

    void push_back(std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            model_.push_back(fresh());
            queue_.push_back(model_.back());
        }
    }
    void push_front(std::size_t count) {
        std::vector<goroutine*> items;
        for (std::size_t i = 0; i < count; ++i) items.push_back(fresh());
        model_.insert(model_.begin(), items.begin(), items.end());
        for (auto g = items.rbegin(); g != items.rend(); ++g) queue_.push_front(*g);
    }
    void pop(std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            goroutine* expected = model_.empty() ? nullptr : model_.front();
            if (!model_.empty()) model_.pop_front();
            ASSERT_EQ(queue_.pop_front(), expected);
            ASSERT_EQ(queue_.size(), model_.size());
        }
    }
    std::size_t size() const { return model_.size(); }

private:
    goroutine* fresh() { return &all_[next_++ % most]; }

    global_queue queue_;
    std::deque<goroutine*> model_;
    std::unique_ptr<goroutine[]> all_ = std::make_unique<goroutine[]>(most);
    std::size_t next_ = 0;
};

TEST_F(GlobalQueue, IsFirstInFirstOut) {
    push_back(1500);
    pop(1501);
}

TEST_F(GlobalQueue, WhatIsPutInFrontComesFirstInItsOrder) {
    push_front(3);
    push_back(2);
    push_front(257);
    pop(263);
}

TEST_F(GlobalQueue, ServesWhatIsPutInFrontOfManyWithoutMovingThem) {
    push_back(1200);
    for (int i = 0; i < 8; ++i) {
        push_front(257);
        pop(129);
    }
    pop(size() + 1);
}

TEST_F(GlobalQueue, StartsAgainWhenItIsEmpty) {
    for (std::size_t n : {1u, 510u, 511u, 512u, 1022u}) {
        push_front(n);
        push_back(n);
        pop(2 * n + 1);
        push_back(n);
        push_front(n);
        pop(2 * n + 1);
    }
}

TEST_F(GlobalQueue, DoesWhatTheModelDoes) {
    std::minstd_rand random(1);
    for (int i = 0; i < 20'000; ++i) {
        const std::size_t n = random() % 300;
        switch (size() > 3000 ? 2 : random() % 3) {
            case 0: push_back(n); break;
            case 1: push_front(std::min<std::size_t>(n, 257)); break;
            default: pop(2 * n);
        }
    }
    pop(size() + 1);
}

}  // namespace
