/* mixed_load.c - requests of three kinds at a fixed rate, whatever the server does (an open loop), each with an answer that only the work can give.
 *
 * Schedule   When each request is due, of which kind it is and how much it asks for is settled before anything is sent: random, but from a fixed seed, so the same
 *            for every server. The gaps are those of a Poisson process. A latency counts from the moment at which the request was due, not from that at which it
 *            could be sent: a server that stands still for 20 ms delays all requests that fall into them, and all of them show it.
 * Sockets    A request takes the connection that has been idle for longest. If none is, it waits here, and the time counts as the server's.
 * Own delay  `late` is how much later than due a request was sent, as long as there were connections. Latencies that are not far above it were not measured.
 * With P = 2 there is no CPU for the load alone. Its server then runs with a lower priority (nice), so that its hogs do not delay the load itself.
 *
 * A message in both directions: 64 bytes, numbers in the order of the machine.
 *
 *      0  number of the request, 8 bytes         comes back as it is, as does everything but the value
 *      8  kind, 4 bytes: 0 lookup, 1 burst, 2 library
 *     12  amount, 4 bytes                        burst: steps to compute; library: microseconds for which the library's call sleeps
 *     16  value, 8 bytes                         the answer: lookup: table[value % 4096], the table is the sequence of splitmix64 from seed 1
 *                                                burst: `amount` times value = value * 6364136223846793005 + 1442695040888963407
 *                                                library: ~value
 *     24  40 bytes of any kind
 */
#define _GNU_SOURCE
#include "load.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { lookup,
    burst,
    library,
    kinds };
enum { table_size = 4096,
    server_nice = 10 };
static const int64_t patience_ns = 10000000000;

/* Of a hundred requests. */
static const int burst_share = 4, library_share = 4;
static const uint32_t burst_steps = 2000000; /* about 2 ms */
static const uint32_t library_us_min = 1000, library_us_max = 5000;

struct request {
    int64_t due_ns;
    uint64_t number;
    uint32_t kind, amount;
    uint64_t value;
};

struct connection {
    struct dialogue d;
    int64_t sent_ns;
    struct request request;
    unsigned char reply[message_size]; /* as it has to be */
};

struct run {
    const struct options* o;
    struct connection* connections;
    int* idle; /* a ring of connections: the one that has been idle for longest is at idle_head */
    int idle_head, idle_count;
    int poll;
    uint64_t random;
    uint64_t table[table_size];
    double rate;          /* of requests, per second; 0: as many as there are connections for */
    uint32_t all_steps;   /* if not 0, all requests are bursts of so many steps */
    int64_t warm_up_ns;
    int64_t begin_ns; /* what is due before it is not counted */
    int64_t end_ns;   /* nothing is due after it */
    struct request next;
    bool held; /* no connection was idle when one was wanted, and the schedule has not been caught up with since */
    int in_flight;
    int64_t requests, replies;
    struct histogram *of_kind[kinds], *of_all, *late;
};

/* ---- the schedule and the answers ----------------------------------------------------------------------------------------------------- */

