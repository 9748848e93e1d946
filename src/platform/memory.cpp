#include "platform/memory.h"

#include <dunlin/detail/atomic.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include "platform/small_file.h"
#include "platform/syscall.h"
#include "platform/valgrind.h"

// Newer than the oldest headers this compiles with; the numbers are the same on every architecture.
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif

namespace dunlin::inline v0_1::platform {

// ---- address space

std::size_t page_size() noexcept { return getauxval(AT_PAGESZ); }

namespace {

constexpr std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) & ~(unit - 1); }

void unmap(std::byte* begin, std::size_t bytes) noexcept {
    if (bytes != 0) {
        munmap(begin, bytes);
    }
}

}  // namespace

// mmap and munmap go through libc, not through raw_syscall, because the sanitizers must see addresses come and go.
std::byte* reserve(std::size_t bytes, std::size_t alignment, int* error) noexcept {
    const int saved = errno;
    const std::size_t size = round_up(bytes, page_size());
    const std::size_t slack = alignment > page_size() ? alignment : 0;
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* mapped = MAP_FAILED;
    errno = ENOMEM;
    if (size >= bytes && size + slack >= size) {
        mapped = mmap(nullptr, size + slack, PROT_READ | PROT_WRITE, flags, -1, 0);
    }
    if (mapped == MAP_FAILED) {
        if (error != nullptr) {
            *error = errno;
        }
        errno = saved;
        return nullptr;
    }
    auto* const first = static_cast<std::byte*>(mapped);
    const std::size_t address = reinterpret_cast<std::uintptr_t>(first);
    const std::size_t before = slack == 0 ? 0 : round_up(address, alignment) - address;
    unmap(first, before);
    unmap(first + before + size, slack - before);
    errno = saved;
    return first + before;
}

void release(memory_range range) noexcept {
    const int saved = errno;
    unmap(range.begin, round_up(range.bytes, page_size()));
    errno = saved;
}

// ---- advice

namespace {

long advise(memory_range range, int advice) noexcept {
    return raw_syscall(SYS_madvise, syscall_arg(range.begin), static_cast<long>(range.bytes), advice);
}

// process_madvise takes many ranges in one call: half the time of single calls. For the calling process itself it
// accepts every advice since 6.13. Newer kernels know a descriptor number that means "myself"; before, one has to be
// opened. It is opened for each batch (1 us for 64 ranges), because a kept one would still mean the parent after a
// fork.
enum class batching : std::uint8_t { unknown, by_self, by_open, none };

constexpr long pidfd_self = -10000;

long advise_many(long process, std::span<const iovec> ranges, int advice) noexcept {
    const long count = static_cast<long>(ranges.size());
    return raw_syscall(SYS_process_madvise, process, syscall_arg(ranges.data()), count, advice, 0);
}

long advise_many_opened(std::span<const iovec> ranges, int advice) noexcept {
    const long process = raw_syscall(SYS_pidfd_open, raw_syscall(SYS_getpid), 0);
    if (process < 0) {
        return process;
    }
    const long result = advise_many(process, ranges, advice);
    raw_syscall(SYS_close, process);
    return result;
}

batching probe_batching() noexcept {
    if (under_valgrind()) {
        return batching::none;
    }
    std::byte* const page = reserve(page_size(), page_size());
    if (page == nullptr) {
        return batching::none;
    }
    const iovec range{page, page_size()};
    const bool self = advise_many(pidfd_self, {&range, 1}, MADV_DONTNEED) > 0;
    const bool opened = !self && advise_many_opened({&range, 1}, MADV_DONTNEED) > 0;
    release({page, page_size()});
    return self ? batching::by_self : opened ? batching::by_open : batching::none;
}

batching batching_here() noexcept {
    static platform::atomic<batching> known{batching::unknown};
    // Relaxed: the value depends on nothing else, and two threads that both probe find the same.
    batching here = known.load(std::memory_order_relaxed);
    if (here == batching::unknown) {
        here = probe_batching();
        known.store(here, std::memory_order_relaxed);
    }
    return here;
}

// 64 at a time are 5 % cheaper but take 1 KiB of stack: goroutines that come through here would touch a second page of
// their stacks.
constexpr std::size_t batch = 16;

// One call for up to `batch` ranges. Returns how many were done, from the first; 0 also when batching is impossible.
std::size_t advise_batch(std::span<const memory_range> ranges, int advice) noexcept {
    const batching how = batching_here();
    if (how == batching::none || ranges.size() < 2) {
        return 0;
    }
    std::array<iovec, batch> vector;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        vector[i] = {ranges[i].begin, ranges[i].bytes};
    }
    const std::span<const iovec> used(vector.data(), ranges.size());
    const bool self = how == batching::by_self;
    const long bytes = self ? advise_many(pidfd_self, used, advice) : advise_many_opened(used, advice);
    // The kernel stops at the first refusal and returns the bytes before it. A range that was done in part counts as
    // not done.
    std::size_t done = 0;
    for (long left = bytes; done < ranges.size(); ++done) {
        left -= static_cast<long>(ranges[done].bytes);
        if (left < 0) {
            break;
        }
    }
    return done;
}

