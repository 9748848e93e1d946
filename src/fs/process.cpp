// process.cpp - child processes.
//
// Start      posix_spawn needs no copy of the address space and, unlike fork(), no care for the locks of other threads.
//            It runs in blocking(), since it waits for the exec. The child's ends of pipes are moved above 2, so that
//            putting one into its place overwrites no other.
// End        The watcher (watcher.h) has a pidfd for each child. When the child has ended the watcher fetches its
//            status, under the lock of the child's state, and closes the channels on which all waiters wait. Without
//            pidfd (before Linux 5.3) a thread for each child waits instead.
// Lifetime   The handle and the watcher share the state; so dropping the handle changes nothing for the child.
// kill       under the same lock: as long as the watcher has not fetched the status, the number is the child's. With a
//            pidfd the signal hits no other process even if the program itself has fetched the status.
// Source     Go 1.24 os/exec_unix.go, os/pidfd_linux.go, os/exec/exec.go.
// Tests      tests/fs/process_test.cpp
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <mutex>
#include <spawn.h>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

#include <dunlin/blocking.hpp>
#include <dunlin/detail/atomic.hpp>
#include <dunlin/process.hpp>

#include "fs/pipe.h"
#include "fs/process.h"
#include "fs/watcher.h"
#include "io/error.h"
#include "io/operation.h"
#include "park/waiter.h"
#include "platform/lock.h"
#include "platform/syscall.h"
#include "platform/thread.h"
#include "platform/valgrind.h"
#include "sched/data/current.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif

namespace dunlin::inline v0_1 {

platform::atomic<bool> fs::use_pidfd{true};

struct process::state final : fs::watched {
    std::string name;  // constant
    int pid = -1;      // constant once the child is watched
    bool own_group = false;  // constant; the group has the number pid

    platform::ranked_lock<platform::lock_rank::registry> lock;
    int pidfd = -1;           // lock; -1: none, or the child has ended
    bool ended = false;       // lock
    exit_status status;       // lock to write; constant once `over` is closed
    chan<bool> over;          // closed when the child has ended
    chan<exit_status> done{1};
    std::shared_ptr<state> myself;  // non-null while the child is watched

    int watch(std::shared_ptr<state> self) noexcept;
    enum class target : bool { child, group };
    bool send_signal(target to, int signal, int& error) noexcept;
    void happened() noexcept override;
    void check_watched() noexcept;
    std::string text() const { return "process " + std::to_string(pid) + " (" + name + ")"; }
    void name_pipe(byte_stream& pipe, const char* what) const noexcept;

private:
    bool may_fetch_status() noexcept;
    int start_waiting_thread() noexcept;  // 0, or errno
    void wait_for_end() noexcept;
    void tell_end() noexcept;
    void fetch_status() noexcept;
};

namespace {

[[noreturn]] void throw_error(const std::string& what, int error) {
    const std::error_code ec = io::system_error_code(error);
    throw io_error(ec, what + ": " + detail::cause_text(ec));
}

// ---- how to start it ------------------------------------------------------------------------------------------------

void check_text(const std::string& s) {
    if (s.find('\0') != std::string::npos)
        throw std::invalid_argument("process: a zero byte in \"" + std::string(s.c_str()) + "\"");
}

// A null-terminated list, as the system wants it; it points into the strings.
std::vector<char*> pointers_to(std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (std::string& s : texts) {
        check_text(s);
        result.push_back(s.data());
    }
    result.push_back(nullptr);
    return result;
}

std::vector<std::string> environment_texts(const process_options& options) {
    std::vector<std::string> result;
    for (const auto& [name, value] : *options.environment) {
        if (name.empty() || name.find('=') != std::string::npos)
            throw std::invalid_argument("process: \"" + name + "\" is no name of an environment variable");
        result.push_back(name + '=' + value);
    }
    return result;
}

// Replaces fd by a descriptor that is above 2 and is closed by an exec. Not inlined: it reads errno.
[[gnu::noinline]] int move_up(int fd, int& error) noexcept {
    if (fd > STDERR_FILENO) return fd;
    const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (moved < 0) error = errno;
    fs::close_number(fd);
    return moved;
}

// The child's end of a pipe, until the child has been started.
class child_end {
public:
    child_end() = default;
    ~child_end() { fs::close_number(fd_); }
    child_end(const child_end&) = delete;
    child_end& operator=(const child_end&) = delete;

