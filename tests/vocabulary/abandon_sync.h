// abandon_sync.h - subjects of abandon.h: locks, condition variables, counters, results.
#pragma once

#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "vocabulary/abandon.h"

namespace abandon {

// Held from the beginning. A waiter that gets it keeps it, and each serve() gives it back for its holder.
class mutex_lock : public subject {
public:
    mutex_lock() { m_->lock(); }
    outcome wait(const limit& l, bool) override {
        return call(
            l, [&] { m_->lock(); }, [&](const auto& ctx) { m_->lock(ctx); },
            [&](auto d) { return m_->try_lock_for(d); });
    }
    void serve() override { m_->unlock(); }
    std::string rest(int) override {
        if (m_->try_lock()) return "nobody has the lock";
        m_->unlock();
        return m_->try_lock() ? (m_->unlock(), "") : "the lock is not free";
    }
    void destroy() override {
        m_->unlock();
        m_.reset();
    }

private:
    std::optional<dunlin::mutex> m_{std::in_place};
};

// Another takes the lock before the waiter that was woken for it comes: that one may give up in its second wait.
class passed_by_mutex_lock : public subject {
public:
    passed_by_mutex_lock() { m_.lock(); }
    outcome wait(const limit& l, bool) override {
        return call(
            l, [&] { m_.lock(); }, [&](const auto& ctx) { m_.lock(ctx); }, [&](auto d) { return m_.try_lock_for(d); });
    }
    void serve() override {
        m_.unlock();
        if (!m_.try_lock()) return;
        dunlin::sleep_for(300us);
        m_.unlock();
    }
    std::string rest(int) override {
        if (m_.try_lock()) return "nobody has the lock";
        m_.unlock();
        return m_.try_lock() ? (m_.unlock(), "") : "the lock is not free";
    }

private:
    dunlin::mutex m_;
};

// Only its holder may unlock it: that is a goroutine of the subject's, told by serve(), and the waiters give it on.
class recursive_lock : public subject {
public:
    recursive_lock() {
        holder_ = std::make_unique<actor>(kind::goroutine, [this] {
            m_.lock();
            m_.lock();
            held_.store(true);
            until([this] { return told_.load(); });
            m_.unlock();
            m_.unlock();
        });
        until([this] { return held_.load(); });
    }
    outcome wait(const limit& l, bool) override {
        const outcome o = call(
            l, [&] { m_.lock(); }, [&](const auto& ctx) { m_.lock(ctx); }, [&](auto d) { return m_.try_lock_for(d); });
        if (o == outcome::got) m_.unlock();
        return o;
    }
    void serve() override { told_.store(true); }
    std::string rest(int) override {
        told_.store(true);
        holder_->join();
        return m_.try_lock() ? (m_.unlock(), "") : "the lock is not free";
    }

private:
    dunlin::recursive_mutex m_;
    std::atomic<bool> held_{false}, told_{false};
    std::unique_ptr<actor> holder_;
};

class shared_lock_write : public subject {
public:
    shared_lock_write() { m_->lock(); }
    outcome wait(const limit& l, bool) override {
        return call(
            l, [&] { m_->lock(); }, [&](const auto& ctx) { m_->lock(ctx); },
            [&](auto d) { return m_->try_lock_for(d); });
    }
    void serve() override { m_->unlock(); }
    std::string rest(int) override {
        if (m_->try_lock_shared()) return "nobody has the lock";
        m_->unlock();
        return m_->try_lock() ? (m_->unlock(), "") : "the lock is not free";
    }
    void destroy() override {
        m_->unlock();
        m_.reset();
    }

private:
    std::optional<dunlin::shared_mutex> m_{std::in_place};
};

class shared_lock_read : public subject {
public:
    shared_lock_read() { m_->lock(); }
    outcome wait(const limit& l, bool) override {
        const outcome o = call(
            l, [&] { m_->lock_shared(); }, [&](const auto& ctx) { m_->lock_shared(ctx); },
            [&](auto d) { return m_->try_lock_shared_for(d); });
        if (o == outcome::got) ++readers_;
        return o;
    }
    void serve() override { m_->unlock(); }
    std::string rest(int served) override {
        if (m_->try_lock()) return "no reader has the lock";
        for (int i = 0; i < served; ++i) m_->unlock_shared();
        return m_->try_lock() ? (m_->unlock(), "") : "the lock is not free";
    }
    void destroy() override {
        for (; readers_ > 0; --readers_) m_->unlock_shared();
        m_.reset();
    }

private:
    std::optional<dunlin::shared_mutex> m_{std::in_place};
    std::atomic<int> readers_{0};
};

// Readers behind a writer that gives up need not wait any more: others read.
class readers_behind_a_writer : public subject {
public:
    readers_behind_a_writer() { m_.lock_shared(); }
    outcome wait(const limit& l, bool quitter) override {
        if (!quitter) {
            m_.lock_shared();
            m_.unlock_shared();
            return outcome::got;
        }
        const outcome o = call(
            l, [&] { m_.lock(); }, [&](const auto& ctx) { m_.lock(ctx); }, [&](auto d) { return m_.try_lock_for(d); });
        if (o == outcome::got) m_.unlock();
        return o;
    }
    void serve() override {
        m_.unlock_shared();
        released_ = true;
    }
    std::string rest(int) override {
        if (!released_) m_.unlock_shared();
        return m_.try_lock() ? (m_.unlock(), "") : "the lock is not free";
    }

private:
    dunlin::shared_mutex m_;
    bool released_ = false;
};

// A wake-up is a ticket, of which a waiter takes one: what is lost is seen as a waiter that never returns.
template <class Condition>
class condition_wait : public subject {
public:
    outcome wait(const limit& l, bool) override {
        std::unique_lock lock(m_);
        const auto ready = [this] { return tickets_ > 0; };
        const outcome o = call(
            l, [&] { cv_->wait(lock, ready); }, [&](const auto& ctx) { cv_->wait(lock, ctx, ready); },
            [&](auto d) { return cv_->wait_for(lock, d, ready); });
        if (o == outcome::got) --tickets_;
        return o;
    }
    void serve() override {
        {
            const std::scoped_lock lock(m_);
            ++tickets_;
        }
        cv_->notify_one();
    }
    std::string rest(int) override { return tickets_ == 0 ? "" : "tickets are left"; }

private:
    dunlin::mutex m_;
    std::optional<Condition> cv_{std::in_place};
    int tickets_ = 0;
};

// Of those notified none is passed over: without a predicate, a notified waiter returns.
class bare_condition_wait : public subject {
public:
    outcome wait(const limit& l, bool) override {
        std::unique_lock lock(m_);
        ++queued_;
        const outcome o = call(
            l, [&] { cv_->wait(lock); }, [&](const auto& ctx) { cv_->wait(lock, ctx); },
            [&](auto d) { return cv_->wait_for(lock, d) == dunlin::cv_status::no_timeout; });
        return o;
    }
    void serve() override {
        // With the lock held, those counted are in the queue.
        until([this] {
            const std::scoped_lock lock(m_);
            return queued_ == 3;
        });
        cv_->notify_one();
    }
    std::string rest(int) override { return ""; }
    void destroy() override {
        cv_.reset();
    }

private:
    dunlin::mutex m_;
    std::optional<dunlin::condition_variable> cv_{std::in_place};
    int queued_ = 0;
};

// The quitter's limit is a stop_token.
class condition_with_stop_token : public subject {
public:
    outcome wait(const limit& l, bool) override {
        std::unique_lock lock(m_);
        const auto ready = [this] { return tickets_ > 0; };
        const std::stop_source nobodys;
        const bool got = l.how == limit::time ? cv_.wait_for(lock, nobodys.get_token(), l.d, ready)
                                              : cv_.wait(lock, l.ctx.stop_token(), ready);
        if (got) --tickets_;
        return got ? outcome::got : l.how == limit::time ? outcome::timed_out : detail::end_of(l.ctx.err());
    }
    void serve() override {
        const std::scoped_lock lock(m_);
        ++tickets_;
        cv_.notify_one();
    }
    std::string rest(int) override { return tickets_ == 0 ? "" : "tickets are left"; }

private:
    dunlin::shared_mutex m_;
    dunlin::condition_variable_any cv_;
    int tickets_ = 0;
};

class semaphore_acquire : public subject {
public:
    outcome wait(const limit& l, bool) override {
        return call(
            l, [&] { s_->acquire(); }, [&](const auto& ctx) { s_->acquire(ctx); },
            [&](auto d) { return s_->try_acquire_for(d); });
    }
    void serve() override { s_->release(); }
    std::string rest(int) override {
        if (s_->try_acquire()) return "a permit is left";
        s_->release();
        return s_->try_acquire() ? "" : "a permit is lost";
    }
    void destroy() override {
        s_.reset();
    }

private:
    std::optional<dunlin::counting_semaphore<>> s_{std::in_place, 0};
};

class latch_wait : public subject {
public:
    outcome wait(const limit& l, bool) override {
        return call(
            l, [&] { l_->wait(); }, [&](const auto& ctx) { l_->wait(ctx); }, [&](auto d) { return l_->wait_for(d); });
    }
    void serve() override { l_->count_down(); }
    std::string rest(int) override { return l_->try_wait() ? "" : "the count is not zero"; }
    void destroy() override {
        l_.reset();
    }

private:
    std::optional<dunlin::latch> l_{std::in_place, 1};
};

// The arrival of a waiter that gives up counts. Then a second phase, for which the same number is expected.
class barrier_wait : public subject {
public:
    outcome wait(const limit& l, bool) override {
        return call(
            l, [&] { b_->arrive_and_wait(); }, [&](const auto& ctx) { b_->arrive_and_wait(ctx); }, nullptr);
    }
    void serve() override { static_cast<void>(b_->arrive()); }
    std::string rest(int) override {
        if (phases_ != 1) return "not one phase has ended";
        static_cast<void>(b_->arrive(4));
        return phases_ == 2 ? "" : "the second phase has not ended";
    }
private:
    struct count {
        int* phases;
        void operator()() noexcept { ++*phases; }
    };
    int phases_ = 0;
    std::optional<dunlin::barrier<count>> b_{std::in_place, 4, count{&phases_}};
};

class wait_group_wait : public subject {
public:
    wait_group_wait() { g_->add(1); }
    outcome wait(const limit& l, bool) override {
        return call(
            l, [&] { g_->wait(); }, [&](const auto& ctx) { g_->wait(ctx); }, [&](auto d) { return g_->wait_for(d); });
    }
    void serve() override { dunlin::wait_group(*g_).done(); }
    std::string rest(int) override { return g_->wait_for(0s) ? "" : "the counter is not zero"; }
    void destroy() override {
        g_.reset();
    }

private:
    std::optional<dunlin::wait_group> g_{std::in_place};
};

// One at a time may wait: what it gave up is there for its next wait. close(): the promise goes.
class future_get : public subject {
public:
    outcome wait(const limit& l, bool) override {
        return call(
            l, [&] { f_.wait(), value_ = f_.get(); }, [&](const auto& ctx) { value_ = f_.get(ctx); },
            [&](auto d) { return f_.wait_for(d) == dunlin::future_status::ready && (value_ = f_.get()) == 7; });
    }
    void serve() override { p_->set_value(7); }
    void close() override { p_.reset(); }
    std::string rest(int served) override {
        if (served == 0) value_ = f_.get();
        return value_ == 7 && !f_.valid() ? "" : "another value";
    }
private:
    std::optional<dunlin::promise<int>> p_{std::in_place};
    dunlin::future<int> f_ = p_->get_future();
    int value_ = 0;
};

class task_get : public subject {
public:
    task_get() {
        t_ = dunlin::spawn([this] {
            go_on_.acquire();
            return 7;
        });
    }
    outcome wait(const limit& l, bool) override {
        return call(
            l, [&] { value_ = t_.get(); }, [&](const auto& ctx) { value_ = t_.get(ctx); },
            [&](auto d) { return t_.wait_for(d) && (value_ = t_.get()) == 7; });
    }
    void serve() override { go_on_.release(); }
    std::string rest(int served) override {
        if (served == 0) value_ = t_.get();
        return value_ == 7 && !t_.valid() ? "" : "another value";
    }

private:
    dunlin::binary_semaphore go_on_{0};
    dunlin::task<int> t_;
    int value_ = 0;
};

class task_group_wait : public subject {
public:
    task_group_wait() {
        for (int i = 0; i < 2; ++i) {
            g_->go([this] {
                go_on_.acquire();
                ++ended_;
            });
        }
    }
    outcome wait(const limit& l, bool) override {
        return call(
            l, [&] { g_->wait(); }, [&](const auto& ctx) { g_->wait(ctx); }, nullptr);
    }
    void serve() override { go_on_.release(2); }
    std::string rest(int) override {
        g_->wait();
        return ended_ == 2 ? "" : "members have not ended";
    }
    void destroy() override {
        g_.reset();
    }

private:
    dunlin::counting_semaphore<> go_on_{0};
    std::atomic<int> ended_{0};
    std::optional<dunlin::task_group> g_{std::in_place};
};

// Callers that come while it runs cannot give up; all return when it has ended.
class once_call : public subject {
public:
    once_call() {
        first_ = std::make_unique<actor>(kind::goroutine, [this] {
            dunlin::call_once(flag_, [this] {
                runs_.store(true);
                go_on_.acquire();
            });
        });
        until([this] { return runs_.load(); });
    }
    outcome wait(const limit&, bool) override {
        dunlin::call_once(flag_, [this] { ++again_; });
        return outcome::got;
    }
    void serve() override { go_on_.release(); }
    std::string rest(int) override { return again_ == 0 ? "" : "it was done again"; }

private:
    dunlin::once_flag flag_;
    dunlin::binary_semaphore go_on_{0};
    std::atomic<bool> runs_{false};
    std::atomic<int> again_{0};
    std::unique_ptr<actor> first_;
};

}  // namespace abandon
