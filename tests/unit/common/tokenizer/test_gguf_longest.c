/* RWKV's tokenizer in a GGUF file: bytes with Python's escapes, cut into the longest tokens; and
 * the name that stands for a chat template. */
#include "common/gguf/vocab.h"
#include "common/json/json.h"
#include "common/model/model_file.h"
#include "common/template/template.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/gguf_write.h"
#include "tests/unit/common/tokenizer/expect_ids.h"
#include "tests/unit/test.h"
#include <unistd.h>

static char root[] = "/tmp/gguf-longest-XXXXXX.gguf";

enum { BYTES = 256, FIRST_MORE = BYTES + 1 };
static const char *const more[] = {"\\t\\t",     "\\n\\n",          "it\\'s",   "it",
                                   "\\xe6\\xbc", "\\xe6\\xbc\\xa2", "\\\\\\\"", "<|"};
enum { N_MORE = sizeof(more) / sizeof(more[0]), PAD = FIRST_MORE + N_MORE };

/* Tokens <s>, all bytes from `first` on as repr() writes them, `more`, and one that is not used. */
static void put_tokens(struct gguf_write *w, unsigned first, const char *instead)
{
    gw_put_str(w, "tokenizer.ggml.model", "rwkv");
    gw_put_list(w, "tokenizer.ggml.tokens", GGUF_T_STRING, PAD + 1);
    gw_text(&w->values, "<s>", 3);
    for (unsigned byte = 0; byte < BYTES; byte++) {
        char text[8];
        const bool plain = byte >= 0x20 && byte < 0x7f && byte != '\\' && byte != '\'';
        snprintf(text, sizeof(text), plain ? "%c" : "\\x%02x", byte < first ? first : byte);
        gw_text(&w->values, text, strlen(text));
    }
    for (int i = 0; i < N_MORE; i++) {
        const char *s = i == 0 && instead ? instead : more[i];
        gw_text(&w->values, s, strlen(s));
    }
    gw_text(&w->values, "[PAD1]", 6);
    gw_put_list(w, "tokenizer.ggml.token_type", GGUF_T_I32, PAD + 1);
    for (int32_t i = 0, type; i <= PAD; i++) {
        type = i == 0 ? GGUF_CONTROL : i == PAD ? GGUF_UNUSED : GGUF_NORMAL;
        buf_add(&w->values, &type, sizeof(type));
    }
    gw_put_u32(w, "tokenizer.ggml.eot_token_id", FIRST_MORE + 1);
    gw_put_str(w, "tokenizer.chat_template", "rwkv-world");
}

static void put_model(struct gguf_write *w)
{
    const float embed[8] = {0};
    gw_put_str(w, "general.architecture", "rwkv7");
    gw_put_u32(w, "rwkv7.embedding_length", 8);
    gw_put_u32(w, "rwkv7.block_count", 2);
    gw_put_u32(w, "rwkv7.feed_forward_length", 32);
    gw_put_u32(w, "rwkv7.attention.head_count", 0);
    gw_put_u32(w, "rwkv7.wkv.head_size", 4);
    gw_put_u32(w, "rwkv7.attention.decay_lora_rank", 3);
    gw_put_u32(w, "rwkv7.attention.iclr_lora_rank", 5);
    gw_put_u32(w, "rwkv7.attention.value_residual_mix_lora_rank", 6);
    gw_put_u32(w, "rwkv7.attention.gate_lora_rank", 7);
    gw_put_f32(w, "rwkv7.attention.layer_norm_epsilon", 1e-5F);
    gw_tensor(w, "token_embd.weight", GGUF_F32, 2, (const uint64_t[]){8, 1}, embed, sizeof(embed));
    gw_tensor(w, "blk.0.attn_norm.bias", GGUF_F32, 1, (const uint64_t[]){8}, embed, sizeof(embed));
}

#define ENCODES(text, ...) EXPECT_ENCODES(root, text, __VA_ARGS__)

TEST(longest_tokens)
{
    struct gguf_write w = {0};
    put_model(&w), put_tokens(&w, 0, NULL);
    assert_int_equal(gw_save(&w, root), 0);
    ENCODES("it's it i", FIRST_MORE + 2, 33, FIRST_MORE + 3, 33, 106);
    ENCODES("漢漫", FIRST_MORE + 5, FIRST_MORE + 4, 172);
    ENCODES("\t\t\t\n\n\n", FIRST_MORE, 10, FIRST_MORE + 1, 11);
    ENCODES("\\\"'", FIRST_MORE + 6, 40);
    ENCODES("<s><|[PAD1]", 0, FIRST_MORE + 7, 92, 81, 66, 69, 50, 94);
}

