/* Languages of a text and of its answer, in models with an encoder. */
#include "router/generate/encoder_text.h"
#include "tests/unit/test.h"
#include <string.h>
#include <unistd.h>

enum { DE = 1, END, NO_LANGUAGE, FR, CEB, ENG, ZHO, VOCAB };
static const char *const special[] = {"</s>", "a_Latn", "fr_XX", "__ceb__", "eng_Latn", "zho_Hans"};
/* de_DE is a word like any other */
#define MODEL                                                                                      \
    "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"x\",\"vocab\":{\"x\":0,\"de_DE\":1}}"

static struct sampling_defaults defaults;
static struct validator v = {.vocab_size = VOCAB, .decoder_start = END};
static struct arena arena;
static struct err e;

static int open_tokenizer(void **state)
{
    char dir[] = "/tmp/test-languages-XXXXXX", path[64];
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("{\"added_tokens\":[", f);
    for (int k = 0; k < 6; k++)
        fprintf(f, "%s{\"id\":%d,\"content\":\"%s\",\"special\":true}", k ? "," : "", END + k,
                special[k]);
    fputs("]," MODEL "}", f);
    fclose(f);
    v.tokenizer = tokenizer_load(dir, &e);
    unlink(path);
    rmdir(dir);
    arena_init(&arena, 1 << 16);
    return v.tokenizer ? 0 : -1;
}

static int close_tokenizer(void **state)
{
    (void)state;
    tokenizer_free((struct tokenizer *)v.tokenizer);
    arena_reset(&arena);
    return 0;
}

static struct opt_u64 first_of(const struct ask *q)
{
    struct opt_u64 first;
    e = (struct err)ERR_INIT;
    if (answer_first(&v, q, &first, &e))
        fail_msg("%s", e.msg);
    return first;
}

static void refuses(const struct ask *q, const char *words)
{
    struct opt_u64 first;
    e = (struct err)ERR_INIT;
    assert_int_equal(answer_first(&v, q, &first, &e), -1);
    assert_int_equal(e.kind, ERR_VALIDATION);
    if (!strstr(e.msg, words))
        fail_msg("`%s` does not say `%s`", e.msg, words);
}

TEST(a_request_chooses_the_first_token)
{
    static const char *const none[] = {"a_Latn", "</s>", "de_DE", "deu_Latn", "fr", ""};
    v.has_encoder = true;
    assert_false(first_of(&(struct ask){0}).set);
    assert_int_equal(first_of(&(struct ask){.tgt_lang = "zho_Hans"}).v, ZHO);
    assert_int_equal(first_of(&(struct ask){.tgt_lang = "fr_XX"}).v, FR);
    assert_int_equal(first_of(&(struct ask){.tgt_lang = "ceb"}).v, CEB); /* as in M2M100 */
    assert_int_equal(first_of(&(struct ask){.tgt_lang = "__ceb__"}).v, CEB);
    assert_int_equal(first_of(&(struct ask){.forced_bos = {true, DE}}).v, DE); /* any token */
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        refuses(&(struct ask){.tgt_lang = none[i]}, "has no token for the language");
    refuses(&(struct ask){.tgt_lang = "ceb", .forced_bos = {true, DE}}, "both choose");
    refuses(&(struct ask){.forced_bos = {true, VOCAB}}, "`forced_bos_token_id`: 8 is outside");
}

TEST(a_request_replaces_the_models_first_token)
{
    v.has_encoder = true;
    v.defaults = &defaults;
    defaults.forced_bos_token_id = (struct opt_u64){true, ENG};
    assert_int_equal(first_of(&(struct ask){0}).v, ENG);
    assert_int_equal(first_of(&(struct ask){.tgt_lang = "fr_XX"}).v, FR);
    defaults.forced_bos_token_id.v = VOCAB;
    refuses(&(struct ask){0}, "`forced_bos_token_id` of the model is 8");
    v.has_encoder = false; /* a decoder alone has no use for it */
    assert_false(first_of(&(struct ask){0}).set);
    refuses(&(struct ask){.src_lang = "fr_XX"}, "`src_lang` needs a model with an encoder");
    refuses(&(struct ask){.tgt_lang = "fr_XX"}, "`tgt_lang` needs a model with an encoder");
    v.defaults = NULL;
}

/* Before the text, or behind its end. */
TEST(the_language_of_a_text_is_replaced)
{
    static const uint32_t before[] = {ENG, 0, FR, 0, END}, behind[] = {0, FR, END, ENG},
                          plain[] = {0, END};
    const struct ask q = {.src_lang = "ceb"}, wrong = {.src_lang = "de_DE"};
    const uint32_t *ids = before;
    v.has_encoder = true;
    assert_int_equal(text_language(&v, &(struct ask){0}, &arena, &ids, 5, &e), 0);
    assert_ptr_equal(ids, before);
    assert_int_equal(text_language(&v, &q, &arena, &ids, 5, &e), 0);
    assert_true(ids != before && ids[0] == CEB);
    assert_memory_equal(ids + 1, before + 1, 4 * sizeof(*ids)); /* a language in the text stays */
    ids = behind;
    assert_int_equal(text_language(&v, &q, &arena, &ids, 4, &e), 0);
    assert_true(ids[3] == CEB && ids[1] == FR);
    ids = plain;
    assert_int_equal(text_language(&v, &q, &arena, &ids, 2, &e), -1);
    assert_non_null(strstr(e.msg, "puts no language beside a text"));
    assert_int_equal(text_language(&v, &q, &arena, &ids, 0, &e), -1);
    ids = before;
    assert_int_equal(text_language(&v, &wrong, &arena, &ids, 5, &e), -1);
    assert_non_null(strstr(e.msg, "`src_lang`: this model has no token for the language `de_DE`"));
}

TEST(the_decoder_begins_with_its_tokens)
{
    static const uint32_t text[] = {ENG, 0, END};
    struct gen_request r = {.ids = text, .n_ids = 3};
    assert_int_equal(move_to_encoder(&v, (struct opt_u64){true, FR}, &arena, &r, &e), 0);
    assert_true(r.n_ids == 2 && r.ids[0] == END && r.ids[1] == FR && r.n_media == 1);
    assert_true(r.media->ids == text && r.media->n_ids == 3 && r.media->digest);
}

int main(void) { return tests_run(open_tokenizer, close_tokenizer); }
