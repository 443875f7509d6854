#include "router/body/body.h"
#include "router/call/call.h"
#include "router/http/route.h"
#include <string.h>

static void put_text(struct buf *out, const char *name, const struct buf *text)
{
    buf_str(out, name);
    buf_json_str(out, text->p ? text->p : "", text->len);
}

static int work(struct call *c, struct err *e)
{
    struct body b;
    struct buf text = BUF_INIT;
    uint32_t n = 0, vocab = edge_validator(c->edge).vocab_size;
    if (body_open(&b, c->body.p, c->body.len, &c->arena, e) != 0)
        return -1;
    struct object root = body_root(&b);
    const char *key = body_get(&b, root, "ids", false) ? "ids" : "tokens";
    const cJSON *list = body_get(&b, root, key, true);
    bool skip = body_opt_bool(&b, root, "skip_special_tokens", false);
    if (list && !cJSON_IsArray(list))
        body_mistyped(&b, root, key, list, "a sequence");
    const uint32_t *ids = b.failed ? NULL : body_ids(&b, root, key, list, &n);
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] >= vocab)
            body_fail(&b, root, key, "token id %u is outside the vocabulary of %u", ids[i], vocab);
    if (b.failed)
        return -1;
    buf_reserve(&text, 0);
    tokenizer_decode(c->edge->tokenizer, ids, n, skip, &text);
    put_text(&c->out, "{\"text\":", &text);
    if (!strcmp(key, "tokens")) { /* the name in vLLM and llama.cpp */
        put_text(&c->out, ",\"prompt\":", &text);
        put_text(&c->out, ",\"content\":", &text);
    }
    buf_ch(&c->out, '}');
    c->out.oom |= text.oom;
    buf_free(&text);
    return c->out.oom ? err_nomem(e) : 0;
}

const struct route route_detokenize = {
    .method = "POST",
    .paths = {"/detokenize"},
    .summary =
        "The text of token ids, as `text`; of `tokens`, also as vLLM's `prompt` and llama.cpp's "
        "`content`.",
    .body = "`ids` (or `tokens`): a list; `skip_special_tokens`",
    .takes = "Detokenize",
    .example = "{\"ids\": [1, 2, 3]}",
    .gives = "Text",
    .work = work,
};
