/* What a config.json is told, and that old and new keys mean the same. */
#include "tests/unit/model-server/model/config/config_text.h"

/* Ids around pictures have the last rows of the tower's table, or are refused. */
TEST(visual_indicators_are_consecutive_ids)
{
    static const char *const bad[] = {"[315,316,317,318]",
                                      "[1,2,3,4,6]",
                                      "[5,4,3,2,1]",
                                      "[316,317,318,319,320]",
                                      "[-1,0,1,2,3]",
                                      "[]",
                                      "7"};
    struct decoder_spec s;
    struct err e = ERR_INIT;
    assert_int_equal(
        configure("\"visual_indicator_token_ids\":[315,316,317,318,319]", OVIS2, &s, &e), 0);
    assert_int_equal(s.n_other, 1);
    assert_int_equal(s.other[0].first, 315);
    assert_int_equal(s.other[0].n, 5);
    assert_int_equal(s.other[0].skip, 40);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char keys[128];
        snprintf(keys, sizeof(keys), "\"visual_indicator_token_ids\":%s", bad[i]);
        assert_int_equal(configure(keys, OVIS2, &s, &e), -1);
        assert_non_null(strstr(e.msg, "visual_indicator_token_ids"));
    }
}

/* What transformers' classes take for keys that a file lacks. */
TEST(absent_keys_have_the_values_of_the_class)
{
    static struct decoder_spec s;
    accepted("\"num_key_value_heads\":8", "\"model_type\":\"gpt_oss\"," SIZES, &s);
    assert_int_equal(s.rope[0].kind, ROPE_YARN);
    assert_true(s.rope[0].factor == 32 && s.rope[0].theta == 150000 && !s.rope[0].truncate);
    accepted("\"rope_theta\":5000", "\"model_type\":\"gpt_oss\"," SIZES, &s);
    assert_int_equal(s.rope[0].kind, ROPE_DEFAULT);
    accepted("\"moe_intermediate_size\":32", "\"model_type\":\"deepseek_v3\"," SIZES, &s);
    assert_true(s.moe.scale == 2.5f && s.moe.n_groups == 8 && s.moe.top_groups == 4);
    assert_int_equal(s.mla.q_rank, 1536);
    accepted("\"q_lora_rank\":null,\"moe_intermediate_size\":32",
             "\"model_type\":\"deepseek_v3\"," SIZES, &s);
    assert_int_equal(s.mla.q_rank, 0);
    accepted("\"moe_intermediate_size\":32", "\"model_type\":\"glm4_moe\"," SIZES, &s);
    assert_true(s.moe.shared_ffn == 32 && !s.layers[0].moe && s.layers[1].moe);
    accepted("", DELTA, &s);
    assert_int_equal(s.n_kv_heads, 4);
}

/* Keys of the hub, keys of transformers 5: one spec. */
TEST(test_same_meaning)
{
    static const char *const pairs[][2] = {
        {"\"rope_theta\":5000",
         "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5000}"},
        {"\"rope_theta\":5000,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}",
         "\"rope_parameters\":{\"rope_type\":\"linear\",\"rope_theta\":5000,\"factor\":2}"},
        {"\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
         "\"high_freq_factor\":4,\"original_max_position_embeddings\":64}",
         "\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":10000,\"factor\":8,"
         "\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_embeddings\":64}"},
        {"\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1,2,3,4],\"long_factor\":[5,6,7,8]},"
         "\"original_max_position_embeddings\":128",
         "\"original_max_position_embeddings\":128,\"rope_parameters\":{\"rope_type\":\"longrope\","
         "\"short_factor\":[1,2,3,4],\"long_factor\":[5,6,7,8],"
         "\"original_max_position_embeddings\":128}"},
        {"\"partial_rotary_factor\":0.5",
         "\"rope_parameters\":{\"rope_type\":\"default\",\"partial_rotary_factor\":0.5}"},
        {"\"rope_scaling\":null,\"head_dim\":null,\"num_key_value_heads\":null", ""},
    };
    static struct decoder_spec a, b;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        accepted(pairs[i][0], LLAMA, &a);
        accepted(pairs[i][1], LLAMA, &b);
        assert_memory_equal(&a, &b, sizeof(a));
    }
}

