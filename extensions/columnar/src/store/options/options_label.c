/*
 * options_label.c
 *		Parsing and writing the text of a table's label.  See options_label.h.
 *
 * The text comes from the user (SECURITY LABEL) or from a dump, so every error
 * says what was wrong where, and what would be right.  Text that we write is text
 * that we read.
 */
#include "store/options/options_label.h"

#include "lib/stringinfo.h"
#include "parser/scansup.h"
#include "utils/builtins.h"

#define LEVEL_MIN 1
#define LEVEL_MAX 19

static const char *const compression_names[] = {
	[COMPRESSION_HOT] = "hot", [COMPRESSION_COLD] = "cold", [COMPRESSION_NONE] = "none",
	[COMPRESSION_LZ4] = "lz4", [COMPRESSION_ZSTD] = "zstd",
};

/* ---- values ------------------------------------------------------------------------------------ */

const char *
options_label_compression_name(CompressionRule rule)
{
	return compression_names[rule];
}

CompressionRule
options_label_check_compression(const char *name)
{
	for (int i = 0; i < lengthof(compression_names); i++)
	{
		if (pg_strcasecmp(name, compression_names[i]) == 0)
			return (CompressionRule) i;
	}
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("invalid value for option \"%s\": \"%s\"", "compression", name),
					errhint("Available values are hot, cold, none, lz4 and zstd.")));
}

static int
check_range(const char *option, int64 value, int min, int max)
{
	if (value < min || value > max)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("value %lld is out of range for option \"%s\"", (long long) value, option),
				 errhint("It can be from %d to %d.", min, max)));
	return (int) value;
}

int
options_label_check_level(int64 level)
{
	return check_range("compression_level", level, LEVEL_MIN, LEVEL_MAX);
}

int
options_label_check_rows(int64 rows)
{
	return check_range("row_group_rows", rows, BLOCK_ROWS, ROW_GROUP_ROWS_MAX);
}

/* ---- tokens ------------------------------------------------------------------------------------ */

typedef enum TokenKind
{
	TOKEN_END,
	TOKEN_WORD,	  /* identifier in lower case, or number */
	TOKEN_QUOTED, /* identifier in double quotes */
	TOKEN_SIGN	  /* one other character */
} TokenKind;

typedef struct Scanner
{
	const char *text;
	const char *at;
	TokenKind kind; /* of the current token */
	char *token;
} Scanner;

_Noreturn static void
report_syntax(const Scanner *scanner, const char *expected)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid options of a columnar table: \"%s\"", scanner->text),
			 scanner->kind == TOKEN_END
				 ? errdetail("Expected %s at the end.", expected)
				 : errdetail("Expected %s in place of \"%s\".", expected, scanner->token),
			 errhint("An example: compression=cold, compression_level=9, row_group_rows=10000, "
					 "order_by=(a, b DESC NULLS LAST), bloom=(c, d)")));
}

static inline bool
is_word_character(char c)
{
	return isalnum((unsigned char) c) || c == '_' || c == '$' || IS_HIGHBIT_SET(c);
}

/* Reads an identifier in double quotes; the cursor is behind the first one. */
static void
scan_quoted(Scanner *scanner)
{
	StringInfoData name;

	initStringInfo(&name);
	for (;;)
	{
		char c = *scanner->at;

		if (c == '\0')
		{
			scanner->kind = TOKEN_END;
			report_syntax(scanner, "a closing double quote");
		}
		scanner->at++;
		if (c == '"')
		{
			if (*scanner->at != '"')
				break;
			scanner->at++;
		}
		appendStringInfoChar(&name, c);
	}
	scanner->kind = TOKEN_QUOTED;
	scanner->token = name.data;
}

