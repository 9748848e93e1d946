// simulation.h - one execution after the other, each decided by its seed: implements sched/data/steering.h for users
// (<dunlin/sim.hpp>).
//
// Who        The driver, which is the main goroutine of a run(), starts f in a goroutine of its own and parks. From
//            then to the end of the execution the machine that has the one processor decides, in choose() and point();
//            at the end it readies the driver. The set of goroutines that can run is kept here; what the runtime puts
//            into its queues is fetched at each decision.
// Phases     The machine sets idle, deciding and running. The monitor sets abandoned, from running only; after that
//            nothing here decides any more. Both leave running by compare-and-swap: that keeps the two apart.
// Failed     The goroutines of that execution stay where they are: in no queue, waiting, or computing. The end of run()
//            freezes them (end_of_run.cpp).
// Tests      tests/replay/
#pragma once

#include <dunlin/sim.hpp>

#include <dunlin/detail/atomic.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "replay/choices.h"
#include "replay/network.h"
#include "replay/story.h"
#include "sched/data/steering.h"

namespace dunlin::inline v0_1::replay {

// The outcome of an execution.
struct outcome {
    sim::failure_kind kind = sim::failure_kind::none;
    std::string message, details;
    std::uint64_t hash = 0, steps = 0;
    std::int64_t took_ns = 0;  // virtual
};

class simulation final : public sched::steering {
public:
    struct plan {
        std::uint64_t max_steps = 0;
        unsigned depth = 0;
        std::int64_t longest_delay_ns = 0, grace_ns = 0, patience_ns = 0;
        std::uint64_t max_memory = 0;  // bytes
        bool strict = false, warns = false;
        search* every_order = nullptr;
    };

    // Called by the driver, around its executions.
    void begin(const plan& p) noexcept;
    void end() noexcept;
    // One execution of f(with). If `tell`, the last choices are kept, with frames, from step `story_from` on.
    outcome execute(std::uint64_t seed, void (*f)(void*), void* with, bool tell, std::uint64_t story_from);

    std::uint64_t seed() const noexcept { return seed_; }
    // Called by the running goroutine. If every order is tried and `bound` is small, each number below it is tried.
    std::uint64_t draw(std::uint64_t bound) noexcept;
    // Waits until no other goroutine can run.
    void wait_for_others(const std::source_location& where) noexcept;
    // For the network: a number that is always drawn; and an accident, which is a detour where every order is tried.
    std::uint64_t drawn(std::uint64_t bound) noexcept;
    bool happens(double odds, std::uint64_t parts = 1 << 20) noexcept;
    bool tries_every_order() const noexcept { return choices_.every_order() != nullptr; }
    void stop_here(sim::failure_kind kind, std::string_view what) noexcept;
    network& net() noexcept { return network_; }
    host_number current_host() const noexcept;
    // For hosts; called by a goroutine outside the runtime. A host's goroutines never run again once it is off; the
    // caller may be one of them.
    void start_host(host_number h);
    void switch_off(host_number h);
    // For the network.
    std::int64_t virtual_now_ns() const noexcept { return now_ns_; }
    void fail_for_memory() noexcept {
        fail(sim::failure_kind::exception, "std::bad_alloc: no memory for the simulated network");
    }
    // How many executions have begun: it tells the handles of an earlier execution.
    std::uint64_t execution() const noexcept { return execution_; }

    sched::goroutine* choose(sched::machine* m, sched::processor* p) noexcept override;
    sched::machine* point(sched::machine* m) noexcept override;
    std::uint32_t choose_case(sched::machine* m, std::uint32_t count) noexcept override;
    void begin_call() noexcept override { sleep_in_call(); }
    void end_call() noexcept override { sleep_in_call(); }
    std::int64_t now_ns(const sched::machine* m) noexcept override;
    void watch(std::int64_t now_ns) noexcept override;
    void from_outside() noexcept override { outside_.store(true, std::memory_order_relaxed); }
    void outside(std::string_view what) noexcept override;
    void stop_here(std::string_view what) noexcept override;
    void print(platform::text_writer& out) const noexcept override;

private:
    static constexpr host_number no_host = ~host_number{0};
    enum class phase : std::uint32_t { idle, running, deciding, abandoned };

