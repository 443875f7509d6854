/* WebSockets: the handshake (RFC 6455, 4.2), and the return of sockets that were handed over. */
#include "common/hash.h"
#include "router/http/accept.h"
#include "router/http/conn.h"
#include "router/http/route.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>

/* Is `word` in the comma-separated list? */
static bool lists(const char *header, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = header; p && *p; p += strcspn(p, ","), p += *p == ',') {
        p += strspn(p, " \t");
        if (!strncasecmp(p, word, n) && strchr(", \t", p[n]))
            return true;
    }
    return false;
}

bool socket_wanted(struct exchange *x, const char *method)
{
    char allow[64];
    if (strcmp(method, "GET") != 0 || !lists(exchange_header(x, "Upgrade"), "websocket"))
        return false;
    if (!strcmp(x->path, "/") || !strcmp(x->path, "/lmtp"))
        return x->http->c.events.socket;
    const struct route *r = route_find("GET", x->path, allow);
    if (!r || !r->messages)
        return false;
    x->route = r;
    return true;
}

/* Browsers allow any page to open sockets here, and send the page's origin. */
static bool origin_allowed(const struct exchange *x)
{
    const struct http_config *c = &x->http->c;
    const char *origin = exchange_header(x, "Origin");
    bool allowed = !origin || !c->n_origins;
    for (uint32_t i = 0; i < c->n_origins && !allowed; i++)
        allowed = !strcmp(c->origins[i], origin) || !strcmp(c->origins[i], "*");
    return allowed;
}

int socket_judge(struct exchange *x)
{
    const char *version = exchange_header(x, "Sec-WebSocket-Version");
    char accept[WS_ACCEPT_LEN + 1];
    x->upgrade = true;
    if (!origin_allowed(x))
        return 403;
    if (!version || strcmp(version, "13") != 0)
        return 426;
    return lists(exchange_header(x, "Connection"), "upgrade") &&
                   ws_accept(exchange_header(x, "Sec-WebSocket-Key"), accept)
               ? 0
               : 400;
}

/* libmicrohttpd has sent the answer and released the connection. */
static void hand_over(void *cls, struct MHD_Connection *mhd, void *con_cls, const char *early,
                      size_t n_early, MHD_socket fd, struct MHD_UpgradeResponseHandle *handle)
{
    struct exchange *x = cls;
    struct http *h = x->http;
    struct http_socket *s = malloc(sizeof(*s) + n_early);
    bool named;
    (void)mhd, (void)con_cls;
    if (x->conn) { /* hang-ups are detected by the new owner */
        epoll_ctl(h->epoll_fd, EPOLL_CTL_DEL, x->conn->fd, NULL);
        x->conn->deadline_ms = INT64_MAX;
    }
    if (!s) {
        MHD_upgrade_action(handle, MHD_UPGRADE_ACTION_CLOSE);
        return;
    }
    *s = (struct http_socket){.fd = fd,
                              .early = s + 1,
                              .n_early = n_early,
                              .tenant = exchange_tenant(x, &named),
                              .key_id = exchange_key_id(x),
                              .http = h,
                              .handle = handle};
    if (n_early)
        memcpy(s + 1, early, n_early);
    if (!x->route)
        h->c.events.socket(h->c.arg, s);
    else if (websocket_new(x, s) != 0)
        http_socket_close(s);
}

enum MHD_Result socket_open(struct exchange *x)
{
    char accept[WS_ACCEPT_LEN + 1];
    struct MHD_Response *r = MHD_create_response_for_upgrade(hand_over, x);
    if (!r || !ws_accept(exchange_header(x, "Sec-WebSocket-Key"), accept))
        return MHD_NO;
    MHD_add_response_header(r, "Upgrade", "websocket");
    MHD_add_response_header(r, "Sec-WebSocket-Accept", accept);
    MHD_add_response_header(r, "x-request-id", x->id);
    x->status = MHD_HTTP_SWITCHING_PROTOCOLS;
    enum MHD_Result ok = MHD_queue_response(x->mhd, MHD_HTTP_SWITCHING_PROTOCOLS, r);
    MHD_destroy_response(r);
    return ok;
}

/* Only the loop thread may call libmicrohttpd. */
void http_socket_close(struct http_socket *s)
{
    if (mailbox_put(&s->http->closed, &s->mail))
        http_wake(s->http);
}

void socket_close_all(struct http *h)
{
    for (struct mail *m = mailbox_take(&h->closed), *next; m; m = next) {
        struct http_socket *s =
            (struct http_socket *)((char *)m - offsetof(struct http_socket, mail));
        next = m->next;
        MHD_upgrade_action(s->handle, MHD_UPGRADE_ACTION_CLOSE);
        free(s);
    }
}

uint64_t exchange_tenant(const struct exchange *x, bool *named)
{
    const char *id = exchange_header(x, "x-gateway-inference-fairness-id");
    const char *bearer = exchange_header(x, "authorization");
    const char *key = bearer ? bearer : exchange_other_key(x);
    if (x->key[0]) /* whichever header carried it */
        key = x->key;
    *named = id && *id;
    return *named ? hash_bytes(1, id, strlen(id)) : key ? hash_bytes(2, key, strlen(key)) : 0;
}

uint64_t exchange_key_id(const struct exchange *x)
{
    return x->key[0] ? hash_bytes(3, x->key, strlen(x->key)) : 0;
}

struct exchange_shared *exchange_share(const struct exchange *x)
{
    return x->ws ? websocket_share(x->ws) : NULL;
}

const struct route *exchange_shape(const struct exchange *x)
{
    return x->ws ? websocket_route(x->ws) : x->route;
}
