/* Timers of streams: queue positions and timeouts. */
#include "router/api/lmtp/lmtp_in.h"

enum { LOADING_MS = 1000 };

/* Sends MSG [{"stream_id", "status": "queued", "position"}] if the position has changed. */
static void send_place(struct stream *s)
{
    uint32_t place = atomic_load_explicit(&s->r.place, memory_order_relaxed);
    if (!place || place == s->place)
        return;
    struct buf b = BUF_INIT;
    s->place = place;
    buf_fmt(&b, "{\"stream_id\":%s,\"status\":\"queued\",\"position\":%u}", s->id.text, place);
    peer_raw_message(s->peer, &b);
    buf_free(&b);
}

static int64_t watch_one(struct stream *s, int64_t now)
{
    bool waits = s->status && s->peer && s->n_tokens == 0;
    if (now >= s->deadline_ms) {
        stream_fail(s, "lmtp.timeout");
        return INT64_MAX;
    }
    if (!waits)
        return s->deadline_ms;
    send_place(s);
    return now + LMTP_STATUS_MS < s->deadline_ms ? now + LMTP_STATUS_MS : s->deadline_ms;
}

/* Sends MSG [{"stream_id", "status": "loading", "seconds"}], once per second. */
static void send_loading(struct preparation *q, int64_t now)
{
    struct buf b = BUF_INIT;
    if (now < q->reported_ms + LOADING_MS)
        return;
    q->reported_ms = now;
    buf_fmt(&b, "{\"stream_id\":%s,\"status\":\"loading\",\"seconds\":%lld}", q->m.id.text,
            (long long)(now - q->since_ms) / 1000);
    peer_raw_message(q->peer, &b);
    buf_free(&b);
}

static int64_t watch_loading(struct preparation *q, int64_t now)
{
    if (now >= q->m.deadline_ms) {
        prepare_fail(q, "lmtp.timeout");
        return INT64_MAX;
    }
    if (!q->m.status)
        return q->m.deadline_ms;
    send_loading(q, now);
    int64_t due = q->reported_ms + LOADING_MS;
    return due < q->m.deadline_ms ? due : q->m.deadline_ms;
}

void streams_watch(struct lmtp *l, int64_t now)
{
    if (now < l->watch_ms)
        return;
    l->watch_ms = INT64_MAX;
    for (struct peer *p = l->peers; p; p = p->next)
        for (struct stream *s = p->streams, *next; s; s = next) {
            next = s->next;
            watch_from(l, watch_one(s, now));
        }
    for (struct peer *p = l->peers; p; p = p->next)
        for (struct preparation *q = p->loading, *next; q; q = next) {
            next = q->next;
            watch_from(l, watch_loading(q, now));
        }
    for (struct record *r = l->records; r; r = r->next)
        if (r->stream && !r->stream->peer)
            watch_from(l, watch_one(r->stream, now));
}
