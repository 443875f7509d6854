/* Which caches may exchange blocks: those of the same files, wherever and whenever they were
 * written. */
#include "model-server/offload/identity.h"
#include "tests/temp_folder.h"
#include "tests/unit/test.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LARGE = 5 << 20 };

TEMP_FOLDER(root, "identity-test")

static void write_file(const char *dir, const char *name, size_t n, size_t changed)
{
    char path[200];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    char *p = malloc(n);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        p[i] = (char)(i * 7 + i / 4096);
    if (changed < n)
        p[changed] ^= 1;
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
    free(p);
}

/* A checkpoint of a small and a large file, one byte of which is another; SIZE_MAX: none is. */
static struct kv_layout layout_of(const char *name, size_t changed, time_t when, const char *words)
{
    char dir[120], path[200];
    struct err e = ERR_INIT;
    struct model_identity files, id;
    struct kv_layout l = {.bytes = {4096}};
    snprintf(dir, sizeof(dir), "%s/%s", root, name);
    assert_true(mkdir(dir, 0700) == 0);
    write_file(dir, "config.json", 300, SIZE_MAX);
    write_file(dir, "model.safetensors", LARGE, changed);
    write_file(dir, "tokenizer.json", 50, changed % 50); /* does not matter */
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    const struct timespec t[2] = {{.tv_sec = when}, {.tv_sec = when}};
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
    snprintf(path, sizeof(path), "%s/config.json", dir);
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
    assert_int_equal(model_identity(dir, &files, &e), 0);
    assert_int_equal(model_identity_with(&files, words, &id, &e), 0);
    assert_int_equal(kv_identity_of_layout(&id, &l, &e), 0);
    return l;
}

static bool same(const uint8_t *a, const uint8_t *b) { return memcmp(a, b, KV_IDENTITY) == 0; }

TEST(a_copy_is_the_same_model)
{
    const struct kv_layout a = layout_of("a", SIZE_MAX, 1000, "w");
    const struct kv_layout copy = layout_of("copy", SIZE_MAX, 1000, "w");
    const struct kv_layout later = layout_of("later", SIZE_MAX, 2000, "w");
    assert_true(same(a.identity, copy.identity) && same(a.folder, copy.folder));
    assert_true(same(a.identity, later.identity)); /* another machine's download */
    assert_false(same(a.folder, later.folder));    /* here it might be another file */
}

TEST(what_changes_bits_is_another_model)
{
    const struct kv_layout a = layout_of("one", SIZE_MAX, 1000, "w");
    const size_t at[] = {0, 4095, (1 << 20) - 1, (3 << 20) + 100, LARGE - 1};
    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
        char name[20];
        snprintf(name, sizeof(name), "change-%zu", i);
        const struct kv_layout b = layout_of(name, at[i], 1000, "w");
        assert_false(same(a.identity, b.identity));
        assert_false(same(a.folder, b.folder));
    }
    const struct kv_layout words = layout_of("words", SIZE_MAX, 1000, "rank 1 of 2");
    assert_false(same(a.identity, words.identity));
}

static struct model_identity identity_of(const char *path)
{
    struct err e = ERR_INIT;
    struct model_identity id;
    assert_int_equal(model_identity(path, &id, &e), 0);
    return id;
}

static bool same_content(const char *path, const struct model_identity *as)
{
    const struct model_identity id = identity_of(path);
    return memcmp(id.content, as->content, sizeof(id.content)) == 0;
}

TEST(what_is_not_read_does_not_count)
{
    static const char *const others[] = {"pytorch_model.bin", "training_args.bin", "optimizer.pt",
                                         "consolidated.safetensors", "generation_config.json"};
    char dir[120];
    layout_of("beside", SIZE_MAX, 1000, "w");
    snprintf(dir, sizeof(dir), "%s/beside", root);
    const struct model_identity before = identity_of(dir);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        write_file(dir, others[i], 100, SIZE_MAX);
    assert_true(same_content(dir, &before));
    write_file(dir, "preprocessor_config.json", 100, SIZE_MAX); /* of its images */
    assert_false(same_content(dir, &before));
}

/* What a load compares before and after: no file is read for it. */
TEST(a_stamp_is_that_of_names_lengths_and_times)
{
    char dir[120];
    struct err e = ERR_INIT;
    struct model_identity before;
    layout_of("stamp", SIZE_MAX, 1000, "w");
    snprintf(dir, sizeof(dir), "%s/stamp", root);
    assert_int_equal(model_stamp(dir, &before, &e), 0);
    write_file(dir, "tokenizer.json", 51, SIZE_MAX);
    assert_int_equal(model_stamp_check(dir, &before, &e), 0);
    write_file(dir, "model.safetensors", LARGE, SIZE_MAX); /* the same bytes, at another time */
    assert_int_equal(model_stamp_check(dir, &before, &e), -1);
    assert_int_equal(e.kind, ERR_SYSTEM);
    assert_int_equal(model_stamp(dir, &before, &e), 0);
    write_file(dir, "model-2.safetensors", 10, SIZE_MAX);
    assert_int_equal(model_stamp_check(dir, &before, &e), -1);
}

/* The dense layers of an embedding model are in folders of their own; a trainer's folders are not
 * read. */
TEST(modules_count)
{
    char dir[120], module[140], other[140];
    layout_of("modules", SIZE_MAX, 1000, "w");
    snprintf(dir, sizeof(dir), "%s/modules", root);
    snprintf(module, sizeof(module), "%s/2_Dense", dir);
    snprintf(other, sizeof(other), "%s/checkpoint-500", dir);
    const struct model_identity none = identity_of(dir);
    assert_int_equal(mkdir(other, 0700), 0);
    write_file(other, "config.json", 100, SIZE_MAX);
    write_file(other, "model.safetensors", 100, SIZE_MAX);
    assert_true(same_content(dir, &none));
    assert_int_equal(mkdir(module, 0700), 0);
    write_file(module, "config.json", 100, SIZE_MAX);
    write_file(module, "model.safetensors", 500, SIZE_MAX);
    const struct model_identity before = identity_of(dir);
    assert_false(same_content(dir, &none));
    write_file(module, "model.safetensors", 500, 499);
    assert_false(same_content(dir, &before));
}

TEST(all_parts_of_a_split_file_count)
{
    char path[120];
    write_file(root, "m-00001-of-00002.gguf", 500, SIZE_MAX);
    write_file(root, "m-00002-of-00002.gguf", 700, SIZE_MAX);
    write_file(root, "one.gguf", 500, SIZE_MAX);
    write_file(root, "renamed.gguf", 500, SIZE_MAX);
    snprintf(path, sizeof(path), "%s/m-00001-of-00002.gguf", root);
    const struct model_identity both = identity_of(path);
    snprintf(path, sizeof(path), "%s/m-00002-of-00002.gguf", root);
    assert_true(same_content(path, &both));
    write_file(root, "m-00002-of-00002.gguf", 700, 699);
    assert_false(same_content(path, &both));
    snprintf(path, sizeof(path), "%s/one.gguf", root);
    const struct model_identity one = identity_of(path);
    snprintf(path, sizeof(path), "%s/renamed.gguf", root);
    assert_true(same_content(path, &one));
}

int main(void) { return tests_run(temp_begin, temp_end); }
