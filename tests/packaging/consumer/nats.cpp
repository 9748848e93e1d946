// A stranger's first program with NATS: there is no server, and that is what it must be told.
#include <cstdio>

#include <dunlin/dunlin.hpp>
#include <dunlin/nats.hpp>

int main() {
    return dunlin::run([] {
        try {
            dunlin::nats::connect("nats://127.0.0.1:1");
            return 1;
        } catch (const dunlin::nats::error& e) {
            std::puts(e.what());
            return e.code() == dunlin::nats::errc::no_server ? 0 : 1;
        }
    });
}
