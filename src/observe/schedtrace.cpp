// schedtrace.cpp - DUNLIN_DEBUG=schedtrace=N[,scheddetail=1]: a line every N milliseconds on stderr, in the form of
// Go's GODEBUG of the same name; and dumpsignal=QUIT[,dumpformat=json]: a dump when the signal comes.
#include "observe/schedtrace.h"

#include <cerrno>
#include <csignal>
#include <string>

#include "observe/circles.h"
#include "observe/dump.h"
#include "observe/lost.h"
#include "observe/trace_file.h"
#include "platform/clock.h"
#include "platform/environment.h"
#include "sched/data/all_goroutines.h"
#include "sched/data/bells.h"
#include "sched/goroutines/goroutine.h"
#include "sched/machines/wake.h"
#include "sched/monitor/monitor.h"

namespace dunlin::inline v0_1::observe {

namespace {

using sched::the_scheduler;

std::int64_t started_ns = 0;
bool detail_wanted = false;
bool dumps_as_json = false;
char page_address[256] = "";

void write_processors(platform::text_writer& out) noexcept {
    const std::uint32_t made = the_scheduler.procs_made.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < made; ++i) {
        const sched::processor& p = *the_scheduler.processor_at(i);
        const sched::machine* m = p.owner.load(std::memory_order_acquire);
        out << "  P" << p.id << ": status=" << name(p.state.load(std::memory_order_relaxed)) << " schedtick="
            << p.tick.load(std::memory_order_relaxed) << " m=";
        if (m) {
            out << m->id;
        } else {
            out << "nil";
        }
        out << " runqsize=" << p.queue.size() << " runnext=" << (p.run_next.load(std::memory_order_relaxed) ? 1 : 0)
            << " gfreecnt=" << p.free_goroutine_count << '\n';
    }
}

void write_machines(platform::text_writer& out) noexcept {
    for (const sched::machine* m = the_scheduler.machines.load(std::memory_order_acquire); m; m = m->all_next) {
        const sched::processor* p = m->p.load(std::memory_order_relaxed);
        const sched::goroutine* g = m->current.load(std::memory_order_relaxed);
        out << "  M" << m->id << ": p=";
        if (p) {
            out << p->id;
        } else {
            out << "nil";
        }
        out << " curg=";
        if (g) {
            out << g->id;
        } else {
            out << "nil";
        }
        out << " spinning=" << (m->spinning ? "true" : "false") << " blocked=" << (!p && !g ? "true" : "false") << '\n';
    }
}

void write_states(platform::text_writer& out) noexcept {
    sched::for_each_goroutine([&](const sched::goroutine& g) {
        const sched::goroutine_state state = g.state.load(std::memory_order_acquire);
        if (state == sched::goroutine_state::dead || state == sched::goroutine_state::frozen) return;
        out << "  G" << g.id << ": status=" << name(state);
        if (state == sched::goroutine_state::waiting)
            out << '(' << name(g.reason.load(std::memory_order_relaxed)) << ')';
        out << '\n';
    });
}

// One schedtrace line, and with `detail` one for each P, M and G.
void write_trace(platform::text_writer& out, bool detail) noexcept {
    sched::scheduler& s = the_scheduler;
    const std::uint32_t word = s.idle_and_spinning.load(std::memory_order_relaxed);
    const std::uint32_t procs = s.max_procs.load(std::memory_order_relaxed);
    const std::uint32_t idle_threads = s.idle_machine_count;
    out << "SCHED " << (platform::now_ns() - started_ns) / 1'000'000 << "ms: gomaxprocs=" << procs
        << " idleprocs=" << sched::idle_count(word)
        << " threads=" << s.machine_count.load(std::memory_order_relaxed) + sched::monitor_threads()
        << " spinningthreads=" << sched::spinning_count(word) << " needspinning=0 idlethreads=" << idle_threads
        << " runqueue=" << s.global_size();
    if (detail)
        out << " gcwaiting=" << (s.stopping.load(std::memory_order_relaxed) ? "true" : "false")
            << " nmidlelocked=0 stopwait=0 sysmonwait=false\n";
    else out << " [";
    if (detail) {
        write_processors(out);
        write_machines(out);
        write_states(out);
        return;
    }
    for (std::uint32_t i = 0; i < procs; ++i) {
        if (i > 0) out << ' ';
        out << s.processor_at(i)->queue.size();
    }
    out << "]\n";
}

void print() {
    const std::uint32_t wanted = sched::take_reports();
    if (wanted & sched::report_schedtrace) {
        platform::text_writer out(2, sched::maker_waits_for_stderr_ms);
        write_trace(out, detail_wanted);
    }
    if (wanted & sched::report_dump) dump_to_stderr(dumps_as_json);
    if (wanted & sched::report_long_waits) report_circles();
    if (wanted & sched::report_slow_region) write_trace_of_slow_region();
}

// DUNLIN_DEBUG=deadlock: circles are looked for as soon as goroutines have waited for this long.
constexpr std::int64_t wait_in_deadlock_mode_ns = 10'000'000;

struct signal_name {
    std::string_view name;
    int number;
};
// Signals that a program can do without, and that a terminal or `kill` can send.
constexpr signal_name dump_signals[] = {{"QUIT", SIGQUIT}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"HUP", SIGHUP}};

