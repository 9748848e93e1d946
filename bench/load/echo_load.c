/* echo_load.c - connections that each send a message of 64 bytes, wait until it is back, check every byte of it, and send the next one.
 *
 * Every message of a run has its own number, and a reply is compared with the message that its connection waits for: a lost reply leaves its connection (and
 * the run) waiting, a second one, or another connection's, is a byte that does not belong there. At the end each connection is closed in one direction and
 * read up to its end, so that nothing may follow the last reply either.
 */
#define _GNU_SOURCE
#include "load.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct connection {
    struct dialogue d;
    int64_t sent_ns;
    unsigned char message[message_size];
};

struct run {
    const struct options* o;
    struct connection* connections;
    int poll;
    int in_flight;
    uint64_t next_number;
    int64_t replies;
    struct histogram* latencies; /* NULL: nothing is measured now */
};

static void send_next(struct run* r, struct connection* c, int64_t now) {
    fill_message(c->message, r->next_number++);
    c->sent_ns = now;
    send_message(&c->d, c->message);
    ++r->in_flight;
}

/* True: the reply is complete. */
static bool receive(struct run* r, struct connection* c, int64_t now) {
    if (!receive_reply(&c->d, c->message)) return false;
    --r->in_flight;
    ++r->replies;
    if (r->latencies != NULL) histogram_add(r->latencies, now - c->sent_ns);
    return true;
}

/* Goes on until the time (0: at once) or the number of replies is reached; then, if `to_the_end`, until nothing is in flight. */
static void exchange(struct run* r, int64_t until_ns, int64_t until_replies, bool to_the_end) {
    struct epoll_event events[256];
    bool over = until_ns == 0;
    while (!over || (to_the_end && r->in_flight > 0)) {
        const int n = epoll_wait(r->poll, events, 256, 10000);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) die("%d replies are missing after 10 s (%lld have come)", r->in_flight, (long long)r->replies);
        const int64_t now = now_ns();
        over = over || now >= until_ns;
        for (int i = 0; i < n; ++i) {
            struct connection* c = events[i].data.ptr;
            const bool complete = receive(r, c, now);
            over = over || r->replies + (to_the_end ? r->in_flight : 0) >= until_replies;
            if (complete && !(over && to_the_end)) send_next(r, c, now);
        }
    }
}

static void start_all(struct run* r) {
    for (int i = 0; i < r->o->connections; ++i) {
        if (!r->connections[i].d.waits) send_next(r, &r->connections[i], now_ns());
    }
}

static void open_all(struct run* r) {
    r->poll = epoll_create1(EPOLL_CLOEXEC);
    r->connections = calloc((size_t)r->o->connections, sizeof *r->connections);
    if (r->poll < 0 || r->connections == NULL) die("no memory");
    for (int i = 0; i < r->o->connections; ++i) {
        struct connection* c = &r->connections[i];
        open_dialogue(&c->d, r->o, i, r->o->connections, r->poll, EPOLLIN | EPOLLET, c);
    }
}

static void close_all(struct run* r) {
    for (int i = 0; i < r->o->connections; ++i) {
        close_dialogue(&r->connections[i].d, r->poll);
    }
    free(r->connections);
    close(r->poll);
}

/* ---- system calls of the server, counted by strace ------------------------------------------------------------------------------------ */

static bool is_traced(pid_t process) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", (int)process);
    FILE* status = fopen(path, "r");
    int tracer = 0;
    while (status != NULL && fgets(line, sizeof line, status) != NULL) sscanf(line, "TracerPid: %d", &tracer);
    if (status != NULL) fclose(status);
    return tracer != 0;
}

static pid_t start_strace(pid_t server, const char* out) {
    char text[32];
    snprintf(text, sizeof text, "%d", (int)server);
    const pid_t child = fork();
    if (child == 0) {
        freopen("/dev/null", "w", stderr);
        execlp("strace", "strace", "-f", "-c", "-U", "calls,name", "-o", out, "-p", text, (char*)NULL);
        _exit(127);
    }
    for (int i = 0; i < 500 && !is_traced(server); ++i) usleep(10000);
    if (!is_traced(server)) die("strace does not get hold of the server (not installed, or not permitted?)");
    usleep(100000); /* its other threads too */
    return child;
}

/* The line "CALLS total". */
static int64_t stop_strace(pid_t strace, const char* out) {
    kill(strace, SIGINT);
    waitpid(strace, NULL, 0);
    FILE* table = fopen(out, "r");
    long long calls = 0, total = -1;
    char line[256], name[64];
    while (table != NULL && fgets(line, sizeof line, table) != NULL) {
        if (sscanf(line, "%lld %63s", &calls, name) != 2) continue;
        if (getenv("BENCH_SHOW_CALLS") != NULL) fputs(line, stderr);
        if (strcmp(name, "total") == 0) total = calls;
    }
    if (table != NULL) fclose(table);
    unlink(out);
    if (total < 0) die("strace has counted nothing");
    return total;
}

static void count_calls(struct run* r) {
    char out[64];
    snprintf(out, sizeof out, "/tmp/net_load.%d.strace", (int)getpid());
    const pid_t strace = start_strace(r->o->server_pid, out);
    start_all(r);
    exchange(r, INT64_MAX, r->o->requests, true);
    const int64_t requests = r->replies;
    tell("calls", (double)stop_strace(strace, out) / (double)requests, "calls");
}

/* ---- the kinds of run ----------------------------------------------------------------------------------------------------------------- */

static void measure(struct run* r) {
    const bool counted = r->o->requests != 0;
    start_all(r);
    exchange(r, now_ns() + 300000000, counted ? r->o->requests : INT64_MAX, false);
    r->latencies = calloc(1, sizeof *r->latencies);
    const int64_t first = r->replies, start_ns = now_ns(), start_cpu_ns = server_cpu_ns(r->o);
    exchange(r, counted ? INT64_MAX : start_ns + (int64_t)(r->o->seconds * 1e9), counted ? r->o->requests : INT64_MAX, counted);
    const int64_t end_ns = now_ns(), end_cpu_ns = server_cpu_ns(r->o), replies = r->replies - first;
    if (replies <= 0) die("no replies in the time that is measured");
    tell("time", (double)(end_ns - start_ns) / 1e3 / (double)replies, "us");
    tell("cpu", (double)(end_cpu_ns - start_cpu_ns) / 1e3 / (double)replies, "us");
    tell("p50", histogram_percentile_ns(r->latencies, 0.5) / 1e3, "us");
    tell("p99", histogram_percentile_ns(r->latencies, 0.99) / 1e3, "us");
    if (counted) tell("requests", (double)r->replies, "requests");
    exchange(r, 0, 0, true);
}

int echo_load(const struct options* o) {
    if (possible_connections(o) < o->connections) die("no descriptors for %d connections", o->connections);
    struct run r = {.o = o, .next_number = 1};
    open_all(&r);
    if (o->count_calls) {
        count_calls(&r);
    } else {
        measure(&r);
    }
    close_all(&r);
    if (r.replies != (int64_t)r.next_number - 1) die("%lld messages, but %lld replies", (long long)r.next_number - 1, (long long)r.replies);
    return 0;
}
