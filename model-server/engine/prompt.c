#include "model-server/engine/prompt.h"
#include <assert.h>
#include <string.h>

/* `all` is `bare` with special tokens before and after it: returns where `bare` begins. */
static uint32_t find_bare(const struct tok_ids *all, const struct tok_ids *bare)
{
    uint32_t extra = all->n - bare->n;
    for (uint32_t at = 0; at < extra; at++)
        if (!bare->n || memcmp(all->id + at, bare->id, bare->n * sizeof(*bare->id)) == 0)
            return at;
    return extra;
}

static void drop(struct tok_ids *ids, uint32_t at, uint32_t n)
{
    assert(at <= ids->n && n <= ids->n - at);
    memmove(ids->id + at, ids->id + at + n, (ids->n - at - n) * sizeof(*ids->id));
    ids->n -= n;
}

int prompt_encode(const struct tokenizer *t, const char *text, size_t n, bool add_special,
                  uint32_t truncate, struct tok_scratch **scratch, struct tok_ids *out,
                  struct err *e)
{
    if (tokenizer_encode(t, text, n, add_special ? TOK_ADD_SPECIAL : 0, scratch, out, e))
        return -1;
    if (!truncate || out->n <= truncate)
        return 0;
    struct tok_ids bare = {0};
    uint32_t excess = out->n - truncate, at = 0;
    if (add_special) {
        if (tokenizer_encode(t, text, n, 0, scratch, &bare, e))
            return tok_ids_free(&bare), -1;
        if (bare.n >= excess && bare.n <= out->n)
            at = find_bare(out, &bare);
    }
    drop(out, at, excess);
    tok_ids_free(&bare);
    return 0;
}
