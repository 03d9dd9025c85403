/* cloob serve: the options of the server. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "core/ctx.h"
#include "serve/serve.h"
#include "infer/model_file.h"
#include "train/memory_budget.h"

static struct {
    serve_options s;
    opt_list checkpoint, index, url_host;
    const char *idle_unload, *memory_limit;
} o;

static const opt_row rows[] = {
    { "checkpoint", OPT_LIST, &o.checkpoint, NULL, "[NAME=]M",
      "weights or a model's name (cloob pull lists some); NAME= sets the name for requests; repeatable", OPT_REQUIRED },
    { "index", OPT_LIST, &o.index, NULL, "INDEX",
      "index file or folder of images; NAME=INDEX sets its name for requests; repeatable", 0 },
    { "root", OPT_STRING, &o.s.root, NULL, "DIR",
      "folder of the images of an index file; default: the folder the file is in", 0 },
    { "logs", OPT_STRING, &o.s.logs, NULL, "DIR", "folder of training runs to show", 0 },
    { "host", OPT_STRING, &o.s.host, "127.0.0.1", "ADDRESS", "address to listen on", 0 },
    { "port", OPT_INT, &o.s.port, "8080", "N", "port to listen on; 0: any free one", OPT_PORT },
    { "max-batch", OPT_INT, &o.s.max_batch, "32", "N", "largest number of inputs in a batch", OPT_POSITIVE },
    { "max-wait-us", OPT_INT, &o.s.max_wait_us, "2000", "N",
      "microseconds a batch waits for inputs still being decoded", OPT_NOT_NEGATIVE },
    { "max-queue", OPT_INT, &o.s.max_queue, "512", "N", "requests that may wait; beyond that the answer is 429",
      OPT_POSITIVE },
    { "workers", OPT_INT, &o.s.workers, "64", "N", "requests processed at a time", OPT_POSITIVE },
    { "http-threads", OPT_INT, &o.s.http_threads, "0", "N",
      "threads that receive requests and send answers; 0: one for every four cores, at most 8", OPT_NOT_NEGATIVE },
    { "max-body-mb", OPT_INT, &o.s.max_body_mb, "32", "N", "largest request body in MiB", OPT_POSITIVE },
    { "memory-limit", OPT_STRING, &o.memory_limit, "1GiB", "SIZE",
      "memory for bodies, downloads and answers, beyond which requests get 429", 0 },
    { "max-image-pixels", OPT_INT, &o.s.max_pixels, CLOOB_TEXT(CLOOB_DEFAULT_MAX_PIXELS), "N",
      "refuse images with more pixels", OPT_POSITIVE },
    { "max-inputs", OPT_INT, &o.s.max_inputs, "2048", "N", "largest number of texts and images in a request",
      OPT_POSITIVE },
    { "max-connections", OPT_INT, &o.s.max_connections, "1024", "N", "largest number of connections", OPT_POSITIVE },
    { "max-per-address", OPT_INT, &o.s.max_per_address, "512", "N", "largest number of connections per address",
      OPT_POSITIVE },
    { "timeout", OPT_INT, &o.s.timeout_s, "60", "S", "seconds allowed for sending a request, and for answering it",
      OPT_POSITIVE },
    { "idle-unload", OPT_STRING, &o.idle_unload, NULL, "TIME",
      "free the weights after this long without requests, such as 300s or 5m", 0 },
    { "api-key-file", OPT_STRING, &o.s.api_key_file, NULL, "FILE",
      "file whose first line is the API key that requests must carry", 0 },
    { "tls-cert", OPT_STRING, &o.s.tls_cert, NULL, "FILE", "PEM certificate, for HTTPS", 0 },
    { "tls-key", OPT_STRING, &o.s.tls_key, NULL, "FILE", "PEM key of the certificate", 0 },
    { "insecure", OPT_FLAG, &o.s.insecure, NULL, NULL, "allow access from other hosts without an API key", 0 },
    { "allow-url-host", OPT_LIST, &o.url_host, NULL, "HOST", "fetch images from URLs of this host; repeatable", 0 },
    { "immich-upstream", OPT_STRING, &o.s.immich_upstream, NULL, "URL",
      "forward immich's requests for faces and text recognition to this machine-learning server", 0 },
    OPT_END
};
static const opt_set sets[] = { { .table = model_option_table, .into = &o.s.model, .only = "vocab config invariant" },
                                OPT_SETS_END };

/* Parses "300s", "5m", "1h", or a number of seconds. */
static bool parse_time(const char *text, double *seconds)
{
    char unit = 0, more = 0;
    if (sscanf(text, "%lf%c%c", seconds, &unit, &more) < 1 || more || *seconds < 0) return false;
    if (unit == 'm') *seconds *= 60;
    else if (unit == 'h') *seconds *= 3600;
    else if (unit && unit != 's') return false;
    return true;
}

