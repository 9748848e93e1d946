// What may not throw does not allocate.
#include <cstdlib>
#include <fcntl.h>
#include <new>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

#include <dunlin/tls.hpp>

#include "support/failing_memory.h"

void* operator new(std::size_t size) { return support::allocate(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return support::allocate_or_null(size); }
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace {

TEST(TlsNoMemory, TheFirstCodeNeedsNone) {
    support::allocations_left.store(1);
    const std::error_code first = make_error_code(dunlin::tls::errc::flood);
    support::allocations_left.store(0);
    EXPECT_STREQ(first.category().name(), "dunlin.tls");
}

TEST(TlsNoMemory, AFileIsClosedWhereMemoryFailsForItsText) {
    const auto next_number = [] {
        const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
        ::close(fd);
        return fd;
    };
    auto c = dunlin::tls::config::client();
    const std::string file = "/proc/self/maps";  // longer than the place for a short text
    const int before = next_number();
    bool failed = true;
    for (long which = 1; failed && which < 100; ++which) {
        support::allocations_left.store(which);
        failed = false;
        try {
            c.trust(file);
        } catch (const std::bad_alloc&) {
            failed = true;
        } catch (const dunlin::io_error&) {
            // no certificate
        }
        support::allocations_left.store(0);
        EXPECT_EQ(next_number(), before) << which;
    }
}

TEST(TlsMemory, FailsWhenItIsTold) { EXPECT_TRUE(support::memory_fails()); }

}  // namespace
