/* Tensors of a GGUF file that are kept in memory in the family's order and values. */
#include "common/buf.h"
#include "model-server/model/arch.h"
#include "model-server/model/checkpoint/checkpoint.h"
#include "tests/gguf_write.h"
#include "tests/unit/test.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char path[64];

static const struct arch *family(struct decoder_spec *s)
{
    char config[96];
    const struct arch *a = NULL;
    const char *type = NULL;
    struct err e = ERR_INIT;
    snprintf(config, sizeof(config), "%s/config.json", path);
    if (arch_configure(config, NULL, NULL, 1, &a, &type, s, &e))
        fail_msg("%s", e.msg);
    return a;
}

static void save(struct gguf_write *w)
{
    snprintf(path, sizeof(path), "/tmp/gguf-weights-%d.gguf", (int)getpid());
    assert_int_equal(gw_save(w, path), 0);
}

static void put_sizes(struct gguf_write *w, const char *family, uint32_t hidden)
{
    static const char *const keys[] = {"block_count", "context_length", "attention.head_count",
                                       "attention.head_count_kv", "feed_forward_length"};
    char key[64];
    gw_put_str(w, "general.architecture", family);
    snprintf(key, sizeof(key), "%s.embedding_length", family);
    gw_put_u32(w, key, hidden);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        snprintf(key, sizeof(key), "%s.%s", family, keys[i]);
        gw_put_u32(w, key, 1);
    }
    snprintf(key, sizeof(key), "%s.attention.layer_norm_rms_epsilon", family);
    gw_put_f32(w, key, 1e-6F);
}

/* Pages of the file that are released are read again; those of a copy would be zeros. */
TEST(a_copy_survives_its_release)
{
    enum { HIDDEN = 4096 };
    struct gguf_write w = {0};
    struct decoder_spec spec;
    struct checkpoint c;
    struct err e = ERR_INIT;
    const uint64_t table[] = {HIDDEN, 1}, vector[] = {HIDDEN};
    float *x = malloc(HIDDEN * sizeof(*x));
    assert_non_null(x);
    for (int i = 0; i < HIDDEN; i++)
        x[i] = 3;
    put_sizes(&w, "gemma", HIDDEN);
    gw_put_u32(&w, "gemma.attention.key_length", 256);
    gw_tensor(&w, "token_embd.weight", GGUF_F32, 2, table, x, HIDDEN * sizeof(*x));
    gw_tensor(&w, "output_norm.weight", GGUF_F32, 1, vector, x, HIDDEN * sizeof(*x));
    save(&w);
    if (checkpoint_open(&c, path, family(&spec), &e))
        fail_msg("%s", e.msg);
    const struct tensor *t = checkpoint_find(&c, "model.norm.weight");
    assert_non_null(t);
    for (int turn = 0; turn < 2; turn++, tensor_release(t))
        for (int i = 0; i < HIDDEN; i++)
            if (((const float *)t->data)[i] != 2)
                fail_msg("number %d is %g", i, (double)((const float *)t->data)[i]);
    checkpoint_close(&c);
    free(x);
    unlink(path);
}

/* The order of heads is a list as long as a vector. */
TEST(rates_are_a_vector)
{
    enum { VALUES = 4, MANY = 64 * 1024 };
    struct gguf_write w = {0};
    struct decoder_spec spec;
    struct checkpoint c;
    struct err e = ERR_INIT;
    const uint64_t table[] = {64, 1}, rates[] = {MANY, VALUES};
    float *x = malloc((size_t)MANY * VALUES * sizeof(*x));
    assert_non_null(x);
    for (int i = 0; i < MANY * VALUES; i++)
        x[i] = -1;
    put_sizes(&w, "qwen35", 64);
    gw_put_u32(&w, "qwen35.attention.key_length", 64);
    gw_put_u32(&w, "qwen35.attention.value_length", 64);
    gw_put_u32(&w, "qwen35.ssm.time_step_rank", VALUES);
    gw_put_u32(&w, "qwen35.ssm.group_count", 2);
    gw_put_u32(&w, "qwen35.ssm.state_size", 16);
    gw_put_u32(&w, "qwen35.ssm.inner_size", 16 * VALUES);
    gw_put_u32(&w, "qwen35.ssm.conv_kernel", 4);
    gw_put_u32(&w, "qwen35.full_attention_interval", 4);
    gw_tensor(&w, "token_embd.weight", GGUF_F32, 2, table, x, 64 * sizeof(*x));
    gw_tensor(&w, "blk.0.ssm_a", GGUF_F32, 2, rates, x, (size_t)MANY * VALUES * sizeof(*x));
    save(&w);
    assert_int_equal(checkpoint_open(&c, path, family(&spec), &e), -1);
    assert_non_null(strstr(e.msg, "tensor `"));
    free(x);
    unlink(path);
}

int main(void) { return tests_run(NULL, NULL); }
