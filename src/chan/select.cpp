// select.cpp - waiting for several channels at once.
//
// Protocol   1  lock all channels, in the order of their addresses, each once
//            2  count the cases that can go and take one at random; unlock all: done. All cases are counted at one
//               moment, so `otherwise` is never taken if at every moment some case is ready
//            3  none can go: prepare(); a node for each case into its channel's queue; unlock all; a node into the
//               descriptor's queue for each on_readable and on_writable; wait
//            4  a waker that takes one of the nodes off its queue claims the waiter (park/waiter.h), so one wins; the
//               deadline is one more node
//            5  take the other nodes off their queues, each under its channel's lock
//            A case that looked ready may not be (its waiter has been woken through another case): step 2 then counts
//            again.
// Descriptors are looked at before step 1, and queueing fails if one has become ready since: then everything begins
// again (chan/descriptor_case.h).
// Lifetime   Nodes lie in the cases, on the stack or in the program's list. A waker that lost touches a node only under
//            the channel's lock, and step 5 takes that lock before the node goes away.
// Source     Go 1.24 runtime/select.go. Differs: counts the ready ones and draws one, instead of shuffling; as fair,
//            with one random number.
// Tests      tests/chan/select_test.cpp, tests/go/select_test.cpp
#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <dunlin/select.hpp>

#include "chan/core.h"
#include "chan/descriptor_case.h"
#include "timer/timers.h"

namespace dunlin::inline v0_1 {
namespace detail {

namespace {

constexpr std::size_t max_cases = 65'536;
constexpr std::size_t no_case = static_cast<std::size_t>(-1);
constexpr std::size_t on_the_stack = 16;

static_assert(sizeof(chan_node) <= sizeof(case_base::node) && alignof(chan_node) <= 8);

chan_node& node_of(case_base& c) noexcept { return *std::launder(reinterpret_cast<chan_node*>(c.node)); }

// ---- channels -------------------------------------------------------------------------------------------------------

// Only sends and receives have one.
bool has_channel(const case_base& c) noexcept { return c.core != nullptr; }

// A random number below `bound`. A plain thread has a generator of its own.
std::uint32_t draw_below(sched::machine* m, std::uint32_t bound) noexcept {
    if (bound == 1) return 0;
    if (m != nullptr) {
        sched::steering* const steering = sched::steered();
        return DUNLIN_UNLIKELY(steering != nullptr) ? steering->choose_case(m, bound) : m->random.below(bound);
    }
    thread_local platform::random_source source(
        static_cast<std::uint64_t>(platform::now_ns()) ^ reinterpret_cast<std::uintptr_t>(&source));
    return source.below(bound);
}

class selection {
public:
    selection(case_base* const* cases, std::size_t count) : cases_(cases), count_(count) { sort_channels(); }

    // Index of the case taken.
    std::size_t run(std::size_t otherwise_index);
    bool only_looks() const noexcept;

private:
    void sort_channels();
    static unsigned place_of(std::size_t i) noexcept {
        return i < park::biased_lock::timers_place ? static_cast<unsigned>(i) : park::biased_lock::no_place;
    }
    void lock_all(sched::machine* m) noexcept {
        for (std::size_t i = 0; i < channel_count_; ++i) channels_[i]->lock.lock(m, place_of(i));
    }
    // Unlocks `taken` (may be null) last: the party served there may release every channel.
    void unlock_all(sched::machine* m, const chan_core* taken = nullptr) noexcept {
        std::size_t last = 0;
        for (std::size_t i = 0; i < channel_count_; ++i) {
            if (channels_[i] == taken) {
                last = i;
            } else {
                channels_[i]->lock.unlock(m, place_of(i));
            }
        }
        if (taken != nullptr) channels_[last]->lock.unlock(m, place_of(last));
    }
    static bool ready(case_base& c) noexcept {
        if (has_descriptor(c)) return c.ok;
        return has_channel(c) && (c.kind == case_kind::receive ? c.core->may_receive() : c.core->may_send());
    }
    std::size_t take_one(sched::machine* m, park::wait_node*& woken) noexcept;
    void prepare_order();
    void enqueue_all(park::waiter& w);
    bool enqueue_descriptors(park::waiter& w) noexcept;
    void forget_all() noexcept;
    void forget_descriptors() noexcept;
    std::size_t index_of_winner(const park::waiter& w) noexcept;
    void soonest(std::int64_t& deadline_ns, std::size_t& index) const noexcept;
    std::size_t wait(sched::machine* m, std::int64_t deadline_ns, std::size_t timeout_index);