    // Makes the pipe, and returns its other end, which does not block.
    byte_stream open(fs::pipe_side child_side, int& error) noexcept {
        int ends[2];
        error = fs::make_pipe(ends, O_CLOEXEC);
        if (error != 0) return {};
        const bool child_reads = child_side == fs::pipe_side::read;
        const int ours = ends[child_reads ? 1 : 0];
        fd_ = move_up(ends[child_reads ? 0 : 1], error);
        if (error == 0) error = set_nonblocking(ours);
        if (error != 0) {
            fs::close_number(ours);
            return {};
        }
        return fs::own_pipe_end(ours, fs::pipe_writer::of_another_process, error);
    }
    int fd() const noexcept { return fd_; }

private:
    // A pipe just made has no other flags.
    static int set_nonblocking(int fd) noexcept {
        return static_cast<int>(-platform::raw_syscall(SYS_fcntl, fd, F_SETFL, O_NONBLOCK));
    }

    int fd_ = -1;
};

// The arguments of posix_spawn. The calls that build them fail only for lack of memory.
class spawn_plan {
public:
    explicit spawn_plan(bool own_group) {
        need(posix_spawn_file_actions_init(&actions_));
        if (posix_spawnattr_init(&attributes_) != 0) {
            posix_spawn_file_actions_destroy(&actions_);
            throw std::bad_alloc();
        }
        sigset_t none, pipe_only;
        sigemptyset(&none);
        sigemptyset(&pipe_only);
        sigaddset(&pipe_only, SIGPIPE);
        posix_spawnattr_setsigmask(&attributes_, &none);
        posix_spawnattr_setsigdefault(&attributes_, &pipe_only);
        const int group = own_group ? POSIX_SPAWN_SETPGROUP : 0;
        posix_spawnattr_setpgroup(&attributes_, 0);
        posix_spawnattr_setflags(&attributes_,
            static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | group));
    }
    ~spawn_plan() {
        posix_spawnattr_destroy(&attributes_);
        posix_spawn_file_actions_destroy(&actions_);
    }
    spawn_plan(const spawn_plan&) = delete;
    spawn_plan& operator=(const spawn_plan&) = delete;

    void place(int target, process_stream how, const child_end& end) {
        if (how == process_stream::pipe) need(posix_spawn_file_actions_adddup2(&actions_, end.fd(), target));
        if (how == process_stream::null)
            need(posix_spawn_file_actions_addopen(&actions_, target, "/dev/null", O_RDWR, 0));
        if (how == process_stream::output && target == STDERR_FILENO)
            need(posix_spawn_file_actions_adddup2(&actions_, STDOUT_FILENO, target));
    }
    void finish(const std::string& directory) {
        if (!directory.empty()) need(posix_spawn_file_actions_addchdir_np(&actions_, directory.c_str()));
        // the program's own descriptors may lack O_CLOEXEC
        need(posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1));
    }
    // `on_machine`: the calling thread is one of the runtime's.
    int run(int& pid, char* const* arguments, char* const* environment, bool on_machine) const noexcept {
        const platform::ordinary_thread as_elsewhere(on_machine);
        return posix_spawnp(&pid, arguments[0], &actions_, &attributes_, arguments, environment);
    }

private:
    static void need(int error) {
        if (error != 0) throw std::bad_alloc();
    }
    posix_spawn_file_actions_t actions_;
    posix_spawnattr_t attributes_;
};

// A user of the watcher, until the child is watched.
class watching {
public:
    explicit watching(const std::string& what) {
        if (const int error = fs::begin_watching()) throw_error(what, error);
    }
    ~watching() {
        if (mine_) fs::end_watching();
    }
    watching(const watching&) = delete;
    watching& operator=(const watching&) = delete;
    void hand_over() noexcept { mine_ = false; }

private:
    bool mine_ = true;
};

}  // namespace

process::process(std::vector<std::string> command, const process_options& options) {
    start(std::move(command), options);
}

process::process(std::vector<std::string> command, const process_options& options, std::error_code& ec) {
    ec.clear();
    try {
        start(std::move(command), options);
        return;
    } catch (const io_error& e) {
        ec = e.code();
    } catch (const std::invalid_argument&) {
        ec = std::make_error_code(std::errc::invalid_argument);
    }
    for (byte_stream* s : {&input_, &output_, &error_}) s->close();
}

