/* What a GGUF file says, and what hostile or broken ones are told. */
#include "common/gguf/set.h"
#include "tests/gguf_write.h"
#include "tests/unit/test.h"
#include <unistd.h>

static const uint64_t two_by_32[] = {32, 2};

/* Keys of every kind, two tensors. */
static void fill(struct gguf_write *w)
{
    static const uint8_t data[2 * 34] = {1, 2, 3};
    const float f = 0.5F;
    gw_put_u32(w, "a.number", 7);
    gw_put_f32(w, "a.real", 0.25F);
    gw_put_bool(w, "a.truth", true);
    gw_put_str(w, "a.text", "naïve");
    gw_put_list(w, "a.texts", GGUF_T_STRING, 2);
    gw_text(&w->values, "one", 3), gw_text(&w->values, "", 0);
    gw_put_list(w, "a.reals", GGUF_T_F32, 1);
    buf_add(&w->values, &f, sizeof(f));
    gw_tensor(w, "b", GGUF_Q8_0, 2, two_by_32, data, sizeof(data));
    gw_tensor(w, "a", GGUF_F32, 1, (const uint64_t[]){3}, "123456789012", 12);
}

static struct buf whole(void)
{
    struct gguf_write w = {0};
    struct buf out = BUF_INIT;
    fill(&w);
    gw_finish(&w, &out);
    assert_false(out.oom);
    return out;
}

