-- Rows for the table hits, by DuckDB: page views of many web sites over March 2026, in order of arrival.
--
-- Before it: random.sql, and SET VARIABLE row_count = ...; the same count gives the same rows.  All is
-- computed from the number of the row, by hashes: first who looks at which page and how he came
-- there, then the columns.  Sites, pages, users and phrases are skewed: a few have most of the rows.

SET VARIABLE words = [
	'the', 'of', 'new', 'best', 'cheap', 'free', 'online', 'buy', 'how', 'to', 'house', 'garden',
	'car', 'parts', 'price', 'photo', 'video', 'music', 'film', 'news', 'weather', 'map', 'hotel',
	'flight', 'summer', 'winter', 'city', 'river', 'mountain', 'train', 'ticket', 'market', 'school',
	'book', 'lesson', 'recipe', 'kitchen', 'table', 'chair', 'lamp', 'phone', 'laptop', 'screen',
	'repair', 'review', 'forum', 'game', 'football', 'hockey', 'league', 'result', 'archive',
	'doctor', 'health', 'tea', 'coffee', 'bread', 'apple', 'orange', 'silver', 'green', 'white',
	'large', 'small', 'north', 'south', 'harbour', 'island', 'bridge', 'castle', 'museum', 'theatre',
	'dress', 'shoes', 'watch', 'gift', 'child', 'mother', 'wedding', 'holiday', 'bank', 'credit',
	'insurance', 'office', 'work', 'salary', 'law', 'tax', 'server', 'program', 'download',
	'version', 'manual', 'engine', 'tyre', 'motor', 'bicycle', 'fishing', 'forest', 'animal',
	'möbel', 'straße', 'zürich', 'café', 'señor', 'niño', 'école', 'forêt', 'łódź', 'kraków',
	'купить', 'цена', 'отзывы', 'фото', 'скачать', 'бесплатно', 'новости', 'погода', 'работа',
	'квартира', 'машина', 'фильм', 'смотреть', 'онлайн', 'игра', 'рецепт', 'москва', 'ремонт'
];
SET VARIABLE plain_words = 96; -- the first so many are good for addresses

SET VARIABLE widths = [
	1366, 1920, 1280, 1024, 1600, 1440, 1680, 1360, 1152, 800, 768, 320, 360, 1093, 1536, 2560
];

-- ---- texts ---------------------------------------------------------------------------------------

CREATE MACRO word(key, use) AS
	getvariable('words')[1 + skewed(key, use, len(getvariable('words')), 1.3)];

CREATE MACRO plain_word(key, use) AS
	getvariable('words')[1 + skewed(key, use, getvariable('plain_words'), 1)];

CREATE MACRO phrase_of(key) AS
	concat_ws(
		' ', word(key, 20), word(key, 21),
		CASE WHEN uniform(key, 22) < 0.7 THEN word(key, 23) END,
		CASE WHEN uniform(key, 24) < 0.4 THEN word(key, 25) || ' ' || word(key, 26) END,
		CASE WHEN uniform(key, 27) < 0.6 THEN key END
	);

CREATE MACRO host_of(site) AS
	CASE WHEN site % 3 = 0 THEN 'www.' ELSE '' END
	|| CASE WHEN site % 397 = 205 THEN 'maps.orion.' ELSE plain_word(site, 10) || '-' END
	|| plain_word(site, 11) || site || CASE WHEN site % 5 = 0 THEN '.com' ELSE '.example' END;

-- a page: a site and a number in it; 0 is the site's first page
CREATE MACRO key_of(site, page) AS site * 100000000 + page;

CREATE MACRO address_of(site, page, key) AS
	CASE WHEN site % 7 = 2 THEN 'https://' ELSE 'http://' END || host_of(site) || '/'
	|| CASE
		WHEN page = 0 THEN ''
		ELSE
			plain_word(site * 8 + page % 8, 12) || '/' || plain_word(key, 13)
			|| CASE WHEN uniform(key, 14) < 0.7 THEN '-' || plain_word(key, 15) ELSE '' END
			|| CASE
				WHEN uniform(key, 16) < 0.5 THEN '/' || page || '.html'
				ELSE '?page=' || page || '&lang=' || (hash(key) % 12) || '&session=' || hash(key)
			END
			|| CASE WHEN hash(key) % 1500 = 7 THEN '&from=orion' ELSE '' END
	END;

CREATE MACRO title_of(site, page, key) AS
	concat_ws(
		' ', word(key, 30), word(key, 31), word(key, 32), word(key, 28), word(key, 29),
		CASE WHEN hash(key) % 250 = 3 THEN 'Orion' END,
		CASE WHEN uniform(key, 33) < 0.8 THEN word(key, 34) || ' ' || word(key, 35) END,
		CASE WHEN uniform(key, 36) < 0.5 THEN word(key, 37) || ', ' || word(key, 38) END,
		CASE WHEN uniform(key, 39) < 0.5 THEN '(' || page || ')' END,
		CASE WHEN uniform(key, 18) < 0.6 THEN word(key, 17) || ' ' || word(key, 19) END,
		'-', plain_word(site, 10), plain_word(site, 11), site
	);

-- ---- who, what, from where -----------------------------------------------------------------------

