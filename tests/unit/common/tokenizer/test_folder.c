/* Tokenizers of folders without tokenizer.json: small ones, whose ids transformers 5.24 and
 * tiktoken gave. test_folder_tokens.c has real ones. */
#include "common/tokenizer/sentencepiece.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/temp_folder.h"
#include "tests/unit/common/tokenizer/expect_ids.h"
#include "tests/unit/test.h"
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TEMP_FOLDER(root, "folder")

static void put(const char *name, const void *bytes, size_t n)
{
    char path[200];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void put_text(const char *name, const char *text) { put(name, text, strlen(text)); }

#define ENCODES(text, ...) EXPECT_ENCODES(root, text, __VA_ARGS__)

static const char lazy_json[] =
    "{\"added_tokens\":[{\"id\":4,\"content\":\"<s>\",\"special\":true}],\"model\":{\"type\":"
    "\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"abb\":3},\"merges\":[\"a b\",\"ab %s\"]},"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<"
    "s>\""
    ",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{\"<s>\":{"
    "\"id\":\"<s>\",\"ids\":[4]}}},\"decoder\":{\"type\":\"Fuse\"}}";

static struct tokenizer *lazy(const char *right)
{
    struct err e = ERR_INIT;
    char json[1000];
    snprintf(json, sizeof(json), lazy_json, right);
    put_text("tokenizer.json", json);
    struct tokenizer *t = tokenizer_load_lazily(root, &e);
    if (!t)
        fail_msg("%s", e.msg);
    return t;
}

/* All but encoding, from the start; and encoding, when it is needed. */
TEST_WITH(a_lazy_tokenizer_completes_itself, temp_begin, temp_end)
{
    const uint32_t want[] = {4, 3, 0, 2}, ids[] = {4, 2, 3};
    struct buf text = BUF_INIT;
    put_text("tokenizer_config.json", "{\"bos_token\":\"<s>\"}");
    struct tokenizer *t = lazy("b");
    assert_int_equal(tokenizer_vocab_size(t), 5);
    assert_int_equal(tokenizer_id(t, "ab"), 2);
    assert_true(tokenizer_is_special(t, 4));
    tokenizer_decode(t, ids, 3, true, &text);
    assert_string_equal(text.p, "ababb");
    expect_ids(t, "abbaab", want, 4);
    assert_string_equal(tokenizer_special(t, "bos_token"), "<s>");
    buf_free(&text);
    tokenizer_free(t);
}

/* Another file than the one whose vocabulary decodes: its ids would be wrong. */
TEST_WITH(a_lazy_tokenizer_is_not_completed_from_another_file, temp_begin, temp_end)
{
    char path[200], other[200];
    struct err e = ERR_INIT;
    struct tok_scratch *scratch = NULL;
    struct tok_ids ids = {0};
    struct tokenizer *t = lazy("b");
    snprintf(path, sizeof(path), "%s/tokenizer.json", root);
    snprintf(other, sizeof(other), "%s/other.json", root);
    put_text("other.json",
             "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"b\":0,\"a\":1},\"merges\":[]}}");
    assert_int_equal(rename(other, path), 0);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(tokenizer_encode(t, "ab", 2, 0, &scratch, &ids, &e), -1);
        assert_non_null(strstr(e.msg, "were replaced since the start"));
    }
    tok_ids_free(&ids);
    tok_scratch_free(scratch);
    tokenizer_free(t);
}

/* The same of a folder without tokenizer.json: any file that it is made of. */
TEST_WITH(nor_from_other_files_of_an_older_format, temp_begin, temp_end)
{
    static const struct {
        const char *name, *text;
    } others[] = {{"vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\nworld\n"},
                  {"tokenizer_config.json", "{\"do_lower_case\":false}"},
                  {"added_tokens.json", "{\"<new>\":7}"},
                  {NULL, NULL}};
    for (int i = 0; i < 4; i++) {
        struct err e = ERR_INIT;
        struct tok_scratch *scratch = NULL;
        struct tok_ids ids = {0};
        put_text("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nworld\nhello\n");
        struct tokenizer *t = tokenizer_load_lazily(root, &e);
        if (!t)
            fail_msg("%s", e.msg);
        if (others[i].name)
            put_text(others[i].name, others[i].text);
        assert_int_equal(tokenizer_encode(t, "hello", 5, 0, &scratch, &ids, &e),
                         others[i].name ? -1 : 0);
        assert_true(!others[i].name || strstr(e.msg, "were replaced since the start"));
        tok_ids_free(&ids);
        tok_scratch_free(scratch);
        tokenizer_free(t);
    }
}