TEST(reads_what_is_there)
{
    struct buf b = whole();
    struct gguf g;
    struct gguf_str s;
    struct err e = ERR_INIT;
    double v;
    if (gguf_parse(&g, "f", (const uint8_t *)b.p, b.len, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(g.n_values, 6);
    assert_true(gguf_number(&g, "a.number", &v) && v == 7);
    assert_true(gguf_number(&g, "a.real", &v) && v == 0.25);
    assert_false(gguf_number(&g, "a.text", &v) || gguf_number(&g, "a.truth", &v) ||
                 gguf_number(&g, "a.reals", &v) || gguf_number(&g, "none", &v));
    assert_true(gguf_bool(&g, "a.truth", false) && gguf_bool(&g, "a.number", true));
    assert_true(gguf_text(&g, "a.text", &s) && s.n == 6 && memcmp(s.p, "naïve", 6) == 0);
    assert_false(gguf_text(&g, "a.texts", &s));
    const struct gguf_value *list = gguf_strings(&g, "a.texts");
    const uint8_t *at = list->data;
    assert_true(gguf_next(list, &at, &s) && s.n == 3 && gguf_next(list, &at, &s) && s.n == 0);
    assert_false(gguf_next(list, &at, &s));
    assert_true(gguf_number_at(gguf_numbers(&g, "a.reals"), 0) == 0.5);
    assert_null(gguf_numbers(&g, "a.texts"));
    assert_null(gguf_strings(&g, "a.reals"));
    const struct gguf_tensor *t = gguf_tensor(&g, "b");
    assert_int_equal(t->packing, GGUF_Q8_0);
    assert_int_equal(t->bytes, 68);
    assert_int_equal(t->dims[0] * 100 + t->dims[1] * 10 + t->dims[2], 3221);
    assert_int_equal(t->data[2], 3);
    assert_memory_equal(gguf_tensor(&g, "a")->data, "123456789012", 12);
    assert_null(gguf_tensor(&g, "c"));
    gguf_close(&g);
    buf_free(&b);
}

static void expect(const struct buf *b, size_t n, const char *says)
{
    struct gguf g;
    struct err e = ERR_INIT;
    uint8_t *copy = malloc(n + 1); /* a byte behind it would be seen by the sanitizer */
    assert_non_null(copy);
    memcpy(copy, b->p, n);
    copy = realloc(copy, n ? n : 1);
    assert_int_equal(gguf_parse(&g, "some/file", copy, n, &e), -1);
    if (!strstr(e.msg, says) || strncmp(e.msg, "some/file: ", 11) != 0)
        fail_msg("%s (wanted: %s)", e.msg, says);
    free(copy);
}

TEST(cut_short)
{
    struct buf b = whole();
    for (size_t n = 0; n < b.len; n++)
        expect(&b, n, "");
    buf_free(&b);
}

static void refuse(struct gguf_write *w, const char *says)
{
    struct buf b = BUF_INIT;
    gw_finish(w, &b);
    expect(&b, b.len, says);
    buf_free(&b);
}

TEST(refuses_headers)
{
    struct buf b = whole();
    b.p[0] = 'g';
    expect(&b, b.len, "not a GGUF file");
    b.p[0] = 'G', b.p[4] = 1;
    expect(&b, b.len, "GGUF version 1 is not read");
    b.p[4] = 0, b.p[7] = 3;
    expect(&b, b.len, "(big-endian)");
    b.p[4] = 3, b.p[7] = 0, b.p[15] = 0x7f;
    expect(&b, b.len, "do not fit into a file of");
    b.p[15] = 0, b.p[23] = 1;
    expect(&b, b.len, "do not fit into a file of");
    buf_free(&b);
}

TEST(refuses_keys)
{
    struct gguf_write w = {0};
    gw_put_u32(&w, "same", 1), gw_put_u32(&w, "same", 2);
    refuse(&w, "`same` is there twice");
    gw_key(&w, "odd", (enum gguf_type)13);
    refuse(&w, "`odd` has type 13, which is not known");
    gw_put_list(&w, "lists", GGUF_T_ARRAY, 1);
    refuse(&w, "(lists of lists)");
    gw_put_list(&w, "long", GGUF_T_U64, UINT64_MAX / 4);
    refuse(&w, "`long` extends beyond the end of the file");
    gw_put_list(&w, "texts", GGUF_T_STRING, 1ull << 60);
    refuse(&w, "`texts` extends beyond the end of the file");
    gw_put_u32(&w, "", 1);
    refuse(&w, "the name of a key is empty");
    gw_put_u32(&w, "a\nb", 1);
    refuse(&w, "control characters");
    gw_put_u32(&w, "a\xff", 1);
    refuse(&w, "not UTF-8");
    gw_put_u32(&w, "general.alignment", 24);
    refuse(&w, "must be a power of two");
    gw_put_str(&w, "general.alignment", "32");
    refuse(&w, "must be a power of two");
}

TEST(refuses_tensors)
{
    static const uint64_t huge[] = {1ull << 40, 1ull << 40}, odd[] = {33, 1}, five[5] = {1},
                          none[] = {0, 4};
    struct gguf_write w = {0};
    char data[68] = {0};
    gw_tensor(&w, "t", GGUF_F32, 2, huge, data, 8);
    refuse(&w, "tensor `t`: its shape is too large");
    gw_tensor(&w, "t", GGUF_F32, 2, none, data, 0);
    refuse(&w, "tensor `t`: its dimension 0 is zero");
    gw_tensor(&w, "t", GGUF_Q8_0, 2, odd, data, 34);
    refuse(&w, "rows of 33 elements are not whole blocks of Q8_0 (32)");
    gw_tensor(&w, "t", GGUF_F32, 5, five, data, 4);
    refuse(&w, "has 5 dimensions");
    gw_tensor(&w, "t", GGUF_Q8_0, 2, two_by_32, data, 60);
    refuse(&w, "68 bytes at 0 are outside the 60 bytes of data");
    gw_tensor(&w, "t", GGUF_Q8_0, 2, two_by_32, data, 68);
    gw_tensor(&w, "t", GGUF_Q8_0, 2, two_by_32, data, 68);
    refuse(&w, "tensor `t` is there twice");
    gw_tensor(&w, "t", GGUF_Q8_0, 2, two_by_32, data, 68);
    memcpy(w.tensors.p + w.tensors.len - 12, &(uint32_t){4}, 4);
    refuse(&w, "packed as type 4, which is not known");
    gw_tensor(&w, "t", GGUF_Q8_0, 2, two_by_32, data, 68);
    memcpy(w.tensors.p + w.tensors.len - 8, &(uint64_t){4}, 8);
    refuse(&w, "begins at 4, no multiple of 32");
    gw_tensor(&w, "t", GGUF_Q8_0, 2, two_by_32, data, 68);
    gw_tensor(&w, "u", GGUF_Q8_0, 2, two_by_32, data, 68);
    memcpy(w.tensors.p + w.tensors.len - 8, &(uint64_t){64}, 8);
    refuse(&w, "tensors `t` and `u` overlap");
}

/* ---------------------------------------------------------------- files */

static char dir[] = "/tmp/gguf-unit-XXXXXX";

static void save(const char *name, const char *tensor, int no, int of)
{
    struct gguf_write w = {0};
    char path[200];
    gw_tensor(&w, tensor, GGUF_F32, 1, (const uint64_t[]){1}, "abcd", 4);
    if (of) {
        gw_put_u32(&w, "split.no", (uint32_t)no);
        gw_put_u32(&w, "split.count", (uint32_t)of);
    }
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(gw_save(&w, path), 0);
}

static void drop(const char *name)
{
    char path[200];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(unlink(path), 0);
}

static void open_says(const char *name, uint32_t n, const char *says)
{
    char path[200];
    struct gguf_set s;
    struct err e = ERR_INIT;
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int rc = gguf_set_open(&s, path, &e);
    if (says) {
        assert_int_equal(rc, -1);
        if (!strstr(e.msg, says))
            fail_msg("%s", e.msg);
        return;
    }
    if (rc)
        fail_msg("%s", e.msg);
    assert_int_equal(s.n, n);
    assert_non_null(gguf_set_tensor(&s, "x"));
    gguf_set_close(&s);
}

TEST(parts)
{
    assert_non_null(mkdtemp(dir));
    save("m-00001-of-00002.gguf", "x", 0, 2);
    open_says("m-00001-of-00002.gguf", 2, "open ");
    save("m-00002-of-00002.gguf", "y", 1, 2);
    open_says("m-00001-of-00002.gguf", 2, NULL);
    open_says("m-00002-of-00002.gguf", 2, NULL);
    save("m-00002-of-00002.gguf", "x", 1, 2);
    open_says("m-00001-of-00002.gguf", 2, "tensor `x` is in another file");
    save("m-00002-of-00002.gguf", "y", 0, 2);
    open_says("m-00001-of-00002.gguf", 2, "is file 1 of 2 by its metadata, and 2 of 2 by its name");
    save("one.gguf", "x", 0, 0);
    open_says("one.gguf", 1, NULL);
    drop("one.gguf");
}

TEST(which_file)
{
    struct err e = ERR_INIT;
    save("mmproj-m.gguf", "x", 0, 0);
    char *got = gguf_in_folder(dir, NULL, &e);
    assert_non_null(got);
    assert_string_equal(strrchr(got, '/'), "/m-00001-of-00002.gguf");
    assert_true(gguf_is_file(got));
    assert_false(gguf_is_file(dir));
    free(got);
    save("m-Q4_K_M.gguf", "x", 0, 0);
    assert_null(gguf_in_folder(dir, NULL, &e));
    assert_non_null(strstr(e.msg, "several GGUF models"));
    got = gguf_in_folder(dir, "q4_k_m", &e);
    assert_non_null(got);
    free(got);
    assert_null(gguf_in_folder(dir, "Q8_0", &e));
    assert_int_equal(e.kind, ERR_NONE);
    assert_true(gguf_name_says("a.Q4_K_S.gguf", "Q4_K_S") && gguf_name_says("a-f16.gguf", "F16"));
    assert_false(gguf_name_says("a.IQ4_XS.gguf", "Q4_XS") ||
                 gguf_name_says("a-Q4_K_S.gguf", "Q4_K"));
    drop("mmproj-m.gguf"), drop("m-Q4_K_M.gguf");
    drop("m-00001-of-00002.gguf"), drop("m-00002-of-00002.gguf");
    assert_int_equal(rmdir(dir), 0);
}

int main(void) { return tests_run(NULL, NULL); }