    case_base* const* cases_;
    const std::size_t count_;
    bool with_descriptors_ = false;
    std::array<chan_core*, on_the_stack> few_;
    std::unique_ptr<chan_core*[]> many_;
    chan_core** channels_ = few_.data();  // distinct, in the order of their addresses
    std::size_t channel_count_ = 0;
    // The order of step 3, if some channel stands in several cases; else null.
    std::array<std::uint16_t, on_the_stack> few_order_;
    std::unique_ptr<std::uint16_t[]> many_order_;
    std::uint16_t* order_ = nullptr;
};

void selection::sort_channels() {
    if (count_ > on_the_stack) {
        many_ = std::make_unique<chan_core*[]>(count_);
        channels_ = many_.get();
    }
    std::size_t n = 0;
    for (std::size_t i = 0; i < count_; ++i) {
        if (has_channel(*cases_[i])) channels_[n++] = cases_[i]->core;
        with_descriptors_ = with_descriptors_ || has_descriptor(*cases_[i]);
    }
    if (n <= on_the_stack) {
        for (std::size_t i = 1; i < n; ++i) {
            chan_core* c = channels_[i];
            std::size_t at = i;
            for (; at > 0 && std::less<>()(c, channels_[at - 1]); --at) channels_[at] = channels_[at - 1];
            channels_[at] = c;
        }
    } else {
        std::sort(channels_, channels_ + n, std::less<>());
    }
    channel_count_ = static_cast<std::size_t>(std::unique(channels_, channels_ + n) - channels_);
    if (channel_count_ != n) prepare_order();
}

// Called without the locks: it may need memory.
void selection::prepare_order() {
    order_ = few_order_.data();
    if (count_ > on_the_stack) {
        many_order_ = std::make_unique<std::uint16_t[]>(count_);
        order_ = many_order_.get();
    }
    for (std::size_t i = 0; i < count_; ++i) order_[i] = static_cast<std::uint16_t>(i);
}

// Step 2.
std::size_t selection::take_one(sched::machine* m, park::wait_node*& woken) noexcept {
    for (;;) {
        std::uint32_t can_go = 0;
        std::size_t last = no_case;
        for (std::size_t i = 0; i < count_; ++i) {
            if (!ready(*cases_[i])) continue;
            ++can_go;
            last = i;
        }
        if (can_go == 0) return no_case;
        if (can_go > 1) {
            std::uint32_t skip = draw_below(m, can_go);
            for (last = 0;; ++last) {
                if (ready(*cases_[last]) && skip-- == 0) break;
            }
        }
        case_base& c = *cases_[last];
        if (has_descriptor(c)) return last;
        const channel_status status = c.kind == case_kind::receive ? c.core->receive(c.slot, woken)
            : c.core->send(c.slot, woken);
        if (status == channel_status::would_block) continue;  // the waiter there is gone, and off the queue now
        c.ok = status == channel_status::ok;
        return last;
    }
}

// Step 3. After an exception nothing is queued.
void selection::enqueue_all(park::waiter& w) {
    for (std::size_t i = 0; i < count_; ++i) {
        case_base& c = *cases_[i];
        if (!has_channel(c)) continue;
        auto* n = ::new (c.node) chan_node(&w);
        n->slot = c.slot;
        n->several = true;
    }
    // A partner finds the first node in a channel's queue. If several cases wait on one channel, each must be equally
    // likely to be the first.
    if (order_ != nullptr) {
        for (std::size_t i = count_; i > 1; --i) {
            std::swap(order_[i - 1], order_[draw_below(w.machine(), static_cast<std::uint32_t>(i))]);
        }
    }
    const auto at = [this](std::size_t i) -> case_base& { return *cases_[order_ != nullptr ? order_[i] : i]; };
    std::size_t i = 0;
    try {
        for (; i < count_; ++i) {
            case_base& c = at(i);
            if (!has_channel(c)) continue;
            c.kind == case_kind::receive ? c.core->enqueue_receiver(&node_of(c)) : c.core->enqueue_sender(&node_of(c));
        }
    } catch (...) {
        while (i-- > 0) {
            case_base& c = at(i);
            if (has_channel(c)) {
                c.kind == case_kind::receive ? c.core->forget_receiver(&node_of(c))
                    : c.core->forget_sender(&node_of(c));
            }
        }
        throw;
    }
}

// Step 3 for descriptors, whose locks are taken one by one. False: one has become ready meanwhile, and its node has
// claimed the waiter, unless another waker had.
bool selection::enqueue_descriptors(park::waiter& w) noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
        case_base& c = *cases_[i];
        if (has_descriptor(c)) prepare_descriptor(c, w);
    }
    for (std::size_t i = 0; i < count_; ++i) {
        case_base& c = *cases_[i];
        if (has_descriptor(c) && !queue_for_descriptor(c)) return !w.decide(&poll_node_of(c));
    }
    return true;
}

void selection::forget_descriptors() noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
        case_base& c = *cases_[i];
        if (has_descriptor(c)) forget_descriptor(c);
    }
}

