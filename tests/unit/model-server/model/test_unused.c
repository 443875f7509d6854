/* What a checkpoint has beside what a model reads. */
#include "model-server/model/unused.h"
#include "tests/unit/test.h"
#include <string.h>

/* Every tensor is a view of the same four numbers. */
static const char *const names[][2] = {
    {"head.weight", "[1]"},
    {"m.layers.0.attn.bias", "[1,1,1,1]"}, /* a causal mask */
    {"m.layers.0.q.bias", "[2]"},
    {"m.layers.0.q.weight", "[2]"},
    {"m.layers.0.q_norm.weight", "[2]"},
    {"m.layers.0.rotary.inv_freq", "[2]"},
    {"m.layers.1.q.bias", "[2]"},
    {"m.layers.1.q.weight", "[2]"},
};
enum { NAMES = sizeof(names) / sizeof(names[0]) };

struct made {
    uint8_t bytes[4096];
    struct tensor_file file;
    struct checkpoint c;
};

static void make(struct made *m, const uint32_t numbers[2])
{
    char header[2048] = "{";
    struct err e = ERR_INIT;
    size_t n = 1;
    uint32_t at = 0;
    *m = (struct made){0};
    for (int i = 0; i < NAMES; i++) {
        const uint32_t bytes = strcmp(names[i][1], "[2]") == 0 ? 8 : 4;
        n += (size_t)snprintf(header + n, sizeof(header) - n,
                              "%s\"%s\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[%u,%u]}",
                              i ? "," : "", names[i][0], names[i][1], at, at + bytes);
        at += bytes;
    }
    header[n++] = '}';
    m->bytes[0] = (uint8_t)n, m->bytes[1] = (uint8_t)(n >> 8);
    memcpy(m->bytes + 8, header, n);
    for (uint32_t i = 0; i < at; i += 4)
        memcpy(m->bytes + 8 + n + i, &numbers[i / 4 % 2], 4);
    if (safetensors_parse(&m->file, "w", m->bytes, 8 + n + at, &e))
        fail_msg("%s", e.msg);
    m->c = (struct checkpoint){.files = &m->file, .n_files = 1};
}

static const uint32_t zeros[2] = {0, 0x80000000}, ones[2] = {0x3f800000, 0x3f800000};

TEST(a_bias_with_numbers_is_a_fault)
{
    struct made m;
    struct unused u;
    struct err e = ERR_INIT;
    make(&m, ones);
    assert_int_equal(unused_check(&m.c, &u, &e), 0); /* of layers that are not read */
    assert_int_equal(u.n, 0);
    checkpoint_find(&m.c, "m.layers.0.q.weight");
    assert_int_equal(unused_check(&m.c, &u, &e), -1);
    assert_string_equal(e.msg,
                        "w: tensor `m.layers.0.q.bias` is a bias that config.json says is not "
                        "there");
    checkpoint_find(&m.c, "m.layers.0.q.bias");
    assert_int_equal(unused_check(&m.c, &u, &e), 0);
    tensor_file_close(&m.file);
}

TEST(weights_of_a_layer_that_was_read_are_named)
{
    struct made m;
    struct unused u;
    struct err e = ERR_INIT;
    make(&m, zeros);
    checkpoint_find(&m.c, "m.layers.0.q.weight");
    assert_int_equal(unused_check(&m.c, &u, &e), 0);
    assert_int_equal(u.n, 1); /* a bias of zeros is none */
    assert_string_equal(u.first[0], "m.layers.0.q_norm.weight");
    assert_null(u.first[1]);
    checkpoint_find(&m.c, "m.layers.0.q_norm.weight");
    assert_int_equal(unused_check(&m.c, &u, &e), 0);
    assert_int_equal(u.n, 0);
    tensor_file_close(&m.file);
}

int main(void) { return tests_run(NULL, NULL); }
