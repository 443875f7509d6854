/* attention_top.c - attention to selected positions, and to entries beside a window.
 *
 * The selected keys and values of a token are copied side by side, to pages of the cache's own
 * kind. Then they are a sequence of their own, to which attention.c attends as to any other. So all
 * heads of a key-value head share the copy, and its cost does not grow with the context. A token
 * whose selection would be all positions, in their order, attends to the cache itself. The bits are
 * the same. With entries every token has copies: its entries first, then the keys of its window. */
#include "model-server/backend/cpu/cpu.h"
#include <string.h>

/* A token with more positions than it attends to. */
struct sparse {
    const struct span *span; /* in the batch */
    uint32_t row, n;         /* n: selected positions, or entries and keys */
    uint32_t entries, first; /* of these how many are entries; the first position of the window */
    bool chosen;             /* some of the complete entries */
};

/* The tokens whose keys are copied at a time. */
struct top_job {
    const struct kv_cache *from;
    struct kv_cache to;
    uint32_t layer, pages; /* pages of a token */
    const uint32_t *top;
    uint32_t n_top, unit; /* unit: positions that a number of `top` stands for */
    bool by_head;         /* each key-value head has a selection */
    uint32_t every;       /* attn.entries */
    const struct sparse *tokens;
};

/* ---------------------------------------------------------------- copies */

/* Columns at[i] of pages src[i] become columns first <= i < n. A column's units are KV_PAGE units
 * apart: kv_page.h. */
#define COPY_COLUMNS(type)                                                                         \
    static void copy_##type(char *dst, const char *const *src, const uint32_t *at, uint32_t first, \
                            uint32_t n, size_t units)                                              \
    {                                                                                              \
        for (size_t u = 0; u < units; u++)                                                         \
            for (uint32_t i = first; i < n; i++)                                                   \
                ((type *)(void *)dst)[u * KV_PAGE + i] =                                           \
                    ((const type *)(const void *)src[i])[u * KV_PAGE + at[i]];                     \
    }
COPY_COLUMNS(uint8_t)
COPY_COLUMNS(uint16_t)
COPY_COLUMNS(uint32_t)

static void copy_keys(char *dst, const char *const *src, const uint32_t *at, uint32_t first,
                      uint32_t n, enum kv_dtype t, uint32_t dim)
{
    const size_t column = kv_dtype_bytes(t, kv_padded(dim));
    if (t == KV_F32 || t == KV_BF16)
        copy_uint32_t(dst, src, at, first, n, column / sizeof(uint32_t));
    else if (t == KV_F16)
        copy_uint16_t(dst, src, at, first, n, column / sizeof(uint16_t));
    else
        copy_uint8_t(dst, src, at, first, n, column);
}

static void copy_values(char *dst, const char *const *src, const uint32_t *at, uint32_t first,
                        uint32_t n, enum kv_dtype t, uint32_t dim)
{
    const size_t row = kv_dtype_bytes(t, kv_padded(dim));
    for (uint32_t i = first; i < n; i++)
        memcpy(dst + i * row, src[i] + at[i] * row, row);
}

/* The position of a token's key number i, which is no entry. */
static uint32_t position_of(const struct top_job *j, const struct sparse *s, const uint32_t *top,
                            uint32_t i)
{
    if (j->every)
        return s->first + i - s->entries;
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): only entries may be without a selection
    return top[i / j->unit] * j->unit + i % j->unit;
}

/* Copies the entries among the keys [first, first + n); returns how many they are. */
static uint32_t copy_entries(const struct top_job *j, const struct sparse *s, const uint32_t *top,
                             uint32_t first, uint32_t n, char *page, bool v)
{
    const uint32_t left = s->entries > first ? s->entries - first : 0, some = left < n ? left : n;
    for (uint32_t i = 0; i < some; i++)
        cpu_copy_entry(j->from, j->layer, kv_blocks_of(&j->from->desc, s->span),
                       // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): chosen by `top`
                       s->chosen ? top[first + i] : first + i, j->every, page, v, i);
    return some;
}

