// OBS-16. Port of go1.25 src/internal/runtime/cgroup/cgroup_test.go and runtime/cgroup_linux_test.go
// (TestCgroupGOMAXPROCS) to trees of files of our own: <root>/proc/self/cgroup, <root>/proc/self/mountinfo and the
// group's directory. That an explicit setting wins: tests/crash/settings_test.cpp. TestCgroupGOMAXPROCSUpdate has no
// counterpart: the quota is read when the runtime starts, and a change after that is not followed.
#include "platform/cpu_count.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sched.h>

namespace {

using namespace dunlin::platform;

class CpuQuota : public testing::Test {
protected:
    CpuQuota() {
        std::string pattern = testing::TempDir() + "dunlin-cgroup-XXXXXX";
        root_ = mkdtemp(pattern.data());
    }
    ~CpuQuota() override { std::filesystem::remove_all(root_); }

    void write(const std::string& path, const std::string& text) const {
        std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
        std::ofstream(root_ + path) << text;
    }

    void write_v2(const std::string& cpu_max) const {
        write("/proc/self/cgroup", "0::/user/group\n");
        write("/proc/self/mountinfo", mounts + v2_mount);
        write("/sys/fs/cgroup/user/group/cpu.max", cpu_max);
    }

    void write_v1(const std::string& quota, const std::string& period) const {
        write("/proc/self/cgroup", "9:memory:/elsewhere\n4:cpuacct,cpu:/user/group\n");
        write("/proc/self/mountinfo", mounts + v1_mounts);
        write("/sys/fs/cgroup/cpu/user/group/cpu.cfs_quota_us", quota);
        write("/sys/fs/cgroup/cpu/user/group/cpu.cfs_period_us", period);
    }

    unsigned cpus() const { return cpu_quota(root_.c_str()).cpus(); }

