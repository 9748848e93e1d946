// trace_file.cpp - <dunlin/trace.hpp>: traces and the recorder as files. Events: sched/machines/trace.h.
//
// Format     "DUNTRACE", then blocks: type and size in bytes (32 bits each, in this machine's byte order), content. A
//            file that ends in the middle of a block is read up to there.
//              info      JSON: version, clock, names of states and reasons
//              clock     ticks, nanoseconds of the monotonic and the wall clock: at both ends, and now and then between
//              events    source, thread, events lost before these (64 bits), events as in memory
//              place     number, "file:line", zero byte, function: before the first block that names it
//              since     of the recorder: two ticks; events before the first or after the second have gaps
//              end       text: why
//              who       number of a goroutine, its name: of goroutines that were named before the kept events
// Death      The last events are written without memory from the heap, perhaps in a signal handler: what the writing
//            thread has not written yet, or what the recorder has kept.
#include "observe/trace_file.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <ostream>
#include <source_location>
#include <stdexcept>
#include <sys/uio.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <dunlin/detail/atomic.hpp>
#include <dunlin/trace.hpp>

#include "observe/contention.h"
#include "observe/dump_json.h"
#include "observe/trace_sink.h"
#include "platform/clock.h"
#include "platform/environment.h"
#include "platform/futex.h"
#include "platform/thread.h"
#include "platform/usable.h"
#include "sched/data/bells.h"
#include "sched/data/all_goroutines.h"
#include "sched/data/hooks.h"
#include "sched/goroutines/goroutine.h"
#include "sched/machines/machine.h"
#include "sched/machines/processor.h"
#include "sched/machines/trace.h"
#include "sched/monitor/monitor.h"
#include "sched/preempt/lifetime.h"
#include "stack/trace.h"

namespace dunlin::inline v0_1::observe {

namespace {

namespace tracing = sched::tracing;

enum class block : std::uint32_t { info = 1, clock = 2, events = 3, place = 4, since = 5, end = 6, name = 7 };

// Set in the handler of a deadly signal: from then on without the heap, whose lock its thread may hold.
constinit platform::atomic<bool> the_process_dies{false};

// The parent's trace goes on, and the thread that writes it is not here.
bool in_child_of_fork() noexcept { return platform::not_after_fork.load(std::memory_order_relaxed) != nullptr; }

// ---- blocks ---------------------------------------------------------------------------------------------------------

// Copies memory of this process that may not be there any more, such as that of a library that was unloaded.
bool copy_carefully(void* to, const void* from, std::size_t bytes) noexcept {
    const iovec here{to, bytes}, there{const_cast<void*>(from), bytes};
    const ssize_t n = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
    if (n == static_cast<ssize_t>(bytes)) return true;
    if (n >= 0 || errno == EFAULT) return false;
    std::memcpy(to, from, bytes);  // the kernel does not let us ask
    return true;
}

// Up to the zero byte, or as much as there is room for.
std::size_t copy_text(char* to, std::size_t room, const char* from) noexcept {
    std::size_t size = 0;
    while (size < room) {
        // Pieces do not cross multiples of 64, and so not the end of a page: the next page may not be there.
        const std::size_t in_page = 64 - reinterpret_cast<std::uintptr_t>(from + size) % 64,
                          part = std::min(room - size, in_page);
        if (!copy_carefully(to + size, from + size, part)) break;
        const std::size_t length = strnlen(to + size, part);
        size += length;
        if (length != part) break;
    }
    return size;
}

class trace_writer {
public:
    explicit trace_writer(sink& to) noexcept : to_(to) {}

    bool good() const noexcept { return good_; }

