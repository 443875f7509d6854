/* lora_made.h - a random adapter for any checkpoint, and the checkpoint with that adapter merged:
 * the expected result of an unmerged adapter. */
#ifndef TESTS_GOLDEN_LORA_MADE_H
#define TESTS_GOLDEN_LORA_MADE_H
#include "common/buf.h"
#include "model-server/backend/numbers.h"
#include "model-server/model/checkpoint/checkpoint.h"
#include "tests/golden/golden.h"
#include <unistd.h>

/* An fp32 safetensors file under construction. */
struct made_file {
    struct buf header, data;
};

static inline void made_add_as(struct made_file *f, const char *name, const char *type,
                               const void *v, size_t bytes, const uint64_t dims[2])
{
    const size_t at = f->data.len;
    char shape[64];
    buf_add(&f->data, v, bytes);
    snprintf(shape, sizeof(shape), dims[1] ? "%llu,%llu" : "%llu", (unsigned long long)dims[0],
             (unsigned long long)dims[1]);
    buf_fmt(&f->header, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
            f->header.len ? ',' : '{', name, type, shape, at, f->data.len);
}

static inline void made_add(struct made_file *f, const char *name, const float *v, uint64_t rows,
                            uint64_t cols)
{
    made_add_as(f, name, "F32", v, (size_t)rows * (cols ? cols : 1) * sizeof(*v),
                (const uint64_t[]){rows, cols});
}

/* The numbers v under the name and in the dimensions of t. */
static inline void made_add_like(struct made_file *f, const struct tensor *t, const float *v)
{
    const size_t at = f->data.len;
    size_t n = 1;
    buf_fmt(&f->header, "%c\"%s\":{\"dtype\":\"F32\",\"shape\":[", f->header.len ? ',' : '{',
            t->name);
    for (int i = 0; i < t->n_dims; n *= t->dims[i++])
        buf_fmt(&f->header, "%s%llu", i ? "," : "", (unsigned long long)t->dims[i]);
    buf_add(&f->data, v, n * sizeof(*v));
    buf_fmt(&f->header, "],\"data_offsets\":[%zu,%zu]}", at, f->data.len);
}

static inline void made_write(struct made_file *f, const char *dir, const char *file)
{
    char path[2 * PATH_LEN];
    buf_str(&f->header, "}");
    uint64_t n = f->header.len;
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_false(f->header.oom || f->data.oom);
    assert_int_equal(fwrite(&n, 8, 1, out), 1);
    assert_int_equal(fwrite(f->header.p, f->header.len, 1, out), 1);
    assert_int_equal(fwrite(f->data.p, f->data.len, 1, out), 1);
    assert_int_equal(fclose(out), 0);
    buf_free(&f->header);
    buf_free(&f->data);
}

static inline void made_text(const char *dir, const char *file, const char *text)
{
    char path[2 * PATH_LEN];
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    assert_int_equal(fclose(out), 0);
}

static inline float *made_floats(const struct tensor *t)
{
    size_t n = 1;
    for (int i = 0; i < t->n_dims; i++)
        n *= t->dims[i];
    float *v = malloc(n * sizeof(*v));
    assert_non_null(v);
    for (size_t i = 0; i < n; i++) {
        const char *at = (const char *)t->data + i * (t->type == T_F32 ? 4 : 2);
        uint16_t h;
        memcpy(&h, at, 2);
        if (t->type == T_F32)
            memcpy(&v[i], at, 4);
        else
            v[i] = t->type == T_BF16 ? f32_of_bf16(h) : f32_of_f16(h);
    }
    return v;
}

