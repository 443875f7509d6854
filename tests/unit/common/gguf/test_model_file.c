/* A GGUF file as the folder that it stands for: which keys become which, and what is refused. */
#include "common/buf.h"
#include "common/gguf/vocab.h"
#include "common/json/json.h"
#include "common/model/model_file.h"
#include "tests/gguf_write.h"
#include "tests/unit/test.h"
#include <unistd.h>

static char path[] = "/tmp/gguf-model-XXXXXX.gguf";

static void tokens(struct gguf_write *w, const char *model, const char *pre)
{
    static const char *const texts[] = {"<unk>", "<s>", "</s>", "a", "b", "ab", "<|im_end|>"};
    static const int32_t types[] = {2, 3, 3, 1, 1, 1, 3};
    static const float scores[] = {0, 0, 0, -5, -6, -1, 0};
    gw_put_str(w, "tokenizer.ggml.model", model);
    if (pre)
        gw_put_str(w, "tokenizer.ggml.pre", pre);
    gw_put_list(w, "tokenizer.ggml.tokens", GGUF_T_STRING, 7);
    for (int i = 0; i < 7; i++)
        gw_text(&w->values, texts[i], strlen(texts[i]));
    gw_put_list(w, "tokenizer.ggml.token_type", GGUF_T_I32, 7);
    buf_add(&w->values, types, sizeof(types));
    gw_put_list(w, "tokenizer.ggml.scores", GGUF_T_F32, 7);
    buf_add(&w->values, scores, sizeof(scores));
    gw_put_u32(w, "tokenizer.ggml.eos_token_id", 2);
    gw_put_str(w, "tokenizer.chat_template", "{{ messages }}");
    gw_put_str(w, "tokenizer.chat_template.tool_use", "{{ tools }}");
}

static void shape(struct gguf_write *w, const char *arch)
{
    static const struct {
        const char *key;
        uint32_t value;
    } keys[] = {{"embedding_length", 8},       {"block_count", 2},
                {"context_length", 64},        {"feed_forward_length", 16},
                {"attention.head_count", 2},   {"rope.dimension_count", 2},
                {"attention.head_count_kv", 1}};
    char key[64];
    const float embed[7 * 8] = {0};
    gw_put_str(w, "general.architecture", arch);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        snprintf(key, sizeof(key), "%s.%s", arch, keys[i].key);
        gw_put_u32(w, key, keys[i].value);
    }
    snprintf(key, sizeof(key), "%s.attention.layer_norm_rms_epsilon", arch);
    gw_put_f32(w, key, 1e-5F);
    gw_tensor(w, "token_embd.weight", GGUF_F32, 2, (const uint64_t[]){8, 7}, embed, sizeof(embed));
}

static cJSON *made(struct gguf_write *w, const char *file, struct err *e)
{
    char name[100];
    assert_int_equal(gw_save(w, path), 0);
    snprintf(name, sizeof(name), "%s/%s", path, file);
    assert_true(model_file_exists(name));
    return model_file_json(name, 1 << 20, e);
}

TEST(configuration)
{
    struct gguf_write w = {0};
    struct err e = ERR_INIT;
    shape(&w, "llama"), tokens(&w, "llama", NULL);
    cJSON *c = made(&w, "config.json", &e);
    if (!c)
        fail_msg("%s", e.msg);
    assert_string_equal(json_str(c, "model_type", ""), "llama");
    assert_int_equal(json_int(c, "hidden_size", 0), 8);
    assert_int_equal(json_int(c, "num_key_value_heads", 0), 1);
    assert_int_equal(json_int(c, "head_dim", 0), 4);
    assert_int_equal(json_int(c, "vocab_size", 0), 7);
    assert_true(json_num(c, "rms_norm_eps", 0) == 1e-5); /* not what 32 bits make of it */
    assert_true(json_num(c, "partial_rotary_factor", 0) == 0.5);
    assert_true(json_bool(c, "tie_word_embeddings", false));
    cJSON_Delete(c);
}

