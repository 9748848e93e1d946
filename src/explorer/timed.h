// timed.h - the real runtime on virtual CPUs: how long things take where there are more CPUs than here.
//
// Order      Each virtual thread has a time of its own. The one whose time is earliest goes on, up to its next switch
//            point; among equals the one with the lowest number. So there is one order, no choice and no seed, and
//            memory is sequentially consistent.
// Costs      Each switch point moves its thread's time on, by costs.h.
// Lines      Cache lines have 64 bytes. A CPU has a copy of a line or has not. A CPU without one waits for all that
//            have asked earlier, and then for the line to come from another CPU. A plain store does not wait itself; a
//            fence or locked operation after it waits until it has left. Plain variables cost nothing, wherever they
//            are.
// CPUs       A thread that becomes runnable takes its last CPU if that is idle, else another idle one; else it waits,
//            and takes the CPU of the first thread whose slice is over. How long an idle CPU needs to run the thread
//            depends on how long the CPU was idle.
// Kernel     futex, membarrier (one at a time; each CPU that runs the program is interrupted), epoll with one lock,
//            eventfd and local sockets (timed_kernel.cpp). Other system calls are really made, and cost a call.
// Not here   two threads of one core, clock rates, caches that are full, memory's bandwidth, the kernel's own locks
//            except those two, signals.
// Where to   For each source line and object: how long CPUs waited there. Locks of the runtime: how long each was held.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "platform/simulated.h"
#include "explorer/carried.h"
#include "explorer/costs.h"
#include "explorer/lines.h"

namespace dunlin::inline v0_1::explorer {

enum class spent : std::uint8_t { work, plain, locked, lines, spinning, kernel, barriers, interrupted, count };

class timed final : public platform::simulation {
public:
    static constexpr unsigned most_cpus = lines::most_cpus;
    timed(const costs& c, unsigned cpus);
    ~timed();

    // Executes until `main` has returned. Returns what is wrong, or nothing.
    std::string execute(std::function<void()> main);

    // Called by virtual threads.
    void compute(std::int64_t ns);
    // What happens between the two is measured.
    void begin_measure();
    void end_measure();
    // Names what is at these addresses, for the report.
    void name(const void* from, std::size_t size, std::string text);

    struct place {
        std::string_view file;
        unsigned line = 0;
        std::uintptr_t object = 0;   // 0: on the heap; a small number: name_of() it; else the address
        std::uint64_t count = 0;
        std::int64_t moved_ns = 0, queued_ns = 0, spun_ns = 0, kernel_ns = 0;
        std::int64_t waited_ns() const noexcept { return moved_ns + queued_ns + spun_ns + kernel_ns; }
    };
    struct held_lock {
        std::uintptr_t object = 0;
        std::uint64_t count = 0;
        std::int64_t held_ns = 0, since_ns = 0;
    };
    struct measured {
        std::int64_t ns = 0;
        std::array<std::int64_t, static_cast<std::size_t>(spent::count)> times{};
        std::uint64_t steps = 0, barriers = 0, wakes = 0, polls = 0;
        std::vector<place> places;    // the longest waits first
        std::vector<held_lock> locks;
    };
    const measured& result() const noexcept { return result_; }
    const std::string& name_of(std::uintptr_t object) const { return names_[object - 1].text; }
    std::size_t count_names() const noexcept { return names_.size(); }

    std::uint64_t load(
        const void* at, unsigned size, std::memory_order order, const std::source_location& where) override;
    void store(void* at, unsigned size, std::uint64_t value, std::memory_order order,
        const std::source_location& where) override;
    std::uint64_t modify(void* at, unsigned size, platform::change what, std::uint64_t operand, std::memory_order order,
                         const std::source_location& where) override;
    bool compare_exchange(void* at, unsigned size, std::uint64_t& expected, std::uint64_t wanted,
        std::memory_order success, std::memory_order failure, const std::source_location& where) override;
    void reborn(const void*) noexcept override {}
    void fence(std::memory_order order, const std::source_location& where) noexcept override;
    void light_barrier(const std::source_location&) noexcept override {}
    void heavy_barrier(const std::source_location& where) noexcept override;
    bool futex_wait(const void* word, std::uint32_t expected, std::int64_t deadline_ns,
                    const std::source_location& where) noexcept override;
    void futex_wake(const void* word, int count, const std::source_location& where) noexcept override;
    void pause() noexcept override;
    std::int64_t now_ns() noexcept override;
    int thread_id() noexcept override;
    int start_thread(void* (*entry)(void*), void* argument) noexcept override;
    void name_thread(const char* name) noexcept override;
    thread_look look_at(int thread_id) noexcept override;
    unsigned count_threads() noexcept override;
    unsigned cpus() noexcept override { return static_cast<unsigned>(cpus_.size()); }
    int current_cpu() noexcept override { return me().cpu; }
    void send_signal(int thread_id, int signal) noexcept override;
    bool system_call(long number, const long (&a)[6], long& result) noexcept override;
    int looks(int set) noexcept override { return set; }
    [[noreturn]] void failed(std::string_view what) noexcept override;

private:
    enum class condition : std::uint8_t { runs, waits_for_cpu, asleep, ended };