TEST(test_windows)
{
    static struct decoder_spec s;
    accepted("\"sliding_window\":9", "\"model_type\":\"mistral\"," SIZES, &s);
    assert_int_equal(s.layers[0].window, 9);
    assert_int_equal(s.layers[1].window, 9);
    accepted("\"sliding_window\":null", "\"model_type\":\"mistral\"," SIZES, &s);
    assert_int_equal(s.layers[0].window, 0);
    accepted("", "\"model_type\":\"mistral\"," SIZES, &s);
    assert_int_equal(s.layers[0].window, 4096); /* MistralConfig's own default */
    accepted("\"sliding_window\":9", "\"model_type\":\"gemma2\"," SIZES, &s);
    assert_int_equal(s.layers[0].window, 9);
    assert_int_equal(s.layers[1].window, 0);
    const char *upper = "\"sliding_window\":9,\"use_sliding_window\":true,\"max_window_layers\":1";
    accepted(upper, "\"model_type\":\"qwen2\"," SIZES, &s);
    assert_int_equal(s.layers[0].window, 0);
    assert_int_equal(s.layers[1].window, 9);
    accepted("\"sliding_window\":9,\"use_sliding_window\":false", "\"model_type\":\"qwen2\"," SIZES,
             &s);
    assert_int_equal(s.layers[1].window, 0);
    accepted("\"sliding_window\":9,\"layer_types\":[\"sliding_attention\",\"full_attention\"]",
             "\"model_type\":\"qwen3\"," SIZES, &s);
    assert_int_equal(s.layers[0].window, 9);
    assert_int_equal(s.layers[1].window, 0);
}

TEST(test_rwkv)
{
    static struct decoder_spec s;
    const char base[] = "\"model_type\":\"rwkv7\",\"hidden_size\":96,\"num_hidden_layers\":2,"
                        "\"vocab_size\":320,\"attn\":null,\"value_dim\":[96,96]";
    accepted("\"head_dim\":16,\"hidden_ratio\":3.1", base, &s);
    assert_true(s.recur.heads == 6 && s.recur.key_dim == 16 && s.ffn == 320 && !s.max_positions);
    assert_true(s.rwkv.decay == 64 && s.rwkv.blend == 16 && s.rwkv.gate == 128 && s.bias.norm);
    accepted("\"head_dim\":null,\"num_heads\":3,\"intermediate_size\":40,\"norm_bias\":false", base,
             &s);
    assert_true(s.recur.heads == 3 && s.head_dim == 32 && s.ffn == 40 && !s.bias.norm);
}

