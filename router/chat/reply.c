/* reply.c - markers in a text. See reply_call.c for what is between them. */
#include "common/json.h"
#include "router/chat/reply_impl.h"
#include <stdlib.h>
#include <string.h>

static const char THINK[] = "<think>", THOUGHT[] = "</think>";
enum { MAX_BLANKS = 64, MAX_MARKERS = 3 }; /* blanks held back in front of a marker */

static void emit(struct reply *r, struct buf *to, const char *s, size_t n)
{
    while (r->fresh && n && is_blank(*s))
        s++, n--;
    if (!n)
        return;
    r->fresh = false;
    buf_add(to, s, n);
}

void reply_content(struct reply *r, const char *s, size_t n) { emit(r, &r->content, s, n); }

/* What was held back is read again in another state. */
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

static void start_byte(struct reply *r, char c)
{
    buf_ch(&r->held, c);
    size_t blank = blanks(r->held.p, r->held.len), n = r->held.len - blank;
    const char *s = r->held.p + blank;
    bool whole;
    if (n == 0 && blank < MAX_BLANKS)
        return;
    if (r->config.may_think && n && begins(THINK, s, n, &whole)) {
        if (!whole)
            return;
        buf_reset(&r->held);
        r->config.may_think = false;
        r->fresh = true;
        r->state = THINKING;
        return;
    }
    r->config.may_think = false;
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
        out[n++] = THOUGHT;
    } else if (r->config.format && !r->config.forced) {
        const char *all[] = {r->config.format->open, r->config.format->around[0],
                             r->config.format->around[1]};
        for (int i = 0; i < 3; i++)
            if (all[i])
                out[n++] = all[i];
    }
    return n;
}

/* The held bytes from `i` on: blanks and (the beginning of) a marker? *found: a whole one. */
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
    buf_reset(&r->held);
    if (marker == THOUGHT) {
        r->state = AT_START;
        r->fresh = true;
    } else if (marker == r->config.format->open) {
        call_open(r, marker, strlen(marker));
    } else {
        r->fresh = true;
    }
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

/* ---------------------------------------------------------------- behind a call */

static void behind_byte(struct reply *r, char c)
{
    const char *close = r->config.format->close;
    bool whole, bare = may_be_bare(r);
    if (r->held.len == 0 && (is_blank(c) || c == '`' || (bare && c == ';')))
        return;
    buf_ch(&r->held, c);
    if (close && begins(close, r->held.p, r->held.len, &whole)) {
        if (whole) {
            buf_reset(&r->held);
            r->state = CONTENT;
        }
    } else if (bare && r->held.len == 1 && (c == '{' || c == '[')) {
        call_open(r, "", 0);
        again(r, CALL_START);
    } else {
        again(r, CONTENT);
    }
}

void reply_byte(struct reply *r, char c)
{
    if (r->state == AT_START)
        start_byte(r, c);
    else if (r->state == THINKING || r->state == CONTENT)
        text_byte(r, c);
    else if (r->state == BEHIND_CALL)
        behind_byte(r, c);
    else
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
}

void reply_push(struct reply *r, const char *s, size_t n)
{
    for (size_t i = 0; i < n && !r->oom; i++) {
        reply_byte(r, s[i]);
        r->oom |= r->held.oom || r->raw.oom || r->text.oom || r->key.oom || r->early.oom;
    }
}

void reply_end(struct reply *r)
{
    struct buf held = r->held;
    r->held = (struct buf)BUF_INIT;
    bool blank = blanks(held.p, held.len) == held.len;
    if (r->state >= CALL_START)
        call_end_of_text(r);
    else if (r->state == THINKING && !blank)
        emit(r, &r->reasoning, held.p, held.len);
    else if (r->state == AT_START || r->state == CONTENT)
        emit(r, &r->content, held.p, held.len);
    buf_free(&held);
    r->state = CONTENT;
}

void reply_free(struct reply *r)
{
    struct buf *all[] = {&r->reasoning, &r->content, &r->held, &r->raw,
                         &r->key,       &r->text,    &r->early};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        buf_free(all[i]);
    for (uint32_t i = 0; i < r->n_calls; i++) {
        free(r->calls[i].name);
        buf_free(&r->calls[i].arguments);
    }
    free(r->calls);
}

bool reply_is_marker(const struct reply *r, const char *s, size_t n)
{
    const struct call_format *f = r->config.format;
    const char *all[] = {THINK,
                         THOUGHT,
                         f ? f->open : NULL,
                         f ? f->close : NULL,
                         f ? f->around[0] : NULL,
                         f ? f->around[1] : NULL,
                         f && f->named ? "[ARGS]" : NULL,
                         f && f->named ? "[CALL_ID]" : NULL,
                         f && f->named ? "<｜tool▁sep｜>" : NULL};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i] && strlen(all[i]) == n && !memcmp(all[i], s, n))
            return true;
    return false;
}

bool reply_called(const struct reply *r)
{
    for (uint32_t i = 0; i < r->n_calls; i++)
        if (!r->calls[i].whole)
            return false;
    return r->n_calls > 0;
}
