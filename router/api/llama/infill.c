/* llama-server's fill-in-the-middle: other files, then what stands before and behind the cursor. */
#include "common/json/json.h"
#include "router/api/llama/llama.h"
#include "router/call/prompt.h"
#include "router/chat/chat.h"
#include "router/chat/fim.h"
#include <string.h>

/* A token, or separator, and then plain text of the client. */
static void put(const struct call *c, const char *before, const char *text, struct buf *out)
{
    buf_str(out, before);
    guard_text(chat_guard(c->edge->chat), text, strlen(text), out);
}

/* Other files from the client: with the model's own separators, or as plain text. */
static void add_extra(struct call *c, struct body *b, const char *const *style, struct buf *out)
{
    const struct tokenizer *t = c->edge->tokenizer;
    const cJSON *extra = json_get(b->root, "input_extra");
    const bool repo = style[FIM_REPO] && tokenizer_id(t, style[FIM_REPO]) >= 0 &&
                      tokenizer_id(t, style[FIM_FILE]) >= 0;
    if (extra && !cJSON_IsArray(extra) && !cJSON_IsNull(extra))
        body_mistyped(b, body_root(b), "input_extra", extra, "a list of {filename, text}");
    if (!json_first(extra))
        return;
    if (repo)
        buf_fmt(out, "%smyproject\n", style[FIM_REPO]);
    for (const cJSON *k = json_first(extra); k; k = k->next) {
        const char *name = json_str(k, "filename", "tmp"), *text = json_str(k, "text", "");
        if (repo)
            put(c, style[FIM_FILE], name, out);
        put(c, repo ? "\n" : "", text, out);
        if (!repo)
            buf_str(out, "\n\n--- snippet ---\n\n");
    }
    if (repo)
        buf_fmt(out, "%sfilename\n", style[FIM_FILE]);
}

int llama_infill(struct call *c, struct body *b, struct ask *q, struct err *e)
{
    const struct object root = body_root(b);
    const char *const *style = fim_style(c->edge->tokenizer);
    const char *prefix = body_str(b, root, "input_prefix", true);
    const char *suffix = body_str(b, root, "input_suffix", true);
    const char *prompt = body_str(b, root, "prompt", false);
    struct buf text = BUF_INIT;
    if (b->failed)
        return -1;
    if (!style)
        return err_set(e, ERR_VALIDATION, "Infill is not supported by this model");
    buf_reserve(&text, 0);
    add_extra(c, b, style, &text);
    put(c, style[FIM_PREFIX], prefix, &text);
    put(c, "", prompt ? prompt : "", &text);
    put(c, style[FIM_SUFFIX], suffix, &text);
    buf_str(&text, style[FIM_MIDDLE]);
    q->add_special_tokens = true;
    q->input_name = "input_prefix";
    int rc = text.oom ? err_nomem(e) : prompt_set(&c->arena, text.p, text.len, q, e);
    buf_free(&text);
    if (rc == 0 && edge_limits(c->edge)->takes_bias)
        rc = prompt_ends_middle(&c->arena, c->edge->tokenizer, q, e);
    return rc;
}