/* Moves to the next token. */
static void
scan_token(Scanner *scanner)
{
	const char *start;

	while (scanner_isspace(*scanner->at))
		scanner->at++;
	start = scanner->at;
	if (*start == '\0')
	{
		scanner->kind = TOKEN_END;
		scanner->token = "";
	}
	else if (*start == '"')
	{
		scanner->at++;
		scan_quoted(scanner);
	}
	else if (is_word_character(*start))
	{
		while (is_word_character(*scanner->at))
			scanner->at++;
		scanner->kind = TOKEN_WORD;
		scanner->token = downcase_identifier(start, scanner->at - start, false, false);
	}
	else
	{
		scanner->at++;
		scanner->kind = TOKEN_SIGN;
		scanner->token = pnstrdup(start, 1);
	}
}

static void
begin_scan(Scanner *scanner, const char *text)
{
	scanner->text = scanner->at = text;
	scan_token(scanner);
}

static bool
is_sign(const Scanner *scanner, char sign)
{
	return scanner->kind == TOKEN_SIGN && scanner->token[0] == sign;
}

static bool
is_word(const Scanner *scanner, const char *word)
{
	return scanner->kind == TOKEN_WORD && strcmp(scanner->token, word) == 0;
}

/* Takes the token if it is that. */
static bool
accept_sign(Scanner *scanner, char sign)
{
	if (!is_sign(scanner, sign))
		return false;
	scan_token(scanner);
	return true;
}

static bool
accept_word(Scanner *scanner, const char *word)
{
	if (!is_word(scanner, word))
		return false;
	scan_token(scanner);
	return true;
}

static void
expect_sign(Scanner *scanner, char sign, const char *expected)
{
	if (!accept_sign(scanner, sign))
		report_syntax(scanner, expected);
}

static char *
expect_column(Scanner *scanner)
{
	char *name = scanner->token;

	if ((scanner->kind != TOKEN_WORD && scanner->kind != TOKEN_QUOTED) || name[0] == '\0' ||
		(scanner->kind == TOKEN_WORD && isdigit((unsigned char) name[0])))
		report_syntax(scanner, "the name of a column");
	scan_token(scanner);
	return name;
}

static int64
expect_integer(Scanner *scanner)
{
	int64 value;
	char *end;

	if (scanner->kind != TOKEN_WORD)
		report_syntax(scanner, "an integer");
	errno = 0;
	value = strtoll(scanner->token, &end, 10);
	if (errno != 0 || *end != '\0')
		report_syntax(scanner, "an integer");
	scan_token(scanner);
	return value;
}

/* ---- parsing ----------------------------------------------------------------------------------- */

static LabelOrder *
parse_order_column(Scanner *scanner)
{
	LabelOrder *order = palloc(sizeof(LabelOrder));

	order->column = expect_column(scanner);
	order->descending = accept_word(scanner, "desc");
	if (!order->descending)
		accept_word(scanner, "asc");
	order->nulls_first = order->descending; /* as in ORDER BY */
	if (accept_word(scanner, "nulls"))
	{
		order->nulls_first = accept_word(scanner, "first");
		if (!order->nulls_first && !accept_word(scanner, "last"))
			report_syntax(scanner, "FIRST or LAST");
	}
	return order;
}

static List *
parse_order(Scanner *scanner)
{
	List *order = NIL;

	do
	{
		order = lappend(order, parse_order_column(scanner));
	} while (accept_sign(scanner, ','));
	return order;
}

static List *
parse_columns(Scanner *scanner)
{
	List *columns = NIL;

	do
	{
		columns = lappend(columns, expect_column(scanner));
	} while (accept_sign(scanner, ','));
	return columns;
}

static void
note_option(bool *has, const char *name)
{
	if (*has)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"%s\" is given twice", name), errhint("Give each option once.")));
	*has = true;
}

