// A model id is a folder or a snapshot in the hub's cache, and never a way out of it.
#include "common/hub/cache.h"
#include "tests/temp_folder.h"
#include "tests/unit/test.h"
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/hub-test-XXXXXX";

static void make(const char *path, const char *text)
{
    char full[400];
    snprintf(full, sizeof(full), "%s/%s", root, path);
    if (!text) {
        assert_int_equal(mkdir(full, 0700), 0);
        return;
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void expect(const char *id, const char *revision, const char *want)
{
    struct err e = ERR_INIT;
    char full[400];
    char *got = hub_resolve(id, revision, &e);
    snprintf(full, sizeof(full), "%s/%s", root, want ? want : "");
    if (want)
        assert_string_equal(got ? got : e.msg, full);
    else if (got)
        fail_msg("%s was found as %s", id, got);
    free(got);
}

TEST(repositories)
{
    make("models--org--name", NULL), make("models--org--name/refs", NULL);
    make("models--org--name/refs/main", "abc\n"),
        make("models--org--name/refs/evil", "../../../etc");
    make("models--org--name/snapshots", NULL), make("models--org--name/snapshots/abc", NULL);
    make("models--gpt2", NULL), make("models--gpt2/snapshots", NULL),
        make("models--gpt2/snapshots/v1", NULL);
    expect("org/name", NULL, "models--org--name/snapshots/abc");
    expect("org/name", "", "models--org--name/snapshots/abc");
    expect("org/name", "abc", "models--org--name/snapshots/abc"); /* a commit names itself */
    expect("gpt2", "v1", "models--gpt2/snapshots/v1");
    expect("gpt2", NULL, NULL);
    const char *const not_there[] = {
        "org/other", "org/name/more", "../org/name", "org/../name", "/org/name", "", "org/"};
    for (size_t i = 0; i < sizeof(not_there) / sizeof(not_there[0]); i++)
        expect(not_there[i], NULL, NULL);
    expect("org/name", "../../..", NULL);
    expect("org/name", "evil", NULL);
}

TEST(packed_models)
{
    make("models--org--gguf", NULL), make("models--org--gguf/snapshots", NULL);
    make("models--org--gguf/snapshots/main", NULL);
    expect("org/gguf:Q8_0", NULL, NULL);
    make("models--org--gguf/snapshots/main/m-Q8_0.gguf", "GGUF");
    expect("org/gguf", NULL, "models--org--gguf/snapshots/main/m-Q8_0.gguf");
    expect("org/gguf:q8_0", NULL, "models--org--gguf/snapshots/main/m-Q8_0.gguf");
    make("models--org--gguf/snapshots/main/m-Q5_0.gguf", "GGUF");
    expect("org/gguf", NULL, NULL); /* which one? */
    make("models--org--gguf/snapshots/main/m-Q4_K_M-00001-of-00002.gguf", "GGUF");
    expect("org/gguf", NULL, "models--org--gguf/snapshots/main/m-Q4_K_M-00001-of-00002.gguf");
    char path[400];
    snprintf(path, sizeof(path), "%s/models--org--gguf/snapshots/main/m-Q4_K_M-00001-of-00002.gguf",
             root);
    assert_int_equal(hub_parts(path), HUB_NO_WEIGHTS);
    make("models--org--gguf/snapshots/main/m-Q4_K_M-00002-of-00002.gguf", "GGUF");
    assert_int_equal(hub_parts(path), HUB_WHOLE);
}

TEST(folders)
{
    struct err e = ERR_INIT;
    char *got = hub_resolve(root, NULL, &e);
    assert_string_equal(got, root);
    free(got);
    make("folder", NULL), make("folder/model-1.safetensors", "x");
    char path[400];
    snprintf(path, sizeof(path), "%s/folder", root);
    assert_true(hub_has_file(path, "model-1.safetensors"));
    assert_false(hub_has_file(path, "1.safetensors"));
    assert_false(hub_has_file("/not/there", "x"));
    setenv("WEIGHTS_CACHE_OVERRIDE", path, 1);
    got = hub_resolve_model("org/name", NULL, NULL, &e);
    assert_string_equal(got, path);
    free(got);
    setenv("WEIGHTS_CACHE_OVERRIDE", "/not/there", 1);
    assert_null(hub_resolve_model("org/name", NULL, NULL, &e));
    unsetenv("WEIGHTS_CACHE_OVERRIDE");
}

/* An interrupted download leaves some of the files of the index. */
TEST(parts)
{
    char path[400];
    make("parts", NULL);
    snprintf(path, sizeof(path), "%s/parts", root);
    assert_int_equal(hub_parts(path), HUB_NO_WEIGHTS);
    make("parts/config.json", "{}"), make("parts/tokenizer.json", "{}");
    make("parts/model.safetensors.index.json",
         "{\"weight_map\":{\"a\":\"m-2\",\"b\":\"m-1\",\"c\":\"m-2\"}}");
    make("parts/m-1", "x");
    assert_int_equal(hub_parts(path), HUB_NO_WEIGHTS);
    make("parts/m-2", "x");
    assert_int_equal(hub_parts(path), HUB_WHOLE);
    make("parts/model.safetensors.index.json", "{\"weight_map\":{\"a\":\"../parts/m-2\"}}");
    assert_int_equal(hub_parts(path), HUB_NO_WEIGHTS);
    make("parts/model.safetensors", "x");
    assert_int_equal(hub_parts(path), HUB_WHOLE);
    char full[440];
    snprintf(full, sizeof(full), "%s/tokenizer.json", path);
    assert_int_equal(unlink(full), 0);
    assert_int_equal(hub_parts(path), HUB_ONLY_WEIGHTS);
    make("parts/adapter_config.json", "{}"), make("parts/adapter_model.safetensors", "x");
    assert_int_equal(hub_parts(path), HUB_WHOLE);
}

int main(void)
{
    if (!mkdtemp(root))
        return 1;
    setenv("HUGGINGFACE_HUB_CACHE", root, 1);
    int rc = tests_run(NULL, NULL);
    return temp_folder_remove(root) ? 1 : rc;
}
