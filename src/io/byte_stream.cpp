// byte_stream.cpp - reading and writing.
//
// Kinds      A call on a pollable descriptor is tried, and waits for an edge if there is nothing. Files on disks are
//            always "ready", and yet may take milliseconds: what is in the page cache is read at once (preadv2 with
//            RWF_NOWAIT, 0.95 us for 4 KiB where pread takes 0.79), the rest in blocking(), which hands the processor
//            on.
// Pipes      A write to a pipe without a reader raises SIGPIPE, and no flag prevents that: the signal is blocked for
//            the length of the call, and then taken back.
#include <algorithm>
#include <array>
#include <csignal>
#include <fcntl.h>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/stat.h>

#include <dunlin/blocking.hpp>
#include <dunlin/io.hpp>

#include "chan/limited_wait.h"
#include "io/cached_read.h"
#include "io/operation.h"
#include "io/system.h"

namespace dunlin::inline v0_1::detail {

namespace {

using io::direction;
using io::fd_guard;

// ---- files that cannot be polled ------------------------------------------------------------------------------------

long read_blocking(int fd, mutable_buffer b) {
    const long n = io::read_from_cache(fd, b.data(), b.size(), io::at_position);
    if (n != -EAGAIN) return n;
    return blocking([&] { return io::system_read(fd, b.data(), b.size()); });
}

// Performs a call on a file that cannot be polled; EINTR leads to another attempt.
template <class Attempt>
long perform_blocking(
    netpoll::fd_record* d, direction dir, const wait_limit* limit, std::error_code& ec, Attempt attempt) {
    for (;;) {
        if (!io::may_go_on(d, dir, limit, ec)) return -1;
        const long n = attempt(d->fd());
        if (n >= 0) return n;
        if (n == -EINTR) continue;
        ec = io::system_error_code(-n);
        return -1;
    }
}

// ---- pipes ----------------------------------------------------------------------------------------------------------

// Raw system calls: libc's functions use errno, which belongs to a thread, and a goroutine may change threads. The
// kernel's signal set is one word.
class without_sigpipe {
public:
    without_sigpipe() noexcept {
        platform::raw_syscall(SYS_rt_sigprocmask, SIG_BLOCK, platform::syscall_arg(&pipe_only),
            platform::syscall_arg(&before_), sizeof before_);
    }
    ~without_sigpipe() {
        if (!(before_ & pipe_only))
            platform::raw_syscall(SYS_rt_sigprocmask, SIG_SETMASK, platform::syscall_arg(&before_), 0, sizeof before_);
    }
    // Takes the pending SIGPIPE off this thread. If it was blocked before, it is the program's to take.
    void take_back() const noexcept {
        if (before_ & pipe_only) return;
        const timespec at_once{0, 0};
        platform::raw_syscall(
            SYS_rt_sigtimedwait, platform::syscall_arg(&pipe_only), 0, platform::syscall_arg(&at_once), sizeof before_);
    }

private:
    static constexpr std::uint64_t pipe_only = std::uint64_t{1} << (SIGPIPE - 1);
    std::uint64_t before_ = 0;
};

template <class Write>
long write_quietly(Write write) noexcept {
    const without_sigpipe quiet;
    const long n = write();
    if (n == -EPIPE) quiet.take_back();
    return n;
}

// ---- one attempt ----------------------------------------------------------------------------------------------------

long write_once(const netpoll::fd_record* d, int fd, const void* data, std::size_t size) {
    if (io::is_socket(d)) return io::system_send(fd, data, size);
    if (d->pollable()) return write_quietly([=] { return io::system_write(fd, data, size); });
    return blocking([=] { return write_quietly([=] { return io::system_write(fd, data, size); }); });
}

long writev_once(const netpoll::fd_record* d, int fd, const iovec* parts, int count) {
    if (io::is_socket(d)) {
        msghdr message{};
        message.msg_iov = const_cast<iovec*>(parts);
        message.msg_iovlen = static_cast<std::size_t>(count);
        return io::system_sendmsg(fd, &message);
    }
    if (d->pollable()) return write_quietly([=] { return io::system_writev(fd, parts, count); });
    return blocking([=] { return write_quietly([=] { return io::system_writev(fd, parts, count); }); });
}

long read_file_inside(netpoll::fd_record* d, mutable_buffer b, const wait_limit* limit, std::error_code& ec) {
    if (!cancelled_already(limit))
        return perform_blocking(d, direction::read, limit, ec, [b](int fd) { return read_blocking(fd, b); });
    // What is in memory can be read at once; the disk would mean a wait.
    const long n = perform_blocking(d, direction::read, limit, ec,
        [b](int fd) { return io::read_from_cache(fd, b.data(), b.size(), io::at_position); });
    if (n < 0 && ec == std::errc::resource_unavailable_try_again) io::may_wait(limit, ec);
    return n;
}

long read_inside(netpoll::fd_record* d, mutable_buffer b, const wait_limit* limit, const std::source_location& where,
    std::error_code& ec) {
    if (!d->pollable()) return read_file_inside(d, b, limit, ec);
    std::uint32_t seen;
    const long n = io::perform(
        d, direction::read, limit, where, ec, seen, [b](int fd) { return io::system_read(fd, b.data(), b.size()); });
    if (n > 0 && static_cast<std::size_t>(n) < b.size() && d->short_read_drains()) {
        d->note_drained(direction::read, seen);
    }
    return n;
}

template <class Attempt>
long write_inside(netpoll::fd_record* d, const wait_limit* limit, const std::source_location& where,
    std::error_code& ec, Attempt attempt) {
    if (!d->pollable()) return perform_blocking(d, direction::write, limit, ec, attempt);
    return io::perform(d, direction::write, limit, where, ec, attempt);
}

std::size_t advance(std::span<iovec> parts, std::size_t at, std::size_t n) noexcept {
    while (at < parts.size() && n >= parts[at].iov_len) n -= parts[at++].iov_len;
    if (at < parts.size()) {
        parts[at].iov_base = static_cast<char*>(parts[at].iov_base) + n;
        parts[at].iov_len -= n;
    }
    return at;
}

}  // namespace

// ---- the calls behind the headers -----------------------------------------------------------------------------------

std::size_t io_read(io_descriptor* d, mutable_buffer b, const wait_limit* limit, std::error_code& ec,
    const std::source_location& where) {
    const fd_guard mine(d, direction::read, limit, where, ec);
    if (!mine || b.size() == 0) return 0;
    const long n = read_inside(d, b, limit, where, ec);
    return n > 0 ? static_cast<std::size_t>(n) : 0;
}

std::size_t io_read_lent(io_descriptor* d, std::unique_ptr<char[]>& memory, std::size_t size, const wait_limit* limit,
    std::error_code& ec, const std::source_location& where) {
    const fd_guard mine(d, direction::read, limit, where, ec);
    if (!mine) return 0;
    std::uint32_t seen;
    const long n = io::perform(d, direction::read, limit, where, ec, seen, [&](int fd) {
        if (!memory) memory = std::make_unique_for_overwrite<char[]>(size);
        const long got = io::system_read(fd, memory.get(), size);
        if (got == -EAGAIN) memory.reset();
        return got;
    });
    if (n > 0 && static_cast<std::size_t>(n) < size && d->short_read_drains()) d->note_drained(direction::read, seen);
    return n > 0 ? static_cast<std::size_t>(n) : 0;
}

std::size_t io_read_exactly(io_descriptor* d, mutable_buffer b, const wait_limit* limit, std::error_code& ec,
    const std::source_location& where) {
    const fd_guard mine(d, direction::read, limit, where, ec);
    std::size_t done = 0;
    while (mine && done < b.size()) {
        const long n = read_inside(d, {static_cast<char*>(b.data()) + done, b.size() - done}, limit, where, ec);
        if (n < 0) break;
        if (n == 0) {
            ec = errc::end_of_file;
            break;
        }
        done += static_cast<std::size_t>(n);
    }
    return done;
}

std::size_t io_write(io_descriptor* d, const_buffer b, bool all, const wait_limit* limit, std::error_code& ec,
    const std::source_location& where) {
    const fd_guard mine(d, direction::write, limit, where, ec);
    std::size_t done = 0;
    while (mine && done < b.size()) {
        const char* data = static_cast<const char*>(b.data()) + done;
        const std::size_t size = b.size() - done;
        const long n = write_inside(d, limit, where, ec, [=](int fd) { return write_once(d, fd, data, size); });
        if (n == 0) ec = std::make_error_code(std::errc::io_error);  // some devices do this; it would never change
        if (n <= 0) break;
        done += static_cast<std::size_t>(n);
        if (!all) break;
    }
    return done;
}

std::size_t io_writev(io_descriptor* d, std::span<const const_buffer> parts, const wait_limit* limit,
    std::error_code& ec, const std::source_location& where) {
    const fd_guard mine(d, direction::write, limit, where, ec);
    std::size_t done = 0;
    std::array<iovec, 64> some;
    while (mine && !parts.empty() && !ec) {
        const std::size_t count = std::min(parts.size(), some.size());
        for (std::size_t i = 0; i < count; ++i) some[i] = {const_cast<void*>(parts[i].data()), parts[i].size()};
        parts = parts.subspan(count);
        // Skips empty parts: a write of nothing would return 0 for ever.
        for (std::size_t at = advance({some.data(), count}, 0, 0); at < count;) {
            const long n = write_inside(d, limit, where, ec,
                [&](int fd) { return writev_once(d, fd, &some[at], static_cast<int>(count - at)); });
            if (n == 0) ec = std::make_error_code(std::errc::io_error);
            if (n <= 0) break;
            done += static_cast<std::size_t>(n);
            at = advance({some.data(), count}, at, static_cast<std::size_t>(n));
        }
    }
    return done;
}

bool io_close(io_descriptor* d) noexcept { return d != nullptr && d->close(); }
void io_release(io_descriptor* d) noexcept {
    if (d != nullptr) d->release();
}
bool io_is_open(const io_descriptor* d) noexcept { return d != nullptr && !d->is_closed(); }
int io_native_handle(const io_descriptor* d) noexcept { return io_is_open(d) ? d->fd() : -1; }

namespace {

// The descriptor is in use while `call` runs, inside the runtime: no goroutine is lost with the use.
template <class Call>
void with_use(io_descriptor* d, std::error_code& ec, Call call) noexcept {
    ec.clear();
    bool last = false;
    {
        const park::runtime_section inside;
        if (d == nullptr || !d->use()) {
            ec = errc::closed;
            return;
        }
        call();
        last = d->count_use_ended();
    }
    if (last) d->close_now();
}

}  // namespace

void io_set_deadline(io_descriptor* d, io_direction which, std::int64_t deadline_ns, std::error_code& ec) noexcept {
    with_use(d, ec, [&] {
        if (!d->pollable()) {
            ec = errc::no_deadlines;
            return;
        }
        if (which != io_direction::write) d->set_deadline(direction::read, deadline_ns);
        if (which != io_direction::read) d->set_deadline(direction::write, deadline_ns);
    });
}

std::int64_t io_deadline(const io_descriptor* d, io_direction which) noexcept {
    if (d == nullptr) return wait_limit::never;
    const std::int64_t ns = d->deadline_ns(which == io_direction::write ? direction::write : direction::read);
    return ns == netpoll::no_deadline_ns ? wait_limit::never : ns;
}

void io_shorten_deadline(io_descriptor* d, io_direction which, std::int64_t deadline_ns, std::error_code& ec) noexcept {
    const direction dir = which == io_direction::write ? direction::write : direction::read;
    const bool is_sooner = d == nullptr || deadline_ns < d->deadline_ns(dir);
    if (is_sooner) return io_set_deadline(d, which, deadline_ns, ec);
    ec = d->is_closed() ? make_error_code(errc::closed) : std::error_code();
}

// ---- adopting -------------------------------------------------------------------------------------------------------

namespace {

io::kind socket_kind(int fd) noexcept {
    int type = 0, domain = 0;
    socklen_t size = sizeof type;
    getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size);
    size = sizeof domain;
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size);
    if (domain == AF_UNIX) return type == SOCK_STREAM ? io::kind::unix_stream : io::kind::unix_packet;
    return type == SOCK_STREAM ? io::kind::tcp : io::kind::udp;
}

