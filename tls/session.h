// session.h - one TLS connection: OpenSSL's state machine on one side, the network on the other, and which party may
// access which data.
//
// Problem    Only one thread at a time may use an OpenSSL object, its error queue belongs to the thread, and a
//            goroutine that waits may continue on another thread. So nothing may wait inside OpenSSL. Yet a reader and
//            a writer use the same connection at the same time, and the reader may have to send (an answer to a key
//            update, an alert).
// Data       lock_ protects ssl_, wire_, fatal_, write_error_, fruitless_ and answers_; it is never held during a wait
//            for the network. OpenSSL reads from wire_.in and appends to wire_.out; it never waits. raw_ belongs to the
//            reader (or the handshake), sending_ and gathered_ to the holder of send_turn_.
// Protocol   Each call into OpenSSL is an attempt(): take lock_, empty the error queue, call, ask for the result, read
//            the queue, unlock. Outside the lock the holder of send_turn_ sends its own output, and what stands
//            before it in wire_.out, in order (flush()); what readers add meanwhile comes after that, and a failure
//            of theirs is reported to the next writer (flush_pending()). If OpenSSL wants to read, the reader reads
//            from the network into raw_ and hands that over (fill()): OpenSSL wants more only when wire_.in is used up,
//            so raw_ is then not in use. Turns: the handshake (makes_handshake_), then send_turn_, then read_turn_,
//            then lock_. A reader never waits for send_turn_.
//            Half a message: after the handshake the peer may send more messages of that kind (tickets, key updates),
//            in several records. Between two of these records OpenSSL encrypts nothing: it wants the rest first. A
//            writer then waits until a reader has brought more (progress_) or the write deadline is past; if there is
//            no reader, the writer takes the reader's turn and reads itself. The read deadline then applies to the
//            writer too.
// Proof      Nothing stays unsent. A writer sends its own output, with send_turn_. A reader must not wait for that
//            turn, because a writer may keep it until the peer reads, and the peer's reader may be waiting in the same
//            way. The reader appends (with lock_), and tries to take the turn. If that fails, another party has it, and
//            every party that gives it back looks at wire_.out afterwards (flush_pending()). Had that party looked
//            before the append, it would have given the turn back before the reader tried to take it. So it looks after
//            the append, and sees it.
//            Nor does a reader wait for room in the socket: what is not taken at once goes back to the front of
//            wire_.out, for the next party that sends. No peer waits for such an answer: it needs to come only before
//            the next data (RFC 8446, 4.6.3); renegotiation is off, and so is authentication after the handshake,
//            unless the program switches it on by native_handle().
// Memory     A waiting connection holds no buffers: raw_ is allocated for an attempt to read, and freed when there is
//            nothing to read or when a reader leaves and raw_ is used up. A writer leaves buffers of at most
//            `most_kept` bytes.
// Floods     TLS has messages that bring no data but demand an answer, key updates for instance, and the peer may send
//            any number of them. Two bounds: fruitless_, the bytes received in a row with no data either way, and
//            answers_, a reader's bytes that wait for the turn to be sent. Beyond either bound the connection fails
//            (errc::flood). The handshake has OpenSSL's own bounds.
// Left       A goroutine that is in a call when its run() returns never comes back: it may hold any of the locks, and
//            OpenSSL's state may be half changed. visits_ counts the calls of goroutines of a run(). If it has ended
//            and some were left, the session is unusable: calls fail with std::errc::state_not_recoverable before they
//            touch anything but the network, close() closes the network's stream alone, and the session is not
//            destroyed.
// Limits     What a writer has to read, in the handshake too, ends at the write deadline that it has found.
// Errors     After a failed send part of a record may have been sent: nothing more can be sent (write_error_). After a
//            protocol error OpenSSL can go on in neither direction (fatal_). After a failed handshake there is no
//            connection (handshake_error_).
// Source     Go's crypto/tls.Conn: in.Mutex, out.Mutex, permanent errors after a failed write, 5 s for the
//            close_notify.
// Tests      tests/tls/stream_test.cpp, tests/tls/split_message_test.cpp, tests/tls/identity_test.cpp,
//            tests/tls/peer_test.cpp, tests/tls/hostile_test.cpp
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

#include <dunlin/condition_variable.hpp>
#include <dunlin/mutex.hpp>
#include <dunlin/tls.hpp>

#include "config.h"

namespace dunlin::inline v0_1::tls {

enum class side { client,
    server };

// The memory that OpenSSL's BIO reads and writes.
struct wire {
    std::span<const char> in;
    std::vector<char> out;
    bool out_of_memory = false;  // out could not grow
};

class session {
public:
    using where_type = std::source_location;

    // Throws io_error, std::bad_alloc.
    session(net::stream network, side s, std::string_view server_name, const config& c);
    session(const session&) = delete;
    session& operator=(const session&) = delete;

    static stream make(net::stream network, side s, std::string_view server_name, const config& c);
    static const std::string& server_name_of(const config& c) noexcept { return c.data_->server_name; }

    net::stream& network() noexcept { return network_; }
    const std::string& peer() const noexcept { return peer_; }
    SSL* ssl() const noexcept { return ssl_.get(); }

