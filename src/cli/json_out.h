/* Texts from files as JSON strings on stdout. */
#ifndef CLI_JSON_OUT_H
#define CLI_JSON_OUT_H

/* With its quotes; control characters are escaped, bytes that are not UTF-8 become U+FFFD. */
void json_out_string(const char *text);

#endif