    const std::string mounts =
        "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
        "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n";
    const std::string v2_mount =
        "41 31 0:38 / /sys/fs/cgroup rw,nosuid shared:9 master:2 - cgroup2 cgroup2 rw,nsdelegate\n";
    const std::string v1_mounts =
        "32 31 0:29 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
        "33 31 0:30 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n";
    std::string root_;
};

TEST_F(CpuQuota, V2IsRoundedUp) {
    const std::pair<const char*, unsigned> cases[] = {
        {"300000 100000\n", 3}, {"50000 100000\n", 1}, {"210000 100000\n", 3}, {"100001 100000\n", 2},
        {"1000 250000", 1},     {"max 100000\n", 0},   {"-1 100000\n", 0},     {"", 0},
        {"300000", 0},          {"300000 0\n", 0},     {"nonsense here\n", 0}, {"99999999999999999999 100000\n", 0},
        {"9000000000000000000 1\n", 4294967295U},
    };
    for (const auto& [text, expected] : cases) {
        write_v2(text);
        EXPECT_EQ(cpus(), expected) << text;
    }
}

TEST_F(CpuQuota, V1IsRoundedUpAndMinusOneIsNoLimit) {
    write_v1("300000\n", "100000\n");
    EXPECT_EQ(cpus(), 3U);
    write_v1("210000\n", "100000\n");
    EXPECT_EQ(cpus(), 3U);
    write_v1("50000\n", "100000\n");
    EXPECT_EQ(cpus(), 1U);
    write_v1("-1\n", "100000\n");
    EXPECT_EQ(cpus(), 0U);
    write_v1("300000\n", "");
    EXPECT_EQ(cpus(), 0U);
}

TEST_F(CpuQuota, AV1CpuControllerWinsOverV2) {
    write_v2("400000 100000\n");
    write_v1("300000\n", "100000\n");
    write("/proc/self/mountinfo", mounts + v2_mount + v1_mounts);
    for (const char* groups : {"0::/user/group\n4:cpu:/user/group\n", "4:cpu:/user/group\n0::/user/group\n"}) {
        write("/proc/self/cgroup", groups);
        EXPECT_EQ(cpus(), 3U) << groups;
    }
}

TEST_F(CpuQuota, V2IsReadWhenV1HasNoCpuController) {
    write_v2("400000 100000\n");
    write("/proc/self/cgroup", "5:memory:/m\n2:cpuset:/s\n1:name=systemd:/user\n0::/user/group\n");
    write("/proc/self/mountinfo", mounts + v1_mounts + v2_mount);
    EXPECT_EQ(cpus(), 4U);
}

TEST_F(CpuQuota, EscapedMountPointsAreDecoded) {
    write("/proc/self/cgroup", "0::/a b\n");
    write("/proc/self/mountinfo", R"(41 31 0:38 / /odd\040name\134with\011tab rw - cgroup2 cgroup2 rw)" "\n");
    write("/odd name\\with\ttab/a b/cpu.max", "300000 100000\n");
    EXPECT_EQ(cpus(), 3U);
}

TEST_F(CpuQuota, AGroupPathMayContainColons) {
    write("/proc/self/cgroup", "0::/pod:1:2\n");
    write("/proc/self/mountinfo", v2_mount);
    write("/sys/fs/cgroup/pod:1:2/cpu.max", "300000 100000\n");
    EXPECT_EQ(cpus(), 3U);
}

// A container without a cgroup namespace sees its own group mounted, and the path from outside.
TEST_F(CpuQuota, TheRootOfTheMountIsTakenOffThePath) {
    write("/proc/self/cgroup", "0::/docker/abc/inner\n");
    write("/proc/self/mountinfo",
          "40 31 0:38 /docker/ab /wrong rw - cgroup2 cgroup2 rw\n"
          "41 31 0:38 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    write("/wrong/c/inner/cpu.max", "700000 100000\n");
    write("/sys/fs/cgroup/inner/cpu.max", "300000 100000\n");
    EXPECT_EQ(cpus(), 3U);
    write("/proc/self/cgroup", "0::/docker/abc\n");
    write("/sys/fs/cgroup/cpu.max", "500000 100000\n");
    EXPECT_EQ(cpus(), 5U);
}

TEST_F(CpuQuota, LinesTooLongToMatterAreSkipped) {
    write_v2("300000 100000\n");
    const std::string layers(20'000, 'x');
    write("/proc/self/mountinfo", "27 1 254:0 / / rw - overlay overlay rw,lowerdir=" + layers + "\n" + v2_mount);
    EXPECT_EQ(cpus(), 3U);
    write("/proc/self/mountinfo", "27 1 254:0 / / rw - overlay overlay rw,lowerdir=" + layers);
    EXPECT_EQ(cpus(), 0U);
}

TEST_F(CpuQuota, ALastLineWithoutNewlineCounts) {
    write_v2("300000 100000");
    write("/proc/self/mountinfo", mounts + v2_mount.substr(0, v2_mount.size() - 1));
    EXPECT_EQ(cpus(), 3U);
}

TEST_F(CpuQuota, ChangesAreSeenByTheNextRead) {
    write_v2("300000 100000\n");
    const cpu_quota quota(root_.c_str());
    EXPECT_EQ(quota.cpus(), 3U);
    write("/sys/fs/cgroup/user/group/cpu.max", "max 100000\n");
    EXPECT_EQ(quota.cpus(), 0U);
    write("/sys/fs/cgroup/user/group/cpu.max", "200000 100000\n");
    EXPECT_EQ(quota.cpus(), 2U);
}

TEST_F(CpuQuota, MissingFilesMeanNoLimit) {
    EXPECT_EQ(cpus(), 0U);
    write("/proc/self/cgroup", "0::/user/group\n");
    EXPECT_EQ(cpus(), 0U);
    write("/proc/self/mountinfo", mounts);
    EXPECT_EQ(cpus(), 0U);
    write("/proc/self/mountinfo", mounts + v2_mount);
    EXPECT_EQ(cpus(), 0U);
    write("/proc/self/cgroup", "");
    EXPECT_EQ(cpus(), 0U);
    write("/proc/self/cgroup", "garbage\n\n::\n");
    EXPECT_EQ(cpus(), 0U);
}

TEST(CpuCount, TheQuotaLimitsToAtLeastTwoAndNeverRaises) {
    EXPECT_EQ(processors_for(8, 0), 8U);
    EXPECT_EQ(processors_for(8, 3), 3U);
    EXPECT_EQ(processors_for(8, 1), 2U);
    EXPECT_EQ(processors_for(8, 9), 8U);
    EXPECT_EQ(processors_for(1, 1), 1U);
    EXPECT_EQ(processors_for(1, 5), 1U);
}

TEST(CpuCount, TheAffinityMaskIsRespected) {
    cpu_set_t before;
    ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
    EXPECT_EQ(affinity_cpus(), static_cast<unsigned>(CPU_COUNT(&before)));
    std::jthread([] {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(sched_getcpu(), &one);
        ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
        EXPECT_EQ(affinity_cpus(), 1U);
    });
}

TEST(CpuCount, ThisMachineHasAQuotaOrNone) {
    const cpu_quota quota;
    EXPECT_GE(processors_for(affinity_cpus(), quota.cpus()), 1U);
}

}  // namespace
