#include "router/call/prompt.h"
#include "common/utf8.h"
#include "router/chat/fim.h"
#include "router/chat/guard.h"
#include <string.h>

int prompt_set(struct arena *a, const char *text, size_t n, struct ask *q, struct err *e)
{
    struct buf clean = BUF_INIT;
    buf_reserve(&clean, 0);
    guard_drop(text, n, &clean);
    const bool guarded = clean.len != n;
    q->guarded = guarded ? arena_strdup(a, text, n) : NULL;
    q->n_guarded = guarded ? n : 0;
    q->inputs = clean.oom ? NULL : arena_strdup(a, clean.p, clean.len);
    q->n_inputs = clean.len;
    buf_free(&clean);
    if (!q->inputs || (guarded && !q->guarded))
        return err_nomem(e);
    q->n_chars = utf8_count(q->inputs, q->n_inputs);
    return 0;
}

int prompt_ends_middle(struct arena *a, const struct tokenizer *t, struct ask *q, struct err *e)
{
    uint32_t ends[FIM_N];
    const uint32_t n = fim_ends(t, ends), had = q->n_stop_token_ids;
    if (!n)
        return 0;
    uint32_t *all = ARENA_NEW(a, uint32_t, had + n);
    if (!all)
        return err_nomem(e);
    if (had)
        memcpy(all, q->stop_token_ids, had * sizeof(*all));
    memcpy(all + had, ends, n * sizeof(*all));
    q->stop_token_ids = all;
    q->n_stop_token_ids = had + n;
    return 0;
}
