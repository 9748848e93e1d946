// parts.h - the parts of the tour, in order, and what several of them need.
#pragma once

#include <cstdint>
#include <string_view>

#include <dunlin/dunlin.hpp>

#include "report.h"

namespace tour {

void who_we_are(const options&);
void a_million_goroutines(const options&);
void files(const options&);
void stealing(const options&);
void lifo_slot(const options&);
void fairness(const options&);
void overflow(const options&);
void joins_in_place(const options&);
void sleeping(const options&);
void channels(const options&);
void network(const options&);
void hogs(const options&);
void blocking_calls(const options&);
void unannounced(const options&);
void failures(const options&);
void sight(const options&);
void replay(const options&);

/// Dies in the way that is named, as a child of failures(). Returns only if it did not die.
int die(std::string_view how);

/// Makes one of the faults of sight(), as a child of it. Returns only if it could not.
int fault(std::string_view which);

/// The client of network(), in a process of its own: "host:port,connections,milliseconds".
int echo_client(std::string_view what);
/// The bytes of each of so many connections, weighed in a process of its own for network().
int weigh_connections(std::string_view how_many);

/// A counter of one processor, as it has grown between two stats(). Processors may have been added meanwhile.
inline std::uint64_t growth(const dunlin::runtime::runtime_stats& before, const dunlin::runtime::runtime_stats& after,
    std::size_t p, std::uint64_t dunlin::runtime::processor_stats::*counter) {
    if (p >= after.procs.size()) return 0;
    return after.procs[p].*counter - (p < before.procs.size() ? before.procs[p].*counter : 0);
}

/// The same for all processors together.
inline std::uint64_t growth(const dunlin::runtime::runtime_stats& before, const dunlin::runtime::runtime_stats& after,
    std::uint64_t dunlin::runtime::processor_stats::*counter) {
    std::uint64_t sum = 0;
    for (std::size_t p = 0; p < after.procs.size(); ++p) sum += growth(before, after, p, counter);
    return sum;
}

/// Waits until the main goroutine is the only one. A goroutine that has called done() has a few instructions to go
/// before it is counted as ended.
inline void settle() {
    const stopwatch watch;
    while (dunlin::runtime::num_goroutines() > 1 && watch.elapsed() < std::chrono::seconds(2)) {
        dunlin::sleep_for(std::chrono::microseconds(100));
    }
}

/// While it lives there is one processor, so that the order in which things happen is the scheduler's choice and not
/// chance.
class one_processor {
public:
    one_processor() : before_(dunlin::runtime::set_max_procs(1)) { dunlin::yield(); }
    ~one_processor() { dunlin::runtime::set_max_procs(before_); }
    one_processor(const one_processor&) = delete;
    one_processor& operator=(const one_processor&) = delete;

private:
    unsigned before_;
};

}  // namespace tour
