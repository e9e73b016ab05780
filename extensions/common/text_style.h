/*
 * text_style.h
 *		The style in which nodes write values as text for each other (as_text.c).
 */
#ifndef STRATA_TEXT_STYLE_H
#define STRATA_TEXT_STYLE_H

/* The settings that output functions obey, saved while ours hold. */
typedef struct TextStyle
{
	int date_style;
	int interval_style;
	int float_digits;
	int bytea;
} TextStyle;

/* Between these two calls output functions write ISO forms with all digits; errors need PG_FINALLY. */
extern TextStyle text_style_enter(void);
extern void text_style_leave(const TextStyle *saved);

#endif
