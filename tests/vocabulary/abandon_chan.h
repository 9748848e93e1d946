// abandon_chan.h - subjects of abandon.h: channels, select, timers, contexts, sleeping.
#pragma once

#include <atomic>
#include <set>
#include <string>

#include "vocabulary/abandon.h"

namespace abandon {

// Values that were given to waiters, or by them, each of which must be there once.
class values {
public:
    int next() { return ++last_; }
    void took(int v) { sum_ += v; }
    // Of `n` values 1, 2, ..., n.
    std::string check(int n) const {
        const int expected = n * (n + 1) / 2;
        return sum_ == expected ? ""
                                : "values whose sum is " + std::to_string(sum_) + ", not " + std::to_string(expected);
    }

private:
    int last_ = 0;  // the server's; its calls follow each other
    std::atomic<int> sum_{0};
};

template <int Capacity>
class chan_recv : public subject {
public:
    outcome wait(const limit& l, bool) override {
        const auto took = [this](auto&& v) {
            if (v) values_.took(*v);
            return v ? outcome::got : outcome::closed;
        };
        return call(
            l, [&] { return took(c_.recv()); }, [&](const auto& ctx) { return took(c_.recv(ctx)); },
            [&](auto d) {
                auto v = c_.recv_for(d);
                return v.status() == dunlin::channel_status::would_block ? outcome::timed_out : took(v);
            });
    }
    void serve() override {
        const auto own = c_;  // the subject's goes when the last wait has returned, perhaps before this send has
        own.send(values_.next());
    }
    void close() override { c_.close(); }
    std::string rest(int served) override { return c_.len() != 0 ? "a value is left" : values_.check(served); }
    void destroy() override {
        c_ = dunlin::chan<int>::nil();
    }

private:
    dunlin::chan<int> c_{Capacity};
    values values_;
};

// The channel is full from the beginning, if it has a buffer.
template <int Capacity>
class chan_send : public subject {
public:
    chan_send() {
        for (int i = 0; i < Capacity; ++i) c_.send(0);
    }
    outcome wait(const limit& l, bool) override {
        int value = ++sent_;
        const outcome o = call(
            l, [&] { c_.send(value); }, [&](const auto& ctx) { c_.send(value, ctx); },
            [&](auto d) { return bool(c_.send_for(value, d)); });
        if (o == outcome::got) gone_ += value;
        return o;
    }
    void serve() override {
        const auto own = c_;
        came_ += own.recv().value();
    }
    void close() override { c_.close(); }
    std::string rest(int) override {
        int v = 0;
        while (c_.try_recv(v) == dunlin::channel_status::ok) came_ += v;
        return came_ == gone_ ? "" : std::to_string(gone_) + " was sent, " + std::to_string(came_) + " came";
    }
    void destroy() override {
        c_ = dunlin::chan<int>::nil();
    }

private:
    dunlin::chan<int> c_{Capacity};
    std::atomic<int> sent_{0}, gone_{0};
    std::atomic<int> came_{0};
};

// Waiters that are in the queues of two channels each, and served by one of them.
class select_recv : public subject {
public:
    outcome wait(const limit& l, bool) override {
        outcome o = outcome::wrong;
        const auto take = [&](std::optional<int> v) {
            o = v ? outcome::got : outcome::closed;
            if (v) values_.took(*v);
        };
        const auto late = [&] { o = outcome::timed_out; };
        if (l.how == limit::none) {
            dunlin::select(dunlin::on_recv(a_, take), dunlin::on_recv(b_, take));
        } else if (l.how == limit::time) {
            dunlin::select(dunlin::on_recv(a_, take), dunlin::on_timeout(l.d, late), dunlin::on_recv(b_, take));
        } else {
            const auto over = [&] { o = detail::end_of(l.ctx.err()); };
            dunlin::select(dunlin::on_done(l.ctx, over), dunlin::on_recv(a_, take), dunlin::on_recv(b_, take));
        }
        return o;
    }
    void serve() override {
        const int v = values_.next();
        (v % 2 != 0 ? a_ : b_).send(v);
    }
    void close() override { b_.close(); }
    std::string rest(int served) override {
        return a_.len() + b_.len() != 0 ? "a value is left" : values_.check(served);
    }

private:
    dunlin::chan<int> a_, b_{4};
    values values_;
};

class select_send : public subject {
public:
    outcome wait(const limit& l, bool) override {
        const int value = ++sent_;
        outcome o = outcome::wrong;
        const auto gone = [&] {
            o = outcome::got;
            gone_ += value;
        };
        const auto late = [&] { o = outcome::timed_out; };
        try {
            if (l.how == limit::none) {
                dunlin::select(dunlin::on_send(a_, value, gone), dunlin::on_send(b_, value, gone));
            } else if (l.how == limit::time) {
                dunlin::select(
                    dunlin::on_send(a_, value, gone), dunlin::on_send(b_, value, gone), dunlin::on_timeout(l.d, late));
            } else {
                const auto over = [&] { o = detail::end_of(l.ctx.err()); };
                dunlin::select(
                    dunlin::on_send(a_, value, gone), dunlin::on_done(l.ctx, over), dunlin::on_send(b_, value, gone));
            }
        } catch (const dunlin::channel_closed&) {
            o = outcome::closed;
        }
        return o;
    }
    void serve() override { came_ += (++served_ % 2 != 0 ? a_ : b_).recv().value(); }
    void close() override { a_.close(); }
    std::string rest(int) override {
        return came_ == gone_ ? "" : std::to_string(gone_) + " was sent, " + std::to_string(came_) + " came";
    }

private:
    dunlin::chan<int> a_, b_;
    int served_ = 0;
    std::atomic<int> sent_{0}, gone_{0}, came_{0};
};

// One value for each reset().
class timer_channel : public subject {
public:
    outcome wait(const limit& l, bool) override {
        const auto c = timer_.channel();
        return call(
            l, [&] { return c.recv().has_value(); }, [&](const auto& ctx) { return c.recv(ctx).has_value(); },
            [&](auto d) { return c.recv_for(d).has_value(); });
    }
    void serve() override { timer_.reset(0s); }
    std::string rest(int) override { return timer_.channel().try_recv() ? "a tick is left" : ""; }

private:
    dunlin::timer timer_ = [] {
        dunlin::timer t(1h);
        static_cast<void>(t.channel());  // made here: waiters may not make it at the same time
        return t;
    }();
};

// Ticks do not end: one for each waiter.
class ticks : public subject {
public:
    outcome wait(const limit& l, bool) override {
        const auto c = ticker_.channel();
        return call(
            l, [&] { return c.recv().has_value(); }, [&](const auto& ctx) { return c.recv(ctx).has_value(); },
            [&](auto d) { return c.recv_for(d).has_value(); });
    }
    void serve() override { ticker_.reset(200us); }
    std::string rest(int) override {
        ticker_.stop();
        return ticker_.channel().try_recv() ? "a tick is left" : "";
    }

private:
    dunlin::ticker ticker_{1h};
};

class context_done : public subject {
public:
    outcome wait(const limit& l, bool) override {
        const auto c = done_.done();
        const auto over = [](const auto& v) { return !v.has_value(); };  // closed
        return call(
            l, [&] { return over(c.recv()); }, [&](const auto& ctx) { return over(c.recv(ctx)); },
            [&](auto d) { return c.recv_for(d).status() == dunlin::channel_status::closed; });
    }
    void serve() override { done_.cancel(); }
    std::string rest(int) override { return done_.is_done() ? "" : "it is not done"; }

private:
    const dunlin::cancellable done_ = dunlin::with_cancel(dunlin::with_cancel({}));
};

// The others' time comes by itself, and not before; that of one that may give up does not come.
class sleeping : public subject {
public:
    outcome wait(const limit& l, bool) override {
        const auto end = dunlin::clock::now() + 15ms;
        const outcome o = call(
            l, [&] { dunlin::sleep_until(end); }, [&](const auto& ctx) { dunlin::sleep_for(1h, ctx); }, nullptr);
        return o == outcome::got && dunlin::clock::now() < end ? outcome::wrong : o;
    }
    void serve() override {}
    std::string rest(int) override { return ""; }
};

}  // namespace abandon
