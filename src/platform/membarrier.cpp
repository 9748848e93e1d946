#include "platform/membarrier.h"

#include <dunlin/detail/atomic.hpp>

#include "platform/check.h"
#include "platform/environment.h"
#include "platform/syscall.h"

namespace dunlin::inline v0_1::platform {

namespace {

// From linux/membarrier.h, which the oldest supported headers lack.
constexpr int private_expedited = 1 << 3;
constexpr int register_private_expedited = 1 << 4;

}  // namespace

constinit bool asymmetric_barriers = false;

void init_barriers(bool allow) noexcept {
    asymmetric_barriers = allow && raw_syscall(SYS_membarrier, register_private_expedited) == 0;
}

// 101: before all constructors that have no priority.
[[gnu::constructor(101)]] static void init_barriers_at_load() noexcept {
    init_barriers(environment_text("DUNLIN_BARRIERS") != "symmetric");
}

// The runtime has started: no other kind of barrier may be chosen any more. Relaxed: machines and their takers, which
// rely on one kind for all, begin after it, and see what the thread that started them has stored.
static atomic<bool> chosen{false};

void choose_barriers() noexcept {
    if (asymmetric_barriers && raw_syscall(SYS_membarrier, private_expedited) != 0) asymmetric_barriers = false;
    chosen.store(true, std::memory_order_relaxed);
}

void make_heavy_barrier() noexcept {
    if (asymmetric_barriers && raw_syscall(SYS_membarrier, private_expedited) != 0) {
        if (!chosen.load(std::memory_order_relaxed)) {
            asymmetric_barriers = false;
            return __sync_synchronize();
        }
        fatal("the kernel refuses membarrier, which it allowed when the runtime started: a seccomp filter was "
              "installed since then. Install it before the runtime starts, or allow membarrier in it, or start the "
              "program with DUNLIN_BARRIERS=symmetric");
    }
    __sync_synchronize();
}

}  // namespace dunlin::platform
