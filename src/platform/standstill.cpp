#include "platform/standstill.h"

#include <dunlin/detail/atomic.hpp>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <ctime>
#include <elf.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/cpu.h"
#include "platform/futex.h"
#include "platform/syscall.h"
#include "platform/thread.h"
#include "platform/valgrind.h"

namespace dunlin::inline v0_1::platform {

namespace {

constexpr std::int64_t patience_ns = 1'000'000'000;

enum word : std::uint32_t { wait = 0, stop = 1, on = 2 };           // control::go
enum outcome : std::uint32_t { none = 0, stands = 1, not_allowed = 2, does_not_stop = 3, too_many = 4 };

#if defined(__x86_64__)
constexpr std::size_t stack_pointer_index = 19, thread_pointer_index = 21;
constexpr long vectors_of = NT_X86_XSTATE;
#elif defined(__aarch64__)
constexpr std::size_t stack_pointer_index = 31, thread_pointer_index = 0;  // it is in no general register
constexpr long vectors_of = NT_PRFPREG;
#endif

}  // namespace

struct standstill::control {
    atomic<std::uint32_t> go{wait};
    atomic<std::uint32_t> state{none};
    pid_t process = 0, caller = 0;
    std::size_t count = 0, room = 0;
    alignas(64) std::byte stack[32 << 10];
    alignas(64) std::byte entries[8 << 10];
    standing_thread* threads() noexcept { return reinterpret_cast<standing_thread*>(this + 1); }
};

namespace {

// What follows runs in the helper, which has the caller's thread-local storage: no errno, no sanitizer.
#define DUNLIN_IN_HELPER DUNLIN_NOT_INSTRUMENTED __attribute__((no_sanitize_address))

DUNLIN_IN_HELPER long trace_call(long request, pid_t tid, std::uintptr_t address, std::uintptr_t data) noexcept {
    return raw_syscall(SYS_ptrace, request, tid, static_cast<long>(address), static_cast<long>(data));
}

DUNLIN_IN_HELPER void nap(long ns) noexcept {
    const timespec t{0, ns};
    raw_syscall(SYS_nanosleep, syscall_arg(&t), 0);
}

DUNLIN_IN_HELPER void read_registers(standing_thread& t) noexcept {
    iovec general{t.general, sizeof t.general};
    trace_call(PTRACE_GETREGSET, t.tid, NT_PRSTATUS, reinterpret_cast<std::uintptr_t>(&general));
    t.stack_pointer = t.general[stack_pointer_index];
    t.thread_pointer = thread_pointer_index != 0 ? t.general[thread_pointer_index] : 0;
    iovec vectors{t.vectors, sizeof t.vectors};
    if (trace_call(PTRACE_GETREGSET, t.tid, vectors_of, reinterpret_cast<std::uintptr_t>(&vectors)) == 0) return;
    vectors = {t.vectors, sizeof t.vectors};
    trace_call(PTRACE_GETREGSET, t.tid, NT_PRFPREG, reinterpret_cast<std::uintptr_t>(&vectors));
}

// False: the time is over.
DUNLIN_IN_HELPER bool wait_until_it_stands(standing_thread& t, std::int64_t& left_ns) noexcept {
    for (long pause_ns = 20'000;; pause_ns = pause_ns < 1'000'000 ? 2 * pause_ns : pause_ns) {
        int status = 0;
        const long result = raw_syscall(SYS_wait4, t.tid, syscall_arg(&status), WNOHANG | __WALL, 0);
        if (result == t.tid && WIFSTOPPED(status)) {
            t.signal = status >> 16 == 0 ? WSTOPSIG(status) : 0;
            read_registers(t);
            return true;
        }
        if (result != 0 && result != -EINTR) {
            t.gone = true;
            return true;
        }
        if (left_ns <= 0) return false;
        nap(pause_ns);
        left_ns -= pause_ns;
    }
}

struct directory_entry {
    std::uint64_t inode;
    std::int64_t offset;
    std::uint16_t length;
    std::uint8_t type;
    char name[1];
};

DUNLIN_IN_HELPER pid_t number_of(const char* text) noexcept {
    pid_t n = 0;
    for (; *text >= '0' && *text <= '9'; ++text) n = 10 * n + (*text - '0');
    return *text == 0 ? n : 0;
}

DUNLIN_IN_HELPER char* append(char* to, const char* text) noexcept {
    while (*text != 0) *to++ = *text++;
    *to = 0;
    return to;
}

DUNLIN_IN_HELPER char* append(char* to, pid_t number) noexcept {
    char digits[12];
    int n = 0;
    for (pid_t rest = number; rest != 0 || n == 0; rest /= 10) digits[n++] = static_cast<char>('0' + rest % 10);
    while (n != 0) *to++ = digits[--n];
    *to = 0;
    return to;
}

// True: the thread has ended and only its number is left, as of a main thread that has called pthread_exit().
DUNLIN_IN_HELPER bool is_a_remnant(pid_t process, pid_t tid) noexcept {
    char path[64], text[128];
    append(append(append(append(append(path, "/proc/"), process), "/task/"), tid), "/stat");
    const long fd = raw_syscall(SYS_openat, AT_FDCWD, syscall_arg(path), O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return fd == -ENOENT || fd == -ESRCH;
    const long bytes = raw_syscall(SYS_read, fd, syscall_arg(text), sizeof text);
    raw_syscall(SYS_close, fd);
    long i = bytes;
    while (i > 0 && text[i - 1] != ')') --i;
    return i > 0 && i + 1 < bytes && (text[i + 1] == 'Z' || text[i + 1] == 'X');
}

}  // namespace

struct standstill_access {
    using control = standstill::control;

