#include "common/model/model_file.h"
#include "common/buf.h"
#include "common/gguf/family.h"
#include "common/gguf/pooling.h"
#include "common/gguf/projector.h"
#include "common/gguf/vocab.h"
#include "common/json/json.h"
#include "common/model/first_module.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---------------------------------------------------------------- files inside a GGUF file */

static int print(cJSON *j, struct buf *out, struct err *e)
{
    char *text = j ? cJSON_PrintUnformatted(j) : NULL;
    if (text)
        buf_str(out, text);
    else if (j)
        err_nomem(e);
    cJSON_free(text);
    cJSON_Delete(j);
    return text ? 0 : -1;
}

static int config(const struct gguf_set *s, struct buf *out, struct err *e)
{
    return print(gguf_config(s, e), out, e);
}
static int generation_config(const struct gguf_set *s, struct buf *out, struct err *e)
{
    return print(gguf_generation_config(s, e), out, e);
}
static int tokenizer(const struct gguf_set *s, struct buf *out, struct err *e)
{
    return gguf_tokenizer(&s->files[0], gguf_projector_unlisted(s), out, e);
}
static int tokenizer_config(const struct gguf_set *s, struct buf *out, struct err *e)
{
    return gguf_tokenizer_config(&s->files[0], out, e);
}

static int modules(const struct gguf_set *s, struct buf *out, struct err *e)
{
    return print(gguf_modules(s, e), out, e);
}
static int pooling(const struct gguf_set *s, struct buf *out, struct err *e)
{
    return print(gguf_pooling(s, e), out, e);
}
static int dense(const struct gguf_set *s, struct buf *out, struct err *e)
{
    return print(gguf_dense(s, e), out, e);
}

static int pixels(const struct gguf_set *s, struct buf *out, struct err *e)
{
    return print(gguf_projector_pixels(s, e), out, e);
}

/* config.json of a table of vectors, as model2vec's folders have it. */
static int table_config(const char *dir, struct buf *out, struct err *e)
{
    (void)dir;
    buf_str(out, "{\"model_type\":\"model2vec\"}");
    return out->oom ? err_nomem(e) : 0;
}

static const struct made_file {
    const char *name;
    int (*make)(const struct gguf_set *s, struct buf *out, struct err *e);
    bool (*exists)(const struct gguf_set *s); /* NULL: always */
    /* Of a folder instead of a GGUF file: */
    int (*make_of)(const char *dir, struct buf *out, struct err *e);
    bool (*exists_of)(const char *dir);
} all_made[] = {
    {"config.json", config, NULL},
    {"generation_config.json", generation_config, NULL},
    {"tokenizer.json", tokenizer, NULL},
    {"tokenizer_config.json", tokenizer_config, NULL},
    {"preprocessor_config.json", pixels, gguf_has_projector},
    {"modules.json", modules, gguf_pools},
    {"1_Pooling/config.json", pooling, gguf_pools},
    {"2_Dense/config.json", dense, gguf_pools},
    {"3_Dense/config.json", dense, gguf_pools},
    /* of an older tokenizer */
    {"tokenizer.json", .make_of = tokenizer_folder_make, .exists_of = tokenizer_folder_has},
    {"config.json", .make_of = table_config, .exists_of = first_module_static},
};

/* Writes what precedes "/name" in `path`; false: it ends in another name. */
static bool before_name(const char *path, const char *name, char out[PATH_MAX])
{
    const size_t n = strlen(path), m = strlen(name);
    if (n < m + 2 || n - m > PATH_MAX || path[n - m - 1] != '/' || strcmp(path + n - m, name) != 0)
        return false;
    snprintf(out, PATH_MAX, "%.*s", (int)(n - m - 1), path);
    return true;
}

/* The row of a path inside a GGUF file, or of a generated file of a folder; the path of either goes
 * to `file`. NULL: an ordinary path, which goes to `file`. */
static const struct made_file *inside(const char *named, char file[PATH_MAX])
{
    char moved[PATH_MAX];
    const char *path = first_module_file(named, moved);
    for (size_t i = 0; i < sizeof(all_made) / sizeof(all_made[0]); i++) {
        const struct made_file *m = &all_made[i];
        if (before_name(path, m->name, file) &&
            (m->exists_of ? m->exists_of(file) : gguf_is_file(file)))
            return m;
    }
    snprintf(file, PATH_MAX, "%s", path);
    return NULL;
}

/* ---------------------------------------------------------------- reading */

bool model_file_exists(const char *path)
{
    char file[PATH_MAX];
    struct gguf_set s;
    struct err e = ERR_INIT;
    const struct made_file *m = inside(path, file);
    if (!m || !m->exists)
        return m || access(file, F_OK) == 0;
    if (gguf_set_open(&s, file, &e))
        return true; /* reading it reports the error */
    const bool there = m->exists(&s);
    gguf_set_close(&s);
    return there;
}

