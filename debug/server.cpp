// server.cpp - serve(): one goroutine that accepts, one for each connection, one request for each connection.
//
// Held up    Dumps and profiles stop the world for a moment: one at a time, and a request that waits longer than
//            reply_limit for its turn is told so. The reply is written to the socket only after the world goes on
//            again.
// Strangers  Without a token the server listens only at loopback addresses, and answers only requests that name such a
//            host: not those of a page of another site whose name was made to resolve to this machine. Without a host
//            there are only requests of HTTP/1.0, which no browser sends.
// Tests      tests/debug/server_test.cpp, tests/tools/debug_test.py
#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <memory>
#include <mutex>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include <dunlin/context.hpp>
#include <dunlin/debug.hpp>
#include <dunlin/go.hpp>
#include <dunlin/mutex.hpp>
#include <dunlin/runtime.hpp>
#include <dunlin/trace.hpp>
#include <dunlin/wait_group.hpp>

#include "http.h"
#include "metrics.h"
#include "page.h"

extern "C" const char dunlin_debug_page;

namespace dunlin::inline v0_1::debug {

// Without this the linker would leave setting.cpp out of a program that is linked with the archive and only calls
// serve().
[[gnu::used]] static const char* const setting_is_linked = &dunlin_debug_page;

struct server_state : std::enable_shared_from_this<server_state> {
    explicit server_state(serve_options o) : options(std::move(o)) {}

