// context_node.h - a context: a channel that closes when it is done, and its place in the tree.
//
// Data       The node is the channel of done(), so whoever holds either holds both. It holds its parent; a parent knows its children, and holds none.
//            A node that only carries a value has no cancellation of its own: `source` is the nearest ancestor (or itself) that has, and children are
//            registered there. All under the channel's lock, but for what is constant.
// Protocol   cancel   1  lock; done already: out. err, cause; closed; take the children, each with a reference (a child whose last handle is going away
//                        cannot be had any more, and need not be); take the functions to call; unlock
//                     2  wake who waits on the channel, start the functions, request stop
//                     3  the same for each child, in a list, not by recursion: a chain of contexts may be long
//                     4  leave the parent's list
//            join     lock the parent's source: done already: cancel the child at once; else link it, and unlink it again if the child is done by then
//            end      the last handle is gone: leave the parent's list under its lock, and stop the deadline's timer
// Order      No lock is held while another is taken.
// Deadline   A timed_call, which starts a goroutine when it is due: what cancel() does must not be done inside the runtime. It knows its node weakly.
//            A plain thread's passes whatever runs meanwhile; a goroutine's is forgotten when its run() returns, as the goroutine is.
// Source     Go 1.24 context/context.go. Differs: nothing needs to be cancelled to be freed; no goroutine but for the moment when a deadline passes.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <type_traits>
#include <vector>

#include <dunlin/context.hpp>
#include <dunlin/timer.hpp>

#include "chan/core.h"

namespace dunlin::detail {

class context_node;

struct cancel_registration {
    platform::futex_lock lock;
    std::unique_ptr<cancel_call> call;  // lock; null: started or withdrawn
    context_node* node = nullptr;       // lock; null: it is gone, or done
    bool dropped = false;               // lock: it was gone first, and nobody has asked yet
    std::uint32_t run = 0;              // constant once registered: in which run a goroutine did it; 0: a plain thread
};

class deadline_call;
timed_call* as_timed_call(deadline_call* c) noexcept;  // for tests

// A std::stop_callback and its node, on the heap by itself.
//
// Problem    Whoever destroys a std::stop_callback waits until it has run, unless he is the thread that runs it. The standard library compares threads,
//            and goroutines change theirs: one that has begun request_stop() on this thread, and was interrupted just before or in the callback, may
//            be on another by now, and then a goroutine on this one does not wait for it.
// Protocol   So the node's end destroys the stop_callback, but its memory, of which the callback reads no more than `link`, goes when both are through: the
//            callback with its last step, the node with its end. Who is second deletes it; or the node alone, when the callback cannot be running.
struct stop_link {
    struct request {
        stop_link* link;
        void operator()() const noexcept { link->stop(); }
    };

    stop_link(context_node* n, std::stop_token t) noexcept : node(n), token(std::move(t)) {}
    void stop() noexcept;
    void node_is_gone() noexcept;

    platform::futex_lock lock;
    context_node* node;           // lock; null: it is gone
    const std::stop_token token;
    std::optional<std::stop_callback<request>> callback;  // the node's
    std::atomic<bool> one_is_through{false};
};
static_assert(std::is_trivially_destructible_v<stop_link::request>);

class context_node final : public chan_core {
public:
    // value: err() and deadline are the parent's. cancel, deadline, stop_token: it has its own. detached, todo: it has none.
    enum class kind : unsigned char { value, cancel, deadline, stop_token, detached, todo };

    context_node(kind k, chan_handle parent) noexcept;

    void join_parent() noexcept;
    // `cause` null: made from `err`. Nothing happens if it is done already.
    void cancel(errc err, std::exception_ptr cause) noexcept;
    // False: it would be the last reference, and stays.
    bool release_unless_last() noexcept;

    void set_deadline(std::int64_t when_ns, std::exception_ptr cause);  // once, before anybody else knows it
    void set_stop_token(std::stop_token token);                         // the same
    std::stop_token get_stop_token();
    void add_call(const std::shared_ptr<cancel_registration>& r);
    void remove_call(const std::shared_ptr<cancel_registration>& r) noexcept;
    // What it adds to its parent's name: ".WithCancel".
    void describe(std::string& to) const;

    const kind form;
    chan_handle parent;                    // constant
    context_node* source;                  // constant: itself, an ancestor, or null
    std::unique_ptr<context_value> value;  // constant
    std::int64_t deadline_ns = wait_limit::never;  // constant
    std::exception_ptr deadline_cause;     // constant
    std::atomic<int> err{0};               // lock to write: an errc. Release publishes `cause`
    std::exception_ptr cause;              // lock to write, before err

private:
    using registrations = std::vector<std::shared_ptr<cancel_registration>>;

    ~context_node() = default;
    void end() noexcept;
    static void destroy(chan_core* c) noexcept;
    void leave_parent() noexcept;
    void cancel_one(errc e, const std::exception_ptr& why, context_node*& children) noexcept;
    bool finish(errc e, const std::exception_ptr& why, context_node*& children, registrations& to_call) noexcept;

    deadline_call* timer_call_ = nullptr;  // constant; counted
    std::optional<std::stop_source> stop_;  // lock to make
    registrations calls_;                  // lock
    stop_link* stop_link_ = nullptr;       // constant; owned by it and its callback
    context_node* first_child_ = nullptr;  // lock
    context_node* next_ = nullptr;         // the parent's source's lock; a child that was taken from there: whoever cancels
    context_node* prev_ = nullptr;         // the parent's source's lock
    bool linked_ = false;                  // the same
};

}  // namespace dunlin::detail
