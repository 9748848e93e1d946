// loop.cpp - see loop.h.
#include "loop.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

#include "apart.h"
#include "connection.h"

// From libnats 3.10 on, an adapter reports that it no longer polls a socket, and libnats then closes it; from 3.11 on,
// it also reports that it is done with the connection. Earlier versions do both by themselves, and have no such calls.
extern "C" {
__attribute__((weak)) void natsConnection_ProcessCloseEvent(natsSock* socket);
__attribute__((weak)) void natsConnection_ProcessDetachedEvent(natsConnection* nc);
}

namespace dunlin::inline v0_1::nats::detail {

namespace {
thread_local event_loop* hurried = nullptr;  // read and written inside undisturbed() only
constexpr std::int64_t gather_ns = 100'000;
}

event_loop::event_loop() : wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (wake_fd_ < 0) throw std::system_error(errno, std::generic_category(), "nats: eventfd");
}

event_loop::~event_loop() {
    empty_graves();
    ::close(wake_fd_);
}

void event_loop::configure(natsOptions* o, bool encrypted) {
    encrypted_.store(encrypted);
    natsOptions_SetEventLoop(o, this, attach, read, write, detach);
}

void event_loop::start(std::weak_ptr<connection> c) {
    apart("dunlin-nats", [self = shared_from_this(), c = std::move(c)] { self->run(c); });
}

void event_loop::stop() noexcept {
    stopped_.store(true, std::memory_order_seq_cst);
    wake();
}

void event_loop::wake() noexcept {
    // Partner: run() sets asleep_, then looks at what it would have to do.
    if (!asleep_.exchange(false, std::memory_order_seq_cst)) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n = ::write(wake_fd_, &one, sizeof one);
}

void event_loop::run(const std::weak_ptr<connection>& c) {
    thread_.store(std::this_thread::get_id());
    std::int64_t next_tick = now_ns() + tick_ns;
    bool gathered = false;
    while (!stopped_.load(std::memory_order_seq_cst)) {
        asleep_.store(true, std::memory_order_seq_cst);
        const int fd = fd_.load(std::memory_order_seq_cst);
        const bool writes = wants_write_.load(std::memory_order_seq_cst);
        // nothing is in a hurry: wait for more to come
        const bool gathers = writes && !gathered && !urgent_.load(std::memory_order_seq_cst);
        gathered = gathers;
        pollfd both[2] = {
            {wake_fd_, POLLIN, 0}, {fd, static_cast<short>(writes && !gathers ? POLLIN | POLLOUT : POLLIN), 0}};
        const std::int64_t left = next_tick - now_ns(), wait = gathers ? gather_ns : std::max<std::int64_t>(left, 0);
        const timespec limit{wait / 1'000'000'000, wait % 1'000'000'000};
        if (!stopped_.load(std::memory_order_seq_cst)) ::ppoll(both, fd >= 0 ? 2 : 1, &limit, nullptr);
        asleep_.store(false, std::memory_order_seq_cst);
        if (both[0].revents != 0) {
            std::uint64_t n;
            [[maybe_unused]] const auto got = ::read(wake_fd_, &n, sizeof n);
        }
        if (fd >= 0 && both[1].revents != 0) {
            std::lock_guard guard(inside_);
            natsConnection* nc = nc_.load();
            if (nc != nullptr && !stopped_.load() && fd_.load() == fd && (both[1].revents & ~POLLOUT) != 0) {
                heard_ns_.store(now_ns(), std::memory_order_relaxed);
                natsConnection_ProcessReadEvent(nc);
            }
            nc = nc_.load();
            if (nc != nullptr && !stopped_.load() && fd_.load() == fd && (both[1].revents & POLLOUT) != 0) {
                write_what_waits(nc);
            }
            if ((nc = nc_.load()) != nullptr && !stopped_.load() && fd_.load() == fd &&
                urgent_.load(std::memory_order_seq_cst))
                write_what_waits(nc);
        }
        if (now_ns() >= next_tick) {
            next_tick = now_ns() + tick_ns;
            empty_graves();
            const auto strong = c.lock();
            if (!strong) break;
            strong->tick();
        }
    }
}

