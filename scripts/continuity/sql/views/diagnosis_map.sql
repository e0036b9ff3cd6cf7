-- one system, model, method, layer and part of the sequence: departure of a trained layer, over seeds
-- own_layer [sd of the layer] geometric mean over seeds of the departure that the layer makes itself
-- departure_layer [sd of the layer] geometric mean over seeds of its departure with what it inherits
-- lipschitz_delta [1/input] geometric mean over seeds of the local Lipschitz constant of Delta(u)
-- n_seeds [] runs averaged
WITH run AS (
    SELECT DISTINCT system, model, method, seed, layer, position, own_layer, departure_layer, lipschitz_delta
    FROM diagnosis WHERE own_layer IS NOT NULL
)
SELECT system, model, method, layer, position, exp(avg(ln(own_layer)) FILTER (own_layer > 0)) AS own_layer,
    exp(avg(ln(departure_layer)) FILTER (departure_layer > 0)) AS departure_layer,
    exp(avg(ln(lipschitz_delta)) FILTER (lipschitz_delta > 0)) AS lipschitz_delta, count(*) AS n_seeds
FROM run
GROUP BY ALL
ORDER BY ALL
