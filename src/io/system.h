// system.h - the system calls that move bytes. They return a count, or -errno, and leave errno itself alone.
//
// Under a sanitizer libc's functions are called instead, which the sanitizer knows: it checks the buffers, and that
// what is read was written before. Sockets of a simulation: poll/simulated.h.
#pragma once

#include <cerrno>
#include <cstddef>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "platform/syscall.h"
#include "poll/simulated.h"
#include "stack/sanitizer.h"

namespace dunlin::inline v0_1::io {

inline constexpr std::size_t most_at_once = std::size_t{1} << 30;
inline std::size_t at_most(std::size_t n) noexcept { return n < most_at_once ? n : most_at_once; }

// The address of errno must not be kept across a switch to another thread: so one function, never inlined, gets the
// address and reads errno.
template <class Call>
[[gnu::noinline]] long by_libc(Call call) noexcept {
    const long n = call();
    return n >= 0 ? n : -errno;
}

// Not inlined, since ordinary programs never come here.
[[gnu::noinline]] inline long simulated_receive(
    int fd, void* data, std::size_t size, bool whole, void* name, unsigned* name_size) noexcept {
    return netpoll::on_simulated(
        [&](netpoll::simulated_sockets& s) { return s.receive(fd, data, at_most(size), whole, name, name_size); });
}
[[gnu::noinline]] inline long simulated_send(
    int fd, const iovec* parts, std::size_t count, const void* name, unsigned name_size) noexcept {
    return netpoll::on_simulated(
        [&](netpoll::simulated_sockets& s) { return s.send(fd, parts, count, name, name_size); });
}
[[gnu::noinline]] inline long simulated_send(
    int fd, const void* data, std::size_t size, const void* name, unsigned name_size) noexcept {
    const iovec part{const_cast<void*>(data), at_most(size)};
    return simulated_send(fd, &part, 1, name, name_size);
}

inline long system_read(int fd, void* data, std::size_t size) noexcept {
    if (netpoll::is_simulated(fd)) [[unlikely]] return simulated_receive(fd, data, size, false, nullptr, nullptr);
    if constexpr (stack::sanitizing || stack::thread_sanitizing) {
        return by_libc([=] { return ::read(fd, data, at_most(size)); });
    } else {
        return platform::raw_syscall(SYS_read, fd, platform::syscall_arg(data), static_cast<long>(at_most(size)));
    }
}

inline long system_write(int fd, const void* data, std::size_t size) noexcept {
    if constexpr (stack::sanitizing || stack::thread_sanitizing) {
        return by_libc([=] { return ::write(fd, data, at_most(size)); });
    } else {
        return platform::raw_syscall(SYS_write, fd, platform::syscall_arg(data), static_cast<long>(at_most(size)));
    }
}

inline long system_send(int fd, const void* data, std::size_t size) noexcept {
    if (netpoll::is_simulated(fd)) [[unlikely]] return simulated_send(fd, data, size, nullptr, 0);
    if constexpr (stack::sanitizing || stack::thread_sanitizing) {
        return by_libc([=] { return ::send(fd, data, at_most(size), MSG_NOSIGNAL); });
    } else {
        return platform::raw_syscall(
            SYS_sendto, fd, platform::syscall_arg(data), static_cast<long>(at_most(size)), MSG_NOSIGNAL, 0, 0);
    }
}

inline long system_sendmsg(int fd, const msghdr* message) noexcept {
    if (netpoll::is_simulated(fd)) [[unlikely]]
        return simulated_send(fd, message->msg_iov, message->msg_iovlen, nullptr, 0);
    if constexpr (stack::sanitizing || stack::thread_sanitizing) {
        return by_libc([=] { return ::sendmsg(fd, message, MSG_NOSIGNAL); });
    } else {
        return platform::raw_syscall(SYS_sendmsg, fd, platform::syscall_arg(message), MSG_NOSIGNAL);
    }
}

inline long system_writev(int fd, const iovec* parts, int count) noexcept {
    if constexpr (stack::sanitizing || stack::thread_sanitizing) {
        return by_libc([=] { return ::writev(fd, parts, count); });
    } else {
        return platform::raw_syscall(SYS_writev, fd, platform::syscall_arg(parts), count);
    }
}

// New descriptors. Only ThreadSanitizer must be told of them: for each number it keeps what happened before its last
// write.
inline long system_socket(int family, int type) noexcept {
    if (netpoll::simulated_sockets* s = netpoll::simulated_here()) return s->socket(family, type);
    if constexpr (stack::thread_sanitizing) {
        return by_libc([=] { return static_cast<long>(::socket(family, type, 0)); });
    } else {
        return platform::raw_syscall(SYS_socket, family, type, 0);
    }
}

inline long system_accept(int fd, sockaddr_storage* peer, socklen_t* peer_size) noexcept {
    if (netpoll::is_simulated(fd)) [[unlikely]] {
        return netpoll::on_simulated([&](netpoll::simulated_sockets& s) { return s.accept(fd, peer, peer_size); });
    }
    if constexpr (stack::sanitizing || stack::thread_sanitizing) {
        return by_libc([=] {
            return static_cast<long>(
                ::accept4(fd, reinterpret_cast<sockaddr*>(peer), peer_size, SOCK_CLOEXEC | SOCK_NONBLOCK));
        });
    } else {
        return platform::raw_syscall(SYS_accept4, fd, platform::syscall_arg(peer), platform::syscall_arg(peer_size),
            SOCK_CLOEXEC | SOCK_NONBLOCK);
    }
}

inline long system_socketpair(int type, int* ends) noexcept {
    if (netpoll::simulated_sockets* s = netpoll::simulated_here()) return s->pair(ends);
    if constexpr (stack::thread_sanitizing) {
        return by_libc([=] { return static_cast<long>(::socketpair(AF_UNIX, type, 0, ends)); });
    } else {
        return platform::raw_syscall(SYS_socketpair, AF_UNIX, type, 0, platform::syscall_arg(ends));
    }
}

inline long system_recvfrom(
    int fd, void* data, std::size_t size, int flags, sockaddr_storage* name, socklen_t* name_size) noexcept {
    if (netpoll::is_simulated(fd)) [[unlikely]]
        return simulated_receive(fd, data, size, (flags & MSG_TRUNC) != 0, name, name_size);
    if constexpr (stack::sanitizing || stack::thread_sanitizing) {
        return by_libc(
            [=] { return ::recvfrom(fd, data, at_most(size), flags, reinterpret_cast<sockaddr*>(name), name_size); });
    } else {
        return platform::raw_syscall(SYS_recvfrom, fd, platform::syscall_arg(data), static_cast<long>(at_most(size)),
            flags, platform::syscall_arg(name), platform::syscall_arg(name_size));
    }
}

inline long system_sendto(int fd, const void* data, std::size_t size, const void* name, socklen_t name_size) noexcept {
    if (netpoll::is_simulated(fd)) [[unlikely]] return simulated_send(fd, data, size, name, name_size);
    if constexpr (stack::sanitizing || stack::thread_sanitizing) {
        return by_libc([=] {
            return ::sendto(fd, data, at_most(size), MSG_NOSIGNAL, static_cast<const sockaddr*>(name), name_size);
        });
    } else {
        return platform::raw_syscall(SYS_sendto, fd, platform::syscall_arg(data), static_cast<long>(at_most(size)),
            MSG_NOSIGNAL, platform::syscall_arg(name), name_size);
    }
}

// ---- names and options; none of them is on a hot path.

inline long system_bind(int fd, const void* name, unsigned size) noexcept {
    if (netpoll::is_simulated(fd))
        return netpoll::on_simulated([&](netpoll::simulated_sockets& s) { return s.bind(fd, name, size); });
    return platform::raw_syscall(SYS_bind, fd, platform::syscall_arg(name), size);
}

inline long system_listen(int fd, int backlog) noexcept {
    if (netpoll::is_simulated(fd))
        return netpoll::on_simulated([&](netpoll::simulated_sockets& s) { return s.listen(fd, backlog); });
    return platform::raw_syscall(SYS_listen, fd, backlog);
}

inline long system_connect(int fd, const void* name, unsigned size) noexcept {
    if (netpoll::is_simulated(fd))
        return netpoll::on_simulated([&](netpoll::simulated_sockets& s) { return s.connect(fd, name, size); });
    return platform::raw_syscall(SYS_connect, fd, platform::syscall_arg(name), size);
}

inline long system_shutdown(int fd, int how) noexcept {
    if (netpoll::is_simulated(fd))
        return netpoll::on_simulated([&](netpoll::simulated_sockets& s) { return s.shutdown(fd, how); });
    return platform::raw_syscall(SYS_shutdown, fd, how);
}

inline long system_get_option(int fd, int level, int name, int* value) noexcept {
    if (netpoll::is_simulated(fd))
        return netpoll::on_simulated(
            [&](netpoll::simulated_sockets& s) { return s.get_option(fd, level, name, value); });
    socklen_t size = sizeof *value;
    return platform::raw_syscall(
        SYS_getsockopt, fd, level, name, platform::syscall_arg(value), platform::syscall_arg(&size));
}

inline long system_set_option(int fd, int level, int name, const void* value, unsigned size) noexcept {
    if (netpoll::is_simulated(fd))
        return netpoll::on_simulated(
            [&](netpoll::simulated_sockets& s) { return s.set_option(fd, level, name, value, size); });
    return platform::raw_syscall(SYS_setsockopt, fd, level, name, platform::syscall_arg(value), size);
}

// The address of this end, or of the peer. Uses raw system calls, so errno is left alone.
inline long system_name(int fd, bool of_peer, sockaddr_storage* name, socklen_t* size) noexcept {
    if (netpoll::is_simulated(fd))
        return netpoll::on_simulated([&](netpoll::simulated_sockets& s) { return s.name_of(fd, of_peer, name, size); });
    return platform::raw_syscall(
        of_peer ? SYS_getpeername : SYS_getsockname, fd, platform::syscall_arg(name), platform::syscall_arg(size));
}

}  // namespace dunlin::io
