/* What config.json says of how a checkpoint is stored, what it must not say, and whether --quantize
 * agrees. */
#include "model-server/model/checkpoint/quant/stored.h"
#include "tests/temp_folder.h"
#include "tests/unit/test.h"
#include <string.h>
#include <unistd.h>

TEMP_FOLDER(dir, "test-stored")

static void write_file(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int read_config(const char *q, struct stored *s, struct err *e)
{
    char text[2048];
    snprintf(text, sizeof(text), "{\"quantization_config\":%s}", q);
    write_file("config.json", text);
    *e = (struct err)ERR_INIT;
    return stored_read(s, dir, e);
}

#define CT(format, weights)                                                                        \
    "{\"quant_method\":\"compressed-tensors\",\"format\":\"" format                                \
    "\",\"config_groups\":{\"group_0\":{\"weights\":{" weights "}}}}"

TEST(test_config)
{
    static const struct {
        const char *text;
        struct stored is;
    } cases[] = {
        {"null", {0}},
        {"{\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":-1,\"sym\":true}",
         {&stored_gptq, "gptq", 8, 0, 1, 1, true, false}},
        {"{\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":-1,\"sym\":true,\"dynamic\":"
         "{\"-:.*attn.*\":{},\"lm_head\":{},\"b\":{\"bits\":8,\"desc_act\":true}}}",
         {&stored_gptq, "gptq", 8, 0, 1, 1, true, false}},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128,"
         "\"checkpoint_format\":\"gptq_v2\"}",
         {&stored_gptq, "gptq", 4, 128, 1, 0, false, false}},
        {"{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":64,\"zero_point\":true}",
         {&stored_awq, "awq", 4, 64, 1, 0, false, false}},
        {"{\"quant_method\":\"fp8\",\"activation_scheme\":\"static\"}",
         {&stored_scaled, "fp8", 8, 0, 0, 0, true, true}},
        {"{\"quant_method\":\"fbgemm_fp8\"}",
         {&stored_scaled, "fbgemm_fp8", 8, 0, 0, 0, true, true}},
        {"{\"quant_method\":\"mxfp4\",\"modules_to_not_convert\":[\"lm_head\"]}",
         {&stored_mxfp4, "mxfp4", 4, 32, 1, 0, true, true}},
        {"{\"quant_method\":\"fp8\",\"weight_block_size\":[128,64]}",
         {&stored_scaled_inv, "fp8", 8, 64, 128, 0, true, true}},
        {CT("pack-quantized", "\"num_bits\":4,\"type\":\"int\",\"strategy\":\"group\","
                              "\"group_size\":32,\"symmetric\":false"),
         {&stored_packed, "compressed-tensors", 4, 32, 1, 0, false, false}},
        {CT("int-quantized", "\"num_bits\":8,\"type\":\"int\",\"strategy\":\"channel\""),
         {&stored_scaled, "compressed-tensors", 8, 0, 1, 0, true, false}},
        {CT("float-quantized", "\"num_bits\":8,\"type\":\"float\",\"strategy\":\"tensor\""),
         {&stored_scaled, "compressed-tensors", 8, 0, 0, 0, true, true}},
        {CT("nvfp4-pack-quantized", "\"num_bits\":4,\"type\":\"float\",\"strategy\":"
                                    "\"tensor_group\",\"group_size\":16"),
         {&stored_nvfp4_packed, "compressed-tensors", 4, 16, 1, 0, true, true, .divides = true}},
        {CT("mxfp4-pack-quantized", "\"num_bits\":4,\"type\":\"float\",\"strategy\":"
                                    "\"group\",\"group_size\":32"),
         {&stored_mxfp4_packed, "compressed-tensors", 4, 32, 1, 0, true, true}},
        {CT("mxfp8-quantized", "\"num_bits\":8,\"type\":\"float\",\"strategy\":"
                               "\"group\",\"group_size\":32"),
         {&stored_scaled, "compressed-tensors", 8, 32, 1, 0, true, true}},
        {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\",\"group_size\":16}",
         {&stored_nvfp4, "modelopt", 4, 16, 1, 0, true, true}},
        {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\"}",
         {&stored_scaled, "modelopt", 8, 0, 0, 0, true, true}},
        {"{\"quant_method\":\"bitsandbytes\",\"load_in_8bit\":true}",
         {&stored_llm_int8, "bitsandbytes", 8, 0, 1, 0, true, false, .scale_by = 1.0f / 127}},
        {"{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true,"
         "\"bnb_4bit_quant_type\":\"nf4\",\"bnb_4bit_use_double_quant\":true}",
         {&stored_nf4, "bitsandbytes", 4, 0, 1, 0, true, true}},
        {"{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true,"
         "\"bnb_4bit_quant_storage\":\"bfloat16\"}",
         {&stored_fp4, "bitsandbytes", 4, 0, 1, 0, true, true, .plain = true}},
        {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8_PB_WO\"}",
         {&stored_mixed, "modelopt", 8, 128, 128, 0, true, true, .varies = true}},
        {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"MXFP8\"}",
         {&stored_mixed, "modelopt", 8, 0, 0, 0, true, true, .varies = true}},
        {"{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true}",
         {&stored_fp4, "bitsandbytes", 4, 0, 1, 0, true, true}},
        {"{\"quant_method\":\"bitnet\",\"quantization_mode\":\"online\"}",
         {&stored_ternary, "bitnet", 2, 0, 0, 0, true, .divides = true}},
        {"{\"quant_method\":\"bitnet\",\"linear_class\":\"autobitlinear\"}",
         {&stored_ternary, "bitnet", 2, 0, 0, 0, true, .plain = true}},
        {"{\"quant_method\":\"bitnet\",\"linear_class\":\"autobitlinear\","
         "\"quantization_mode\":\"online\",\"modules_to_not_convert\":[\"lm_head\"]}",
         {&stored_ternary_masters, "bitnet", 2, 0, 0, 0, true, .plain = true}},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"sym\":true,\"dynamic\":"
         "{\"a\":{\"bits\":8,\"group_size\":-1}}}",
         {&stored_gptq, "gptq", 4, 32, 1, 1, true, false, .varies = true}},
        {CT("pack-quantized", "\"num_bits\":3,\"type\":\"int\",\"strategy\":\"channel\""),
         {&stored_packed, "compressed-tensors", 3, 0, 1, 0, true, false}},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"mixed-precision\","
         "\"config_groups\":{\"a\":{\"format\":\"float-quantized\",\"weights\":{\"num_bits\":8,"
         "\"type\":\"float\",\"strategy\":\"block\",\"block_structure\":[128,64]}},"
         "\"b\":{\"weights\":{\"num_bits\":5,\"type\":\"int\"}}}}",
         {&stored_mixed, "compressed-tensors", 5, 64, 128, .varies = true}},
        {"{\"quant_method\":\"auto-round\",\"packing_format\":\"auto_round:auto_gptq\",\"bits\":2,"
         "\"group_size\":64,\"sym\":true,\"extra_config\":{\"x\":{\"bits\":8}}}",
         {&stored_gptq, "auto-round", 2, 64, 1, 1, true, .varies = true}},
        {"{\"quant_method\":\"intel/auto-round\",\"packing_format\":\"auto_round\",\"bits\":4,"
         "\"group_size\":128,\"sym\":false}",
         {&stored_gptq, "intel/auto-round", 4, 128, 1, 0, false, .varies = true}},
        {"{\"quant_method\":\"auto-round\",\"packing_format\":\"auto_round:auto_awq\",\"bits\":4,"
         "\"group_size\":128,\"sym\":false}",
         {&stored_awq, "auto-round", 4, 128, 1, 0, false, .varies = true}},
        {"{\"quant_method\":\"auto-round\",\"packing_format\":\"auto_round:llm_compressor\","
         "\"data_type\":\"mx_fp\",\"bits\":4,\"group_size\":32}",
         {&stored_mixed, "auto-round", 0, 32, 1, 0, true, .varies = true}},
        {"{\"quant_method\":\"quark\",\"global_quant_config\":{\"weight\":{\"dtype\":\"fp8_e4m3\"}}"
         ","
         "\"layer_quant_config\":{\"x\":{\"weight\":{\"dtype\":\"fp4\",\"scale_format\":\"e8m0\","
         "\"group_size\":32}}},\"algo_config\":[{\"name\":\"gptq\"}],"
         "\"export\":{\"weight_format\":\"real_quantized\"}}",
         {&stored_mixed, "quark", .varies = true}},
        {"{\"group_size\":64,\"bits\":6,\"model.embed_tokens\":{\"bits\":8,\"group_size\":64}}",
         {&stored_mlx, "mlx", 6, 64, 1, .varies = true}},
        {"{\"group_size\":32,\"bits\":4,\"mode\":\"mxfp4\"}",
         {&stored_mlx, "mlx", 4, 32, 1, .is_float = true, .varies = true}},
        {"{\"quant_method\":\"torchao\",\"quant_type\":{\"default\":{\"_type\":"
         "\"Int4WeightOnlyConfig\",\"_data\":{\"group_size\":32}}}}",
         {&stored_torchao, "torchao", 8, 0, 1, .varies = true}},
        {"{\"quant_method\":\"hqq\",\"quant_config\":{}}",
         {&stored_hqq, "hqq", 4, 0, 1, .varies = true}},
        {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"MIXED_PRECISION\",\"quantized_layers\":"
         "{\"a\":{\"quant_algo\":\"FP8\"},\"b\":{\"quant_algo\":\"NVFP4\",\"group_size\":16}}}",
         {&stored_mixed, "modelopt", 8, 0, 0, 0, true, true, .varies = true}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct stored *want = &cases[i].is;
        struct stored s;
        struct err e;
        if (read_config(cases[i].text, &s, &e))
            fail_msg("%s", e.msg);
        assert_ptr_equal(s.format, want->format);
        assert_int_equal(s.bits, want->bits);
        assert_int_equal(s.group, want->group);
        assert_int_equal(s.row_block, want->row_block);
        assert_int_equal(s.zero_bias, want->zero_bias);
        assert_int_equal(s.symmetric, want->symmetric);
        assert_int_equal(s.divides, want->divides);
        assert_int_equal(s.plain, want->plain);
        assert_int_equal(s.varies, want->varies);
        assert_true(s.scale_by == want->scale_by);
        assert_int_equal(s.is_float, want->is_float);
        assert_int_equal(!s.method, !want->method);
        if (s.method)
            assert_string_equal(s.method, want->method);
    }
}

