#include "router/fleet/discover.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char dns[] = "dns:", file[] = "file:";

static const char *after(const char *text, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(text, prefix, n) == 0 ? text + n : NULL;
}

/* The colon before a port in 1..65535; NULL: none. */
static const char *port_of(const char *address)
{
    const char *colon = strrchr(address, ':');
    char *end;
    if (!colon || colon == address || !isdigit((unsigned char)colon[1]))
        return NULL;
    errno = 0;
    unsigned long port = strtoul(colon + 1, &end, 10);
    return *end == 0 && errno == 0 && port >= 1 && port <= 65535 ? colon : NULL;
}

int discover_check(const char *where, struct err *e)
{
    const char *name = after(where, dns), *path = after(where, file);
    const char *colon = name ? port_of(name) : NULL;
    if ((path && *path) || (colon && colon - name < NI_MAXHOST && !strchr(name, '/')))
        return 0;
    return err_set(e, ERR_VALIDATION,
                   "`%.200s`: replicas are discovered by dns:NAME:PORT or file:PATH", where);
}

bool discover_is_file(const char *where) { return after(where, file) != NULL; }

static bool has(const struct targets *t, const char *target)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (strcmp(t->v[i], target) == 0)
            return true;
    return false;
}

void sightings_add(struct sightings *s, const struct targets *found)
{
    s->before = s->any ? s->last : *found;
    s->last = *found;
    s->any = true;
}

bool sightings_confirm(const struct sightings *s, const char *target)
{
    return has(&s->last, target) && has(&s->before, target);
}

bool sightings_deny(const struct sightings *s, const char *target)
{
    return !has(&s->last, target) && !has(&s->before, target);
}

static void add(struct targets *t, const char *target)
{
    if (has(t, target))
        return;
    snprintf(t->v[t->n++], TARGET_BYTES, "%s", target);
}

int targets_add(struct targets *t, const char *address, enum cluster_kind kind, struct err *e)
{
    char target[TARGET_BYTES];
    const bool scheme = after(address, "tcp://") || after(address, "unix:");
    int n = snprintf(target, sizeof(target), "%s%s",
                     scheme            ? ""
                     : *address == '/' ? "unix:"
                                       : "tcp://",
                     address);
    const char *host = after(target, "tcp://");
    if (n < 0 || n >= (int)sizeof(target) || (host && !port_of(host))) {
        err_set(e, ERR_VALIDATION, "no address of a replica: %.100s", address);
        return 1;
    }
    if (cluster_allows(kind, target, e) != 0)
        return 1;
    if (t->n == TARGETS_MOST) {
        err_set(e, ERR_VALIDATION, "more than %d replicas: %.100s", TARGETS_MOST, address);
        return 1;
    }
    add(t, target);
    return 0;
}

int discover_lines(const char *text, size_t n, enum cluster_kind kind, struct targets *out,
                   struct err *e)
{
    const char *end = text + n;
    int rc = 0;
    out->n = 0;
    for (const char *at = text, *eol; at < end; at = eol + 1) {
        eol = memchr(at, '\n', (size_t)(end - at));
        eol = eol ? eol : end;
        const char *hash = memchr(at, '#', (size_t)(eol - at)), *to = hash ? hash : eol;
        char line[TARGET_BYTES + 1];
        while (at < to && isspace((unsigned char)*at))
            at++;
        while (to > at && isspace((unsigned char)to[-1]))
            to--;
        if (at == to)
            continue;
        snprintf(line, sizeof(line), "%.*s", (int)(to - at > TARGET_BYTES ? TARGET_BYTES : to - at),
                 at);
        rc |= targets_add(out, line, kind, e);
    }
    return rc;
}

static int from_file(const char *path, enum cluster_kind kind, struct targets *out, struct err *e)
{
    char *text = malloc(TARGETS_FILE_BYTES);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t n = 0;
    ssize_t got = fd >= 0 && text ? 1 : -1;
    while (got > 0 && n < TARGETS_FILE_BYTES &&
           (got = read(fd, text + n, TARGETS_FILE_BYTES - n)) > 0)
        n += (size_t)got;
    int rc = got < 0                   ? err_sys(e, "%s", path)
             : n == TARGETS_FILE_BYTES ? err_set(e, ERR_VALIDATION, "%s is too long", path)
                                       : discover_lines(text, n, kind, out, e);
    if (fd >= 0)
        close(fd);
    free(text);
    return rc;
}

/* "tcp://1.2.3.4:80", "tcp://[::1]:80"; false: not an IP address. */
static bool print_address(const struct sockaddr *a, const char *port, char out[TARGET_BYTES])
{
    char host[INET6_ADDRSTRLEN];
    const bool six = a->sa_family == AF_INET6;
    const void *bytes =
        six ? (const void *)&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr
            : (const void *)&((const struct sockaddr_in *)(const void *)a)->sin_addr;
    if ((!six && a->sa_family != AF_INET) || !inet_ntop(a->sa_family, bytes, host, sizeof(host)))
        return false;
    snprintf(out, TARGET_BYTES, six ? "tcp://[%s]:%s" : "tcp://%s:%s", host, port);
    return true;
}

static int from_dns(const char *name, enum cluster_kind kind, struct targets *out, struct err *e)
{
    const char *colon = port_of(name);
    const struct addrinfo ask = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *all = NULL;
    char host[NI_MAXHOST], target[TARGET_BYTES];
    int rc = 0;
    snprintf(host, sizeof(host), "%.*s", (int)(colon - name), name);
    int bad = getaddrinfo(host, NULL, &ask, &all);
    if (bad)
        return err_set(e, ERR_SYSTEM, "%s: %s", host, gai_strerror(bad));
    out->n = 0;
    for (const struct addrinfo *a = all; a; a = a->ai_next)
        if (print_address(a->ai_addr, colon + 1, target))
            rc |= targets_add(out, target, kind, e);
    freeaddrinfo(all);
    return rc;
}

int discover(const char *where, enum cluster_kind kind, struct targets *out, struct err *e)
{
    const char *path = after(where, file);
    return path ? from_file(path, kind, out, e) : from_dns(after(where, dns), kind, out, e);
}
