// contention.cpp - runtime::block_profile(), runtime::mutex_profile(), and what switches them on.
#include "observe/contention.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <ostream>
#include <string_view>

#include <dunlin/runtime.hpp>

#include "observe/alike.h"
#include "observe/pprof.h"
#include "park/contention.h"
#include "park/waiter.h"
#include "platform/clock.h"
#include "platform/memory.h"
#include "platform/random.h"
#include "sched/goroutines/goroutine.h"
#include "sched/machines/machine.h"
#include "sched/machines/trace.h"
#include "sched/preempt/lifetime.h"

namespace dunlin::inline v0_1::observe {

constinit park_times park_times_of[park_time_shards][sched::wait_reason_count]{};

void contention_table::prepare() {
    park::runtime_section inside;
    const std::scoped_lock guard(lock_);
    if (entries_ != nullptr) return;
    entries_ = reinterpret_cast<entry*>(platform::reserve(places * sizeof(entry), platform::page_size()));
    if (entries_ == nullptr) throw std::bad_alloc();
}

// The entry with this key, or a free one. Half of the entries stay free.
contention_table::entry& contention_table::find(std::uint64_t key) noexcept {
    std::size_t at = key & (places - 1);
    while (entries_[at].key != 0 && entries_[at].key != key) at = (at + 1) & (places - 1);
    return entries_[at];
}

void contention_table::add(const stack::trace& frames, sched::wait_reason reason, const sched::goroutine* g,
    double count, double delay_ns) noexcept {
    likeness l;
    l.add(static_cast<std::uint64_t>(reason));
    for (std::size_t i = 0; i < frames.size; ++i) l.add(frames.pc[i]);
    std::unique_ptr<labels> with;
    if (g != nullptr && g->extra != nullptr && (!g->extra->name.empty() || !g->extra->labels.empty())) {
        try {
            with = std::make_unique<labels>(g->extra->labels);
            if (!g->extra->name.empty()) with->emplace_back("name", g->extra->name);
            for (const auto& [key, value] : *with) l.add(std::string_view(key)), l.add(std::string_view(value));
        } catch (const std::bad_alloc&) {
            with.reset();
        }
    }
    park::runtime_section inside;
    const std::scoped_lock guard(lock_);
    entry* e = &find(l.key() | 1);
    if (e->key == 0 && used_ == most) e = &find(likeness().key() | 1);  // the entry for all that find no place
    if (e->key == 0) {
        const bool full = used_ == most;
        e->key = full ? likeness().key() | 1 : l.key() | 1;
        e->what.frames.size = 0;
        if (!full) {
            ++used_;
            e->what.frames = frames;
            e->what.reason = reason;
            e->what.with = with.release();
        }
    }
    e->what.count += count;
    e->what.delay_ns += delay_ns;
}

std::vector<contention_table::record> contention_table::all() {
    std::vector<record> result;
    for (;;) {
        std::size_t wanted;
        {
            park::runtime_section inside;
            const std::scoped_lock guard(lock_);
            wanted = used_ + 1;
            if (entries_ == nullptr) return result;
            if (result.capacity() >= wanted) {
                for (std::size_t i = 0; i < places; ++i) {
                    if (entries_[i].key != 0) result.push_back(entries_[i].what);
                }
                return result;
            }
        }
        result.reserve(wanted + wanted / 4);  // the table may grow until the next look
    }
}

namespace {

constinit contention_table blocked, unlocked;
constinit platform::atomic<std::int64_t> block_rate_ns{0};    // 0: off
constinit platform::atomic<std::uint32_t> mutex_fraction{0};  // 0: off
constinit platform::atomic<bool> wait_histograms{false};
std::mutex changes_of_histograms;

// True with the probability part / of. No switch happens in here: the variable belongs to the thread.
[[gnu::noinline]] bool drawn(std::uint64_t part, std::uint64_t of) noexcept {
    thread_local platform::random_source source(static_cast<std::uint64_t>(platform::now_ns()) ^
                                                reinterpret_cast<std::uintptr_t>(&source));
    return part >= of || source.next() % of < part;
}

bool counts_as_blocked(sched::wait_reason reason) noexcept {
    return sched::ended_by(reason) != sched::wait_ends_by::outside;
}

void note_in_histogram(sched::wait_reason reason, std::int64_t ns) noexcept {
    const sched::machine* m = sched::current_machine();
    const std::size_t shard = m != nullptr ? m->id % park_time_shards : park_time_shards - 1;
    park_times& to = park_times_of[shard][static_cast<std::size_t>(reason)];
    const auto& limits = sched::wait_limits_ns;
    const auto bucket =
        static_cast<std::size_t>(std::upper_bound(limits.begin(), limits.end(), ns - 1) - limits.begin());
    to.by_length[bucket].fetch_add(1, std::memory_order_relaxed);
    to.total_ns.fetch_add(static_cast<std::uint64_t>(ns), std::memory_order_relaxed);
}

// Go's rule and weights for the block profile: a wait that is shorter than the rate is kept with the probability ns /
// rate, and then counts for rate / ns waits.
void note_wait(sched::wait_reason reason, std::int64_t ns) noexcept {
    if (wait_histograms.load(std::memory_order_relaxed)) note_in_histogram(reason, ns);
    const std::int64_t rate = block_rate_ns.load(std::memory_order_relaxed);
    if (rate <= 0 || !counts_as_blocked(reason)) return;
    const std::int64_t waited = std::max<std::int64_t>(ns, 1);
    const bool is_short = waited < rate;
    if (!drawn(static_cast<std::uint64_t>(waited), static_cast<std::uint64_t>(rate))) return;
    const double weight = is_short ? static_cast<double>(rate) / static_cast<double>(waited) : 1;
    const double delay_ns = weight * static_cast<double>(waited);
    blocked.add(stack::capture_trace(), reason, sched::current_goroutine(), weight, delay_ns);
}

void note_unlock(std::int64_t ns) noexcept {
    const std::uint32_t fraction = mutex_fraction.load(std::memory_order_relaxed);
    if (fraction == 0 || !drawn(1, fraction)) return;
    const double delay_ns = static_cast<double>(ns) * fraction;
    unlocked.add(stack::capture_trace(), sched::wait_reason::none, sched::current_goroutine(), fraction, delay_ns);
}

constexpr park::contention_counter counter{note_wait, note_unlock};
constexpr park::contention_counter only_events{nullptr, nullptr};

platform::ranked_lock<platform::lock_rank::leaf> setting;
bool profiled = false, measured = false, traced = false;  // setting

void set_waits_counter(bool& which, bool on) noexcept {
    const sched::unstoppable_section section;
    setting.lock();
    which = on;
    // Release: a waiter that sees the counter sees the table.
    park::waits_counter.store(profiled || measured ? &counter
                              : traced             ? &only_events
                                                   : nullptr,
        std::memory_order_release);
    setting.unlock();
}

// Drops the library's functions that stand before the program's: the label says what was waited for.
stack::trace from_program(const stack::trace& whole) noexcept {
    const std::size_t skip = stack::frames_of_library(whole);
    stack::trace t;
    t.size = whole.size - skip;
    std::copy_n(whole.pc + skip, t.size, t.pc);
    return t;
}

void write_profile(std::ostream& stream, contention_table& table, runtime::profile_format format,
    std::string_view header) {
    std::vector<contention_table::record> records = table.all();
    std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) { return a.delay_ns > b.delay_ns; });
    const bool as_text = format == runtime::profile_format::text;
    std::optional<profile> p;
    if (!as_text) p.emplace(profile::types{{"contentions", "count"}, {"delay", "nanoseconds"}});
    std::string text(header);
    for (const contention_table::record& r : records) {
        const stack::trace frames = from_program(r.frames);
        const auto count = static_cast<std::uint64_t>(r.count + 0.5);
        const auto delay_ns = static_cast<std::uint64_t>(r.delay_ns + 0.5);
        contention_table::labels with = r.with != nullptr ? *r.with : contention_table::labels();
        if (r.reason != sched::wait_reason::none) with.emplace_back("reason", name(r.reason));
        if (as_text) {
            append_sample(text, std::to_string(delay_ns) + ' ' + std::to_string(count), frames, with);
        } else {
            p->add(frames, "(others: the table is full)", {count, delay_ns}, with);
        }
    }
    if (p) text = p->finish();
    stream.write(text.data(), static_cast<std::streamsize>(text.size()));
}

}  // namespace

