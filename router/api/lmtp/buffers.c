#include "router/api/lmtp/buffers.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

static struct token_buffer **place(const struct buffers *b, const char *name)
{
    struct token_buffer **at = (struct token_buffer **)&b->first;
    while (*at && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    return at;
}

const struct token_buffer *buffers_find(const struct buffers *b, const char *name)
{
    const struct token_buffer *t = *place(b, name);
    return t && t->filled ? t : NULL;
}

static struct token_buffer *find_or_add(struct buffers *b, const char *name)
{
    struct token_buffer **at = place(b, name), *t = *at;
    if (t || b->n == BUFFERS_MAX || strlen(name) > LMTP_NAME_MAX)
        return t;
    if (!(t = calloc(1, sizeof(*t))))
        return NULL;
    memcpy(t->name, name, strlen(name) + 1);
    b->n++;
    *at = t;
    return t;
}

int buffers_reserve(struct buffers *b, const char *name, uint32_t n, struct err *e)
{
    if (b->n == BUFFERS_MAX && !*place(b, name))
        return err_set(e, ERR_VALIDATION, "a connection has at most %d buffers", BUFFERS_MAX);
    if (b->held + b->reserved + n > BUFFERS_TOKENS)
        return err_set(e, ERR_VALIDATION, "a connection's buffers have room for %d tokens",
                       BUFFERS_TOKENS);
    if (!find_or_add(b, name))
        return err_nomem(e);
    b->reserved += n;
    return 0;
}

static void empty(struct buffers *b, struct token_buffer *t)
{
    b->held -= t->n;
    free(t->ids);
    t->ids = NULL;
    t->n = 0;
    t->filled = false;
}

void buffers_fill(struct buffers *b, const char *name, uint32_t reserved, const uint32_t *a,
                  uint32_t n_a, const uint32_t *c, uint32_t n_c)
{
    size_t n = (size_t)n_a + n_c;
    assert(n <= reserved && reserved <= b->reserved);
    b->reserved -= reserved;
    struct token_buffer *t = find_or_add(b, name); /* it may have been dropped since */
    uint32_t *ids = t ? malloc((n + !n) * sizeof(*ids)) : NULL;
    if (!t)
        return;
    empty(b, t);
    if (!ids)
        return;
    if (n_a)
        memcpy(ids, a, n_a * sizeof(*ids));
    if (n_c)
        memcpy(ids + n_a, c, n_c * sizeof(*ids));
    t->ids = ids;
    t->n = (uint32_t)n;
    t->filled = true;
    b->held += n;
}

bool buffers_drop(struct buffers *b, const char *name)
{
    struct token_buffer **at = place(b, name), *t = *at;
    if (!t)
        return false;
    bool was = t->filled;
    empty(b, t);
    *at = t->next;
    free(t);
    b->n--;
    return was;
}

void buffers_free(struct buffers *b)
{
    while (b->first)
        buffers_drop(b, b->first->name);
}
