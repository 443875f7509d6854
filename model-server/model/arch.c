#include "model-server/model/arch.h"
#include "common/buf.h"
#include "common/json/json.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROW(name) extern const struct arch arch_##name;
#include "archs.h"
#undef ROW

static const struct arch *const archs[] = {
#define ROW(name) &arch_##name,
#include "archs.h"
#undef ROW
};
enum { N_ARCHS = sizeof(archs) / sizeof(archs[0]) };

static const struct arch *find(const char *model_type, const char **type)
{
    for (int i = 0; i < N_ARCHS; i++)
        for (const char *const *t = archs[i]->types; *t; t++)
            if (strcmp(*t, model_type) == 0) {
                *type = *t;
                return archs[i];
            }
    return NULL;
}

static size_t same_letters(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] && a[n] == b[n])
        n++;
    return n;
}

/* As many known words as a message has room for, the most similar beginnings first. */
static void unknown(struct config *c, const char *model_type)
{
    enum { ROOM = 200, MOST = 8 };
    struct buf known = BUF_INIT;
    unsigned more = 0;
    for (size_t same = MOST + 1; same-- > 0;)
        for (int i = 0; i < N_ARCHS; i++)
            for (const char *const *t = archs[i]->types; *t; t++) {
                const size_t n = same_letters(*t, model_type);
                if ((n < MOST ? n : MOST) != same)
                    continue;
                if (known.len < ROOM)
                    buf_fmt(&known, "%s%s", known.len ? ", " : "", *t);
                else
                    more++;
            }
    config_fail(c,
                "model_type `%.64s` is not supported (known: %s and %u more; docs/models.md "
                "lists them)",
                model_type, known.p ? known.p : "", more);
    buf_free(&known);
}

static void check_rope_option(struct config *c)
{
    const char *s = c->rope_scaling;
    if (!s)
        return;
    if (strcmp(s, "linear") != 0 && strcmp(s, "dynamic") != 0)
        config_fail(c, "rope scaling `%.40s` must be linear or dynamic", s);
    if (!(c->rope_factor >= 1 && isfinite(c->rope_factor)))
        config_fail(c, "the rope factor must be a number of at least 1");
}

/* A decoder whose tokens see all others, as transformers 5 reads this key (gte-Qwen2). */
static void see_both_ways(struct config *c, struct decoder_spec *s)
{
    if (c->failed || s->both_ways || config_bool_or(c, "is_causal", true))
        return;
    for (uint32_t i = 0; i < s->n_layers; i++)
        if (s->layers[i].mixer != MIXER_ATTENTION || s->layers[i].window)
            config_fail(c, "`is_causal` false is not supported with windows or recurrent layers");
    s->both_ways = s->no_head = true;
}

/* The family of the text model, or NULL. Files that do not name it have the text model of their own
 * family (EmbeddingGemma 2); those of old LLaVA have Llama. */
static const struct arch *find_text(const struct config *c, const char **type)
{
    const char *word = json_str(c->root, "model_type", NULL);
    const char *outer = json_str(c->file, "model_type", "");
    char own[80];
    if (word || c->root == c->file)
        return word ? find(word, type) : NULL;
    snprintf(own, sizeof(own), "%.64s_text", outer);
    const struct arch *a = find(own, type);
    return a ? a : find("llama", type);
}

static void configure(struct config *c, const struct arch **arch, const char **type,
                      struct decoder_spec *spec)
{
    const char *word = json_str(c->root, "model_type", NULL);
    *arch = find_text(c, type);
    if (!word && !*arch) {
        config_fail(c, "`model_type` is missing");
        return;
    }
    if (!*arch) {
        unknown(c, word);
        return;
    }
    if ((*arch)->choose)
        *arch = (*arch)->choose(c);
    check_rope_option(c);
    if (c->failed)
        return;
    c->keys = (*arch)->keys;
    (*arch)->configure(c, spec);
    see_both_ways(c, spec);
}

int arch_configure(const char *path, const char *text, const char *rope_scaling, double rope_factor,
                   const struct arch **arch, const char **type, struct decoder_spec *spec,
                   struct err *e)
{
    struct config c;
    memset(spec, 0, sizeof(*spec));
    if (config_open(&c, path, text, e))
        return -1;
    c.rope_scaling = rope_scaling;
    c.rope_factor = rope_factor;
    configure(&c, arch, type, spec);
    config_close(&c);
    return c.failed ? -1 : 0;
}

