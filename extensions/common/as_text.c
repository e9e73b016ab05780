/*
 * as_text.c
 *		Values that travel between nodes as text.
 *
 * strata.as_text() is what workers are asked for instead of a cast: the statement around it obeys the
 * user's settings, but under some of them a value's text is not the value.  extra_float_digits below 1
 * rounds, and DateStyle other than ISO writes time zones by abbreviations, of which some have
 * two meanings.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/bytea.h"
#include "utils/float.h"
#include "utils/lsyscache.h"

#include "text_style.h"

PG_FUNCTION_INFO_V1(strata_as_text);

TextStyle
text_style_enter(void)
{
	TextStyle saved = {DateStyle, IntervalStyle, extra_float_digits, bytea_output};

	DateStyle = USE_ISO_DATES;
	IntervalStyle = INTSTYLE_POSTGRES;
	extra_float_digits = 3;
	bytea_output = BYTEA_OUTPUT_HEX;
	return saved;
}

void
text_style_leave(const TextStyle *saved)
{
	DateStyle = saved->date_style;
	IntervalStyle = saved->interval_style;
	extra_float_digits = saved->float_digits;
	bytea_output = saved->bytea;
}

static char *
write_value(FmgrInfo *output, Datum value)
{
	TextStyle style = text_style_enter();
	char *volatile text = NULL;

	PG_TRY();
	{
		text = OutputFunctionCall(output, value);
	}
	PG_FINALLY();
	{
		text_style_leave(&style);
	}
	PG_END_TRY();
	return text;
}

Datum
strata_as_text(PG_FUNCTION_ARGS)
{
	FmgrInfo *output = fcinfo->flinfo->fn_extra;

	if (output == NULL)
	{
		Oid function;
		bool is_varlena;

		getTypeOutputInfo(get_fn_expr_argtype(fcinfo->flinfo, 0), &function, &is_varlena);
		output = MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, sizeof(FmgrInfo));
		fmgr_info_cxt(function, output, fcinfo->flinfo->fn_mcxt);
		fcinfo->flinfo->fn_extra = output;
	}
	PG_RETURN_TEXT_P(cstring_to_text(write_value(output, PG_GETARG_DATUM(0))));
}
