// objects.h - what the steps of a story use, behind one interface for each kind; and the same with faults.
//
// line     What values go through: a channel; a queue of a mutex and condition variables; a pipe;
//          two connected sockets.
// guard    What is held: locks and semaphores.
// plant    Faults that a kind may be given, each a mistake that an implementation could make. Without them the oracle
//          would be trusted and not tested: oracle_test.cpp sees each of them found.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <dunlin/dunlin.hpp>

#include "fuzz/oracle.h"
#include "fuzz/story.h"

namespace fuzz {

#define FUZZ_PLANTS(X)                                                                                                \
    X(none) X(duplicate) X(lose) X(lose_on_time_out) X(send_after_time_out) X(reorder) X(overfull)                    \
    X(swallow_wake_up) X(no_exclusion) X(reader_beside_writer) X(permit_lost_on_time_out) X(permit_invented)          \
    X(lock_kept_on_cancel) X(early_time_out) X(early_sleep) X(cancelled_for_nothing) X(once_twice) X(timer_twice)     \
    X(barrier_open) X(child_forgotten) X(exception_forgotten) X(last_value_lost) X(broadcast_lost) X(news_lost)       \
    X(flight_twice) X(retried_after_all) X(result_lost) X(round_lost)

enum class plant : std::uint8_t {
#define FUZZ_PLANT(name) name,
    FUZZ_PLANTS(FUZZ_PLANT)
#undef FUZZ_PLANT
};
inline constexpr const char* plant_names[] = {
#define FUZZ_PLANT(name) #name,
    FUZZ_PLANTS(FUZZ_PLANT)
#undef FUZZ_PLANT
};

enum class status { ok, busy, timed_out, cancelled, closed };

inline const char* word(status s) {
    constexpr const char* words[] = {"ok", "busy", "timed out", "cancelled", "closed"};
    return words[static_cast<int>(s)];
}

// What a step waits for at most.
struct limit {
    limit_kind how = limit_kind::none;
    dunlin::context ctx = {};
    std::chrono::microseconds d{};
};

// Calls the form for the limit; each returns a status.
template <class Plain, class With, class Timed>
status limited(const limit& l, Plain plain, With with, Timed timed) {
    try {
        if (l.how == limit_kind::none) return plain();
        return l.how == limit_kind::context ? with(l.ctx) : timed(l.d);
    } catch (const dunlin::context_cancelled&) {
        return status::cancelled;
    } catch (const dunlin::channel_closed&) {
        return status::closed;
    }
}

inline status status_of(dunlin::channel_status s, status busy) {
    if (s == dunlin::channel_status::ok) return status::ok;
    return s == dunlin::channel_status::closed ? status::closed : busy;
}

// ---- lines ---------------------------------------------------------------------------------------------------------

class line {
public:
    virtual ~line() = default;
    // The value is gone exactly when the result is ok.
    virtual status send(letter_ptr& v, const limit& l) = 0;
    virtual status recv(letter_ptr& v, const limit& l) = 0;
    virtual status try_send(letter_ptr& v) = 0;
    virtual status try_recv(letter_ptr& v) = 0;
    virtual void close() = 0;  // more than once
    virtual dunlin::chan<letter_ptr> channel() { return dunlin::chan<letter_ptr>::nil(); }
};

class channel_line : public line {
public:
    explicit channel_line(unsigned capacity) : c_(capacity) {}
    status send(letter_ptr& v, const limit& l) override {
        const auto sent = [] { return status::ok; };
        return limited(
            l, [&] { return c_.send(std::move(v)), sent(); },
            [&](const auto& ctx) { return c_.send(std::move(v), ctx), sent(); },
            [&](auto d) { return status_of(c_.send_for(std::move(v), d).status(), status::timed_out); });
    }
    status recv(letter_ptr& v, const limit& l) override {
        const auto took = [&](auto&& r) {
            if (r) v = std::move(*r);
            return v ? status::ok : status::closed;
        };
        return limited(
            l, [&] { return took(c_.recv()); }, [&](const auto& ctx) { return took(c_.recv(ctx)); },
            [&](auto d) {
                auto r = c_.recv_for(d);
                return r.status() == dunlin::channel_status::would_block ? status::timed_out : took(r);
            });
    }
    status try_send(letter_ptr& v) override {
        try {
            return status_of(c_.try_send(std::move(v)), status::busy);
        } catch (const dunlin::channel_closed&) {
            return status::closed;
        }
    }
    status try_recv(letter_ptr& v) override { return status_of(c_.try_recv(v), status::busy); }
    void close() override {
        try {
            c_.close();
        } catch (const dunlin::channel_closed&) {
        }
    }
    dunlin::chan<letter_ptr> channel() override { return c_; }

private:
    dunlin::chan<letter_ptr> c_;
};

// As textbooks have it: condition variables decide here what a channel decides above.
class queue_line : public line {
public:
    explicit queue_line(unsigned capacity, plant p) : capacity_(capacity), plant_(p) {}
    status send(letter_ptr& v, const limit& l) override {
        std::unique_lock lock(m_);
        const status s = wait(not_full_, lock, l, [this] { return closed_ || letters_.size() < capacity_; });
        if (s != status::ok) return s;
        if (closed_) return status::closed;
        letters_.push_back(std::move(v));
        if (plant_ != plant::swallow_wake_up || ++sends_ % 8 != 0) not_empty_.notify_one();
        return status::ok;
    }
    status recv(letter_ptr& v, const limit& l) override {
        std::unique_lock lock(m_);
        const status s = wait(not_empty_, lock, l, [this] { return closed_ || !letters_.empty(); });
        return s == status::ok ? take(v) : s;
    }
    status try_send(letter_ptr& v) override {
        std::unique_lock lock(m_, std::try_to_lock);
        if (!lock.owns_lock()) return status::busy;
        if (closed_) return status::closed;
        if (letters_.size() == capacity_) return status::busy;
        letters_.push_back(std::move(v));
        not_empty_.notify_one();
        return status::ok;
    }
    status try_recv(letter_ptr& v) override {
        std::unique_lock lock(m_, std::try_to_lock);
        if (!lock.owns_lock() || (letters_.empty() && !closed_)) return status::busy;
        return take(v);
    }
    void close() override {
        const std::scoped_lock lock(m_);
        closed_ = true;
        if (plant_ != plant::swallow_wake_up) not_empty_.notify_all();
        not_full_.notify_all();
    }

private:
    template <class Predicate>
    static status wait(
        dunlin::condition_variable& cv, std::unique_lock<dunlin::mutex>& lock, const limit& l, Predicate ready) {
        return limited(
            l, [&] { return cv.wait(lock, ready), status::ok; },
            [&](const auto& ctx) { return cv.wait(lock, ctx, ready), status::ok; },
            [&](auto d) { return cv.wait_for(lock, d, ready) ? status::ok : status::timed_out; });
    }
    status take(letter_ptr& v) {
        if (letters_.empty()) return status::closed;
        v = std::move(letters_.front());
        letters_.pop_front();
        not_full_.notify_one();
        return status::ok;
    }

