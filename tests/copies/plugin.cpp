#include "copies/plugin.h"

namespace {

// Made when it is loaded, destroyed when the program ends: that is no use.
dunlin::mutex idle_mutex;
dunlin::counting_semaphore<> idle_semaphore(1);
dunlin::chan<int> idle_channel(3);

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
