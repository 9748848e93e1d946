// world.h - virtual threads, of which one runs at a time, and the moments at which another may.
//
// Data       A virtual thread has a stack, its part of the memory (memory_of.h) and the operation that it is about to
//            do: it has stopped just before it. Everything after that, up to the next operation that others can notice,
//            is part of the same step. So a schedule is a list of choices between steps, and nothing else decides.
// Steps      Each atomic access, fence and futex call, each heavy barrier. Not steps, since their order among others
//            makes no difference: a store into the thread's own buffer, a load out of it, the clock, a plain variable
//            (its clocks show a race, in whatever order the two accesses come).
// Buffers    The oldest store of a buffer becomes visible as a step of its own, at any time.
// Heavy      A heavy barrier waits until each other thread's buffer has once had no issued store. (cxx: all at one
//            moment.)
// Futex      Sleepers are woken in the order in which they came. A sleep with a deadline may end at any time: nothing
//            is known of time, which jumps there.
// Loops      A loop that waits calls pause(). If nothing has become visible since the thread's previous pause, this one
//            waits for that. (cxx: the thread then also sees the newest values of what it has looked at: memory is fair
//            in the end.)
// Time       In a whole program (settings::whole) time passes: each step takes a little of it, a pause more, and where
//            no thread can go on time jumps to the earliest deadline. Every `steps_between_jumps` steps it may jump
//            there although threads could go on, if the deadline is near: as if those were kept from their CPUs for
//            that long, 20 ms in all. A store would have left its buffer by then, so time jumps only while all buffers
//            are empty.
// Signals    (settings::signals) A signal arrives between two operations of the thread that it is for. The handler that
//            the process has installed is called there, on the thread's own stack, with all of the thread's stores
//            visible: an interrupt is a fence. How many operations later than it could the signal arrives is drawn. A
//            sleeper gets it when it wakes.
// Whole      Executions of a whole program do not begin at its beginning. Threads that the case names prepare
//            everything, in one order, up to prepared(); executions go on from there (forked.h). Threads that were
//            started meanwhile need not end.
// Ends       All threads have ended and all buffers are empty: the execution holds, if what must be true then is true.
//            No step is possible: the threads wait for ever. Too many steps: it does not end. A failure ends the
//            execution where it stands; its stacks are given up, and what lies on them is not destroyed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/simulated.h"
#include "explorer/carried.h"
#include "explorer/memory_of.h"
#include "explorer/types.h"

namespace dunlin::inline v0_1::explorer {

struct settings {
    memory model = memory::tso;
    std::size_t max_steps = 20'000;    // of an execution
    std::size_t buffer = 8;            // stores that a buffer holds
    bool times_out = true;             // a sleep may end by its deadline while other steps are possible
    bool whole = false;                // a whole program: see Time and Whole
    bool more_threads = true;          // of it: threads can be started after prepared()
    bool signals = false;              // of it: signals that are sent arrive; else they are lost
    bool punctual = false;             // of it: no thread is kept from its CPU for longer than others take for steps
};

class world final : public platform::simulation {
public:
    explicit world(const settings& s);
    ~world();

    // Executes `threads` once. `names` of places are for the story only.
    struct thread_body {
        std::string name;
        std::function<void()> run;
    };
    struct named {
        std::uintptr_t from;
        std::size_t size;
        std::string name;
    };
    struct outcome {
        std::string failure;            // empty: none
        std::size_t steps = 0;
        std::uint64_t hash = 0;         // of all that was chosen and done
        bool gave_up = false;           // the strategy did not want to go on
        std::vector<choice> choices;
    };
    outcome execute(strategy& s, std::vector<thread_body> threads, std::vector<named> names, std::string* story);
    // For a whole program: prepare() executes up to prepared(), go_on() from there to the end, once. While no thread
    // can do anything, the check returns what is wrong, or nothing; it runs outside of the simulation.
    using quiet_check = std::function<std::string()>;
    outcome prepare(std::vector<thread_body> threads, std::vector<named> names, quiet_check when_quiet);
    outcome go_on(strategy& s, std::string* story);

    // Called by virtual threads.
    void require(bool condition, std::string_view what);
    // The process ends here, as it should: the execution holds.
    [[noreturn]] void end_process() noexcept { leave_for_good(); }
    void plain_access(const void* at, bool writes, const char* name, const std::source_location& where);
    unsigned current_thread() const noexcept { return current_; }
    // Returns when no other thread can do anything until time passes. The first time, executions begin here.
    void prepared();
    // Sleeps in a system call for this long.
    void sleep_in_kernel(std::int64_t ns);
    // Computes for this long.
    void compute(std::int64_t ns);
    // Whether the calling thread is in a function of libc, as a handler sees it. Returns the value before.
    bool set_in_libc(bool is) { return std::exchange(me().in_libc, is); }
    // The calling thread is in code that is simulated, not in the simulation's own.
    bool is_in_program() const noexcept {
        return inside_ && !preparing_ && current_ < threads_.size() && threads_[current_]->calls == 0;
    }

