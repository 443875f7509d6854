#include "common/model/thought_marks.h"
#include <string.h>

static const struct {
    const char *open, *close;
    const char *clue; /* in templates that put the markers together; NULL: none */
    const char *lead[THOUGHT_LEADS];
    bool shared; /* templates of others have the closing one, too */
} marks[THOUGHT_MARKS] = {
    [THOUGHT_THINK] = {"<think>", "</think>"},
    [THOUGHT_BRACKET] = {"[THINK]", "[/THINK]"},
    [THOUGHT_CHANNEL] = {"<|channel>thought", "<channel|>"},
    [THOUGHT_COMMAND] = {"<|START_THINKING|>", "<|END_THINKING|>"},
    [THOUGHT_SEED] = {"<seed:think>", "</seed:think>"},
    [THOUGHT_KIMI] = {"◁think▷", "◁/think▷"},
    [THOUGHT_MINIMAX] = {"<mm:think>", "</mm:think>"},
    [THOUGHT_HY3] = {"<think:opensource>", "</think:opensource>", "':opensource'"},
    [THOUGHT_HY4] = {"<think:6124c78e>", "</think:6124c78e>", "':6124c78e'"},
    /* the reasoning is a message of its own: the answer has a header */
    [THOUGHT_SOLAR] = {.open = "<|think|>",
                       .close = "<|end|>",
                       .lead = {"<|begin|>assistant", "<|content|>"},
                       .shared = true},
    [THOUGHT_SOLAR2] = {"<|think:start|>", "<|think:end|>"},
};

const char *thought_open(enum thought_marks m) { return marks[m].open; }
const char *thought_close(enum thought_marks m) { return marks[m].close; }
const char *thought_lead(enum thought_marks m, int i) { return marks[m].lead[i]; }

bool thought_marks_find(const char *source, enum thought_marks *out)
{
    for (int m = 0; m < THOUGHT_MARKS; m++)
        if ((!marks[m].shared && strstr(source, marks[m].close)) || strstr(source, marks[m].open) ||
            (marks[m].clue && strstr(source, marks[m].clue))) {
            *out = (enum thought_marks)m;
            return true;
        }
    return false;
}
