/* Streams that outlive their connection: their items are kept for a while, and a client with the
 * session name and id can resume them. */
#include "common/clock.h"
#include "router/api/lmtp/lmtp_in.h"
#include <stdlib.h>
#include <string.h>

static int64_t grace_end(const struct lmtp *l)
{
    return clock_ms() + 1000 * (int64_t)l->edge->config->lmtp_grace;
}

static struct record *find(const struct lmtp *l, const char *session, const struct lmtp_id *id,
                           uint64_t tenant)
{
    struct record *r = l->records;
    while (r && (r->tenant != tenant || strcmp(r->id.text, id->text) != 0 ||
                 strcmp(r->session, session) != 0))
        r = r->next;
    return r;
}

static void unlist(struct lmtp *l, struct record *r)
{
    *(r->prev ? &r->prev->next : &l->records) = r->next;
    if (r->next)
        r->next->prev = r->prev;
}

void record_drop(struct record *r)
{
    struct lmtp *l = r->lmtp;
    if (r->stream)
        r->stream->record = NULL;
    else
        l->kept -= r->items.len;
    unlist(l, r);
    buf_free(&r->items);
    free(r->at);
    free(r);
}

/* Ends the record, and its stream if that still runs. */
static void end(struct record *r)
{
    struct stream *s = r->stream;
    record_drop(r);
    if (s)
        stream_cancel(s);
}

int record_new(struct stream *s, const char *session, struct err *e)
{
    struct lmtp *l = s->lmtp;
    struct record *r = find(l, session, &s->id, s->r.tenant);
    if (l->edge->config->lmtp_grace == 0)
        return err_set(e, ERR_VALIDATION, "`session`: this server keeps no streams");
    if (r && r->stream && r->stream->peer)
        return err_set(e, ERR_VALIDATION, "this `stream_id` is in use in this session");
    if (r) /* its client starts over */
        end(r);
    if (!(r = calloc(1, sizeof(*r))))
        return err_nomem(e);
    r->lmtp = l;
    r->stream = s;
    r->id = s->id;
    r->tenant = s->r.tenant;
    r->expires_ms = INT64_MAX;
    memcpy(r->session, session, strlen(session) + 1);
    if ((r->next = l->records))
        r->next->prev = r;
    l->records = r;
    s->record = r;
    return 0;
}

/* ---------------------------------------------------------------- kept items */

static size_t begin_of(const struct record *r, uint32_t item)
{
    return item < r->n ? r->at[item - r->first] : r->items.len;
}

/* Drops the first half of the items, at least one. */
static void forget_half(struct record *r)
{
    uint32_t k = r->first + (r->n - r->first + 1) / 2, left = r->n - k;
    size_t gone = begin_of(r, k);
    memmove(r->items.p, r->items.p + gone, r->items.len - gone);
    r->items.len -= gone;
    for (uint32_t i = 0; i < left; i++)
        r->at[i] = r->at[i + (k - r->first)] - gone;
    r->first = k;
}

static bool room_for_index(struct record *r)
{
    uint32_t have = r->n - r->first;
    if (have < r->cap)
        return true;
    uint32_t cap = r->cap ? 2 * r->cap : 64;
    size_t *at = realloc(r->at, cap * sizeof(*at));
    if (!at)
        return false;
    r->at = at;
    r->cap = cap;
    return true;
}

/* Out of memory: drops all earlier items; a client that resumes gets an error. */
void record_item(struct record *r, const char *item, size_t n)
{
    while (r->items.len + n > LMTP_KEPT && r->n > r->first)
        forget_half(r);
    size_t begin = r->items.len;
    bool kept = room_for_index(r);
    if (kept)
        buf_add(&r->items, item, n);
    if (!kept || r->items.oom) {
        buf_free(&r->items);
        r->first = ++r->n;
        return;
    }
    r->at[r->n - r->first] = begin;
    r->n++;
}

/* ---------------------------------------------------------------- ends */

void record_ended(struct stream *s)
{
    struct record *r = s->record;
    if (!r)
        return;
    s->record = NULL;
    r->stream = NULL;
    r->expires_ms = grace_end(s->lmtp);
    s->lmtp->kept += r->items.len;
}

void record_detached(struct stream *s) { s->record->expires_ms = grace_end(s->lmtp); }

static struct record *first_to_go(const struct lmtp *l)
{
    struct record *out = NULL;
    for (struct record *r = l->records; r; r = r->next)
        if (!r->stream && (!out || r->expires_ms < out->expires_ms))
            out = r;
    return out;
}

void record_tick(struct lmtp *l, int64_t now)
{
    for (struct record *r = l->records, *next; r; r = next) {
        next = r->next;
        if (now >= r->expires_ms)
            end(r);
    }
    for (struct record *r; l->kept > LMTP_KEPT_ALL && (r = first_to_go(l));)
        record_drop(r);
}

void record_end_all(struct lmtp *l)
{
    while (l->records)
        end(l->records);
}

/* ---------------------------------------------------------------- resuming */

static void send_again(struct peer *p, const struct record *r, uint32_t from)
{
    for (uint32_t i = from; i < r->n; i++) {
        size_t at = begin_of(r, i), end = begin_of(r, i + 1);
        buf_add(peer_items(p), r->items.p + at, end - at);
        p->allowance += end - at;
        peer_changed(p);
    }
}

static const char *why_not(const struct peer *p, const struct record *r,
                           const struct lmtp_message *m)
{
    struct stream *same = stream_find(p, &m->id);
    if (!r)
        return "lmtp.gone";
    if (same && same != r->stream)
        return "this `stream_id` is in use";
    if (m->from < r->first)
        return "lmtp.gone";
    if (m->from > r->n || (m->from == r->n && !r->stream))
        return "`from` is behind the last item";
    return NULL;
}

void record_resume(struct peer *p, const struct lmtp_message *m)
{
    struct record *r = find(p->lmtp, m->session, &m->id, p->tenant);
    const char *no = why_not(p, r, m);
    if (no) {
        struct err e = ERR_INIT;
        err_set(&e, ERR_VALIDATION, "%s", no);
        stream_refuse(p, m, &e);
        return;
    }
    if (r->stream) { /* replaces the current listener */
        stream_listen(p, r->stream);
        r->expires_ms = INT64_MAX;
    }
    if (wire_queued(p->wire) + p->frame.len > LMTP_REPEATED)
        peer_goodbye(p, WIRE_POLICY, "the client reads too slowly");
    else
        send_again(p, r, m->from);
}