    const std::size_t capacity_;
    const plant plant_;
    dunlin::mutex m_;
    dunlin::condition_variable not_empty_, not_full_;
    std::deque<letter_ptr> letters_;
    unsigned sends_ = 0;
    bool closed_ = false;
};

struct pipe_ends {
    dunlin::fs::pipe p;
    auto& writer() { return p.write_end; }
    auto& reader() { return p.read_end; }
    void close() { p.write_end.close(); }
};
struct socket_ends {
    std::pair<dunlin::net::stream, dunlin::net::stream> s = dunlin::net::stream_pair();
    auto& writer() { return s.first; }
    auto& reader() { return s.second; }
    void close() { s.first.close_write(); }
};

// Records of eight bytes, which the kernel neither splits nor mixes.
template <class Ends>
class record_line : public line {
public:
    status send(letter_ptr& v, const limit& l) override {
        const std::array<std::uint32_t, 2> record{v->sender, v->number};
        const status s = call(l, [&](const dunlin::context& ctx, std::error_code& ec) {
            return ends_.writer().write_all(record.data(), sizeof record, ctx, ec);
        });
        if (s == status::ok) v.reset();
        return s;
    }
    status recv(letter_ptr& v, const limit& l) override {
        std::array<std::uint32_t, 2> record{};
        const status s = call(l, [&](const dunlin::context& ctx, std::error_code& ec) {
            return ends_.reader().read_exactly(record.data(), sizeof record, ctx, ec);
        });
        if (s == status::ok) v = std::make_unique<letter>(record[0], record[1]);
        return s;
    }
    // With a context that is done already: what can be had at once is had.
    status try_send(letter_ptr& v) override { return or_busy(send(v, now_)); }
    status try_recv(letter_ptr& v) override { return or_busy(recv(v, now_)); }
    void close() override { ends_.close(); }

private:
    template <class Call>
    static status call(const limit& l, Call f) {
        const dunlin::context ctx = l.how == limit_kind::time ? dunlin::with_timeout({}, l.d) : l.ctx;
        std::error_code ec;
        const std::size_t n = f(ctx, ec);
        if (!ec) return status::ok;
        if (n != 0) return status::busy;  // torn: the ledger says so
        if (ec == dunlin::errc::deadline_exceeded && l.how == limit_kind::time) return status::timed_out;
        if (ec == dunlin::errc::cancelled || ec == dunlin::errc::deadline_exceeded) return status::cancelled;
        return status::closed;
    }
    static status or_busy(status s) { return s == status::cancelled ? status::busy : s; }
    static dunlin::cancellable make_over() {
        auto c = dunlin::with_cancel({});
        c.cancel();
        return c;
    }

