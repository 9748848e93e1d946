// cpu_profile.cpp - which goroutines burn the CPU: runtime::start_cpu_profile().
//
// Timers     One for each thread, on the thread's own CPU clock; it signals that thread. A process's timer (setitimer)
//            would hit one thread for what all have used. A thread that sleeps costs nothing. The runtime's threads get
//            their timers when they begin; threads that exist when the profile starts get them then.
// Weight     A sample counts for the periods that have passed since the last one (si_overrun). These are many where
//            other programs keep the CPUs busy: the kernel looks at the timer at its ticks, if the thread runs just
//            then. A program of two plain threads beside three busy loops gets 125 to 180 signals for 600 periods, of
//            up to 54 each (Linux 6.18, 250 ticks a second). To count each signal once would lose most of the time.
// Handler    It unwinds the stack from where it was interrupted, as for dumps (sched/preempt/stack_capture.h). The
//            thread may be in the middle of a switch and may hold locks of ours, so the handler takes none. It blocks
//            all signals, the preemption's too, and the preemption's handler blocks this one: they never interrupt each
//            other.
// Table      Of fixed size, indexed by the hash of stack and labels. The handler that changes a place's key from 0 has
//            claimed the place. Once `ready` is set (release; acquire in the reader) the place does not change any
//            more, except for its count, to which handlers add at any time. Two stacks with the same hash are counted
//            together.
// Labels     They are copied as text, from a goroutine that is alive: its labels do not change, its name changes only
//            inside the runtime.
// Tests      tests/runtime/cpu_profile_test.cpp, tests/tools/profile_test.py
#include "observe/cpu_profile.h"

#include <algorithm>
#include <dunlin/detail/atomic.hpp>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <forward_list>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <sys/types.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <dunlin/runtime.hpp>

#include "observe/alike.h"
#include "observe/pprof.h"
#include "platform/clock.h"
#include "platform/memory.h"
#include "platform/thread.h"
#include "sched/goroutines/thread_stack.h"
#include "sched/machines/handshake.h"
#include "sched/machines/machine.h"
#include "sched/preempt/lifetime.h"
#include "sched/preempt/stack_capture.h"
#include "stack/signal_frame.h"
#include "stack/trace.h"

namespace dunlin::inline v0_1::observe {

namespace {

struct entry {
    static constexpr std::size_t label_bytes = 224;
    platform::atomic<std::uint64_t> key;  // 0: free
    platform::atomic<std::uint64_t> count;
    platform::atomic<bool> ready;
    std::uint8_t labels;             // number of pairs in `text`: key and value, each ended by a zero byte
    stack::trace frames;
    char text[label_bytes];
};
constexpr std::size_t places = 8192, most = places / 2;  // a power of two

struct thread_timer {
    pid_t tid;
    timer_t timer;
};

struct state {
    std::mutex changes;                     // start and stop
    platform::atomic<entry*> table{nullptr};     // read by handlers: never unmapped
    platform::atomic<std::uint32_t> used{0};
    platform::atomic<std::uint64_t> others{0};
    platform::atomic<bool> on{false};
    std::mutex timers_lock;                 // also taken by threads that begin or end; held in unstoppable sections
                                            // only
    std::vector<thread_timer> timers;       // timers_lock
    unsigned hz = 100;                      // the same
    std::int64_t began_ns = 0;
    // Read by handlers: never freed. The handler that ours replaced last, the one that it replaced first, and all of
    // them, each once.
    platform::atomic<const struct sigaction*> before{nullptr}, first{nullptr};
    std::forward_list<struct sigaction> replaced;  // changes
};

state& the() {
    static state* s = new state;  // never destroyed: handlers read it
    return *s;
}

// Null: there has been no profile yet. Release publishes the state to handlers and threads that begin.
constinit platform::atomic<state*> for_handlers{nullptr};

// ---- in the handler -------------------------------------------------------------------------------------------------

struct label_text {
    char text[entry::label_bytes];
    std::size_t size = 0;
    std::uint8_t pairs = 0;