/* The bases of the cases that are refused are themselves accepted. */
TEST(test_encoders)
{
    static struct decoder_spec s;
    accepted("", DEBERTA, &s);
    assert_int_equal(s.apart.buckets, 64);
    assert_int_equal(s.apart.most, 512);
    accepted("\"pos_att_type\":\"p2c|c2p\"", DEBERTA, &s);
    accepted("\"rotary_scaling_factor\":2", NOMIC, &s);
    assert_int_equal(s.rope[0].kind, ROPE_DYNAMIC);
    assert_int_equal(s.rope[0].original, 2048);
    accepted("\"activation_function\":\"gelu\",\"moe_every_n_layers\":2,\"moe_top_k\":2", NOMIC,
             &s);
    assert_true(s.mlp == MLP_PLAIN && !s.layers[0].moe && s.layers[1].moe && s.moe.sum_bias);
    assert_true(s.moe.n_experts == 8 && s.moe.top_k == 2 && s.moe.plain && !s.moe.renormalise);
    accepted("\"embedding_size\":32", "\"model_type\":\"albert\"," SIZES, &s);
    assert_int_equal(s.embed_dim, 32);
    assert_int_equal(s.layers[1].same_as, 1);
    accepted("\"embedding_size\":64", "\"model_type\":\"electra\"," SIZES, &s);
    assert_int_equal(s.embed_dim, 0);
    accepted("\"input_embedding_size\":64", "\"model_type\":\"rembert\"," SIZES, &s);
    assert_int_equal(s.embed_dim, 64);
    accepted("\"use_task_id\":true", "\"model_type\":\"ernie\"," SIZES, &s);
    assert_int_equal(s.token_tasks, 3);
    accepted("", DEBERTA_1, &s);
    assert_true(s.apart.own && s.apart.each);
    assert_int_equal(s.apart.buckets, 2 * 512);
    accepted("", JINA, &s);
    assert_true(s.near.of == NEAR_OF_SLOPES && s.near.most == 512 && !s.first_type_only);
    accepted("", "\"model_type\":\"xlm-roberta-xl\"," SIZES, &s);
    assert_true(s.norms == NORM_BEFORE && !s.embed_norm && !s.no_final_norm);
    assert_int_equal(s.position_offset, 2);
    accepted("\"position_embedding_type\":\"rotary\",\"token_dropout\":true,\"mask_token_id\":32",
             ESM, &s);
    assert_true(s.embed_scale == 0.88F && s.refuses_id && s.refused_id == 32);
    assert_true(s.rope[0].kind == ROPE_DEFAULT && !s.learned_positions && s.max_positions == 512);
    accepted("", ESM, &s);
    assert_true(s.learned_positions && s.position_offset == 2 && s.embed_scale == 1);
    accepted("\"pre_norm\":true", XLM, &s);
    assert_true(s.norms == NORM_BEFORE && s.no_final_norm && s.ffn == 256 && s.vocab == 320);
    accepted("\"block_size\":16", BIG_BIRD, &s);
    assert_int_equal(s.max_positions, 11 * 16);
    assert_int_equal(s.more_positions, 512 - 11 * 16);
    accepted("\"block_size\":16,\"attention_type\":\"original_full\"", BIG_BIRD, &s);
    assert_true(s.max_positions == 512 && !s.more_positions);
    accepted("", "\"model_type\":\"bert-generation\"," SIZES, &s);
    assert_int_equal(s.token_types, 0);
}

/* Families that are others under another name. */
TEST(test_kin)
{
    static struct decoder_spec s;
    accepted("\"model_type\":\"gpt-sw3\"", GPT2, &s);
    assert_true(s.qkv == QKV_STACKED && s.learned_positions && s.transposed);
    accepted("", "\"model_type\":\"gemma4_unified_text\"," SIZES, &s);
    assert_int_equal(s.layers[0].window, 1024);
    assert_int_equal(s.layers[0].mutual, MUTUAL_AHEAD);
    assert_true(!s.layers[1].moe && !s.per_layer && s.layer_scale);
    accepted("\"model_type\":\"blenderbot-small\","
             "\"architectures\":[\"BlenderbotSmallForConditionalGeneration\"],"
             "\"scale_embedding\":true",
             BART, &s);
    assert_true(s.embed_norm_first && s.embed_scale == 1 && s.position_offset == 0);
    assert_int_equal(s.start, 1);
}

