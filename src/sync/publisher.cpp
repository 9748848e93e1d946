// publisher.cpp - the part of dunlin/detail/publisher.hpp that does not depend on the values' type.
//
// Order      This lock comes before those of the channels of news: sends and receives on them are made under it.
// Tests      tests/sync/notify_watch_broadcast_test.cpp
#include <dunlin/detail/publisher.hpp>

#include <new>
#include <utility>

#include "chan/core.h"
#include "park/wait_queue.h"
#include "park/waiter.h"
#include "platform/lock.h"
#include "platform/simulated.h"

namespace dunlin::inline v0_1::detail {

namespace {

using object_lock = platform::ranked_lock<platform::lock_rank::object>;

object_lock& lock_in(unsigned char* storage) noexcept { return *std::launder(reinterpret_cast<object_lock*>(storage)); }

// Waiters that are woken when the publisher's lock is free: what they do next is to take it.
class woken_chain {
public:
    void give_permit(chan_core& news) noexcept {
        alignas(16) std::byte permit[16] = {};  // a std::monostate, with room for what the compiler thinks possible
        park::wait_node* woken = nullptr;
        news.lock.lock();
        news.send(permit, woken);
        news.lock.unlock();
        append(woken);
    }
    void close(chan_core& news) noexcept {
        park::wait_node* woken = nullptr;
        news.lock.lock();
        news.close(woken);
        news.lock.unlock();
        append(woken);
    }
    park::wait_node* first() const noexcept { return first_; }

private:
    void append(park::wait_node* woken) noexcept {
        *end_ = woken;
        while (*end_ != nullptr) end_ = &(*end_)->next;
    }
    park::wait_node* first_ = nullptr;
    park::wait_node** end_ = &first_;
};

}  // namespace

publisher::publisher() noexcept {
    static_assert(sizeof(object_lock) <= sizeof lock_ && alignof(object_lock) <= 8);
    static_assert(platform::may_be_simulated || std::is_trivially_destructible_v<object_lock>);
    ::new (lock_) object_lock;
}

publisher::locked::locked(const publisher& p) noexcept : publisher_(p) {
    static_assert(sizeof(park::runtime_section) <= sizeof section_ && alignof(park::runtime_section) <= 8);
    ::new (section_) park::runtime_section;
    lock_in(publisher_.lock_).lock();
}

publisher::locked::~locked() {
    auto* const woken = static_cast<park::wait_node*>(std::exchange(publisher_.woken_, nullptr));
    lock_in(publisher_.lock_).unlock();
    park::wake_all(woken);
    std::launder(reinterpret_cast<park::runtime_section*>(section_))->~runtime_section();
}

void publisher::publish() noexcept {
    const std::uint64_t before = head++;
    woken_chain woken;
    for (follower* f = first_; f != nullptr; f = f->next) {
        if (f->place == before) woken.give_permit(*handle_access::core(f->news));
    }
    woken_ = woken.first();
}

void publisher::settle(follower& f) const noexcept {
    if (closed) return;
    if (f.place == head) {
        f.news.try_recv();
    } else {
        f.news.try_send(std::monostate());
    }
}

bool publisher::close() noexcept {
    const locked guard(*this);
    if (std::exchange(closed, true)) return false;
    woken_chain woken;
    for (follower* f = first_; f != nullptr; f = f->next) woken.close(*handle_access::core(f->news));
    woken_ = woken.first();
    return true;
}

void publisher::link(follower& f) noexcept {
    if (closed) {
        f.news.close();
    } else {
        settle(f);
    }
    f.prev = nullptr;
    f.next = first_;
    if (first_ != nullptr) first_->prev = &f;
    first_ = &f;
    ++followers_;
}

void publisher::attach_at_head(follower& f) noexcept {
    const locked guard(*this);
    f.place = head;
    link(f);
}

void publisher::attach_beside(follower& f, const follower& other) noexcept {
    const locked guard(*this);
    f.place = other.place;
    link(f);
}

void publisher::detach(follower& f) noexcept {
    const locked guard(*this);
    (f.prev != nullptr ? f.prev->next : first_) = f.next;
    if (f.next != nullptr) f.next->prev = f.prev;
    --followers_;
}

bool publisher::is_closed() const noexcept {
    const locked guard(*this);
    return closed;
}

std::size_t publisher::followers() const noexcept {
    const locked guard(*this);
    return followers_;
}

std::uint64_t publisher::behind(const follower& f) const noexcept {
    const locked guard(*this);
    return head - f.place;
}

}  // namespace dunlin::detail
