/* llama-server's fill-in-the-middle: other files, then what stands before and behind the cursor. */
#include "common/json/json.h"
#include "common/utf8.h"
#include "router/api/llama/llama.h"
#include "router/chat/fim.h"
#include <string.h>

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
            buf_fmt(out, "%s%s\n%s", style[FIM_FILE], name, text);
        else
            buf_fmt(out, "%s\n\n--- snippet ---\n\n", text);
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
    buf_fmt(&text, "%s%s%s", style[FIM_PREFIX], prefix, prompt ? prompt : "");
    fim_end(style, suffix, strlen(suffix), &text);
    q->inputs = text.oom ? NULL : arena_strdup(&c->arena, text.p, text.len);
    q->n_inputs = text.len;
    q->n_chars = q->inputs ? utf8_count(q->inputs, q->n_inputs) : 0;
    q->add_special_tokens = true;
    q->input_name = "input_prefix";
    buf_free(&text);
    return q->inputs ? 0 : err_nomem(e);
}