/* A layer of T5's decoder is two: the second attends to the encoder. */
TEST(test_decoder_of_an_encoder)
{
    static struct decoder_spec s;
    accepted("\"num_decoder_layers\":3", T5_WHOLE, &s);
    assert_int_equal(s.n_layers, 6);
    assert_int_equal(s.max_positions, 1024);
    assert_true(s.paired && s.attends_text && s.tied && !s.both_ways && !s.no_head);
    assert_true(s.layers[4].no_ffn && s.layers[4].mixer == MIXER_ATTENTION);
    assert_true(!s.layers[5].no_ffn && s.layers[5].mixer == MIXER_CROSS);
    assert_int_equal(s.start, 0);
    assert_true(s.logit_scale == 0.125F);
    accepted("\"num_decoder_layers\":null,\"tie_word_embeddings\":false,"
             "\"decoder_start_token_id\":7",
             T5_WHOLE, &s);
    assert_int_equal(s.n_layers, 4);
    assert_int_equal(s.start, 7);
    assert_true(!s.tied && s.logit_scale == 1);
    /* as transformers 5 writes Flan-T5's: a head of its own is found in the checkpoint */
    accepted("\"tie_word_embeddings\":true,\"scale_decoder_outputs\":false", T5_WHOLE, &s);
    assert_true(s.tied && s.logit_scale == 1);
    accepted("\"decoder_layers\":3", BART, &s);
    assert_int_equal(s.n_layers, 6);
    assert_true(s.norms == NORM_SUM && s.layers[5].mixer == MIXER_CROSS && s.start == 2);
}

/* What the engine is told about lengths: scalings that stretch the positions do so. */
TEST(test_max_positions)
{
    static struct decoder_spec s;
    accepted("", LLAMA, &s);
    assert_int_equal(s.max_positions, 512);
    accepted("\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4}", LLAMA, &s);
    assert_int_equal(s.max_positions, 2048);
    accepted("\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"original_max_position_"
             "embeddings\":256}",
             LLAMA, &s);
    assert_int_equal(s.max_positions, 1024);
}

TEST(test_rope_option)
{
    static struct decoder_spec s;
    const struct arch *a;
    const char *type;
    struct err e = ERR_INIT;
    accepted("\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4}", LLAMA, &s);
    assert_int_equal(arch_configure(path, NULL, "linear", 3, &a, &type, &s, &e), 0);
    assert_int_equal(s.rope[0].kind, ROPE_LINEAR);
    assert_true(s.rope[0].factor == 3);
    assert_int_equal(s.max_positions, 1536);
    assert_int_equal(arch_configure(path, NULL, "yarn", 3, &a, &type, &s, &e), -1);
    assert_non_null(strstr(e.msg, "must be linear or dynamic"));
    assert_int_equal(arch_configure(path, NULL, "linear", 0.5, &a, &type, &s, &e), -1);
    assert_non_null(strstr(e.msg, "the rope factor must be"));
}

/* What Python writes for a number that JSON has no word for, and what transformers 5 writes. */
TEST(test_infinity)
{
    static const char *const limits[] = {"[0.5, Infinity]", "[0.5, {\"__float__\": \"Infinity\"}]"};
    static struct decoder_spec s;
    char keys[120];
    struct err e = ERR_INIT;
    for (int i = 0; i < 2; i++) {
        snprintf(keys, sizeof(keys), "\"time_step_limit\":%s,\"x\":\"\\\"Infinity\"", limits[i]);
        assert_int_equal(configure(keys, FALCON, &s, &e), 0);
        assert_true(s.recur.dt_min == 0.5f && isinf(s.recur.dt_max));
        assert_int_equal(configure(keys, NEMOTRON, &s, &e), 0); /* not its limit */
        assert_true(s.recur.dt_min == 0.001f && isinf(s.recur.dt_max));
    }
    assert_int_equal(configure("\"model_type\":\"Infinity\"", SIZES, &s, &e), -1);
    assert_non_null(strstr(e.msg, "`Infinity`"));
    assert_int_equal(configure("\"time_step_limit\":[0, Infinitely]", NEMOTRON, &s, &e), -1);
    assert_int_equal(configure("\"x\":NaN", LLAMA, &s, &e), -1);
    assert_non_null(strstr(e.msg, "line 1"));
}

