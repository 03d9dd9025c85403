/* A tokenizer.json of the tokenizers library: added tokens, normalizers, pre-tokenizers, a model and a template.
 *
 * A text is split at the added tokens, normalised, split into words, and each word is cut by the model: unigram (T5,
 * XLM-R, XLM-V), BPE with merges (Gemma, RoBERTa) or WordPiece (BERT). What is not known is refused by name when the
 * file is read. CLIP's BPE has its own code (tokenizer_bpe.c), which is faster. */
#ifndef DATA_TEXT_PIPELINE_H
#define DATA_TEXT_PIPELINE_H

#include "data/text/pieces.h"
#include "data/text/unicode.h"

typedef enum step_kind {
    STEP_NFC,
    STEP_NFD,
    STEP_NFKC,
    STEP_NFKD,
    STEP_LOWER,
    STEP_STRIP,
    STEP_ACCENTS, /* marks (Mn) are dropped */
    STEP_REPLACE,
    STEP_REPLACE_SPACES, /* runs of white space, or of `least` and more spaces */
    STEP_PREPEND,
    STEP_CHARSMAP,
    STEP_BERT_CLEAN,
    STEP_BERT_CHINESE,
    STEP_SPLIT_SPACES, /* from here on: pre-tokenizers */
    STEP_SPLIT_METASPACE,
    STEP_SPLIT_BERT,
    STEP_SPLIT_BYTES,
    STEP_SPLIT_AFTER_SPACE
} step_kind;

typedef struct step {
    step_kind kind;
    bool left, right; /* STRIP; BYTES: left is a space in front, right the regular expression */
    bool first;       /* METASPACE: U+2581 only in front of the first word of a text; left: in front at all */
    int64_t least;
    char *from, *to; /* owned */
} step;

typedef struct added_token {
    char *text; /* owned */
    size_t bytes;
    int32_t id;
    bool lstrip, rstrip, normalized, single_word;
} added_token;

/* Cleaning before all of it: open_clip's. */
typedef enum pipeline_clean { PIPELINE_AS_IS, PIPELINE_WHITESPACE, PIPELINE_LOWER, PIPELINE_CANONICAL } pipeline_clean;

enum { PIPELINE_STEPS = 24, PIPELINE_SPECIALS = 4 };

typedef struct pipeline {
    pieces p;
    step step[PIPELINE_STEPS]; /* normalizers before pre-tokenizers */
    int steps;
    added_token *added;
    int64_t added_count;
    int32_t prefix[PIPELINE_SPECIALS], suffix[PIPELINE_SPECIALS]; /* around every text */
    int prefixes, suffixes;
    int32_t pad;
    bool pad_left;
    int32_t strip_sep; /* this id becomes 0 in rows; below 0: none */
    pipeline_clean clean;
    sbuf source;            /* tokenizer.json as it was read, without blanks */
    char class_name[48];    /* tokenizer_class of tokenizer_config.json, or "" */
    char pad_text[32];      /* as in tokenizer_config.json */
    char byte_text[256][3]; /* the characters that stand for bytes, UTF-8 */
} pipeline;

/* What a folder says besides tokenizer.json; NULL and 0 where it says nothing. */
typedef struct pipeline_config {
    const char *class_name, *pad, *bos, *eos;
    int add_bos, add_eos; /* 1: yes, -1: no */
    bool pad_left, pad_side;
    pipeline_clean clean;
    bool strip_sep;
} pipeline_config;

/* text: of a tokenizer.json. config may be NULL. */
cloob_status pipeline_read(cloob_ctx *ctx, const char *text, size_t size, const char *name,
                           const pipeline_config *config, pipeline **out);
void pipeline_close(pipeline *t); /* NULL is fine */

/* Appends the ids of a text (int32_t), without template and padding. */
cloob_status pipeline_encode(cloob_ctx *ctx, const pipeline *t, const char *text, size_t bytes, sbuf *ids);
/* A row as the model takes it: prefix, ids, suffix, padding; longer texts are cut. */
cloob_status pipeline_row(cloob_ctx *ctx, const pipeline *t, const char *text, size_t bytes, int64_t length,
                          int32_t *row);

/* Appends the text of one id. */
void pipeline_put(const pipeline *t, int32_t id, sbuf *out);

/* The form that checkpoints store, and whether a text has it. */
void pipeline_save(const pipeline *t, sbuf *out);
bool pipeline_is_text(const char *text, size_t size);
cloob_status pipeline_read_text(cloob_ctx *ctx, const char *text, size_t size, const char *name, pipeline **out);

/* tokenizer.json's text from the files of older folders: WordPiece's vocab.txt; vocab.json and merges.txt of RoBERTa,
 * or of CLIP. */
void pipeline_from_vocab_txt(const char *vocab, size_t size, bool lower, sbuf *json_text);
void pipeline_from_merges(bool clip, const char *vocab, size_t vocab_size, const char *merges, size_t merges_size,
                          sbuf *json_text);

#endif
