/* Tokenizers of folders without tokenizer.json: see folder_impl.h. */
#include "common/tokenizer/folder_impl.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VOCAB_BYTES_MAX = 256 << 20, SMALL_MAX = 16 << 20 };

static bool has(const char *dir, const char *name)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path) &&
           access(path, R_OK) == 0;
}

char *folder_read(const struct tok_folder *f, const char *name, size_t *n, struct err *e)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/%s", f->dir, name) >= (int)sizeof(path)) {
        err_set(e, ERR_VALIDATION, "%.80s..: path too long", f->dir);
        return NULL;
    }
    return file_read(path, VOCAB_BYTES_MAX, n, e);
}

/* A SentencePiece file begins with the tag of field 1, a tiktoken file with base64. */
static bool is_ranks(const char *dir)
{
    char path[PATH_MAX];
    char first = 0;
    FILE *file = snprintf(path, sizeof(path), "%s/tokenizer.model", dir) < (int)sizeof(path)
                     ? fopen(path, "rb")
                     : NULL;
    if (file && fread(&first, 1, 1, file) != 1)
        first = 0;
    if (file)
        fclose(file);
    return first != 0 && first != '\n';
}

static folder_kind *kind_of(const char *dir, const char **name)
{
    if (has(dir, *name = "tokenizer.model"))
        return is_ranks(dir) ? folder_tiktoken : folder_sentencepiece;
    if (has(dir, *name = "tiktoken.model"))
        return folder_tiktoken;
    if (has(dir, *name = "vocab.json") && has(dir, "merges.txt"))
        return folder_merges;
    if (has(dir, *name = FOLDER_RWKV))
        return folder_rwkv;
    if (has(dir, *name = FOLDER_PLAMO))
        return folder_plamo;
    if (has(dir, *name = "vocab.txt"))
        return folder_wordpiece;
    return NULL;
}

bool tokenizer_folder_has(const char *dir)
{
    const char *name;
    return !has(dir, "tokenizer.json") && kind_of(dir, &name);
}

/* ---------------------------------------------------------------- added tokens */

static cJSON *find_added(const struct tok_folder *f, uint32_t id)
{
    cJSON *t;
    cJSON_ArrayForEach(t, f->added) if (json_num(t, "id", -1) == id) return t;
    return NULL;
}

static void put_flag(cJSON *t, const char *key, bool v)
{
    cJSON_DeleteItemFromObjectCaseSensitive(t, key);
    cJSON_AddBoolToObject(t, key, v);
}

static cJSON *add(struct tok_folder *f, uint32_t id, const char *text, bool special)
{
    cJSON *t = cJSON_CreateObject();
    cJSON_AddNumberToObject(t, "id", id);
    cJSON_AddStringToObject(t, "content", text);
    put_flag(t, "single_word", false), put_flag(t, "lstrip", false), put_flag(t, "rstrip", false);
    put_flag(t, "normalized", !special), put_flag(t, "special", special);
    cJSON_AddItemToArray(f->added, t);
    return t;
}

void folder_add(struct tok_folder *f, uint32_t id, const char *text, size_t n, bool special)
{
    char *copy = find_added(f, id) ? NULL : strndup(text, n);
    if (copy)
        put_flag(add(f, id, copy, special), "normalized", false);
    free(copy);
}

/* Flags of an entry of added_tokens_decoder, or of bos_token and the like. */
static void take_flags(cJSON *t, const cJSON *from)
{
    static const char *const flags[] = {"single_word", "lstrip", "rstrip", "normalized", "special"};
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if (cJSON_IsBool(json_get(from, flags[i])))
            put_flag(t, flags[i], json_bool(from, flags[i], false));
}

static void with_flags(struct tok_folder *f, uint32_t id, const cJSON *from, bool special)
{
    const char *text = cJSON_IsString(from) ? from->valuestring : json_str(from, "content", NULL);
    cJSON *t = find_added(f, id);
    if (!text || id >= VOCAB_MAX_ID)
        return;
    t = t ? t : add(f, id, text, special);
    if (strcmp(json_str(t, "content", ""), text) != 0)
        cJSON_ReplaceItemInObjectCaseSensitive(t, "content", cJSON_CreateString(text));
    if (special)
        put_flag(t, "special", true);
    take_flags(t, from);
}

