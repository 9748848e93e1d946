// future_state.hpp - what a promise, a packaged_task or async() shares with its futures. Not for direct use.
#pragma once

#include <dunlin/config.hpp>

#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <source_location>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <dunlin/detail/at_exit.hpp>
#include <dunlin/detail/atomic.hpp>
#include <dunlin/detail/caught.hpp>
#include <dunlin/detail/one_shot.hpp>
#include <dunlin/mutex.hpp>
#include <dunlin/task.hpp>

namespace dunlin::inline v0_1::detail {

// Three steps: the state is claimed, by one caller; a result is stored; the state becomes ready. The last step may wait
// for the end of the goroutine. Counted; the last reference destroys the state, by its destroy_.
//
// The setters of a promise are atomic against each other, as std says: as if each locked a mutex. The first two steps
// are under setting_, since the second may fail and take the first back; the next setter then finds the state
// unclaimed. The last step is not: once the state is ready, it may be destroyed. So a setter that comes too late waits
// until the state is ready before it says that it is.
template <class T>
class future_state {
public:
    // Not const, even for a const T, so that what is moved in can be moved out.
    using stored = std::conditional_t<std::is_void_v<T>, char,
        std::conditional_t<std::is_reference_v<T>, std::remove_reference_t<T>*, std::remove_cv_t<T>>>;
    using destroyer = void (*)(future_state*) noexcept;
    using deferred_call = void (*)(future_state*);  // claims nothing, stores a result and makes it ready

    explicit future_state(destroyer destroy = delete_state, deferred_call deferred = nullptr) noexcept
        : destroy_(destroy), deferred_(deferred) {}
    ~future_state() { forget_value(); }
    future_state(const future_state&) = delete;
    future_state& operator=(const future_state&) = delete;

    void reference() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept {
        // Acquire-release: the last holder sees what the others did with the state.
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy_(this);
    }
    static void delete_state(future_state* s) noexcept { delete s; }

    // For a packaged_task, whose call makes it ready at some time. Throws promise_already_satisfied.
    void claim() { claim_as(claimed::ready_later); }
    // It becomes ready when the goroutine has ended. Throws std::bad_alloc; then the state is not claimed.
    void claim_for_exit() {
        claim();
        try {
            make_ready_at_exit();
        } catch (...) {
            give_claim_back();
            throw;
        }
    }
    // Throws what the value's constructor throws, std::bad_alloc with `at_exit`; then the promise is still unsatisfied.
    template <class... Args>
    void set_value(bool at_exit, Args&&... args) {
        set(at_exit, [&] {
            try {
                if constexpr (sizeof...(Args) != 0) store_value(std::forward<Args>(args)...);
                if (at_exit) make_ready_at_exit();
            } catch (...) {
                forget_value();
                throw;
            }
        });
    }
    // Throws std::invalid_argument for null: std::current_exception() where no exception is being handled.
    void set_exception(bool at_exit, std::exception_ptr error) {
        if (error == nullptr) throw std::invalid_argument("dunlin::promise::set_exception: the exception is null");
        set(at_exit, [&] {
            if (at_exit) make_ready_at_exit();
            error_ = std::move(error);
        });
    }
    void abandon() noexcept {
        if (claimed_.load(std::memory_order_relaxed) != claimed::no) return;
        error_ = std::make_exception_ptr(std::future_error(std::future_errc::broken_promise));
        make_ready();
    }

    // Stores what call() returns or throws; no_result() if it ends by exit_goroutine() or with its thread, which then
    // goes on. After claim().
    template <class Call>
    void store_result_of(Call&& call) {
        try {
            if constexpr (std::is_void_v<T>) {
                static_cast<void>(std::forward<Call>(call)());
                has_value_ = true;
            } else if constexpr (std::is_reference_v<T>) {
                T&& result = std::forward<Call>(call)();
                store_value(std::addressof(result));
            } else {
                store_value(std::forward<Call>(call)());
            }
        } catch (...) {
            keep_caught(error_);
        }
    }
    // After this call the object may be gone, if the caller holds no reference.
    void make_ready() noexcept { ready_.set(); }

    // Whether it has a deferred function that has not been called yet.
    bool is_deferred() const noexcept { return deferred_.load(std::memory_order_relaxed) != nullptr; }
    // One of the waiters calls the deferred function.
    wait_outcome wait(const wait_limit* limit, const std::source_location& where) {
        if (is_deferred()) {
            if (const deferred_call call = deferred_.exchange(nullptr, std::memory_order_relaxed)) call(this);
        }
        return ready_.wait(future_reason, limit, where);
    }

