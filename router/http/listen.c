/* The sockets that a server listens on. */
#include "common/log/log.h"
#include "common/net/listen_address.h"
#include "router/http/conn.h"
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 4096 };

void http_set_option(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof(value));
}

static int bind_one(const struct addrinfo *a, uint16_t *port)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } got = {.v6 = {.sin6_port = 0}};
    socklen_t n = sizeof(got);
    if (fd < 0)
        return -1;
    http_set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (a->ai_family == AF_INET6)
        http_set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, &got.any, &n) != 0) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    *port = ntohs(got.any.sa_family == AF_INET6 ? got.v6.sin6_port : got.v4.sin_port);
    return fd;
}

/* Binds to `host`, an address or a name. -1: errno, or 0 if there is no such address. */
static int listen_at(const char *host, uint16_t *port, bool *v6)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *all = NULL;
    char text[8];
    snprintf(text, sizeof(text), "%u", *port);
    errno = 0;
    if (getaddrinfo(host, text, &hints, &all) != 0)
        return -1;
    const int fd = bind_one(all, port);
    *v6 = all->ai_family == AF_INET6;
    freeaddrinfo(all);
    return fd;
}

int http_listen(struct http *h, bool *v6, struct err *e)
{
    struct listen_addresses a;
    bool ignored;
    const bool known = listen_addresses(h->c.hostname, &a);
    h->port = h->c.port;
    h->listen_fd = listen_at(known ? a.at[0] : h->c.hostname, &h->port, v6);
    if (h->listen_fd < 0 && errno == 0) {
        log_msg(LOG_WARN, "invalid hostname `%s`, defaulting to 0.0.0.0", h->c.hostname);
        h->listen_fd = listen_at("0.0.0.0", &h->port, v6);
    }
    if (h->listen_fd < 0)
        return err_sys(e, "listen on %s port %u", h->c.hostname, h->c.port);
    if (a.n < 2)
        return 0;
    h->second_fd = listen_at(a.at[1], &h->port, &ignored);
    if (h->second_fd < 0 && errno && !listen_address_absent(errno))
        return err_sys(e, "listen on %s port %u", a.at[1], h->port);
    return 0;
}

/* The event is reported as long as a connection is queued. */
static void hear_second(struct http *h, bool on)
{
    struct epoll_event ev = {.events = on ? EPOLLIN : 0, .data.ptr = &h->second_fd};
    h->second_waits = epoll_ctl(h->epoll_fd, EPOLL_CTL_MOD, h->second_fd, &ev) == 0 && !on;
}

void http_second_again(struct http *h)
{
    if (h->second_waits)
        hear_second(h, true);
}

void http_accept_second(struct http *h)
{
    union {
        struct sockaddr any;
        struct sockaddr_in6 v6;
    } from;
    for (;;) {
        socklen_t n = sizeof(from);
        const int fd = accept4(h->second_fd, &from.any, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                hear_second(h, false);
            return;
        }
        /* libmicrohttpd closes the socket if it cannot take it. */
        (void)MHD_add_connection(h->daemon, fd, &from.any, n);
    }
}
