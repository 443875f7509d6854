/* Loads a tokenizer. One pass over tokenizer.json finds the sections; large ones are read directly
 * into tables, small ones through a JSON tree. */
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/gguf/projector.h"
#include "common/json/reader.h"
#include "common/model/model_file.h"
#include "common/tokenizer/gguf_lists.h"
#include "common/tokenizer/score.h"
#include "common/tokenizer/tokenizer_impl.h"
#include "common/utf8.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_FILE = 512 << 20, MAX_CONFIG = 16 << 20 };

struct section {
    const char *s, *end; /* NULL: absent */
};
struct sections {
    struct section added, normalizer, pre, post, decoder, model, vocab, merges;
    const struct gguf_lists *lists; /* replace vocab and merges; NULL: they are in the text */
    struct buf model_rest;          /* the model object without vocab and merges, as JSON */
};

static bool absent(const struct section *x)
{
    return !x->s || (x->end - x->s == 4 && memcmp(x->s, "null", 4) == 0);
}

/* The parts of the model, in the same pass: they are most of the text. */
static void split_model(struct json_reader *j, struct sections *x)
{
    struct buf key = BUF_INIT;
    struct section v;
    bool first = true;
    x->model.s = j->p;
    jr_open(j, '{');
    buf_reset(&x->model_rest);
    buf_ch(&x->model_rest, '{');
    while (jr_more(j, '}', &first) && jr_key(j, &key) && jr_skip(j, &v.s, &v.end)) {
        if (key.len == 5 && memcmp(key.p, "vocab", 5) == 0) {
            x->vocab = v;
        } else if (key.len == 6 && memcmp(key.p, "merges", 6) == 0) {
            x->merges = v;
        } else {
            if (x->model_rest.len > 1)
                buf_ch(&x->model_rest, ',');
            buf_json_str(&x->model_rest, key.p ? key.p : "", key.len);
            buf_ch(&x->model_rest, ':');
            buf_add(&x->model_rest, v.s, (size_t)(v.end - v.s));
        }
    }
    buf_ch(&x->model_rest, '}');
    buf_free(&key);
    x->model.end = j->p;
}

static int find_sections(struct sections *x, const char *s, size_t n, struct err *e)
{
    const struct {
        const char *key;
        struct section *to;
    } known[] = {{"added_tokens", &x->added}, {"normalizer", &x->normalizer},
                 {"pre_tokenizer", &x->pre},  {"post_processor", &x->post},
                 {"decoder", &x->decoder},    {"model", &x->model}};
    struct json_reader j = json_reader(s, n);
    struct buf key = BUF_INIT;
    struct section v;
    bool first = true;
    jr_open(&j, '{');
    while (jr_more(&j, '}', &first) && jr_key(&j, &key)) {
        if (key.len == 5 && memcmp(key.p, "model", 5) == 0 && jr_next(&j) == JR_OBJECT) {
            split_model(&j, x);
            continue;
        }
        if (!jr_skip(&j, &v.s, &v.end))
            break;
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
            if (key.len == strlen(known[i].key) && memcmp(key.p, known[i].key, key.len) == 0)
                *known[i].to = v;
    }
    buf_free(&key);
    if (j.fault)
        return err_set(e, ERR_VALIDATION, "expected %s at byte %zu", j.fault, (size_t)(j.p - s));
    if (x->model_rest.oom)
        return err_nomem(e);
    if (absent(&x->model))
        return err_set(e, ERR_VALIDATION, "model: missing");
    return x->model_rest.len ? 0 : err_set(e, ERR_VALIDATION, "model: expected an object");
}

