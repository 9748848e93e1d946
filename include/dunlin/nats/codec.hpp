// nats/codec.hpp - how values become bytes. Strings and bytes are sent unchanged; for other types a program specialises
// codec<T>.
#pragma once

#include <dunlin/config.hpp>

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace dunlin::inline v0_1::nats {

/// A program specialises this for its own type T, with two static functions:
///   static std::string encode(const T& value);           may throw: nothing is sent then
///   static T decode(std::string_view bytes);              throws an std::exception if they are not a T's
template <class T>
struct codec;

template <>
struct codec<std::string> {
    static std::string_view encode(const std::string& value) noexcept { return value; }
    static std::string decode(std::string_view bytes) { return std::string(bytes); }
};

template <>
struct codec<std::vector<std::byte>> {
    static std::string_view encode(const std::vector<std::byte>& value) noexcept {
        return {reinterpret_cast<const char*>(value.data()), value.size()};
    }
    static std::vector<std::byte> decode(std::string_view bytes) {
        const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
        return {first, first + bytes.size()};
    }
};

/// A type that codec<T> knows.
template <class T>
concept encodable = requires(const T& value, std::string_view bytes) {
    { codec<T>::encode(value) } -> std::convertible_to<std::string_view>;
    { codec<T>::decode(bytes) } -> std::convertible_to<T>;
};

}  // namespace dunlin::nats
