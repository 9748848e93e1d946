// The switch, by itself: computations on stacks of the arena that are switched to and from by hand, without a
// scheduler. The last tests look at what only a real goroutine has: dunlin_context_entry below it.
#include "stack/context.h"

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <execinfo.h>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <dunlin/dunlin.hpp>
#include <gtest/gtest.h>

#include "platform/thread.h"
#include "stack/arena.h"
#include "stack/invoke.h"
#include "stack/sanitizer.h"
#include "stack/trace.h"

// What the compilers' callee must preserve. Under `f` the registers have the values of `in`; those they have after it
// are left in `out`.
struct callee_saved {
    std::uint64_t general[12];  // x86-64: rbx rbp r12-r15; aarch64: x19-x29
    std::uint64_t floating[8];  // aarch64: d8-d15 (x86-64 has none)
};

extern "C" {
void context_test_entry();
extern const char context_test_entry_returned[];
void context_test_with_registers(void (*f)(void*), void* argument, const callee_saved* in, callee_saved* out);
[[noreturn, gnu::used]] void context_test_base();
extern const char dunlin_invoke_landing[];
}

#if defined(__x86_64__)
constexpr unsigned general_registers = 6;
constexpr unsigned floating_registers = 0;

// As dunlin_context_entry, but it calls context_test_base().
asm(R"(
    .pushsection .text
    .p2align 4
    .cfi_startproc
    .cfi_undefined rip
    nop
    .type context_test_entry, @function
    .globl context_test_entry
context_test_entry:
    endbr64
    xorl %ebp, %ebp
    call context_test_base
    .globl context_test_entry_returned
context_test_entry_returned:
    ud2
    .cfi_endproc

    .globl context_test_with_registers
    .type context_test_with_registers, @function
context_test_with_registers:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    pushq %rcx
    movq %rdi, %rax
    movq %rsi, %rdi
    movq 0(%rdx), %rbx
    movq 8(%rdx), %rbp
    movq 16(%rdx), %r12
    movq 24(%rdx), %r13
    movq 32(%rdx), %r14
    movq 40(%rdx), %r15
    call *%rax
    popq %rcx
    movq %rbx, 0(%rcx)
    movq %rbp, 8(%rcx)
    movq %r12, 16(%rcx)
    movq %r13, 24(%rcx)
    movq %r14, 32(%rcx)
    movq %r15, 40(%rcx)
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .popsection
)");
#elif defined(__aarch64__)
constexpr unsigned general_registers = 11;
constexpr unsigned floating_registers = 8;

