// session.cpp - handshake, reading, writing, the end. The protocol is in session.h.
#include "session.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <dunlin/detail/helper.hpp>

#include "error.h"

namespace dunlin::inline v0_1::tls {

namespace {

constexpr std::size_t most_in_record = 16 * 1024;
constexpr std::size_t raw_size = most_in_record + 512;  // a record with its header, tag and padding
constexpr std::size_t most_at_once = 64 * 1024;         // encrypted before anything is sent
constexpr auto close_notify_limit = std::chrono::seconds(5);
constexpr std::size_t most_kept = 1024;                // bytes of a buffer, while nothing is written
constexpr std::size_t most_fruitless = 64 * 1024;      // four records; a server's tickets take less
constexpr std::size_t most_answers_unsent = 64 * 1024;
constexpr auto look_again = std::chrono::seconds(1);  // whether the call that is waited for was left

detail::io_limit limit_of(const dunlin::context* ctx) noexcept {
    return ctx != nullptr ? detail::io_limit(*ctx) : detail::io_limit();
}

std::string peer_name(const net::stream& network, side s, std::string_view server_name) {
    if (s == side::client && !server_name.empty()) return std::string(server_name);
    const std::string address = network.remote_address().to_string();
    return !address.empty() ? address : s == side::client ? "a server"
                                                          : "a client";
}

// What a certificate has for this name: without an IPv6 address's zone, and without the dot at the end.
std::string name_to_verify(std::string_view name) {
    std::string host(name);
    in6_addr ignored;
    const std::size_t zone = host.find('%');
    if (zone != host.npos && inet_pton(AF_INET6, host.substr(0, zone).c_str(), &ignored) == 1) host.resize(zone);
    if (host.ends_with('.')) host.pop_back();
    return host;
}

// For OpenSSL a name that begins with a dot stands for all its subdomains.
bool has_empty_label(const std::string& host) {
    return host.starts_with('.') || host.ends_with('.') || host.find("..") != host.npos;
}

}  // namespace

session::session(net::stream network, side s, std::string_view server_name, const config& c)
    : network_(std::move(network)),
      peer_(peer_name(network_, s, server_name)),
      config_(c),
      ssl_(SSL_new(c.native_handle())) {
    ERR_clear_error();
    if (!ssl_) throw std::bad_alloc();
    BIO* bio = make_wire_bio(wire_);
    SSL_set_bio(ssl_.get(), bio, bio);
    show_certificates(c);
    if (s == side::server) {
        SSL_set_accept_state(ssl_.get());
        c.data_->tickets.be_used_by(ssl_.get());
        if (c.data_->asks_clients) {
            SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
            // A session of a client that was not asked is not resumed: OpenSSL would not ask then either.
            constexpr unsigned char asked[] = "dunlin, clients asked";
            if (SSL_set_session_id_context(ssl_.get(), asked, sizeof asked - 1) != 1) throw std::bad_alloc();
        }
        return;
    }
    SSL_set_connect_state(ssl_.get());
    const bool verifies = !c.data_->skips_verification;
    // null keeps a callback that the program has set on native_handle()
    SSL_set_verify(ssl_.get(), verifies ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
    if (c.data_->trusts_system && verifies) SSL_set1_verify_cert_store(ssl_.get(), system_trust());
    verify_name(server_name_of(c).empty() ? server_name : std::string_view(server_name_of(c)));
}

// Uses the certificates that the config has now; a later change affects later connections.
void session::show_certificates(const config& c) {
    const std::shared_ptr<const identities> own = c.data_->own();
    if (own == nullptr) return;
    for (const identity& i : *own) {
        if (SSL_use_cert_and_key(ssl_.get(), i.certificate.get(), i.key.get(), i.chain.get(), 1) == 1) continue;
        throw_tls_error("tls handshake with " + peer_, take_openssl_error().error);
    }
}

void session::verify_name(std::string_view name) {
    const bool verifies = (SSL_get_verify_mode(ssl_.get()) & SSL_VERIFY_PEER) != 0;
    const std::string host = name_to_verify(name);
    if (has_empty_label(host) || name.find('\0') != name.npos)  // for OpenSSL an address ends at a NUL
        throw_tls_error("tls handshake with " + peer_, std::make_error_code(std::errc::invalid_argument));
    if (host.empty()) {
        if (verifies) throw_tls_error("tls handshake with " + peer_, make_error_code(errc::no_server_name));
        return;
    }
    X509_VERIFY_PARAM* wanted = SSL_get0_param(ssl_.get());
    X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    if (X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) == 1) return;
    ERR_clear_error();
    if (X509_VERIFY_PARAM_set1_host(wanted, host.data(), host.size()) != 1 ||
        SSL_set_tlsext_host_name(ssl_.get(), host.c_str()) != 1) {
        throw_tls_error("tls handshake with " + peer_, take_openssl_error().error);
    }
}

stream session::make(net::stream network, side s, std::string_view server_name, const config& c) {
    return stream(std::make_unique<session>(std::move(network), s, server_name, c));
}

// ---- calls into OpenSSL ---------------------------------------------------------------------------------------------

// With lock_. Nothing in here, and nothing between `call` and this, may park: the error queue belongs to this thread.
session::step session::judge(int result) noexcept {
    const int why = result > 0 ? SSL_ERROR_NONE : SSL_get_error(ssl_.get(), result);
    step s{outcome::failed, wire_.out.size(), {}};
    switch (why) {
    case SSL_ERROR_NONE: s.what = outcome::done; return s;
    case SSL_ERROR_ZERO_RETURN: s.what = outcome::ended; return s;
    case SSL_ERROR_WANT_READ: s.what = outcome::wants_input; return s;
    default: break;
    }
    const openssl_failure f = take_openssl_error();
    fatal_ = f.rejected ? verify_error(SSL_get_verify_result(ssl_.get())) : f.error;
    if (wire_.out_of_memory) fatal_ = std::make_error_code(std::errc::not_enough_memory);
    s.error = fatal_;
    return s;
}

template <class Call>
session::step session::attempt(Call call) {
    const std::lock_guard hold(lock_);
    if (fatal_) return {outcome::failed, wire_.out.size(), fatal_};
    ERR_clear_error();
    step s = judge(call());
    s.progress = progress_;
    return s;
}

// ---- the network ----------------------------------------------------------------------------------------------------

namespace {

std::error_code left_behind() noexcept { return std::make_error_code(std::errc::state_not_recoverable); }

bool some_were_left(std::uint64_t visits) noexcept {
    return static_cast<std::uint32_t>(visits) != 0 && detail::run_is_over(static_cast<std::uint32_t>(visits >> 32));
}

}  // namespace

// Relaxed, all of visits_: it is a count only. The locks order what calls do; and a run() that has returned has stopped
// its goroutines, whose counts its caller therefore sees.
bool session::was_left() const noexcept { return some_were_left(visits_.load(std::memory_order_relaxed)); }

session::visit::visit(session& s, std::error_code& ec) noexcept : session_(s) {
    const std::uint64_t run = detail::this_run();
    std::uint64_t seen = s.visits_.load(std::memory_order_relaxed);
    do {
        usable_ = !some_were_left(seen);
        if (!usable_) ec = left_behind();
        if (!usable_ || run == 0) return;  // a thread is not left
        const std::uint64_t before = static_cast<std::uint32_t>(seen) != 0 ? seen : run << 32;
        counted_ = s.visits_.compare_exchange_weak(seen, before + 1, std::memory_order_relaxed);
    } while (!counted_);
}

session::visit::~visit() {
    if (counted_) session_.visits_.fetch_sub(1, std::memory_order_relaxed);
}

bool session::take(mutex& m, const dunlin::context* ctx, std::error_code& ec, const where_type& where) {
    if (m.try_lock()) return true;
    for (;;) {
        if (ctx == nullptr) {
            if (m.try_lock_for(look_again, where)) return true;
        } else {
            try {
                m.lock(with_timeout(*ctx, look_again), where);
                return true;
            } catch (const context_cancelled&) {
                ec = ctx->err();
            }
        }
        if (!ec && was_left()) ec = left_behind();
        if (ec) return false;
    }
}

// After a close() no data may be delivered, even if it is decrypted already, and none encrypted. `ctx`: given by calls
// that cannot know whether they will have to wait, and that leave the stream unusable if they are ended midway.
bool session::may_go_on(const dunlin::context* ctx, std::error_code& ec) const noexcept {
    if (!network_.is_open()) {
        ec = dunlin::errc::closed;
    } else if (ctx != nullptr) {
        ec = ctx->err();
    }
    return !ec;
}

// Called before more is read. With the reader's turn.
bool session::is_flood(std::error_code& ec) {
    if (!done_.load(std::memory_order_relaxed)) return false;
    const std::lock_guard hold(lock_);
    if (!fatal_ && (fruitless_ > most_fruitless || answers_ > most_answers_unsent))
        fatal_ = make_error_code(errc::flood);
    ec = fatal_;
    return static_cast<bool>(ec);
}

// Hands OpenSSL what the network has delivered. With the reader's turn, or in the handshake.
bool session::fill(
    const dunlin::context* ctx, detail::io_direction whose, std::error_code& ec, const where_type& where) {
    if (is_flood(ec)) return false;
    detail::io_limit limit = limit_of(ctx);
    if (whose == detail::io_direction::write) {
        limit.limit.deadline_ns = detail::io_deadline(io_access::of(network_), whose);
        limit.set = true;
    }
    const std::size_t n = detail::io_read_lent(io_access::of(network_), raw_, raw_size, limit.get(), ec, where);
    if (!ec && n == 0) ec = make_error_code(errc::truncated);
    if (ec) return false;
    {
        const std::lock_guard hold(lock_);
        wire_.in = {raw_.get(), n};
        if (done_.load(std::memory_order_relaxed)) fruitless_ += n;
        ++progress_;
    }
    more_progress_.notify_all();
    return true;
}

// With the reader's turn, or in the handshake.
void session::give_back_input() {
    const std::lock_guard hold(lock_);
    if (wire_.in.empty()) raw_.reset();
}

// With send_turn_.
void session::give_back_output() {
    for (std::vector<char>* buffer : {&sending_, &gathered_}) {
        if (buffer->capacity() > most_kept) std::vector<char>().swap(*buffer);
    }
    const std::lock_guard hold(lock_);
    if (wire_.out.empty() && wire_.out.capacity() > most_kept) std::vector<char>().swap(wire_.out);
}

// Called after read_turn_ has been given back. So a writer that has seen the old count fails to take that turn only if
// another party has it, which will come here too.
void session::reader_has_left() {
    {
        const std::lock_guard hold(lock_);
        ++progress_;
    }
    more_progress_.notify_all();
}

// OpenSSL wants input, and the caller is no reader. With send_turn_.
void session::await_input(
    std::uint64_t seen, const dunlin::context* ctx, std::error_code& ec, const where_type& where) {
    if (read_turn_.try_lock()) {
        const leaving at_end{*this};
        const std::lock_guard turn(read_turn_, std::adopt_lock);
        bool still_wanted;
        {
            const std::lock_guard hold(lock_);
            still_wanted = progress_ == seen;
        }
        if (still_wanted) fill(ctx, detail::io_direction::write, ec, where);
        return;
    }
    std::unique_lock hold(lock_);
    while (progress_ == seen && !ec)
        wait_for(more_progress_, hold, detail::io_direction::write, ctx, ec, where);
}

// Until a notification, until a limit of the caller's has passed, or until it is seen that the session was left: these
// set `ec`. Also returns without any of them: the caller comes back.
void session::wait_for(condition_variable_any& change, std::unique_lock<mutex>& hold, detail::io_direction whose,
    const dunlin::context* ctx, std::error_code& ec, const where_type& where) {
    const clock::time_point deadline{clock::duration(detail::io_deadline(io_access::of(network_), whose))};
    const clock::time_point now = clock::now();
    if (deadline <= now) {
        ec = std::make_error_code(std::errc::timed_out);
        return;
    }
    const clock::time_point until = std::min(deadline, now + look_again);
    try {
        if (ctx == nullptr) {
            change.wait_until(hold, until, where);
        } else {
            change.wait(hold, with_deadline(*ctx, until), where);
        }
    } catch (const context_cancelled&) {
        ec = ctx->err();  // none: it was the deadline
    }
    if (!ec && was_left()) ec = left_behind();
}

void session::deadline_changed() noexcept {
    if (was_left()) return;
    // A call that has read the old deadline waits by now.
    { const std::lock_guard hold(turn_lock_); }
    turn_is_free_.notify_all();
    { const std::lock_guard hold(lock_); }
    more_progress_.notify_all();
}

// Sends what OpenSSL has put out so far, `most` bytes of it, and returns how much of that is sent; the rest is in
// sending_. With send_turn_.
std::size_t session::send_some(
    std::size_t most, const dunlin::context* ctx, std::error_code& ec, const where_type& where) {
    sending_.clear();
    {
        const std::lock_guard hold(lock_);
        ec = write_error_;
        if (ec || most == 0 || wire_.out.empty()) return 0;
        sending_.swap(wire_.out);
        if (sending_.size() > most) {
            const auto rest = sending_.begin() + static_cast<std::ptrdiff_t>(most);
            wire_.out.assign(rest, sending_.end());
            sending_.erase(rest, sending_.end());
        }
        answers_ = wire_.out.size();
    }
    const const_buffer all(sending_.data(), sending_.size());
    return detail::io_write(io_access::of(network_), all, true, limit_of(ctx).get(), ec, where);
}

// Sends the caller's output, which ends after `most` bytes. What a reader has put out after it, a failure of that too,
// is no matter of the caller's: flush_pending() sends it. With send_turn_.
void session::flush(std::size_t most, const dunlin::context* ctx, std::error_code& ec, const where_type& where) {
    // Part of a record may have been sent: nothing may follow it.
    const auto fail_for_good = [this](std::error_code why) {
        const std::lock_guard hold(lock_);
        write_error_ = why;
    };
    try {
        send_some(most, ctx, ec, where);
    } catch (const std::bad_alloc&) {
        fail_for_good(std::make_error_code(std::errc::not_enough_memory));
        throw;
    }
    if (ec) fail_for_good(ec);
}

bool session::has_output() {
    const std::lock_guard hold(lock_);
    return !wire_.out.empty() && !write_error_;
}

// What readers have put out, as far as the socket takes it at once: the peer decides how long a wait would last, and a
// reader has other limits than a writer. The rest, and an error, is for the next writer.
void session::flush_pending(const where_type& where) {
    static const cancellable& no_wait = *new cancellable([] {  // never destroyed: connections may end later
        cancellable c = with_cancel(dunlin::context::background());
        c.cancel();
        return c;
    }());
    std::error_code ec;
    while (!ec && has_output() && send_turn_.try_lock()) {
        const std::lock_guard turn(send_turn_, std::adopt_lock);
        const std::size_t sent = send_some(SIZE_MAX, &no_wait, ec, where);
        if (ec) {
            const std::lock_guard hold(lock_);
            try {
                const auto rest = sending_.begin() + static_cast<std::ptrdiff_t>(sent);
                wire_.out.insert(wire_.out.begin(), rest, sending_.end());
            } catch (const std::bad_alloc&) {
                write_error_ = std::make_error_code(std::errc::not_enough_memory);
            }
            answers_ = wire_.out.size();
        }
        give_back_output();
    }
}

// ---- the handshake --------------------------------------------------------------------------------------------------

void session::handshake(
    const dunlin::context* ctx, detail::io_direction whose, std::error_code& ec, const where_type& where) {
    ec.clear();
    const visit mine(*this, ec);
    if (!mine) return;
    // Acquire pairs with the release in handshake(), below: the caller sees what the handshake wrote to raw_ and agreed
    // on.
    if (done_.load(std::memory_order_acquire) || !begin_handshake(ctx, whose, ec, where)) return;
    const making until_the_end{*this};
    if (!may_go_on(ctx, ec)) return;
    shake_hands(ctx, whose, ec, where);
    give_back_input();
    const std::lock_guard hold(turn_lock_);
    handshake_error_ = ec;
    if (!ec) done_.store(true, std::memory_order_release);
}

// False: it is done, or `ec` says why it will not be.
bool session::begin_handshake(
    const dunlin::context* ctx, detail::io_direction whose, std::error_code& ec, const where_type& where) {
    std::unique_lock hold(turn_lock_);
    while (makes_handshake_ && !ec) wait_for(turn_is_free_, hold, whose, ctx, ec, where);
    if (!ec) ec = handshake_error_;
    if (ec || done_.load(std::memory_order_relaxed)) return false;
    makes_handshake_ = true;
    return true;
}

session::making::~making() {
    {
        const std::lock_guard hold(maker.turn_lock_);
        maker.makes_handshake_ = false;
        // Memory has failed: what the peer was to get may be lost.
        if (std::uncaught_exceptions() != exceptions)
            maker.handshake_error_ = std::make_error_code(std::errc::not_enough_memory);
    }
    maker.turn_is_free_.notify_all();
}

void session::shake_hands(
    const dunlin::context* ctx, detail::io_direction whose, std::error_code& ec, const where_type& where) {
    for (;;) {
        const step s = attempt([this] { return SSL_do_handshake(ssl_.get()); });
        std::error_code unsent;
        if (s.output != 0) {
            const std::lock_guard turn(send_turn_);
            flush(s.output, ctx, unsent, where);
            give_back_output();
        }
        if (s.what == outcome::failed) ec = s.error;
        if (s.what == outcome::failed || (s.what == outcome::done && !unsent)) return;
        // If the peer has refused us and closed the connection, the send fails; the reason can still be read.
        const bool gone = unsent == std::errc::broken_pipe || unsent == std::errc::connection_reset;
        if (unsent && (!gone || s.what == outcome::done)) {
            ec = unsent;
        } else if (!fill(ctx, whose, ec, where) && gone) {
            ec = unsent;
        }
        if (ec) return;
    }
}

// ---- reading --------------------------------------------------------------------------------------------------------

std::size_t session::read_once(
    mutable_buffer b, const dunlin::context* ctx, std::error_code& ec, const where_type& where) {
    while (may_go_on(nullptr, ec)) {  // only fill() looks at the context: decrypted data is delivered anyway
        std::size_t n = 0;
        const step s = attempt([&] {
            const std::size_t unsent = wire_.out.size();
            const int result = SSL_read_ex(ssl_.get(), b.data(), b.size(), &n);
            answers_ += wire_.out.size() - unsent;
            if (result > 0) fruitless_ = 0;
            return result;
        });
        if (s.output != 0) flush_pending(where);
        if (s.what == outcome::done) return n;
        if (s.what == outcome::failed) ec = s.error;
        if (s.what != outcome::wants_input || !fill(ctx, detail::io_direction::read, ec, where)) return 0;
    }
    return 0;
}

std::size_t session::read(
    mutable_buffer b, bool all, const dunlin::context* ctx, std::error_code& ec, const where_type& where) {
    ec.clear();
    const visit mine(*this, ec);
    if (!mine) return 0;
    handshake(ctx, detail::io_direction::read, ec, where);
    if (ec || b.size() == 0 || !take(read_turn_, ctx, ec, where)) return 0;
    const leaving at_end{*this};
    const std::lock_guard turn(read_turn_, std::adopt_lock);
    std::size_t done = 0;
    do {
        const std::size_t n = read_once({static_cast<char*>(b.data()) + done, b.size() - done}, ctx, ec, where);
        if (n == 0 && !ec && all) ec = dunlin::errc::end_of_file;
        if (n == 0) break;
        done += n;
    } while (all && done < b.size());
    give_back_input();
    return done;
}

// ---- writing --------------------------------------------------------------------------------------------------------

// The content of the next record: a piece of one long part, or a copy of several short ones. Empty: that was all. With
// send_turn_.
const_buffer session::next_piece(cursor& c) {
    c.pass_empty();
    if (c.part == c.parts.size()) return {};
    const auto rest = [&c] {
        return std::span(static_cast<const char*>(c.parts[c.part].data()) + c.at, c.parts[c.part].size() - c.at);
    };
    const auto first = rest().first(std::min(rest().size(), most_in_record));
    c.at += first.size();
    c.pass_empty();
    if (c.part == c.parts.size() || first.size() == most_in_record) return {first.data(), first.size()};
    gathered_.assign(first.begin(), first.end());
    for (; c.part < c.parts.size() && gathered_.size() < most_in_record; c.pass_empty()) {
        const auto more = rest().first(std::min(rest().size(), most_in_record - gathered_.size()));
        gathered_.insert(gathered_.end(), more.begin(), more.end());
        c.at += more.size();
    }
    return {gathered_.data(), gathered_.size()};
}

// Of a write that memory fails for, a part may have been encrypted, and will be sent: nothing may follow it.
struct session::failing_for_good {
    session& writer;
    const std::size_t& encrypted;
    const int exceptions = std::uncaught_exceptions();
    ~failing_for_good() {
        if (encrypted == 0 || std::uncaught_exceptions() == exceptions) return;
        const std::lock_guard hold(writer.lock_);
        if (!writer.write_error_) writer.write_error_ = std::make_error_code(std::errc::not_enough_memory);
    }
};

std::size_t session::write_in_turn(
    cursor& c, bool all, const dunlin::context* ctx, std::error_code& ec, const where_type& where) {
    std::size_t done = 0, encrypted_in_all = 0;
    const failing_for_good guard{*this, encrypted_in_all};
    const_buffer piece = next_piece(c);
    while (piece.size() != 0 && may_go_on(ctx, ec)) {
        std::size_t encrypted = 0;
        const step s = attempt([&] {
            int result = 1;
            // After our close_notify, or a failed send, OpenSSL must not be asked: its refusal would end reading too.
            if ((SSL_get_shutdown(ssl_.get()) & SSL_SENT_SHUTDOWN) != 0)
                ec = std::make_error_code(std::errc::broken_pipe);
            if (write_error_) ec = write_error_;
            // Reserved in one step, not by doubling, because it is freed after the call.
            if (!ec)
                wire_.out.reserve(wire_.out.size() +
                                  (piece.size() < most_in_record ? piece.size() : most_at_once + most_in_record) +
                                  most_kept);
            while (!ec && result > 0 && piece.size() != 0 && encrypted < most_at_once) {
                std::size_t n = 0;
                result = SSL_write_ex(ssl_.get(), piece.data(), piece.size(), &n);
                if (result > 0) encrypted_in_all += n, encrypted += n, fruitless_ = 0, piece = next_piece(c);
            }
            return result;
        });
        if (ec) break;
        flush(s.output, ctx, ec, where);
        if (ec) break;
        done += encrypted;
        if (s.what == outcome::wants_input && (all || encrypted == 0)) {
            await_input(s.progress, ctx, ec, where);
            if (ec) break;  // may_go_on() would forget it
            continue;
        }
        if (s.what != outcome::done && s.what != outcome::wants_input)
            ec = s.error ? s.error : make_error_code(errc::protocol);
        if (ec || !all) break;
    }
    // A part has been sent, and its rest will not be: nothing may follow it.
    if (ec && all && done != 0) {
        const std::lock_guard hold(lock_);
        if (!write_error_) write_error_ = ec;
    }
    return done;
}

std::size_t session::write(std::span<const const_buffer> parts, bool all, const dunlin::context* ctx,
    std::error_code& ec, const where_type& where) {
    ec.clear();
    const visit mine(*this, ec);
    if (!mine) return 0;
    handshake(ctx, detail::io_direction::write, ec, where);
    if (ec || !take(send_turn_, ctx, ec, where)) return 0;
    cursor c{parts};
    std::size_t done = 0;
    {
        const std::lock_guard turn(send_turn_, std::adopt_lock);
        const tidying at_end{*this};
        done = write_in_turn(c, all, ctx, ec, where);
    }
    flush_pending(where);
    return done;
}

// ---- the end --------------------------------------------------------------------------------------------------------

// Makes the close_notify, once. It wants input if OpenSSL is in the middle of a message.
session::step session::say_end() {
    bool in_a_message = false;
    step s = attempt([&] {
        if ((SSL_get_shutdown(ssl_.get()) & SSL_SENT_SHUTDOWN) != 0) return 1;
        in_a_message = SSL_in_init(ssl_.get()) != 0;
        // 0: the peer's close_notify has not come yet; if it is negative, nothing can be done
        return in_a_message ? 1 : std::max(SSL_shutdown(ssl_.get()), 1);
    });
    if (in_a_message && s.what == outcome::done) s.what = outcome::wants_input;
    return s;
}

void session::close_write(std::error_code& ec) {
    const auto where = where_type::current();
    ec.clear();
    const visit mine(*this, ec);
    if (!mine) return;
    handshake(nullptr, detail::io_direction::write, ec, where);
    if (ec || !take(send_turn_, nullptr, ec, where)) return;
    {
        const std::lock_guard turn(send_turn_, std::adopt_lock);
        step s = say_end();
        while (s.what == outcome::wants_input && may_go_on(nullptr, ec)) {
            // SSL_do_handshake() reads no data: data may follow the end of this message, and belongs to the reader.
            const step half = attempt([this] { return SSL_do_handshake(ssl_.get()); });
            if (half.what == outcome::wants_input) await_input(half.progress, nullptr, ec, where);
            if (ec) return;
            s = say_end();
        }
        if (!ec) ec = s.error;
        if (!ec) flush(s.output, nullptr, ec, where);
    }
    flush_pending(where);
}

void session::close() noexcept {
    std::error_code left;
    const visit mine(*this, left);
    // If a writer has the turn, this close() interrupts it within a record: a close_notify after that makes no sense.
    if (mine && done_.load(std::memory_order_acquire) && network_.is_open() && send_turn_.try_lock()) {
        const std::lock_guard turn(send_turn_, std::adopt_lock);
        try {
            std::error_code ignored;
            if (const std::size_t output = say_end().output; output != 0) {
                // An earlier deadline of the caller's stays in force.
                detail::io_shorten_deadline(io_access::of(network_), detail::io_direction::write,
                    detail::deadline_in(close_notify_limit), ignored);
                flush(output, nullptr, ignored, where_type::current());
            }
        } catch (...) {  // closed meanwhile, or no memory: close without the close_notify
        }
    }
    network_.close();
}

}  // namespace dunlin::tls
