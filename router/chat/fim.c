#include "router/chat/fim.h"

enum { FIM_STYLES = 5 };

/* The model uses the first style whose first three tokens are in its vocabulary. */
static const char *const styles[FIM_STYLES][FIM_N] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>", "<file_sep>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", NULL, NULL},
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", NULL, NULL},
    {"▁<PRE>", "▁<SUF>", "▁<MID>", NULL, NULL},
};

const char *const *fim_style(const struct tokenizer *t)
{
    for (int i = 0; i < FIM_STYLES; i++)
        if (tokenizer_id(t, styles[i][FIM_PREFIX]) >= 0 &&
            tokenizer_id(t, styles[i][FIM_SUFFIX]) >= 0 &&
            tokenizer_id(t, styles[i][FIM_MIDDLE]) >= 0)
            return styles[i];
    return NULL;
}

void fim_end(const char *const *style, const char *suffix, size_t n, struct buf *out)
{
    buf_str(out, style[FIM_SUFFIX]);
    buf_add(out, suffix, n);
    buf_str(out, style[FIM_MIDDLE]);
}
