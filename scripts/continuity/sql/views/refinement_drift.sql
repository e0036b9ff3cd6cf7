-- one system, model, method, step rule, amplitude and step scale: drift and error over seeds
-- drift [sd of the output] geometric mean of drift over seeds
-- low [sd of the output] lower end of the 95 % t interval of drift; residual variance of log drift pooled over all cells
-- high [sd of the output] upper end of the 95 % t interval of drift
-- hold_error [] geometric mean of hold_error over seeds
-- rmse [sd of the label] geometric mean of rmse over seeds
-- n_seeds [] runs averaged
-- n_failed [] runs without a number; they are in no average
WITH pooled AS (
    SELECT sum((ln(drift) - centre) ** 2) AS squares,
        count(*) - count(DISTINCT (system, model, method, step_rule, amplitude, step_scale)) AS df
    FROM (
        SELECT *, avg(ln(drift)) OVER (
            PARTITION BY system, model, method, step_rule, amplitude, step_scale) AS centre
        FROM refinement WHERE drift > 0
    )
), cell AS (
    SELECT system, model, method, step_rule, amplitude, step_scale, avg(ln(drift)) FILTER (drift > 0) AS log_drift,
        avg(ln(hold_error)) FILTER (hold_error > 0) AS log_hold, avg(ln(rmse)) FILTER (rmse > 0) AS log_error,
        count(*) FILTER (rmse > 0) AS n_seeds, count(*) FILTER (drift > 0) AS n_drift,
        count(*) FILTER (rmse IS NULL) AS n_failed
    FROM refinement GROUP BY ALL
)
SELECT system, model, method, step_rule, amplitude, step_scale, exp(log_drift) AS drift,
    exp(log_drift - t * sqrt(squares / pooled.df / n_drift)) AS low,
    exp(log_drift + t * sqrt(squares / pooled.df / n_drift)) AS high, exp(log_hold) AS hold_error,
    exp(log_error) AS rmse, n_seeds, n_failed
FROM cell CROSS JOIN pooled LEFT JOIN t_quantiles ON t_quantiles.df = least(pooled.df, 1000)
ORDER BY ALL
