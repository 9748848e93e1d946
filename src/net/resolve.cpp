// resolve.cpp - names to addresses, by the system's resolver.
//
// getaddrinfo() blocks its thread for as long as a server does not answer. It runs in blocking(), so that the processor goes to others; when the caller has a
// deadline or a context, in a goroutine of its own, which is left behind when that ends. At most 64 at a time: each holds a thread. Each run() has places of
// its own: those of goroutines that it left behind (which ask still, or had been given a place and did not get to use it) may never be given back.
#include <algorithm>
#include <charconv>
#include <memory>
#include <mutex>
#include <netdb.h>
#include <sys/socket.h>

#include <dunlin/blocking.hpp>
#include <dunlin/chan.hpp>
#include <dunlin/go.hpp>
#include <dunlin/net.hpp>
#include <dunlin/semaphore.hpp>

#include "net/socket.h"
#include "park/waiter.h"
#include "platform/clock.h"
#include "platform/lock.h"
#include "poll/netpoll.h"

namespace dunlin::net {

std::optional<address> parse_numeric(const network& n, std::string_view text, std::error_code& ec);  // address.cpp

namespace {

constexpr std::ptrdiff_t lookups_at_once = 64;

// The goroutines of a run() that has ended hold on to the places that they knew.
using places = counting_semaphore<>;

class places_of_run {
public:
    std::shared_ptr<places> get() {
        auto fresh = std::make_shared<places>(lookups_at_once);  // outside of the lock: it may throw
        park::runtime_section inside;
        const std::scoped_lock guard(lock_);
        if (current_ == nullptr) current_.swap(fresh);
        return current_;
    }
    void forget() noexcept {
        std::shared_ptr<places> last;
        {
            const std::scoped_lock guard(lock_);
            last.swap(current_);
        }
        // Plain threads may wait there for goroutines that stand still now.
        if (last != nullptr) last->release(lookups_at_once);
    }

private:
    platform::ranked_lock<platform::lock_rank::registry> lock_;
    std::shared_ptr<places> current_;  // lock
};

// Never destroyed: look-ups may go on when the program ends.
constinit union never_destroyed {
    places_of_run value;
    constexpr never_destroyed() : value() {}
    ~never_destroyed() {}
} the_places;

struct answer {
    std::vector<address> addresses;
    std::error_code error;
};

// Not inlined: it reads errno.
[[gnu::noinline]] std::error_code error_of(int result) noexcept {
    switch (result) {
    case EAI_SYSTEM: return system_error_code(errno);
    case EAI_AGAIN: return std::make_error_code(std::errc::resource_unavailable_try_again);
    case EAI_MEMORY: return std::make_error_code(std::errc::not_enough_memory);
    case EAI_SERVICE: return errc::bad_address;
    default: return errc::host_not_found;
    }
}

// Blocks the thread.
answer ask_the_system(const network& n, const std::string& host, const std::string& port, bool passive) {
    addrinfo hints{};
    hints.ai_family = n.family;
    hints.ai_socktype = n.type;
    hints.ai_flags = passive ? AI_PASSIVE : 0;
    addrinfo* list = nullptr;
    answer a;
    if (const int result = getaddrinfo(host.empty() ? nullptr : host.c_str(), port.empty() ? "0" : port.c_str(), &hints, &list); result != 0) {
        a.error = error_of(result);
        return a;
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
    for (const addrinfo* i = list; i != nullptr; i = i->ai_next) {
        const address found = address::from_native(i->ai_addr, i->ai_addrlen);
        if (std::find(a.addresses.begin(), a.addresses.end(), found) == a.addresses.end()) a.addresses.push_back(found);
    }
    if (a.addresses.empty()) a.error = errc::host_not_found;
    return a;
}

// libc takes a port modulo 65536, and forgives blanks and signs.
bool is_number_of_no_port(const std::string& port) noexcept {
    if (port.empty() || (port[0] >= 'a' && port[0] <= 'z') || (port[0] >= 'A' && port[0] <= 'Z')) return false;
    std::uint16_t number;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    return error != std::errc() || end != port.data() + port.size();
}

answer look_up(const network& n, const std::string& host, const std::string& port, bool passive) {
    netpoll::at_end_of_run([]() noexcept { the_places.value.forget(); });
    const std::shared_ptr<places> all = the_places.value.get();
    struct place {
        explicit place(places& p) : of(p) { of.acquire(); }
        ~place() { of.release(); }
        places& of;
    } mine(*all);
    return blocking([&] { return ask_the_system(n, host, port, passive); });
}

// A look-up takes a thread: nothing that could succeed at once. None is begun for a caller that would not wait for it.
std::error_code over_already(const wait_limit& limit) noexcept {
    if (limit.done != nullptr) {
        if (const std::error_code ec = detail::error_of_node(limit.done)) return ec;
    }
    return limit.deadline_ns <= platform::now_ns() ? std::make_error_code(std::errc::timed_out) : std::error_code();
}

answer look_up_within(const network& n, const std::string& host, const std::string& port, bool passive, const wait_limit& limit) {
    if (const std::error_code ec = over_already(limit)) return {{}, ec};
    using answers = chan<std::unique_ptr<answer>>;
    const answers c(1);
    go([=, &n] { answers(c).try_send(std::make_unique<answer>(look_up(n, host, port, passive))); });
    detail::element_slot<std::unique_ptr<answer>> slot;
    switch (detail::channel_receive(detail::handle_access::core(c), &slot.value, &limit, std::source_location::current())) {
    case detail::wait_outcome::ok: return std::move(**detail::take(slot));
    case detail::wait_outcome::cancelled: return {{}, detail::error_of_node(limit.done)};
    default: return {{}, std::make_error_code(std::errc::timed_out)};
    }
}

bool is_limited(const wait_limit* limit) noexcept { return limit != nullptr && (limit->deadline_ns != wait_limit::never || limit->done != nullptr); }

std::vector<address> checked(std::vector<address> found, std::string_view text, std::error_code ec) {
    if (ec) throw_net_error("resolve", "", text, ec);
    return found;
}

std::vector<address> resolve_for(std::string_view network_name, std::string_view text, const wait_limit* limit, std::error_code& ec) {
    const network* n = find_network(network_name);
    if (n == nullptr) {
        ec = errc::bad_address;
        return {};
    }
    // A host without a port is welcome here.
    const bool bare = !n->is_unix() && text.find(':') == text.npos;
    return addresses_of(*n, bare ? std::string(text) + ":" : std::string(text), false, limit, ec);
}

}  // namespace

std::vector<address> addresses_of(const network& n, std::string_view text, bool passive, const wait_limit* limit, std::error_code& ec) {
    const auto number = parse_numeric(n, text, ec);
    if (number && !ec) {
        const std::string host = number->host();
        if (passive || (host != "::" && host != "0.0.0.0")) {
            if (passive && host == "::" && n.family == AF_UNSPEC && text.find('[') == text.npos) {
                // A machine without IPv6 listens at its other addresses.
                return {*number, address::parse("tcp4", "0.0.0.0:" + std::to_string(number->port()))};
            }
            return {*number};
        }
    } else if (n.is_unix() || text.empty()) {
        ec = errc::bad_address;
        return {};
    }
    std::pair<std::string, std::string> parts;
    try {
        parts = split_host_port(text);
    } catch (const io_error& e) {
        ec = e.code();
        return {};
    }
    if (is_number_of_no_port(parts.second)) {
        ec = errc::bad_address;
        return {};
    }
    if (number && !passive) parts.first = n.family == AF_INET6 ? "::1" : "localhost";
    answer a = is_limited(limit) ? look_up_within(n, parts.first, parts.second, passive, *limit) : look_up(n, parts.first, parts.second, passive);
    ec = a.error;
    return std::move(a.addresses);
}

std::vector<address> resolve(std::string_view network_name, std::string_view text, std::error_code& ec) {
    return resolve_for(network_name, text, nullptr, ec);
}

std::vector<address> resolve(std::string_view network_name, std::string_view text, const context& ctx, std::error_code& ec) {
    return resolve_for(network_name, text, detail::io_limit(ctx).get(), ec);
}

std::vector<address> resolve(std::string_view network_name, std::string_view text) {
    std::error_code ec;
    auto found = resolve(network_name, text, ec);
    return checked(std::move(found), text, ec);
}

std::vector<address> resolve(std::string_view network_name, std::string_view text, const context& ctx) {
    std::error_code ec;
    auto found = resolve(network_name, text, ctx, ec);
    return checked(std::move(found), text, ec);
}

std::vector<address> resolve(std::string_view text) { return resolve("tcp", text); }
std::vector<address> resolve(std::string_view text, const context& ctx) { return resolve("tcp", text, ctx); }
std::vector<address> resolve(std::string_view text, std::error_code& ec) { return resolve("tcp", text, ec); }
std::vector<address> resolve(std::string_view text, const context& ctx, std::error_code& ec) { return resolve("tcp", text, ctx, ec); }

}  // namespace dunlin::net
