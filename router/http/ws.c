/* WebSocket (RFC 6455) with wslay, which handles fragments, masks, pings and closing. */
#include "common/log/log.h"
#include "router/http/wire.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <wslay/wslay.h>

struct ws {
    struct wire wire;
    wslay_event_context_ptr ctx;
    char *early;
    size_t at, n_early;
    size_t share;         /* bytes this read may still process */
    enum wire_close code; /* close code to send after all queued data; 0: none */
    const char *why;
    bool reported; /* a protocol error of the client was logged */
    bool gone;     /* end of stream, or error */
};

static ssize_t recv_some(wslay_event_context_ptr ctx, uint8_t *buf, size_t len, int flags,
                         void *user)
{
    struct ws *w = user;
    (void)flags;
    if (w->at < w->n_early) {
        size_t n = w->n_early - w->at < len ? w->n_early - w->at : len;
        memcpy(buf, w->early + w->at, n);
        w->at += n;
        return (ssize_t)n;
    }
    ssize_t n = -1;
    errno = EAGAIN;
    if (w->share)
        do
            n = recv(w->wire.fd, buf, len, 0);
        while (n < 0 && errno == EINTR);
    if (n > 0) {
        w->share -= (size_t)n < w->share ? (size_t)n : w->share;
        return n;
    }
    bool later = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    w->gone = !later;
    wslay_event_set_error(ctx, later ? WSLAY_ERR_WOULDBLOCK : WSLAY_ERR_CALLBACK_FAILURE);
    return -1;
}

static ssize_t send_some(wslay_event_context_ptr ctx, const uint8_t *data, size_t len, int flags,
                         void *user)
{
    struct ws *w = user;
    ssize_t n;
    do
        n = send(w->wire.fd, data, len, MSG_NOSIGNAL | (flags & WSLAY_MSG_MORE ? MSG_MORE : 0));
    while (n < 0 && errno == EINTR);
    if (n < 0)
        wslay_event_set_error(ctx, errno == EAGAIN || errno == EWOULDBLOCK
                                       ? WSLAY_ERR_WOULDBLOCK
                                       : WSLAY_ERR_CALLBACK_FAILURE);
    return n;
}

static void on_message(wslay_event_context_ptr ctx, const struct wslay_event_on_msg_recv_arg *m,
                       void *user)
{
    struct ws *w = user;
    (void)ctx;
    if (m->opcode == WSLAY_CONNECTION_CLOSE)
        w->wire.ended = true;
    if (m->opcode == WSLAY_TEXT_FRAME && !w->wire.closing)
        w->wire.owner.message(w->wire.owner.arg, (const char *)m->msg, m->msg_length);
}

static void log_fault(struct ws *w, uint16_t code, const char *what)
{
    if (!w->reported)
        LOG(LOG_INFO, "WebSocket closed", LOGI("code", code), LOGS("error", what));
    w->reported = true;
}

/* wslay closes without a code if a frame header itself is invalid (such as a long control frame).
 * If nothing else is being sent, the code is sent here. */
static int refuse_header(struct ws *w)
{
    static const char close_frame[] = {(char)0x88, 2, 1002 >> 8, (char)(1002 & 0xff)};
    log_fault(w, WSLAY_CODE_PROTOCOL_ERROR, "protocol error");
    if (wslay_event_get_queued_msg_length(w->ctx) == 0 && !wslay_event_get_close_sent(w->ctx)) {
        (void)!send(w->wire.fd, close_frame, sizeof(close_frame), MSG_NOSIGNAL);
        return -1;
    }
    w->wire.ended = true;
    return 0;
}

static int ws_read(struct wire *wire)
{
    struct ws *w = (struct ws *)wire;
    w->share = WIRE_SHARE;
    if (wslay_event_recv(w->ctx) != 0)
        return w->gone ? -1 : refuse_header(w);
    if (wslay_event_get_close_sent(w->ctx) || !wslay_event_get_read_enabled(w->ctx))
        wire->ended = true; /* wslay ignores further data and has queued the reason */
    return 0;
}