    void add(std::string_view key, std::string_view value) noexcept {
        if (size + key.size() + value.size() + 2 > sizeof text || pairs == 255) return;
        size += key.copy(text + size, key.size());
        text[size++] = 0;
        size += value.copy(text + size, value.size());
        text[size++] = 0;
        ++pairs;
    }
};

void labels_of(const sched::machine* m, label_text& into) noexcept {
    const sched::goroutine* g = m->current.load(std::memory_order_relaxed);
    // A goroutine that has ended may have given its labels back.
    if (g == nullptr || g->extra == nullptr ||
        g->state.load(std::memory_order_relaxed) != sched::goroutine_state::running)
        return;
    for (const auto& [key, value] : g->extra->labels) into.add(key, value);
    if (m->in_runtime.load(std::memory_order_relaxed) == 0 && !g->extra->name.empty()) into.add("name", g->extra->name);
}

void count(state& s, const stack::trace& frames, const label_text& with, std::uint64_t n) noexcept {
    likeness l;
    for (std::size_t i = 0; i < frames.size; ++i) l.add(frames.pc[i]);
    l.add(std::string_view(with.text, with.size));
    const std::uint64_t key = l.key() | 1;
    entry* table = s.table.load(std::memory_order_acquire);
    for (std::size_t at = key & (places - 1), looks = 0; looks < places; at = (at + 1) & (places - 1), ++looks) {
        entry& e = table[at];
        std::uint64_t there = e.key.load(std::memory_order_relaxed);
        if (there == 0 && s.used.load(std::memory_order_relaxed) >= most) break;
        if (there == 0 && e.key.compare_exchange_strong(there, key, std::memory_order_relaxed)) {
            s.used.fetch_add(1, std::memory_order_relaxed);
            e.frames.size = frames.size;
            std::copy_n(frames.pc, frames.size, e.frames.pc);
            std::memcpy(e.text, with.text, with.size);
            e.labels = with.pairs;
            e.ready.store(true, std::memory_order_release);
            there = key;
        }
        if (there != key) continue;
        e.count.fetch_add(n, std::memory_order_relaxed);
        return;
    }
    s.others.fetch_add(n, std::memory_order_relaxed);
}

void pass_on(const struct sigaction& before, int signal, siginfo_t* info, void* context) noexcept {
    if (before.sa_flags & SA_SIGINFO) {
        if (before.sa_sigaction != nullptr) before.sa_sigaction(signal, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(signal);
    }
}

// A handler that the program installed between two profiles may itself pass on signals that are not its own, to our
// handler, which it found installed. Then ours runs twice for one signal, the second time deeper in the stack, and
// passes the signal to the handler before both. Nothing has to be undone here, so a handler may leave by siglongjmp().
// initial-exec: the first access in a handler must not allocate.
struct signal_passed_on {
    const void *context, *frame;
};
[[gnu::tls_model("initial-exec")]] thread_local constinit signal_passed_on passed{};

void on_sample(int signal, siginfo_t* info, void* context) {
    state& s = *for_handlers.load(std::memory_order_acquire);
    const int kept = errno;
    if (info->si_code != SI_TIMER || info->si_value.sival_ptr != &s) {
        const void* const frame = __builtin_frame_address(0);
        const bool comes_back = passed.context == context && frame < passed.frame;
        if (!comes_back) passed = {context, frame};
        // Acquire pairs with the release in install_handler(): without it the record may be read half-written.
        pass_on(*(comes_back ? s.first : s.before).load(std::memory_order_acquire), signal, info, context);
    } else if (s.on.load(std::memory_order_relaxed)) {
        stack::trace frames;
        label_text with;
        sched::machine* m = sched::own_machine();
        if (m != nullptr && !m->in_thread_call.load(std::memory_order_relaxed)) {
            sched::unwind_interrupted(m, context, frames);
            labels_of(m, with);
        } else {
            frames.pc[0] = reinterpret_cast<void*>(stack::interrupted_pc(context) + 1);
            frames.size = 1;
        }
        count(s, frames, with, 1 + static_cast<std::uint64_t>(std::max(info->si_overrun, 0)));
    }
    errno = kept;
}

// Under `changes`. A handler that is replaced again and again is kept once: a record cannot be freed, since our handler
// may read it.
const struct sigaction* record_of(state& s, const struct sigaction& handler) {
    const auto same = [&](const struct sigaction& a) {
        // With SA_SIGINFO set it is the other member of the union, which has the same bytes.
        return a.sa_flags == handler.sa_flags && a.sa_handler == handler.sa_handler;
    };
    const auto found = std::find_if(s.replaced.begin(), s.replaced.end(), same);
    return found != s.replaced.end() ? &*found : &s.replaced.emplace_front(handler);
}

// The program may have installed another handler since the last profile.
void install_handler(state& s) {
    struct sigaction now {};
    sigaction(SIGPROF, nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_sample) return;
    const struct sigaction* const before = record_of(s, now);
    // Release pairs with the acquire in on_sample().
    if (s.first.load(std::memory_order_relaxed) == nullptr) s.first.store(before, std::memory_order_release);
    s.before.store(before, std::memory_order_release);
    for_handlers.store(&s, std::memory_order_release);
    struct sigaction ours {};
    ours.sa_sigaction = on_sample;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigfillset(&ours.sa_mask);
    sigaction(SIGPROF, &ours, nullptr);
}

// ---- timers ---------------------------------------------------------------------------------------------------------

// The CPU clock of a thread of this process, as the kernel numbers such clocks.
clockid_t cpu_clock_of(pid_t tid) noexcept {
    constexpr int scheduler_clock = 2, per_thread = 4;
    return static_cast<clockid_t>(~static_cast<unsigned>(tid) << 3 | scheduler_clock | per_thread);
}

// Under timers_lock. If the thread is gone, or this user may have no more timers (ulimit -i), the thread is not
// sampled.
void add_timer(state& s, pid_t tid) {
    for (const thread_timer& t : s.timers) {
        if (t.tid == tid) return;
    }
    sigevent how{};
    how.sigev_notify = SIGEV_THREAD_ID;
    how.sigev_signo = SIGPROF;
    how.sigev_value.sival_ptr = &s;
#ifdef sigev_notify_thread_id
    how.sigev_notify_thread_id = tid;
#else
    how._sigev_un._tid = tid;
#endif
    s.timers.reserve(s.timers.size() + 1);
    timer_t timer;
    if (timer_create(cpu_clock_of(tid), &how, &timer) != 0) return;
    const long period_ns = 1'000'000'000 / static_cast<long>(s.hz);
    itimerspec every{};
    every.it_interval.tv_sec = every.it_value.tv_sec = period_ns / 1'000'000'000;
    every.it_interval.tv_nsec = every.it_value.tv_nsec = period_ns % 1'000'000'000;
    timer_settime(timer, 0, &every, nullptr);
    s.timers.push_back({tid, timer});
}

struct close_directory {
    void operator()(DIR* d) const noexcept { closedir(d); }
};

// Under timers_lock.
void add_all_threads(state& s) {
    const std::unique_ptr<DIR, close_directory> threads(opendir("/proc/self/task"));
    if (threads == nullptr) return;
    while (const dirent* d = readdir(threads.get())) {
        pid_t tid = 0;
        const char* end = d->d_name + std::strlen(d->d_name);
        if (std::from_chars(d->d_name, end, tid).ptr == end && tid > 0) add_timer(s, tid);
    }
}

// Under timers_lock.
void end_sampling(state& s) noexcept {
    for (const thread_timer& t : s.timers) timer_delete(t.timer);
    s.timers.clear();
    s.on.store(false, std::memory_order_relaxed);
}

bool make_table(state& s) noexcept {
    if (s.table.load(std::memory_order_relaxed) == nullptr) {
        void* memory = platform::reserve(places * sizeof(entry));
        if (memory == nullptr) return false;
        s.table.store(static_cast<entry*>(memory), std::memory_order_release);  // all zero
    }
    entry* table = s.table.load(std::memory_order_relaxed);
    for (std::size_t i = 0; i < places && s.used.load(std::memory_order_relaxed) != 0; ++i) {
        entry& e = table[i];
        if (e.key.load(std::memory_order_relaxed) == 0) continue;
        e.ready.store(false, std::memory_order_relaxed);
        e.count.store(0, std::memory_order_relaxed);
        e.key.store(0, std::memory_order_relaxed);
    }
    s.used.store(0, std::memory_order_relaxed);
    s.others.store(0, std::memory_order_relaxed);
    return true;
}

profile::labels labels_in(const entry& e) {
    profile::labels result;
    const char* at = e.text;
    for (unsigned i = 0; i < e.labels; ++i) {
        const std::string key = at;
        at += key.size() + 1;
        const std::string value = at;
        at += value.size() + 1;
        result.emplace_back(key, value);
    }
    return result;
}

}  // namespace

void profile_machine_thread(bool begins) noexcept {
    state* made = for_handlers.load(std::memory_order_acquire);
    if (made == nullptr) return;
    state& s = *made;
    const pid_t tid = platform::thread_id();
    const std::lock_guard guard(s.timers_lock);
    if (begins) {
        try {
            if (s.on.load(std::memory_order_relaxed)) add_timer(s, tid);
        } catch (const std::bad_alloc&) {
        }
        return;
    }
    std::erase_if(s.timers, [tid](const thread_timer& t) { return t.tid == tid && timer_delete(t.timer) == 0; });
}

}  // namespace dunlin::observe

namespace dunlin::inline v0_1::runtime {

void start_cpu_profile(unsigned hz) {
    if (hz < 1 || hz > 1000)
        throw std::invalid_argument(
            "dunlin::runtime::start_cpu_profile: hz " + std::to_string(hz) + " is not between 1 and 1000");
    sched::start_runtime();
    observe::state& s = observe::the();
    const std::lock_guard guard(s.changes);
    if (s.on.load(std::memory_order_relaxed)) {
        throw std::system_error(std::make_error_code(std::errc::device_or_resource_busy),
            "dunlin::runtime::start_cpu_profile: one runs already");
    }
    // the unwinder's first call sets it up, under a lock
    [[maybe_unused]] static const stack::trace first = stack::capture_trace();
    if (!observe::make_table(s)) throw std::bad_alloc();
    observe::install_handler(s);
    const sched::unstoppable_section section;  // threads that begin take this lock
    const std::lock_guard timers(s.timers_lock);
    s.hz = hz;
    s.began_ns = platform::now_ns();
    s.on.store(true, std::memory_order_relaxed);
    try {
        observe::add_all_threads(s);
    } catch (const std::bad_alloc&) {
        observe::end_sampling(s);
        throw;
    }
}

void stop_cpu_profile(std::ostream& out, profile_format format) {
    observe::state& s = observe::the();
    const std::lock_guard guard(s.changes);
    if (!s.on.load(std::memory_order_relaxed)) return;
    std::uint64_t period_ns;
    {
        const sched::unstoppable_section section;
        const std::lock_guard timers(s.timers_lock);
        observe::end_sampling(s);
        period_ns = 1'000'000'000 / s.hz;
    }
    const auto duration_ns = static_cast<std::uint64_t>(platform::now_ns() - s.began_ns);
    const bool as_text = format == profile_format::text;
    std::optional<observe::profile> p;
    if (!as_text)
        p.emplace(observe::profile::types{{"samples", "count"}, {"cpu", "nanoseconds"}}, period_ns, duration_ns);
    std::string text = "cpu profile: period " + std::to_string(period_ns) + " ns\n";
    const observe::entry* table = s.table.load(std::memory_order_relaxed);
    const auto add = [&](const stack::trace& frames, std::uint64_t n, const observe::profile::labels& with,
                         std::string_view otherwise) {
        if (as_text) {
            observe::append_sample(text, std::to_string(n), frames, with);
        } else {
            p->add(frames, otherwise, {n, n * period_ns}, with);
        }
    };
    for (std::size_t i = 0; i < observe::places; ++i) {
        const observe::entry& e = table[i];
        const std::uint64_t n = e.count.load(std::memory_order_relaxed);
        if (n != 0 && e.ready.load(std::memory_order_acquire))
            add(e.frames, n, observe::labels_in(e), "(dunlin's runtime)");
    }
    if (const std::uint64_t n = s.others.load(std::memory_order_relaxed)) add({}, n, {}, "(others: the table is full)");
    if (p) text = p->finish();
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
}

}  // namespace dunlin::runtime