void process::start(std::vector<std::string> command, const process_options& options) {
    if (command.empty() || command[0].empty()) throw std::invalid_argument("process: an empty command");
    // Otherwise the stream would be inherited, and its data would go to the wrong place.
    if (options.input == process_stream::output || options.output == process_stream::output) {
        throw std::invalid_argument("process: process_stream::output is for the standard error only");
    }
    const std::vector<char*> arguments = pointers_to(command);
    std::vector<std::string> texts;
    std::vector<char*> variables;
    if (options.environment) {
        texts = environment_texts(options);
        variables = pointers_to(texts);
    }
    check_text(options.directory.native());
    const bool looks_like_a_line = command.size() == 1 && command[0].find(' ') != std::string::npos;
    std::string what = "start " + command[0];
    if (looks_like_a_line) what = "start \"" + command[0] + "\" (each argument is an element of its own)";
    if (!options.directory.empty()) what += " in " + options.directory.native();

    auto child = std::make_shared<state>();
    child->name = command[0];
    child->own_group = options.own_group;
    spawn_plan plan(options.own_group);
    child_end ends[3];
    const auto place = [&](int target, process_stream how, fs::pipe_side side, byte_stream& ours) {
        int error = 0;
        if (how == process_stream::pipe) ours = ends[target].open(side, error);
        if (error != 0) throw_error(what, error);
        plan.place(target, how, ends[target]);
    };
    place(STDIN_FILENO, options.input, fs::pipe_side::read, input_);
    place(STDOUT_FILENO, options.output, fs::pipe_side::write, output_);
    place(STDERR_FILENO, options.error, fs::pipe_side::write, error_);
    plan.finish(options.directory.native());

    // As a plain thread: the end of a run() stops a goroutine where it comes back from a call, and a child that has
    // been started must be watched all the same, or it would never be reaped.
    on_thread_stack([&, on_machine = sched::current_machine() != nullptr] {
        watching watched(what);
        char* const* environment = options.environment ? variables.data() : environ;
        int error = plan.run(child->pid, arguments.data(), environment, on_machine);
        if (error == 0) error = child->watch(child);
        if (error != 0) throw_error(what, error);
        watched.hand_over();
    });
    // From here on nothing may throw: the child runs.
    child->name_pipe(input_, "standard input of ");
    child->name_pipe(output_, "standard output of ");
    child->name_pipe(error_, "standard error of ");
    state_ = std::move(child);
}

void process::state::name_pipe(byte_stream& pipe, const char* what) const noexcept {
    try {
        detail::give_name(io_access::of(pipe), what + text());
    } catch (const std::bad_alloc&) {  // as in give_name()
    }
}

// ---- its end --------------------------------------------------------------------------------------------------------

// Makes the watcher, or a thread, wait for the child's end. After an error the child has been killed and reaped.
int process::state::watch(std::shared_ptr<state> self) noexcept {
    const bool may = fs::use_pidfd.load(std::memory_order_relaxed) && !platform::under_valgrind();
    const long fd = may ? platform::raw_syscall(SYS_pidfd_open, pid, 0) : -ENOSYS;
    pidfd = fd < 0 ? -1 : static_cast<int>(fd);
    myself = std::move(self);
    if (pidfd >= 0 && fs::watch_descriptor(pidfd, this) == 0) return 0;
    fs::close_number(std::exchange(pidfd, -1));
    const int error = start_waiting_thread();
    if (error == 0) return 0;
    platform::raw_syscall(SYS_kill, pid, SIGKILL);
    blocking([this] {
        while (platform::raw_syscall(SYS_wait4, pid, 0, 0, 0) == -EINTR) {
        }
    });
    myself.reset();
    return error;
}

int process::state::start_waiting_thread() noexcept {
    static constexpr platform::thread_kind wait_thread{
        [](void* s) { static_cast<state*>(s)->wait_for_end(); }, "dunlin-wait"};
    return platform::start_thread<wait_thread>(this);
}

void process::state::wait_for_end() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    tell_end();
}

// False: the child has ended, but a debugger that is attached to it holds its status back. Then the watch of `pidfd`
// has ended, and a thread must wait for the status: the watcher has other children, and signals.
bool process::state::may_fetch_status() noexcept {
    siginfo_t how{};
    const long result =
        platform::raw_syscall(SYS_waitid, P_PID, pid, platform::syscall_arg(&how), WEXITED | WNOWAIT | WNOHANG, 0);
    if (result < 0 || how.si_pid == pid) return true;
    std::scoped_lock guard(lock);
    fs::unwatch_descriptor(pidfd);
    return false;
}

// On the watcher's thread.
void process::state::happened() noexcept {
    if (!may_fetch_status() && start_waiting_thread() == 0) return;
    tell_end();
}