static int check(const command *self)
{
    size_t limit;
    if (!memory_parse(o.memory_limit, &limit) || limit < 16 << 20 || limit > (size_t)1e18)
        return cli_usage(self, "--memory-limit %s: needs a size such as 512MiB or 2GiB, at least 16MiB",
                         o.memory_limit);
    o.s.memory_limit = (int64_t)limit;
    if (o.idle_unload && !parse_time(o.idle_unload, &o.s.idle_unload_s))
        return cli_usage(self, "--idle-unload %s: needs a time such as 300s or 5m", o.idle_unload);
    return -1;
}

/* Writes the model name for the API, without the organisation: ViT-B-32/openai becomes "ViT-B-32__openai". */
static void put_served_name(char *out, size_t size, const char *word)
{
    const char *slash = strchr(word, '/'), *colon = strchr(word, ':');
    int before = slash && !colon ? (int)(slash - word) : 0, n;
    const char *rest = slash ? slash + 1 : word;
    n = (int)strcspn(rest, "@");
    snprintf(out, size, "%.*s%s%.*s", before, word, before ? "__" : "", n, rest);
}

/* Resolves MODEL or NAME=MODEL, where MODEL is a path or a model's name, to NAME=PATH. */
static cloob_status find_model(cloob_ctx *ctx, const char **word)
{
    char name[256];
    const char *equal = strchr(*word, '='), *slash = strchr(*word, '/');
    bool named = equal && equal > *word && (!slash || equal < slash);
    const char *given = named ? equal + 1 : *word, *path = given;
    CLOOB_TRY(opt_model_path(ctx, &path));
    if (path == given) return CLOOB_OK;
    if (named) snprintf(name, sizeof name, "%.*s", (int)(equal - *word), *word);
    else put_served_name(name, sizeof name, given);
    sbuf joined = { 0 };
    sbuf_printf(&joined, "%s=%s", name, path);
    *word = must(sbuf_detach(&joined));
    return CLOOB_OK;
}

static int run(const command *self, cloob_ctx *ctx)
{
    for (int i = 0; i < o.checkpoint.count; i++) {
        cloob_status status = find_model(ctx, &o.checkpoint.item[i]);
        if (status != CLOOB_OK) return cli_fail(self, ctx, status);
    }
    o.s.checkpoint = o.checkpoint.item, o.s.checkpoints = o.checkpoint.count;
    o.s.index = o.index.item, o.s.indexes = o.index.count;
    o.s.url_host = o.url_host.item, o.s.url_hosts = o.url_host.count;
    o.s.model.device = common.device, o.s.model.precision = common.precision;
    o.s.model.max_pixels = o.s.max_pixels;
    o.s.model.photos = true; /* turn photos upright, as cloob search and cloob classify do */
    o.s.quiet = common.quiet;
    return cli_exit(self, ctx, serve_run(ctx, &o.s));
}

const command cmd_serve = {
    .name = "serve",
    .run = run,
    .check = check,
    .stray = "--checkpoint",
    .help = "serve embeddings, search and a web page over HTTP",
    .options = rows,
    .sets = sets,
    .uses = USES_PRECISION,
    .brief = "checkpoint index root logs host port max-batch max-queue workers memory-limit max-image-pixels timeout "
             "idle-unload api-key-file tls-cert tls-key insecure device precision json",
    .usage = "--checkpoint M [--index INDEX]... [--logs DIR] [--host ADDRESS] [--port N]",
    .details =
        "Supports the protocols of OpenAI, text-embeddings-inference, Ollama, Cohere, Weaviate, immich and "
        "clip-retrieval. A web page at / searches the indexes; /docs and /openapi.json describe every endpoint. "
        "Requests that arrive together are embedded in one batch. Listens on the loopback address by default. On "
        "SIGTERM the server answers pending requests and exits.\n"
        "\n"
        "  cloob serve --checkpoint M --index photos\n"
        "  curl localhost:8080/v1/embeddings -d '{\"input\": \"a dog in the snow\"}'"
};
