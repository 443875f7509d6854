/* Compiles "normalizer" and "pre_tokenizer" of tokenizer.json to steps. */
#include "common/tokenizer/step.h"
#include "common/utf8.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_STEPS = 256, MAX_DEPTH = 32 };

static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static struct step *add(struct steps *s, enum step_kind kind, struct err *e)
{
    if (s->n == MAX_STEPS)
        return err_set(e, ERR_VALIDATION, "more than %d steps", MAX_STEPS), NULL;
    if (s->n == s->cap) {
        uint32_t cap = s->cap ? s->cap * 2 : 8;
        struct step *v = realloc(s->v, cap * sizeof *v);
        if (!v)
            return err_nomem(e), NULL;
        s->v = v;
        s->cap = cap;
    }
    s->v[s->n] = (struct step){.kind = kind, .find = FIND_TEXT};
    return &s->v[s->n++];
}

static int add_plain(struct steps *s, enum step_kind kind, struct err *e)
{
    return add(s, kind, e) ? 0 : -1;
}

static int set_text(char **to, size_t *n, const char *s, struct err *e)
{
    *n = strlen(s);
    return (*to = strdup(s)) ? 0 : err_nomem(e);
}

/* {"String": ".."} or {"Regex": ".."} */
static int set_pattern(struct step *st, const cJSON *j, struct err *e)
{
    const cJSON *p = json_get(j, "pattern");
    const char *text = json_str(p, "String", NULL), *re = json_str(p, "Regex", NULL);
    if (cJSON_IsString(p))
        text = p->valuestring;
    if (text) {
        st->find = FIND_TEXT;
        return set_text(&st->what, &st->what_n, text, e);
    }
    if (!re)
        return err_set(e, ERR_VALIDATION, "pattern: expected {\"String\": ..} or {\"Regex\": ..}");
    st->find = FIND_REGEX;
    return (st->regex = regex_compile(re, strlen(re), e)) ? 0 : -1;
}

static int add_replace(struct steps *s, const cJSON *j, struct err *e)
{
    struct step *st = add(s, STEP_REPLACE, e);
    const char *content = json_str(j, "content", NULL);
    if (!st)
        return -1;
    if (!content)
        return err_set(e, ERR_VALIDATION, "Replace: content: expected a string");
    if (set_pattern(st, j, e) != 0)
        return err_wrap(e, "Replace");
    return set_text(&st->text, &st->text_n, content, e);
}

static int add_prepend(struct steps *s, const char *text, enum prepend_when when, struct err *e)
{
    struct step *st = add(s, STEP_PREPEND, e);
    size_t len;
    if (!st)
        return -1;
    st->when = when;
    st->ch = *text ? utf8_decode(text, strlen(text), &len) : 0;
    return set_text(&st->text, &st->text_n, text, e);
}

static int add_bert(struct steps *s, const cJSON *j, struct err *e)
{
    bool lowercase = json_bool(j, "lowercase", true);
    if (json_bool(j, "clean_text", true) && !add(s, STEP_CLEAN, e))
        return -1;
    if (json_bool(j, "handle_chinese_chars", true) && !add(s, STEP_CHINESE, e))
        return -1;
    if (json_bool(j, "strip_accents", lowercase) &&
        (!add(s, STEP_NFD, e) || !add(s, STEP_DROP_MN, e)))
        return -1;
    return lowercase ? add_plain(s, STEP_LOWER, e) : 0;
}

static int add_charsmap(struct steps *s, const cJSON *j, struct err *e)
{
    const char *map = json_str(j, "precompiled_charsmap", NULL);
    if (!map) /* null in some files: no map */
        return 0;
    struct step *st = add(s, STEP_CHARSMAP, e);
    return st && (st->map = charsmap_load(map, e)) ? 0 : -1;
}

typedef int part_fn(struct steps *s, const cJSON *j, unsigned depth, struct err *e);

