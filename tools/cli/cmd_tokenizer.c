/* cloob tokenizer: trains a vocabulary, encodes and decodes texts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "data/text/tokenizer.h"

static struct {
    const char *input, *out, *vocab, *clean;
    int64_t size, length;
} o;

/* ---- lists of texts -------------------------------------------------------------------------------- */

/* Texts from the command line, or the lines of a file ("-": standard input). */
typedef struct texts {
    const char **item;
    size_t *bytes;
    int64_t count;
    char *buffer;
} texts;

static void texts_release(texts *t) { free(t->item), free(t->bytes), free(t->buffer); }

static void texts_add(texts *t, const char *text, size_t bytes)
{
    t->item[t->count] = text, t->bytes[t->count++] = bytes;
}

static cloob_status texts_gather(cloob_ctx *ctx, texts *t)
{
    size_t size = 0, most = (size_t)opt_words.count;
    *t = (texts){ 0 };
    if (o.input) CLOOB_TRY(cli_read_file(ctx, o.input, &t->buffer, &size));
    for (size_t i = 0; i < size; i++) most += t->buffer[i] == '\n';
    t->item = must(calloc(most + 1, sizeof *t->item));
    t->bytes = must(calloc(most + 1, sizeof *t->bytes));
    for (int64_t i = 1; i < opt_words.count; i++) texts_add(t, opt_words.item[i], strlen(opt_words.item[i]));
    for (char *at = t->buffer, *end = at + size; at < end;) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end; /* the last line may end without a newline */
        *stop = '\0';
        texts_add(t, at, (size_t)(stop - at));
        at = stop + 1;
    }
    return CLOOB_OK;
}

/* Joins ids given as separate words, as in `decode 320 1929`, to one text. */
static void join_ids(texts *t)
{
    sbuf all = { 0 };
    for (int64_t i = 0; i < t->count; i++)
        if (o.input || strcspn(t->item[i], " \t\r\n,") != t->bytes[i]) return;
    for (int64_t i = 0; i < t->count; i++) sbuf_printf(&all, "%s ", t->item[i]);
    t->item[0] = t->buffer = must(sbuf_detach(&all)), t->bytes[0] = strlen(t->buffer), t->count = 1;
}

/* ---- train, encode, decode ------------------------------------------------------------------------- */

static void print_ids(const int32_t *ids, int64_t n)
{
    if (common.json) json_out_open(NULL, '[');
    for (int64_t i = 0; i < n; i++) {
        if (common.json) json_out_int(NULL, ids[i]);
        else printf("%s%d", i ? " " : "", ids[i]);
    }
    if (common.json) json_out_close();
    else putchar('\n');
}

static cloob_status encode_one(cloob_ctx *ctx, const cloob_tokenizer *t, const texts *in, int64_t i)
{
    int32_t *ids = o.length ? must(malloc((size_t)o.length * sizeof *ids)) : NULL;
    int64_t count = o.length;
    cloob_status status = o.length ? cloob_tokenizer_encode_rows(ctx, t, &in->item[i], 1, o.length, ids)
                                   : cloob_tokenizer_encode(ctx, t, in->item[i], in->bytes[i], &ids, &count);
    if (status == CLOOB_OK) print_ids(ids, count);
    free(ids);
    return status;
}

static cloob_status encode_all(cloob_ctx *ctx, const cloob_tokenizer *t, const texts *in)
{
    cloob_status status = CLOOB_OK;
    if (common.json) json_out_open(NULL, '[');
    for (int64_t i = 0; i < in->count && status == CLOOB_OK; i++) status = encode_one(ctx, t, in, i);
    if (common.json) json_out_close();
    return status;
}

/* Parses the ids of one text: numbers separated by spaces, commas or brackets. NULL: invalid. */
static int32_t *parse_ids(const char *text, int64_t *n)
{
    int32_t *ids = must(malloc((strlen(text) / 2 + 1) * sizeof *ids));
    for (*n = 0;;) {
        char *end;
        text += strspn(text, " \t\r\n,[]");
        if (!*text) return ids;
        long v = strtol(text, &end, 10);
        if (end == text || v < INT32_MIN || v > INT32_MAX) break;
        ids[(*n)++] = (int32_t)v;
        text = end;
    }
    free(ids);
    return NULL;
}

static int decode_all(const command *self, cloob_ctx *ctx, const cloob_tokenizer *t, const texts *in)
{
    if (common.json) json_out_open(NULL, '[');
    for (int64_t i = 0; i < in->count; i++) {
        int64_t n;
        char *text = NULL;
        int32_t *ids = parse_ids(in->item[i], &n);
        if (!ids) return cli_usage(self, "%.60s: ids must be integers", in->item[i]);
        cloob_status status = cloob_tokenizer_decode(ctx, t, ids, n, &text);
        free(ids);
        if (status != CLOOB_OK) return cli_fail(self, ctx, status);
        if (common.json) json_out_text(NULL, text);
        else puts(text);
        free(text);
    }
    if (common.json) json_out_close();
    return 0;
}