    const serve_options options;
    net::listener listener;
    const cancellable ctx = with_cancel(context::background());  // when it is done, everything ends
    wait_group goroutines;
    std::atomic<unsigned> connections{0};
    mutex one_at_a_time;  // what stops the world
    // Under one_at_a_time. The flight recorder that runs is ours; a request for a trace of some seconds uses it; a
    // goroutine will stop it.
    bool records = false, traces = false, watches_recorder = false;
    clock::time_point recorder_asked = {};
    bool counts_waits = false;
};

namespace {

constexpr std::chrono::milliseconds goodbye_limit{500};
constexpr std::chrono::seconds close_limit{2};
constexpr std::chrono::seconds recorder_lasts{10};
constexpr std::size_t recorder_bytes = std::size_t{1} << 20;

std::string lower_case(std::string_view text) {
    std::string result(text);
    for (char& c : result) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return result;
}

bool is_loopback_name(std::string_view any_case) {
    const std::string host = lower_case(any_case);
    if (host == "localhost" || host.ends_with(".localhost")) return true;
    std::error_code ec;
    const net::address a = net::address::parse("tcp", net::join_host_port(host, "0"), ec);
    return !ec && a.is_loopback();
}

// Are all addresses that the host may resolve to loopback addresses? Numbers are taken as they are: resolve() finds a
// way to this machine for "0.0.0.0" too, but a listener there is reached from any machine.
bool is_loopback_address(std::string_view address) {
    const auto [host, port] = net::split_host_port(address);
    if (host.empty()) return false;
    std::error_code is_name;
    if (const net::address a = net::address::parse("tcp", net::join_host_port(host, "0"), is_name); !is_name) {
        return a.is_loopback();
    }
    for (const net::address& a : net::resolve("tcp", address)) {
        if (!a.is_loopback()) return false;
    }
    return true;
}

reply text_of(std::ostringstream& text, std::string type = "text/plain; charset=utf-8") {
    reply r;
    r.body = std::move(text).str();
    r.type = std::move(type);
    return r;
}

reply profile_reply(std::ostringstream& out, const std::string& name, const std::string& debug) {
    if (debug != "0") return text_of(out);
    reply r = text_of(out, "application/octet-stream");
    r.more_headers = "Content-Disposition: attachment; filename=\"" + name + "\"\r\n";
    return r;
}

// `text` as a number of seconds; 0: it is none.
unsigned seconds_of(const std::string& text) noexcept {
    constexpr unsigned longest = 600;
    unsigned seconds = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    return error == std::errc() && end == text.data() + text.size() && seconds <= longest ? seconds : 0;
}

// Profiles the CPU for as long as the request asks. Other requests are answered meanwhile.
reply cpu_profile(const server_state& s, const request& asked) {
    const std::string debug = asked.parameter("debug").value_or("0");
    if (debug != "0" && debug != "1") return failure(400, "debug is 0 or 1");
    const unsigned seconds = seconds_of(asked.parameter("seconds").value_or("30"));
    if (seconds == 0) return failure(400, "seconds is 1 to 600");
    std::ostringstream out;
    try {
        runtime::start_cpu_profile();
    } catch (const std::system_error& e) {
        if (e.code() != std::errc::device_or_resource_busy) throw;
        return failure(409, "a CPU profile already runs");
    }
    try {
        sleep_for(std::chrono::seconds(seconds), s.ctx);
    } catch (...) {
        runtime::stop_cpu_profile(out);
        throw;
    }
    runtime::stop_cpu_profile(out, debug == "0" ? runtime::profile_format::pprof : runtime::profile_format::text);
    return profile_reply(out, "profile", debug);
}

reply recorded() {
    std::ostringstream out;
    try {
        trace::write_recorder(out);
    } catch (const std::logic_error&) {
        return failure(409, "the program writes a trace into a file: there is no flight recorder beside it");
    }
    reply r = text_of(out, "application/octet-stream");
    r.more_headers = "Content-Disposition: attachment; filename=\"trace\"\r\n";
    return r;
}

// one_at_a_time is held. False: a trace, or another recorder, runs.
bool start_our_recorder(server_state& s, std::size_t bytes) {
    if (trace::running()) return false;
    try {
        trace::start_recorder({.bytes = bytes});
    } catch (const std::system_error&) {  // another recorder was quicker
        return false;
    }
    s.records = true;
    return true;
}

void stop_our_recorder(server_state& s) {
    if (std::exchange(s.records, false)) trace::stop_recorder();
}

// The recorder costs something: it ends when it has not been asked for in a while.
void end_unwatched_recorder(server_state& s) {
    for (bool can_wait = true;;) {
        try {
            sleep_for(std::chrono::seconds(1), s.ctx);
        } catch (const context_cancelled&) {  // the server ends, and close() stops the recorder
            return;
        } catch (const std::bad_alloc&) {
            can_wait = false;
        }
        const std::unique_lock turn(s.one_at_a_time);
        if (can_wait && s.traces) continue;
        if (can_wait && s.records && clock::now() - s.recorder_asked <= recorder_lasts) continue;
        if (!s.traces) stop_our_recorder(s);
        s.watches_recorder = false;
        return;
    }
}

// one_at_a_time is held.
void watch_recorder(server_state& s) {
    if (s.watches_recorder) return;
    s.goroutines.go(
        {.name = "dunlin::debug recorder"}, [self = s.shared_from_this()] { end_unwatched_recorder(*self); });
    s.watches_recorder = true;
}

// What the flight recorder has kept, the program's own or ours.
reply last_events(server_state& s) {
    constexpr std::chrono::milliseconds first_look{50};
    const std::unique_lock turn(s.one_at_a_time, s.options.reply_limit);
    if (!turn.owns_lock()) return failure(503, "others are being answered, and it lasts");
    if (s.traces) return failure(409, "a trace of some seconds is being made");
    s.recorder_asked = clock::now();
    if (start_our_recorder(s, recorder_bytes)) {
        try {
            watch_recorder(s);
        } catch (const std::bad_alloc&) {
            stop_our_recorder(s);
            throw;
        }
        sleep_for(first_look, s.ctx);
    }
    return recorded();
}

// The recorder of a trace of some seconds, which ends with it.
class long_trace {
public:
    // `turn` is held.
    long_trace(server_state& s, std::unique_lock<mutex>& turn) noexcept : server_(s), turn_(turn) { s.traces = true; }
    ~long_trace() {
        if (!turn_.owns_lock()) turn_.lock();
        server_.traces = false;
        stop_our_recorder(server_);
    }
    long_trace(const long_trace&) = delete;
    long_trace& operator=(const long_trace&) = delete;

private:
    server_state& server_;
    std::unique_lock<mutex>& turn_;
};

// A trace of some seconds, by a recorder that is large enough for most programs. Other requests are answered meanwhile.
reply trace_of(server_state& s, const request& asked) {
    constexpr std::size_t bytes = std::size_t{64} << 20;
    const unsigned seconds = seconds_of(asked.parameter("seconds").value_or("1"));
    if (seconds == 0) return failure(400, "seconds is 1 to 600");
    std::unique_lock turn(s.one_at_a_time, s.options.reply_limit);
    if (!turn.owns_lock()) return failure(503, "others are being answered, and it lasts");
    if (s.traces) return failure(409, "a trace of some seconds is being made");
    stop_our_recorder(s);
    if (!start_our_recorder(s, bytes)) {
        return failure(409, "a trace or the flight recorder runs already: /trace is what the recorder has kept");
    }
    const long_trace now(s, turn);
    turn.unlock();
    try {
        sleep_for(std::chrono::seconds(seconds), s.ctx);
    } catch (const context_cancelled&) {
        return failure(503, "the server ends");
    }
    turn.lock();
    return recorded();
}

reply profile(const std::string& name, const request& asked) {
    const std::string debug = asked.parameter("debug").value_or("0");
    if (debug != "0" && debug != "1" && debug != "2") return failure(400, "debug is 0, 1 or 2");
    if (asked.parameter("seconds")) return failure(400, "of some seconds there is the profile `profile` alone");
    std::ostringstream out;
    const auto format = debug == "0" ? runtime::profile_format::pprof : runtime::profile_format::text;
    if (name == "goroutine" && debug == "2") {
        runtime::dump(out);
    } else if (name == "goroutine") {
        runtime::goroutine_profile(out, format);
    } else if (name == "block") {
        runtime::block_profile(out, format);
    } else if (name == "mutex") {
        runtime::mutex_profile(out, format);
    } else {
        return failure(404, "there are the profiles goroutine, block, mutex, profile and trace");
    }
    return profile_reply(out, name, debug);
}

constexpr std::string_view pprof_index =
    "/debug/pprof/\n\ngoroutine   all goroutines, by stack\nblock       where goroutines and threads have waited "
    "(runtime::set_block_profile_rate)\nmutex       which holders others waited for "
    "(runtime::set_mutex_profile_fraction)\nprofile     what burns the CPU, for ?seconds=N (30)\ntrace       what happened when, for ?seconds=N (1): "
    "for dunlin-trace\n\n?debug=1: as text; goroutine?debug=2: a dump\n";

// Stops the world: one at a time.
reply look(const request& asked) {
    std::ostringstream out;
    if (asked.path == "/dump") return runtime::dump(out), text_of(out);
    if (asked.path == "/dump.json") {
        runtime::dump(out, {.format = runtime::dump_format::json});
        return text_of(out, "application/json");
    }
    constexpr std::string_view profiles = "/debug/pprof/";
    return profile(asked.path.substr(profiles.size()), asked);
}

reply answer(server_state& s, const request& asked) {
    const bool has_token = !s.options.token.empty();
    if (has_token) {
        const std::string given = asked.bearer.empty() ? asked.parameter("token").value_or("") : asked.bearer;
        if (!same_secret(given, s.options.token)) {
            reply r = failure(401, "the token is missing or wrong (Authorization: Bearer TOKEN, or ?token=TOKEN)");
            r.more_headers = "WWW-Authenticate: Bearer\r\n";
            return r;
        }
    } else if (!asked.host.empty() && !is_loopback_name(asked.host)) {
        return failure(403, "without a token this is for localhost only, and the request is for another host");
    }
    reply r;
    if (asked.path == "/") {
        r.body = page_html;
        r.type = "text/html; charset=utf-8";
        r.more_headers = page_policy;
        return r;
    }
    if (asked.path == "/metrics") {
        r.body = metrics();
        r.type = "text/plain; version=0.0.4; charset=utf-8";
        return r;
    }
    if (asked.path == "/debug/pprof" || asked.path == "/debug/pprof/") {
        r.body = pprof_index;
        return r;
    }
    if (asked.path == "/trace") return last_events(s);
    if (asked.path != "/dump" && asked.path != "/dump.json" && !asked.path.starts_with("/debug/pprof/")) {
        return failure(404, "there are /, /dump, /dump.json, /metrics, /trace and /debug/pprof/");
    }
    if (asked.path == "/debug/pprof/trace") return trace_of(s, asked);
    if (asked.path == "/debug/pprof/profile") return cpu_profile(s, asked);
    const std::unique_lock turn(s.one_at_a_time, s.options.reply_limit);
    if (!turn.owns_lock()) return failure(503, "others are being answered, and it lasts");
    return look(asked);
}

// Must a request with these first lines name a host? HTTP/1.0 allows none; a name that is given must not be empty.
bool must_name_a_host(std::string_view lines) {
    const std::string head = lower_case(lines);
    return head.substr(0, head.find('\n')).find(" http/1.1") != head.npos || head.find("\nhost:") != head.npos;
}

reply parse(const server_state& s, std::string_view lines, request& into) {
    reply r = parse_request(lines, into);
    if (r.status == 200 && s.options.token.empty() && into.host.empty() && must_name_a_host(lines))
        return failure(400, "the request names no host");
    return r;
}

// Reads the first lines of a request. A status other than 200 says what came instead. Throws io_error when the client
// has gone.
reply receive(const server_state& s, net::stream& client, request& into) {
    std::string text;
    char piece[1024];
    for (;;) {
        std::error_code ec;
        const std::size_t got = client.read_some(piece, sizeof piece, s.ctx, ec);
        if (ec == std::errc::timed_out) return failure(408, "the request did not come in time");
        if (ec) throw io_error(ec, "read");
        if (got == 0) return failure(400, "the request ends in its midst");
        const std::size_t seen = text.size() < 3 ? 0 : text.size() - 3;
        text.append(piece, got);
        if (text.size() > longest_head) return failure(431, "the first lines of a request have 8192 bytes at most");
        const std::size_t end = text.find("\r\n\r\n", seen), short_end = text.find("\n\n", seen);
        if (end != text.npos || short_end != text.npos) {
            return parse(s, std::string_view(text).substr(0, std::min(end, short_end)), into);
        }
    }
}

// If bytes are unread when the connection is closed, the kernel resets it, and the reply may be lost.
void say_goodbye(const server_state& s, net::stream& client) {
    std::error_code ignored;
    client.close_write(ignored);
    client.set_read_deadline(clock::now() + goodbye_limit, ignored);
    char rest[1024];
    for (int pieces = 0; pieces < 64; ++pieces) {
        if (client.read_some(rest, sizeof rest, s.ctx, ignored) == 0) break;
    }
}

void serve_one(server_state& s, net::stream client) {
    try {
        request asked;
        client.set_read_deadline(s.options.request_limit);
        reply r = receive(s, client, asked);
        if (r.status == 200) {
            try {
                r = answer(s, asked);
            } catch (const std::exception& e) {
                r = failure(500, e.what());
            }
        }
        client.set_write_deadline(s.options.reply_limit);
        client.write_all(to_bytes(r, asked.head_only), s.ctx);
        say_goodbye(s, client);
    } catch (const std::exception&) {  // the client has gone, or the server ends
    }
}

void turn_away(const server_state& s, net::stream client) {
    std::error_code ignored;
    try {
        client.set_write_deadline(clock::now() + goodbye_limit, ignored);
        client.write_all(to_bytes(failure(503, "too many requests at once"), false), s.ctx, ignored);
        say_goodbye(s, client);
    } catch (const std::bad_alloc&) {  // it is closed without a word
    }
}

net::stream next_client(server_state& s, std::error_code& ec) {
    try {
        return s.listener.accept(s.ctx, ec);
    } catch (const std::bad_alloc&) {
        ec = std::make_error_code(std::errc::not_enough_memory);
        return {};
    }
}

// After a fault that may pass.
void wait_a_little() noexcept {
    try {
        sleep_for(goodbye_limit);
    } catch (const std::bad_alloc&) {
        yield();
    }
}

void accept_all(const std::shared_ptr<server_state>& s) {
    for (;;) {
        std::error_code ec;
        net::stream client = next_client(*s, ec);
        if (s->ctx.is_done()) return;
        if (ec) {
            wait_a_little();
            continue;
        }
        const unsigned others = s->connections.load(std::memory_order_relaxed);
        if (others / 2 >= s->options.connections) continue;  // too many even to be told that there is no room
        s->connections.fetch_add(1, std::memory_order_relaxed);
        try {
            const bool welcome = others < s->options.connections;
            s->goroutines.go({.name = "dunlin::debug request"}, [s, welcome, c = std::move(client)]() mutable {
                welcome ? serve_one(*s, std::move(c)) : turn_away(*s, std::move(c));
                s->connections.fetch_sub(1, std::memory_order_relaxed);
            });
        } catch (const std::bad_alloc&) {
            s->connections.fetch_sub(1, std::memory_order_relaxed);
        }
    }
}

}  // namespace

server::server() noexcept = default;
server::server(std::shared_ptr<server_state> s) noexcept : state_(std::move(s)) {}
server::server(server&&) noexcept = default;
server& server::operator=(server&& other) noexcept {
    if (this == &other) return *this;
    close();
    state_ = std::move(other.state_);
    return *this;
}
server::~server() { close(); }

net::address server::local_address() const { return state_ ? state_->listener.local_address() : net::address(); }

namespace {

// Servers that want the histograms of waits, and whether the first of them has switched these on.
std::mutex counting_lock;
int counting = 0;
bool switched_on = false;

void count_waits() {
    const std::lock_guard hold(counting_lock);
    const bool was_on = runtime::set_wait_histograms(true);
    if (counting++ == 0) switched_on = !was_on;
}

void stop_counting_waits() {
    const std::lock_guard hold(counting_lock);
    if (--counting == 0 && switched_on) runtime::set_wait_histograms(false);
}

}  // namespace

std::string server::url() const { return state_ ? "http://" + local_address().to_string() + "/" : std::string(); }

void server::close() noexcept {
    const std::shared_ptr<server_state> s = std::exchange(state_, nullptr);
    if (s == nullptr) return;
    s->ctx.cancel();
    s->listener.close();
    try {
        // If no goroutine is left, the run() that these belonged to has ended: they will never end.
        if (runtime::num_goroutines() != 0) s->goroutines.wait_for(close_limit);
        if (const std::unique_lock turn(s->one_at_a_time, std::try_to_lock); turn.owns_lock()) stop_our_recorder(*s);
    } catch (const std::bad_alloc&) {  // close() has not waited; the goroutines end by themselves
    }
    if (s->counts_waits) stop_counting_waits();
}

server serve(std::string_view address, const serve_options& options) {
    const auto refuse = [&] {
        throw std::invalid_argument("dunlin::debug::serve: " + std::string(address) +
                                    " can be reached from other machines: give a token, or 127.0.0.1");
    };
    if (options.token.empty() && !is_loopback_address(address)) refuse();
    auto s = std::make_shared<server_state>(options);
    s->listener = net::listen("tcp", address);
    // The name may have come to mean another address meanwhile.
    if (options.token.empty() && !s->listener.local_address().is_loopback()) refuse();
    server made(s);  // closes it if what follows throws
    s->goroutines.go({.name = "dunlin::debug listener"}, [s] { accept_all(s); });
    if (options.wait_histograms) {
        count_waits();
        s->counts_waits = true;
    }
    return made;
}

server serve(std::string_view address, const serve_options& options, std::error_code& ec) {
    ec.clear();
    try {
        return serve(address, options);
    } catch (const std::system_error& e) {
        ec = e.code();
    } catch (const std::invalid_argument&) {
        ec = std::make_error_code(std::errc::permission_denied);
    } catch (const std::bad_alloc&) {
        ec = std::make_error_code(std::errc::not_enough_memory);
    }
    return {};
}

}  // namespace dunlin::debug
