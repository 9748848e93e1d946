#include "explorer/memory_of.h"

#include <algorithm>
#include <cstring>

namespace dunlin::inline v0_1::explorer {

void join(view& to, const view& from) {
    if (to.size() < from.size()) to.resize(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = std::max(to[i], from[i]);
}

namespace {

std::uint32_t floor_of(const view& v, unsigned number) noexcept { return number < v.size() ? v[number] : 0; }

void raise(view& v, unsigned number, std::uint32_t to) {
    if (v.size() <= number) v.resize(number + 1);
    v[number] = std::max(v[number], to);
}

constexpr std::uint32_t oldest_looked_at = 4;  // values of one place, the newest included

}  // namespace

bool shared_memory::acquires(std::memory_order order) noexcept {
    return order == std::memory_order_acquire || order == std::memory_order_acq_rel ||
           order == std::memory_order_seq_cst || order == std::memory_order_consume;
}

bool shared_memory::releases(std::memory_order order) noexcept {
    return order == std::memory_order_release || order == std::memory_order_acq_rel ||
           order == std::memory_order_seq_cst;
}

std::uint64_t shared_memory::read(const void* address, unsigned size) noexcept {
    std::uint64_t value = 0;
    std::memcpy(&value, address, size);
    return value;
}

void shared_memory::write(void* address, unsigned size, std::uint64_t value) noexcept {
    std::memcpy(address, &value, size);
}

void shared_memory::begin(memory mode) noexcept {
    mode_ = mode;
    numbers_.clear();
    places_.clear();
    total_.clear();
}

place& shared_memory::at(const void* address, unsigned size) {
    const auto key = reinterpret_cast<std::uintptr_t>(address);
    const auto [found, is_new] = numbers_.try_emplace(key, static_cast<std::uint32_t>(places_.size()));
    if (is_new) {
        place& p = places_.emplace_back();
        p.address = key;
        p.number = found->second;
        if (mode_ == memory::cxx) p.history.push_back({read(address, size), {}, {}});
    }
    return places_[found->second];
}

// The number stays used: views may name it.
void shared_memory::forget(const void* address) noexcept { numbers_.erase(reinterpret_cast<std::uintptr_t>(address)); }

const buffered* shared_memory::own(const thread_memory& t, const void* address) const noexcept {
    for (std::size_t i = t.buffer.size(); i-- > 0;) {
        if (t.buffer[i].address == reinterpret_cast<std::uintptr_t>(address)) return &t.buffer[i];
    }
    return nullptr;
}

unsigned shared_memory::readable(const thread_memory& t, const place& p, std::memory_order order) const noexcept {
    if (mode_ != memory::cxx) return 1;
    std::uint32_t oldest = floor_of(t.sees, p.number);
    if (order == std::memory_order_seq_cst) oldest = std::max(oldest, floor_of(total_, p.number));
    const auto count = static_cast<std::uint32_t>(p.history.size()) - oldest;
    return std::min(count, oldest_looked_at);
}

std::uint64_t shared_memory::load(thread_memory& t, place& p, unsigned size, unsigned which, std::memory_order order) {
    const stored& found = mode_ == memory::cxx ? p.history[p.history.size() - 1 - which] : p.newest;
    const bool acquire = acquires(order);
    join(acquire ? t.now : t.readable, found.sync);
    if (mode_ != memory::cxx) return read(reinterpret_cast<const void*>(p.address), size);
    raise(t.sees, p.number, static_cast<std::uint32_t>(p.history.size()) - 1 - which);
    join(acquire ? t.sees : t.readable_view, found.seen);
    return found.value;
}

void shared_memory::store(thread_memory& t, place& p, unsigned size, std::uint64_t value, std::memory_order order,
                          bool modifies) {
    stored s{value, releases(order) ? t.now : t.released, {}};
    if (mode_ == memory::cxx) {
        const auto number = static_cast<std::uint32_t>(p.history.size());
        raise(t.sees, p.number, number);
        s.seen = releases(order) ? t.sees : t.released_view;
        raise(s.seen, p.number, number);
        if (modifies) {
            join(s.sync, p.history.back().sync);
            join(s.seen, p.history.back().seen);
        }
        if (order == std::memory_order_seq_cst) raise(total_, p.number, number);
        p.history.push_back(std::move(s));
    } else {
        if (modifies) join(s.sync, p.newest.sync);
        p.newest = std::move(s);
    }
    ++t.now[t.thread];
    write(reinterpret_cast<void*>(p.address), size, value);
}

void shared_memory::put(thread_memory& t, void* address, unsigned size, std::uint64_t value, std::memory_order order) {
    t.buffer.push_back(
        {reinterpret_cast<std::uintptr_t>(address), size, value, releases(order) ? t.now : t.released, false, false});
    ++t.now[t.thread];
}

std::uint32_t shared_memory::place_of_front(const thread_memory& t) {
    const buffered& b = t.buffer.front();
    return first_place + at(reinterpret_cast<const void*>(b.address), b.size).number;
}

const buffered shared_memory::flush(thread_memory& t) {
    const buffered b = t.buffer.front();
    t.buffer.erase(t.buffer.begin());
    at(reinterpret_cast<void*>(b.address), b.size).newest.sync = b.sync;
    write(reinterpret_cast<void*>(b.address), b.size, b.value);
    return b;
}

void shared_memory::fence(thread_memory& t, std::memory_order order) {
    if (acquires(order)) {
        join(t.now, t.readable);
        join(t.sees, t.readable_view);
    }
    if (order == std::memory_order_seq_cst) {
        join(t.sees, total_);
        total_ = t.sees;
    }
    if (releases(order)) {
        t.released = t.now;
        t.released_view = t.sees;
        ++t.now[t.thread];
    }
    issue(t);
}

void shared_memory::issue(thread_memory& t) {
    for (buffered& b : t.buffer) b.issued = true;
    t.looked_past_store = false;
    if (mode_ != memory::cxx) return;
    join(t.sees, t.from_barrier);
    t.issued_view = t.sees;
}

void shared_memory::fence_all(std::vector<thread_memory*> threads, thread_memory& by) {
    fence(by, std::memory_order_seq_cst);
    for (thread_memory* t : threads) join(by.sees, t->issued_view);
    join(total_, by.sees);
    for (thread_memory* t : threads) join(t->from_barrier, by.sees);
    issue(by);
}

bool shared_memory::catch_up(thread_memory& t, std::uintptr_t address) {
    const auto found = numbers_.find(address);
    if (mode_ != memory::cxx || found == numbers_.end()) return false;
    const place& p = places_[found->second];
    const auto newest = static_cast<std::uint32_t>(p.history.size()) - 1;
    if (floor_of(t.sees, p.number) >= newest) return false;
    raise(t.sees, p.number, newest);
    return true;
}

}  // namespace dunlin::explorer
