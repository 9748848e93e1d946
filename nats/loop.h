// loop.h - the thread that reads and writes a connection's socket, instead of libnats' two threads.
//
// Problem   libnats' own flusher waits a millisecond before it writes, so each answer takes a millisecond longer; and
//           writing each message by itself costs a system call.
// Protocol  libnats calls attach() when a socket is connected, and read() and write() to start or stop watching its
//           readiness. It holds its own lock then, so they only set a variable and wake the thread. The thread polls,
//           and calls libnats' ProcessReadEvent and ProcessWriteEvent, which take that lock. Messages gather in
//           libnats' buffer until the thread writes them all, a tenth of a millisecond after the first one; it reads
//           meanwhile. A sender in a hurry writes its own message (hurry()).
// Writes    Rule: ProcessWriteEvent is called only while there is something to write. libnats takes a write of no bytes
//           for the end of the connection, and connects anew: messages on their way are then lost, a job until its
//           ack_wait has passed, a request for good. So the thread and all senders check wants_write_ and make the call
//           in one step, under inside_. If wants_write_ is set there are bytes, because only that call takes them out.
//           A connection that breaks in between takes the fd with it; a new one has its subscriptions in the buffer
//           when libnats' lock is free. A sender that leaves bytes unwritten wakes the thread.
// One       Rule: only one thread at a time is in ProcessReadEvent or ProcessWriteEvent, as libnats expects of an event
//           loop: a write that fails closes the socket from which the other thread would go on reading. So both calls
//           need inside_. A sender sets urgent_, then only tries to take inside_; if the thread holds it, the writing
//           is left to the thread. Partner of urgent_: the thread looks at it after it has released inside_.
// Graves    Rule: a subscription is not freed while the thread may be delivering to it. libnats looks it up, and uses
//           it without a reference of its own (fixed after 3.4). So bury() takes a subscription that has ended, and the
//           thread frees it under inside_, when no call can find it any more. A connection needs no such care:
//           ProcessReadEvent holds a reference to it, ProcessWriteEvent does not touch it after it is closed, and
//           detach() waits for both.
// TLS       Two threads may not use an OpenSSL object at once: with TLS the thread is the only writer, and a sender in
//           a hurry wakes it.
// Silence   libnats' own pings use the wall clock: if that is set back, they stop. So the time of the last read is kept
//           here, from a clock that does not jump. connection::tick() asks the server, and when nothing comes give_up()
//           shuts the socket down, which libnats takes for its end. Rule: only libnats closes the fd, and takes it back
//           (read(), detach()) before. Taking back and shutting down happen under socket_lock_; no call into libnats
//           does.
//           detach() is the last call for a natsConnection, made without libnats' lock. It waits until the thread and
//           all senders are outside libnats, unless it is called there itself. Rule: the next natsConnection is dialled
//           only when the one before is detached (free()).
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
    // Throws std::system_error if no thread can be made, std::bad_alloc.
    void start(std::weak_ptr<connection> c);
    void stop() noexcept;

    // Nothing is attached.
    bool free() const noexcept { return nc_.load() == nullptr; }
    bool up() const noexcept { return fd_.load(std::memory_order_acquire) >= 0; }
    void wake() noexcept;
    // When something was last read, or the socket was connected; a time of now_ns().
    std::int64_t heard_ns() const noexcept { return heard_ns_.load(std::memory_order_relaxed); }
    // Called when the server is silent: ends its connection, so that another one is made. On the thread only.
    void give_up() noexcept;

    // Takes the last reference to an ended subscription.
    void bury(natsSubscription* s) noexcept;

    // While it lives, messages that this thread publishes do not wake the loop; its destructor writes them.
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
    std::mutex socket_lock_;  // held while fd_ becomes -1, and around shutdown()
    int socket_ = -1;  // the connection's, also while it is not read
    platform::atomic<bool> wants_write_{false}, asleep_{false}, stopped_{false};
    platform::atomic<natsConnection*> nc_{nullptr};
    platform::atomic<std::thread::id> thread_{};
    std::mutex inside_;   // held around ProcessReadEvent and ProcessWriteEvent
    platform::atomic<std::thread::id> writer_{};  // the sender that holds inside_
    platform::atomic<bool> urgent_{false};        // what is in the buffer must be written at once
    std::mutex graves_lock_;
    std::vector<natsSubscription*> graves_;
    platform::atomic<bool> encrypted_{false};
    int wake_fd_ = -1;
};

}  // namespace dunlin::nats::detail
