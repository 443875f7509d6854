/* sentence_late.c - what queries and documents of late interaction are: struct sentence_late. */
#include "common/model/sentence_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILLED = 32 /* of ColBERT's queries */, MOST = 1 << 16 };

static uint32_t length(const cJSON *j, const char *key, uint32_t usual)
{
    const double n = json_num(j, key, usual);
    return n >= 1 && n <= MOST ? (uint32_t)n : usual;
}

static bool skip(struct sentence_late *l, const char *word)
{
    return l->n_skipped == SENTENCE_MAX_WORDS || (l->skipped[l->n_skipped++] = strdup(word));
}

int sentence_skip(struct sentence *s, const cJSON *words, struct err *e)
{
    static const char marks[] = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
    const cJSON *w;
    bool whole = true;
    if (cJSON_GetArraySize(words) > SENTENCE_MAX_WORDS)
        return err_set(e, ERR_VALIDATION, "`skiplist_words`: at most %d are supported",
                       SENTENCE_MAX_WORDS);
    cJSON_ArrayForEach(w, words) { whole &= !cJSON_IsString(w) || skip(&s->late, w->valuestring); }
    for (const char *m = marks; !cJSON_IsArray(words) && *m; m++)
        whole &= skip(&s->late, (const char[]){*m, '\0'});
    return whole ? 0 : err_nomem(e);
}

/* ---------------------------------------------------------------- files */

/* A prompt behind the prefix. */
static bool put_before(struct sentence *s, const char *name, const char *prefix)
{
    for (uint32_t i = 0; i < s->n_prompts; i++) {
        struct sentence_prompt *p = &s->prompts[i];
        if (!p->name || strcmp(p->name, name) != 0)
            continue;
        if (!p->text || strncmp(p->text, prefix, strlen(prefix)) == 0)
            return p->text != NULL;
        char *both = NULL;
        if (asprintf(&both, "%s%s", prefix, p->text) < 0)
            return false;
        free(p->text);
        p->text = both;
        return true;
    }
    return sentence_add_prompt(s, name, prefix);
}

/* PyLate fills queries unless its file says otherwise. */
static int read_pylate(struct sentence *s, const cJSON *j, struct err *e)
{
    static const char *const marks[] = {"query_prefix",       "document_prefix",
                                        "query_length",       "document_length",
                                        "do_query_expansion", "attend_to_expansion_tokens",
                                        "skiplist_words"};
    struct sentence_late *l = &s->late;
    const char *query = json_str(j, "query_prefix", NULL);
    const char *document = json_str(j, "document_prefix", NULL);
    bool its = strcmp(json_str(j, "model_type", ""), "ColBERT") == 0;
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
        its |= json_get(j, marks[i]) != NULL;
    if (!its)
        return 0;
    if ((query && !put_before(s, "query", query)) ||
        (document && !put_before(s, "document", document)))
        return err_nomem(e);
    l->query_length = length(j, "query_length", 0);
    l->document_length = length(j, "document_length", 0);
    l->attends = json_bool(j, "attend_to_expansion_tokens", false);
    if (json_bool(j, "do_query_expansion", true))
        l->query_length = l->filled = l->query_length ? l->query_length : FILLED;
    return sentence_skip(s, json_get(j, "skiplist_words"), e);
}

/* sentence-transformers 6. A query of `fixed` length is cut there, others where they are told. */
static int read_transformer(struct sentence *s, const cJSON *j, struct err *e)
{
    struct sentence_late *l = &s->late;
    const cJSON *fill = json_get(j, "query_expansion");
    const char *token = json_str(fill, "token", NULL), *kind = json_str(fill, "strategy", "");
    l->query_length = length(j, "query_length", l->query_length);
    l->document_length = length(j, "document_length", l->document_length);
    if (!cJSON_IsObject(fill))
        return 0;
    l->filled = length(fill, "length", FILLED);
    l->attends = json_bool(fill, "attend", false);
    if (strcmp(kind, "fixed") == 0)
        l->query_length = l->filled;
    else if (strcmp(kind, "min") != 0)
        return err_set(e, ERR_VALIDATION, "`query_expansion`: `strategy` `%.40s` is not supported",
                       kind);
    if (l->query_length && l->query_length < l->filled)
        l->query_length = l->filled;
    free(l->token);
    l->token = token ? strdup(token) : NULL;
    return token && !l->token ? err_nomem(e) : 0;
}

static int read_stanford(struct sentence *s, const cJSON *j, struct err *e)
{
    struct sentence_late *l = &s->late;
    char query[64], document[64];
    snprintf(query, sizeof(query), "%.40s ", json_str(j, "query_token_id", "[unused0]"));
    snprintf(document, sizeof(document), "%.40s ", json_str(j, "doc_token_id", "[unused1]"));
    if (!sentence_add_prompt(s, "query", query) || !sentence_add_prompt(s, "document", document))
        return err_nomem(e);
    l->query_length = l->filled = length(j, "query_maxlen", FILLED);
    l->document_length = length(j, "doc_maxlen", 0);
    l->attends = json_bool(j, "attend_to_mask_tokens", false);
    return json_bool(j, "mask_punctuation", true) ? sentence_skip(s, NULL, e) : 0;
}

/* Prompts of page images, and of queries for them. */
static int load_visual(struct sentence *s, const char *dir, struct err *e)
{
    const struct visual_form *v = s->late.visual;
    cJSON *j = NULL;
    if (!v)
        return 0;
    if (!v->page)
        return err_set(e, ERR_VALIDATION,
                       "%s/config.json: a model of the class %s is not supported", dir, v->class);
    if (v->configured && sentence_read_json(dir, "processor_config.json", SMALL_JSON, &j, e))
        return -1;
    s->late.page = strdup(json_str(j, "visual_prompt_prefix", v->page));
    const bool whole =
        s->late.page && sentence_add_prompt(s, "query", json_str(j, "query_prefix", v->query));
    cJSON_Delete(j);
    return whole ? 0 : err_nomem(e);
}

int sentence_load_late(struct sentence *s, const char *dir, struct err *e)
{
    static const struct {
        const char *file;
        int (*read)(struct sentence *s, const cJSON *j, struct err *e);
    } files[] = {{"artifact.metadata", read_stanford},
                 {"config_sentence_transformers.json", read_pylate},
                 {"sentence_bert_config.json", read_transformer}};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        cJSON *j;
        if (sentence_read_json(dir, files[i].file, SMALL_JSON, &j, e))
            return -1;
        const int rc = j ? files[i].read(s, j, e) : 0;
        cJSON_Delete(j);
        if (rc)
            return err_wrap(e, "%s/%s", dir, files[i].file);
    }
    return load_visual(s, dir, e);
}
