// cpu_count.h - how many processors to use when neither the program nor the environment says.
//
// Problem    The number of CPUs of the machine is not what a process may use: it may be bound to some of them
//            (affinity), and a container may get only so much CPU time in each period (cgroup quota). Using more makes
//            the kernel stop all threads at once, for tens of milliseconds, when the quota is used up.
// Guarantee  min(CPUs in the affinity mask, quota / period rounded up, but at least 2). A quota of 2.1 CPUs gives 3:
//            two could not use it up. One of 0.5 gives 2: with one, nothing would run beside a goroutine that computes.
// Where      /proc/self/cgroup names the group; /proc/self/mountinfo tells where its file system is mounted; there
//              v2  cpu.max                                 "300000 100000" or "max 100000"
//              v1  cpu.cfs_quota_us, cpu.cfs_period_us     "300000" and "100000", -1 for no limit
//            A v1 hierarchy with the cpu controller wins over v2. Only the group itself is read, not the groups above
//            it.
// Errors     There are none: a quota that cannot be read does not limit.
// Source     Go 1.25, internal/runtime/cgroup and runtime.defaultGOMAXPROCS.
// Tests      tests/platform/cpu_count_test.cpp, on trees of files of its own
#pragma once

#include "platform/small_file.h"

namespace dunlin::inline v0_1::platform {

// CPUs that the process may run on; at least 1.
unsigned affinity_cpus() noexcept;

// The quota of the process's control group. Found once; the files stay open, because the quota may change at any time
// and the paths may be out of reach later (chroot, a changed mount).
class cpu_quota {
public:
    // `root` stands before every path: empty, or a directory with a tree like the real one.
    explicit cpu_quota(const char* root = "") noexcept;

    // CPUs that the quota is worth now, rounded up, at least 1; 0 if there is no limit. Two or three system calls.
    unsigned cpus() const noexcept;

private:
    small_file quota_;   // v2: cpu.max; v1: cpu.cfs_quota_us
    small_file period_;  // v1 only
};

// The rule above. quota_cpus = 0 means no limit.
constexpr unsigned processors_for(unsigned cpus, unsigned quota_cpus) noexcept {
    if (quota_cpus == 0) {
        return cpus;
    }
    const unsigned limit = quota_cpus < 2 ? 2 : quota_cpus;
    return limit < cpus ? limit : cpus;
}

}  // namespace dunlin::platform
