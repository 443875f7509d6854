/* What the files of sentence-transformers say, and what is refused of them. */
#include "common/buf.h"
#include "common/model/first_module.h"
#include "common/model/sentence.h"
#include "tests/unit/test.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];

static void put(const char *name, const char *text)
{
    char path[160];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (!text) {
        unlink(path);
        return;
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int set_up(void **state)
{
    char path[96];
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/sentence-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof(path), "%s/1_Pooling", dir);
    return mkdir(path, 0700);
}

static int tear_down(void **state)
{
    static const char *const names[] = {"modules.json",
                                        "config.json",
                                        "sentence_bert_config.json",
                                        "config_sentence_transformers.json",
                                        "tokenizer_config.json",
                                        "router_config.json",
                                        "artifact.metadata",
                                        "processor_config.json",
                                        "1_Pooling/config.json"};
    char path[96];
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        put(names[i], NULL);
    snprintf(path, sizeof(path), "%s/1_Pooling", dir);
    rmdir(path);
    return rmdir(dir);
}

#define MODULE(type, path)                                                                         \
    "{\"type\":\"sentence_transformers.models." type "\",\"path\":\"" path "\"}"

TEST_WITH(all_files_are_read, set_up, tear_down)
{
    struct sentence s;
    struct err e = ERR_INIT;
    put("modules.json", "[" MODULE("Transformer", "") "," MODULE("Pooling", "1_Pooling") "," MODULE(
                            "Dense", "2_Dense") "," MODULE("Normalize", "3_Normalize") "]");
    put("1_Pooling/config.json",
        "{\"pooling_mode_mean_tokens\":true,\"pooling_mode_cls_token\":true,"
        "\"include_prompt\":false}");
    put("sentence_bert_config.json", "{\"max_seq_length\":256}");
    put("config_sentence_transformers.json",
        "{\"prompts\":{\"query\":\"q: \",\"passage\":\"p: \",\"odd\":3},\"default_prompt_name\":"
        "\"passage\"}");
    if (sentence_load(&s, dir, &e))
        fail_msg("%s", e.msg);
    assert_true(s.present && s.normalize && !s.include_prompt);
    assert_int_equal(s.pooling, POOL_CLS | POOL_MEAN);
    assert_int_equal(s.max_length, 256);
    assert_int_equal(s.n_dense, 1);
    assert_string_equal(s.dense[0], "2_Dense");
    assert_string_equal(sentence_prompt(&s, "query"), "q: ");
    assert_string_equal(sentence_prompt(&s, NULL), "p: ");
    assert_null(sentence_prompt(&s, "odd"));
    assert_null(sentence_prompt(&s, "none"));
    assert_string_equal(sentence_prompt_for(&s, "search_query"), "query");
    assert_string_equal(sentence_prompt_for(&s, "retrieval.passage"), "passage");
    assert_string_equal(sentence_prompt_for(&s, "document"), "passage");
    assert_null(sentence_prompt_for(&s, "text-matching"));
    assert_true(sentence_kind_known("document") && !sentence_kind_known("text-matching"));
    assert_false(s.dense_of_unit[0]);
    sentence_free(&s);
    /* what is normalised is the Dense module's input, not its result */
    put("modules.json", "[" MODULE("Pooling", "1_Pooling") "," MODULE(
                            "Normalize", "2_Normalize") "," MODULE("Dense", "3_Dense") "]");
    assert_int_equal(sentence_load(&s, dir, &e), 0);
    assert_true(!s.normalize && s.n_dense == 1 && s.dense_of_unit[0]);
    sentence_free(&s);
    put("modules.json", "[" MODULE("Dropout", "1_Dropout") "," MODULE("Pooling", "1_Pooling") "]");
    put("1_Pooling/config.json", "{\"embedding_dimension\":8,\"pooling_mode\":\"weightedmean\"}");
    assert_int_equal(sentence_load(&s, dir, &e), 0);
    assert_int_equal(s.pooling, POOL_WEIGHTED);
    sentence_free(&s);
    put("1_Pooling/config.json",
        "{\"pooling_mode\":[\"max\",\"lasttoken\"],\"include_prompt\":false}");
    assert_int_equal(sentence_load(&s, dir, &e), 0);
    assert_int_equal(s.pooling, POOL_MAX | POOL_LAST);
    sentence_free(&s);
    put("1_Pooling/config.json", "{\"pooling_mode\":[\"mean\",\"cls\"]}");
    put("config_sentence_transformers.json", "{\"truncate_dim\":16}");
    assert_int_equal(sentence_load(&s, dir, &e), 0);
    assert_true(s.order[0] == POOL_MEAN && s.order[1] == POOL_CLS && !s.order[2]);
    assert_int_equal(s.dimensions, 16);
    sentence_free(&s);
}

TEST_WITH(functions_of_logits, set_up, tear_down)
{
    struct sentence s;
    struct err e = ERR_INIT;
    put("modules.json", NULL);
    put("config_sentence_transformers.json", NULL);
    put("config.json", "{\"problem_type\":\"multi_label_classification\"}");
    assert_int_equal(sentence_load(&s, dir, &e), 0);
    assert_true(s.labels == SCORE_SIGMOID && s.pairs == SCORE_USUAL);
    sentence_free(&s);
    put("config.json", "{\"problem_type\":\"regression\",\"sentence_transformers\":{"
                       "\"activation_fn\":\"torch.nn.modules.linear.Identity\"}}");
    assert_int_equal(sentence_load(&s, dir, &e), 0);
    assert_true(s.labels == SCORE_LOGIT && s.pairs == SCORE_LOGIT);
    sentence_free(&s);
    put("config.json", "{}");
    put("config_sentence_transformers.json",
        "{\"activation_fn\":\"torch.nn.modules.activation.Sigmoid\"}");
    assert_int_equal(sentence_load(&s, dir, &e), 0);
    assert_true(s.pairs == SCORE_SIGMOID);
    sentence_free(&s);
    put("config_sentence_transformers.json", NULL);
}

TEST_WITH(the_first_module_has_a_folder, set_up, tear_down)
{
    char own[PATH_MAX], path[128], want[128];
    struct sentence s;
    struct err e = ERR_INIT;
    put("config.json", NULL);
    put("modules.json", "[" MODULE("StaticEmbedding", "1_Pooling") "]");
    put("1_Pooling/config.json", NULL);
    snprintf(path, sizeof(path), "%s/config.json", dir);
    snprintf(want, sizeof(want), "%s/1_Pooling", dir);
    assert_true(first_module_folder(dir, own) && first_module_static(dir));
    assert_string_equal(own, want);
    assert_ptr_equal(first_module_file(path, own), path);
    put("1_Pooling/config.json", "{}");
    snprintf(want, sizeof(want), "%s/1_Pooling/config.json", dir);
    assert_string_equal(first_module_file(path, own), want);
    assert_false(first_module_static(dir));
    put("modules.json", "[" MODULE("CLIPModel", "1_Pooling") "]"); /* the old class of CLIP */
    assert_true(first_module_folder(dir, own));
    assert_int_equal(sentence_load(&s, dir, &e), 0);
    assert_true(s.present && !s.pooling && !s.n_dense);
    sentence_free(&s);
    put("modules.json", "[" MODULE("Transformer", "../x") "]");
    assert_false(first_module_folder(dir, own));
    put("modules.json", "{}");
    assert_false(first_module_folder(dir, own) || first_module_static(dir));
}

TEST_WITH(tokens_whose_logits_are_a_score, set_up, tear_down)
{
    struct sentence s;
    struct err e = ERR_INIT;
    enum model_task task = TASK_AUTO;
    put("modules.json",
        "[" MODULE("Transformer", "") ",{\"type\":\"x.LogitScore\",\"path\":\"1_Pooling\"}]");
    put("1_Pooling/config.json", "{\"true_token_id\":7,\"false_token_id\":null}");
    put("sentence_bert_config.json",
        "{\"processing_kwargs\":{\"chat_template\":{\"add_generation_prompt\":true}}}");
    put("config.json", "{\"architectures\":[\"Qwen3ForCausalLM\"]}");
    assert_int_equal(sentence_load(&s, dir, &e), 0);
    assert_true(s.scores && s.opens_answer);
    assert_int_equal(s.true_token, 7);
    assert_int_equal(s.false_token, UINT32_MAX);
    assert_int_equal(model_task_of(dir, &s, &task, &e), 0);
    assert_int_equal(task, TASK_RERANK);
    sentence_free(&s);
    put("1_Pooling/config.json", "{\"false_token_id\":7}");
    assert_int_equal(sentence_load(&s, dir, &e), -1);
    assert_non_null(strstr(e.msg, "true_token_id"));
    sentence_free(&s);
}

TEST_WITH(sparse_vectors, set_up, tear_down)
{
    struct sentence s;
    struct err e = ERR_INIT;
    put("modules.json",
        "[" MODULE("MLMTransformer", "") "," MODULE("SpladePooling", "1_Pooling") "]");
    put("1_Pooling/config.json", "{\"word_embedding_dimension\":null}");
    assert_int_equal(sentence_load(&s, dir, &e), 0);
    assert_true(s.sparse == SPARSE_MAX && !s.sparse_twice && !s.pooling);
    sentence_set_pooling(&s, 0);
    assert_int_equal(s.sparse, SPARSE_MAX);
    sentence_set_pooling(&s, 2);
    assert_true(s.sparse == SPARSE_NONE && s.pooling == POOL_MEAN);
    sentence_free(&s);
    put("1_Pooling/config.json",
        "{\"pooling_strategy\":\"sum\",\"activation_function\":\"log1p_relu\"}");
    assert_int_equal(sentence_load(&s, dir, &e), 0);
    assert_true(s.sparse == SPARSE_SUM && s.sparse_twice);
    sentence_set_pooling(&s, 5);
    assert_int_equal(s.sparse, SPARSE_SUM);
    assert_string_equal(sentence_pooling_choices[5], "splade");
    sentence_set_pooling(&s, 6);
    assert_true(s.sparse == SPARSE_LEXICAL && !s.pooling);
    assert_string_equal(sentence_pooling_choices[6], "lexical");
    sentence_set_pooling(&s, 7);
    assert_true(s.sparse == SPARSE_NONE && !s.pooling && s.colbert);
    assert_string_equal(sentence_pooling_choices[7], "colbert");
    sentence_free(&s);
    /* queries have modules of their own */
    put("modules.json", "[" MODULE("Router", "") "]");
    put("router_config.json",
        "{\"types\":{\"\":\"x.MLMTransformer\",\"1_Pooling\":\"x.SpladePooling\","
        "\"0_Static\":\"x.SparseStaticEmbedding\"},\"structure\":{\"query\":[\"0_Static\"],"
        "\"document\":[\"\",\"1_Pooling\"]},\"parameters\":{\"default_route\":null}}");
    assert_int_equal(sentence_load(&s, dir, &e), 0);
    assert_true(s.sparse == SPARSE_SUM && s.present);
    sentence_free(&s);
}

TEST_WITH(vectors_of_tokens, set_up, tear_down)
{
    struct sentence s;
    struct err e = ERR_INIT;
    enum model_task task = TASK_AUTO;
    put("modules.json", "[" MODULE("Transformer", "") ",{\"type\":\"pylate.models.Dense.Dense\","
                                                      "\"path\":\"1_Dense\"}," MODULE(
                                                          "MultiVectorMask", "2_Mask") "]");
    put("config_sentence_transformers.json",
        "{\"prompts\":{\"query\":\"q: \"},\"query_prefix\":\"[Q] \",\"document_prefix\":\"[D] \"}");
    put("config.json", "{\"architectures\":[\"ModernBertModel\"]}");
    assert_int_equal(sentence_load(&s, dir, &e), 0);
    assert_true(s.tokens && s.n_dense == 1);
    assert_string_equal(sentence_prompt(&s, "query"), "[Q] q: ");
    assert_string_equal(sentence_prompt(&s, "document"), "[D] ");
    assert_int_equal(model_task_of(dir, &s, &task, &e), 0);
    assert_int_equal(task, TASK_TOKEN_EMBED);
    sentence_free(&s);
    put("modules.json", "[" MODULE("Pooling", "1_Pooling") "," MODULE("Dense", "2_Dense") "]");
    put("1_Pooling/config.json", "{\"pooling_mode\":\"mean\"}");
    assert_int_equal(sentence_load(&s, dir, &e), 0);
    assert_false(s.tokens);
    sentence_free(&s);
}

static struct sentence late_of(const char *file, const char *text)
{
    struct sentence s;
    struct err e = ERR_INIT;
    put("config_sentence_transformers.json", "{}");
    put("sentence_bert_config.json", "{}");
    put(file, text);
    assert_int_equal(sentence_load(&s, dir, &e), 0);
    put(file, "{}");
    return s;
}

/* PyLate fills queries and leaves out punctuation unless its keys say otherwise; the keys of newer
 * files are explicit. */
TEST_WITH(late_interaction, set_up, tear_down)
{
    put("modules.json", "[" MODULE("Transformer", "") "]");
    put("config.json", "{\"architectures\":[\"ModernBertModel\"]}");
    struct sentence s = late_of("config_sentence_transformers.json",
                                "{\"model_type\":\"ColBERT\",\"document_length\":300}");
    assert_true(s.late.filled == 32 && s.late.query_length == 32 && s.late.document_length == 300);
    assert_true(s.late.n_skipped == 32 && !s.late.attends && !s.late.skips_queries);
    sentence_free(&s);
    s = late_of(
        "config_sentence_transformers.json",
        "{\"query_length\":48,\"attend_to_expansion_tokens\":true,\"skiplist_words\":[\"a\"]}");
    assert_true(s.late.filled == 48 && s.late.attends && s.late.n_skipped == 1);
    sentence_free(&s);
    s = late_of("config_sentence_transformers.json",
                "{\"query_length\":48,\"do_query_expansion\":false,\"skiplist_words\":[]}");
    assert_true(!s.late.filled && s.late.query_length == 48 && !s.late.n_skipped);
    sentence_free(&s);
    s = late_of("sentence_bert_config.json",
                "{\"query_length\":64,\"query_expansion\":{\"strategy\":\"min\",\"length\":16,"
                "\"attend\":true,\"token\":\"<x>\"}}");
    assert_true(s.late.filled == 16 && s.late.query_length == 64 && s.late.attends);
    assert_string_equal(s.late.token, "<x>");
    sentence_free(&s);
    s = late_of("sentence_bert_config.json",
                "{\"query_expansion\":{\"strategy\":\"fixed\",\"length\":16}}");
    assert_true(s.late.filled == 16 && s.late.query_length == 16 && !s.late.token);
    sentence_free(&s);
    s = late_of("artifact.metadata", "{\"doc_maxlen\":220,\"mask_punctuation\":false}");
    assert_true(s.late.filled == 32 && s.late.document_length == 220 && !s.late.n_skipped);
    assert_string_equal(sentence_prompt(&s, "query"), "[unused0] ");
    sentence_free(&s);
}

/* A class of transformers reads its prompts from the processor's file, around a model of its own;
 * one of colpali-engine reads none. */
TEST_WITH(images_of_pages, set_up, tear_down)
{
    struct sentence s;
    struct err e = ERR_INIT;
    enum model_task task = TASK_AUTO;
    put("modules.json", "[]");
    put("processor_config.json", "{\"query_prefix\":\"Ask: \",\"visual_prompt_prefix\":\"See.\"}");
    put("config.json", "{\"model_type\":\"colpali\",\"architectures\":[\"ColPaliForRetrieval\"],"
                       "\"vlm_config\":{\"model_type\":\"paligemma\",\"architectures\":[\"x\"]}}");
    assert_int_equal(sentence_load(&s, dir, &e), 0);
    assert_true(s.late.visual && s.late.visual->bare && s.late.visual->both_ways);
    assert_string_equal(s.late.page, "See.");
    assert_string_equal(sentence_prompt(&s, "query"), "Ask: ");
    assert_int_equal(model_task_of(dir, &s, &task, &e), 0);
    assert_int_equal(task, TASK_TOKEN_EMBED);
    sentence_free(&s);
    put("config.json", "{\"model_type\":\"paligemma\",\"architectures\":[\"ColPali\"]}");
    assert_int_equal(sentence_load(&s, dir, &e), 0);
    assert_string_equal(s.late.page, "<image><bos>Describe the image.");
    assert_string_equal(sentence_prompt(&s, "query"), "");
    sentence_free(&s);
    put("config.json", "{\"model_type\":\"gemma3\",\"architectures\":[\"ColGemma3\"]}");
    assert_int_equal(sentence_load(&s, dir, &e), -1);
    assert_non_null(strstr(e.msg, "class ColGemma3 is not supported"));
    sentence_free(&s);
    put("config.json", "{\"architectures\":[\"ColPaliForSomething\"]}");
    assert_int_equal(sentence_load(&s, dir, &e), 0);
    assert_null(s.late.visual);
    sentence_free(&s);
}

/* SigLIP's texts have all positions, and the vector is that of the last. */
TEST_WITH(padded_texts, set_up, tear_down)
{
    struct sentence s;
    struct err e = ERR_INIT;
    put("modules.json", "[]");
    put("config.json",
        "{\"model_type\":\"siglip\",\"text_config\":{\"max_position_embeddings\":20}}");
    assert_int_equal(sentence_load(&s, dir, &e), 0);
    assert_true(s.padded == 20 && s.pooling == POOL_LAST);
    sentence_free(&s);
    put("config.json",
        "{\"model_type\":\"clip\",\"text_config\":{\"max_position_embeddings\":20}}");
    assert_int_equal(sentence_load(&s, dir, &e), 0);
    assert_true(!s.padded && !s.pooling && !s.listwise);
    sentence_free(&s);
}

TEST_WITH(a_listwise_reranker, set_up, tear_down)
{
    struct sentence s;
    struct err e = ERR_INIT;
    enum model_task task = TASK_AUTO;
    put("config.json", "{\"model_type\":\"qwen3\",\"architectures\":[\"JinaForRanking\"]}");
    assert_int_equal(sentence_load(&s, dir, &e), 0);
    assert_true(s.listwise);
    assert_int_equal(model_task_of(dir, &s, &task, &e), 0);
    assert_int_equal(task, TASK_TOKEN_EMBED);
    sentence_free(&s);
}

/* Files of version 5.4 and newer say nothing of a length; older ones mean that there is none. */
TEST_WITH(a_tokenizer_has_the_length, set_up, tear_down)
{
    static const struct {
        const char *sentence, *tokenizer;
        uint32_t length;
    } cases[] = {
        {"{\"transformer_task\":\"feature-extraction\"}", "{\"model_max_length\":128}", 128},
        {"{\"transformer_task\":\"feature-extraction\"}", "{\"model_max_length\":1e30}", 0},
        {"{\"transformer_task\":\"feature-extraction\"}", "{}", 0},
        {"{\"max_seq_length\":256}", "{\"model_max_length\":128}", 256},
        {"{\"do_lower_case\":false}", "{\"model_max_length\":128}", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sentence s;
        struct err e = ERR_INIT;
        put("sentence_bert_config.json", cases[i].sentence);
        put("tokenizer_config.json", cases[i].tokenizer);
        assert_int_equal(sentence_load(&s, dir, &e), 0);
        assert_int_equal(s.max_length, cases[i].length);
        sentence_free(&s);
    }
}

TEST_WITH(nothing_is_there, set_up, tear_down)
{
    struct sentence s;
    struct err e = ERR_INIT;
    assert_int_equal(sentence_load(&s, dir, &e), 0);
    assert_true(!s.present && !s.pooling && s.include_prompt && !s.max_length);
    assert_null(sentence_prompt(&s, NULL));
    sentence_free(&s);
}

TEST_WITH(what_cannot_be_meant_is_refused, set_up, tear_down)
{
    static const struct {
        const char *modules, *pooling, *words;
    } cases[] = {
        {"{}", NULL, "no list"},
        {"[" MODULE("CNN", "1_CNN") "]", NULL, "module `sentence_transformers.models.CNN`"},
        {"[" MODULE("Transformer", "") "," MODULE("Transformer", "1_Transformer") "]", NULL,
         "folder of its own"},
        {"[" MODULE("Dense", "../../etc") "]", NULL, "not a valid module folder"},
        {"[" MODULE("Dense", "/etc") "]", NULL, "not a valid module folder"},
        {"[" MODULE("Pooling", "1_Pooling") "]", "{}", "no pooling mode"},
        {"[" MODULE("Pooling", "1_Pooling") "]", "{\"pooling_mode\":[\"mean\",\"mean\"]}",
         "no pooling mode"},
        {"[" MODULE("Pooling", "1_Pooling") "]", "[", "1_Pooling/config.json"},
        {"[" MODULE("SpladePooling", "1_Pooling") "]", "{\"pooling_strategy\":\"mean\"}",
         "`pooling_strategy` `mean`"},
        {"[" MODULE("SpladePooling", "1_Pooling") "]", "{\"activation_function\":\"gelu\"}",
         "`activation_function` `gelu`"},
        {"[" MODULE("Router", "") "]", NULL, "no modules of `document`"},
        {"[" MODULE("Dense", "1") "," MODULE("Dense", "2") "," MODULE("Dense", "3") "," MODULE(
             "Dense",
             "4") "," MODULE("Dense",
                             "5") "," MODULE("Dense",
                                             "6") "," MODULE("Dense",
                                                             "7") "," MODULE("LayerNorm",
                                                                             "8") "," MODULE("Dens"
                                                                                             "e",
                                                                                             "9") "]",
         NULL, "more than 8 modules"},
        {"[", NULL, "modules.json"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sentence s;
        struct err e = ERR_INIT;
        put("modules.json", cases[i].modules);
        put("1_Pooling/config.json", cases[i].pooling);
        assert_int_equal(sentence_load(&s, dir, &e), -1);
        assert_int_equal(e.kind, ERR_VALIDATION);
        if (!strstr(e.msg, cases[i].words))
            fail_msg("case %zu: %s", i, e.msg);
        sentence_free(&s);
    }
}

TEST_WITH(the_class_chooses_the_task, set_up, tear_down)
{
    static const struct {
        const char *config;
        bool modules;
        enum model_task task;
    } cases[] = {
        {"{\"architectures\":[\"LlamaForCausalLM\"]}", false, TASK_GENERATE},
        {"{\"architectures\":[\"Qwen3ForCausalLM\"]}", true, TASK_EMBED},
        {"{\"architectures\":[\"XForSequenceClassification\"],\"id2label\":{\"0\":\"a\"}}", false,
         TASK_RERANK},
        {"{\"architectures\":[\"XForSequenceClassification\"],\"id2label\":{\"0\":\"a\",\"1\":"
         "\"b\"}}",
         false, TASK_CLASSIFY},
        {"{\"architectures\":[\"XForSequenceClassification\"]}", false, TASK_CLASSIFY},
        {"{\"architectures\":[\"XForTokenClassification\"],\"id2label\":{\"0\":\"a\"}}", false,
         TASK_TOKEN_CLASSIFY},
        {"{\"architectures\":[\"XForQuestionAnswering\"]}", false, TASK_ANSWER},
        {"{\"architectures\":[\"XForQuestionAnsweringSimple\"]}", false, TASK_ANSWER},
        {"{\"architectures\":[\"HF_ColBERT\"]}", false, TASK_TOKEN_EMBED},
        {"{\"architectures\":3}", false, TASK_GENERATE},
        {"{}", false, TASK_GENERATE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct sentence s = {.present = cases[i].modules};
        enum model_task task = TASK_AUTO;
        struct err e = ERR_INIT;
        put("config.json", cases[i].config);
        assert_int_equal(model_task_of(dir, &s, &task, &e), 0);
        assert_int_equal(task, cases[i].task);
    }
    assert_string_equal(model_task_name(TASK_RERANK), model_task_choices[TASK_RERANK]);
}

TEST(base64_of_the_standard)
{
    static const char *const cases[][2] = {
        {"", ""},        {"f", "Zg=="},        {"fo", "Zm8="},
        {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"\xff\xfe\xfd", "//79"}}; /* RFC 4648, 10 */
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buf b = BUF_INIT;
        buf_base64(&b, cases[i][0], strlen(cases[i][0]));
        assert_string_equal(b.p ? b.p : "", cases[i][1]);
        buf_free(&b);
    }
}

int main(void) { return tests_run(NULL, NULL); }
