/* Rules of the pipeline on tokenizers small enough to be worked out by hand. */
#include "common/tokenizer/tokenizer_impl.h"
#include "tests/unit/test.h"
#include <string.h>

/* A BPE tokenizer over a, b, c, space and what `vocab` adds; sections as JSON text. */
static struct tokenizer *make(const char *sections, const char *model)
{
    struct buf b = BUF_INIT;
    struct err e = ERR_INIT;
    buf_fmt(&b, "{%s\"model\":%s}", sections, model);
    struct tokenizer *t = tokenizer_load_text(b.p, b.len, &e);
    if (!t)
        fail_msg("%s", e.msg);
    buf_free(&b);
    return t;
}

static const char abc[] =
    "{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,\"b\":2,\"c\":3,\" \":4,"
    "\"ab\":5,\"abc\":6,\"bc\":7,\"\xE2\x96\x81\":8},\"merges\":[\"b c\",\"a b\",\"ab c\"]}";

/* "id[start,end) .." of a text. */
static void expect_n(struct tokenizer *t, const char *text, size_t n, const char *want)
{
    struct tok_scratch *scratch = NULL;
    struct tok_ids ids = {0};
    struct err e = ERR_INIT;
    struct buf got = BUF_INIT;
    if (tokenizer_encode(t, text, n, TOK_ADD_SPECIAL | TOK_OFFSETS, &scratch, &ids, &e) != 0)
        fail_msg("%s", e.msg);
    for (uint32_t i = 0; i < ids.n; i++)
        buf_fmt(&got, "%s%u[%u,%u)", i ? " " : "", ids.id[i], ids.at[i].start, ids.at[i].end);
    assert_string_equal(got.p ? got.p : "", want);
    buf_free(&got);
    tok_ids_free(&ids);
    tok_scratch_free(scratch);
}

static void expect(struct tokenizer *t, const char *text, const char *want)
{
    expect_n(t, text, strlen(text), want);
}

/* As `word_ids` of Hugging Face's encodings; a text among tokens stays one. */
TEST(tokens_know_their_words)
{
    static const char words[] = "{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,"
                                "\"a\":1,\"##b\":2,\"c\":3}}";
    static const uint32_t want[] = {0, 0, 1, 2, 2};
    struct tokenizer *t = make("\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"decoder\":{\"type\":"
                               "\"WordPiece\",\"prefix\":\"##\",\"cleanup\":false},",
                               words);
    struct tok_scratch *scratch = NULL;
    struct tok_ids ids = {0};
    struct err e = ERR_INIT;
    struct buf text = BUF_INIT;
    assert_int_equal(tokenizer_encode(t, "ab c ab", 7, TOK_OFFSETS, &scratch, &ids, &e), 0);
    assert_int_equal(ids.n, 5);
    assert_memory_equal(ids.word, want, sizeof(want));
    assert_true(tokenizer_marks_inner(t));
    tokenizer_join(t, (const struct tok_text[]){{"a", 1}, {"##b", 3}, {"x\"y", 3}}, 3, &text);
    assert_string_equal(text.p, "ab x\"y");
    buf_free(&text);
    tok_ids_free(&ids);
    tok_scratch_free(scratch);
    tokenizer_free(t);
    t = make("", abc);
    assert_false(tokenizer_marks_inner(t));
    tokenizer_free(t);
}

TEST(merges_follow_ranks_not_length)
{
    struct tokenizer *t = make("", abc);
    expect(t, "abc", "1[0,1) 7[1,3)");
    expect(t, "aab", "1[0,1) 5[1,3)");
    expect(t, "", "");
    tokenizer_free(t);
    t = make(
        "",
        "{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"ba\":3},"
        "\"merges\":[[\"a\",\"b\"]]}");
    expect(t, "ba", "3[0,2)");
    expect(t, "bab", "1[0,1) 2[1,3)");
    tokenizer_free(t);
}