static int64_t id_of(const struct tok_folder *f, const char *text)
{
    const cJSON *t;
    cJSON_ArrayForEach(t, f->added) if (strcmp(json_str(t, "content", ""), text) ==
                                        0) return (int64_t)json_num(t, "id", -1);
    const uint32_t id = vocab_find(&f->ids, text, strlen(text));
    return id == NO_ID ? -1 : (int64_t)id;
}

/* Special tokens of a configuration: every "*_token" and additional_special_tokens. */
static void special_words(struct tok_folder *f, const cJSON *j)
{
    const cJSON *v, *s;
    cJSON_ArrayForEach(v, j)
    {
        const char *key = v->string ? v->string : ""; /* an array's elements have none */
        const size_t n = strlen(key);
        if (cJSON_IsArray(v) && strcmp(key, "additional_special_tokens") == 0) {
            cJSON_ArrayForEach(s, v)
            {
                const char *text = cJSON_IsString(s) ? s->valuestring : json_str(s, "content", "");
                if (*text && id_of(f, text) >= 0)
                    with_flags(f, (uint32_t)id_of(f, text), s, true);
            }
        } else if (n > 6 && strcmp(key + n - 6, "_token") == 0) {
            const char *text = cJSON_IsString(v) ? v->valuestring : json_str(v, "content", "");
            if (*text && id_of(f, text) >= 0)
                with_flags(f, (uint32_t)id_of(f, text), v, true);
        }
    }
}

static cJSON *beside(const struct tok_folder *f, const char *name)
{
    char path[PATH_MAX];
    struct err ignored = ERR_INIT;
    if (!has(f->dir, name) ||
        snprintf(path, sizeof(path), "%s/%s", f->dir, name) >= (int)sizeof(path))
        return NULL;
    return json_load(path, SMALL_MAX, &ignored);
}

static int by_id(const void *a, const void *b)
{
    const double x = json_num(*(cJSON *const *)a, "id", 0),
                 y = json_num(*(cJSON *const *)b, "id", 0);
    return (x > y) - (x < y);
}

/* By id. */
static int sort_added(struct tok_folder *f, struct err *e)
{
    const int n = cJSON_GetArraySize(f->added);
    // NOLINTNEXTLINE(bugprone-sizeof-expression): of pointers, indeed
    cJSON **list = calloc((size_t)n + 1, sizeof(*list));
    if (!list)
        return err_nomem(e);
    for (int i = 0; i < n; i++)
        list[i] = cJSON_DetachItemFromArray(f->added, 0);
    if (n)
        // NOLINTNEXTLINE(bugprone-sizeof-expression): of pointers, indeed
        qsort(list, (size_t)n, sizeof(*list), by_id);
    for (int i = 0; i < n; i++)
        cJSON_AddItemToArray(f->added, list[i]);
    free(list);
    return 0;
}

static int collect_added(struct tok_folder *f, struct err *e)
{
    cJSON *more = beside(f, "added_tokens.json"), *map = beside(f, "special_tokens_map.json");
    const cJSON *t;
    cJSON_ArrayForEach(t, json_get(f->config, "added_tokens_decoder"))
        with_flags(f, (uint32_t)strtoul(t->string ? t->string : "", NULL, 10), t, false);
    cJSON_ArrayForEach(t, more) if (t->string && cJSON_IsNumber(t) && t->valuedouble >= 0 &&
                                    t->valuedouble < VOCAB_MAX_ID &&
                                    !find_added(f, (uint32_t)t->valuedouble))
        add(f, (uint32_t)t->valuedouble, t->string, false);
    special_words(f, f->config);
    special_words(f, map);
    cJSON_Delete(more);
    cJSON_Delete(map);
    return sort_added(f, e);
}

/* ---------------------------------------------------------------- around a text */

static void put_special(struct buf *b, const char *text, bool comma, int type)
{
    buf_str(b, comma ? ",{\"SpecialToken\":{\"id\":" : "{\"SpecialToken\":{\"id\":");
    buf_json_str(b, text, strlen(text));
    buf_fmt(b, ",\"type_id\":%d}}", type);
}

