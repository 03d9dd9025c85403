/* SentencePiece vocabularies: unigram (SigLIP, T5) and BPE (Gemma, SigLIP 2), as libsentencepiece applies them.
 *
 * A text is normalised by the model's own character map, spaces become U+2581, and the result is cut into pieces: for
 * unigram along the path with the highest sum of scores, for BPE by merging the neighbours whose join has the highest
 * score. What no piece covers is the unknown piece, or its bytes where the vocabulary has them. Read from
 * sentencepiece's .model or from cloob's text form, which checkpoints store.
 *
 * The same table serves the models of a tokenizer.json (pipeline.h), which cut words that are normalised already:
 * unigram, BPE with a list of merges, and WordPiece. */
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

/* Two ids that a list of merges joins; rank: its line. */
typedef struct piece_pair {
    int32_t left, right, rank, id; /* left < 0: an empty slot */
} piece_pair;

typedef struct pieces {
    bool bpe, byte_fallback;
    bool ranked;        /* BPE by `pair` instead of scores */
    bool word_pieces;   /* the longest piece first; pieces inside a word begin with "##" */
    int32_t word_limit; /* characters of a word; longer ones are unknown */
    piece_pair *pair;
    uint64_t pair_mask;
    bool prefix;       /* a space in front of every text */
    bool fold_spaces;  /* none at the ends, one between words */
    bool wide;         /* as tokenizers does it: scores are summed in double, characters replaced as a whole */
    bool canonicalize; /* SigLIP's cleaning: "_" is a space, punctuation goes, lower case, one space */
    bool hf;           /* SigLIP's cleaning as transformers has it: pieces_encode_hf */
    bool no_unknown;   /* there may be no unknown piece: what is unknown is dropped */
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
/* The same with the cleaning of transformers' SiglipTokenizer. */
cloob_status pieces_encode_hf(cloob_ctx *ctx, const pieces *p, const char *text, size_t bytes, sbuf *ids);
/* Appends the ids of one word, without normalising it. */
cloob_status pieces_cut(cloob_ctx *ctx, const pieces *p, const char *word, size_t bytes, sbuf *ids);
/* Appends a text as the character map has it, grapheme by grapheme as tokenizers does it. */
void pieces_map(const pieces *p, const char *text, size_t bytes, sbuf *out);
/* The id of a piece; below 0: none. */
int32_t pieces_find(const pieces *p, const char *text, size_t bytes);
/* Room for n merges, before the first; a merge of two pieces. False: memory is out. */
bool pieces_reserve_pairs(pieces *p, int64_t n);
void pieces_add_pair(pieces *p, int32_t left, int32_t right, int32_t rank, int32_t id);
/* Appends the text of one id. */
void pieces_put(const pieces *p, int32_t id, sbuf *out);
/* In place of open_clip's canonicalize_text, on text that is clean and in lower case. */
void pieces_canonicalize(sbuf *text);

/* Reads a .model file's bytes; cloob's form, and whether a text has that form. */
cloob_status pieces_read_model(cloob_ctx *ctx, const void *data, size_t size, const char *name, pieces *p);
cloob_status pieces_read_text(cloob_ctx *ctx, const char *text, size_t size, const char *name, pieces *p);
bool pieces_is_text(const char *text, size_t size);
bool pieces_is_model(const void *data, size_t size);
void pieces_save(const pieces *p, sbuf *out);
/* The bytes of a .model file. */
void pieces_save_model(const pieces *p, sbuf *out);

#endif