    void begin(std::string_view info) noexcept {
        put("DUNTRACE", 8);
        add(block::info, info);
        clock();
    }
    void add(block type, std::string_view content) noexcept {
        const std::uint32_t head[2] = {static_cast<std::uint32_t>(type), static_cast<std::uint32_t>(content.size())};
        put(head, sizeof head);
        put(content.data(), content.size());
    }
    void clock() noexcept {
        timespec wall;
        clock_gettime(CLOCK_REALTIME, &wall);
        const std::uint64_t before = tracing::ticks();
        const std::int64_t now = platform::now_ns();
        const std::uint64_t after = tracing::ticks();
        const std::int64_t times[3] = {static_cast<std::int64_t>(before + (after - before) / 2), now,
            std::int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec};
        add(block::clock, {reinterpret_cast<const char*>(times), sizeof times});
    }
    void events(const tracing::view& v) noexcept {
        if (v.used == 0 && v.lost == 0) return;
        for (std::uint32_t i = 0; i < v.used; ++i) {
            const tracing::event& e = v.events[i];
            if (has_text(e.what)) {
                i += (e.turn + sizeof(tracing::event) - 1) / sizeof(tracing::event);
            } else if ((e.what == tracing::kind::park || e.what == tracing::kind::created ||
                           e.what == tracing::kind::existing) &&
                       e.arg != 0) {
                place(e.arg);
            }
        }
        const std::uint32_t before[4] = {v.source, static_cast<std::uint32_t>(v.tid),
            static_cast<std::uint32_t>(v.lost), static_cast<std::uint32_t>(v.lost >> 32)};
        const std::size_t bytes = v.used * sizeof(tracing::event);
        const std::uint32_t head[2] = {
            static_cast<std::uint32_t>(block::events), static_cast<std::uint32_t>(sizeof before + bytes)};
        put(head, sizeof head);
        put(before, sizeof before);
        put(v.events, bytes);
    }
    void end(std::string_view why) noexcept {
        clock();
        add(block::end, why);
    }
    void name_of(std::uint64_t id, std::string_view name) noexcept {
        char room[8 + tracing::longest_text];
        name = name.substr(0, tracing::longest_text);
        std::memcpy(room, &id, 8);
        std::memcpy(room + 8, name.data(), name.size());
        add(block::name, {room, 8 + name.size()});
    }

private:
    static bool has_text(tracing::kind k) noexcept {
        using enum tracing::kind;
        return k == name || k == region || k == task || k == message;
    }
    void put(const void* from, std::size_t bytes) noexcept { good_ = good_ && to_.write(from, bytes); }

    // Writes each place once, as long as there is room to remember the places.
    void place(std::uint64_t key) noexcept {
        for (std::size_t i = key * 0x9e3779b97f4a7c15u >> 52, looks = 0; looks < 32;
             i = (i + 1) % known_places, ++looks) {
            if (known_[i] == key) return;
            if (known_[i] != 0) continue;
            known_[i] = key;
            break;
        }
        struct raw_place {
            const char* file;
            const char* function;
            unsigned line, column;
        } at{};
        char room[8 + 1000];
        std::memcpy(room, &key, 8);
        std::size_t size = 8;
        if (const void* code = std::bit_cast<sched::creation_place>(key).code()) {
            platform::text_writer out(-1);
            stack::print_symbol(out, code, !the_process_dies.load(std::memory_order_relaxed));
            // "worker(int) at app.cpp:17"
            const std::string_view text = out.view();
            const std::size_t middle = text.rfind(" at ");
            const std::string_view function = text.substr(0, middle),
                                   line = middle == text.npos ? std::string_view() : text.substr(middle + 4);
            size += line.copy(room + size, 400);
            room[size++] = 0;
            size += function.copy(room + size, 500);
        } else if (copy_carefully(&at, reinterpret_cast<const void*>(key), sizeof at)) {
            size += copy_text(room + size, 400, at.file);
            platform::text_writer out(-1);
            out << ':' << at.line;
            size += out.view().copy(room + size, 20);
            room[size++] = 0;
            size += copy_text(room + size, 500, at.function);
        }
        add(block::place, {room, size});
    }