asm(R"(
    .pushsection .text
    .p2align 4
    .cfi_startproc
    .cfi_undefined x30
    nop
    .type context_test_entry, %function
    .globl context_test_entry
context_test_entry:
    hint #36
    mov x29, xzr
    mov x30, xzr
    bl context_test_base
    .globl context_test_entry_returned
context_test_entry_returned:
    brk #1
    .cfi_endproc

    .globl context_test_with_registers
    .type context_test_with_registers, %function
context_test_with_registers:
    hint #34
    stp x29, x30, [sp, #-176]!
    stp x19, x20, [sp, #16]
    stp x21, x22, [sp, #32]
    stp x23, x24, [sp, #48]
    stp x25, x26, [sp, #64]
    stp x27, x28, [sp, #80]
    str x3, [sp, #96]
    stp d8, d9, [sp, #112]
    stp d10, d11, [sp, #128]
    stp d12, d13, [sp, #144]
    stp d14, d15, [sp, #160]
    mov x9, x0
    mov x0, x1
    ldp x19, x20, [x2, #0]
    ldp x21, x22, [x2, #16]
    ldp x23, x24, [x2, #32]
    ldp x25, x26, [x2, #48]
    ldp x27, x28, [x2, #64]
    ldr x29, [x2, #80]
    ldp d8, d9, [x2, #96]
    ldp d10, d11, [x2, #112]
    ldp d12, d13, [x2, #128]
    ldp d14, d15, [x2, #144]
    blr x9
    ldr x3, [sp, #96]
    stp x19, x20, [x3, #0]
    stp x21, x22, [x3, #16]
    stp x23, x24, [x3, #32]
    stp x25, x26, [x3, #48]
    stp x27, x28, [x3, #64]
    str x29, [x3, #80]
    stp d8, d9, [x3, #96]
    stp d10, d11, [x3, #112]
    stp d12, d13, [x3, #128]
    stp d14, d15, [x3, #144]
    ldp d14, d15, [sp, #160]
    ldp d12, d13, [sp, #144]
    ldp d10, d11, [sp, #128]
    ldp d8, d9, [sp, #112]
    ldp x27, x28, [sp, #80]
    ldp x25, x26, [sp, #64]
    ldp x23, x24, [sp, #48]
    ldp x21, x22, [sp, #32]
    ldp x19, x20, [sp, #16]
    ldp x29, x30, [sp], #176
    ret
    .popsection
)");
#endif

namespace {

using namespace dunlin::stack;

// Puts all ones into every register that a compiler may use for values.
[[gnu::always_inline]] inline void wreck_registers() {
#if defined(__x86_64__)
    asm volatile(".irp r, rax, rbx, rcx, rdx, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15\n\t"
                 "movq $-1, %%\\r\n\t"
                 ".endr\n\t"
                 ".irp r, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n\t"
                 "pcmpeqd %%xmm\\r, %%xmm\\r\n\t"
                 ".endr"
                 :
                 :
                 : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
                 "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                 "xmm12", "xmm13", "xmm14", "xmm15", "cc");
#elif defined(__aarch64__)
    asm volatile(
        ".irp r, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 30\n\t"
        "mov x\\r, #-1\n\t"
        ".endr\n\t"
        ".irp r, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31\n\t"
        "movi v\\r\\().16b, #255\n\t"
        ".endr"
        :
        :
        : "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",
        "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x30", "v0", "v1", "v2",
        "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19",
        "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");
#endif
}

struct computation;
computation* starting = nullptr;

// Something that can be switched to: the thread itself, or a function on a stack of its own.
struct computation {
    context where;
    [[no_unique_address]] fake_stack fake;
    sanitizer_stack view;
    slot* stack = nullptr;
    computation* caller = nullptr;
    std::function<void(computation&)> body;
    exit_request exit;
    bool ended = false;

    // The thread.
    computation() {
        const dunlin::platform::stack_bounds bounds = dunlin::platform::thread_stack();
        view = {bounds.low, bounds.size, thread_fiber()};
    }

    explicit computation(std::function<void(computation&)> function) : body(std::move(function)) {
        if (stacks.allocate(dense_class, &stack, 1) != 1) std::abort();
        prepare_for_tools(*stack);
        view = {stack->low(), static_cast<std::size_t>(stack->end() - stack->low()), fiber_of(stack->end())};
        where = make_context(stack->top);
        where.pc = reinterpret_cast<void*>(&context_test_entry);
    }

    computation(const computation&) = delete;
    computation& operator=(const computation&) = delete;

    ~computation() {
        if (stack == nullptr) return;
        EXPECT_TRUE(ended);
        stacks.recycle(stack, stack, 1, stack->size_class);
    }
};

[[gnu::always_inline]] inline void switch_inline(computation& from, computation& to) {
    if (to.stack != nullptr) starting = &to;
    before_switch(from.fake, to.view);
    switch_context(&from.where, &to.where);
    after_switch(from.fake);
}

// An ordinary function to its callers: the registers that are the callee's to preserve must be as they were when it
// returns.
[[gnu::noinline]] void switch_over(computation& from, computation& to) { switch_inline(from, to); }

void resume(computation& thread, computation& c) {
    c.caller = &thread;
    switch_over(thread, c);
}

void suspend(computation& c) { switch_over(c, *c.caller); }

void call_body(void* raw) {
    auto& c = *static_cast<computation*>(raw);
    c.body(c);
}

}  // namespace

void context_test_base() {
    after_first_switch();
    computation& c = *starting;
    dunlin_invoke(call_body, &c);
    c.ended = true;
    before_last_switch(c.caller->view);
    jump_context(&c.caller->where);
}

namespace {

// ---- start and end --------------------------------------------------------------------------------------------------

TEST(Context, AFreshStackStartsBelowItsTopAligned) {
    computation thread;
    std::uintptr_t frame = 0;
    computation c([&](computation&) { frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)); });
    resume(thread, c);
    EXPECT_TRUE(c.ended);
    EXPECT_LT(frame, reinterpret_cast<std::uintptr_t>(c.stack->top));
    EXPECT_GT(frame, reinterpret_cast<std::uintptr_t>(c.stack->top) - 4096);
    EXPECT_EQ(frame % 16, 0u);
}

TEST(Context, AComputationGoesOnWhereItStopped) {
    computation thread;
    std::string order;
    computation c([&](computation& self) {
        order += 'b';
        suspend(self);
        order += 'd';
        suspend(self);
        order += 'f';
    });
    order += 'a';
    resume(thread, c);
    order += 'c';
    resume(thread, c);
    order += 'e';
    resume(thread, c);
    order += 'g';
    EXPECT_EQ(order, "abcdefg");
    EXPECT_TRUE(c.ended);
}

TEST(Context, AStackIsUsedAgainByTheNextComputation) {
    computation thread;
    int ended = 0;
    for (int i = 0; i < 200; ++i) {
        computation c([&](computation& self) {
            volatile char frame[2000] = {};
            frame[i] = 1;
            suspend(self);
            ended += frame[i];
        });
        resume(thread, c);
        resume(thread, c);
    }
    EXPECT_EQ(ended, 200);
}

// ---- registers ------------------------------------------------------------------------------------------------------

callee_saved pattern(std::uint64_t seed) {
    callee_saved result{};
    for (unsigned i = 0; i < general_registers; ++i) result.general[i] = seed * 0x9e37'79b9'7f4a'7c15 + i;
    for (unsigned i = 0; i < floating_registers; ++i)
        result.floating[i] = std::bit_cast<std::uint64_t>(static_cast<double>(seed) + i / 16.0);
    return result;
}

void expect_same(const callee_saved& after, const callee_saved& before) {
    for (unsigned i = 0; i < general_registers; ++i)
        EXPECT_EQ(after.general[i], before.general[i]) << "general register " << i;
    for (unsigned i = 0; i < floating_registers; ++i)
        EXPECT_EQ(after.floating[i], before.floating[i]) << "floating-point register " << i;
}

TEST(Context, ASwitchPreservesTheRegistersOfTheCallingConvention) {
    computation thread;
    std::deque<computation> all;
    for (unsigned k = 0; k < 3; ++k) {
        all.emplace_back([k](computation& self) {
            for (unsigned round = 0; round < 50; ++round) {
                const callee_saved before = pattern(100 * round + k + 1);
                callee_saved after{};
                context_test_with_registers(
                    [](void* c) { suspend(*static_cast<computation*>(c)); }, &self, &before, &after);
                expect_same(after, before);
            }
        });
    }
    // The thread has patterns as well.
    struct call {
        computation& thread;
        computation& c;
    };
    for (unsigned round = 0; round < 51; ++round) {
        for (computation& c : all) {
            call both{thread, c};
            const callee_saved before = pattern(7777 + round);
            callee_saved after{};
            context_test_with_registers(
                [](void* raw) { resume(static_cast<call*>(raw)->thread, static_cast<call*>(raw)->c); }, &both, &before,
                &after);
            expect_same(after, before);
        }
    }
    for (computation& c : all) EXPECT_TRUE(c.ended);
}

[[gnu::always_inline]] inline void want_in_register(std::uint64_t& value) {
    asm volatile(""
                 : "+r"(value));
}

[[gnu::always_inline]] inline void want_in_register(double& value) {
#if defined(__x86_64__)
    asm volatile(""
                 : "+x"(value));
#elif defined(__aarch64__)
    asm volatile(""
                 : "+w"(value));
#endif
}

// More values than there are registers, wanted in registers on both sides of a switch that is compiled into the same
// function. Whatever the switch does not declare as lost, the compiler uses.
template <class Value>
[[gnu::noinline]] Value hold_values(computation& from, computation& to, Value seed) {
    constexpr int count = 28;
    Value v[count];
#pragma GCC unroll 28
    for (int i = 0; i < count; ++i) v[i] = seed + static_cast<Value>(i);
    const auto in_registers = [&] {
#pragma GCC unroll 28
        for (int i = 0; i < count; ++i) want_in_register(v[i]);
    };
    in_registers();
    switch_inline(from, to);
    in_registers();
    Value sum = 0;
#pragma GCC unroll 28
    for (int i = 0; i < count; ++i) sum += v[i] * static_cast<Value>(i + 1);
    return sum;
}

template <class Value>
Value expected_sum(Value seed) {
    Value sum = 0;
    for (int i = 0; i < 28; ++i) sum += (seed + static_cast<Value>(i)) * static_cast<Value>(i + 1);
    return sum;
}

template <class Value>
void switch_among_wreckers() {
    computation thread;
    computation wrecker([](computation& self) {
        for (int i = 0; i < 20; ++i) {
            wreck_registers();
            suspend(self);
        }
    });
    computation holder([&](computation& self) {
        for (int i = 0; i < 20; ++i)
            EXPECT_EQ(hold_values<Value>(self, thread, 1000 * i), expected_sum<Value>(1000 * i));
    });
    wrecker.caller = holder.caller = &thread;
    for (int i = 0; i < 21; ++i) {
        EXPECT_EQ(hold_values<Value>(thread, wrecker, 77 * i), expected_sum<Value>(77 * i));
        EXPECT_EQ(hold_values<Value>(thread, holder, 99 * i), expected_sum<Value>(99 * i));
    }
    EXPECT_TRUE(wrecker.ended && holder.ended);
}

TEST(Context, IntegersOfAFunctionThatSwitchesSurvive) { switch_among_wreckers<std::uint64_t>(); }
TEST(Context, FloatingPointValuesOfAFunctionThatSwitchesSurvive) { switch_among_wreckers<double>(); }

TEST(Context, AThousandSwitchesAroundEightStacks) {
    constexpr unsigned stacks_count = 8;
    constexpr unsigned rounds = 1000 / stacks_count;
    computation thread;
    std::deque<computation> ring;
    std::array<unsigned, stacks_count> turns{};
    unsigned switches = 0;
    for (unsigned k = 0; k < stacks_count; ++k) {
        ring.emplace_back([&, k](computation& self) {
            volatile unsigned on_stack[64];
            for (unsigned i = 0; i < 64; ++i) on_stack[i] = k * 1000 + i;
            double real = k;
            for (unsigned round = 0; round < rounds; ++round) {
                ++switches;
                real += 0.5;
                switch_over(self, ring[(k + 1) % stacks_count]);
                ++turns[k];
            }
            for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(on_stack[i], k * 1000 + i);
            EXPECT_EQ(real, k + rounds * 0.5);
        });
        ring.back().caller = &thread;
    }
    // The first one comes out of its last switch first; the others stand in theirs.
    for (computation& c : ring) resume(thread, c);
    EXPECT_EQ(switches, stacks_count * rounds);
    for (unsigned k = 0; k < stacks_count; ++k) EXPECT_EQ(turns[k], rounds) << k;
    for (computation& c : ring) EXPECT_TRUE(c.ended);
}

// ---- traces ---------------------------------------------------------------------------------------------------------

// After a call: it is not the last thing that the function does, so the compiler cannot turn it into a jump.
inline void keep_frame() { std::atomic_signal_fence(std::memory_order_seq_cst); }

struct levels {
    computation& self;
    void* into_middle = nullptr;
    void* into_outer = nullptr;
    trace from_inside = {};
};

[[gnu::noinline]] void inner(levels& l) {
    l.into_middle = __builtin_return_address(0);
    l.from_inside = capture_trace();
    switch_over(l.self, *l.self.caller);
    keep_frame();
}

[[gnu::noinline]] void middle(levels& l) {
    l.into_outer = __builtin_return_address(0);
    inner(l);
    keep_frame();
}

[[gnu::noinline]] void outer(levels& l) {
    middle(l);
    keep_frame();
}

std::vector<void*> frames(const trace& t) { return {t.pc, t.pc + t.size}; }

void expect_from_middle_to_entry(const std::vector<void*>& found, std::size_t at, const levels& l) {
    ASSERT_GT(found.size(), at + 4);
    EXPECT_LT(found.size(), trace_frames_max) << "the walk goes on behind the entry";
    EXPECT_EQ(found[at], l.into_middle);
    EXPECT_EQ(found[at + 1], l.into_outer);
    EXPECT_EQ(found[found.size() - 3], dunlin_invoke_landing);
    EXPECT_EQ(found.back(), context_test_entry_returned);
}

TEST(Context, ATraceOfAStoppedComputationHasItsFunctions) {
    computation thread;
    trace stopped, again;
    levels l{thread};
    computation c([&](computation& self) {
        levels mine{self};
        outer(mine);
        l.into_middle = mine.into_middle;
        l.into_outer = mine.into_outer;
        l.from_inside = mine.from_inside;
    });
    resume(thread, c);
    const void* const stopped_at = c.where.pc;
    stopped = capture_trace(c.where);
    again = capture_trace(c.where);
    resume(thread, c);
    EXPECT_TRUE(c.ended);
    // switch_over, inner, middle, outer, the body, ..., dunlin_invoke, context_test_base, context_test_entry
    EXPECT_EQ(stopped.pc[0], stopped_at);
    expect_from_middle_to_entry(frames(stopped), 2, l);
    EXPECT_EQ(frames(stopped), frames(again));
    // inner, middle, ...: the same from there on
    expect_from_middle_to_entry(frames(l.from_inside), 1, l);
}

TEST(Context, ATraceOfAComputationThatHasNotStartedIsItsEntry) {
    slot* s = nullptr;
    ASSERT_EQ(stacks.allocate(dense_class, &s, 1), 1u);
    const context fresh = make_context(s->top);
    const trace t = capture_trace(fresh);
    EXPECT_EQ(frames(t), std::vector<void*>{reinterpret_cast<void*>(&dunlin_context_entry)});
    stacks.recycle(s, s, 1, s->size_class);
}

// ---- unwinding ------------------------------------------------------------------------------------------------------

struct noted {
    int& count;
    ~noted() { ++count; }
};

[[gnu::noinline]] void throw_at_depth(int depth, int& destroyed) {
    noted n{destroyed};
    if (depth == 0) throw std::runtime_error("from below");
    throw_at_depth(depth - 1, destroyed);
    keep_frame();
}

TEST(Context, AnExceptionIsThrownAndCaughtOnAFreshStack) {
    computation thread;
    for (int i = 0; i < 20; ++i) {
        int destroyed = 0;
        std::string caught, caught_again;
        computation c([&](computation& self) {
            try {
                try {
                    throw_at_depth(10, destroyed);
                } catch (const std::runtime_error& e) {
                    caught = e.what();
                    suspend(self);  // in the handler
                    throw;
                }
            } catch (const std::exception& e) {
                caught_again = e.what();
            }
        });
        resume(thread, c);
        EXPECT_EQ(caught, "from below");
        EXPECT_EQ(destroyed, 11);
        EXPECT_EQ(caught_again, "");
        resume(thread, c);
        EXPECT_EQ(caught_again, "from below");
        EXPECT_TRUE(c.ended);
    }
}

[[gnu::noinline]] void exit_at_depth(computation& self, int depth, int& destroyed, int& handlers) {
    noted n{destroyed};
    try {
        if (depth == 0) unwind_to_invoke(self.exit);
        exit_at_depth(self, depth - 1, destroyed, handlers);
    } catch (...) {
        ++handlers;
        if (depth % 2 == 0) throw;  // the others swallow it: in vain
    }
    keep_frame();
}

TEST(Context, AForcedUnwindRunsEveryDestructorAndEndsAtTheInvocation) {
    computation thread;
    int destroyed = 0, handlers = 0;
    computation c([&](computation& self) {
        suspend(self);
        exit_at_depth(self, 5, destroyed, handlers);
        ADD_FAILURE() << "went on";
    });
    resume(thread, c);
    resume(thread, c);
    EXPECT_TRUE(c.ended);
    EXPECT_EQ(destroyed, 6);
    EXPECT_EQ(handlers, 6);
}

// ---- goroutines -----------------------------------------------------------------------------------------------------

struct walk {
    std::array<void*, 64> pc{};
    int size = 0;
    std::uintptr_t frame = 0;
};

[[gnu::noinline]] void walk_from_here(walk& w) {
    w.frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    w.size = backtrace(w.pc.data(), static_cast<int>(w.pc.size()));
}

void expect_ends_at_entry(const walk& w) {
    ASSERT_GE(w.size, 4);
    ASSERT_LT(w.size, 64) << "the walk goes on behind the entry";
    const auto entry = reinterpret_cast<std::uintptr_t>(&dunlin_context_entry);
    const auto last = reinterpret_cast<std::uintptr_t>(w.pc[static_cast<std::size_t>(w.size) - 1]);
    EXPECT_GT(last, entry);
    EXPECT_LE(last, entry + (general_registers == 6 ? 32 : 56));  // so long is it: x86-64's, aarch64's
    EXPECT_EQ(w.frame % 16, 0u);
}

TEST(Context, ABacktraceInAGoroutineEndsAtItsEntry) {
    walk in_main, before, after, in_place, of_own_size;
    dunlin::run([&] {
        walk_from_here(in_main);
        auto parked = dunlin::spawn([&] {
            walk_from_here(before);
            dunlin::sleep_for(std::chrono::milliseconds(1));
            walk_from_here(after);
        });
        dunlin::yield();
        parked.get();
        dunlin::spawn([&] { walk_from_here(in_place); }).get();
        dunlin::spawn(dunlin::go_options{.stack_size = 1 << 20}, [&] { walk_from_here(of_own_size); }).get();
    });
    for (const walk* w : {&in_main, &before, &after, &in_place, &of_own_size}) expect_ends_at_entry(*w);
}

}  // namespace
