// whole.cpp - what only whole programs have: a prepared beginning, time that passes, looks at threads, signals.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "explorer/world.h"

#include "platform/thread.h"
#include "stack/signal_frame.h"

namespace dunlin::inline v0_1::explorer {

namespace {

constexpr std::size_t steps_between_jumps = 64;
constexpr std::size_t steps_between_short_waits = 17;  // others make progress whatever the order prefers
// a thread that waits in a loop, or computes, may be this much quicker than others
constexpr std::int64_t short_ns = 50'000;
constexpr std::int64_t longest_jump_ns = 3'000'000, all_jumps_ns = 20'000'000;  // while others can go on
constexpr std::int64_t longest_ns = 600'000'000'000;  // between two things that happen
// Waiters for a lock sleep for a while, at first, whatever happens to the lock (platform/lock.h, "At first"): 15 ms in
// all.
constexpr std::int64_t may_be_wrong_ns = 20'000'000;
constexpr int first_thread_id = 1000;
constexpr unsigned latest_arrival = 8;  // a signal arrives fewer than this many operations later than it could

// Where a thread is that is in no library: some code of the program.
[[gnu::noinline]] void code_of_the_program() noexcept { asm volatile(""); }

// While this lives, the code that runs is outside of the simulation.
class outside {
public:
    outside() noexcept : before_(std::exchange(platform::checker_of_thread, nullptr)) {}
    ~outside() { platform::checker_of_thread = before_; }
    outside(const outside&) = delete;

private:
    platform::access_checker* before_;
};

// In the preparation each thread goes on for as long as it can.
class one_after_the_other final : public strategy {
public:
    bool begin() override { return true; }
    std::size_t pick(const std::vector<transition>& possible, unsigned last) override {
        std::size_t best = 0;
        for (std::size_t i = 0; i < possible.size(); ++i) {
            if (possible[i].what.kind == step_kind::flush) return i;
            if (possible[i].what == choice{step_kind::run, static_cast<std::uint8_t>(last)}) best = i;
        }
        return best;
    }
    unsigned pick_value(unsigned) override { return 0; }
    void ended(std::size_t) override {}
};

}  // namespace

// ---- from the preparation on ---------------------------------------------------------------------------------------

world::outcome world::prepare(std::vector<thread_body> threads, std::vector<named> names, quiet_check when_quiet) {
    one_after_the_other order;
    preparing_ = true;
    outcome o = execute(order, std::move(threads), std::move(names), nullptr);
    if (preparing_ && o.failure.empty()) o.failure = "a case of a whole program has ended without prepared()";
    when_quiet_ = std::move(when_quiet);
    return o;
}

world::outcome world::go_on(strategy& s, std::string* story) {
    outcome_ = {};
    strategy_ = &s;
    story_ = story;
    told_ = 0;
    current_ = max_threads;
    inside_ = true;
    platform::checker_of_thread = this;
    schedule();
    platform::checker_of_thread = nullptr;
    inside_ = false;
    return std::move(outcome_);
}

[[gnu::noinline]] void world::prepared() {
    step({action::settle, true, false, false, no_place, std::source_location::current()});
    if (!std::exchange(preparing_, false)) return;
    virtual_thread& t = me();
    t.next = {action::resume, false, false, false, no_place, std::source_location::current()};
    current_ = max_threads;
    change_over(t, outside_thread_);
}

bool world::is_over() const noexcept {
    return std::all_of(
        threads_.begin(), threads_.end(), [](const auto& t) { return t->is == condition::ended || t->may_stay; });
}

// ---- time ----------------------------------------------------------------------------------------------------------

void world::pass_time(std::int64_t ns) noexcept {
    now_ns_ += ns;
    me().cpu_ns += ns;
}

// When t's sleep or pause ends by itself; 0: only other threads can end it.
std::int64_t world::sleeps_until(const virtual_thread& t) const noexcept {
    if (t.is == condition::asleep) return t.deadline_ns;
    if (t.is == condition::ready && t.next.what == action::wait && t.paused_at == writes_) return t.pauses_until_ns;
    return 0;
}

void world::collect_times(bool others_can, bool one_is_kept) {
    std::int64_t earliest = 0;
    std::uint8_t first = 0;
    may_jump_ = false;
    const bool may_be_quick = !preparing_ && (strategy_->is_fair() || outcome_.steps % steps_between_short_waits == 0);
    bool spins = false, due = false;
    for (std::uint8_t i = 0; i < threads_.size(); ++i) {
        const virtual_thread& t = *threads_[i];
        const std::int64_t until = sleeps_until(t);
        if (until == 0) continue;
        if (until <= now_ns_ && t.is == condition::asleep) {
            due = true;
            possible_.push_back({{step_kind::time_out, i}, true, true, false, no_place});
            continue;
        }
        // Punctual: a thread that computes or pauses is no quicker than others. Otherwise pauses would make a thread
        // late that is kept from its CPU for some steps.
        const bool ends_soon = t.is == condition::ready && until - now_ns_ <= short_ns && !settings_.punctual;
        if ((others_can || one_is_kept) && may_be_quick && ends_soon) {
            possible_.push_back({{step_kind::time_out, i}, true, true, false, no_place});
            continue;
        }
        spins = spins || (t.is == condition::ready && !t.computes);
        if (earliest != 0 && until >= earliest) continue;
        earliest = until;
        first = i;
    }
    if (due) return;
    if (others_can || one_is_kept) {
        const std::int64_t jump = earliest - now_ns_;
        const bool may_jump =
            !settings_.punctual && (!others_can || outcome_.steps % steps_between_jumps == 0) && earliest != 0 &&
            !preparing_ && jump <= longest_jump_ns &&
            jumped_ns_ + jump <= all_jumps_ns &&
            std::all_of(threads_.begin(), threads_.end(), [](const auto& t) { return t->memory.buffer.empty(); });
        if (may_jump) possible_.push_back({{step_kind::time_out, first}, true, true, false, no_place});
        may_jump_ = may_jump;
        return;
    }
    if (!spins && settle()) return;
    if (earliest == 0 || !outcome_.failure.empty()) return;
    if (earliest - now_ns_ > longest_ns) outcome_.failure = "nothing happens for ten minutes";
    possible_.push_back({{step_kind::time_out, first}, true, true, false, no_place});
}

std::string world::what_is_wrong() const {
    if (!when_quiet_ || preparing_) return {};
    const outside here;
    return when_quiet_();
}

// No thread can do anything until time passes. True: one has waited for just that.
bool world::settle() {
    for (std::uint8_t i = 0; i < threads_.size(); ++i) {
        const virtual_thread& t = *threads_[i];
        if (t.is != condition::ready || t.next.what != action::settle) continue;
        possible_.push_back({{step_kind::run, i}, true, true, false, no_place});
        return true;
    }
    const std::string wrong = what_is_wrong();
    if (wrong.empty()) {
        wrong_since_ns_ = 0;
    } else if (wrong_since_ns_ == 0) {
        wrong_since_ns_ = now_ns_;
    } else if (now_ns_ - wrong_since_ns_ > may_be_wrong_ns) {
        outcome_.failure = wrong;
    }
    return false;
}

void world::end_sleep(unsigned thread) {
    virtual_thread& t = *threads_[thread];
    const bool asleep = t.is == condition::asleep;
    const std::int64_t before = now_ns_;
    now_ns_ = std::max(now_ns_, asleep ? t.deadline_ns : t.pauses_until_ns);
    if (may_jump_ && asleep) jumped_ns_ += now_ns_ - before;
    if (story_ != nullptr) {
        tell_of(thread, t.next.where, asleep ? "has slept until its deadline" : "has waited for a while");
    }
    t.timed_out = true;
    t.is = condition::ready;
    t.sleeps_on = 0;
}

void world::sleep_in_kernel(std::int64_t ns) {
    const std::uint32_t nothing = 0;
    futex_wait(&nothing, 0, now_ns_ + ns, std::source_location::current());
    if (me().signal != 0) take_signal();
}

// Other threads go on meanwhile; `ns` is CPU time.
void world::compute(std::int64_t ns) {
    issue_point(std::source_location::current());
    virtual_thread& t = me();
    t.computes = true;
    for (const std::int64_t until = t.cpu_ns + ns; t.cpu_ns < until;) {
        const std::int64_t before = now_ns_;
        t.paused_at = writes_;
        t.pauses_until_ns = now_ns_ + (until - t.cpu_ns);
        step({action::wait, false, false, false, no_place, std::source_location::current()});
        t.cpu_ns += now_ns_ - before;
        if (t.signal != 0) take_signal();
    }
    t.computes = false;
    t.paused_at = ~std::uint64_t{0};
}

// ---- what the kernel tells -----------------------------------------------------------------------------------------

platform::simulation::thread_look world::look_at(int thread_id) noexcept {
    const call here(*this);
    const auto number = static_cast<std::size_t>(thread_id - first_thread_id);
    if (number >= threads_.size()) return {};
    step({action::load, true, true, false, no_place, std::source_location::current()});
    const virtual_thread& t = *threads_[number];
    return {t.is == condition::ready || t.is == condition::at_barrier, t.cpu_ns, t.slept};
}

unsigned world::count_threads() noexcept {
    const auto lives = [](const auto& t) { return t->is != condition::ended; };
    return static_cast<unsigned>(std::count_if(threads_.begin(), threads_.end(), lives));
}

// ---- signals -------------------------------------------------------------------------------------------------------

// Without settings::signals no signal arrives, and the runtime must be correct without (preempt.h, Protocol).
void world::send_signal(int thread_id, int signal) noexcept {
    const call here(*this);
    const auto number = static_cast<std::size_t>(thread_id - first_thread_id);
    if (story_ != nullptr) {
        tell(std::source_location::current(), "sends a signal to thread " + std::to_string(number));
    }
    if (!settings_.signals || number >= threads_.size()) return;
    virtual_thread& t = *threads_[number];
    if (t.is == condition::ended || t.signal != 0) return;
    if (!outcome_.gave_up) t.signal_after = strategy_->pick_value(latest_arrival);
    outcome_.choices.push_back({step_kind::value, static_cast<std::uint8_t>(t.signal_after)});
    mix(t.signal_after);
    t.signal = signal;
    note_write();  // a thread that computes is interrupted
}

void world::take_signal() {
    virtual_thread& t = me();
    if (t.in_handler || t.signal_after-- != 0) return;
    const call here(*this);
    const int signal = std::exchange(t.signal, 0);
    t.in_handler = true;
    const bool computes = std::exchange(t.computes, false), timed_out = t.timed_out;
    fence(std::memory_order_seq_cst, std::source_location::current());
    if (story_ != nullptr) tell(std::source_location::current(), "the signal arrives");
    struct sigaction installed {};
    sigaction(signal, nullptr, &installed);
    siginfo_t info = platform::request_info(signal);
    ucontext_t context{};
    const auto at = t.in_libc ? reinterpret_cast<std::uintptr_t>(&std::malloc)
                              : reinterpret_cast<std::uintptr_t>(&code_of_the_program);
    stack::set_interrupted_pc(&context, at);
    const unsigned calls = std::exchange(t.calls, 0);
    installed.sa_sigaction(signal, &info, &context);
    t.calls = calls;
    t.computes = computes;
    t.timed_out = timed_out;
    t.in_handler = false;
    if (story_ != nullptr) tell(std::source_location::current(), "the handler has ended");
}

// Of the system calls that have no function in platform/simulated.h, only the end of a thread is simulated.
bool world::system_call(long number, const long (&)[6], long&) noexcept {
    if (number == SYS_exit) end_thread();
    return false;
}

}  // namespace dunlin::explorer
