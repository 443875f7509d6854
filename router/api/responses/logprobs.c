/* Maps the text of a message to its tokens. */
#include "router/api/responses/responses.h"
#include <stdlib.h>

static struct text_token *grow(struct text_tokens *t)
{
    if (t->n == t->cap) {
        uint32_t cap = t->cap ? t->cap * 2 : 64;
        struct text_token *more = realloc(t->list, cap * sizeof(*more));
        t->json.oom |= !more;
        if (!more)
            return NULL;
        t->list = more;
        t->cap = cap;
    }
    return &t->list[t->n++];
}

void text_tokens_add(struct text_tokens *t, const struct openai *o, const struct reply *r,
                     const struct gen_event *ev)
{
    const struct gen_token *token = &ev->token;
    if (token->special && !o->special_text) { /* no text; a marker is parsed like text */
        t->given += reply_is_marker(r, token->text, token->text_len) ? token->text_len : 0;
        return;
    }
    size_t from = t->json.len;
    struct text_token *k = grow(t);
    if (!k)
        return;
    openai_logprob(&t->json, o, ev);
    /* A token without text is part of a character that a later token completes. */
    *k = (struct text_token){.begin = t->given,
                             .end = t->given + (token->text_len ? token->text_len : 1),
                             .json = from,
                             .json_size = t->json.len - from};
    t->given += token->text_len;
}

void text_tokens_watch(void *of, const struct reply *r, size_t n)
{
    struct text_tokens *t = of;
    t->pushed += n;
    /* What a byte adds to the content are the last bytes that were decided. */
    size_t grown = r->content.len - t->content;
    uint64_t decided = t->pushed - (n ? reply_held(r) : 0), from = decided - grown;
    uint32_t kept = t->n_settled, i = kept;
    for (; i < t->n && t->list[i].begin < decided; i++) {
        struct text_token *k = &t->list[i];
        bool ours = grown && k->end > from;
        if (!ours && k->end > decided)
            break; /* its remaining bytes may be */
        if (!ours)
            continue;
        k->at = t->content;
        t->list[kept++] = *k;
    }
    t->n_settled = kept;
    while (i < t->n)
        t->list[kept++] = t->list[i++];
    t->n = kept;
    t->content = r->content.len;
}

/* The first settled token at or after `at`. */
static uint32_t first(const struct text_tokens *t, size_t at)
{
    uint32_t low = 0, high = t->n_settled;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (t->list[mid].at < at)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

void text_tokens_print(const struct text_tokens *t, size_t from, size_t n, struct buf *out)
{
    buf_ch(out, '[');
    for (uint32_t i = first(t, from), last = first(t, from + n); i < last; i++) {
        buf_add(out, t->json.p + t->list[i].json, t->list[i].json_size);
        if (i + 1 < last)
            buf_ch(out, ',');
    }
    buf_ch(out, ']');
    out->oom |= t->json.oom;
}

void text_tokens_free(struct text_tokens *t)
{
    buf_free(&t->json);
    free(t->list);
    *t = (struct text_tokens){0};
}