static uint64_t splitmix64(uint64_t* state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Above 0, up to 1. */
static double random_part(struct run* r) { return ((double)(splitmix64(&r->random) >> 11) + 1) * 0x1p-53; }

static void plan_next(struct run* r) {
    struct request* q = &r->next;
    ++q->number;
    if (r->all_steps != 0) {
        q->due_ns += r->rate > 0 ? (int64_t)(1e9 / r->rate) : 0;
        q->kind = burst;
        q->amount = r->all_steps;
        q->value = splitmix64(&r->random);
        return;
    }
    q->due_ns += (int64_t)(-log(random_part(r)) * 1e9 / r->rate);
    const int share = (int)(splitmix64(&r->random) % 100);
    q->kind = share < burst_share ? burst : share < burst_share + library_share ? library : lookup;
    const uint64_t amount = splitmix64(&r->random);
    q->amount = q->kind == burst ? burst_steps : q->kind == library ? library_us_min + (uint32_t)(amount % (library_us_max - library_us_min + 1)) : 0;
    q->value = splitmix64(&r->random);
}

/* The generator's value after so many steps, in as many squarings as the number has digits. */
static uint64_t computed(uint64_t value, uint32_t steps) {
    uint64_t factor = 6364136223846793005u, term = 1442695040888963407u;
    for (; steps != 0; steps >>= 1) {
        if (steps & 1) value = value * factor + term;
        term *= factor + 1;
        factor *= factor;
    }
    return value;
}

static void write_message(unsigned char* message, const struct request* q, uint64_t value) {
    fill_message(message, q->number);
    memcpy(message + 8, &q->kind, sizeof q->kind);
    memcpy(message + 12, &q->amount, sizeof q->amount);
    memcpy(message + 16, &value, sizeof value);
}

static uint64_t answer(const struct run* r, const struct request* q) {
    switch (q->kind) {
    case lookup: return r->table[q->value % table_size];
    case burst: return computed(q->value, q->amount);
    default: return ~q->value;
    }
}

/* ---- sending and receiving ------------------------------------------------------------------------------------------------------------ */

static void now_idle(struct run* r, int connection) {
    r->idle[(r->idle_head + r->idle_count++) % r->o->connections] = connection;
}

static void send_next(struct run* r, int64_t now) {
    struct connection* c = &r->connections[r->idle[r->idle_head]];
    r->idle_head = (r->idle_head + 1) % r->o->connections;
    --r->idle_count;
    if (!r->held && r->next.due_ns >= r->begin_ns) histogram_add(r->late, now - r->next.due_ns);
    unsigned char message[message_size];
    write_message(message, &r->next, r->next.value);
    c->request = r->next;
    write_message(c->reply, &c->request, answer(r, &c->request));
    c->sent_ns = now;
    send_message(&c->d, message);
    ++r->in_flight;
    ++r->requests;
    plan_next(r);
}

static bool all_sent(const struct run* r) { return r->next.due_ns >= r->end_ns; }

static void send_what_is_due(struct run* r) {
    int64_t now = now_ns();
    while (!all_sent(r) && r->next.due_ns <= now) {
        if (r->idle_count == 0) {
            r->held = true;
            return;
        }
        send_next(r, now);
        now = now_ns();
    }
    r->held = false;
}

static void complete(struct run* r, struct connection* c, int64_t now) {
    const struct request* q = &c->request;
    if (q->kind == library && now - c->sent_ns < (int64_t)q->amount * 1000) die("an answer before the library's call can have returned");
    --r->in_flight;
    ++r->replies;
    now_idle(r, (int)(c - r->connections));
    if (q->due_ns < r->begin_ns) return;
    histogram_add(r->of_kind[q->kind], now - q->due_ns);
    histogram_add(r->of_all, now - q->due_ns);
}

/* Until the next request is due, or a reply has come. */
static void wait_and_receive(struct run* r) {
    struct epoll_event events[256];
    const bool sends = !all_sent(r) && r->idle_count > 0;
    int64_t wait_ns = sends ? r->next.due_ns - now_ns() : patience_ns;
    if (wait_ns < 0) wait_ns = 0;
    const struct timespec timeout = {.tv_sec = wait_ns / 1000000000, .tv_nsec = wait_ns % 1000000000};
    const int n = epoll_pwait2(r->poll, events, 256, &timeout, NULL);
    if (n < 0 && errno != EINTR) die("epoll_pwait2: %s", strerror(errno));
    if (n == 0 && !sends) die("%d of %lld replies are missing, and none has come for 10 s", r->in_flight, (long long)r->requests);
    const int64_t now = now_ns();
    for (int i = 0; i < n; ++i) {
        struct connection* c = events[i].data.ptr;
        if (receive_reply(&c->d, c->reply)) complete(r, c, now);
    }
}

/* ---- the run -------------------------------------------------------------------------------------------------------------------------- */

static struct histogram* new_histogram(void) {
    struct histogram* h = calloc(1, sizeof *h);
    if (h == NULL) die("no memory");
    return h;
}

static void open_all(struct run* r) {
    r->poll = epoll_create1(EPOLL_CLOEXEC);
    r->connections = calloc((size_t)r->o->connections, sizeof *r->connections);
    r->idle = calloc((size_t)r->o->connections, sizeof *r->idle);
    if (r->poll < 0 || r->connections == NULL || r->idle == NULL) die("no memory");
    for (int i = 0; i < r->o->connections; ++i) {
        struct connection* c = &r->connections[i];
        open_dialogue(&c->d, r->o, i, r->o->connections, r->poll, EPOLLIN, c);
        now_idle(r, i);
    }
}

/* Nothing may follow the last reply. */
static void close_all(struct run* r) {
    for (int i = 0; i < r->o->connections; ++i) {
        close_dialogue(&r->connections[i].d, r->poll);
    }
    close(r->poll);
}

/* All threads that the server has now; those to come inherit it. */
static void lower_server(pid_t server) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)server);
    DIR* threads = opendir(path);
    if (threads == NULL) die("%s: %s", path, strerror(errno));
    for (struct dirent* entry; (entry = readdir(threads)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        if (setpriority(PRIO_PROCESS, (id_t)atoi(entry->d_name), server_nice) != 0 && errno != ESRCH) die("setpriority: %s", strerror(errno));
    }
    closedir(threads);
}

static void lower_server_if_free(const struct options* o) {
    if (o->bind) return;
    lower_server(o->server_pid);
    lower_server(o->server_pid); /* threads that began meanwhile */
}

static void start_run(struct run* r, const struct options* o) {
    raise_descriptor_limit(o->connections + 64);
    prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul);
    r->o = o;
    r->random = 42;
    r->of_all = new_histogram();
    r->late = new_histogram();
    for (int kind = 0; kind < kinds; ++kind) r->of_kind[kind] = new_histogram();
    uint64_t state = 1;
    for (int i = 0; i < table_size; ++i) r->table[i] = splitmix64(&state);
    open_all(r);
}