static int each(struct steps *s, const cJSON *list, part_fn *fn, unsigned depth, struct err *e)
{
    const cJSON *item;
    unsigned i = 0;
    if (!cJSON_IsArray(list))
        return err_set(e, ERR_VALIDATION, "Sequence: expected a list");
    if (depth == MAX_DEPTH)
        return err_set(e, ERR_VALIDATION, "Sequence: nested deeper than %d", MAX_DEPTH);
    cJSON_ArrayForEach(item, list)
    {
        if (fn(s, item, depth + 1, e) != 0)
            return err_wrap(e, "Sequence[%u]", i);
        i++;
    }
    return 0;
}

static int normalizer(struct steps *s, const cJSON *j, unsigned depth, struct err *e)
{
    static const struct {
        const char *type;
        enum step_kind kind;
    } plain[] = {{"NFC", STEP_NFC},         {"NFD", STEP_NFD},
                 {"NFKC", STEP_NFKC},       {"NFKD", STEP_NFKD},
                 {"Nmt", STEP_NMT},         {"Lowercase", STEP_LOWER},
                 {"ByteLevel", STEP_BYTES}, {"StripAccents", STEP_DROP_MARKS}};
    const char *type = json_str(j, "type", "");
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        if (strcmp(type, plain[i].type) == 0)
            return add_plain(s, plain[i].kind, e);
    if (strcmp(type, "Sequence") == 0)
        return each(s, json_get(j, "normalizers"), normalizer, depth, e);
    if (strcmp(type, "Replace") == 0)
        return add_replace(s, j, e);
    if (strcmp(type, "Prepend") == 0)
        return add_prepend(s, json_str(j, "prepend", ""), PREPEND_ALWAYS, e);
    if (strcmp(type, "BertNormalizer") == 0)
        return add_bert(s, j, e);
    if (strcmp(type, "Precompiled") == 0)
        return add_charsmap(s, j, e);
    if (strcmp(type, "Strip") == 0) {
        struct step *st = add(s, STEP_STRIP, e);
        if (!st)
            return -1;
        st->left = json_bool(j, "strip_left", true);
        st->right = json_bool(j, "strip_right", true);
        return 0;
    }
    return err_set(e, ERR_VALIDATION, "unknown type \"%.40s\"", type);
}

static int behaviour(const cJSON *j, enum split_behaviour def, enum split_behaviour *out,
                     struct err *e)
{
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious",
                                        "MergedWithNext"};
    const char *name = json_str(j, "behavior", names[def]);
    for (unsigned i = 0; i < 5; i++)
        if (strcmp(name, names[i]) == 0)
            return *out = (enum split_behaviour)i, 0;
    return err_set(e, ERR_VALIDATION, "behavior: unknown \"%.40s\"", name);
}

static int add_find(struct steps *s, enum find_kind find, enum split_behaviour how, struct err *e)
{
    struct step *st = add(s, STEP_SPLIT, e);
    if (!st)
        return -1;
    st->find = find;
    st->behaviour = how;
    return 0;
}

static int add_char_split(struct steps *s, const char *ch, enum split_behaviour how, struct err *e)
{
    size_t len;
    if (add_find(s, FIND_CHAR, how, e) != 0)
        return -1;
    s->v[s->n - 1].ch = *ch ? utf8_decode(ch, strlen(ch), &len) : 0;
    return 0;
}

static int add_split(struct steps *s, const cJSON *j, struct err *e)
{
    struct step *st = add(s, STEP_SPLIT, e);
    if (!st || behaviour(j, SPLIT_ISOLATED, &st->behaviour, e) != 0 || set_pattern(st, j, e) != 0)
        return err_wrap(e, "Split");
    st->invert = json_bool(j, "invert", false);
    return 0;
}

