// text.cpp - see text.h.
#include "text.h"

#include <charconv>
#include <random>
#include <vector>

#include <dunlin/detail/atomic.hpp>

namespace dunlin::inline v0_1::nats::detail {

namespace {

constexpr int deepest = 64;

// A cursor over JSON. Each function returns false where the text is not JSON.
class reader {
public:
    explicit reader(std::string_view text) noexcept : text_(text) {}

    bool find(std::initializer_list<std::string_view> path, std::string& out) {
        for (const std::string_view key : path) {
            if (!enter(key)) return false;
        }
        space();
        if (at('"')) return text(&out);
        const std::size_t from = at_;
        if (!skip(0)) return false;
        out.assign(text_.substr(from, at_ - from));
        return true;
    }

private:
    bool at(char c) const noexcept { return at_ < text_.size() && text_[at_] == c; }
    bool take(char c) noexcept {
        space();
        if (!at(c)) return false;
        ++at_;
        return true;
    }
    void space() noexcept {
        while (
            at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
            ++at_;
    }
    bool enter(std::string_view wanted) {
        if (!take('{')) return false;
        space();
        while (!at('}')) {
            std::string key;
            space();
            if (!text(&key) || !take(':')) return false;
            if (key == wanted) return true;
            if (!skip(0)) return false;
            if (!take(',')) return false;
        }
        return false;
    }
    bool text(std::string* out) {
        if (!at('"')) return false;
        for (++at_; at_ < text_.size(); ++at_) {
            char c = text_[at_];
            if (c == '"') {
                ++at_;
                return true;
            }
            if (c == '\\') {
                if (++at_ >= text_.size()) return false;
                c = text_[at_];
                if (c == 'u') {
                    if (text_.size() - at_ < 5 || !unicode(out)) return false;
                    continue;
                }
                const std::string_view letters = "bfnrt", meanings = "\b\f\n\r\t";
                if (const std::size_t i = letters.find(c); i != letters.npos) c = meanings[i];
            }
            if (out != nullptr) out->push_back(c);
        }
        return false;
    }
    bool unicode(std::string* out) {
        unsigned code = 0;
        const char* first = text_.data() + at_ + 1;
        const auto [end, fault] = std::from_chars(first, first + 4, code, 16);
        if (fault != std::errc() || end != first + 4) return false;
        at_ += 4;
        if (out == nullptr) return true;
        if (code < 0x80) {
            out->push_back(static_cast<char>(code));
        } else if (code < 0x800) {
            out->push_back(static_cast<char>(0xC0 | code >> 6));
            out->push_back(static_cast<char>(0x80 | (code & 63)));
        } else {
            out->push_back(static_cast<char>(0xE0 | code >> 12));
            out->push_back(static_cast<char>(0x80 | (code >> 6 & 63)));
            out->push_back(static_cast<char>(0x80 | (code & 63)));
        }
        return true;
    }
    bool skip(int depth) {
        space();
        if (depth > deepest || at_ >= text_.size()) return false;
        if (at('"')) return text(nullptr);
        if (at('{') || at('[')) {
            const bool object = at('{');
            const char close = object ? '}' : ']';
            ++at_;
            space();
            if (take(close)) return true;
            do {
                space();
                if (object && (!text(nullptr) || !take(':'))) return false;
                if (!skip(depth + 1)) return false;
            } while (take(','));
            return take(close);
        }
        const std::size_t from = at_;
        while (at_ < text_.size() && std::string_view(",}] \n\t\r").find(text_[at_]) == std::string_view::npos) ++at_;
        return at_ > from;
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

}  // namespace

std::optional<std::string> json_text(std::string_view json, std::initializer_list<std::string_view> path) {
    std::string out;
    if (!reader(json).find(path, out)) return std::nullopt;
    return out;
}

std::optional<std::int64_t> json_number(std::string_view json, std::initializer_list<std::string_view> path) {
    const auto text = json_text(json, path);
    std::int64_t n = 0;
    if (!text || std::from_chars(text->data(), text->data() + text->size(), n).ec != std::errc()) return std::nullopt;
    return n;
}

std::string json_quoted(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        if (static_cast<unsigned char>(c) < 0x20) {
            const char* hex = "0123456789abcdef";
            out += "\\u00";
            out += hex[static_cast<unsigned char>(c) >> 4];
            out += hex[c & 15];
        } else {
            out += c;
        }
    }
    return out + '"';
}

std::optional<ack_subject> read_ack_subject(std::string_view subject) {
    if (!subject.starts_with("$JS.ACK.")) return std::nullopt;
    std::vector<std::string_view> parts;
    for (std::size_t from = 0; from <= subject.size();) {
        const std::size_t dot = std::min(subject.find('.', from), subject.size());
        parts.push_back(subject.substr(from, dot - from));
        from = dot + 1;
    }
    // $JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<consumer's sequence>.<time>.<pending>, or with a domain and
    // an account after ACK.
    const std::size_t shift = parts.size() >= 11 ? 2 : 0;
    if (parts.size() != 9 && parts.size() < 11) return std::nullopt;
    ack_subject a;
    const auto number = [&](std::size_t i, std::uint64_t& n) {
        return std::from_chars(parts[i].data(), parts[i].data() + parts[i].size(), n).ec == std::errc();
    };
    if (!number(4 + shift, a.deliveries) || !number(5 + shift, a.sequence) || !number(6 + shift, a.consumer_sequence))
        return std::nullopt;
    a.consumer = parts[3 + shift];
    a.stored = parts[7 + shift];
    return a;
}

std::string base36(std::uint64_t n) {
    std::string digits;
    do {
        digits.insert(digits.begin(), "0123456789abcdefghijklmnopqrstuvwxyz"[n % 36]);
        n /= 36;
    } while (n != 0);
    return digits;
}

std::optional<std::uint64_t> read_base36(std::string_view text) noexcept {
    std::uint64_t n = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), n, 36);
    if (fault != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return n;
}

bool is_blank(std::string_view text) noexcept { return text.find_first_not_of(" \t\n\v\f\r") == text.npos; }

std::string one_line(std::string_view text) {
    std::string line(text);
    for (char& c : line) {
        if (static_cast<unsigned char>(c) < ' ') c = ' ';
    }
    return line;
}

std::string unique_name() {
    static const std::string process = [] {
        std::random_device random;
        std::string name;
        for (int i = 0; i < 3; ++i) name += base36(random() | std::uint64_t{1} << 32).substr(1);
        return name.substr(0, 14);
    }();
    static platform::atomic<std::uint64_t> next{0};
    return process + base36(next.fetch_add(1, std::memory_order_relaxed));
}

}  // namespace dunlin::nats::detail