/* Requests at this rate for so long, after the time that warms up, until all are answered. */
static void run_schedule(struct run* r, double rate, double seconds) {
    r->rate = rate;
    r->next.due_ns = now_ns();
    r->begin_ns = r->next.due_ns + r->warm_up_ns;
    r->end_ns = r->begin_ns + (int64_t)(seconds * 1e9);
    plan_next(r);
    while (!all_sent(r) || r->in_flight > 0) {
        send_what_is_due(r);
        if (!all_sent(r) || r->in_flight > 0) wait_and_receive(r);
        if (now_ns() > r->end_ns + patience_ns) die("the server does not carry the load: requests are left 10 s after the last one was due");
    }
    if (r->replies != r->requests) die("%lld requests, but %lld replies", (long long)r->requests, (long long)r->replies);
}

static void tell_latency(const char* name, const struct histogram* h, double q) { tell(name, histogram_percentile_ns(h, q) / 1e3, "us"); }

int mixed_load(const struct options* o) {
    if (o->rate <= 0) die("mixed needs --rate");
    lower_server_if_free(o);
    struct run r = {.warm_up_ns = 500000000};
    start_run(&r, o);
    run_schedule(&r, o->rate, o->seconds);
    for (int kind = 0; kind < kinds; ++kind) {
        if (r.of_kind[kind]->total == 0) die("no requests of each kind in the time that is measured");
    }
    tell_latency("p50", r.of_kind[lookup], 0.5);
    tell_latency("p99", r.of_kind[lookup], 0.99);
    tell_latency("p99.9", r.of_kind[lookup], 0.999);
    tell_latency("burst-p99", r.of_kind[burst], 0.99);
    tell_latency("library-p99", r.of_kind[library], 0.99);
    tell_latency("all-p50", r.of_all, 0.5);
    tell_latency("all-p99", r.of_all, 0.99);
    tell_latency("all-p99.9", r.of_all, 0.999);
    tell_latency("late", r.late, 0.99);
    close_all(&r);
    return 0;
}

/* ---- an open loop at parts of the capacity -------------------------------------------------------------------------------------------- */

static uint32_t steps_of_us(double us) {
    enum { tries = 100,
        steps = 200000 };
    int64_t best_ns = INT64_MAX;
    volatile uint64_t kept = 1;
    for (int i = 0; i < tries; ++i) {
        const int64_t start_ns = now_ns();
        uint64_t x = kept;
        for (int step = 0; step < steps; ++step) x = x * 6364136223846793005u + 1442695040888963407u;
        kept = x;
        const int64_t took_ns = now_ns() - start_ns;
        if (took_ns < best_ns) best_ns = took_ns;
    }
    return (uint32_t)(us * 1e3 * steps / (double)best_ns);
}

/* Requests per second with all connections always busy. */
static double capacity(struct run* r) {
    const double seconds = r->o->seconds / 2;
    r->rate = 0;
    r->next.due_ns = now_ns();
    r->begin_ns = r->end_ns = INT64_MAX; /* nothing is counted, and there is always something to send */
    plan_next(r);
    int64_t start_ns = now_ns() + r->warm_up_ns, first = -1, now;
    while ((now = now_ns()) < start_ns + (int64_t)(seconds * 1e9)) {
        if (first < 0 && now >= start_ns) {
            first = r->replies;
            start_ns = now;
        }
        send_what_is_due(r);
        wait_and_receive(r);
    }
    const double rate = (double)(r->replies - first) * 1e9 / (double)(now - start_ns);
    r->end_ns = 0;
    while (r->in_flight > 0) wait_and_receive(r);
    r->held = false;
    return rate;
}

static void tell_level(const char* what, int percent, double us) {
    char name[32];
    snprintf(name, sizeof name, "%s-%d", what, percent);
    tell(name, us, "us");
}

/* What a server that computes for 20 us answers when requests are due at fixed times, at parts of what it can carry. */
int open_load(const struct options* o) {
    static const int percents[] = {30, 60, 80, 90};
    lower_server_if_free(o);
    struct run r = {.all_steps = steps_of_us(20), .warm_up_ns = 100000000};
    start_run(&r, o);
    const double most = capacity(&r);
    tell("time", 1e6 / most, "us");
    double late_us = 0;
    for (int i = 0; i < 4; ++i) {
        memset(r.of_all, 0, sizeof *r.of_all);
        memset(r.late, 0, sizeof *r.late);
        run_schedule(&r, most * percents[i] / 100, o->seconds);
        if (r.of_all->total == 0) die("no requests in the time that is measured");
        tell_level("p50", percents[i], histogram_percentile_ns(r.of_all, 0.5) / 1e3);
        tell_level("p99", percents[i], histogram_percentile_ns(r.of_all, 0.99) / 1e3);
        tell_level("p99.9", percents[i], histogram_percentile_ns(r.of_all, 0.999) / 1e3);
        const double p99_us = histogram_percentile_ns(r.late, 0.99) / 1e3;
        if (p99_us > late_us) late_us = p99_us;
    }
    tell("late", late_us, "us");
    close_all(&r);
    return 0;
}