bool keep_page_address(std::string_view address) noexcept {
    if (address.empty() || address.size() >= sizeof page_address) return false;
    page_address[address.copy(page_address, sizeof page_address - 1)] = 0;
    return true;
}

// False: there is no such signal.
bool dump_at_signal(std::string_view name) noexcept {
    if (name.substr(0, 3) == "SIG") name.remove_prefix(3);
    for (const signal_name& s : dump_signals) {
        if (s.name != name) continue;
        struct sigaction action {};
        action.sa_handler = [](int) {
            const int kept = errno;
            sched::call_monitor_to_dump();
            errno = kept;
        };
        action.sa_flags = SA_RESTART | SA_ONSTACK;
        return sigaction(s.number, &action, nullptr) == 0;
    }
    return false;
}

}  // namespace

const char* page_setting() noexcept { return page_address[0] != 0 ? page_address : nullptr; }

void read_debug_settings() {
    started_ns = platform::now_ns();
    std::string_view rest = platform::environment_text("DUNLIN_DEBUG");
    std::int64_t period_ms = 0, watch_period_ms = 0;
    while (!rest.empty()) {
        const std::size_t comma = rest.find(',');
        const std::string_view item = rest.substr(0, comma);
        rest = comma == rest.npos ? std::string_view() : rest.substr(comma + 1);
        const std::size_t equals = item.find('=');
        const auto value = platform::parse_number(equals == item.npos ? std::string_view() : item.substr(equals + 1));
        const std::string_view key = item.substr(0, equals);
        if (key == "schedtrace" && value && *value <= 3'600'000) {
            period_ms = static_cast<std::int64_t>(*value);
        } else if (key == "scheddetail" && value && *value <= 1) {
            detail_wanted = *value == 1;
        } else if (item == "deadlock") {
            sched::set_long_wait(wait_in_deadlock_mode_ns);
        } else if (key == "leaks" && (equals == item.npos || (value && *value >= 1 && *value <= 3'600'000))) {
            ask_for_lost_at_end();
            if (value) watch_period_ms = static_cast<std::int64_t>(*value);
        } else if (key == "dumpsignal" && equals != item.npos && dump_at_signal(item.substr(equals + 1))) {
        } else if (key == "dumpformat" && equals != item.npos &&
                   (item.substr(equals + 1) == "json" || item.substr(equals + 1) == "text")) {
            dumps_as_json = item.substr(equals + 1) == "json";
        } else if (key == "page" && equals != item.npos && keep_page_address(item.substr(equals + 1))) {
        } else {
            platform::complain("DUNLIN_DEBUG", item,
                "is not known (schedtrace=MILLISECONDS, scheddetail=0 or 1, dumpsignal=QUIT, USR1, USR2 or HUP, "
                "dumpformat=text or json, page=HOST:PORT, deadlock, leaks or leaks=MILLISECONDS)");
        }
    }
    sched::set_reporter(print);
    read_trace_setting();
    if (period_ms > 0) sched::set_schedtrace_period(period_ms);
    if (watch_period_ms > 0) watch_lost(watch_period_ms);
}

}  // namespace dunlin::observe