/* The same in a text instead of a file (--shape). */
TEST(test_infinity_in_text)
{
    static const char text[] = "{\"rope_theta\":Infinity,\"time_step_limit\":[0.0, Infinity],"
                               "\"model_type\":\"llama\"," SIZES "}";
    static struct decoder_spec s;
    const struct arch *a;
    const char *type;
    struct err e = ERR_INIT;
    assert_int_equal(arch_configure("x.json", text, NULL, 1, &a, &type, &s, &e), -1);
    assert_non_null(strstr(e.msg, "`rope_theta`"));
}

/* ModernBERT's decoder: half of local_attention, unless the file says the window itself. */
TEST(test_modernbert_decoder)
{
    static struct decoder_spec s;
    accepted("\"model_type\":\"modernbert-decoder\",\"local_attention\":40", SIZES, &s);
    assert_true(s.layers[0].window == 0 && s.layers[1].window == 20);
    accepted("\"model_type\":\"modernbert-decoder\",\"sliding_window\":12", SIZES, &s);
    assert_true(s.layers[0].window == 0 && s.layers[1].window == 12);
}

/* T5: any activation, with or without a gate. */
TEST(test_t5_activations)
{
    static struct decoder_spec s;
    accepted("\"feed_forward_proj\":\"gated-gelu\"", T5_WHOLE, &s);
    assert_true(s.mlp == MLP_GATED && s.act == ACT_GELU_TANH);
    accepted("\"feed_forward_proj\":\"gelu\"", T5_WHOLE, &s);
    assert_true(s.mlp == MLP_PLAIN && s.act == ACT_GELU);
    accepted("\"feed_forward_proj\":\"gated-relu\"", T5_WHOLE, &s);
    assert_true(s.mlp == MLP_GATED && s.act == ACT_RELU);
}

/* InternLM 3: the switches of its own files, and those that transformers 5 writes. */
TEST(test_internlm3)
{
    static struct decoder_spec s;
    accepted("\"model_type\":\"internlm3\",\"qkv_bias\":true,\"bias\":false", SIZES, &s);
    assert_true(s.bias.qkv && !s.bias.o && !s.bias.mlp);
    accepted("\"model_type\":\"internlm3\",\"bias\":true", SIZES, &s);
    assert_true(!s.bias.qkv && s.bias.o && s.bias.mlp);
    accepted("\"model_type\":\"internlm3\",\"attention_bias\":true", SIZES, &s);
    assert_true(s.bias.qkv && s.bias.o && !s.bias.mlp);
    accepted("\"model_type\":\"internlm3\",\"mlp_bias\":true", SIZES, &s);
    assert_true(!s.bias.qkv && !s.bias.o && s.bias.mlp);
}

/* Which layers are of what kind. */
TEST(test_mixers)
{
    static struct decoder_spec s;
    struct err e = ERR_INIT;
    assert_int_equal(configure("\"num_hidden_layers\":5", DELTA, &s, &e), 0);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(s.layers[i].mixer, i == 3 ? MIXER_ATTENTION : MIXER_DELTA);
    assert_int_equal(configure("\"num_hidden_layers\":4,\"hybrid_override_pattern\":\"M-*E\","
                               "\"moe_intermediate_size\":32",
                               NEMOTRON, &s, &e),
                     0);
    const enum mixer_kind want[] = {MIXER_MAMBA2, MIXER_NONE, MIXER_ATTENTION, MIXER_NONE};
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(s.layers[i].mixer, want[i]);
        assert_int_equal(s.layers[i].no_ffn, want[i] != MIXER_NONE);
        assert_int_equal(s.layers[i].moe, i == 3);
    }
}

/* A family's own keys, the usual ones that it reads too, those that it does not read. */
TEST(test_own_words)
{
    struct decoder_spec s;
    struct err e = ERR_INIT;
    assert_int_equal(configure("\"n_inner\":null,\"intermediate_size\":96,\"n_positions\":77,"
                               "\"num_key_value_heads\":2",
                               GPT2, &s, &e),
                     0);
    assert_int_equal(s.ffn, 256); /* transformers reads n_inner alone */
    assert_int_equal(s.n_kv_heads, 8);
    assert_int_equal(s.max_positions, 77);
    assert_int_equal(configure("\"n_layer\":null,\"num_hidden_layers\":3", GPT2, &s, &e), 0);
    assert_int_equal(s.n_layers, 3);
    assert_int_equal(configure("\"num_hidden_layers\":3", GPT2, &s, &e), 0);
    assert_int_equal(s.n_layers, 2); /* its own word goes first */
}

