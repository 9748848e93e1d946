// What may not throw does not allocate.
#include <cstdlib>
#include <new>

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

}  // namespace