TEST(ends_of_answers)
{
    struct gguf_write w = {0};
    struct err e = ERR_INIT;
    shape(&w, "llama"), tokens(&w, "llama", NULL);
    cJSON *c = made(&w, "generation_config.json", &e);
    char *text = cJSON_PrintUnformatted(json_get(c, "eos_token_id"));
    assert_string_equal(text, "[2,6]"); /* the file's own, and the end of a turn */
    cJSON_free(text);
    assert_null(json_get(c, "temperature"));
    cJSON_Delete(c);
}

TEST(sampling_that_is_recommended)
{
    struct gguf_write w = {0};
    struct err e = ERR_INIT;
    shape(&w, "llama"), tokens(&w, "llama", NULL);
    gw_put_f32(&w, "general.sampling.temp", 0.6f);
    gw_put_u32(&w, "general.sampling.top_k", 20);
    gw_put_f32(&w, "general.sampling.top_p", 0.95f);
    cJSON *c = made(&w, "generation_config.json", &e);
    assert_true(json_num(c, "temperature", 0) == 0.6 && json_num(c, "top_p", 0) == 0.95);
    assert_int_equal(json_int(c, "top_k", 0), 20);
    assert_null(json_get(c, "min_p"));
    cJSON_Delete(c);
}

/* The ends of answers in a file with these control tokens behind a word. */
static void check_ends(const char *const texts[3], uint32_t eos, const char *want)
{
    static const int32_t types[] = {GGUF_NORMAL, GGUF_CONTROL, GGUF_CONTROL, GGUF_CONTROL};
    struct gguf_write w = {0};
    struct err e = ERR_INIT;
    shape(&w, "gpt-oss");
    gw_put_str(&w, "tokenizer.ggml.model", "gpt2");
    gw_put_str(&w, "tokenizer.ggml.pre", "gpt-4o");
    gw_put_list(&w, "tokenizer.ggml.tokens", GGUF_T_STRING, 4);
    gw_text(&w.values, "a", 1);
    for (int i = 0; i < 3; i++)
        gw_text(&w.values, texts[i], strlen(texts[i]));
    gw_put_list(&w, "tokenizer.ggml.token_type", GGUF_T_I32, 4);
    buf_add(&w.values, types, sizeof(types));
    gw_put_list(&w, "tokenizer.ggml.merges", GGUF_T_STRING, 0);
    gw_put_u32(&w, "tokenizer.ggml.eos_token_id", eos);
    cJSON *c = made(&w, "generation_config.json", &e);
    assert_non_null(c);
    char *text = cJSON_PrintUnformatted(json_get(c, "eos_token_id"));
    assert_string_equal(text, want);
    cJSON_free(text);
    cJSON_Delete(c);
}

/* gpt-oss ends each message of a turn with <|end|>, and the turn with others. */
TEST(ends_of_messages_are_none)
{
    check_ends((const char *const[]){"<|end|>", "<|return|>", "<|call|>"}, 2, "[2,3]");
}

/* Gemma 4 waits for the result of a call. */
TEST(results_of_calls_end_a_turn)
{
    check_ends((const char *const[]){"<tool_call|>", "<turn|>", "<|tool_response>"}, 2, "[2,3]");
}

TEST(both_ways)
{
    struct gguf_write w = {0};
    struct err e = ERR_INIT;
    shape(&w, "qwen2"), tokens(&w, "llama", NULL);
    gw_put_bool(&w, "qwen2.attention.causal", false);
    cJSON *c = made(&w, "config.json", &e);
    assert_false(json_bool(c, "is_causal", true));
    cJSON_Delete(c);
}

