#include "explorer/world.h"

#include <algorithm>
#include <cerrno>

#include "platform/check.h"

namespace dunlin::inline v0_1::explorer {

namespace {

constexpr std::int64_t time_begins_ns = 1'000'000'000;
constexpr std::int64_t step_ns = 20;

}  // namespace

world* here() noexcept { return static_cast<world*>(platform::checker_of_thread); }

world::world(const settings& s) : settings_(s) {}

world::~world() {
    for (std::byte* stack : stacks_) free_stack(stack);
}

// ---- an execution --------------------------------------------------------------------------------------------------

world::outcome world::execute(
    strategy& s, std::vector<thread_body> threads, std::vector<named> names, std::string* story) {
    outcome_ = {};
    memory_.begin(settings_.model);
    threads_.clear();
    plain_.clear();
    names_ = std::move(names);
    strategy_ = &s;
    story_ = story;
    writes_ = sleeps_ = 0;
    told_ = 0;
    now_ns_ = time_begins_ns;
    for (thread_body& t : threads) add_thread(std::move(t.name), std::move(t.run));
    current_ = max_threads;
    inside_ = true;
    platform::checker_of_thread = this;
    schedule();  // comes back when it is over
    platform::checker_of_thread = nullptr;
    inside_ = false;
    if (!outcome_.failure.empty()) {
        // What their functions hold belongs to stacks that will not go on.
        for (auto& t : threads_) new std::function<void()>(std::move(t->run));
    }
    return std::move(outcome_);
}

void world::add_thread(std::string name, std::function<void()> run) {
    const auto number = static_cast<unsigned>(threads_.size());
    DUNLIN_CHECK(number < max_threads, "a simulation has at most 12 threads (max_threads)");
    if (stacks_.size() <= number) stacks_.push_back(make_stack());
    auto t = std::make_unique<virtual_thread>();
    t->name = std::move(name);
    t->run = std::move(run);
    t->stack = stacks_[number];
    t->memory.thread = number;
    if (inside_ && current_ < threads_.size()) {
        t->memory.now = me().memory.now;
        t->memory.sees = me().memory.sees;
        ++me().memory.now[current_];
    }
    ++t->memory.now[number];
    begin_at(*t, &world::thread_entry);
    threads_.push_back(std::move(t));
}

void world::thread_entry() noexcept {
    world& w = *here();
    w.me().run();
    w.end_thread();
}

void world::end_thread() noexcept {
    const call here(*this);
    issue_point({});
    me().is = condition::ended;
    buffer_changed(current_);
    if (story_ != nullptr) tell({}, "ends");
    schedule();
    __builtin_unreachable();
}

// ---- what is possible ----------------------------------------------------------------------------------------------

bool world::can_run(const virtual_thread& t) const noexcept {
    switch (t.is) {
    case condition::ended:
    case condition::asleep: return false;
    case condition::at_barrier: return t.waits_for == 0;
    case condition::ready: break;
    }
    if (t.next.what == action::settle) return false;  // collect_times() decides
    if (t.next.needs_empty_buffer && !t.memory.buffer.empty()) return false;
    if (t.next.what == action::store && t.memory.buffer.size() >= settings_.buffer) return false;
    return t.next.what != action::wait || writes_ != t.paused_at;
}

void world::collect() {
    possible_.clear();
    bool runs = false, kept = false;
    for (std::uint8_t i = 0; i < threads_.size(); ++i) {
        const virtual_thread& t = *threads_[i];
        if (can_run(t)) {
            (strategy_->keeps_back({step_kind::run, i}) ? kept : runs) = true;
            possible_.push_back({{step_kind::run, i}, t.next.writes, t.next.alone, false, t.next.place});
        }
        if (!t.memory.buffer.empty()) {
            (strategy_->keeps_back({step_kind::flush, i}) ? kept : runs) = true;
            possible_.push_back({{step_kind::flush, i}, true, false, !t.memory.buffer.front().passed,
                memory_.place_of_front(t.memory)});
        }
    }
    if (settings_.whole) return collect_times(runs, kept);
    if ((runs || kept) && !settings_.times_out) return;
    for (std::uint8_t i = 0; i < threads_.size(); ++i) {
        const virtual_thread& t = *threads_[i];
        if (t.is == condition::asleep && t.deadline_ns != 0)
            possible_.push_back({{step_kind::time_out, i}, true, true, false, no_place});
    }
}

std::string world::why_nothing_happens() const {
    std::string text = "threads wait for ever:";
    if (const std::string wrong = what_is_wrong(); !wrong.empty()) text = wrong + "; " + text;
    for (const auto& t : threads_) {
        if (t->is == condition::ended) continue;
        text += " " + t->name;
        if (t->is == condition::asleep) {
            text += " sleeps on " + name_of(t->sleeps_on) + ";";
        } else {
            text += " spins;";
        }
    }
    text.back() = '.';
    return text;
}

// Lets things happen until the calling thread's turn has come.
void world::schedule() {
    for (;;) {
        if (settings_.whole && is_over()) leave_for_good();
        collect();
        if (!outcome_.failure.empty()) leave_for_good();
        if (possible_.empty()) {
            if (!is_over()) outcome_.failure = why_nothing_happens();
            leave_for_good();
        }
        if (++outcome_.steps > settings_.max_steps) {
            outcome_.failure = "it does not end";
            leave_for_good();
        }
        std::size_t picked = possible_.size();
        if (!outcome_.gave_up) picked = strategy_->pick(possible_, current_);
        if (picked == possible_.size()) {
            // It goes on to its end all the same, in turns, so that what lies on the stacks is destroyed.
            outcome_.gave_up = true;
            picked = outcome_.steps % possible_.size();
        }
        const choice c = possible_[picked].what;
        outcome_.choices.push_back(c);
        mix(static_cast<std::uint64_t>(c.kind) * 256 + c.which);
        if (c.kind == step_kind::flush) {
            make_visible(c.which);
            continue;
        }
        if (c.kind == step_kind::time_out) {
            end_sleep(c.which);
        }
        for (auto& other : threads_) {
            if (!other->memory.buffer.empty()) other->memory.buffer.front().passed = true;
        }
        virtual_thread& t = *threads_[c.which];
        t.is = condition::ready;
        mix(static_cast<std::uint64_t>(t.next.what) * 65536 + t.next.where.line());
        return switch_to(c.which);
    }
}

// ---- switching -----------------------------------------------------------------------------------------------------

void world::switch_to(unsigned thread) {
    if (thread == current_) return;
    virtual_thread& from = current_ < threads_.size() ? me() : outside_thread_;
    current_ = thread;
    change_over(from, *threads_[thread]);
}

void world::leave_for_good() noexcept {
    virtual_thread& from = me();
    current_ = max_threads;
    leave_for(from, outside_thread_);
}

void world::failed(std::string_view what) noexcept {
    const call here(*this);
    outcome_.failure = what;
    if (story_ != nullptr) tell({}, "FAILS: " + outcome_.failure);
    leave_for_good();
}

void world::require(bool condition, std::string_view what) {
    if (!condition) failed(what);
}

// The calling thread has come to `op`. Returns when the thread is to do it.
void world::step(operation op) {
    const call here(*this);
    if (me().signal != 0 && !me().computes) take_signal();  // compute() looks by itself
    me().next = op;
    strategy_->arrives(current_, op);
    if (settings_.whole) pass_time(step_ns);
    schedule();
}

void world::step_at(const void* at, unsigned size, operation op) {
    op.place = first_place + memory_.at(at, size).number;
    step(op);
}

// Another thread's barrier may fall between a load and an earlier store that the compiler has moved behind the load.
void world::issue_point(const std::source_location& where) {
    const call here(*this);
    if (me().memory.looked_past_store && memory_.has_unissued(me().memory))
        step({action::fence, false, false, false, no_place, where});
    memory_.issue(me().memory);
}

int world::start_thread(void* (*entry)(void*), void* argument) noexcept {
    const call here(*this);
    if (threads_.size() == max_threads || (!settings_.more_threads && !preparing_)) return EAGAIN;
    add_thread("thread " + std::to_string(threads_.size()), [=] { entry(argument); });
    threads_.back()->may_stay = settings_.whole;
    return 0;
}

void world::mix(std::uint64_t value) noexcept {
    std::uint64_t h = (outcome_.hash ^ value) * 0xff51afd7ed558ccd;
    outcome_.hash = h ^ (h >> 32);
}

}  // namespace dunlin::explorer
