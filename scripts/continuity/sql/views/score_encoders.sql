-- one task and pair of encoders, the first before the second in the alphabet: do they agree on mu?
-- pair [] A-B: encoder A against encoder B
-- difference [] mu by A less mu by B
-- low [] lower end of the 95 % interval, as if the two were independent: wider than it need be, for they share the sequences
-- high [] upper end of the 95 % interval
SELECT task, a.encoder || '-' || b.encoder AS pair, a.mu - b.mu AS difference,
    a.mu - b.mu - sqrt((a.mu - a.low) ** 2 + (b.high - b.mu) ** 2) AS low,
    a.mu - b.mu + sqrt((a.high - a.mu) ** 2 + (b.mu - b.low) ** 2) AS high
FROM score AS a JOIN score AS b USING (task)
WHERE a.encoder < b.encoder AND a.mu IS NOT NULL AND b.mu IS NOT NULL
ORDER BY ALL