/* Baichuan 13B has no rotation, Baichuan 2 another head; Qwen is served up to its training. */
TEST(test_first_chinese_models)
{
    struct decoder_spec s;
    struct err e = ERR_INIT;
    static const char baichuan[] = "\"model_type\":\"baichuan\"," SIZES;
    static const char qwen[] = "\"model_type\":\"qwen\",\"seq_length\":8192," SIZES;
    assert_int_equal(configure("\"max_position_embeddings\":4096", baichuan, &s, &e), 0);
    assert_int_equal(s.rope[0].kind, ROPE_DEFAULT);
    assert_false(s.unit_head);
    assert_int_equal(s.alibi.order, ALIBI_NONE);
    assert_int_equal(configure("\"max_position_embeddings\":null,\"model_max_length\":4096,"
                               "\"vocab_size\":125696",
                               baichuan, &s, &e),
                     0);
    assert_int_equal(s.rope[0].kind, ROPE_NONE);
    assert_true(s.unit_head);
    assert_int_equal(s.alibi.order, ALIBI_PAPER);
    assert_int_equal(s.max_positions, 4096);
    assert_int_equal(
        configure("\"max_position_embeddings\":32768,\"use_dynamic_ntk\":true", qwen, &s, &e), 0);
    assert_int_equal(s.max_positions, 8192);
    assert_int_equal(configure("\"max_position_embeddings\":32768", qwen, &s, &e), 0);
    assert_int_equal(s.max_positions, 32768);
}

/* Which layer's selection each layer uses: by a list, a word, or a period from a layer on. */
TEST(test_selections)
{
    static const struct {
        const char *keys;
        uint32_t of[6];
    } cases[] = {
        {"\"num_hidden_layers\":6", {0}},
        {"\"num_hidden_layers\":6,\"index_topk_pattern\":\"FSSFFS\"", {0, 1, 1, 0, 0, 5}},
        {"\"num_hidden_layers\":6,\"index_topk_freq\":3", {0, 0, 2, 2, 0, 5}},
        {"\"num_hidden_layers\":6,\"index_topk_freq\":2,\"index_skip_topk_offset\":1",
         {0, 1, 0, 3, 0, 5}},
        {"\"num_hidden_layers\":2,\"indexer_types\":[\"full\",\"shared\"]", {0, 1}},
    };
    static struct decoder_spec s;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        accepted(cases[i].keys, GLM_5, &s);
        assert_true(s.mla.index.interleaved && s.mla.index.heads == 32 && s.mla.index.top == 2048);
        for (uint32_t k = 0; k < s.n_layers; k++)
            assert_int_equal(s.layers[k].top_of, cases[i].of[k]);
    }
    accepted("\"model_type\":\"deepseek_v32\",\"indexer_types\":null", GLM_5, &s);
    assert_true(!s.mla.index.interleaved && s.mla.index.heads == 64 && s.layers[1].top_of == 0);
    accepted("\"model_type\":\"deepseek_v3\"", GLM_5, &s);
    assert_int_equal(s.mla.index.top, 0);
}

