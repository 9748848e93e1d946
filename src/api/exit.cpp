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

// A thread that calls exit() from such a destructor waits for itself, so long.
static constexpr std::int64_t patience_with_thread_ends_ns = 100'000'000;

void stop_at_exit() noexcept {
    // In the child of a fork() only the forking thread exists: there is nothing to stop, and a wait would never end.
    const bool forked = platform::not_after_fork.load(std::memory_order_relaxed) != nullptr;
    if (!sched::the_scheduler.started.load(std::memory_order_acquire) || forked) return;
    sched::the_scheduler.exiting.store(platform::thread_id(), std::memory_order_relaxed);
    sched::end_run();
    // Threads that are ending have no machine any more, or are about to give it up, and destroy what the program keeps
    // for each thread. One time for both calls: of the stopper and of the handler.
    static const std::int64_t until_ns = platform::now_ns() + patience_with_thread_ends_ns;
    while (sched::some_machine_is_to_end() && platform::now_ns() < until_ns) usleep(50);
    platform::wait_for_thread_ends(until_ns);
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