static cJSON *file(const char *name)
{
    char path[100];
    struct err e = ERR_INIT;
    snprintf(path, sizeof(path), "%s/%s", root, name);
    cJSON *c = model_file_json(path, 1 << 20, &e);
    if (!c)
        fail_msg("%s", e.msg);
    return c;
}

TEST(metadata)
{
    struct gguf_write w = {0};
    put_model(&w), put_tokens(&w, 0, NULL);
    assert_int_equal(gw_save(&w, root), 0);
    cJSON *c = file("config.json");
    assert_string_equal(json_str(c, "model_type", ""), "rwkv7");
    assert_int_equal(json_int(c, "head_dim", 0), 4);
    assert_int_equal(json_int(c, "decay_low_rank_dim", 0), 3);
    assert_int_equal(json_int(c, "a_low_rank_dim", 0), 5);
    assert_int_equal(json_int(c, "v_low_rank_dim", 0), 6);
    assert_int_equal(json_int(c, "gate_low_rank_dim", 0), 7);
    assert_int_equal(json_int(c, "intermediate_size", 0), 32);
    assert_true(json_num(c, "norm_eps", 0) == 1e-5 && json_bool(c, "norm_bias", false));
    cJSON_Delete(c);
    c = file("generation_config.json");
    char *ends = cJSON_PrintUnformatted(json_get(c, "eos_token_id"));
    assert_string_equal(ends, "[0,258]");
    cJSON_free(ends);
    cJSON_Delete(c);
}

/* As llama.cpp's llama_chat_apply_template() does for this name. */
TEST(named_template)
{
    struct gguf_write w = {0};
    put_model(&w), put_tokens(&w, 0, NULL);
    assert_int_equal(gw_save(&w, root), 0);
    cJSON *c = file("tokenizer_config.json");
    const cJSON *list = json_get(c, "chat_template");
    const char *text = json_str(list->child, "template", "");
    static const char chat[] = "{\"messages\":[{\"role\":\"system\",\"content\":\" Be brief. \"},"
                               "{\"role\":\"user\",\"content\":\"Hi\"},"
                               "{\"role\":\"assistant\",\"content\":\"Hello.\\n\"},"
                               "{\"role\":\"user\",\"content\":\"Bye\"}]}";
    struct err e = ERR_INIT;
    struct buf out = BUF_INIT;
    cJSON *vars = json_parse(chat, sizeof(chat) - 1, &e);
    struct template *t = template_compile(text, strlen(text), &e);
    if (!t || template_render(t, vars, NULL, &out, &e))
        fail_msg("%s", e.msg);
    buf_ch(&out, 0);
    assert_string_equal(out.p, "System: Be brief.\n\nUser: Hi\n\nAssistant: Hello.\n\n"
                               "User: Bye\n\nAssistant:");
    buf_free(&out);
    template_free(t);
    cJSON_Delete(vars);
    cJSON_Delete(c);
}

static void refuses(const char *says)
{
    struct err e = ERR_INIT;
    assert_null(tokenizer_load(root, &e));
    if (!strstr(e.msg, says))
        fail_msg("%s (wanted: %s)", e.msg, says);
}

TEST(refused)
{
    static const char *const bad[] = {"\\q", "\\x4", "\\xg0", "\\", "\\x"};
    struct gguf_write w = {0};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        put_model(&w), put_tokens(&w, 0, bad[i]);
        assert_int_equal(gw_save(&w, root), 0);
        refuses("token 257 is no literal of bytes");
    }
    put_model(&w), put_tokens(&w, 1, NULL); /* twice the byte 1 */
    assert_int_equal(gw_save(&w, root), 0);
    refuses("no token is the byte 0x00");
}

static int begin(void **state)
{
    (void)state;
    const int fd = mkstemps(root, 5);
    return fd < 0 ? -1 : close(fd);
}
static int end(void **state) { return (void)state, unlink(root); }

int main(void) { return tests_run(begin, end); }
