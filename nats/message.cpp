// message.cpp - messages, on top of libnats'.
#include <cstdlib>

#include <nats/nats.h>

#include <dunlin/nats/message.hpp>

namespace dunlin::inline v0_1::nats {

void detail::message_deleter::operator()(__natsMsg* m) const noexcept { natsMsg_Destroy(m); }

namespace {
std::string_view or_empty(const char* text) noexcept {
    return text != nullptr ? std::string_view(text) : std::string_view();
}
}  // namespace

std::string_view message::subject() const noexcept {
    return m_ ? or_empty(natsMsg_GetSubject(m_.get())) : std::string_view();
}
std::string_view message::reply() const noexcept {
    return m_ ? or_empty(natsMsg_GetReply(m_.get())) : std::string_view();
}
std::string_view message::data() const noexcept {
    if (!m_ || natsMsg_GetDataLength(m_.get()) <= 0) return {};
    return {natsMsg_GetData(m_.get()), static_cast<std::size_t>(natsMsg_GetDataLength(m_.get()))};
}

std::optional<std::string> message::header(const std::string& name) const {
    const char* value = nullptr;
    if (!m_ || natsMsgHeader_Get(m_.get(), name.c_str(), &value) != NATS_OK || value == nullptr) return std::nullopt;
    return value;
}

headers message::all_headers() const {
    headers all;
    const char** keys = nullptr;
    int count = 0;
    if (!m_ || natsMsgHeader_Keys(m_.get(), &keys, &count) != NATS_OK) return all;
    for (int i = 0; i < count; ++i) {
        const char** values = nullptr;
        int n = 0;
        if (natsMsgHeader_Values(m_.get(), keys[i], &values, &n) != NATS_OK) continue;
        for (int j = 0; j < n; ++j) all.emplace_back(keys[i], values[j]);
        std::free(values);
    }
    std::free(keys);
    return all;
}

}  // namespace dunlin::nats