    // After wait(); once. The state gives its exception away, so that only the caller holds it. Otherwise the promise,
    // releasing the last reference, might free the exception while the caller reads it, and only the standard library's
    // own counter would order the two.
    T take() {
        if (error_) std::rethrow_exception(std::move(error_));
        if constexpr (std::is_reference_v<T>) {
            return static_cast<T>(*value_);
        } else if constexpr (!std::is_void_v<T>) {
            return std::move(value_);
        }
    }
    std::conditional_t<std::is_void_v<T> || std::is_reference_v<T>, T, std::add_lvalue_reference_t<const T>> look()
        const {
        if (error_) std::rethrow_exception(error_);
        if constexpr (std::is_reference_v<T>) {
            return static_cast<T>(*value_);
        } else if constexpr (!std::is_void_v<T>) {
            return value_;
        }
    }

private:
    enum class claimed : unsigned char {
        no,
        ready_now,    // by a caller that does nothing else before make_ready()
        ready_later,  // when a function or a goroutine has ended
    };

    void claim_as(claimed how) {
        const claimed before = claimed_.load(std::memory_order_relaxed);
        if (before == claimed::no) return claimed_.store(how, std::memory_order_relaxed);
        if (before == claimed::ready_now) ready_.wait(future_reason, nullptr, std::source_location::current());
        throw std::future_error(std::future_errc::promise_already_satisfied);
    }
    void give_claim_back() noexcept { claimed_.store(claimed::no, std::memory_order_relaxed); }
    template <class Store>
    void set(bool at_exit, Store store) {
        {
            const std::lock_guard one_setter(setting_);
            claim_as(at_exit ? claimed::ready_later : claimed::ready_now);
            try {
                store();
            } catch (...) {
                give_claim_back();
                throw;
            }
        }
        if (!at_exit) make_ready();
    }
    void make_ready_at_exit() {
        reference();
        try {
            call_at_exit(this, [](void* raw) noexcept {
                auto* s = static_cast<future_state*>(raw);
                s->make_ready();
                s->release();
            });
        } catch (...) {
            references_.fetch_sub(1, std::memory_order_relaxed);  // the caller has one
            throw;
        }
    }
    template <class... Args>
    void store_value(Args&&... args) {
        std::construct_at(std::addressof(value_), std::forward<Args>(args)...);
        has_value_ = true;
    }
    void forget_value() noexcept {
        if constexpr (!std::is_void_v<T>) {
            if (std::exchange(has_value_, false)) std::destroy_at(std::addressof(value_));
        }
    }

    const destroyer destroy_;
    platform::atomic<deferred_call> deferred_;
    platform::atomic<std::uint32_t> references_{1};
    mutex setting_;  // a promise's setter, while it stores the result
    // A promise's setters, under setting_, and its destructor, which may come as soon as the state is ready, beside a
    // setter that has not returned. Relaxed: the setter has claimed before that. Of a packaged_task: its caller.
    platform::atomic<claimed> claimed_{claimed::no};
    bool has_value_ = false;    // the caller that has claimed writes it; others read it after ready_
    std::exception_ptr error_;  // the same
    union {
        stored value_;          // the same
    };
    one_shot ready_;
};

// A counted reference.
template <class T>
class future_handle {
public:
    future_handle() noexcept = default;
    explicit future_handle(future_state<T>* s) noexcept : state_(s) {}  // takes the caller's reference
    future_handle(const future_handle& other) noexcept : state_(other.state_) {
        if (state_ != nullptr) state_->reference();
    }
    future_handle(future_handle&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
    future_handle& operator=(future_handle other) noexcept {
        std::swap(state_, other.state_);
        return *this;
    }
    ~future_handle() {
        if (state_ != nullptr) state_->release();
    }
    future_state<T>* get() const noexcept { return state_; }
    future_state<T>& operator*() const {
        if (state_ == nullptr) throw std::future_error(std::future_errc::no_state);
        return *state_;
    }

private:
    future_state<T>* state_ = nullptr;
};

// A future_state in memory from an allocator.
template <class T, class Allocator>
class allocated_state final : public future_state<T> {
public:
    // Throws what allocating throws.
    static future_state<T>* make(const Allocator& from) {
        allocator a(from);
        const auto memory = traits::allocate(a, 1);
        return ::new (static_cast<void*>(std::to_address(memory))) allocated_state(from);
    }

private:
    using allocator = typename std::allocator_traits<Allocator>::template rebind_alloc<allocated_state>;
    using traits = std::allocator_traits<allocator>;

    explicit allocated_state(const Allocator& made_with) : future_state<T>(destroy), made_with_(made_with) {}
    static void destroy(future_state<T>* s) noexcept {
        auto* const mine = static_cast<allocated_state*>(s);
        allocator a(mine->made_with_);
        mine->~allocated_state();
        traits::deallocate(a, std::pointer_traits<typename traits::pointer>::pointer_to(*mine), 1);
    }

    const Allocator made_with_;
};

}  // namespace dunlin::detail
