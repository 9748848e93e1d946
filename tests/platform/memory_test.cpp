#include "platform/memory.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/signal_of_store.h"

namespace {

using namespace dunlin::platform;
using support::signal_of_store;

std::uintptr_t number(const std::byte* p) { return reinterpret_cast<std::uintptr_t>(p); }

bool resident(std::byte* page) {
    unsigned char state = 0;
    return mincore(page, page_size(), &state) == 0 && (state & 1) != 0;
}

// The kernel reads the page on our behalf: EFAULT instead of a fault.
bool readable(const std::byte* address) {
    return syscall(SYS_rt_sigprocmask, SIG_BLOCK, address, nullptr, 8) == 0 || errno != EFAULT;
}

struct reserved {
    explicit reserved(std::size_t bytes) : range{reserve(bytes), bytes} {}
    ~reserved() { release(range); }
    std::byte* page(std::size_t i) const { return range.begin + i * page_size(); }
    memory_range pages(std::size_t i, std::size_t count) const { return {page(i), count * page_size()}; }
    memory_range range;
};

TEST(Memory, ReservedMemoryIsAlignedZeroAndWritable) {
    for (std::size_t alignment : {page_size(), huge_page_size, 64 * huge_page_size}) {
        const std::size_t bytes = 3 * page_size();
        std::byte* const begin = reserve(bytes, alignment);
        ASSERT_NE(begin, nullptr);
        EXPECT_EQ(number(begin) % alignment, 0U);
        EXPECT_EQ(begin[bytes - 1], std::byte{0});
        begin[bytes - 1] = std::byte{1};
        release({begin, bytes});
        EXPECT_FALSE(readable(begin));
    }
}

TEST(Memory, ReservingCostsNoMemoryUntilItIsTouched) {
    const reserved space(std::size_t{1} << 30);
    ASSERT_NE(space.range.begin, nullptr);
    EXPECT_FALSE(resident(space.page(1)));
    *space.page(1) = std::byte{1};
    EXPECT_TRUE(resident(space.page(1)));
    EXPECT_FALSE(resident(space.page(2)));
}

TEST(Memory, WhatCannotBeReservedIsNullWithAReasonAndErrnoUntouched) {
    for (std::size_t bytes : {std::size_t{1} << 60, SIZE_MAX, SIZE_MAX - huge_page_size}) {
        errno = 4711;
        int error = 0;
        EXPECT_EQ(reserve(bytes, huge_page_size, &error), nullptr);
        EXPECT_EQ(error, ENOMEM);
        EXPECT_EQ(errno, 4711);
    }
}

TEST(Memory, GivenBackPagesAreZeroAndNotResidentAndOthersStay) {
    const reserved space(256 * page_size());
    for (std::size_t i = 0; i < 256; ++i) {
        *space.page(i) = std::byte{7};
    }
    std::vector<memory_range> even;  // more than one batch of separate ranges
    for (std::size_t i = 0; i < 256; i += 2) {
        even.push_back(space.pages(i, 1));
    }
    EXPECT_TRUE(give_back(even));
    for (std::size_t i = 0; i < 256; ++i) {
        EXPECT_EQ(resident(space.page(i)), i % 2 == 1) << i;
        EXPECT_EQ(*space.page(i), i % 2 == 1 ? std::byte{7} : std::byte{0}) << i;
    }
}

TEST(Memory, ARefusedRangeDoesNotKeepTheOthersFromBeingGivenBack) {
    const reserved space(8 * page_size());
    for (std::size_t i = 0; i < 8; ++i) {
        *space.page(i) = std::byte{7};
    }
    // The bare call: under the sanitizers mlock() does nothing.
    if (syscall(SYS_mlock, space.page(2), page_size()) != 0) {
        GTEST_SKIP() << "mlock is not allowed here, so nothing refuses to be given back";
    }
    const std::array ranges{space.pages(0, 1), space.pages(2, 1), space.pages(4, 1)};
    EXPECT_FALSE(give_back(ranges));
    EXPECT_FALSE(resident(space.page(0)));
    EXPECT_EQ(*space.page(2), std::byte{7});
    EXPECT_FALSE(resident(space.page(4)));
}

class Guards : public testing::TestWithParam<guard_kind> {
protected:
    void SetUp() override {
        if (GetParam() == guard_kind::by_madvise && probe_guards() != guard_kind::by_madvise) {
            GTEST_SKIP() << "this kernel has no MADV_GUARD_INSTALL";
        }
    }
};

TEST_P(Guards, AStoreIntoAGuardFaultsAndOneBesideItDoesNot) {
    const reserved space(8 * page_size());
    const std::array ranges{space.pages(2, 2)};
    ASSERT_EQ(install_guards(GetParam(), ranges), 1U);
    EXPECT_EQ(signal_of_store(space.page(2)), SIGSEGV);
    EXPECT_EQ(signal_of_store(space.page(4) - 1), SIGSEGV);
    EXPECT_EQ(signal_of_store(space.page(2) - 1), 0);
    EXPECT_EQ(signal_of_store(space.page(4)), 0);
}

TEST_P(Guards, ManyAreInstalledInOneCallAndTwiceDoesNoHarm) {
    constexpr std::size_t count = 300;
    const reserved space(2 * count * page_size());
    std::vector<memory_range> ranges;
    for (std::size_t i = 0; i < count; ++i) {
        ranges.push_back(space.pages(2 * i, 1));
    }
    ASSERT_EQ(install_guards(GetParam(), ranges), count);
    ASSERT_EQ(install_guards(GetParam(), ranges), count);
    for (std::size_t i = 0; i < count; ++i) {
        EXPECT_FALSE(readable(space.page(2 * i))) << i;
        EXPECT_TRUE(readable(space.page(2 * i + 1))) << i;
    }
}

TEST_P(Guards, TheyStayWhenTheMemoryAroundThemIsGivenBack) {
    const reserved space(8 * page_size());
    const std::array guards{space.pages(0, 4)};
    ASSERT_EQ(install_guards(GetParam(), guards), 1U);
    *space.page(5) = std::byte{7};
    EXPECT_TRUE(give_back({&space.range, 1}));
    EXPECT_EQ(*space.page(5), std::byte{0});
    EXPECT_FALSE(readable(space.page(0)));
}

TEST_P(Guards, TheFirstRefusalEndsTheCount) {
    const reserved space(8 * page_size());
    const memory_range crooked{space.page(4) + 1, page_size()};
    const std::array ranges{space.pages(0, 1), space.pages(2, 1), crooked, space.pages(6, 1)};
    EXPECT_EQ(install_guards(GetParam(), ranges), 2U);
    EXPECT_FALSE(readable(space.page(2)));
    EXPECT_TRUE(readable(space.page(4)));
}

// A descriptor that means "this process" is another process's in a child; batches must reach the child's own memory.
TEST_P(Guards, AChildCanInstallItsOwn) {
    const reserved space(8 * page_size());
    const std::array warm_up{space.pages(0, 1), space.pages(2, 1)};
    ASSERT_EQ(install_guards(GetParam(), warm_up), 2U);
    const pid_t child = fork();
    if (child == 0) {
        const std::array ranges{space.pages(4, 1), space.pages(6, 1)};
        const bool installed = install_guards(GetParam(), ranges) == 2;
        const bool fault = !readable(space.page(4)) && !readable(space.page(6)) && !readable(space.page(0));
        _exit(installed && fault ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_TRUE(readable(space.page(4)));
}

INSTANTIATE_TEST_SUITE_P(Memory, Guards, testing::Values(guard_kind::by_madvise, guard_kind::by_mprotect),
                         [](const auto& given) { return std::string(to_string(given.param)); });

TEST(Memory, RemovedGuardsLeaveReadableMemory) {
    if (probe_guards() != guard_kind::by_madvise) {
        GTEST_SKIP() << "this kernel has no MADV_GUARD_INSTALL";
    }
    const reserved space(8 * page_size());
    const std::array guards{space.pages(0, 1), space.pages(4, 1)};
    ASSERT_EQ(install_guards(guard_kind::by_madvise, guards), 2U);
    EXPECT_TRUE(remove_guards(space.range));
    EXPECT_TRUE(readable(space.page(0)));
    EXPECT_TRUE(readable(space.page(4)));
}

TEST(Memory, TheProbeFindsAKindThatFaults) {
    const guard_kind kind = probe_guards();
    EXPECT_TRUE(kind == guard_kind::by_madvise || kind == guard_kind::by_mprotect || kind == guard_kind::by_canary);
    EXPECT_EQ(probe_guards(), kind);
}

TEST(Memory, GuardKindsAreReadFromTheirNamesAndFromNothingElse) {
    EXPECT_EQ(parse_guard_kind("auto"), guard_kind::automatic);
    EXPECT_EQ(parse_guard_kind("madvise"), guard_kind::by_madvise);
    EXPECT_EQ(parse_guard_kind("mprotect"), guard_kind::by_mprotect);
    EXPECT_EQ(parse_guard_kind("canary"), guard_kind::by_canary);
    EXPECT_EQ(parse_guard_kind("none"), guard_kind::none);
    for (const char* text : {"", "Madvise", "madvise ", "0", "guard"}) {
        EXPECT_EQ(parse_guard_kind(text), std::nullopt) << text;
    }
}

// ---- other kernels

// From now on this process's kernel answers `number` with -error; with `argument`, only where that argument (its low
// half) has `value`.
bool refuse(unsigned number, int error, int argument = -1, unsigned value = 0) {
    const unsigned refusal = SECCOMP_RET_ERRNO | static_cast<unsigned>(error);
    const auto offset = static_cast<unsigned>(argument < 0 ? offsetof(seccomp_data, nr)
                                                           : offsetof(seccomp_data, args[0]) + 8U * unsigned(argument));
    const unsigned second = argument < 0 ? number : value;
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, second, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, refusal),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{std::size(code), code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

constexpr int no_filters = 77;

bool guards_and_gives_back(guard_kind expected) {
    const reserved space(64 * page_size());
    std::vector<memory_range> ranges;
    for (std::size_t i = 0; i < 64; i += 2) {
        ranges.push_back(space.pages(i, 1));
        *space.page(i + 1) = std::byte{7};
    }
    bool right = probe_guards() == expected && install_guards(expected, ranges) == ranges.size();
    for (memory_range& range : ranges) {
        right = right && !readable(range.begin);
        range.begin += page_size();
    }
    right = right && give_back(ranges);
    for (const memory_range& range : ranges) {
        right = right && !resident(range.begin);
    }
    return right;
}

// In a process of its own, because what the kernel can do is looked up once.
class OtherKernelDeathTest : public testing::Test {
protected:
    void SetUp() override {
        GTEST_FLAG_SET(death_test_style, "threadsafe");
        const reserved scratch(page_size());
        // Not probe_guards(), which remembers.
        if (madvise(scratch.range.begin, page_size(), 102) != 0 || readable(scratch.range.begin)) {
            GTEST_SKIP() << "this kernel is an older one itself, or an emulator";
        }
    }
    static void finish(bool filtered, guard_kind expected) {
        _exit(!filtered ? no_filters : guards_and_gives_back(expected) ? 0 : 1);
    }
    static bool allowed(int status) {
        return WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == no_filters);
    }
};

TEST_F(OtherKernelDeathTest, OneWithoutMarkersGetsMprotect) {
    EXPECT_EXIT(finish(refuse(SYS_madvise, EINVAL, 2, 102) && refuse(SYS_process_madvise, EPERM),
                       guard_kind::by_mprotect),
                allowed, "");
}

// As qemu-user does.
TEST_F(OtherKernelDeathTest, OneThatAcceptsTheAdviceAndIgnoresItIsFoundOut) {
    EXPECT_EXIT(finish(refuse(SYS_madvise, 0, 2, 102), guard_kind::by_mprotect), allowed, "");
}

TEST_F(OtherKernelDeathTest, OneWithoutProcessMadviseIsAskedRangeByRange) {
    EXPECT_EXIT(finish(refuse(SYS_process_madvise, ENOSYS), guard_kind::by_madvise), allowed, "");
}

TEST_F(OtherKernelDeathTest, OneThatDoesNotKnowMyselfGetsAnOpenedDescriptor) {
    constexpr auto myself = static_cast<unsigned>(-10000);
    EXPECT_EXIT(finish(refuse(SYS_process_madvise, EBADF, 0, myself), guard_kind::by_madvise), allowed, "");
}

TEST(Memory, TheLimitOfMappingsIsAPositiveNumber) { EXPECT_GT(max_map_count(), 1000U); }

}  // namespace