TEST(unknown_characters_keep_their_place)
{
    struct tokenizer *t = make("", abc);
    expect(t, "a\xC3\xA9x", "1[0,1) 0[1,3) 0[3,4)");
    tokenizer_free(t);
    char fused[400];
    snprintf(fused, sizeof fused, "{\"fuse_unk\":true,%s", abc + 1);
    t = make("", fused);
    expect(t, "a\xC3\xA9xb", "1[0,1) 0[1,4) 2[4,5)");
    tokenizer_free(t);
}

TEST(broken_utf8_is_replaced)
{
    struct tokenizer *t =
        make("", "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\xEF\xBF\xBD\":1},\"merges\":[]}");
    expect_n(t,
             "a\xFF\xC3"
             "a\xE2\x82",
             6, "0[0,1) 1[1,2) 1[2,3) 0[3,4) 1[4,5) 1[5,6)");
    tokenizer_free(t);
}

TEST(affixes_mark_the_inside_and_the_end_of_a_word)
{
    struct tokenizer *t =
        make("\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},",
             "{\"type\":\"BPE\",\"unk_token\":\"?\",\"continuing_subword_prefix\":\"##\",\"end_of_"
             "word_suffix\":\"</w>\","
             "\"vocab\":{\"?\":0,\"a\":1,\"##b\":2,\"##b</w>\":3,\"ab</w>\":4,\"a</w>\":5},"
             "\"merges\":[[\"a\",\"##b</w>\"]]}");
    expect(t, "ab a abb", "4[0,2) 5[3,4) 1[5,6) 2[6,7) 3[7,8)");
    tokenizer_free(t);
}

#define ADDED(content, rest) "\"added_tokens\":[{\"id\":9,\"content\":\"" content "\"" rest "}],"

TEST(added_tokens_obey_their_flags)
{
    struct tokenizer *t = make(ADDED("<x>", ",\"lstrip\":true,\"rstrip\":true"), abc);
    expect(t, "a  <x> b", "1[0,1) 9[1,7) 2[7,8)");
    expect(t, "<x> <x>", "9[0,4) 9[4,7)");
    tokenizer_free(t);
    t = make(ADDED("ab", ",\"single_word\":true"), abc);
    expect(t, "ab abab", "5[0,2) 4[2,3) 5[3,5) 5[5,7)"); /* id of the model, not of the file */
    tokenizer_free(t);
    t = make("\"normalizer\":{\"type\":\"Lowercase\"}," ADDED(
                 "ABC", ",\"normalized\":true,\"special\":true"),
             abc);
    expect(t, "aBcb", "9[0,3) 2[3,4)");
    assert_true(tokenizer_is_special(t, 9));
    assert_string_equal(tokenizer_token(t, 9), "ABC");
    tokenizer_free(t);
    t = make("\"normalizer\":{\"type\":\"Lowercase\"}," ADDED("ABC", ",\"normalized\":false"), abc);
    expect(t, "abcABC", "1[0,1) 7[1,3) 9[3,6)");
    tokenizer_free(t);
    t = make("\"added_tokens\":[{\"id\":9,\"content\":\"<a\"},{\"id\":10,\"content\":\"<a>\"}],",
             abc);
    expect(t, "<a><a", "10[0,3) 9[3,5)"); /* the longest wins */
    tokenizer_free(t);
}

/* Ids of a guarded text. */
static void expect_guarded(struct tokenizer *t, const char *text, const char *want)
{
    struct tok_scratch *scratch = NULL;
    struct tok_ids ids = {0};
    struct err e = ERR_INIT;
    struct buf got = BUF_INIT;
    assert_int_equal(tokenizer_encode(t, text, strlen(text), TOK_GUARDED, &scratch, &ids, &e), 0);
    for (uint32_t i = 0; i < ids.n; i++)
        buf_fmt(&got, "%s%u", i ? " " : "", ids.id[i]);
    assert_string_equal(got.p ? got.p : "", want);
    buf_free(&got);
    tok_ids_free(&ids);
    tok_scratch_free(scratch);
}