/* Parses the value of option `name`; the scanner is behind the equals sign. */
static void
parse_value(Scanner *scanner, const char *name, OptionsLabel *label)
{
	if (strcmp(name, "compression") == 0)
	{
		note_option(&label->has_compression, name);
		if (scanner->kind != TOKEN_WORD)
			report_syntax(scanner, "a compression rule");
		label->compression = options_label_check_compression(scanner->token);
		scan_token(scanner);
	}
	else if (strcmp(name, "compression_level") == 0)
	{
		note_option(&label->has_compression_level, name);
		label->compression_level = options_label_check_level(expect_integer(scanner));
	}
	else if (strcmp(name, "row_group_rows") == 0)
	{
		note_option(&label->has_row_group_rows, name);
		label->row_group_rows = options_label_check_rows(expect_integer(scanner));
	}
	else if (strcmp(name, "order_by") == 0)
	{
		note_option(&label->has_order, name);
		expect_sign(scanner, '(', "an opening parenthesis");
		label->order = parse_order(scanner);
		expect_sign(scanner, ')', "a comma or a closing parenthesis");
	}
	else if (strcmp(name, "bloom") == 0)
	{
		note_option(&label->has_bloom, name);
		expect_sign(scanner, '(', "an opening parenthesis");
		label->bloom = parse_columns(scanner);
		expect_sign(scanner, ')', "a comma or a closing parenthesis");
	}
	else
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("unknown option of a columnar table: \"%s\"", name),
						errhint("Available options are compression, compression_level, "
								"row_group_rows, order_by and bloom.")));
}

void
options_label_parse(const char *text, OptionsLabel *label)
{
	Scanner scanner;

	memset(label, 0, sizeof(*label));
	begin_scan(&scanner, text);
	if (scanner.kind == TOKEN_END)
		return;
	do
	{
		char *name = scanner.token;

		if (scanner.kind != TOKEN_WORD)
			report_syntax(&scanner, "the name of an option");
		scan_token(&scanner);
		expect_sign(&scanner, '=', "an equals sign");
		parse_value(&scanner, name, label);
	} while (accept_sign(&scanner, ','));
	if (scanner.kind != TOKEN_END)
		report_syntax(&scanner, "a comma or the end");
}

List *
options_label_parse_order(const char *text)
{
	Scanner scanner;
	List *order;

	begin_scan(&scanner, text);
	if (scanner.kind == TOKEN_END)
		return NIL;
	order = parse_order(&scanner);
	if (scanner.kind != TOKEN_END)
		report_syntax(&scanner, "a comma or the end");
	return order;
}

/* ---- writing ----------------------------------------------------------------------------------- */

char *
options_label_format_order(List *order)
{
	StringInfoData text;
	ListCell *cell;

	initStringInfo(&text);
	foreach(cell, order)
	{
		LabelOrder *column = lfirst(cell);

		if (text.len > 0)
			appendStringInfoString(&text, ", ");
		appendStringInfoString(&text, quote_identifier(column->column));
		if (column->descending)
			appendStringInfoString(&text, " DESC");
		if (column->nulls_first != column->descending)
			appendStringInfoString(&text, column->nulls_first ? " NULLS FIRST" : " NULLS LAST");
	}
	return text.data;
}

/* Begins another option. */
static void
append_option(StringInfo text, const char *name)
{
	if (text->len > 0)
		appendStringInfoString(text, ", ");
	appendStringInfo(text, "%s=", name);
}

char *
options_label_format(const OptionsLabel *label)
{
	StringInfoData text;
	ListCell *cell;

	initStringInfo(&text);
	if (label->has_compression)
	{
		append_option(&text, "compression");
		appendStringInfoString(&text, compression_names[label->compression]);
	}
	if (label->has_compression_level)
	{
		append_option(&text, "compression_level");
		appendStringInfo(&text, "%d", label->compression_level);
	}
	if (label->has_row_group_rows)
	{
		append_option(&text, "row_group_rows");
		appendStringInfo(&text, "%d", label->row_group_rows);
	}
	if (label->order != NIL)
	{
		append_option(&text, "order_by");
		appendStringInfo(&text, "(%s)", options_label_format_order(label->order));
	}
	if (label->bloom != NIL)
	{
		append_option(&text, "bloom");
		foreach(cell, label->bloom)
			appendStringInfo(&text, "%s%s", cell == list_head(label->bloom) ? "(" : ", ",
							 quote_identifier(lfirst(cell)));
		appendStringInfoChar(&text, ')');
	}
	return text.len > 0 ? text.data : NULL;
}