    const limit now_{limit_kind::context, make_over(), {}};
    Ends ends_;
};

// A line with a fault of the kind that its users see.
class faulty_line : public line {
public:
    faulty_line(std::unique_ptr<line> good, plant p) : good_(std::move(good)), plant_(p) {}
    status send(letter_ptr& v, const limit& l) override {
        const letter copy = *v;
        const bool now = ++sends_ % 4 == 0;
        if (plant_ == plant::lose && now) return v.reset(), status::ok;
        if (plant_ == plant::reorder && now && keep(v)) return status::ok;
        status s = good_->send(v, l);
        if (s == status::ok && plant_ == plant::duplicate && now) {
            auto twin = std::make_unique<letter>(copy.sender, copy.number);
            static_cast<void>(good_->try_send(twin));
        }
        if (s == status::timed_out && plant_ == plant::send_after_time_out) {
            auto twin = std::make_unique<letter>(copy.sender, copy.number);
            static_cast<void>(good_->send(twin, {}));
        }
        if (s == status::ok && plant_ == plant::reorder) give_back(copy.sender);
        return s;
    }
    status recv(letter_ptr& v, const limit& l) override {
        const status s = good_->recv(v, l);
        letter_ptr lost;
        if (s == status::timed_out && plant_ == plant::lose_on_time_out) {
            static_cast<void>(good_->recv(lost, {limit_kind::time, {}, std::chrono::microseconds(500)}));
        }
        return s;
    }
    status try_send(letter_ptr& v) override { return good_->try_send(v); }
    status try_recv(letter_ptr& v) override { return good_->try_recv(v); }
    void close() override {
        give_back(everybody);
        good_->close();
    }
    dunlin::chan<letter_ptr> channel() override { return good_->channel(); }

private:
    // One value is kept until its sender's next one has gone.
    static constexpr std::uint32_t everybody = ~0u;
    bool keep(letter_ptr& v) {
        letter* nothing = nullptr;
        return kept_.compare_exchange_strong(nothing, v.get()) && (static_cast<void>(v.release()), true);
    }
    void give_back(std::uint32_t sender) {
        letter_ptr late(kept_.exchange(nullptr));
        if (late && sender != everybody && late->sender != sender && keep(late)) return;
        if (late) static_cast<void>(good_->send(late, {}));
    }

