/* reply.c - markers in a text. reply_call.c parses what is between them. */
#include "common/json/json.h"
#include "router/chat/reply_impl.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_BLANKS = 64, MAX_MARKERS = 4 }; /* blanks held back before a marker */

void reply_piece(struct reply *r, enum reply_kind kind)
{
    if (r->n_pieces && kind != REPLY_CALL && r->pieces[r->n_pieces - 1].kind == kind)
        return;
    struct reply_piece *more = realloc(r->pieces, (r->n_pieces + 1) * sizeof(*more));
    if (!more) {
        r->oom = true;
        return;
    }
    r->pieces = more;
    r->pieces[r->n_pieces++] = (struct reply_piece){
        .kind = kind,
        .from = kind == REPLY_REASONING ? r->reasoning.len : r->content.len,
        .call = kind == REPLY_CALL ? r->n_calls - 1 : 0,
    };
}

static void emit(struct reply *r, struct buf *to, const char *s, size_t n)
{
    while (r->fresh && n && is_blank(*s))
        s++, n--;
    if (!n)
        return;
    r->fresh = false;
    reply_piece(r, to == &r->reasoning ? REPLY_REASONING : REPLY_CONTENT);
    buf_add(to, s, n);
}

void reply_content(struct reply *r, const char *s, size_t n) { emit(r, &r->content, s, n); }

void reply_text(struct reply *r, bool reasoning, const char *s, size_t n)
{
    emit(r, reasoning ? &r->reasoning : &r->content, s, n);
}

/* Parses the held bytes again in another state. */
static void again(struct reply *r, enum reply_state state)
{
    struct buf held = r->held;
    r->held = (struct buf)BUF_INIT;
    r->state = (int)state;
    for (size_t i = 0; i < held.len; i++)
        reply_byte(r, held.p[i]);
    r->oom |= held.oom;
    buf_free(&held);
}

static bool begins(const char *marker, const char *s, size_t n, bool *whole)
{
    size_t len = strlen(marker);
    *whole = len == n && !memcmp(marker, s, n);
    return len >= n && !memcmp(marker, s, n);
}

static size_t blanks(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && is_blank(s[i]))
        i++;
    return i;
}

/* ---------------------------------------------------------------- the beginning */

static bool may_be_bare(const struct reply *r)
{
    return r->config.format && (r->config.forced || r->config.format->bare);
}

/* May s[0..n) be text before the answer that is no part of it? */
static bool leads(const struct reply *r, const char *s, size_t n, bool *whole)
{
    for (int i = 0; i < THOUGHT_LEADS; i++) {
        const char *lead = thought_lead(r->config.thoughts, i);
        if (lead && begins(lead, s, n, whole))
            return true;
    }
    return false;
}

static void start_byte(struct reply *r, char c)
{
    buf_ch(&r->held, c);
    size_t blank = blanks(r->held.p, r->held.len), n = r->held.len - blank;
    const char *s = r->held.p + blank;
    bool whole;
    if (n == 0 && blank < MAX_BLANKS)
        return;
    if (r->config.may_think && n && begins(thought_open(r->config.thoughts), s, n, &whole)) {
        if (!whole)
            return;
        buf_reset(&r->held);
        r->config.may_think = false;
        r->fresh = true;
        r->state = THINKING;
        return;
    }
    r->config.may_think = false;
    if (n && leads(r, s, n, &whole)) {
        if (whole)
            buf_reset(&r->held);
        return;
    }
    if (n && may_be_bare(r) && (*s == '{' || *s == '[')) {
        call_open(r, "", 0);
        again(r, CALL_START);
    } else {
        again(r, CONTENT);
    }
}

/* ---------------------------------------------------------------- text */

static int markers(const struct reply *r, const char *out[MAX_MARKERS])
{
    int n = 0;
    if (r->state == THINKING) {
        out[n++] = thought_close(r->config.thoughts);
    } else if (r->config.format && !r->config.forced) {
        const struct call_tags *tags = r->config.format->tags;
        const char *all[MAX_MARKERS] = {r->config.format->open, r->config.format->around[0],
                                        r->config.format->around[1], tags ? tags->name_open : NULL};
        for (int i = 0; i < MAX_MARKERS; i++)
            if (all[i])
                out[n++] = all[i];
    }
    return n;
}

/* Are the held bytes from `i` on blanks and a (possibly incomplete) marker? *found: a complete
 * one. */
