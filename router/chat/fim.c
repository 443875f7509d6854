#include "router/chat/fim.h"

enum { FIM_STYLES = 5 };

/* The model uses the first style whose first three tokens are in its vocabulary. */
static const char *const styles[FIM_STYLES][FIM_N] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>",
     "<|fim_pad|>", NULL},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>", "<file_sep>", "<fim_pad>",
     NULL},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", NULL, NULL, "<fim-pad>", NULL},
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", NULL, NULL, NULL, NULL},
    {"▁<PRE>", "▁<SUF>", "▁<MID>", NULL, NULL, NULL, "▁<EOT>"},
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

uint32_t fim_ends(const struct tokenizer *t, uint32_t *ids)
{
    const char *const *style = fim_style(t);
    uint32_t n = 0;
    for (int i = FIM_REPO; style && i < FIM_N; i++) {
        const int64_t id = style[i] ? tokenizer_id(t, style[i]) : -1;
        if (id >= 0)
            ids[n++] = (uint32_t)id;
    }
    return n;
}