    static constexpr std::size_t known_places = 4096;
    sink& to_;
    bool good_ = true;
    std::uint64_t known_[known_places] = {};
};

void info_of(std::string& into, const char* mode) {
    platform::text_writer out(into);
    char program[1024];
    const ssize_t size = readlink("/proc/self/exe", program, sizeof program);
    out << "{\"version\": 1, \"mode\": \"" << mode
        << "\", \"cycles\": " << (tracing::ticks_are_cycles() ? "true" : "false") << ", \"pid\": " << getpid()
        << ", \"max_procs\": " << sched::the_scheduler.max_procs.load(std::memory_order_relaxed) << ", \"program\": ";
    write_json_string(out, {program, size > 0 ? static_cast<std::size_t>(size) : 0});
    out << ", \"states\": [";
    for (std::uint8_t i = 0; i < sched::goroutine_state_count; ++i) {
        if (i != 0) out << ", ";
        write_json_string(out, name(static_cast<sched::goroutine_state>(i)));
    }
    out << "], \"reasons\": [";
    constexpr std::string_view reasons[] = {
#define DUNLIN_REASON(name, text, ...) text,
        DUNLIN_WAIT_REASONS(DUNLIN_REASON)
#undef DUNLIN_REASON
    };
    bool another = false;
    for (const std::string_view r : reasons) {
        if (std::exchange(another, true)) out << ", ";
        write_json_string(out, r);
    }
    out << "]}";
}

// ---- what runs ------------------------------------------------------------------------------------------------------

enum class mode : std::uint8_t { off, file, recorder };

// All fields are under `changes`, except where a comment says otherwise.
struct state {
    std::mutex changes;                        // taken by plain threads and goroutines; not in signal handlers
    platform::atomic<mode> what{mode::off};
    std::string info, path;
    unsigned files_left = 0, files = 0;
    std::int64_t next_file_ns = 0;             // the reporter
    platform::atomic<bool> asked{false};            // for a file, because of a slow region
    file_sink file;                            // used by the writing thread; `busy`
    std::unique_ptr<trace_writer> writer;      // the same
    std::unique_ptr<tracing::view> room;       // the same
    std::unique_ptr<trace_writer> last_writer; // of a recorder whose process dies
    platform::atomic<std::uint32_t> busy{0};
    platform::atomic<std::uint32_t> stop{0}, stopped{0};
};

platform::atomic<state*> made{nullptr};  // null until it is first wanted: a handler must not make it

state& the() {
    static state* s = [] {  // never destroyed: goroutines may outlive static objects
        auto* first = new state;
        made.store(first, std::memory_order_release);
        return first;
    }();
    return *s;
}

constexpr std::int64_t look_every_ns = 10'000'000, clock_every_ns = 1'000'000'000;

void take_busy(state& s, std::int64_t patience_ns) noexcept {
    const std::int64_t until = platform::real_now_ns() + patience_ns;
    std::uint32_t free = 0;
    while (!s.busy.compare_exchange_strong(free, 1, std::memory_order_acquire) && platform::real_now_ns() < until) {
        free = 0;
        platform::give_cpu_away();
    }
}

// Writes the full chunks. False: the file takes no more.
bool write_full(state& s) noexcept {
    take_busy(s, platform::time_max / 2);
    while (s.writer->good() && tracing::take_full(*s.room)) s.writer->events(*s.room);
    const bool good = s.writer->good();
    s.busy.store(0, std::memory_order_release);
    return good;
}

void write_main(void*) {
    state& s = the();
    sched::watching_threads.fetch_add(1);
    std::int64_t next_clock_ns = platform::now_ns() + clock_every_ns;
    bool good = true;
    while (s.stop.load(std::memory_order_acquire) == 0) {
        if (good && !write_full(s)) {
            good = false;
            platform::text_writer(2) << "dunlin: the trace " << s.path << " ends here: " << std::strerror(s.file.error)
                                     << "\n";
        }
        const std::int64_t now = platform::now_ns();
        if (good && now >= next_clock_ns) {
            next_clock_ns = now + clock_every_ns;
            take_busy(s, platform::time_max / 2);
            s.writer->clock();
            s.busy.store(0, std::memory_order_release);
        }
        if (tracing::filled() < 32) platform::futex_wait_until(s.stop, 0, now + look_every_ns);
    }
    s.stopped.store(1, std::memory_order_release);
    platform::futex_wake(s.stopped);
    sched::watching_threads.fetch_sub(1);
}

constexpr platform::thread_kind writer_thread{write_main, "dunlin-trace"};

[[noreturn]] void throw_busy(const char* operation) {
    throw std::system_error(std::make_error_code(std::errc::device_or_resource_busy),
        std::string(operation) + ": a trace or the recorder runs already");
}

int open_file(const char* path) noexcept { return ::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644); }

void write_open_chunks(trace_writer& to, tracing::view& room) noexcept {
    tracing::look_at_open(room, [](void* w, const tracing::view& v) { static_cast<trace_writer*>(w)->events(v); }, &to);
}

void write_recorded(trace_writer& to, tracing::view& room, std::string_view why) noexcept {
    std::uint64_t at = 0;
    for (; tracing::look_at_full(at, room); ++at) to.events(room);
    const std::uint64_t until = tracing::ticks();
    write_open_chunks(to, room);
    // Chunks that have become full meanwhile, before they were looked at as open ones.
    for (; tracing::look_at_full(at, room); ++at) to.events(room);
    // After the chunks: what was overwritten meanwhile is missing.
    const std::uint64_t whole[2] = {tracing::complete_from(), until};
    to.add(block::since, {reinterpret_cast<const char*>(whole), sizeof whole});
    to.end(why);
}

// The world is stopped, since goroutines change their names.
void write_names(trace_writer& to) noexcept {
    sched::for_each_goroutine([&](const sched::goroutine& g) {
        const sched::goroutine_state now = g.state.load(std::memory_order_acquire);
        if (now == sched::goroutine_state::dead || g.extra == nullptr || g.extra->name.empty()) return;
        to.name_of(g.id, g.extra->name);
    });
}

// Throws std::bad_alloc.
std::string recorded(state& s, std::string_view why) {
    text_sink into;
    const auto writer = std::make_unique<trace_writer>(into);
    const auto room = std::make_unique<tracing::view>();
    writer->begin(s.info);
    text_sink names;
    const auto of_names = std::make_unique<trace_writer>(names);
    sched::stop_world();
    write_names(*of_names);
    sched::start_world();
    into.text += names.text;
    write_recorded(*writer, *room, why);
    if (!writer->good()) throw std::bad_alloc();
    return std::move(into.text);
}

void join_writer(state& s) noexcept {
    s.stop.store(1, std::memory_order_release);
    platform::futex_wake(s.stop);
    while (s.stopped.load(std::memory_order_acquire) == 0) platform::futex_wait(s.stopped, 0);
}

void begin_file(state& s, std::size_t room_for_events) {
    try {
        tracing::begin(room_for_events, false, count_waits_for_trace);
        s.info.clear();
        info_of(s.info, "file");
        s.writer->begin(s.info);
        s.busy.store(0, std::memory_order_release);
    } catch (...) {
        s.busy.store(0, std::memory_order_release);
        join_writer(s);
        throw;
    }
}

// Under `changes`.
void stop_file(state& s, std::string_view why) {
    if (s.what.load() != mode::file) return;
    tracing::finish(count_waits_for_trace);
    join_writer(s);
    write_full(s);
    write_open_chunks(*s.writer, *s.room);
    s.writer->end(why);
    s.what.store(mode::off);
    ::close(std::exchange(s.file.fd, -1));
}

// A trace that still runs when exit() is called. Its file stays without an end if a goroutine that run() has left was
// frozen in start() or stop().
void stop_file_at_exit() {
    [[maybe_unused]] static const int registered = std::atexit([] {
        if (in_child_of_fork()) return;
        state& s = the();
        const std::unique_lock guard(s.changes, std::try_to_lock);
        if (guard.owns_lock()) stop_file(s, "exit()");
    });
}

void start_file(const std::string& path) {
    state& s = the();
    sched::start_runtime();
    stop_file_at_exit();
    const std::lock_guard guard(s.changes);
    if (s.what.load() != mode::off) throw_busy("dunlin::trace::start");
    const int fd = open_file(path.c_str());
    if (fd < 0) throw std::system_error(errno, std::generic_category(), "dunlin::trace::start: " + path);
    s.file.fd = fd;
    s.file.error = 0;
    s.path = path;
    constexpr std::size_t room_for_events = std::size_t{32} << 20;
    try {
        s.writer = std::make_unique<trace_writer>(s.file);
        s.room = std::make_unique<tracing::view>();
        s.stop.store(0);
        s.stopped.store(0);
        // While `busy` is taken, the thread writes nothing before the head of the file, and no chunks of an earlier
        // trace.
        take_busy(s, platform::time_max / 2);
        if (const int error = platform::start_thread<writer_thread>(nullptr); error != 0) {
            s.busy.store(0, std::memory_order_release);
            throw std::system_error(error, std::generic_category(), "dunlin::trace::start");
        }
        begin_file(s, room_for_events);
    } catch (...) {
        ::close(std::exchange(s.file.fd, -1));
        throw;
    }
    s.what.store(mode::file, std::memory_order_release);
}

}  // namespace