    // All of these set `ec` if something fails. `ctx` may be null. `whose`: the direction whose deadline ends the
    // handshake.
    void handshake(
        const dunlin::context* ctx, detail::io_direction whose, std::error_code& ec, const where_type& where);
    std::size_t read(
        mutable_buffer b, bool all, const dunlin::context* ctx, std::error_code& ec, const where_type& where);
    std::size_t write(std::span<const const_buffer> parts, bool all, const dunlin::context* ctx, std::error_code& ec,
        const where_type& where);
    void close_write(std::error_code& ec);
    void close() noexcept;
    // A deadline has changed: a call that waits for another one looks at it again.
    void deadline_changed() noexcept;

    // See Left: it must not be destroyed.
    bool was_left() const noexcept;

    // Looks at a result of the handshake; empty before, and if it was left.
    template <class Look>
    std::string agreed(Look look) {
        if (was_left()) return {};
        const std::lock_guard hold(lock_);
        return done_.load(std::memory_order_relaxed) ? look(ssl_.get()) : std::string();
    }

private:
    enum class outcome {
        done,
        ended,        // the peer's close_notify
        wants_input,  // from the network
        failed,
    };
    struct step {
        outcome what;
        std::size_t output;  // so much is to be sent; the call's own is the last of it
        std::error_code error;
        std::uint64_t progress = 0;  // progress_ at the time of the call
    };
    // The position in the parts of a write; each piece from there becomes one record.
    struct cursor {
        std::span<const const_buffer> parts;
        std::size_t part = 0, at = 0;
        void pass_empty() noexcept {
            while (part < parts.size() && at == parts[part].size()) ++part, at = 0;
        }
    };

    // A call, from construction to destruction. False, with `ec`: the session was left.
    class visit {
    public:
        visit(session& s, std::error_code& ec) noexcept;
        ~visit();
        visit(const visit&) = delete;
        visit& operator=(const visit&) = delete;
        explicit operator bool() const noexcept { return usable_; }

    private:
        session& session_;
        bool usable_ = true;
        bool counted_ = false;
    };

    bool may_go_on(const dunlin::context* ctx, std::error_code& ec) const noexcept;
    bool take(mutex& m, const dunlin::context* ctx, std::error_code& ec, const where_type& where);
    template <class Call>
    step attempt(Call call);
    step judge(int result) noexcept;
    bool is_flood(std::error_code& ec);
    bool fill(
        const dunlin::context* ctx, detail::io_direction whose, std::error_code& ec, const where_type& where);
    void give_back_input();
    void give_back_output();
    struct tidying {  // with send_turn_
        session& writer;
        ~tidying() { writer.give_back_output(); }
    };
    struct failing_for_good;
    void reader_has_left();
    struct leaving {  // constructed before the reader's turn is held
        session& reader;
        ~leaving() { reader.reader_has_left(); }
    };
    void wait_for(condition_variable_any& change, std::unique_lock<mutex>& hold, detail::io_direction whose,
        const dunlin::context* ctx, std::error_code& ec, const where_type& where);
    void await_input(std::uint64_t seen, const dunlin::context* ctx, std::error_code& ec, const where_type& where);
    void flush(std::size_t most, const dunlin::context* ctx, std::error_code& ec, const where_type& where);
    std::size_t send_some(
        std::size_t most, const dunlin::context* ctx, std::error_code& ec, const where_type& where);
    void flush_pending(const where_type& where);
    bool has_output();
    bool begin_handshake(
        const dunlin::context* ctx, detail::io_direction whose, std::error_code& ec, const where_type& where);
    struct making {  // the handshake, after begin_handshake()
        session& maker;
        const int exceptions = std::uncaught_exceptions();
        ~making();
    };
    void shake_hands(
        const dunlin::context* ctx, detail::io_direction whose, std::error_code& ec, const where_type& where);
    std::size_t read_once(mutable_buffer b, const dunlin::context* ctx, std::error_code& ec, const where_type& where);
    std::size_t write_in_turn(
        cursor& c, bool all, const dunlin::context* ctx, std::error_code& ec, const where_type& where);
    const_buffer next_piece(cursor& c);
    step say_end();
    void show_certificates(const config& c);
    void verify_name(std::string_view name);

    std::atomic<std::uint64_t> visits_{0};  // the run's number << 32 | calls of its goroutines
    net::stream network_;
    std::string peer_;                 // for messages; constant
    config config_;                    // keeps alive what the SSL object refers to
    // the handshake is done; stored with release by its maker, loaded with acquire by users
    std::atomic<bool> done_{false};
    mutex turn_lock_;                       // held for moments, never around a call into OpenSSL
    condition_variable_any turn_is_free_;   // or a deadline has changed
    bool makes_handshake_ = false;          // turn_lock_: a call does, and has the turn
    std::error_code handshake_error_;       // turn_lock_

    mutex read_turn_;
    std::unique_ptr<char[]> raw_;  // the reader's

    mutex send_turn_;
    std::vector<char> sending_, gathered_;  // send_turn_

    mutex lock_;
    openssl_ptr<SSL, SSL_free> ssl_;
    wire wire_;
    std::error_code fatal_, write_error_;
    std::size_t fruitless_ = 0;   // bytes from the network since data went either way
    std::size_t answers_ = 0;     // bytes in wire_.out that readers have appended
    std::uint64_t progress_ = 0;  // counts inputs that a reader has brought, and readers that have left
    condition_variable_any more_progress_;  // and a deadline that has changed
};

// A BIO that reads and writes `w`, which must outlive it. Throws std::bad_alloc.
BIO* make_wire_bio(wire& w);

}  // namespace dunlin::tls
