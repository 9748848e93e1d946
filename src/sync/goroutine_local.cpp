// goroutine_local.cpp - values by key, in the goroutine's extra part or in a list of the plain thread; and the calls
// that are made when these are gone.
//
// Data       A list of values, in the order of their creation, which belongs to its goroutine or thread alone. Calls at
//            exit are entries without a key that stand before all values, the latest first: the list is emptied from
//            its end, so they are made in order, when no values are left. Keys are never used again, so a value whose
//            goroutine_local is gone is not taken for another's.
// Goroutine  The list is emptied when the goroutine's function has ended, in whatever way
//            (sched/goroutines/goroutine.cpp). Destructors may park, and make other values.
// Thread     The values are destroyed among the thread's thread_local objects, by one such object. The calls, and
//            values that later destructors have made, are left to the destructor of a pthread key, which runs after all
//            of these. The list is on the heap, and the pointer to it has no destructor, because code of the thread may
//            need it until the very end. In a thread that calls exit() no destructors of keys run: there an atexit
//            handler does the same.
// Tests      tests/sync/goroutine_local_test.cpp, tests/std/future_test.cpp
#include <dunlin/detail/atomic.hpp>
#include <dunlin/goroutine_local.hpp>

#include <cstdlib>
#include <memory>
#include <new>
#include <pthread.h>
#include <vector>

#include <dunlin/detail/at_exit.hpp>

#include "sched/goroutines/goroutine.h"

namespace dunlin::inline v0_1::detail {

namespace {

constexpr std::uint64_t no_key = 0;  // of calls at exit

thread_local constinit sched::local_values* list_of_thread = nullptr;

struct values_end {
    bool armed = false;  // written so that the object is constructed
    ~values_end() {
        if (list_of_thread == nullptr) return;
        while (!list_of_thread->empty() && list_of_thread->back().key != no_key) {
            const sched::local_value last = list_of_thread->back();
            list_of_thread->pop_back();
            last.destroy(last.object);
        }
    }
};
thread_local values_end end_of_values;

// Another destructor of the thread's keys may make a new list: then there is a next round.
void end_of_thread(void* raw) {
    const std::unique_ptr<sched::local_values> list(static_cast<sched::local_values*>(raw));
    sched::destroy_local_values(*list);
    list_of_thread = nullptr;
}

void end_of_process() {
    if (list_of_thread != nullptr) sched::destroy_local_values(*list_of_thread);
}

struct thread_key {
    pthread_key_t key;
    thread_key() {
        if (pthread_key_create(&key, end_of_thread) != 0) throw std::bad_alloc();
        if (std::atexit(end_of_process) != 0) {
            pthread_key_delete(key);
            throw std::bad_alloc();
        }
    }
};

sched::local_values* make_list_of_thread() {
    static const thread_key key;  // stays until the process ends: threads may
    auto list = std::make_unique<sched::local_values>();
    if (pthread_setspecific(key.key, list.get()) != 0) throw std::bad_alloc();
    end_of_values.armed = true;
    return list_of_thread = list.release();
}

// The caller's list; null: it has none, and `make` is false. A goroutine may move to another thread, but not while it
// is in here.
sched::local_values* values_of_caller(bool make) {
    sched::goroutine* g = sched::current_goroutine();
    if (g == nullptr) return list_of_thread != nullptr || !make ? list_of_thread : make_list_of_thread();
    if (g->extra == nullptr) {
        if (!make) return nullptr;
        sched::make_extra_of_current();
    }
    return &g->extra->locals;
}

sched::local_values::iterator find_in(sched::local_values& list, std::uint64_t key) noexcept {
    auto at = list.begin();
    while (at != list.end() && at->key != key) ++at;
    return at;
}

}  // namespace

void call_at_exit(void* object, void (*act)(void*) noexcept) {
    sched::local_values& list = *values_of_caller(true);
    list.insert(list.begin(), {no_key, object, act});
}

void call_at_exit_or_now(void* object, void (*act)(void*) noexcept) noexcept {
    sched::local_values* list = values_of_caller(false);
    if (list != nullptr && !list->empty()) {
        try {
            call_at_exit(object, act);
            return;
        } catch (const std::bad_alloc&) {
            // Rather early than never.
        }
    }
    act(object);
}

void* find_local_value(unsigned long long key) noexcept {
    sched::local_values* list = values_of_caller(false);
    if (list == nullptr) return nullptr;
    const auto at = find_in(*list, key);
    return at != list->end() ? at->object : nullptr;
}

void add_local_value(unsigned long long key, void* object, void (*destroy)(void*) noexcept) {
    values_of_caller(true)->push_back({key, object, destroy});
}

void remove_local_value(unsigned long long key) noexcept {
    sched::local_values* list = values_of_caller(false);
    if (list == nullptr) return;
    const auto at = find_in(*list, key);
    if (at == list->end()) return;
    const sched::local_value gone = *at;
    list->erase(at);
    gone.destroy(gone.object);
}

unsigned long long next_local_key() noexcept {
    static platform::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace dunlin::detail
