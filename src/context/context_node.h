// context_node.h - a context: a channel that closes when it is done, and its place in the tree.
//
// Data       The node is the channel of done(), so a holder of either holds both. It holds its parent; a parent knows
//            its children, and holds none. A node that only carries a value has no cancellation of its own: `source` is
//            the nearest ancestor (or itself) that has, and children are registered there. All of it under the
//            channel's lock, except what is constant.
// Protocol   cancel   1  lock; done already: out, after step 5. err, cause; closed; take the children, each with a
//                        reference (a child whose last handle is going away can no longer be referenced, and need not
//                        be); unlock; wake those that wait on the channel
//                     2  the same for each child, in a list, not by recursion: a chain of contexts may be long
//                     3  leave the parent's list
//                     4  start the functions of all nodes from 1 and 2, then request stop of all: a stop callback may
//                        take long
//                     5  a cancel that finds the node done already waits until its whole subtree is done
//            join     lock the parent's source: done already: cancel the child at once; else link it, and unlink it
//                     again if the child is done by then
//            end      the last handle is gone: leave the parent's list under its lock, and stop the deadline's timer
// Complete   Every cancel() returns with the whole subtree done, even if two run at the same time, or one runs inside
//            the other's tree. A cancel that makes a node with children done holds that node's `spreading_` through
//            steps 1 and 2, and those of the nodes below that it has come to; step 5 takes that lock and gives it back.
//            So does a cancel that finds a child done already by another cancel that began there. A node without
//            children needs none of this. No deadlock: a node's `spreading_` is taken after those of its ancestors
//            only. Nothing waits for the program's code, or for itself: 1 and 2 run inside the runtime, where
//            goroutines neither park nor stand still; functions and stop callbacks begin when the locks are free.
// Order      `spreading_` of ancestors, `spreading_`, one node's lock. No other lock is held while another is taken.
// Deadline   A timed_call, which starts a goroutine when it is due: what cancel() does must not be done inside the
//            runtime. It holds no reference to its node. A deadline that a plain thread has set passes whatever runs
//            meanwhile; one that a goroutine has set is forgotten when its run() returns, as the goroutine is. A child
//            relies on its parent's earlier deadline, instead of a timer of its own, only if that is on our clock and
//            will not be forgotten before its own.
//            A deadline on another clock is checked again on that clock when its time should have come.
// Source     Go 1.24 context/context.go. Differs: nothing needs to be cancelled to be freed; no goroutine, except at
//            the moment when a deadline passes.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <type_traits>
#include <vector>

#include <dunlin/context.hpp>
#include <dunlin/detail/atomic.hpp>
#include <dunlin/timer.hpp>

#include "chan/core.h"

namespace dunlin::inline v0_1::detail {

class context_node;

struct cancel_registration {
    platform::ranked_lock<platform::lock_rank::object> lock;
    std::unique_ptr<stored_call> call;  // lock; null: started or withdrawn
    context_node* node = nullptr;       // lock; null: the node is gone, or done
    std::size_t at = 0;                 // the node's lock: its place among the node's registrations
    bool dropped = false;               // lock: the call was dropped, and no caller has been told yet
    std::source_location where;         // constant once registered: where the program has asked for the call
    std::uint32_t run = 0;              // constant once registered: the registering goroutine's run; 0: of none
};

class deadline_call;
timed_call* as_timed_call(deadline_call* c) noexcept;  // for tests

// Links a std::stop_callback with its node; has an allocation of its own.
//
// Problem    The destructor of a std::stop_callback waits until the callback has run, unless the destructor's own
//            thread runs it. The standard library compares threads, and goroutines change theirs: a goroutine that has
//            begun request_stop() on this thread, and was interrupted just before or in the callback, may be on another
//            thread by now, and then a goroutine on this thread does not wait for it.
// Protocol   So the node's end deletes the link, with its stop_callback, only where that is known to be safe: on a
//            plain thread; or if no stop has been requested (one that is requested from here on is another thread's,
//            since a goroutine changes its thread only where it parks); or if the callback is through. Otherwise the
//            callback may be about to run, or be forgotten in the middle of a list: a thread of its own deletes the
//            link, and on that thread the standard library waits as it should.
struct stop_link {
    struct request {
        stop_link* link;
        void operator()() const noexcept { link->stop(); }
    };

