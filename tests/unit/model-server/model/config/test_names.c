/* Names of a family's tensors in files, with the prefixes of its kin and of vision files. */
#include "tests/unit/model-server/model/config/config_text.h"

/* Kin have equal names behind other prefixes; files may have any of these, or none. */
TEST(test_prefixes)
{
    static const char *const want[] = {"bert.a.weight", "a.weight", "ernie.a.weight"};
    static struct decoder_spec s;
    const struct arch *a;
    const char *type, *got;
    struct arch_use u;
    struct err e = ERR_INIT;
    char out[64];
    accepted("", "\"model_type\":\"ernie\"," SIZES, &s);
    assert_int_equal(arch_configure(path, NULL, NULL, 0, &a, &type, &s, &e), 0);
    assert_string_equal(type, "ernie");
    for (int i = 0; i < 3; i++) {
        got = arch_name_in_file(a, "bert.a.weight", i, out, sizeof(out));
        assert_string_equal(got, want[i]);
    }
    got = arch_name_in_file(a, "bert.LayerNorm.weight", 5, out, sizeof(out));
    assert_string_equal(got, "ernie.LayerNorm.gamma");
    assert_true(arch_use_of(a, "ernie.encoder.layer.7.output.dense.bias", &u));
    assert_true(u.role == W_DOWN && u.layer == 7 && strcmp(u.suffix, ".bias") == 0);
    assert_true(arch_use_of(a, "encoder.layer.7.output.dense.bias", &u));
    assert_true(!arch_use_of(a, "roberta.encoder.layer.7.output.dense.bias", &u));
    assert_non_null(arch_prefix(a, 1, &(size_t){0}));
    assert_null(arch_prefix(a, 2, &(size_t){0}));
}

/* Prefixes of vision files go before the family's own, or in its place. */
TEST(test_text_of_a_vision_file)
{
    static struct decoder_spec s;
    const struct arch *a;
    const char *type, *got;
    struct arch_use u;
    struct err e = ERR_INIT;
    char out[80];
    int theirs = 0, replaced = 0;
    accepted("", NEMOTRON, &s);
    assert_int_equal(arch_configure(path, NULL, NULL, 0, &a, &type, &s, &e), 0);
    for (int i = 0; (got = arch_name_in_file(a, "backbone.a.weight", i, out, sizeof(out))); i++) {
        theirs += strcmp(got, "language_model.backbone.a.weight") == 0;
        replaced += strcmp(got, "language_model.model.a.weight") == 0;
    }
    assert_int_equal(theirs, 1);
    assert_int_equal(replaced, 1);
    assert_true(arch_use_of(a, "language_model.backbone.layers.3.mixer.up_proj.weight", &u));
    assert_true(u.role == W_UP && u.layer == 3 && strcmp(u.suffix, ".weight") == 0);
    assert_true(arch_use_of(a, "language_model.model.layers.3.mixer.up_proj.weight", &u));
    assert_true(u.role == W_UP && u.layer == 3);
    assert_true(!arch_use_of(a, "vision_model.backbone.layers.3.mixer.up_proj.weight", &u));
}

int main(void) { return tests_run(make_file, drop_file); }
