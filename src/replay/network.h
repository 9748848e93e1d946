// network.h - the network of a simulation for users: hosts, the links between them, and sockets (poll/simulated.h).
//
// Way        A socket is a record here, and a number. What a call sends becomes an event at a later virtual time, which
//            is drawn. Where the simulation decides (decide()), the events that are due are delivered, and wake
//            goroutines through edges, as the poller does. So the code of net and io above the system call runs as
//            always.
// Streams    The pieces of one direction form a queue (`wire`), and an event says only that the next piece arrives:
//            pieces never overtake each other, whatever happens to the events. A reset may overtake them.
// Links      A link joins two hosts. It is up, or cut since some time. What arrives over a cut link is held until the
//            link heals; datagrams are lost instead. A stream that is held gives up as TCP does (ETIMEDOUT).
// Off        A host that is switched off falls silent, or resets its connections: which one is drawn. When the host is
//            up again, it resets connections that it does not know.
// Threads    The thread that has the processor.
// Tests      tests/replay/network_test.cpp, tests/replay/host_test.cpp
#pragma once

#include <dunlin/net.hpp>
#include <dunlin/sim.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "poll/simulated.h"
#include "sched/data/event_source.h"

namespace dunlin::inline v0_1::replay {

class simulation;

using host_number = std::uint32_t;
inline constexpr host_number test_host = 0;  // where the function itself runs

struct host_record {
    std::string name;
    std::function<void()> main;
    bool up = false;
    std::uint16_t next_port = 0;
    std::int64_t skew_ns = 0;
};

class network final : public netpoll::simulated_sockets {
public:
    explicit network(simulation& s) noexcept : simulation_(s) {}

    // An execution begins: nothing is left of the one before. `failed_before`: that one failed; its goroutines have
    // stopped where they were, and what they use stays.
    void begin(bool failed_before);
    void configure(const sim::network_options& o) noexcept;

    // Throws std::bad_alloc.
    host_number add_host(std::string name, std::function<void()> main);
    host_record& host(host_number h) noexcept { return *world_->hosts[h]; }
    host_number host_count() const noexcept { return static_cast<host_number>(world_->hosts.size()); }
    // host_count(): there is none.
    host_number host_named(std::string_view name) const noexcept;
    std::string address_of(host_number h) const;
    // All that the host has is gone; its peers see a reset, or nothing. Called by a goroutine, outside the runtime.
    void switch_off(host_number h);

    void cut(host_number a, host_number b);
    void heal(host_number a, host_number b);
    void heal_all();

    // The time of the next event; 0: there is none.
    std::int64_t next_ns() const noexcept { return world_->events.empty() ? 0 : world_->events.front().at_ns; }
    // Called inside the runtime.
    void deliver_due(std::int64_t now_ns) noexcept;
    // How many waiters the sockets of this network have.
    std::int64_t waiters() const noexcept;

