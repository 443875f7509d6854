/* Finds the projector of a model, and makes the parts of config.json that all kinds have. */
#include "common/gguf/projector_impl.h"
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_MAX = 40 };

bool gguf_has_projector(const struct gguf_set *s) { return s->projector != NULL; }

double projector_number(const struct projector *p, const char *key, double def)
{
    char name[GGUF_KEY_MAX];
    double v;
    snprintf(name, sizeof(name), "clip.vision.%s", key);
    const struct gguf_value *is = gguf_find(p->file, name);
    if (!gguf_number(p->file, name, &v))
        return def;
    return is->type == GGUF_T_F32 ? meta_as_written(v) : v;
}

double projector_dim(const struct projector *p, const char *tensor, int dim)
{
    const struct gguf_tensor *t = gguf_tensor(p->file, tensor);
    return t ? (double)t->dims[dim] : 0;
}

bool projector_has(const struct projector *p, const char *tensor)
{
    return gguf_tensor(p->file, tensor) != NULL;
}

void projector_square(cJSON *o, const char *key, double side)
{
    cJSON *size = cJSON_AddObjectToObject(o, key);
    meta_put_in(size, "height", side);
    meta_put_in(size, "width", side);
}

/* ---------------------------------------------------------------- kinds */

/* clip.projector_type, or that of the vision tower where the file has another medium as well. The
 * first files, LLaVA's, have neither. */
static bool word_of(const struct gguf *g, struct gguf_str *out)
{
    static const struct gguf_str first = {"mlp", 3};
    if (gguf_text(g, "clip.projector_type", out) || gguf_text(g, "clip.vision.projector_type", out))
        return true;
    *out = first;
    return gguf_bool(g, "clip.has_llava_projector", false);
}

static const struct projector_kind *kind_of(const struct gguf_str *word)
{
    for (const struct projector_kind *k = projector_kinds; k->word; k++)
        if (gguf_str_is(word, k->word))
            return k;
    return NULL;
}

struct projector_layout gguf_projector_layout(const struct gguf *g)
{
    struct gguf_str word = {"", 0};
    const struct projector_kind *k = word_of(g, &word) ? kind_of(&word) : NULL;
    return k ? k->layout : (struct projector_layout){0};
}

static const struct projector_kind *find_kind(const struct gguf *g, struct err *e)
{
    struct gguf_str word = {"", 0};
    if (!word_of(g, &word)) {
        err_set(e, ERR_VALIDATION, "%s is no projector of images: `clip.projector_type` is missing",
                g->path);
        return NULL;
    }
    const struct projector_kind *k = kind_of(&word);
    if (k)
        return k;
    err_set(e, ERR_VALIDATION, "%s: projector `%.*s` is not supported", g->path,
            word.n > WORD_MAX ? WORD_MAX : (int)word.n, word.p);
    return NULL;
}

/* Does the projector belong to text models of this architecture and width? */
static int check_fit(const struct projector *p, struct err *e)
{
    const char *arch = p->m->f->name;
    const double width = p->kind->last ? projector_dim(p, p->kind->last, 1)
                                       : projector_number(p, "projection_dim", 0);
    const double text = meta_number_or(p->m, "embedding_length", 0);
    bool is = !p->kind->archs;
    for (const char *const *a = p->kind->archs; a && *a; a++)
        is |= strcmp(*a, arch) == 0;
    if (!is)
        return err_set(e, ERR_VALIDATION,
                       "%s: projector `%s` does not go with a text model of `%s`", p->file->path,
                       p->kind->word, arch);
    if (width != text)
        return err_set(e, ERR_VALIDATION,
                       "%s: features of %g numbers do not go with a text model of %g",
                       p->file->path, width, text);
    return 0;
}

/* ---------------------------------------------------------------- config.json */

/* The id of the first of a token's texts that the vocabulary has; -1: it has none. */
static double token_id(const struct gguf *text, const struct projector_token *token)
{
    const struct gguf_value *list = gguf_strings(text, "tokenizer.ggml.tokens");
    for (size_t i = 0; list && i < sizeof(token->texts) / sizeof(token->texts[0]); i++) {
        const uint8_t *at = list->data;
        struct gguf_str s;
        for (double id = 0; gguf_next(list, &at, &s); id++)
            if (token->texts[i] && gguf_str_is(&s, token->texts[i]))
                return id;
    }
    return -1;
}

