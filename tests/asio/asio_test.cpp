// asio_test.cpp - dunlin's streams in the hands of libraries that were written for Asio.
#include <array>
#include <vector>

#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/core/buffered_read_stream.hpp>
#include <boost/beast/http.hpp>

#include <dunlin/asio.hpp>
#include <dunlin/net.hpp>

#include "support/runtime_test.h"

namespace {

using namespace std::chrono_literals;

namespace asio = boost::asio;
namespace http = boost::beast::http;
namespace net = dunlin::net;

using owning = dunlin::asio_stream<net::stream>;
using referring = dunlin::asio_stream<net::stream&>;
using boost::beast::is_sync_stream;
static_assert(is_sync_stream<owning>::value && is_sync_stream<referring>::value &&
              is_sync_stream<dunlin::asio_stream<dunlin::byte_stream&>>::value);
static_assert(std::is_same_v<decltype(dunlin::asio_stream(std::declval<net::stream>())), owning>);
static_assert(std::is_same_v<decltype(dunlin::asio_stream(std::declval<net::stream&>())), referring>);

class AsioStream : public support::each_p {};
EACH_P(AsioStream);

TEST_P(AsioStream, ReadsAndWritesOfAsioWork) {
    run([] {
        auto [a, b] = net::stream_pair();
        auto served = dunlin::spawn([&b = b] {
            referring s(b);
            std::string line;
            asio::read_until(s, asio::dynamic_buffer(line), '\n');
            EXPECT_EQ(line, "head body\n");
            const std::string big(1'000'000, 'x');
            EXPECT_EQ(asio::write(s, asio::buffer(big)), big.size());
            b.close_write();
        });
        dunlin::asio_stream s(std::move(a));
        EXPECT_EQ(
            asio::write(s, std::array{asio::buffer("head ", 5), asio::buffer("", 0), asio::buffer("body\n", 5)}), 10u);
        std::vector<char> all;
        boost::system::error_code ec;
        EXPECT_EQ(asio::read(s, asio::dynamic_buffer(all), ec), 1'000'000u);
        EXPECT_EQ(ec, asio::error::eof);
        served.get();
    });
}

TEST_P(AsioStream, SeveralBuffersAreOneWrite) {
    run([] {
        auto [a, b] = net::stream_pair();
        dunlin::asio_stream s(a);
        std::vector<asio::const_buffer> many(100, asio::buffer("ab", 2));
        EXPECT_EQ(s.write_some(many), 128u) << "64 of them";
        char data[200];
        EXPECT_EQ(b.read_some(data), 128u);
        EXPECT_EQ(s.write_some(std::vector<asio::const_buffer>()), 0u);
        EXPECT_EQ(s.read_some(asio::buffer(data, 0)), 0u);
    });
}

TEST_P(AsioStream, ErrorsAreAsios) {
    run([] {
        auto [a, b] = net::stream_pair();
        dunlin::asio_stream s(a);
        char data[10];
        boost::system::error_code ec;
        a.set_read_deadline(1ms);
        EXPECT_EQ(s.read_some(asio::buffer(data), ec), 0u);
        EXPECT_EQ(ec, asio::error::timed_out);
        EXPECT_EQ(ec, boost::system::errc::timed_out);
        a.clear_deadline();

        b.close();
        EXPECT_EQ(s.read_some(asio::buffer(data), ec), 0u);
        EXPECT_EQ(ec, asio::error::eof);
        EXPECT_EQ(s.write_some(asio::buffer(data), ec), 0u);
        EXPECT_EQ(ec, asio::error::broken_pipe);
        try {
            s.write_some(asio::buffer(data));
            ADD_FAILURE();
        } catch (const boost::system::system_error& e) {
            EXPECT_EQ(e.code(), asio::error::broken_pipe);
        }

        s.close();
        EXPECT_FALSE(s.is_open());
        EXPECT_EQ(s.read_some(asio::buffer(data), ec), 0u);
        EXPECT_EQ(ec, asio::error::operation_aborted);
        EXPECT_THROW(s.read_some(asio::buffer(data)), boost::system::system_error);
    });
}

TEST_P(AsioStream, AReaderIsWokenByClose) {
    run([] {
        auto [a, b] = net::stream_pair();
        auto reader = dunlin::spawn([&a = a] {
            char data[1];
            boost::system::error_code ec;
            referring(a).read_some(asio::buffer(data), ec);
            return ec;
        });
        dunlin::sleep_for(5ms);
        a.close();
        EXPECT_EQ(reader.get(), asio::error::operation_aborted);
    });
}

// What walks down layers finds dunlin's stream; what wants to speak Asio stays above it.
static_assert(
    std::is_same_v<owning::next_layer_type, net::stream> && std::is_same_v<owning::lowest_layer_type, owning>);
static_assert(std::is_same_v<boost::beast::lowest_layer_type<owning>, net::stream>);
static_assert(std::is_same_v<
    boost::beast::lowest_layer_type<boost::beast::buffered_read_stream<referring, boost::beast::flat_buffer>>,
    net::stream>);

TEST_P(AsioStream, LayersAreWalked) {
    run([] {
        auto [a, b] = net::stream_pair();
        boost::beast::buffered_read_stream<referring, boost::beast::flat_buffer> s(a);
        EXPECT_EQ(&boost::beast::get_lowest_layer(s), &a);
        EXPECT_EQ(&s.next_layer().next_layer(), &a);
        EXPECT_EQ(&s.next_layer().lowest_layer(), &s.next_layer());
        boost::beast::get_lowest_layer(s).set_read_deadline(1ms);
        char data[1];
        boost::system::error_code ec;
        EXPECT_EQ(s.read_some(asio::buffer(data), ec), 0u);
        EXPECT_EQ(ec, asio::error::timed_out);
        boost::beast::close_socket(boost::beast::get_lowest_layer(s));
        EXPECT_FALSE(a.is_open());
    });
}

TEST_P(AsioStream, ShutsDownAndClosesLikeASocket) {
    run([] {
        auto [a, b] = net::stream_pair();
        dunlin::asio_stream s(a), t(b);
        boost::system::error_code ec = asio::error::eof;
        s.shutdown(asio::socket_base::shutdown_send, ec);
        EXPECT_FALSE(ec);
        char data[1];
        EXPECT_EQ(t.read_some(asio::buffer(data), ec), 0u);
        EXPECT_EQ(ec, asio::error::eof);
        EXPECT_EQ(t.write_some(asio::buffer("x", 1)), 1u);
        EXPECT_EQ(s.read_some(asio::buffer(data)), 1u) << "the other direction is open";
        s.shutdown(asio::socket_base::shutdown_receive);
        EXPECT_EQ(s.read_some(asio::buffer(data), ec), 0u);
        s.close(ec);
        EXPECT_FALSE(ec);
        s.shutdown(asio::socket_base::shutdown_both, ec);
        EXPECT_EQ(ec, asio::error::operation_aborted);
        EXPECT_THROW(s.shutdown(asio::socket_base::shutdown_both), boost::system::system_error);
    });
}

TEST(AsioErrors, CodesOfOtherCategoriesKeepTheirText) {
    const auto ec = dunlin::detail::to_asio(dunlin::errc::no_deadlines);
    EXPECT_EQ(ec.message(), std::error_code(dunlin::errc::no_deadlines).message());
    EXPECT_STREQ(ec.category().name(), "dunlin");
    EXPECT_EQ(ec, dunlin::detail::to_asio(dunlin::errc::no_deadlines)) << "one category, one object";
    EXPECT_NE(ec, dunlin::detail::to_asio(dunlin::errc::host_not_found));
    EXPECT_FALSE(dunlin::detail::to_asio({}));
    EXPECT_EQ(dunlin::detail::to_asio(dunlin::errc::deadline_exceeded), asio::error::timed_out);
    EXPECT_EQ(
        dunlin::detail::to_asio(std::make_error_code(std::errc::connection_reset)), asio::error::connection_reset);
}

TEST_P(AsioStream, BeastReadsAndWritesHttp) {
    run([] {
        auto [a, b] = net::stream_pair();
        auto served = dunlin::spawn([&b = b] {
            referring s(b);
            boost::beast::flat_buffer buffer;
            boost::system::error_code ec;
            for (;;) {
                http::request<http::string_body> request;
                http::read(s, buffer, request, ec);
                if (ec) break;
                http::response<http::string_body> response(http::status::ok, 11);
                response.body() = "you sent " + request.body();
                response.prepare_payload();
                http::write(s, response);
            }
            EXPECT_EQ(ec, http::error::end_of_stream);
        });
        owning s(std::move(a));
        boost::beast::flat_buffer buffer;
        for (int i = 0; i < support::rounds(100); ++i) {
            http::request<http::string_body> request(http::verb::post, "/", 11);
            request.body() = std::string(static_cast<std::size_t>(i) * 100, 'x');
            request.prepare_payload();
            http::write(s, request);
            http::response<http::string_body> response;
            http::read(s, buffer, response);
            EXPECT_EQ(response.body(), "you sent " + request.body());
        }
        s.close();
        served.get();
    });
}

}  // namespace
