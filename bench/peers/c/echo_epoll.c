/* echo_epoll.c - an echo server as a loop around epoll_wait, in P threads: level-triggered, one read and one write for
 * each message.
 *
 * Each thread has an epoll of its own. The first one accepts and deals the connections out in turn, so that all have
 * equally many.
 *
 * Edge-triggered it would need a second read that finds nothing, or the same rule about short reads as here; it was no faster. A write that does not take
 * everything would need a buffer for each connection; with one message of 64 bytes under way it cannot happen, and ends the program.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench.h"

enum { threads_max = 64 };
static int threads = 1;
static int epolls[threads_max];

static void accept_all(int listener) {
    static int next;
    for (;;) {
        const int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return;
        const int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
        if (epoll_ctl(epolls[next++ % threads], EPOLL_CTL_ADD, fd, &e) != 0) fail("epoll_ctl");
    }
}

static void echo_one(int fd) {
    char buffer[1024];
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
        close(fd);
    } else if (send(fd, buffer, (size_t)n, MSG_NOSIGNAL) != n) {
        fail("an echo was not written in one piece");
    }
}

static int listener;

static void* serve(void* argument) {
    const int epoll = *(int*)argument;
    struct epoll_event events[256];
    for (;;) {
        const int n = epoll_wait(epoll, events, 256, -1);
        for (int i = 0; i < n; ++i) {
            if (events[i].data.fd == listener) {
                accept_all(listener);
            } else {
                echo_one(events[i].data.fd);
            }
        }
    }
    return NULL;
}

void echo(const struct settings* s, const char* kind, int connections) {
    int port;
    listener = listen_on_loopback(&port);
    threads = s->procs < threads_max ? s->procs : threads_max;
    for (int i = 0; i < threads; ++i) {
        if ((epolls[i] = epoll_create1(EPOLL_CLOEXEC)) < 0) fail("epoll");
    }
    struct epoll_event e = {.events = EPOLLIN, .data.fd = listener};
    if (epoll_ctl(epolls[0], EPOLL_CTL_ADD, listener, &e) != 0) fail("epoll_ctl");
    for (int i = 0; i < threads; ++i) {
        pthread_t server; /* the process's first thread waits for the load */
        if (pthread_create(&server, NULL, serve, &epolls[i]) != 0) fail("pthread_create");
    }
    char number[16];
    snprintf(number, sizeof number, "%d", connections);
    const char* words[] = {"--connections", number, "--seconds", s->quick ? "0.1" : s->n != 0 ? "0.5" : "1", threads > 1 ? "--free" : NULL, NULL};
    run_load(kind, port, words);
}
