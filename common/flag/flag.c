/* Parsing of a flag table. The printed pages are in pages.c. */
#include "common/flag/flag.h"
#include "common/flag/env.h"
#include "common/nearest.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* 1 for "", else the size of the unit that a number of bytes ends with, as Kubernetes writes it
 * with or without a B: `Mi` is 2^20, `M` is 10^6. 0: no such unit. */
static double size_unit(const char *s)
{
    static const char letters[] = "kmgt";
    const char *at = *s ? strchr(letters, tolower((unsigned char)*s)) : NULL;
    const bool binary = at && s[1] == 'i';
    const char *rest = at ? s + 1 + binary : s;
    if (*rest && strcasecmp(rest, "B") != 0)
        return 0;
    double unit = 1;
    for (const char *c = letters; at && c <= at; c++)
        unit *= binary ? 1024 : 1000;
    return unit;
}

static bool counts_bytes(const struct flag *f) { return f->unit && strstr(f->unit, "bytes"); }

static int store_number(const struct flag *f, void *at, const char *s, const char *from,
                        struct err *e)
{
    const bool whole = f->type != FLAG_F64;
    const bool digits = *s && strspn(s, "0123456789") == strlen(s);
    char *end;
    errno = 0;
    const uint64_t exact = digits ? strtoull(s, &end, 10) : 0; /* above 2^53 no double is */
    double v = digits ? (double)exact : strtod(s, &end);
    const double unit = counts_bytes(f) ? size_unit(end) : !*end;
    if (end == s || unit == 0 || errno || v != v)
        return err_set(e, ERR_VALIDATION, "%s: `%s` is not a number%s", from, s,
                       counts_bytes(f) ? " of bytes, as 67108864, 64MiB or 64M" : "");
    v *= unit;
    if (whole && !digits && (v < 0 || v != floor(v) || v >= 0x1p64))
        return err_set(e, ERR_VALIDATION, "%s: `%s` is not a whole number", from, s);
    if (f->type == FLAG_U32 && v > UINT32_MAX)
        return err_set(e, ERR_VALIDATION, "%s: `%s` is not a whole number", from, s);
    if (f->min < f->max && (v < f->min || v > f->max))
        return err_set(e, ERR_VALIDATION, "%s: %s is outside %g..%g", from, s, f->min, f->max);
    if (f->type == FLAG_U32)
        *(uint32_t *)at = (uint32_t)v;
    else if (f->type == FLAG_U64)
        *(uint64_t *)at = digits ? exact : (uint64_t)v;
    else
        *(double *)at = v;
    return 0;
}

static int store_enum(const struct flag *f, uint32_t *at, const char *s, const char *from,
                      struct err *e)
{
    char all[200] = "";
    for (uint32_t i = 0; f->choices[i]; i++) {
        const size_t word = strcspn(f->choices[i], "=");
        if (strlen(s) == word && !memcmp(f->choices[i], s, word))
            return f->choices[i][word] ? store_enum(f, at, f->choices[i] + word + 1, from, e)
                                       : (*at = i, 0);
        size_t n = strlen(all);
        snprintf(all + n, sizeof(all) - n, "%s%.*s", i ? ", " : "", (int)word, f->choices[i]);
    }
    return err_set(e, ERR_VALIDATION, "%s: `%s` is not one of %s", from, s, all);
}

static int store_list(struct flag_list *l, const char *s, struct err *e)
{
    while (*s) {
        size_t n = strcspn(s, ",");
        char **v = n ? realloc(l->v, (l->n + 1) * sizeof(*v)) : l->v;
        if (n && v) {
            l->v = v;
            v[l->n] = strndup(s, n);
        }
        if (n && (!v || !v[l->n]))
            return err_nomem(e);
        l->n += n > 0;
        s += n + (s[n] == ',');
    }
    return 0;
}

static int store(const struct flag *f, void *cfg, const char *s, const char *from, struct err *e)
{
    void *at = (char *)cfg + f->off;
    switch (f->type) {
    case FLAG_STR:
        return *(const char **)at = s, 0;
    case FLAG_BOOL:
        if (!strcasecmp(s, "true") || !strcmp(s, "1"))
            return *(bool *)at = true, 0;
        if (!strcasecmp(s, "false") || !strcmp(s, "0") || !*s)
            return *(bool *)at = false, 0;
        return err_set(e, ERR_VALIDATION, "%s: `%s` is not true or false", from, s);
    case FLAG_ENUM:
        return store_enum(f, at, s, from, e);
    case FLAG_LIST:
        return store_list(at, s, e);
    case FLAG_U32:
    case FLAG_U64:
    case FLAG_F64:
        return store_number(f, at, s, from, e);
    }
    abort();
}

