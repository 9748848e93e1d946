// arena.cpp - the life of a slot: cut from a region, guarded, handed out, taken back. Its memory is given back in
// arena_trim.cpp.
#include "stack/arena.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <mutex>
#include <new>

#include "platform/check.h"
#include "platform/valgrind.h"

namespace dunlin::inline v0_1::stack {

constinit arena stacks;

namespace {

constexpr std::size_t first_region_bytes = std::size_t{64} << 20;
constexpr std::size_t largest_region_bytes = std::size_t{64} << 30;

// Large slots are cut a few at a time: each guard in a 2 MiB range of its own costs a page of page table.
constexpr std::size_t cut_bytes = std::size_t{16} << 20;

// Memory is given back by pages, so two slots must not share one. This matters only where pages have 64 KiB.
bool class_exists(unsigned size_class) noexcept {
    return size_class < class_count && slot_bytes(size_class) >= platform::page_size();
}

std::byte* first_top(std::byte* base, unsigned size_class, std::size_t index) noexcept {
    const std::size_t colour = index * 7 % colours;  // 7 is odd: sixteen neighbours have sixteen colours
    const std::size_t page = index * 11 % page_colours(size_class);
    return base + slot_bytes(size_class) - colour_step * (1 + colour) - page_colour_step * page;
}

}  // namespace

unsigned class_for(std::size_t usable) noexcept {
    for (unsigned size_class = 0; size_class < class_count; ++size_class) {
        if (class_exists(size_class) && usable_bytes(size_class) >= usable) {
            return size_class;
        }
    }
    return no_class;
}

unsigned class_like_a_thread(const platform::stack_space& space) noexcept {
    // this many should fit into a quarter of the address space
    constexpr std::size_t least_stacks = std::size_t{1} << 18;
    constexpr std::size_t largest_default = std::size_t{64} << 20;
    const std::size_t wanted = std::min({space.of_a_thread, space.addresses / 4 / least_stacks, largest_default});
    unsigned size_class = dense_class;
    while (size_class + 1 < class_count && slot_bytes(size_class + 1) <= wanted) {
        ++size_class;
    }
    return size_class;
}

// ---- handing out

std::size_t arena::allocate(unsigned size_class, slot** head, std::size_t want, int* error) noexcept {
    slot_list result;
    int reason = class_exists(size_class) ? 0 : EINVAL;
    while (reason == 0 && result.count() < want) {
        const std::size_t missing = want - result.count();
        slot_list got = take_free(size_class, missing);
        if (got.empty()) {
            got = cut(size_class, &reason);
        }
        prepare(got);
        slot_list surplus = got.split_after(missing);
        put_back(surplus, size_class);
        result.splice_back(got);
    }
    if (error != nullptr && reason != 0) {
        *error = reason;
    }
    *head = result.head();
    return result.count();
}

// Warm slots if there are any, else cold ones; at most a batch, so that the lock is not held for long.
slot_list arena::take_free(unsigned size_class, std::size_t want) noexcept {
    slot_list taken;
    const std::scoped_lock guard(lock_);
    class_state& c = classes_[size_class];
    slot_list& from = c.warm.empty() ? c.cold : c.warm;
    for (std::size_t left = std::min({want, batch, from.count()}); left != 0; --left) {
        slot* const s = from.pop_front();
        s->where = slot::place::in_use;
        taken.push_back(s);
    }
    c.warm_low_water = std::min(c.warm_low_water, c.warm.count());
    return taken;
}

// New slots, bare, in address order. Two threads that find the lists empty at once cut twice; what they do not need
// goes to cold.
slot_list arena::cut(unsigned size_class, int* error) noexcept {
    slot_list fresh;
    const std::scoped_lock guard(lock_);
    class_state& c = classes_[size_class];
    if (c.youngest == nullptr || c.youngest->slots_cut.load(std::memory_order_relaxed) == c.youngest->slots()) {
        region* const grown = grow(size_class, error);
        if (grown == nullptr) {
            return fresh;
        }
        c.youngest = grown;
    }
    region& r = *c.youngest;
    const std::size_t first = r.slots_cut.load(std::memory_order_relaxed);  // only written under the lock
    const std::size_t usual = std::clamp(cut_bytes >> slot_shift(size_class), std::size_t{1}, batch);
    const std::size_t count = std::min(usual, r.slots() - first);
    for (std::size_t index = first; index < first + count; ++index) {
        std::byte* const base = r.begin + (index << slot_shift(size_class));
        platform::tell_valgrind_of_stack(base + guard_bytes, base + slot_bytes(size_class),
            canary_words * sizeof(canary_value));
        fresh.push_back(new (r.records + index) slot{.next = nullptr,
                                                     .prev = nullptr,
                                                     .top = first_top(base, size_class, index),
                                                     .size_class = static_cast<std::uint8_t>(size_class),
                                                     .where = slot::place::in_use,
                                                     .guard = protection::bare,
                                                     .unused = {}});
    }
    // Publishes the records. Pairs with the acquire in lookup(), which would otherwise return one that is not written
    // yet.
    r.slots_cut.store(first + count, std::memory_order_release);
    c.slots_cut += count;
    return fresh;
}

// A region as large as all of the class so far, or the largest that the kernel grants. The only system calls under the
// lock, so that threads which run out at the same moment do not each reserve one.
arena::region* arena::grow(unsigned size_class, int* error) noexcept {
    lock_.assert_held();
    const std::size_t regions = region_count_.load(std::memory_order_relaxed);  // only written under the lock
    *error = ENOMEM;
    if (regions == max_regions) {
        return nullptr;
    }
    class_state& c = classes_[size_class];
    const std::size_t least = std::max(slot_bytes(size_class), platform::huge_page_size);
    const std::size_t doubled = std::clamp(std::bit_floor(c.reserved_bytes), first_region_bytes, largest_region_bytes);
    for (std::size_t bytes = std::max(doubled, least); bytes >= least; bytes /= 2) {
        const std::size_t offset = slot_offset(size_class);
        const platform::memory_range whole{platform::reserve(bytes + offset, least, error), bytes + offset};
        if (whole.begin == nullptr) {
            continue;
        }
        const platform::memory_range slots{whole.begin + offset, bytes};
        const std::size_t record_bytes = (bytes >> slot_shift(size_class)) * sizeof(slot);
        std::byte* const records = platform::reserve(record_bytes, platform::page_size(), error);
        if (records == nullptr) {
            platform::release(whole);
            continue;
        }
        platform::no_huge_pages(slots);  // a stack that uses one page must not get 512
        platform::name_range(slots, "dunlin stacks");
        platform::tell_valgrind_of_no_memory(slots.begin, bytes);
        region& r = regions_[regions];
        r.begin = slots.begin;
        r.bytes = bytes;
        r.records = reinterpret_cast<slot*>(records);
        r.size_class = size_class;
        // Publishes the region. Pairs with the acquire in lookup().
        region_count_.store(regions + 1, std::memory_order_release);
        c.reserved_bytes += bytes;
        *error = 0;
        return &r;
    }
    return nullptr;
}

void arena::put_back(slot_list& surplus, unsigned size_class) noexcept {
    if (surplus.empty()) {
        return;
    }
    const std::scoped_lock guard(lock_);
    for (slot* s = surplus.head(); s != nullptr; s = s->next) {
        s->where = slot::place::cold;
    }
    classes_[size_class].cold.splice_back(surplus);
}

// ---- guarding

void arena::use_guards(platform::guard_kind kind) noexcept { kind_.store(kind, std::memory_order_relaxed); }

platform::guard_kind arena::kind_in_force() noexcept {
    // Relaxed: the value depends on nothing else; two threads that both probe store the same.
    platform::guard_kind kind = kind_.load(std::memory_order_relaxed);
    if (kind == platform::guard_kind::automatic) {
        kind = platform::page_size() > guard_bytes ? platform::guard_kind::by_canary : platform::probe_guards();
        kind_.store(kind, std::memory_order_relaxed);
    }
    return kind;
}

// Protects the bare slots of the list, a batch at most. The caller holds the slots; the lock is free.
void arena::prepare(const slot_list& slots) noexcept {
    std::array<slot*, batch> bare;
    std::size_t count = 0;
    for (slot* s = slots.head(); s != nullptr; s = s->next) {
        if (s->guard == protection::bare) {
            bare[count++] = s;
        }
    }
    std::span<slot* const> rest(bare.data(), count);
    if (rest.empty()) {
        return;
    }
    // From the kind in force downwards; each takes what the better one left.
    const platform::guard_kind best = kind_in_force();
    for (platform::guard_kind kind : {platform::guard_kind::by_madvise, platform::guard_kind::by_mprotect}) {
        if (kind >= best) {
            rest = rest.subspan(guard_by(kind, rest));
        }
    }
    for (slot* s : rest) {
        if (best == platform::guard_kind::none) {
            s->guard = protection::none;
        } else {
            std::fill_n(canary_of(*s), canary_words, canary_value);
            s->guard = protection::by_canary;
            canaries_.fetch_add(1, std::memory_order_relaxed);
        }
    }
}

// Guards slots from the first on and returns how many; fewer if the kernel refuses or no more mappings are available.
std::size_t arena::guard_by(platform::guard_kind kind, std::span<slot* const> slots) noexcept {
    const bool splits = kind == platform::guard_kind::by_mprotect;
    const std::size_t allowed = splits ? take_mprotect_budget(slots.size()) : slots.size();
    std::array<platform::memory_range, batch> ranges;
    for (std::size_t i = 0; i < allowed; ++i) {
        ranges[i] = {slots[i]->base(), guard_bytes};
    }
    const std::size_t done = platform::install_guards(kind, {ranges.data(), allowed});
    for (std::size_t i = 0; i < done; ++i) {
        slots[i]->guard = splits ? protection::by_mprotect : protection::by_madvise;
    }
    if (splits) {
        guards_by_mprotect_.fetch_sub(allowed - done, std::memory_order_relaxed);
    }
    return done;
}

// A guard of this kind splits a mapping in three, which makes two more, and they are never given back.
std::size_t arena::take_mprotect_budget(std::size_t want) noexcept {
    static const std::size_t all = platform::max_map_count(), limit = (all - std::min(all / 2, mappings_left)) / 2;
    // Relaxed: a number that guards no data.
    std::size_t used = guards_by_mprotect_.load(std::memory_order_relaxed);
    std::size_t got;
    do {
        got = std::min(want, limit - std::min(used, limit));
    } while (!guards_by_mprotect_.compare_exchange_weak(used, used + got, std::memory_order_relaxed));
    return got;
}

// ---- taking back, finding, counting

void arena::recycle(slot* head, slot* tail, std::size_t count, unsigned size_class) noexcept {
    if (count == 0) {
        return;
    }
    slot_list back(head, tail, count);
    const std::scoped_lock guard(lock_);
    for (slot* s = head; s != nullptr; s = s->next) {
        DUNLIN_CHECK(s->where == slot::place::in_use, "a stack was given back twice");
        s->where = slot::place::warm;
    }
    classes_[size_class].warm.splice_front(back);
}

arena::found arena::lookup(const void* address) const noexcept {
    const auto* const byte = static_cast<const std::byte*>(address);
    // Acquire pairs with the release in grow(): the fields of the regions counted are constant and visible.
    const std::size_t regions = region_count_.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < regions; ++i) {
        const region& r = regions_[i];
        const std::size_t offset = reinterpret_cast<std::uintptr_t>(byte) - reinterpret_cast<std::uintptr_t>(r.begin);
        if (offset >= r.bytes) {
            continue;
        }
        const std::size_t index = offset >> slot_shift(r.size_class);
        // Acquire pairs with the release in cut(): the record's constant fields are visible.
        if (index >= r.slots_cut.load(std::memory_order_acquire)) {
            break;
        }
        slot* const owner = r.records + index;
        return {owner, byte < owner->low()};
    }
    return {};
}

arena_stats arena::stats() noexcept {
    arena_stats total;
    total.kind = kind_.load(std::memory_order_relaxed);
    total.guards_by_mprotect = guards_by_mprotect_.load(std::memory_order_relaxed);
    total.canaries = canaries_.load(std::memory_order_relaxed);
    const std::scoped_lock guard(lock_);
    for (const class_state& c : classes_) {
        total.reserved_bytes += c.reserved_bytes;
        total.slots_warm += c.warm.count();
        total.slots_cold += c.cold.count();
        total.slots_in_use += c.slots_cut - c.warm.count() - c.cold.count() - c.slots_trimming;
    }
    total.slots_given_back = slots_given_back_;
    return total;
}

}  // namespace dunlin::stack