int arch_configure_encoder(const char *path, const struct arch **arch, struct decoder_spec *spec,
                           struct err *e)
{
    struct config c;
    const char *type = NULL;
    memset(spec, 0, sizeof(*spec));
    *arch = NULL;
    if (config_open(&c, path, NULL, e))
        return -1;
    const char *word = json_str(c.root, "model_type", NULL);
    const struct arch *whole = word ? find(word, &type) : NULL;
    if (whole && whole->choose)
        whole = whole->choose(&c);
    if (whole && whole->encoder) {
        *arch = whole->encoder;
        c.keys = (*arch)->keys;
        (*arch)->configure(&c, spec);
    }
    config_close(&c);
    return c.failed ? -1 : 0;
}

/* Prefixes of the text model in vision files. */
static const char *const text_prefixes[] = {"model.language_model.model.",
                                            "model.model.language_model.model.",
                                            "model.model.language_model.",
                                            "model.language_model.",
                                            "language_model.model.",
                                            "model.text_model.",
                                            "text_model.model.",
                                            "text_model.",
                                            "language_model.",
                                            "thinker.model.",
                                            "thinker.",
                                            "llm.model.",
                                            "llm."};
enum { N_TEXT_PREFIXES = sizeof(text_prefixes) / sizeof(text_prefixes[0]) };

/* The first files of BERT use gamma for a norm's weight and beta for its bias. */
static const char *old_norm(const char *name, char *out, size_t cap)
{
    static const char norm[] = "LayerNorm.";
    const size_t n = strlen(name), m = sizeof(norm) - 1;
    const bool weight = n > m + 6 && strcmp(name + n - m - 6, "LayerNorm.weight") == 0;
    const bool bias = n > m + 4 && strcmp(name + n - m - 4, "LayerNorm.bias") == 0;
    if (!weight && !bias)
        return "";
    snprintf(out, cap, "%.*s%s", (int)(n - (weight ? 6 : 4)), name, weight ? "gamma" : "beta");
    return out;
}

const char *arch_prefix(const struct arch *a, int k, size_t *n)
{
    const char *p = a->prefix;
    while (p && k-- > 0) {
        p = strchr(p, '|');
        p = p ? p + 1 : NULL;
    }
    *n = p ? strcspn(p, "|") : 0;
    return p;
}

/* Spelling k of a name by the family's prefixes: as it is, without the first, with another one in
 * its place. "": none; NULL after the last. */
static const char *prefixed(const struct arch *a, const char *name, int k, char *out, size_t cap)
{
    size_t own, n;
    const char *first = arch_prefix(a, 0, &own), *other = arch_prefix(a, k - 1, &n);
    if (k == 0)
        return name;
    if (k > 1 && !other)
        return NULL;
    if (!first || strncmp(name, first, own) != 0)
        return "";
    if (k == 1)
        return name + own;
    snprintf(out, cap, "%.*s%s", (int)n, other, name + own);
    return out;
}

/* Spelling `at` of a name behind the prefixes of the text model in vision files: instead of
 * "model." or the family's own prefix, and then before the family's own. "": none; NULL after the
 * last. */
static const char *behind_prefix(const struct arch *a, const char *name, int at, char *out,
                                 size_t cap)
{
    static const char model[] = "model.", head[] = "lm_head";
    size_t n = sizeof(model) - 1, own;
    const char *first = arch_prefix(a, 0, &own);
    const bool inner = strncmp(name, model, n) == 0;
    const bool has_own = !inner && first && strncmp(name, first, own) == 0;
    if (at >= (has_own ? 2 : 1) * N_TEXT_PREFIXES)
        return NULL;
    if (!inner && !has_own && strncmp(name, head, sizeof(head) - 1) != 0)
        return "";
    const bool whole = at >= N_TEXT_PREFIXES || !(inner || has_own);
    if (has_own)
        n = own;
    snprintf(out, cap, "%s%s", text_prefixes[at % N_TEXT_PREFIXES], whole ? name : name + n);
    return out;
}

