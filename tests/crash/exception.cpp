// Programs that are ended by an exception, a misuse or an overflow in a goroutine.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <ucontext.h>
#include <unistd.h>

#include <dunlin/dunlin.hpp>

#include "support/scenarios.h"

using namespace std::chrono_literals;

namespace {

void for_ever() {
    for (;;) dunlin::sleep_for(1h);
}

int detached() {
    dunlin::run([] {
        dunlin::go({.name = "thrower"}, [] { throw std::runtime_error("nobody catches this"); });
        for_ever();
    });
    return 0;
}

int detached_from_a_thread() {
    dunlin::go([] { throw std::runtime_error("nobody catches this"); });
    for (;;) pause();
}

int in_a_wait_group() {
    dunlin::run([] {
        dunlin::wait_group wg;
        wg.go([] { throw std::runtime_error("nobody catches this"); });
        wg.wait();
        for_ever();
    });
    return 0;
}

// Functions that the compiler puts into the templates of the library that call them. The texts differ, so that it does
// not make one of them.
int in_after_func() {
    dunlin::run([] {
        const auto t = dunlin::after_func(1ms, [] { throw std::runtime_error("in_after_func"); });
        for_ever();
    });
    return 0;
}

int in_a_context() {
    dunlin::run([] {
        auto [ctx, cancel] = dunlin::with_cancel(dunlin::context::background());
        const auto stop = ctx.after_func([] { throw std::runtime_error("in_a_context"); });
        cancel();
        for_ever();
    });
    return 0;
}

int in_a_jthread() {
    dunlin::run([] {
        const dunlin::jthread t([] { throw std::runtime_error("in_a_jthread"); });
        for_ever();
    });
    return 0;
}

int of_another_type() {
    dunlin::run([] {
        dunlin::go([] { throw 42; });
        for_ever();
    });
    return 0;
}

int with_a_handler() {
    std::set_terminate([] {
        std::printf("my handler: ");
        try {
            std::rethrow_exception(std::current_exception());
        } catch (const std::exception& e) {
            std::printf("%s\n", e.what());
        }
        std::fflush(stdout);
        _exit(7);
    });
    return detached();
}

int exits_in_a_handler() {
    std::set_terminate([] { std::exit(7); });
    return detached();
}

// go1.24 testdata/testprog/deadlock.go, PanicLoop and friends: the message itself makes trouble.
struct yields_in_what : std::exception {
    const char* what() const noexcept override {
        for (int i = 0; i < 10; ++i) dunlin::yield();
        return "it yielded";
    }
};
struct prints_in_what : std::exception {
    const char* what() const noexcept override {
        std::fprintf(stderr, "(printing)");
        std::string text(10'000, 'x');
        usleep(1000);
        return "it printed";
    }
};
[[noreturn]] void throw_out() { throw std::runtime_error("out of what()"); }
struct throws_in_what : std::exception {
    const char* what() const noexcept override { throw_out(); }
};
struct sleeps_in_what : std::exception {
    const char* what() const noexcept override {
        dunlin::sleep_for(20ms);
        return "it slept";
    }
};

template <class E>
int thrown() {
    dunlin::run({.max_procs = 1}, [] {
        for (int i = 0; i < 5; ++i) {
            dunlin::go([] {
                for (;;) dunlin::yield();
            });
        }
        dunlin::go([] { throw E(); });
        for_ever();
    });
    return 0;
}

// go1.24 testdata/testprog/crash.go, PanicRace: main returns while another goroutine panics.
int main_returns_meanwhile() {
    dunlin::run({.max_procs = 2}, [] {
        dunlin::wait_group wg;
        wg.add(1);
        dunlin::go([wg] {
            // Asked for its text when it was not caught: the report has begun.
            struct last_words : std::exception {
                mutable dunlin::wait_group wg;
                const char* what() const noexcept override {
                    wg.done();
                    usleep(5000);
                    return "crash";
                }
            } e;
            e.wg = wg;
            throw e;
        });
        wg.wait();
    });
    return 0;
}

int two_at_once() {
    dunlin::run({.max_procs = 4}, [] {
        std::atomic<int> ready{0};
        for (int i = 0; i < 4; ++i) {
            dunlin::go([&ready] {
                ready.fetch_add(1);
                while (ready.load() < 4) dunlin::yield();
                throw std::runtime_error("one of four");
            });
        }
        for_ever();
    });
    return 0;
}

// ---- exit_goroutine -------------------------------------------------------------------------------------------------

struct says_goodbye {
    const char* text;
    ~says_goodbye() {
        std::printf("%s\n", text);
        std::fflush(stdout);
    }
};

int exits_through_noexcept() {
    dunlin::run([] {
        dunlin::go([] {
            const auto stop = []() noexcept { dunlin::exit_goroutine(); };
            stop();
        });
        for_ever();
    });
    return 0;
}

// An exception while exit_goroutine() unwinds, which is not caught.
int throws_while_exiting() {
    dunlin::run([] {
        dunlin::go([] {
            says_goodbye guard{"destroyed"};
            try {
                dunlin::exit_goroutine();
            } catch (...) {
                throw std::runtime_error("after exit");
            }
        });
        for_ever();
    });
    return 0;
}

// ---- misuse ---------------------------------------------------------------------------------------------------------

int null_function() {
    dunlin::run([] {
        void (*f)() = nullptr;
        dunlin::go(f);
    });
    return 0;
}

// ---- stack overflow -------------------------------------------------------------------------------------------------

int endless = 1;  // so that compilers do not see it

[[gnu::noinline]] int recurse(int depth) {
    volatile char room[256];
    room[0] = static_cast<char>(depth);
    return endless ? recurse(depth + 1) + room[0] : 0;
}

int overflow() {
    dunlin::run([] {
        dunlin::go({.name = "digger"}, [] { std::printf("%d", recurse(0)); });
        for_ever();
    });
    return 0;
}

int overflow_of_main() {
    return dunlin::run([] { return recurse(0); });
}

int overflow_in_place() {
    dunlin::run([] { dunlin::spawn([] { return recurse(0); }).get(); });
    return 0;
}

// The overflow happens in malloc(), mostly, with its lock held; what started the goroutine is known as an address.
[[gnu::noinline]] int recurse_by_the_heap(int n) {
    const std::string s(200 + static_cast<std::size_t>(n % 2), 'x');
    if (n < 0) return 0;
    return recurse_by_the_heap(n + 1) + static_cast<int>(s.size());
}

int overflow_in_malloc() {
    dunlin::run([] {
        dunlin::wait_group wg;
        wg.go(recurse_by_the_heap, 0);
        wg.wait();
    });
    return 0;
}

int overflow_of_a_small_stack() {
    dunlin::run([] {
        dunlin::go({.name = "small", .stack_size = dunlin::min_stack_size}, [] { std::printf("%d", recurse(0)); });
        for_ever();
    });
    return 0;
}

// A frame wider than a page, which does not touch what it jumps over.
[[gnu::noinline]] int wide(int depth) {
    volatile char room[9000];
    room[0] = static_cast<char>(depth);
    return endless ? wide(depth + 1) + room[0] : 0;
}

int overflow_by_wide_frames() {
    dunlin::run([] {
        dunlin::go([] { std::printf("%d", wide(0)); });
        for_ever();
    });
    return 0;
}

// Two functions in turn.
[[gnu::noinline]] int odd(int depth);
[[gnu::noinline]] int even(int depth) {
    volatile char room[64];
    room[0] = static_cast<char>(depth);
    return endless ? odd(depth + 1) + room[0] : 0;
}
int odd(int depth) {
    volatile char room[128];
    room[0] = static_cast<char>(depth);
    return endless ? even(depth + 1) + room[0] : 0;
}

int overflow_by_two() {
    dunlin::run([] {
        dunlin::go([] { std::printf("%d", even(0)); });
        for_ever();
    });
    return 0;
}

// No recursion: one frame is too large.
[[gnu::noinline]] int too_wide() {
    volatile char room[400'000];
    for (std::size_t i = sizeof room; i > 0; i -= 1000) room[i - 1] = 1;
    return room[0];
}

int overflow_by_one_frame() {
    dunlin::run({.stack_size = dunlin::dense_stack_size}, [] {
        dunlin::go([] { std::printf("%d", too_wide()); });
        for_ever();
    });
    return 0;
}

// Frames that pass over the guard. Distributions have g++ touch each page of a frame; then the guard stops it.
#if defined(__clang__)
#define PASSES_OVER_GUARD [[gnu::noinline]]
#else
#define PASSES_OVER_GUARD [[gnu::noinline, gnu::optimize("no-stack-clash-protection")]]
#endif

// So far down that nothing is there.
constexpr std::size_t image_bytes = std::size_t{400} << 20;

PASSES_OVER_GUARD int image() {
    volatile char room[image_bytes];
    room[0] = 1;
    return room[0];
}

int overflow_past_the_guard() {
    return dunlin::run([] { return image(); });
}

void (*volatile see)(volatile char*) = [](volatile char*) {};

PASSES_OVER_GUARD int calls_from_image() {
    volatile char room[image_bytes];
    see(room);
    return room[0];
}

int overflow_past_the_guard_by_a_call() {
    return dunlin::run([] { return calls_from_image(); });
}

PASSES_OVER_GUARD int huge_image() {
    volatile char room[1100 << 20];
    room[0] = 1;
    return room[0];
}

int overflow_that_no_stack_holds() {
    return dunlin::run([] { return huge_image(); });
}

// Two stacks that lie one below the other: the frame of one ends in the other, and finds no code there.
PASSES_OVER_GUARD void into_neighbour(void (*f)()) {
    volatile char room[300 << 10];
    f();
    room[0] = 1;
    static_cast<void>(room[0]);
}

int overflow_into_another_stack() {
    dunlin::run({.stack_size = dunlin::dense_stack_size}, [] {
        static std::atomic<std::uintptr_t> highest{0};
        for (int i = 0; i < 8; ++i) {
            dunlin::go([] {
                const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
                std::uintptr_t known = highest;
                while (known < here && !highest.compare_exchange_weak(known, here)) {
                }
                dunlin::sleep_for(20ms);
                if (highest == here) into_neighbour(reinterpret_cast<void (*)()>(8));
            });
        }
        for_ever();
    });
    return 0;
}

// A stack that the program has switched to, from which it touches what is not there.
int fault_on_another_stack() {
    dunlin::run([] {
        static ucontext_t back, there;
        static char room[64 << 10];
        getcontext(&there);
        there.uc_stack.ss_sp = room;
        there.uc_stack.ss_size = sizeof room;
        there.uc_link = &back;
        static const volatile std::uintptr_t nowhere = 64;
        makecontext(&there, [] { *reinterpret_cast<volatile int*>(nowhere) = 1; }, 0);
        swapcontext(&back, &there);
    });
    return 0;
}

int null_pointer() {
    dunlin::run([] {
        dunlin::go([] {
            volatile int* nothing = nullptr;
            *nothing = 1;
        });
        for_ever();
    });
    return 0;
}

constexpr support::scenario all[] = {
    {"detached", detached},
    {"detached_from_a_thread", detached_from_a_thread},
    {"in_a_wait_group", in_a_wait_group},
    {"in_after_func", in_after_func},
    {"in_a_context", in_a_context},
    {"in_a_jthread", in_a_jthread},
    {"of_another_type", of_another_type},
    {"with_a_handler", with_a_handler},
    {"exits_in_a_handler", exits_in_a_handler},
    {"yields_in_what", thrown<yields_in_what>},
    {"prints_in_what", thrown<prints_in_what>},
    {"throws_in_what", thrown<throws_in_what>},
    {"sleeps_in_what", thrown<sleeps_in_what>},
    {"main_returns_meanwhile", main_returns_meanwhile},
    {"two_at_once", two_at_once},
    {"exits_through_noexcept", exits_through_noexcept},
    {"throws_while_exiting", throws_while_exiting},
    {"null_function", null_function},
    {"overflow", overflow},
    {"overflow_of_main", overflow_of_main},
    {"overflow_in_place", overflow_in_place},
    {"overflow_in_malloc", overflow_in_malloc},
    {"overflow_of_a_small_stack", overflow_of_a_small_stack},
    {"overflow_by_wide_frames", overflow_by_wide_frames},
    {"overflow_by_two", overflow_by_two},
    {"overflow_by_one_frame", overflow_by_one_frame},
    {"overflow_past_the_guard", overflow_past_the_guard},
    {"overflow_past_the_guard_by_a_call", overflow_past_the_guard_by_a_call},
    {"overflow_that_no_stack_holds", overflow_that_no_stack_holds},
    {"overflow_into_another_stack", overflow_into_another_stack},
    {"fault_on_another_stack", fault_on_another_stack},
    {"null_pointer", null_pointer},
};

}  // namespace

int main(int argc, char** argv) { return support::choose(argc, argv, all); }
