/* think_load.c - many connections that each send a message of 64 bytes, wait until it is back, think, and send the next one, as users do.
 *
 * How long each thinks is random, from 0 to 1000 ms, but from a fixed seed. So most connections are idle at any time, and what comes finds the server at rest
 * or at the memory of another connection. A latency counts from the moment when the thinking ended, not from that at which the message could be sent; `late`
 * is what the load itself adds to it. Every byte that comes back is compared.
 */
#define _GNU_SOURCE
#include "load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Shorter, no connection might have come out of its thinking on a busy machine. */
static const double seconds_min = 0.5;
static const int64_t think_max_ns = 1000000000, warm_up_ns = 1500000000, patience_ns = 10000000000;

struct connection {
    struct dialogue d;
    int64_t due_ns; /* when it has thought, or had */
    unsigned char message[message_size];
};

struct run {
    const struct options* o;
    struct connection* connections;
    struct connection** thinking; /* a heap: the one that is due first is at 0 */
    int thinking_count;
    int poll;
    uint64_t random;
    uint64_t next_number;
    int64_t sent, replies;
    bool counts, over;
    int64_t counted;
    struct histogram *latencies, *late;
};

/* ---- who thinks ----------------------------------------------------------------------------------------------------------------------- */

static void swap(struct run* r, int a, int b) {
    struct connection* c = r->thinking[a];
    r->thinking[a] = r->thinking[b];
    r->thinking[b] = c;
}

static bool before(const struct run* r, int a, int b) { return r->thinking[a]->due_ns < r->thinking[b]->due_ns; }

static void think(struct run* r, struct connection* c, int64_t now) {
    r->random = r->random * 6364136223846793005u + 1442695040888963407u;
    c->due_ns = now + (int64_t)((r->random >> 33) % (uint64_t)think_max_ns);
    int at = r->thinking_count++;
    r->thinking[at] = c;
    for (; at > 0 && before(r, at, (at - 1) / 2); at = (at - 1) / 2) swap(r, at, (at - 1) / 2);
}

static struct connection* take_first(struct run* r) {
    struct connection* first = r->thinking[0];
    r->thinking[0] = r->thinking[--r->thinking_count];
    for (int at = 0;;) {
        int least = at;
        for (int child = 2 * at + 1; child <= 2 * at + 2 && child < r->thinking_count; ++child) {
            if (before(r, child, least)) least = child;
        }
        if (least == at) return first;
        swap(r, at, least);
        at = least;
    }
}

/* ---- sending and receiving ------------------------------------------------------------------------------------------------------------ */

static void send_next(struct run* r, struct connection* c, int64_t now) {
    if (r->counts) histogram_add(r->late, now - c->due_ns);
    fill_message(c->message, r->next_number++);
    send_message(&c->d, c->message);
    ++r->sent;
}

static void receive(struct run* r, struct connection* c, int64_t now) {
    if (!receive_reply(&c->d, c->message)) return;
    ++r->replies;
    if (r->counts) {
        ++r->counted;
        histogram_add(r->latencies, now - c->due_ns);
    }
    if (!r->over) think(r, c, now);
}

/* Until the time has come, or, at the end, until nothing is under way. */
static void exchange(struct run* r, int64_t until_ns) {
    struct epoll_event events[256];
    int64_t last_ns = now_ns();
    for (;;) {
        int64_t now = now_ns();
        if (r->over ? r->replies == r->sent : now >= until_ns) return;
        while (!r->over && r->thinking_count > 0 && r->thinking[0]->due_ns <= now) {
            send_next(r, take_first(r), now);
            now = now_ns();
        }
        int64_t wait_ns = r->over || r->thinking_count == 0 ? patience_ns : r->thinking[0]->due_ns - now;
        if (wait_ns < 0) wait_ns = 0;
        const struct timespec timeout = {.tv_sec = wait_ns / 1000000000, .tv_nsec = wait_ns % 1000000000};
        const int n = epoll_pwait2(r->poll, events, 256, &timeout, NULL);
        if (n < 0 && errno != EINTR) die("epoll_pwait2: %s", strerror(errno));
        now = now_ns();
        if (n > 0) last_ns = now;
        if (r->sent > r->replies && now - last_ns > patience_ns) die("%lld replies are missing after 10 s", (long long)(r->sent - r->replies));
        for (int i = 0; i < n; ++i) receive(r, events[i].data.ptr, now);
    }
}

/* ---- the run -------------------------------------------------------------------------------------------------------------------------- */

static void open_all(struct run* r, int count) {
    r->poll = epoll_create1(EPOLL_CLOEXEC);
    r->connections = calloc((size_t)count, sizeof *r->connections);
    r->thinking = calloc((size_t)count, sizeof *r->thinking);
    r->latencies = calloc(1, sizeof *r->latencies);
    r->late = calloc(1, sizeof *r->late);
    if (r->poll < 0 || r->connections == NULL || r->thinking == NULL || r->latencies == NULL || r->late == NULL) die("no memory");
    for (int i = 0; i < count; ++i) {
        struct connection* c = &r->connections[i];
        open_dialogue(&c->d, r->o, i, count, r->poll, EPOLLIN | EPOLLET, c);
    }
}

int think_load(const struct options* o) {
    const int count = possible_connections(o);
    if (count < 1) die("no descriptors for connections");
    prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul);
    struct run r = {.o = o, .random = 1, .next_number = 1};
    open_all(&r, count);
    for (int i = 0; i < count; ++i) think(&r, &r.connections[i], now_ns());
    exchange(&r, now_ns() + warm_up_ns); /* each has asked at least once */
    r.counts = true;
    const int64_t start_cpu_ns = server_cpu_ns(o);
    exchange(&r, now_ns() + (int64_t)((o->seconds < seconds_min ? seconds_min : o->seconds) * 1e9));
    const int64_t end_cpu_ns = server_cpu_ns(o);
    r.counts = false;
    if (r.counted == 0) die("no replies in the time that is measured");
    tell("cpu", (double)(end_cpu_ns - start_cpu_ns) / 1e3 / (double)r.counted, "us");
    tell("p50", histogram_percentile_ns(r.latencies, 0.5) / 1e3, "us");
    tell("p99", histogram_percentile_ns(r.latencies, 0.99) / 1e3, "us");
    tell("late", histogram_percentile_ns(r.late, 0.99) / 1e3, "us");
    tell("connections", count, "connections");
    r.over = true;
    exchange(&r, 0);
    return 0;
}
