/* What torch.save() writes is read; what only looks like it is refused in one line, and nothing in
 * a pickle is executed. */
#include "model-server/model/checkpoint/tensor_file.h"
#include "tests/unit/test.h"
#include <string.h>

/* ---------------------------------------------------------------- archives */

struct zip {
    uint8_t bytes[8192], directory[4096];
    size_t n, n_directory;
    unsigned members, method;
};

static void put(uint8_t *to, size_t *n, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++, v >>= 8)
        to[(*n)++] = (uint8_t)v;
}

static void add(struct zip *z, const char *name, const void *data, size_t size)
{
    size_t at = z->n;
    put(z->bytes, &z->n, 0x04034b50, 4);
    put(z->bytes, &z->n, 0, 14);
    put(z->bytes, &z->n, size, 4);
    put(z->bytes, &z->n, size, 4);
    put(z->bytes, &z->n, strlen(name), 2);
    put(z->bytes, &z->n, 3, 2);
    memcpy(z->bytes + z->n, name, strlen(name));
    z->n += strlen(name) + 3; /* three bytes of padding, as torch aligns its storages */
    memcpy(z->bytes + z->n, data, size);
    z->n += size;
    put(z->directory, &z->n_directory, 0x02014b50, 4);
    put(z->directory, &z->n_directory, 0, 6);
    put(z->directory, &z->n_directory, z->method, 2);
    put(z->directory, &z->n_directory, 0, 8);
    put(z->directory, &z->n_directory, size, 4);
    put(z->directory, &z->n_directory, size, 4);
    put(z->directory, &z->n_directory, strlen(name), 2);
    put(z->directory, &z->n_directory, 0, 12);
    put(z->directory, &z->n_directory, at, 4);
    memcpy(z->directory + z->n_directory, name, strlen(name));
    z->n_directory += strlen(name);
    z->members++;
}

static void end(struct zip *z)
{
    size_t at = z->n;
    memcpy(z->bytes + z->n, z->directory, z->n_directory);
    z->n += z->n_directory;
    put(z->bytes, &z->n, 0x06054b50, 4);
    put(z->bytes, &z->n, 0, 4);
    put(z->bytes, &z->n, z->members, 2);
    put(z->bytes, &z->n, z->members, 2);
    put(z->bytes, &z->n, z->n_directory, 4);
    put(z->bytes, &z->n, at, 4);
    put(z->bytes, &z->n, 0, 2);
}

/* ---------------------------------------------------------------- pickles */

/* One tensor called "w" of storage "0": the shape and strides are pickled tuples. */
#define STORAGE(type, elements)                                                                    \
    "(X\7\0\0\0storagectorch\n" type "\nX\1\0\0\0000X\3\0\0\0cpuK" elements "tQ"
#define TENSOR(storage, offset, shape, strides)                                                    \
    "ctorch._utils\n_rebuild_tensor_v2\n(" storage "K" offset shape strides "\x89"                 \
    "ccollections\nOrderedDict\n)RtR"
#define DICT(items) "\x80\2}(" items "u."
#define W           "X\1\0\0\0w"

static const float numbers[6] = {1, 2, 3, 4, 5, 6};

static int parse(struct tensor_file *s, struct zip *z, const char *pickle, size_t n, struct err *e)
{
    add(z, "model/data.pkl", pickle, n);
    add(z, "model/data/0", numbers, sizeof(numbers));
    end(z);
    return torch_parse(s, "w.bin", z->bytes, z->n, e);
}

TEST(test_reads_tensors)
{
    static const char pickle[] =
        DICT(W TENSOR(STORAGE("FloatStorage", "\6"), "\2", "K\2K\2\x86",
                      "K\2K\1\x86") "q\1"
                                    "X\1\0\0\0v"
                                    "h\1"
                                    "X\1\0\0\0h" TENSOR(STORAGE("BFloat16Storage", "\x0c"), "\0",
                                                        "K\3\x85", "K\1\x85"));
    struct zip z = {.method = 0};
    struct tensor_file s;
    struct err e = ERR_INIT;
    assert_int_equal(parse(&s, &z, pickle, sizeof(pickle) - 1, &e), 0);
    assert_int_equal(s.n, 3);
    const struct tensor *w = tensor_file_find(&s, "w");
    assert_non_null(w);
    assert_int_equal(w->type, T_F32);
    assert_int_equal(w->n_dims, 2);
    assert_int_equal(w->bytes, 16);
    assert_memory_equal(w->data, numbers + 2, 16);
    assert_ptr_equal(tensor_file_find(&s, "v")->data, w->data); /* tied */
    assert_int_equal(tensor_file_find(&s, "h")->type, T_BF16);
    tensor_file_close(&s);
}