/* {"text": id, ..} */
static int read_vocab(struct vocab *v, const struct section *x, struct err *e)
{
    struct json_reader j = json_reader(x->s, (size_t)(x->end - x->s));
    struct buf text = BUF_INIT;
    struct jr_number id;
    bool first = true;
    int rc = 0;
    jr_open(&j, '{');
    while (rc == 0 && jr_more(&j, '}', &first) && jr_key(&j, &text) && jr_number(&j, &id)) {
        if (!(id.v >= 0 && id.v < VOCAB_MAX_ID) || id.v != (double)(uint32_t)id.v)
            rc = err_set(e, ERR_VALIDATION, "id of \"%.60s\" is not a whole number below %d",
                         text.p ? text.p : "", VOCAB_MAX_ID);
        else
            rc = vocab_put(v, text.p ? text.p : "", text.len, (uint32_t)id.v, e);
    }
    buf_free(&text);
    if (rc == 0 && j.fault)
        rc = err_set(e, ERR_VALIDATION, "expected %s", j.fault);
    return rc == 0 ? 0 : err_wrap(e, "model.vocab");
}

/* The vocabulary of a GGUF file. */
static int take_vocab(struct vocab *v, const struct gguf_vocab *from, struct err *e)
{
    size_t bytes = 0;
    int rc = 0;
    for (uint32_t id = 0; id < from->n; id++)
        bytes += from->text[id].n;
    if (vocab_reserve(v, from->n, bytes) != 0)
        return err_nomem(e);
    for (uint32_t id = 0; id < from->n && rc == 0; id++)
        if (from->text[id].n) /* else an unused id */
            rc = vocab_put(v, from->text[id].p, from->text[id].n, id, e);
    return rc;
}

/* [["text", score], ..] */
static int read_scores(struct vocab *v, double **scores, const struct section *x, struct err *e)
{
    struct json_reader j = json_reader(x->s, (size_t)(x->end - x->s));
    struct buf text = BUF_INIT, list = BUF_INIT;
    struct jr_number number;
    bool first = true;
    int rc = 0;
    jr_open(&j, '[');
    while (rc == 0 && jr_more(&j, ']', &first)) {
        bool in = true;
        if (!jr_open(&j, '[') || !jr_more(&j, ']', &in) || !jr_string(&j, &text) ||
            !jr_more(&j, ']', &in) || !jr_number(&j, &number) || jr_more(&j, ']', &in)) {
            jr_fail(&j, "[text, score]");
            break;
        }
        const double score = score_of(number.text, number.n);
        rc = vocab_put(v, text.p ? text.p : "", text.len, (uint32_t)(list.len / sizeof score), e);
        buf_add(&list, &score, sizeof score);
    }
    buf_free(&text);
    if (rc == 0 && j.fault)
        rc = err_set(e, ERR_VALIDATION, "expected %s", j.fault);
    if (rc == 0 && list.oom)
        rc = err_nomem(e);
    *scores = (double *)(void *)buf_take(&list);
    return rc == 0 ? 0 : err_wrap(e, "model.vocab");
}

/* Older files have no type: it is detected from their content. */
static int model_kind(const cJSON *j, const struct sections *x, enum model_kind *kind,
                      struct err *e)
{
    static const char *const names[] = {"BPE", "Unigram", "WordPiece", "WordLevel"};
    const char *type = json_str(j, "type", NULL);
    if (!type)
        type = x->merges.s                               ? "BPE"
               : *x->vocab.s == '['                      ? "Unigram"
               : json_get(j, "max_input_chars_per_word") ? "WordPiece"
                                                         : "WordLevel";
    for (unsigned i = 0; i < 4; i++)
        if (strcmp(type, names[i]) == 0)
            return *kind = (enum model_kind)i, 0;
    return err_set(e, ERR_VALIDATION, "model.type: unknown \"%.40s\"", type);
}

static bool ends_in_bytes(const struct steps *pre)
{
    return pre->n && pre->v[pre->n - 1].kind == STEP_BYTES;
}

static int load_bpe(struct tokenizer *t, const struct sections *x, const cJSON *j, struct err *e)
{
    const struct gguf_lists *l = x->lists;
    if (absent(&x->merges))
        return err_set(e, ERR_VALIDATION, "model.merges: missing");
    const struct bpe_merges m = {x->merges.s, (size_t)(x->merges.end - x->merges.s), l};
    if (l ? take_vocab(&t->vocab, &l->vocab, e) : read_vocab(&t->vocab, &x->vocab, e))
        return -1;
    if (t->lazy)
        return 0;
    if (bpe_load(&t->bpe, &t->vocab, j, &m, ends_in_bytes(&t->pre), e) != 0)
        return -1;
    if (t->bpe.on_bytes) /* the model reads the bytes directly */
        t->pre.n--;
    return 0;
}

