// signal.hpp - signals as messages.
#pragma once

#include <dunlin/config.hpp>

#include <csignal>
#include <cstddef>
#include <initializer_list>
#include <system_error>

#include <dunlin/chan.hpp>

namespace dunlin {

/// A channel that gets each of these signals that reaches the process (Go's signal.Notify): `for (int s : signal_channel({SIGINT, SIGTERM}))`, or in a select.
///
/// From the call on these signals no longer do what they did (end the program, say). Several channels each get them. The channel has room for `capacity`
/// signals; what comes while it is full is lost. When all handles of the channel are gone it gets nothing more, and when that was the last for a
/// signal, the signal does again what it did before (unless somebody else has installed a handler since).
/// Threads   Anywhere; before, in and after run(). While there is such a channel a thread of the library waits for its signals; so a goroutine that does so is
///           no deadlock. Which thread a signal interrupts is the kernel's choice; a signal that all threads block reaches nobody.
/// Throws    std::invalid_argument for what cannot be caught (SIGKILL, SIGSTOP), for signals of faults, and for the one that preempts goroutines; io_error;
///           std::bad_alloc.
/// Cost      A signal takes the time of two wakes (some tens of microseconds).
/// Source    Go's signal.Notify. Differs: a signal that comes several times before it is delivered is delivered several times.
DUNLIN_API receiver<int> signal_channel(std::initializer_list<int> signals, std::size_t capacity = 16);
/// With an error (std::errc::invalid_argument for a signal that cannot be had) the channel is nil. Throws std::bad_alloc.
DUNLIN_API receiver<int> signal_channel(std::initializer_list<int> signals, std::size_t capacity, std::error_code& ec);
DUNLIN_API receiver<int> signal_channel(std::initializer_list<int> signals, std::error_code& ec);

}  // namespace dunlin
