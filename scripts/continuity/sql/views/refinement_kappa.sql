-- one system, model, method, step rule and amplitude: continuity of a trained model, over step scales and seeds
-- kappa [sd of the output] geometric mean over step scales and seeds of drift / hold_error; small is continuous
-- low [sd of the output] lower end of the 95 % t interval of kappa over seeds; residual variance pooled within a step rule
-- high [sd of the output] upper end of the 95 % t interval of kappa over seeds
-- exponent [] slope of log drift over log hold_error; 1 where drift is proportional to the hold error
-- n_seeds [] runs averaged
WITH run AS (
    SELECT system, model, method, step_rule, amplitude, seed, avg(ln(drift / hold_error)) AS log_kappa,
        regr_slope(ln(drift), ln(hold_error)) AS exponent
    FROM refinement WHERE drift > 0 AND hold_error > 0 GROUP BY ALL
), pooled AS (
    SELECT step_rule, sum((log_kappa - centre) ** 2) AS squares,
        count(*) - count(DISTINCT (system, model, method, amplitude)) AS df
    FROM (
        SELECT *, avg(log_kappa) OVER (PARTITION BY system, model, method, step_rule, amplitude) AS centre FROM run
    )
    GROUP BY ALL
), cell AS (
    SELECT system, model, method, step_rule, amplitude, avg(log_kappa) AS log_kappa, avg(exponent) AS exponent,
        count(*) AS n_seeds
    FROM run GROUP BY ALL
)
SELECT system, model, method, step_rule, amplitude, exp(log_kappa) AS kappa,
    exp(log_kappa - t * sqrt(squares / pooled.df / n_seeds)) AS low,
    exp(log_kappa + t * sqrt(squares / pooled.df / n_seeds)) AS high, exponent, n_seeds
FROM cell JOIN pooled USING (step_rule) LEFT JOIN t_quantiles ON t_quantiles.df = least(pooled.df, 1000)
ORDER BY ALL
