/* Fill-in-the-middle: the tokens that models have for it, and the prompt made of them. */
#include "common/json.h"
#include "common/utf8.h"
#include "router/api/llama/llama.h"
#include <string.h>

enum fim { FIM_PREFIX, FIM_SUFFIX, FIM_MIDDLE, FIM_REPO, FIM_FILE, FIM_N };
enum { FIM_STYLES = 5 };

/* The model uses the first style whose first three tokens are in its vocabulary. */
static const char *const styles[FIM_STYLES][FIM_N] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>", "<file_sep>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", NULL, NULL},
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", NULL, NULL},
    {"▁<PRE>", "▁<SUF>", "▁<MID>", NULL, NULL},
};

static const char *const *style_of(const struct tokenizer *t)
{
    for (int i = 0; i < FIM_STYLES; i++)
        if (tokenizer_id(t, styles[i][FIM_PREFIX]) >= 0 &&
            tokenizer_id(t, styles[i][FIM_SUFFIX]) >= 0 &&
            tokenizer_id(t, styles[i][FIM_MIDDLE]) >= 0)
            return styles[i];
    return NULL;
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
    const char *const *style = style_of(c->edge->tokenizer);
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
    buf_fmt(&text, "%s%s%s", style[FIM_SUFFIX], suffix, style[FIM_MIDDLE]);
    q->inputs = text.oom ? NULL : arena_strdup(&c->arena, text.p, text.len);
    q->n_inputs = text.len;
    q->n_chars = q->inputs ? utf8_count(q->inputs, q->n_inputs) : 0;
    q->add_special_tokens = true;
    q->input_name = "input_prefix";
    buf_free(&text);
    return q->inputs ? 0 : err_nomem(e);
}
