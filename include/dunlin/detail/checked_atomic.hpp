// checked_atomic.hpp - std::atomic for the simulation build: if a simulation runs on the calling thread, the simulation
// makes each access, at a moment that it chooses; otherwise std::atomic makes it.
//
// The interface is the part of std::atomic's that the runtime uses. Each call notes its own source line, for the story
// of a failure; conversions and operators, which cannot take one, note a line of this file.
#pragma once

#include <dunlin/config.hpp>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

namespace dunlin::inline v0_1::platform {

enum class change : std::uint8_t { exchange, add, subtract, bit_and, bit_or, bit_xor };

// What sees the accesses. Values are the bytes of the variable, zero-extended.
class access_checker {
public:
    virtual std::uint64_t load(const void* at, unsigned size, std::memory_order order,
        const std::source_location& where) = 0;
    virtual void store(void* at, unsigned size, std::uint64_t value, std::memory_order order,
        const std::source_location& where) = 0;
    // Returns the old value.
    virtual std::uint64_t modify(void* at, unsigned size, change what, std::uint64_t operand, std::memory_order order,
                                 const std::source_location& where) = 0;
    virtual bool compare_exchange(void* at, unsigned size, std::uint64_t& expected, std::uint64_t wanted,
                                  std::memory_order success, std::memory_order failure,
                                      const std::source_location& where) = 0;
    // A variable begins or ends its life at this address.
    virtual void reborn(const void* at) noexcept = 0;

protected:
    ~access_checker() = default;
};

// Null: no simulation runs on this thread.
extern thread_local constinit access_checker* checker_of_thread;

constexpr std::memory_order failure_order(std::memory_order success) noexcept {
    if (success == std::memory_order_acq_rel) return std::memory_order_acquire;
    if (success == std::memory_order_release) return std::memory_order_relaxed;
    return success;
}

template <class T>
class checked_atomic {
    static_assert(sizeof(T) <= sizeof(std::uint64_t) && std::is_trivially_copyable_v<T>);

    using place = std::source_location;
    // The types that have fetch_add().
    static constexpr bool counts = std::is_integral_v<T> && !std::is_same_v<T, bool>;

public:
    using value_type = T;
    static constexpr bool is_always_lock_free = true;

    constexpr checked_atomic() noexcept : checked_atomic(T()) {}
    constexpr checked_atomic(T value) noexcept : value_(value) {
        if (!std::is_constant_evaluated() && checker_of_thread != nullptr) checker_of_thread->reborn(this);
    }
    constexpr ~checked_atomic() {
        if (!std::is_constant_evaluated() && checker_of_thread != nullptr) checker_of_thread->reborn(this);
    }
    checked_atomic(const checked_atomic&) = delete;
    checked_atomic& operator=(const checked_atomic&) = delete;

    bool is_lock_free() const noexcept { return true; }

    T load(std::memory_order order = std::memory_order_seq_cst, place where = place::current()) const noexcept {
        if (access_checker* c = checker_of_thread) return from_bits(c->load(this, sizeof(T), order, where));
        return value_.load(order);
    }
    operator T() const noexcept { return load(); }

    void store(T value, std::memory_order order = std::memory_order_seq_cst, place where = place::current()) noexcept {
        if (access_checker* c = checker_of_thread) return c->store(this, sizeof(T), to_bits(value), order, where);
        value_.store(value, order);
    }
    T operator=(T value) noexcept {
        store(value);
        return value;
    }

    T exchange(T value, std::memory_order order = std::memory_order_seq_cst, place where = place::current()) noexcept {
        return modify(change::exchange, value, order, where);
    }
    T fetch_add(T n, std::memory_order order = std::memory_order_seq_cst, place where = place::current()) noexcept
        requires counts
    {
        return modify(change::add, n, order, where);
    }
    T fetch_sub(T n, std::memory_order order = std::memory_order_seq_cst, place where = place::current()) noexcept
        requires counts
    {
        return modify(change::subtract, n, order, where);
    }
    T fetch_and(T bits, std::memory_order order = std::memory_order_seq_cst, place where = place::current()) noexcept
        requires counts
    {
        return modify(change::bit_and, bits, order, where);
    }
    T fetch_or(T bits, std::memory_order order = std::memory_order_seq_cst, place where = place::current()) noexcept
        requires counts
    {
        return modify(change::bit_or, bits, order, where);
    }
    T fetch_xor(T bits, std::memory_order order = std::memory_order_seq_cst, place where = place::current()) noexcept
        requires counts
    {
        return modify(change::bit_xor, bits, order, where);
    }
    T operator++() noexcept requires counts { return static_cast<T>(fetch_add(1) + 1); }
    T operator--() noexcept requires counts { return static_cast<T>(fetch_sub(1) - 1); }
    T operator++(int) noexcept requires counts { return fetch_add(1); }
    T operator--(int) noexcept requires counts { return fetch_sub(1); }
    T operator+=(T n) noexcept requires counts { return static_cast<T>(fetch_add(n) + n); }
    T operator-=(T n) noexcept requires counts { return static_cast<T>(fetch_sub(n) - n); }

    bool compare_exchange_strong(T& expected, T wanted, std::memory_order success, std::memory_order failure,
                                 place where = place::current()) noexcept {
        if (access_checker* c = checker_of_thread) {
            std::uint64_t seen = to_bits(expected);
            if (c->compare_exchange(this, sizeof(T), seen, to_bits(wanted), success, failure, where)) return true;
            expected = from_bits(seen);
            return false;
        }
        return value_.compare_exchange_strong(expected, wanted, success, failure);
    }
    bool compare_exchange_strong(T& expected, T wanted, std::memory_order order = std::memory_order_seq_cst,
                                 place where = place::current()) noexcept {
        return compare_exchange_strong(expected, wanted, order, failure_order(order), where);
    }
    bool compare_exchange_weak(T& expected, T wanted, std::memory_order success, std::memory_order failure,
                               place where = place::current()) noexcept {
        return compare_exchange_strong(expected, wanted, success, failure, where);
    }
    bool compare_exchange_weak(T& expected, T wanted, std::memory_order order = std::memory_order_seq_cst,
                               place where = place::current()) noexcept {
        return compare_exchange_strong(expected, wanted, order, failure_order(order), where);
    }

private:
    T modify(change what, T operand, std::memory_order order, const place& where) noexcept {
        if (access_checker* c = checker_of_thread) {
            return from_bits(c->modify(this, sizeof(T), what, to_bits(operand), order, where));
        }
        if (what == change::exchange) return value_.exchange(operand, order);
        if constexpr (counts) {
            switch (what) {
            case change::add: return value_.fetch_add(operand, order);
            case change::subtract: return value_.fetch_sub(operand, order);
            case change::bit_and: return value_.fetch_and(operand, order);
            case change::bit_or: return value_.fetch_or(operand, order);
            default: return value_.fetch_xor(operand, order);
            }
        }
        return operand;
    }

    static std::uint64_t to_bits(T value) noexcept {
        std::uint64_t bits = 0;
        std::memcpy(&bits, &value, sizeof(T));
        return bits;
    }
    static T from_bits(std::uint64_t bits) noexcept {
        T value;
        std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
        return value;
    }

    std::atomic<T> value_;
};

}  // namespace dunlin::platform
