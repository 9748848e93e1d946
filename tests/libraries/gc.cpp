// gc.cpp - the Boehm collector: goroutines are wired and use it on their thread's stack. It stops every registered
// thread by a signal and scans from where its stack pointer is to where its stack begins: so a thread is registered
// only as long as it is on that stack.
#define GC_THREADS
#include <gc/gc.h>

#include "libraries/library.h"

namespace {

struct node {
    node* next;
    long number;
};

[[gnu::noinline]] void lists(int seed, bool collect) {
    constexpr long length = 5000;
    node* first = nullptr;
    for (long i = 0; i < length; ++i) {
        node* n = static_cast<node*>(GC_MALLOC(sizeof(node)));
        n->next = first;
        n->number = i + seed;
        first = n;
    }
    if (collect) GC_gcollect();
    for (int i = 0; i < 2000; ++i) static_cast<node*>(GC_MALLOC(sizeof(node)))->number = -1;
    long sum = 0, count = 0;
    for (const node* n = first; n && count <= length; n = n->next, ++count) sum += n->number;
    libraries::expect(count == length && sum == length * (length - 1) / 2 + length * seed, "a list of %ld with sum %ld",
        count, sum);
}

}  // namespace

int main() {
    GC_INIT();
    GC_allow_register_threads();
    const unsigned v = GC_get_version();
    libraries::program p("Boehm GC " + std::to_string(v >> 16) + "." + std::to_string(v >> 8 & 255) + "." +
        std::to_string(v & 255));
    libraries::in_goroutines({.goroutines = 100, .rounds = 2}, [](int i, int) {
        const dunlin::os_thread_lock wired;
        for (const int part : {0, 1}) {
            dunlin::on_thread_stack([&] {
                GC_stack_base base;
                if (!libraries::expect(GC_get_stack_base(&base) == GC_SUCCESS, "no stack base")) return;
                if (!libraries::expect(GC_register_my_thread(&base) == GC_SUCCESS,
                    "the thread is not registered")) return;
                lists(i + part, (i + part) % 10 == 0);
                libraries::expect(GC_unregister_my_thread() == GC_SUCCESS, "the thread is not unregistered");
            });
            dunlin::sleep_for(std::chrono::milliseconds(1));
        }
    });
    return p.result();
}
