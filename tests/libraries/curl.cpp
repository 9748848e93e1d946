// curl.cpp - libcurl's easy interface, which waits in poll(), against a server of goroutines.
#include <curl/curl.h>

#include "libraries/library.h"

namespace {

void serve(dunlin::net::stream s) {
    std::error_code ec;
    std::string request;
    char buffer[4096];
    for (;;) {
        const std::size_t end = request.find("\r\n\r\n");
        if (end == std::string::npos) {
            const std::size_t n = s.read_some(buffer, ec);
            if (ec || n == 0) return;
            request.append(buffer, n);
            continue;
        }
        // "GET /<number> HTTP/1.1": so many bytes.
        const std::string body(static_cast<std::size_t>(std::atoi(request.c_str() + 5)), 'x');
        const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
            body;
        request.erase(0, end + 4);
        dunlin::sleep_for(std::chrono::milliseconds(1));
        s.write_all(answer.data(), answer.size(), ec);
        if (ec) return;
    }
}

std::size_t take(char* data, std::size_t size, std::size_t count, void* out) {
    static_cast<std::string*>(out)->append(data, size * count);
    return size * count;
}

}  // namespace

int main() {
    libraries::program p(curl_version());
    curl_global_init(CURL_GLOBAL_DEFAULT);
    for (const unsigned processors : {1u, 2u, 8u}) {
        dunlin::run({.max_procs = processors}, [&] {
            dunlin::net::listener listener = dunlin::net::listen("tcp", "127.0.0.1:0");
            const std::string base = "http://" + listener.local_address().to_string() + "/";
            dunlin::wait_group clients, server, hogs;
            std::atomic<bool> stop{false};
            server.go([&] {
                std::error_code ec;
                for (;;) {
                    dunlin::net::stream s = listener.accept(ec);
                    if (ec) return;
                    dunlin::go([s = std::move(s)]() mutable { serve(std::move(s)); });
                }
            });
            for (unsigned i = 0; i < processors; ++i) hogs.go([&] { libraries::hog(stop); });
            for (int i = 0; i < 200; ++i) {
                clients.go([&, i] {
                    CURL* c = curl_easy_init();
                    for (int round = 0; round < 5; ++round) {
                        const std::size_t length = static_cast<std::size_t>(i * 331 % 20'000);
                        std::string body;
                        curl_easy_setopt(c, CURLOPT_URL, (base + std::to_string(length)).c_str());
                        curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
                        curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
                        curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take);
                        curl_easy_setopt(c, CURLOPT_WRITEDATA, &body);
                        const CURLcode code = curl_easy_perform(c);
                        libraries::expect(code == CURLE_OK && body == std::string(length, 'x'), "%s, %zu bytes of %zu",
                            curl_easy_strerror(code), body.size(), length);
                    }
                    curl_easy_cleanup(c);
                });
            }
            clients.wait();
            stop = true;
            hogs.wait();
            listener.close();
            server.wait();
        });
        std::printf("  P = %u: 200 clients, 5 calls each\n", processors);
    }
    return p.result();
}
