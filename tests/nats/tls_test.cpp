// TLS to the servers: verified, or an error that says so.
#include <filesystem>

#include "nats/servers.h"

namespace {

using namespace std::chrono_literals;
namespace nats = dunlin::nats;
using support::code_of;
using support::nats_servers;

class nats_tls : public support::nats_test {
protected:
    void SetUp() override {
        nats_test::SetUp();
        if (IsSkipped()) return;
        char name[] = "/tmp/dunlin-nats-tls-XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        folder_ = name;
        if (!make("authority", "/CN=dunlin test authority") || !make("other", "/CN=another authority")) {
            GTEST_SKIP() << "openssl, which makes the certificates, is not installed";
        }
    }
    void TearDown() override {
        std::error_code ec;
        std::filesystem::remove_all(folder_, ec);
        nats_test::TearDown();
    }
    // A certificate that signs itself: an authority and a server at the same time.
    bool make(const std::string& name, const std::string& subject) const {
        const std::string command =
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj '" + subject +
            "' -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout " + file(name + ".key") + " -out " +
            file(name + ".pem") + " 2>/dev/null";
        return std::system(command.c_str()) == 0;
    }
    std::string file(const std::string& name) const { return (folder_ / name).string(); }
    std::string server_settings() const {
        return "tls { cert_file: \"" + file("authority.pem") + "\", key_file: \"" + file("authority.key") + "\" }\n";
    }

    std::filesystem::path folder_;
};

TEST_F(nats_tls, JobsAndRequestsOverAVerifiedConnectionAlsoAfterTheServerWasKilled) {
    nats_servers servers(1, server_settings());
    dunlin::run([&] {
        auto cluster =
            nats::connect(servers.urls(), {.tls = true, .authorities = file("authority.pem"), .confirm = 30s});
        auto jobs = cluster.queue<std::string>("jobs", {.ack_wait = 2s});
        auto server = nats::serve(
            cluster, "echo", [](const nats::message& m, const dunlin::context&) { return std::string(m.data()); });
        auto consumer = jobs.consume();
        for (int i = 0; i < 2; ++i) {
            dunlin::wait_group all;
            for (int w = 0; w < 4; ++w) {
                all.go([&] {
                    for (int n = 0; n < 25; ++n) jobs.send("x");
                });
            }
            for (int n = 0; n < 100; ++n) consumer.recv()->done();
            all.wait();
            EXPECT_EQ(cluster.request("echo", "hello").data(), "hello");
            if (i == 1) break;
            servers[0].kill();
            servers[0].start();
        }
        server.close();
        cluster.close();
    });
}

TEST_F(nats_tls, ACertificateThatDoesNotVerifyIsSaid) {
    nats_servers servers(1, server_settings());
    dunlin::run([&] {
        EXPECT_EQ(code_of([&] { nats::connect(servers.urls(), {.tls = true, .authorities = file("other.pem")}); }),
            nats::errc::tls);
        EXPECT_EQ(code_of([&] { nats::connect(servers.urls(), {.tls = true}); }), nats::errc::tls);
    });
}

}  // namespace