    void keep_monitor_away() noexcept;
    static void root_entry(void* raw);
    static void host_entry(void* raw);
    bool begin_decision() noexcept;
    void end_decision(phase next) noexcept;
    void take_machine(sched::machine* m, sched::processor* p) noexcept;
    std::uint64_t number_of(const sched::goroutine* g) const noexcept;
    candidate& known(const sched::goroutine* g) noexcept;
    void add(sched::goroutine* g, const sched::goroutine* by) noexcept;
    bool is_off(const sched::goroutine* g) const noexcept;
    sched::goroutine* take(std::size_t at) noexcept;
    void fetch(sched::processor* p, const sched::goroutine* by) noexcept;
    void fire_due() noexcept;
    sched::goroutine* decide(sched::machine* m, sched::processor* p) noexcept;
    std::int64_t next_event_ns() const noexcept;
    bool wait_for_time() noexcept;
    bool release_waiters_for_others() noexcept;
    bool count_step() noexcept;
    void look_at_memory() noexcept;
    std::size_t pick(const sched::goroutine* yields) noexcept;
    std::size_t pick_any(const sched::goroutine* yields) noexcept;
    void be_delayed(sched::processor* p) noexcept;
    bool leaves_for(sched::goroutine* self, std::size_t& next) noexcept;
    sched::goroutine* finish() noexcept;
    void fail(sim::failure_kind kind, std::string_view what) noexcept;
    void tell(const sched::goroutine* ran, leaving how, const sched::goroutine* next, std::int64_t jumped_ns) noexcept;
    void sleep_in_call() noexcept;
    void describe_waiters(platform::text_writer& out) noexcept;

    plan plan_;
    std::uint64_t seed_ = 0;
    void (*f_)(void*) = nullptr;
    void* with_ = nullptr;
    sched::goroutine* driver_ = nullptr;

    // Used by the machine that has the processor, and by the driver while no execution runs.
    choices choices_;
    choice_hash hash_;
    story story_;
    std::vector<candidate> known_;        // by the goroutine's id
    std::vector<sched::goroutine*> runnable_;
    std::vector<std::size_t> in_turn_;    // of pick_any()
    sched::goroutine* forced_ = nullptr;  // what point() has chosen
    std::vector<sched::goroutine*> wait_for_others_;  // goroutines in wait_for_others()
    const sched::machine* machine_ = nullptr;
    std::uint64_t first_id_ = 0;          // of f's goroutine
    std::uint64_t numbers_ = 0, steps_ = 0, yields_ = 0;
    std::int64_t now_ns_ = 0, root_ended_ns_ = 0;
    std::uint64_t memory_before_ = 0;     // the peak memory of the process at begin(), bytes
    bool outside_told_ = false;
    bool root_ended_ = false;
    std::uint64_t execution_ = 0;
    std::size_t off_ = 0;                 // goroutines of hosts that are off, in all executions since begin()
    host_number starts_ = no_host;        // the host whose main goroutine is being made
    network network_{*this};
    sim::failure_kind kind_ = sim::failure_kind::none;
    std::uint64_t failed_in_ = 0;         // the number of the goroutine; 0: none
    std::string message_;
    stack::trace failed_at_;

    platform::atomic<phase> phase_{phase::idle};
    platform::atomic<bool> outside_{false};
    // Read by the monitor, which may still be in watch() for the simulation before.
    platform::atomic<std::int64_t> patience_ns_{0};
    platform::atomic<std::uint64_t> progress_{0};
    platform::atomic<pid_t> tid_{0};
    std::uint64_t seen_progress_ = 0;
    std::int64_t seen_ns_ = 0, seen_cpu_ns_ = 0;
};

// There is one, never destroyed: a goroutine that was abandoned, or a plain thread, may still use it.
simulation& the_simulation() noexcept;

}  // namespace dunlin::replay
