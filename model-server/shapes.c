#include "model-server/shapes.h"
#include "common/buf.h"
#include "common/json/json.h"
#include <string.h>

enum { CONFIG_MAX = 16 << 20 };

struct shape {
    const char *name, *type;
    unsigned hidden, layers, heads, kv_heads, head_dim, ffn, vocab, positions;
    const char *rest; /* more keys, each with its comma */
};

#define LLAMA3(factor)                                                                             \
    ",\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":" #factor ","  \
    "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"                                            \
    "\"original_max_position_embeddings\":8192}"
#define TIED  ",\"tie_word_embeddings\":true"
#define APART ",\"tie_word_embeddings\":false"
#define QWEN  ",\"rope_theta\":1000000.0,\"rms_norm_eps\":1e-6"

// clang-format off
static const struct shape shapes[] = {
    /* name            type         hidden lay heads kv  dim    ffn   vocab  positions */
    {"tiny-60m",       "llama",       512,  8,   8,  4,  64,  1408,  32000,   8192, APART},
    {"qwen2.5-0.5b",   "qwen2",       896, 24,  14,  2,  64,  4864, 151936,  32768, QWEN TIED},
    {"llama-3.2-1b",   "llama",      2048, 16,  32,  8,  64,  8192, 128256, 131072, LLAMA3(32) TIED},
    {"llama-3.2-3b",   "llama",      3072, 28,  24,  8, 128,  8192, 128256, 131072, LLAMA3(32) TIED},
    {"qwen2.5-7b",     "qwen2",      3584, 28,  28,  4, 128, 18944, 152064,  32768, QWEN APART},
    {"mistral-7b",     "mistral",    4096, 32,  32,  8, 128, 14336,  32768,  32768, APART ",\"sliding_window\":null"},
    {"llama-3.1-8b",   "llama",      4096, 32,  32,  8, 128, 14336, 128256, 131072, LLAMA3(8) APART},
    {"qwen3-30b-a3b",  "qwen3_moe",  2048, 48,  32,  4, 128,  6144, 151936,  40960,
     QWEN APART ",\"num_experts\":128,\"num_experts_per_tok\":8,\"moe_intermediate_size\":768,\"norm_topk_prob\":true,\"decoder_sparse_step\":1,\"mlp_only_layers\":[]"},
    {"llama-3.1-70b",  "llama",      8192, 80,  64,  8, 128, 28672, 128256, 131072, LLAMA3(8) APART},
};
// clang-format on
enum { N_SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static char *text_of(const struct shape *s, struct err *e)
{
    struct buf b = BUF_INIT;
    buf_fmt(&b,
            "{\"model_type\":\"%s\",\"hidden_size\":%u,\"num_hidden_layers\":%u,"
            "\"num_attention_heads\":%u,\"num_key_value_heads\":%u,\"head_dim\":%u,"
            "\"intermediate_size\":%u,\"vocab_size\":%u,\"max_position_embeddings\":%u,"
            "\"hidden_act\":\"silu\"%s}",
            s->type, s->hidden, s->layers, s->heads, s->kv_heads, s->head_dim, s->ffn, s->vocab,
            s->positions, s->rest);
    char *text = buf_take(&b);
    if (!text)
        err_nomem(e);
    return text;
}

char *shape_config(const char *name, struct err *e)
{
    size_t n;
    for (int i = 0; i < N_SHAPES; i++)
        if (strcmp(shapes[i].name, name) == 0)
            return text_of(&shapes[i], e);
    const char *end = strrchr(name, '.');
    if (strchr(name, '/') || (end && strcmp(end, ".json") == 0))
        return file_read(name, CONFIG_MAX, &n, e);
    struct buf known = BUF_INIT;
    for (int i = 0; i < N_SHAPES; i++)
        buf_fmt(&known, "%s%s", i ? ", " : "", shapes[i].name);
    err_set(e, ERR_VALIDATION, "--shape %.60s: there are %s, or give the path of a config.json",
            name, known.p ? known.p : "");
    buf_free(&known);
    return NULL;
}
