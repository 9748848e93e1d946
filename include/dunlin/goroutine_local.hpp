// goroutine_local.hpp - a variable of which every goroutine has its own.
#pragma once

#include <dunlin/config.hpp>

#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

namespace dunlin::inline v0_1 {

namespace detail {

// What the calling goroutine (or plain thread) keeps under `key`; null: nothing.
DUNLIN_API void* find_local_value(unsigned long long key) noexcept;
// Keeps it, until the goroutine (or thread) ends. Throws std::bad_alloc, and then nothing has changed.
DUNLIN_API void add_local_value(unsigned long long key, void* object, void (*destroy)(void*) noexcept);
DUNLIN_API void remove_local_value(unsigned long long key) noexcept;
DUNLIN_API unsigned long long next_local_key() noexcept;

}  // namespace detail

/// What thread_local is for threads: each goroutine has its own T, made at its first use and destroyed when the
/// goroutine ends; a plain thread has one as well. A thread_local itself belongs to the thread, and a goroutine may
/// continue on another thread after any call of this library.
///
/// The object itself is usually static; values outlive it until their goroutines end.
/// Cost      A search among the goroutine's few local values; an allocation at the first use.
template <class T>
class goroutine_local {
public:
    /// Values are made by T().
    goroutine_local()
        requires std::is_default_constructible_v<T>
        : make_([] { return owner(::new value()); }) {}
    /// Values are made by make(), whose result T is constructed from. If that is a T, it need not be movable; `make`
    /// must be.
    template <class F>
        requires(std::is_constructible_v<T, std::invoke_result_t<F&>> ||
                    std::same_as<std::remove_cv_t<std::invoke_result_t<F&>>, std::remove_cv_t<T>>)
    explicit goroutine_local(F make)
        : make_([f = std::make_shared<F>(std::move(make))] { return owner(::new value((*f)())); }) {}
    goroutine_local(const goroutine_local&) = delete;
    goroutine_local& operator=(const goroutine_local&) = delete;

    /// The calling goroutine's value. The reference is valid in that goroutine, until it ends or calls reset(). Throws
    /// what making it throws.
    T& get() {
        if (void* found = detail::find_local_value(key_)) return *static_cast<T*>(found);
        owner made = make_();
        detail::add_local_value(key_, made.get(), [](void* object) noexcept { end()(static_cast<value*>(object)); });
        return *made.release();
    }
    T& operator*() { return get(); }
    T* operator->() { return std::addressof(get()); }

    /// The value if there is one already, else null.
    T* find() const noexcept { return static_cast<T*>(detail::find_local_value(key_)); }

    /// Destroys the calling goroutine's value; the next use makes a new one.
    void reset() noexcept { detail::remove_local_value(key_); }

private:
    using value = std::remove_cv_t<T>;  // what is made and destroyed, also for a const T
    // The global new and delete: T's own may be deleted, which says nothing about values like those of thread_local.
    struct end {
        void operator()(value* object) const noexcept { ::delete object; }
    };
    using owner = std::unique_ptr<value, end>;

    const unsigned long long key_ = detail::next_local_key();
    std::function<owner()> make_;
};

}  // namespace dunlin