void flag_env_name(const struct flag *f, char out[64])
{
    size_t i = 0;
    const char *s = f->env ? f->env : f->name;
    for (; i < 63 && s[i]; i++)
        out[i] = s[i] == '-' ? '_' : (char)toupper((unsigned char)s[i]);
    out[i] = 0;
}

static const char *from_env(const struct flag *f, char name[64], char *const *envp)
{
    flag_env_name(f, name);
    size_t n = strlen(name);
    for (char *const *p = envp; n && p && *p; p++)
        if (!strncmp(*p, name, n) && (*p)[n] == '=')
            return (*p)[n + 1] ? *p + n + 1
                               : NULL; /* an empty variable counts as not given, as in a Pod spec */
    return NULL;
}

const struct flag *flag_named(const struct flag_program *p, const char *name, size_t n)
{
    const struct flag *f = p->flags;
    while (f->name && (strlen(f->name) != n || memcmp(f->name, name, n)))
        f++;
    return f->name ? f : NULL;
}

/* The row of a word that other servers know; NULL: none. */
static const struct flag_foreign *foreign_row(const struct flag_program *p, const char *w)
{
    const size_t n = *w == '-' ? strcspn(w, "=") : 0;
    for (const struct flag_foreign *f = p->foreign; f && f->name; f++)
        if (strlen(f->name) == n && !memcmp(f->name, w, n))
            return f;
    return NULL;
}

void flag_foreign_advice(const struct flag_program *p, const char *word, char out[FLAG_ADVICE_MAX])
{
    const struct flag_foreign *row = foreign_row(p, word);
    if (!row)
        *out = 0;
    else if (row->advice && row->kind != FOREIGN_SAME)
        snprintf(out, FLAG_ADVICE_MAX, "%s", row->advice);
    else
        snprintf(out, FLAG_ADVICE_MAX, "use --%s%s%s", row->here, row->value ? " " : "",
                 row->value ? row->value : "");
}

/* Error for a word `w` that is neither a known option (of name length `n`) nor an expected
 * argument. */
static int unexpected(const struct flag_program *p, const char *w, size_t n, struct err *e)
{
    static const char *const pages[] = {"help", "version", NULL};
    const bool longform = !strncmp(w, "--", 2);
    const char *meant = NULL, *name = longform ? w + 2 : w;
    char known[FLAG_ADVICE_MAX];
    flag_foreign_advice(p, w, known);
    uint32_t best = UINT32_MAX;
    for (const struct flag *f = p->flags; longform && f->name; f++)
        if (nearest_is(name, n, f->name, &best))
            meant = f->name;
    for (int i = 0; longform && pages[i]; i++)
        if (nearest_is(name, n, pages[i], &best))
            meant = pages[i];
    for (const struct flag_command *c = p->commands; *w != '-' && c && c->name; c++)
        if (nearest_is(name, n, c->name, &best))
            meant = c->name;
    if (*known && (*w == '-' || !meant))
        return err_set(e, ERR_VALIDATION, "unexpected argument '%.200s' found; %s. See %s --help",
                       w, known, p->name);
    if (meant)
        return err_set(e, ERR_VALIDATION,
                       "unexpected argument '%.200s' found; did you mean '%s%s'? See %s --help", w,
                       longform ? "--" : "", meant, p->name);
    return err_set(e, ERR_VALIDATION, "unexpected argument '%.200s' found; see %s --help", w,
                   p->name);
}

/* One option on the command line: `f` and its value, or NULL at a word without dashes, and where
 * `foreign` has no effect. */
struct arg {
    const struct flag *f;
    const struct flag_foreign *foreign; /* NULL: an option of this program */
    const char *value, *shown;
};

/* Fills a->f or a->foreign for an option that has a name only elsewhere. 1: it takes no value. */
static int next_foreign(const struct flag_program *p, const char *w, size_t n, struct arg *a,
                        struct err *e)
{
    const struct flag_foreign *row = foreign_row(p, w);
    if (!row || row->kind == FOREIGN_REFUSED)
        return unexpected(p, w, n, e);
    a->foreign = row;
    if (row->here)
        a->f = flag_named(p, row->here, strlen(row->here));
    if (row->kind != FOREIGN_SETS && row->kind != FOREIGN_NONE)
        return 0;
    a->value = row->value;
    return w[strcspn(w, "=")] ? unexpected(p, w, n, e) : 1;
}