TEST(test_refuses_pickles)
{
#define CASE(p, words)                                                                             \
    {                                                                                              \
        p, sizeof(p) - 1, words                                                                    \
    }
    static const struct {
        const char *pickle;
        size_t n;
        const char *says;
    } cases[] = {
        CASE("cposix\nsystem\n(X\2\0\0\0lstR.",
             "it names `posix.system`, which no state dict needs"),
        CASE("X\2\0\0\0osX\6\0\0\0system\x93.", "it names `os.system`"),
        CASE("cos\nsys", "it ends too early"),
        CASE(DICT(W "K\1"), "`w` of its pickle is no tensor"),
        CASE("K\1.", "its value is no mapping"),
        CASE("}", "it ends too early"),
        CASE(".", "a value is missing"),
        CASE("}h\7.", "a memo that was never written"),
        CASE("}r\377\377\377\177.", "a memo out of bounds"),
        CASE("i.", "opcode 0x69, which is not read"),
        CASE("X\377\377\377\377a.", "a text is longer than the pickle"),
        CASE("}(K\1u.", "items that belong to no mapping"),
        CASE("}K\1b.", "data/0"), /* attributes of a mapping: dropped, and the mapping is empty */
        CASE(DICT(W "K\1Q"), "a persistent id that is no tuple"),
        CASE(DICT(W "K\1\x85Q"), "a persistent id that is no storage"),
        CASE(DICT(W STORAGE("QInt8Storage", "\6")), "it names `torch.QInt8Storage`"),
        CASE(DICT(W TENSOR(STORAGE("FloatStorage", "\6"), "\0", "K\2K\3\x86", "K\1K\2\x86")),
             "tensor `w` is a view with gaps or in another order"),
        CASE(DICT(W TENSOR(STORAGE("FloatStorage", "\6"), "\3", "K\4\x85", "K\1\x85")),
             "tensor `w` lies outside its storage"),
        CASE(DICT(W TENSOR(STORAGE("FloatStorage", "\7"), "\0", "K\7\x85", "K\1\x85")),
             "the storage of tensor `w` is missing or too short"),
        CASE(DICT(W TENSOR(STORAGE("FloatStorage", "\6"), "\0", "K\6\x85", "K\1K\1\x86")),
             "a tensor that is not as torch describes one"),
        CASE(DICT(W TENSOR(STORAGE("FloatStorage", "\6"), "\0", "N\x85", "K\1\x85")),
             "a tensor with a shape that is none"),
        CASE(DICT(W TENSOR(STORAGE("FloatStorage", "\6"), "\0", "K\6\x85", "K\1\x85")
                      W TENSOR(STORAGE("FloatStorage", "\6"), "\0", "K\6\x85", "K\1\x85")),
             "tensor `w` is there twice"),
        CASE(DICT("X\1\0\0\0\n" TENSOR(STORAGE("FloatStorage", "\6"), "\0", "K\6\x85", "K\1\x85")),
             "a tensor name with control characters"),
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct zip z = {.method = 0};
        struct tensor_file s;
        struct err e = ERR_INIT;
        int rc = parse(&s, &z, cases[i].pickle, cases[i].n, &e);
        if (!strcmp(cases[i].says, "data/0")) {
            assert_int_equal(rc, 0);
            assert_int_equal(s.n, 0);
            tensor_file_close(&s);
            continue;
        }
        assert_int_equal(rc, -1);
        if (!strstr(e.msg, cases[i].says))
            fail_msg("case %zu: %s", i, e.msg);
        assert_memory_equal(e.msg, "w.bin: ", 7);
    }
}

TEST(test_refuses_archives)
{
    static const char pickle[] =
        DICT(W TENSOR(STORAGE("FloatStorage", "\6"), "\0", "K\6\x85", "K\1\x85"));
    struct tensor_file s;
    struct err e = ERR_INIT;
    struct zip packed = {.method = 8};
    assert_int_equal(parse(&s, &packed, pickle, sizeof(pickle) - 1, &e), -1);
    assert_non_null(strstr(e.msg, "compressed or encrypted"));

    struct zip big = {.method = 0};
    add(&big, "m/byteorder", "big", 3);
    assert_int_equal(parse(&s, &big, pickle, sizeof(pickle) - 1, &e), -1);
    assert_non_null(strstr(e.msg, "big-endian"));

    struct zip none = {.method = 0};
    add(&none, "word/document.xml", "x", 1);
    end(&none);
    assert_int_equal(torch_parse(&s, "w.bin", none.bytes, none.n, &e), -1);
    assert_non_null(strstr(e.msg, "without data.pkl"));

    struct zip whole = {.method = 0};
    assert_int_equal(parse(&s, &whole, pickle, sizeof(pickle) - 1, &e), 0);
    tensor_file_close(&s);
    for (size_t n = 0; n < whole.n; n++) /* cut off anywhere */
        assert_int_equal(torch_parse(&s, "w.bin", whole.bytes, n, &e), -1);
}

int main(void) { return tests_run(NULL, NULL); }
