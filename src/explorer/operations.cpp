// operations.cpp - what a virtual thread does: accesses, fences, barriers, sleeping and waking.
#include <algorithm>

#include "explorer/world.h"

namespace dunlin::inline v0_1::explorer {

namespace {

std::uint64_t changed(platform::change what, std::uint64_t value, std::uint64_t operand, unsigned size) noexcept {
    std::uint64_t result = operand;
    switch (what) {
    case platform::change::exchange: break;
    case platform::change::add: result = value + operand; break;
    case platform::change::subtract: result = value - operand; break;
    case platform::change::bit_and: result = value & operand; break;
    case platform::change::bit_or: result = value | operand; break;
    case platform::change::bit_xor: result = value ^ operand; break;
    }
    return size == 8 ? result : result & ((std::uint64_t{1} << (8 * size)) - 1);
}

bool is_fence_for_compilers(std::memory_order order) noexcept {
    return order == std::memory_order_seq_cst || order == std::memory_order_acq_rel;
}

// For whole programs.
constexpr std::int64_t pause_costs_ns = 500, shortest_pause_ns = 1'000, longest_pause_ns = 1'000'000,
                       longest_punctual_pause_ns = 5'000;

std::uintptr_t number_of(const void* at) noexcept { return reinterpret_cast<std::uintptr_t>(at); }

}  // namespace

void world::reborn(const void* at) noexcept {
    const call here(*this);
    if (!inside_ || current_ >= threads_.size()) return;
    for (unsigned i = 0; i < threads_.size(); ++i) {
        auto& buffer = threads_[i]->memory.buffer;
        const auto removed = std::erase_if(buffer, [at](const buffered& b) { return b.address == number_of(at); });
        if (removed != 0 && i != current_) failed("a store is on its way to a variable whose life ends");
        buffer_changed(i);
    }
    memory_.forget(at);
    plain_.erase(number_of(at));
}

// ---- loads and stores ----------------------------------------------------------------------------------------------

std::uint64_t world::load(const void* at, unsigned size, std::memory_order order, const std::source_location& where) {
    const call here(*this);
    me().looked_at.push_back(number_of(at));
    if (const buffered* b = memory_.own(me().memory, at)) return b->value;
    me().memory.looked_past_store = memory_.has_unissued(me().memory);
    step_at(at, size, {action::load, false, false, false, no_place, where});
    place& p = memory_.at(at, size);
    unsigned which = 0;
    if (const unsigned count = memory_.readable(me().memory, p, order); count > 1) {
        if (!outcome_.gave_up) which = strategy_->pick_value(count);
        outcome_.choices.push_back({step_kind::value, static_cast<std::uint8_t>(which)});
        mix(which);
    }
    const std::uint64_t value = memory_.load(me().memory, p, size, which, order);
    if (story_ != nullptr) {
        tell(where,
            "finds " + name_of(number_of(at)) + " == " + text_of(value) + (which != 0 ? " (an older value)" : ""));
    }
    return value;
}

void world::store(
    void* at, unsigned size, std::uint64_t value, std::memory_order order, const std::source_location& where) {
    const call here(*this);
    if (memory_.mode() == memory::tso && order != std::memory_order_seq_cst) {
        if (me().signal != 0) take_signal();
        // No step, unless the buffer is full.
        if (me().memory.buffer.size() >= settings_.buffer) step({action::store, false, false, false, no_place, where});
        memory_.put(me().memory, at, size, value, order);
        if (story_ != nullptr) tell(where, name_of(number_of(at)) + " = " + text_of(value) + " (into its buffer)");
        return;
    }
    step_at(at, size, {action::store, memory_.mode() == memory::tso, false, true, no_place, where});
    memory_.store(me().memory, memory_.at(at, size), size, value, order, false);
    note_write();
    if (order == std::memory_order_seq_cst) memory_.issue(me().memory);
    if (story_ != nullptr) tell(where, name_of(number_of(at)) + " = " + text_of(value));
}

std::uint64_t world::modify(void* at, unsigned size, platform::change what, std::uint64_t operand,
    std::memory_order order, const std::source_location& where) {
    const call here(*this);
    step_at(at, size, {action::modify, true, false, true, no_place, where});
    place& p = memory_.at(at, size);
    const std::uint64_t before = memory_.load(me().memory, p, size, 0, order);
    const std::uint64_t after = changed(what, before, operand, size);
    memory_.store(me().memory, p, size, after, order, true);
    note_write();
    if (is_fence_for_compilers(order)) memory_.issue(me().memory);
    if (story_ != nullptr) tell(where, name_of(number_of(at)) + ": " + text_of(before) + " -> " + text_of(after));
    return before;
}

bool world::compare_exchange(void* at, unsigned size, std::uint64_t& expected, std::uint64_t wanted,
    std::memory_order success, std::memory_order failure, const std::source_location& where) {
    const call here(*this);
    me().looked_at.push_back(number_of(at));
    step_at(at, size, {action::modify, true, false, true, no_place, where});
    place& p = memory_.at(at, size);
    const std::uint64_t newest = shared_memory::read(at, size);
    if (newest == expected) {
        memory_.load(me().memory, p, size, 0, success);
        memory_.store(me().memory, p, size, wanted, success, true);
        note_write();
        if (is_fence_for_compilers(success)) memory_.issue(me().memory);
        if (story_ != nullptr) tell(where, name_of(number_of(at)) + ": " + text_of(newest) + " -> " + text_of(wanted));
        return true;
    }
    if (story_ != nullptr) {
        tell(where, name_of(number_of(at)) + " is " + text_of(newest) + ", not " + text_of(expected) + ": unchanged");
    }
    expected = memory_.load(me().memory, p, size, 0, failure);
    return false;
}

// ---- fences --------------------------------------------------------------------------------------------------------

void world::fence(std::memory_order order, const std::source_location& where) noexcept {
    const call here(*this);
    if (order == std::memory_order_seq_cst && memory_.mode() == memory::tso && !me().memory.buffer.empty()) {
        step({action::fence, true, false, false, no_place, where});
    } else if (order == std::memory_order_seq_cst && memory_.mode() == memory::cxx) {
        step({action::fence, false, true, true, no_place, where});
    }
    memory_.fence(me().memory, order);
    if (story_ != nullptr) tell(where, "fence");
}

void world::light_barrier(const std::source_location& where) noexcept { issue_point(where); }

void world::buffer_changed(unsigned thread) noexcept {
    const auto& buffer = threads_[thread]->memory.buffer;
    if (std::any_of(buffer.begin(), buffer.end(), [](const buffered& b) { return b.issued; })) return;
    for (auto& t : threads_) t->waits_for &= ~(1u << thread);
}

void world::heavy_barrier(const std::source_location& where) noexcept {
    const call here(*this);
    step({action::barrier, true, true, true, no_place, where});
    memory_.issue(me().memory);
    if (memory_.mode() == memory::cxx) {
        std::vector<thread_memory*> others;
        for (unsigned i = 0; i < threads_.size(); ++i) {
            if (i != current_) others.push_back(&threads_[i]->memory);
        }
        memory_.fence_all(others, me().memory);
        if (story_ != nullptr) tell(where, "heavy barrier");
        return;
    }
    memory_.fence(me().memory, std::memory_order_seq_cst);
    if (story_ != nullptr) tell(where, "heavy barrier begins");
    me().waits_for = ((1u << threads_.size()) - 1) & ~(1u << current_);
    for (unsigned i = 0; i < threads_.size(); ++i) buffer_changed(i);
    me().next = {action::resume, false, false, false, no_place, where};
    if (me().waits_for == 0) return;
    me().is = condition::at_barrier;
    schedule();
    if (story_ != nullptr) tell(where, "heavy barrier ends");
}

bool world::make_visible(unsigned thread) {
    const buffered b = memory_.flush(threads_[thread]->memory);
    note_write();
    if (story_ != nullptr) tell_of(thread, {}, "(out of its buffer) " + name_of(b.address) + " = " + text_of(b.value));
    buffer_changed(thread);
    return true;
}

// ---- the kernel ----------------------------------------------------------------------------------------------------

// A system call is a fence, for the compiler and for the processor.
void world::enter_kernel(const void* word, action what, const std::source_location& where) {
    issue_point(where);
    step_at(word, sizeof(std::uint32_t), {what, true, memory_.mode() == memory::cxx, true, no_place, where});
    memory_.fence(me().memory, std::memory_order_seq_cst);
}

bool world::futex_wait(
    const void* word, std::uint32_t expected, std::int64_t deadline_ns, const std::source_location& where) noexcept {
    const call here(*this);
    enter_kernel(word, action::sleep, where);
    const std::uint64_t value = shared_memory::read(word, sizeof expected);
    memory_.catch_up(me().memory, number_of(word));  // the kernel has looked on its behalf
    if (value != expected) {
        if (story_ != nullptr) tell(where, "does not sleep: " + name_of(number_of(word)) + " is " + text_of(value));
        return true;
    }
    virtual_thread& t = me();
    if (story_ != nullptr) tell(where, "sleeps on " + name_of(number_of(word)) + " == " + text_of(value));
    t.is = condition::asleep;
    t.sleeps_on = number_of(word);
    t.deadline_ns = deadline_ns;
    t.came = ++sleeps_;
    t.timed_out = false;
    ++t.slept;
    t.next = {action::resume, false, false, false, no_place, where};
    schedule();
    memory_.catch_up(me().memory, number_of(word));
    return !me().timed_out;
}

void world::futex_wake(const void* word, int count, const std::source_location& where) noexcept {
    const call here(*this);
    enter_kernel(word, action::wake, where);
    for (; count > 0; --count) {
        virtual_thread* first = nullptr;
        for (auto& t : threads_) {
            const bool sleeps = t->is == condition::asleep && t->sleeps_on == number_of(word);
            if (sleeps && (first == nullptr || t->came < first->came)) first = t.get();
        }
        if (first == nullptr) break;
        first->is = condition::ready;
        first->sleeps_on = 0;
        note_write();
        if (story_ != nullptr) tell(where, "wakes " + first->name);
    }
}

void world::pause() noexcept {
    const call here(*this);
    issue_point(std::source_location::current());
    virtual_thread& t = me();
    bool sees_more = false;
    if (settings_.whole) pass_time(pause_costs_ns);
    if (t.paused_at == writes_) {
        for (const std::uintptr_t address : t.looked_at) sees_more |= memory_.catch_up(t.memory, address);
        t.looked_at.clear();
    }
    if (t.paused_at != writes_ || sees_more) {
        t.paused_at = writes_;
        return;
    }
    t.pauses_until_ns = now_ns_ + t.pause_ns;
    t.timed_out = false;
    step({action::wait, false, false, false, no_place, std::source_location::current()});
    // The thread seems to wait for something that comes with time.
    const std::int64_t longest_ns = settings_.punctual ? longest_punctual_pause_ns : longest_pause_ns;
    t.pause_ns = t.timed_out ? std::min(2 * t.pause_ns + shortest_pause_ns, longest_ns) : 0;
    me().paused_at = ~std::uint64_t{0};
}

// ---- plain variables -----------------------------------------------------------------------------------------------

void world::plain_access(const void* at, bool writes, const char* name, const std::source_location& where) {
    const call here(*this);
    race_record& r = plain_[number_of(at)];
    const vector_clock& now = me().memory.now;
    const auto race = [&](unsigned other, const char* did, const std::source_location& there) {
        const auto file = [](const std::source_location& l) {
            const std::string_view path = l.file_name();
            return std::string(path.substr(path.rfind('/') + 1)) + ":" + std::to_string(l.line());
        };
        failed("data race on " + std::string(name) + ": " + did + " by " + threads_[other]->name + " (" + file(there) +
               "), " + (writes ? "written" : "read") + " by " + me().name + " (" + file(where) + ")");
    };
    if (r.written > now[r.writer]) race(r.writer, "written", r.write_place);
    if (writes) {
        for (unsigned i = 0; i < max_threads; ++i) {
            if (r.read[i] > now[i]) race(i, "read", r.read_places[i]);
        }
        r.writer = current_;
        r.written = now[current_];
        r.write_place = where;
    } else {
        r.read[current_] = now[current_];
        r.read_places[current_] = where;
    }
}

// ---- the story -----------------------------------------------------------------------------------------------------

std::string world::name_of(std::uintptr_t address) const {
    for (const named& n : names_) {
        if (address < n.from || address >= n.from + n.size) continue;
        return n.size <= 8 ? n.name : n.name + "+" + std::to_string(address - n.from);
    }
    static const char* const digits = "0123456789abcdef";
    std::string text;
    for (int shift = 44; shift >= 0; shift -= 4) text += digits[(address >> shift) & 15];
    return "0x" + text;
}

std::string world::text_of(std::uint64_t value) const {
    if (value < (std::uint64_t{1} << 20)) return std::to_string(value);
    return name_of(value);
}

void world::tell(const std::source_location& where, const std::string& what) { tell_of(current_, where, what); }

void world::tell_of(unsigned thread, const std::source_location& where, const std::string& what) {
    std::size_t widest = 0;
    for (const auto& t : threads_) widest = std::max(widest, t->name.size());
    std::string line = std::to_string(++told_);
    line.insert(0, line.size() < 4 ? 4 - line.size() : 0, ' ');
    const std::string& name = threads_[thread]->name;
    line += "  " + name + std::string(widest - name.size() + 2, ' ');
    const std::string_view path = where.file_name();
    std::string place;
    if (where.line() != 0) place = std::string(path.substr(path.rfind('/') + 1)) + ":" + std::to_string(where.line());
    line += place + std::string(place.size() < 26 ? 26 - place.size() : 1, ' ') + what + "\n";
    *story_ += line;
}

}  // namespace dunlin::explorer
