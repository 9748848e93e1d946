// A stranger's first program with TLS: there is no server, and that is what it must be told.
#include <dunlin/dunlin.hpp>
#include <dunlin/tls.hpp>

int main() {
    return dunlin::run([] {
        std::error_code ec;
        const auto stream = dunlin::tls::dial("tcp", "127.0.0.1:1", dunlin::tls::config::client(), ec);
        return ec == std::errc::connection_refused && !stream ? 0 : 1;
    });
}
