// sync_bench.cpp - locks. Twin: peers/go/sync.go.

#include <dunlin/dunlin.hpp>
#include <dunlin/mutex.hpp>

#include "measure.h"
#include "registry.h"

namespace bench {
namespace {

/// `goroutines` of them lock, count and unlock, `total` times together.
void count_under_lock(results& r, long goroutines, long total) {
    const long each = total / goroutines;
    dunlin::run([&] {
        const double ns = ns_per_operation(goroutines * each, [&] {
            dunlin::mutex lock;
            long counter = 0;
            dunlin::wait_group wg;
            for (long i = 0; i < goroutines; ++i) {
                wg.go([&lock, &counter, each] {
                    for (long n = 0; n < each; ++n) {
                        lock.lock();
                        ++counter;
                        lock.unlock();
                    }
                });
            }
            wg.wait();
            if (counter != goroutines * each) fail("mutex: the counter is wrong, so the lock does not exclude");
        });
        r.add("time", ns, "ns");
    });
}

void mutex_uncontended(const settings& s, results& r) { count_under_lock(r, 1, s.scaled(1'000'000)); }
void mutex_8(const settings& s, results& r) { count_under_lock(r, 8, s.scaled(1'000'000)); }

const registered all[] = {
    registered({"mutex", "one goroutine locks and unlocks a mutex", mutex_uncontended}),
    registered({"mutex-8", "eight goroutines lock and unlock one mutex", mutex_8}),
};

}  // namespace
}  // namespace bench