static int run_train(const command *self, cloob_ctx *ctx)
{
    cloob_tokenizer *t = NULL;
    if (!o.input || !o.out || !o.size) return cli_usage(self, "train needs --input FILE, --size N and --out V");
    if (o.size > INT32_MAX) return cli_usage(self, "--size %lld: too large", (long long)o.size);
    cloob_status status = cloob_tokenizer_train(ctx, o.input, (int32_t)o.size, &t);
    if (status == CLOOB_OK) status = cloob_tokenizer_save(ctx, t, o.out);
    int32_t size = status == CLOOB_OK ? cloob_tokenizer_vocab_size(t) : 0;
    cloob_tokenizer_close(t);
    if (status != CLOOB_OK) return cli_fail(self, ctx, status);
    cli_result(J_INT("size", size), J_TEXT("vocab", o.out));
    return 0;
}

static int run_codec(const command *self, cloob_ctx *ctx, bool decode)
{
    cloob_tokenizer *t = NULL;
    texts in = { 0 };
    int code = 0;
    if (!o.vocab) return cli_usage(self, "--vocab V is required: a merges file");
    if (opt_words.count < 2 && !o.input) return cli_usage(self, "needs texts, or --input FILE");
    if (opt_words.count > 1 && o.input) return cli_usage(self, "give --input or texts, not both");
    if (o.length > 1 << 20) return cli_usage(self, "--length %lld: more than a million tokens", (long long)o.length);
    cloob_status status = texts_gather(ctx, &in);
    if (status == CLOOB_OK && decode) join_ids(&in);
    if (status == CLOOB_OK) status = cloob_tokenizer_open(ctx, o.vocab, &t);
    if (status == CLOOB_OK && (opt_given("clean") || tokenizer_clean(t) != CLEAN_HF))
        tokenizer_set_clean(t, strcmp(o.clean, "basic") == 0 ? CLEAN_BASIC
                               : strcmp(o.clean, "hf") == 0  ? CLEAN_HF
                                                             : CLEAN_FULL);
    if (status == CLOOB_OK && decode) code = decode_all(self, ctx, t, &in);
    else if (status == CLOOB_OK) status = encode_all(ctx, t, &in);
    cloob_tokenizer_close(t);
    texts_release(&in);
    return code ? code : cli_exit(self, ctx, status);
}

static int run(const command *self, cloob_ctx *ctx)
{
    const char *what = opt_words.count ? opt_words.item[0] : "";
    if (strcmp(what, "train") == 0)
        return opt_words.count > 1 ? cli_usage(self, "%s: unexpected argument", opt_words.item[1])
                                   : run_train(self, ctx);
    if (strcmp(what, "encode") == 0) return run_codec(self, ctx, false);
    if (strcmp(what, "decode") == 0) return run_codec(self, ctx, true);
    return cli_usage(self, "needs train, encode or decode");
}

static const opt_row rows[] = {
    { "input", OPT_STRING, &o.input, NULL, "FILE",
      "train: captions, one per line, or a TSV with a column title; encode, decode: a text or ids per line, "
      "- for standard input",
      0 },
    { "size", OPT_INT, &o.size, NULL, "N", "train: size of the vocabulary, including bytes and the two special tokens",
      OPT_POSITIVE },
    { "out", OPT_STRING, &o.out, NULL, "V", "train: output file", 0 },
    { "vocab", OPT_STRING, &o.vocab, NULL, "V", "encode, decode: merges file, plain or gzip, OpenAI's or from train",
      0 },
    { "length", OPT_INT, &o.length, NULL, "N", "encode: pad to N tokens with start and end, as a model expects",
      OPT_POSITIVE },
    { "clean", OPT_STRING, &o.clean, "basic", "basic|full|hf",
      "text cleaning before encoding: basic (HTML and white space, CLIP's published ids), full (as in open_clip and in "
      "training) or hf (as in transformers)",
      0 },
    OPT_END,
};

const command cmd_tokenizer = {
    .name = "tokenizer",
    .run = run,
    .help = "convert texts to token ids and back; train a vocabulary",
    .options = rows,
    .usage = "train --input FILE --size N --out V | encode --vocab V [--length 77] TEXT... | decode --vocab V IDS...",
    .details = "encode prints the ids of each text on a line, without start, end or padding unless --length is given; "
               "with --json a list of lists. decode takes the ids of one text, or of several texts in quotes: "
               "\"320 2368\" \"320 1929\".\n"
               "\n"
               "  cloob tokenizer encode --vocab bpe_simple_vocab_16e6.txt.gz \"a photo of a cat\"\n"
               "  cloob tokenizer decode --vocab bpe_simple_vocab_16e6.txt.gz 320 1125 539 320 2368\n"
               "  cloob tokenizer train --input captions.txt --size 16384 --out captions.bpe",
};
