// machine.h - threads that run goroutines: they are made on demand, sleep on a list when there is nothing to do, and
// are handed a processor when there is.
#pragma once

#include "sched/data/types.h"
#include "sched/machines/handshake.h"

namespace dunlin::inline v0_1::sched {

// On which CPU a woken thread should start: the kernel mostly starts it where it slept. `here`: its waker is about to
// sleep. `elsewhere`: its waker goes on.
enum class wake_place : std::uint8_t { anywhere, here, elsewhere };

// Gives `p` to a machine: an idle one, else a preempted one. If there is neither, p goes to the idle list and a thread
// is requested, which will look for it. `spinning`: the caller has already counted the machine as spinning. Never
// allocates, never waits.
void start_machine(processor* p, bool spinning, wake_place place) noexcept;

// The same for a processor that is given up at the beginning of a call. An idle machine is woken for it, but the first
// to come gets it: that machine, or a goroutine that returns from its own call meanwhile (catch_offered). The woken
// thread may have to wait for a CPU behind a hundred such goroutines; without an offer each of them would find no
// processor, queue, sleep and be woken again.
void offer_processor(processor* p) noexcept;
// Under the lock, for a goroutine that came back from a call without a processor: takes an offered one. Null: there is
// none. The same processor is not caught twice before a goroutine of its queue has had a turn; otherwise two goroutines
// that make calls all the time would hand it to each other for ever.
processor* catch_offered() noexcept;

// Puts this machine, which has no processor, to sleep until another thread hands it one, or tells it to end (must_end).
void sleep_until_handed_a_processor(machine* m) noexcept;

// start_machine() with an idle machine only; false if there is none.
bool start_idle_machine(processor* p, bool spinning, wake_place place) noexcept;
// For when no thread can be made and none is idle. p belongs to the caller. Gives p to the thread of a queued goroutine
// that is wired to that thread. Without this, every thread could wait for a processor while p has none to take it.
// False: there is no such goroutine. What is queued on p is in the global queue afterwards, which is searched.
bool start_wired_machine(processor* p) noexcept;

// Called at the start: the record of the first machine is allocated by a thread that can be told that there is no
// memory for it. The thread maker could only end the process. Throws std::bad_alloc.
void make_first_record();

// Called by the thread maker: makes a machine without a processor, which looks for one. False: no thread is available;
// that is reported if a goroutine needs the thread.
bool make_spare_machine(bool is_needed = true) noexcept;

// Called by the thread maker, a millisecond apart. New threads that have spent the whole time since the last call
// waiting, in their start-up, for a lock that a goroutine holds are no longer counted as coming. True: there were such
// threads.
bool write_off_threads_that_wait() noexcept;

// m's thread ends; the record serves another one later. Under the scheduler lock.
void forget_thread(machine* m) noexcept;

// m's thread is no longer new: it has a processor, sleeps in the poller, or is about to go onto the idle list.
void has_come(machine* m) noexcept;
// The number of machines that have nothing to do, or will have nothing to do once their thread runs. A hint.
inline std::uint32_t spare_machines() noexcept {
    const scheduler& s = the_scheduler;
    const std::uint32_t takers = s.takers_coming, offered = s.offered_count;
    return s.idle_machine_count + s.coming_machines.load(std::memory_order_relaxed)
        + (takers > offered ? takers - offered : 0);
}
// Ends at most `count` machines of the idle list.
void end_idle_machines(unsigned count) noexcept;

// Called upwards: what a machine's thread does once it has a name, until it ends (goroutines/machine_main.cpp).
void machine_main(machine* m) noexcept;

}  // namespace dunlin::sched
