// thread_maker.h - the thread that makes the others, and does for the monitor whatever may have to wait.
//
// Creating a thread allocates. A thread that waits for the allocator may wait for a goroutine that stands still with
// the allocator's lock. So neither the monitor nor a thread that has a processor which this goroutine needs may create
// threads. And a new thread copies its creator's affinity, name and namespaces, which a goroutine that is wired to its
// thread may have changed. This thread is as clean as the process was when the runtime started, but for its short
// turns, which the others want as well.
#pragma once

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// Once, at the start; false if there is no thread for it.
bool start_thread_maker() noexcept;

// Asks for one more machine, or several if many goroutines wait, and does not wait. It looks for a processor and work
// before it sleeps. Requests that come before the last one has been begun are one request, and so are those that a
// machine serves which has yet to look.
void want_spare_machine() noexcept;

// After a failure no thread is made for a tenth of a second. True, once: that time is over. The monitor then looks
// whether one is wanted.
bool spare_is_overdue(std::int64_t now_ns) noexcept;
// It is not over yet: the monitor must not go to sleep. Seq_cst, after its monitor_asleep = 1; pairs with the maker's
// store before the maker looks whether the monitor sleeps. Without it both miss a failure just then, and what needs the
// thread waits for ever.
bool spare_is_owed() noexcept;

// event_source::forget_lost(), for the monitor: it closes descriptors and frees memory.
void want_lost_forgotten() noexcept;
// let_owner_go() of frozen.h, for the monitor.
void want_owner_let_go() noexcept;
// Prints, for the monitor: what is behind stderr may be full. `print` stays the same.
void want_printed(void (*print)()) noexcept;

// 0 or 1, for the deadlock check.
unsigned thread_maker_threads() noexcept;

}  // namespace dunlin::sched