/* Reasons for codes that wslay chose: RFC 6455, 7.4.1. */
static const char *fault(uint16_t code)
{
    switch (code) {
    case WSLAY_CODE_PROTOCOL_ERROR:
        return "protocol error";
    case WSLAY_CODE_INVALID_FRAME_PAYLOAD_DATA:
        return "not UTF-8";
    case WSLAY_CODE_MESSAGE_TOO_BIG:
        return "message too big";
    default:
        return NULL;
    }
}

static void send_fault(struct ws *w)
{
    uint16_t code =
        wslay_event_get_close_sent(w->ctx) ? wslay_event_get_status_code_sent(w->ctx) : 0;
    if (fault(code))
        log_fault(w, code, fault(code));
}

/* wslay sends control frames before queued messages, and nothing after a Close: so Close must wait
 * for them. */
static int ws_write(struct wire *wire)
{
    struct ws *w = (struct ws *)wire;
    if (wslay_event_send(w->ctx) != 0)
        return -1;
    if (w->code && wslay_event_get_queued_msg_length(w->ctx) == 0 &&
        !wslay_event_want_write(w->ctx)) {
        wslay_event_queue_close(w->ctx, (uint16_t)w->code, (const uint8_t *)w->why, strlen(w->why));
        w->code = 0;
        if (wslay_event_send(w->ctx) != 0)
            return -1;
    }
    send_fault(w);
    bool over = !wslay_event_want_write(w->ctx) &&
                (wslay_event_get_close_sent(w->ctx) || !wslay_event_get_write_enabled(w->ctx));
    return over ? -1 : 0;
}

static void queue(struct ws *w, uint8_t opcode, const char *p, size_t n)
{
    struct wslay_event_msg m = {.opcode = opcode, .msg = (const uint8_t *)p, .msg_length = n};
    if (wslay_event_queue_msg(w->ctx, &m) == WSLAY_ERR_NOMEM)
        wire_close(&w->wire, WIRE_POLICY, "out of memory");
}

static void ws_send(struct wire *wire, const char *p, size_t n)
{
    queue((struct ws *)wire, WSLAY_TEXT_FRAME, p, n);
}

static void ws_ping(struct wire *wire) { queue((struct ws *)wire, WSLAY_PING, "", 0); }

static void ws_close(struct wire *wire, enum wire_close code, const char *why)
{
    struct ws *w = (struct ws *)wire;
    w->code = code;
    w->why = why;
}

/* Messages without content, as the answers to pings, take memory too. */
static size_t ws_queued(const struct wire *wire)
{
    enum { MESSAGE_BYTES = 64 };
    const struct ws *w = (const struct ws *)wire;
    return wslay_event_get_queued_msg_length(w->ctx) +
           MESSAGE_BYTES * wslay_event_get_queued_msg_count(w->ctx) +
           (wslay_event_want_write(w->ctx) || w->code ? 1 : 0);
}

static bool ws_wants_read(const struct wire *wire)
{
    return wslay_event_want_read(((const struct ws *)wire)->ctx);
}

static void ws_free(struct wire *wire)
{
    struct ws *w = (struct ws *)wire;
    wslay_event_context_free(w->ctx);
    free(w->early);
    free(w);
}

static const struct wire_ops ops = {ws_read, ws_write,  ws_send,       ws_close,
                                    ws_ping, ws_queued, ws_wants_read, ws_free};

struct wire *ws_new(int fd, const void *early, size_t n_early, size_t max,
                    const struct wire_owner *owner)
{
    static const struct wslay_event_callbacks calls = {
        .recv_callback = recv_some, .send_callback = send_some, .on_msg_recv_callback = on_message};
    struct ws *w = calloc(1, sizeof(*w));
    if (!w)
        return NULL;
    w->wire = (struct wire){.ops = &ops, .fd = fd, .owner = *owner};
    if (n_early && !(w->early = malloc(n_early))) {
        free(w);
        return NULL;
    }
    if (n_early)
        memcpy(w->early, early, n_early);
    w->n_early = n_early;
    if (wslay_event_context_server_init(&w->ctx, &calls, w) != 0) {
        free(w->early);
        free(w);
        return NULL;
    }
    wslay_event_config_set_max_recv_msg_length(w->ctx, max);
    return &w->wire;
}