static void put_side(struct buf *b, const char *bos, const char *eos, char which, int type,
                     bool comma)
{
    if (bos)
        put_special(b, bos, comma, type);
    buf_fmt(b, "%s{\"Sequence\":{\"id\":\"%c\",\"type_id\":%d}}", bos || comma ? "," : "", which,
            type);
    if (eos)
        put_special(b, eos, true, type);
}

static void put_around(const struct tok_folder *f, const struct folder_text *t, struct buf *b)
{
    const bool bert = t->pair_types;
    const char *bos = json_str(f->config, bert ? "cls_token" : "bos_token", t->bos);
    const char *eos = json_str(f->config, bert ? "sep_token" : "eos_token", t->eos);
    bos = json_str(json_get(f->config, "bos_token"), "content", bos);
    eos = json_str(json_get(f->config, "eos_token"), "content", eos);
    bos =
        bos && json_bool(f->config, "add_bos_token", t->add_bos) && id_of(f, bos) >= 0 ? bos : NULL;
    eos =
        eos && json_bool(f->config, "add_eos_token", t->add_eos) && id_of(f, eos) >= 0 ? eos : NULL;
    if (!bos && !eos) {
        buf_str(b, "null");
        return;
    }
    const int second = bert ? 1 : 0;
    buf_str(b, "{\"type\":\"TemplateProcessing\",\"single\":[");
    put_side(b, bos, eos, 'A', 0, false);
    buf_str(b, "],\"pair\":[");
    put_side(b, bos, eos, 'A', 0, false);
    put_side(b, bert ? NULL : bos, eos, 'B', second, true);
    buf_str(b, "],\"special_tokens\":{");
    for (int i = 0; i < 2; i++) {
        const char *text = i ? eos : bos;
        if (!text || (i && bos && strcmp(bos, eos) == 0))
            continue;
        buf_str(b, i && bos ? "," : "");
        buf_json_str(b, text, strlen(text));
        buf_str(b, ":{\"id\":");
        buf_json_str(b, text, strlen(text));
        buf_fmt(b, ",\"ids\":[%lld]}", (long long)id_of(f, text));
    }
    buf_str(b, "}}");
}

/* ---------------------------------------------------------------- all of it */

static int make(struct tok_folder *f, folder_kind *kind, struct folder_text *t, struct buf *out,
                struct err *e)
{
    if (kind(f, t, e) || collect_added(f, e))
        return -1;
    char *added = cJSON_PrintUnformatted(f->added);
    if (!added)
        return err_nomem(e);
    buf_fmt(out, "{\"version\":\"1.0\",\"added_tokens\":");
    buf_str(out, added);
    cJSON_free(added);
    buf_ch(out, ',');
    buf_add(out, t->steps.p, t->steps.len);
    buf_str(out, ",\"post_processor\":");
    put_around(f, t, out);
    buf_str(out, ",\"model\":");
    buf_add(out, t->model.p, t->model.len);
    buf_ch(out, '}');
    return out->oom || t->steps.oom || t->model.oom ? err_nomem(e) : 0;
}

int tokenizer_folder_make(const char *dir, struct buf *out, struct err *e)
{
    struct tok_folder f = {.dir = dir, .added = cJSON_CreateArray()};
    struct folder_text t = {0};
    char type[64];
    const char *name = "";
    folder_kind *kind = kind_of(dir, &name);
    if (!kind)
        return err_set(e, ERR_VALIDATION, "%s: no tokenizer", dir);
    f.config = beside(&f, "tokenizer_config.json");
    snprintf(type, sizeof(type), "%s", json_str(f.config, "tokenizer_class", ""));
    const size_t n = strlen(type);
    if (n > 4 && strcmp(type + n - 4, "Fast") == 0)
        type[n - 4] = 0;
    f.type = type;
    int rc = f.added ? make(&f, kind, &t, out, e) : err_nomem(e);
    if (rc)
        err_wrap(e, "%s/%s", dir, name);
    cJSON_Delete(f.config);
    cJSON_Delete(f.added);
    vocab_free(&f.ids);
    buf_free(&t.steps);
    buf_free(&t.model);
    return rc;
}
