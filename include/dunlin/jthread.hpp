// jthread.hpp - a goroutine that is asked to stop, and waited for, when its owner is destroyed.
#pragma once

#include <dunlin/config.hpp>

#include <concepts>
#include <cstdint>
#include <memory>
#include <source_location>
#include <stop_token>
#include <type_traits>
#include <utility>

#include <dunlin/detail/wait.hpp>
#include <dunlin/go.hpp>
#include <dunlin/task.hpp>

namespace dunlin::inline v0_1 {

namespace detail {

// Gives up the handle of a joinable goroutine, which then ends like one without a handle. Its frame must not need to be
// destroyed by the holder.
DUNLIN_API void detach(goroutine_handle* g) noexcept;

enum class join_refusal : unsigned char { not_joinable, itself };
[[noreturn]] DUNLIN_API void throw_cannot_join(const char* operation, join_refusal why);  // std::system_error
DUNLIN_API unsigned hardware_concurrency() noexcept;

template <class Call>
struct jthread_frame {
    Call call;

    template <class... Values>
    explicit jthread_frame(std::in_place_t, Values&&... values)
        : call(std::in_place, std::forward<Values>(values)...) {}
    static void entry(void* raw) {
        destroy_at_exit<jthread_frame> guard{static_cast<jthread_frame*>(raw)};
        static_cast<void>(static_cast<jthread_frame*>(raw)->call());
    }
};

}  // namespace detail

/// A goroutine with a stop token, and with the interface of std::jthread: the destructor asks it to stop and waits for
/// it.
///
/// If the waiter needs the goroutine's result or its exception, use task<T>. dunlin's own waits end with a context:
/// `dunlin::with_stop_token(ctx, token)` makes one from the token; condition_variable_any waits with the token itself.
///
/// Owner     One that a plain thread starts goes on until it ends, whatever run() returns meanwhile, and a static
///           object may join it. One that a goroutine starts ends with its run(), as all others do; if a static object
///           then joins it, the process ends with a report.
/// Errors    An exception that leaves f ends the process, as from go() (std: std::terminate). exit_goroutine() in f
///           ends it as a return does.
/// Callbacks Those of std::stop_callback run in the goroutine or thread that asks to stop. They must not park: the
///           standard library recognises them by their thread.
/// One thread or goroutine at a time may use a jthread object.
class jthread {
public:
    /// As this_goroutine::get_id(): no other goroutine has or had the same; id() means no goroutine.
    using id = goroutine_id;

    /// Holds nothing.
    jthread() noexcept : stop_(std::nostopstate) {}
    /// Starts a goroutine that calls f(token, args...) if f takes a std::stop_token first, else f(args...).
    ///
    /// f, args   Decay-copied as by std::thread, and destroyed on the goroutine when f has returned.
    /// Throws    As go(), and std::bad_alloc for the token (std: std::system_error). But an empty std::function is
    ///           called, which ends the process, as with std's.
    template <class F, class... Args>
        requires(!std::same_as<std::remove_cvref_t<F>, jthread> && detail::not_options<F>)
    [[gnu::always_inline]] explicit jthread(F&& f, Args&&... args) {
        static_assert(runs<F, Args...>, DUNLIN_DOES_NOT_FIT);
        if constexpr (runs<F, Args...>) start(nullptr, std::forward<F>(f), std::forward<Args>(args)...);
    }
    /// The same with options.
    template <class F, class... Args>
    [[gnu::always_inline]] explicit jthread(const go_options& options, F&& f, Args&&... args) {
        static_assert(runs<F, Args...>, DUNLIN_DOES_NOT_FIT);
        if constexpr (runs<F, Args...>) start(&options, std::forward<F>(f), std::forward<Args>(args)...);
    }
    jthread(jthread&& other) noexcept : stop_(std::move(other.stop_)), handle_(std::exchange(other.handle_, nullptr)) {}
    jthread& operator=(jthread&& other) noexcept {
        if (this != &other) {
            finish();
            stop_ = std::move(other.stop_);
            handle_ = std::exchange(other.handle_, nullptr);
        }
        return *this;
    }
    /// request_stop() and join(), unless it was joined or detached.
    ~jthread() { finish(); }

