// helper.hpp - goroutines in which the library works for its caller. Not for direct use: context, singleflight, dial
// and others are built on it.
#pragma once

#include <dunlin/config.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <type_traits>
#include <utility>

#include <dunlin/go.hpp>

namespace dunlin::inline v0_1::detail {

/// A function that a goroutine of the library will call.
class DUNLIN_API stored_call {
public:
    virtual ~stored_call();
    virtual void run() = 0;
};

template <class F>
class stored_call_of final : public stored_call {
public:
    template <class G>
    explicit stored_call_of(G&& f) : function_(std::forward<G>(f)) {}
    void run() override { static_cast<void>(std::invoke(function_)); }

private:
    F function_;
};

/// For whom the library works. The end of a run() stops the goroutines that belong to it. A plain thread belongs to
/// none, nor does a goroutine in which the library works for one, and what that one starts: they are independent.
enum class caller { of_a_run, of_none };

/// The caller of this function.
DUNLIN_API caller this_caller() noexcept;

/// The number of the run() that the caller belongs to; 0: to none.
DUNLIN_API std::uint32_t this_run() noexcept;
/// Has it ended? What is left of it goes no further. (Of `0`: no.)
DUNLIN_API bool run_is_over(std::uint32_t run) noexcept;

/// Calls c->run(), and then destroys *c, in a goroutine that belongs to the run() of the moment, or to none (an
/// independent one), as `whose` does, whatever this function is called by. Throws std::bad_alloc, or std::system_error
/// if the runtime cannot start; c then still owns the call.
DUNLIN_API void start_for(caller whose, std::unique_ptr<stored_call>& c, std::source_location where);

/// The same for f(). Throws also what copying f throws.
template <class F>
void go_for(caller whose, F&& f, std::source_location where = std::source_location::current()) {
    if (whose == caller::of_a_run && this_caller() == whose) return go(std::forward<F>(f), where);
    std::unique_ptr<stored_call> c = std::make_unique<stored_call_of<std::decay_t<F>>>(std::forward<F>(f));
    start_for(whose, c, where);
}

}  // namespace dunlin::detail