/* A matrix of a layer that an adapter may change. */
static inline bool made_target(const struct tensor *t)
{
    static const char *const not [] = {
        ".experts.",    ".gate.",     ".kv_b_proj.",    "shared_expert_gate.",
        ".altup.",      ".laurel.",   "per_layer_",     ".rg_lru.",
        ".compressor.", ".indexer.",  ".wo_a.",         ".hc_",
        ".lora.",       ".r_k",       ".x_proj.",       ".dt_proj.",
        ".A_log",       ".router.",   ".bcdt_proj.",    ".q_weight",
        ".k_weight",    ".wkv_b.",    "vision_",        "_hyper_connection.",
        ".ple.",        ".r_proj.",   "_logits_",       "_expert_proj.",
        "audio_",       "_res_proj.", "routed_expert_", ".f_a_proj.",
        ".f_b_proj."};
    for (size_t i = 0; i < sizeof(not ) / sizeof(not [0]); i++)
        if (strstr(t->name, not [i]))
            return false;
    return t->n_dims == 2 && (strstr(t->name, "layers.") || strstr(t->name, ".h."));
}

/* w += alpha / rank * (B A); `turned`: w is stored [in, out]. */
static inline void made_pair(struct made_file *adapter, struct rng *r, const struct tensor *t,
                             float *w, uint32_t rank, double alpha, bool turned)
{
    const uint64_t out = t->dims[turned], in = t->dims[!turned];
    float *a = rng_floats(r, rank * in), *b = rng_floats(r, out * rank);
    char name[300];
    int stem = (int)(strlen(t->name) - strlen(".weight"));
    for (uint64_t i = 0; i < rank * in; i++)
        a[i] *= 0.02f;
    for (uint64_t i = 0; i < out * rank; i++)
        b[i] *= 0.02f;
    snprintf(name, sizeof(name), "base_model.model.%.*s.lora_A.weight", stem, t->name);
    made_add(adapter, name, a, rank, in);
    snprintf(name, sizeof(name), "base_model.model.%.*s.lora_B.weight", stem, t->name);
    made_add(adapter, name, b, out, rank);
    for (uint64_t o = 0; o < out; o++)
        for (uint64_t i = 0; i < in; i++) {
            double sum = 0;
            for (uint32_t k = 0; k < rank; k++)
                sum += (double)b[o * rank + k] * a[k * in + i];
            float *at = &w[turned ? i * out + o : o * in + i];
            *at = (float)(*at + alpha / rank * sum);
        }
    free(a), free(b);
}

/* Writes dir/adapter and dir/merged for the checkpoint in `base`; both folders exist. Ranks
 * differ between matrices, and some matrices have no update. */
static inline void made_adapter(const char *base, const char *dir, bool turned)
{
    struct err e = ERR_INIT;
    struct checkpoint c;
    struct made_file adapter = {BUF_INIT, BUF_INIT}, merged = {BUF_INIT, BUF_INIT};
    struct rng r = {88172645463325252ull, 0};
    char to[PATH_LEN + 64], from[PATH_LEN + 64];
    if (checkpoint_open(&c, base, NULL, &e))
        fail_msg("%s", e.msg);
    for (uint32_t f = 0; f < c.n_files; f++)
        for (uint32_t i = 0; i < c.files[f].n; i++) {
            const struct tensor *t = &c.files[f].tensors[i];
            if (t->type == T_I64 && t->n_dims == 2) /* experts by ids */
                made_add_as(&merged, t->name, "I64", t->data, (size_t)t->bytes, t->dims);
            if (t->type != T_F32 && t->type != T_F16 && t->type != T_BF16)
                continue;
            float *w = made_floats(t);
            if (made_target(t) && rng_below(&r, 8))
                made_pair(&adapter, &r, t, w, 1 + rng_below(&r, 7), 6, turned);
            made_add_like(&merged, t, w);
            free(w);
        }
    checkpoint_close(&c);
    snprintf(to, sizeof(to), "%s/adapter", dir);
    made_write(&adapter, to, "adapter_model.safetensors");
    made_text(to, "adapter_config.json", "{\"peft_type\":\"LORA\",\"lora_alpha\":6,\"r\":8}");
    snprintf(to, sizeof(to), "%s/merged", dir);
    made_write(&merged, to, "model.safetensors");
    snprintf(from, sizeof(from), "%s/config.json", base);
    char *real = realpath(from, NULL);
    assert_non_null(real);
    strncat(to, "/config.json", sizeof(to) - strlen(to) - 1);
    assert_int_equal(symlink(real, to), 0);
    free(real);
}
#endif