const char *gguf_projector_unlisted(const struct gguf_set *s)
{
    struct gguf_str word = {"", 0};
    const struct projector_kind *k =
        s->projector && word_of(s->projector, &word) ? kind_of(&word) : NULL;
    return k && k->unlisted && token_id(&s->files[0], &k->tokens[0]) < 0 ? k->tokens[0].texts[0]
                                                                         : NULL;
}

static void put_tokens(const struct projector *p)
{
    const struct gguf *text = &p->m->s->files[0];
    const struct gguf_value *list = gguf_strings(text, "tokenizer.ggml.tokens");
    for (int i = 0; i < PROJECTOR_TOKENS && p->kind->tokens[i].key; i++) {
        const double id = token_id(text, &p->kind->tokens[i]);
        if (id >= 0)
            meta_put_in(p->config, p->kind->tokens[i].key, id);
        else if (i == 0 && list && p->kind->unlisted)
            meta_put_in(p->config, p->kind->tokens[i].key, (double)list->n);
    }
}

static void put_tower(const struct projector *p)
{
    static const char *const keys[][2] = {{"embedding_length", "hidden_size"},
                                          {"feed_forward_length", "intermediate_size"},
                                          {"block_count", "num_hidden_layers"},
                                          {"attention.head_count", "num_attention_heads"},
                                          {"image_size", "image_size"},
                                          {"patch_size", "patch_size"},
                                          {"attention.layer_norm_epsilon", "layer_norm_eps"}};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const double v = projector_number(p, keys[i][0], -1);
        if (v >= 0)
            meta_put_in(p->tower, keys[i][1], v);
    }
    const char *act = gguf_bool(p->file, "clip.use_gelu", false)   ? p->kind->gelu
                      : gguf_bool(p->file, "clip.use_silu", false) ? "silu"
                                                                   : "quick_gelu";
    cJSON_AddStringToObject(p->tower, "hidden_act", act);
}

/* What loaders look for at the top as well. */
static void lift(const struct projector *p, const char *key)
{
    const cJSON *is = cJSON_GetObjectItemCaseSensitive(p->text, key);
    if (is)
        cJSON_AddItemToObject(p->config, key, cJSON_Duplicate(is, true));
}

cJSON *gguf_projector_config(const struct gguf_meta *m, cJSON *text, struct err *e)
{
    struct projector p = {.file = m->s->projector, .m = m, .text = text};
    p.kind = find_kind(p.file, e);
    if (!p.kind || check_fit(&p, e)) {
        cJSON_Delete(text);
        return NULL;
    }
    p.config = cJSON_CreateObject();
    if (!p.config) {
        cJSON_Delete(text);
        err_nomem(e);
        return NULL;
    }
    const char *type = p.kind->type ? p.kind->type : p.kind->find_type(&p);
    cJSON_AddStringToObject(p.config, "model_type", type);
    cJSON_AddItemToObject(p.config, "text_config", text);
    p.tower = cJSON_AddObjectToObject(p.config, "vision_config");
    const char *tower = p.kind->find_tower ? p.kind->find_tower(&p) : p.kind->tower;
    cJSON_AddStringToObject(p.tower, "model_type", tower ? tower : type);
    lift(&p, "tie_word_embeddings");
    lift(&p, "quantization_config");
    put_tower(&p);
    put_tokens(&p);
    p.kind->more(&p);
    return p.config;
}

static void put_three(const struct projector *p, const char *key, const char *to)
{
    const struct gguf_value *list = gguf_numbers(p->file, key);
    if (list && list->n == 3)
        meta_put_list(p->pixels, to, list, 3);
}

cJSON *gguf_projector_pixels(const struct gguf_set *s, struct err *e)
{
    const struct gguf_meta m = {s, gguf_family(s, e), NULL};
    struct projector p = {.file = s->projector, .m = &m};
    if (!m.f || !(p.kind = find_kind(p.file, e)))
        return NULL;
    if (!(p.pixels = cJSON_CreateObject())) {
        err_nomem(e);
        return NULL;
    }
    put_three(&p, "clip.vision.image_mean", "image_mean");
    put_three(&p, "clip.vision.image_std", "image_std");
    if (p.kind->pixels)
        p.kind->pixels(&p);
    return p.pixels;
}

