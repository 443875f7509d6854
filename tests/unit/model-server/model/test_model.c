/* Loading: what a checkpoint that does not fit its config.json is told, and what model_info() says.
 */
#include "common/json/json.h"
#include "model-server/model/model_impl.h"
#include "tests/temp_folder.h"
#include "tests/unit/test.h"
#include <string.h>
#include <unistd.h>

static char base[512], dir[64]; /* the reference checkpoint, a copy to break */
static struct device *dev;

static int start(void **state)
{
    struct err e;
    (void)state;
    const char *config = test_data("arch/llama/config.json");
    if (!config)
        return 0;
    snprintf(base, sizeof(base), "%.*s", (int)(strlen(config) - strlen("/config.json")), config);
    dev = backend_cpu.open(&(struct device_options){.threads = 1, .features = ~0ull}, &e);
    snprintf(dir, sizeof(dir), "/tmp/test-model-XXXXXX");
    return dev && mkdtemp(dir) ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    if (!dev)
        return 0;
    backend_cpu.close(dev);
    return temp_folder_remove(dir);
}

static int shell(const char *fmt, const char *arg)
{
    char cmd[2048];
    snprintf(cmd, sizeof(cmd), "B='%s' D='%s' A='%s'; %s", base, dir, arg, fmt);
    return system(cmd);
}

/* A fresh copy whose config.json went through `sed`. */
static void copy(const char *sed)
{
    assert_int_equal(shell("rm -rf \"$D\"; cp -r \"$B\" \"$D\" && chmod -R u+w \"$D\" && "
                           "sed -i \"$A\" \"$D/config.json\"",
                           sed),
                     0);
}

static struct model *load(int world, int rank, struct err *e)
{
    static struct comm
        comms[8]; /* by rank; loading calls no collective, a world of one never does */
    struct comm *c = &comms[rank];
    *c = (struct comm){.rank = rank, .world = world};
    return model_load(
        dir, &(struct model_options){.ops = &backend_cpu, .dev = dev, .comm = c, .dtype = -1}, e);
}

/* ---------------------------------------------------------------- what it would take */

static struct device *own_device(void)
{
    struct err e = ERR_INIT;
    struct device *d = backend_cpu.open(&(struct device_options){.threads = 1}, &e);
    if (!d)
        fail_msg("%s", e.msg);
    return d;
}

static uint64_t weight_bytes(bool measure, enum quant quant)
{
    struct err e = ERR_INIT;
    struct device *own = own_device();
    struct comm c = *comm_solo();
    struct model *m = model_load("models/demo",
                                 &(struct model_options){.ops = &backend_cpu,
                                                         .dev = own,
                                                         .comm = &c,
                                                         .dtype = -1,
                                                         .quant = quant,
                                                         .measure = measure},
                                 &e);
    if (!m)
        fail_msg("%s", e.msg);
    const uint64_t bytes = model_info(m)->weight_bytes;
    model_free(m);
    backend_cpu.close(own);
    return bytes;
}

TEST(measured_weights_are_what_a_load_takes)
{
    static const enum quant quants[] = {QUANT_NONE, QUANT_INT8, QUANT_W8A8, QUANT_INT4, QUANT_FP8};
    for (size_t i = 0; i < sizeof(quants) / sizeof(quants[0]); i++) {
        const double would = (double)weight_bytes(true, quants[i]);
        const double does = (double)weight_bytes(false, quants[i]);
        assert_true(would > 0.98 * does && would < 1.02 * does);
    }
}

/* Only where products round activations to 8 bits. */
TEST(attention_rounds_beside_such_products)
{
    static const enum quant quants[] = {QUANT_NONE, QUANT_INT8, QUANT_FP8, QUANT_W8A8, QUANT_INT4};
    for (size_t i = 0; i < sizeof(quants) / sizeof(quants[0]); i++) {
        struct err e = ERR_INIT;
        struct comm c = *comm_solo();
        struct device *own = own_device();
        struct model *m = model_load(
            "models/demo",
            &(struct model_options){
                .ops = &backend_cpu, .dev = own, .comm = &c, .dtype = -1, .quant = quants[i]},
            &e);
        assert_non_null(m);
        assert_int_equal(m->d.kv_rounds, quants[i] == QUANT_W8A8 || quants[i] == QUANT_INT4);
        model_free(m);
        backend_cpu.close(own);
    }
}

static int nearly_full(struct device *d, uint64_t *free_bytes, uint64_t *total, struct err *e)
{
    (void)d, (void)e;
    *free_bytes = 1000;
    *total = 1 << 30;
    return 0;
}

/* Said by the first layer, not by the kernel that ends the process. */
TEST(weights_that_do_not_fit_are_refused)
{
    struct err e = ERR_INIT;
    struct backend_ops full = backend_cpu;
    struct comm c = *comm_solo();
    full.memory = nearly_full;
    struct device *own = own_device();
    assert_null(
        model_load("models/demo",
                   &(struct model_options){.ops = &full, .dev = own, .comm = &c, .dtype = -1}, &e));
    assert_non_null(strstr(e.msg, "Not enough memory for the weights: 1 of "));
    assert_non_null(strstr(e.msg, "1000 of 1073741824 bytes are free (--quantize, --num-shard)"));
    backend_cpu.close(own);
}

