/* "post_processor": special tokens around the text, and trimming of offsets. */
#include "common/tokenizer/tokenizer_impl.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 16, MAX_SPECIAL = 1024 };

void post_free(struct post *p)
{
    free(p->before);
    free(p->after);
    free(p->after_types);
    free(p->pair);
    *p = (struct post){0};
}

static int push(uint32_t **list, uint32_t *n, uint32_t id, bool front, struct err *e)
{
    if (*n == MAX_SPECIAL)
        return err_set(e, ERR_VALIDATION, "more than %d special tokens", MAX_SPECIAL);
    uint32_t *v = realloc(*list, (*n + 1) * sizeof *v);
    if (!v)
        return err_nomem(e);
    *list = v;
    if (front)
        memmove(v + 1, v, *n * sizeof *v);
    v[front ? 0 : *n] = id;
    ++*n;
    return 0;
}

/* `type`: of the token behind a single text. */
static int push_after(struct post *p, uint32_t id, double type, struct err *e)
{
    uint8_t *v = realloc(p->after_types, p->after_n + (size_t)1);
    if (!v)
        return err_nomem(e);
    p->after_types = v;
    v[p->after_n] = type > 0 && type < 256 ? (uint8_t)type : 0;
    return push(&p->after, &p->after_n, id, false, e);
}

static int special_id(const cJSON *v, uint32_t *id, struct err *e)
{
    if (!cJSON_IsNumber(v) || v->valuedouble < 0 || v->valuedouble >= VOCAB_MAX_ID)
        return err_set(e, ERR_VALIDATION, "expected a token id");
    *id = (uint32_t)v->valuedouble;
    return 0;
}

/* {"SpecialToken": {"id": name}}: its ids, from special_tokens[name].ids */
static int add_special(const cJSON *item, const cJSON *table, uint32_t **list, uint32_t *n,
                       struct err *e)
{
    const char *name = json_str(json_get(item, "SpecialToken"), "id", NULL);
    const cJSON *ids = name ? json_get(json_get(table, name), "ids") : NULL, *v;
    uint32_t id = 0;
    if (!cJSON_IsArray(ids))
        return err_set(e, ERR_VALIDATION, "special_tokens has no ids for \"%.60s\"",
                       name ? name : "");
    cJSON_ArrayForEach(v, ids) if (special_id(v, &id, e) != 0 ||
                                   push(list, n, id, false, e) != 0) return -1;
    return 0;
}

/* ---------------------------------------------------------------- pairs */

static int add_item(struct post *p, enum post_text text, uint32_t id, double type, struct err *e)
{
    if (p->pair_n == MAX_SPECIAL)
        return err_set(e, ERR_VALIDATION, "pair: more than %d parts", MAX_SPECIAL);
    struct post_item *v = realloc(p->pair, (p->pair_n + (size_t)1) * sizeof(*v));
    if (!v)
        return err_nomem(e);
    p->pair = v;
    v[p->pair_n++] = (struct post_item){text, id, type > 0 && type < 256 ? (uint8_t)type : 0};
    return 0;
}

static void drop_pair(struct post *p)
{
    free(p->pair);
    p->pair = NULL;
    p->pair_n = 0;
}

static int add_pair_special(struct post *p, const cJSON *item, const cJSON *table, struct err *e)
{
    const double type = json_num(json_get(item, "SpecialToken"), "type_id", 0);
    uint32_t *ids = NULL, n = 0;
    int rc = add_special(item, table, &ids, &n, e);
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        rc = add_item(p, POST_SPECIAL, ids[i], type, e);
    free(ids);
    return rc;
}

/* "pair": as "single", with the sequences A and B. */
static int pair_template(struct post *p, const cJSON *j, struct err *e)
{
    const cJSON *pair = json_get(j, "pair"), *table = json_get(j, "special_tokens"), *item;
    uint32_t seen[2] = {0, 0};
    if (!cJSON_IsArray(pair))
        return 0;
    drop_pair(p);
    cJSON_ArrayForEach(item, pair)
    {
        const cJSON *s = json_get(item, "Sequence");
        const bool second = s && strcmp(json_str(s, "id", "A"), "B") == 0;
        if (s)
            seen[second]++;
        if (s ? add_item(p, second ? POST_SECOND : POST_FIRST, 0, json_num(s, "type_id", 0), e)
              : add_pair_special(p, item, table, e))
            return -1;
    }
    return seen[0] == 1 && seen[1] == 1
               ? 0
               : err_set(e, ERR_VALIDATION, "pair: both texts have to stand in it once");
}