/* ---------------------------------------------------------------- the file beside a model */

/* ERR_VALIDATION: it is no projector of this model. `name` is general.name, or "". */
static int try_file(const struct gguf_meta *m, const char *path, char name[PATH_MAX], struct err *e)
{
    struct gguf g;
    struct gguf_str s = {"", 0};
    if (gguf_open(&g, path, e))
        return -1;
    struct projector p = {.file = &g, .m = m, .kind = find_kind(&g, e)};
    const int rc = p.kind ? check_fit(&p, e) : -1;
    gguf_text(&g, "general.name", &s);
    snprintf(name, PATH_MAX, "%.*s", s.n < PATH_MAX ? (int)s.n : 0, s.p);
    gguf_close(&g);
    return rc;
}

static int is_projector_file(const struct dirent *d) { return gguf_is_projector(d->d_name); }

/* The first by name of those that fit, in several precisions; an error if they are of different
 * models. *found is NULL without one. */
static int choose(const struct gguf_meta *m, const char *dir, struct dirent **v, int n,
                  char **found, struct err *e)
{
    char path[PATH_MAX], name[PATH_MAX], first[PATH_MAX] = "";
    *found = NULL;
    for (int i = 0; i < n; i++) {
        struct err why = ERR_INIT;
        if (snprintf(path, sizeof(path), "%s%s", dir, v[i]->d_name) >= PATH_MAX ||
            try_file(m, path, name, &why))
            continue;
        if (*found && strcmp(first, name) != 0)
            return err_set(e, ERR_VALIDATION,
                           "%s and %s are projectors of different models: name one by --mmproj, or "
                           "--mmproj none",
                           *found, v[i]->d_name);
        if (*found)
            continue;
        memcpy(first, name, sizeof(first));
        if (!(*found = strdup(path)))
            return err_nomem(e);
    }
    return 0;
}

static int beside(const struct gguf_meta *m, const char *model, char **found, struct err *e)
{
    char dir[PATH_MAX];
    struct dirent **v = NULL;
    const char *slash = strrchr(model, '/');
    *found = NULL;
    if (snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - model + 1) : 2,
                 slash ? model : "./") >= PATH_MAX)
        return 0;
    const int n = scandir(dir, &v, is_projector_file, alphasort);
    const int rc = n > 0 ? choose(m, dir, v, n, found, e) : 0;
    for (int i = 0; i < n; i++)
        free(v[i]);
    free(v);
    if (rc) {
        free(*found);
        *found = NULL;
    }
    return rc;
}

/* Opens the text model and finds its projector; *found is NULL without one. */
static int find(const char *model, const char *given, char **found, struct err *e)
{
    char name[PATH_MAX];
    struct gguf_set s;
    *found = NULL;
    if (gguf_set_open(&s, model, e))
        return given ? -1 : 0; /* loading it reports the error */
    const struct gguf_meta m = {&s, gguf_family(&s, e), NULL};
    int rc = 0;
    if (given)
        rc = m.f && !try_file(&m, given, name, e) ? 0 : -1;
    else if (m.f)
        rc = beside(&m, model, found, e);
    if (given && rc == 0 && !(*found = strdup(given)))
        rc = err_nomem(e);
    gguf_set_close(&s);
    return rc;
}

char *gguf_with_projector(char *model, const char *given, struct err *e)
{
    char *projector = NULL, *both = NULL;
    const bool is = gguf_is_file(model);
    if (given && strcmp(given, "none") == 0)
        return model;
    if (!is && !given)
        return model;
    struct err why = ERR_INIT;
    int rc =
        is ? find(model, given, &projector, &why)
           : err_set(&why, ERR_VALIDATION,
                     "--mmproj: %s is no GGUF file; its own files have the vision tower", model);
    if (rc) {
        *e = why;
        free(model);
        return NULL;
    }
    if (!projector)
        return model;
    if (asprintf(&both, "%s" GGUF_PROJECTOR_MARK "%s", model, projector) < 0) {
        both = NULL;
        err_nomem(e);
    }
    free(projector);
    free(model);
    return both;
}
