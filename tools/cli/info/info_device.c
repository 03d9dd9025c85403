/* cloob info device: what there is to compute on. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/info/info.h"
#include "cli/json_out.h"
#include "lab/bench/bench.h"

static bool knows(const char *what) { return strcmp(what, "device") == 0 && access(what, F_OK) != 0; }

static void print_one(int i, const device_facts *f)
{
    if (common.json) {
        char name[16] = "cpu";
        if (i) snprintf(name, sizeof name, "cuda:%d", i - 1);
        json_out_open(NULL, '{');
        json_out_text("device", name);
        json_out_text("name", f->name);
        json_out_text("runs", f->runs);
        json_out_int("total_bytes", f->total_bytes);
        json_out_int("free_bytes", f->free_bytes);
        json_out_close();
        return;
    }
    if (i) printf("cuda:%-4d", i - 1);
    else printf("cpu      ");
    printf(" %s", f->name);
    if (f->total_bytes)
        printf(", %.1f GiB, %.1f GiB of it free", (double)f->total_bytes / 1073741824.0,
               (double)f->free_bytes / 1073741824.0);
    printf("\n");
}

static int tell(const command *self, cloob_ctx *ctx, const char *what, const info_options *o)
{
    int n = device_count();
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    (void)what, (void)o;
    if (common.json) {
        json_out_open(NULL, '{');
        json_out_int("cores", cores);
        json_out_int("gpus", n - 1);
        json_out_open("devices", '[');
    }
    for (int i = 0; i < n; i++) {
        device_facts f;
        cloob_status status = device_describe(ctx, i, &f);
        if (status != CLOOB_OK) return cli_fail(self, ctx, status);
        print_one(i, &f);
    }
    if (common.json) json_out_close(), json_out_close();
    else if (n == 1) printf("no GPU that this build and machine can use; %ld cores\n", cores);
    return 0;
}

const info_kind info_device = { knows, tell };