    DUNLIN_IN_HELPER static bool known(control& c, pid_t tid) noexcept {
        for (std::size_t i = 0; i < c.count; ++i) {
            if (c.threads()[i].tid == tid) return true;
        }
        return false;
    }

    // Asks the thread to stop.
    DUNLIN_IN_HELPER static outcome attach(control& c, pid_t tid) noexcept {
        if (c.count == c.room) return too_many;
        standing_thread& t = c.threads()[c.count];
        t.tid = tid;
        const long result = trace_call(PTRACE_SEIZE, tid, 0, 0);
        if (result != 0) {
            if (result == -ESRCH || is_a_remnant(c.process, tid)) {
                t.gone = true;
                ++c.count;
                return stands;
            }
            return not_allowed;
        }
        ++c.count;
        trace_call(PTRACE_INTERRUPT, tid, 0, 0);
        return stands;
    }

    // Asks the listed threads that are not known yet, and adds them to the known ones (`count`).
    DUNLIN_IN_HELPER static outcome attach_listed(control& c, long directory) noexcept {
        raw_syscall(SYS_lseek, directory, 0, SEEK_SET);
        for (;;) {
            const long bytes = raw_syscall(SYS_getdents64, directory, syscall_arg(c.entries), sizeof c.entries);
            if (bytes < 0) return not_allowed;
            if (bytes == 0) return stands;
            for (long at = 0; at < bytes;) {
                const auto& e = *reinterpret_cast<const directory_entry*>(c.entries + at);
                at += e.length;
                const pid_t tid = number_of(e.name);
                if (tid == 0 || tid == c.caller || known(c, tid)) continue;
                if (const outcome o = attach(c, tid); o != stands) return o;
            }
        }
    }

    DUNLIN_IN_HELPER static outcome stop_all(control& c, long directory) noexcept {
        std::int64_t left_ns = patience_ns;
        for (std::size_t stopped = 0;;) {
            if (const outcome o = attach_listed(c, directory); o != stands) return o;
            if (stopped == c.count) return stands;
            for (; stopped < c.count; ++stopped) {
                standing_thread& t = c.threads()[stopped];
                if (!t.gone && !wait_until_it_stands(t, left_ns)) return does_not_stop;
            }
        }
    }

