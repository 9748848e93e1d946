// pool.hpp - objects that are kept for the next caller that needs one.
#pragma once

#include <dunlin/config.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

namespace dunlin::inline v0_1 {

namespace detail {

// The pool's pointers, on one shelf for each processor. src/sync/pool.cpp
class DUNLIN_API pool_core {
public:
    explicit pool_core(void (*destroy)(void*));  // throws std::bad_alloc
    ~pool_core();
    pool_core(const pool_core&) = delete;
    pool_core& operator=(const pool_core&) = delete;

    void* take() noexcept;   // null: there is none
    void put(void* object);  // throws std::bad_alloc
    void trim() noexcept;

private:
    struct shelf;
    struct box;
    void destroy_all(box* first) noexcept;

    void (*const destroy_)(void*);
    std::size_t count_;
    std::unique_ptr<shelf[]> shelves_;
};

}  // namespace detail

/// Objects that are kept for the next caller that needs one: buffers, parsers, whatever is costly to make. From
/// goroutines and plain threads, in any mix. What is in the pool may be destroyed by trim() at any time: a pool is no
/// place to store things.
///
/// Order     What happens before a put() happens before the return of the get() that gets the object.
/// Cost      One lock, which belongs to the processor; nothing is allocated unless the pool becomes fuller than ever
///           before.
/// Source    sync.Pool. Differs: nothing is dropped unless trim() is called, since there is no garbage collector.
template <class T>
class pool {
public:
    /// Without a factory: get() returns null when the pool is empty. Throws std::bad_alloc.
    pool() : core_(destroy) {}
    /// `make()` makes a new object, as std::unique_ptr<T>, when the pool is empty. Throws std::bad_alloc.
    explicit pool(std::function<std::unique_ptr<T>()> make) : make_(std::move(make)), core_(destroy) {}

    /// An object from the pool: the one that was put last on this processor, else one from another processor. If the
    /// pool is empty, a new one. Throws what the factory throws.
    std::unique_ptr<T> get() {
        std::unique_ptr<T> object = try_get();
        if (!object && make_) object = make_();
        return object;
    }
    /// The same without the factory.
    std::unique_ptr<T> try_get() noexcept { return std::unique_ptr<T>(static_cast<T*>(core_.take())); }
    /// Keeps `object`; null is ignored. Throws std::bad_alloc; then the object is destroyed.
    void put(std::unique_ptr<T> object) {
        if (!object) return;
        core_.put(object.get());
        object.release();
    }
    /// Destroys what has not been used since the last trim(): an object in the pool survives one trim(), not two. The
    /// runtime does not call it.
    void trim() noexcept { core_.trim(); }

private:
    static void destroy(void* object) { std::default_delete<T>()(static_cast<T*>(object)); }

    std::function<std::unique_ptr<T>()> make_;
    detail::pool_core core_;
};

}  // namespace dunlin
