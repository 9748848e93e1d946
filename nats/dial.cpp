// dial.cpp - see dial.h.
#include "dial.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>

#include <dunlin/net.hpp>

#include "limits.h"

namespace dunlin::inline v0_1::nats::detail {

namespace {

// Where the host, or the user, begins.
std::size_t after_scheme(std::string_view url) {
    const std::size_t scheme = url.find("://");
    return scheme == url.npos || url.substr(0, scheme).find_first_of(":@") != url.npos ? 0 : scheme + 3;
}

bool has_user(std::string_view url) { return url.find('@') != url.npos; }

// Is what would be printed of this address, "scheme://host:port" or less, no user with a password?
bool names_a_host(std::string_view shown) {
    shown.remove_prefix(after_scheme(shown));
    if (shown.ends_with('/')) shown.remove_suffix(1);
    if (shown.starts_with('[') && shown.find(']') != shown.npos) shown.remove_prefix(shown.find(']'));
    const std::size_t colon = shown.rfind(':');
    if (colon == shown.npos) return true;
    const std::string_view host = shown.substr(0, colon), port = shown.substr(colon + 1);
    const bool is_number = port.find_first_not_of("0123456789") == port.npos && port.size() <= 5;
    constexpr std::string_view of_ipv6 = "0123456789abcdefABCDEF:.";  // also without brackets
    return is_number && (host.find(':') == host.npos || host.find_first_not_of(of_ipv6) == host.npos);
}

// Errors print addresses without users and passwords. A comma in a password cuts it into two parts, of which the first
// looks like an address, so its remainder must not be taken for one. None of the text may be in these words.
void check_addresses(const std::vector<std::string>& parts) {
    for (const std::string& part : parts) {
        if (!names_a_host(printable(part)))
            throw error(errc::no_server, "connect", "",
                "one of the addresses has a port that is no number, or a user but no host: a comma in a name or "
                "password is written %2C");
        if (&part != &parts.front() && has_user(part) && after_scheme(part) == 0)
            throw error(errc::no_server, "connect", "",
                "an address with a user begins with nats:// or tls:// where it follows a comma: one in a name or "
                "password is written %2C");
    }
}

}  // namespace

std::vector<std::string> split_addresses(const std::string& text) {
    std::vector<std::string> parts;
    for (std::size_t from = 0; from <= text.size();) {
        const std::size_t comma = std::min(text.find(',', from), text.size());
        std::string part = text.substr(from, comma - from);
        while (!part.empty() && part.front() == ' ') part.erase(0, 1);
        while (!part.empty() && part.back() == ' ') part.pop_back();
        if (!part.empty()) parts.push_back(std::move(part));
        from = comma + 1;
    }
    check_addresses(parts);
    return parts;
}

namespace {

// "host:port"
std::string dialled(const std::string& url) {
    std::string host = printable(url);
    host.erase(0, after_scheme(host));
    return host.find(':', host.rfind(']') == host.npos ? 0 : host.rfind(']')) == host.npos ? host + ":4222" : host;
}

std::string said(const std::string& url, std::chrono::milliseconds timeout, const context& ctx) {
    std::error_code ec;
    const auto [soon, cancel] = with_timeout(ctx, timeout);
    auto s = net::dial("tcp", dialled(url), soon, ec);
    if (ec) return printable(url) + ": " + ec.message();
    return printable(url) + ": accepts connections";
}

struct options_deleter {
    void operator()(natsOptions* o) const noexcept { natsOptions_Destroy(o); }
};

using options_pointer = std::unique_ptr<natsOptions, options_deleter>;

void must(natsStatus s, const std::string& what) { failure_of(s).check("connect", what); }

// Throws if libnats rejects an option: a file that cannot be read, an invalid address.
options_pointer libnats_options(const std::vector<std::string>& urls, const connect_options& o) {
    natsOptions* raw = nullptr;
    failure_of(natsOptions_Create(&raw)).check("connect", "");
    options_pointer made(raw);
    std::vector<const char*> list;
    for (const std::string& url : urls) list.push_back(url.c_str());
    must(natsOptions_SetServers(raw, list.data(), static_cast<int>(list.size())), printable(urls.front()));
    if (!o.name.empty()) must(natsOptions_SetName(raw, o.name.c_str()), o.name);
    if (!o.user.empty()) must(natsOptions_SetUserInfo(raw, o.user.c_str(), o.password.c_str()), o.user);
    if (!o.token.empty()) must(natsOptions_SetToken(raw, o.token.c_str()), "token");
    if (!o.credentials_file.empty())
        must(natsOptions_SetUserCredentialsFromFiles(raw, o.credentials_file.c_str(), nullptr), o.credentials_file);
    if (is_encrypted(urls, o)) must(natsOptions_SetSecure(raw, true), "tls");
    if (!o.authorities.empty()) must(natsOptions_LoadCATrustedCertificates(raw, o.authorities.c_str()), o.authorities);
    if (!o.certificate.empty())
        must(natsOptions_LoadCertificatesChain(raw, o.certificate.c_str(), o.key.c_str()), o.certificate);
    must(natsOptions_SetTimeout(raw, for_libnats(o.timeout)), "timeout");
    must(natsOptions_SetAllowReconnect(raw, false), "reconnect");
    must(natsOptions_SetPingInterval(raw, for_libnats(o.ping)), "ping");
    must(natsOptions_SetMaxPingsOut(raw, 2), "ping");
    must(natsOptions_SetSendAsap(raw, true), "send");  // no flusher thread: our loop writes (loop.h)
    must(natsOptions_UseGlobalMessageDelivery(raw, true), "delivery");
    return made;
}

}  // namespace

std::string printable(const std::string& url) {
    const std::size_t from = after_scheme(url), at = url.rfind('@');
    return at == url.npos || at < from ? url : url.substr(0, from) + url.substr(at + 1);
}

std::string printable(const std::vector<std::string>& urls) {
    std::string all;
    for (const std::string& url : urls) all += (all.empty() ? "" : ",") + printable(url);
    return all;
}

bool is_encrypted(const std::vector<std::string>& urls, const connect_options& o) {
    return o.tls ||
           std::any_of(urls.begin(), urls.end(), [](const std::string& url) { return url.starts_with("tls://"); });
}

std::string said_by_each(const std::vector<std::string>& urls, std::chrono::milliseconds timeout, const context& ctx) {
    std::string all;
    for (const std::string& url : urls) all += (all.empty() ? "" : "; ") + said(url, timeout, ctx);
    return all;
}

std::size_t index_of(const std::vector<std::string>& urls, const std::string& url) {
    const std::string host = dialled(url);
    return static_cast<std::size_t>(std::find_if(urls.begin(), urls.end(), [&](const std::string& u) {
        return dialled(u) == host;
    }) - urls.begin());
}

std::vector<std::string> discovered(natsConnection* nc, const std::vector<std::string>& known) {
    char** list = nullptr;
    int count = 0;
    std::vector<std::string> fresh;
    if (natsConnection_GetDiscoveredServers(nc, &list, &count) != NATS_OK) return fresh;
    const std::string& first = known.front();
    const std::size_t from = after_scheme(first), at = first.rfind('@');
    const std::string before = at == first.npos || at < from ? first.substr(0, from) : first.substr(0, at + 1);
    for (int i = 0; i < count; ++i) {
        if (index_of(known, list[i]) == known.size()) fresh.push_back(before + dialled(list[i]));
        std::free(list[i]);
    }
    std::free(list);
    return fresh;
}

attempt dial(const std::vector<std::string>& urls, const connect_options& o, event_loop& loop, const listeners& tell) {
    attempt a;
    try {
        const options_pointer options = libnats_options(urls, o);
        must(natsOptions_SetClosedCB(options.get(), tell.closed, tell.closure), "closed");
        must(natsOptions_SetErrorHandler(options.get(), tell.error, tell.closure), "error");
        loop.configure(options.get(), is_encrypted(urls, o));
        a.fault = failure_of(natsConnection_Connect(&a.made, options.get()));
    } catch (const error& e) {
        a.fault = {static_cast<errc>(e.code().value()), e.subject() + ": " + e.words()};
    }
    return a;
}

}  // namespace dunlin::nats::detail
