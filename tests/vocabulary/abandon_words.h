// abandon_words.h - subjects of abandon.h: what came from Tokio and errgroup.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "vocabulary/abandon.h"

namespace abandon {

class notify_one_wait : public subject {
public:
    outcome wait(const limit& l, bool) override {
        const dunlin::notify own = *n_;
        return call(
            l, [&] { own.wait(); }, [&](const auto& ctx) { own.wait(ctx); }, [&](auto d) { return own.wait_for(d); });
    }
    void serve() override { dunlin::notify(*n_).notify_one(); }
    std::string rest(int) override { return n_->try_wait() ? "a permit is left" : ""; }
    void destroy() override { n_.reset(); }

private:
    std::optional<dunlin::notify> n_{std::in_place};
};

// Nothing is stored for a waiter that comes later. So serve() goes on until all have come.
class notify_waiters_wait : public subject {
public:
    outcome wait(const limit& l, bool) override {
        const outcome o = call(
            l, [&] { n_.wait(); }, [&](const auto& ctx) { n_.wait(ctx); }, [&](auto d) { return n_.wait_for(d); });
        ++returned_;
        return o;
    }
    void serve() override {
        until([this] {
            n_.notify_waiters();
            return returned_ == 3;
        });
    }
    std::string rest(int) override { return n_.try_wait() ? "a permit was stored" : ""; }

private:
    dunlin::notify n_;
    std::atomic<int> returned_{0};
};

// Each waiter has a receiver of its own. What the quitter has not received is there for its next receive.
template <class Source>
class following_recv : public subject {
public:
    outcome wait(const limit& l, bool) override {
        auto& mine = receivers_[begun_++];
        const auto took = [](const auto& v) { return !v ? outcome::closed : *v == 7 ? outcome::got : outcome::wrong; };
        const outcome o = call(
            l, [&] { return took(mine.recv()); }, [&](const auto& ctx) { return took(mine.recv(ctx)); },
            [&](auto d) {
                const auto v = mine.recv_for(d);
                return v.status() == dunlin::channel_status::would_block ? outcome::timed_out : took(v);
            });
        if (o == outcome::got) ++got_;
        return o;
    }
    void serve() override { source_.send(7); }
    void close() override { source_.close(); }
    std::string rest(int served) override {
        int left = 0;
        for (auto& r : receivers_) {
            while (const auto v = r.try_recv()) left += *v == 7;
        }
        return got_ == served && served + left == 3 ? "" : "received " + std::to_string(left) + " more";
    }

private:
    Source source_{4};
    std::array<decltype(source_.subscribe()), 3> receivers_{
        source_.subscribe(), source_.subscribe(), source_.subscribe()};
    std::atomic<std::size_t> begun_{0};
    std::atomic<int> got_{0};
};

class weighted_acquire : public subject {
public:
    outcome wait(const limit& l, bool) override {
        return call(
            l, [&] { s_->acquire(2); }, [&](const auto& ctx) { s_->acquire(2, ctx); },
            [&](auto d) { return s_->try_acquire_for(2, d); });
    }
    void serve() override { s_->release(2); }
    void close() override { s_->close(); }
    std::string rest(int) override {
        if (s_->try_acquire(1)) return "a permit is left";
        s_->release(1);
        return s_->try_acquire(1) ? "" : "a permit is lost";
    }
    void destroy() override { s_.reset(); }

private:
    std::optional<dunlin::weighted_semaphore> s_{std::in_place, 0};
};

// The quitter wants more than there is, and those behind it, for whom there is enough, wait for it.
class weighted_behind_many : public subject {
public:
    outcome wait(const limit& l, bool quitter) override {
        const std::ptrdiff_t n = quitter ? 3 : 1;
        const outcome o = call(
            l, [&] { s_.acquire(n); }, [&](const auto& ctx) { s_.acquire(n, ctx); },
            [&](auto d) { return s_.try_acquire_for(n, d); });
        if (o == outcome::got) taken_ += n;
        return o;
    }
    void serve() override {
        given_ += 3;
        s_.release(3);
    }
    std::string rest(int) override {
        const std::ptrdiff_t left = given_ - taken_;
        if (left != 0 && !s_.try_acquire(left)) return "permits are lost";
        return s_.try_acquire(1) ? "a permit is left" : "";
    }

private:
    dunlin::weighted_semaphore s_{2};
    std::atomic<std::ptrdiff_t> given_{2}, taken_{0};
};

// A call is under way, whose result the waiters share. Each that comes later makes a call of its own.
class singleflight_call : public subject {
public:
    singleflight_call() {
        first_ = std::make_unique<actor>(kind::goroutine, [this] {
            flights_.call(1, [this] {
                runs_.store(true);
                go_on_.acquire();
                return 7;
            });
        });
        until([this] { return runs_.load(); });
    }
    outcome wait(const limit& l, bool) override {
        const auto own = [] { return 8; };
        const auto took = [](int v) { return v == 7 || v == 8 ? outcome::got : outcome::wrong; };
        return call(
            l, [&] { return took(flights_.call(1, own)); },
            [&](const auto& ctx) { return took(flights_.call(1, own, ctx)); },
            [&](auto d) {
                const auto v = flights_.call_for(1, d, own);
                return v ? took(*v) : outcome::timed_out;
            });
    }
    void serve() override { go_on_.release(); }
    std::string rest(int) override {
        first_->join();
        flights_.call(1, [] { return 8; });  // if a waiter has begun one of its own, it has ended then
        return flights_.call(1, [] { return 9; }) == 9 ? "" : "the call is still under way";
    }

private:
    dunlin::binary_semaphore go_on_{0};
    std::atomic<bool> runs_{false};
    dunlin::singleflight<int, int> flights_;
    std::unique_ptr<actor> first_;
};

// A function is under way, and fails: one of the waiters calls its own.
class retry_once_call : public subject {
public:
    retry_once_call() {
        first_ = std::make_unique<actor>(kind::goroutine, [this] {
            try {
                flag_.call([this] {
                    runs_.store(true);
                    go_on_.acquire();
                    throw std::runtime_error("not this time");
                });
            } catch (const std::runtime_error&) {
            }
        });
        until([this] { return runs_.load(); });
    }
    outcome wait(const limit& l, bool) override {
        const auto again = [this] { ++again_; };
        return call(
            l, [&] { flag_.call(again); }, [&](const auto& ctx) { flag_.call(again, ctx); },
            [&](auto d) { return flag_.call_for(d, again); });
    }
    void serve() override { go_on_.release(); }
    std::string rest(int) override {
        return again_ == 1 && flag_.done() ? "" : "called " + std::to_string(again_) + " times";
    }

private:
    dunlin::binary_semaphore go_on_{0};
    dunlin::retry_once_flag flag_;
    std::atomic<bool> runs_{false};
    std::atomic<int> again_{0};
    std::unique_ptr<actor> first_;
};

class shared_future_get : public subject {
public:
    outcome wait(const limit& l, bool) override {
        const dunlin::shared_future<int> own = f_;
        return call(
            l, [&] { return own.get() == 7 ? outcome::got : outcome::wrong; },
            [&](const auto& ctx) { return own.get(ctx) == 7 ? outcome::got : outcome::wrong; },
            [&](auto d) { return own.wait_for(d) == dunlin::future_status::ready && own.get() == 7; });
    }
    void serve() override { p_->set_value(7); }
    void close() override { p_.reset(); }
    std::string rest(int) override { return f_.get() == 7 ? "" : "another value"; }

private:
    std::optional<dunlin::promise<int>> p_{std::in_place};
    const dunlin::shared_future<int> f_{p_->get_future()};
};

// A member has the group's only place, and each that gets it keeps it until the next serve().
class task_group_place : public subject {
public:
    task_group_place() {
        g_.set_limit(1);
        g_.go([this] { member(); });
    }
    ~task_group_place() override { go_on_.release(100); }  // after a fault members may be left
    outcome wait(const limit& l, bool) override {
        return call(
            l, [&] { g_.go([this] { member(); }); }, [&](const auto& ctx) { g_.go(ctx, [this] { member(); }); });
    }
    void serve() override { go_on_.release(); }
    std::string rest(int served) override {
        go_on_.release();
        g_.wait();
        return ended_ == served + 1 ? "" : std::to_string(ended_) + " members have ended";
    }

private:
    void member() {
        go_on_.acquire();
        ++ended_;
    }
    dunlin::counting_semaphore<> go_on_{0};
    std::atomic<int> ended_{0};
    dunlin::task_group g_;
};

class task_set_next : public subject {
public:
    task_set_next() {
        for (int i = 1; i <= members; ++i) {
            set_.go([this, i] {
                go_on_.acquire();
                return i;
            });
        }
    }
    outcome wait(const limit& l, bool) override {
        const auto took = [this](std::optional<int> v) {
            sum_ += v.value();
            return outcome::got;
        };
        return call(
            l, [&] { return took(set_.next()); }, [&](const auto& ctx) { return took(set_.next(ctx)); },
            [&](auto d) {
                const auto v = set_.next_for(d);
                return v ? took(v) : outcome::timed_out;
            });
    }
    ~task_set_next() override { go_on_.release(members); }  // after a fault members may be left
    void serve() override { go_on_.release(); }
    std::string rest(int served) override {
        for (int i = served; i < members; ++i) {
            go_on_.release();
            sum_ += set_.next().value();
        }
        if (set_.next()) return "a result too many";
        return sum_ == members * (members + 1) / 2 ? "" : "results whose sum is " + std::to_string(sum_);
    }

private:
    static constexpr int members = 3;
    dunlin::counting_semaphore<> go_on_{0};
    std::atomic<int> sum_{0};
    dunlin::task_set<int> set_;
};

}  // namespace abandon