    long socket(int family, int type) noexcept override;
    long pair(int* ends) noexcept override;
    long bind(int fd, const void* name, unsigned size) noexcept override;
    long listen(int fd, int backlog) noexcept override;
    long connect(int fd, const void* name, unsigned size) noexcept override;
    long accept(int fd, void* name, unsigned* size) noexcept override;
    long receive(int fd, void* data, std::size_t size, bool whole, void* name, unsigned* name_size) noexcept override;
    long send(int fd, const iovec* parts, std::size_t count, const void* name, unsigned name_size) noexcept override;
    bool is_ready(int fd, bool for_write) noexcept override;
    long shutdown(int fd, int how) noexcept override;
    long get_option(int fd, int level, int name, int* value) noexcept override;
    long set_option(int fd, int level, int name, const void* value, unsigned size) noexcept override;
    long name_of(int fd, bool of_peer, void* name, unsigned* size) noexcept override;
    void add_fd(int fd, std::uint64_t tag) noexcept override;
    void close(int fd) noexcept override;
    std::uint32_t find_host(std::string_view name) noexcept override;

private:
    enum class stage : std::uint8_t { fresh, bound, listening, connecting, connected, broken };
    struct piece {
        std::string bytes;
        bool last = false;  // the end of the stream
    };
    struct datagram {
        std::string bytes;
        net::address from;
    };
    struct record {
        int family = 0, type = 0;
        host_number at = test_host, peer_at = test_host;
        stage is = stage::fresh;
        net::address local, remote;
        std::uint64_t tag = 0;            // of its descriptor; 0: none yet
        int error = 0;                    // reported once
        int peer = 0;                     // 0: none
        std::deque<piece> wire;           // on the way to this end
        std::string inbox;
        std::size_t read_of_inbox = 0;
        std::size_t under_way = 0;        // bytes sent that the peer has not read
        std::int64_t last_arrival_ns = 0;
        bool ended = false, no_writes = false, no_reads = false, wants_room = false, slow = false, gives_up = false;
        bool lingers_not = false;
        int keep_alive_s = 0;
        std::deque<int> backlog;
        std::size_t most_backlog = 0;
        std::deque<datagram> datagrams;
    };
    enum class happens : std::uint8_t {
        piece,
        reset,
        syn,
        accepted,
        refused,
        message,
        edge,
        no_answer,
        give_up,
        silent,
        heals
    };
    struct event {
        std::int64_t at_ns = 0;
        std::uint64_t order = 0;
        happens what = happens::edge;
        int to = 0, from = 0;
        host_number from_host = test_host, to_host = test_host;
        std::uint32_t bits = 0;           // edge
        net::address address;             // syn: dialled; message: the sender's
        net::address target;              // message
        std::string bytes;                // message
    };
    using pair_of_hosts = std::pair<host_number, host_number>;
    struct link {
        std::int64_t cut_since_ns = 0;    // 0: it is up
        std::vector<event> held;
    };
    using name_key = std::tuple<host_number, int, std::string>;
    struct world {
        std::map<int, record> sockets;
        std::map<name_key, int> names;
        std::map<pair_of_hosts, link> links;
        std::vector<event> events;        // a heap, the next event first
        std::uint64_t order = 0;
        std::vector<std::unique_ptr<host_record>> hosts;
        sim::network_options faults;      // odds of this execution
    };

    static bool later(const event& a, const event& b) noexcept {
        return std::tie(a.at_ns, a.order) > std::tie(b.at_ns, b.order);
    }
    static pair_of_hosts between(host_number a, host_number b) noexcept { return {a < b ? a : b, a < b ? b : a}; }
    static name_key key_of(host_number h, int type, const net::address& a);

    record* find(int fd) noexcept;
    bool may_read(const record& s) noexcept;
    bool may_write(record& s) noexcept;
    record& make(int& fd, int family, int type, host_number h);
    std::int64_t now() const noexcept;
    bool happens_now(double odds) noexcept;
    std::int64_t time_between(std::chrono::nanoseconds least, std::chrono::nanoseconds most) noexcept;
    std::int64_t travel_ns(bool slow) noexcept;
    void add(event e);
    void add_edge(int fd, std::uint32_t bits, std::int64_t in_ns = 0);
    event from_to(happens what, int from, const record& f, int to) const;
    void put_on_wire(int from_fd, record& from, piece p);
    void maybe_cut(host_number a, host_number b);
    const link* cut_between(host_number a, host_number b) const noexcept;
    host_number host_at(host_number from, const net::address& a) const noexcept;
    static void copy_name(const record& s, const net::address& a, void* name, unsigned* size) noexcept;
    static bool is_loopback(const net::address& a) noexcept;
    long bind_to(int fd, record& s, net::address a);
    long bind_any(int fd, record& s, const net::address& to);
    long send_message(int fd, record& s, std::string bytes, const void* name, unsigned size);
    void deliver(event& e, sched::event_batch& found);
    void deliver_piece(event& e, sched::event_batch& found);
    void deliver_syn(event& e, sched::event_batch& found);
    void deliver_message(event& e, sched::event_batch& found);
    void hold(link& l, event e);
    void give_up_if_held(event& e, sched::event_batch& found);
    void break_off(record& s, int error, sched::event_batch& found);
    static void tell(const record& s, std::uint32_t bits, sched::event_batch& found) noexcept;
    void forget_name(const record& s, int fd);
    void reset_peer(int fd, const record& s);
    void drop(int fd);
    void move_hands(record& reader, std::size_t n);

    simulation& simulation_;
    int next_fd_ = netpoll::first_simulated;
    std::unique_ptr<world> world_;
    std::vector<std::unique_ptr<world>> kept_;  // worlds of executions that failed
};

}  // namespace dunlin::replay