void count_waits_for_trace(bool on) noexcept { set_waits_counter(traced, on); }

}  // namespace dunlin::observe

namespace dunlin::inline v0_1::runtime {

void set_block_profile_rate(std::chrono::nanoseconds rate) {
    if (rate.count() > 0) observe::blocked.prepare();
    observe::block_rate_ns.store(std::max<std::int64_t>(rate.count(), 0), std::memory_order_relaxed);
    observe::set_waits_counter(observe::profiled, rate.count() > 0);
}

bool set_wait_histograms(bool on) {
    sched::start_runtime();
    const std::lock_guard guard(observe::changes_of_histograms);
    if (observe::wait_histograms.exchange(on, std::memory_order_relaxed) == on) return on;
    observe::set_waits_counter(observe::measured, on);
    sched::tracing::measure(on);
    return !on;
}

unsigned set_mutex_profile_fraction(unsigned one_in) {
    if (one_in > 0) observe::unlocked.prepare();
    const std::uint32_t before = observe::mutex_fraction.exchange(one_in, std::memory_order_relaxed);
    // Release: an unlock that sees the counter sees the table.
    park::unlocks_counter.store(one_in > 0 ? &observe::counter : nullptr, std::memory_order_release);
    return before;
}

void block_profile(std::ostream& out, profile_format format) {
    observe::write_profile(out, observe::blocked, format, "--- contention:\ncycles/second=1000000000\n");
}

void mutex_profile(std::ostream& out, profile_format format) {
    const std::uint32_t one_in = observe::mutex_fraction.load(std::memory_order_relaxed);
    observe::write_profile(out, observe::unlocked, format,
        "--- mutex:\ncycles/second=1000000000\nsampling period=" + std::to_string(one_in) + "\n");
}

}  // namespace dunlin::runtime