// Called by who will wait. A program that has closed all descriptors, with closefrom(3) say, would wait for ever: the
// kernel reports nothing of a closed one to the watcher, which may sleep already.
void process::state::check_watched() noexcept {
    park::runtime_section inside;
    std::scoped_lock guard(lock);
    if (!ended && pidfd >= 0 && platform::raw_syscall(SYS_fcntl, pidfd, F_GETFD) == -EBADF)
        fs::die_of_closed_descriptors();
}

void process::state::tell_end() noexcept {
    fetch_status();
    done.try_send(status);
    done.close();
    over.close();
    const std::shared_ptr<state> last = std::move(myself);
    fs::end_watching();
}

// On a plain thread.
void process::state::fetch_status() noexcept {
    // Waits first and then fetches the status, because the lock must not be held for long: a debugger may hold the
    // status back even after the child has ended.
    siginfo_t how{};
    while (platform::raw_syscall(SYS_waitid, P_PID, pid, platform::syscall_arg(&how), WEXITED | WNOWAIT, 0) == -EINTR) {
    }
    how = {};
    std::scoped_lock guard(lock);
    const long result =
        platform::raw_syscall(SYS_waitid, P_PID, pid, platform::syscall_arg(&how), WEXITED | WNOHANG, 0);
    ended = true;
    if (pidfd >= 0) fs::unwatch_descriptor(pidfd);
    fs::close_number(std::exchange(pidfd, -1));
    if (result < 0 || how.si_pid != pid) return;  // the program itself has fetched it
    if (how.si_code == CLD_EXITED) {
        status.code = how.si_status;
    } else {
        status.signal = how.si_status;
    }
}

// False without an error: the child has ended.
bool process::state::send_signal(target to, int signal, int& error) noexcept {
    park::runtime_section inside;
    std::scoped_lock guard(lock);
    error = 0;
    if (ended) return false;
    // The group has the child's number, which stays taken as long as the child has not been reaped.
    const bool one = to == target::child;
    const long result = one && pidfd >= 0 ? platform::raw_syscall(SYS_pidfd_send_signal, pidfd, signal, 0, 0)
                                          : platform::raw_syscall(SYS_kill, one ? pid : -pid, signal);
    if (result < 0 && result != -ESRCH) error = static_cast<int>(-result);
    return result == 0;
}

// ---- the handle -----------------------------------------------------------------------------------------------------

int process::id() const noexcept { return state_ != nullptr ? state_->pid : -1; }

exit_status process::wait() { return wait(context()); }
exit_status process::wait(std::error_code& ec) { return wait(context(), ec); }

exit_status process::wait(const context& ctx, std::error_code& ec) {
    ec = errc::closed;
    const std::shared_ptr<state> child = state_;
    if (child == nullptr) return {};
    child->check_watched();
    const detail::wait_limit limit{detail::wait_limit::never, detail::done_channel(ctx)};
    detail::element_slot<bool> nothing;
    const auto end = detail::channel_receive(detail::handle_access::core(child->over), &nothing.value,
        limit.done != nullptr ? &limit : nullptr, std::source_location::current());
    ec =
        end == detail::wait_outcome::cancelled ? std::error_code(detail::error_of_node(limit.done)) : std::error_code();
    return ec ? exit_status() : child->status;
}

exit_status process::wait(const context& ctx) {
    std::error_code ec;
    const exit_status status = wait(ctx, ec);
    if (ec == errc::closed) throw io_error(ec, "wait for a process that was never started");
    if (ec) throw context_cancelled(ec, "wait for " + state_->text());
    return status;
}

receiver<exit_status> process::done() {
    if (state_ == nullptr) return {};
    state_->check_watched();
    return state_->done;
}

bool process::kill(int signal, std::error_code& ec) {
    const std::shared_ptr<state> child = state_;
    int error = 0;
    const bool sent = child != nullptr && child->send_signal(state::target::child, signal, error);
    ec = io::system_error_code(error);
    return sent;
}

bool process::kill_group(int signal, std::error_code& ec) {
    const std::shared_ptr<state> child = state_;
    int error = 0;
    if (child != nullptr && !child->own_group) error = EINVAL;
    const bool sent = child != nullptr && error == 0 && child->send_signal(state::target::group, signal, error);
    ec = io::system_error_code(error);
    return sent;
}

bool process::kill_group(int signal) {
    if (state_ != nullptr && !state_->own_group) {
        throw std::logic_error("dunlin::process::kill_group: " + state_->text() +
            " is in this process's group: start it with process_options::own_group");
    }
    std::error_code ec;
    const bool sent = kill_group(signal, ec);
    if (ec) throw_error("send signal " + std::to_string(signal) + " to the group of " + state_->text(), ec.value());
    return sent;
}

