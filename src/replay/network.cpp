// network.cpp - the calls on simulated sockets. What they cause: network_events.cpp.
#include "replay/network.h"

#include <algorithm>
#include <arpa/inet.h>
#include <bit>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <new>
#include <sys/socket.h>

#include "poll/backend.h"
#include "poll/fd_record.h"
#include "replay/simulation.h"
#include "sched/machines/handshake.h"

namespace dunlin::inline v0_1::replay {

namespace {

constexpr std::size_t window = 64 << 10;  // bytes that may be under way in one direction
constexpr std::size_t most_sockets = 60'000, largest_message = 65'507;
constexpr std::int64_t no_answer_ns = 127'000'000'000;  // a dial gives up after this, as on Linux
constexpr std::uint16_t first_port = 32'768;
constexpr std::uint32_t network_of_hosts = 10u << 24;  // 10.0.0.0; host h has this plus h + 1

std::uint32_t ipv4_of(const net::address& a) noexcept {
    sockaddr_in v4{};
    if (!a.is_ipv4()) return 0;
    std::memcpy(&v4, a.native(), std::min<std::size_t>(sizeof v4, a.native_size()));
    return ntohl(v4.sin_addr.s_addr);
}

net::address ipv4(std::uint32_t ip, std::uint16_t port) noexcept {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    v4.sin_addr.s_addr = htonl(ip);
    return net::address::from_native(&v4, sizeof v4);
}

std::uint32_t ip_of_host(host_number h) noexcept { return network_of_hosts + h + 1; }

// Without memory, returns what the kernel would.
template <class F>
long or_no_memory(F f) noexcept {
    try {
        return f();
    } catch (const std::bad_alloc&) {
        return -ENOBUFS;
    }
}

}  // namespace

// ---- what there is --------------------------------------------------------------------------------------------------

void network::begin(bool failed_before) {
    // a goroutine may have stopped in the middle of using it
    if (failed_before && world_ != nullptr) kept_.push_back(std::move(world_));
    world_ = std::make_unique<world>();
    sim::network_options calm;  // latencies, and nothing else
    calm.slow = calm.loss = calm.duplicates = calm.resets = calm.partitions = 0;
    calm.longest_skew = {};
    world_->faults = calm;
    add_host("test", {});
    host(test_host).up = true;
}

// One fault may hide another: each kind happens in half of the executions only.
void network::configure(const sim::network_options& o) noexcept {
    sim::network_options& f = world_->faults;
    f = o;
    for (double* odds : {&f.slow, &f.loss, &f.duplicates, &f.resets, &f.partitions}) {
        if (!simulation_.tries_every_order() && *odds > 0 && *odds < 1 && simulation_.drawn(2) == 0) *odds = 0;
    }
}

host_number network::add_host(std::string name, std::function<void()> main) {
    auto h = std::make_unique<host_record>();
    h->name = std::move(name);
    h->main = std::move(main);
    h->next_port = first_port;
    const auto most = world_->faults.longest_skew.count();
    if (most > 0)
        h->skew_ns = static_cast<std::int64_t>(simulation_.drawn(2 * static_cast<std::uint64_t>(most) + 1)) - most;
    world_->hosts.push_back(std::move(h));
    return host_count() - 1;
}

host_number network::host_named(std::string_view name) const noexcept {
    host_number h = 0;
    while (h < host_count() && world_->hosts[h]->name != name) ++h;
    return h;
}

std::string network::address_of(host_number h) const { return ipv4(ip_of_host(h), 0).host(); }

std::uint32_t network::find_host(std::string_view name) noexcept {
    const host_number h = host_named(name);
    return h < host_count() ? htonl(ip_of_host(h)) : 0;
}

// host_count(): there is none.
host_number network::host_at(host_number from, const net::address& a) const noexcept {
    if (a.is_unix()) return from;
    const std::uint32_t ip = ipv4_of(a);
    if (ip == 0 || is_loopback(a)) return from;
    return std::min(ip - network_of_hosts - 1, host_count());
}

bool network::is_loopback(const net::address& a) noexcept { return a.is_unix() || ipv4_of(a) >> 24 == 127; }

network::name_key network::key_of(host_number h, int type, const net::address& a) {
    return {h, type, a.is_unix() ? a.to_string() : ':' + std::to_string(a.port())};
}

network::record* network::find(int fd) noexcept {
    const auto at = world_->sockets.find(fd);
    return at != world_->sockets.end() ? &at->second : nullptr;
}

// A number is not used again before all others have been.
network::record& network::make(int& fd, int family, int type, host_number h) {
    fd = next_fd_;
    next_fd_ = next_fd_ == INT32_MAX ? netpoll::first_simulated : next_fd_ + 1;
    record& s = world_->sockets[fd];
    s.family = family;
    s.type = type;
    s.at = s.peer_at = h;
    return s;
}

std::int64_t network::now() const noexcept { return simulation_.virtual_now_ns(); }

bool network::happens_now(double odds) noexcept { return simulation_.happens(odds); }

// Every order of magnitude is equally likely.
std::int64_t network::time_between(std::chrono::nanoseconds least, std::chrono::nanoseconds most) noexcept {
    const std::int64_t low = std::max<std::int64_t>(least.count(), 1000);
    if (most.count() <= low) return low;
    const auto magnitudes = static_cast<std::uint64_t>(std::bit_width(static_cast<std::uint64_t>(most.count() / low)));
    const auto base = static_cast<std::uint64_t>(low) << simulation_.drawn(magnitudes);
    return std::min<std::int64_t>(most.count(), static_cast<std::int64_t>(base + simulation_.drawn(base)));
}

std::int64_t network::travel_ns(bool slow) noexcept {
    const sim::network_options& f = world_->faults;
    return slow ? time_between(f.most_latency, f.slow_latency) : time_between(f.least_latency, f.most_latency);
}

void network::add(event e) {
    e.order = ++world_->order;
    world_->events.push_back(std::move(e));
    std::push_heap(world_->events.begin(), world_->events.end(), later);
}

void network::add_edge(int fd, std::uint32_t bits, std::int64_t in_ns) {
    event e;
    e.at_ns = now() + in_ns;
    e.to = fd;
    e.bits = bits;
    add(std::move(e));
}

network::event network::from_to(happens what, int from, const record& f, int to) const {
    event e;
    e.at_ns = now();
    e.what = what;
    e.from = from;
    e.to = to;
    e.from_host = f.at;
    e.to_host = f.peer_at;
    return e;
}

// ---- names ----------------------------------------------------------------------------------------------------------

long network::socket(int family, int type) noexcept {
    if (family != AF_INET && family != AF_UNIX) return -EAFNOSUPPORT;
    return or_no_memory([&]() -> long {
        if (world_->sockets.size() >= most_sockets) return -EMFILE;
        int fd = 0;
        make(fd, family, type & 0xf, simulation_.current_host());
        return fd;
    });
}

long network::pair(int* ends) noexcept {
    return or_no_memory([&]() -> long {
        const host_number h = simulation_.current_host();
        record& first = make(ends[0], AF_UNIX, SOCK_STREAM, h);
        record& second = make(ends[1], AF_UNIX, SOCK_STREAM, h);
        first.is = second.is = stage::connected;
        first.peer = ends[1];
        second.peer = ends[0];
        return 0;
    });
}

long network::bind_to(int fd, record& s, net::address a) {
    if (!a.is_unix() && a.port() == 0) {
        host_record& h = host(s.at);
        std::uint16_t tried = 0;
        do {
            if (++tried == 0) return -EADDRINUSE;
            if (h.next_port < first_port) h.next_port = first_port;
            a = ipv4(ipv4_of(a), h.next_port++);
        } while (world_->names.contains(key_of(s.at, s.type, a)));
    }
    if (!world_->names.try_emplace(key_of(s.at, s.type, a), fd).second) return -EADDRINUSE;
    s.local = a;
    s.is = stage::bound;
    return 0;
}

long network::bind(int fd, const void* name, unsigned size) noexcept {
    return or_no_memory([&]() -> long {
        record* s = find(fd);
        if (s == nullptr) return -EBADF;
        if (s->is != stage::fresh) return -EINVAL;
        const net::address a = net::address::from_native(name, size);
        if (a.is_unix() != (s->family == AF_UNIX)) return -EINVAL;
        if (!a.is_unix() && !a.is_ipv4()) return -EAFNOSUPPORT;
        if (host_at(s->at, a) != s->at) return -EADDRNOTAVAIL;
        return bind_to(fd, *s, a);
    });
}

// Gives s a port of its own, if it has none, and the address that `to` sees.
long network::bind_any(int fd, record& s, const net::address& to) {
    if (s.family == AF_UNIX) return 0;
    const std::uint32_t ip = is_loopback(to) ? INADDR_LOOPBACK : ip_of_host(s.at);
    if (s.is != stage::bound) return bind_to(fd, s, ipv4(ip, 0));
    if (ipv4_of(s.local) == 0) s.local = ipv4(ip, s.local.port());
    return 0;
}

void network::forget_name(const record& s, int fd) {
    if (s.local.native_size() == 0) return;
    const auto at = world_->names.find(key_of(s.at, s.type, s.local));
    if (at != world_->names.end() && at->second == fd) world_->names.erase(at);
}

long network::listen(int fd, int backlog) noexcept {
    record* s = find(fd);
    if (s == nullptr) return -EBADF;
    if (s->is != stage::bound || s->type != SOCK_STREAM) return -EINVAL;
    s->is = stage::listening;
    s->most_backlog = static_cast<std::size_t>(std::max(backlog, 1));
    return 0;
}

long network::connect(int fd, const void* name, unsigned size) noexcept {
    sched::pass_point();
    return or_no_memory([&]() -> long {
        record* s = find(fd);
        if (s == nullptr) return -EBADF;
        if (s->is == stage::connected && s->type == SOCK_STREAM) return -EISCONN;
        if (s->is == stage::connecting) return -EALREADY;
        const net::address to = net::address::from_native(name, size);
        if (to.is_unix() != (s->family == AF_UNIX)) return -EINVAL;
        const host_number h = host_at(s->at, to);
        if (h >= host_count()) return -ENETUNREACH;
        if (const long error = bind_any(fd, *s, to)) return error;
        s->remote = to;
        s->peer_at = h;
        if (s->type == SOCK_DGRAM) {
            s->is = stage::connected;
            return 0;
        }
        s->is = stage::connecting;
        s->slow = happens_now(world_->faults.slow);
        maybe_cut(s->at, h);
        event e = from_to(happens::syn, fd, *s, 0);
        e.at_ns += travel_ns(s->slow);
        e.address = to;
        add(std::move(e));
        event late = from_to(happens::no_answer, fd, *s, fd);
        late.at_ns += no_answer_ns;
        add(std::move(late));
        return -EINPROGRESS;
    });
}

// A socket without a name still reports its family.
void network::copy_name(const record& s, const net::address& a, void* name, unsigned* size) noexcept {
    sockaddr_storage text{};
    text.ss_family = static_cast<sa_family_t>(s.family);
    unsigned length = s.family == AF_UNIX ? sizeof(sa_family_t) : sizeof(sockaddr_in);
    if (a.native_size() != 0) {
        length = a.native_size();
        std::memcpy(&text, a.native(), length);
    }
    std::memcpy(name, &text, std::min<std::size_t>(*size, length));
    *size = length;
}

long network::accept(int fd, void* name, unsigned* size) noexcept {
    sched::pass_point();
    record* s = find(fd);
    if (s == nullptr) return -EBADF;
    if (s->is != stage::listening) return -EINVAL;
    while (!s->backlog.empty()) {
        const int accepted = s->backlog.front();
        s->backlog.pop_front();
        const record* a = find(accepted);
        if (a == nullptr) continue;
        copy_name(*a, a->remote, name, size);
        return accepted;
    }
    return -EAGAIN;
}

long network::name_of(int fd, bool of_peer, void* name, unsigned* size) noexcept {
    const record* s = find(fd);
    if (s == nullptr) return -EBADF;
    if (of_peer && s->is != stage::connected) return s->is == stage::broken ? -EINVAL : -ENOTCONN;
    copy_name(*s, of_peer ? s->remote : s->local, name, size);
    return 0;
}

// ---- options --------------------------------------------------------------------------------------------------------

long network::get_option(int fd, int level, int name, int* value) noexcept {
    record* s = find(fd);
    if (s == nullptr) return -EBADF;
    if (level != SOL_SOCKET) return -ENOPROTOOPT;
    if (name == SO_ERROR) {
        *value = std::exchange(s->error, 0);
    } else if (name == SO_TYPE) {
        *value = s->type;
    } else {
        return -ENOPROTOOPT;
    }
    return 0;
}

// Options for buffers, broadcasts and Nagle's algorithm make no difference here.
long network::set_option(int fd, int level, int name, const void* value, unsigned size) noexcept {
    record* s = find(fd);
    if (s == nullptr) return -EBADF;
    int number = 0;
    std::memcpy(&number, value, std::min<std::size_t>(size, sizeof number));
    if (level == SOL_SOCKET && name == SO_REUSEPORT) return -ENOPROTOOPT;  // one socket for each port
    if (level == SOL_SOCKET && name == SO_KEEPALIVE && number == 0) s->keep_alive_s = 0;
    if (level == IPPROTO_TCP && name == TCP_KEEPIDLE) s->keep_alive_s = number;
    if (level == SOL_SOCKET && name == SO_LINGER && size == sizeof(linger)) {
        linger how;
        std::memcpy(&how, value, sizeof how);
        s->lingers_not = how.l_onoff != 0 && how.l_linger == 0;
    }
    return 0;
}

void network::add_fd(int fd, std::uint64_t tag) noexcept {
    record* s = find(fd);
    if (s == nullptr) return;
    s->tag = tag;
    // What came earlier is reported now, the end of the stream included.
    std::uint32_t bits = netpoll::readable | netpoll::writable;
    if (s->ended || s->is == stage::broken) bits |= netpoll::peer_closed;
    or_no_memory([&]() -> long { return add_edge(fd, bits), 0; });
}

// ---- bytes ----------------------------------------------------------------------------------------------------------

// Sends what the peer sees, in order.
void network::put_on_wire(int from_fd, record& from, piece p) {
    record* to = find(from.peer);
    event e = from_to(happens::piece, from_fd, from, from.peer);
    e.at_ns += travel_ns(from.slow);
    if (to != nullptr) {
        e.at_ns = to->last_arrival_ns = std::max(e.at_ns, to->last_arrival_ns);
        to->wire.push_back(std::move(p));
    }
    add(std::move(e));
}

void network::reset_peer(int fd, const record& s) {
    event e = from_to(happens::reset, fd, s, s.peer);
    e.at_ns += travel_ns(s.slow);
    // Not before the peer has learnt that it is connected.
    if (const record* to = find(s.peer); to != nullptr && to->is == stage::connecting)
        e.at_ns = std::max(e.at_ns, to->last_arrival_ns);
    add(std::move(e));
}

// The reader has taken n bytes: its peer has room again.
void network::move_hands(record& reader, std::size_t n) {
    record* writer = find(reader.peer);
    if (writer == nullptr) return;
    writer->under_way -= std::min(n, writer->under_way);
    if (std::exchange(writer->wants_room, false)) add_edge(reader.peer, netpoll::writable, travel_ns(reader.slow));
}

long network::receive(int fd, void* data, std::size_t size, bool whole, void* name, unsigned* name_size) noexcept {
    sched::pass_point();
    return or_no_memory([&]() -> long {
        record* s = find(fd);
        if (s == nullptr) return -EBADF;
        if (const int error = std::exchange(s->error, 0)) return -error;
        if (s->type == SOCK_DGRAM) {
            if (s->datagrams.empty()) return s->no_reads ? 0 : -EAGAIN;
            const datagram d = std::move(s->datagrams.front());
            s->datagrams.pop_front();
            std::memcpy(data, d.bytes.data(), std::min(size, d.bytes.size()));
            if (name != nullptr) {
                *name_size = std::min(*name_size, d.from.native_size());
                std::memcpy(name, d.from.native(), *name_size);
            }
            return static_cast<long>(whole ? d.bytes.size() : std::min(size, d.bytes.size()));
        }
        if (s->is == stage::fresh || s->is == stage::bound || s->is == stage::listening) return -ENOTCONN;
        const std::size_t there = s->inbox.size() - s->read_of_inbox;
        if (there == 0) return s->ended || s->no_reads || s->is == stage::broken ? 0 : -EAGAIN;
        const std::size_t n = std::min(size, there);
        std::memcpy(data, s->inbox.data() + s->read_of_inbox, n);
        s->read_of_inbox += n;
        if (s->read_of_inbox == s->inbox.size()) {
            s->inbox.clear();
            s->read_of_inbox = 0;
        }
        move_hands(*s, n);
        return static_cast<long>(n);
    });
}

long network::send(int fd, const iovec* parts, std::size_t count, const void* name, unsigned name_size) noexcept {
    sched::pass_point();
    return or_no_memory([&]() -> long {
        record* s = find(fd);
        if (s == nullptr) return -EBADF;
        if (const int error = std::exchange(s->error, 0)) return -error;
        if (s->no_writes || s->is == stage::broken) return -EPIPE;
        const bool stream = s->type == SOCK_STREAM;
        if (stream && s->is != stage::connected) return s->is == stage::connecting ? -EAGAIN : -ENOTCONN;
        const std::size_t room = stream ? window - s->under_way : SIZE_MAX;
        if (room == 0) {
            s->wants_room = true;
            return -EAGAIN;
        }
        std::string bytes;
        for (std::size_t i = 0; i < count && bytes.size() < room; ++i) {
            bytes.append(static_cast<const char*>(parts[i].iov_base), std::min(parts[i].iov_len, room - bytes.size()));
        }
        if (!stream) return send_message(fd, *s, std::move(bytes), name, name_size);
        const std::size_t n = bytes.size();
        if (n == 0) return 0;
        maybe_cut(s->at, s->peer_at);
        if (happens_now(world_->faults.resets)) {  // by something in between: both ends learn of it
            reset_peer(fd, *s);
            event e = from_to(happens::reset, s->peer, *s, fd);
            e.to_host = e.from_host;
            e.at_ns += travel_ns(s->slow);
            add(std::move(e));
            return static_cast<long>(n);
        }
        // A stream has no boundaries: what one call has written may arrive in parts.
        const std::size_t first = n > 1 && simulation_.happens(0.25, 4) ? 1 + simulation_.drawn(n - 1) : n;
        s->under_way += n;
        put_on_wire(fd, *s, {bytes.substr(0, first)});
        if (first != n) put_on_wire(fd, *s, {bytes.substr(first)});
        return static_cast<long>(n);
    });
}

long network::send_message(int fd, record& s, std::string bytes, const void* name, unsigned size) {
    if (bytes.size() > largest_message) return -EMSGSIZE;
    const net::address to = name != nullptr ? net::address::from_native(name, size) : s.remote;
    if (to.native_size() == 0) return -EDESTADDRREQ;
    if (to.is_unix() != (s.family == AF_UNIX)) return -EINVAL;
    const host_number h = host_at(s.at, to);
    if (h >= host_count()) return -ENETUNREACH;
    if (s.family == AF_INET && s.local.native_size() == 0) {
        if (const long error = bind_any(fd, s, to)) return error;
    }
    maybe_cut(s.at, h);
    const long n = static_cast<long>(bytes.size());
    if (happens_now(world_->faults.loss)) return n;
    event e = from_to(happens::message, fd, s, 0);
    e.to_host = h;
    e.address = s.local;
    if (s.family == AF_INET && ipv4_of(s.local) == 0)
        e.address = ipv4(is_loopback(to) ? INADDR_LOOPBACK : ip_of_host(s.at), s.local.port());
    e.target = to;
    e.bytes = std::move(bytes);
    if (happens_now(world_->faults.duplicates)) {
        event twin = e;
        twin.at_ns += travel_ns(false);
        add(std::move(twin));
    }
    e.at_ns += travel_ns(happens_now(world_->faults.slow));
    add(std::move(e));
    return n;
}

// ---- readiness ------------------------------------------------------------------------------------------------------

bool network::may_read(const record& s) noexcept {
    if (s.error != 0) return true;
    if (s.type == SOCK_DGRAM) return !s.datagrams.empty() || s.no_reads;
    if (s.is == stage::listening)
        return std::any_of(s.backlog.begin(), s.backlog.end(), [this](int fd) { return find(fd) != nullptr; });
    if (s.is == stage::fresh || s.is == stage::bound) return true;  // an error
    return s.inbox.size() != s.read_of_inbox || s.ended || s.no_reads || s.is == stage::broken;
}

bool network::may_write(record& s) noexcept {
    if (s.error != 0 || s.no_writes || s.is == stage::broken || s.type != SOCK_STREAM) return true;
    if (s.is != stage::connected) return s.is != stage::connecting;
    if (s.under_way != window) return true;
    s.wants_room = true;
    return false;
}

// Makes no decision: select() calls it where nothing may stop the goroutine.
bool network::is_ready(int fd, bool for_write) noexcept {
    record* s = find(fd);
    return s == nullptr || (for_write ? may_write(*s) : may_read(*s));
}

// ---- the end --------------------------------------------------------------------------------------------------------

long network::shutdown(int fd, int how) noexcept {
    return or_no_memory([&]() -> long {
        record* s = find(fd);
        if (s == nullptr) return -EBADF;
        if (s->type != SOCK_STREAM || s->is != stage::connected) return -ENOTCONN;
        if (how != SHUT_RD && !std::exchange(s->no_writes, true)) put_on_wire(fd, *s, {{}, true});
        if (how != SHUT_WR) {
            s->no_reads = true;
            add_edge(fd, netpoll::readable | netpoll::peer_closed);
        }
        return 0;
    });
}

void network::close(int fd) noexcept {
    or_no_memory([&]() -> long {
        record* s = find(fd);
        if (s == nullptr) return 0;  // of a host that is off, or of an earlier execution
        if (s->type == SOCK_STREAM && s->is == stage::connected) {
            // Bytes that will never be read: the peer learns of that by a reset, as from the kernel.
            if (s->lingers_not || s->read_of_inbox != s->inbox.size()) {
                reset_peer(fd, *s);
            } else if (!s->no_writes) {
                put_on_wire(fd, *s, {{}, true});
            }
        }
        for (const int waiting : s->backlog) {
            if (const record* b = find(waiting)) reset_peer(waiting, *b);
            drop(waiting);
        }
        drop(fd);
        return 0;
    });
}

void network::drop(int fd) {
    const auto at = world_->sockets.find(fd);
    if (at == world_->sockets.end()) return;
    forget_name(at->second, fd);
    world_->sockets.erase(at);
}

void network::switch_off(host_number h) {
    host(h).up = false;
    const bool resets = simulation_.draw(2) == 0;  // both are tried, if every order is
    std::vector<int> all;
    std::vector<std::uint64_t> tags;
    for (auto& [fd, s] : world_->sockets) {
        if (s.at == h) {
            all.push_back(fd);
            if (s.tag != 0) tags.push_back(s.tag);
            if (resets && s.is == stage::connected && s.type == SOCK_STREAM) reset_peer(fd, s);
        } else if (!resets && s.peer_at == h && s.type == SOCK_STREAM && s.is == stage::connected &&
                   s.keep_alive_s > 0) {
            event e = from_to(happens::silent, fd, s, fd);
            e.at_ns += std::int64_t{s.keep_alive_s} * 10 * 1'000'000'000;
            add(std::move(e));
        }
    }
    for (const int fd : all) drop(fd);
    const park::runtime_section inside;
    for (const std::uint64_t tag : tags) netpoll::fd_record::of_tag(tag)->close_under_owner();
}

}  // namespace dunlin::replay