    DUNLIN_IN_HELPER static int help(void* raw) noexcept {
        control& c = *static_cast<control*>(raw);
        raw_syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
        while (c.go.load(std::memory_order_acquire) == wait) futex_wait(c.go, wait);
        char path[64];
        append(append(append(path, "/proc/"), c.process), "/task");
        const long directory =
            raw_syscall(SYS_openat, AT_FDCWD, syscall_arg(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
        const outcome result = directory < 0 ? not_allowed : stop_all(c, directory);
        if (directory >= 0) raw_syscall(SYS_close, directory);
        c.state.store(result, std::memory_order_release);
        futex_wake(c.state);
        while (result == stands && c.go.load(std::memory_order_acquire) == stop) futex_wait(c.go, stop);
        for (std::size_t i = 0; i < c.count; ++i) {
            const standing_thread& t = c.threads()[i];
            if (!t.gone) trace_call(PTRACE_DETACH, t.tid, 0, static_cast<std::uintptr_t>(t.signal));
        }
        return 0;  // the kernel detaches from those that did not stop
    }
};

bool standstill::begin() noexcept {
    if (under_valgrind()) {
        refused_ = "valgrind does not allow it";
        return false;
    }
    const std::size_t room = count_threads() + 256;
    range_.bytes = sizeof(control) + room * sizeof(standing_thread);
    range_.begin = reserve(range_.bytes, page_size());
    if (range_.begin == nullptr) {
        refused_ = "there is no memory for it";
        return false;
    }
    control_ = ::new (range_.begin) control;
    control_->process = static_cast<pid_t>(raw_syscall(SYS_getpid));
    control_->caller = thread_id();
    control_->room = room;
    // A signal for the whole group of processes must not run the program's handlers in the helper.
    const std::uint64_t all = ~std::uint64_t{0};
    std::uint64_t before = 0;
    raw_syscall(SYS_rt_sigprocmask, SIG_SETMASK, syscall_arg(&all), syscall_arg(&before), sizeof all);
    const int kept = errno;
    helper_ = clone(&standstill_access::help, control_->stack + sizeof control_->stack,
        CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_UNTRACED, control_);
    errno = kept;
    raw_syscall(SYS_rt_sigprocmask, SIG_SETMASK, syscall_arg(&before), 0, sizeof before);
    if (helper_ < 0) {
        refused_ = "no process can be made for it";
        return false;
    }
    // Needed where the Yama module restricts tracing; elsewhere the kernel refuses it.
    raw_syscall(SYS_prctl, PR_SET_PTRACER, helper_);
    control_->go.store(stop, std::memory_order_release);
    futex_wake(control_->go);
    while (control_->state.load(std::memory_order_acquire) == none) {
        futex_wait_until(control_->state, none, real_now_ns() + patience_ns);
        if (control_->state.load(std::memory_order_acquire) != none) break;
        if (raw_syscall(SYS_wait4, helper_, 0, WNOHANG | __WALL, 0) == helper_) {
            helper_ = 0;
            refused_ = "the process made for it has been killed";
            return false;
        }
    }
    switch (control_->state.load(std::memory_order_acquire)) {
    case stands: return true;
    case not_allowed: refused_ = "ptrace is not allowed here, or a debugger is attached"; break;
    case does_not_stop: refused_ = "a thread does not stop within a second"; break;
    default: refused_ = "threads are made faster than they can be stopped"; break;
    }
    return false;
}

void standstill::end() noexcept {
    if (helper_ <= 0) return;
    control_->go.store(on, std::memory_order_release);
    futex_wake(control_->go);
    while (raw_syscall(SYS_wait4, helper_, 0, __WALL, 0) == -EINTR) {
    }
    raw_syscall(SYS_prctl, PR_SET_PTRACER, 0);
}

standstill::standstill() noexcept { begin(); }

standstill::~standstill() {
    end();
    if (control_ != nullptr) release(range_);
}

std::span<const standing_thread> standstill::threads() const noexcept {
    return {control_->threads(), refused_ == nullptr ? control_->count : 0};
}

}  // namespace dunlin::platform
