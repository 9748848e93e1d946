#include "stack/interrupted_call.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>

#include "platform/syscall.h"
#include "stack/code.h"

#if defined(__x86_64__)
// rest_of_call_x86_64.S
extern "C" [[gnu::visibility("hidden")]] const char dunlin_rest_of_call[], dunlin_rest_of_call_wait[],
    dunlin_rest_of_call_waited[], dunlin_rest_of_call_end[];
#endif

namespace dunlin::inline v0_1::stack {

#if defined(__x86_64__)

namespace {

// A system call leaves the address behind it in rcx; not on every CPU and kernel.
bool calls_leave_address = false;

auto& registers_of(void* context) noexcept { return static_cast<ucontext_t*>(context)->uc_mcontext.gregs; }
auto& registers_of(const void* context) noexcept { return static_cast<const ucontext_t*>(context)->uc_mcontext.gregs; }

// The code before an address: nothing that is known, a system call, or one with its number: mov $number, %eax; syscall.
struct code_before {
    bool calls = false;
    long number = -1;
};

code_before look_before(greg_t address) noexcept {
    const auto pc = static_cast<std::uintptr_t>(address);
    std::array<std::uint8_t, 7> copy;
    const std::uint8_t* const syscall = code_at(pc - 2, pc, copy);
    if (syscall == nullptr || syscall[0] != 0x0f || syscall[1] != 0x05) return {};
    const std::uint8_t* const load = code_at(pc - 7, pc, copy);
    if (load == nullptr || load[0] != 0xb8) return {true};
    return {true, load[1] | load[2] << 8 | load[3] << 16 | load[4] << 24};
}

// Those that the kernel does not restart when they are interrupted in a sleep, or not always, and that have done
// nothing then.
bool may_be_made_again(long number) noexcept {
    switch (number) {
    case SYS_poll:
    case SYS_ppoll:
    case SYS_select:
    case SYS_pselect6:
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
    case SYS_futex:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_recvmmsg:
    case SYS_accept:
    case SYS_accept4:
    case SYS_connect:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_sendmmsg:
    case SYS_read:
    case SYS_readv:
    case SYS_preadv:
    case SYS_write:
    case SYS_writev:
    case SYS_pwritev:
    case SYS_rt_sigtimedwait:
    case SYS_semop:
    case SYS_semtimedop:
    case SYS_msgrcv:
    case SYS_msgsnd:
    case SYS_io_getevents: return true;
    default: return false;
    }
}

greg_t address_of(const char* code) noexcept { return static_cast<greg_t>(reinterpret_cast<std::uintptr_t>(code)); }

template <class T>
bool read_option(long fd, int name, T& value) noexcept {
    socklen_t size = sizeof value;
    return platform::raw_syscall(SYS_getsockopt, fd, SOL_SOCKET, name, platform::syscall_arg(&value),
               platform::syscall_arg(&size)) == 0;
}

// Does the call return only when all is moved, unless it fails, or meets the end, or a signal?
bool moves_all(long number, const gregset_t& registers) noexcept {
    const long flags = registers[REG_R10];
    switch (number) {
    case SYS_write: break;
    case SYS_sendto:
        if ((flags & ~(MSG_NOSIGNAL | MSG_MORE)) != 0) return false;
        break;
    case SYS_recvfrom:
        if ((flags & ~(MSG_NOSIGNAL | MSG_CMSG_CLOEXEC)) != MSG_WAITALL) return false;
        break;
    default: return false;
    }
    if (number != SYS_write && (registers[REG_R8] != 0 || registers[REG_R9] != 0)) return false;
    const long fd = registers[REG_RDI];
    int type = 0, at_mark = 0;
    if (!read_option(fd, SO_TYPE, type) || type != SOCK_STREAM) return false;
    if (int least = 0; number == SYS_recvfrom && (!read_option(fd, SO_RCVLOWAT, least) || least > 1)) return false;
    timeval limit{};
    if (!read_option(fd, number == SYS_recvfrom ? SO_RCVTIMEO : SO_SNDTIMEO, limit)) return false;
    if (limit.tv_sec != 0 || limit.tv_usec != 0) return false;
    const long mode = platform::raw_syscall(SYS_fcntl, fd, F_GETFL);
    if (mode < 0 || (mode & O_NONBLOCK) != 0) return false;
    if (number != SYS_recvfrom) return true;
    return platform::raw_syscall(SYS_ioctl, fd, SIOCATMARK, platform::syscall_arg(&at_mark)) != 0 || at_mark == 0;
}

}  // namespace

void note_what_calls_leave() noexcept {
    long behind = 0, left = 0, result = SYS_getpid;
    asm volatile("leaq 1f(%%rip), %[behind]\n\tsyscall\n1:"
        : [behind] "=&r"(behind), "+a"(result), "=c"(left)
        :
        : "r11", "memory");
    calls_leave_address = left == behind;
}

void repeat_interrupted_call(void* handler_context) noexcept {
    auto& registers = registers_of(handler_context);
    if (registers[REG_RAX] != -EINTR) return;
    if (registers[REG_RIP] == address_of(dunlin_rest_of_call_waited)) {
        registers[REG_RIP] = address_of(dunlin_rest_of_call_wait);
        return;
    }
    const long number = look_before(registers[REG_RIP]).number;
    if (!may_be_made_again(number)) return;
    registers[REG_RAX] = number;
    registers[REG_RIP] -= 2;
}

bool interrupts_sleep_of_libc(const void* handler_context, bool seen_asleep) noexcept {
    const auto& registers = registers_of(handler_context);
    if (registers[REG_RAX] != -EINTR) return false;
    const code_before code = look_before(registers[REG_RIP]);
    if (code.number == -1) return code.calls && seen_asleep;
    return code.number == SYS_nanosleep || code.number == SYS_clock_nanosleep;
}

void go_on_with_call(void* handler_context) noexcept {
    auto& registers = registers_of(handler_context);
    // Otherwise the registers may be those of another instruction, from which a jump has led here.
    if (calls_leave_address && registers[REG_RCX] != registers[REG_RIP]) return;
    const greg_t moved = registers[REG_RAX], wanted = registers[REG_RDX];
    if (moved <= 0 || moved >= wanted) return;
    const long number = look_before(registers[REG_RIP]).number;
    if (!moves_all(number, registers)) return;
    registers[REG_RAX] = number;
    registers[REG_R11] = moved;
    registers[REG_RCX] = registers[REG_RIP];
    registers[REG_RIP] = address_of(dunlin_rest_of_call);
}

bool goes_on_with_call(const void* code) noexcept {
    return code >= dunlin_rest_of_call && code < dunlin_rest_of_call_end;
}

#else

void note_what_calls_leave() noexcept {}

void repeat_interrupted_call(void*) noexcept {}

bool interrupts_sleep_of_libc(const void* handler_context, bool) noexcept {
    const mcontext_t& registers = static_cast<const ucontext_t*>(handler_context)->uc_mcontext;
    constexpr std::uint32_t svc_0 = 0xd4000001;
    if (static_cast<long>(registers.regs[0]) != -EINTR) return false;
    if (reinterpret_cast<const std::uint32_t*>(registers.pc)[-1] != svc_0) return false;
    const auto number = static_cast<long>(registers.regs[8]);
    return number == SYS_nanosleep || number == SYS_clock_nanosleep;
}

void go_on_with_call(void*) noexcept {}

bool goes_on_with_call(const void*) noexcept { return false; }

#endif

}  // namespace dunlin::stack
