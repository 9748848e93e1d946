// timer_channel.h - the channel of a timer or a ticker: a buffer for one time, which the clock fills.
//
// Problem    Most timers are made, and stopped or dropped before they are due. So nothing stands in a heap of timers
//            unless there is a waiter for it.
// Data       due_ns_, period_ns_ (0: once), pending_: it will fire, or has fired and that was not looked at yet. All
//            under the channel's lock.
// Protocol   Every operation on the channel calls look_at_clock() first: if no receiver waits, pending and due puts the
//            time into the buffer if that is empty. The first receiver to wait puts the entry into the heap (arm), the
//            last to give up takes it out. The entry fires: lock, the time into the buffer, hand the buffer to the
//            first receiver; put the entry back if it is a ticker's and others wait.
//            While receivers wait, the entry alone fetches the time: an operation that comes later would overtake them
//            at each tick.
//            stop and reset empty the buffer under the same lock: nothing old is received afterwards. An entry that has
//            been claimed meanwhile finds pending_ false or due_ns_ in the future, and does nothing.
// Lifetime   The heap holds no reference. claim() takes one, under the heap's lock, unless none is left; the end of the
//            channel cancels the entry, under the same lock, before it frees anything.
// Order      channel's lock before heap's lock.
// Source     Go 1.23 time.Timer, runtime/time.go "asynctimerchan=0"; there the same laziness serves the garbage
//            collector.
#pragma once

#include "chan/core.h"
#include "timer/heap.h"

namespace dunlin::inline v0_1::detail {

class timer_channel final : public chan_core, private timers::timer_entry {
public:
    static timer_channel* make(std::int64_t due_ns, std::int64_t period_ns);

    // All under the lock, inside the runtime.
    // Called by each receive before it looks at the buffer.
    void look_at_clock() noexcept;
    void arm();  // throws std::bad_alloc
    void disarm() noexcept;
    bool stop() noexcept;
    bool reset(std::int64_t due_ns, std::int64_t period_ns);  // throws std::bad_alloc; the timer is stopped then

private:
    timer_channel(std::int64_t due_ns, std::int64_t period_ns);

    static void destroy(chan_core* c) noexcept;
    static bool claim_reference(timers::timer_entry* e) noexcept;
    static void fire_entry(timers::timer_entry* e) noexcept;
    void put_into_heap();
    void take_tick() noexcept;
    void serve() noexcept;

    alignas(clock::time_point) std::byte storage_[sizeof(clock::time_point)];
    std::int64_t due_ns_;
    std::int64_t period_ns_;
    bool pending_ = true;
};

}  // namespace dunlin::detail
