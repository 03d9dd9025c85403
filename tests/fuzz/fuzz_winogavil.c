/* The table of WinoGAViL from arbitrary bytes, next to four images. */
#include "lab/suite/suite.h"
#include "fuzz.h"
#include "scratch_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    static const char *const images[] = { "images/cat.jpg", "images/dog.png", "sun", "images/a.b.jpg" };
    char path[256];
    winogavil_table t = { 0 };
    if (!ctx) ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    if (!scratch_folder() || !scratch_write("winogavil.csv", data, size)) return 0;
    snprintf(path, sizeof path, "%s/winogavil.csv", scratch_path);
    if (winogavil_read(ctx, path, images, 4, &t) == CLOOB_OK)
        for (int64_t i = 0; i < t.n; i++) {
            const winogavil_row *r = &t.row[i];
            if (r->belong < 1 || r->belong > r->candidates || !*r->text) abort();
            for (int k = 0; k < r->candidates; k++)
                if (r->image[k] < 0 || r->image[k] > 3) abort();
        }
    winogavil_release(&t);
    return 0;
}
