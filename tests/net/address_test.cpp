// Addresses: read, written, compared, and found by name.
#include <array>
#include <sstream>
#include <string>
#include <sys/un.h>

#include "net/pairs.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;

namespace {

namespace net = dunlin::net;
using net::address;
using support::code_of;
using support::text_of;

const std::error_code bad_address = dunlin::errc::bad_address;
const std::error_code host_not_found = dunlin::errc::host_not_found;

class Address : public support::runtime_test {};

TEST_F(Address, ReadsAndWrites) {
    const struct {
        const char *network, *text, *host;
        int port;
        const char* printed;
    } table[] = {
        {"tcp", "127.0.0.1:80", "127.0.0.1", 80, "127.0.0.1:80"},
        {"tcp", "[::1]:80", "::1", 80, "[::1]:80"},
        {"tcp6", "[::1]:65535", "::1", 65535, "[::1]:65535"},
        {"tcp", "[2001:DB8:0:0::1]:0", "2001:db8::1", 0, "[2001:db8::1]:0"},
        {"udp", "[::ffff:1.2.3.4]:53", "::ffff:1.2.3.4", 53, "[::ffff:1.2.3.4]:53"},
        {"tcp", ":80", "::", 80, "[::]:80"},
        {"tcp4", ":80", "0.0.0.0", 80, "0.0.0.0:80"},
        {"udp4", "255.255.255.255:1", "255.255.255.255", 1, "255.255.255.255:1"},
        {"tcp", "1.2.3.4:", "1.2.3.4", 0, "1.2.3.4:0"},
        {"tcp", "[fe80::1%lo]:7", "fe80::1%lo", 7, "[fe80::1%lo]:7"},
        {"unix", "/tmp/socket", "/tmp/socket", 0, "/tmp/socket"},
        {"unix", "relative", "relative", 0, "relative"},
        {"unixgram", "@abstract", "@abstract", 0, "@abstract"},
    };
    for (const auto& row : table) {
        const address a = address::parse(row.network, row.text);
        EXPECT_EQ(a.host(), row.host) << row.text;
        EXPECT_EQ(a.port(), row.port) << row.text;
        EXPECT_EQ(a.to_string(), row.printed) << row.text;
        EXPECT_EQ(static_cast<std::string>(a), row.printed);
        std::ostringstream out;
        out << a;
        EXPECT_EQ(out.str(), row.printed);
        EXPECT_EQ(address::parse(row.network, row.printed), a) << row.text;
        EXPECT_EQ(address::from_native(a.native(), a.native_size()), a) << row.text;
        EXPECT_EQ(a.is_ipv4() + a.is_ipv6() + a.is_unix(), 1) << row.text;
    }
}

TEST_F(Address, RefusesWhatIsNone) {
    const struct {
        const char *network, *text;
    } table[] = {
        {"tcp", ""},
        {"tcp", "127.0.0.1"},
        {"tcp", "localhost:80"},
        {"tcp", "1.2.3:80"},
        {"tcp", "1.2.3.4:65536"},
        {"tcp", "1.2.3.4:-1"},
        {"tcp", "1.2.3.4:+1"},
        {"tcp", "1.2.3.4:80x"},
        {"tcp", "1.2.3.4: 80"},
        {"tcp", "::1:80"},
        {"tcp", "[::1:80"},
        {"tcp", "[::1]80"},
        {"tcp4", "[::1]:80"},
        {"tcp6", "1.2.3.4:80"},
        {"tcp", "[1::2::3]:80"},
        {"unix", ""},
        {"foo", "1.2.3.4:80"},
        {"", "1.2.3.4:80"},
    };
    for (const auto& row : table) {
        EXPECT_EQ(code_of([&] { address::parse(row.network, row.text); }), bad_address)
            << row.network << ' ' << row.text;
    }
    const std::string limit(sizeof(sockaddr_un::sun_path) - 1, 'x');
    EXPECT_EQ(address::parse("unix", limit).to_string(), limit);
    EXPECT_EQ(code_of([&] { address::parse("unix", limit + 'x'); }), bad_address);
    EXPECT_EQ(address::parse("unix", '@' + limit).to_string(), '@' + limit);
    EXPECT_EQ(code_of([&] { address::parse("unix", '@' + limit + 'x'); }), bad_address);
    EXPECT_EQ(code_of([&] { address::parse("unix", std::string("a\0b", 3)); }), bad_address);
    const std::string abstract("@a\0b\0", 5);  // a zero byte means nothing there
    EXPECT_EQ(address::parse("unix", abstract).to_string(), abstract);
    EXPECT_EQ(code_of([&] { address::parse("tcp", std::string("1.2.3.4\0x:80", 12)); }), bad_address);
    const std::string text = text_of([] { address::parse("tcp", "1.2.3:80"); });
    EXPECT_EQ(text.rfind("parse tcp 1.2.3:80: ", 0), 0u) << text;
}

TEST_F(Address, AZoneThatIsNoInterfaceIsAnError) {
    const std::error_code no_device = std::make_error_code(std::errc::no_such_device);
    for (const char* text : {"[fe80::1%nosuch0]:7", "[fe80::1%]:7", "[fe80::1%0]:7", "[fe80::1%4294967296]:7",
             "[fe80::1%999999]:7", "[fe80::1%1x]:7"}) {
        EXPECT_EQ(code_of([&] { address::parse("tcp", text); }), no_device) << text;
        std::error_code ec;
        EXPECT_TRUE(net::resolve(text, ec).empty());
        EXPECT_EQ(ec, no_device) << text;
        net::dial("tcp", text, ec);
        EXPECT_EQ(ec, no_device) << text;
    }
    EXPECT_EQ(address::parse("tcp", "[fe80::1%1]:7").to_string(), "[fe80::1%lo]:7");
    EXPECT_EQ(text_of([] { address::parse("tcp", "[fe80::1%nosuch0]:7"); }),
        "parse tcp [fe80::1%nosuch0]:7: no such device: the zone after '%' is no interface of this machine");
}

TEST_F(Address, AnIPv6AddressNeedsNoBracketsWhereItCannotBeMistaken) {
    const struct {
        const char *text, *found;
    } table[] = {{"::1", "[::1]:0"}, {"::", "[::1]:0"}, {"2001:db8::1", "[2001:db8::1]:0"},
        {"fe80::1%lo", "[fe80::1%lo]:0"}, {"fe80::dead", "[fe80::dead]:0"}, {"1:2:3:4:5:6:7:8", "[1:2:3:4:5:6:7:8]:0"},
        {"[::1]", "[::1]:0"}};
    for (const auto& row : table) {
        std::error_code ec;
        const auto found = net::resolve("tcp6", row.text, ec);
        ASSERT_EQ(found.size(), 1u) << row.text << ' ' << ec.message();
        EXPECT_EQ(found[0].to_string(), row.found);
    }
    for (const char* text : {"::1:80", "fe80::1:80", "2001:db8::1:2", "1:2:3:4:5:6:7:8:9", "a:b:c"}) {
        EXPECT_EQ(code_of([&] { net::resolve(text); }), bad_address) << text;
    }
    EXPECT_EQ(code_of([] { net::resolve("fe80::1%nosuch0"); }), std::make_error_code(std::errc::no_such_device));
    EXPECT_EQ(code_of([] { net::resolve("tcp4", "::1"); }), host_not_found);
}

TEST_F(Address, IsAValue) {
    address none, a = address::parse("tcp", "127.0.0.1:80"), b = a;
    EXPECT_EQ(none.to_string(), "");
    EXPECT_EQ(none, address());
    EXPECT_EQ(none.port(), 0);
    EXPECT_FALSE(none.is_ipv4() || none.is_ipv6() || none.is_unix() || none.is_loopback());
    EXPECT_EQ(a, b);
    EXPECT_NE(a, none);
    EXPECT_NE(a, address::parse("tcp", "127.0.0.1:81"));
    EXPECT_NE(a, address::parse("tcp", "127.0.0.2:80"));
    b = none;
    EXPECT_EQ(b, none);
    EXPECT_TRUE(a.is_loopback());
    EXPECT_TRUE(address::parse("tcp", "127.9.9.9:1").is_loopback());
    EXPECT_TRUE(address::parse("tcp", "[::1]:1").is_loopback());
    EXPECT_FALSE(address::parse("tcp", "128.0.0.1:1").is_loopback());
    EXPECT_FALSE(address::parse("tcp", "[::2]:1").is_loopback());
    EXPECT_FALSE(address::parse("unix", "/x").is_loopback());
    EXPECT_EQ(address::from_native(nullptr, 0), none);
}

TEST_F(Address, AnErrorSaysWhatIsWrongWithIt) {
    const struct {
        const char *network, *text, *says;
    } table[] = {{"tcp", "localhost", "missing port"}, {"tcp", "[::1]", "missing port"},
        {"tcp", "::1:80", "too many colons: an IPv6 address stands in brackets"}, {"tcp", "[::1:80", "missing ']'"},
        {"tcp", "http://x:80", "too many colons"}, {"tcp", "127.0.0.1:99999", "the port \"99999\" is neither"},
        {"tcp", "127.0.0.1:80 ", "the port \"80 \" is neither"}, {"tpc", "127.0.0.1:80", "there is no such network: tcp, "},
        {"udp", "127.0.0.1:80", "this network is for datagrams: dial_packet()"}, {"unix", "", "a path is wanted"}};
    for (const auto& row : table) {
        EXPECT_NE(text_of([&] { net::dial(row.network, row.text); }).find(row.says), std::string::npos) << row.text;
        EXPECT_NE(text_of([&] { net::listen(row.network, row.text); }).find(row.says), std::string::npos) << row.text;
    }
    EXPECT_NE(text_of([] { net::listen_packet("tcp", ":0"); }).find("this network is for streams"), std::string::npos);
    EXPECT_NE(text_of([] { net::dial_packet("udp", "x"); }).find("missing port"), std::string::npos);
    EXPECT_NE(text_of([] { net::resolve("tpc", "x"); }).find("there is no such network"), std::string::npos);
    EXPECT_NE(text_of([] { net::resolve("tcp", ""); }).find("a host is wanted"), std::string::npos);
    EXPECT_NE(text_of([] { net::resolve("tcp", "a:b:80"); }).find("too many colons"), std::string::npos);
    EXPECT_NE(text_of([] { address::parse("tcp", "[::1]"); }).find("missing port"), std::string::npos);
    const std::string zero = text_of([] { net::dial("tcp", std::string_view("a\0:80", 5)); });
    EXPECT_EQ(zero, "dial tcp a\\0:80: bad address: it contains a zero byte");
}

TEST_F(Address, HostAndPortAreSplitAndJoined) {
    const struct {
        const char *text, *host, *port;
    } table[] = {{"a:1", "a", "1"}, {":1", "", "1"}, {"a:", "a", ""}, {"[::1]:80", "::1", "80"}, {"[]:1", "", "1"},
        {"[a%b]:http", "a%b", "http"}};
    for (const auto& row : table) {
        const auto [host, port] = net::split_host_port(row.text);
        EXPECT_EQ(host, row.host) << row.text;
        EXPECT_EQ(port, row.port) << row.text;
    }
    for (const char* text : {"", "a", "a:b:c", "::1", "[::1", "[::1]", "[::1]1", "[::1]:a:b"})
        EXPECT_EQ(code_of([&] { net::split_host_port(text); }), bad_address) << text;
    EXPECT_EQ(net::join_host_port("a", "1"), "a:1");
    EXPECT_EQ(net::join_host_port("::1", "1"), "[::1]:1");
    EXPECT_EQ(net::join_host_port("", ""), ":");
}

// ---- names ----------------------------------------------------------------------------------------------------------

class Resolve : public support::each_p {};
EACH_P(Resolve);

TEST_P(Resolve, FindsThisMachine) {
    run([] {
        const auto found = net::resolve("localhost:80");
        ASSERT_FALSE(found.empty());
        for (const address& a : found) {
            EXPECT_TRUE(a.is_loopback()) << a;
            EXPECT_EQ(a.port(), 80);
        }
        EXPECT_EQ(net::resolve("localhost").at(0).port(), 0);
        EXPECT_EQ(net::resolve("127.0.0.1:7").at(0).to_string(), "127.0.0.1:7");
        EXPECT_EQ(net::resolve("[::1]:7").at(0).to_string(), "[::1]:7");
        EXPECT_EQ(net::resolve("unix", "/tmp/x").at(0).to_string(), "/tmp/x");
        for (const address& a : net::resolve("tcp4", "localhost:1")) EXPECT_TRUE(a.is_ipv4());
        EXPECT_EQ(net::resolve("localhost:1", dunlin::context::background()).at(0).port(), 1);
        dunlin::wait_group wg;
        for (int i = 0; i < 100; ++i) wg.go([] { EXPECT_FALSE(net::resolve("localhost:1").empty()); });
        wg.wait();
    });
}

TEST_P(Resolve, TellsWhatItCannotFind) {
    run([] {
        std::error_code ec;
        EXPECT_TRUE(net::resolve("::1:80", ec).empty());
        EXPECT_EQ(ec, bad_address);
        // No server need be asked: a label of a name has at most 63 letters.
        const std::string no_name = std::string(70, 'x') + ".invalid:80";
        net::resolve(no_name, ec);
        EXPECT_TRUE(ec == host_not_found || ec == std::errc::resource_unavailable_try_again) << ec.message();
        const std::string text = text_of([&] { net::resolve(no_name); });
        EXPECT_EQ(text.rfind("resolve " + no_name + ": ", 0), 0u) << text;
        EXPECT_EQ(code_of([] { net::resolve("foo", "localhost:1"); }), bad_address);
        for (const char* number : {"127.1:80", "0177.0.0.1:80", "0x7f000001:80", "2130706433:80", "a.0x:80", "1.2.3.4.:80"}) {
            EXPECT_TRUE(net::resolve(number, ec).empty()) << number;
            EXPECT_EQ(ec, host_not_found) << number;
        }
        auto ctx = dunlin::with_cancel(dunlin::context::background());
        ctx.cancel();
        EXPECT_EQ(code_of([&] { net::resolve("a.name.invalid:1", ctx); }), std::error_code(dunlin::errc::cancelled));
        EXPECT_FALSE(net::resolve("localhost:1", ctx).empty()) << "a context ends waits only";
    });
    EXPECT_FALSE(net::resolve("localhost:1").empty()) << "from a plain thread";
}

}  // namespace
