#include "explorer/timed.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace dunlin::inline v0_1::explorer {

namespace {

constexpr std::int64_t time_begins_ns = 1'000'000'000;
// What use_short_slices() of platform/thread.h asks the kernel for.
constexpr std::int64_t slice_ns = 100'000;
constexpr std::int64_t longest_step_ns = 20'000;  // of compute(): others see no further ahead
constexpr std::int64_t soon_ns = 20'000, later_ns = 500'000;

}  // namespace

timed* timed_here() noexcept { return static_cast<timed*>(platform::checker_of_thread); }

timed::timed(const costs& c, unsigned cpus) : costs_(c), lines_(c), cpus_(cpus) {
    for (virtual_cpu& v : cpus_) v.idle_since_ns = time_begins_ns;
    name_parts();
}

timed::~timed() {
    for (auto& t : threads_) free_stack(t->stack);
}

// ---- an execution --------------------------------------------------------------------------------------------------

std::string timed::execute(std::function<void()> main) {
    add_thread("run", std::move(main), time_begins_ns);
    platform::checker_of_thread = this;
    current_ = ~0u;
    go_on();  // comes back when it is over
    platform::checker_of_thread = nullptr;
    return failure_;
}

unsigned timed::add_thread(std::string name, std::function<void()> run, std::int64_t at_ns) {
    auto t = std::make_unique<virtual_thread>();
    const auto number = static_cast<unsigned>(threads_.size());
    t->name = std::move(name);
    t->run = std::move(run);
    t->stack = make_stack();
    t->number = number;
    t->is = condition::asleep;
    t->sleep_number = 1;
    begin_at(*t, &timed::thread_entry);
    threads_.push_back(std::move(t));
    push({at_ns, number, 1, false});
    return number;
}

void timed::thread_entry() noexcept {
    timed& w = *timed_here();
    w.me().run();
    virtual_thread& t = w.me();
    t.is = condition::ended;
    if (t.number == 0) {
        w.current_ = ~0u;
        leave_for(t, w.outside_);
    }
    w.leave_cpu(t);
    w.go_on();
    __builtin_unreachable();
}

void timed::failed(std::string_view what) noexcept {
    failure_ = what;
    virtual_thread& t = me();
    current_ = ~0u;
    leave_for(t, outside_);
}

// ---- order ---------------------------------------------------------------------------------------------------------

void timed::charge(spent what, std::int64_t ns) noexcept {
    virtual_thread& t = me();
    t.time_ns += ns;
    t.cpu_ns += ns;
    if (measuring_) result_.times[static_cast<std::size_t>(what)] += ns;
}

void timed::push(const event& e) {
    events_.push_back(e);
    std::push_heap(events_.begin(), events_.end());
}

void timed::take_turn() {
    virtual_thread& t = me();
    if (measuring_) ++result_.steps;
    if (std::int64_t& owes = cpus_[static_cast<unsigned>(t.cpu)].owes_ns; owes != 0) {
        charge(spent::interrupted, owes);
        owes = 0;
    }
    if (!waits_for_cpu_.empty() && t.time_ns >= t.slice_ends_ns) {
        charge(spent::kernel, costs_[cost::thread_switch]);
        t.is = condition::waits_for_cpu;
        waits_for_cpu_.push_back(t.number);
        leave_cpu(t);
        return go_on();
    }
    if (events_.empty() || events_.front().time_ns > t.time_ns) return;
    push({t.time_ns, t.number, 0, false});
    go_on();
}

void timed::go_on() {
    for (;;) {
        if (events_.empty()) {
            failure_ = "threads wait for ever";
            virtual_thread& t = me();
            current_ = ~0u;
            leave_for(t, outside_);
        }
        const event e = events_.front();
        std::pop_heap(events_.begin(), events_.end());
        events_.pop_back();
        virtual_thread& t = *threads_[e.thread];
        if (e.sleep_number != 0) {
            if (t.is == condition::asleep && t.sleep_number == e.sleep_number) wake(t, e.at_deadline, e.time_ns);
            continue;
        }
        const unsigned before = current_;
        if (before == e.thread) return;
        current_ = e.thread;
        return change_over(before < threads_.size() ? *threads_[before] : outside_, t);
    }
}

void timed::wake(virtual_thread& t, bool at_deadline, std::int64_t at_ns) {
    if (t.sleeps_on != 0) {
        auto& all = sleepers_[t.sleeps_on];
        all.erase(std::find(all.begin(), all.end(), t.number));
    }
    ++t.sleep_number;
    t.timed_out = at_deadline;
    become_runnable(t, at_ns);
}

void timed::become_runnable(virtual_thread& t, std::int64_t at_ns) {
    t.sleeps_on = 0;
    const int cpu = idle_cpu_for(t);
    if (cpu >= 0) {
        const virtual_cpu& c = cpus_[static_cast<unsigned>(cpu)];
        return put_on_cpu(t, cpu, at_ns + until_it_runs(c, at_ns));
    }
    t.is = condition::waits_for_cpu;
    t.time_ns = std::max(t.time_ns, at_ns);
    waits_for_cpu_.push_back(t.number);
}