static int load_model(struct tokenizer *t, struct sections *x, struct err *e)
{
    double *scores = NULL;
    if (absent(&x->vocab))
        return err_set(e, ERR_VALIDATION, "model.vocab: missing");
    cJSON *j = json_parse(x->model_rest.p, x->model_rest.len, e);
    int rc = j ? model_kind(j, x, &t->kind, e) : err_wrap(e, "model");
    if (rc == 0 && t->kind == MODEL_BPE)
        rc = load_bpe(t, x, j, e);
    else if (rc == 0 && t->kind == MODEL_UNIGRAM) {
        rc = read_scores(&t->vocab, &scores, &x->vocab, e);
        if (rc == 0 && !t->lazy)
            rc = unigram_load(&t->unigram, &t->vocab, scores, j, e);
        else
            free(scores);
    } else if (rc == 0) {
        rc = read_vocab(&t->vocab, &x->vocab, e);
        if (rc == 0 && !t->lazy)
            rc = wordpiece_load(&t->wordpiece, &t->vocab, j, t->kind == MODEL_WORDLEVEL, e);
    }
    cJSON_Delete(j);
    return rc;
}

typedef int section_fn(struct tokenizer *t, const cJSON *j, struct err *e);

static int load_normalizer(struct tokenizer *t, const cJSON *j, struct err *e)
{
    return steps_normalizer(&t->normalizer, j, e);
}
static int load_pre(struct tokenizer *t, const cJSON *j, struct err *e)
{
    return steps_pre_tokenizer(&t->pre, j, e);
}
static int load_added(struct tokenizer *t, const cJSON *j, struct err *e)
{
    return added_load(&t->added, j, &t->vocab, &t->normalizer, e);
}
static int load_post(struct tokenizer *t, const cJSON *j, struct err *e)
{
    return post_load(&t->post, j, e);
}
static int load_decoder(struct tokenizer *t, const cJSON *j, struct err *e)
{
    return tok_decoder_load(&t->decoder, j, e);
}

static int with_tree(struct tokenizer *t, const struct section *x, const char *name, section_fn *fn,
                     struct err *e)
{
    cJSON *j = NULL;
    if (!absent(x) && !(j = json_parse(x->s, (size_t)(x->end - x->s), e)))
        return err_wrap(e, "%s", name);
    int rc = fn(t, j, e);
    cJSON_Delete(j);
    return rc == 0 ? 0 : err_wrap(e, "%s", name);
}

static int load_all(struct tokenizer *t, const char *s, size_t n, const struct gguf_lists *lists,
                    struct err *e)
{
    struct sections x = {.lists = lists};
    if (!utf8_valid(s, n))
        return err_set(e, ERR_VALIDATION, "not UTF-8");
    int rc = find_sections(&x, s, n, e);
    if (rc == 0 && !t->lazy)
        rc = with_tree(t, &x.normalizer, "normalizer", load_normalizer, e);
    if (rc == 0 && !t->lazy)
        rc = with_tree(t, &x.pre, "pre_tokenizer", load_pre, e);
    if (rc == 0)
        rc = load_model(t, &x, e);
    if (rc == 0)
        rc = with_tree(t, &x.added, "added_tokens", load_added, e);
    if (rc == 0)
        rc = with_tree(t, &x.post, "post_processor", load_post, e);
    if (rc == 0)
        rc = with_tree(t, &x.decoder, "decoder", load_decoder, e);
    buf_free(&x.model_rest);
    for (uint32_t i = 0; i < t->pre.n; i++)
        t->needs_offsets |= t->pre.v[i].kind == STEP_PREPEND && t->pre.v[i].when == PREPEND_FIRST;
    return rc;
}

