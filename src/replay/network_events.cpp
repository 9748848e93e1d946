// network_events.cpp - what arrives, and how links are cut and healed.
#include <algorithm>
#include <cerrno>
#include <new>
#include <sys/socket.h>

#include "poll/backend.h"
#include "poll/fd_record.h"
#include "replay/network.h"
#include "replay/simulation.h"

namespace dunlin::inline v0_1::replay {

namespace {

using netpoll::peer_closed;
using netpoll::readable;
using netpoll::writable;

constexpr std::int64_t give_up_ns = 924'000'000'000;         // how long a piece is resent, as on Linux
constexpr std::int64_t backlog_again_ns = 1'000'000'000;     // a dial that finds the backlog full is resent after this
constexpr std::size_t most_datagrams = 256;

}  // namespace

// ---- links ----------------------------------------------------------------------------------------------------------

const network::link* network::cut_between(host_number a, host_number b) const noexcept {
    if (a == b) return nullptr;
    const auto at = world_->links.find(between(a, b));
    return at != world_->links.end() && at->second.cut_since_ns != 0 ? &at->second : nullptr;
}

void network::cut(host_number a, host_number b) {
    if (a == b || cut_between(a, b) != nullptr) return;
    world_->links[between(a, b)].cut_since_ns = now();
    for (auto& [fd, s] : world_->sockets) {
        if (s.type != SOCK_STREAM || s.is != stage::connected || s.keep_alive_s == 0 ||
            between(s.at, s.peer_at) != between(a, b))
            continue;
        event e = from_to(happens::silent, fd, s, fd);
        e.at_ns += std::int64_t{s.keep_alive_s} * 10 * 1'000'000'000;
        add(std::move(e));
    }
}

void network::heal(host_number a, host_number b) {
    const auto at = world_->links.find(between(a, b));
    if (at == world_->links.end()) return;
    at->second.cut_since_ns = 0;
    const std::vector<event> held = std::exchange(at->second.held, {});
    const std::int64_t again_ns = now() + travel_ns(false);
    for (event e : held) {
        e.at_ns = again_ns;
        add(std::move(e));
    }
}

void network::heal_all() {
    for (auto& [hosts, l] : world_->links) {
        if (l.cut_since_ns != 0) heal(hosts.first, hosts.second);
    }
}

// Whatever is sent may find the link cut; it stays cut for a drawn time.
void network::maybe_cut(host_number a, host_number b) {
    if (a == b || cut_between(a, b) != nullptr || !happens_now(world_->faults.partitions)) return;
    cut(a, b);
    event e;
    e.at_ns = now() + time_between(world_->faults.most_latency, world_->faults.longest_partition);
    e.what = happens::heals;
    e.from_host = a;
    e.to_host = b;
    add(std::move(e));
}

// A datagram is lost. A stream's piece is resent again and again; if the link stays cut, its sender gives up.
void network::hold(link& l, event e) {
    if (e.what == happens::message) return;
    record* sender = find(e.from);
    if (e.what == happens::piece && sender != nullptr && !std::exchange(sender->gives_up, true)) {
        event late = from_to(happens::give_up, e.from, *sender, e.from);
        late.at_ns += give_up_ns;
        add(std::move(late));
    }
    l.held.push_back(std::move(e));
}

// ---- arrivals -------------------------------------------------------------------------------------------------------

void network::tell(const record& s, std::uint32_t bits, sched::event_batch& found) noexcept {
    if (s.tag == 0) return;
    found.events[found.count++] = {s.tag, bits};
}

void network::break_off(record& s, int error, sched::event_batch& found) {
    s.error = error;
    s.is = stage::broken;
    s.wire.clear();
    s.inbox.clear();
    s.read_of_inbox = 0;
    tell(s, readable | writable | peer_closed, found);
}

void network::deliver_piece(event& e, sched::event_batch& found) {
    record* to = find(e.to);
    if (to == nullptr || to->is == stage::broken) {
        record* sender = find(e.from);
        if (sender == nullptr) return;
        if (!host(e.to_host).up) {  // the sender resends in vain
            if (std::exchange(sender->gives_up, true)) return;
            event late = from_to(happens::give_up, e.from, *sender, e.from);
            late.at_ns += give_up_ns;
            return add(std::move(late));
        }
        event reset = from_to(happens::reset, e.to, *sender, e.from);
        std::swap(reset.from_host, reset.to_host);
        reset.at_ns += travel_ns(sender->slow);
        return add(std::move(reset));
    }
    if (to->wire.empty()) return;
    piece p = std::move(to->wire.front());
    to->wire.pop_front();
    if (p.last) {
        to->ended = true;
        return tell(*to, readable | peer_closed, found);
    }
    if (to->no_reads) return;
    to->inbox += p.bytes;
    tell(*to, readable, found);
}

void network::deliver_syn(event& e, sched::event_batch& found) {
    record* client = find(e.from);
    if (client == nullptr || client->is != stage::connecting || !host(e.to_host).up) return;
    const auto named = world_->names.find(key_of(e.to_host, SOCK_STREAM, e.address));
    const int listening = named != world_->names.end() ? named->second : 0;
    record* l = find(listening);
    const bool reachable =
        l != nullptr && l->is == stage::listening && (e.from_host == e.to_host || !is_loopback(l->local));
    if (reachable && l->backlog.size() >= l->most_backlog) {
        e.at_ns = now() + backlog_again_ns;
        return add(std::move(e));
    }
    event answer = from_to(reachable ? happens::accepted : happens::refused, 0, *client, e.from);
    std::swap(answer.from_host, answer.to_host);
    answer.at_ns += travel_ns(client->slow);
    if (reachable) {
        int fd = 0;
        record& s = make(fd, l->family, SOCK_STREAM, e.to_host);
        l = find(listening);
        s.is = stage::connected;
        s.local = e.address;
        s.remote = client->local;
        s.peer = e.from;
        s.peer_at = e.from_host;
        s.slow = client->slow;
        s.keep_alive_s = l->keep_alive_s;
        answer.from = fd;
        client->last_arrival_ns = answer.at_ns;
        l->backlog.push_back(fd);
        tell(*l, readable, found);
    }
    add(std::move(answer));
}

void network::deliver_message(event& e, sched::event_batch& found) {
    if (!host(e.to_host).up) return;
    const auto named = world_->names.find(key_of(e.to_host, SOCK_DGRAM, e.target));
    record* s = named != world_->names.end() ? find(named->second) : nullptr;
    const bool wanted = s != nullptr && (e.from_host == e.to_host || !is_loopback(s->local));
    if (!wanted) {  // a sender that is connected to this address learns of it
        record* sender = find(e.from);
        if (sender == nullptr || sender->is != stage::connected) return;
        sender->error = ECONNREFUSED;
        return tell(*sender, readable | writable, found);
    }
    if (s->is == stage::connected && s->remote != e.address) return;
    if (s->datagrams.size() >= most_datagrams) return;
    s->datagrams.push_back({std::move(e.bytes), e.address});
    tell(*s, readable, found);
}

// The socket resends in vain, or its peer is silent.
void network::give_up_if_held(event& e, sched::event_batch& found) {
    record* s = find(e.to);
    if (s == nullptr || s->is != stage::connected) return;
    const link* l = cut_between(s->at, s->peer_at);
    const std::int64_t since_ns =
        e.what == happens::give_up ? now() - give_up_ns : now() - std::int64_t{s->keep_alive_s} * 10 * 1'000'000'000;
    if (e.what == happens::give_up) s->gives_up = false;
    const bool cut_off = l != nullptr && (e.what == happens::give_up || l->cut_since_ns <= since_ns);
    if (cut_off || !host(s->peer_at).up) return break_off(*s, ETIMEDOUT, found);
    if (find(s->peer) == nullptr && s->peer != 0 && !s->ended) break_off(*s, ECONNRESET, found);
}

void network::deliver(event& e, sched::event_batch& found) {
    record* to = find(e.to);
    switch (e.what) {
    case happens::piece: return deliver_piece(e, found);
    case happens::syn: return deliver_syn(e, found);
    case happens::message: return deliver_message(e, found);
    case happens::edge:
        if (to != nullptr) tell(*to, e.bits, found);
        return;
    case happens::reset:
        if (to != nullptr && to->is == stage::connected) break_off(*to, ECONNRESET, found);
        return;
    case happens::accepted:
        if (to != nullptr && to->is == stage::connecting) {
            to->is = stage::connected;
            to->peer = e.from;
            tell(*to, writable, found);
        } else if (record* accepted = find(e.from)) {  // its dialler has given up
            break_off(*accepted, ECONNRESET, found);
        }
        return;
    case happens::refused:
    case happens::no_answer:
        if (to == nullptr || to->is != stage::connecting) return;
        to->error = e.what == happens::refused ? ECONNREFUSED : ETIMEDOUT;
        to->is = stage::broken;
        return tell(*to, readable | writable | peer_closed, found);
    case happens::give_up:
    case happens::silent: return give_up_if_held(e, found);
    case happens::heals: return heal(e.from_host, e.to_host);
    }
}

void network::deliver_due(std::int64_t now_ns) noexcept {
    sched::event_source* events = sched::the_scheduler.events;
    sched::event_batch found;
    try {
        while (!world_->events.empty() && world_->events.front().at_ns <= now_ns) {
            std::pop_heap(world_->events.begin(), world_->events.end(), later);
            event e = std::move(world_->events.back());
            world_->events.pop_back();
            const bool travels = e.what != happens::heals && e.what != happens::edge && e.from != e.to;
            if (travels && cut_between(e.from_host, e.to_host) != nullptr) {
                hold(world_->links[between(e.from_host, e.to_host)], std::move(e));
            } else {
                deliver(e, found);
            }
            if (found.count != sched::event_batch::capacity) continue;
            events->deliver(found);
            found.count = 0;
        }
    } catch (const std::bad_alloc&) {
        simulation_.fail_for_memory();
    }
    if (found.count != 0) events->deliver(found);
}

std::int64_t network::waiters() const noexcept {
    std::int64_t count = 0;
    for (const auto& [fd, s] : world_->sockets) {
        if (s.tag != 0) count += netpoll::fd_record::waiters_of(s.tag);
    }
    return count;
}

}  // namespace dunlin::replay
