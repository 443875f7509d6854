/* Projectors of llama.cpp (mmproj) as towers: their settings, and tensors that its converters
 * change. integration/images/test_mmproj.py serves whole models. */
#include "model-server/encoder/encoder_spec.h"
#include "model-server/model/checkpoint/checkpoint.h"
#include "tests/gguf_write.h"
#include "tests/unit/test.h"
#include <stdio.h>
#include <unistd.h>

enum { HIDDEN = 8, TEXT = 16, NUMBERS = 512 };

static char text[64], projector[64], both[160];
static float numbers[NUMBERS];

static void put(struct gguf_write *w, const char *name, uint32_t n_dims, const uint64_t *dims)
{
    size_t n = 1;
    for (uint32_t i = 0; i < n_dims; i++)
        n *= dims[i];
    gw_tensor(w, name, GGUF_F32, n_dims, dims, numbers, n * sizeof(float));
}
#define PUT(w, name, ...)                                                                          \
    put(w, name, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (uint64_t[]){__VA_ARGS__})

static void save_text(const char *arch)
{
    static const char *const keys[] = {"block_count", "context_length", "attention.head_count",
                                       "feed_forward_length"};
    struct gguf_write w = {0};
    char key[64];
    gw_put_str(&w, "general.architecture", arch);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        snprintf(key, sizeof(key), "%s.%s", arch, keys[i]);
        gw_put_u32(&w, key, 1);
    }
    snprintf(key, sizeof(key), "%s.embedding_length", arch);
    gw_put_u32(&w, key, TEXT);
    PUT(&w, "token_embd.weight", TEXT, 1);
    assert_int_equal(gw_save(&w, text), 0);
}

static void begin(struct gguf_write *w, const char *arch, const char *kind, uint32_t ffn)
{
    for (int i = 0; i < NUMBERS; i++)
        numbers[i] = (float)i;
    snprintf(text, sizeof(text), "/tmp/projector-%d-text.gguf", (int)getpid());
    snprintf(projector, sizeof(projector), "/tmp/projector-%d.gguf", (int)getpid());
    snprintf(both, sizeof(both), "%s" GGUF_PROJECTOR_MARK "%s", text, projector);
    save_text(arch);
    gw_put_str(w, "clip.projector_type", kind);
    gw_put_u32(w, "clip.vision.projection_dim", TEXT);
    gw_put_u32(w, "clip.vision.embedding_length", HIDDEN);
    gw_put_u32(w, "clip.vision.feed_forward_length", ffn);
    gw_put_u32(w, "clip.vision.block_count", 2);
    gw_put_u32(w, "clip.vision.attention.head_count", 2);
    gw_put_u32(w, "clip.vision.image_size", 4);
    gw_put_u32(w, "clip.vision.patch_size", 2);
    gw_put_bool(w, "clip.use_gelu", true);
}

static void open_tower(struct gguf_write *w, struct encoder_spec *s, struct checkpoint *c)
{
    struct err e = ERR_INIT;
    char config[200];
    const struct encoder_family *family;
    snprintf(config, sizeof(config), "%s/config.json", both);
    assert_int_equal(gw_save(w, projector), 0);
    if (encoder_configure(config, &family, s, &e))
        fail_msg("%s", e.msg);
    assert_non_null(family);
    if (checkpoint_open_tower(c, both, &family->names, &e))
        fail_msg("%s", e.msg);
}

static void end(struct checkpoint *c)
{
    checkpoint_close(c);
    unlink(text);
    unlink(projector);
}

static const float *tensor(const struct checkpoint *c, const char *name)
{
    const struct tensor *t = checkpoint_find(c, name);
    if (!t)
        fail_msg("%s is missing", name);
    return t->data;
}

TEST(gemma_4)
{
    struct gguf_write w = {0};
    struct encoder_spec s;
    struct checkpoint c;
    begin(&w, "gemma4", "gemma4v", 24);
    PUT(&w, "v.patch_embd.weight", 2, 2, 3, HIDDEN);
    PUT(&w, "v.position_embd.weight", HIDDEN, 5, 2);
    PUT(&w, "v.blk.0.attn_q_norm.weight", 4);
    PUT(&w, "v.blk.0.attn_k.weight", HIDDEN, HIDDEN);
    PUT(&w, "v.blk.0.attn_post_norm.weight", HIDDEN);
    PUT(&w, "v.blk.0.attn_q.input_max", 1);
    PUT(&w, "v.std_scale", HIDDEN);
    PUT(&w, "mm.input_projection.weight", HIDDEN, TEXT);
    open_tower(&w, &s, &c);
    assert_int_equal(s.blocks.head_dim, 4);
    assert_int_equal(s.side, 5);
    assert_int_equal(s.cell, 3);
    assert_true(s.blocks.clips && s.pool_standard);
    /* channels are last: the second number is the first pixel's green */
    const float *patch = tensor(&c, "model.vision_tower.patch_embedder.input_proj.weight");
    const float first[] = {0, 4, 8, 1, 5, 9};
    assert_memory_equal(patch, first, sizeof(first));
    assert_true(patch[12] == 12);
    tensor(&c, "model.vision_tower.patch_embedder.position_embedding_table");
    tensor(&c, "model.vision_tower.encoder.layers.0.post_attention_layernorm.weight");
    tensor(&c, "model.vision_tower.encoder.layers.0.self_attn.q_proj.input_max");
    tensor(&c, "model.vision_tower.std_scale");
    tensor(&c, "model.embed_vision.embedding_projection.weight");
    end(&c);
}

