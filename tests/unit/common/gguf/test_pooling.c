/* Encoders in GGUF files: the files of sentence-transformers and the class that they stand for, and
 * the tokenizers that only encoders have. */
#include "common/gguf/vocab.h"
#include "common/json/json.h"
#include "common/model/model_file.h"
#include "common/model/sentence.h"
#include "common/tokenizer/frame.h"
#include "tests/gguf_write.h"
#include "tests/unit/common/tokenizer/expect_ids.h"
#include "tests/unit/test.h"
#include <math.h>
#include <unistd.h>

static char path[] = "/tmp/gguf-encoder-XXXXXX.gguf";

static void shape(struct gguf_write *w, const char *arch)
{
    static const char *const keys[] = {"embedding_length", "block_count", "context_length",
                                       "feed_forward_length", "attention.head_count"};
    static const float zeros[8 * 2];
    char key[64];
    gw_put_str(w, "general.architecture", arch);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        snprintf(key, sizeof(key), "%s.%s", arch, keys[i]);
        gw_put_u32(w, key, 2);
    }
    gw_tensor(w, "token_embd.weight", GGUF_F32, 2, (const uint64_t[]){2, 8}, zeros, sizeof(zeros));
}

static void tensor(struct gguf_write *w, const char *name, uint64_t cols, uint64_t rows)
{
    static const float zeros[64];
    gw_tensor(w, name, GGUF_F32, rows ? 2 : 1, (const uint64_t[]){cols, rows}, zeros,
              cols * (rows ? rows : 1) * sizeof(float));
}

static cJSON *config_of(struct gguf_write *w)
{
    char name[100];
    struct err e = ERR_INIT;
    assert_int_equal(gw_save(w, path), 0);
    snprintf(name, sizeof(name), "%s/config.json", path);
    cJSON *c = model_file_json(name, 1 << 20, &e);
    if (!c)
        fail_msg("%s", e.msg);
    return c;
}

/* ---------------------------------------------------------------- pooling */

