// loop.h - the thread that reads and writes a connection's socket, in place of libnats' two.
//
// Problem   libnats' own flusher waits a millisecond before it writes, so that each answer takes one more; and a write
//           for each message costs a system call.
// Protocol  libnats calls attach() when a socket is connected, and read(), write() when it wants to hear of readiness
//           or no longer, with its own lock held: they set a variable and wake the thread. The thread polls, and calls
//           libnats' ProcessReadEvent and ProcessWriteEvent, which take that lock. Messages gather in libnats' buffer
//           until the thread comes to write them all, which it does a tenth of a millisecond after the first, reading
//           meanwhile; one that is in a hurry is written by its own sender (hurry()).
// Writes    Rule: ProcessWriteEvent is called only while there is something to write. libnats takes a write of no bytes
//           for the end of the connection, and connects anew: what was on its way is lost then, a job until its
//           ack_wait has passed, a request for good. So the look at wants_write_ and the call are one step, under
//           inside_, for the thread and all senders; when it is found set there are bytes, because only that call
//           takes them out. A connection that breaks in between takes the fd with it, and one that is made anew has its
//           subscriptions in the buffer when libnats' lock is free. A sender that leaves something unwritten wakes the
//           thread.
// One       Rule: one thread at a time is in ProcessReadEvent or ProcessWriteEvent, as libnats expects of an event
//           loop:
//           a write that fails closes the socket from which the other one would go on reading. So both hold inside_; a
//           sender only tries to take it, and when the thread has it says so (urgent_) and leaves the writing to it.
//           Partner of urgent_: the thread looks at it after it has let inside_ go.
// Graves    Rule: a subscription is not freed while the thread may be delivering to it. libnats looks it up, and uses
//           it without a reference of its own (mended after 3.4). So one that has ended is given to bury(), and freed
//           by the thread under inside_, when no call can find it any more. A connection needs no such care:
//           ProcessReadEvent holds a reference to it, ProcessWriteEvent does not touch it after it is closed, and
//           detach() waits for both.
// TLS       OpenSSL's objects are not for two threads at once: there the thread is the only writer, and a hurry wakes
//           it.
// Silence   libnats' own pings go by the wall clock: one that is set back keeps them away. So the time of the last read
//           is kept here, by a clock that does not jump; connection::tick() asks, and when nothing comes give_up()
//           shuts the socket down, which libnats takes for its end. Rule: the fd is libnats' to close, and it takes it
//           back (read(), detach()) before; both happen under socket_lock_, and no call into libnats does.
//           detach() is the last call for a natsConnection, without libnats' lock: it waits until the thread is outside
//           libnats, unless it is that thread. Rule: the next one is dialled when the one before is detached (free()).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <nats/nats.h>

#include <dunlin/detail/atomic.hpp>

namespace dunlin::inline v0_1::nats::detail {

class connection;

class event_loop : public std::enable_shared_from_this<event_loop> {
public:
    event_loop();
    ~event_loop();
    void configure(natsOptions* o, bool encrypted);
    void start(std::weak_ptr<connection> c);
    void stop() noexcept;

    // Nothing is attached.
    bool free() const noexcept { return nc_.load() == nullptr; }
    bool up() const noexcept { return fd_.load(std::memory_order_acquire) >= 0; }
    void wake() noexcept;
    // By now_ns(): when something was read last, or the socket was connected.
    std::int64_t heard_ns() const noexcept { return heard_ns_.load(std::memory_order_relaxed); }
    // The server is silent: connect to another one. On the thread only.
    void give_up() noexcept;

    // Takes an ended subscription's last reference.
    void bury(natsSubscription* s) noexcept;

    // While it lives, what this thread publishes does not wake the loop; at its end it is written here.
    class hurry {
    public:
        explicit hurry(event_loop& l) noexcept;
        ~hurry();
        hurry(const hurry&) = delete;
        hurry& operator=(const hurry&) = delete;

    private:
        event_loop& loop_;
    };

private:
    void run(const std::weak_ptr<connection>& c);
    void write_what_waits(natsConnection* nc) noexcept;
    void write_now() noexcept;
    void empty_graves() noexcept;
    static natsStatus attach(void** self, void* loop, natsConnection* nc, natsSock fd);
    static natsStatus read(void* self, bool add);
    static natsStatus write(void* self, bool add);
    static natsStatus detach(void* self);

    void take_back() noexcept;

    platform::atomic<int> fd_{-1};
    platform::atomic<std::int64_t> heard_ns_{0};
    std::mutex socket_lock_;  // of fd_ becoming -1
    int socket_ = -1;  // of the connection, also while it is not read
    platform::atomic<bool> wants_write_{false}, asleep_{false}, stopped_{false};
    platform::atomic<natsConnection*> nc_{nullptr};
    platform::atomic<std::thread::id> thread_{};
    std::mutex inside_;   // held around ProcessReadEvent and ProcessWriteEvent
    platform::atomic<std::thread::id> writer_{};  // the sender that has inside_
    platform::atomic<bool> urgent_{false};        // what waits is to be written at once
    std::mutex graves_lock_;
    std::vector<natsSubscription*> graves_;
    platform::atomic<bool> encrypted_{false};
    int wake_fd_ = -1;
};

}  // namespace dunlin::nats::detail