    struct virtual_thread : carried {
        unsigned number = 0;
        condition is = condition::waits_for_cpu;
        int cpu = -1, last_cpu = -1;
        std::int64_t time_ns = 0;
        std::int64_t plain_ps = 0;           // not yet a nanosecond
        std::int64_t slice_ends_ns = 0;
        std::int64_t stores_leave_ns = 0;    // until then its stores are on their way
        std::uint64_t sleep_number = 0;      // of its sleep, or of its next one
        std::uintptr_t sleeps_on = 0;
        bool timed_out = false;
        std::int64_t cpu_ns = 0;
        std::uint64_t slept = 0;
        const void* looked_at = nullptr;     // the last access
        std::source_location looked_from;
    };
    struct virtual_cpu {
        int runs = -1;
        std::int64_t idle_since_ns = 0;
        std::int64_t owes_ns = 0;            // interrupts that its thread has not lost yet
    };
    // A thread on a CPU goes on, or a sleep ends.
    struct event {
        std::int64_t time_ns;
        unsigned thread;
        std::uint64_t sleep_number;          // 0: it goes on
        bool at_deadline;
        bool operator<(const event& o) const noexcept {  // the first one has the highest place in a heap
            return time_ns != o.time_ns ? time_ns > o.time_ns : thread > o.thread;
        }
    };
    struct named {
        std::uintptr_t from, to;
        std::uintptr_t number;
    };
    struct text_of_name {
        std::string text;
    };

    virtual_thread& me() noexcept { return *threads_[current_]; }
    void charge(spent what, std::int64_t ns) noexcept;
    // A system call.
    void charge_call(std::int64_t ns, const char* part,
        const std::source_location& where = std::source_location::current()) noexcept;
    void charge_wait(spent what, std::int64_t ns, std::int64_t place::*how, const char* part,
        const std::source_location& where = std::source_location::current()) noexcept;
    void name_parts();
    [[noreturn]] static void thread_entry() noexcept;
    unsigned add_thread(std::string name, std::function<void()> run, std::int64_t at_ns);

    // timed.cpp: order.
    void take_turn();                     // others whose time is earlier go first
    void go_on();                         // with the thread whose time is earliest
    void push(const event& e);
    void put_on_cpu(virtual_thread& t, int cpu, std::int64_t at_ns);
    void become_runnable(virtual_thread& t, std::int64_t at_ns);
    void leave_cpu(virtual_thread& t);
    int idle_cpu_for(const virtual_thread& t) const noexcept;
    void wake(virtual_thread& t, bool at_deadline, std::int64_t at_ns);
    // The thread sleeps until woken or the deadline (0: none).
    void sleep(std::int64_t deadline_ns);
    std::int64_t until_it_runs(const virtual_cpu& c, std::int64_t at_ns) const noexcept;

    // Memory.
    void access(const void* at, access_kind kind, const std::source_location& where);
    place& place_at(const void* at, const std::source_location& where);
    std::uintptr_t object_at(const void* at) const noexcept;
    void note_lock(const void* at, const std::source_location& where, bool taken);

    // timed_kernel.cpp: descriptors.
    struct message {
        std::string data;
        int cpu;                             // the one that has sent it
    };
    struct description {
        enum class kind : std::uint8_t { none, event, socket } is = kind::none;
        std::uint64_t counter = 0;           // event
        int peer = -1;                       // socket
        std::deque<message> received;        // what the peer has sent
        bool peer_closed = false;
        int watched_by = -1;                 // an epoll
        std::uint64_t tag = 0;
        std::uint32_t ready = 0;             // still to be reported
        bool listed = false;
    };
    struct epoll {
        std::deque<int> ready;
        std::vector<unsigned> sleepers;
        std::int64_t busy_until_ns = 0;
    };
    long make_pair(int* ends);
    long send(int fd, const void* data, std::size_t size);
    long receive(int fd, void* data, std::size_t size);
    long write_event(int fd);
    long poll_control(int epoll, int what, int fd, const void* event);
    long poll_wait(int epoll, void* events, int capacity, const void* timeout, bool sleeps);
    void make_ready(int fd, std::uint32_t what);
    void hold_poller(epoll& e, std::int64_t ns) noexcept;
    bool is_simulated(int fd) const noexcept;

    // What the kernel does, for the report: each member's address identifies it.
    struct kernel_parts {
        char send, receive, poll, poll_lock, event, pair, wake, sleep, barrier, other;
    } parts_{};

    const costs costs_;
    lines lines_;
    std::vector<virtual_cpu> cpus_;
    std::vector<std::unique_ptr<virtual_thread>> threads_;
    std::vector<event> events_;              // a heap
    std::deque<unsigned> waits_for_cpu_;
    std::unordered_map<std::uintptr_t, std::vector<unsigned>> sleepers_;
    std::int64_t barrier_until_ns_ = 0;
    carried outside_;
    unsigned current_ = 0;
    std::string failure_;

    std::vector<description> descriptions_;
    std::unordered_map<int, description> events_of_kernel_;
    std::unordered_map<int, epoll> polls_;

    bool measuring_ = false;
    std::int64_t measured_since_ns_ = 0;
    measured result_;
    std::unordered_map<std::uint64_t, place> places_;
    std::unordered_map<std::uintptr_t, held_lock> locks_;
    std::unordered_map<const char*, bool> files_of_locks_;
    std::vector<named> ranges_;
    std::vector<text_of_name> names_;
};

// The simulation of this kind that runs on this thread.
timed* timed_here() noexcept;

}  // namespace dunlin::explorer
