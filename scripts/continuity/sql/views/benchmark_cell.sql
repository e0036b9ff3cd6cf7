-- one labelled task and model: test accuracy over seeds
-- accuracy [] mean test accuracy over seeds
-- low [] lower end of the 95 % t interval of accuracy; residual variance pooled over all cells
-- high [] upper end of the 95 % t interval of accuracy
-- n_seeds [] runs averaged
-- n_failed [] runs without a number; they are in no average
WITH pooled AS (
    SELECT sum((accuracy - centre) ** 2) AS squares, count(*) - count(DISTINCT (task, model)) AS df
    FROM (
        SELECT *, avg(accuracy) OVER (PARTITION BY task, model) AS centre
        FROM benchmark WHERE accuracy IS NOT NULL
    )
), cell AS (
    SELECT task, model, avg(accuracy) AS accuracy, max(majority) AS majority, count(accuracy) AS n_seeds,
        count(*) - count(accuracy) AS n_failed
    FROM benchmark GROUP BY ALL
)
SELECT task, model, accuracy, accuracy - t * sqrt(squares / pooled.df / n_seeds) AS low,
    accuracy + t * sqrt(squares / pooled.df / n_seeds) AS high, majority, n_seeds, n_failed
FROM cell CROSS JOIN pooled LEFT JOIN t_quantiles ON t_quantiles.df = least(pooled.df, 1000)
ORDER BY ALL
