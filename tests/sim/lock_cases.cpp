// The locks of platform/.
#include "platform/lock.h"
#include "platform/destroyable_lock.h"
#include "sim/cases.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;

template <class Lock>
explorer::case_function takers(int threads, int times) {
    return [=](explorer::scenario& s) {
        auto& lock = s.make<Lock>("lock");
        auto& count = s.make<explorer::variable<int>>("count", 0, "what the lock guards");
        for (int i = 0; i < threads; ++i) {
            s.thread(std::string(1, static_cast<char>('a' + i)), [&lock, &count, times] {
                for (int k = 0; k < times; ++k) {
                    lock.lock();
                    count.set(count.get() + 1);
                    lock.unlock();
                }
            });
        }
        s.at_end([&count, threads, times] {
            explorer::require(count.get() == threads * times, "an increment is lost");
        });
    };
}

const add lock_two{"lock/two_threads", exhaustively(3, 2), takers<platform::futex_lock>(2, 1)};
const add lock_four{"lock/four_threads", at_random(5'000), takers<platform::futex_lock>(4, 3)};
const add destroyable_two{"lock/destroyable_two_threads", exhaustively(2, 2), takers<platform::destroyable_lock>(2, 1)};
const add destroyable_four{"lock/destroyable_four_threads", at_random(5'000), takers<platform::destroyable_lock>(4, 3)};

}  // namespace
