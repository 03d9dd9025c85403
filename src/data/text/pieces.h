/* SentencePiece vocabularies: unigram (SigLIP, T5) and BPE (Gemma, SigLIP 2), as libsentencepiece applies them.
 *
 * A text is normalised by the model's own character map, spaces become U+2581, and the result is cut into pieces: for
 * unigram along the path with the highest sum of scores, for BPE by merging the neighbours whose join has the highest
 * score. What no piece covers is the unknown piece, or its bytes where the vocabulary has them. Read from
 * sentencepiece's .model, from a tokenizer.json of type Unigram, or from cloob's text form, which checkpoints store. */
#ifndef DATA_TEXT_PIECES_H
#define DATA_TEXT_PIECES_H

#include "core/ctx.h"
#include "core/json.h"
#include "core/sbuf.h"

typedef enum piece_type {
    PIECE_NORMAL = 1,
    PIECE_UNKNOWN,
    PIECE_CONTROL,
    PIECE_USER,
    PIECE_UNUSED,
    PIECE_BYTE
} piece_type;

typedef struct piece_row {
    uint32_t at, bytes; /* in pieces.text */
    float score;
    uint8_t type;
} piece_row;

typedef struct piece_slot {
    uint64_t hash;
    int32_t id; /* -1: a beginning of pieces, itself none; -2: an empty slot */
} piece_slot;

typedef struct pieces {
    bool bpe, byte_fallback;
    bool prefix;       /* a space in front of every text */
    bool fold_spaces;  /* none at the ends, one between words */
    bool wide;         /* as tokenizers does it: scores are summed in double, characters replaced as a whole */
    bool canonicalize; /* SigLIP's cleaning: "_" is a space, punctuation goes, lower case, one space */
    int32_t unknown, end, pad;
    int32_t count;
    piece_row *piece;
    sbuf text;
    sbuf charsmap; /* sentencepiece's: a double array and the strings it names; empty: characters stay */
    float min_score, max_score;
    piece_slot *slot;
    uint64_t mask;
    int32_t byte_id[256];
} pieces;

/* Adds a piece; the order is that of the ids. False: memory is out. */
bool pieces_add(pieces *p, const char *text, size_t bytes, float score, piece_type type);
/* After the last piece: tables, special ids. Refuses a vocabulary that cannot be used, by name. */
cloob_status pieces_finish(cloob_ctx *ctx, pieces *p, const char *name);
void pieces_release(pieces *p);

/* Appends the ids of a cleaned text; ids is (ints) storage of int32_t. Time is near linear in the text. */
cloob_status pieces_encode(cloob_ctx *ctx, const pieces *p, const char *text, size_t bytes, sbuf *ids);
/* Appends the text of one id. */
void pieces_put(const pieces *p, int32_t id, sbuf *out);
/* In place of open_clip's canonicalize_text, on text that is clean and in lower case. */
void pieces_canonicalize(sbuf *text);

/* Reads a .model file's bytes; a tokenizer.json; cloob's form, and whether a text has that form. */
cloob_status pieces_read_model(cloob_ctx *ctx, const void *data, size_t size, const char *name, pieces *p);
cloob_status pieces_read_json(cloob_ctx *ctx, const json *root, const char *name, pieces *p);
cloob_status pieces_read_text(cloob_ctx *ctx, const char *text, size_t size, const char *name, pieces *p);
bool pieces_is_text(const char *text, size_t size);
bool pieces_is_model(const void *data, size_t size);
void pieces_save(const pieces *p, sbuf *out);

#endif
