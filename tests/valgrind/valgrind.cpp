// valgrind MODE - what tests/tools/valgrind_test.py runs under valgrind: a program without a fault, and three with one.
//
// clean     a bit of everything, on stacks that are neighbours and of which much is used and left: a stack that
//           valgrind does not know shows here
// block     a goroutine writes behind a block of the heap
// value     a goroutine decides by a value that it has never set
// stack     a goroutine overflows its stack
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <dunlin/dunlin.hpp>
#include <dunlin/fs.hpp>
#include <dunlin/mutex.hpp>

using namespace std::chrono_literals;

namespace {

#if defined(__clang__)
#define NOT_INLINED [[gnu::noinline]]
#else
#define NOT_INLINED [[gnu::noinline, gnu::noclone]]
#endif

// Frames of unequal size, each written and read: what valgrind takes for left or for not there would be an error.
NOT_INLINED long use_stack(int depth) {
    char frame[900];
    std::memset(frame, depth, sizeof frame);
    asm volatile(""
                 :
                 : "r"(frame)
                 : "memory");
    if (depth > 0) return use_stack(depth - 1) + frame[899];
    dunlin::yield();
    return frame[0];
}

NOT_INLINED int thrown_deep_below(int depth) {
    if (depth == 0) throw std::runtime_error("from below");
    return thrown_deep_below(depth - 1) + 1;
}

int failures = 0;

void expect(bool good, const char* what) {
    if (good) return;
    std::fprintf(stderr, "valgrind: %s\n", what);
    ++failures;
}

void stacks_and_channels() {
    dunlin::chan<long> results, deep;
    constexpr int goroutines = 40;
    for (int i = 0; i < goroutines; ++i) {
        dunlin::go([=] { results.send(use_stack(i)); });
        dunlin::go([=] {
            results.send(use_stack(3 * i));
            deep.send(use_stack(40));
        });
    }
    long got = 0;
    for (int i = 0; i < 3 * goroutines; ++i) {
        dunlin::select(dunlin::on_recv(results, [&](std::optional<long>) { ++got; }),
            dunlin::on_recv(deep, [&](std::optional<long>) { ++got; }),
            dunlin::on_timeout(60s, [] { expect(false, "nobody sends"); }));
    }
    expect(got == 3 * goroutines, "a value is missing");
}

void exceptions_and_joins() {
    auto failing = dunlin::spawn([] { return thrown_deep_below(20); });
    try {
        failing.get();
        expect(false, "nothing was thrown");
    } catch (const std::runtime_error& e) {
        expect(std::string_view(e.what()) == "from below", "another exception");
    }
    dunlin::task_group group;
    std::vector<std::unique_ptr<long>> made(50);
    for (auto& one : made) group.go([&one] { one = std::make_unique<long>(use_stack(5)); });
    group.wait();
    for (const auto& one : made) expect(one != nullptr, "a child of a task_group did not run");
}

void time_and_locks() {
    dunlin::mutex lock;
    long counter = 0;
    dunlin::wait_group wg;
    for (int i = 0; i < 10; ++i) {
        wg.go([&, i] {
            dunlin::sleep_for(std::chrono::milliseconds(i % 4));
            const std::scoped_lock hold(lock);
            dunlin::yield();
            ++counter;
        });
    }
    wg.add(1);
    const auto call = dunlin::after_func(2ms, [&] { wg.done(); });
    wg.wait();
    expect(counter == 10, "the lock does not exclude");
}

void descriptors_and_children() {
    auto [r, w] = dunlin::fs::pipe();
    auto writer = dunlin::spawn([&w = w] {
        for (int i = 0; i < 20; ++i) {
            dunlin::sleep_for(200us);
            w.write_all("ping ");
        }
        w.close();
    });
    std::string text;
    char buffer[16];
    while (const std::size_t n = r.read_some(buffer)) text.append(buffer, n);
    writer.wait();
    expect(text.size() == 100, "bytes are missing");

    auto listener = dunlin::net::listen("tcp", "127.0.0.1:0");
    dunlin::go([&] {
        auto client = listener.accept();
        char byte;
        while (client.read_some(&byte, 1) != 0) client.write_some(&byte, 1);
    });
    auto stream = dunlin::net::dial("tcp", listener.local_address().to_string());
    for (char sent = 0; sent < 10; ++sent) {
        char got = -1;
        stream.write_some(&sent, 1);
        stream.read_some(&got, 1);
        expect(got == sent, "another byte came back");
    }

    dunlin::process child({"/bin/true"});
    expect(child.wait().code == 0, "a child did not end");
}

// Longer than a slice, beside others that are to run: its processor is taken, and no signal is sent.
void computing() {
    dunlin::wait_group wg;
    for (int i = 0; i < 3; ++i) {
        wg.go([] {
            const auto end = std::chrono::steady_clock::now() + 60ms;
            volatile long n = 0;
            while (std::chrono::steady_clock::now() < end) n = n + 1;
        });
    }
    for (int i = 0; i < 20; ++i) dunlin::yield();
    dunlin::blocking([] { std::this_thread::sleep_for(5ms); });
    wg.wait();
}

void from_a_thread() {
    dunlin::chan<int> c;
    std::thread plain([=] {
        for (int i = 0; i < 20; ++i) c.send(i);
        c.close();
    });
    int got = 0;
    while (c.recv()) ++got;
    plain.join();
    expect(got == 20, "a thread's value is missing");
}

void clean() {
    stacks_and_channels();
    exceptions_and_joins();
    time_and_locks();
    descriptors_and_children();
    computing();
    from_a_thread();
    stacks_and_channels();  // on stacks that others have left
}

// One too many, in a loop: of a function's first instruction valgrind may say that it is the call.
NOT_INLINED void fill(volatile char* block, std::size_t size) {
    for (std::size_t i = 0; i <= size; ++i) block[i] = 1;
}

NOT_INLINED char* ask_for_a_block(std::size_t size) {
    char* const block = new char[size];
    block[0] = 0;  // not the last thing, or the call would be a jump
    return block;
}

void block() {
    dunlin::chan<char*> blocks;
    dunlin::go([=] { blocks.send(ask_for_a_block(11)); });
    auto fault = dunlin::spawn([=] {
        char* const mine = *blocks.recv();
        fill(mine, 11);
        delete[] mine;
    });
    fault.wait();
}

NOT_INLINED void decide_by(const volatile int* values, int count) {
    for (int i = 0; i < count; ++i) {
        if (values[i] == 4711) std::puts("chance");
    }
}

void value() {
    dunlin::spawn([] {
        use_stack(10);
        int never_set[8];
        asm volatile(""
                     :
                     : "r"(never_set)
                     : "memory");
        dunlin::yield();
        decide_by(never_set, 8);
    }).wait();
}

volatile bool enough = false;

NOT_INLINED long without_end(long n) {
    volatile char frame[1000];
    if (enough) return 0;
    frame[n % 1000] = 1;
    return without_end(n + 1) + frame[n % 1000];
}

void stack() {
    dunlin::spawn([] { return without_end(0); }).wait();
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view mode = argc == 2 ? argv[1] : "";
    const auto f = mode == "clean" ? clean : mode == "block" ? block
        : mode == "value"                                    ? value
        : mode == "stack"                                    ? stack
                                                             : nullptr;
    if (f == nullptr) {
        std::fputs("usage: valgrind clean|block|value|stack\n", stderr);
        return 2;
    }
    dunlin::run(f);
    return failures == 0 ? 0 : 1;
}
