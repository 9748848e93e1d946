// types.h - G, M, P and the scheduler: each field with the thread that may touch it. READ FIRST; then goroutine.cpp.
//
// The comment at each field says which thread may touch it:
//   owner      the goroutine while it runs / the thread of the machine / the machine that has the processor
//   lock       the holder of the named lock; where it says DUNLIN_GUARDED_BY, clang checks that
//   constant   written before any other thread can see it
//   atomic     any thread; the comment at the field, or the protocol file it names, says what pairs with what
// A field of which other threads only need a hint is a relaxed atomic; on x86-64 and aarch64 that costs its owner
// nothing.
//
// Words: goroutine (G), machine (M, an OS thread that runs goroutines), processor (P, the right to run and its queues).
#pragma once

#include <dunlin/detail/atomic.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <sys/types.h>
#include <vector>

#include "platform/annotations.h"
#include "platform/cpu.h"
#include "platform/lock.h"
#include "platform/random.h"
#include "platform/wrap.h"
#include "sched/data/counters.h"
#include "sched/data/monitor_notes.h"
#include "sched/data/run_queue.h"
#include "sched/data/states.h"
#include "sched/data/trace_ring.h"
#include "sched/data/turn_trial.h"
#include "sched/data/wait_reason.h"
#include "sched/data/watch_credit.h"
#include "stack/arena.h"
#include "stack/context.h"
#include "stack/exception_state.h"
#include "stack/invoke.h"
#include "stack/sanitizer.h"
#include "stack/trace.h"

namespace dunlin::inline v0_1::sched {

struct machine;
struct processor;

inline constexpr unsigned max_procs_limit = 1024;
// Go's limit; beyond it the program has lost control of its threads
inline constexpr unsigned max_machines = 10'000;
// every 61st tick the global queue goes first: prime, avoids resonance
inline constexpr unsigned global_tick = 61;
// a thief waits this long before it takes run_next
inline constexpr std::int64_t run_next_backoff_ns = 3'000;
inline constexpr int steal_rounds = 4;
inline constexpr std::uint32_t global_batch_max = 128;
inline constexpr unsigned id_batch = 64;
inline constexpr std::int64_t slice_ns = 10'000'000;
inline constexpr std::int64_t spin_slice_ns = 200'000;     // of a goroutine that waits in a loop for a lock
// A goroutine that computes has its processor for at least lend_ns in each slice before the processor is lent to
// goroutines that were just woken; these may have it for loan_ns before the lender is stopped (retake.cpp, Lending).
inline constexpr std::int64_t lend_ns = 100'000, loan_ns = 200'000;
// a goroutine that computes has at least this long before one that was just woken takes its place
inline constexpr std::int64_t short_slice_ns = 1'000'000;
inline constexpr std::size_t inline_frame_bytes = 64;
inline constexpr unsigned max_sections = 8;

// A variable that one owner at a time writes and other threads may read: loads and stores are relaxed.
template <class T>
class owned {
public:
    constexpr owned(T value = {}) noexcept : value_(value) {}
    owned(const owned&) = delete;
    operator T() const noexcept { return value_.load(std::memory_order_relaxed); }
    owned& operator=(T value) noexcept {
        value_.store(value, std::memory_order_relaxed);
        return *this;
    }
    owned& operator=(const owned& other) noexcept { return *this = static_cast<T>(other); }
    owned& operator|=(T bits) noexcept { return *this = static_cast<T>(*this | bits); }
    owned& operator&=(T bits) noexcept { return *this = static_cast<T>(*this & bits); }
    T operator->() const noexcept { return *this; }

private:
    platform::atomic<T> value_;
};

// ---- goroutine ------------------------------------------------------------------------------------------------------

// What a goroutine keeps for a goroutine_local.
struct local_value {
    std::uint64_t key;
    void* object;
    void (*destroy)(void*) noexcept;
};
using local_values = std::vector<local_value>;

// What only few goroutines need, kept out of the struct of the others.
struct goroutine_extra {
    std::string name;                                                       // owner; others while the world is stopped
    std::vector<std::pair<std::string, std::string>> labels;                // constant after the start
    local_values locals;                                                    // owner
    stack::exit_request exit;                                               // owner, while exit_goroutine() unwinds
    bool exiting = false;                                                   // owner: exit_goroutine() is unwinding it
    bool independent = false;                                               // constant after the start: independent.h
    bool counted = false;                                                   // owner: among the_scheduler.independent
    // owner: the task that it is part of (dunlin/trace.hpp); 0: none
    std::uint64_t task = 0;
    machine* wired_to = nullptr;                                            // owner, or the thread that takes it off a
                                                                            // queue
    // owner: lock_os_thread() minus unlock_os_thread()
    unsigned thread_locks = 0;
};

// Where a goroutine was created: a source location where the caller could give one, else the address of the code.
class creation_place {
public:
    creation_place() = default;
    explicit creation_place(const std::source_location& where) noexcept : raw_(std::bit_cast<std::uintptr_t>(where)) {}
    explicit creation_place(const void* code) noexcept : raw_(reinterpret_cast<std::uintptr_t>(code) | is_code) {}