/* What only encoding needs is read then: its errors are that call's. */
TEST_WITH(a_lazy_tokenizer_reads_no_merges, temp_begin, temp_end)
{
    struct err e = ERR_INIT;
    struct tok_scratch *scratch = NULL;
    struct tok_ids ids = {0};
    struct buf text = BUF_INIT;
    struct tokenizer *t = lazy("c");
    for (int again = 0; again < 2; again++) {
        assert_int_equal(tokenizer_encode(t, "ab", 2, 0, &scratch, &ids, &e), -1);
        assert_non_null(strstr(e.msg, "model.merges[1]"));
    }
    tokenizer_decode(t, (const uint32_t[]){2}, 1, true, &text);
    assert_string_equal(text.p, "ab");
    buf_free(&text);
    tok_ids_free(&ids);
    tok_scratch_free(scratch);
    tokenizer_free(t);
}

TEST_WITH(words_in_lines, temp_begin, temp_end)
{
    put_text("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\n,\nworld\n!\nun\n##aff\n"
                          "##able\n漢\ncafe\n##s\n-\nthe\n");
    ENCODES("Hello, World!", 2, 5, 6, 7, 8, 3);
    ENCODES("unaffable the漢cafés x", 2, 9, 10, 11, 16, 12, 13, 14, 1, 3);
    ENCODES("the [MASK] hello[SEP]", 2, 16, 4, 5, 3, 3);
}

/* Files beside it that are no objects name no special tokens. */
TEST_WITH(arrays_in_place_of_objects, temp_begin, temp_end)
{
    put_text("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\n");
    put_text("tokenizer_config.json", "[[\"hello\"],{\"content\":\"hello\"},\"hello\",5]");
    put_text("special_tokens_map.json", "[[],[[]]]");
    put_text("added_tokens.json", "[[7],7]");
    ENCODES("hello", 2, 5, 3);
}

TEST_WITH(ranks, temp_begin, temp_end)
{
    static const char *const merged[] = {"he", "ll",     "hell",     "hello", " w", "or", " wor",
                                         "ld", " world", "\xe6\xbc", "漢",    "12", "123"};
    struct buf b = BUF_INIT;
    unsigned rank = 0;
    for (; rank < 256; rank++) {
        const char byte = (char)rank;
        buf_base64(&b, &byte, 1);
        buf_fmt(&b, " %u\n", rank);
    }
    for (size_t i = 0; i < sizeof(merged) / sizeof(merged[0]); i++) {
        buf_base64(&b, merged[i], strlen(merged[i]));
        buf_fmt(&b, " %u\n", rank++);
    }
    put("tiktoken.model", b.p, b.len);
    put_text("tokenizer_config.json",
             "{\"tokenizer_class\":\"TikTokenTokenizer\",\"added_tokens_decoder\":{\"300\":"
             "{\"content\":\"<|im_end|>\",\"special\":true}}}");
    buf_free(&b);
    ENCODES("hello world", 259, 264);
    ENCODES("Hello漢字 1234 it's<|im_end|>", 72, 101, 257, 111, 266, 229, 173, 151, 32, 268, 52, 32,
            105, 116, 39, 115, 300);
    ENCODES("  ab\n\n x", 32, 32, 97, 98, 10, 10, 32, 120);
    ENCODES("<|reserved_token_271|>", 271);
}

TEST_WITH(unknown_pre_tokenizers, temp_begin, temp_end)
{
    struct err e = ERR_INIT;
    put_text("tiktoken.model", "YQ== 0\n");
    put_text("tokenizer_config.json", "{\"tokenizer_class\":\"OtherTokenizer\"}");
    assert_null(tokenizer_load(root, &e));
    assert_non_null(strstr(e.msg, "`OtherTokenizer`"));
}

