// What queues in the parking lot (park/parking_lot.h), among plain threads: mutex, semaphore, shared_mutex, latch,
// wait_group.
#include <dunlin/latch.hpp>
#include <dunlin/mutex.hpp>
#include <dunlin/semaphore.hpp>
#include <dunlin/shared_mutex.hpp>
#include <dunlin/wait_group.hpp>

#include "sim/cases.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;

explorer::case_function mutex_of(int threads, int times) {
    return [=](explorer::scenario& s) {
        auto& m = make_in_parking_lot<mutex>(s, "mutex");
        auto& count = s.make<explorer::variable<int>>("count", 0, "what the mutex guards");
        for (int i = 0; i < threads; ++i) {
            s.thread(std::string(1, static_cast<char>('a' + i)), [&m, &count, times] {
                for (int k = 0; k < times; ++k) {
                    m.lock();
                    count.set(count.get() + 1);
                    m.unlock();
                }
            });
        }
        s.at_end([&count, threads, times] {
            explorer::require(count.get() == threads * times, "an increment is lost");
        });
    };
}

const add mutex_two{"parking_lot/mutex_two", exhaustively(2, 2), mutex_of(2, 1)};
const add mutex_three{"parking_lot/mutex_three", exhaustively(1, 1) + at_random(10'000), mutex_of(3, 1)};
const add mutex_four{"parking_lot/mutex_four", at_random(3'000), mutex_of(4, 3)};

// Destroyed by its last holder, while the other may still be inside its unlock().
const add mutex_destroyed{"parking_lot/mutex_destroyed", exhaustively(2, 2) + at_random(5'000),
    [](explorer::scenario& s) {
    auto& m = s.make<std::unique_ptr<mutex>>("mutex", std::make_unique<mutex>());
    std::construct_at(&park::bucket_of(m.get()));
    auto& left = s.make<explorer::variable<int>>("left", 2, "who has not had it");
    for (const char* name : {"a", "b"}) {
        s.thread(name, [&m, &left, raw = m.get()] {
            raw->lock();
            left.set(left.get() - 1);
            const bool last = left.get() == 0;
            raw->unlock();
            if (last) m.reset();
        });
    }
}};

explorer::case_function semaphore_of(int acquirers, int releasers) {
    return [=](explorer::scenario& s) {
        auto& permits = make_in_parking_lot<counting_semaphore<>>(s, "semaphore", 0);
        auto& done = s.make<std::array<explorer::variable<int>, 4>>("done");
        for (int i = 0; i < releasers; ++i) {
            s.thread("releaser " + std::to_string(i + 1), [&permits, &done, i, n = acquirers / releasers] {
                if (i == 0) done[0].set(1);
                permits.release(n);
            });
        }
        for (int i = 0; i < acquirers; ++i) {
            s.thread("acquirer " + std::to_string(i + 1), [&permits, &done, releasers] {
                permits.acquire();
                if (releasers == 1) explorer::require(done[0].get() == 1, "what came before the release is not seen");
            });
        }
    };
}

const add semaphore_two{"parking_lot/semaphore_two", exhaustively(3, 2), semaphore_of(1, 1)};
const add semaphore_three{"parking_lot/semaphore_three", exhaustively(1, 1) + at_random(10'000), semaphore_of(2, 1)};
const add semaphore_four{"parking_lot/semaphore_four", at_random(10'000), semaphore_of(2, 2)};

const add shared{"parking_lot/shared_mutex", exhaustively(1, 1) + at_random(10'000), [](explorer::scenario& s) {
    auto& m = make_in_parking_lot<shared_mutex>(s, "shared_mutex");
    auto& value = s.make<explorer::variable<int>>("value", 0, "what the shared_mutex guards");
    for (const char* name : {"reader", "other reader"}) {
        s.thread(name, [&m, &value] {
            m.lock_shared();
            explorer::require(value.get() % 2 == 0, "half a write is read");
            m.unlock_shared();
        });
    }
    s.thread("writer", [&m, &value] {
        m.lock();
        value.set(1);
        value.set(2);
        m.unlock();
    });
}};

const add latches{"parking_lot/latch", exhaustively(1, 1) + at_random(10'000), [](explorer::scenario& s) {
    auto& l = make_in_parking_lot<latch>(s, "latch", 2);
    auto& value = s.make<std::array<explorer::variable<int>, 2>>("value");
    for (unsigned i = 0; i < 2; ++i) {
        s.thread("counter " + std::to_string(i + 1), [&l, &value, i] {
            value[i].set(1);
            l.count_down();
        });
    }
    s.thread("waiter", [&l, &value] {
        l.wait();
        explorer::require(value[0].get() + value[1].get() == 2, "one has not counted down");
    });
}};

}  // namespace
