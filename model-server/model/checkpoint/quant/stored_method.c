/* The methods of quantisation that config.json may name: one row each. An unsupported variant of
 * a key is refused by name, because a wrong guess gives text that only looks like an answer. */
#include "model-server/model/checkpoint/quant/stored_method.h"
#include "common/json/json.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A number of columns or rows; absent, null and -1: 0. */
static uint32_t size_of(struct config *c, const cJSON *o, const char *key)
{
    const cJSON *j = json_get(o, key);
    double v = !j ? -1 : cJSON_IsNumber(j) ? j->valuedouble : NAN;
    if (v == -1)
        return 0;
    if (v >= 1 && v <= INT32_MAX && v == floor(v))
        return (uint32_t)v;
    config_fail(c, "quantization_config: `%s` must be a positive integer or -1", key);
    return 0;
}

/* One of the words (NULL-terminated); the first is the default. */
static const char *word_of(struct config *c, const cJSON *o, const char *key,
                           const char *const *words)
{
    const char *w = json_str(o, key, words[0]);
    for (int i = 0; words[i]; i++)
        if (strcmp(w, words[i]) == 0)
            return words[i];
    config_fail(c, "quantization_config: `%s` %.60s is not supported", key, w);
    return words[0];
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* `any`: else some of them. */
static void bits_of_code(struct config *c, struct stored *s, double bits, bool any)
{
    if (bits == 2 || bits == 3 || bits == 4 || bits == 8 || (any && bits >= 2 && bits <= 8))
        s->bits = (uint32_t)bits;
    else
        config_fail(c, "quantization_config: weights of %g bits are not supported", bits);
}

/* ---------------------------------------------------------------- the methods */

/* GPTQModel's `dynamic`: patterns of module names with parameters of their own. Their tensors show
 * bits and groups, and which modules are not quantised ("-:PATTERN"). */
static void check_dynamic(struct config *c, const cJSON *q, struct stored *s)
{
    enum { SHOWN = 3 }; /* the first ones by the tensors; the others change nothing in them */
    static const char *const anywhere[] = {
        "bits",         "group_size",    "sym", "desc_act", "act_group_aware",
        "damp_percent", "static_groups", "mse"};
    const cJSON *module, *j;
    cJSON_ArrayForEach(module, config_object(c, q, "dynamic"))
    {
        if (strncmp(module->string, "-:", 2) == 0)
            continue;
        cJSON_ArrayForEach(j, module)
        {
            bool fine = cJSON_Compare(j, json_get(q, j->string), true);
            for (size_t i = 0; i < sizeof(anywhere) / sizeof(anywhere[0]) && !fine; i++) {
                fine = strcmp(j->string, anywhere[i]) == 0;
                s->varies |= fine && i < SHOWN;
            }
            if (!fine)
                config_fail(
                    c,
                    "quantization_config: `dynamic`: another `%.40s` for `%.80s` is not supported",
                    j->string, module->string);
        }
    }
}

static void read_gptq(struct config *c, const cJSON *q, struct stored *s)
{
    s->format = &stored_gptq;
    bits_of_code(c, s, json_num(q, "bits", 4), false);
    s->group = size_of(c, q, "group_size");
    s->row_block = 1;
    s->symmetric = json_bool(q, "sym", false);
    const char *f = word_of(c, q, "checkpoint_format", WORDS("gptq", "gptq_v2"));
    s->zero_bias = strcmp(f, "gptq") == 0;
    word_of(c, q, "pack_dtype", WORDS("int32"));
    if (json_bool(q, "is_marlin_format", false))
        config_fail(c, "quantization_config: Marlin's own layout is not supported");
    check_dynamic(c, q, s);
}

static void read_awq(struct config *c, const cJSON *q, struct stored *s)
{
    s->format = &stored_awq;
    double bits = json_num(q, "bits", json_num(q, "w_bit", 4));
    if (bits != 4)
        config_fail(c, "quantization_config: AWQ's files have 4 bits, not %g", bits);
    s->bits = 4;
    s->group = size_of(c, q, json_get(q, "group_size") ? "group_size" : "q_group_size");
    s->row_block = 1;
    s->symmetric = !json_bool(q, "zero_point", true);
    word_of(c, q, "version", WORDS("gemm", "GEMM"));
}

static void read_block(struct config *c, const cJSON *q, const char *key, struct stored *s)
{
    const cJSON *j = json_get(q, key), *rows = j ? j->child : NULL,
                *cols = rows ? rows->next : NULL;
    if (!cJSON_IsArray(j) || !cols || cols->next || !cJSON_IsNumber(rows) ||
        !cJSON_IsNumber(cols) || !(rows->valuedouble >= 1 && rows->valuedouble <= INT32_MAX) ||
        !(cols->valuedouble >= 1 && cols->valuedouble <= INT32_MAX)) {
        config_fail(c, "quantization_config: `%s` must be two positive integers", key);
        return;
    }
    s->row_block = (uint32_t)rows->valuedouble;
    s->group = (uint32_t)cols->valuedouble;
}

/* One scale for a tensor or for each of its rows: the file decides. */
static void read_fp8(struct config *c, const cJSON *q, struct stored *s)
{
    s->bits = 8;
    s->is_float = s->symmetric = true;
    s->format = &stored_scaled;
    if (!json_get(q, "weight_block_size"))
        return;
    s->format = &stored_scaled_inv;
    read_block(c, q, "weight_block_size", s);
}

static void read_mxfp4(struct config *c, const cJSON *q, struct stored *s)
{
    (void)c, (void)q; /* the file decides which modules are not converted */
    s->bits = 4;
    s->group = 32;
    s->row_block = 1;
    s->is_float = s->symmetric = true;
    s->format = &stored_mxfp4;
}

/* The scheme of the weights. *differ: there are several. NULL and an error: there is none. */
static const cJSON *scheme_of(struct config *c, const cJSON *q, bool *differ)
{
    const cJSON *groups = json_get(q, "config_groups"), *g, *found = NULL;
    *differ = false;
    cJSON_ArrayForEach(g, groups)
    {
        const cJSON *w = json_get(g, "weights");
        *differ |= found && w && !cJSON_Compare(found, w, true);
        found = w ? w : found;
    }
    if (!found)
        config_fail(c, "quantization_config: config_groups say nothing of weights");
    return found;
}

static void read_strategy(struct config *c, const cJSON *w, struct stored *s)
{
    const char *strategy = word_of(c, w, "strategy", WORDS("tensor", "channel", "group", "block"));
    if (strcmp(strategy, "group") == 0 && !(s->group = size_of(c, w, "group_size")))
        config_fail(c, "quantization_config: `group_size` is missing");
    if (strcmp(strategy, "block") == 0)
        read_block(c, w, "block_structure", s);
    else
        s->row_block = strcmp(strategy, "tensor") != 0;
}

/* NVFP4 and MXFP4. */
static void read_fp4(struct config *c, const cJSON *w, const char *format, struct stored *s)
{
    const bool nv = strncmp(format, "nv", 2) == 0;
    s->group = nv ? 16 : 32;
    word_of(c, w, "type", WORDS("float"));
    word_of(c, w, "strategy", WORDS(nv ? "tensor_group" : "group"));
    if (json_num(w, "num_bits", 4) != 4 || json_num(w, "group_size", s->group) != s->group)
        config_fail(c, "quantization_config: %s has 4 bits and groups of %u", format, s->group);
    s->bits = 4;
    s->row_block = 1;
    s->is_float = s->symmetric = true;
    s->divides = nv;
    s->format = nv ? &stored_nvfp4_packed : &stored_mxfp4_packed;
}

#define CT_FORMATS                                                                                 \
    WORDS("dense", "int-quantized", "float-quantized", "naive-quantized", "mxfp8-quantized",       \
          "pack-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mixed-precision")

/* Matrices of different formats or parameters: their tensors show which. */
static void read_mixed(struct config *c, const cJSON *q, struct stored *s)
{
    const cJSON *g;
    s->format = &stored_mixed;
    s->varies = true;
    cJSON_ArrayForEach(g, json_get(q, "config_groups"))
    {
        const cJSON *w = json_get(g, "weights");
        word_of(c, g, "format", CT_FORMATS);
        if (!w)
            continue;
        const char *type = word_of(c, w, "type", WORDS("int", "float"));
        const double bits = json_num(w, "num_bits", 8);
        if (strcmp(type, "int") == 0)
            bits_of_code(c, s, bits, true);
        else if (bits != 4 && bits != 8)
            config_fail(c, "quantization_config: weights of %g floating-point bits", bits);
        if (strcmp(json_str(w, "strategy", ""), "block") == 0)
            read_block(c, w, "block_structure", s);
    }
}

static void read_compressed(struct config *c, const cJSON *q, struct stored *s)
{
    bool differ;
    const char *format = word_of(c, q, "format", CT_FORMATS);
    word_of(c, q, "quantization_status", WORDS("compressed", "frozen"));
    word_of(c, json_get(q, "sparsity_config"), "format", WORDS("dense"));
    const cJSON *transforms = json_get(q, "transform_config"), *w = scheme_of(c, q, &differ);
    if (transforms && transforms->child)
        config_fail(c, "quantization_config: `transform_config` is not supported");
    if (strcmp(format, "dense") == 0)
        config_fail(c, "quantization_config: `format` is missing or dense");
    if (differ || strcmp(format, "mixed-precision") == 0) {
        read_mixed(c, q, s);
        return;
    }
    if (strstr(format, "fp4-pack")) {
        read_fp4(c, w, format, s);
        return;
    }
    const bool packed = strcmp(format, "pack-quantized") == 0;
    s->is_float = strcmp(word_of(c, w, "type", WORDS("int", "float")), "float") == 0;
    s->symmetric = json_bool(w, "symmetric", true);
    s->format = packed ? &stored_packed : &stored_scaled;
    bits_of_code(c, s, json_num(w, "num_bits", 8), packed);
    if (s->is_float && (s->bits != 8 || packed))
        config_fail(c,
                    "quantization_config: weights of %u floating-point bits in %s are not "
                    "supported",
                    s->bits, format);
    read_strategy(c, w, s);
}

/* Those whose weights alone are a matrix: AWQ's have scales of the inputs, too. */
static const char *const modelopt_algos[] = {"FP8",
                                             "FP8_PER_CHANNEL_PER_TOKEN",
                                             "FP8_PB_WO",
                                             "MXFP8",
                                             "MXFP4",
                                             "NVFP4",
                                             "W4A16_NVFP4",
                                             "W4A8_NVFP4_FP8",
                                             "W4A8_MXFP4_FP8",
                                             NULL};

/* Each quantised module has its own algorithm, which its tensors show. Others, of which some have
 * tensors that are not read (AWQ's scales of activations), are refused. */
static void read_modelopt_layers(struct config *c, const cJSON *q, struct stored *s)
{
    const cJSON *layer;
    s->format = &stored_mixed;
    s->varies = true;
    cJSON_ArrayForEach(layer, config_object(c, q, "quantized_layers"))
        word_of(c, layer, "quant_algo", modelopt_algos);
}

/* NVIDIA's modelopt: its own file has an object around what config.json contains. */
static void read_modelopt(struct config *c, const cJSON *q, struct stored *s)
{
    const cJSON *inner = json_get(q, "quantization");
    const char *algo = json_str(inner ? inner : q, "quant_algo", "none");
    s->is_float = s->symmetric = true;
    s->bits = 8;
    s->format = &stored_scaled;
    if (strcmp(algo, "FP8") == 0 || strcmp(algo, "FP8_PER_CHANNEL_PER_TOKEN") == 0)
        return;
    if (strcmp(algo, "MIXED_PRECISION") == 0) {
        read_modelopt_layers(c, inner ? inner : q, s);
        return;
    }
    bool known = false;
    for (int i = 0; modelopt_algos[i]; i++)
        known |= strcmp(algo, modelopt_algos[i]) == 0;
    if (!known) {
        config_fail(c,
                    "quantization_config: modelopt's `quant_algo` %.40s is not supported "
                    "(known: FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, MXFP8, MXFP4, NVFP4, "
                    "W4A16_NVFP4, W4A8_NVFP4_FP8, W4A8_MXFP4_FP8, MIXED_PRECISION)",
                    algo);
        return;
    }
    if (!strstr(algo, "NVFP4")) { /* the tensors show type and blocks; a short one is of 128 */
        s->row_block = s->group = strcmp(algo, "FP8_PB_WO") == 0 ? 128 : 0;
        s->format = &stored_mixed;
        s->varies = true;
        return;
    }
    s->bits = 4;
    s->format = &stored_nvfp4;
    s->row_block = 1;
    s->group = size_of(c, inner ? inner : q, "group_size");
    if (s->group && s->group != 16)
        config_fail(c, "quantization_config: NVFP4 with a `group_size` of %u", s->group);
    s->group = 16;
}

static void read_bitsandbytes(struct config *c, const cJSON *q, struct stored *s)
{
    s->symmetric = true;
    s->row_block = 1;
    if (!json_bool(q, "load_in_4bit", false)) {
        s->bits = 8;
        s->scale_by = 1.0f / 127;
        s->format = &stored_llm_int8;
        return;
    }
    const char *type = word_of(c, q, "bnb_4bit_quant_type", WORDS("fp4", "nf4"));
    /* bytes of codes may be named as another type, for training in parts (FSDP) */
    s->plain = strcmp(word_of(c, q, "bnb_4bit_quant_storage",
                              WORDS("uint8", "bfloat16", "float16", "float32")),
                      "uint8") != 0;
    s->bits = 4;
    s->is_float = true;
    s->format = strcmp(type, "nf4") == 0 ? &stored_nf4 : &stored_fp4;
}

/* The masters of AutoBitLinear are all linear layers but the head: files that leave out others are
 * not known. */
static void check_left_out(struct config *c, const cJSON *q)
{
    const cJSON *j, *left = json_get(q, "modules_to_not_convert");
    bool fine = !left || cJSON_IsNull(left) || (cJSON_IsArray(left) && left->child);
    cJSON_ArrayForEach(j, left) fine &= cJSON_IsString(j) && strcmp(j->valuestring, "lm_head") == 0;
    if (!fine)
        config_fail(c, "quantization_config: `modules_to_not_convert` of online bitnet must be "
                       "absent or [\"lm_head\"]");
}

static void read_bitnet(struct config *c, const cJSON *q, struct stored *s)
{
    const char *class = word_of(c, q, "linear_class", WORDS("bitlinear", "autobitlinear"));
    const char *mode = word_of(c, q, "quantization_mode", WORDS("offline", "online"));
    const bool own = strcmp(class, "autobitlinear") == 0;
    if (json_bool(q, "use_rms_norm", false))
        config_fail(c, "quantization_config: bitnet with `use_rms_norm` is not supported");
    s->bits = 2;
    s->symmetric = true;
    s->divides = !own;
    s->plain = own;
    s->format = &stored_ternary;
    if (!own || strcmp(mode, "online") != 0)
        return;
    s->format = &stored_ternary_masters;
    check_left_out(c, q);
}

/* Intel's AutoRound writes the layouts of others, and may choose bits for each module
 * (`extra_config`). */
static void read_auto_round(struct config *c, const cJSON *q, struct stored *s)
{
    const char *key = json_get(q, "packing_format") ? "packing_format" : "backend";
    const char *packing =
        word_of(c, q, key,
                WORDS("auto_round:auto_gptq", "auto_round:gptq", "auto_round",
                      "auto_round:gptqmodel", "auto_round:auto_awq", "auto_round:awq",
                      "auto_round:llm_compressor", "auto_round:fp8_static", "auto_round:fp8"));
    const cJSON *rotation = json_get(q, "rotation_config");
    if (rotation && rotation->child)
        config_fail(c, "quantization_config: `rotation_config` is not supported");
    s->varies = true;
    s->symmetric = json_bool(q, "sym", true);
    s->group = size_of(c, q, "group_size");
    s->row_block = 1;
    if (strstr(packing, "llm_compressor") || strstr(packing, "fp8")) {
        s->format = &stored_mixed;
        return;
    }
    word_of(c, q, "data_type", WORDS("int", "int_sym", "int_asym"));
    if (strstr(packing, "awq")) {
        read_awq(c, q, s);
        s->symmetric = json_bool(q, "sym", true);
        return;
    }
    s->format = &stored_gptq;
    s->zero_bias = strstr(packing, "gptqmodel") == NULL && strchr(packing, ':') != NULL;
    bits_of_code(c, s, json_num(q, "bits", 4), false);
}

/* One scheme of AMD's Quark. */
static void check_quark(struct config *c, const cJSON *scheme)
{
    const cJSON *w = json_get(scheme, "weight");
    if (!w || cJSON_IsNull(w))
        return;
    if (cJSON_IsArray(w)) {
        config_fail(c, "quantization_config: Quark's weights in two stages are not supported");
        return;
    }
    const char *type = word_of(c, w, "dtype", WORDS("fp8_e4m3", "int8", "fp4"));
    if (strcmp(type, "fp4") != 0)
        return;
    word_of(c, w, "scale_format", WORDS("e8m0"));
    if (json_num(w, "group_size", 32) != 32)
        config_fail(c, "quantization_config: Quark's fp4 with a `group_size` of %g",
                    json_num(w, "group_size", 0));
}

static void read_quark(struct config *c, const cJSON *q, struct stored *s)
{
    const cJSON *layer, *algo = json_get(q, "algo_config");
    s->format = &stored_mixed;
    s->varies = true;
    check_quark(c, json_get(q, "global_quant_config"));
    cJSON_ArrayForEach(layer, json_get(q, "layer_quant_config")) check_quark(c, layer);
    cJSON_ArrayForEach(layer, json_get(q, "layer_type_quant_config")) check_quark(c, layer);
    word_of(c, json_get(q, "export"), "weight_format", WORDS("real_quantized"));
    for (algo = cJSON_IsArray(algo) ? algo->child : algo; algo; algo = algo->next)
        if (strstr(json_str(algo, "name", ""), "rot"))
            config_fail(c, "quantization_config: Quark's `algo_config` %.40s is not supported",
                        json_str(algo, "name", ""));
}

/* Apple's MLX names no method, and modules that differ by their whole names. */
static void read_mlx(struct config *c, const cJSON *q, struct stored *s)
{
    const char *mode = word_of(c, q, "mode", WORDS("affine", "mxfp4", "mxfp8", "nvfp4"));
    s->format = &stored_mlx;
    s->varies = true;
    bits_of_code(c, s, json_num(q, "bits", 4), true);
    s->group = size_of(c, q, "group_size");
    s->row_block = 1;
    s->is_float = strcmp(mode, "affine") != 0;
}

/* A scheme of torchao, or an object with those of modules ("default", names, patterns). */
static void check_torchao(struct config *c, const cJSON *o, int depth)
{
    static const char *const known[] = {"Int8WeightOnlyConfig",
                                        "Int8DynamicActivationInt8WeightConfig",
                                        "Int8StaticActivationInt8WeightConfig",
                                        "Int8DynamicActivationInt4WeightConfig",
                                        "Int8DynamicActivationIntxWeightConfig",
                                        "IntxWeightOnlyConfig",
                                        "Int4WeightOnlyConfig",
                                        "Float8WeightOnlyConfig",
                                        "Float8DynamicActivationFloat8WeightConfig",
                                        "Float8StaticActivationFloat8WeightConfig",
                                        "Float8DynamicActivationInt4WeightConfig",
                                        NULL};
    enum { DEEPEST = 4 };
    const char *type = json_str(o, "_type", NULL);
    const cJSON *j;
    if (!cJSON_IsObject(o) || depth > DEEPEST)
        return;
    for (int i = 0; type && known[i]; i++)
        if (strcmp(type, known[i]) == 0)
            return;
    if (type && !strstr(type, "FqnToConfig") && strcmp(type, "AOPerModuleConfig") != 0)
        config_fail(c, "quantization_config: torchao's %.60s is not supported", type);
    else if (type) /* _data, then its map of modules */
        cJSON_ArrayForEach(j, json_get(o, "_data")) check_torchao(c, j, depth + 1);
    else
        cJSON_ArrayForEach(j, o) check_torchao(c, j, depth + 1);
}

static void read_torchao(struct config *c, const cJSON *q, struct stored *s)
{
    const cJSON *type = json_get(q, "quant_type");
    s->format = &stored_torchao;
    s->varies = true;
    s->bits = 8;
    s->row_block = 1;
    if (cJSON_IsObject(type))
        check_torchao(c, type, 0);
    else
        config_fail(c,
                    "quantization_config: torchao's `quant_type` %.60s: files of torchao before "
                    "0.14 are not supported",
                    cJSON_IsString(type) ? type->valuestring : "is no object and");
}

/* Each matrix has its parameters beside it. */
static void read_hqq(struct config *c, const cJSON *q, struct stored *s)
{
    (void)c, (void)q;
    s->format = &stored_hqq;
    s->varies = true;
    s->bits = 4;
    s->row_block = 1;
}

/* Each tensor has its own packing. */
static void read_gguf(struct config *c, const cJSON *q, struct stored *s)
{
    (void)c, (void)q;
    s->format = &stored_blocks;
    s->row_block = 1;
}

static const struct {
    const char *name;
    void (*read)(struct config *c, const cJSON *q, struct stored *s);
    bool unlisted; /* another name of a method, or one that no config.json has */
} methods[] = {
    {"gptq", read_gptq},
    {"awq", read_awq},
    {"fp8", read_fp8},
    {"fbgemm_fp8", read_fp8},
    {"compressed-tensors", read_compressed},
    {"mxfp4", read_mxfp4},
    {"gguf", read_gguf, true},
    {"modelopt", read_modelopt},
    {"bitsandbytes", read_bitsandbytes},
    {"bitnet", read_bitnet},
    {"auto-round", read_auto_round},
    {"intel/auto-round", read_auto_round, true},
    {"quark", read_quark},
    {"mlx", read_mlx},
    {"torchao", read_torchao},
    {"hqq", read_hqq},
};
enum { N_METHODS = sizeof(methods) / sizeof(methods[0]) };

void stored_method_read(struct config *c, const cJSON *q, const char *def, struct stored *s)
{
    const char *name = json_str(q, "quant_method", def);
    if (!json_get(q, "quant_method") && json_get(q, "group_size") && json_get(q, "bits") &&
        strcmp(def, "gptq") != 0)
        name = "mlx";
    for (int i = 0; i < N_METHODS; i++)
        if (strcmp(methods[i].name, name) == 0) {
            s->method = methods[i].name;
            methods[i].read(c, q, s);
            return;
        }
    char known[256] = "";
    for (int i = 0, at = 0; i < N_METHODS && at < (int)sizeof(known); i++)
        if (!methods[i].unlisted)
            at += snprintf(known + at, sizeof(known) - (size_t)at, "%s%s", at ? ", " : "",
                           methods[i].name);
    config_fail(c, "weights quantised by `%.40s` are not supported (known: %s)", name, known);
}
