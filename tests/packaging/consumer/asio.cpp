// A stranger's first program with Asio's calls.
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <dunlin/asio.hpp>
#include <dunlin/dunlin.hpp>
#include <dunlin/net.hpp>

int main() {
    return dunlin::run([] {
        auto [a, b] = dunlin::net::stream_pair();
        dunlin::asio_stream out(a), in(b);
        char heard[5];
        boost::asio::write(out, boost::asio::buffer("hello", 5));
        return boost::asio::read(in, boost::asio::buffer(heard)) == sizeof heard ? 0 : 1;
    });
}
