#include "api/exit.h"

#include <dunlin/detail/atomic.hpp>

#include <cstdlib>
#include <unistd.h>

#include "observe/cpu_profile.h"
#include "platform/clock.h"
#include "platform/thread.h"
#include "platform/usable.h"
#include "sched/data/types.h"
#include "sched/goroutines/os_thread.h"
#include "sched/preempt/end_of_run.h"

namespace dunlin::inline v0_1::api {

namespace {

// Threads that are ending have no machine any more, or are about to give it up, and destroy what the program keeps for
// each thread: exit() must destroy no static object under them. It waits as long as their number falls, five seconds at
// most: a hundred threads on a busy CPU need longer than one, but a thread that calls exit() from such a destructor
// waits for itself.
constexpr std::int64_t patience_with_one_ns = 100'000'000, patience_with_all_ns = 5'000'000'000;
constexpr unsigned looks_apart_us = 50;

void wait_for_ending_threads() noexcept {
    static bool in_vain = false;  // the stopper has waited; the handler need not
    if (in_vain) return;
    const std::int64_t begin_ns = platform::real_now_ns();
    std::int64_t fell_ns = begin_ns;
    std::uint32_t fewest = ~std::uint32_t{0};
    for (;;) {
        // In this order: a thread is counted as ending before its machine is no longer counted.
        std::uint32_t left = sched::machines_to_end();
        left += platform::ending_thread_count();
        if (left == 0) return;
        const std::int64_t now_ns = platform::real_now_ns();
        if (left < fewest) {
            fewest = left;
            fell_ns = now_ns;
        }
        if (now_ns - fell_ns >= patience_with_one_ns || now_ns - begin_ns >= patience_with_all_ns) break;
        usleep(looks_apart_us);
    }
    in_vain = true;
}

}  // namespace

void stop_at_exit() noexcept {
    // In the child of a fork() only the forking thread exists: there is nothing to stop, and a wait would never end.
    const bool forked = platform::not_after_fork.load(std::memory_order_relaxed) != nullptr;
    if (!sched::the_scheduler.started.load(std::memory_order_acquire) || forked) return;
    sched::the_scheduler.exiting.store(platform::thread_id(), std::memory_order_relaxed);
    sched::end_run();
    wait_for_ending_threads();
}

namespace {

// exit() destroys the exiting thread's thread_locals before it runs atexit handlers and destroys static objects. So a
// thread_local object of the main thread, and of each thread that runs goroutines, stops the goroutines before the
// first static destructor can destroy anything that they use. If another thread calls exit(), they are stopped only in
// the atexit() handler.
struct stopper {
    bool armed = false;
    ~stopper() {
        if (armed) stop_at_exit();
    }
};
thread_local stopper thread_stopper;
thread_local constinit bool has_stopper = false;

// libc registers the destructor of a thread_local in memory that it allocates, and aborts if there is none. So a thread
// that begins when there is no memory has no stopper: its exit() stops the goroutines only in the handler, too. This
// function asks for more than libc needs, and for more than the thread would keep for itself. Other threads may take
// the memory before libc asks for it, so blocks of the size of libc's record are freed just before. glibc's allocator
// keeps the first seven for malloc() and the others for calloc(), which the registration calls, both for this thread's
// arena.
bool can_register() noexcept {
    constexpr int blocks = 9;
    constexpr std::size_t record = 4 * sizeof(void*);
    void* volatile room = std::malloc(4096);  // volatile: otherwise the compiler assumes that there is memory
    void* volatile kept[blocks];
    bool enough = room != nullptr;
    for (auto& block : kept) {
        block = std::malloc(record);
        enough &= block != nullptr;
    }
    std::free(room);
    for (const auto& block : kept) std::free(block);
    return enough;
}

}  // namespace

void arm_stopper() noexcept {
    if (platform::is_main_thread()) thread_stopper.armed = true;
}

void register_thread() noexcept {
    if (!has_stopper) has_stopper = can_register();
    if (has_stopper) thread_stopper.armed = true;
}

void machine_thread(bool begins) noexcept {
    if (has_stopper) thread_stopper.armed = begins;
    observe::profile_machine_thread(begins);
}

}  // namespace dunlin::api
