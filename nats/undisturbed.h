// undisturbed.h - the sections in which libnats is called and this library's own locks are held.
//
// Rule    A goroutine may be stopped anywhere in foreign code, for milliseconds when it is preempted and for ever when
//         run() ends. libnats' threads, and ours, live on: if a stopped goroutine held a lock of libnats' or ours, they
//         would stop too. So each call into libnats that takes a lock, and each of our critical sections, runs in
//         undisturbed(): as on a plain thread, neither preempted nor frozen.
// Inside  Nothing may park, and no dunlin lock is held around it. No call into libnats while a lock of ours is held.
#pragma once

#include <mutex>
#include <utility>

#include <dunlin/blocking.hpp>

namespace dunlin::inline v0_1::nats::detail {

template <class F>
decltype(auto) undisturbed(F&& f) {
    return on_thread_stack(std::forward<F>(f));
}

// f() under `m`.
template <class F>
decltype(auto) locked(std::mutex& m, F&& f) {
    return undisturbed([&]() -> decltype(auto) {
        std::lock_guard guard(m);
        return f();
    });
}

}  // namespace dunlin::nats::detail
