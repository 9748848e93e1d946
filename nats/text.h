// text.h - the little of JSON that JetStream's answers want, and other texts on the wire.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace dunlin::inline v0_1::nats::detail {

// The value at the end of a path of keys. Of a text its characters, with escapes resolved; of anything else the JSON as
// it stands. Never reads outside `json`, whatever stands there; nullopt if the path leads nowhere.
std::optional<std::string> json_text(std::string_view json, std::initializer_list<std::string_view> path);
std::optional<std::int64_t> json_number(std::string_view json, std::initializer_list<std::string_view> path);
// As a JSON text, with its quotes.
std::string json_quoted(std::string_view text);

// What the reply subject of a message from a consumer says: "$JS.ACK.stream.consumer.deliveries.sequence...", with or
// without a domain.
struct ack_subject {
    std::string consumer;
    std::uint64_t deliveries = 0, sequence = 0, consumer_sequence = 0;
    std::string stored;  // nanoseconds since 1970
};
std::optional<ack_subject> read_ack_subject(std::string_view subject);

// A number of its own for each call of this process, and no other: 22 letters and digits.
std::string unique_name();
std::string base36(std::uint64_t n);
std::optional<std::uint64_t> read_base36(std::string_view text) noexcept;

}  // namespace dunlin::nats::detail
