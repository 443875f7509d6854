/* Descriptions of a model in Ollama's format. The shards tell family, sizes and formats; of a model
 * that is not loaded they are empty. */
#include "router/api/ollama/ollama.h"
#include <ctype.h>
#include <gnutls/crypto.h>
#include <inttypes.h>
#include <string.h>

enum { SHA256_BYTES = 32, MOST_WORD = 32 };

/* As Ollama prints them: 1.2B, 260K. */
static void print_count(struct buf *out, uint64_t n)
{
    static const struct {
        double unit;
        char letter;
    } units[] = {{1e12, 'T'}, {1e9, 'B'}, {1e6, 'M'}, {1e3, 'K'}};
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
        if ((double)n >= units[i].unit) {
            buf_fmt(out, "%.*f%c", units[i].letter == 'K' ? 0 : 1, (double)n / units[i].unit,
                    units[i].letter);
            return;
        }
    if (n)
        buf_fmt(out, "%" PRIu64, n);
}

/* The first word of `s`, in capitals. */
static void print_word(struct buf *out, const char *s)
{
    for (size_t i = 0; i < MOST_WORD && (isalnum((unsigned char)s[i]) || s[i] == '_'); i++)
        buf_ch(out, (char)toupper((unsigned char)s[i]));
}

/* The format of the matrices: as the checkpoint stores them packed, as they were quantised at load,
 * or their type. */
static void print_quantization(struct buf *out, const struct infer_limits *l)
{
    static const struct {
        const char *dtype, *name;
    } types[] = {{"torch.bfloat16", "BF16"}, {"torch.float16", "F16"}, {"torch.float32", "F32"}};
    const char *name = l->dtype;
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (strcmp(l->dtype, types[i].dtype) == 0)
            name = types[i].name;
    if (*l->quantize && strcmp(l->quantize, "none") != 0)
        name = l->quantize;
    if (*l->matrices && strncmp(l->matrices, "widened", strlen("widened")) != 0)
        name = l->matrices;
    print_word(out, name);
}

static bool is_gguf(const char *model)
{
    const size_t n = strlen(model), m = strlen(".gguf");
    return n > m && strcmp(model + n - m, ".gguf") == 0;
}

void ollama_details(struct buf *out, const struct edge *g)
{
    static const struct infer_limits nothing;
    const struct infer_limits *l = g ? edge_limits(g) : &nothing;
    const size_t n = strlen(l->family);
    const char *format = "";
    if (g && l->weight_bytes)
        format = is_gguf(g->model_id) ? "gguf" : "safetensors";
    buf_fmt(out, ",\"details\":{\"parent_model\":\"\",\"format\":\"%s\",\"family\":", format);
    buf_json_str(out, l->family, n);
    buf_str(out, ",\"families\":[");
    if (n)
        buf_json_str(out, l->family, n);
    buf_str(out, "],\"parameter_size\":\"");
    print_count(out, l->parameters);
    buf_str(out, "\",\"quantization_level\":\"");
    print_quantization(out, l);
    buf_str(out, "\"}");
}

/* The model's commit if that is known, else SHA-256 of what identifies it: its name, and what its
 * shards say. Clients print the first twelve characters. */
static void print_digest(struct buf *out, const struct edge *g, const char *name)
{
    const struct infer_limits *l = edge_limits(g);
    struct buf told = BUF_INIT;
    uint8_t sum[SHA256_BYTES];
    if (g->model_sha) {
        buf_json_str(out, g->model_sha, strlen(g->model_sha));
        return;
    }
    buf_fmt(&told, "%s\n%s\n%s\n%s\n%s\n%" PRIu64 "\n%" PRIu64 "\n%" PRIx64, name, l->family,
            l->dtype, l->quantize, l->matrices, l->parameters, l->weight_bytes, l->vocab_hash);
    buf_ch(out, '"');
    if (!told.oom && gnutls_hash_fast(GNUTLS_DIG_SHA256, told.p, told.len, sum) == 0)
        for (size_t i = 0; i < sizeof(sum); i++)
            buf_fmt(out, "%02x", sum[i]);
    buf_ch(out, '"');
    buf_free(&told);
}

void ollama_model(struct buf *out, const struct edge *first, const struct edge *g, const char *name)
{
    buf_str(out, "{\"name\":");
    buf_json_str(out, name, strlen(name));
    buf_str(out, ",\"model\":");
    buf_json_str(out, name, strlen(name));
    buf_str(out, ",\"modified_at\":");
    buf_json_time(out, g ? g->started_unix : first->started_unix);
    buf_fmt(out, ",\"size\":%" PRIu64 ",\"digest\":", g ? edge_limits(g)->weight_bytes : 0);
    if (g)
        print_digest(out, g, name);
    else
        buf_str(out, "\"\"");
    ollama_details(out, g);
}
