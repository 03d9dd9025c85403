/* Option strings: lines "name: value" as in params.txt, set into the options of a training run. What is accepted is
 * valid. */
#include <stdlib.h>
#include <string.h>

#include "cloob/options.h"
#include "cloob/train.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t count;
    const cloob_option *table = cloob_train_option_table(&count);
    cloob_train_options o;
    char *text = malloc(size + 1), *rest = text;
    if (!text) return 0;
    if (size) memcpy(text, data, size);
    text[size] = '\0';
    cloob_train_options_init(&o);
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *value = strstr(line, ": ");
        if (!value) continue;
        *value = '\0';
        const cloob_option *row = cloob_option_find(table, count, line);
        if (row && cloob_option_set(row, &o, value + 2) && !cloob_option_valid(row, &o)) abort();
        char *shown = row ? cloob_option_get(row, &o) : NULL;
        free(shown);
    }
    free(text);
    return 0;
}
