// simulated.h - the sockets of a user's simulation (src/replay/network.h), which have no descriptor in the kernel.
//
// Problem    The code of net/ runs unchanged in a simulation, where it must not ask the kernel.
// Way        Their numbers begin where the kernel has none (fs.nr_open is a million, as a rule). A call on a descriptor
//            compares its number once, next to the system call that it may save; a function that makes a socket asks
//            simulated_here().
// Tests      tests/replay/network_test.cpp
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <sys/uio.h>

#include <dunlin/detail/atomic.hpp>

#include "sched/data/steering.h"

namespace dunlin::inline v0_1::netpoll {

inline constexpr int first_simulated = 1 << 30;
inline bool is_simulated(int fd) noexcept { return fd >= first_simulated; }

// These do what the system calls of these names do, for a goroutine of the simulation. They return the same, or -errno.
struct simulated_sockets {
    virtual long socket(int family, int type) noexcept = 0;
    virtual long pair(int* ends) noexcept = 0;
    virtual long bind(int fd, const void* name, unsigned size) noexcept = 0;
    virtual long listen(int fd, int backlog) noexcept = 0;
    virtual long connect(int fd, const void* name, unsigned size) noexcept = 0;
    virtual long accept(int fd, void* name, unsigned* size) noexcept = 0;
    // `name`: null, or a sockaddr_storage that receives the sender's address; `whole`: MSG_TRUNC.
    virtual long receive(
        int fd, void* data, std::size_t size, bool whole, void* name, unsigned* name_size) noexcept = 0;
    virtual long send(int fd, const iovec* parts, std::size_t count, const void* name, unsigned name_size) noexcept = 0;
    // Would accept() or receive(), or send(), return anything but -EAGAIN? If not, an edge comes when it would.
    virtual bool is_ready(int fd, bool for_write) noexcept = 0;
    virtual long shutdown(int fd, int how) noexcept = 0;
    virtual long get_option(int fd, int level, int name, int* value) noexcept = 0;
    virtual long set_option(int fd, int level, int name, const void* value, unsigned size) noexcept = 0;
    virtual long name_of(int fd, bool of_peer, void* name, unsigned* size) noexcept = 0;
    virtual void add_fd(int fd, std::uint64_t tag) noexcept = 0;
    virtual void close(int fd) noexcept = 0;
    // An IPv4 address in network byte order; 0: no host has this name.
    virtual std::uint32_t find_host(std::string_view name) noexcept = 0;

protected:
    ~simulated_sockets() = default;
};

// Null: there is no simulation. Release and acquire publish the object.
DUNLIN_HIDDEN extern platform::atomic<simulated_sockets*> the_simulated_sockets;

// Null: the caller is not in a simulation, and uses the kernel's sockets.
simulated_sockets* simulated_here() noexcept;

// For a number that is_simulated(). Returns f(sockets), or -EBADF when the simulation is over.
template <class F>
long on_simulated(F f) noexcept {
    simulated_sockets* s = simulated_here();
    return s != nullptr ? f(*s) : -EBADF;
}

}  // namespace dunlin::netpoll
