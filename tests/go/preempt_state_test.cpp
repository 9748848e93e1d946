// PRE-06: goroutines that are stopped while they compute come back exactly as they were: registers, errno, exceptions,
// jumps. ThreadSanitizer keeps signals back until a thread calls libc, so nothing is asserted there about how many were
// stopped.
#include <array>
#include <cerrno>
#include <cfenv>
#include <chrono>
#include <csetjmp>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "go/preempt_support.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;
using namespace preempt_support;

namespace {

#define IN_REGISTERS(...) asm volatile("" : __VA_ARGS__)
#if defined(__x86_64__)
#define VECTOR_REGISTER "+x"
#else
#define VECTOR_REGISTER "+w"
#endif

// Six vectors that are in registers and nowhere else from the first step to the last.
#define VECTOR_KERNEL(function, bytes, ...)                                                                                         \
    [[gnu::noinline]] __VA_ARGS__ std::uint64_t function(int seed) {                                                                \
        typedef double vector __attribute__((vector_size(bytes)));                                                                  \
        vector a = vector{} + (1.0 + seed), b = a * 1.25, c = a * 1.5, d = a * 1.75, e = a * 2.25, f = a * 2.75;                    \
        for (unsigned i = 0; i < bytes / 8; ++i) a[i] += i;                                                                         \
        for (long i = 0; i < steps; ++i) {                                                                                          \
            a = a * 0.75 + b * 0.125;                                                                                               \
            b = b * 0.5 + c * 0.375;                                                                                                \
            c = c * 0.625 + d * 0.25;                                                                                               \
            d = d * 0.25 + e * 0.5;                                                                                                 \
            e = e * 0.375 + f * 0.5;                                                                                                \
            f = f * 0.5 + a * 0.25 + 1.0;                                                                                           \
            IN_REGISTERS(VECTOR_REGISTER(a), VECTOR_REGISTER(b), VECTOR_REGISTER(c), VECTOR_REGISTER(d), VECTOR_REGISTER(e),        \
                VECTOR_REGISTER(f));                                                                                                \
        }                                                                                                                           \
        std::uint64_t hash = 0;                                                                                                     \
        for (unsigned i = 0; i < bytes / 8; ++i) {                                                                                  \
            for (const double x : {a[i], b[i], c[i], d[i], e[i], f[i]}) hash = hash * 31 + __builtin_bit_cast(std::uint64_t, x);    \
        }                                                                                                                           \
        return hash;                                                                                                                \
    }

VECTOR_KERNEL(compute_in_128_bits, 16)
#if defined(__x86_64__)
VECTOR_KERNEL(compute_in_256_bits, 32, __attribute__((target("avx2,fma"))))
VECTOR_KERNEL(compute_in_512_bits, 64, __attribute__((target("avx512f"))))

[[gnu::noinline]] std::uint64_t compute_in_x87(int seed) {
    long double a = 1.0L + static_cast<long double>(seed), b = 3.0L;
    for (long i = 0; i < steps; ++i) {
        a = a * 0.75L + b / 3.0L;
        b = b * 0.5L + a * 0.125L + 1.0L;
        asm volatile("" : "+t"(a), "+u"(b));
    }
    std::uint64_t mantissas[2];
    __builtin_memcpy(&mantissas[0], &a, 8);
    __builtin_memcpy(&mantissas[1], &b, 8);
    return mantissas[0] * 31 + mantissas[1];
}
#endif

// What comes out in each of the goroutines is what came out on an undisturbed plain thread.
class Preemption : public support::each_p {
protected:
    void compare(std::uint64_t (*kernel)(int)) {
        std::array<std::uint64_t, 32> expected;
        for (int i = 0; i < 32; ++i) expected[static_cast<std::size_t>(i)] = kernel(i);
        run([&] { storm(procs(), [&](int i) -> long { return kernel(i) != expected[static_cast<std::size_t>(i)]; }); });
    }
};
EACH_P(Preemption);

// PRE-06 state integrity
TEST_P(Preemption, KeepsIntegerRegistersAndTheRedZone) { compare(compute_in_integers); }
TEST_P(Preemption, KeepsSseOrNeonRegisters) { compare(compute_in_128_bits); }

#if defined(__x86_64__)
TEST_P(Preemption, KeepsX87Registers) { compare(compute_in_x87); }

TEST_P(Preemption, KeepsAvxRegisters) {
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) GTEST_SKIP() << "no AVX2 here";
    compare(compute_in_256_bits);
}

TEST_P(Preemption, KeepsAvx512Registers) {
    if (!__builtin_cpu_supports("avx512f")) GTEST_SKIP() << "no AVX-512 here";
    compare(compute_in_512_bits);
}
#endif

