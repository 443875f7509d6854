/* thought_marks.h - the markers around the reasoning that a model writes before its answer. */
#ifndef COMMON_THOUGHT_MARKS_H
#define COMMON_THOUGHT_MARKS_H
#include <stdbool.h>

/* The numbers are those of ReasoningMarks in proto/generate.proto. */
enum thought_marks {
    THOUGHT_THINK,   /* DeepSeek R1, Qwen 3, GLM and most others */
    THOUGHT_BRACKET, /* Magistral, Ministral 3 */
    THOUGHT_CHANNEL, /* Gemma 4 */
    THOUGHT_COMMAND, /* Command A Reasoning, Command R7B */
    THOUGHT_SEED,    /* Seed-OSS */
    THOUGHT_KIMI,    /* Kimi-VL Thinking */
    THOUGHT_MINIMAX, /* MiniMax M3 */
    THOUGHT_HY3,     /* Hunyuan 3 */
    THOUGHT_HY4,     /* Hunyuan 4 */
    THOUGHT_SOLAR,   /* Solar Open */
    THOUGHT_SOLAR2,  /* Solar Open 2 */
};
enum { THOUGHT_MARKS = THOUGHT_SOLAR2 + 1, THOUGHT_LEADS = 2 };

/* Texts of static storage duration. */
const char *thought_open(enum thought_marks m);
const char *thought_close(enum thought_marks m);
/* The texts that may stand, in this order, between the reasoning (or the prompt, if there is none)
 * and the answer, and belong to neither; NULL: none. i < THOUGHT_LEADS. */
const char *thought_lead(enum thought_marks m, int i);
/* Sets *out to the markers that a chat template mentions; false: it has none. */
bool thought_marks_find(const char *source, enum thought_marks *out);
#endif