// Step 5. The winner's node is off its queue already; that is known without the lock, since the waiter was woken for
// it.
void selection::forget_all() noexcept {
    if (with_descriptors_) forget_descriptors();
    park::runtime_section inside;
    for (std::size_t i = 0; i < count_; ++i) {
        case_base& c = *cases_[i];
        if (!has_channel(c) || node_of(c).owner->decided() == &node_of(c)) continue;
        c.core->lock.lock(inside.machine());
        c.kind == case_kind::receive ? c.core->forget_receiver(&node_of(c)) : c.core->forget_sender(&node_of(c));
        c.core->lock.unlock(inside.machine());
    }
}

// Returns no_case for a descriptor that another reader may have emptied since: select() looks again.
std::size_t selection::index_of_winner(const park::waiter& w) noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
        case_base& c = *cases_[i];
        if (has_descriptor(c)) {
            if (w.decided() == &poll_node_of(c)) return no_case;
        } else if (has_channel(c) && w.decided() == &node_of(c)) {
            c.ok = node_of(c).ok;
            return i;
        }
    }
    return no_case;
}

void selection::soonest(std::int64_t& deadline_ns, std::size_t& index) const noexcept {
    std::int64_t least = timers::never_ns;
    index = no_case;
    for (std::size_t i = 0; i < count_; ++i) {
        const case_base& c = *cases_[i];
        if (c.kind != case_kind::timeout || (index != no_case && c.duration_ns >= least)) continue;
        least = c.duration_ns;
        index = i;
    }
    deadline_ns = index == no_case ? timers::never_ns
        : platform::deadline_after(platform::now_ns(), least > 0 ? least : 0);
}

// Steps 3 to 5, with all locks held. no_case: look again.
std::size_t selection::wait(sched::machine* m, std::int64_t deadline_ns, std::size_t timeout_index) {
    park::waiter w(m);
    const bool for_ever = channel_count_ == 0 && timeout_index == no_case && !with_descriptors_;
    w.prepare(for_ever ? sched::wait_reason::select_no_cases : sched::wait_reason::select, count_ != 0
        ? cases_[0]->where : std::source_location());
    try {
        enqueue_all(w);
    } catch (...) {
        w.withdraw();
        unlock_all(m);
        w.leave();
        throw;
    }
    unlock_all(m);
    if (with_descriptors_ && !enqueue_descriptors(w)) {
        w.withdraw();
        w.leave();
        forget_all();
        return no_case;
    }
    const timers::wake_cause cause = timers::wait_until(w, deadline_ns);
    forget_all();
    if (cause == timers::wake_cause::no_memory) throw std::bad_alloc();
    return cause == timers::wake_cause::deadline ? timeout_index : index_of_winner(w);
}

// A time-out of 0 does what otherwise() does.
bool selection::only_looks() const noexcept {
    return std::any_of(cases_, cases_ + count_,
        [](const case_base* c) { return c->kind == case_kind::timeout && c->duration_ns <= 0; });
}

