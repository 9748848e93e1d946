// peer_test.cpp - against OpenSSL's own program, where it is installed.
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <unistd.h>

#include <dunlin/tls.hpp>

#include "support/runtime_test.h"
#include "tls/certificates.h"

namespace {

using namespace std::chrono_literals;
using tls_test::localhost;
using tls_test::the_authority;

namespace tls = dunlin::tls;

// A folder with ca.pem, cert.pem and key.pem, for as long as the test runs.
class TlsPeer : public support::each_p {
protected:
    void SetUp() override {
        support::each_p::SetUp();
        if (std::system("openssl version >/dev/null 2>&1") != 0) GTEST_SKIP() << "the program openssl is not installed";
        ASSERT_NE(mkdtemp(folder_), nullptr);
        std::ofstream(path("ca.pem")) << the_authority().ca.certificate;
        std::ofstream(path("cert.pem")) << localhost().certificate;
        std::ofstream(path("key.pem")) << localhost().key;
    }
    void TearDown() override {
        for (const char* name : {"ca.pem", "cert.pem", "key.pem"}) std::remove(path(name).c_str());
        rmdir(folder_);
        support::each_p::TearDown();
    }

    std::string path(const char* name) const { return std::string(folder_) + '/' + name; }

private:
    char folder_[32] = "/tmp/dunlin-tls-XXXXXX";
};
EACH_P(TlsPeer);

// Reading from the program blocks a thread, whose processor goes to the others.
std::string output_of(const std::string& command, int& status) {
    FILE* program = popen(command.c_str(), "r");
    std::string text;
    char part[1000];
    while (std::fgets(part, sizeof part, program) != nullptr) text += part;
    status = pclose(program);
    return text;
}

TEST_P(TlsPeer, AClientOfOpensslTalksToOurServer) {
    run([&] {
        auto l = tls::listen("tcp", "127.0.0.1:0", tls::config::server(path("cert.pem"), path("key.pem")));
        for (const char* version : {"-tls1_2", "-tls1_3"}) {
            auto served = dunlin::spawn([&] {
                auto s = l.accept();
                char data[100];
                const std::string said(data, s.read_some(data));
                s.write_all("you said " + said);
                s.close();
            });
            int status = -1;
            const std::string flags =
                "-quiet -verify_return_error -verify_hostname localhost -servername localhost -CAfile " +
                path("ca.pem") + ' ' + version;
            const std::string heard = output_of(
                "echo hello | openssl s_client " + flags + " -connect " + l.local_address().to_string() + " 2>&1",
                status);
            served.get();
            EXPECT_EQ(status, 0) << heard;
            EXPECT_NE(heard.find("you said hello\n"), std::string::npos) << heard;
        }
    });
}

TEST_P(TlsPeer, OurClientTalksToAServerOfOpenssl) {
    run([&] {
        const std::string files = "-cert " + path("cert.pem") + " -key " + path("key.pem");
        FILE* server =
            popen(("openssl s_server -accept 127.0.0.1:0 -naccept 1 -rev " + files + " 2>&1 </dev/null").c_str(), "r");
        char line[200];
        std::string address;
        while (address.empty() && std::fgets(line, sizeof line, server) != nullptr) {
            if (std::string_view(line).starts_with("ACCEPT "))
                address = std::string(line + 7, std::string_view(line + 7).find_first_of("\r\n"));
        }
        ASSERT_NE(address, "");
        auto c = tls::config::client();
        c.trust(path("ca.pem"));
        auto s = tls::dial("tcp", address, c, 20s);
        s.write_all("desserts\n");
        char back[9];
        s.read_exactly(back);
        EXPECT_EQ(std::string(back, 9), "stressed\n");
        s.close();
        while (std::fgets(line, sizeof line, server) != nullptr) {
        }
        pclose(server);
    });
}

}  // namespace
