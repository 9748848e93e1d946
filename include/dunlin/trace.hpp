// trace.hpp - what happened when: a time line of every goroutine, in a file or in the flight recorder.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

namespace dunlin::inline v0_1::trace {

/// Writes into `file`, from now until stop(), when each goroutine was made, became runnable (and which other one made
/// it so), ran (on which processor), waited (where and for what), was preempted, was in blocking(), ended; also thefts,
/// timers, polls, and the program's own regions, tasks and messages. The program dunlin-trace makes a time line of it
/// for ui.perfetto.dev (convert), and says what a goroutine or a task has waited for (why). `DUNLIN_TRACE=FILE` in the
/// environment does the same for the whole program. 32 bytes an event. Events that the disk is too slow for are left
/// out, and the file says so. A full disk ends the trace, with a line on stderr; what was written stays. Stops the
/// world for a moment. Throws std::system_error: the file cannot be made; std::errc::device_or_resource_busy: a trace,
/// or the recorder, runs already. std::bad_alloc.
DUNLIN_API void start(const std::string& file);

/// Ends the trace: when this returns, everything is in the file. Does nothing if no trace runs. exit() does it for a
/// trace that still runs.
DUNLIN_API void stop();

/// Whether a trace or the recorder runs.
DUNLIN_API bool running() noexcept;

struct recorder_options {
    /// How much is kept; the oldest events make room for new ones. 32 bytes an event. At least a quarter of a megabyte;
    /// each thread fills a block of 16 KiB of its own. With fewer blocks than twice the threads some threads may find
    /// none; then what was recorded before that moment counts as incomplete and is left out.
    std::size_t bytes = std::size_t{16} << 20;
    /// The file that is written when a region was too slow (for the next ones with .2, .3 ... appended) or the process
    /// dies with a report. Empty: nothing is written then.
    std::string file = {};
    unsigned most_files = 8;
};

/// Starts the flight recorder: as start(), but only the last events are kept, in memory, until they are asked for.
/// `DUNLIN_TRACE=recorder:FILE` in the environment does the same, with that file. Throws as start().
DUNLIN_API void start_recorder(const recorder_options& options = {});
/// Does nothing if the recorder does not run.
DUNLIN_API void stop_recorder();

/// Writes what the recorder has kept, in the format of start()'s file; the recorder goes on. Throws std::logic_error:
/// it does not run; std::bad_alloc.
DUNLIN_API void write_recorder(std::ostream& out);

/// A named part of what a goroutine does, in the time line. While nothing is traced it costs one test. On a plain
/// thread only its limit has an effect.
class region {
public:
    /// `too_slow`, if it is not zero: if the region takes longer, the recorder is written to its file at once, while
    /// the program goes on; at most once a second.
    DUNLIN_API explicit region(std::string_view name,
        std::chrono::nanoseconds too_slow = std::chrono::nanoseconds(0)) noexcept;
    DUNLIN_API ~region();
    region(const region&) = delete;
    region& operator=(const region&) = delete;

private:
    std::int64_t too_slow_ns_, began_ns_ = 0;
    bool traced_ = false;
};

/// A piece of work, such as a request, with all goroutines that it starts, and that those start. While it lives, what
/// this goroutine starts is part of it, and so are the goroutine's regions and messages. Made, used and destroyed in
/// one goroutine, in scopes. Does nothing on a plain thread, or while no trace runs.
class task {
public:
    DUNLIN_API explicit task(std::string_view name);
    DUNLIN_API ~task();
    task(const task&) = delete;
    task& operator=(const task&) = delete;

    /// 0: nothing is traced.
    std::uint64_t id() const noexcept { return id_; }

private:
    std::uint64_t id_ = 0, before_ = 0;
};

/// Marks a moment in the time line. 500 bytes are kept.
DUNLIN_API void message(std::string_view category, std::string_view text) noexcept;

}  // namespace dunlin::trace