int timed::idle_cpu_for(const virtual_thread& t) const noexcept {
    if (t.last_cpu >= 0 && cpus_[static_cast<unsigned>(t.last_cpu)].runs < 0) return t.last_cpu;
    const auto in_socket = static_cast<int>(costs_[cost::cpus_in_socket]);
    int found = -1;
    for (int i = 0; i < static_cast<int>(cpus_.size()); ++i) {
        if (cpus_[static_cast<unsigned>(i)].runs >= 0) continue;
        if (t.last_cpu < 0 || i / in_socket == t.last_cpu / in_socket) return i;
        if (found < 0) found = i;
    }
    return found;
}

std::int64_t timed::until_it_runs(const virtual_cpu& c, std::int64_t at_ns) const noexcept {
    const std::int64_t idle_ns = at_ns - c.idle_since_ns;
    return costs_[idle_ns < soon_ns ? cost::wake_soon : idle_ns < later_ns ? cost::wake_later : cost::wake_late];
}

void timed::put_on_cpu(virtual_thread& t, int cpu, std::int64_t at_ns) {
    virtual_cpu& c = cpus_[static_cast<unsigned>(cpu)];
    c.runs = static_cast<int>(t.number);
    c.owes_ns = 0;
    t.cpu = t.last_cpu = cpu;
    t.is = condition::runs;
    t.time_ns = std::max(t.time_ns, at_ns);
    t.slice_ends_ns = t.time_ns + slice_ns;
    push({t.time_ns, t.number, 0, false});
}

void timed::leave_cpu(virtual_thread& t) {
    virtual_cpu& c = cpus_[static_cast<unsigned>(t.cpu)];
    const int cpu = t.cpu;
    t.cpu = -1;
    c.runs = -1;
    c.idle_since_ns = t.time_ns;
    if (waits_for_cpu_.empty()) return;
    virtual_thread& next = *threads_[waits_for_cpu_.front()];
    waits_for_cpu_.pop_front();
    put_on_cpu(next, cpu, t.time_ns + costs_[cost::thread_switch]);
}

void timed::sleep(std::int64_t deadline_ns) {
    virtual_thread& t = me();
    ++t.slept;
    charge(spent::kernel, costs_[cost::sleep]);
    t.is = condition::asleep;
    t.timed_out = false;
    if (deadline_ns != 0) push({std::max(deadline_ns, t.time_ns), t.number, t.sleep_number, true});
    leave_cpu(t);
    go_on();
}

// ---- what threads say ----------------------------------------------------------------------------------------------

void timed::compute(std::int64_t ns) {
    while (ns > 0) {
        take_turn();
        const std::int64_t step = std::min(ns, longest_step_ns);
        charge(spent::work, step);
        ns -= step;
    }
}

void timed::begin_measure() {
    take_turn();
    result_ = {};
    places_.clear();
    locks_.clear();
    measured_since_ns_ = me().time_ns;
    measuring_ = true;
}

void timed::end_measure() {
    take_turn();
    measuring_ = false;
    result_.ns = me().time_ns - measured_since_ns_;
    for (const auto& [key, p] : places_) result_.places.push_back(p);
    std::sort(result_.places.begin(), result_.places.end(), [](const place& a, const place& b) {
        return a.waited_ns() != b.waited_ns() ? a.waited_ns() > b.waited_ns() : a.line < b.line;
    });
    for (const auto& [at, l] : locks_) {
        if (l.held_ns * 20 > result_.ns) result_.locks.push_back(l);
    }
    std::sort(result_.locks.begin(), result_.locks.end(),
        [](const held_lock& a, const held_lock& b) { return a.held_ns > b.held_ns; });
}

void timed::name(const void* from, std::size_t size, std::string text) {
    const auto begin = reinterpret_cast<std::uintptr_t>(from);
    auto same = std::find_if(names_.begin(), names_.end(), [&](const text_of_name& n) { return n.text == text; });
    if (same == names_.end()) same = names_.insert(names_.end(), {std::move(text)});
    const named n{begin, begin + size, static_cast<std::uintptr_t>(same - names_.begin()) + 1};
    ranges_.insert(std::upper_bound(ranges_.begin(), ranges_.end(), n,
                       [](const named& a, const named& b) { return a.from < b.from; }),
        n);
}

// ---- where it waits ------------------------------------------------------------------------------------------------

extern "C" char __data_start, _end;

