#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <dunlin/detail/helper.hpp>

#include "context/context_node.h"
#include "platform/demangle.h"
#include "platform/text.h"
#include "platform/thread.h"
#include "timer/timers.h"

namespace dunlin::inline v0_1 {
namespace detail {

namespace {

context_node* source_of(chan_core* c) noexcept {
    return c != nullptr ? static_cast<context_node*>(c)->source : nullptr;
}

// Runs the call in a goroutine of its own, which belongs to the registrant's run(), not to the canceller's; if none can
// be had, here.
void start(std::unique_ptr<stored_call> call, caller registered_by, const std::source_location& where) noexcept {
    try {
        start_for(registered_by, call, where);
    } catch (...) {
        call->run();
    }
}

enum class call_is : bool { started, dropped };

// Null: it was taken or withdrawn before. The caller destroys one that is dropped: that is the program's code, and may
// take long; a stop meanwhile is told already that it will not be started.
std::unique_ptr<stored_call> take_call(cancel_registration& r, call_is what) noexcept {
    park::runtime_section inside;
    std::scoped_lock guard(r.lock);
    r.node = nullptr;
    if (r.call != nullptr) r.dropped = what == call_is::dropped;
    return std::move(r.call);
}

constexpr platform::thread_kind stop_link_reaper{[](void* link) { delete static_cast<stop_link*>(link); },
    "dunlin-stop"};

// What a cancel has made done: the node, and a list of those below it; each with a reference.
struct done_nodes {
    context_node* top;
    context_node* below;
};

constexpr platform::thread_kind stop_requester{
    [](void* nodes) {
        const std::unique_ptr<done_nodes> mine(static_cast<done_nodes*>(nodes));
        context_node::request_stop_of(mine->top, mine->below);
    },
    "dunlin-stop", true};

caller registrant(const cancel_registration& r) noexcept { return r.run == 0 ? caller::of_none : caller::of_a_run; }

// When run() has returned, functions that its goroutines have registered are forgotten like the goroutines: they may
// use objects that are gone.
bool of_this_run(const cancel_registration& r) noexcept { return !run_is_over(r.run); }

}  // namespace

context_value::~context_value() = default;

// ---- the deadline ---------------------------------------------------------------------------------------------------

class deadline_call final : public timed_call {
public:
    deadline_call(context_node* n, std::unique_ptr<foreign_moment> moment)
        : timed_call(this_caller() == caller::of_a_run), node_(n), moment_(std::move(moment)) {}

    void run() override {
        context_node* n = take_node();
        if (n == nullptr) return;
        if (!wait_on()) n->cancel(errc::deadline_exceeded, n->deadline_cause);
        chan_handle::release(n);
    }

    // False: it has passed.
    bool begin(std::int64_t when_ns) {
        if (moment_ != nullptr ? moment_->has_come() : when_ns <= platform::now_ns()) return false;
        start(when_ns);
        return true;
    }

    // The node is going away, or done.
    void forget_node() noexcept {
        {
            park::runtime_section inside;
            std::scoped_lock guard(lock_);
            node_ = nullptr;
        }
        stop();
    }

private:
    // True: on its own clock the moment has not come, and the timer is set again unless the node is done.
    bool wait_on() {
        if (moment_ == nullptr || moment_->has_come()) return false;
        try {
            reset(moment_->deadline_ns());
        } catch (const std::bad_alloc&) {
            return false;  // better too early than never
        }
        // A forget_node() that was before the reset has stopped nothing; one that comes now stops it.
        if (is_forgotten()) stop();
        return true;
    }

    bool is_forgotten() noexcept {
        park::runtime_section inside;
        std::scoped_lock guard(lock_);
        return node_ == nullptr;
    }

    context_node* take_node() noexcept {
        park::runtime_section inside;
        std::scoped_lock guard(lock_);
        return node_ != nullptr && node_->reference_if_alive() ? node_ : nullptr;
    }

