/* A folder of safetensors: quantised matrices in a layout, everything else unchanged; the small
 * files are copied, and config.json describes the quantisation. */
#include "common/json/json.h"
#include "common/model/model_file.h"
#include "model-server/backend/numbers.h"
#include "model-server/quantize/quantize.h"
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { NAME = 512, SMALL_FILE = 256 << 20 };
static const uint64_t FILE_BYTES = 5000000000;

struct folder {
    int64_t (*first)[LAYOUT_TENSORS]; /* [source.n] */
    cJSON *kept, *made;               /* names of modules */
};

static void release(void *state)
{
    struct folder *f = state;
    free(f->first);
    cJSON_Delete(f->kept), cJSON_Delete(f->made);
    free(f);
}

static void module_of(const struct source_tensor *t, char out[NAME])
{
    const size_t n = strlen(t->t->name), end = strlen(t->use.suffix);
    snprintf(out, NAME, "%.*s", (int)(n - end), t->t->name);
}

/* Name of a module within its layer: after the layer's number. Each name once. */
static void note_made(cJSON *made, const char *module, int layer)
{
    char number[16];
    const cJSON *m;
    snprintf(number, sizeof(number), ".%d.", layer);
    const char *at = strstr(module, number);
    if (!at)
        return;
    at += strlen(number);
    cJSON_ArrayForEach(m, made) if (strcmp(m->valuestring, at) == 0) return;
    cJSON_AddItemToArray(made, cJSON_CreateString(at));
}

static int fits(const struct run *r, const struct source_tensor *t, struct err *e)
{
    const uint32_t group = r->kind.group;
    const char *misfit = r->layout->misfit(&r->kind, t->rows, t->cols);
    if (group && t->cols % group)
        return err_set(e, ERR_VALIDATION,
                       "%s: groups of %u do not divide %llu columns (--group-size, or --exclude to "
                       "leave such matrices as they are)",
                       t->t->name, group, (unsigned long long)t->cols);
    if (misfit)
        return err_set(e, ERR_VALIDATION,
                       "%s: %llu x %llu: this layout needs %s in %u bits (--exclude leaves such "
                       "matrices as they are)",
                       t->t->name, (unsigned long long)t->rows, (unsigned long long)t->cols, misfit,
                       r->kind.grid.bits);
    return 0;
}

static int declare(struct run *r, struct err *e)
{
    struct folder *f = calloc(1, sizeof(*f));
    char module[NAME];
    if (!f)
        return err_nomem(e);
    r->state = f;
    r->free_state = release;
    f->first = calloc(r->source.n, sizeof(*f->first));
    f->kept = cJSON_CreateArray();
    f->made = cJSON_CreateArray();
    if (!f->first || !f->kept || !f->made)
        return err_nomem(e);
    for (uint32_t i = 0; i < r->source.n; i++) {
        const struct source_tensor *t = &r->source.tensors[i];
        module_of(t, module);
        if (!run_quantises(r, t)) {
            f->first[i][0] = out_add(&r->out, t->t->name, tensor_type_name(t->t->type),
                                     t->t->n_dims, t->t->dims, t->t->bytes, e);
            if (f->first[i][0] < 0)
                return -1;
            if (t->linear)
                cJSON_AddItemToArray(f->kept, cJSON_CreateString(module));
            continue;
        }
        if (fits(r, t, e) ||
            r->layout->declare(&r->out, &r->kind, module, t->rows, t->cols, f->first[i], e))
            return -1;
        note_made(f->made, module, t->use.layer);
    }
    return out_create_safetensors(&r->out, FILE_BYTES, e);
}

/* Changed numbers, in their stored type. */
static int write_numbers(struct run *r, const struct layer_tensor *t, int64_t at, struct err *e)
{
    const enum tensor_type type = t->s->t->type;
    const size_t n = t->s->t->bytes / (type == T_F32 ? 4 : 2);
    uint16_t *half = type == T_F32 ? NULL : malloc(n * sizeof(*half));
    if (type != T_F32 && !half)
        return err_nomem(e);
    for (size_t i = 0; half && i < n; i++)
        half[i] = type == T_F16 ? f16_of_f32(t->w[i]) : bf16_of_f32(t->w[i]);
    const int rc =
        out_write(&r->out, (uint32_t)at, 0, half ? (const void *)half : t->w, t->s->t->bytes, e);
    free(half);
    return rc;
}

