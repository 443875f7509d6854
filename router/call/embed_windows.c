#include "router/call/embed_windows.h"
#include "common/utf8.h"
#include "router/call/embed_body.h"
#include "router/call/embed_impl.h"
#include <string.h>

enum { MOST_WINDOWS = 4096 }; /* of one request */

/* Tokens with places, in the arena. */
static int tokenize(struct call *c, struct text_windows *w, struct err *e)
{
    struct tok_ids ids = {0};
    struct arena *a = &c->arena;
    const int rc =
        tokenizer_encode(c->edge->tokenizer, w->text, w->n_text, TOK_OFFSETS, c->scratch, &ids, e);
    const size_t n = rc == 0 ? ids.n : 0;
    uint32_t *id = ARENA_NEW(a, uint32_t, 2 * n + 1);
    struct tok_offset *at = ARENA_NEW(a, struct tok_offset, n + 1);
    if (rc == 0 && id && at && n) {
        memcpy(id, ids.id, n * sizeof(*id));
        memcpy(id + n, ids.word, n * sizeof(*id));
        memcpy(at, ids.at, n * sizeof(*at));
    }
    tok_ids_free(&ids);
    if (rc)
        return err_wrap(e, "Input validation error: tokenizer error");
    if (!id || !at)
        return err_nomem(e);
    w->ids = id;
    w->words = id + n;
    w->places = at;
    w->n_ids = (uint32_t)n;
    return 0;
}

/* A window with what is around it. */
static int frame(struct call *c, const struct text_windows *w, uint32_t i,
                 const struct tok_part *before, struct err *e)
{
    const struct tokenizer *t = c->edge->tokenizer;
    struct text_window *v = &w->v[i];
    const struct tok_part text = {w->ids + v->first, v->n};
    const struct tok_part *a = before ? before : &text, *b = before ? &text : NULL;
    const uint32_t n = a->n + (b ? b->n : 0) + tok_frame_special(t, b != NULL);
    uint32_t *ids = ARENA_NEW(&c->arena, uint32_t, n + (size_t)1);
    uint8_t *types = ARENA_NEW(&c->arena, uint8_t, n + (size_t)1);
    if (!ids || !types)
        return err_nomem(e);
    tok_frame(t, a, b, ids, types);
    v->at = tok_frame_first(t, a, b);
    w->in[i] = (struct text_input){.ids = ids, .n_ids = n, .types = tok_frame_types(types, n)};
    return 0;
}

static int cut(struct call *c, const struct text_windows_ask *q, uint32_t room,
               struct text_windows *w, struct err *e)
{
    const uint32_t step = q->shared == WINDOWS_WHOLE || w->n_ids <= room ? room : room - q->shared;
    const uint64_t over = w->n_ids > room ? w->n_ids - room : 0;
    const uint64_t n = 1 + (over + step - 1) / step;
    if (n > MOST_WINDOWS)
        return err_set(e, ERR_VALIDATION, "a text of %llu windows: %d are allowed",
                       (unsigned long long)n, MOST_WINDOWS);
    w->v = ARENA_NEW(&c->arena, struct text_window, n);
    w->in = ARENA_NEW(&c->arena, struct text_input, n);
    w->n = (uint32_t)n;
    if (!w->v || !w->in)
        return err_nomem(e);
    for (uint32_t i = 0; i < w->n; i++) {
        const uint32_t first = i * step, left = w->n_ids - first;
        w->v[i] = (struct text_window){.first = first, .n = left < room ? left : room};
    }
    return 0;
}

int texts_windows(struct call *c, const struct text_windows_ask *q, struct text_windows *out,
                  struct err *e)
{
    const struct encoding x = {.c = c, .e = e};
    const uint32_t limit = edge_limits(c->edge)->max_input_tokens;
    const uint32_t most = q->most && (!limit || q->most < limit) ? q->most : limit;
    struct tok_part before = {0};
    *out = (struct text_windows){.text = q->text, .n_text = q->n};
    if (tokenize(c, out, e) || (q->before && embed_ids(&x, q->before, q->n_before, 0, &before)))
        return -1;
    if (!out->n_ids || (q->before && !before.n))
        return err_set(e, ERR_EMPTY, "`inputs` cannot be empty");
    if (q->most_before && before.n > q->most_before)
        before.n = q->most_before;
    const uint32_t around = before.n + tok_frame_special(c->edge->tokenizer, q->before != NULL);
    const uint32_t room = !most ? out->n_ids : most > around ? most - around : 0;
    if (out->n_ids > room && q->shared == WINDOWS_WHOLE)
        return err_set(e, ERR_TOO_LONG, "`inputs` must have less than %u tokens. Given: %llu", most,
                       (unsigned long long)out->n_ids + around);
    if (!room || (out->n_ids > room && q->shared >= room))
        return err_set(e, ERR_VALIDATION,
                       "windows of %u tokens, %u of them around the text and %u shared with the "
                       "next window, have no room for the text",
                       most, around, q->shared);
    if (cut(c, q, room, out, e))
        return -1;
    for (uint32_t i = 0; i < out->n; i++)
        if (frame(c, out, i, q->before ? &before : NULL, e))
            return -1;
    return 0;
}

int texts_of_windows(struct call *c, const struct text_windows *v, uint32_t n,
                     struct texts_ask *ask, struct err *e)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < n; i++)
        all += v[i].n;
    if (all > MOST_WINDOWS)
        return err_set(e, ERR_VALIDATION, "texts of %llu windows: %d are allowed",
                       (unsigned long long)all, MOST_WINDOWS);
    struct text_input *in = ARENA_NEW(&c->arena, struct text_input, all + 1), *to = in;
    if (!in)
        return err_nomem(e);
    for (uint32_t i = 0; i < n; to += v[i++].n)
        memcpy(to, v[i].in, v[i].n * sizeof(*in));
    ask->in = in;
    ask->n = (uint32_t)all;
    ask->all = ask->plain = true;
    return 0;
}

uint32_t text_chars(const char *text, uint32_t at, struct char_place *p)
{
    if (at < p->byte)
        p->chars -= (uint32_t)utf8_count(text + at, p->byte - at);
    else
        p->chars += (uint32_t)utf8_count(text + p->byte, at - p->byte);
    p->byte = at;
    return p->chars;
}