// How many ranges were done, from the first, until one is refused.
std::size_t advise_all(std::span<const memory_range> ranges, int advice) noexcept {
    std::size_t done = 0;
    while (done < ranges.size()) {
        const auto some = ranges.subspan(done, std::min(batch, ranges.size() - done));
        std::size_t now = advise_batch(some, advice);
        if (now == 0) {  // no batching here, or the first one is refused
            while (now < some.size() && advise(some[now], advice) >= 0) {
                ++now;
            }
            if (now < some.size()) {
                return done + now;
            }
        }
        done += now;
    }
    return done;
}

}  // namespace

void no_huge_pages(memory_range range) noexcept { advise(range, MADV_NOHUGEPAGE); }

void want_huge_pages(memory_range range) noexcept { advise(range, MADV_HUGEPAGE); }

void name_range(memory_range range, const char* name) noexcept {
    const long bytes = static_cast<long>(range.bytes);
    raw_syscall(SYS_prctl, PR_SET_VMA, PR_SET_VMA_ANON_NAME, syscall_arg(range.begin), bytes, syscall_arg(name));
}

bool give_back(std::span<const memory_range> ranges) noexcept {
    bool all = true;
    for (;;) {
        const std::size_t done = advise_all(ranges, MADV_DONTNEED);
        if (done == ranges.size()) {
            return all;
        }
        all = false;
        ranges = ranges.subspan(done + 1);
    }
}

stack_space space_for_stacks() noexcept {
    constexpr std::size_t usual = std::size_t{8} << 20;
    stack_space space{usual, 0};
    rlimit limit{};
    if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) space.of_a_thread = limit.rlim_cur;
    // The main thread's stack lies at the upper end of the address space.
    space.addresses = std::bit_ceil(static_cast<std::size_t>(getauxval(AT_RANDOM)));
    for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {  // stacks count for both
        if (getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
            space.addresses = std::min<std::size_t>(space.addresses, limit.rlim_cur);
        }
    }
    // vm.overcommit_memory = 2: MAP_NORESERVE is ignored, and every byte of a stack counts as used.
    std::array<char, 8> buffer;
    if (small_file("/proc/sys/vm/overcommit_memory").read(buffer).starts_with('2')) space.addresses = 0;
    return space;
}

// ---- guards

std::optional<guard_kind> parse_guard_kind(std::string_view text) noexcept {
    using enum guard_kind;
    for (guard_kind kind : {automatic, by_madvise, by_mprotect, by_canary, none}) {
        if (text == to_string(kind)) {
            return kind;
        }
    }
    return std::nullopt;
}

const char* to_string(guard_kind kind) noexcept {
    switch (kind) {
        case guard_kind::automatic: return "auto";
        case guard_kind::by_madvise: return "madvise";
        case guard_kind::by_mprotect: return "mprotect";
        case guard_kind::by_canary: return "canary";
        case guard_kind::none: return "none";
    }
    return "?";
}

namespace {

// Makes the kernel read a signal mask at the page: EFAULT says that the page is guarded, without a fault of our own.
// Otherwise the page is zero, and the call blocks no signal. Emulators (qemu-user) accept every advice and do nothing:
// hence this test. Valgrind would read the mask itself, and die; but the advice that it accepts it has passed on to the
// kernel.
bool faults(const std::byte* page) noexcept {
    constexpr long kernel_mask_bytes = 8;
    return under_valgrind() ||
        raw_syscall(SYS_rt_sigprocmask, SIG_BLOCK, syscall_arg(page), 0, kernel_mask_bytes) == -EFAULT;
}

guard_kind try_guards() noexcept {
    const std::size_t bytes = page_size();
    std::byte* const page = reserve(bytes, bytes);
    if (page == nullptr) {
        return guard_kind::by_canary;
    }
    const memory_range range{page, bytes};
    guard_kind found = guard_kind::by_canary;
    for (guard_kind kind : {guard_kind::by_mprotect, guard_kind::by_madvise}) {
        if (kind == guard_kind::by_madvise) {
            raw_syscall(SYS_mprotect, syscall_arg(page), static_cast<long>(bytes), PROT_READ | PROT_WRITE);
        }
        if (install_guards(kind, {&range, 1}) == 1 && faults(page)) {
            found = kind;
        }
    }
    release(range);
    return found;
}

}  // namespace

guard_kind probe_guards() noexcept {
    static platform::atomic<guard_kind> known{guard_kind::automatic};
    // Relaxed: as in batching_here().
    guard_kind here = known.load(std::memory_order_relaxed);
    if (here == guard_kind::automatic) {
        here = try_guards();
        known.store(here, std::memory_order_relaxed);
    }
    return here;
}

std::size_t install_guards(guard_kind kind, std::span<const memory_range> ranges) noexcept {
    if (kind == guard_kind::by_madvise) {
        return advise_all(ranges, MADV_GUARD_INSTALL);
    }
    std::size_t done = 0;
    if (kind == guard_kind::by_mprotect) {
        for (const memory_range& range : ranges) {
            if (raw_syscall(SYS_mprotect, syscall_arg(range.begin), static_cast<long>(range.bytes), PROT_NONE) < 0) {
                break;
            }
            ++done;
        }
    }
    return done;
}

bool remove_guards(memory_range range) noexcept { return advise(range, MADV_GUARD_REMOVE) == 0; }

std::size_t max_map_count() noexcept {
    std::array<char, 32> buffer;
    const std::string_view text = small_file("/proc/sys/vm/max_map_count").read(buffer);
    std::size_t count = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), count);
    return status == std::errc{} && count != 0 ? count : 65530;
}

}  // namespace dunlin::platform