/* Of what is no model: where it belongs. Files without `general.type` are models. */
static bool is_model(const struct gguf_set *s, struct err *e)
{
    static const struct {
        const char *type, *arch, *belongs;
    } others[] = {{"adapter", "", "an adapter, which --lora-adapters takes"},
                  {"mmproj", "clip", "a vision tower, which --mmproj takes"},
                  {"imatrix", "", "an importance matrix, which programs that quantise take"}};
    struct gguf_str type = {"", 0}, arch = {"?", 1};
    if (s->n == 0) /* an open set has a file */
        return true;
    gguf_text(&s->files[0], "general.type", &type);
    gguf_text(&s->files[0], "general.architecture", &arch);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (gguf_str_is(&type, others[i].type) || gguf_str_is(&arch, others[i].arch)) {
            err_set(e, ERR_VALIDATION, "%s: no model: it is %s", s->files[0].path,
                    others[i].belongs);
            return false;
        }
    return true;
}

int model_file_gguf(const char *file,
                    int (*use)(const struct gguf_set *s, void *arg, struct err *e), void *arg,
                    struct err *e)
{
    struct gguf_set s;
    if (gguf_set_open(&s, file, e))
        return -1;
    int rc = is_model(&s, e) ? use(&s, arg, e) : -1;
    gguf_set_close(&s);
    return rc;
}

struct making {
    const struct made_file *m;
    struct buf *out;
};

static int make_in(const struct gguf_set *s, void *arg, struct err *e)
{
    const struct making *a = arg;
    return a->m->make(s, a->out, e);
}

static char *make(const struct made_file *m, const char *file, size_t max, size_t *n, struct err *e)
{
    struct buf out = BUF_INIT;
    int rc = m->make_of ? m->make_of(file, &out, e)
                        : model_file_gguf(file, make_in, &(struct making){m, &out}, e);
    if (rc == 0 && out.len > max)
        rc = err_set(e, ERR_VALIDATION, "%s: its %s would be too long", file, m->name);
    *n = out.len;
    if (rc == 0)
        return buf_take(&out);
    buf_free(&out);
    return NULL;
}

char *model_file_read(const char *path, size_t max, size_t *n, struct err *e)
{
    char file[PATH_MAX];
    const struct made_file *m = inside(path, file);
    return m ? make(m, file, max, n, e) : file_read(file, max, n, e);
}

/* Moves what the outer object says of the whole. */
static void move_key(cJSON *from, cJSON *to, const char *key)
{
    cJSON *v = cJSON_DetachItemFromObjectCaseSensitive(from, key);
    if (!v)
        return;
    cJSON_DeleteItemFromObjectCaseSensitive(to, key);
    if (!cJSON_AddItemToObject(to, key, v))
        cJSON_Delete(v);
}

/* config.json of a model around another is that of the inner one: of several models (Qwen Omni) the
 * one that reads and writes text, of a retriever (ColPali) what is below its projection. The class
 * of a retriever is that of the whole. */
static cJSON *of_inner(const char *path, cJSON *j)
{
    static const char name[] = "/config.json", *const keys[] = {"thinker_config", "vlm_config"};
    const size_t n = strlen(path), m = sizeof(name) - 1;
    if (n < m || strcmp(path + n - m, name) != 0)
        return j;
    const bool thinks = cJSON_IsObject(json_get(j, keys[0]));
    const char *key = keys[!thinks];
    if (!cJSON_IsObject(json_get(j, key)))
        return j;
    cJSON *inner = cJSON_DetachItemFromObjectCaseSensitive(j, key);
    move_key(j, inner, "quantization_config");
    if (!thinks)
        move_key(j, inner, "architectures");
    cJSON_Delete(j);
    return inner;
}

cJSON *model_file_json(const char *path, size_t max, struct err *e)
{
    size_t n;
    char file[PATH_MAX];
    const struct made_file *m = inside(path, file);
    if (!m)
        return of_inner(path, json_load(file, max, e));
    char *text = make(m, file, max, &n, e);
    cJSON *j = text ? json_parse(text, n, e) : NULL;
    if (text && !j)
        err_wrap(e, "%s", path);
    free(text);
    return j;
}

bool model_is_one(const char *path)
{
    char config_path[PATH_MAX], moved[PATH_MAX];
    struct stat st;
    const char *slash = strrchr(path, '/');
    if (gguf_is_file(path))
        return gguf_is_first(slash ? slash + 1 : path);
    if (snprintf(config_path, sizeof(config_path), "%s/config.json", path) >= PATH_MAX)
        return false;
    return first_module_static(path) ||
           (stat(first_module_file(config_path, moved), &st) == 0 && S_ISREG(st.st_mode));
}

/* The object under the first of two keys that has one; NULL: none. */
static const cJSON *object_under(const cJSON *config, const char *key, const char *other)
{
    const cJSON *a = json_get(config, key), *b = json_get(config, other);
    return cJSON_IsObject(a) ? a : cJSON_IsObject(b) ? b : NULL;
}

const cJSON *model_file_text_config(const cJSON *config)
{
    const cJSON *text = object_under(config, "text_config", "llm_config");
    return text ? text : config;
}

const cJSON *model_file_vision_config(const cJSON *config)
{
    return object_under(config, "vision_config", "vit_config");
}