[[gnu::noinline]] std::uint64_t compute_rounding(int mode) {
    std::fesetround(mode);
    double sum = 0, divisor = 3;
    asm volatile("" : "+m"(sum), "+m"(divisor));
    for (long i = 0; i < steps / 4; ++i) {
        sum += 1 / divisor;
        divisor += 0.25;
        IN_REGISTERS(VECTOR_REGISTER(sum), VECTOR_REGISTER(divisor));
    }
    const bool kept = std::fegetround() == mode;
    std::fesetround(FE_TONEAREST);
    return kept ? __builtin_bit_cast(std::uint64_t, sum) : 0;
}

TEST_P(Preemption, KeepsTheRoundingMode) {
    constexpr int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    std::array<std::uint64_t, 4> expected;
    for (std::size_t i = 0; i < 4; ++i) expected[i] = compute_rounding(modes[i]);
    ASSERT_NE(expected[1], expected[2]);
    run([&] {
        storm(procs(),
            [&](int i) -> long { return compute_rounding(modes[i % 4]) != expected[static_cast<std::size_t>(i % 4)]; });
    });
}

// The address of errno, like that of any thread_local variable, is the thread's: not to be kept over what may change
// threads.
[[gnu::noinline]] void set_errno(int value) { errno = value; }
[[gnu::noinline]] int errno_now() { return errno; }

TEST_P(Preemption, KeepsErrno) {
    run([this] {
        storm(procs(), [](int i) -> long {
            set_errno(1000 + i);
            compute_for(ticks_per_ms());
            return errno_now() != 1000 + i;
        });
    });
}

TEST_P(Preemption, KeepsThreadLocalVariables) {
    run([this] {
        storm(procs(), [](int i) -> long {
            int* const before = mine_now();
            const bool free = *before == 0;  // a goroutine stopped in the midst of this keeps its thread to itself
            *before = i + 1;
            compute_for(ticks_per_ms());
            const bool same = mine_now() == before && *before == i + 1;
            *before = 0;
            return !free + !same;
        });
    });
}

struct trouble {
    int owner, level;
};

struct computes_while_unwinding {
    long& wrong;
    int expected;
    ~computes_while_unwinding() {
        wrong += std::uncaught_exceptions() != expected;
        compute_for(ticks_per_ms() / 4);
        wrong += std::uncaught_exceptions() != expected;
    }
};

// A throw, a catch block that throws and catches inside, and a rethrow; it computes in each of them.
[[gnu::noinline]] long throw_and_catch(int owner) {
    long wrong = 0;
    const auto check = [&](const trouble& t, int level) {
        compute_for(ticks_per_ms() / 4);
        wrong += t.owner != owner || t.level != level || std::uncaught_exceptions() != 0;
    };
    try {
        try {
            const computes_while_unwinding guard{wrong, 1};
            throw trouble{owner, 1};
        } catch (const trouble& outer) {
            const std::exception_ptr held = std::current_exception();
            check(outer, 1);
            try {
                const computes_while_unwinding guard{wrong, 1};
                throw trouble{owner, 2};
            } catch (const trouble& inner) {
                check(inner, 2);
            }
            check(outer, 1);
            wrong += std::current_exception() != held;
            throw;
        }
    } catch (const trouble& again) {
        check(again, 1);
    }
    return wrong + (std::current_exception() != nullptr);
}

TEST_P(Preemption, KeepsExceptionsInFlight) {
    run([this] { storm(procs(), throw_and_catch); });
}

// In libc, in the allocator and in the unwinder a goroutine may not be stopped at once; no other is the worse for it.
TEST_P(Preemption, KeepsThoseThatAllocateAndThrowAllTheTime) {
    run([this] {
        storm(procs(), [](int i) -> long {
            long wrong = 0;
            for (int round = 0; round < support::rounds(2000); ++round) {
                if (i % 2 == 0) {
                    const auto text = std::make_unique<std::string>(
                        static_cast<std::size_t>(100 + round % 3000), static_cast<char>('a' + i));
                    wrong += text->back() != 'a' + i;
                } else {
                    try {
                        throw trouble{i, round};
                    } catch (const trouble& t) { wrong += t.owner != i || t.level != round; }
                }
            }
            return wrong;
        }, support::sanitized ? 0 : 3);
    });
}

std::jmp_buf& jump_target(int i) {
    static std::array<std::jmp_buf, 32> all;
    return all[static_cast<std::size_t>(i)];
}

[[gnu::noinline]] void jump_from_deep(int i, int depth, int value) {
    compute_for(ticks_per_ms() / 10);
    if (depth == 0) std::longjmp(jump_target(i), value);
    if (depth > 0) jump_from_deep(i, depth - 1, value);
    asm volatile("");  // not a tail call: each has its frame
}

[[gnu::noinline]] long jumps(int i) {
    volatile int rounds = 0;
    volatile long own = 7000 + i;
    const int value = setjmp(jump_target(i));
    if (value != rounds) return 1;
    if (own != 7000 + i) return 1;
    rounds = value + 1;
    if (value < 5) jump_from_deep(i, 3, value + 1);
    return 0;
}

TEST_P(Preemption, KeepsJumpsInsideAStack) {
    run([this] { storm(procs(), jumps); });
}

}  // namespace