static int add_byte_level(struct steps *s, const cJSON *j, struct err *e)
{
    if (json_bool(j, "add_prefix_space", true) && add_prepend(s, " ", PREPEND_UNLESS_THERE, e) != 0)
        return -1;
    if (json_bool(j, "use_regex", true)) {
        if (add_find(s, FIND_REGEX, SPLIT_ISOLATED, e) != 0)
            return -1;
        struct step *st = &s->v[s->n - 1];
        if (!(st->regex = regex_compile(gpt2_pattern, sizeof gpt2_pattern - 1, e)))
            return -1;
    }
    return add_plain(s, STEP_BYTES, e);
}

static int add_metaspace(struct steps *s, const cJSON *j, struct err *e)
{
    const char *rep = json_str(j, "replacement", "\xE2\x96\x81");
    const char *scheme =
        json_str(j, "prepend_scheme", json_bool(j, "add_prefix_space", true) ? "always" : "never");
    struct step *st = add(s, STEP_REPLACE, e);
    if (!st || set_text(&st->what, &st->what_n, " ", e) != 0 ||
        set_text(&st->text, &st->text_n, rep, e) != 0)
        return -1;
    if (strcmp(scheme, "never") != 0 &&
        add_prepend(s, rep, *scheme == 'f' ? PREPEND_FIRST : PREPEND_UNLESS_THERE, e) != 0)
        return -1;
    return json_bool(j, "split", true) ? add_char_split(s, rep, SPLIT_NEXT, e) : 0;
}

static int pre_tokenizer(struct steps *s, const cJSON *j, unsigned depth, struct err *e)
{
    const char *type = json_str(j, "type", "");
    enum split_behaviour how;
    if (strcmp(type, "Sequence") == 0)
        return each(s, json_get(j, "pretokenizers"), pre_tokenizer, depth, e);
    if (strcmp(type, "ByteLevel") == 0)
        return add_byte_level(s, j, e);
    if (strcmp(type, "Split") == 0)
        return add_split(s, j, e);
    if (strcmp(type, "Metaspace") == 0)
        return add_metaspace(s, j, e);
    if (strcmp(type, "Digits") == 0)
        return add_find(
            s, FIND_NUMERIC,
            json_bool(j, "individual_digits", false) ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, e);
    if (strcmp(type, "Punctuation") == 0)
        return behaviour(j, SPLIT_ISOLATED, &how, e) != 0 ? -1 : add_find(s, FIND_PUNCT, how, e);
    if (strcmp(type, "WhitespaceSplit") == 0)
        return add_find(s, FIND_WHITE, SPLIT_REMOVED, e);
    if (strcmp(type, "CharDelimiterSplit") == 0)
        return add_char_split(s, json_str(j, "delimiter", " "), SPLIT_REMOVED, e);
    if (strcmp(type, "BertPreTokenizer") == 0)
        return add_find(s, FIND_WHITE, SPLIT_REMOVED, e) != 0
                   ? -1
                   : add_find(s, FIND_PUNCT, SPLIT_ISOLATED, e);
    if (strcmp(type, "Whitespace") == 0) { /* drops everything but words */
        if (add_find(s, FIND_WORDS, SPLIT_REMOVED, e) != 0)
            return -1;
        s->v[s->n - 1].invert = true;
        return 0;
    }
    if (strcmp(type, "FixedLength") == 0) {
        struct step *st = add(s, STEP_FIXED, e);
        if (!st)
            return -1;
        int64_t n = json_int(j, "length", 5);
        st->count = n < 1 || n > UINT32_MAX ? 1 : (uint32_t)n;
        return 0;
    }
    return err_set(e, ERR_VALIDATION, "unknown type \"%.40s\"", type);
}

int steps_normalizer(struct steps *s, const cJSON *j, struct err *e)
{
    return j ? normalizer(s, j, 0, e) : 0;
}

int steps_pre_tokenizer(struct steps *s, const cJSON *j, struct err *e)
{
    return j ? pre_tokenizer(s, j, 0, e) : 0;
}
