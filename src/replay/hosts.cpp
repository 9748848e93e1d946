// hosts.cpp - the hosts and the network of <dunlin/sim.hpp>.
#include <dunlin/sim.hpp>

#include <algorithm>
#include <string>

#include "replay/simulation.h"
#include "sched/data/current.h"

namespace dunlin::inline v0_1 {

namespace replay {

namespace {

simulation& inside(const char* what) {
    if (sched::steered() == nullptr || sched::current_machine() == nullptr) {
        throw std::logic_error(std::string(what) + ": called outside of dunlin::sim::check()");
    }
    return the_simulation();
}

void check_odds(double odds, const char* name) {
    if (odds >= 0 && odds <= 1) return;
    throw std::invalid_argument(
        std::string("dunlin::sim::network: network_options::") + name + " is not between 0 and 1");
}

void check_order(std::chrono::nanoseconds less, std::chrono::nanoseconds more, const char* names) {
    if (less.count() >= 0 && less <= more) return;
    throw std::invalid_argument(std::string("dunlin::sim::network: ") + names);
}

void check_name(const std::string& name) {
    const auto fits = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
               c == '_';
    };
    const bool has_letter =
        std::any_of(name.begin(), name.end(), [](char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; });
    if (has_letter && name != "localhost" && std::all_of(name.begin(), name.end(), fits)) return;
    throw std::invalid_argument(
        "dunlin::sim::host: \"" + name + "\" is no name of a host (letters, digits, '-', '.', '_'; not localhost)");
}

host_number known_host(network& n, std::string_view name, const char* what) {
    const host_number h = n.host_named(name);
    if (h == n.host_count())
        throw std::invalid_argument(std::string(what) + ": there is no host \"" + std::string(name) + '"');
    return h;
}

}  // namespace

}  // namespace replay

namespace sim {

network_controls network(const network_options& o) {
    replay::simulation& s = replay::inside("dunlin::sim::network");
    replay::check_odds(o.slow, "slow");
    replay::check_odds(o.loss, "loss");
    replay::check_odds(o.duplicates, "duplicates");
    replay::check_odds(o.resets, "resets");
    replay::check_odds(o.partitions, "partitions");
    replay::check_order(o.least_latency, o.most_latency, "least_latency is negative, or more than most_latency");
    replay::check_order(o.most_latency, o.slow_latency, "slow_latency is less than most_latency");
    replay::check_order({}, o.longest_partition, "longest_partition is negative");
    replay::check_order({}, o.longest_skew, "longest_skew is negative");
    s.net().configure(o);
    return {};
}

void network_controls::partition(std::string_view a, std::string_view b) const {
    constexpr const char* what = "dunlin::sim::network_controls::partition";
    replay::network& n = replay::inside(what).net();
    const replay::host_number first = replay::known_host(n, a, what), second = replay::known_host(n, b, what);
    if (first == second) throw std::invalid_argument(std::string(what) + ": a host is not cut off from itself");
    n.cut(first, second);
}

void network_controls::heal(std::string_view a, std::string_view b) const {
    constexpr const char* what = "dunlin::sim::network_controls::heal";
    replay::network& n = replay::inside(what).net();
    n.heal(replay::known_host(n, a, what), replay::known_host(n, b, what));
}

void network_controls::heal() const { replay::inside("dunlin::sim::network_controls::heal").net().heal_all(); }

host::host(std::string name, std::function<void()> main) {
    replay::simulation& s = replay::inside("dunlin::sim::host");
    replay::check_name(name);
    if (main == nullptr)
        throw std::invalid_argument("dunlin::sim::host: \"" + name + "\" has nothing to run: main is empty");
    if (s.net().host_named(name) != s.net().host_count())
        throw std::invalid_argument("dunlin::sim::host: there is a host \"" + name + "\" already");
    number_ = s.net().add_host(std::move(name), std::move(main));
    execution_ = s.execution();
    s.start_host(number_);
}

namespace {

replay::simulation& of_handle(std::uint64_t execution, const char* what) {
    replay::simulation& s = replay::inside(what);
    if (s.execution() != execution)
        throw std::logic_error(std::string(what) + ": the host is of an execution that is over");
    return s;
}

}  // namespace

void host::crash() const { of_handle(execution_, "dunlin::sim::host::crash").switch_off(number_); }

void host::restart() const {
    replay::simulation& s = of_handle(execution_, "dunlin::sim::host::restart");
    s.switch_off(number_);
    s.start_host(number_);
}

bool host::is_up() const { return of_handle(execution_, "dunlin::sim::host::is_up").net().host(number_).up; }

std::string host::address() const {
    return of_handle(execution_, "dunlin::sim::host::address").net().address_of(number_);
}

std::chrono::nanoseconds clock_skew() {
    replay::simulation& s = replay::inside("dunlin::sim::clock_skew");
    return std::chrono::nanoseconds(s.net().host(s.current_host()).skew_ns);
}

}  // namespace sim

}  // namespace dunlin
