// simulated.h - the seam: where a simulation takes the place of the operating system.
//
// In the simulation build (the preset `sim`) the platform's calls ask here first: on a thread that runs a simulation
// they go to the simulation, which gives each of its virtual threads (src/explorer) what a real one would get from the
// kernel. In every other build simulation_here() is a constant null, and the compiler leaves the question out. Atomic
// variables ask the same question (<dunlin/detail/checked_atomic.hpp>). This header is the only one besides
// <dunlin/detail/atomic.hpp> that asks which build it is.
#pragma once

#include <dunlin/detail/atomic.hpp>
#include <dunlin/detail/checked_atomic.hpp>

#include <cstdint>
#include <source_location>
#include <string_view>

namespace dunlin::inline v0_1::platform {

class simulation : public access_checker {
public:
    virtual void fence(std::memory_order order, const std::source_location& where) noexcept = 0;
    virtual void light_barrier(const std::source_location& where) noexcept = 0;
    virtual void heavy_barrier(const std::source_location& where) noexcept = 0;
    // False: the deadline passed. No deadline: 0.
    virtual bool futex_wait(const void* word, std::uint32_t expected, std::int64_t deadline_ns,
                            const std::source_location& where) noexcept = 0;
    virtual void futex_wake(const void* word, int count, const std::source_location& where) noexcept = 0;
    // Called by a loop that waits: other threads go on.
    virtual void pause() noexcept = 0;
    virtual std::int64_t now_ns() noexcept = 0;
    virtual int thread_id() noexcept = 0;
    // The calling thread says what it is.
    virtual void name_thread(const char* name) noexcept = 0;
    // What the kernel says about a thread.
    struct thread_look {
        bool runs = false;          // or waits for a CPU; false: it sleeps, or is gone
        std::int64_t cpu_ns = 0;
        std::uint64_t sleeps = 0;
    };
    virtual thread_look look_at(int thread_id) noexcept = 0;
    virtual unsigned count_threads() noexcept = 0;
    virtual unsigned cpus() noexcept = 0;
    virtual int current_cpu() noexcept = 0;
    virtual void send_signal(int thread_id, int signal) noexcept = 0;
    // A system call that has no function here. True: it has been made, and the last argument is its result.
    virtual bool system_call(long, const long (&)[6], long&) noexcept { return false; }
    // See platform::looks.
    virtual int looks(int) noexcept { return 1; }
    // 0, or the error of pthread_create.
    virtual int start_thread(void* (*entry)(void*), void* argument) noexcept = 0;
    // The process would end here.
    [[noreturn]] virtual void failed(std::string_view what) noexcept = 0;

protected:
    ~simulation() = default;
};

#if defined(DUNLIN_SIM)
inline constexpr bool may_be_simulated = true;
inline simulation* simulation_here() noexcept { return static_cast<simulation*>(checker_of_thread); }
#else
inline constexpr bool may_be_simulated = false;
constexpr simulation* simulation_here() noexcept { return nullptr; }
#endif

// How often a loop looks before it does something else: the number that it is set to, except in simulations. Where
// every order of steps is explored, a second look finds what the first one would have found in another order.
class looks {
public:
    constexpr explicit looks(int set) noexcept : set_(set) {}
#if defined(DUNLIN_SIM)
    operator int() const noexcept {
        simulation* s = simulation_here();
        return s != nullptr ? s->looks(set_) : set_;
    }
#else
    constexpr operator int() const noexcept { return set_; }
#endif

private:
    int set_;
};

}  // namespace dunlin::platform