    bool joinable() const noexcept { return handle_ != nullptr; }
    id get_id() const noexcept { return handle_ ? id(detail::id_of(handle_)) : id(); }

    /// Waits until the goroutine has ended.
    /// Blocks    The goroutine, never its thread; on a plain thread, that thread. If the goroutine has not begun and
    ///           is the youngest in the queue, it runs here.
    /// Order     Everything the goroutine did happens before the return.
    /// Throws    std::system_error: invalid_argument if it is not joinable, resource_deadlock_would_occur for the
    ///           goroutine itself.
    void join(std::source_location where = std::source_location::current()) {
        check("dunlin::jthread::join");
        detail::join(handle_, where);
        detail::release(std::exchange(handle_, nullptr));
    }
    /// The same until `ctx` is done: throws context_cancelled then, and it is still joinable. Throws std::bad_alloc as
    /// well.
    void join(const context& ctx, std::source_location where = std::source_location::current()) {
        check("dunlin::jthread::join");
        const detail::wait_limit limit{detail::wait_limit::never, detail::done_channel(ctx)};
        if (detail::join_limited(handle_, limit, where) == detail::wait_outcome::cancelled)
            detail::throw_cancelled(ctx, "jthread join");
        detail::release(std::exchange(handle_, nullptr));
    }
    /// Lets the goroutine go on by itself. It is not asked to stop; a get_stop_source() taken before still can ask it.
    /// Throws std::system_error if it is not joinable.
    void detach() {
        if (handle_ == nullptr)
            detail::throw_cannot_join("dunlin::jthread::detach", detail::join_refusal::not_joinable);
        detail::detach(std::exchange(handle_, nullptr));
    }

    std::stop_source get_stop_source() noexcept { return stop_; }
    std::stop_token get_stop_token() const noexcept { return stop_.get_token(); }
    /// Asks the goroutine to stop. False if it was asked before, or there never was one.
    bool request_stop() noexcept { return stop_.request_stop(); }

    void swap(jthread& other) noexcept {
        std::swap(stop_, other.stop_);
        std::swap(handle_, other.handle_);
    }
    friend void swap(jthread& a, jthread& b) noexcept { a.swap(b); }

    /// How many goroutines execute at the same time: runtime::max_procs(). 0 if that is not known.
    static unsigned hardware_concurrency() noexcept { return detail::hardware_concurrency(); }

    /// A goroutine has no thread of its own: what a thread's handle is used for (priorities, affinity, cancellation)
    /// would affect whatever runs on that thread next. Inside a goroutine that is wired to its thread (os_thread_lock),
    /// use pthread_self().
    void native_handle() = delete;

private:
    template <class F, class... Args>
    static constexpr bool runs = detail::fits<F, std::stop_token, Args...> || detail::fits<F, Args...>;

    template <class F, class... Args>
    [[gnu::always_inline]] void start(const go_options* options, F&& f, Args&&... args) {
        detail::check_function_as_std(f, "dunlin::jthread");
        if constexpr (detail::fits<F, std::stop_token, Args...>) {
            launch<detail::call_of<F, std::stop_token, Args...>>(
                options, std::forward<F>(f), stop_.get_token(), std::forward<Args>(args)...);
        } else {
            launch<detail::call_of<F, Args...>>(options, std::forward<F>(f), std::forward<Args>(args)...);
        }
    }
    template <class Call, class... Values>
    [[gnu::always_inline]] void launch(const go_options* options, Values&&... values) {
        using frame = detail::jthread_frame<detail::call_of_any_alignment<Call>>;
        constexpr auto kind = detail::end_kind::joinable;
        const detail::new_goroutine n = detail::launch<frame, true>(
            options, std::source_location(), kind, nullptr, frame::entry, std::in_place,
                std::forward<Values>(values)...);
        handle_ = n.g;
    }
    void check(const char* operation) const {
        if (handle_ == nullptr) detail::throw_cannot_join(operation, detail::join_refusal::not_joinable);
        if (get_id() == this_goroutine::id()) detail::throw_cannot_join(operation, detail::join_refusal::itself);
    }
    void finish() noexcept {
        if (handle_ == nullptr) return;
        request_stop();
        join();
    }

    std::stop_source stop_;
    detail::goroutine_handle* handle_ = nullptr;
};

}  // namespace dunlin
