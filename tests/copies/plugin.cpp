#include "copies/plugin.h"

#include <atomic>
#include <thread>

#include <dunlin/fs.hpp>
#include <dunlin/weighted_semaphore.hpp>

namespace {

// Made when it is loaded, destroyed when the program ends: that is no use.
dunlin::mutex idle_mutex;
dunlin::counting_semaphore<> idle_semaphore(1);
dunlin::chan<int> idle_channel(3);

std::atomic<long> ticks{0};

}  // namespace

int copies_nothing(copies::objects&) { return 1; }

int copies_serve(copies::objects& o) {
    dunlin::go([in = o.in, out = o.out]() mutable {
        for (const int n : in) out.send(2 * n);
        out.close();
    });
    return 1;
}

int copies_send(copies::objects& o) {
    o.in.send(1);
    return 1;
}

int copies_fill(copies::objects& o) {
    o.buffered.send(1);
    return 1;
}

int copies_close(copies::objects& o) {
    o.in.close();
    return 1;
}

int copies_lock(copies::objects& o) {
    o.mutex.lock();
    o.mutex.unlock();
    return 1;
}

int copies_release(copies::objects& o) {
    o.permits.release();
    return 1;
}

int copies_run(copies::objects&) {
    return dunlin::run([] { return dunlin::spawn([] { return 1; }).get(); });
}

int copies_other_parts(copies::objects&) {
    dunlin::weighted_semaphore weight(1);
    weight.acquire(1);
    auto [reader, writer] = dunlin::fs::pipe();
    dunlin::go([&w = writer] { w.write_all("x", 1); });
    char c = 0;
    reader.read_some(&c, 1);
    weight.release(1);
    return 1;
}

int copies_alone() {
    dunlin::go([] {
        for (;;) {
            dunlin::sleep_for(std::chrono::milliseconds(1));
            ++ticks;
        }
    });
    while (ticks == 0) std::this_thread::yield();
    return 1;
}

int copies_still_ticks() {
    const long before = ticks;
    while (ticks < before + 10) std::this_thread::yield();
    return 1;
}