TEST(test_config_refuses)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"3", "`quantization_config` is no object"},
        {"{}", "weights quantised by `an unnamed method` are not supported"},
        {"{\"quant_method\":\"exl2\"}",
         "weights quantised by `exl2` are not supported (known: gptq"},
        {"{\"quant_method\":\"exl3\"}", "weights quantised by `exl3`"},
        {"{\"quant_method\":\"torchao\",\"quant_type\":\"int4_weight_only\"}",
         "`quant_type` int4_weight_only: files of torchao before 0.14"},
        {"{\"quant_method\":\"torchao\",\"quant_type\":{\"default\":{\"_type\":\"FqnToConfig\","
         "\"_data\":{\"a\":{\"b\":{\"_type\":\"NVFP4X\"}}}}}}",
         "torchao's NVFP4X is not supported"},
        {"{\"quant_method\":\"aqlm\"}", "weights quantised by `aqlm`"},
        {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"W4A8_AWQ\"}",
         "modelopt's `quant_algo` W4A8_AWQ is not supported"},
        {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\",\"group_size\":32}",
         "NVFP4 with a `group_size` of 32"},
        {"{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true,"
         "\"bnb_4bit_quant_type\":\"nf3\"}",
         "`bnb_4bit_quant_type` nf3 is not supported"},
        {"{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true,"
         "\"bnb_4bit_quant_storage\":\"float64\"}",
         "`bnb_4bit_quant_storage` float64 is not supported"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"nvfp4-pack-quantized\","
         "\"config_groups\":{\"a\":{\"weights\":{\"num_bits\":4,\"type\":\"float\","
         "\"strategy\":\"tensor_group\",\"group_size\":32}}}}",
         "nvfp4-pack-quantized has 4 bits and groups of 16"},
        {"{\"quant_method\":\"bitnet\",\"use_rms_norm\":true}", "`use_rms_norm`"},
        {"{\"quant_method\":\"bitnet\",\"linear_class\":\"x\"}", "`linear_class` x"},
        {"{\"quant_method\":\"bitnet\",\"linear_class\":\"autobitlinear\","
         "\"quantization_mode\":\"online\",\"modules_to_not_convert\":[]}",
         "`modules_to_not_convert` of online bitnet"},
        {"{\"quant_method\":\"gptq\",\"bits\":5}", "weights of 5 bits"},
        {"{\"quant_method\":\"gptq\",\"bits\":1e9}", "weights of 1e+09 bits"},
        {"{\"quant_method\":\"gptq\",\"group_size\":0}", "`group_size` must be"},
        {"{\"quant_method\":\"gptq\",\"group_size\":\"x\"}", "`group_size` must be"},
        {"{\"quant_method\":\"gptq\",\"checkpoint_format\":\"marlin\"}",
         "`checkpoint_format` marlin is not supported"},
        {"{\"quant_method\":\"gptq\",\"dynamic\":{\"a\":{\"checkpoint_format\":\"gptq_v2\"}}}",
         "another `checkpoint_format` for `a` is not supported"},
        {"{\"quant_method\":\"auto-round\",\"packing_format\":\"auto_round:exllamav2\"}",
         "`packing_format` auto_round:exllamav2 is not supported"},
        {"{\"quant_method\":\"auto-round\",\"rotation_config\":{\"x\":1}}", "`rotation_config`"},
        {"{\"quant_method\":\"quark\",\"global_quant_config\":{\"weight\":{\"dtype\":\"uint4\"}}}",
         "`dtype` uint4 is not supported"},
        {"{\"quant_method\":\"quark\",\"algo_config\":[{\"name\":\"rotation\"}]}",
         "`algo_config` rotation is not supported"},
        {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"MIXED_PRECISION\",\"quantized_layers\":"
         "{\"a\":{\"quant_algo\":\"NVFP4_AWQ\"}}}",
         "`quant_algo` NVFP4_AWQ is not supported"},
        {"{\"quant_method\":\"gptq\",\"dynamic\":[]}", "`dynamic` must be an object"},
        {"{\"quant_method\":\"awq\",\"bits\":8}", "4 bits, not 8"},
        {"{\"quant_method\":\"awq\",\"version\":\"gemv\"}", "`version` gemv is not supported"},
        {"{\"quant_method\":\"fp8\",\"weight_block_size\":[128]}", "two positive integers"},
        {"{\"quant_method\":\"fp8\",\"weight_block_size\":[0,1]}", "two positive integers"},
        {CT("marlin-24", "\"num_bits\":4"), "`format` marlin-24 is not supported"},
        {CT("pack-quantized", "\"num_bits\":4,\"strategy\":\"group\""), "`group_size` is missing"},
        {CT("pack-quantized", "\"type\":\"float\",\"strategy\":\"channel\""),
         "weights of 8 floating-point bits in pack-quantized"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"int-quantized\"}",
         "config_groups say nothing of weights"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stored s;
        struct err e;
        if (!read_config(cases[i].text, &s, &e))
            fail_msg("accepted: %s", cases[i].text);
        assert_int_equal(e.kind, ERR_VALIDATION);
        if (!strstr(e.msg, cases[i].says) || !strstr(e.msg, "/config.json: "))
            fail_msg("`%s` does not say `%s`", e.msg, cases[i].says);
        assert_null(strchr(e.msg, '\n'));
    }
}

