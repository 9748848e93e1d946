// abandon_io.h - subjects of abandon.h: sockets, pipes, processes, and select over them.
#pragma once

#include <array>
#include <mutex>
#include <string>
#include <vector>

#include "net/pairs.h"
#include "vocabulary/abandon.h"

namespace abandon {

// Readers of one byte each: the second and third wait for their turn.
template <class Ends>
class stream_read : public subject {
public:
    outcome wait(const limit& l, bool) override {
        char byte = 0;
        const outcome o = call(
            l, [&] { return ends_.in().read_some(&byte, 1) == 1; },
            [&](const auto& ctx) { return ends_.in().read_some(&byte, 1, ctx) == 1; }, nullptr);
        if (o == outcome::got) sum_ += byte;
        return o;
    }
    void serve() override {
        const char byte = static_cast<char>(++written_);
        ends_.out().write_all(&byte, 1);
    }
    void close() override { ends_.in().close(); }
    std::string rest(int served) override {
        return sum_ == served * (served + 1) / 2 ? "" : "bytes whose sum is " + std::to_string(sum_);
    }
    void destroy() override {
        ends_.in() = {};
    }

private:
    Ends ends_;
    int written_ = 0;
    std::atomic<int> sum_{0};
};

struct pipe_ends {
    dunlin::fs::pipe p;
    dunlin::byte_stream& in() { return p.read_end; }
    dunlin::byte_stream& out() { return p.write_end; }
};
struct tcp_ends {
    support::ends e = support::connected("tcp");
    dunlin::net::stream& in() { return e.server; }
    dunlin::net::stream& out() { return e.client; }
};

// Writers of one byte each into a stream that is full.
class stream_write : public subject {
public:
    stream_write() : full_(support::fill(ends_.first)) {}
    outcome wait(const limit& l, bool) override {
        const outcome o = call(
            l, [&] { return ends_.first.write_all("x", 1) == 1; },
            [&](const auto& ctx) { return ends_.first.write_all("x", 1, ctx) == 1; }, nullptr);
        if (o == outcome::got) ++written_;
        return o;
    }
    void serve() override { read(full_); }
    void close() override { ends_.first.close(); }
    std::string rest(int) override {
        if (came_ == 0) read(full_);
        ends_.first.close();
        std::array<char, 64> rest;
        while (const std::size_t n = ends_.second.read_some(rest)) came_ += n;
        return came_ == full_ + static_cast<std::size_t>(written_)
            ? ""
            : "other bytes than were written: " + std::to_string(came_);
    }

private:
    void read(std::size_t n) {
        std::string all(n, '\0');
        came_ += ends_.second.read_exactly(all);
    }
    std::pair<dunlin::net::stream, dunlin::net::stream> ends_ = dunlin::net::stream_pair();
    std::size_t full_;
    std::size_t came_ = 0;
    std::atomic<int> written_{0};
};

class accepting : public subject {
public:
    outcome wait(const limit& l, bool) override {
        return call(
            l, [&] { return l_.accept().is_open(); }, [&](const auto& ctx) { return l_.accept(ctx).is_open(); },
            nullptr);
    }
    void serve() override { dialled_.push_back(dunlin::net::dial("unix", l_.local_address())); }
    void close() override { l_.close(); }
    std::string rest(int) override {
        std::error_code ec;
        const auto nobody = dunlin::with_cancel({});
        nobody.cancel();
        return l_.accept(nobody, ec).is_open() ? "a connection is left" : "";
    }

private:
    dunlin::net::listener l_ = dunlin::net::listen("unix", support::abstract_name());
    std::vector<dunlin::net::stream> dialled_;
};

class packet_read : public subject {
public:
    outcome wait(const limit& l, bool) override {
        char byte = 0;
        const outcome o = call(
            l, [&] { return in_.read_some(&byte, 1) == 1; },
            [&](const auto& ctx) { return in_.read_some(&byte, 1, ctx) == 1; }, nullptr);
        if (o == outcome::got) sum_ += byte;
        return o;
    }
    void serve() override {
        const char byte = static_cast<char>(++written_);
        out_.write_to(&byte, 1, in_.local_address());
    }
    void close() override { in_.close(); }
    std::string rest(int served) override {
        return sum_ == served * (served + 1) / 2 ? "" : "messages whose sum is " + std::to_string(sum_);
    }

private:
    dunlin::net::packet_conn in_ = dunlin::net::listen_packet("unixgram", support::abstract_name());
    dunlin::net::packet_conn out_ = dunlin::net::listen_packet("unixgram", support::abstract_name());
    int written_ = 0;
    std::atomic<int> sum_{0};
};

// Readiness is for all that look.
class select_readable : public subject {
public:
    outcome wait(const limit& l, bool) override {
        outcome o = outcome::wrong;
        const auto ready = [&] { o = p_.read_end.is_open() ? outcome::got : outcome::closed; };
        const auto late = [&] { o = outcome::timed_out; };
        if (l.how == limit::none) {
            dunlin::select(dunlin::on_readable(p_.read_end, ready));
        } else if (l.how == limit::time) {
            dunlin::select(dunlin::on_readable(p_.read_end, ready), dunlin::on_timeout(l.d, late));
        } else {
            const auto over = [&] { o = detail::end_of(l.ctx.err()); };
            dunlin::select(dunlin::on_done(l.ctx, over), dunlin::on_readable(p_.read_end, ready));
        }
        return o;
    }
    void serve() override { p_.write_end.write_all("x"); }
    void close() override { p_.read_end.close(); }
    std::string rest(int) override {
        char byte = 0;
        return p_.read_end.read_some(&byte, 1) == 1 && byte == 'x' ? "" : "another byte";
    }

private:
    dunlin::fs::pipe p_;
};

class process_wait : public subject {
public:
    process_wait() : p_({"cat"}, {.input = dunlin::process_stream::pipe}) {}
    outcome wait(const limit& l, bool) override {
        return call(
            l, [&] { return p_.wait().success(); }, [&](const auto& ctx) { return p_.wait(ctx).success(); }, nullptr);
    }
    void serve() override { p_.standard_input().close(); }
    std::string rest(int) override { return p_.wait().success() ? "" : "another status"; }

private:
    dunlin::process p_;
};

}  // namespace abandon
