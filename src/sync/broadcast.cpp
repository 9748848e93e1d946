// broadcast.cpp - what does not depend on the values' type. The protocol: dunlin/detail/publisher.hpp.
#include <dunlin/broadcast.hpp>

#include <string>

namespace dunlin::inline v0_1 {

broadcast_lagged::broadcast_lagged(std::uint64_t missed)
    : std::runtime_error("dunlin::broadcast: the receiver was too slow and has missed " + std::to_string(missed) +
                         " values"),
      missed_(missed) {}
broadcast_lagged::~broadcast_lagged() = default;

namespace detail {

std::size_t checked_broadcast_capacity(std::ptrdiff_t capacity) {
    if (capacity > 0) return static_cast<std::size_t>(capacity);
    throw std::invalid_argument("dunlin::broadcast: a capacity of " + std::to_string(capacity) + ", 1 is the least");
}

}  // namespace detail
}  // namespace dunlin