TEST(templates)
{
    struct gguf_write w = {0};
    struct err e = ERR_INIT;
    shape(&w, "llama"), tokens(&w, "llama", NULL);
    cJSON *c = made(&w, "tokenizer_config.json", &e);
    assert_string_equal(json_str(c, "bos_token", ""), "<s>");
    assert_string_equal(json_str(c, "eos_token", ""), "</s>");
    const cJSON *t = json_get(c, "chat_template");
    assert_string_equal(json_str(t->child, "name", ""), "default");
    assert_string_equal(json_str(t->child, "template", ""), "{{ messages }}");
    assert_string_equal(json_str(t->child->next, "name", ""), "tool_use");
    cJSON_Delete(c);
}

/* Every way to cut a token into two, by the score of the whole. */
TEST(merges_of_scores)
{
    struct gguf_write w = {0};
    struct err e = ERR_INIT;
    shape(&w, "llama"), tokens(&w, "llama", NULL);
    cJSON *c = made(&w, "tokenizer.json", &e);
    char *text = cJSON_PrintUnformatted(json_get(json_get(c, "model"), "merges"));
    assert_string_equal(text, "[[\"a\",\"b\"]]");
    cJSON_free(text);
    cJSON_Delete(c);
}

static void refuse(struct gguf_write *w, const char *file, const char *says)
{
    struct err e = ERR_INIT;
    cJSON *c = made(w, file, &e);
    assert_null(c);
    if (!strstr(e.msg, says) || strncmp(e.msg, path, strlen(path)) != 0)
        fail_msg("%s (wanted: %s)", e.msg, says);
}

TEST(refuses)
{
    struct gguf_write w = {0};
    shape(&w, "grok");
    refuse(&w, "config.json", "architecture `grok` is not read from GGUF (known: llama, qwen2");
    gw_put_u32(&w, "x", 1);
    refuse(&w, "config.json", "`general.architecture` is missing");
    shape(&w, "llama");
    gw_put_str(&w, "llama.rope.scaling.type", "magic");
    refuse(&w, "config.json", "`llama.rope.scaling.type` magic is not supported");
    shape(&w, "llama");
    gw_put_u32(&w, "llama.attention.value_length", 2);
    refuse(&w, "config.json", "heads of k and of v differ in size");
    shape(&w, "qwen2");
    gw_put_u32(&w, "qwen2.expert_count", 4);
    refuse(&w, "config.json", "experts in `qwen2` are not supported");
    gw_put_str(&w, "general.architecture", "qwen2");
    refuse(&w, "config.json", "tensor `token_embd.weight` is missing");
    tokens(&w, "gpt2", "my-own");
    refuse(&w, "tokenizer.json", "`tokenizer.ggml.pre` my-own is not known here");
    tokens(&w, "gpt2", NULL);
    refuse(&w, "tokenizer.json", "`tokenizer.ggml.pre` is missing");
    tokens(&w, "gpt2", "qwen2");
    refuse(&w, "tokenizer.json", "`tokenizer.ggml.merges` is missing");
    tokens(&w, "whitespace", NULL);
    refuse(&w, "tokenizer.json", "`tokenizer.ggml.model` whitespace is not read here");
    gw_put_str(&w, "tokenizer.ggml.model", "llama");
    refuse(&w, "tokenizer.json", "`tokenizer.ggml.tokens` is missing");
    shape(&w, "llama");
    gw_put_list(&w, "llama.feed_forward_length_", GGUF_T_U32, 0);
    gw_put_list(&w, "llama.attention.head_count_kv_", GGUF_T_U32, 0);
    tokens(&w, "llama", NULL);
    gw_put_list(&w, "llama.x", GGUF_T_U32, 0);
    struct err e = ERR_INIT;
    cJSON *c = made(&w, "config.json", &e); /* keys that are not read are passed over */
    assert_non_null(c);
    cJSON_Delete(c);
}

TEST(not_made)
{
    char name[100];
    snprintf(name, sizeof(name), "%s/chat_template.jinja", path);
    assert_false(model_file_exists(name));
    assert_true(model_is_one("models/demo"));
    assert_true(model_file_exists("models/demo/config.json"));
    assert_false(model_is_one("models"));
    assert_true(model_is_one(path));
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
