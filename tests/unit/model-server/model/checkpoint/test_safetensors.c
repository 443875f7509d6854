/* What a hostile or broken weights file is told, and what a checkpoint folder may look like. */
#include "model-server/model/checkpoint/checkpoint.h"
#include "tests/temp_folder.h"
#include "tests/unit/test.h"
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file of `header` and n_data bytes; the stated header length is off by `lie`. */
static size_t file_of(uint8_t *out, const char *header, size_t n_data, int64_t lie)
{
    uint64_t n = strlen(header), said = n + (uint64_t)lie;
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)(said >> 8 * i);
    memcpy(out + 8, header, n);
    memset(out + 8 + n, 7, n_data);
    return 8 + n + n_data;
}

#define T(name, dtype, shape, from, to)                                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to   \
    "]}"

TEST(test_reads_what_is_there)
{
    uint8_t bytes[512];
    struct tensor_file s;
    struct err e = ERR_INIT;
    size_t n = file_of(bytes,
                       "{\"__metadata__\":{\"format\":\"pt\"}," T("b", "F32", "[2,2]", 0, 16) "," T(
                           "a", "BF16", "[3]", 16, 22) "," T("none", "F16", "[0,9]", 16, 16) "}",
                       22, 0);
    assert_int_equal(safetensors_parse(&s, "w", bytes, n, &e), 0);
    assert_int_equal(s.n, 3);
    const struct tensor *t = tensor_file_find(&s, "a");
    assert_non_null(t);
    assert_int_equal(t->type, T_BF16);
    assert_int_equal(t->dims[0], 3);
    assert_ptr_equal(t->data, bytes + n - 6);
    assert_int_equal(tensor_file_find(&s, "b")->n_dims, 2);
    assert_null(tensor_file_find(&s, "c"));
    assert_null(tensor_file_find(&s, "__metadata__"));
    tensor_file_close(&s);
}

TEST(test_refuses)
{
    static const struct {
        const char *header;
        size_t n_data;
        int64_t lie;
        const char *says;
    } cases[] = {
        {"{}", 0, 1, "a header of 3 bytes in a file of 10"},
        {"{}", 0, -3, "a header of 18446744073709551615 bytes in a file of 10"},
        {"{}", 0, 1ll << 62, "a header of 4611686018427387906 bytes"},
        {"{", 0, 0, "header: EOF while parsing"},
        {"{}x", 0, 0, "header: trailing characters"},
        {"[]", 0, 0, "the header is no JSON object"},
        {"{\"a\":1}", 0, 0, "tensor `a`: dtype `` is not known"},
        {"{" T("a", "F31", "[1]", 0, 4) "}", 4, 0, "tensor `a`: dtype `F31` is not known"},
        {"{" T("a", "F32", "[1]", 0, 4) "}", 3, 0, "bytes 0 to 4 are outside the 3 bytes of data"},
        {"{" T("a", "F32", "[1]", 4, 0) "}", 8, 0, "bytes 4 to 0 are outside"},
        {"{" T("a", "F32", "[1]", -4, 0) "}", 8, 0, "tensor `a`: bad data_offsets"},
        {"{" T("a", "F32", "[1]", 0.5, 4.5) "}", 8, 0, "tensor `a`: bad data_offsets"},
        {"{" T("a", "F32", "[1]", 0, 1e300) "}", 8, 0, "tensor `a`: bad data_offsets"},
        {"{" T("a", "F32", "[3]", 0, 8) "}", 8, 0, "its shape needs 12 bytes, its offsets hold 8"},
        {"{" T("a", "F32", "[-1]", 0, 4) "}", 4, 0, "tensor `a`: bad shape"},
        {"{" T("a", "F32", "1", 0, 4) "}", 4, 0, "tensor `a`: bad shape"},
        {"{" T("a", "F32", "[4294967296,4294967296]", 0, 4) "}", 4, 0, "tensor `a`: bad shape"},
        {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, 0, "tensor `a`: bad shape"},
        {"{" T("a\\n", "U8", "[1]", 0, 1) "}", 1, 0, "a tensor name with control characters"},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 4, 12) "}", 12, 0,
         "tensors `a` and `b` overlap"},
        {"{" T("a", "U8", "[1]", 0, 1) "," T("a", "U8", "[1]", 1, 2) "}", 2, 0,
         "tensor `a` is there twice"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t bytes[512];
        struct tensor_file s;
        struct err e = ERR_INIT;
        size_t n = file_of(bytes, cases[i].header, cases[i].n_data, cases[i].lie);
        assert_int_equal(safetensors_parse(&s, "some/file", bytes, n, &e), -1);
        assert_int_equal(e.kind, ERR_VALIDATION);
        if (!strstr(e.msg, cases[i].says) || strncmp(e.msg, "some/file: ", 11) != 0)
            fail_msg("`%s` does not say `%s`", e.msg, cases[i].says);
        assert_null(strchr(e.msg, '\n'));
    }
}