static bool no_data(void)
{
    if (!dev)
        TEST_SKIPPED(1, "no arch/llama under TEST_DATA");
    return !dev;
}

TEST(test_refuses)
{
    static const struct {
        const char *sed, *says;
        int world;
    } cases[] = {
        {"s/\"num_hidden_layers\": 3/\"num_hidden_layers\": 4/",
         "/model.safetensors: tensor `model.layers.3.input_layernorm.weight` is missing", 1},
        {"s/\"vocab_size\": 320/\"vocab_size\": 321/",
         "/model.safetensors: tensor `model.embed_tokens.weight` has shape [320, 64]; "
         "config.json means [321, 64]",
         1},
        {"s/\"intermediate_size\": 128/\"intermediate_size\": 96/",
         "tensor `model.layers.0.mlp.gate_proj.weight` has shape [128, 64]; config.json means [96, "
         "64]",
         1},
        {"s/\"attention_bias\": false/\"attention_bias\": true/",
         "tensor `model.layers.0.self_attn.q_proj.bias` is missing", 1},
        {"s/nothing/nothing/", "`num_shard` 3 does not divide the 8 attention heads of this model",
         3},
    };
    if (no_data())
        return;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err e = ERR_INIT;
        copy(cases[i].sed);
        assert_null(load(cases[i].world, 0, &e));
        assert_int_equal(e.kind, ERR_VALIDATION);
        if (!strstr(e.msg, cases[i].says))
            fail_msg("`%s` does not say `%s`", e.msg, cases[i].says);
    }
}

TEST(test_wrong_type)
{
    struct err e = ERR_INIT;
    if (no_data())
        return;
    copy("s/nothing/nothing/");
    /* the same number of bytes, another meaning */
    assert_int_equal(shell("LC_ALL=C sed -i 's/\"F32\"/\"I32\"/g' \"$D/model.safetensors\"", ""),
                     0);
    assert_null(load(1, 0, &e));
    assert_non_null(strstr(e.msg, "has dtype I32; weights must be F32, F16 or BF16"));
}

static void expect_eos(const uint32_t *ids, uint32_t n)
{
    struct err e = ERR_INIT;
    struct model *m = load(1, 0, &e);
    if (!m)
        fail_msg("%s", e.msg);
    assert_int_equal(model_info(m)->n_eos, n);
    if (n)
        assert_memory_equal(model_info(m)->eos, ids, n * sizeof(ids[0]));
    model_free(m);
}

TEST(test_eos)
{
    static const uint32_t two[] = {2}, more[] = {7, 2};
    if (no_data())
        return;
    copy("s/nothing/nothing/");
    expect_eos(two, 1);
    shell("echo '{\"eos_token_id\":[7,2,999999]}' > \"$D/generation_config.json\"", "");
    expect_eos(more, 2); /* an id outside the vocabulary never comes */
    shell("echo '{}' > \"$D/generation_config.json\"", "");
    expect_eos(two, 1); /* config.json's */
    shell("rm \"$D/generation_config.json\"; sed -i /eos_token_id/d \"$D/config.json\"", "");
    expect_eos(NULL, 0);
    struct err e = ERR_INIT;
    shell("echo '{\"eos_token_id\":\"</s>\"}' > \"$D/generation_config.json\"", "");
    assert_null(load(1, 0, &e));
    assert_non_null(strstr(e.msg, "`eos_token_id` must be an integer or a list of integers"));
}

TEST(test_info)
{
    struct err e = ERR_INIT;
    if (no_data())
        return;
    copy("s/nothing/nothing/");
    struct model *whole = load(1, 0, &e), *part = load(4, 3, &e);
    assert_non_null(whole);
    assert_non_null(part);
    const struct model_info *i = model_info(whole);
    assert_string_equal(i->type, "llama");
    assert_int_equal(i->vocab, 320);
    assert_int_equal(i->max_positions, 512);
    assert_int_equal(i->n_layers, 3);
    assert_int_equal(i->n_kv_heads, 4);
    assert_int_equal(i->dtype, DT_F32);
    assert_int_equal(model_info(part)->n_kv_heads, 4); /* of the whole model */
    assert_in_range(model_info(part)->weight_bytes, i->weight_bytes / 4, i->weight_bytes / 3);
    assert_in_range(model_kv_block_bytes(part, 16, KV_F32),
                    model_kv_block_bytes(whole, 16, KV_F32) / 4,
                    model_kv_block_bytes(whole, 16, KV_F32) - 1);
    model_free(part);
    model_free(whole);
}