    std::uint64_t load(
        const void* at, unsigned size, std::memory_order order, const std::source_location& where) override;
    void store(void* at, unsigned size, std::uint64_t value, std::memory_order order,
        const std::source_location& where) override;
    std::uint64_t modify(void* at, unsigned size, platform::change what, std::uint64_t operand, std::memory_order order,
                         const std::source_location& where) override;
    bool compare_exchange(void* at, unsigned size, std::uint64_t& expected, std::uint64_t wanted,
        std::memory_order success, std::memory_order failure, const std::source_location& where) override;
    void reborn(const void* at) noexcept override;
    void fence(std::memory_order order, const std::source_location& where) noexcept override;
    void light_barrier(const std::source_location& where) noexcept override;
    void heavy_barrier(const std::source_location& where) noexcept override;
    bool futex_wait(const void* word, std::uint32_t expected, std::int64_t deadline_ns,
                    const std::source_location& where) noexcept override;
    void futex_wake(const void* word, int count, const std::source_location& where) noexcept override;
    void pause() noexcept override;
    std::int64_t now_ns() noexcept override { return now_ns_; }
    int thread_id() noexcept override { return 1000 + static_cast<int>(current_); }
    int start_thread(void* (*entry)(void*), void* argument) noexcept override;
    void name_thread(const char* name) noexcept override {
        const call here(*this);
        me().name = name;
    }
    thread_look look_at(int thread_id) noexcept override;
    unsigned count_threads() noexcept override;
    unsigned cpus() noexcept override { return 2; }
    int looks(int set) noexcept override { return settings_.punctual ? set : 1; }
    int current_cpu() noexcept override { return static_cast<int>(current_ % cpus()); }
    void send_signal(int thread_id, int signal) noexcept override;
    bool system_call(long number, const long (&arguments)[6], long& result) noexcept override;
    [[noreturn]] void failed(std::string_view what) noexcept override;

private:
    enum class condition : std::uint8_t { ready, asleep, at_barrier, ended };

    struct virtual_thread : carried {
        thread_memory memory;
        condition is = condition::ready;
        operation next;
        std::uint32_t waits_for = 0;      // barrier: threads whose buffers have not been empty yet
        std::uintptr_t sleeps_on = 0;
        std::int64_t deadline_ns = 0;
        std::uint64_t came = 0;           // order of falling asleep
        bool timed_out = false;
        std::uint64_t paused_at = ~std::uint64_t{0};  // the number of writes at its last pause
        std::vector<std::uintptr_t> looked_at;        // since then
        std::int64_t pauses_until_ns = 0, pause_ns = 0;  // whole programs: the wait for others ends by itself
        std::int64_t cpu_ns = 0;
        std::uint64_t slept = 0;
        bool computes = false;                        // compute(): it does not wait for others
        int signal = 0;                               // sent to it, and not yet arrived; 0: none
        unsigned signal_after = 0;                    // operations left until the signal arrives
        bool in_handler = false, in_libc = false;
        unsigned calls = 0;                           // calls of the simulation that it is in
        bool may_stay = false;                        // started by others: need not end
    };

    struct race_record {
        unsigned writer = 0;
        std::uint32_t written = 0;
        std::source_location write_place;
        vector_clock read{};
        std::array<std::source_location, max_threads> read_places;
    };

    virtual_thread& me() noexcept { return *threads_[current_]; }
    // While this lives, the calling thread is in the simulation's own code: what is allocated there is the
    // simulation's.
    class call {
    public:
        explicit call(world& w) noexcept : thread_(w.current_ < w.threads_.size() ? &w.me() : &w.outside_thread_) {
            ++thread_->calls;
        }
        ~call() { --thread_->calls; }
        call(const call&) = delete;

    private:
        virtual_thread* thread_;
    };
    void add_thread(std::string name, std::function<void()> run);
    [[noreturn]] static void thread_entry() noexcept;
    void step(operation op);
    // A signal for the calling thread arrives here if it is time.
    void take_signal();
    [[noreturn]] void end_thread() noexcept;
    // step() at a variable.
    void step_at(const void* at, unsigned size, operation op);
    // A point that the compiler moves nothing across.
    void issue_point(const std::source_location& where);
    void schedule();
    bool can_run(const virtual_thread& t) const noexcept;
    void collect();
    void collect_times(bool others_can, bool one_is_kept);
    bool settle();
    std::string what_is_wrong() const;
    std::int64_t sleeps_until(const virtual_thread& t) const noexcept;
    void end_sleep(unsigned thread);
    bool is_over() const noexcept;
    void pass_time(std::int64_t ns) noexcept;
    bool make_visible(unsigned thread);
    void switch_to(unsigned thread);
    [[noreturn]] void leave_for_good() noexcept;
    void enter_kernel(const void* word, action what, const std::source_location& where);
    void note_write() noexcept { ++writes_; }
    void buffer_changed(unsigned thread) noexcept;
    std::string why_nothing_happens() const;
    void mix(std::uint64_t value) noexcept;

    // The story.
    std::string name_of(std::uintptr_t address) const;
    std::string text_of(std::uint64_t value) const;
    void tell(const std::source_location& where, const std::string& what);
    void tell_of(unsigned thread, const std::source_location& where, const std::string& what);

    settings settings_;
    shared_memory memory_;
    std::vector<std::unique_ptr<virtual_thread>> threads_;
    std::vector<std::byte*> stacks_;
    std::vector<transition> possible_;
    std::vector<named> names_;
    std::unordered_map<std::uintptr_t, race_record> plain_;
    virtual_thread outside_thread_;
    strategy* strategy_ = nullptr;
    std::string* story_ = nullptr;
    outcome outcome_;
    unsigned current_ = 0;
    bool inside_ = false;
    bool preparing_ = false;
    quiet_check when_quiet_;
    std::int64_t wrong_since_ns_ = 0, jumped_ns_ = 0;
    bool may_jump_ = false;
    std::uint64_t writes_ = 0, sleeps_ = 0;
    std::int64_t now_ns_ = 0;
    std::size_t told_ = 0;
};

// The simulation that runs on this thread; null: none.
world* here() noexcept;

}  // namespace dunlin::explorer
