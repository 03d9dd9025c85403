/* Option strings: lines "name: value" as in params.txt, set into the options of a training run. What is accepted is
 * valid, and all of them are checked together: adapters, locked groups, intervals, Hopfield memories. */
#include <stdlib.h>
#include <string.h>

#include "cloob/options.h"
#include "cloob/train.h"
#include "fuzz.h"
#include "core/option.h"
#include "train/settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    int64_t count, rank;
    double scale;
    const option_desc *table = train_option_table(&count);
    cloob_train_options o;
    char *text = malloc(size + 1), *rest = text;
    if (!text) return 0;
    if (size) memcpy(text, data, size);
    text[size] = '\0';
    if (!ctx) ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    cloob_train_options_init(&o);
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *rhs = strstr(line, ": ");
        if (!rhs) continue;
        *rhs = '\0';
        const option_desc *row = option_find(table, count, line);
        if (row && option_set(row, &o, rhs + 2) && !option_valid(row, &o)) abort();
        char *shown = row ? option_get(row, &o) : NULL;
        free(shown);
    }
    if (settings_check(ctx, &o) == CLOOB_OK && o.lora &&
        (!settings_lora(o.lora, &rank, &scale) || rank < 1 || !(scale > 0)))
        abort();
    free(text);
    return 0;
}
