/* Tokenizers of TEST_DATA in the files that they had before tokenizer.json, against
 * TEST_DATA/expected/tokenizers: what Hugging Face's own code makes of the tokenizer.json. */
#include "common/tokenizer/byte_chars.h"
#include "common/tokenizer/vocab.h"
#include "tests/golden/token_checks.h"
#include "tests/temp_folder.h"
#include <sys/stat.h>
#include <unistd.h>

struct place {
    char root[64], dir[1024];
    cJSON *tokenizer; /* of TEST_DATA */
};
typedef void write_fn(const struct place *p);

static FILE *create(const struct place *p, const char *name)
{
    char path[200];
    snprintf(path, sizeof(path), "%s/%s", p->root, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    return f;
}

/* ---------------------------------------------------------------- protocol buffers */

static void varint(struct buf *b, uint64_t v)
{
    for (; v >= 128; v >>= 7)
        buf_ch(b, (char)(v | 128));
    buf_ch(b, (char)v);
}

static void bytes_field(struct buf *b, unsigned number, const void *p, size_t n)
{
    varint(b, number << 3 | 2);
    varint(b, n);
    buf_add(b, p, n);
}

static void number_field(struct buf *b, unsigned number, uint64_t v)
{
    varint(b, number << 3);
    varint(b, v);
}

static void piece(struct buf *all, const char *text, float score, unsigned kind)
{
    struct buf one = BUF_INIT;
    bytes_field(&one, 1, text, strlen(text));
    varint(&one, 2 << 3 | 5);
    buf_add(&one, &score, sizeof(score));
    number_field(&one, 3, kind);
    bytes_field(all, 1, one.p, one.len);
    buf_free(&one);
}

enum { IDS_MOST = 1 << 17 };

/* By id: how far the first merge that makes a piece is from the first of all, below 0. */
static float *scores_of(const cJSON *model)
{
    const cJSON *t;
    struct vocab ids = {0};
    struct err e = ERR_INIT;
    float *score = calloc(IDS_MOST, sizeof(*score)), n = 0;
    assert_non_null(score);
    cJSON_ArrayForEach(t, json_get(model, "vocab"))
    {
        assert_in_range((uint32_t)t->valuedouble, 0, IDS_MOST - 1);
        assert_int_equal(
            vocab_put(&ids, t->string, strlen(t->string), (uint32_t)t->valuedouble, &e), 0);
        score[(uint32_t)t->valuedouble] = -1e6F;
    }
    cJSON_ArrayForEach(t, json_get(model, "merges"))
    {
        char both[1024];
        const char *s = cJSON_IsArray(t) ? t->child->valuestring : t->valuestring;
        const char *gap = cJSON_IsArray(t) ? s + strlen(s) : strchr(s, ' ');
        snprintf(both, sizeof(both), "%.*s%s", (int)(gap - s), s,
                 cJSON_IsArray(t) ? t->child->next->valuestring : gap + 1);
        const uint32_t id = vocab_find(&ids, both, strlen(both));
        n--;
        if (id != NO_ID && score[id] <= -1e6F)
            score[id] = n;
    }
    vocab_free(&ids);
    return score;
}

/* tokenizer.model, as Llama's and Mistral's have it. */
static void write_model(const struct place *p)
{
    const cJSON *model = json_get(p->tokenizer, "model"), *t;
    const cJSON *vocab = json_get(model, "vocab");
    struct buf b = BUF_INIT, part = BUF_INIT;
    float *score = scores_of(model);
    uint32_t id = 0;
    cJSON_ArrayForEach(t, vocab)
    {
        const char *s = t->string;
        const bool byte = strlen(s) == 6 && strncmp(s, "<0x", 3) == 0;
        assert_int_equal((uint32_t)t->valuedouble, id);
        piece(&b, s, score[id], id == 0 ? 2 : id <= 2 ? 3 : byte ? 6 : 1);
        id++;
    }
    free(score);
    number_field(&part, 3, 2), number_field(&part, 35, 1);
    bytes_field(&b, 2, part.p, part.len);
    buf_reset(&part);
    number_field(&part, 3, 1), number_field(&part, 4, 0);
    bytes_field(&b, 3, part.p, part.len);
    FILE *f = create(p, "tokenizer.model");
    assert_int_equal(fwrite(b.p, 1, b.len, f), b.len);
    fclose(f);
    buf_free(&b), buf_free(&part);
}

/* ---------------------------------------------------------------- words of bytes */

static void write_merges(const struct place *p)
{
    const cJSON *model = json_get(p->tokenizer, "model"), *m;
    char *vocab = cJSON_PrintUnformatted(json_get(model, "vocab"));
    FILE *f = create(p, "vocab.json");
    fputs(vocab, f);
    fclose(f);
    cJSON_free(vocab);
    f = create(p, "merges.txt");
    fputs("#version: 0.2\n", f);
    cJSON_ArrayForEach(m, json_get(model, "merges")) if (cJSON_IsArray(m))
        fprintf(f, "%s %s\n", m->child->valuestring, m->child->next->valuestring);
    else fprintf(f, "%s\n", m->valuestring);
    fclose(f);
}

/* tokenizer.model, as Llama 3 has it. */
static void write_ranks(const struct place *p)
{
    const cJSON *t;
    FILE *f = create(p, "tokenizer.model");
    cJSON_ArrayForEach(t, json_get(json_get(p->tokenizer, "model"), "vocab"))
    {
        struct buf raw = BUF_INIT, line = BUF_INIT;
        const char *s = t->string;
        for (size_t n = strlen(s), len; n; s += len, n -= len)
            buf_ch(&raw, (char)char_to_byte(utf8_decode(s, n, &len)));
        buf_base64(&line, raw.p, raw.len);
        fprintf(f, "%s %u\n", line.p, (unsigned)t->valuedouble);
        buf_free(&raw), buf_free(&line);
    }
    fclose(f);
}

/* ---------------------------------------------------------------- tests */

static const struct folder_case {
    const char *name;
    write_fn *write;
} cases[] = {
    {"stories260k", write_model}, {"mistral_v1", write_model}, {"llama2", write_model},
    {"gpt2", write_merges},       {"phi2", write_merges},      {"qwen2_5", write_merges},
    {"llama3", write_ranks},
};
enum { N_CASES = sizeof(cases) / sizeof(cases[0]) };
static int skipped;

static void place_make(struct place *p, const char *path)
{
    char cmd[1200];
    struct err e = ERR_INIT;
    snprintf(p->dir, sizeof(p->dir), "%.*s", (int)(strlen(path) - strlen("/tokenizer.json")), path);
    strcpy(p->root, "/tmp/folder-tokens-XXXXXX");
    assert_non_null(mkdtemp(p->root));
    snprintf(cmd, sizeof(cmd), "cp '%s/tokenizer_config.json' %s/", p->dir, p->root);
    assert_int_equal(system(cmd), 0);
    p->tokenizer = json_load(path, 64 << 20, &e);
    assert_non_null(p->tokenizer);
}

static void place_drop(struct place *p)
{
    assert_int_equal(temp_folder_remove(p->root), 0);
    cJSON_Delete(p->tokenizer);
}

static void older_files_tokenize_the_same(void **state)
{
    const struct folder_case *k = *state;
    char name[200];
    struct place p;
    struct tally y = {.name = k->name};
    struct err e = ERR_INIT;
    snprintf(name, sizeof(name), "tokenizers/%s/tokenizer.json", k->name);
    const char *path = test_data(name);
    if (!path) {
        skipped++;
        return;
    }
    place_make(&p, path);
    k->write(&p);
    struct tokenizer *t = tokenizer_load(p.root, &e);
    if (!t)
        fail_msg("%s: %s", k->name, e.msg);
    snprintf(name, sizeof(name), "expected/tokenizers/%s.jsonl", k->name);
    path = test_data(name);
    FILE *f = path ? fopen(path, "r") : NULL;
    assert_non_null(f);
    check_strings(&y, t, f);
    print_message("\n");
    fclose(f);
    tokenizer_free(t);
    place_drop(&p);
    for (unsigned i = 0; i < CHECKS; i++)
        assert_int_equal(y.bad[i], 0);
}

int main(void)
{
    static struct CMUnitTest tests[N_CASES];
    for (size_t i = 0; i < N_CASES; i++)
        tests[i] = (struct CMUnitTest){.name = cases[i].name,
                                       .test_func = older_files_tokenize_the_same,
                                       .initial_state = (void *)(uintptr_t)&cases[i]};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (skipped)
        TEST_SKIPPED(skipped, "no tokenizers under TEST_DATA");
    return failed;
}