// With inside_.
void event_loop::write_what_waits(natsConnection* nc) noexcept {
    urgent_.store(false, std::memory_order_seq_cst);
    if (wants_write_.load(std::memory_order_seq_cst)) natsConnection_ProcessWriteEvent(nc);
}

// Called by a sender. While it holds inside_, the attached connection stays attached.
void event_loop::write_now() noexcept {
    urgent_.store(true, std::memory_order_seq_cst);
    if (!inside_.try_lock()) return;
    writer_.store(std::this_thread::get_id());
    if (natsConnection* nc = nc_.load(); nc != nullptr) write_what_waits(nc);
    writer_.store({});
    inside_.unlock();
}

void event_loop::bury(natsSubscription* s) noexcept {
    std::lock_guard guard(graves_lock_);
    try {
        graves_.push_back(s);
    } catch (const std::bad_alloc&) {
        // It is not freed, then: the thread may be delivering to it.
    }
}

// Called on the thread, or when there is no thread any more.
void event_loop::empty_graves() noexcept {
    std::vector<natsSubscription*> subscriptions;
    {
        std::lock_guard guard(graves_lock_);
        subscriptions.swap(graves_);
    }
    if (subscriptions.empty()) return;
    std::lock_guard guard(inside_);
    for (natsSubscription* s : subscriptions) natsSubscription_Destroy(s);
}

void event_loop::take_back() noexcept {
    std::lock_guard guard(socket_lock_);
    fd_.store(-1);
}

void event_loop::give_up() noexcept {
    std::lock_guard guard(socket_lock_);
    if (const int fd = fd_.load(); fd >= 0) ::shutdown(fd, SHUT_RDWR);
}

natsStatus event_loop::attach(void** self, void* loop, natsConnection* nc, natsSock fd) {
    auto* l = static_cast<event_loop*>(loop);
    *self = l;
    l->nc_.store(nc);
    l->socket_ = fd;
    l->wants_write_.store(false);
    l->heard_ns_.store(now_ns(), std::memory_order_relaxed);
    l->fd_.store(fd);
    l->wake();
    return NATS_OK;
}

natsStatus event_loop::read(void* self, bool add) {
    auto* l = static_cast<event_loop*>(self);
    if (add) {
        l->fd_.store(l->socket_);
    } else {
        l->take_back();
    }
    l->wake();
    return NATS_OK;
}

natsStatus event_loop::write(void* self, bool add) {
    auto* l = static_cast<event_loop*>(self);
    l->wants_write_.store(add, std::memory_order_seq_cst);
    if (add && hurried != l) l->wake();
    return NATS_OK;
}

natsStatus event_loop::detach(void* self) {
    auto* l = static_cast<event_loop*>(self);
    l->take_back();
    l->wants_write_.store(false);
    natsConnection* const nc = l->nc_.load();
    natsSock socket = l->socket_;
    const std::thread::id self_id = std::this_thread::get_id();
    {
        std::unique_lock guard(l->inside_, std::defer_lock);
        if (l->thread_.load() != self_id && l->writer_.load() != self_id) guard.lock();
        if (natsConnection_ProcessCloseEvent != nullptr) natsConnection_ProcessCloseEvent(&socket);
        l->nc_.store(nullptr);  // makes free() true; the last step
    }
    if (natsConnection_ProcessDetachedEvent != nullptr) natsConnection_ProcessDetachedEvent(nc);
    return NATS_OK;
}

event_loop::hurry::hurry(event_loop& l) noexcept : loop_(l) { hurried = &l; }
event_loop::hurry::~hurry() {
    if (loop_.up() && loop_.wants_write_.load(std::memory_order_seq_cst)) {
        if (loop_.encrypted_.load()) {
            loop_.urgent_.store(true, std::memory_order_seq_cst);
        } else {
            loop_.write_now();
        }
    }
    hurried = nullptr;
    // the socket takes no more at present, or only the thread may write
    if (loop_.wants_write_.load(std::memory_order_seq_cst)) loop_.wake();
}

}  // namespace dunlin::nats::detail
