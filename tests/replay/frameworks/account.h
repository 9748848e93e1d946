// What the tests of each framework look at: two pay in, and one of them may be lost.
#pragma once

#include <mutex>

#include <dunlin/dunlin.hpp>

inline int paid_by_two(bool safely) {
    dunlin::mutex lock;
    int balance = 0;
    const auto pay = [&] {
        std::unique_lock held(lock);
        const int seen = balance;
        if (!safely) {
            held.unlock();
            held.lock();
        }
        balance = seen + 1;
    };
    auto other = dunlin::spawn(pay);
    pay();
    other.get();
    return balance;
}