TEST(guards_keep_text_from_becoming_a_token)
{
    struct tokenizer *t = make(ADDED("cab", ""), abc);
    expect_guarded(t, "abcabc", "5 9 3");
    expect_guarded(t, "abc" TOK_GUARD "abc", "1 7 1 7");         /* as if the token were unknown */
    expect_guarded(t, "c" TOK_GUARD "abcab" TOK_GUARD, "3 5 9"); /* only where guards are */
    expect_guarded(t, TOK_GUARD TOK_GUARD, "");
    tokenizer_free(t);
    t = make("\"normalizer\":{\"type\":\"Lowercase\"}," ADDED("CAB", ",\"normalized\":true"), abc);
    expect_guarded(t, "C" TOK_GUARD "abCab", "3 5 9");
    tokenizer_free(t);
}

TEST(offsets_point_into_the_original)
{
    struct tokenizer *t =
        make("\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
             "{\"type\":\"Prepend\",\"prepend\":\"\xE2\x96\x81\"},"
             "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"},"
             "{\"type\":\"NFKC\"},{\"type\":\"Lowercase\"}]},",
             abc);
    /* fullwidth letters and a ligature-free mix: A (3 bytes), space, B */
    expect(t, "\xEF\xBC\xA1 \xEF\xBC\xA2", "8[0,3) 1[0,3) 8[3,4) 2[4,7)");
    expect(t, "", "");
    tokenizer_free(t);
}

TEST(splits_put_matches_on_the_right_side)
{
    static const struct {
        const char *behaviour, *want;
    } rows[] = {{"Isolated", "1[0,1) 4[1,2) 4[2,3) 2[3,4)"},
                {"Removed", "1[0,1) 2[3,4)"},
                {"MergedWithPrevious", "9[0,2) 4[2,3) 2[3,4)"},
                {"MergedWithNext", "1[0,1) 4[1,2) 10[2,4)"},
                {"Contiguous", "1[0,1) 11[1,3) 2[3,4)"}};
    for (size_t i = 0; i < 5; i++) {
        char pre[200];
        snprintf(pre, sizeof pre,
                 "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" "
                 "\"},\"behavior\":\"%s\"},",
                 rows[i].behaviour);
        struct tokenizer *t =
            make(pre, "{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"b\":2,\" \":4,\"a \":9,\" b\":10,"
                      "\"  \":11},\"merges\":[],\"ignore_merges\":true}");
        expect(t, "a  b", rows[i].want);
        tokenizer_free(t);
    }
}

TEST(wordpiece_takes_the_longest_or_nothing)
{
    struct tokenizer *t =
        make("\"normalizer\":{\"type\":\"BertNormalizer\"},\"pre_tokenizer\":{\"type\":"
             "\"BertPreTokenizer\"},"
             "\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"[CLS]\",8],\"sep\":[\"["
             "SEP]\",9]},"
             "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true},",
             "{\"type\":\"WordPiece\",\"vocab\":{\"[UNK]\":0,\"un\":1,\"##aff\":2,\"##able\":3,"
             "\"una\":4,\"!\":5,"
             "\"\xE4\xB8\xAD\":6}}");
    expect(t,
           "Unaff\xC3\xA1"
           "ble!",
           "8[0,0) 0[0,10) 5[10,11) 9[0,0)");
    expect(t, "UNaffable\xE4\xB8\xAD", "8[0,0) 0[0,9) 6[9,12) 9[0,0)"); /* una + ff.. fails */
    struct buf b = BUF_INIT;
    tokenizer_decode(t, (const uint32_t[]){1, 2, 3, 6, 5}, 5, false, &b);
    assert_string_equal(b.p, "unaffable \xE4\xB8\xAD!");
    buf_free(&b);
    tokenizer_free(t);
}

