#include "common/thought_marks.h"
#include <string.h>

static const struct {
    const char *open, *close;
} marks[THOUGHT_MARKS] = {
    [THOUGHT_THINK] = {"<think>", "</think>"},
    [THOUGHT_BRACKET] = {"[THINK]", "[/THINK]"},
    [THOUGHT_CHANNEL] = {"<|channel>thought", "<channel|>"},
    [THOUGHT_COMMAND] = {"<|START_THINKING|>", "<|END_THINKING|>"},
    [THOUGHT_SEED] = {"<seed:think>", "</seed:think>"},
    [THOUGHT_KIMI] = {"◁think▷", "◁/think▷"},
};

const char *thought_open(enum thought_marks m) { return marks[m].open; }
const char *thought_close(enum thought_marks m) { return marks[m].close; }

bool thought_marks_find(const char *source, enum thought_marks *out)
{
    for (int m = 0; m < THOUGHT_MARKS; m++)
        if (strstr(source, marks[m].close) || strstr(source, marks[m].open)) {
            *out = (enum thought_marks)m;
            return true;
        }
    return false;
}
