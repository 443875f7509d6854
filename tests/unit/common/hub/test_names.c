// What the hub says becomes part of paths: names, etags, commits; and which files are wanted.
#include "common/hub/names.h"
#include "tests/unit/test.h"
#include <string.h>

TEST(repositories)
{
    char out[HUB_FOLDER_MAX], longest[400];
    assert_true(hub_is_repository("gpt2") && hub_is_repository("org/name-1.5_x"));
    const char *const no[] = {"", "/a", "a/", "a/b/c", "../a", "a/..", ".a", "a b", "a%2f", "a\nb"};
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        assert_false(hub_is_repository(no[i]));
    char repository[HUB_NAME_MAX];
    const char *packing;
    assert_true(hub_is_packed("org/name-GGUF:Q4_K_M", repository, &packing));
    assert_string_equal(repository, "org/name-GGUF");
    assert_string_equal(packing, "Q4_K_M");
    assert_false(hub_is_packed("org/name", repository, &packing) ||
                 hub_is_packed("org/name:", repository, &packing) ||
                 hub_is_packed("../name:Q8_0", repository, &packing) ||
                 hub_is_packed("org/name:../x", repository, &packing) ||
                 hub_is_packed("org/name:a:b", repository, &packing));
    hub_folder("org/name", out);
    assert_string_equal(out, "models--org--name");
    hub_folder("gpt2", out);
    assert_string_equal(out, "models--gpt2");
    memset(longest, 'a', sizeof(longest) - 1);
    longest[399] = '\0';
    assert_false(hub_is_repository(longest));
    longest[199] = '\0';
    hub_folder(longest, out);
    assert_int_equal(strlen(out), 8 + 199);
}

TEST(revisions)
{
    assert_true(hub_is_revision("main") && hub_is_revision("refs/pr/1") && hub_is_revision("v1.0"));
    assert_false(hub_is_revision("") || hub_is_revision("/etc") || hub_is_revision("a/../b") ||
                 hub_is_revision("a b") || hub_is_revision("a\r\nHost: x"));
    assert_true(hub_is_commit("0123456789abcdef0123456789abcdef01234567"));
    assert_false(hub_is_commit("0123456789abcdef0123456789abcdef0123456") ||
                 hub_is_commit("main") ||
                 hub_is_commit("0123456789ABCDEF0123456789abcdef01234567"));
}

TEST(etags)
{
    char out[HUB_ETAG_MAX] = "";
    static const char *const same[] = {"\"abc-1\"", "W/\"abc-1\"", "abc-1"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(hub_etag(same[i], out), 0);
        assert_string_equal(out, "abc-1");
    }
    const char *const no[] = {"", "\"\"", "\"../x\"", "\"a/b\"", "\"..\"", "a b", "\".x\""};
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        assert_int_equal(hub_etag(no[i], out), -1);
}

TEST(files)
{
    assert_true(hub_is_companion("config.json") && hub_is_companion("tokenizer.json") &&
                hub_is_companion("chat_template.jinja") && hub_is_companion("adapter_config.json"));
    const char *const no[] = {"pytorch_model.bin",
                              "model.safetensors",
                              "modeling_x.py",
                              "training_args.bin",
                              "original/config.json",
                              "config.json.bak",
                              ""};
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        assert_false(hub_is_companion(no[i]));
    assert_true(hub_is_companion("modules.json") && hub_is_module_file("1_Pooling/config.json") &&
                hub_is_module_file("2_Dense/model.safetensors") &&
                hub_is_module_file("0_StaticEmbedding/tokenizer.json") &&
                !hub_is_module_file("1_Pooling/tokenizer.json"));
    assert_true(hub_is_companion("sparse_linear.pt") && hub_is_companion("colbert_linear.pt"));
    assert_true(hub_is_companion("router_config.json") &&
                hub_is_module_file("document_1_SpladePooling/config.json"));
    assert_false(hub_is_module_file("document_/config.json") ||
                 hub_is_module_file("document_document_1_X/config.json"));
    static const char *const none[] = {"onnx/model.onnx",
                                       "Pooling/config.json",
                                       "1_/config.json",
                                       "1_Dense/pytorch_model.bin",
                                       "1_Dense/../config.json",
                                       "../1_Dense/config.json",
                                       "1_Dense/a/config.json",
                                       "1_Dense",
                                       "config.json"};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        assert_false(hub_is_module_file(none[i]) || hub_is_template(none[i]));
    assert_true(hub_is_template("additional_chat_templates/tool_use.jinja"));
    assert_false(hub_is_template("additional_chat_templates/../tool_use.jinja") ||
                 hub_is_template("additional_chat_templates/.jinja") ||
                 hub_is_template("additional_chat_templates/a/b.jinja") ||
                 hub_is_template("additional_chat_templates/x.py"));
    assert_true(hub_is_file_name("model-00001-of-00002.safetensors"));
    assert_false(hub_is_file_name("") || hub_is_file_name("../x") || hub_is_file_name("a/b") ||
                 hub_is_file_name(".x") || hub_is_file_name("a\nb"));
}

int main(void) { return tests_run(NULL, NULL); }
