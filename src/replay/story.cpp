#include "replay/story.h"

#include <algorithm>

namespace dunlin::inline v0_1::replay {

void story::begin(std::uint64_t from, bool detailed) {
    from_ = from;
    detailed_ = detailed;
    count_ = 0;
    if (detailed) ring_.resize(kept);
}

choice& story::add() noexcept {
    choice& c = ring_[count_++ % kept];
    c = choice{};
    return c;
}

namespace {

void print_leaving(platform::text_writer& out, const choice& c) noexcept {
    switch (c.how) {
    case leaving::waits: out << "waits (" << sched::name(c.reason) << ')'; break;
    case leaving::yields: out << "yields"; break;
    case leaving::ended: out << "has ended"; break;
    case leaving::switched_away: out << "is switched away"; break;
    case leaving::goes_on: out << "yields, and goes on"; break;
    case leaving::nothing: out << "stops"; break;
    }
}

}  // namespace

void story::print(platform::text_writer& out) const noexcept {
    for (std::uint64_t i = count_ - std::min<std::uint64_t>(count_, kept); i < count_; ++i) {
        const choice& c = ring_[i % kept];
        out << "    " << c.step << ": ";
        if (c.ran != 0) {
            out << 'g' << c.ran << ' ';
            print_leaving(out, c);
            if (c.frames.size != 0) {
                out << " in ";
                if (!stack::print_first_of_program(out, c.frames)) out << "the runtime";
            }
            out << "; ";
        }
        if (c.jumped_ns != 0) {
            out << "nothing can run for ";
            out.duration(c.jumped_ns);
            out << "; ";
        }
        if (c.next != 0) out << 'g' << c.next << " runs, ";
        out << "at ";
        out.duration(c.at_ns);
        out << '\n';
    }
}

}  // namespace dunlin::replay