TEST(unigram_finds_the_best_path)
{
    struct tokenizer *t = make(
        "", "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1],[\"b\",-1],"
            "[\"ab\",-1.5],[\"bb\",-3.5]]}");
    expect(t, "abb", "3[0,2) 2[2,3)");
    expect(t, "xyab", "0[0,2) 3[2,4)"); /* unknown neighbours become one */
    tokenizer_free(t);
}

TEST(a_stream_never_shows_half_a_character)
{
    struct tokenizer *t = make("\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":"
                               "\"ByteFallback\"},{\"type\":\"Fuse\"}]},",
                               "{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"a\":0,\"<"
                               "0xE4>\":1,\"<0xB8>\":2,\"<0xAD>\":3},"
                               "\"merges\":[]}");
    struct detok d;
    struct buf out = BUF_INIT;
    assert_int_equal(detok_init(&d, t, NULL, 0, false), 0);
    const uint32_t ids[] = {0, 1, 2, 3, 0};
    const size_t want[] = {1, 1, 1, 4, 5};
    for (int i = 0; i < 5; i++) {
        detok_push(&d, ids[i], &out);
        assert_int_equal(out.len, want[i]);
    }
    detok_push(&d, 1, &out);
    assert_int_equal(out.len, 5);
    detok_finish(&d, &out);
    assert_string_equal(out.p, "a\xE4\xB8\xAD"
                               "a\xEF\xBF\xBD");
    detok_free(&d);
    buf_reset(&out);
    /* a thousand broken bytes are let go of long before the end, and nothing is lost */
    assert_int_equal(detok_init(&d, t, NULL, 0, false), 0);
    for (int i = 0; i < 1000; i++)
        detok_push(&d, 1, &out);
    assert_true(out.len > 2000 && d.n < 200);
    detok_finish(&d, &out);
    assert_int_equal(out.len, 3000);
    detok_free(&d);
    buf_free(&out);
    tokenizer_free(t);
}

/* An answer that ignores its end is mostly special tokens. */
TEST(tokens_without_text_take_no_window)
{
    struct tokenizer *t = make("\"added_tokens\":[{\"id\":1,\"content\":\"</s>\",\"special\":"
                               "true}],\"decoder\":{\"type\":\"Metaspace\"},",
                               "{\"type\":\"BPE\",\"vocab\":{\"\xE2\x96\x81"
                               "a\":0,\"</s>\":1,\"\":2},\"merges\":[]}");
    struct detok d;
    struct buf out = BUF_INIT;
    assert_int_equal(detok_init(&d, t, NULL, 0, true), 0);
    detok_push(&d, 0, &out);
    for (int i = 0; i < 3000; i++)
        detok_push(&d, i < 1000 ? 1 : i < 2000 ? 77 : 2, &out);
    assert_true(d.n < 200);
    detok_push(&d, 0, &out);
    detok_finish(&d, &out);
    assert_string_equal(out.p, "a a");
    detok_free(&d);
    buf_free(&out);
    tokenizer_free(t);
}

TEST(decoders_undo_what_was_done)
{
    const uint32_t ids[] = {5, 8, 3, 77, 1};
    static const struct {
        const char *decoder, *want;
    } rows[] = {
        {"", "ab \xE2\x96\x81 c a"},
        {"\"decoder\":{\"type\":\"Metaspace\"},", "ab ca"},
        {"\"decoder\":{\"type\":\"BPEDecoder\",\"suffix\":\"b\"},", "a \xE2\x96\x81"
                                                                    "ca"},
        {"\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[ab]+\"},\"content\":\"-\"},",
         "-\xE2\x96\x81"
         "c-"},
        {"\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},"
         "{\"type\":\"Strip\",\"content\":\"a\",\"start\":1,\"stop\":1}]},",
         "b\xE2\x96\x81"
         "c"}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tokenizer *t = make(rows[i].decoder, abc);
        struct buf b = BUF_INIT;
        tokenizer_decode(t, ids, 5, false, &b);
        assert_string_equal(b.p, rows[i].want);
        buf_free(&b);
        tokenizer_free(t);
    }
}

int main(void) { return tests_run(NULL, NULL); }