/* Page `page` of the copies of a token, in one stream. */
static void copy_page(const struct top_job *j, uint32_t token, uint32_t page, bool v, uint32_t head)
{
    const struct sparse *s = &j->tokens[token];
    const enum kv_dtype t = j->from->desc.dtype;
    const struct kv_stream *from = kv_stream(j->from, j->layer, v, head);
    const struct kv_stream *to = kv_stream(&j->to, 0, v, head);
    const size_t set = j->by_head ? (size_t)s->row * j->to.n_heads[0] + head : s->row;
    const uint32_t *top = j->top ? j->top + set * j->n_top : NULL, first = page * KV_PAGE;
    const uint32_t left = s->n > first ? s->n - first : 0, n = left < KV_PAGE ? left : KV_PAGE;
    const uint32_t *blocks = kv_blocks_of(&j->from->desc, s->span);
    const char *src[KV_PAGE];
    uint32_t at[KV_PAGE];
    char *dst = kv_page(&j->to, to, &token, page);
    const uint32_t entries = copy_entries(j, s, top, first, n, dst, v);
    for (uint32_t i = entries; i < n; i++) {
        const uint32_t pos = position_of(j, s, top, first + i);
        src[i] = kv_page(j->from, from, blocks, pos / KV_PAGE);
        at[i] = pos % KV_PAGE;
    }
    (v ? copy_values : copy_keys)(dst, src, at, entries, n, t, from->dim);
    for (uint32_t i = entries; kv_dtype_scaled(t) && i < n; i++)
        kv_scales(dst, t, from->dim)[i] = kv_scales(src[i], t, from->dim)[at[i]];
}

static void copy_pages(void *arg, int thread, size_t begin, size_t end)
{
    const struct top_job *j = arg;
    (void)thread;
    for (size_t i = begin; i < end; i++)
        for (uint32_t h = 0; h < j->to.n_heads[0]; h++)
            for (int v = 0; v < 2; v++)
                copy_page(j, (uint32_t)(i / j->pages), (uint32_t)(i % j->pages), v, h);
}

/* ---------------------------------------------------------------- the two kinds of tokens */

/* Tokens of a span with at most this many positions. */
static uint32_t n_whole(const struct span *s, const struct attn *p)
{
    const uint32_t before = s->kv_len - s->n,
                   most = p->entries ? 0 : attn_whole(p->n_top, p->top_block, p->top_tail);
    return before >= most ? 0 : s->n < most - before ? s->n : most - before;
}

/* The spans of these tokens; returns their number. */
static uint32_t whole_spans(const struct attn_call *c, struct span *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_spans; i++) {
        const struct span *s = &c->spans[i];
        const uint32_t whole = n_whole(s, c->p);
        if (!whole)
            continue;
        out[n] = *s;
        out[n].n = whole;
        out[n++].kv_len = s->kv_len - s->n + whole;
    }
    return n;
}

/* What a token at position `at` attends to. */
static struct sparse keys_of(const struct attn *p, const struct span *s, uint32_t row, uint32_t at)
{
    if (!p->entries)
        return (struct sparse){s, row, attn_selected(p->n_top, p->top_block, p->top_tail, at),
                               0, 0,   false};
    const uint32_t n = entries_seen(p->entries, p->top ? p->n_top : 0, at);
    const uint32_t first = p->window && at + 1 > p->window ? at + 1 - p->window : 0;
    return (struct sparse){s, row, n + at + 1 - first, n, first, n < (at + 1) / p->entries};
}

static uint32_t sparse_tokens(const struct attn_call *c, struct sparse *out)
{
    const struct attn *p = c->p;
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_spans; i++) {
        const struct span *s = &c->spans[i];
        for (uint32_t t = n_whole(s, p); t < s->n; t++)
            out[n++] = keys_of(p, s, s->first + t, s->kv_len - s->n + t);
    }
    return n;
}

/* Where an operation's memory is, in one region. */
struct places {
    struct span *spans;        /* [tokens] */
    struct sparse *tokens;     /* [tokens] */
    uint32_t *numbers;         /* [tokens] 0, 1 ...: a token's copies are the block of its number */
    struct kv_stream *streams; /* of the copies */
    uint32_t *heads;           /* [1] */
    char *copies;
};

/* Returns the required bytes. */
static size_t lay_out(struct places *y, char *base, size_t tokens, size_t streams, size_t bytes)
{
    size_t at = 0;
#define PLACE(field, count)                                                                        \
    y->field = (void *)((uintptr_t)base + at);                                                     \
    at += ((count) * sizeof(*y->field) + 63) & ~(size_t)63
    PLACE(spans, tokens);
    PLACE(tokens, tokens);
    PLACE(numbers, tokens);
    PLACE(streams, streams);
    PLACE(heads, 1);
    PLACE(copies, bytes);
#undef PLACE
    return at;
}

