// A reader of a TLS stream that gives up: the others read what comes, in whatever order they stand (vocabulary/abandon.h).
#include <atomic>
#include <string>

#include <dunlin/net.hpp>
#include <dunlin/tls.hpp>

#include "support/runtime_test.h"
#include "tls/certificates.h"
#include "vocabulary/abandon_table.h"

namespace {

using namespace abandon;

class tls_read : public subject {
public:
    tls_read() {
        auto served = dunlin::spawn([this] { out_.handshake(); });
        in_.handshake();
        served.get();
    }
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
    std::pair<dunlin::net::stream, dunlin::net::stream> ends_ = dunlin::net::stream_pair();
    dunlin::tls::stream in_ = dunlin::tls::client(std::move(ends_.first), "localhost", config().first);
    dunlin::tls::stream out_ = dunlin::tls::server(std::move(ends_.second), config().second);
    int written_ = 0;
    std::atomic<int> sum_{0};

    static const std::pair<dunlin::tls::config, dunlin::tls::config>& config() {
        static const std::pair both(tls_test::client_config(), tls_test::server_config());
        return both;
    }
};

const row table[] = {{"tls_read", make<tls_read>, {.closes = true}}};

class TlsAbandonedWait : public each_row {};

TEST_P(TlsAbandonedWait, LosesNothing) { expect_nothing_lost(); }

INSTANTIATE_TEST_SUITE_P(Each, TlsAbandonedWait, testing::Combine(testing::ValuesIn(table), testing::Values(1u, 2u, 8u)), row_name);

}  // namespace
