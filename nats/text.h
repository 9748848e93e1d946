// text.h - the little JSON that JetStream's answers need, and other texts on the wire.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace dunlin::inline v0_1::nats::detail {

// The value at the end of a path of keys: for a string its characters, with escapes resolved; for anything else the
// JSON unchanged. Never reads outside `json`, whatever its content; nullopt if the path leads nowhere.
std::optional<std::string> json_text(std::string_view json, std::initializer_list<std::string_view> path);
std::optional<std::int64_t> json_number(std::string_view json, std::initializer_list<std::string_view> path);
// As a JSON string, with its quotes.
std::string json_quoted(std::string_view text);

// The contents of the reply subject of a consumer's message: "$JS.ACK.stream.consumer.deliveries.sequence...", with or
// without a domain.
struct ack_subject {
    std::string consumer;
    std::uint64_t deliveries = 0, sequence = 0, consumer_sequence = 0;
    std::string stored;  // nanoseconds since 1970
};
std::optional<ack_subject> read_ack_subject(std::string_view subject);

// A name that no other call, in this or another process, returns: 14 random letters and digits, and a counter.
std::string unique_name();
std::string base36(std::uint64_t n);
std::optional<std::uint64_t> read_base36(std::string_view text) noexcept;

// Nothing but what isspace() takes for white space in the C locale, or nothing at all.
bool is_blank(std::string_view text) noexcept;
// With a blank for each control character.
std::string one_line(std::string_view text);

}  // namespace dunlin::nats::detail
