// process.hpp - child processes.
#pragma once

#include <dunlin/config.hpp>

#include <concepts>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <dunlin/io.hpp>

namespace dunlin::inline v0_1 {

/// How a child process ended.
struct exit_status {
    int code = -1;   ///< the exit code; -1 if a signal ended it
    int signal = 0;  ///< the signal that ended it, or 0
    bool success() const noexcept { return code == 0; }
};

/// Where a child's standard input, output and error go.
enum class process_stream : unsigned char {
    inherit,  ///< the parent's
    pipe,     ///< a pipe: process::standard_input() and so on
    null,     ///< /dev/null
    output,   ///< for standard error: where standard output goes
};

/// The variables of an environment: names and values.
using process_environment = std::vector<std::pair<std::string, std::string>>;

struct process_options {
    process_stream input = process_stream::inherit;
    process_stream output = process_stream::inherit;
    process_stream error = process_stream::inherit;
    std::filesystem::path directory = {};  ///< to start in; empty: this process's
    /// the whole environment: `process_environment{{"HOME", "/"}}`; none: this process's
    std::optional<process_environment> environment = {};
    /// in a process group of its own, with what it starts: kill_group() reaches them all, a terminal's Ctrl-C none
    bool own_group = false;
};

/// A handle of a child process. Movable; default-constructed or moved from, it refers to none.
///
/// Blocks    wait() parks the goroutine. One thread of the library waits for all children as long as any lives (with
///           pidfd; before Linux 5.3 one thread for each child); so a goroutine that waits for a child is no deadlock.
/// Threads   All calls except moves, from anywhere at the same time.
/// Limits    If the program ignores SIGCHLD, or waits for all children itself (waitpid(-1)), their statuses are lost:
///           wait() then returns {-1, 0}.
class DUNLIN_API process {
public:
    process() noexcept = default;
    /// Starts a program: its name (looked up in PATH if it has no slash; a relative path starts at `directory`) and its
    /// arguments. The child inherits only descriptors 0, 1 and 2, has no blocked signals, and the default action for
    /// SIGPIPE. Throws io_error: "start /bin/x: no such file or directory"; std::invalid_argument for an empty command,
    /// for text with a zero byte, and for process_stream::output anywhere but at standard error; std::bad_alloc.
    /// Cost      About a millisecond, on a thread (blocking).
    explicit process(std::vector<std::string> command, const process_options& options = {});
    /// After an error the handle refers to no child. std::invalid_argument becomes std::errc::invalid_argument. Throws
    /// std::bad_alloc.
    process(std::vector<std::string> command, std::error_code& ec)
        : process(std::move(command), process_options(), ec) {}
    process(std::vector<std::string> command, const process_options& options, std::error_code& ec);
    process(process&&) noexcept = default;
    process& operator=(process&&) noexcept = default;
    /// Closes its pipes. The child goes on, and is reaped when it ends, as long as this process lives.
    ~process() = default;

    /// The kernel's number of the process; after wait() the kernel may give it to another process. -1: none.
    int id() const noexcept;

    /// This process's ends of the pipes; closed if there is no pipe. Closing standard_input() tells the child that its
    /// input has ended.
    byte_stream& standard_input() noexcept { return input_; }
    byte_stream& standard_output() noexcept { return output_; }
    byte_stream& standard_error() noexcept { return error_; }

    /// Waits until the child has ended; may be called repeatedly, from anywhere. A child that writes more to a pipe
    /// than fits in (64 KiB) does not end until that is read, and one that reads its standard input to the end not
    /// until standard_input() is closed; run() does both. Throws context_cancelled; io_error
    /// (errc::closed) if there is no child.
    exit_status wait();
    exit_status wait(const context& ctx);
    exit_status wait(std::error_code& ec);
    exit_status wait(const context& ctx, std::error_code& ec);
    template <class Rep, class Period>
    exit_status wait(const std::chrono::duration<Rep, Period>&) {
        static_assert(detail::always_false<Rep>, "dunlin: wait(ctx), with a context of dunlin::with_timeout()");
        return {};
    }
    /// A channel for select: it receives the status, once, when the child has ended, and is then closed. Every call
    /// returns the same channel; wait() does not take the status out of it. No child: nil.
    receiver<exit_status> done();

    /// Sends a signal; false if the child has ended and was reaped (which follows soon). Never hits another process
    /// that has got its number. False, too, if there is no child. Throws io_error.
    bool kill(int signal = 15);
    bool kill(int signal, std::error_code& ec);
    /// Sends a signal to all processes of the child's group: the child, and what it has started. False if the child has
    /// ended and was reaped: the group's number may be another's then, whatever the child has left running. Throws
    /// io_error; std::logic_error (or std::errc::invalid_argument) if it was not started with
    /// process_options::own_group.
    bool kill_group(int signal = 15);
    bool kill_group(int signal, std::error_code& ec);

    struct result {
        exit_status status;
        std::string output;
        std::string error;
    };
    /// Starts a child, writes `input` to it, collects its standard output and standard error until both are closed (in
    /// the processes that it has started, too), and waits for its end. Input that has not been read by then is dropped.
    /// When `ctx` is done first, the child is killed (SIGKILL) and context_cancelled is thrown; a child that has become
    /// another user's and may not be killed goes on. Throws as the constructor and read_some() do.
    static result run(std::vector<std::string> command, const_buffer input = {}, const context& ctx = {});
    static result run(std::vector<std::string> command, const_buffer input, const context& ctx, std::error_code& ec);
    /// The same in a directory, with an environment, or in a group of its own, all of which is killed with the child
    /// (not what a child that has ended by then has left running: see kill_group()).
    /// The three streams are pipes whatever `options` says.
    static result run(
        std::vector<std::string> command, const_buffer input, const context& ctx, const process_options& options);
    static result run(std::vector<std::string> command, const_buffer input, const context& ctx,
        const process_options& options, std::error_code& ec);
    static result run(std::vector<std::string> command, std::error_code& ec) {
        return run(std::move(command), {}, {}, ec);
    }
    /// The same without input.
    template <std::derived_from<context> Context>
    static result run(std::vector<std::string> command, const Context& ctx) {
        return run(std::move(command), const_buffer(), ctx);
    }
    template <std::derived_from<context> Context>
    static result run(std::vector<std::string> command, const Context& ctx, std::error_code& ec) {
        return run(std::move(command), const_buffer(), ctx, ec);
    }
    template <std::same_as<process_options> Options>
    static result run(std::vector<std::string> command, const Options& options) {
        return run(std::move(command), const_buffer(), context(), options);
    }
    template <std::same_as<process_options> Options>
    static result run(std::vector<std::string> command, const Options& options, std::error_code& ec) {
        return run(std::move(command), const_buffer(), context(), options, ec);
    }
    template <std::convertible_to<std::string_view> Text>
    static result run(const Text&, detail::anything = {}, detail::anything = {}, detail::anything = {}) {
        static_assert(detail::always_false<Text>,
            "dunlin::process: a command is a list, one argument for each element: run({\"ls\", \"-l\"}); "
            "no shell reads it");
        return {};
    }

private:
    struct state;
    void start(std::vector<std::string> command, const process_options& options);
    std::shared_ptr<state> state_;
    byte_stream input_, output_, error_;
};

}  // namespace dunlin