/* Which layers of Mistral Large 4 read the latents of others, and which of them rotate. */
TEST(test_latents_of_others)
{
    static const char layers[] = "\"num_hidden_layers\":5,\"no_rope_layers\":[1,0,1,1,0],"
                                 "\"kv_source_layers\":";
    static const uint32_t of[] = {0, 0, 1, 0, 2};
    static const struct {
        const char *list, *fault;
    } refused[] = {{"[0,1,0,2,1]", "must read the last layer"}, /* 2 reads 0 itself */
                   {"[0,1,0,3,0]", "must read the last layer"}, /* 0 rotates */
                   {"[0,1,2,4,4]", "itself or an earlier layer"},
                   {"[0,1]", "does not name 5 layers"}};
    static struct decoder_spec s;
    char keys[200];
    snprintf(keys, sizeof(keys), "%s[0,1,0,3,1]", layers);
    accepted(keys, LARGE_4, &s);
    for (uint32_t i = 0; i < s.n_layers; i++) {
        assert_int_equal(s.layers[i].kv_of, of[i]);
        assert_int_equal(s.layers[i].other_mla, i == 1 || i == 4);
    }
    assert_true(s.mla.nope == 64 && s.mla.rope == 64 && s.mla.index.own_norm);
    assert_true(s.mla_other.nope == 128 && s.mla_other.rope == 0);
    assert_true(s.rope[0].kind == ROPE_YARN && s.rope[0].original == 512 && s.rope[0].learned);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        snprintf(keys, sizeof(keys), "%s%s", layers, refused[i].list);
        struct err e = ERR_INIT;
        assert_int_equal(configure(keys, LARGE_4, &s, &e), -1);
        assert_non_null(strstr(e.msg, refused[i].fault));
    }
}

/* Which layers of MiniMax M3 have an indexer, and its sizes, in either spelling. */
TEST(test_blocks)
{
    static struct decoder_spec s;
    accepted("\"index_topk_blocks\":5,\"index_local_blocks\":2", M3, &s);
    assert_true(!s.layers[0].by_blocks && s.layers[1].by_blocks);
    assert_true(s.blocks.top == 5 && s.blocks.local == 2 && s.blocks.block == 128);
    assert_true(s.blocks.dim == 128 && s.rope[0].dim == 8);
    accepted("\"layer_types\":null,\"sparse_attention_config\":{\"sparse_attention_freq\":[1,0],"
             "\"sparse_topk_blocks\":3,\"sparse_block_size\":64,\"sparse_index_dim\":32},"
             "\"moe_layer_freq\":[0,1]",
             M3, &s);
    assert_true(s.layers[0].by_blocks && !s.layers[1].by_blocks);
    assert_true(s.blocks.top == 3 && s.blocks.local == 1 && s.blocks.block == 64);
    assert_true(s.blocks.dim == 32 && !s.layers[0].moe && s.layers[1].moe);
    accepted("\"layer_types\":null", M3, &s);
    assert_int_equal(s.blocks.top, 0);
}

TEST(test_windows_of_llama)
{
    struct decoder_spec s;
    struct err e = ERR_INIT;
    assert_int_equal(configure("\"sliding_window\":32", LLAMA, &s, &e), 0);
    assert_int_equal(s.layers[0].window, 0); /* as transformers: no layer has one */
    assert_int_equal(configure("\"sliding_window\":32,\"layer_types\":[\"full_attention\","
                               "\"sliding_attention\"]",
                               LLAMA, &s, &e),
                     0);
    assert_int_equal(s.layers[0].window, 0);
    assert_int_equal(s.layers[1].window, 32);
}

/* What a key that is absent means differs from what null means. */
TEST(test_absent_is_not_null)
{
    static struct decoder_spec s;
    static const char exaone[] = "\"model_type\":\"exaone4\"," SIZES;
    accepted("", exaone, &s);
    assert_true(s.layers[0].window == 4096 && s.layers[0].rope == 0);
    accepted("\"sliding_window\":null", exaone, &s);
    assert_true(s.layers[0].window == 0 && s.layers[0].rope == 0);
    accepted("\"num_hidden_layers\":4", exaone, &s);
    assert_true(s.layers[3].window == 0 && s.layers[3].rope == SPEC_NO_ROPE);
    accepted("", "\"model_type\":\"glm4\"," SIZES, &s);
    assert_true(s.bias.qkv);
}

