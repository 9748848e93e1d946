// Those who wait for a TLS stream and give up: the others read, write, shake hands and end it as if they had not been
// there (vocabulary/abandon.h).
#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include <dunlin/net.hpp>
#include <dunlin/tls.hpp>

#include "support/runtime_test.h"
#include "tls/certificates.h"
#include "vocabulary/abandon_table.h"

namespace {

using namespace abandon;

// Both ends of a connection.
class tls_subject : public subject {
protected:
    void shake_hands() {
        auto served = dunlin::spawn([this] { out_.handshake(); });
        in_.handshake();
        served.get();
    }
    static const std::pair<dunlin::tls::config, dunlin::tls::config>& config() {
        static const std::pair both(tls_test::client_config(), tls_test::server_config());
        return both;
    }
    // What has been left to be read from `s`, up to its end.
    static std::size_t size_of_rest(dunlin::tls::stream& s) {
        std::size_t all = 0;
        char some[64];
        while (const std::size_t n = s.read_some(some, sizeof some)) all += n;
        return all;
    }

    std::pair<dunlin::net::stream, dunlin::net::stream> ends_ = dunlin::net::stream_pair();
    dunlin::tls::stream in_ = dunlin::tls::client(std::move(ends_.first), "localhost", config().first);
    dunlin::tls::stream out_ = dunlin::tls::server(std::move(ends_.second), config().second);
};

class tls_read : public tls_subject {
public:
    tls_read() { shake_hands(); }
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
        out_.write_all(&byte, 1);
    }
    void close() override { in_.close(); }
    std::string rest(int served) override {
        return sum_ == served * (served + 1) / 2 ? "" : "bytes whose sum is " + std::to_string(sum_);
    }

private:
    int written_ = 0;
    std::atomic<int> sum_{0};
};

// The one that is at work is none of the waiters: to end it midway leaves the stream unusable, for good reason. They
// wait for their turn.
class tls_turn : public tls_subject {
public:
    ~tls_turn() override {
        in_.close();
        at_work_ = nullptr;
    }
    void close() override { in_.close(); }

protected:
    template <class F>
    void begin(F f) {
        at_work_ = std::make_unique<actor>(kind::goroutine, [f] {
            try {
                f();
            } catch (const dunlin::io_error&) {  // closed
            }
        });
        until([this] { return at_work_->waits(); });
    }
    // More than the sockets hold.
    void begin_to_write() {
        shake_hands();
        begin([this] { in_.write_all(std::string(size, 'f')); });
    }
    void read_what_is_written() {
        std::string all(size, ' ');
        out_.read_exactly(all);
        at_work_->join();
    }

private:
    static constexpr std::size_t size = 1 << 19;
    std::unique_ptr<actor> at_work_;
};

class tls_write : public tls_turn {
public:
    tls_write() { begin_to_write(); }
    outcome wait(const limit& l, bool) override {
        const outcome o = call(
            l, [&] { return in_.write_all("x", 1) == 1; },
            [&](const auto& ctx) { return in_.write_all("x", 1, ctx) == 1; }, nullptr);
        if (o == outcome::got) ++written_;
        return o;
    }
    void serve() override { read_what_is_written(); }
    std::string rest(int served) override {
        in_.close_write();
        const std::size_t came = size_of_rest(out_);
        return came == static_cast<std::size_t>(served) && written_ == served
                   ? ""
                   : std::to_string(came) + " bytes of those that waited";
    }

private:
    std::atomic<int> written_{0};
};

class tls_close_write : public tls_turn {
public:
    tls_close_write() { begin_to_write(); }
    outcome wait(const limit& l, bool) override {
        return call(l, [&] { in_.close_write(); }, [](const auto&) { return outcome::wrong; }, nullptr);
    }
    void serve() override { read_what_is_written(); }
    std::string rest(int) override { return size_of_rest(out_) == 0 ? "" : "more than was written"; }
};

class tls_handshake : public tls_turn {
public:
    tls_handshake() {
        begin([this] { in_.handshake(); });
    }
    outcome wait(const limit& l, bool) override {
        return call(l, [&] { in_.handshake(); }, [&](const auto& ctx) { in_.handshake(ctx); }, nullptr);
    }
    void serve() override { out_.handshake(); }
    std::string rest(int) override {
        out_.write_all("x", 1);
        char byte = 0;
        return in_.read_some(&byte, 1) == 1 && byte == 'x' ? "" : "the connection carries nothing";
    }
};

const row table[] = {
    {"tls_read", make<tls_read>, {.closes = true}},
    {"tls_write", make<tls_write>, {.closes = true, .for_all = true}},
    {"tls_close_write", make<tls_close_write>, {.closes = true, .for_all = true, .quits = false}},
    {"tls_handshake", make<tls_handshake>, {.closes = true, .for_all = true}},
};

class TlsAbandonedWait : public each_row {};

TEST_P(TlsAbandonedWait, LosesNothing) { expect_nothing_lost(); }

INSTANTIATE_TEST_SUITE_P(
    Each, TlsAbandonedWait, testing::Combine(testing::ValuesIn(table), testing::Values(1u, 2u, 8u)), row_name);

}  // namespace