    bool is_known() const noexcept { return raw_ != 0; }
    const void* code() const noexcept {
        return raw_ & is_code ? reinterpret_cast<const void*>(raw_ & ~is_code) : nullptr;
    }
    std::source_location location() const noexcept { return std::bit_cast<std::source_location>(raw_); }

private:
    static constexpr std::uintptr_t is_code = std::uintptr_t{1} << 63;  // no address of a program has it
    std::uintptr_t raw_ = 0;
};
static_assert(sizeof(std::source_location) == sizeof(std::uintptr_t));

// Marks make a machine do more than run the goroutine; mostly none is set.
class goroutine_marks {
public:
    std::uint32_t all() const noexcept { return all_.load(std::memory_order_relaxed); }
    bool any() const noexcept { return all() != 0; }
    // turns.h: how many of its next wakes are made at once, because it went on computing after it had readied another
    // goroutine. Owner; the monitor raises it.
    std::uint32_t lingers() const noexcept { return all_.load(std::memory_order_relaxed) & 0xff; }
    void set_lingers(std::uint32_t n) noexcept { set(n < 0xff ? n : 0xff, 0xff); }
    // waits.h: while the goroutine is runnable its wait is measured, and counts as this many waits. Written by the
    // thread that makes it runnable, then by the machine that runs it.
    std::uint32_t stamped() const noexcept { return all_.load(std::memory_order_relaxed) >> 8 & 0x3fffff; }
    void set_stamped(std::uint64_t n) noexcept {
        set(static_cast<std::uint32_t>(n < 0x3fffff ? n : 0x3fffff) << 8, 0x3fffff00);
    }
    // waits.h: the whole time from runnable to running is measured as well. Written by the same threads as the stamp.
    bool measured() const noexcept { return (all_.load(std::memory_order_relaxed) & 0x40000000) != 0; }
    void set_measured(bool yes) noexcept { set(yes ? 0x40000000 : 0, 0x40000000); }
    // trace.h: that it begins to run is an event. Written by the same threads as the stamp, and by the thread that
    // begins a trace.
    bool traced() const noexcept { return (all_.load(std::memory_order_relaxed) & 0x80000000) != 0; }
    void set_traced(bool yes) noexcept { set(yes ? 0x80000000 : 0, 0x80000000); }

    // Called by the monitor, concurrently with the owner: never brings back a stamp that the owner has cleared.
    // Relaxed: nothing depends on it.
    void raise_lingers(std::uint32_t n) noexcept {
        std::uint32_t seen = all();
        all_.compare_exchange_strong(seen, (seen & 0xffffff00) | (n < 0xff ? n : 0xff), std::memory_order_relaxed);
    }

private:
    // One writer at a time, plus raise_lingers(), whose change this may undo: that makes one more wake come late.
    void set(std::uint32_t bits, std::uint32_t of) noexcept {
        all_.store((all_.load(std::memory_order_relaxed) & ~of) | bits, std::memory_order_relaxed);
    }

    platform::atomic<std::uint32_t> all_{0};
};

struct alignas(platform::cache_line) goroutine {
    enum flag : std::uint8_t {
        heap_frame = 1,     // the callable did not fit into inline_frame
        joinable = 2,       // a task holds it: the joiner gives the struct back
        own_stack = 4,      // a stack of its own size was bound at go(); it cannot be run on another
        in_place = 8,       // runs on the stack of the goroutine that waits for it
        main = 16,          // the one that run() waits for
        wired = 32,         // lock_os_thread(): only its machine may run it
        traced = 64,        // trace.h: the trace knows its creation, and its end is an event
        pinned = 128,       // inside a no_preempt scope
    };

    // First line: all that a switch touches.
    stack::context context;                     // owner; valid for others when `saved`
    owned<stack::slot*> stack;                  // owner, or the thread that took it off a queue; null: it never ran, or
                                                // has ended. A prefetch peeks
    // The list it is on. While it waits in the parking lot, or for the end of another: for what (set_waits_for()).
    goroutine* link = nullptr;
    stack::kept_exceptions exceptions;          // owner, while it does not run
    goroutine_marks marks;
    platform::atomic<goroutine_state> state{goroutine_state::dead};  // states.h
    // 1 when `context` holds its registers. A goroutine may be readied, and taken off a queue, while it still runs its
    // last instructions on the way out: the machine that executes it next waits for this byte. The release in
    // commit_departure() pairs with the acquire in can_switch_to() and wait_until_saved().
    platform::atomic<std::uint8_t> saved{0};
    platform::atomic<wait_reason> reason{wait_reason::none};  // owner; dumps
    // constant after the start, except in_place/wired/traced/pinned: owner; the monitor reads
    owned<std::uint8_t> flags;
    int saved_errno = 0;                        // owner, while it does not run