static const char *spelling(const struct arch *a, const char *name, int i, char *out, size_t cap)
{
    char of[512];
    int own = 2;
    while (prefixed(a, name, own, of, sizeof(of)))
        own++;
    if (i < own)
        return prefixed(a, name, i, out, cap);
    if (i < 2 * own)
        return old_norm(prefixed(a, name, i - own, of, sizeof(of)), out, cap);
    return behind_prefix(a, name, i - 2 * own, out, cap);
}

const char *arch_name_in_file(const struct arch *a, const char *name, int i, char *out, size_t cap)
{
    static const char weight[] = ".weight";
    const char *other = a->parametrized ? ".parametrizations.weight.original" : a->other_weight;
    char of[512];
    if (!other || i % 2 == 0)
        return spelling(a, name, other ? i / 2 : i, out, cap);
    const char *plain = spelling(a, name, i / 2, of, sizeof(of));
    const size_t n = plain ? strlen(plain) : 0, end = sizeof(weight) - 1;
    if (n < end || strcmp(plain + n - end, weight) != 0)
        return plain ? "" : NULL;
    snprintf(out, cap, "%.*s%s", (int)(n - end), plain, other);
    return out;
}

/* ---------------------------------------------------------------- names backwards */

/* If `name` begins with the pattern (up to a | or its end), returns the rest of `name`; else
 * NULL. */
static const char *begins(const char *name, const char *pattern, int index[2])
{
    int n = 0;
    assert(name);
    index[0] = index[1] = -1;
    for (; *pattern && *pattern != '|'; pattern++) {
        if (!strchr("*<>", *pattern)) {
            if (*name++ != *pattern)
                return NULL;
            continue;
        }
        if (*name < '0' || *name > '9' || n == 2)
            return NULL;
        int v = 0;
        for (; *name >= '0' && *name <= '9' && v < 1000000; name++)
            v = v * 10 + (*name - '0');
        if (*pattern != '*' && v % 2 != (*pattern == '>'))
            return NULL;
        index[n++] = *pattern == '*' ? v : v / 2;
    }
    return name;
}

static bool use_of(const struct arch *a, const char *name, struct arch_use *u)
{
    int index[2];
    for (int r = 0; r < W_ROLES; r++)
        for (const char *p = a->names[r]; p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL) {
            const char *rest = begins(name, p, index);
            if (!rest || (*rest && strcmp(rest, ".weight") != 0 && strcmp(rest, ".bias") != 0 &&
                          strcmp(rest, "_bias") != 0 &&
                          !(a->other_weight && strcmp(rest, a->other_weight) == 0)))
                continue;
            *u = (struct arch_use){(enum role)r, index[0], index[1], rest};
            return true;
        }
    return false;
}

/* The same with any of the family's own prefixes. */
static bool use_of_prefixed(const struct arch *a, const char *name, struct arch_use *u)
{
    char whole[512];
    const size_t end = strlen(name);
    size_t own, n;
    const char *first = arch_prefix(a, 0, &own), *other;
    if (use_of(a, name, u))
        return true;
    for (int k = 0; first && (other = arch_prefix(a, k, &n)); k++) {
        if (k && strncmp(name, other, n) != 0)
            continue;
        snprintf(whole, sizeof(whole), "%.*s%s", (int)own, first, name + (k ? n : 0));
        if (use_of(a, whole, u)) {
            u->suffix = name + (end - strlen(u->suffix));
            return true;
        }
    }
    return false;
}

bool arch_use_of(const struct arch *a, const char *name, struct arch_use *u)
{
    char whole[512];
    const size_t end = strlen(name);
    if (use_of_prefixed(a, name, u))
        return true;
    for (int i = 0; i < N_TEXT_PREFIXES; i++) {
        const size_t n = strlen(text_prefixes[i]);
        if (strncmp(name, text_prefixes[i], n) != 0)
            continue;
        const bool head = strncmp(name + n, "lm_head", 7) == 0;
        snprintf(whole, sizeof(whole), "%s%s", head ? "" : "model.", name + n);
        if (use_of_prefixed(a, whole, u) || use_of_prefixed(a, name + n, u)) {
            u->suffix = name + (end - strlen(u->suffix));
            return true;
        }
    }
    return false;
}
