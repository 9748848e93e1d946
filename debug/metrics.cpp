#include "metrics.h"

#include <charconv>
#include <cstdint>

#include <dunlin/runtime.hpp>

namespace dunlin::inline v0_1::debug {

namespace {

class writer {
public:
    void gauge(const char* name, const char* help, std::uint64_t value) { one(name, help, "gauge", value); }
    void counter(const char* name, const char* help, std::uint64_t value) { one(name, help, "counter", value); }

    void begin(const char* name, const char* help, const char* type) {
        name_ = name;
        text += std::string("# HELP dunlin_") + name + ' ' + help + "\n# TYPE dunlin_" + name + ' ' + type + '\n';
    }
    // A value of the metric that begin() has begun. `labels`: {state="running"}
    void value(const char* suffix, const std::string& labels, const std::string& v) {
        text += std::string("dunlin_") + name_ + suffix + labels + ' ' + v + '\n';
    }
    void value(const char* suffix, const std::string& labels, std::uint64_t v) {
        value(suffix, labels, std::to_string(v));
    }

    std::string text;

private:
    void one(const char* name, const char* help, const char* type, std::uint64_t v) {
        begin(name, help, type);
        value("", "", v);
    }

    const char* name_ = "";
};

std::string in_seconds(std::int64_t ns) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, static_cast<double>(ns) * 1e-9).ptr;
    return std::string(digits, end);
}

// The buckets of the histogram that begin() has begun. `label`: reason="sleep"; empty: none.
void write_buckets(writer& out, const runtime::duration_histogram& h, const std::string& label = "") {
    const std::string more = label.empty() ? "" : label + ',', labels = label.empty() ? "" : '{' + label + '}';
    std::uint64_t so_far = 0;
    for (std::size_t i = 0; i < h.counts.size(); ++i) {
        so_far += h.counts[i];
        const std::string limit = i < h.limits_ns.size() ? in_seconds(h.limits_ns[i]) : "+Inf";
        out.value("_bucket", '{' + more + "le=\"" + limit + "\"}", so_far);
    }
    out.value("_sum", labels, in_seconds(h.total_ns));
    out.value("_count", labels, so_far);
}

void write_histograms(writer& out, const runtime::runtime_stats& s) {
    out.begin("wait_while_idle_seconds", "Waits for a processor while one had nothing to run.", "histogram");
    write_buckets(out, s.waits_while_idle);
    out.begin("scheduling_latency_seconds", "From runnable to running, of one goroutine in eight.", "histogram");
    write_buckets(out, s.scheduling_latency);
    out.begin("park_seconds", "Waits that have ended, by what was waited for.", "histogram");
    for (const runtime::wait_durations& d : s.park_times) write_buckets(out, d.waits, "reason=\"" + d.reason + '"');
    out.begin("world_stopping_seconds", "Stops of the world, until everything stands.", "histogram");
    write_buckets(out, s.world_stopping);
    out.begin("world_stop_seconds", "Stops of the world, until all goes on.", "histogram");
    write_buckets(out, s.world_stops);
    out.begin("run_queue_found", "The queue's length, as one goroutine in eight found it.", "histogram");
    std::uint64_t so_far = 0, at_least = 0;
    for (std::size_t i = 0; i < s.run_queue_lengths.size(); ++i) {
        so_far += s.run_queue_lengths[i];
        at_least += s.run_queue_lengths[i] * (i == 0 ? 0 : std::uint64_t{1} << (i - 1));
        const bool last = i + 1 == s.run_queue_lengths.size();
        const std::string limit = last ? "+Inf" : std::to_string((std::uint64_t{1} << i) - 1);
        out.value("_bucket", "{le=\"" + limit + "\"}", so_far);
    }
    out.value("_sum", "", at_least);  // at least: lengths are kept by their powers of two
    out.value("_count", "", so_far);
}

}  // namespace

std::string metrics() {
    const runtime::runtime_stats s = runtime::stats();
    writer out;
    out.begin("goroutines", "Goroutines alive, by state.", "gauge");
    out.value("", "{state=\"runnable\"}", s.runnable);
    out.value("", "{state=\"running\"}", s.running);
    out.value("", "{state=\"waiting\"}", s.waiting);
    out.value("", "{state=\"preempted\"}", s.preempted);
    out.gauge("processors", "How many goroutines may execute at the same time.", s.max_procs);
    out.gauge("processors_idle", "Processors that have nothing to run.", s.idle_procs);
    out.gauge("threads", "Threads that run goroutines.", s.threads);
    out.gauge("threads_idle", "Of these, those that have nothing to do.", s.idle_threads);
    out.gauge("threads_spinning", "Of these, those that look for work.", s.spinning_threads);
    std::uint64_t queued = s.global_queue, created = 0, ended = 0, switches = 0, parks = 0, yields = 0;
    for (const runtime::processor_stats& p : s.procs) {
        queued += p.run_queue + (p.run_next ? 1 : 0);
        created += p.created, ended += p.ended, switches += p.switches, parks += p.parks, yields += p.yields;
    }
    out.gauge("run_queue_length", "Goroutines that wait for a processor.", queued);
    out.gauge("stacks_in_use", "Stacks handed out, reserves included.", s.stacks_in_use);
    out.gauge("stack_reserved_bytes", "Addresses reserved for stacks.", s.stack_bytes_reserved);
    out.gauge("descriptors", "Open sockets, pipes and files.", s.poll.descriptors);
    out.gauge("descriptor_waits", "Calls that wait for one of them.", s.poll.waiting);
    out.gauge("preempted_now", "Goroutines that a signal has stopped.", s.hand_offs.preempted_now);
    out.counter("goroutines_created_total", "Goroutines started by goroutines.", created);
    out.counter("goroutines_ended_total", "Goroutines that have ended.", ended);
    out.counter("switches_total", "Times that a processor looked for the next goroutine.", switches);
    out.counter("parks_total", "Times that a goroutine began to wait.", parks);
    out.counter("yields_total", "Times that a goroutine gave up its turn.", yields);
    out.counter("steals_total", "Successful steals.", s.steals);
    out.counter("stolen_total", "Goroutines stolen.", s.stolen);
    out.counter("in_place_joins_total", "Children run on the stack of their waiter.", s.in_place_joins);
    out.counter("queue_overflows_total", "Times that half of a queue went to the global one.", s.overflows);
    out.counter("polls_total", "Times that the kernel was asked what is ready.", s.poll.polls);
    out.counter("blocking_calls_total", "Calls of blocking().", s.hand_offs.blocking_calls);
    out.begin("hand_offs_total", "Processors handed on, by what their thread did.", "counter");
    out.value("", "{from=\"blocking\"}", s.hand_offs.at_once + s.hand_offs.from_blocking);
    out.value("", "{from=\"blocked\"}", s.hand_offs.from_blocked);
    out.value("", "{from=\"hog\"}", s.hand_offs.from_hogs);
    out.counter("preemptions_total", "Goroutines that a signal stopped.", s.hand_offs.preemptions);
    out.begin("processor_seconds_total", "What the time of the processors went to.", "counter");
    out.value("", "{what=\"busy\"}", in_seconds(s.time.busy().count()));
    out.value("", "{what=\"idle\"}", in_seconds(s.time.idle.count()));
    out.value("", "{what=\"stopped\"}", in_seconds(s.time.stopped.count()));
    write_histograms(out, s);
    return out.text;
}

}  // namespace dunlin::debug