    // Second line: birth, death and reports.
    std::uint64_t id = 0;                       // constant after the start
    void (*entry)(void*) = nullptr;             // constant
    // A join_word, or the joiner's waiter, or an heir (park/join.cpp)
    platform::atomic<std::uintptr_t> join{join_word::alive};
    // Until the goroutine begins: a waiter for this group may run it in place. Afterwards null, or odd where a trace
    // runs or has run: run_count().
    platform::atomic<const void*> group{nullptr};
    creation_place created_at;                  // constant
    std::source_location waits_at;              // owner; dumps while the world is stopped
    // owner; coarse clock. While it is runnable, and stamped or measured: waits.h
    owned<std::int64_t> waits_since_ns;
    goroutine_extra* extra = nullptr;           // owner

    // Third line, what frame() returns (no frame of a stack): the callable, with its result if any, or a pointer to it.
    alignas(16) std::byte inline_frame[inline_frame_bytes];

    [[no_unique_address]] stack::fake_stack fake;  // owner

    // True: nothing has to be done when it runs again: no exceptions to put back, no marks. One test.
    bool comes_back_plain() const noexcept {
        return (reinterpret_cast<std::uintptr_t>(exceptions.caught) | exceptions.uncaught | marks.all()) == 0;
    }
    // It belongs to no run() (independent.h). For itself while it is alive; for others while the world stands still.
    bool independent() const noexcept { return extra != nullptr && extra->independent; }
    // For reports: the address in the parking lot at which it waits, or that of the `join` of the goroutine whose end
    // it waits for. Owner.
    void set_waits_for(const void* address) noexcept { link = static_cast<goroutine*>(const_cast<void*>(address)); }
    // Where its frames are, if it has any; a guess for any thread but its owner.
    void* stack_hint() const noexcept {
        return saved.load(std::memory_order_relaxed) && stack != nullptr ? context.sp : nullptr;
    }

    // trace.h, Order: how many times it has begun to run since it was first traced. Written by the machine that runs
    // it.
    std::uint32_t run_count() const noexcept {
        const auto raw = reinterpret_cast<std::uintptr_t>(group.load(std::memory_order_relaxed));
        return raw & 1 ? static_cast<std::uint32_t>(raw >> 1) : 0;
    }
    void set_run_count(std::uint32_t n) noexcept {
        group.store(reinterpret_cast<const void*>(std::uintptr_t{n} << 1 | 1), std::memory_order_relaxed);
    }

    void* frame() noexcept { return flags & heap_frame ? *reinterpret_cast<void**>(inline_frame) : inline_frame; }
};
// A million goroutines, each with one page of stack, must stay under 4.9 KB apiece.
static_assert(stack::sanitizing || sizeof(goroutine) == 192);

struct goroutine_list {
    goroutine* head = nullptr;
    goroutine* tail = nullptr;
    std::size_t size = 0;

    void push_back(goroutine* g) noexcept;
    goroutine* pop_front() noexcept;
};

// global_queue.h. Changed under the scheduler lock; any thread reads the size. Each function makes its new size visible
// once, at its end: a size of 0 in the middle of an exchange could let a processor become idle beside the newcomer.
class global_queue {
public:
    // The number of goroutines; exact under the lock.
    std::size_t size() const noexcept { return size_.load(std::memory_order_relaxed); }
    // The same for step R3 of the wake protocol (wake.h), which must not come before R1.
    std::size_t size_after_announcing() const noexcept { return size_.load(std::memory_order_seq_cst); }

    void push_back(goroutine* g) noexcept;
    void push_back(goroutine_list& all) noexcept;                             // empties `all`
    void push_back(goroutine* const* first, std::size_t count, goroutine* last) noexcept;
    void push_front(goroutine* g) noexcept;
    goroutine* pop_front() noexcept;
    void pop_front(goroutine** out, std::size_t count) noexcept;              // the queue has at least `count`
    // Puts g at the tail and takes off the goroutine that was the oldest before; null: there was none.
    goroutine* exchange(goroutine* g) noexcept;

private:
    static constexpr std::size_t block_items = 511;
    struct block {
        block* next;
        goroutine* items[block_items];
    };
    static constexpr std::size_t chunk_blocks = (std::size_t{2} << 20) / sizeof(block);

    block* take_block() noexcept;
    void append(goroutine* g) noexcept;
    goroutine* take_first() noexcept;
    void publish_size() noexcept { size_.store(count_, std::memory_order_relaxed); }

