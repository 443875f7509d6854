/* Names of tokenizer.ggml.pre, which llama.cpp derives from a tokenizer's output, and the
 * expressions of the corresponding tokenizer.json. */
#include "common/gguf/vocab.h"
#include <string.h>

// clang-format off
#define LLAMA3 \
        {GGUF_CUT_REGEX, "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}" \
         "\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}
#define QWEN2 \
        {GGUF_CUT_REGEX, "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N" \
         "}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}
#define FALCON \
        {GGUF_CUT_PUNCTUATION, NULL}, \
        {GGUF_CUT_GPT2, NULL}, \
        {GGUF_CUT_DIGITS, NULL}, \
        {GGUF_CUT_REGEX, "[0-9][0-9][0-9]"}
#define DEEPSEEK_LLM \
        {GGUF_CUT_REGEX, "[\r\n]"}, \
        {GGUF_CUT_REGEX, "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁ" \
         "Ҋ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-" \
         "ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-" \
         "Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎ" \
         "ↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆ" \
         "ﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃" \
         "]+"}, \
        {GGUF_CUT_REGEX, "\\s?[!-/:-~！-／：-～‘-‟\xe3\x80\x80""-。]+"}, \
        {GGUF_CUT_REGEX, "\\s+$"}, \
        {GGUF_CUT_REGEX, "[一-龥ࠀ-一가-\xed\x9f\xbf""]+"}, \
        {GGUF_CUT_DIGIT, NULL}
#define DEEPSEEK_CODER \
        {GGUF_CUT_REGEX, "[\r\n]"}, \
        {GGUF_CUT_REGEX, "\\s?\\p{L}+"}, \
        {GGUF_CUT_REGEX, "\\s?\\p{P}+"}, \
        {GGUF_CUT_REGEX, "[一-龥ࠀ-一가-\xed\x9f\xbf""]+"}, \
        {GGUF_CUT_DIGIT, NULL}
#define DEEPSEEK_V3 \
        {GGUF_CUT_REGEX, "\\p{N}{1,3}"}, \
        {GGUF_CUT_REGEX, "[一-龥\xe3\x81\x80""-ゟ゠-ヿ]+"}, \
        {GGUF_CUT_REGEX, "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p" \
         "{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"}
#define GPT4O \
        {GGUF_CUT_REGEX, "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p" \
         "{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{L" \
         "o}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?" \
         "[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}
#define TEKKEN \
        {GGUF_CUT_REGEX, "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p" \
         "{M}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{" \
         "Lo}\\p{M}]*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}
#define QWEN35 \
        {GGUF_CUT_REGEX, "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p" \
         "{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}
#define SEED_CODER \
        {GGUF_CUT_REGEX, "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p" \
         "{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}
#define JAIS2 \
        {GGUF_CUT_REGEX, "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}" \
         "\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)" \
         "|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"}
#define EXAONE_MOE \
        {GGUF_CUT_REGEX, "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)" \
         "*)+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}
#define KIMI_UP "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define KIMI_LOW "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define KIMI \
        {GGUF_CUT_REGEX, "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?" KIMI_UP "*" KIMI_LOW "+(?i:'s|'t|'re|'ve|'m|'ll|" \
         "'d)?|[^\\r\\n\\p{L}\\p{N}]?" KIMI_UP "+" KIMI_LOW "*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^" \
         "\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}
#define BLOOM {GGUF_CUT_REGEX, " ?[^(\\s|[.,!?…。，、।۔،])]+"}
#define GPT2  {GGUF_CUT_GPT2, NULL}
#define DIGIT {GGUF_CUT_DIGIT, NULL}

static const struct gguf_pre known[] = {
    /* name, steps, nfc, ignore_merges, add_bos */
    {"llama-bpe", {LLAMA3}, false, true, true},
    {"llama3", {LLAMA3}, false, true, true},
    {"llama-v3", {LLAMA3}, false, true, true},
    {"falcon3", {LLAMA3}, false, true, true},
    {"dbrx", {LLAMA3}, false, false, false},
    {"smaug-bpe", {LLAMA3}, false, false, false},
    {"qwen2", {QWEN2}, true, false, false},
    {"deepseek-r1-qwen", {QWEN2}, true, false, false},
    {"megrez", {QWEN2}, true, false, false},
    {"gpt-2", {GPT2}, false, false, false},
    {"phi-2", {GPT2}, false, false, false},
    {"mpt", {GPT2}, true, false, false},
    {"olmo", {GPT2}, true, false, false},
    {"starcoder", {DIGIT, GPT2}, false, false, false},
    {"refact", {DIGIT, GPT2}, false, false, false},
    {"smollm", {DIGIT, GPT2}, false, false, false},
    {"command-r", {DIGIT, GPT2}, true, false, false},
    {"falcon", {FALCON}, false, false, false},
    {"deepseek-llm", {DEEPSEEK_LLM}, false, false, false},
    {"deepseek-coder", {DEEPSEEK_CODER}, false, false, false},
    {"deepseek-v3", {DEEPSEEK_V3}, false, false, false},
    {"gpt-4o", {GPT4O}, false, true, false},
    {"llama4", {GPT4O}, false, true, false},
    {"tekken", {TEKKEN}, false, true, true},
    {"falcon-h1", {LLAMA3}, false, true, true},
    {"pixtral", {LLAMA3}, false, true, true},
    {"lfm2", {LLAMA3}, false, true, true},
    {"midm-2.0", {LLAMA3}, false, true, true},
    {"chatglm-bpe", {LLAMA3}, false, false, false},
    {"glm4", {LLAMA3}, false, true, false},
    {"glm5", {LLAMA3}, false, true, false},
    {"jais-2", {JAIS2}, false, false, false},
    {"qwen35", {QWEN35}, true, false, false},
    {"stablelm2", {QWEN2}, false, false, false},
    {"hunyuan", {QWEN2}, false, false, false},
    {"solar-open", {QWEN2}, false, false, false},
    {"kormo", {QWEN2}, false, false, false},
    {"f2llmv2", {QWEN2}, true, false, false},
    {"seed-coder", {SEED_CODER}, false, false, false},
    {"hunyuan-dense", {DEEPSEEK_V3}, false, false, false},
    {"joyai-llm", {DEEPSEEK_V3}, false, false, false},
    {"kimi-k2", {KIMI}, false, false, false},
    {"minimax-m2", {GPT4O}, false, false, false},
    {"kanana2", {GPT4O}, false, false, false},
    {"bloom", {BLOOM}, false, false, false},
    {"gpt3-finnish", {BLOOM}, false, false, false},
    {"poro-chat", {BLOOM}, false, false, false},
    {"exaone", {DIGIT, GPT2}, false, false, false},
    {"codeshell", {DIGIT, GPT2}, false, false, false},
    {"minerva-7b", {DIGIT, GPT2}, false, false, false},
    {"exaone4", {GPT2}, false, false, false},
    {"exaone-moe", {EXAONE_MOE}, false, false, false},
    {"granite-docling", {GPT2}, false, false, false},
    {"trillion", {GPT2}, false, false, false},
    {"jais", {GPT2}, false, false, false},
    {"mellum", {GPT2}, false, false, false},
    {"a.x-4.0", {GPT2}, false, false, false},
    {"gigachat", {GPT2}, false, false, false},
    {"modern-bert", {GPT2}, true, false, false},
    {"jina-v1-en", {GPT2}, false, false, false},
    {"jina-v2-es", {GPT2}, false, false, false},
    {"jina-v2-de", {GPT2}, false, false, false},
    {"jina-v2-code", {GPT2}, false, false, false},
    {"roberta-bpe", {GPT2}, false, false, false},
};
// clang-format on

const struct gguf_pre *gguf_pre_find(struct gguf_str name)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strlen(known[i].name) == name.n && memcmp(known[i].name, name.p, name.n) == 0)
            return &known[i];
    return NULL;
}

const struct gguf_pre *gguf_pre_like(const struct gguf_pre_step *steps, int n, bool ignore_merges)
{
    const struct gguf_pre *like = NULL;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        bool same = n < GGUF_PRE_STEPS ? known[i].steps[n].cut == GGUF_CUT_END : true;
        for (int k = 0; k < n && same; k++)
            same = known[i].steps[k].cut == steps[k].cut &&
                   (steps[k].cut != GGUF_CUT_REGEX ||
                    strcmp(known[i].steps[k].regex, steps[k].regex) == 0);
        if (same && known[i].ignore_merges == ignore_merges)
            return &known[i];
        like = same && !like ? &known[i] : like;
    }
    return like;
}