/* Every prefix of a good file is refused, none is read beyond its end. */
TEST(test_truncated)
{
    uint8_t bytes[512];
    size_t n = file_of(bytes, "{" T("a", "F32", "[2]", 0, 8) "}", 8, 0);
    for (size_t k = 0; k < n; k++) {
        struct tensor_file s;
        struct err e = ERR_INIT;
        uint8_t *copy = malloc(k ? k : 1); /* its end is watched by the sanitizer */
        assert_non_null(copy);
        memcpy(copy, bytes, k);
        assert_int_equal(safetensors_parse(&s, "w", copy, k, &e), -1);
        free(copy);
    }
}

/* ---------------------------------------------------------------- folders */

TEMP_FOLDER(dir, "test-safetensors")

static void put(const char *name, const void *bytes, size_t n)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void put_tensor(const char *file, const char *header)
{
    uint8_t bytes[256];
    put(file, bytes, file_of(bytes, header, 4, 0));
}

static void refused(const char *says)
{
    struct checkpoint c;
    struct err e = ERR_INIT;
    assert_int_equal(checkpoint_open(&c, dir, NULL, &e), -1);
    if (!strstr(e.msg, says))
        fail_msg("`%s` does not say `%s`", e.msg, says);
}

#define INDEX "model.safetensors.index.json"

TEST_WITH(test_folders, temp_begin, temp_end)
{
    struct checkpoint c;
    struct err e = ERR_INIT;
    refused("no model.safetensors, no model.safetensors.index.json and no pytorch_model.bin");
    static const char torch_index[] = "{\"weight_map\":{\"a\":\"half\"}}";
    put("pytorch_model.bin.index.json", torch_index, sizeof(torch_index) - 1);
    refused("/half: missing (named by pytorch_model.bin.index.json)");
    put("pytorch_model.bin", "PK\3\4", 4);
    refused("/pytorch_model.bin: a zip archive without an end");
    static const char *const bad[][2] = {
        {"[", "line 1"},
        {"{}", "no weight_map"},
        {"{\"weight_map\":{}}", "no weight_map"},
        {"{\"weight_map\":{\"a\":\"../b\"}}", "names no file for `a`"},
        {"{\"weight_map\":{\"a\":7}}", "names no file for `a`"},
        {"{\"weight_map\":{\"a\":\"\"}}", "names no file for `a`"},
        {"{\"weight_map\":{\"a\":\"one\"}}", "/one: missing (named by " INDEX ")"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        put(INDEX, bad[i][0], strlen(bad[i][0]));
        refused(bad[i][1]);
    }
    const char *two = "{\"weight_map\":{\"a\":\"one\",\"b\":\"two\",\"gone\":\"two\"}}";
    put(INDEX, two, strlen(two));
    put_tensor("one", "{" T("a", "F32", "[1]", 0, 4) "}");
    refused("/two: missing");
    put_tensor("two", "{" T("b", "F32", "[1]", 0, 4) "}");
    assert_int_equal(checkpoint_open(&c, dir, NULL, &e), 0);
    assert_int_equal(c.n_files, 2);
    assert_non_null(checkpoint_find(&c, "a"));
    assert_non_null(checkpoint_find(&c, "b"));
    assert_null(checkpoint_find(&c, "gone"));
    checkpoint_missing(&c, "gone", &e);
    assert_non_null(strstr(e.msg, "/two: tensor `gone` is missing"));
    checkpoint_close(&c);
    put("model.safetensors", "", 0);
    refused("model.safetensors: empty, or not a regular file");
}

TEST_WITH(test_pipes, temp_begin, temp_end)
{
    char path[256];
    alarm(10); /* opening a pipe without a writer would wait for ever */
    snprintf(path, sizeof(path), "%s/" INDEX, dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    refused(INDEX ": not a regular file");
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    refused("model.safetensors: empty, or not a regular file");
    alarm(0);
}

int main(void) { return tests_run(NULL, NULL); }