    bool add_block_behind() noexcept;
    bool make_room_in_front() noexcept;
    void rebuild_behind(goroutine* g) noexcept;
    void drop_first_block() noexcept;

    block* first_ = nullptr;     // from items[begin_] on
    block* last_ = nullptr;      // up to items[end_]
    std::size_t begin_ = 0, end_ = 0;
    std::size_t count_ = 0;      // spill included
    platform::atomic<std::size_t> size_{0};  // the same, for threads without the lock
    goroutine_list spill_;
    block* spare_ = nullptr;
    block* chunk_ = nullptr;     // the newest; the last uncut_ of its blocks were never used
    std::size_t uncut_ = 0;
};

// The turn_ns of a processor about which nothing is known: its wakes are made at once.
inline constexpr std::uint32_t unknown_turn_ns = 10'000;

// ---- processor ------------------------------------------------------------------------------------------------------

// How far the slice on a processor has come.
enum class slice_state : std::uint8_t {
    goes_on,
    over,               // the goroutines that ran here have had their ten milliseconds
    run_next_had_turn,  // over, and run_next has had its last turn in it
    preempted_turn,     // it is the turn of a preempted goroutine (preempt.h)
};

struct alignas(platform::false_sharing_range) processor {
    // The owner's line.
    platform::atomic<goroutine*> run_next{nullptr};  // owner; a thief through the retake handshake (handshake.h)
    // owner: raised at each put; it tells a thief whether run_next still holds the same goroutine
    platform::atomic<std::uint32_t> run_next_count{0};
    // Owner; thieves and the monitor set it: each push is looked at. Changed by look_at_push() alone.
    owned<bool> looks_at_push{true};
    // owner; thieves and the monitor raise it: how long a goroutine runs here at a time (turns.h)
    owned<std::uint32_t> turn_ns{unknown_turn_ns};
    // owner: find_local() looks at timers and turns when the count of switches has reached this
    std::uint64_t next_look = 0;
    turn_trial trial;                           // owner; thieves read a part of it
    std::uint64_t turns_from = 0;               // owner: the count of turns when they were last looked at,
    std::int64_t turns_since_ns = 0;            // and when that was
    std::uint32_t operations = 0;               // owner: on channels and timers (park/biased_lock.h), in this turn
    std::uint32_t readied_at = 0;               // owner: the count of operations at readied_ns
    std::uint32_t readied = 0;                  // owner: how often the running goroutine has readied another, this turn
    std::int64_t readied_ns = 0;                // owner: when it last did so; 0: not in this turn, or not noted
    // owner; the monitor and thieves read. Not raised when run_next inherits the slice
    platform::atomic<std::uint32_t> tick{0};
    platform::atomic<bool> events_due{false};        // set by the monitor: look at the timers now
    platform::atomic<slice_state> slice{slice_state::goes_on};  // the monitor ends it; its owner begins the next
    // Owner. The release in put_stack() pairs with the acquire in take_stack() and give_stacks_to_arena(), which may be
    // a later owner's; the handing over of the processor orders them as well.
    platform::atomic<stack::slot*> free_stacks{nullptr};
    std::uint32_t free_stack_count = 0;         // owner
    goroutine* free_goroutines = nullptr;       // owner: the magazine in use
    goroutine* full_magazine = nullptr;         // owner: one in reserve, or null
    owned<std::uint32_t> free_goroutine_count;  // owner
    std::uint64_t next_id = 0, last_id = 0;     // owner: ids left in the batch
    std::uint64_t joins_before_slice = 0;       // owner: counts.in_place_joins when the last slice began,
    bool global_had_slice = false;              // and whether it began with a goroutine from the global queue
    std::uint32_t looked_at_tick = 1;           // owner: the tick at which the owner last checked whether to poll
    bool poll_first = false;                    // owner: find_work() polls before it looks anywhere else
    std::int64_t next_poll_ns = 0;              // owner: no such check before this
    std::uint64_t polls_seen = 0;               // owner: the number of polls by then, its own included

    run_queue queue;

    // The biased locks that its machine is inside (park/biased_lock.h). Cleared with release at the end of each
    // section; the thread that takes the bias away waits for that.
    alignas(platform::cache_line) platform::atomic<const void*> sections[max_sections] = {};