static bool may_mark(const struct reply *r, size_t i, const char **found)
{
    const char *of[MAX_MARKERS];
    int n = markers(r, of);
    size_t blank = blanks(r->held.p + i, r->held.len - i);
    size_t len = r->held.len - i - blank;
    if (!len || blank > MAX_BLANKS)
        return blank <= MAX_BLANKS;
    for (int k = 0; k < n; k++) {
        bool whole;
        if (!begins(of[k], r->held.p + i + blank, len, &whole))
            continue;
        *found = whole ? of[k] : NULL;
        return true;
    }
    return false;
}

static void marked(struct reply *r, const char *marker)
{
    const struct call_format *f = r->config.format; /* not NULL, unless the reasoning ends */
    const bool tag = f && f->tags && marker == f->tags->name_open;
    if (marker == thought_close(r->config.thoughts)) {
        r->state = AT_START;
        r->fresh = true;
    } else if (f && (marker == f->open || tag)) {
        /* with the blanks before it, which are content if no call follows */
        call_open(r, r->held.p, r->held.len);
        r->unmarked = tag; /* Qwen3-Coder often omits <tool_call> */
        if (tag)
            tags_name(r);
    } else {
        r->fresh = true;
    }
    buf_reset(&r->held);
}

static void text_byte(struct reply *r, char c)
{
    struct buf *to = r->state == THINKING ? &r->reasoning : &r->content;
    const char *of[MAX_MARKERS], *found = NULL;
    size_t i = 0;
    if (markers(r, of) == 0) {
        emit(r, to, &c, 1);
        return;
    }
    buf_ch(&r->held, c);
    while (i < r->held.len && !may_mark(r, i, &found))
        i++;
    emit(r, to, r->held.p, i);
    r->held.len -= i;
    if (i && r->held.len)
        memmove(r->held.p, r->held.p + i, r->held.len);
    if (found)
        marked(r, found);
}

/* ---------------------------------------------------------------- after a call */

/* May an object follow another one without a marker? MiniMax-M1's do, between one pair. */
static bool may_be_object(const struct reply *r)
{
    const struct call_format *f = r->config.format;
    return may_be_bare(r) || (f->close && !f->tags && !f->quote && !f->named);
}

static void behind_byte(struct reply *r, char c)
{
    const struct call_tags *tags = r->config.forced ? NULL : r->config.format->tags;
    const char *close = r->config.format->close, *tag = tags ? tags->name_open : NULL;
    const char *end = tags ? tags->end : NULL;
    bool whole, bare = may_be_bare(r);
    if (r->held.len == 0 && (is_blank(c) || c == '`' || (bare && c == ';')))
        return;
    buf_ch(&r->held, c);
    if (close && begins(close, r->held.p, r->held.len, &whole)) {
        if (whole) {
            buf_reset(&r->held);
            r->state = CONTENT;
        }
    } else if (tag && begins(tag, r->held.p, r->held.len, &whole)) {
        if (whole) { /* a second call between the same markers */
            call_open(r, tag, strlen(tag));
            buf_reset(&r->held);
            tags_name(r);
        }
    } else if (end && begins(end, r->held.p, r->held.len, &whole)) {
        if (whole) /* after an object of arguments */
            buf_reset(&r->held);
    } else if (r->held.len == 1 && ((c == '{' && may_be_object(r)) || (c == '[' && bare))) {
        call_open(r, "", 0);
        again(r, CALL_START);
    } else {
        again(r, CONTENT);
    }
}

void reply_byte(struct reply *r, char c)
{
    if (r->config.channels)
        channels_byte(r, c);
    else if (r->state == AT_START)
        start_byte(r, c);
    else if (r->state == THINKING || r->state == CONTENT)
        text_byte(r, c);
    else if (r->state == BEHIND_CALL)
        behind_byte(r, c);
    else if (r->state != ENOUGH)
        call_byte(r, c);
}

/* ---------------------------------------------------------------- the whole */

void reply_init(struct reply *r, const struct reply_config *c)
{
    r->config = *c;
    r->state = c->thinking ? THINKING : AT_START;
    r->fresh = c->thinking;
    if (c->thinking)
        r->config.may_think = false;
    if (c->channels)
        channels_begin(r);
    r->config.opened = NULL;
}

void reply_push(struct reply *r, const char *s, size_t n)
{
    for (size_t i = 0; i < n && !r->oom; i++) {
        reply_byte(r, s[i]);
        r->oom |= r->held.oom || r->raw.oom || r->text.oom || r->key.oom || r->early.oom ||
                  r->closing.oom;
    }
}

