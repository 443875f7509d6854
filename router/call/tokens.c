#include "router/call/tokens.h"
#include "common/utf8.h"
#include "router/chat/guard.h"
#include <string.h>

int tokens_text(struct call *c, const struct ask *q, const char **text, size_t *n, unsigned *flags,
                struct err *e)
{
    const struct media m = edge_media(c->edge);
    struct media_prompt p;
    if (media_prompt(&m, q, &c->arena, &p, e) != 0)
        return -1;
    *text = p.text;
    *n = p.n;
    if (p.bare)
        *flags &= ~(unsigned)TOK_ADD_SPECIAL;
    if (p.guarded)
        *flags |= TOK_GUARDED;
    return 0;
}

/* `at` without the guards before it. *seen and *dropped are those of the offset before. Offsets
 * mostly ascend, so the text is read once; where one does not, it is read again. */
static uint32_t without_guards(const char *text, uint32_t at, uint32_t *seen, uint32_t *dropped)
{
    const uint32_t len = sizeof(TOK_GUARD) - 1;
    if (at < *seen)
        *seen = *dropped = 0;
    for (; *seen + len <= at; ++*seen)
        if (!memcmp(text + *seen, TOK_GUARD, len)) {
            *dropped += len;
            *seen += len - 1;
        }
    return at - *dropped;
}

/* Offsets in the text without its guards. Special tokens around the text have {0, 0}. */
static void unguard(struct tok_ids *ids, const char *text)
{
    uint32_t seen = 0, dropped = 0;
    for (uint32_t i = 0; ids->at && i < ids->n; i++)
        if (ids->at[i].end) {
            ids->at[i].start = without_guards(text, ids->at[i].start, &seen, &dropped);
            ids->at[i].end = without_guards(text, ids->at[i].end, &seen, &dropped);
        }
}

int tokens_json(struct call *c, const char *text, size_t n, unsigned flags, struct err *e)
{
    struct tok_ids ids = {0};
    struct buf clean = BUF_INIT;
    flags |= TOK_OFFSETS;
    if (tokenizer_encode(c->edge->tokenizer, text, n, flags, c->scratch, &ids, e) != 0) {
        tok_ids_free(&ids);
        return err_wrap(e, "Input validation error: tokenizer error");
    }
    if (flags & TOK_GUARDED) {
        unguard(&ids, text);
        guard_drop(text, n, &clean);
        text = clean.oom ? "" : clean.p;
    }
    buf_ch(&c->out, '[');
    for (uint32_t i = 0; i < ids.n && !clean.oom; i++) {
        uint32_t start = ids.at ? ids.at[i].start : 0, end = ids.at ? ids.at[i].end : 0;
        buf_fmt(&c->out, "%s{\"id\":%u,\"text\":", i ? "," : "", ids.id[i]);
        buf_json_str(&c->out, text + start, end - start);
        buf_fmt(&c->out, ",\"start\":%u,\"stop\":%u}", start, end);
    }
    buf_ch(&c->out, ']');
    c->out.oom |= clean.oom;
    buf_free(&clean);
    tok_ids_free(&ids);
    return c->out.oom ? err_nomem(e) : 0;
}

/* The text of a token, quoted. */
static void piece(struct buf *out, const struct tokenizer *t, uint32_t id)
{
    struct buf text = BUF_INIT;
    tokenizer_decode(t, &id, 1, false, &text);
    buf_json_str(out, text.p ? text.p : "", text.len);
    out->oom |= text.oom;
    buf_free(&text);
}

static int encode_ids(struct call *c, const char *text, size_t n, unsigned flags,
                      struct tok_ids *ids, struct err *e)
{
    *ids = (struct tok_ids){0};
    if (tokenizer_encode(c->edge->tokenizer, text, n, flags, c->scratch, ids, e) == 0)
        return 0;
    tok_ids_free(ids);
    return err_wrap(e, "Input validation error: tokenizer error");
}

int tokens_ids(struct call *c, const char *text, size_t n, unsigned flags, bool pieces,
               struct err *e)
{
    struct tok_ids ids;
    if (encode_ids(c, text, n, flags, &ids, e) != 0)
        return -1;
    buf_fmt(&c->out, "{\"count\":%u,\"max_model_len\":%u,\"tokens\":[", ids.n,
            edge_limits(c->edge)->max_total_tokens);
    for (uint32_t i = 0; i < ids.n; i++)
        buf_fmt(&c->out, "%s%u", i ? "," : "", ids.id[i]);
    buf_str(&c->out, pieces ? "],\"token_strs\":[" : "],\"token_strs\":null}");
    for (uint32_t i = 0; pieces && i < ids.n; i++) {
        buf_str(&c->out, i ? "," : "");
        piece(&c->out, c->edge->tokenizer, ids.id[i]);
    }
    buf_str(&c->out, pieces ? "]}" : "");
    tok_ids_free(&ids);
    return c->out.oom ? err_nomem(e) : 0;
}

static void piece_or_bytes(struct buf *out, const char *s, size_t n)
{
    if (utf8_valid(s, n)) {
        buf_json_str(out, s, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        buf_fmt(out, "%c%u", i ? ',' : '[', (unsigned char)s[i]);
    buf_ch(out, ']');
}

/* `bytes` and `end` are tokenizer_token_bytes(), where special tokens have none. */
static void print_pieces(struct buf *out, const struct tokenizer *t, const struct tok_ids *ids,
                         const struct buf *bytes, const size_t *end)
{
    buf_str(out, "{\"tokens\":[");
    for (uint32_t i = 0; i < ids->n; i++) {
        const uint32_t id = ids->id[i];
        const size_t from = id ? end[id - 1] : 0;
        const char *name = tokenizer_is_special(t, id) ? tokenizer_token(t, id) : NULL;
        buf_fmt(out, "%s{\"id\":%u,\"piece\":", i ? "," : "", id);
        if (name)
            buf_json_str(out, name, strlen(name));
        else
            piece_or_bytes(out, bytes->p ? bytes->p + from : "", end[id] - from);
        buf_ch(out, '}');
    }
    buf_str(out, "]}");
}

int tokens_pieces(struct call *c, const char *text, size_t n, unsigned flags, struct err *e)
{
    const struct tokenizer *t = c->edge->tokenizer;
    struct tok_ids ids;
    struct buf bytes = BUF_INIT;
    size_t *end = ARENA_NEW(&c->arena, size_t, tokenizer_vocab_size(t));
    int rc = end ? encode_ids(c, text, n, flags, &ids, e) : err_nomem(e);
    if (rc != 0)
        return -1;
    rc = tokenizer_token_bytes(t, &bytes, end);
    if (rc == 0)
        print_pieces(&c->out, t, &ids, &bytes, end);
    buf_free(&bytes);
    tok_ids_free(&ids);
    return rc != 0 || c->out.oom ? err_nomem(e) : 0;
}

int tokens_count(struct call *c, const struct ask *q, bool add_special, uint32_t *count,
                 struct err *e)
{
    struct tok_ids ids = {0};
    const char *text;
    size_t n;
    unsigned flags = add_special ? TOK_ADD_SPECIAL : 0;
    if (tokens_text(c, q, &text, &n, &flags, e) != 0)
        return -1;
    int rc = tokenizer_encode(c->edge->tokenizer, text, n, flags, c->scratch, &ids, e);
    *count = ids.n;
    tok_ids_free(&ids);
    return rc == 0 ? 0 : err_wrap(e, "Input validation error: tokenizer error");
}