TEST(test_config_in_a_file_of_its_own)
{
    struct stored s;
    struct err e = ERR_INIT;
    write_file("config.json", "{}");
    write_file("quant_config.json", "{\"w_bit\":4,\"q_group_size\":64,\"zero_point\":true}");
    assert_int_equal(stored_read(&s, dir, &e), 0);
    assert_ptr_equal(s.format, &stored_awq);
    assert_int_equal(s.group, 64);
    write_file("hf_quant_config.json",
               "{\"producer\":{\"name\":\"modelopt\"},\"quantization\":{\"quant_algo\":\"NVFP4\","
               "\"group_size\":16,\"exclude_modules\":[\"lm_head\"]}}");
    assert_int_equal(stored_read(&s, dir, &e), 0);
    assert_ptr_equal(s.format, &stored_nvfp4);
    write_file("quantize_config.json", "{\"bits\":8,\"group_size\":32,\"desc_act\":true}");
    assert_int_equal(stored_read(&s, dir, &e), 0);
    assert_ptr_equal(s.format, &stored_gptq);
    assert_int_equal(s.bits, 8);
}

/* Beside or within the text model's part. */
TEST(test_config_of_a_file_with_vision)
{
    static const char *const files[] = {
        "{\"text_config\":{},\"quantization_config\":{\"quant_method\":\"fp8\"}}",
        "{\"text_config\":{\"quantization_config\":{\"quant_method\":\"fp8\"}}}",
        "{\"text_config\":{\"quantization_config\":{\"quant_method\":\"fp8\"}},"
        "\"quantization_config\":{\"quant_method\":\"gptq\"}}",
        "{\"text_config\":{},\"compression_config\":{\"quant_method\":\"fp8\"}}"};
    struct stored s;
    struct err e = ERR_INIT;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        write_file("config.json", files[i]);
        assert_int_equal(stored_read(&s, dir, &e), 0);
        assert_ptr_equal(s.format, &stored_scaled);
    }
}