void reply_end(struct reply *r)
{
    bool blank = blanks(r->held.p, r->held.len) == r->held.len;
    if (r->config.channels)
        channels_end(r);
    else if (r->state >= CALL_START && r->state != ENOUGH)
        call_end_of_text(r);
    else if (r->state == THINKING && !blank)
        emit(r, &r->reasoning, r->held.p, r->held.len);
    else if (r->state == AT_START || r->state == CONTENT)
        emit(r, &r->content, r->held.p, r->held.len);
    buf_reset(&r->held);
    r->state = CONTENT;
}

void reply_free(struct reply *r)
{
    struct buf *all[] = {&r->reasoning, &r->content, &r->held,  &r->raw,
                         &r->key,       &r->text,    &r->early, &r->closing};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        buf_free(all[i]);
    for (uint32_t i = 0; i < r->n_calls; i++) {
        free(r->calls[i].name);
        buf_free(&r->calls[i].arguments);
    }
    free(r->calls);
    free(r->pieces);
}

bool reply_is_marker(const struct reply *r, const char *s, size_t n)
{
    const struct call_format *f = r->config.format;
    const char *open = thought_open(r->config.thoughts), *close = thought_close(r->config.thoughts);
    const char *all[CALL_MARKERS + 4] = {close, "[ARGS]", "[CALL_ID]"};
    const size_t from_format = 3; /* their tokens may be parts of them: ｜DSML｜ */
    if (f)
        call_format_markers(f, all + from_format);
    bool whole;
    if (n && begins(open, s, n, &whole)) /* a token may be its beginning */
        return true;
    if (n && r->state == AT_START && leads(r, s, n, &whole))
        return true;
    for (size_t i = 0; all[i]; i++)
        if ((strlen(all[i]) == n && !memcmp(all[i], s, n)) ||
            (i >= from_format && n && memmem(all[i], strlen(all[i]), s, n)))
            return true;
    return r->config.channels && channels_marker(s, n);
}

bool reply_called(const struct reply *r)
{
    for (uint32_t i = 0; i < r->n_calls; i++)
        if (!r->calls[i].whole)
            return false;
    return r->n_calls > 0;
}

bool reply_enough(const struct reply *r) { return r->state == ENOUGH; }

size_t reply_held(const struct reply *r) { return r->held.len + r->raw.len; }

bool reply_thinks(const struct reply *r) { return r->state == THINKING; }

/* ---------------------------------------------------------------- in order */

static size_t end_of_text(const struct reply *r, uint32_t piece)
{
    const struct reply_piece *p = &r->pieces[piece];
    for (uint32_t i = piece + 1; i < r->n_pieces; i++)
        if (r->pieces[i].kind == p->kind)
            return r->pieces[i].from;
    return p->kind == REPLY_REASONING ? r->reasoning.len : r->content.len;
}

/* All text of a piece so far. */
static void text_of(const struct reply *r, uint32_t piece, struct reply_event *event)
{
    const struct reply_piece *p = &r->pieces[piece];
    const struct buf *from = p->kind == REPLY_REASONING ? &r->reasoning
                             : p->kind == REPLY_CONTENT ? &r->content
                                                        : &r->calls[p->call].arguments;
    size_t at = p->kind == REPLY_CALL ? 0 : p->from;
    size_t end = p->kind == REPLY_CALL ? from->len : end_of_text(r, piece);
    *event = (struct reply_event){.index = piece,
                                  .kind = p->kind,
                                  .text = from->p ? from->p + at : "",
                                  .n = end - at,
                                  .call = p->kind == REPLY_CALL ? &r->calls[p->call] : NULL};
}

bool reply_next(const struct reply *r, struct reply_cursor *at, bool ended,
                struct reply_event *event)
{
    if (at->piece >= r->n_pieces)
        return false;
    text_of(r, at->piece, event);
    if (!at->open) {
        at->open = true;
        event->what = REPLY_OPENED;
    } else if (event->n > at->sent) {
        event->what = REPLY_GREW;
        event->text += at->sent;
        event->n -= at->sent;
        at->sent += event->n;
    } else if (at->piece + 1 < r->n_pieces || ended) {
        event->what = REPLY_CLOSED;
        *at = (struct reply_cursor){.piece = at->piece + 1};
    } else {
        return false;
    }
    return true;
}