/* Bytes of the copies of a token, whose block has `each` pages. */
static size_t token_bytes(const struct attn_call *c, uint32_t each)
{
    size_t bytes = 0;
    for (uint32_t s = 0; s < 2 * c->kv->n_heads[c->layer]; s++)
        bytes += c->kv->streams[c->kv->first[c->layer] + s].page_bytes * each;
    return bytes ? bytes : 1;
}

/* The cache of the copies, of n blocks. */
static void make_cache(const struct attn_call *c, struct top_job *j, const struct places *y,
                       uint32_t n)
{
    static const uint32_t zero = 0;
    const struct kv_stream *of = &c->kv->streams[c->kv->first[c->layer]];
    char *at = y->copies;
    *y->heads = c->kv->n_heads[c->layer];
    j->to.desc = c->kv->desc;
    j->to.desc.windows = false;
    j->to.first = (uint32_t *)(uintptr_t)&zero;
    j->to.n_heads = y->heads;
    j->to.n_streams = 2 * *y->heads;
    j->to.streams = y->streams;
    for (uint32_t s = 0; s < j->to.n_streams; s++) {
        y->streams[s] = of[s];
        y->streams[s].data = at;
        y->streams[s].block_bytes = of[s].page_bytes << j->to.page_shift;
        at += n * y->streams[s].block_bytes;
    }
}

/* Attends to the copies of n tokens. */
static void attend_copies(struct device *d, const struct attn_call *c, struct top_job *j,
                          const struct places *y, uint32_t n)
{
    struct attn_call own = *c;
    struct attn to_all = *c->p; /* to all copies */
    to_all.window = 0;
    own.p = &to_all;
    pool_run(d->pool, copy_pages, j, (size_t)n * j->pages, 1);
    for (uint32_t i = 0; i < n; i++)
        y->spans[i] = (struct span){
            .first = j->tokens[i].row, .n = 1, .kv_len = j->tokens[i].n, .blocks = y->numbers + i};
    own.kv = &j->to;
    own.layer = 0;
    own.spans = y->spans;
    own.n_spans = n;
    cpu_attend(d, &own);
}

/* Pages of the token that attends to most keys. */
static uint32_t most_pages(const struct attn_call *c)
{
    const struct attn *p = c->p;
    uint32_t most = p->entries ? 0 : attn_whole(p->n_top, p->top_block, false);
    for (uint32_t i = 0; p->entries && i < c->n_spans; i++) {
        const uint32_t n = keys_of(p, &c->spans[i], 0, c->spans[i].kv_len - 1).n;
        most = n > most ? n : most;
    }
    return (most + KV_PAGE - 1) / KV_PAGE;
}

void cpu_attend_top(struct device *d, const struct attn_call *c)
{
    const uint32_t streams = 2 * c->kv->n_heads[c->layer], tokens = d->batch->n_tokens;
    struct top_job j = {.from = c->kv,
                        .layer = c->layer,
                        .pages = most_pages(c),
                        .top = c->p->top,
                        .n_top = c->p->n_top,
                        .unit = c->p->top_block ? c->p->top_block : 1,
                        .by_head = c->p->top_block && !c->p->top_tail,
                        .every = c->p->entries};
    struct attn_call own = *c;
    struct places y;
    while (1u << j.to.page_shift < j.pages)
        j.to.page_shift++;
    const size_t each = token_bytes(c, 1u << j.to.page_shift);
    const size_t bytes = each > TOP_BYTES ? each : TOP_BYTES;
    const uint32_t some = bytes / each < tokens ? (uint32_t)(bytes / each) : tokens;
    char *base = cpu_scratch(d, SCRATCH_TOP, lay_out(&y, NULL, tokens, streams, bytes));
    if (!base)
        return;
    lay_out(&y, base, tokens, streams, bytes);
    make_cache(c, &j, &y, some);
    for (uint32_t i = 0; i < tokens; i++)
        y.numbers[i] = i;
    own.spans = y.spans;
    if ((own.n_spans = whole_spans(c, y.spans)))
        cpu_attend(d, &own);
    const uint32_t n = sparse_tokens(c, y.tokens);
    for (uint32_t at = 0; at < n; at += some) {
        j.tokens = y.tokens + at;
        attend_copies(d, c, &j, &y, n - at < some ? n - at : some);
    }
}