bool process::kill(int signal) {
    std::error_code ec;
    const bool sent = kill(signal, ec);
    if (ec) throw_error("send signal " + std::to_string(signal) + " to " + state_->text(), ec.value());
    return sent;
}

// ---- run ------------------------------------------------------------------------------------------------------------

namespace {

// One goroutine moves all input and output as each becomes ready. So it never waits to write to a child that itself
// waits for its output to be read.
class conversation {
public:
    conversation(process& p, const_buffer input, process::result& into)
        : child_(p), input_(input), result_(into), room_(64 << 10) {}

    void hold(const context& ctx) {
        if (input_.size() == 0) child_.standard_input().close();
        bool cancelled = false, ended = false;
        while (!cancelled && !ended && (child_.standard_input() || has_output())) {
            std::vector<select_case> cases;
            cases.emplace_back(on_done(ctx, [&] { cancelled = true; }));
            if (child_.standard_input()) cases.emplace_back(on_writable(child_.standard_input(), [this] { give(); }));
            if (child_.standard_output())
                cases.emplace_back(
                    on_readable(child_.standard_output(), [this] { take(child_.standard_output(), result_.output); }));
            if (child_.standard_error())
                cases.emplace_back(
                    on_readable(child_.standard_error(), [this] { take(child_.standard_error(), result_.error); }));
            // A process that the child has left running may hold its input open, and never read it.
            if (!has_output())
                cases.emplace_back(on_recv(child_.done(), [&](std::optional<exit_status>) { ended = true; }));
            select(std::span<select_case>(cases));
        }
        // Thrown here: the child may have ended long ago, and only what it has started holds its streams open.
        if (cancelled) throw context_cancelled(ctx.err());
        child_.standard_input().close();
    }

private:
    bool has_output() { return child_.standard_output() || child_.standard_error(); }

    // A child may close its input before it has read all.
    void give() {
        byte_stream& to = child_.standard_input();
        std::error_code ec;
        const std::size_t n =
            to.write_some(const_buffer(static_cast<const char*>(input_.data()) + given_, input_.size() - given_), ec);
        given_ += n;
        if (ec && ec != std::errc::broken_pipe) detail::throw_io_error("write", io_access::of(to), ec, given_);
        if (ec || given_ == input_.size()) to.close();
    }
    void take(byte_stream& from, std::string& text) {
        const std::size_t n = from.read_some(mutable_buffer(room_));
        text.append(room_.data(), n);
        if (n == 0) from.close();
    }

    process& child_;
    const_buffer input_;
    std::size_t given_ = 0;
    process::result& result_;
    std::vector<char> room_;
};

}  // namespace

process::result process::run(std::vector<std::string> command, const_buffer input, const context& ctx) {
    return run(std::move(command), input, ctx, process_options());
}

process::result process::run(
    std::vector<std::string> command, const_buffer input, const context& ctx, const process_options& options) {
    const std::string name = command.empty() ? std::string() : command[0];
    result r;
    process_options with_pipes = options;
    with_pipes.input = with_pipes.output = with_pipes.error = process_stream::pipe;
    process child(std::move(command), with_pipes);
    const auto kill_all = [&](std::error_code& ec) {
        options.own_group ? child.kill_group(SIGKILL, ec) : child.kill(SIGKILL, ec);
    };
    try {
        conversation(child, input, r).hold(ctx);
        r.status = child.wait(ctx);
    } catch (const context_cancelled& e) {
        // A child that has become another user (sudo) may not be killed by us: it is left to end by itself.
        std::error_code refused;
        kill_all(refused);
        if (!refused) child.wait();
        throw context_cancelled(e.code(), "run " + name);
    } catch (...) {
        std::error_code ignored;
        kill_all(ignored);
        throw;
    }
    return r;
}

process::result process::run(
    std::vector<std::string> command, const_buffer input, const context& ctx, std::error_code& ec) {
    return run(std::move(command), input, ctx, process_options(), ec);
}

process::result process::run(std::vector<std::string> command, const_buffer input, const context& ctx,
    const process_options& options, std::error_code& ec) {
    ec.clear();
    try {
        return run(std::move(command), input, ctx, options);
    } catch (const std::system_error& e) {
        ec = e.code();
    } catch (const std::invalid_argument&) {
        ec = std::make_error_code(std::errc::invalid_argument);
    }
    return {};
}

}  // namespace dunlin