    stop_link(context_node* n, std::stop_token t) noexcept : node(n), token(std::move(t)) {}
    void stop() noexcept;
    void node_is_gone() noexcept;  // ends the link

    platform::ranked_lock<platform::lock_rank::object> lock;
    context_node* node;           // lock; null: it is gone
    const std::stop_token token;
    std::optional<std::stop_callback<request>> callback;
    // the callback's last step. Release pairs with the acquire in node_is_gone(), which deletes what it has used
    platform::atomic<bool> through{false};
};
static_assert(std::is_trivially_destructible_v<stop_link::request>);

// Where stop callbacks, which are the program's code, run: in cancel(), or, if its caller must not wait for them, on a
// thread of their own. (Not in a goroutine: see stop_link on destructors that wait.)
enum class callbacks_run : bool { here, on_own_thread };

// As cancel_node(), for the watcher's thread (fs/watcher.h).
void cancel_node_from_watcher(chan_core* n, std::exception_ptr cause) noexcept;

class context_node final : public chan_core {
public:
    // value: err() and deadline are the parent's. cancel, deadline, stop_token: it has its own. detached, todo: it has
    // none.
    enum class kind : unsigned char { value, cancel, deadline, stop_token, detached, todo };

    context_node(kind k, chan_handle parent) noexcept;

    void join_parent() noexcept;
    // `cause` null: `err` is the cause (cause_of_node()). Nothing happens if it is done already.
    void cancel(errc err, std::exception_ptr cause, callbacks_run where = callbacks_run::here) noexcept;
    static void request_stop_of(context_node* top, context_node* below) noexcept;
    // False: it would be the last reference, and stays.
    bool release_unless_last() noexcept;

    // Once, before any other thread knows the node. `moment`: the time on another clock, or null. False: it has passed.
    bool set_deadline(std::int64_t when_ns, std::unique_ptr<foreign_moment> moment, std::exception_ptr cause);
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
    struct deadline {
        std::int64_t ns = wait_limit::never;
        std::uint32_t run = 0;             // the run with which it is forgotten; 0: never
        bool exact = true;                 // on our clock

        bool is_forgotten() const noexcept;
    };
    deadline own_deadline;                 // constant
    deadline first_deadline;               // constant: the first of its own and its ancestors'
    // The first deadline that is not forgotten, as far as is known.
    const deadline& valid_deadline() const noexcept;
    std::exception_ptr deadline_cause;     // constant
    platform::atomic<int> err{0};               // lock to write: an errc. Release publishes `cause`
    std::exception_ptr cause;              // lock to write, before err; null: none was given

private:
    using registrations = std::vector<std::shared_ptr<cancel_registration>>;

    ~context_node() = default;
    void end() noexcept;
    static void destroy(chan_core* c) noexcept;
    void leave_parent() noexcept;
    bool spread(errc e, const std::exception_ptr& why, context_node*& finished) noexcept;
    bool finish(errc e, const std::exception_ptr& why, context_node*& children) noexcept;
    void start_calls() noexcept;
    void request_stop() noexcept;
    bool has_stop_source() noexcept;
    static bool request_stop_on_thread(context_node* top, context_node* below) noexcept;

    platform::futex_lock spreading_;       // see Complete
    bool had_children_ = false;            // lock: it had children when it became done
    bool holds_spreading_ = false;         // spreading_: to be unlocked by the cancel that is under way
    deadline_call* timer_call_ = nullptr;  // constant; counted
    std::optional<std::stop_source> stop_;  // lock to make
    registrations calls_;                  // lock
    stop_link* stop_link_ = nullptr;       // constant; owned by this node and the callback
    context_node* first_child_ = nullptr;  // lock
    // the parent's source's lock; once the child was taken from there: the cancel that took it
    context_node* next_ = nullptr;
    context_node* prev_ = nullptr;         // the parent's source's lock
    bool linked_ = false;                  // the same
};

}  // namespace dunlin::detail
