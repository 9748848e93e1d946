// nats/bucket.hpp - keys and values that all processes see, with revisions, and a channel of changes. The layout is
// NATS' own: its tools can read it.
#pragma once

#include <dunlin/config.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <dunlin/nats/cluster.hpp>
#include <dunlin/nats/subscription.hpp>

namespace dunlin::inline v0_1::nats {

struct bucket_options {
    int replicas = 1;
    int history = 1;                        ///< values kept for each key, 64 at most
    std::chrono::milliseconds lifetime{0};  ///< of a value; 0: for ever
    std::int64_t max_bytes = -1;
    bool in_memory = false;
};

/// A value with its key and revision.
template <class T>
struct entry {
    std::string key;
    std::optional<T> value;       ///< empty: the key was erased
    std::uint64_t revision = 0;   ///< grows with each change in the bucket
};

namespace detail {

struct raw_entry {
    nats::message message;  // empty: the key has no value
    std::string key;
    std::uint64_t revision = 0;
    bool erased = false;
};

struct watch_state;

class DUNLIN_API raw_bucket {
public:
    raw_bucket(std::shared_ptr<connection> c, std::string name, const bucket_options& o, const context& ctx);
    raw_entry get(const std::string& key, const context& ctx) const;
    // `expected`: the revision that the key must have; nullopt: any.
    std::uint64_t write(const std::string& key, std::string_view data, std::optional<std::uint64_t> expected,
        const char* operation, const context& ctx) const;
    std::shared_ptr<watch_state> watch(const std::string& keys) const;
    const std::string& name() const noexcept { return name_; }

private:
    std::shared_ptr<connection> connection_;
    std::string name_;
};

// An exception of codec<T> becomes an error that names the key.
template <class T>
T decoded(const char* call, const std::string& key, std::string_view bytes) {
    std::string words = "not an std::exception";
    try {
        return codec<T>::decode(bytes);
    } catch (const std::exception& e) {
        words = e.what();
    } catch (...) {
        static_cast<void>(dunlin::detail::caught());
    }
    throw error(errc::undecodable, call, key, words);
}

struct DUNLIN_API watching {
    static const chan<message>& ready(const watch_state& w) noexcept;
    static void taken(watch_state& w) noexcept;
    static void check(watch_state& w);
    static void stop(watch_state& w) noexcept;
    static raw_entry read(const watch_state& w, message m);
};

}  // namespace detail

template <class T>
class watcher;
template <class T, class Handler>
[[nodiscard]] auto on_change(
    const watcher<T>& w, Handler&& handler, std::source_location where = std::source_location::current());

/// Changes of a bucket's keys, each key's present value first. Move-only.
template <class T>
class watcher {
public:
    explicit watcher(std::shared_ptr<detail::watch_state> s) noexcept : state_(std::move(s)) {}
    watcher(watcher&&) noexcept = default;
    watcher& operator=(watcher&&) = delete;
    ~watcher() {
        if (state_) detail::watching::stop(*state_);
    }
    /// The next change. Throws the error that has ended the watcher; context_cancelled; errc::undecodable for a value
    /// that does not decode, which is then skipped.
    entry<T> recv(const context& ctx = {}) const {
        auto m = detail::watching::ready(*state_).recv(ctx);
        if (!m) {
            detail::watching::check(*state_);
            throw error(errc::closed, "watch", "", "");
        }
        return read(*state_, std::move(*m));
    }

private:
    template <class U, class Handler>
    friend auto on_change(const watcher<U>& w, Handler&& handler, std::source_location where);
    static entry<T> read(detail::watch_state& s, message m) {
        detail::watching::taken(s);
        const detail::raw_entry raw = detail::watching::read(s, std::move(m));
        entry<T> e{raw.key, std::nullopt, raw.revision};
        if (!raw.erased) e.value.emplace(detail::decoded<T>("watch", raw.key, raw.message.data()));
        return e;
    }
    std::shared_ptr<detail::watch_state> state_;
};

/// A case of select(): handler(entry<T>) with the next change. select() throws the error that has ended the watcher.
template <class T, class Handler>
auto on_change(const watcher<T>& w, Handler&& handler, std::source_location where) {
    auto run = [s = w.state_, handle = std::forward<Handler>(handler)](std::optional<message> m) mutable {
        if (!m) {
            detail::watching::check(*s);
            throw error(errc::closed, "watch", "", "");
        }
        return handle(watcher<T>::read(*s, std::move(*m)));
    };
    return on_recv(detail::watching::ready(*w.state_), std::move(run), where);
}

/// Keys are made of letters, digits and -_=./ and do not begin or end with a dot. A counted handle.
template <class T>
class bucket {
public:
    bucket(std::shared_ptr<detail::connection> c, const std::string& name, const bucket_options& o, const context& ctx)
        : raw_(std::move(c), name, o, ctx) {}

    /// nullopt if the key does not exist, or was erased. Any replica may answer, so a value that was just put elsewhere
    /// may not be visible yet. Throws errc::undecodable if the value is not a T.
    std::optional<entry<T>> get(const std::string& key, const context& ctx = {}) const {
        detail::raw_entry raw = raw_.get(key, ctx);
        if (!raw.message || raw.erased) return std::nullopt;
        return entry<T>{key, detail::decoded<T>("get", key, raw.message.data()), raw.revision};
    }
    /// Returns the revision, once a majority of the replicas has stored it.
    std::uint64_t put(const std::string& key, const T& value, const context& ctx = {}) const {
        return raw_.write(key, codec<T>::encode(value), std::nullopt, nullptr, ctx);
    }
    /// put() for a key that does not exist. Throws errc::wrong_revision if it exists.
    std::uint64_t create(const std::string& key, const T& value, const context& ctx = {}) const {
        const detail::raw_entry raw = raw_.get(key, ctx);
        return raw_.write(key, codec<T>::encode(value), raw.erased ? raw.revision : 0, nullptr, ctx);
    }
    /// put() if the key's revision is still `revision`; otherwise throws errc::wrong_revision.
    std::uint64_t update(
        const std::string& key, const T& value, std::uint64_t revision, const context& ctx = {}) const {
        return raw_.write(key, codec<T>::encode(value), revision, nullptr, ctx);
    }
    void erase(const std::string& key, const context& ctx = {}) const { raw_.write(key, {}, std::nullopt, "DEL", ctx); }

    /// Changes of the keys that match ("a.*", ">": all).
    [[nodiscard]] watcher<T> watch(const std::string& keys = ">") const { return watcher<T>(raw_.watch(keys)); }
    const std::string& name() const noexcept { return raw_.name(); }

private:
    detail::raw_bucket raw_;
};

template <class T>
nats::bucket<T> cluster::bucket(const std::string& name, const bucket_options& o, const context& ctx) const {
    return nats::bucket<T>(connection_, name, o, ctx);
}
template <class T>
nats::bucket<T> cluster::bucket(const std::string& name) const {
    return nats::bucket<T>(connection_, name, bucket_options{}, {});
}

}  // namespace dunlin::nats