void write_trace_of_death() noexcept {
    state* any = made.load(std::memory_order_acquire);
    if (any == nullptr || in_child_of_fork()) return;
    the_process_dies.store(true, std::memory_order_relaxed);
    state& s = *any;
    const mode what = s.what.load(std::memory_order_acquire);
    if (what == mode::off || (what == mode::recorder && s.path.empty())) return;
    constexpr std::int64_t patience_ns = 500'000'000;
    take_busy(s, patience_ns);  // and stays busy
    tracing::ignore_locks();
    tracing::wanted.store(0, std::memory_order_relaxed);
    constexpr std::string_view why = "the process has died";
    if (what == mode::file) {
        while (s.writer->good() && tracing::take_full(*s.room)) s.writer->events(*s.room);
        write_open_chunks(*s.writer, *s.room);
        s.writer->end(why);
        return;
    }
    s.file.fd = open_file(s.path.c_str());
    s.file.error = s.file.fd < 0 ? errno : 0;
    if (s.file.fd >= 0) {
        s.last_writer->begin(s.info);
        write_recorded(*s.last_writer, *s.room, why);
        ::close(s.file.fd);
    }
    platform::text_writer out(2);
    if (s.file.error == 0) {
        out << "dunlin: the flight recorder is in " << s.path << '\n';
    } else {  // only the number: libc may allocate for the text
        out << "dunlin: the flight recorder could not be written to " << s.path << ": errno " << s.file.error << '\n';
    }
}

