/* The inside of a tokenizer, shared by the files that read, apply, write and learn merges. */
#ifndef DATA_TEXT_TOKENIZER_IMPL_H
#define DATA_TEXT_TOKENIZER_IMPL_H

#include "core/ctx.h"
#include "data/text/clean.h"
#include "data/text/pieces.h"
#include "data/text/pipeline.h"
#include "data/text/tokenizer.h"

enum {
    BYTES = 256,                   /* ids 0 .. 255: a byte; 256 .. 511: a byte that ends a word */
    FIRST_MERGE = 2 * BYTES,       /* then one id per merge, then start and end of text */
    CLIP_MERGES = 49152 - 256 - 2, /* how many lines of its longer file CLIP uses */
    VOCAB_LIMIT = 1 << 20,         /* more ids than any vocabulary has */
    TOKEN_LIMIT = 1024             /* bytes of one token */
};

/* ---- hash tables, read-only once built; size is a power of two ------------------------------------- */

typedef struct pair_slot {
    int32_t left, right; /* left < 0: empty */
    int32_t merged;      /* lower means earlier: the id is the rank */
} pair_slot;

/* Texts to ids. A key of up to eight bytes is kept in the slot, of a longer one the hash. */
typedef struct text_slot {
    uint64_t key;
    uint32_t length; /* 0: empty */
    int32_t id;
} text_slot;

typedef struct text_table {
    text_slot *slot;
    uint32_t mask, used;
} text_table;

struct cloob_tokenizer {
    clean_mode clean;
    int32_t merges, merge_cap;
    int32_t (*part)[2]; /* (merges): left and right */
    sbuf text;          /* all tokens' bytes, one after the other */
    uint32_t *text_at;  /* (FIRST_MERGE + merges + 1): where each begins */
    bool *ends;         /* whether the token ends a word */
    int32_t byte_id[BYTES];
    pair_slot *pairs;
    uint32_t pair_mask;
    text_table words; /* whole words that are one token; the encoder's short cut */
    pieces *pieces;   /* a SentencePiece vocabulary instead of merges; NULL: merges */
    pipeline *pipe;   /* or a tokenizer.json of another kind than CLIP's */
    int32_t pad;      /* of rows of merges */
    bool pad_special; /* its text is a special token, as transformers has it */
    bool smaller;     /* the model's vocabulary is larger, as its folder has it */
};

/* Takes the pieces over, also on failure. */
cloob_status tokenizer_of_pieces(cloob_ctx *ctx, pieces *p, tokenizer **out);

cloob_status tokenizer_of_pipeline(cloob_ctx *ctx, pipeline *p, tokenizer **out);

/* ---- tokenizer_folder.c ------------------------------------------------------------------------------- */

/* config: of the folder; NULL: none. */
cloob_status tokenizer_read_json(cloob_ctx *ctx, const char *text, size_t size, const char *name,
                                 const pipeline_config *config, tokenizer **out);

/* ---- tokenizer_table.c: tokens and their tables ---------------------------------------------------- */

cloob_status token_create(cloob_ctx *ctx, tokenizer **out); /* with the 512 byte tokens */
/* Adds the merge of two known tokens; *id is the new token's. */
cloob_status token_merge(cloob_ctx *ctx, tokenizer *t, int32_t left, int32_t right, int32_t *id);
/* After the last merge: builds what encoding needs. */
cloob_status token_finish(cloob_ctx *ctx, tokenizer *t);
int32_t token_pair(const tokenizer *t, int32_t left, int32_t right); /* the merged id, -1 when there is none */
void token_put_symbols(const tokenizer *t, int32_t id, sbuf *out);   /* as a merges file spells it */

/* The table of byte strings: keys live elsewhere; find compares through the tokenizer's texts. */
uint64_t text_key(const char *text, size_t bytes);
bool text_table_add(text_table *h, const char *text, size_t bytes, int32_t id); /* false: memory is out */
int32_t text_table_find(const text_table *h, const tokenizer *t, const char *text, size_t bytes);

/* ---- tokenizer_bpe.c -------------------------------------------------------------------------------- */

/* Merges symbols in place, best pair first, and sets *n to how many are left. False: memory is out. */
bool bpe_merge(const tokenizer *t, int32_t *symbol, int64_t *n);

/* ---- tokenizer_bpe.c: words ------------------------------------------------------------------------------ */

typedef enum word_kind { WORD_PLAIN, WORD_START, WORD_END } word_kind;

typedef struct word {
    const char *at;
    size_t bytes;
    word_kind kind; /* WORD_START, WORD_END: the names of the two special tokens, spelled out */
} word;

/* The next word of cleaned text from *pos on; false at the end. Words of CLEAN_HF are those of its regular
 * expression, others of open_clip's: only the latter has <start_of_text> and <end_of_text>. */
bool words_next(clean_mode mode, const char *text, size_t bytes, size_t *pos, word *w);

/* The words of many captions and how often each occurs: all that learning a vocabulary needs to see. */

enum { COUNT_WORD_LIMIT = 256 }; /* longer words are skipped: they are rare and costly */

typedef struct caption {
    const char *at;
    size_t bytes;
} caption;

typedef struct word_count {
    const char *at;
    uint32_t bytes;
    int64_t count;
} word_count;

typedef struct word_counts {
    word_count *item; /* sorted by their bytes */
    int64_t n;
    char *text; /* what item points into */
} word_counts;

/* Cleans the captions in full and counts their words, on all threads; the result does not depend on how many.
 */
cloob_status words_count(cloob_ctx *ctx, const caption *captions, int64_t n, word_counts *out);
void word_counts_release(word_counts *w);

/* Where the file of captions and the learning of merges meet. */

/* A vocabulary of `size` ids. name is for messages. */
cloob_status tokenizer_learn(cloob_ctx *ctx, const caption *captions, int64_t n, int32_t size, const char *name,
                             tokenizer **out);

#endif