/* An optional file beside tokenizer.json; NULL: absent, or not a JSON object. */
static cJSON *beside(const char *dir, const char *name)
{
    char path[PATH_MAX];
    struct err ignored = ERR_INIT;
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path ||
        !model_file_exists(path))
        return NULL;
    return model_file_json(path, MAX_CONFIG, &ignored);
}

/* `lazy`: the folder or file of a tokenizer that is loaded lazily, or NULL. */
static struct tokenizer *load_text(const char *s, size_t n, const struct gguf_lists *lists,
                                   const char *lazy, struct err *e)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return err_nomem(e), NULL;
    t->stamp = (uint64_t)clock_ns();
    if ((lazy && !(t->lazy = lazy_new(lazy, e))) || load_all(t, s, n, lists, e) != 0) {
        tokenizer_free(t);
        return NULL;
    }
    return t;
}

struct tokenizer *tokenizer_load_text(const char *s, size_t n, struct err *e)
{
    return load_text(s, n, NULL, NULL, e);
}

struct gguf_load {
    const char *path, *lazy;
    struct tokenizer *t;
};

static int load_lists(const struct gguf_set *s, void *arg, struct err *e)
{
    struct gguf_load *g = arg;
    struct gguf_lists l;
    if (gguf_lists_open(&l, &s->files[0], gguf_projector_unlisted(s), e))
        return -1;
    g->t = load_text(l.json.p, l.json.len, l.apart ? &l : NULL, g->lazy, e);
    gguf_lists_close(&l);
    return g->t ? 0 : err_wrap(e, "%s/tokenizer.json", g->path);
}

static struct tokenizer *load_file(const char *path, const char *lazy, struct err *e)
{
    size_t n = 0;
    CLEANUP(cleanup_free) char *s = model_file_read(path, MAX_FILE, &n, e);
    struct tokenizer *t = s ? load_text(s, n, NULL, lazy, e) : NULL;
    if (s && !t)
        err_wrap(e, "%s", path);
    return t;
}

static struct tokenizer *load(const char *dir, bool lazily, struct err *e)
{
    char path[PATH_MAX];
    struct stat st;
    struct gguf_load g = {.path = dir, .lazy = lazily ? dir : NULL};
    const bool is_gguf = gguf_is_file(dir);
    const bool is_dir = (stat(dir, &st) == 0 && S_ISDIR(st.st_mode)) || is_gguf;
    if (snprintf(path, sizeof path, is_dir ? "%s/tokenizer.json" : "%s", dir) >= (int)sizeof path)
        return err_set(e, ERR_VALIDATION, "%.80s..: path too long", dir), NULL;
    if (!is_gguf && !(g.t = load_file(path, g.lazy, e)) && is_dir && e->sys == ENOENT)
        err_wrap(e, "the folder has no tokenizer (tokenizer.json, tokenizer.model, tiktoken.model, "
                    "vocab.txt, or vocab.json with merges.txt)");
    if (is_gguf && model_file_gguf(dir, load_lists, &g, e))
        return NULL;
    if (g.t && is_dir && !lazily) {
        g.t->config = beside(dir, "tokenizer_config.json");
        g.t->special_map = beside(dir, "special_tokens_map.json");
    }
    return g.t;
}

struct tokenizer *tokenizer_load(const char *dir, struct err *e) { return load(dir, false, e); }

struct tokenizer *tokenizer_load_lazily(const char *dir, struct err *e)
{
    return load(dir, true, e);
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    lazy_free(t->lazy);
    tok_decoder_free(&t->decoder);
    post_free(&t->post);
    added_free(&t->added);
    bpe_free(&t->bpe);
    unigram_free(&t->unigram);
    wordpiece_free(&t->wordpiece);
    steps_free(&t->normalizer);
    steps_free(&t->pre);
    vocab_free(&t->vocab);
    cJSON_Delete(t->config);
    cJSON_Delete(t->special_map);
    free(t);
}
