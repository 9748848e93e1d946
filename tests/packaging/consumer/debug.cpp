// A stranger's first page: it is there, and an address for everybody is refused.
#include <dunlin/debug.hpp>
#include <dunlin/dunlin.hpp>

int main() {
    return dunlin::run([] {
        std::error_code ec;
        const auto nothing = dunlin::debug::serve(":0", ec);
        const auto page = dunlin::debug::serve("127.0.0.1:0");
        return ec == std::errc::permission_denied && !nothing && page.local_address().port() != 0 ? 0 : 1;
    });
}