static void pooling_of(uint32_t type, bool present, unsigned want)
{
    struct gguf_write w = {0};
    struct sentence s;
    struct err e = ERR_INIT;
    shape(&w, "bert");
    gw_put_u32(&w, "bert.pooling_type", type);
    assert_int_equal(gw_save(&w, path), 0);
    if (sentence_load(&s, path, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(s.present, present);
    assert_int_equal(s.pooling, want);
    assert_int_equal(s.n_dense, 0);
    assert_int_equal(s.normalize, present);
    sentence_free(&s);
}

TEST(poolings)
{
    pooling_of(0, false, 0);
    pooling_of(1, true, POOL_MEAN);
    pooling_of(2, true, POOL_CLS);
    pooling_of(3, true, POOL_LAST);
    pooling_of(4, false, 0); /* scores: no vector */
    pooling_of(17, false, 0);
}

TEST(dense_modules)
{
    struct gguf_write w = {0};
    struct sentence s;
    struct err e = ERR_INIT;
    shape(&w, "gemma-embedding");
    gw_put_u32(&w, "gemma-embedding.pooling_type", 1);
    tensor(&w, "dense_2.weight", 2, 4);
    tensor(&w, "dense_3.weight", 4, 2);
    assert_int_equal(gw_save(&w, path), 0);
    assert_int_equal(sentence_load(&s, path, &e), 0);
    assert_int_equal(s.n_dense, 2);
    assert_string_equal(s.dense[0], "2_Dense");
    assert_string_equal(s.dense[1], "3_Dense");
    sentence_free(&s);
    cJSON *c = config_of((shape(&w, "gemma-embedding"), &w));
    assert_true(json_bool(c, "use_bidirectional_attention", false));
    cJSON_Delete(c);
}

/* ---------------------------------------------------------------- config.json */

TEST(bert_by_its_tables)
{
    struct gguf_write w = {0};
    shape(&w, "bert");
    tensor(&w, "token_types.weight", 2, 3);
    cJSON *c = config_of(&w);
    assert_string_equal(json_str(c, "model_type", ""), "bert");
    assert_int_equal(json_int(c, "type_vocab_size", 0), 3);
    cJSON_Delete(c);
    shape(&w, "bert");
    c = config_of(&w);
    assert_string_equal(json_str(c, "model_type", ""), "distilbert");
    assert_int_equal(json_int(c, "n_heads", 0), 2);
    cJSON_Delete(c);
}

TEST(modern_bert)
{
    struct gguf_write w = {0};
    shape(&w, "modern-bert");
    gw_put_u32(&w, "modern-bert.attention.sliding_window", 64);
    gw_put_str(&w, "modern-bert.hidden_activation", "silu");
    cJSON *c = config_of(&w);
    assert_int_equal(json_int(c, "local_attention", 0), 64);
    assert_int_equal(json_int(c, "global_attn_every_n_layers", 0), 3);
    assert_string_equal(json_str(c, "hidden_activation", ""), "silu");
    cJSON_Delete(c);
}

TEST(t5_by_its_tensors)
{
    struct gguf_write w = {0};
    shape(&w, "t5");
    gw_put_f32(&w, "t5.attention.layer_norm_rms_epsilon", 1e-5F);
    gw_put_u32(&w, "t5.decoder_block_count", 5);
    cJSON *c = config_of(&w);
    assert_string_equal(json_str(c, "model_type", ""), "t5");
    assert_string_equal(json_str(c, "feed_forward_proj", ""), "relu");
    assert_string_equal(json_get(c, "architectures")->child->valuestring,
                        "T5ForConditionalGeneration");
    assert_int_equal(json_int(c, "num_layers", 0), 2);
    assert_int_equal(json_int(c, "num_decoder_layers", 0), 5);
    assert_true(json_num(c, "layer_norm_epsilon", 0) == 1e-5);
    cJSON_Delete(c);
    shape(&w, "t5encoder");
    tensor(&w, "enc.blk.0.ffn_gate.weight", 2, 2);
    tensor(&w, "enc.blk.1.attn_rel_b.weight", 2, 2);
    c = config_of(&w);
    assert_string_equal(json_str(c, "model_type", ""), "umt5");
    assert_string_equal(json_str(c, "feed_forward_proj", ""), "gated-gelu");
    assert_string_equal(json_get(c, "architectures")->child->valuestring, "T5EncoderModel");
    cJSON_Delete(c);
}

static enum model_task task_of(struct gguf_write *w)
{
    struct sentence s;
    struct err e = ERR_INIT;
    enum model_task t;
    assert_int_equal(gw_save(w, path), 0);
    assert_int_equal(sentence_load(&s, path, &e), 0);
    assert_int_equal(model_task_of(path, &s, &t, &e), 0);
    sentence_free(&s);
    return t;
}

static void labels(struct gguf_write *w, const char *key, const char *first, const char *second)
{
    gw_put_list(w, key, GGUF_T_STRING, 2);
    gw_text(&w->values, first, strlen(first));
    gw_text(&w->values, second, strlen(second));
}

TEST(tasks_by_the_classifier)
{
    struct gguf_write w = {0};
    shape(&w, "bert");
    assert_int_equal(task_of(&w), TASK_GENERATE); /* model.c finds that an encoder does not */
    shape(&w, "bert");
    tensor(&w, "cls.output.weight", 2, 0);
    assert_int_equal(task_of(&w), TASK_RERANK);
    shape(&w, "bert");
    tensor(&w, "cls.output.weight", 2, 1);
    assert_int_equal(task_of(&w), TASK_RERANK);
    shape(&w, "bert");
    tensor(&w, "cls.output.weight", 2, 2);
    labels(&w, "bert.classifier.output_labels", "good", "bad");
    assert_int_equal(task_of(&w), TASK_CLASSIFY);
    shape(&w, "qwen3");
    tensor(&w, "cls.output.weight", 2, 2);
    labels(&w, "qwen3.classifier.output_labels", "yes", "no");
    assert_int_equal(task_of(&w), TASK_RERANK);
}

TEST(names_of_labels)
{
    struct gguf_write w = {0};
    shape(&w, "modern-bert");
    tensor(&w, "cls.output.weight", 2, 3);
    labels(&w, "modern-bert.classifier.output_labels", "good", "b\"d");
    cJSON *c = config_of(&w);
    const cJSON *map = json_get(c, "id2label");
    assert_string_equal(json_str(map, "0", ""), "good");
    assert_string_equal(json_str(map, "1", ""), "b\"d");
    assert_string_equal(json_str(map, "2", ""), "LABEL_2"); /* the list is shorter */
    assert_string_equal(json_str(c, "classifier_pooling", ""), "mean");
    cJSON_Delete(c);
    shape(&w, "modern-bert");
    tensor(&w, "cls.output.weight", 2, 1);
    gw_put_u32(&w, "modern-bert.classifier.pooling_type", 2);
    c = config_of(&w);
    assert_null(json_get(c, "classifier_pooling"));
    cJSON_Delete(c);
}

/* ---------------------------------------------------------------- tokenizers */

struct word {
    const char *text;
    float score;
    int32_t type;
};

static void put_words(struct gguf_write *w, const char *model, const struct word *v, uint32_t n)
{
    gw_put_str(w, "general.architecture", "bert");
    gw_put_str(w, "tokenizer.ggml.model", model);
    gw_put_list(w, "tokenizer.ggml.tokens", GGUF_T_STRING, n);
    for (uint32_t i = 0; i < n; i++)
        gw_text(&w->values, v[i].text, strlen(v[i].text));
    gw_put_list(w, "tokenizer.ggml.token_type", GGUF_T_I32, n);
    for (uint32_t i = 0; i < n; i++)
        buf_add(&w->values, &v[i].type, sizeof(v[i].type));
    gw_put_list(w, "tokenizer.ggml.scores", GGUF_T_F32, n);
    for (uint32_t i = 0; i < n; i++)
        buf_add(&w->values, &v[i].score, sizeof(v[i].score));
}

static struct tokenizer *load(struct gguf_write *w)
{
    struct err e = ERR_INIT;
    assert_int_equal(gw_save(w, path), 0);
    struct tokenizer *t = tokenizer_load(path, &e);
    if (!t)
        fail_msg("%s", e.msg);
    return t;
}

/* Ids and types of the special tokens around a pair of one token each. */
static void expect_pair(const struct tokenizer *t, uint32_t a, uint32_t b, const uint32_t *want,
                        const uint8_t *want_types, uint32_t n)
{
    const struct tok_part x = {&a, 1}, y = {&b, 1};
    uint32_t ids[16];
    uint8_t types[16];
    assert_int_equal(tok_frame_special(t, true) + 2, n);
    tok_frame(t, &x, &y, ids, types);
    assert_memory_equal(ids, want, n * sizeof(*want));
    assert_memory_equal(types, want_types, n);
}

static const struct word pieces[] = {
    {"[PAD]", 0, GGUF_CONTROL}, {"[unused0]", 0, GGUF_NORMAL}, {"[UNK]", 0, GGUF_CONTROL},
    {"[CLS]", 0, GGUF_CONTROL}, {"[SEP]", 0, GGUF_CONTROL},    {"▁sun", 0, GGUF_NORMAL},
    {"s", 0, GGUF_NORMAL},      {"▁", 0, GGUF_NORMAL},         {"▁ü", 0, GGUF_NORMAL},
    {"▁u", 0, GGUF_NORMAL},     {"▁Sun", 0, GGUF_NORMAL},
};

/* `n`: with the last word there are capital letters. */
static struct tokenizer *wordpiece(uint32_t n, int lowercase, int strip)
{
    struct gguf_write w = {0};
    put_words(&w, "bert", pieces, n);
    gw_put_u32(&w, "tokenizer.ggml.bos_token_id", 3);
    gw_put_u32(&w, "tokenizer.ggml.seperator_token_id", 4);
    gw_put_u32(&w, "tokenizer.ggml.unknown_token_id", 2);
    if (lowercase >= 0)
        gw_put_bool(&w, "tokenizer.ggml.normalizer.lowercase", lowercase);
    if (strip >= 0)
        gw_put_bool(&w, "tokenizer.ggml.normalizer.strip_accents", strip);
    return load(&w);
}

TEST(words)
{
    struct tokenizer *t = wordpiece(10, -1, -1);
    expect_ids(t, "Suns ü x", (const uint32_t[]){3, 5, 6, 9, 2, 4}, 6); /* lower case, no accents */
    expect_pair(t, 5, 9, (const uint32_t[]){3, 5, 4, 9, 4}, (const uint8_t[]){0, 0, 0, 1, 1}, 5);
    tokenizer_free(t);
    t = wordpiece(10, -1, 0);
    expect_ids(t, "SUN ü", (const uint32_t[]){3, 5, 8, 4}, 4);
    tokenizer_free(t);
    t = wordpiece(11, -1, -1); /* the vocabulary has capitals */
    expect_ids(t, "Suns ü sun", (const uint32_t[]){3, 10, 6, 8, 5, 4}, 6);
    tokenizer_free(t);
    t = wordpiece(11, 1, -1); /* or the file specifies it */
    expect_ids(t, "Suns", (const uint32_t[]){3, 5, 6, 4}, 4);
    tokenizer_free(t);
}

TEST(unigrams)
{
    static const struct word v[] = {
        {"<s>", 0, GGUF_CONTROL},       {"<pad>", 0, GGUF_CONTROL}, {"</s>", 0, GGUF_CONTROL},
        {"<unk>", 0, GGUF_UNKNOWN},     {"▁su", -3, GGUF_NORMAL},   {"▁sun", -2, GGUF_NORMAL},
        {"n", -1.5F, GGUF_NORMAL},      {"ny", -4, GGUF_NORMAL},    {"y", -1, GGUF_NORMAL},
        {"[PAD9]", -1e4F, GGUF_UNUSED},
    };
    struct gguf_write w = {0};
    put_words(&w, "t5", v, 10);
    gw_put_u32(&w, "tokenizer.ggml.bos_token_id", 0);
    gw_put_u32(&w, "tokenizer.ggml.eos_token_id", 2);
    gw_put_u32(&w, "tokenizer.ggml.unknown_token_id", 3);
    gw_put_bool(&w, "tokenizer.ggml.add_bos_token", true);
    struct tokenizer *t = load(&w);
    expect_ids(t, " sunny  sun x", (const uint32_t[]){0, 5, 6, 8, 5, 3, 2}, 7);
    expect_pair(t, 5, 6, (const uint32_t[]){0, 5, 2, 2, 6, 2}, (const uint8_t[6]){0}, 6);
    tokenizer_free(t);
    put_words(&w, "t5", v, 10); /* T5 has one token at the end */
    gw_put_u32(&w, "tokenizer.ggml.eos_token_id", 2);
    gw_put_u32(&w, "tokenizer.ggml.unknown_token_id", 3);
    t = load(&w);
    expect_ids(t, "sun", (const uint32_t[]){5, 2}, 2);
    expect_pair(t, 5, 6, (const uint32_t[]){5, 2, 6, 2}, (const uint8_t[4]){0}, 4);
    tokenizer_free(t);
}

static void refuse_tokens(struct gguf_write *w, const char *says)
{
    struct err e = ERR_INIT;
    assert_int_equal(gw_save(w, path), 0);
    struct tokenizer *t = tokenizer_load(path, &e);
    if (t || !strstr(e.msg, says))
        fail_msg("%s (wanted: %s)", t ? "loaded" : e.msg, says);
}

TEST(hostile_unigrams)
{
    static const struct word v[] = {{"a", INFINITY, GGUF_NORMAL}};
    struct gguf_write w = {0};
    put_words(&w, "t5", v, 1);
    refuse_tokens(&w, "the score of token 0 is no number");
    put_words(&w, "t5", pieces, 2);
    gw_put_str(&w, "tokenizer.ggml.precompiled_charsmap", "x");
    refuse_tokens(&w, "`tokenizer.ggml.precompiled_charsmap` is no list of bytes");
}

int main(void)
{
    int fd = mkstemps(path, 5);
    if (fd < 0)
        return 1;
    close(fd);
    int failed = tests_run(NULL, NULL);
    unlink(path);
    return failed;
}
