/* Zero-shot examples as one figure: images with bars of their likeliest labels, as the paper shows them. */
#ifndef REPORT_FIGURES_EXAMPLES_H
#define REPORT_FIGURES_EXAMPLES_H

#include "core/sbuf.h"
#include "io/image/image.h"

enum { EXAMPLE_GUESSES = 5 };

typedef struct example_guess {
    const char *label;
    double share; /* 0 to 1 */
    bool right;
} example_guess;

typedef struct example {
    const char *title; /* its class, else its name */
    int64_t rank;      /* of the right label among all, from 1; 0: unknown */
    image pixels;      /* rgb NULL: could not be read */
    example_guess guess[EXAMPLE_GUESSES];
    int guesses;
} example;

/* Appends the figure, as PDF or SVG. False, with nothing done, where cairo is missing. */
bool examples_draw(sbuf *out, const example *e, int64_t n, bool pdf);

#endif
