// abandon_net.h - subjects of abandon.h: datagrams that find no room, connecting, names, signals.
#pragma once

#include <atomic>
#include <csignal>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

#include "net/pairs.h"
#include "vocabulary/abandon.h"

namespace abandon {

// Writers of one message each into the queue of another socket, which is full.
class packet_write : public subject {
public:
    packet_write() {
        const dunlin::net::address to = in_.local_address();
        const auto* name = static_cast<const sockaddr*>(to.native());
        while (sendto(out_.native_handle(), "f", 1, MSG_DONTWAIT, name, to.native_size()) == 1) ++full_;
    }
    outcome wait(const limit& l, bool) override {
        const dunlin::net::address to = in_.local_address();
        const outcome o = call(
            l, [&] { return out_.write_to("x", 1, to) == 1; },
            [&](const auto& ctx) { return out_.write_to("x", 1, to, ctx) == 1; }, nullptr);
        if (o == outcome::got) ++written_;
        return o;
    }
    void serve() override { read_one(); }
    void close() override { out_.close(); }
    std::string rest(int served) override {
        const int expected = full_ + written_;
        while (came_ < expected) read_one();
        char byte;
        const bool more = recv(in_.native_handle(), &byte, 1, MSG_DONTWAIT) == 1;
        return more || written_ != served ? "other messages than were written" : "";
    }

private:
    void read_one() {
        char byte = 0;
        if (in_.read_some(&byte, 1) == 1 && byte == (came_ < full_ ? 'f' : 'x')) ++came_;
    }
    dunlin::net::packet_conn in_ = dunlin::net::listen_packet("unixgram", support::abstract_name());
    dunlin::net::packet_conn out_ = dunlin::net::listen_packet("unixgram", support::abstract_name());
    int full_ = 0, came_ = 0;
    std::atomic<int> written_{0};
};

// The backlog of the listener is full; serve() makes room for all. A dial that has given up may have left a connection
// behind, whose other end is closed.
class dialling : public subject {
public:
    dialling() {
        const dunlin::net::address to = l_.local_address();
        for (;;) {
            const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
            fillers_.push_back(dunlin::net::stream::adopt(fd));
            if (connect(fd, static_cast<const sockaddr*>(to.native()), to.native_size()) != 0) break;
        }
        fillers_.pop_back();
    }
    outcome wait(const limit& l, bool) override {
        const std::string to = l_.local_address().to_string();
        const auto keep = [this](dunlin::net::stream s) {
            s.write_all("x", 1);
            const std::scoped_lock lock(m_);
            dialled_.push_back(std::move(s));
            return true;
        };
        return call(
            l, [&] { return keep(dunlin::net::dial("unix", to)); },
            [&](const auto& ctx) { return keep(dunlin::net::dial("unix", to, ctx)); },
            [&](auto d) { return keep(dunlin::net::dial("unix", to, d)); });
    }
    void serve() override {
        for (std::size_t i = 0; i < fillers_.size(); ++i) l_.accept();
    }
    std::string rest(int served) override {
        const auto nobody = dunlin::with_cancel({});
        nobody.cancel();
        int alive = 0;
        for (std::error_code ec;;) {
            auto s = l_.accept(nobody, ec);
            if (ec) break;
            char byte;
            alive += static_cast<int>(s.read_some(&byte, 1, ec));
        }
        return alive == served ? "" : std::to_string(alive) + " connections are left";
    }

private:
    dunlin::net::listener l_ = dunlin::net::listen("unix", support::abstract_name(), {.backlog = 4});
    std::vector<dunlin::net::stream> fillers_;
    std::mutex m_;
    std::vector<dunlin::net::stream> dialled_;  // m_
};

// One look-up for all; it ends when serve() says so.
class resolving : public subject {
public:
    resolving() {
        const std::scoped_lock lock(gates().m);
        gates().open[name_] = false;
    }
    outcome wait(const limit& l, bool) override {
        const std::string to = name_ + ":80";
        const auto found = [](const auto& all) { return all.size() == 1 && all[0].port() == 80; };
        // A goroutine that waits for nothing else asks itself: to the driver it does not wait.
        const bool asks = l.how == limit::none && dunlin::sched::current_goroutine() == nullptr;
        return call(asks ? limit{} : limit{limit::context, l.how == limit::context ? l.ctx : forever_, {}},
            [&] { return found(dunlin::net::resolve("tcp4", to)); },
            [&](const auto& ctx) { return found(dunlin::net::resolve("tcp4", to, ctx)); }, nullptr);
    }
    void serve() override {
        const std::scoped_lock lock(gates().m);
        gates().open[name_] = true;
    }
    std::string rest(int) override {
        return dunlin::net::resolve("tcp4", name_ + ":80").size() == 1 ? "" : "not found";
    }

    // False: another name. True: when it may be answered.
    static bool wait_for(const std::string& name) {
        for (;; usleep(500)) {
            const std::scoped_lock lock(gates().m);
            const auto found = gates().open.find(name);
            if (found == gates().open.end()) return false;
            if (found->second) return true;
        }
    }

private:
    struct all_gates {
        std::mutex m;
        std::map<std::string, bool> open;  // m
    };
    static all_gates& gates() {
        static all_gates g;
        return g;
    }
    static std::string new_name() {
        static std::atomic<int> count{0};
        return "name" + std::to_string(++count) + ".abandoned";
    }
    const std::string name_ = new_name();
    const dunlin::context forever_ = dunlin::with_cancel({});
};

// A signal is for one of the waiters on the channel.
class signal_wait : public subject {
public:
    outcome wait(const limit& l, bool) override {
        const auto mine = [this](const auto& s) { return s && *s == number_; };
        return call(
            l, [&] { return mine(c_.recv()); }, [&](const auto& ctx) { return mine(c_.recv(ctx)); },
            [&](auto d) { return mine(c_.recv_for(d)); });
    }
    void serve() override { kill(getpid(), number_); }
    std::string rest(int) override { return c_.try_recv() ? "a signal is left" : ""; }

private:
    // Those that are played at the same time each have one of their own.
    class own_number {
    public:
        own_number() {
            while (in_use()[n_].exchange(true)) n_ = (n_ + 1) % count;
        }
        ~own_number() { in_use()[n_] = false; }
        operator int() const { return SIGRTMIN + 1 + static_cast<int>(n_); }

    private:
        static constexpr std::size_t count = 24;
        static std::atomic<bool>* in_use() {
            static std::atomic<bool> flags[count];
            return flags;
        }
        std::size_t n_ = 0;
    };
    const own_number number_;
    const dunlin::receiver<int> c_ = dunlin::signal_channel({number_});
};

}  // namespace abandon
