// goroutine_local.cpp - values by key, in the goroutine's extra part or in a variable of the plain thread.
//
// Keys are never used again, so a value whose goroutine_local is gone is not taken for another's. The list belongs to its goroutine alone.
#include <dunlin/goroutine_local.hpp>

#include <atomic>
#include <memory>
#include <vector>

#include "sched/goroutine.h"

namespace dunlin::detail {

namespace {

struct thread_values {
    sched::local_values list;
    ~thread_values() { sched::destroy_local_values(list); }
};

// The caller's list; null: it has none, and `make` is false. A goroutine may move to another thread, but not while it is in here.
sched::local_values* values_of_caller(bool make) {
    sched::goroutine* g = sched::current_goroutine();
    if (g == nullptr) {
        thread_local thread_values values;
        return &values.list;
    }
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
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace dunlin::detail