static const struct flag *lettered(const struct flag_program *p, char letter)
{
    const struct flag *f = p->flags;
    while (f->name && (!f->letter || f->letter != letter))
        f++;
    return f->name ? f : NULL;
}

/* Our word for a value of a FOREIGN_MAPS row, which points into the table of the row's choices;
 * NULL: there is none. */
static const char *mapped(const struct arg *a)
{
    const size_t n = strlen(a->value);
    for (const char *s = a->foreign->value; *s; s += strcspn(s, " "), s += strspn(s, " ")) {
        const size_t theirs = strcspn(s, "="), ours = strcspn(s + theirs + 1, " ");
        if (theirs != n || memcmp(s, a->value, n) != 0)
            continue;
        for (const char *const *c = a->f ? a->f->choices : NULL; c && *c; c++)
            if (strlen(*c) == ours && !memcmp(*c, s + theirs + 1, ours))
                return *c;
    }
    return NULL;
}

static int next_arg(const struct flag_program *p, int argc, char **argv, int *i, struct arg *a,
                    struct err *e)
{
    const char *w = argv[*i];
    const bool longform = !strncmp(w, "--", 2);
    const size_t n = longform ? strcspn(w + 2, "=") : 1;

    *a = (struct arg){.value = w, .shown = w};
    if (w[0] != '-' || !w[1])
        return 0;
    if (longform)
        a->f = flag_named(p, w + 2, n);
    else if (!w[2] || !foreign_row(p, w)) /* -pp is no value of -p */
        a->f = lettered(p, w[1]);
    const int done = a->f ? 0 : next_foreign(p, w, n, a, e);
    if (done)
        return done < 0 ? -1 : 0;
    const char *equals = longform || a->foreign ? strchr(w, '=') : NULL;
    if (equals)
        a->value = equals + 1;
    else if (!longform && !a->foreign && w[2])
        a->value = w + 2;
    else if (a->f && a->f->type == FLAG_BOOL)
        a->value =
            *i + 1 < argc && (!strcmp(argv[*i + 1], "true") || !strcmp(argv[*i + 1], "false"))
                ? argv[++*i]
                : "true";
    else if (*i + 1 < argc)
        a->value = argv[++*i];
    else
        return err_set(e, ERR_VALIDATION, "%s needs a value", w);
    if (a->foreign && a->foreign->kind == FOREIGN_MAPS && !(a->value = mapped(a)))
        return unexpected(p, w, n, e);
    return 0;
}

static const struct flag *positional(const struct flag_program *p, int nth)
{
    for (const struct flag *f = p->flags; f->name; f++)
        if (f->positional && nth-- == 0)
            return f;
    return NULL;
}

/* Where the first word without dashes goes in a program that expects none: the row "" of
 * `foreign`, as the model of `vllm serve MODEL`. NULL: nowhere. */
static const struct flag *lone_word(const struct flag_program *p, const char *w, int nth)
{
    const struct flag_foreign *row = nth == 0 ? foreign_row(p, w) : NULL;
    uint32_t best = UINT32_MAX;
    for (const struct flag_command *c = p->commands; row && c && c->name; c++)
        if (nearest_is(w, strlen(w), c->name, &best))
            return NULL; /* a misspelt command */
    return row && row->kind == FOREIGN_SAME ? flag_named(p, row->here, strlen(row->here)) : NULL;
}

bool flags_given(const struct flag_program *p, const char *name, int argc, char **argv,
                 char *const *envp)
{
    struct err ignored;
    struct arg a;
    char env[64];
    int words = 0;
    for (int i = 1; i < argc; i++) {
        if (next_arg(p, argc, argv, &i, &a, &ignored) != 0)
            return false;
        const struct flag *f = a.f || a.foreign ? a.f : positional(p, words++);
        if (f && !strcmp(f->name, name))
            return true;
    }
    for (const struct flag *f = p->flags; f->name; f++)
        if (!strcmp(f->name, name))
            return from_env(f, env, envp) != NULL;
    return false;
}