static int write_matrix(struct run *r, struct layer_tensor *t, const int64_t *first, struct err *e)
{
    struct grid_matrix m;
    if (layer_tensor_read(t, e))
        return -1;
    if (grid_matrix_init(&m, &r->kind.grid, t->s->rows, t->s->cols, r->kind.group))
        return err_nomem(e);
    int rc = r->method->round(r, t, &m, e);
    if (rc == 0)
        rc = r->layout->write(&r->out, first, &m, e);
    if (rc == 0 && r->method->propagates)
        grid_matrix_numbers(&m, t->w);
    grid_matrix_free(&m);
    return rc;
}

static int write_unit(struct run *r, struct layer_set *s, struct err *e)
{
    struct folder *f = r->state;
    for (uint32_t i = 0; i < s->n; i++) {
        struct layer_tensor *t = &s->t[i];
        const int64_t *first = f->first[t->s - r->source.tensors];
        int rc;
        if (t->quantise)
            rc = write_matrix(r, t, first, e);
        else if (t->w)
            rc = write_numbers(r, t, first[0], e);
        else
            rc = out_write(&r->out, (uint32_t)first[0], 0, t->s->t->data, t->s->t->bytes, e);
        if (rc)
            return -1;
        if (!r->method->propagates || !t->quantise) {
            free(t->w);
            t->w = NULL;
        }
        tensor_release(t->s->t);
    }
    return 0;
}

/* ---------------------------------------------------------------- small files */

/* Excludes weights in any format, and files that this command writes. */
static bool is_small(const char *name)
{
    static const char *const not_these[] = {".safetensors", ".bin",  ".pt", ".pth",
                                            ".gguf",        ".onnx", ".h5", ".msgpack",
                                            ".index.json",  NULL};
    const size_t n = strlen(name);
    if (name[0] == '.' || strcmp(name, "config.json") == 0)
        return false;
    for (const char *const *s = not_these; *s; s++)
        if (n > strlen(*s) && strcmp(name + n - strlen(*s), *s) == 0)
            return false;
    return true;
}

static int copy_small(const struct run *r, struct err *e)
{
    DIR *d = opendir(r->o->model);
    char path[PATH_MAX];
    int rc = d ? 0 : err_sys(e, "opendir %s", r->o->model);
    for (const struct dirent *x; rc == 0 && (x = readdir(d));) { // NOLINT(concurrency-mt-unsafe)
        struct stat st;
        size_t n;
        snprintf(path, sizeof(path), "%s/%s", r->o->model, x->d_name);
        if (!is_small(x->d_name) || stat(path, &st) || !S_ISREG(st.st_mode))
            continue;
        char *text = file_read(path, SMALL_FILE, &n, e);
        rc = text ? out_text(&r->out, x->d_name, text, n, e) : -1;
        free(text);
    }
    if (d)
        closedir(d);
    return rc;
}

static int put_json(const struct run *r, const char *name, const cJSON *j, struct err *e)
{
    char *text = cJSON_Print(j);
    const int rc = text ? out_text(&r->out, name, text, strlen(text), e) : err_nomem(e);
    cJSON_free(text);
    return rc;
}

static int finish(struct run *r, struct err *e)
{
    const struct folder *f = r->state;
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/config.json", r->o->model);
    cJSON *config = model_file_json(path, SMALL_FILE, e);
    if (!config)
        return -1;
    cJSON *q = r->layout->config(&r->kind, f->kept, f->made);
    int rc = copy_small(r, e);
    if (rc == 0 && r->layout == &layout_gptq) /* where older readers look */
        rc = put_json(r, "quantize_config.json", q, e);
    cJSON_DeleteItemFromObjectCaseSensitive(config, "quantization_config");
    cJSON_AddItemToObject(config, "quantization_config", q);
    if (rc == 0)
        rc = put_json(r, "config.json", config, e);
    cJSON_Delete(config);
    return rc;
}

const struct target target_folder = {declare, write_unit, finish};
