-- Rows for the tables of ssb_tables.sql, by DuckDB, as the star schema benchmark describes them: uniform.
--
-- Before it: random.sql, and SET VARIABLE scale = ...; scale 1 has 6 million rows of lineorder.  An order
-- has four lines, the attributes of the order are the same in all of them.

-- five regions of five nations of ten cities
SET VARIABLE nations = [
	'ALGERIA', 'ETHIOPIA', 'KENYA', 'MOROCCO', 'MOZAMBIQUE',
	'ARGENTINA', 'BRAZIL', 'CANADA', 'PERU', 'UNITED STATES',
	'CHINA', 'INDIA', 'INDONESIA', 'JAPAN', 'VIETNAM',
	'FRANCE', 'GERMANY', 'ROMANIA', 'RUSSIA', 'UNITED KINGDOM',
	'EGYPT', 'IRAN', 'IRAQ', 'JORDAN', 'SAUDI ARABIA'
];
SET VARIABLE regions = ['AFRICA', 'AMERICA', 'ASIA', 'EUROPE', 'MIDDLE EAST'];
SET VARIABLE colors = [
	'almond', 'antique', 'azure', 'beige', 'black', 'blue', 'brown', 'coral', 'cream', 'cyan',
	'firebrick', 'forest', 'gold', 'green', 'indian', 'ivory', 'khaki', 'lemon', 'linen', 'maroon',
	'navy', 'olive', 'orange', 'pink', 'plum', 'red', 'rose', 'salmon', 'sky', 'violet'
];

CREATE MACRO below(key, use, n) AS skewed(key, use, n, 1)::integer;
CREATE MACRO one_of(key, use, list) AS list[1 + below(key, use, len(list))];
CREATE MACRO nation_of(number) AS getvariable('nations')[1 + number];
CREATE MACRO region_of(number) AS getvariable('regions')[1 + number // 5];
CREATE MACRO city_of(number, key, use) AS
	rpad(nation_of(number)[:9], 9, ' ') || below(key, use, 10);
CREATE MACRO phone_of(number, key, use) AS
	(10 + number) || '-' || (100 + below(key, use, 900)) || '-' || (1000 + below(key, use + 1, 9000));
CREATE MACRO count_of(number) AS greatest(floor(number * getvariable('scale')), 10)::bigint;
CREATE MACRO datekey(day) AS strftime(day, '%Y%m%d')::integer;

INSERT INTO dates
SELECT
	datekey(day), day, dayname(day), monthname(day), year(day), year(day) * 100 + month(day),
	strftime(day, '%b%Y'), day(day), dayofyear(day), month(day), 1 + (dayofyear(day) - 1) // 7,
	CASE
		WHEN month(day) IN (11, 12) THEN 'Christmas' WHEN month(day) <= 2 THEN 'Winter'
		WHEN month(day) <= 5 THEN 'Spring' WHEN month(day) <= 8 THEN 'Summer' ELSE 'Fall'
	END
FROM (SELECT unnest(range(DATE '1992-01-01', DATE '1999-01-01', INTERVAL 1 DAY))::date AS day);

INSERT INTO customer
SELECT
	key, format('Customer#{:09d}', key), hash(key)::text, city_of(nation, key, 2),
	nation_of(nation), region_of(nation), phone_of(nation, key, 3),
	one_of(key, 5, ['AUTOMOBILE', 'BUILDING', 'FURNITURE', 'HOUSEHOLD', 'MACHINERY'])
FROM (SELECT range + 1 AS key, below(range + 1, 1, 25) AS nation FROM range(count_of(30000)));

INSERT INTO supplier
SELECT
	key, format('Supplier#{:09d}', key), hash(-key)::text, city_of(nation, key, 7),
	nation_of(nation), region_of(nation), phone_of(nation, key, 8)
FROM (SELECT range + 1 AS key, below(range + 1, 6, 25) AS nation FROM range(count_of(2000)));

INSERT INTO part
SELECT
	key, color || ' ' || one_of(key, 12, getvariable('colors')), category[:6], category,
	category || (1 + below(key, 13, 40)), color,
	one_of(key, 14, ['STANDARD', 'SMALL', 'MEDIUM', 'LARGE', 'ECONOMY', 'PROMO']) || ' '
	|| one_of(key, 15, ['ANODIZED', 'BURNISHED', 'PLATED', 'POLISHED', 'BRUSHED']) || ' '
	|| one_of(key, 16, ['TIN', 'NICKEL', 'BRASS', 'STEEL', 'COPPER']),
	1 + below(key, 17, 50),
	one_of(key, 18, ['SM', 'LG', 'MED', 'JUMBO', 'WRAP']) || ' '
	|| one_of(key, 19, ['CASE', 'BOX', 'BAG', 'JAR', 'PKG', 'PACK', 'CAN', 'DRUM'])
FROM (
	SELECT
		range + 1 AS key, one_of(range + 1, 10, getvariable('colors')) AS color,
		'MFGR#' || (1 + below(range + 1, 11, 5)) || (1 + below(range + 1, 20, 5)) AS category
	FROM range(count_of(200000))
);

-- the last orders are of August 1998; lo_ordtotalprice is four times what the line costs
INSERT INTO lineorder
SELECT
	"order", line, customer, part, supplier, datekey(day), priority, 0,
	quantity, quantity * price, 4 * quantity * price, discount,
	quantity * price * (100 - discount) // 100, price * 6 // 10, below(g, 29, 9),
	datekey(day + 30 + below(g, 30, 60)),
	one_of(g, 31, ['REG AIR', 'AIR', 'RAIL', 'SHIP', 'TRUCK', 'MAIL', 'FOB'])
FROM (
	SELECT
		range AS g, range // 4 + 1 AS "order", range % 4 + 1 AS line,
		1 + below(range // 4, 21, count_of(30000)) AS customer,
		1 + below(range, 22, count_of(200000)) AS part,
		1 + below(range, 23, count_of(2000)) AS supplier,
		DATE '1992-01-01' + below(range // 4, 24, 2406) AS day,
		one_of(range // 4, 25, ['1-URGENT', '2-HIGH', '3-MEDIUM', '4-NOT SPECI', '5-LOW']) AS priority,
		1 + below(range, 26, 50) AS quantity,
		90000 + below(range, 27, 110000) AS price,
		below(range, 28, 11) AS discount
	FROM range(count_of(6000000))
);