TEST_WITH(literals, temp_begin, temp_end)
{
    static const char *const more[] = {"257 '\\t\\t' 2", "258 '\\r\\n' 2",    "259 \"it's\" 4",
                                       "260 'it' 2",     "261 '\\u200b' 3",   "262 b'\\xe6\\xbc' 2",
                                       "263 '漢' 3",     "264 '\\\\\\'\"' 3", "265 '\\xa0x' 3",
                                       "266 '漢字' 6",   "267 '<|' 2"};
    struct buf b = BUF_INIT;
    for (unsigned byte = 0; byte < 256; byte++)
        buf_fmt(&b, "%u %s'\\x%02x' 1\n", byte + 1, byte < 128 ? "" : "b", byte);
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++)
        buf_fmt(&b, "%s\r\n", more[i]);
    put("rwkv_vocab_v20230424.txt", b.p, b.len);
    buf_free(&b);
    put_text("tokenizer_config.json", "{\"tokenizer_class\":\"RwkvTokenizer\"}");
    ENCODES("it's it i", 259, 33, 260, 33, 106);
    ENCODES("漢字漢漫", 266, 263, 262, 172);
    ENCODES("\t\t\t\r\n\n", 257, 10, 258, 11);
    ENCODES("\xc2\xa0x\\'\"\xe2\x80\x8b", 265, 264, 261);
    ENCODES("<|rwkv_tokenizer_end_of_text|><|", 0, 267);
    /* split by a guard (TOK_GUARDED) it is the text of a message */
    struct err e = ERR_INIT;
    struct tokenizer *t = tokenizer_load(root, &e);
    struct tok_scratch *scratch = NULL;
    struct tok_ids ids = {0};
    const char guarded[] = "<\ufdd0|rwkv_tokenizer_end_of_text|>";
    assert_non_null(t);
    assert_int_equal(tokenizer_encode(t, guarded, strlen(guarded), TOK_GUARDED, &scratch, &ids, &e),
                     0);
    assert_int_equal(ids.n, 29);
    assert_int_equal(ids.id[0], 267);
    tok_ids_free(&ids);
    tok_scratch_free(scratch);
    tokenizer_free(t);
}

TEST_WITH(no_literals, temp_begin, temp_end)
{
    static const char *const lines[] = {
        "1 'a'",     "1 'ab' 1",   "x 'a' 1",          "1 a 1",     "1 'a\" 1",
        "1 '\\q' 1", "1 '\\x4' 1", "1 b'\\u0041' 1",   "1 'a\\' 1", "1 '\\ud800' 3",
        "1 '' 0",    "0 'a' 1",    "99999999999 'a' 1"};
    struct err e = ERR_INIT;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        put_text("rwkv_vocab_v20230424.txt", lines[i]);
        if (tokenizer_load(root, &e) || !strstr(e.msg, "rwkv_vocab_v20230424.txt: line 1"))
            fail_msg("%s: %s", lines[i], e.msg);
    }
    put_text("rwkv_vocab_v20230424.txt", "1 'a' 1\n");
    assert_null(tokenizer_load(root, &e));
    assert_non_null(strstr(e.msg, "no token is the byte 0x00"));
}

/* PLaMo's vocabulary: four control tokens, bytes, pieces with scores. */
static void put_plamo(const char *const *pieces, size_t n)
{
    static const char *const control[] = {"unk", "bos", "eos", "pad"};
    struct buf b = BUF_INIT;
    for (size_t i = 0; i < sizeof(control) / sizeof(control[0]); i++)
        buf_fmt(&b, "[\"<|plamo:%s|>\", 0.0, \"%s\", 7]\n", control[i], i ? "CONTROL" : "UNKNOWN");
    for (unsigned byte = 0; byte < 256; byte++)
        buf_fmt(&b, "[\"<0x%02X>\", 0.0, \"BYTE\"]\n", byte);
    for (size_t i = 0; i < n; i++)
        buf_fmt(&b, "[%s]\n", pieces[i]);
    put("tokenizer.jsonl", b.p, b.len);
    buf_free(&b);
}