    // Changed rarely.
    alignas(platform::false_sharing_range) std::uint32_t id = 0;  // constant
    platform::atomic<processor_state> state{processor_state::dead};  // scheduler lock
    platform::atomic<machine*> owner{nullptr};       // retake lock; release, for threads that look at the machine
    platform::ranked_lock<platform::lock_rank::retake> retake;                // guards owner and owner->p (handshake.h)
    processor* idle_next = nullptr;             // scheduler lock
    std::int64_t idle_since_ns = 0, idle_ns = 0;  // scheduler lock: since when it is idle (0: it is not); how long it
                                                  // was idle before that
    machine* stopped_from = nullptr;            // the thread that stops the world: the machine that gets it back
    std::uint32_t caught_tick = ~0u;            // scheduler lock: its tick when a goroutine that came back from a call
                                                // last caught it (machine.h)
    void* events = nullptr;                     // constant: what the event source keeps for this P (its timers)
    // the monitor, while the processor has no machine; then its machine: the machine that lent it (retake.cpp); null:
    // none
    owned<machine*> lender;
    owned<std::int64_t> slice_used_ns;          // written by the thread that gives it to a preempted goroutine or back
                                                // to its lender: how much of its slice that goroutine has used; the
                                                // monitor takes it
    monitor_notes notes;                        // monitor

    // written by the same threads as looks_at_push. True: pushes are looked at because turns are long, or because the
    // next goroutine to become runnable is stamped; false: they are looked at only for a trace, if at all
    owned<bool> looks_at_turns{true};
    // owner: the count of turns, less those that no stamp stands for yet (turns_to_stamp_for())
    std::uint64_t stamped_at = 0;
    // owner: how long goroutines waited while a processor was free (waits.h)
    wait_counters waits;
    wait_counters latency;                      // owner: how long they waited in all, while that is measured
    // owner: the length of the queue as the measured goroutines found it
    std::array<counter, queue_length_classes> queue_lengths;
    watch_credit watches;                       // owner
    processor_counters counts;                  // owner
    std::unique_ptr<platform::atomic<std::uint32_t>[]> stolen_from;  // owner: goroutines stolen, by victim

