// oracle.h - what must hold in every random program, whatever the schedule, and how it is seen.
//
// conservation   A value that send() says it has sent is received once; another one never.            ledger
// order          Each receiver gets the values of one sender in the order in which they were sent.    ledger::reader
// capacity       No more values have been sent than are received, being received, or fit in between.  ledger
// exclusion      One writer alone, or readers; holders of a semaphore as many as permits.   occupancy
// given back     In the end each lock can be taken, each semaphore has its permits.                    objects.h
// never early    A time-out, a sleep, a timer, a deadline: not before its moment.                      play.h
// not for nothing  A wait ends as cancelled only if its context was, or an ancestor of it.             play.h
// ends           Everything ends: the watchdog.
// order in memory  What travels, or is guarded, is plain memory besides: ThreadSanitizer sees a missing edge.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace fuzz {

// What was found. From any goroutine or thread. Said at once: the program may not end any more.
class verdict {
public:
    void fault(std::string text) {
        const std::scoped_lock lock(m_);
        if (faults_.size() == 10 || std::find(faults_.begin(), faults_.end(), text) != faults_.end()) return;
        std::fprintf(stderr, "fault: %s\n", text.c_str());
        faults_.push_back(std::move(text));
    }
    template <class... Parts>
    void expect(bool right, const Parts&... parts) {
        if (right) return;
        std::string text;
        (append(text, parts), ...);
        fault(std::move(text));
    }
    std::vector<std::string> faults() const {
        const std::scoped_lock lock(m_);
        return faults_;
    }

private:
    template <class T>
    static void append(std::string& text, const T& part) {
        if constexpr (std::is_arithmetic_v<T>) {
            text += std::to_string(part);
        } else {
            text += part;
        }
    }
    mutable std::mutex m_;
    std::vector<std::string> faults_;
};

// What goes through a line.
struct letter {
    std::uint32_t sender, number, check;
    letter(std::uint32_t s, std::uint32_t n) : sender(s), number(n), check(~(s * 31 + n)) {}
    bool is_whole() const { return check == ~(sender * 31 + number); }
};
using letter_ptr = std::unique_ptr<letter>;

// Of one line: what became of each value.
class ledger {
public:
    ledger(verdict& v, std::string name, unsigned senders, std::int64_t capacity)
        : verdict_(v), name_(std::move(name)), capacity_(capacity), of_(senders) {}

    // Of one sender; at most one send of it is under way.
    letter_ptr draft(unsigned sender) {
        sender_state& s = of_[sender];
        const std::uint32_t number = s.drafted.load(std::memory_order_relaxed);
        if (number == most) return nullptr;
        s.drafted.store(number + 1, std::memory_order_relaxed);
        return std::make_unique<letter>(sender, number);
    }
    void sent(unsigned sender, std::uint32_t number) {
        of_[sender].fate[number].fetch_or(was_sent);
        const std::int64_t sent = ++sent_;
        // A receive counts from before it begins. What it counts for nothing it takes back, having taken no value.
        verdict_.expect(capacity_ < 0 || sent - received_ <= capacity_, name_, ": more values were sent than fit");
    }

    // Before a call that may receive, and after one that has received nothing.
    void begin_receive() { ++received_; }
    void no_receive() { --received_; }

    // A receiver's own memory of what it got from which sender.
    class reader {
    public:
        void got(ledger& l, const letter& v) {
            verdict& faults = l.verdict_;
            if (!v.is_whole() || v.sender >= l.of_.size() || v.number >= most) {
                return faults.fault(l.name_ + ": a value that nobody has sent");
            }
            const std::string which =
                l.name_ + ": value " + std::to_string(v.number) + " of sender " + std::to_string(v.sender);
            const auto before = l.of_[v.sender].fate[v.number].fetch_or(was_received);
            faults.expect((before & was_received) == 0, which, " was received twice");
            const auto [place, first] = last_.try_emplace({&l, v.sender}, v.number);
            faults.expect(first || place->second < v.number, which, " was received out of order");
            place->second = v.number;
        }

    private:
        std::map<std::pair<const ledger*, std::uint32_t>, std::uint32_t> last_;
    };

    // When all is over.
    void close_books() {
        for (std::size_t s = 0; s < of_.size(); ++s) {
            for (std::uint32_t n = 0; n < of_[s].drafted.load(); ++n) {
                const auto fate = of_[s].fate[n].load();
                const std::string which = name_ + ": value " + std::to_string(n) + " of sender " + std::to_string(s);
                verdict_.expect(fate != was_sent, which, " was lost");
                verdict_.expect(fate != was_received, which, " was received although its send had failed");
            }
        }
    }
    const std::string& name() const { return name_; }

private:
    static constexpr std::uint32_t most = 64;  // values of one sender
    static constexpr std::uint8_t was_sent = 1, was_received = 2;
    struct sender_state {
        std::atomic<std::uint32_t> drafted{0};
        std::atomic<std::uint8_t> fate[most] = {};
    };
    verdict& verdict_;
    const std::string name_;
    const std::int64_t capacity_;  // negative: not known
    std::vector<sender_state> of_;
    std::atomic<std::int64_t> sent_{0}, received_{0};
};

// Of one guard: which actors are inside.
class occupancy {
public:
    occupancy(verdict& v, std::string name, int permits) : verdict_(v), name_(std::move(name)), permits_(permits) {}

    void enter(bool shared) {
        if (shared) {
            ++readers_;
            verdict_.expect(writers_ == 0, name_, ": a reader beside a writer");
            static_cast<void>(*const_cast<volatile int*>(&memory_));
        } else {
            const int inside = ++writers_;
            verdict_.expect(inside <= permits_, name_, ": more holders than it allows");
            verdict_.expect(readers_ == 0, name_, ": a writer beside a reader");
            if (permits_ == 1) ++memory_;
        }
    }
    void leave(bool shared) {
        if (!shared && permits_ == 1) ++memory_;
        --(shared ? readers_ : writers_);
    }
    const std::string& name() const { return name_; }

private:
    verdict& verdict_;
    const std::string name_;
    const int permits_;
    std::atomic<int> writers_{0}, readers_{0};
    int memory_ = 0;  // guarded
};

}  // namespace fuzz
