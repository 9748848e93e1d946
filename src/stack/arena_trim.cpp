// arena_trim.cpp - how the memory of idle stacks goes back to the kernel.
//
// The kernel is called without the arena's lock, on slots that were taken off its lists (place::trimming); see the
// protocol in arena.h. Slots are given back sorted by address, neighbours in one call. A guard marker keeps its page
// table alive, so single slots keep 512 bytes each. When the last used slot of a group goes, the guards of the whole
// group go as well, its slots become bare, and one call over the 2 MiB frees the page table (Linux 6.14; older kernels
// keep it, and nothing else differs).
//
// A group is looked at each time one of its slots goes. The slot that goes last finds the others cold or trimming; the
// order does not matter.
#include <algorithm>
#include <mutex>
#include <utility>

#include "stack/arena.h"

namespace dunlin::inline v0_1::stack {

namespace {

constexpr unsigned group_shift = 21;  // platform::huge_page_size

constexpr std::size_t slots_per_group(unsigned size_class) noexcept {
    return slot_shift(size_class) >= group_shift ? 1 : std::size_t{1} << (group_shift - slot_shift(size_class));
}

// The records of a region start at a page and a group's records fill at most half a page, so a group's first record is
// found by masking.
slot* first_of_group(slot* member) noexcept {
    const std::size_t bytes = slots_per_group(member->size_class) * sizeof(slot);
    return reinterpret_cast<slot*>(reinterpret_cast<std::uintptr_t>(member) & ~(bytes - 1));
}
static_assert(slots_per_group(0) * sizeof(slot) <= 4096);

}  // namespace

struct arena::victims {
    // Every warm slot taken may complete a group.
    static constexpr std::size_t capacity = 512;

    bool has_room(unsigned size_class) const noexcept { return count + slots_per_group(size_class) <= capacity; }
    void add(slot* s) noexcept {
        s->where = slot::place::trimming;
        slots[count++] = s;
    }

    std::span<slot*> all() noexcept { return {slots.data(), count}; }
    void give_back() noexcept;

    std::array<slot*, capacity> slots;
    std::size_t count = 0;
    std::size_t warm = 0;  // how many of them had memory
};

// Without the lock. Sorts the slots by address, and makes one range of each run of neighbours; slots that keep their
// guards and slots that lose them do not mix.
void arena::victims::give_back() noexcept {
    const std::span<slot*> sorted = all();
    std::sort(sorted.begin(), sorted.end(), [](const slot* a, const slot* b) { return a->top < b->top; });
    const bool has_markers = platform::probe_guards() == platform::guard_kind::by_madvise;
    std::array<platform::memory_range, capacity> ranges;
    std::size_t used = 0;
    for (std::size_t i = 0; i < sorted.size();) {
        platform::memory_range& range = ranges[used++];
        range = {sorted[i]->base(), 0};
        const bool bare = sorted[i]->guard == protection::bare;
        const auto belongs = [&](const slot* s) {
            return s->base() == range.end() && (s->guard == protection::bare) == bare;
        };
        for (; i < sorted.size() && belongs(sorted[i]); ++i) {
            range.bytes += slot_bytes(sorted[i]->size_class);
        }
        if (bare && has_markers) {
            platform::remove_guards(range);
        }
    }
    platform::give_back({ranges.data(), used});
}

std::size_t arena::trim(std::size_t max_slots) noexcept {
    if (!trim_lock_.try_lock()) {
        return 0;
    }
    std::size_t done = 0;
    for (unsigned size_class = 0; size_class < class_count; ++size_class) {
        done += trim_class(size_class, max_slots - done);
    }
    trim_lock_.unlock();
    return done;
}

void arena::note_idle() noexcept {
    const std::scoped_lock guard(lock_);
    for (class_state& c : classes_) {
        c.idle = std::exchange(c.warm_low_water, c.warm.count());
    }
}

std::size_t arena::trim_idle(std::size_t max_slots) noexcept {
    if (!trim_lock_.try_lock()) {
        return 0;
    }
    std::size_t done = 0;
    for (unsigned size_class = 0; size_class < class_count; ++size_class) {
        done += trim_class(size_class, take_idle(size_class, max_slots - done));
    }
    trim_lock_.unlock();
    return done;
}

// How many of the slots that were idle at the last note_idle() still are, at most `want`; they count as given back.
std::size_t arena::take_idle(unsigned size_class, std::size_t want) noexcept {
    const std::scoped_lock guard(lock_);
    class_state& c = classes_[size_class];
    c.idle = std::min(c.idle, c.warm_low_water);
    const std::size_t taken = std::min(want, c.idle);
    c.idle -= taken;
    return taken;
}

bool arena::anything_warm() noexcept {
    const std::scoped_lock guard(lock_);
    return std::ranges::any_of(classes_, [](const class_state& c) { return !c.warm.empty(); });
}

std::size_t arena::trim_class(unsigned size_class, std::size_t max_slots) noexcept {
    class_state& c = classes_[size_class];
    std::size_t done = 0;
    while (done < max_slots) {
        victims chosen;
        {
            const std::scoped_lock guard(lock_);
            choose_victims(c, chosen, max_slots - done);
        }
        if (chosen.count == 0) {
            break;
        }
        chosen.give_back();
        slot_list back;
        for (slot* s : chosen.all()) {
            back.push_back(s);
        }
        const std::scoped_lock guard(lock_);
        for (slot* s : chosen.all()) {
            s->where = slot::place::cold;
        }
        c.cold.splice_front(back);
        c.slots_trimming -= chosen.count;
        slots_given_back_ += chosen.warm;
        done += chosen.warm;
    }
    return done;
}

// Under the lock. Takes a batch of the coldest slots, with the cold rest of every group that this empties.
void arena::choose_victims(class_state& c, victims& chosen, std::size_t max_slots) noexcept {
    lock_.assert_held();
    while (!c.warm.empty() && chosen.warm < std::min(max_slots, batch) && chosen.has_room(c.warm.tail()->size_class)) {
        slot* const coldest = c.warm.tail();
        c.warm.remove(coldest);
        if (coldest->guard == protection::by_canary) {
            coldest->guard = protection::bare;  // the canary goes with the memory
        }
        chosen.add(coldest);
        ++chosen.warm;
        add_whole_group(c, chosen, coldest);
    }
    c.warm_low_water = std::min(c.warm_low_water, c.warm.count());
    c.slots_trimming += chosen.count;
}

// Under the lock. If no slot of the group is in use and none is warm: all of it becomes bare and goes. Guards by
// mprotect stay, and with them the group: taking them away and setting them again would cost more than it saves.
void arena::add_whole_group(class_state& c, victims& chosen, slot* member) noexcept {
    const std::span<slot> group(first_of_group(member), slots_per_group(member->size_class));
    for (const slot& s : group) {
        const bool has_memory = s.where != slot::place::cold && s.where != slot::place::trimming;
        if (has_memory || s.guard == protection::by_mprotect) {
            return;
        }
    }
    for (slot& s : group) {
        s.guard = protection::bare;
        if (s.where == slot::place::cold) {
            c.cold.remove(&s);
            chosen.add(&s);
        }
    }
}

}  // namespace dunlin::stack
