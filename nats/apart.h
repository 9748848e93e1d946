// apart.h - threads of this library's own, for what may not hold up a goroutine: libnats' calls that block, and the
// socket's loop.
#pragma once

#include <csignal>
#include <optional>
#include <pthread.h>
#include <thread>
#include <utility>

#include <nats/nats.h>

namespace dunlin::inline v0_1::nats::detail {

// Runs f(), which calls libnats, on a thread of its own. Throws std::system_error if no thread can be made,
// std::bad_alloc.
template <class F>
void apart(const char* name, F f) {
    // Signals are for the program's own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        std::thread([name, own = std::optional<F>(std::move(f))]() mutable {
            pthread_setname_np(pthread_self(), name);
            (*own)();
            own.reset();  // its destruction may be the last call into libnats
            nats_ReleaseThreadMemory();
        }).detach();
    } catch (...) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace dunlin::nats::detail
