#include "api/exit.h"

#include <dunlin/detail/atomic.hpp>

#include "observe/report.h"
#include "platform/thread.h"
#include "platform/usable.h"
#include "sched/data/types.h"
#include "sched/preempt/lifetime.h"

namespace dunlin::inline v0_1::api {

void stop_at_exit() noexcept {
    // In the child of a fork only the forking thread exists: there is nothing to stop, and a wait would not end.
    const bool forked = platform::not_after_fork.load(std::memory_order_relaxed) != nullptr;
    if (sched::the_scheduler.started.load(std::memory_order_acquire) && !forked) sched::retire_world();
}

namespace {

// exit() destroys the exiting thread's thread_locals before it runs atexit handlers and destroys static objects. So an
// object of the main thread, and one of each thread that runs goroutines, stops the goroutines before the first static
// destructor can take anything away from them. Other threads that call exit() get as far as the handler.
struct stopper {
    bool armed = false;
    ~stopper() {
        if (armed) stop_at_exit();
    }
};
thread_local stopper thread_stopper;

}  // namespace

void arm_stopper() noexcept {
    if (platform::is_main_thread()) thread_stopper.armed = true;
}

void machine_thread(bool begins) noexcept {
    thread_stopper.armed = begins;
    observe::profile_machine_thread(begins);
}

}  // namespace dunlin::api
