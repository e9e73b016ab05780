/*
 * options_label.h
 *		The text of a table's label: "compression=cold, order_by=(a, b DESC)".
 *
 *		label	= [ option { "," option } ]
 *		option	= "compression" "=" word | "compression_level" "=" integer
 *				| "row_group_rows" "=" integer
 *				| "order_by" "=" "(" order ")" | "bloom" "=" "(" column { "," column } ")"
 *		order	= column [ ASC | DESC ] [ NULLS ( FIRST | LAST ) ] { "," ... }
 *		column	= identifier, quoted as in SQL where needed
 *
 * Columns are names here; whether they exist is the caller's question.
 */
#ifndef COLUMNAR_OPTIONS_LABEL_H
#define COLUMNAR_OPTIONS_LABEL_H

#include "store/options/options.h"

typedef struct LabelOrder
{
	char *column;
	bool descending;
	bool nulls_first;
} LabelOrder;

typedef struct OptionsLabel
{
	bool has_compression;
	bool has_compression_level;
	bool has_row_group_rows;
	bool has_order;
	bool has_bloom;
	CompressionRule compression;
	int compression_level;
	int row_group_rows;
	List *order; /* of LabelOrder */
	List *bloom; /* of char * */
} OptionsLabel;

/* Parses a label; ERROR invalid_parameter_value when it is none.  Memory: current context. */
extern void options_label_parse(const char *text, OptionsLabel *label);
/* Parses "a, b DESC NULLS LAST"; NIL for a blank text. */
extern List *options_label_parse_order(const char *text);
/* The label's text, palloc'ed; NULL if it has no option. */
extern char *options_label_format(const OptionsLabel *label);
extern char *options_label_format_order(List *order);

/* ERROR unless the value is one that the option can have. */
extern CompressionRule options_label_check_compression(const char *name);
extern int options_label_check_level(int64 level);
extern int options_label_check_rows(int64 rows);

extern const char *options_label_compression_name(CompressionRule rule);

#endif