static int parse_argv(const struct flag_program *p, void *cfg, int argc, char **argv, struct err *e)
{
    int words = 0;
    for (int i = 1; i < argc; i++) {
        struct arg a;
        if (next_arg(p, argc, argv, &i, &a, e) != 0)
            return -1;
        if (!a.f && a.foreign)
            continue;
        if (!a.f && !(a.f = positional(p, words)) &&
            (!(a.f = lone_word(p, a.shown, words)) || flags_given(p, a.f->name, argc, argv, NULL)))
            return unexpected(p, a.shown, strlen(a.shown), e);
        words += a.value == a.shown;
        if (store(a.f, cfg, a.value, a.shown, e) != 0)
            return -1;
    }
    return 0;
}

void flags_foreign(const struct flag_program *p, int argc, char **argv,
                   void (*each)(const struct flag_foreign *))
{
    struct err ignored;
    struct arg a;
    for (int i = 1; i < argc; i++)
        if (next_arg(p, argc, argv, &i, &a, &ignored) == 0 && a.foreign)
            each(a.foreign);
}

/* Prints a page if the word requests one; then returns 1. `next`: the word after it, or NULL. */
static int page(const struct flag_program *p, const char *word, const char *next)
{
    if (!strcmp(word, "--help") || !strcmp(word, "-h"))
        flags_help(p, next && *next != '-' ? next : NULL, stdout);
    else if (!strcmp(word, "--version") || !strcmp(word, "-V"))
        printf("%s %s\n", p->name, VERSION);
    else if (!strcmp(word, "--help-markdown"))
        flags_markdown(p, stdout);
    else if (!strcmp(word, "--help-man"))
        flags_man(p, stdout);
    else if (!strcmp(word, "--completion-bash"))
        flag_completion(p, stdout);
    else
        return 0;
    return 1;
}

int flags_parse(const struct flag_program *p, void *cfg, int argc, char **argv, char *const *envp,
                struct err *e)
{
    char env[64];
    for (int i = 1; i < argc; i++)
        if (page(p, argv[i], i + 1 < argc ? argv[i + 1] : NULL))
            return 1;
    for (const struct flag *f = p->flags; f->name; f++) {
        const char *v = from_env(f, env, envp);
        bool list = f->type == FLAG_LIST;
        /* A list on the command line replaces the one from the environment. */
        if (list && flags_given(p, f->name, argc, argv, NULL))
            continue;
        if (f->def && !(list && v) && store(f, cfg, f->def, f->name, e) != 0)
            return -1;
        if (v && store(f, cfg, v, env, e) != 0)
            return -1;
    }
    if (parse_argv(p, cfg, argc, argv, e) != 0)
        return -1;
    for (const struct flag *f = p->flags; f->name; f++)
        if (f->required && !flags_given(p, f->name, argc, argv, envp))
            return err_set(e, ERR_VALIDATION, "%s%s is required; see %s --help",
                           f->positional ? "" : "--", f->name, p->name);
    return 0;
}

void flags_free(const struct flag_program *p, void *cfg)
{
    for (const struct flag *f = p->flags; f->name; f++) {
        struct flag_list *l = (struct flag_list *)((char *)cfg + f->off);
        if (f->type != FLAG_LIST)
            continue;
        for (uint32_t i = 0; i < l->n; i++)
            free(l->v[i]);
        free(l->v);
        *l = (struct flag_list){0};
    }
}

bool flag_text(const struct flag *f, const void *cfg, struct buf *out)
{
    const void *at = (const char *)cfg + f->off;
    switch (f->type) {
    case FLAG_BOOL:
        if (!*(const bool *)at)
            return false;
        return buf_str(out, "true"), true;
    case FLAG_U32:
        if (!f->def && !*(const uint32_t *)at)
            return false;
        return buf_u64(out, *(const uint32_t *)at), true;
    case FLAG_U64:
        if (!f->def && !*(const uint64_t *)at)
            return false;
        return buf_u64(out, *(const uint64_t *)at), true;
    case FLAG_F64:
        if (!f->def && *(const double *)at == 0)
            return false;
        return buf_fmt(out, "%.15g", *(const double *)at), true;
    case FLAG_STR:
        if (!*(const char *const *)at)
            return false;
        return buf_str(out, *(const char *const *)at), true;
    case FLAG_ENUM:
        if (!f->def && !*(const uint32_t *)at)
            return false;
        return buf_str(out, f->choices[*(const uint32_t *)at]), true;
    case FLAG_LIST: {
        const struct flag_list *l = at;
        for (uint32_t i = 0; i < l->n; i++)
            buf_fmt(out, "%s%s", i ? "," : "", l->v[i]);
        return l->n > 0;
    }
    }
    abort();
}