// Under `changes`.
void write_slow_region_if_asked(state& s) noexcept {
    if (!s.asked.exchange(false) || s.what.load() != mode::recorder || s.path.empty()) return;
    const std::int64_t now = platform::now_ns();
    if (now < s.next_file_ns || s.files_left == 0) return;
    s.next_file_ns = now + 1'000'000'000;
    --s.files_left;
    try {
        const std::string path = ++s.files == 1 ? s.path : s.path + '.' + std::to_string(s.files);
        const std::string bytes = recorded(s, "a region was too slow");
        file_sink file;
        file.fd = open_file(path.c_str());
        bool good = file.fd >= 0 && file.write(bytes.data(), bytes.size());
        const int error = file.fd < 0 ? errno : file.error;
        if (file.fd >= 0) ::close(file.fd);
        platform::text_writer out(2, sched::maker_waits_for_stderr_ms);
        out << "dunlin: a region was too slow: ";
        if (good) {
            out << "the flight recorder is in " << path << '\n';
        } else {
            out << "the flight recorder could not be written to " << path << ": " << std::strerror(error) << '\n';
        }
    } catch (const std::bad_alloc&) {
    }
}

void ask_for_trace_of_slow_region() noexcept {
    state& s = the();
    if (s.what.load(std::memory_order_relaxed) != mode::recorder) return;
    if (!s.asked.exchange(true)) sched::want_report(sched::report_slow_region);
}

void write_trace_of_slow_region() noexcept {
    state& s = the();
    const std::unique_lock guard(s.changes, std::try_to_lock);  // else the recorder begins, or ends and writes it
    if (guard.owns_lock()) write_slow_region_if_asked(s);
}

void read_trace_setting() {
    const std::string_view text = platform::environment_text("DUNLIN_TRACE");
    if (text.empty()) return;
    constexpr std::string_view recorder = "recorder:";
    // Not yet: the runtime has not quite started.
    static std::string path;
    path = text.substr(0, recorder.size()) == recorder ? text.substr(recorder.size()) : text;
    static bool as_recorder = path.size() != text.size();
    sched::hooks.started = []() noexcept {
        try {
            if (as_recorder) {
                dunlin::trace::start_recorder({.file = path});
                std::atexit([] { write_trace_of_slow_region(); });  // waits for no lock: its holder may be frozen
            } else {
                dunlin::trace::start(path);
            }
        } catch (const std::exception& e) {
            platform::complain("DUNLIN_TRACE", path, e.what());
        }
    };
}

}  // namespace dunlin::observe

namespace dunlin::inline v0_1::trace {

using observe::mode;
using observe::the;

void start(const std::string& file) { observe::start_file(file); }

void stop() {
    observe::state& s = the();
    const std::lock_guard guard(s.changes);
    observe::stop_file(s, "stop()");
}

bool running() noexcept { return sched::tracing::on(); }

void start_recorder(const recorder_options& options) {
    observe::state& s = the();
    sched::start_runtime();
    const std::lock_guard guard(s.changes);
    if (s.what.load() != mode::off) observe::throw_busy("dunlin::trace::start_recorder");
    s.path = options.file;
    s.files_left = options.most_files;
    s.files = 0;
    s.next_file_ns = 0;
    s.asked.store(false);
    s.room = std::make_unique<sched::tracing::view>();
    s.last_writer = std::make_unique<observe::trace_writer>(s.file);
    sched::tracing::begin(options.bytes, true, observe::count_waits_for_trace);
    s.info.clear();
    observe::info_of(s.info, "recorder");
    s.what.store(mode::recorder, std::memory_order_release);
}

void stop_recorder() {
    observe::state& s = the();
    const std::lock_guard guard(s.changes);
    if (s.what.load() != mode::recorder) return;
    observe::write_slow_region_if_asked(s);  // if one was asked for a moment ago
    sched::tracing::finish(observe::count_waits_for_trace);
    s.what.store(mode::off);
}

void write_recorder(std::ostream& out) {
    observe::state& s = the();
    std::string bytes;
    {
        const std::lock_guard guard(s.changes);
        if (s.what.load() != mode::recorder)
            throw std::logic_error("dunlin::trace::write_recorder: the recorder does not run");
        bytes = observe::recorded(s, "write_recorder()");
    }
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace dunlin::trace