TEST(llama_4)
{
    struct gguf_write w = {0};
    struct encoder_spec s;
    struct checkpoint c;
    begin(&w, "llama4", "llama4", 4 * HIDDEN);
    PUT(&w, "v.class_embd", HIDDEN);
    PUT(&w, "v.position_embd.weight", HIDDEN, 5);
    PUT(&w, "v.blk.1.attn_post_norm.weight", HIDDEN);
    PUT(&w, "mm.model.mlp.1.weight", 4 * HIDDEN, 12);
    PUT(&w, "mm.model.mlp.2.weight", 12, 12);
    PUT(&w, "mm.model.fc.weight", 12, TEXT);
    open_tower(&w, &s, &c);
    assert_int_equal(s.project.linear[0].rows, 12);
    tensor(&c, "vision_model.class_embedding");
    tensor(&c, "vision_model.positional_embedding_vlm");
    tensor(&c, "vision_model.model.layers.1.post_attention_layernorm.weight");
    tensor(&c, "vision_model.vision_adapter.mlp.fc1.weight");
    tensor(&c, "vision_model.vision_adapter.mlp.fc2.weight");
    tensor(&c, "multi_modal_projector.linear_1.weight");
    end(&c);
}

TEST(kimi_vl)
{
    static const char *const parts[] = {"v.blk.0.attn_q.bias", "v.blk.0.attn_k.bias",
                                        "v.blk.0.attn_v.bias"};
    struct gguf_write w = {0};
    struct encoder_spec s;
    struct checkpoint c;
    begin(&w, "deepseek2", "kimivl", 24);
    PUT(&w, "v.position_embd.weight", HIDDEN, 36);
    for (int i = 0; i < 3; i++, numbers[0] += 100)
        PUT(&w, parts[i], HIDDEN);
    open_tower(&w, &s, &c);
    assert_int_equal(s.side, 6);
    assert_int_equal(s.cell, 2);
    const float *qkv = tensor(&c, "vision_tower.encoder.blocks.0.wqkv.bias");
    assert_true(qkv[0] == 0 && qkv[HIDDEN] == 100 && qkv[2 * HIDDEN] == 200 &&
                qkv[3 * HIDDEN - 1] == HIDDEN - 1);
    end(&c);
}

TEST(lfm2_vl)
{
    struct gguf_write w = {0};
    struct encoder_spec s;
    struct checkpoint c;
    begin(&w, "lfm2", "lfm2", 24);
    PUT(&w, "v.patch_embd.weight", 2, 2, 3, HIDDEN);
    PUT(&w, "v.position_embd.weight", HIDDEN, 9);
    PUT(&w, "mm.1.weight", 4 * HIDDEN, 12);
    open_tower(&w, &s, &c);
    assert_int_equal(s.side, 3);
    assert_int_equal(s.project.linear[0].rows, 12);
    assert_false(s.project.norm || s.project.linear[0].bias);
    assert_true(tensor(&c, "model.vision_tower.embeddings.patch_embedding.weight")[1] == 4);
    tensor(&c, "model.vision_tower.embeddings.position_embedding.weight");
    end(&c);
}

/* That of Qwen2.5-VL; beside it are tensors for sound. */
TEST(qwen_omni)
{
    struct gguf_write w = {0};
    struct encoder_spec s;
    struct checkpoint c;
    begin(&w, "qwen2vl", "qwen2.5o", 24);
    gw_put_u32(&w, "clip.vision.n_wa_pattern", 2);
    PUT(&w, "v.blk.1.ln2.weight", HIDDEN);
    PUT(&w, "mm.2.weight", 4 * HIDDEN, TEXT);
    PUT(&w, "a.conv1d.0.weight", HIDDEN);
    PUT(&w, "mm.a.fc.weight", HIDDEN, TEXT);
    open_tower(&w, &s, &c);
    assert_int_equal(s.cell, 2);
    assert_int_equal(s.blocks.n_layers, 2);
    end(&c);
}

/* Older converters stored the MLP's second matrix as `ffn_up`. */
TEST(swapped_matrices)
{
    struct gguf_write w = {0};
    struct encoder_spec s;
    struct checkpoint c;
    begin(&w, "llama", "idefics3", 24);
    PUT(&w, "v.blk.0.ffn_down.weight", HIDDEN, 24);
    PUT(&w, "v.blk.0.ffn_down.bias", 24);
    open_tower(&w, &s, &c);
    tensor(&c, "vision_model.encoder.layers.0.mlp.fc1.weight");
    tensor(&c, "vision_model.encoder.layers.0.mlp.fc1.bias");
    end(&c);
}

int main(void) { return tests_run(NULL, NULL); }
