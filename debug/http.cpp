#include "http.h"

#include <algorithm>
#include <cctype>

namespace dunlin::inline v0_1::debug {

namespace {

std::string_view reason_of(int status) noexcept {
    switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 409: return "Conflict";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 414: return "URI Too Long";
    case 431: return "Request Header Fields Too Large";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Internal Server Error";
    }
}

int hex_digit(char c) noexcept {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

// None: what follows a % is no number.
std::optional<std::string> decoded(std::string_view text) {
    std::string result;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            result += text[i];
            continue;
        }
        const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
        const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
        if (low < 0) return std::nullopt;
        result += static_cast<char>(high * 16 + low);
        i += 2;
    }
    return result;
}

bool same_name(std::string_view a, std::string_view b) noexcept {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
        return std::tolower(x) == std::tolower(y);
    });
}

std::string_view trimmed(std::string_view text) noexcept {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
}

// "[::1]:6060" -> "::1"
std::string_view without_port(std::string_view host) noexcept {
    if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
    return host.substr(0, host.rfind(':'));
}

// Takes the next line and its line end off `rest`; returns the line without the end.
std::string_view next_line(std::string_view& rest) noexcept {
    const std::size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
}

}  // namespace

std::optional<std::string> request::parameter(std::string_view name) const {
    std::string_view rest = query;
    while (!rest.empty()) {
        std::string_view one = rest.substr(0, rest.find('&'));
        rest.remove_prefix(std::min(one.size() + 1, rest.size()));
        const std::size_t equals = std::min(one.find('='), one.size());
        if (one.substr(0, equals) == name) return decoded(one.substr(std::min(equals + 1, one.size())));
    }
    return std::nullopt;
}

reply failure(int status, std::string_view sentence) {
    reply r;
    r.status = status;
    r.body = std::to_string(status) + ' ' + std::string(reason_of(status)) + ": " + std::string(sentence) + '\n';
    return r;
}

reply parse_request(std::string_view text, request& into) {
    std::string_view rest = text;
    std::string_view line = next_line(rest);
    const std::size_t first = line.find(' '), second = first == line.npos ? first : line.find(' ', first + 1);
    if (second == line.npos) return failure(400, "this is no HTTP request");
    const std::string_view method = line.substr(0, first), version = line.substr(second + 1);
    std::string_view target = line.substr(first + 1, second - first - 1);
    if (!version.starts_with("HTTP/")) return failure(400, "this is no HTTP request");
    if (version != "HTTP/1.1" && version != "HTTP/1.0") return failure(505, "HTTP/1.1 is spoken here");
    if (target.size() > longest_target) return failure(414, "the address of a request has 2048 bytes at most");
    if (method != "GET" && method != "HEAD") {
        reply r = failure(405, "GET and HEAD are answered here");
        r.more_headers = "Allow: GET, HEAD\r\n";
        return r;
    }
    into.head_only = method == "HEAD";
    const std::size_t question = std::min(target.find('?'), target.size());
    into.query = target.substr(std::min(question + 1, target.size()));
    const std::optional<std::string> path = decoded(target.substr(0, question));
    if (!path || !path->starts_with('/')) return failure(400, "the address of a request begins with /");
    into.path = *path;
    while (!rest.empty()) {
        line = next_line(rest);
        const std::size_t colon = line.find(':');
        if (line.empty()) break;
        if (colon == line.npos || colon == 0) return failure(400, "a header has no name");
        const std::string_view value = trimmed(line.substr(colon + 1));
        const std::string_view name = line.substr(0, colon);
        if (same_name(name, "host")) into.host = without_port(value);
        const bool is_bearer = value.size() > 7 && same_name(value.substr(0, 7), "bearer ");
        if (is_bearer && same_name(name, "authorization")) into.bearer = trimmed(value.substr(7));
    }
    return {};
}

std::string to_bytes(const reply& r, bool head_only) {
    std::string bytes = "HTTP/1.1 " + std::to_string(r.status) + ' ' + std::string(reason_of(r.status));
    bytes += "\r\nContent-Type: " + r.type + "\r\nContent-Length: " + std::to_string(r.body.size()) + "\r\n";
    bytes += "Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n";
    bytes += r.more_headers + "\r\n";
    if (!head_only) bytes += r.body;
    return bytes;
}

bool same_secret(std::string_view a, std::string_view b) noexcept {
    if (a.size() != b.size()) return false;
    unsigned char different = 0;
    for (std::size_t i = 0; i < a.size(); ++i) different = static_cast<unsigned char>(different | (a[i] ^ b[i]));
    return different == 0;
}

}  // namespace dunlin::debug