// Neither SCTP, whose reads end at a message, nor a connection for which the kernel does TLS, whose reads end at a
// record.
bool is_plain_tcp(int fd) noexcept {
    int protocol = 0;
    socklen_t size = sizeof protocol;
    if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) != 0 || protocol != IPPROTO_TCP) return false;
    char above[16] = "";
    size = sizeof above;
    return getsockopt(fd, IPPROTO_TCP, TCP_ULP, above, &size) != 0 || size == 0 || above[0] == '\0';
}

io::kind kind_of_file(int fd, mode_t mode) noexcept {
    if (S_ISSOCK(mode)) return socket_kind(fd);
    if (S_ISFIFO(mode)) return io::kind::pipe;
    return S_ISREG(mode) ? io::kind::file : io::kind::other;
}

}  // namespace

// Not inlined: it reads errno.
[[gnu::noinline]] io_descriptor* io_adopt(int fd, std::error_code& ec) noexcept {
    ec.clear();
    struct stat what;
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fstat(fd, &what) != 0) {
        ec = io::system_error_code(errno);
        return nullptr;
    }
    const io::kind kind = kind_of_file(fd, what.st_mode);
    netpoll::fd_record* d = nullptr;
    int error = 0;
    if (S_ISREG(what.st_mode) || S_ISDIR(what.st_mode)) {
        d = netpoll::fd_record::open_blocking(fd);
        if (d == nullptr) error = ENOMEM;
    } else {
        if (!(flags & O_NONBLOCK)) fcntl(fd, F_SETFL, flags | O_NONBLOCK);
        d = netpoll::fd_record::open(fd, error);
        if ((d == nullptr || !d->pollable()) && !(flags & O_NONBLOCK)) fcntl(fd, F_SETFL, flags);
    }
    if (d == nullptr) {
        ec = io::system_error_code(error);
        return nullptr;
    }
    d->kind = static_cast<std::uint8_t>(kind);
    if (kind == io::kind::tcp && is_plain_tcp(fd)) d->set_short_reads_drain();
    return d;
}

}  // namespace dunlin::detail