static void forward_one(float *logits)
{
    struct err e = ERR_INIT;
    uint32_t id = 5, zero = 0;
    const struct span span = {0, 1, 1, &zero, 0};
    const struct ragged b = {1, 1, 1, &id, &zero, &zero, &span, &zero};
    struct model *m = load(1, 0, &e);
    if (!m || model_kv_resize(m, 1, 16, KV_F32, &e) || model_forward(m, &b, logits, &e))
        fail_msg("%s", e.msg);
    model_free(m);
}

/* The format aligns nothing: one blank more in the header moves every tensor to an odd address. */
/* A head that was trained by itself is used, although config.json says that it is the embedding. */
TEST(test_stored_head)
{
    static float untied[320], tied[320];
    if (no_data())
        return;
    copy("s/nothing/nothing/");
    forward_one(untied);
    copy("s/\"tie_word_embeddings\": false/\"tie_word_embeddings\": true/");
    assert_int_equal(shell("grep -q '\"tie_word_embeddings\": true' \"$D/config.json\"", ""), 0);
    forward_one(tied);
    assert_memory_equal(untied, tied, sizeof(tied));
}

TEST(test_odd_addresses)
{
    static float even[320], odd[320];
    char path[128];
    struct err e;
    size_t n;
    if (no_data())
        return;
    copy("s/nothing/nothing/");
    forward_one(even);
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    char *bytes = file_read(path, 1 << 24, &n, &e);
    uint64_t header;
    assert_non_null(bytes);
    memcpy(&header, bytes, 8);
    size_t rest = 8 + header;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    header++;
    fwrite(&header, 8, 1, f);
    fwrite(bytes + 8, 1, rest - 8, f);
    fputc(' ', f);
    fwrite(bytes + rest, 1, n - rest, f);
    assert_int_equal(fclose(f), 0);
    free(bytes);
    forward_one(odd);
    assert_memory_equal(even, odd, sizeof(odd));
}

/* Ids and positions come from a peer: they are looked at before they index anything. */
TEST(test_refuses_ids)
{
    static float logits[320];
    struct err e = ERR_INIT;
    uint32_t id = 320, zero = 0;
    const struct span span = {0, 1, 1, &zero, 0};
    const struct ragged b = {1, 1, 1, &id, &zero, &zero, &span, &zero};
    if (no_data())
        return;
    copy("s/nothing/nothing/");
    struct model *m = load(1, 0, &e);
    assert_non_null(m);
    assert_int_equal(model_kv_resize(m, 1, 16, KV_F32, &e), 0);
    assert_int_equal(model_forward(m, &b, logits, &e), -1);
    assert_string_equal(e.msg, "token id 320 is not below the vocabulary size 320");
    id = 319;
    assert_int_equal(model_forward(m, &b, logits, &e), 0);
    model_free(m);
}

static size_t copied;

static int copy_counted(struct device *d, void *dst, const void *src, size_t bytes, struct err *e)
{
    copied += bytes;
    return backend_cpu.download(d, dst, src, bytes, e);
}

static struct comm *no_comm(struct device *d, struct comm *host, struct err *e)
{
    (void)d, (void)host, (void)e;
    return NULL;
}

/* The logits of some tokens, in one pass or in several; `host`: the device's memory is the host's.
 * Returns the bytes that were copied from the device. */
static size_t forward_counted(float *logits, bool host, uint64_t step_bytes)
{
    enum { N = 3 };
    struct err e = ERR_INIT;
    uint32_t ids[N] = {5, 9, 300}, pos[N] = {0, 1, 2}, slots[N] = {0, 1, 2}, zero = 0;
    const struct span span = {0, N, N, &zero, 0};
    const struct ragged b = {N, 1, N, ids, pos, slots, &span, pos};
    struct backend_ops ops = backend_cpu;
    struct comm alone = {.rank = 0, .world = 1};
    ops.download = copy_counted;
    ops.comm_open = host ? NULL : no_comm;
    ops.step_bytes = step_bytes;
    struct model *m = model_load(
        dir, &(struct model_options){.ops = &ops, .dev = dev, .comm = &alone, .dtype = -1}, &e);
    if (!m || model_kv_resize(m, 1, 16, KV_F32, &e))
        fail_msg("%s", e.msg);
    copied = 0;
    if (model_forward(m, &b, logits, &e))
        fail_msg("%s", e.msg);
    model_free(m);
    return copied;
}

/* The head writes them to the memory of the caller, unless the device has memory of its own. */
TEST(test_logits_are_not_copied)
{
    static float want[3 * 320], got[3 * 320];
    if (no_data())
        return;
    copy("s/nothing/nothing/");
    assert_int_equal(forward_counted(want, false, 0), sizeof(want));
    assert_int_equal(forward_counted(got, true, 0), 0);
    assert_memory_equal(want, got, sizeof(want));
    memset(got, 0, sizeof(got));
    assert_int_equal(forward_counted(got, true, 1), 0);
    assert_memory_equal(want, got, sizeof(want));
}

int main(void) { return tests_run(start, stop); }
