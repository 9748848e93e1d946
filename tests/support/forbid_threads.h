// forbid_threads.h - for programs of tests/crash: what happens when no thread can be had, or a call is refused.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace support {

// From here on these two calls of this process fail with `error`. Ends the process with 77 where there is no seccomp.
inline void refuse_calls(unsigned one, unsigned other, unsigned error) {
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, one, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, other, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{sizeof code / sizeof code[0], code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0) {
        std::printf("no seccomp\n");
        std::exit(77);
    }
}

// From here on no thread of this process can make another: clone and clone3 fail with EAGAIN, as they do at the limit
// of ulimit -u or pids.max. (RLIMIT_NPROC does not bind root.)
inline void forbid_threads() { refuse_calls(SYS_clone3, SYS_clone, EAGAIN); }

}  // namespace support