std::uintptr_t timed::object_at(const void* at) const noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    auto after = std::upper_bound(
        ranges_.begin(), ranges_.end(), address, [](std::uintptr_t a, const named& n) { return a < n.from; });
    // Parts are named inside of wholes: the innermost begins last.
    for (int i = 0; i < 16 && after != ranges_.begin(); ++i) {
        --after;
        if (address < after->to) return after->number;
    }
    const bool is_static = at >= &__data_start && at < &_end;
    return is_static ? address / 8 * 8 : 0;
}

timed::place& timed::place_at(const void* at, const std::source_location& where) {
    const std::uintptr_t object = object_at(at);
    const auto line = reinterpret_cast<std::uintptr_t>(where.file_name()) * 31 + where.line();
    const std::uint64_t key = line * 0x9e3779b97f4a7c15u ^ object;
    place& p = places_[key];
    p.file = where.file_name();
    p.line = where.line();
    p.object = object;
    return p;
}

void timed::access(const void* at, access_kind kind, const std::source_location& where) {
    virtual_thread& t = me();
    t.plain_ps += costs_[cost::plain_ps];
    if (t.plain_ps >= 1000) charge(spent::plain, std::exchange(t.plain_ps, t.plain_ps % 1000) / 1000);
    take_turn();
    t.looked_at = at;
    t.looked_from = where;
    if (kind == access_kind::modify) {
        if (t.stores_leave_ns > t.time_ns) charge(spent::lines, t.stores_leave_ns - t.time_ns);
        charge(spent::locked, costs_[cost::locked]);
    }
    const lines::wait w = lines_.access(at, kind, static_cast<unsigned>(t.cpu), t.time_ns);
    if (!w.any()) return;
    if (measuring_) {
        place& p = place_at(at, where);
        ++p.count;
        p.queued_ns += w.queued_ns;
        p.moved_ns += w.moved_ns;
    }
    const std::int64_t ns = w.queued_ns + w.moved_ns;
    if (kind == access_kind::store) {
        t.stores_leave_ns = std::max(t.stores_leave_ns, t.time_ns + ns);
        return;
    }
    charge(spent::lines, ns);
    take_turn();
}

void timed::note_lock(const void* at, const std::source_location& where, bool taken) {
    const auto [file, is_new] = files_of_locks_.try_emplace(where.file_name(), false);
    if (is_new) file->second = std::string_view(where.file_name()).ends_with("lock.h");
    if (!file->second) return;
    held_lock& l = locks_[reinterpret_cast<std::uintptr_t>(at)];
    if (taken) {
        if (l.count++ == 0) l.object = object_at(at);
        l.since_ns = me().time_ns;
    } else if (l.since_ns != 0) {
        l.held_ns += me().time_ns - l.since_ns;
        l.since_ns = 0;
    }
}

// ---- memory --------------------------------------------------------------------------------------------------------

namespace {

std::uint64_t read_from(const void* at, unsigned size) noexcept {
    std::uint64_t value = 0;
    std::memcpy(&value, at, size);
    return value;
}

}  // namespace

std::uint64_t timed::load(const void* at, unsigned size, std::memory_order, const std::source_location& where) {
    access(at, access_kind::load, where);
    return read_from(at, size);
}

void timed::store(void* at, unsigned size, std::uint64_t value, std::memory_order order,
    const std::source_location& where) {
    access(at, order == std::memory_order_seq_cst ? access_kind::modify : access_kind::store, where);
    std::memcpy(at, &value, size);
    if (measuring_ && value == 0 && order == std::memory_order_release) note_lock(at, where, false);
}

std::uint64_t timed::modify(void* at, unsigned size, platform::change what, std::uint64_t operand, std::memory_order,
    const std::source_location& where) {
    access(at, access_kind::modify, where);
    const std::uint64_t before = read_from(at, size);
    std::uint64_t after = operand;
    switch (what) {
    case platform::change::exchange: break;
    case platform::change::add: after = before + operand; break;
    case platform::change::subtract: after = before - operand; break;
    case platform::change::bit_and: after = before & operand; break;
    case platform::change::bit_or: after = before | operand; break;
    case platform::change::bit_xor: after = before ^ operand; break;
    }
    std::memcpy(at, &after, size);
    return before;
}

bool timed::compare_exchange(void* at, unsigned size, std::uint64_t& expected, std::uint64_t wanted, std::memory_order,
    std::memory_order, const std::source_location& where) {
    access(at, access_kind::modify, where);
    const std::uint64_t found = read_from(at, size);
    if (found != expected) {
        expected = found;
        return false;
    }
    std::memcpy(at, &wanted, size);
    if (measuring_ && found == 0 && wanted == 1) note_lock(at, where, true);
    return true;
}

void timed::fence(std::memory_order order, const std::source_location&) noexcept {
    if (order != std::memory_order_seq_cst) return;
    virtual_thread& t = me();
    if (t.stores_leave_ns > t.time_ns) charge(spent::lines, t.stores_leave_ns - t.time_ns);
    charge(spent::locked, costs_[cost::fence]);
}

}  // namespace dunlin::explorer
