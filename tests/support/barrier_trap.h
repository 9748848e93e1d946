// barrier_trap.h - what a test wants to happen at the heavy barrier of a thread (platform/membarrier.h), and only
// there.
//
// A heavy barrier makes visible what still lies in the store buffers of other CPUs. No test can keep a store in there;
// but it can hold the store back by itself and make it at the moment of the barrier. That is one of the orders that
// memory may show, and without the barrier the store never comes.
// A seccomp filter sends the membarrier of the calling thread (and of threads that it starts) to a handler of SIGSYS,
// which calls the action. A filter stays for the life of its thread.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <functional>
#include <iterator>
#include <thread>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "platform/membarrier.h"

namespace support {

inline thread_local std::function<void()> at_barrier;

// The calling thread does `action` at each heavy barrier, in place of it. False: this system does not let it.
inline bool trap_barriers(std::function<void()> action) {
    constexpr unsigned private_expedited = 1 << 3;
    struct sigaction handler{};
    handler.sa_flags = SA_SIGINFO | SA_NODEFER;
    handler.sa_sigaction = [](int, siginfo_t*, void* raw) {
        if (at_barrier) at_barrier();
        auto& registers = static_cast<ucontext_t*>(raw)->uc_mcontext;
#if defined(__x86_64__)
        registers.gregs[REG_RAX] = 0;
#elif defined(__aarch64__)
        registers.regs[0] = 0;
#endif
    };
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, private_expedited, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{static_cast<unsigned short>(std::size(code)), code};
    at_barrier = std::move(action);
    return sigaction(SIGSYS, &handler, nullptr) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Tried out on a thread of its own. Has the barriers made by the kernel from now on, if it can.
inline bool barriers_can_be_trapped() {
    dunlin::platform::init_barriers();
    int calls = 0;
    std::jthread([&] {
        if (trap_barriers([&] { ++calls; })) dunlin::platform::heavy_barrier();
    }).join();
    return calls == 1;
}

}  // namespace support
