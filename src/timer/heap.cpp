#include "timer/heap.h"

#include <algorithm>

namespace dunlin::inline v0_1::timers {

namespace {

constexpr std::size_t arity = 4;

class heap_guard {
public:
    explicit heap_guard(park::biased_lock& lock, unsigned place = park::biased_lock::timers_place) noexcept
        : lock_(lock), machine_(sched::current_machine()), place_(place) {
        lock_.lock(machine_, place_);
    }
    ~heap_guard() { lock_.unlock(machine_, place_); }
    heap_guard(const heap_guard&) = delete;
    heap_guard& operator=(const heap_guard&) = delete;

private:
    park::biased_lock& lock_;
    sched::machine* machine_;
    unsigned place_;
};

// Keeps a store to *p although the lifetime of *p ends: the compiler would drop the store as dead.
void keep_stored(const void* p) noexcept { asm volatile("" : : "r"(p) : "memory"); }

}  // namespace

void timer_heap::place(std::size_t at, entry e) noexcept {
    entries_[at] = e;
    e.timer->index = static_cast<std::uint32_t>(at);
}

void timer_heap::sift_up(std::size_t at, entry e) noexcept {
    while (at > 0) {
        const std::size_t parent = (at - 1) / arity;
        if (entries_[parent].when <= e.when) break;
        place(at, entries_[parent]);
        at = parent;
    }
    place(at, e);
}

void timer_heap::sift_down(std::size_t at, entry e) noexcept {
    const std::size_t n = entries_.size();
    for (;;) {
        const std::size_t first = at * arity + 1;
        if (first >= n) break;
        std::size_t least = first;
        const std::size_t last = first + arity < n ? first + arity : n;
        for (std::size_t i = first + 1; i < last; ++i) {
            if (entries_[i].when < entries_[least].when) least = i;
        }
        if (entries_[least].when >= e.when) break;
        place(at, entries_[least]);
        at = least;
    }
    place(at, e);
}

void timer_heap::take_out(std::size_t at) noexcept {
    entries_[at].timer->armed.store(false, std::memory_order_relaxed);
    const entry last = entries_.back();
    entries_.back().timer = nullptr;  // as shrink() does
    keep_stored(&entries_.back());
    entries_.pop_back();
    if (at < entries_.size()) {
        if (at > 0 && entries_[(at - 1) / arity].when > last.when) {
            sift_up(at, last);
        } else {
            sift_down(at, last);
        }
    }
    publish_earliest();
}

// Leftover entries would still refer to waiters, and the search for lost goroutines (observe/reach.h) would find them:
// in the array, and in the memory of a smaller array that malloc keeps.
void timer_heap::shrink(std::size_t size) noexcept {
    std::fill(entries_.begin() + static_cast<std::ptrdiff_t>(size), entries_.end(), entry{});
    keep_stored(entries_.data());
    entries_.resize(size);
}

void timer_heap::make_room_for(std::size_t size) {
    std::vector<entry> larger;
    larger.reserve(std::max(size, 2 * entries_.capacity()));
    larger.assign(entries_.begin(), entries_.end());
    std::fill(entries_.begin(), entries_.end(), entry{});
    keep_stored(entries_.data());
    entries_.swap(larger);
}

void timer_heap::publish_earliest() noexcept {
    const std::int64_t when = entries_.empty() ? 0 : entries_.front().when;
    if (earliest_.load(std::memory_order_relaxed) != when) earliest_.store(when, std::memory_order_seq_cst);
}

bool timer_heap::insert(timer_entry* t) {
    heap_guard guard(lock_);
    if (DUNLIN_UNLIKELY(entries_.size() == entries_.capacity())) make_room_for(entries_.size() + 1);
    if (t->when_ns < first_moment) t->when_ns = first_moment;
    entries_.push_back({t->when_ns, t});
    t->heap.store(this, std::memory_order_release);
    t->armed.store(true, std::memory_order_relaxed);
    sift_up(entries_.size() - 1, entries_.back());
    publish_earliest();
    return t->index == 0;
}

// An entry changes its heap under the locks of both heaps, so its `heap` is right under this heap's lock.
timer_heap::removal timer_heap::remove(timer_entry* t) noexcept {
    heap_guard guard(lock_);
    if (t->heap.load(std::memory_order_relaxed) != this) return removal::elsewhere;
    if (!t->armed.load(std::memory_order_relaxed)) return removal::not_armed;
    take_out(t->index);
    return removal::removed;
}

bool cancel(timer_entry* t) noexcept {
    for (;;) {
        timer_heap* heap = t->heap.load(std::memory_order_acquire);
        if (heap == nullptr) return false;  // never in one
        const timer_heap::removal r = heap->remove(t);
        if (r != timer_heap::removal::elsewhere) return r == timer_heap::removal::removed;
    }
}

void timer_heap::move_all_to(timer_heap& other) noexcept {
    heap_guard guard(lock_);
    heap_guard other_guard(other.lock_, park::biased_lock::no_place);  // the place of timers is taken
    try {
        const std::size_t both = other.entries_.size() + entries_.size();
        if (both > other.entries_.capacity()) other.make_room_for(both);
    } catch (...) {
        return;
    }
    for (const entry& e : entries_) {
        other.entries_.push_back(e);
        e.timer->heap.store(&other, std::memory_order_release);
        other.sift_up(other.entries_.size() - 1, e);
    }
    shrink(0);
    publish_earliest();
    other.publish_earliest();
}

timer_entry* timer_heap::take_due(std::int64_t now_ns) noexcept {
    heap_guard guard(lock_);
    while (!entries_.empty() && entries_.front().when <= now_ns) {
        timer_entry* t = entries_.front().timer;
        take_out(0);
        if (t->claim == nullptr || t->claim(t)) return t;
    }
    return nullptr;
}

std::size_t timer_heap::size() const noexcept {
    heap_guard guard(lock_);
    return entries_.size();
}

void timer_heap::forget() noexcept { forget(false); }
void timer_heap::forget_everything() noexcept { forget(true); }

void timer_heap::forget(bool everything) noexcept {
    heap_guard guard(lock_);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        const entry e = entries_[i];
        if (everything || e.timer->ends_with_run) {
            e.timer->armed.store(false, std::memory_order_relaxed);
            e.timer->forgotten.store(true, std::memory_order_relaxed);
        } else {
            sift_up(kept++, e);  // [0, kept) is a heap, and the place is free
        }
    }
    shrink(kept);
    publish_earliest();
}

bool timer_heap::valid() const {
    heap_guard guard(lock_);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        if (entries_[i].timer->index != i || entries_[i].timer->when_ns != entries_[i].when) return false;
        if (i > 0 && entries_[(i - 1) / arity].when > entries_[i].when) return false;
    }
    return earliest() == (entries_.empty() ? 0 : entries_.front().when);
}

}  // namespace dunlin::timers