/* Concatenates two texts: the default without a template for pairs. */
static int plain_pair(struct post *p, struct err *e)
{
    if (p->pair_n)
        return 0;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < p->before_n; i++)
        rc = add_item(p, POST_SPECIAL, p->before[i], 0, e);
    if (rc == 0)
        rc = add_item(p, POST_FIRST, 0, 0, e) || add_item(p, POST_SECOND, 0, 1, e) ? -1 : 0;
    for (uint32_t i = 0; rc == 0 && i < p->after_n; i++)
        rc = add_item(p, POST_SPECIAL, p->after[i], 1, e);
    return rc;
}

/* [CLS] A [SEP] B [SEP], or <s> A </s></s> B </s>. */
static int known_pair(struct post *p, uint32_t cls, uint32_t sep, bool roberta, struct err *e)
{
    const double second = roberta ? 0 : 1;
    drop_pair(p);
    return add_item(p, POST_SPECIAL, cls, 0, e) || add_item(p, POST_FIRST, 0, 0, e) ||
                   add_item(p, POST_SPECIAL, sep, 0, e) ||
                   (roberta && add_item(p, POST_SPECIAL, sep, 0, e)) ||
                   add_item(p, POST_SECOND, 0, second, e) ||
                   add_item(p, POST_SPECIAL, sep, second, e)
               ? -1
               : 0;
}

/* Special tokens behind a single text, with their types. */
static int add_behind(struct post *p, const cJSON *item, const cJSON *table, struct err *e)
{
    const double type = json_num(json_get(item, "SpecialToken"), "type_id", 0);
    uint32_t *ids = NULL, n = 0;
    int rc = add_special(item, table, &ids, &n, e);
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        rc = push_after(p, ids[i], type, e);
    free(ids);
    return rc;
}

static int template(struct post *p, const cJSON *j, struct err *e)
{
    const cJSON *single = json_get(j, "single"), *table = json_get(j, "special_tokens"), *item;
    uint32_t *before = NULL, before_n = 0;
    bool seen = false;
    int rc = 0;
    if (!cJSON_IsArray(single))
        return err_set(e, ERR_VALIDATION, "single: expected a list");
    cJSON_ArrayForEach(item, single)
    {
        if (rc == 0 && json_get(item, "Sequence")) {
            if (seen)
                rc = err_set(e, ERR_VALIDATION, "single: the text occurs twice");
            seen = true;
        } else if (rc == 0) {
            rc = seen ? add_behind(p, item, table, e)
                      : add_special(item, table, &before, &before_n, e);
        }
    }
    for (uint32_t i = before_n; rc == 0 && i-- > 0;)
        rc = push(&p->before, &p->before_n, before[i], true, e);
    if (rc == 0 && !seen)
        rc = err_set(e, ERR_VALIDATION, "single: the text does not stand in it");
    free(before);
    return rc ? rc : pair_template(p, j, e);
}

/* "cls": ["[CLS]", 101] */
static int add_pair(struct post *p, const cJSON *j, bool roberta, struct err *e)
{
    uint32_t cls = 0, sep = 0;
    if (special_id(cJSON_GetArrayItem(json_get(j, "cls"), 1), &cls, e) != 0)
        return err_wrap(e, "cls");
    if (special_id(cJSON_GetArrayItem(json_get(j, "sep"), 1), &sep, e) != 0)
        return err_wrap(e, "sep");
    return push(&p->before, &p->before_n, cls, true, e) != 0 || push_after(p, sep, 0, e) != 0
               ? -1
               : known_pair(p, cls, sep, roberta, e);
}

static void trimming(struct post *p, const cJSON *j)
{
    if (!json_bool(j, "trim_offsets", true))
        return;
    p->trim = true;
    p->keep_first = json_bool(j, "add_prefix_space", true);
}

static int load(struct post *p, const cJSON *j, unsigned depth, struct err *e)
{
    const char *type = json_str(j, "type", "");
    const cJSON *item;
    if (strcmp(type, "Sequence") == 0 && depth < MAX_DEPTH) {
        cJSON_ArrayForEach(item, json_get(j, "processors")) if (load(p, item, depth + 1, e) !=
                                                                0) return err_wrap(e, "Sequence");
        return 0;
    }
    if (strcmp(type, "TemplateProcessing") == 0)
        return template(p, j, e) == 0 ? 0 : err_wrap(e, "TemplateProcessing");
    if (strcmp(type, "ByteLevel") == 0)
        return trimming(p, j), 0;
    if (strcmp(type, "RobertaProcessing") == 0)
        return trimming(p, j), add_pair(p, j, true, e);
    if (strcmp(type, "BertProcessing") == 0)
        return add_pair(p, j, false, e);
    return err_set(e, ERR_VALIDATION, "unknown type \"%.40s\"", type);
}

int post_load(struct post *p, const cJSON *j, struct err *e)
{
    return j && load(p, j, 0, e) != 0 ? -1 : plain_pair(p, e);
}
