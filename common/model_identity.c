#include "common/model_identity.h"
#include "common/file/file_map.h"
#include "common/gguf/set.h"
#include "common/hub/names.h"
#include "common/text.h"
#include <dirent.h>
#include <gnutls/crypto.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A large file is sampled: its first megabyte, with names and offsets of all tensors, and one page
 * of every two megabytes. No matrix of a large model is smaller than that. */
enum { PAGE = 4096, BEGINNING = 1 << 20, STEP = 2 << 20 };

/* Files that affect the model's output. What a trainer leaves beside them does not. */
static int matters(const struct dirent *d)
{
    static const char *const kinds[] = {".safetensors", ".gguf",       ".bin",         ".pt",
                                        ".pth",         "config.json", "modules.json", NULL};
    static const char *const others[] = {"generation_config.json",
                                         "tokenizer_config.json",
                                         "training_args.bin",
                                         "optimizer",
                                         "scheduler.",
                                         "rng_state",
                                         NULL};
    bool known = false;
    for (int i = 0; kinds[i]; i++)
        known = known || ends_with(d->d_name, kinds[i]);
    for (int i = 0; others[i]; i++)
        known = known && !starts_with(d->d_name, others[i]);
    return known;
}

/* The same weights in another format, which are not read beside model*.safetensors. */
static bool is_copy(const char *name)
{
    return starts_with(name, "pytorch_model") || starts_with(name, "consolidated");
}

struct digests {
    gnutls_hash_hd_t content, times;
    bool names_only; /* of the files, without what is in them */
};

static void add_content(gnutls_hash_hd_t h, const char *p, size_t size)
{
    const size_t first = size < BEGINNING ? size : BEGINNING;
    gnutls_hash(h, p, first);
    for (size_t at = first; at < size; at += STEP)
        gnutls_hash(h, p + at, size - at < PAGE ? size - at : PAGE);
    if (size > PAGE)
        gnutls_hash(h, p + size - PAGE, PAGE);
}

static int add_file(struct digests *d, const char *path, const char *name, struct err *e)
{
    struct stat st;
    char text[400];
    const char *p = NULL;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
        return 0;
    size_t size = (size_t)st.st_size;
    if (!d->names_only && !(p = file_map(path, &size, e)))
        return -1;
    int n = snprintf(text, sizeof(text), "\n%s %zu ", name, size);
    gnutls_hash(d->content, text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1);
    if (p)
        add_content(d->content, p, size);
    n = snprintf(text, sizeof(text), "%lld.%09ld ", (long long)st.st_mtim.tv_sec,
                 st.st_mtim.tv_nsec);
    gnutls_hash(d->times, text, (size_t)n);
    file_unmap(p, size);
    return 0;
}

static int add_folder(struct digests *d, const char *dir, struct err *e)
{
    struct dirent **v = NULL;
    const int n = scandir(dir, &v, matters, alphasort);
    int rc = n < 0 ? err_set(e, ERR_SYSTEM, "cannot list %s", dir) : 0;
    bool copied = false;
    for (int i = 0; i < n; i++)
        copied |= starts_with(v[i]->d_name, "model") && ends_with(v[i]->d_name, ".safetensors");
    for (int i = 0; i < n; i++) {
        char *path = NULL;
        if (rc == 0 && !(copied && is_copy(v[i]->d_name)))
            rc = asprintf(&path, "%s/%s", dir, v[i]->d_name) < 0
                     ? err_nomem(e)
                     : add_file(d, path, v[i]->d_name, e);
        free(path);
        free(v[i]);
    }
    free(v);
    return rc;
}

static int is_subfolder(const struct dirent *d)
{
    char file[300];
    snprintf(file, sizeof(file), "%s/config.json", d->d_name);
    return hub_is_module_file(file);
}

/* Pooling and dense layers of sentence-transformers. */
static int add_modules(struct digests *d, const char *dir, struct err *e)
{
    static const char *const files[] = {"config.json", HUB_WEIGHTS};
    struct dirent **v = NULL;
    const int n = scandir(dir, &v, is_subfolder, alphasort);
    int rc = n < 0 ? err_set(e, ERR_SYSTEM, "cannot list %s", dir) : 0;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < 2 && rc == 0; k++) {
            char name[300], *path = NULL;
            snprintf(name, sizeof(name), "%s/%s", v[i]->d_name, files[k]);
            rc =
                asprintf(&path, "%s/%s", dir, name) < 0 ? err_nomem(e) : add_file(d, path, name, e);
            free(path);
        }
        free(v[i]);
    }
    free(v);
    return rc;
}

/* Of a split model all parts, and its projector. Their names do not count. */
static int add_gguf(struct digests *d, const char *path, struct err *e)
{
    char part[PATH_MAX];
    const char *projector = gguf_projector_path(path);
    int rc = projector ? add_file(d, projector, "projector", e) : 0;
    if (!gguf_part_name(path, 1, part, sizeof(part)))
        return add_file(d, path, "", e);
    for (uint32_t i = 1; rc == 0 && gguf_part_name(path, i, part, sizeof(part)); i++)
        rc = add_file(d, part, "", e);
    return rc;
}

static int identify(const char *model, bool names_only, struct model_identity *out, struct err *e)
{
    struct digests d = {.names_only = names_only};
    struct stat st;
    if (gnutls_hash_init(&d.content, GNUTLS_DIG_SHA256) < 0)
        return err_nomem(e);
    if (gnutls_hash_init(&d.times, GNUTLS_DIG_SHA256) < 0) {
        gnutls_hash_deinit(d.content, NULL);
        return err_nomem(e);
    }
    const char *projector = gguf_projector_path(model);
    const bool file = projector || (stat(model, &st) == 0 && S_ISREG(st.st_mode));
    int rc = file ? add_gguf(&d, model, e) : add_folder(&d, model, e);
    if (!file && rc == 0)
        rc = add_modules(&d, model, e);
    gnutls_hash_deinit(d.content, out->content);
    gnutls_hash_deinit(d.times, out->times);
    return rc;
}

int model_identity(const char *model, struct model_identity *out, struct err *e)
{
    return identify(model, false, out, e);
}

int model_stamp(const char *model, struct model_identity *out, struct err *e)
{
    return identify(model, true, out, e);
}

int model_stamp_check(const char *model, const struct model_identity *before, struct err *e)
{
    struct model_identity now;
    if (model_stamp(model, &now, e))
        return -1;
    return memcmp(&now, before, sizeof(now)) == 0
               ? 0
               : err_set(e, ERR_SYSTEM, "%s: its files were changed while they were read", model);
}

int model_identity_with(const struct model_identity *files, const char *words,
                        struct model_identity *out, struct err *e)
{
    gnutls_hash_hd_t h;
    *out = *files;
    if (gnutls_hash_init(&h, GNUTLS_DIG_SHA256) < 0)
        return err_nomem(e);
    gnutls_hash(h, files->content, sizeof(files->content));
    gnutls_hash(h, words, strlen(words));
    gnutls_hash_deinit(h, out->content);
    return 0;
}