std::size_t selection::run(std::size_t otherwise_index) {
    std::int64_t deadline_ns = timers::never_ns;
    std::size_t timeout_index = no_case;
    for (bool first = true;; first = false) {
        if (with_descriptors_) {
            for (std::size_t i = 0; i < count_; ++i) {
                if (has_descriptor(*cases_[i])) look_at_descriptor(*cases_[i]);
            }
        }
        sched::machine* m =
            enter_runtime([this, otherwise_index] { return otherwise_index == no_case && !only_looks(); });
        park::wait_node* woken = nullptr;
        lock_all(m);
        std::size_t taken = take_one(m, woken);
        if (taken == no_case) taken = otherwise_index;
        if (taken == no_case) {
            if (first) soonest(deadline_ns, timeout_index);
            if (timeout_index != no_case &&
                (cases_[timeout_index]->duration_ns <= 0 || (!first && deadline_ns <= platform::now_ns()))) {
                taken = timeout_index;
            }
        }
        if (taken == no_case) {
            taken = wait(m, deadline_ns, timeout_index);
            if (taken == no_case) continue;
            return taken;
        }
        unlock_all(m, has_channel(*cases_[taken]) ? cases_[taken]->core : nullptr);
        if (woken != nullptr) woken->owner->wake_from(m);
        leave_runtime(m);
        return taken;
    }
}

[[noreturn]] void throw_moved_from(std::size_t i) {
    throw std::invalid_argument("dunlin::select: case " + std::to_string(i) + " was moved from");
}

std::size_t find_otherwise(case_base* const* cases, std::size_t count) {
    if (count > max_cases) {
        throw std::invalid_argument("dunlin::select: " + std::to_string(count) + " cases, 65536 are allowed");
    }
    std::size_t found = no_case;
    for (std::size_t i = 0; i < count; ++i) {
        if (cases[i] == nullptr) throw_moved_from(i);
        if (cases[i]->kind != case_kind::otherwise) continue;
        if (found != no_case) throw std::invalid_argument("dunlin::select: more than one otherwise()");
        found = i;
    }
    return found;
}

}  // namespace

std::size_t select_among(case_base* const* cases, std::size_t count) {
    const std::size_t otherwise_index = find_otherwise(cases, count);
    selection s(cases, count);
    const std::size_t taken = s.run(otherwise_index);
    if (cases[taken]->kind == case_kind::send && !cases[taken]->ok) throw_send_on_closed();
    return taken;
}

select_rounds::select_rounds(case_base* const* cases, std::size_t count) : cases_(cases), count_(count) {
    channels_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        if (cases[i] == nullptr) throw_moved_from(i);
        if (!has_channel(*cases[i])) continue;
        chan_handle::reference(cases[i]->core);
        channels_.emplace_back(cases[i]->core);
    }
}

std::size_t select_rounds::next() {
    const std::size_t taken = select_among(cases_, count_);
    // The value has been sent. A nil channel is never ready.
    if (cases_[taken]->kind == case_kind::send) cases_[taken]->core = nullptr;
    return taken;
}

}  // namespace detail

namespace {

std::vector<detail::case_base*> prepare_all(std::span<const select_case> cases) {
    std::vector<detail::case_base*> list;
    list.reserve(cases.size());
    for (const select_case& c : cases) {
        list.push_back(c.prepare());
    }
    detail::check_once(list.data(), list.size());
    return list;
}

}  // namespace

void detail::check_once(case_base* const* cases, std::size_t count) {
    bool twice = false;
    for (std::size_t i = 0; i < count; ++i) {
        if (cases[i] != nullptr) twice = std::exchange(cases[i]->listed, true) || twice;
    }
    for (std::size_t i = 0; i < count; ++i) {
        if (cases[i] != nullptr) cases[i]->listed = false;
    }
    if (twice) {
        throw std::invalid_argument("dunlin::select: a case is there twice (copies of a select_case are one case)");
    }
}

std::size_t select_loop(std::span<const select_case> cases) {
    const std::vector<detail::case_base*> list = prepare_all(cases);
    detail::select_rounds rounds(list.data(), list.size());
    for (;;) {
        const std::size_t taken = rounds.next();
        if (cases[taken].run() == loop::leave) return taken;
    }
}

std::size_t select(std::span<const select_case> cases) {
    const std::vector<detail::case_base*> list = prepare_all(cases);
    const std::size_t taken = detail::select_among(list.data(), list.size());
    cases[taken].run();
    return taken;
}

}  // namespace dunlin