-- sites have pages by their share of the rows, so that about every fourth row has an own address
CREATE MACRO page_count(site) AS
	floor(getvariable('row_count') / (100 * pow(site + 1, 0.75)))::bigint + 1;

CREATE MACRO page_views() AS TABLE
SELECT *, key_of(site, page) AS page_key, key_of(from_site, from_page) AS from_key
FROM (
	SELECT
		*, skewed(g, 3, page_count(site), 3) AS page,
		skewed(g, 4, page_count(from_site), 3) AS from_page
	FROM (
		SELECT
			g, visitor, site,
			-- how he came: directly, by a search, from the same site, from another one
			CASE
				WHEN way < 0.2 THEN 'direct' WHEN way < 0.4 THEN 'search'
				WHEN way < 0.8 THEN 'inside' ELSE 'link'
			END AS way,
			CASE WHEN way < 0.8 THEN site ELSE skewed(g, 5, 4000, 4) END AS from_site,
			CASE WHEN way < 0.4 THEN 1 + skewed(g, 6, 90, 6) ELSE 0 END AS engine,
			CASE
				WHEN way BETWEEN 0.2 AND 0.33
					THEN phrase_of(skewed(g, 7, getvariable('row_count') // 15, 2))
				ELSE ''
			END AS phrase
		FROM (
			SELECT
				range AS g, uniform(range, 0) AS way,
				skewed(range, 1, getvariable('row_count') // 5, 1.6) AS visitor,
				skewed(range, 2, 4000, 4) AS site
			FROM range(getvariable('row_count'))
		)
	)
);

-- ---- the columns ---------------------------------------------------------------------------------

INSERT INTO hits
SELECT
	number_of(g, 40),
	event_time,
	event_time::date,
	1 + site * 13,
	number_of(visitor, 41),
	-- the address of a visitor, sometimes another one
	(hash(CASE WHEN uniform(g, 42) < 0.85 THEN visitor ELSE -g END) % 4294967000)::bigint
	- 2147483000,
	1 + skewed(visitor, 43, 9000, 3),
	address_of(site, page, page_key),
	title_of(site, page, page_key // 3),
	CASE way
		WHEN 'direct' THEN ''
		WHEN 'search'
			THEN 'https://www.' || plain_word(engine, 10) || engine || '.example/search?q='
			|| replace(phrase, ' ', '+')
		ELSE address_of(from_site, from_page, from_key)
	END,
	number_of(page_key, 44),
	CASE WHEN way IN ('direct', 'search') THEN engine ELSE number_of(from_key, 44) END,
	(uniform(g, 45) < 0.13)::smallint,
	(uniform(g, 46) < 0.09)::smallint,
	(uniform(g, 47) < 0.01)::smallint,
	(uniform(g, 48) < 0.1)::smallint,
	(uniform(g, 49) < 0.07)::smallint,
	CASE way WHEN 'direct' THEN 0 WHEN 'inside' THEN -1 WHEN 'search' THEN 2 ELSE 1 + g % 2 * 5 END,
	CASE way WHEN 'search' THEN engine ELSE 0 END,
	CASE WHEN uniform(g, 50) < 0.006 THEN 2 + skewed(g, 51, 18, 4) * 3 ELSE 0 END,
	phrase,
	CASE WHEN visitor % 15 = 1 THEN 1 + skewed(visitor, 52, 80, 3) ELSE 0 END,
	CASE
		WHEN visitor % 15 = 1 THEN plain_word(skewed(visitor, 52, 80, 3), 53) || ' '
			|| skewed(visitor, 54, 4, 2)
		ELSE ''
	END,
	width,
	width * 9 // 16 + visitor % 5 * 24,
	width - skewed(g, 55, 120, 6),
	greatest(width * 9 // 16 - 100 - skewed(g, 56, 500, 2), 0),
	skewed(visitor, 57, 90, 3),
	skewed(visitor, 58, 80, 3),
	['ru', 'en', 'de', 'fr', 'es', 'pl', 'tr', 'uk'][1 + skewed(visitor, 59, 8, 4)],
	CASE WHEN uniform(visitor, 60) < 0.4 THEN 0 ELSE 18 + skewed(visitor, 61, 50, 1.5) END,
	visitor % 3,
	skewed(site, 62, 15000, 2),
	CASE WHEN uniform(g, 63) < 0.1 THEN 0 ELSE skewed(g, 64, 60000, 6) END,
	CASE WHEN uniform(g, 65) < 0.02 THEN plain_word(g, 66) ELSE '' END,
	CASE WHEN uniform(g, 67) < 0.03 THEN '{"id":' || g % 1000 || ',"n":' || site || '}' ELSE '' END
FROM (
	SELECT
		*,
		-- rows arrive up to two minutes late
		TIMESTAMP '2026-03-01 00:00:00' + to_seconds(
			greatest(g * (31 * 86400) // getvariable('row_count') - skewed(g, 8, 120, 1), 0)
		) AS event_time,
		getvariable('widths')[1 + skewed(visitor, 9, len(getvariable('widths')), 2)]
		+ CASE WHEN uniform(visitor, 10) < 0.1 THEN skewed(visitor, 11, 5, 2) * 16 ELSE 0 END AS width
	FROM page_views()
);

DROP MACRO TABLE page_views;
CHECKPOINT;