    void look_at_push(bool because_of_turns) noexcept;  // turns.h
};

// Called by p's owner when it begins to run another goroutine.
inline void advance_tick(processor* p) noexcept {
    p->tick.store(p->tick.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

// ---- machine --------------------------------------------------------------------------------------------------------

// What a thread that stands still in the handler of the preemption signal is to do.
struct resume_order {
    enum word : std::uint32_t {
        stay,
        with_processor,     // handed_p (preempt.h)
        without_processor,  // go on all the same: it may hold what others wait for
        look,               // at its own stack, and stay (stack_capture.h)
        end_thread,         // its run() has returned (frozen.h)
    };
};

// The stack of its goroutine, for a report (stack_capture.h).
struct machine_capture {
    enum progress : std::uint32_t { none, asked, taking, taken };
    platform::atomic<std::uint32_t> state{none};     // the asker, which has stopped the world; then the machine itself
    stack::trace frames;                        // itself, while `taking`
    void* escape = nullptr;                     // itself, in the handler: where a fault ends the look
};

// The function that a goroutine wants called on its thread's own stack (thread_stack.h).
struct thread_call {
    void (*entry)(void*) = nullptr;
    void* argument = nullptr;
};

// The handshake, see handshake.h.
struct machine_handshake {
    // the machine itself, or a taker; both under the processor's retake lock
    platform::atomic<processor*> p{nullptr};
    // 1: a taker has p, or is trying to take it; under the processor's retake lock. 2 (steered_taken of steering.h):
    // set by the machine itself, from 0 and back to it by compare-and-swap.
    platform::atomic<std::uint32_t> taken{0};
    platform::atomic<std::uint32_t> in_runtime{1};   // the machine itself only
};

// What it runs. The machine's own, except for what others look at.
struct machine_running {
    // the machine itself; null on the scheduler's own stack. Release, for the monitor
    platform::atomic<goroutine*> current{nullptr};
    goroutine* leaving = nullptr;               // itself: the goroutine whose registers the switch under way is saving
    goroutine* next = nullptr;                  // itself: what the context that is switched to is to run
    stack::slot* next_stack = nullptr;          // itself: the stack on which it starts that
    stack::context scheduler_context;           // itself: where execution goes on on the scheduler's stack
    thread_call call;                           // itself: to be made there
    stack::exception_state* exceptions = nullptr;  // constant: the thread's record
    int* error_number = nullptr;                // constant: the thread's errno
    platform::random_source random;             // itself
    // itself, or the giver: the processor that it had last; enter_slow() takes that one's retake lock to learn whether
    // a taker has given up
    owned<processor*> last_p;
    owned<bool> spinning;                       // itself
    bool counted_as_coming = false;             // itself: in coming_machines
    platform::atomic<registration> registration_state{registration::none};  // states.h
    bool exact_timers = false;                  // itself: it has slept until a deadline
    // itself: it fires timers, and chooses what to run next (local_work.cpp)
    bool chooses = false;
    // itself: depth of sections outside the runtime where a lock of ours may be held: no place to be frozen
    owned<std::uint32_t> unstoppable;
    goroutine* wired_g = nullptr;              // itself: lock_os_thread(), or it waits for a processor (reenter.cpp)
    goroutine_extra for_return;                 // itself: lent to a goroutine that waits so, if it has none of its own
    owned<std::uint32_t> blocking_tick;         // itself: raised by each blocking()
    owned<const void*> blocking_place;          // itself: where its last blocking() was; only for comparison
    owned<bool> must_end;                       // itself: its goroutine ended wired to it; or written by the thread
                                                // that took it off the idle list to end it
    // itself: its thread is in a thread_call, where it may hold our locks as any plain thread may; no signal is sent to
    // it
    platform::atomic<bool> in_thread_call{false};
};

// For a machine that sleeps without work. The waker writes what it hands over before it writes wake_word; the lists:
// the scheduler lock.
struct machine_sleeping {
    platform::atomic<std::uint32_t> wake_word{0};    // 0: asleep or about to sleep; 1: woken
    processor* handed_p = nullptr;              // the waker, before wake_word
    bool handed_spinning = false;               // the same: the waker has counted it as spinning
    bool comes_for_offer = false;               // the same: no processor is handed over; it is to take an offered one
    // itself: where it was when it went onto the list of the idle or of the preempted; a hint
    owned<int> slept_on_cpu;
    machine* idle_next = nullptr;               // scheduler lock: the list of the idle or of the preempted
    machine** idle_link = nullptr;              // scheduler lock: what points to it on the list of the idle
    machine* same_cpu_next = nullptr;           // scheduler lock: the same two fields for the list of its CPU
    machine** same_cpu_link = nullptr;
};

// For the time when it has no processor although its goroutine runs. Shared with the monitor; the protocols are in
// retake.cpp (Lending, take()) and preempt.h.
struct machine_detached {
    // set by the taker under the retake lock; cleared under the scheduler lock
    platform::atomic<bool> detached{false};
    platform::atomic<bool> preempt_asked{false};     // the monitor, before it sends the signal; itself, in the handler
    // set by the monitor, cleared by itself: its goroutine would have been preempted but for its no_preempt scope, or
    // makes one short call after another
    platform::atomic<bool> preempt_later{false};
    platform::atomic<const goroutine*> asked{nullptr};  // the same: is to give way in its next call that may wait
    // itself, in the handler; the monitor reads: how many of its next slices are short (preempt.h, Spin locks)
    owned<std::uint32_t> spins;
    std::uint64_t spinner = 0;                  // itself, in the handler: the goroutine last stopped while it spun
    // itself, in the handler: how often in a row it was asked to stop where it must not
    owned<std::uint32_t> rejects;
    platform::atomic<std::uint32_t> resume_word{resume_order::stay};  // a resume_order; the machine sleeps on it in the
                                                                      // handler
    // 0: set by the monitor when it asks. 1: set by the handler when it has stopped, or will not
    platform::atomic<std::uint32_t> answered{1};
    // itself, before it is queued as preempted: it stopped where it may hold a lock that others want
    bool stopped_in_library = false;
    // Itself, in the handler, when it goes on: the monitor measures from here. Published with the processor, by its
    // owner.
    owned<std::int64_t> resumed_ns, resumed_cpu_ns;
    owned<std::uint64_t> resumed_sleeps;
    std::int64_t slice_used_ns = 0;             // the taker; the scheduler lock when it is queued
    // the taker: the processor that was taken, if it was only lent (retake.cpp); null: it was taken for good
    owned<processor*> borrower;
    std::int64_t detached_cpu_ns = 0;              // the taker: its CPU time when it lost its processor
    // scheduler lock: CPU time that it has used without a processor and has not yet paid for with missed turns
    std::int64_t debt_ns = 0;
    // scheduler lock: another preempted machine has had its turn first (preempted.cpp)
    bool passed_over = false;
    detached_notes notes;                          // monitor
};

// For the end: the run() of its goroutine has returned (end_of_run.cpp, freeze.h, frozen.h), or its thread ends.
struct machine_at_end {
    // scheduler lock: its goroutine's run() has returned; cleared when it has lost it
    platform::atomic<bool> condemned{false};
    platform::atomic<bool> freeze_asked{false};      // freeze.cpp, frozen.cpp
    // itself, in freeze.cpp's handler: it was interrupted in one of the program's own handlers, which it may have left
    // by the time it is asked again
    platform::atomic<bool> in_handler{false};
    platform::atomic<bool> frozen{false};            // scheduler lock to write: it stands still for good (frozen.h)
    owned<std::int64_t> asked_ns;               // the thread that waits for it to freeze
    owned<std::int64_t> asked_cpu_ns;           // the same: its CPU time when it was first asked
    owned<std::int64_t> asleep_since_ns;        // the same: every look since then found it asleep; 0: it was running
    platform::atomic<bool> asked_in_sleep{false};  // the same, for freeze.cpp's handler: it slept until a time
    // scheduler lock: its thread has the lowest priority (frozen.cpp), and serves no other goroutine
    bool lowered = false;
    bool dismissed = false;                     // scheduler lock: dismiss_wired_machines() has told it to end
    bool ended = false;                         // scheduler lock: the thread is gone, and the record stays on the list
};

// Identifies the thread. Constant until the record serves its next thread.
struct machine_identity {
    machine* all_next = nullptr;                // constant after it is linked
    std::uint32_t id = 0;                       // constant
    owned<pid_t> tid;                           // constant, but the record may serve another thread later
    stack::sanitizer_stack own_stack;           // constant
};

// A thread that runs goroutines. The parts above say what they are for, and which threads share them.
struct alignas(platform::false_sharing_range) machine : machine_handshake,
                                                         machine_running,
                                                         machine_sleeping,
                                                         machine_detached,
                                                         machine_at_end,
                                                         machine_identity {
    [[no_unique_address]] stack::fake_stack fake;  // itself
    // itself; other threads look at the chunk that it points to under the trace's lock (trace.h)
    tracing::ring trace;
    machine_capture capture;                      // last: large, and touched with nothing else
};

struct machine_list {  // linked by idle_next
    machine* head = nullptr;
    machine* tail = nullptr;
    std::uint32_t size = 0;

    void push_back(machine* m) noexcept;
    void push_front(machine* m) noexcept;
    machine* pop_front() noexcept;
};

// The machines that sleep, last in first out: one list of all, and one list for each CPU of those that went to sleep
// there (CPUs whose numbers agree modulo `cpus` share one).
struct idle_machine_list {
    static constexpr unsigned cpus = 64;
    machine* newest = nullptr;
    machine* newest_on[cpus] = {};

    void push(machine* m) noexcept;
    void remove(machine* m) noexcept;
};

// ---- scheduler ------------------------------------------------------------------------------------------------------

struct event_source;

// There is only one. Constant-initialised, never destroyed: goroutines may outlive static destructors.
struct scheduler {
    // Read by all, changed rarely.
    platform::atomic<std::uint32_t> max_procs{0};    // changed under lock
    platform::atomic<std::uint32_t> procs_made{0};   // processors[0 .. procs_made) exist; grows only
    platform::atomic<processor*> processors[max_procs_limit] = {};
    event_source* events = nullptr;             // constant after the start
    // changed while the world is stopped, both by set_default_stack_class()
    platform::atomic<unsigned> default_stack_class{stack::dense_class};
    platform::atomic<std::ptrdiff_t> least_in_place{stack::least_in_place(stack::dense_class)};
    platform::atomic<bool> started{false};
    platform::atomic<bool> stopping{false};          // changed under lock: the world stops (processor.cpp)
    platform::atomic<std::uint32_t> cpus{2};         // in the affinity mask, when the runtime started

    // the monitor: its rounds are 1 ms apart and it makes deferred wakes
    platform::atomic<bool> monitor_attentive{false};
    platform::atomic<bool> wakes_deferred{false};        // wake.h: set by submitters, cleared by the monitor each round
    platform::atomic<bool> all_stuck{false};         // the monitor: no processor has come to the scheduler lately; a
                                                     // thread that brings work from outside then calls the monitor
    // set where machines have become detached without the monitor; the monitor lists them and clears it
    platform::atomic<bool> detached_unlisted{false};
    // the monitor: the place of a blocking() that lasted; a hint, cleared by a thread that calls there (blocking.cpp)
    platform::atomic<const void*> slow_place{nullptr};
    // set when work was brought from outside while all processors were stuck; the monitor clears it
    platform::atomic<bool> urgent{false};

    // The wake protocol's word (wake.h): idle processors and spinning machines.
    alignas(platform::false_sharing_range) platform::atomic<std::uint32_t> idle_and_spinning{0};
    alignas(platform::false_sharing_range) platform::atomic<std::int64_t> free_clock{0};  // waits.h
    platform::atomic<std::uint32_t> retirers{0};     // machines at R2 or R3 (wake.h, J1). 0: none; 1: one; 2: it must
                                                     // repeat both, for those that have passed R1 meanwhile

    alignas(platform::false_sharing_range) platform::ranked_lock<platform::lock_rank::scheduler> lock;
    global_queue global DUNLIN_GUARDED_BY(lock);  // its size any thread
    processor* idle_processors DUNLIN_GUARDED_BY(lock) = nullptr;
    owned<std::uint32_t> idle_machine_count;    // lock; the monitor reads
    platform::atomic<std::uint32_t> coming_machines{0};  // made, but have neither a processor nor gone to sleep yet
    platform::atomic<std::uint32_t> yet_to_look{0};  // of these, those that have not begun to look for work: they serve
                                                     // every request for a thread made so far
    platform::atomic<std::uint32_t> threads_written_off{0};  // registration, states.h. Not 0: new ones do not register
    platform::atomic<std::uint32_t> machine_count{0};  // lock
    platform::atomic<machine*> machines{nullptr};    // lock to add; any thread may walk it
    goroutine_list starved DUNLIN_GUARDED_BY(lock);  // goroutines that found no memory for a stack
    platform::atomic<std::size_t> starved_size{0};   // written under lock
    machine_list preempted DUNLIN_GUARDED_BY(lock);  // whose goroutines wait inside a signal handler (preempt.h)
    platform::atomic<std::uint32_t> preempted_size{0};  // written under lock
    // lock; the monitor reads: when one of them last had a turn, or they began to wait
    owned<std::int64_t> preempted_since_ns;
    // Machines that stand still and whose run() has returned; the oldest first (frozen.h).
    machine_list frozen DUNLIN_GUARDED_BY(lock);
    // written under lock, with release; the monitor reads: how many times a machine was put there
    platform::atomic<std::uint32_t> times_frozen{0};
    platform::atomic<pid_t> runner{0};               // the thread that is, or was last, inside run()
    platform::atomic<pid_t> exiting{0};              // the thread that has called exit(), or has returned from main()
    goroutine* free_goroutines DUNLIN_GUARDED_BY(lock) = nullptr;
    platform::atomic<std::uint64_t> next_id{2};      // batches are cut off by fetch_add
    platform::atomic<std::uint64_t> created_outside{0};  // goroutines started by plain threads
    platform::atomic<std::uint64_t> forgotten{0};    // alive when their run() returned
    // independent.h: from before the start until the function has ended
    platform::atomic<std::size_t> independent{0};
    std::uint32_t condemned_machines DUNLIN_GUARDED_BY(lock) = 0;
    std::uint32_t ended_machines DUNLIN_GUARDED_BY(lock) = 0;  // records whose thread is gone
    std::int32_t wired_machines_waiting DUNLIN_GUARDED_BY(lock) = 0;  // wired to a goroutine that is elsewhere
    idle_machine_list idle_machines DUNLIN_GUARDED_BY(lock);
    // Processors given up at the beginning of a call, for the first taker (machine.h, offer_processor). And the number
    // of machines that have been woken for them and have not looked yet: at least as many.
    processor* offered DUNLIN_GUARDED_BY(lock) = nullptr;  // linked by idle_next
    owned<std::uint32_t> offered_count;         // lock; others read
    owned<std::uint32_t> takers_coming;         // lock; others read

    // World stop (processor.cpp).
    // Raised when the world starts again.
    platform::atomic<std::uint32_t> world_word{platform::counter_start<std::uint32_t>()};
    platform::ranked_lock<platform::lock_rank::world> world;                 // held by the thread that stops the world
    hand_off_counters hand_offs;
    time_counters time;
    bool main_exited DUNLIN_GUARDED_BY(lock) = false;  // main ended by exit_goroutine()
    bool inside_run DUNLIN_GUARDED_BY(lock) = false;  // a thread waits inside run()
    // main has returned: the thread inside run() will not wait much longer
    bool main_returned DUNLIN_GUARDED_BY(lock) = false;
    // Only the program's own threads spoke against a deadlock, or a state that is over in a moment; the monitor looks
    // again.
    bool deadlock_suspected DUNLIN_GUARDED_BY(lock) = false;
    bool main_was_started = false;              // the lock of run(): the first main goroutine has number 1
    // written by the monitor, and by the machine that comes back from the poller
    platform::atomic<std::int64_t> coarse_now_ns{0};

    // The machine that sleeps in the poller (find_work.cpp).
    alignas(platform::false_sharing_range) platform::atomic<std::uint32_t> poller_claimed{0};
    platform::atomic<std::int64_t> poll_until_ns{0}; // 0: none, or not known yet; then a new timer interrupts it
    platform::atomic<bool> monitor_delivers{false};  // the monitor readies goroutines, which are in no queue yet
    platform::atomic<std::uint64_t> polls{0};        // of descriptors: it tells the monitor whether there are any

    // For threads without the lock: is the lock worth taking?
    std::size_t global_size() const noexcept DUNLIN_NOT_ANALYSED { return global.size(); }
    std::size_t global_size_after_announcing() const noexcept DUNLIN_NOT_ANALYSED {
        return global.size_after_announcing();
    }

    processor* processor_at(std::uint32_t i) const noexcept { return processors[i].load(std::memory_order_acquire); }
};

DUNLIN_HIDDEN extern scheduler the_scheduler;

}  // namespace dunlin::sched