/* 260 and on. The ids are llama.cpp's for the same vocabulary in a GGUF file. */
TEST_WITH(likely_texts, temp_begin, temp_end)
{
    static const char *const pieces[] = {"\"a\", -1.0, \"NORMAL\"",
                                         "\"b\", -1.0, \"NORMAL\"",
                                         "\"ab\", -2.0, \"NORMAL\"",
                                         "\"ba\", -2.0, \"NORMAL\"",
                                         "\"bab\", -3.5, \"NORMAL\"",
                                         "\" \", -4.0",
                                         "\"\u65e5\", -5, \"NORMAL\"",
                                         "\"\u672c\", -6, \"NORMAL\"",
                                         "\"\u65e5\u672c\", -11.00004, \"NORMAL\"",
                                         "\"\u672c\u8a9e\", -7.00016, \"NORMAL\""};
    put_plamo(pieces, sizeof(pieces) / sizeof(pieces[0]));
    put_text("tokenizer_config.json",
             "{\"tokenizer_class\":\"Plamo2Tokenizer\",\"add_bos_token\":true}");
    ENCODES("ab", 1, 262);       /* a sum of scores as good as a b: the longest first */
    ENCODES("bab", 1, 263, 261); /* ba b as b ab; bab is less */
    ENCODES("a  b", 1, 260, 265, 265, 261);
    ENCODES("日本", 1, 268); /* 4e-5 less is the same score */
    ENCODES("日本語", 1, 266, 269);
    ENCODES("語", 1, 236, 174, 162); /* bytes, which no text spells */
    ENCODES("<0x61>", 1, 64, 52, 124, 58, 53, 66);
    ENCODES("a<|plamo:eos|>b", 1, 260, 2, 261);
    ENCODES("", 1);
}

TEST_WITH(no_plamo, temp_begin, temp_end)
{
    static const char *const lines[] = {"\"a\"", "\"a\", \"-1\"", "\"\", -1.0", "1, -1.0",
                                        "\"a\", -1"
                                        "e999"};
    struct err e = ERR_INIT;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        put_plamo(&lines[i], 1);
        if (tokenizer_load(root, &e) || !strstr(e.msg, "tokenizer.jsonl: token 260"))
            fail_msg("%s: %s", lines[i], e.msg);
    }
    put_text("tokenizer.jsonl", "\n");
    assert_null(tokenizer_load(root, &e));
    assert_non_null(strstr(e.msg, "no tokens"));
}

/* Pieces <unk> <s> </s> a, of a trainer with BPE and bytes. */
static const uint8_t model[] = {
    0x0a, 0x0c, 0x0a, 5, '<',  'u',  'n', 'k',  '>',  0x15, 0, 0, 0, 0, /* no kind: normal */
    0x0a, 0x07, 0x0a, 3, '<',  's',  '>', 0x18, 3,                      /* control */
    0x0a, 0x08, 0x0a, 4, '<',  '/',  's', '>',  0x18, 3,                /* control */
    0x0a, 0x08, 0x0a, 1, 'a',  0x15, 0,   0,    0x80, 0xbf,             /* -1 */
    0x12, 0x05, 0x18, 2, 0x98, 0x02, 1,                                 /* BPE, bytes */
    0x1a, 0x04, 0x18, 0, 0x20, 0,                                       /* no prefix, blanks stay */
};

TEST(pieces)
{
    struct spm m;
    struct err e = ERR_INIT;
    if (spm_open(&m, model, sizeof(model), &e))
        fail_msg("%s", e.msg);
    assert_int_equal(m.n, 4);
    assert_true(m.bpe && m.bytes && !m.prefix && !m.squeeze);
    assert_true(m.unk == 0 && m.bos == 1 && m.eos == 2 && m.pad == -1);
    assert_int_equal(m.piece[1].kind, SPM_CONTROL);
    assert_memory_equal(m.piece[3].p, "a", 1);
    assert_true(m.piece[3].score == -1);
    spm_close(&m);
}

/* Whatever is cut off or changed, nothing outside the bytes is read. */
TEST(foreign_bytes)
{
    struct err e = ERR_INIT;
    struct spm m;
    uint32_t seed = 1;
    for (size_t n = 0; n < sizeof(model); n++) {
        uint8_t *copy = malloc(n ? n : 1);
        assert_non_null(copy);
        memcpy(copy, model, n);
        if (spm_open(&m, copy, n, &e) == 0)
            spm_close(&m);
        free(copy);
    }
    for (int i = 0; i < 20000; i++) {
        uint8_t *copy = malloc(sizeof(model));
        assert_non_null(copy);
        memcpy(copy, model, sizeof(model));
        for (int k = 0; k < 3; k++) {
            seed = seed * 1664525u + 1013904223u;
            copy[(seed >> 8) % sizeof(model)] = (uint8_t)(seed >> 24);
        }
        if (spm_open(&m, copy, sizeof(model), &e) == 0)
            spm_close(&m);
        free(copy);
    }
}

int main(void) { return tests_run(NULL, NULL); }