TEST(test_what_the_user_says)
{
    static const struct stored plain = {0},
                               gptq = {&stored_gptq, "gptq", 4, 32, 1, 1, false, false},
                               awq = {&stored_awq, "awq", 4, 32, 1, 0, false, false},
                               int8 = {&stored_scaled, "compressed-tensors", 8, 0, 1, 0, true,
                                       false},
                               fp8 = {&stored_scaled, "fp8", 8, 0, 1, 0, true, true},
                               nf4 = {&stored_nf4, "bitsandbytes", 4, 0, 1, 0, true, true};
    static const struct {
        const struct stored *s;
        const char *word, *says; /* NULL: agreed */
        enum quant scheme;
    } cases[] = {
        {&plain, NULL, NULL, QUANT_NONE},
        {&plain, "fp8", NULL, QUANT_FP8},
        {&plain, "eetq", NULL, QUANT_INT8},
        {&plain, "gptq", "this checkpoint is not stored quantised", 0},
        {&gptq, NULL, NULL, QUANT_NONE},
        {&gptq, "auto", NULL, QUANT_NONE},
        {&gptq, "gptq", NULL, QUANT_NONE},
        {&gptq, "marlin", NULL, QUANT_NONE},
        {&gptq, "awq", "--quantize awq: the weights of this checkpoint are stored by gptq", 0},
        {&gptq, "eetq", "stored by gptq already", 0},
        {&awq, "gptq", NULL, QUANT_NONE},
        {&fp8, "fp8", NULL, QUANT_NONE},
        {&int8, "fp8", "stored by compressed-tensors already", 0},
        {&int8, "compressed-tensors", NULL, QUANT_NONE},
        {&nf4, "bitsandbytes", NULL, QUANT_NONE},
        {&nf4, "bitsandbytes-nf4", NULL, QUANT_NONE},
        {&nf4, "bitsandbytes-fp4", "stored by bitsandbytes already", 0},
        {&plain, "bitsandbytes", "this checkpoint is not stored quantised", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err e = ERR_INIT;
        enum quant quant, scheme;
        assert_int_equal(quant_parse(cases[i].word, &quant, &e), 0);
        int rc = stored_agree(cases[i].s, cases[i].word, quant, &scheme, &e);
        assert_int_equal(rc, cases[i].says ? -1 : 0);
        if (rc ? !strstr(e.msg, cases[i].says) : scheme != cases[i].scheme)
            fail_msg("case %zu: %s", i, e.msg);
    }
}

int main(void) { return tests_run(temp_begin, temp_end); }
