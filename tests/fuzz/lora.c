// fuzz-sources: common/tokenizer/likely*.c
// fuzz-sources: model-server/model/checkpoint/tensor_file.c
// fuzz-sources: model-server/model/checkpoint/torch_zip.c
// fuzz-sources: model-server/model/checkpoint/torch_pickle.c model-server/model/lora/lora.c
// fuzz-sources: model-server/model/lora/lora_recur.c model-server/model/lora/lora_place.c
// fuzz-sources: model-server/model/lora/lora_head.c model-server/model/spec/decoder_spec.c
// fuzz-sources: model-server/model/lora/lora_gguf.c model-server/model/checkpoint/gguf_names.c
// fuzz-sources: model-server/model/checkpoint/gguf_order.c
// fuzz-sources: model-server/model/checkpoint/gguf_latent.c
// fuzz-sources: model-server/model/checkpoint/quant/blocks.c
// fuzz-sources: model-server/model/checkpoint/quant/grids.c
// fuzz-sources: model-server/model/checkpoint/quant/blocks_grid.c
// fuzz-sources: model-server/backend/format.c
// fuzz-sources: model-server/model/checkpoint/safetensors.c
// fuzz-sources: model-server/model/arch.c model-server/model/arch/*.c model-server/model/config/*.c
// fuzz-sources: model-server/model/rope.c model-server/model/split.c common/json/json.c
// fuzz-sources: common/json/reader.c common/arena.c common/json/exact.c common/err.c common/utf8.c
// fuzz-sources: common/buf.c common/model/model_file.c common/gguf/*.c common/tokenizer/gguf*.c
// fuzz-sources: common/tokenizer/longest.c
// fuzz-sources: common/tokenizer/vocab.c common/file/file_map.c common/tokenizer/scored.c
// fuzz-sources: common/tokenizer/folder*.c common/tokenizer/sentencepiece.c
// fuzz-sources: common/model/first_module.c common/file/file_stamp.c
#include "model-server/model/lora/lora.h"
#include "model-server/model/lora/lora_inside.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Adapters inside a checkpoint, which this does not read. */
int lora_inside_read(struct lora_adapter *l, const char *dir, uint32_t index,
                     const struct lora_base *base, double *alpha, struct err *e)
{
    (void)l, (void)dir, (void)index, (void)base, (void)alpha, (void)e;
    return -1;
}
void lora_inside_close(struct lora_adapter *l) { (void)l; }

static char folder[] = "/tmp/fuzz-lora-XXXXXX";

static const char *path_of(const char *file)
{
    static char path[64];
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    return path;
}

static void write_file(const char *file, const void *p, size_t n)
{
    FILE *out = fopen(path_of(file), "wb");
    if (!out || fwrite(p, 1, n, out) != n || fclose(out))
        abort();
}

static void clean(void)
{
    unlink(path_of("config.json"));
    unlink(path_of("adapter_config.json"));
    unlink(path_of("adapter_model.safetensors"));
    unlink(path_of("adapter.gguf"));
    rmdir(folder);
}

/* A decoder small enough for adapters of a few hundred bytes; rank 1 of 2 holds a part of it. */
static const struct lora_base *model(void)
{
    static const char config[] =
        "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":4,"
        "\"intermediate_size\":6,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
        "\"num_key_value_heads\":2,\"head_dim\":2,\"vocab_size\":8,\"rms_norm_eps\":1e-5,"
        "\"max_position_embeddings\":16,\"rope_theta\":10000.0,\"hidden_act\":\"silu\"}";
    static struct decoder_spec spec;
    static struct split split;
    static struct lora_base base = {.spec = &spec, .split = &split, .head = {"linear", 4, 3}};
    const char *type;
    struct err e = {0};
    if (base.arch)
        return &base;
    if (!mkdtemp(folder))
        abort();
    atexit(clean);
    write_file("config.json", config, sizeof(config) - 1);
    if (arch_configure(path_of("config.json"), NULL, NULL, 0, &base.arch, &type, &spec, &e) ||
        split_make(&split, &spec, 1, 2, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        abort();
    }
    return &base;
}

/* Each accepted pair can be read to its last element, into exactly as much as it says. */
static void read_pair(const struct lora_pair *p, const struct lora_base *base)
{
    if (!p->rank || !p->n || !p->columns || p->n > p->most_n || p->columns > p->most_columns ||
        !isfinite(p->scale))
        abort();
    void *a = malloc(p->columns * dtype_size(p->dtype)), *b = malloc(p->n * dtype_size(p->dtype));
    for (uint32_t r = 0; a && b && r < p->rank; r++) {
        lora_copy_a(p, r, a);
        lora_copy_b(p, base, r, b);
    }
    free(a);
    free(b);
}

/* What is opened: a GGUF file, or adapter_config.json, a zero byte and adapter_model.safetensors.
 */
static const char *write_adapter(const uint8_t *data, size_t n)
{
    const uint8_t *zero = n ? memchr(data, 0, n) : NULL;
    size_t n_config = zero ? (size_t)(zero - data) : n;
    if (n >= 4 && memcmp(data, "GGUF", 4) == 0) {
        write_file("adapter.gguf", data, n);
        return path_of("adapter.gguf");
    }
    write_file("adapter_config.json", data, n_config);
    write_file("adapter_model.safetensors", zero ? zero + 1 : data, zero ? n - n_config - 1 : 0);
    return folder;
}

/* It is refused in one line, or an adapter of which each part can be read. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const struct lora_base *base = model();
    struct lora_adapter l;
    struct err e = {0};
    if (lora_open(&l, write_adapter(data, n), base, &e)) {
        if (!e.msg[0] || strchr(e.msg, '\n'))
            abort();
        return 0;
    }
    for (uint32_t i = 0; i < l.n; i++)
        read_pair(&l.pairs[i], base);
    lora_close(&l);
    return 0;
}