/* Layers of several turns share the weights of the first one. */
TEST(test_turns)
{
    static struct decoder_spec s;
    accepted("\"total_ut_steps\":3", "\"model_type\":\"ouro\"," SIZES, &s);
    assert_int_equal(s.n_layers, 6);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(s.layers[i].same_as, i < 2 ? 0 : i % 2 + 1);
        assert_int_equal(s.layers[i].turn_ends, i == 1 || i == 3);
    }
}

/* transformers 5 names layers by numbers of equal length. */
TEST(test_own_sizes)
{
    static const char base[] = "\"model_type\":\"gemma4_text\",\"num_hidden_layers\":12," SIZES;
    static struct decoder_spec s;
    accepted("\"per_layer_config\":{\"05\":{\"head_dim\":32,\"num_key_value_heads\":2},\"11\":{"
             "\"head_dim\":64}},\"global_head_dim\":16",
             base, &s);
    assert_int_equal(s.layers[5].head_dim, 32);
    assert_int_equal(s.layers[5].n_kv_heads, 2);
    assert_int_equal(s.layers[11].head_dim, 64);
    accepted("\"global_head_dim\":16", base, &s);
    assert_int_equal(s.layers[5].head_dim, 16);
}

/* Files as they were published: the words of the first Falcon and StableLM, and dots.llm1's. */
TEST(test_first_words)
{
    static const struct {
        const char *old, *now;
    } pairs[] = {
        {"\"model_type\":\"RefinedWebModel\",\"n_head\":8,\"n_layer\":2,\"multi_query\":true,"
         "\"parallel_attn\":true,\"alibi\":false,\"bias\":false,\"hidden_size\":64,\"vocab_size\":"
         "320",
         "\"model_type\":\"falcon\",\"num_attention_heads\":8,\"num_hidden_layers\":2,"
         "\"multi_query\":true,\"hidden_size\":64,\"vocab_size\":320"},
        {"\"model_type\":\"RefinedWeb\",\"n_head\":8,\"n_layer\":2,\"n_head_kv\":4,"
         "\"parallel_attn\":true,\"hidden_size\":64,\"vocab_size\":320",
         "\"model_type\":\"falcon\",\"num_attention_heads\":8,\"num_hidden_layers\":2,"
         "\"num_kv_heads\":4,\"new_decoder_architecture\":true,\"hidden_size\":64,"
         "\"vocab_size\":320"},
        {"\"model_type\":\"stablelm_epoch\",\"norm_eps\":0.01,\"rope_pct\":0.5," SIZES,
         "\"model_type\":\"stablelm\",\"layer_norm_eps\":0.01,\"partial_rotary_factor\":0."
         "5," SIZES},
        {"\"model_type\":\"dots1\",\"scoring_func\":\"noaux_tc\",\"moe_intermediate_size\":"
         "32," SIZES,
         "\"model_type\":\"dots1\",\"scoring_func\":\"sigmoid\",\"moe_intermediate_size\":"
         "32," SIZES},
    };
    static struct decoder_spec a, b;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        accepted("", pairs[i].old, &a);
        accepted("", pairs[i].now, &b);
        assert_memory_equal(&a, &b, sizeof(a));
    }
}

/* A text model that is not named is that of the file's family, or Llama. */
TEST(test_unnamed_text_models)
{
    static struct decoder_spec s;
    const struct arch *a;
    const char *type;
    struct err e = ERR_INIT;
    accepted("", "\"model_type\":\"embedding_gemma2\",\"text_config\":{" SIZES "}", &s);
    assert_true(s.both_ways && s.per_layer_plain);
    assert_int_equal(s.layers[0].window, 513);
    accepted("", "\"model_type\":\"llava\",\"text_config\":{" SIZES "}", &s);
    assert_int_equal(arch_configure(path, NULL, NULL, 0, &a, &type, &s, &e), 0);
    assert_string_equal(type, "llama");
}

int main(void) { return tests_run(make_file, drop_file); }