    platform::ranked_lock<platform::lock_rank::object> lock_;
    context_node* node_;  // lock
    const std::unique_ptr<foreign_moment> moment_;
};

timed_call* as_timed_call(deadline_call* c) noexcept { return c; }

// ---- the tree -------------------------------------------------------------------------------------------------------

context_node::context_node(kind k, chan_handle p) noexcept
    : chan_core(element_type_of<std::monostate>, 0, nullptr, destroy), form(k), parent(std::move(p)) {
    context_node* above = source_of(parent.core());
    const bool none = k == kind::detached || k == kind::todo;
    source = none ? nullptr : k == kind::value ? above : this;
    if (above == nullptr || none) return;
    first_deadline = above->valid_deadline();
}

bool context_node::deadline::is_forgotten() const noexcept { return run_is_over(run); }

const context_node::deadline& context_node::valid_deadline() const noexcept {
    static constexpr deadline none{};
    if (!first_deadline.is_forgotten()) return first_deadline;
    return own_deadline.is_forgotten() ? none : own_deadline;
}

// There are no references any more. Functions that are registered for the node's end never start, and a caller that
// withdraws one is told so.
void context_node::end() noexcept {
    if (stop_link_ != nullptr) stop_link_->node_is_gone();
    leave_parent();
    for (const auto& r : calls_) static_cast<void>(take_call(*r, call_is::dropped));
    if (timer_call_ == nullptr) return;
    timer_call_->forget_node();
    timer_call_->release();
}

// A chain of contexts may be long: no recursion.
void context_node::destroy(chan_core* c) noexcept {
    while (c != nullptr) {
        auto* n = static_cast<context_node*>(c);
        n->end();
        chan_core* above = n->parent.detach();
        delete n;
        c = above != nullptr && above->references.fetch_sub(1, std::memory_order_acq_rel) == 1 ? above : nullptr;
    }
}

bool context_node::release_unless_last() noexcept {
    std::uint32_t n = references.load(std::memory_order_relaxed);
    do {
        if (n == 1) return false;
    } while (!references.compare_exchange_weak(n, n - 1, std::memory_order_acq_rel));
    return true;
}

void context_node::join_parent() noexcept {
    context_node* above = source_of(parent.core());
    if (above == nullptr) return;
    int done;
    {
        park::runtime_section inside;
        std::scoped_lock guard(above->lock);
        done = above->err.load(std::memory_order_relaxed);
        if (done == 0) {
            next_ = above->first_child_;
            if (next_ != nullptr) next_->prev_ = this;
            above->first_child_ = this;
            linked_ = true;
        }
    }
    if (done != 0) {
        cancel(static_cast<errc>(done), above->cause);
    } else if (err.load(std::memory_order_acquire) != 0) {
        leave_parent();  // done before it was linked: the canceller found it in no list
    }
}

void context_node::leave_parent() noexcept {
    context_node* above = source == this ? source_of(parent.core()) : nullptr;
    if (above == nullptr) return;
    park::runtime_section inside;
    std::scoped_lock guard(above->lock);
    if (!linked_) return;
    (prev_ != nullptr ? prev_->next_ : above->first_child_) = next_;
    if (next_ != nullptr) next_->prev_ = prev_;
    next_ = prev_ = nullptr;
    linked_ = false;
}

// Step 1. False: the node was done already, and so is all that was derived from it. Inside the runtime.
bool context_node::finish(errc e, const std::exception_ptr& why, context_node*& children) noexcept {
    park::wait_node* woken = nullptr;
    for (bool spreads = false;; spreads = true) {
        std::unique_lock guard(lock);
        if (err.load(std::memory_order_relaxed) != 0) {
            const bool wait = had_children_ && !spreads;
            guard.unlock();
            if (spreads || wait) {
                if (wait) spreading_.lock();  // Step 5
                spreading_.unlock();
            }
            return false;
        }
        if (first_child_ != nullptr && !spreads) {
            guard.unlock();
            spreading_.lock();
            continue;
        }
        cause = why;
        err.store(static_cast<int>(e), std::memory_order_release);  // pairs with the acquire in cause_of_node()
        close(woken);
        had_children_ = holds_spreading_ = spreads;
        while (context_node* child = first_child_) {
            first_child_ = child->next_;
            child->linked_ = false;
            child->prev_ = child->next_ = nullptr;
            if (!child->reference_if_alive()) continue;
            child->next_ = children;
            children = child;
        }
        break;
    }
    park::wake_all(woken);
    return true;
}

// Steps 1 and 2. False: the node was done already. `finished`: the nodes below that this cancel has made done, each
// with a reference.
bool context_node::spread(errc e, const std::exception_ptr& why, context_node*& finished) noexcept {
    context_node* children = nullptr;
    context_node* done_already = nullptr;
    {
        park::runtime_section inside;
        if (!finish(e, why, children)) return false;
        while (context_node* n = children) {
            children = std::exchange(n->next_, nullptr);
            context_node*& to = n->finish(e, why, children) ? finished : done_already;
            n->next_ = std::exchange(to, n);
        }
        // All at once, at the end: a cancel that waits for one of them waits for the nodes below it, too.
        for (context_node* n = finished; n != nullptr; n = n->next_) {
            if (std::exchange(n->holds_spreading_, false)) n->spreading_.unlock();
        }
        if (std::exchange(holds_spreading_, false)) spreading_.unlock();
    }
    // Outside of the runtime: it may be the last reference.
    while (context_node* n = done_already) {
        done_already = std::exchange(n->next_, nullptr);
        chan_handle::release(n);
    }
    return true;
}

// The first half of step 4.
void context_node::start_calls() noexcept {
    registrations to_call;
    {
        park::runtime_section inside;
        std::scoped_lock guard(lock);
        to_call.swap(calls_);
    }
    for (const auto& r : to_call) {
        const call_is what = of_this_run(*r) ? call_is::started : call_is::dropped;
        auto call = take_call(*r, what);
        if (call != nullptr && what == call_is::started) start(std::move(call), registrant(*r), r->where);
    }
    if (timer_call_ != nullptr) timer_call_->forget_node();
}

// The second half.
void context_node::request_stop() noexcept {
    std::optional<std::stop_source> stop;
    {
        park::runtime_section inside;
        std::scoped_lock guard(lock);
        stop = stop_;
    }
    if (stop) stop->request_stop();
}

bool context_node::has_stop_source() noexcept {
    park::runtime_section inside;
    std::scoped_lock guard(lock);
    return stop_.has_value();
}

// Takes over the references.
void context_node::request_stop_of(context_node* top, context_node* below) noexcept {
    top->request_stop();
    chan_handle::release(top);
    while (context_node* n = below) {
        below = std::exchange(n->next_, nullptr);
        n->request_stop();
        chan_handle::release(n);
    }
}

// False: there is no memory, or no thread.
bool context_node::request_stop_on_thread(context_node* top, context_node* below) noexcept {
    auto* const nodes = new (std::nothrow) done_nodes{top, below};
    if (nodes == nullptr) return false;
    if (platform::start_thread<stop_requester>(nodes) == 0) return true;
    delete nodes;
    return false;
}

void context_node::cancel(errc e, std::exception_ptr why, callbacks_run where) noexcept {
    context_node* below = nullptr;
    chan_handle::reference(this);
    if (!spread(e, why, below)) return chan_handle::release(this);
    leave_parent();
    start_calls();
    bool any = has_stop_source();
    for (context_node* n = below; n != nullptr; n = n->next_) {
        n->start_calls();
        any = any || n->has_stop_source();
    }
    if (any && where == callbacks_run::on_own_thread && request_stop_on_thread(this, below)) return;
    request_stop_of(this, below);
}

// ---- deadline, stop_token, functions --------------------------------------------------------------------------------

bool context_node::set_deadline(std::int64_t when_ns, std::unique_ptr<foreign_moment> moment, std::exception_ptr why) {
    const deadline parents = first_deadline;
    own_deadline = {when_ns, this_run(), moment == nullptr};
    const bool parents_will_come = parents.exact && (parents.run == 0 || parents.run == own_deadline.run);
    // Then the parent is done first, and by its cause, although both moments may be past by now.
    if ((parents.ns < when_ns || when_ns == wait_limit::never) && parents_will_come) return true;
    if (when_ns < parents.ns) first_deadline = own_deadline;
    deadline_cause = std::move(why);
    // The parent's timer is for both.
    if (parents.ns == when_ns && parents_will_come && moment == nullptr) return when_ns > platform::now_ns();
    timer_call_ = new deadline_call(this, std::move(moment));
    return timer_call_->begin(when_ns);
}

void context_node::set_stop_token(std::stop_token token) {
    stop_link_ = new stop_link(this, token);
    stop_link_->callback.emplace(std::move(token), stop_link::request{stop_link_});
}

// This call may end on another thread than it began on, if its goroutine loses its processor in cancel(). If the
// std::stop_callback were destroyed then, from within itself, it would wait for itself: so the last reference is not
// dropped here, but in a goroutine of its own.
void stop_link::stop() noexcept {
    context_node* n;
    {
        park::runtime_section inside;
        std::scoped_lock guard(lock);
        n = node != nullptr && node->reference_if_alive() ? node : nullptr;
    }
    if (n != nullptr) {
        n->cancel(errc::cancelled, nullptr);
        if (!n->release_unless_last()) {
            try {
                go_for(this_caller(), [n] { chan_handle::release(n); });
            } catch (const std::bad_alloc&) {
                // The link stays: better than a thread that waits for itself.
            }
        }
    }
    through.store(true, std::memory_order_release);
}

void stop_link::node_is_gone() noexcept {
    {
        park::runtime_section inside;
        std::scoped_lock guard(lock);
        node = nullptr;
    }
    // Nothing between the look at the token and the deletion may park.
    if (sched::current_machine() == nullptr || !token.stop_requested() || through.load(std::memory_order_acquire)) {
        delete this;
    } else if (platform::start_thread<stop_link_reaper>(this) != 0) {
        // No thread can be made: the link stays.
    }
}

std::stop_token context_node::get_stop_token() {
    std::stop_source fresh;
    bool done;
    {
        park::runtime_section inside;
        std::scoped_lock guard(lock);
        if (!stop_) stop_ = fresh;
        fresh = *stop_;
        done = err.load(std::memory_order_relaxed) != 0;
    }
    if (done) fresh.request_stop();
    return fresh.get_token();
}

void context_node::add_call(const std::shared_ptr<cancel_registration>& r) {
    r->run = this_run();
    {
        park::runtime_section inside;
        std::scoped_lock guard(lock);
        if (err.load(std::memory_order_relaxed) == 0) {
            r->node = this;  // no other thread knows it yet
            r->at = calls_.size();
            calls_.push_back(r);
            return;
        }
    }
    if (auto call = take_call(*r, call_is::started)) start(std::move(call), registrant(*r), r->where);
}

void context_node::remove_call(const std::shared_ptr<cancel_registration>& r) noexcept {
    park::runtime_section inside;
    std::scoped_lock guard(lock);
    if (r->at >= calls_.size() || calls_[r->at] != r) return;  // it has been taken to be called
    calls_.back()->at = r->at;
    std::swap(calls_[r->at], calls_.back());
    calls_.pop_back();
}

// ---- names ----------------------------------------------------------------------------------------------------------

namespace {

// "2026-11-22 02:30:00.123 +0000 UTC [9.99s]"
std::string deadline_text(std::int64_t deadline_ns) {
    using std::chrono::milliseconds;
    std::int64_t left;
    if (__builtin_sub_overflow(deadline_ns, platform::now_ns(), &left)) left = std::numeric_limits<std::int64_t>::min();
    const milliseconds now = std::chrono::floor<milliseconds>(std::chrono::system_clock::now().time_since_epoch());
    const milliseconds since = now + std::chrono::floor<milliseconds>(std::chrono::nanoseconds(left));
    const std::time_t seconds = std::chrono::floor<std::chrono::seconds>(since).count();
    std::tm utc{};
    if (gmtime_r(&seconds, &utc) == nullptr) return '[' + platform::duration_text(left) + ']';
    char day[64], text[96];
    std::strftime(day, sizeof day, "%Y-%m-%d %H:%M:%S", &utc);
    std::snprintf(text, sizeof text, "%s.%03d +0000 UTC [", day,
        static_cast<int>(since.count() - std::int64_t{seconds} * 1000));
    return text + platform::duration_text(left) + ']';
}

}  // namespace

std::string type_name(const std::type_info& type) {
    const platform::demangled_text name = platform::demangled(type.name());
    return name != nullptr ? name.get() : type.name();
}

void context_node::describe(std::string& to) const {
    switch (form) {
    case kind::value: to += ".WithValue(" + value->describe() + ')'; return;
    case kind::cancel: to += ".WithCancel"; return;
    case kind::stop_token: to += ".WithStopToken"; return;
    case kind::detached: to += ".WithoutCancel"; return;
    case kind::todo: to += "context.TODO"; return;
    case kind::deadline: break;
    }
    if (timer_call_ == nullptr) {
        to += ".WithCancel";  // the parent's deadline comes first
    } else {
        to += ".WithDeadline(" + deadline_text(own_deadline.ns) + ')';
    }
}

// A chain of contexts may be long: no recursion.
std::string name_of_node(chan_core* n) {
    std::vector<const context_node*> chain;
    for (; n != nullptr; n = static_cast<context_node*>(n)->parent.core()) {
        chain.push_back(static_cast<const context_node*>(n));
    }
    std::string name = !chain.empty() && chain.back()->form == context_node::kind::todo ? "" : "context.Background";
    for (auto i = chain.rbegin(); i != chain.rend(); ++i) (*i)->describe(name);
    return name;
}

// ---- the functions behind the header --------------------------------------------------------------------------------

namespace {

chan_handle new_node(context_node::kind k, const chan_handle& parent) {
    return chan_handle(new context_node(k, parent));
}

context_node* node(const chan_handle& h) noexcept { return static_cast<context_node*>(h.core()); }

}  // namespace

chan_handle make_cancel_node(const chan_handle& parent) {
    chan_handle h = new_node(context_node::kind::cancel, parent);
    node(h)->join_parent();
    return h;
}

chan_handle make_deadline_node(const chan_handle& parent, std::int64_t deadline_ns,
    std::unique_ptr<foreign_moment> moment, std::exception_ptr cause) {
    chan_handle h = new_node(context_node::kind::deadline, parent);
    // Before the parent knows it.
    const bool will_pass = node(h)->set_deadline(deadline_ns, std::move(moment), std::move(cause));
    node(h)->join_parent();
    if (!will_pass) node(h)->cancel(errc::deadline_exceeded, node(h)->deadline_cause);
    return h;
}

chan_handle make_value_node(const chan_handle& parent, std::unique_ptr<context_value> value) {
    chan_handle h = new_node(context_node::kind::value, parent);
    node(h)->value = std::move(value);
    return h;
}

// No static that is initialised here: a goroutine may be left behind while it initialises one, and others would wait
// for it. Inside the runtime none is.
chan_handle make_todo_node() noexcept {
    alignas(context_node) static unsigned char storage[sizeof(context_node)];  // never destroyed
    static constinit platform::ranked_lock<platform::lock_rank::object> lock;
    static constinit context_node* the_node = nullptr;  // lock
    park::runtime_section inside;
    std::scoped_lock guard(lock);
    if (the_node == nullptr) the_node = ::new (storage) context_node(context_node::kind::todo, chan_handle());
    chan_handle::reference(the_node);
    return chan_handle(the_node);
}

chan_handle make_detached_node(const chan_handle& parent) { return new_node(context_node::kind::detached, parent); }

chan_handle make_stop_token_node(const chan_handle& parent, std::stop_token token) {
    chan_handle h = new_node(context_node::kind::stop_token, parent);
    node(h)->set_stop_token(std::move(token));
    node(h)->join_parent();
    return h;
}

void cancel_node(chan_core* n, std::exception_ptr cause) noexcept {
    if (context_node* source = source_of(n)) source->cancel(errc::cancelled, std::move(cause));
}

void cancel_node_from_watcher(chan_core* n, std::exception_ptr cause) noexcept {
    context_node* source = source_of(n);
    if (source != nullptr) source->cancel(errc::cancelled, std::move(cause), callbacks_run::on_own_thread);
}

chan_core* done_of_node(chan_core* n) noexcept { return source_of(n); }

std::exception_ptr handled_as(const std::exception& cause) {
    if (std::exception_ptr handled = std::current_exception()) {
        try {
            std::rethrow_exception(handled);
        } catch (const std::exception& e) {
            if (std::addressof(e) == std::addressof(cause)) return handled;
        } catch (...) {
            // another one
        }
    }
    return nullptr;
}

std::exception_ptr cause_with_text(const std::exception& cause) {
    const auto* const with_code = dynamic_cast<const std::system_error*>(std::addressof(cause));
    if (with_code != nullptr) return std::make_exception_ptr(std::system_error(*with_code));
    return std::make_exception_ptr(std::runtime_error(cause.what()));
}

std::error_code error_of_node(chan_core* n) noexcept {
    const context_node* source = source_of(n);
    const int e = source != nullptr ? source->err.load(std::memory_order_acquire) : 0;
    return e != 0 ? make_error_code(static_cast<errc>(e)) : std::error_code();
}

// The cause where none was given: one exception for the whole program, made when it is asked for. Making one for each
// cancellation took a sixth of the time of a deadline that is set and cancelled. No function-local static: a goroutine
// may be left behind while it initialises one.
static std::exception_ptr plain_cause(errc e) noexcept try {
    static platform::atomic<const std::exception_ptr*> made[2];
    auto& mine = made[e == errc::cancelled ? 0 : 1];
    const std::exception_ptr* there = mine.load(std::memory_order_acquire);
    if (there == nullptr) {
        auto* fresh = new std::exception_ptr(std::make_exception_ptr(context_cancelled(make_error_code(e))));
        // Release publishes it; acquire for that of another thread.
        if (mine.compare_exchange_strong(there, fresh, std::memory_order_acq_rel, std::memory_order_acquire)) {
            return *fresh;
        }
        delete fresh;
    }
    return *there;
} catch (...) {
    return std::current_exception();  // no memory for it
}

std::exception_ptr cause_of_node(chan_core* n) noexcept {
    const context_node* source = source_of(n);
    const int e = source != nullptr ? source->err.load(std::memory_order_acquire) : 0;
    if (e == 0) return nullptr;
    return source->cause != nullptr ? source->cause : plain_cause(static_cast<errc>(e));
}

std::int64_t deadline_of_node(chan_core* n) noexcept {
    const context_node* source = source_of(n);
    if (source == nullptr) return wait_limit::never;
    return source->err.load(std::memory_order_relaxed) != 0 ? source->first_deadline.ns : source->valid_deadline().ns;
}

const void* value_of_node(chan_core* n, const std::type_info& key_type, const void* key,
    const std::type_info& value_type) noexcept {
    for (; n != nullptr; n = static_cast<context_node*>(n)->parent.core()) {
        const context_value* v = static_cast<context_node*>(n)->value.get();
        if (v == nullptr) continue;
        if (const void* found = v->find(key_type, key, value_type)) return found;
    }
    return nullptr;
}

std::stop_token stop_token_of_node(chan_core* n) {
    context_node* source = source_of(n);
    return source != nullptr ? source->get_stop_token() : std::stop_token();
}

std::shared_ptr<cancel_registration> call_after_cancel(chan_core* n, std::unique_ptr<stored_call> call,
                                                       const std::source_location& where) {
    auto r = std::make_shared<cancel_registration>();
    r->call = std::move(call);
    r->where = where;
    if (context_node* source = source_of(n)) source->add_call(r);
    return r;
}

bool stop_call_after_cancel(const std::shared_ptr<cancel_registration>& r) noexcept {
    context_node* n = nullptr;
    std::unique_ptr<stored_call> call;
    bool was_dropped;
    {
        park::runtime_section inside;
        std::scoped_lock guard(r->lock);
        if (r->node != nullptr && r->node->reference_if_alive()) n = r->node;
        r->node = nullptr;
        call = std::move(r->call);
        was_dropped = std::exchange(r->dropped, false);
    }
    if (n != nullptr) {
        n->remove_call(r);
        chan_handle::release(n);
    }
    return call != nullptr || was_dropped;
}

chan_core* done_channel(const context& ctx) noexcept { return done_of_node(ctx.core()); }

void throw_cancelled(const context& ctx, const char* operation) {
    const std::error_code ec = ctx.err();  // acquires what was written before it: the cause
    const auto* source = static_cast<const context_node*>(done_channel(ctx));
    throw context_cancelled(ec, operation, source != nullptr ? source->cause : nullptr);
}

void sleep_until_or_done(std::int64_t deadline_ns, const context& ctx, const std::source_location& where) {
    const wait_limit limit{deadline_ns, done_channel(ctx)};
    if (deadline_ns <= platform::now_ns()) return;
    if (cancelled_already(&limit)) throw_cancelled(ctx, "sleep");
    park::waiter w;
    w.enter();
    w.prepare(sched::wait_reason::sleep, where);
    switch (wait_limited(w, limit)) {
    case end_of_wait::no_memory: throw std::bad_alloc();
    case end_of_wait::cancelled: throw_cancelled(ctx, "sleep");
    default: break;
    }
}

}  // namespace detail
}  // namespace dunlin
