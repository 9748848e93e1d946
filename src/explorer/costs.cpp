#include "explorer/costs.h"

#include <algorithm>

namespace dunlin::inline v0_1::explorer {

namespace {

// `here`: two CPUs of a virtual machine on an AMD EPYC (Zen 5), Linux 6.18.
constexpr cost_row table[] = {
    {cost::plain_ps, "plain_ps", 500, 500,
        "here: two goroutines that talk, 56 ns for 139 atomic accesses; a tree of goroutines, 127 for 178 and 6 locked"},
    {cost::locked, "locked", 4, 5, "measured: compare-and-swap on an owned line 4.3 (docs/decisions/005-run-queue.md)"},
    {cost::fence, "fence", 5, 5, "measured (src/sched/machines/wake.h, Rejected)"},
    {cost::line_near, "line_near", 40, 40,
        "here: half of a queue stolen across CPUs 189, within one 85, some three lines; server: within a socket 20 to 90,"
        " chipsandcheese.com 2023-11-07, Core to Core Latency Data on Large Systems"},
    {cost::line_far, "line_far", 120, 120, "the same page: across sockets 110 to 200"},
    {cost::line_shared, "line_shared", 10, 10,
        "assumed: a copy of a line leaves the cache that has it every 30 cycles"},
    {cost::line_kept, "line_kept", 20, 20,
        "assumed: the second try of a compare-and-swap finds the line still here, so that loops of them reach about half"
        " of what single operations do (David and others, SOSP 2013, figure 4)"},
    {cost::cpus_in_socket, "cpus_in_socket", 64, 64, "64 cores, or 32 with two threads each"},
    {cost::pause, "pause", 25, 40, "here: measured; server: 140 cycles since Skylake, Intel's optimization manual"},
    {cost::clock, "clock", 25, 25, "measured (src/platform/clock.h)"},
    {cost::call, "call", 121, 100, "measured: the null system call"},
    {cost::futex_wake_none, "futex_wake_none", 183, 150, "measured"},
    {cost::futex_wake, "futex_wake", 6300, 2000,
        "here: measured, 0.7 to 7.3 us (docs/decisions/006-spinning.md); server: no exit to a host"},
    {cost::sleep, "sleep", 2500, 1500, "here: measured, half of a wake and sleep on one CPU"},
    {cost::wake_soon, "wake_soon", 14400, 5000, "here: measured; server: 3 us of the kernel, and C1's exit, 2"},
    {cost::wake_later, "wake_later", 27000, 13000, "here: measured; server: the same, and C1E's exit, 10 (intel_idle)"},
    {cost::wake_late, "wake_late", 54000, 50000,
        "here: measured; server: deeper idle states, 40 to 133 (intel_idle)"},
    {cost::thread_switch, "thread_switch", 1500, 1200, "here: measured, sched_yield 0.4 us and the caches"},
    {cost::thread_start, "thread_start", 18500, 15000, "measured: create and join"},
    {cost::look_at_thread, "look_at_thread", 3000, 3000, "measured: open, read and close in /proc"},
    {cost::barrier, "barrier", 350, 1000, "here: measured (src/platform/membarrier.h); server: with a mask of its CPUs"},
    {cost::barrier_per_cpu, "barrier_per_cpu", 6300, 300,
        "here: measured, an interrupt into a virtual CPU; server: interrupts are sent one after the other"},
    {cost::interrupt, "interrupt", 2000, 700, "assumed: into the kernel and out again"},
    {cost::poll, "poll", 110, 110, "measured"},
    {cost::poll_event, "poll_event", 120, 120, "measured: send, epoll_wait and receive together, less the two"},
    {cost::poll_lock, "poll_lock", 60, 60, "assumed: as much of a poll that finds something, and of each event, is under epoll's mutex"},
    {cost::poll_add, "poll_add", 520, 520, "measured"},
    {cost::event_write, "event_write", 200, 200, "measured"},
    {cost::send, "send", 450, 450, "measured: a pair of send and receive 740"},
    {cost::receive, "receive", 290, 290, "measured: the same pair"},
    {cost::receive_moved, "receive_moved", 1030, 1030,
        "measured: 16 messages there and 16 back, send, epoll_wait and receive from CPU to CPU 2,020, on one 990"},
    {cost::receive_nothing, "receive_nothing", 150, 150, "measured"},
};
static_assert(std::size(table) == static_cast<std::size_t>(cost::count));

}  // namespace

std::span<const cost_row> cost_table() noexcept { return table; }

costs::costs(machine m) noexcept {
    for (const cost_row& row : table) {
        ns_[static_cast<std::size_t>(row.what)] = m == machine::here ? row.here : row.server;
    }
}

bool costs::set(std::string_view name, std::int64_t ns) noexcept {
    const auto has_name = [&](const cost_row& r) { return r.name == name; };
    const auto* const row = std::find_if(std::begin(table), std::end(table), has_name);
    if (row == std::end(table)) return false;
    ns_[static_cast<std::size_t>(row->what)] = ns;
    return true;
}

}  // namespace dunlin::explorer