    std::unique_ptr<line> good_;
    const plant plant_;
    std::atomic<unsigned> sends_{0};
    std::atomic<letter*> kept_{nullptr};
};

inline std::unique_ptr<line> make_line(const line_of& l, plant p) {
    std::unique_ptr<line> made;
    const unsigned capacity = l.capacity + (p == plant::overfull ? 4 : 0);
    switch (l.kind) {
    case line_kind::channel: made = std::make_unique<channel_line>(capacity); break;
    case line_kind::queue: made = std::make_unique<queue_line>(capacity, p); break;
    case line_kind::pipe: made = std::make_unique<record_line<pipe_ends>>(); break;
    case line_kind::socket: made = std::make_unique<record_line<socket_ends>>(); break;
    }
    if (p == plant::reorder && !carries_records(l.kind)) return made;  // the others' capacity would be passed first
    if (p >= plant::duplicate && p <= plant::reorder) return std::make_unique<faulty_line>(std::move(made), p);
    return made;
}

// ---- guards --------------------------------------------------------------------------------------------------------

class guard {
public:
    virtual ~guard() = default;
    virtual status take(bool shared, const limit& l) = 0;
    virtual void give(bool shared) = 0;
    // When it is not in use: is it whole and free?
    virtual bool is_whole() = 0;
};

template <class Mutex>
status take_lock(Mutex& m, const limit& l) {
    return limited(
        l, [&] { return m.lock(), status::ok; }, [&](const auto& ctx) { return m.lock(ctx), status::ok; },
        [&](auto d) { return m.try_lock_for(d) ? status::ok : status::timed_out; });
}

template <class Mutex>
class lock_guard_of : public guard {
public:
    status take(bool, const limit& l) override {
        const status s = take_lock(m_, l);
        if constexpr (std::is_same_v<Mutex, dunlin::recursive_mutex>) {
            if (s == status::ok) m_.lock();
        }
        return s;
    }
    void give(bool) override {
        if constexpr (std::is_same_v<Mutex, dunlin::recursive_mutex>) m_.unlock();
        m_.unlock();
    }
    bool is_whole() override { return m_.try_lock() && (m_.unlock(), true); }

private:
    Mutex m_;
};

class std_lock : public guard {
public:
    status take(bool, const limit&) override { return m_.lock(), status::ok; }
    void give(bool) override { m_.unlock(); }
    bool is_whole() override { return m_.try_lock() && (m_.unlock(), true); }

private:
    std::mutex m_;
};

class shared_lock_guard : public guard {
public:
    status take(bool shared, const limit& l) override {
        if (!shared) return take_lock(m_, l);
        return limited(
            l, [&] { return m_.lock_shared(), status::ok; },
            [&](const auto& ctx) { return m_.lock_shared(ctx), status::ok; },
            [&](auto d) { return m_.try_lock_shared_for(d) ? status::ok : status::timed_out; });
    }
    void give(bool shared) override { shared ? m_.unlock_shared() : m_.unlock(); }
    bool is_whole() override { return m_.try_lock() && (m_.unlock(), true); }

private:
    dunlin::shared_mutex m_;
};

class semaphore_guard : public guard {
public:
    explicit semaphore_guard(unsigned permits) : permits_(static_cast<int>(permits)), s_(static_cast<int>(permits)) {}
    status take(bool, const limit& l) override {
        return limited(
            l, [&] { return s_.acquire(), status::ok; }, [&](const auto& ctx) { return s_.acquire(ctx), status::ok; },
            [&](auto d) { return s_.try_acquire_for(d) ? status::ok : status::timed_out; });
    }
    void give(bool) override { s_.release(); }
    bool is_whole() override {
        int n = 0;
        while (s_.try_acquire()) ++n;
        s_.release(n);
        return n == permits_;
    }

private:
    const int permits_;
    dunlin::counting_semaphore<> s_;
};

// A writer takes all permits, and a reader one of them.
class weighted_guard : public guard {
public:
    status take(bool shared, const limit& l) override {
        const std::ptrdiff_t n = shared ? 1 : all;
        return limited(
            l, [&] { return s_.acquire(n), status::ok; },
            [&](const auto& ctx) { return s_.acquire(n, ctx), status::ok; },
            [&](auto d) { return s_.try_acquire_for(n, d) ? status::ok : status::timed_out; });
    }
    void give(bool shared) override { s_.release(shared ? 1 : all); }
    bool is_whole() override { return s_.try_acquire(all) && !s_.try_acquire() && (s_.release(all), true); }

private:
    static constexpr std::ptrdiff_t all = 3;
    dunlin::weighted_semaphore s_{all};
};

class faulty_guard : public guard {
public:
    faulty_guard(std::unique_ptr<guard> good, plant p) : good_(std::move(good)), plant_(p) {}
    status take(bool shared, const limit& l) override {
        if (plant_ == plant::reader_beside_writer && shared) return status::ok;
        const status s = good_->take(shared, l);
        const bool gave_up = s == status::timed_out || s == status::cancelled;
        if (gave_up && plant_ == plant::no_exclusion) return ++borrowed_, status::ok;
        const bool loses = (s == status::timed_out && plant_ == plant::permit_lost_on_time_out) ||
                           (s == status::cancelled && plant_ == plant::lock_kept_on_cancel);
        if (loses) static_cast<void>(good_->take(shared, {limit_kind::time, {}, std::chrono::milliseconds(2)}));
        return s;
    }
    void give(bool shared) override {
        if (plant_ == plant::reader_beside_writer && shared) return;
        // One that took it without having it has nothing to give; which one that is, is the same.
        for (int n = borrowed_; n > 0;) {
            if (borrowed_.compare_exchange_weak(n, n - 1)) return;
        }
        good_->give(shared);
        if (plant_ == plant::permit_invented && ++gives_ % 4 == 0) good_->give(shared);
    }
    bool is_whole() override { return good_->is_whole(); }

private:
    std::unique_ptr<guard> good_;
    const plant plant_;
    std::atomic<int> borrowed_{0}, gives_{0};
};

inline std::unique_ptr<guard> make_guard(const guard_of& g, plant p) {
    std::unique_ptr<guard> made;
    switch (g.kind) {
    case guard_kind::mutex: made = std::make_unique<lock_guard_of<dunlin::mutex>>(); break;
    case guard_kind::recursive_mutex: made = std::make_unique<lock_guard_of<dunlin::recursive_mutex>>(); break;
    case guard_kind::shared_mutex: made = std::make_unique<shared_lock_guard>(); break;
    case guard_kind::std_mutex: return std::make_unique<std_lock>();
    case guard_kind::semaphore: made = std::make_unique<semaphore_guard>(g.permits); break;
    case guard_kind::weighted: made = std::make_unique<weighted_guard>(); break;
    }
    // A lock of one holder would report the misuse that some of these faults are, before the oracle sees it.
    const bool for_semaphores =
        p == plant::no_exclusion || p == plant::permit_lost_on_time_out || p == plant::permit_invented;
    const bool wanted = (for_semaphores && g.kind == guard_kind::semaphore) ||
                        (p == plant::lock_kept_on_cancel && g.kind == guard_kind::mutex) ||
                        (p == plant::reader_beside_writer &&
                            (g.kind == guard_kind::shared_mutex || g.kind == guard_kind::weighted));
    return wanted ? std::make_unique<faulty_guard>(std::move(made), p) : std::move(made);
}

}  // namespace fuzz
